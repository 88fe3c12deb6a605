/* Finds the named template that a file's template resembles: its family, its rules, and its own system message. See
 * chat.h.
 *
 * The template is not run here: its text is searched for forms that published templates have, each with one meaning. A
 * template with other forms, in a place where it matters, is unknown. Everything is bounded: the text by
 * CHAT_TEXT_BYTES, variables that are set to other variables by LOOKUPS. Thread: any. */
#include "common/text/unicode.h"
#include "engine/text/chat.h"

#include <stdio.h>
#include <string.h>

enum { LOOKUPS = 8, WORD_BYTES = 64 };

#define KNOWLEDGE "Cutting Knowledge Date: December 2023\nToday Date: "

// The usual templates. The first of a family gives its name to templates that match none.
static const struct usual {
	const char *name;
	enum chat_family family;
	unsigned rules;
	const char *system; // NULL: none
} usual[] = {
	{"llama3", CHAT_LLAMA3, CHAT_TRIMS, NULL},
	{"llama3.1", CHAT_LLAMA3, CHAT_TRIMS, KNOWLEDGE "26 Jul 2024\n\n"},
	{"llama3.2", CHAT_LLAMA3, CHAT_TRIMS, KNOWLEDGE "\1\n\n"},
	{"chatml", CHAT_ML, 0, NULL},
	{"qwen1.5", CHAT_ML, 0, "You are a helpful assistant"},
	{"qwen2", CHAT_ML, 0, "You are a helpful assistant."},
	{"qwen2.5", CHAT_ML, CHAT_TOOLS, "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
	{"qwen3", CHAT_ML, CHAT_TOOLS | CHAT_LATEST | CHAT_SWITCHES, NULL},
	{"qwen3-instruct", CHAT_ML, CHAT_TOOLS, NULL},
	{"qwen3-thinking", CHAT_ML, CHAT_TOOLS | CHAT_LATEST | CHAT_OPENS, NULL},
	{"qwq", CHAT_ML, CHAT_TOOLS | CHAT_FORGETS | CHAT_OPENS, NULL},
	{"smollm2", CHAT_ML, 0, "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
	{"llama2", CHAT_LLAMA2, 0, NULL},
	{"mistral", CHAT_MISTRAL, CHAT_VOCABULARY, NULL},
	{"mistral-v7", CHAT_MISTRAL, CHAT_SYSTEM_TURNS, NULL},
	{"deepseek-r1", CHAT_DEEPSEEK, CHAT_FORGETS | CHAT_OPENS, NULL},
	{"deepseek-r1-0528", CHAT_DEEPSEEK, CHAT_FORGETS | CHAT_JOINS | CHAT_BEGUN, NULL},
	{"deepseek-v3", CHAT_DEEPSEEK, CHAT_JOINS, NULL},
	{"zephyr", CHAT_ZEPHYR, 0, NULL},
};
enum { USUAL = sizeof usual / sizeof *usual };

struct reader {
	const char *text, *end;
	struct chat_template *out;
	unsigned lookups; // that are left
};

// ---- places in the text ----

static const char *seek(const char *at, const char *end, const char *what)
{
	return memmem(at, (size_t)(end - at), what, strlen(what));
}

static bool contains(const struct reader *reader, const char *what)
{
	return seek(reader->text, reader->end, what);
}

static size_t count(const struct reader *reader, const char *what)
{
	size_t found = 0;
	for (const char *at = reader->text; (at = seek(at, reader->end, what)); at += strlen(what))
		found++;
	return found;
}

static bool begins(const char *at, const char *end, const char *what)
{
	return (size_t)(end - at) >= strlen(what) && !memcmp(at, what, strlen(what));
}

static const char *behind_space(const char *at, const char *end)
{
	while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r'))
		at++;
	return at;
}

static bool is_quote(const char *at, const char *end)
{
	return at < end && (*at == '\'' || *at == '"');
}

static bool is_word(char character)
{
	return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
	       (character >= '0' && character <= '9') || character == '_';
}

// A variable's name; "" if none stands here.
static void read_word(const char *at, const char *end, char word[WORD_BYTES])
{
	size_t length = 0;
	while (at + length < end && length + 1 < WORD_BYTES && is_word(at[length])) {
		word[length] = at[length];
		length++;
	}
	word[length] = 0;
}

// An end of a line, as a program writes it or as it is; NULL: none stands here.
static const char *behind_newline(const char *at, const char *end)
{
	return begins(at, end, "\\n") ? at + 2 : begins(at, end, "\n") ? at + 1 : NULL;
}

// ---- texts in it ----

struct literal {
	char text[CHAT_SYSTEM_BYTES];
	size_t length;
};

static bool add(struct literal *literal, char character)
{
	if (!character || character == CHAT_DATE || literal->length + 1 >= sizeof literal->text)
		return false;
	literal->text[literal->length++] = character;
	literal->text[literal->length] = 0;
	return true;
}

// Append the text up to the quote, and pass the quote. False: the text has no end, or has an unknown escape.
static bool read_quoted(const char **at, const char *end, char quote, struct literal *out)
{
	static const char escapes[] = "n\nt\tr\r'\'\"\"\\\\";
	bool good = true;
	while (*at < end && **at != quote && good) {
		char character = *(*at)++;
		if (character == '\\') {
			if (*at == end)
				return false;
			const char *escape = escapes;
			character = *(*at)++;
			if (character == '\n') // the text goes on in the next line
				continue;
			while (*escape && *escape != character)
				escape += 2;
			good = *escape != 0;
			character = good ? escape[1] : 0;
		}
		good = good && add(out, character);
	}
	return good && (*at)++ < end;
}

// Texts, and the day, with + between them, up to the end of the statement.
static bool read_sum(const struct reader *reader, const char *at, struct literal *out)
{
	char word[WORD_BYTES];
	for (;;) {
		at = behind_space(at, reader->end);
		if (is_quote(at, reader->end)) {
			const char quote = *at++;
			if (!read_quoted(&at, reader->end, quote, out))
				return false;
		} else {
			read_word(at, reader->end, word);
			const bool day = contains(reader, "today = strftime_now(\"%Y-%m-%d\")") ||
					 contains(reader, "today = strftime_now('%Y-%m-%d')");
			if (strcmp(word, "today") != 0 || !day || out->length + 1 >= sizeof out->text)
				return false;
			out->text[out->length++] = CHAT_DATE;
			out->text[out->length] = 0;
			at += strlen(word);
		}
		at = behind_space(at, reader->end);
		if (at == reader->end || (*at != '+' && *at != '~'))
			return begins(at, reader->end, "%}") || begins(at, reader->end, "-%}");
		at++;
	}
}

// The template's own system message; another one than before cannot be.
static bool take(struct reader *reader, const struct literal *literal)
{
	char *system = reader->out->system;
	if (utf8_good(literal->text, literal->length) != literal->length ||
	    (system[0] && literal->length && strcmp(system, literal->text) != 0))
		return false;
	if (literal->length)
		memcpy(system, literal->text, literal->length + 1);
	return true;
}

// Read the texts to which the program sets the variable, directly or through another variable. Variables for tools are
// not read, and those for messages are input.
static bool look_up(struct reader *reader, const char *name)
{
	char word[WORD_BYTES];
	struct literal literal;
	const char *end = reader->end;
	if (!name[0] || strstr(name, "tool") || !strncmp(name, "message", 7))
		return true;
	if (!reader->lookups)
		return false;
	reader->lookups--;
	for (const char *at = reader->text; (at = seek(at, end, "set "));) {
		const bool whole = at > reader->text && !is_word(at[-1]);
		at = behind_space(at + 4, end);
		read_word(at, end, word);
		const char *value = behind_space(at + strlen(word), end);
		if (!whole || strcmp(word, name) != 0 || value == end || *value != '=')
			continue;
		value = behind_space(value + 1, end);
		literal.length = 0;
		literal.text[0] = 0;
		if (is_quote(value, end) && (!read_sum(reader, value, &literal) || !take(reader, &literal)))
			return false;
		read_word(value, end, word);
		if (!is_quote(value, end) && !look_up(reader, word))
			return false;
	}
	return true;
}

// ---- the system message that a template has by itself ----

// The statement in front of this place, without its "{%".
static bool is_behind(const struct reader *reader, const char *at, const char *const any[], size_t anys)
{
	const char *close = NULL, *open = NULL;
	for (const char *next = reader->text; (next = seek(next, at, "%}")); next += 2)
		close = next;
	for (const char *next = reader->text; close && (next = seek(next, close, "{%")); next += 2)
		open = next + 2;
	for (size_t i = 0; open && i < anys; i++)
		if (seek(open, close, any[i]))
			return true;
	return false;
}

// After the opening of a turn, at the end of its string: read the value that is appended.
static bool read_given(struct reader *reader, const char *open, const char *at)
{
	static const char *const given[] = {"== 'system'", "== \"system\""};
	char word[WORD_BYTES];
	const char *end = reader->end, *stop = seek(at, end, "}}");
	at = behind_space(at, end);
	if (stop && (seek(at, stop, " else ") || seek(at, stop, "default(")))
		return false; // a system message of its own, perhaps
	if (at < end && (*at == '+' || *at == '~')) {
		at = behind_space(at + 1, end);
		if (is_quote(at, end) || (at < end && *at == '('))
			return false;
		read_word(at, end, word);
		return look_up(reader, word);
	}
	return is_behind(reader, open, given, 2);
}

// Behind the opening of the turn, and the text goes on: up to the turn's end, where no system message is given.
static bool read_own(struct reader *reader, const char *open, const char *at, const char *closing)
{
	static const char *const absent[] = {"else", "!= 'system'", "!= \"system\""};
	struct literal literal = {.length = 0};
	const char quote = open > reader->text ? open[-1] : 0, *close = seek(at, reader->end, closing);
	if (!close || !is_behind(reader, open, absent, 3))
		return false;
	if (quote != '\'' && quote != '"') { // text of the template, not of an expression
		while (at < close)
			if (*at == '{' || !add(&literal, *at++))
				return false;
		return take(reader, &literal);
	}
	if (!read_quoted(&at, reader->end, quote, &literal))
		return false;
	char *end = strstr(literal.text, closing);
	if (!end || (strcmp(end + strlen(closing), "") != 0 && strcmp(end + strlen(closing), "\n") != 0))
		return false;
	literal.length = (size_t)(end - literal.text);
	*end = 0;
	return take(reader, &literal);
}

// False: it may have one, and it is not known which.
static bool read_system(struct reader *reader, const char *opening, bool lines, const char *closing)
{
	static const char *const tools[] = {"tools"};
	const char *end = reader->end;
	if (contains(reader, "'role': 'system'") || contains(reader, "\"role\": \"system\""))
		return false;
	for (const char *open = reader->text; (open = seek(open, end, opening)); open += strlen(opening)) {
		const char *at = open + strlen(opening);
		if (lines && !(at = behind_newline(at, end)))
			return false;
		if (is_behind(reader, open, tools, 1))
			continue;
		const bool ends = is_quote(at, end), braces = begins(at, end, "{{");
		if (ends ? !read_given(reader, open, at + 1) : !braces && !read_own(reader, open, at, closing))
			return false;
		char word[WORD_BYTES];
		if (braces) {
			at = behind_space(at + 2 + begins(at, end, "{{-"), end);
			read_word(at, end, word);
			const char *stop = seek(at, end, "}}");
			if (!word[0] || !stop || seek(at, stop, " else ") || seek(at, stop, "default(") ||
			    !look_up(reader, word))
				return false;
		}
	}
	return true;
}

// ---- families ----

// Read how the answer begins. False: it has thoughts in an unknown form.
static bool read_thinking(struct reader *reader)
{
	static const char prompt[] = "add_generation_prompt", begin[] = "<think>", close[] = "</think>";
	const char *tail = reader->text, *end = reader->end;
	for (const char *next = tail; (next = seek(next, end, prompt)); next += strlen(prompt))
		tail = next;
	if (tail == reader->text) // always with an answer's beginning
		return !contains(reader, begin);
	for (const char *at = tail; (at = seek(at, end, begin));) {
		at = behind_newline(at + strlen(begin), end);
		if (!at)
			return false;
		if (is_quote(at, end) || begins(at, end, "{%")) {
			reader->out->rules |= CHAT_OPENS;
			continue;
		}
		at = behind_newline(at, end);
		if (!at || !begins(at, end, close) || !(at = behind_newline(at + strlen(close), end)) ||
		    !(at = behind_newline(at, end)) || !is_quote(at, end) ||
		    !seek(tail, at, "enable_thinking is false"))
			return false;
		reader->out->rules |= CHAT_SWITCHES;
	}
	return !seek(tail, end, "enable_thinking") || reader->out->rules & CHAT_SWITCHES;
}

static bool read_chatml(struct reader *reader)
{
	unsigned *rules = &reader->out->rules;
	const bool tools = contains(reader, "<tool_response>");
	if (!contains(reader, "<|im_end|>") || !read_thinking(reader) ||
	    !read_system(reader, "<|im_start|>system", true, "<|im_end|>"))
		return false;
	if (tools)
		*rules |= CHAT_TOOLS;
	if (tools ? !contains(reader, "<|im_start|>user'") && !contains(reader, "<|im_start|>user\"")
		  : contains(reader, "trim"))
		return false;
	if (contains(reader, "last_query_index"))
		*rules |= CHAT_LATEST;
	else if (contains(reader, "split('</think>')") && contains(reader, "not loop.last"))
		*rules |= CHAT_FORGETS;
	else if (contains(reader, "split('</think>')"))
		return false;
	return true;
}

// Whether the message comes next: the string ends, or an expression begins that keeps the white space before it.
static bool is_message(const char *at, const char *end)
{
	return is_quote(at, end) || (begins(at, end, "{{") && !begins(at, end, "{{-"));
}

// Models that judge conversations have words of their own behind a head, and Marin has one newline.
static bool read_llama3_heads(const struct reader *reader)
{
	static const char head[] = "<|end_header_id|>";
	const char *end = reader->end;
	for (const char *at = reader->text; (at = seek(at, end, head));) {
		at = behind_newline(at + strlen(head), end);
		at = at ? behind_newline(at, end) : NULL;
		if (!at || (!is_message(at, end) && !begins(at, end, "Cutting Knowledge Date") &&
			    (!begins(at, end, "{%") || begins(at, end, "{%-"))))
			return false;
	}
	return true;
}

static bool read_llama3(struct reader *reader)
{
	struct chat_template *out = reader->out;
	char system[256];
	if (!read_llama3_heads(reader))
		return false;
	out->rules |= contains(reader, "trim") || contains(reader, "strip(") ? CHAT_TRIMS : 0;
	if (!contains(reader, "Cutting Knowledge Date"))
		return true;
	if (contains(reader, "strftime_now"))
		return chat_template_named("llama3.2", out);
	if (!look_up(reader, "date_string") || strlen(out->system) > 64)
		return false;
	snprintf(system, sizeof system, KNOWLEDGE "%.64s\n\n", out->system[0] ? out->system : "26 Jul 2024");
	memcpy(out->system, system, strlen(system) + 1);
	return true;
}

// Recognise the templates of Llama 2 and Mistral.
static bool read_instructions(struct reader *reader)
{
	static const char head[] = "[INST]";
	const char *end = reader->end;
	for (const char *at = reader->text; (at = seek(at, end, head));) {
		at += strlen(head);
		at += begins(at, end, " ");
		if (!is_message(at, end) && !begins(at, end, "[/INST]") && !begins(at, end, "<<SYS>>"))
			return false;
	}
	return true;
}

static bool read_mistral(struct reader *reader)
{
	static const struct {
		enum chat_rule rule;
		const char *any[4];
	} forms[] = {
		{CHAT_SPACE_IN, {"[INST] "}},
		{CHAT_SPACE_OUT, {" [/INST]"}},
		{CHAT_SPACE_ANSWER, {"' ' + message", "\" \" + message", "' ' + content", "\" \" + content"}},
		{CHAT_SPACE_AFTER, {"eos_token + ' '", "eos_token + \" \""}},
		{CHAT_TRIMS, {"trim + eos_token"}},
		{CHAT_SYSTEM_TURNS, {"[SYSTEM_PROMPT]"}},
	};
	unsigned *rules = &reader->out->rules;
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
		for (size_t k = 0; k < 4 && forms[i].any[k]; k++)
			*rules |= contains(reader, forms[i].any[k]) ? forms[i].rule : 0;
	if (!read_instructions(reader) || contains(reader, "[THINK]") ||
	    count(reader, "trim") != count(reader, "trim + eos_token"))
		return false;
	if (*rules & CHAT_SYSTEM_TURNS) {
		*rules |= contains(reader, "alternate") ? CHAT_ALTERNATES : 0;
		return read_system(reader, "[SYSTEM_PROMPT]", false, "[/SYSTEM_PROMPT]");
	}
	*rules |= CHAT_ALTERNATES;
	if (contains(reader, "loop.last") && !contains(reader, "loop.first"))
		*rules |= CHAT_SYSTEM_LAST;
	return true;
}

static bool read_deepseek(struct reader *reader)
{
	static const char question[] = "<｜User｜>";
	unsigned *rules = &reader->out->rules;
	for (const char *at = reader->text; (at = seek(at, reader->end, question)); at += strlen(question)) {
		const char *stop = seek(at, reader->end, "}}");
		if (!stop || seek(at, stop, "<｜end")) // a question has no end of its own
			return false;
	}
	*rules |= contains(reader, "split('</think>')") ? CHAT_FORGETS : 0;
	*rules |= contains(reader, "is_first_sp") ? CHAT_JOINS : 0;
	*rules |= contains(reader, "+ '<｜Assistant｜>'") ? CHAT_BEGUN : 0;
	return read_thinking(reader);
}

// Tulu 3 and OLMo 2 have the same heads, but an end behind answers alone.
static bool read_zephyr(struct reader *reader)
{
	static const char *const heads[] = {"<|user|>", "<|system|>"};
	for (unsigned i = 0; i < 2; i++)
		for (const char *at = reader->text; (at = seek(at, reader->end, heads[i])); at += strlen(heads[i])) {
			const char *stop = seek(at, reader->end, "}}");
			const char *eos = stop ? seek(at, stop, "eos_token") : NULL;
			if (!eos || seek(at, eos, "{{") || seek(at, eos, "%}") || seek(at, stop, " if "))
				return false;
		}
	return true;
}

// The first that fits counts.
static const struct {
	enum chat_family family;
	const char *has[3], *has_not[3]; // texts by which it is recognised, and such as it must not have
	bool (*read)(struct reader *reader);
} families[] = {
	{CHAT_DEEPSEEK, {"<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"}, {NULL}, read_deepseek},
	{CHAT_LLAMA3, {"<|start_header_id|>", "<|eot_id|>"}, {NULL}, read_llama3},
	{CHAT_ML, {"<|im_start|>"}, {NULL}, read_chatml},
	{CHAT_LLAMA2, {"[INST]", "<<SYS>>"}, {NULL}, read_instructions},
	{CHAT_MISTRAL, {"[INST]", "[/INST]"}, {NULL}, read_mistral},
	{CHAT_ZEPHYR, {"<|user|>", "<|assistant|>", "eos_token"}, {"<|end|>", "[gMASK]"}, read_zephyr},
};

static bool fits(const struct reader *reader, const char *const has[3], bool wanted)
{
	for (unsigned i = 0; i < 3 && has[i]; i++)
		if (contains(reader, has[i]) != wanted)
			return false;
	return true;
}

// The name of the usual template that equals it, else a name of its family.
static const char *name_of(const struct chat_template *template)
{
	const char *name = NULL;
	for (size_t i = 0; i < USUAL; i++) {
		const struct usual *one = &usual[i];
		if (one->family != template->family)
			continue;
		if (one->rules == template->rules && !strcmp(one->system ? one->system : "", template->system))
			return one->name;
		name = name ? name : one->name;
	}
	if (template->family == CHAT_LLAMA3 && template->system[0])
		return "llama3.1";
	return template->rules & CHAT_SYSTEM_TURNS ? "mistral-v7" : name;
}

static bool recognise(struct reader *reader)
{
	const size_t known = sizeof families / sizeof *families;
	size_t i = 0;
	while (i < known && !(fits(reader, families[i].has, true) && fits(reader, families[i].has_not, false)))
		i++;
	if (i == known || !families[i].read(reader))
		return false;
	reader->out->family = families[i].family;
	reader->out->name = name_of(reader->out);
	return true;
}

bool chat_template_recognise(const struct gguf *gguf, struct chat_template *out)
{
	struct gguf_text text;
	memset(out, 0, sizeof *out);
	if (!gguf_get_text(gguf, "tokenizer.chat_template", &text) || !text.length || text.length > CHAT_TEXT_BYTES)
		return false;
	struct reader reader = {.text = text.bytes, .end = text.bytes + text.length, .out = out, .lookups = LOOKUPS};
	if (recognise(&reader))
		return true;
	memset(out, 0, sizeof *out);
	return false;
}

bool chat_template_named(const char *name, struct chat_template *out)
{
	memset(out, 0, sizeof *out);
	for (size_t i = 0; i < USUAL; i++) {
		const struct usual *one = &usual[i];
		if (strcmp(one->name, name) != 0)
			continue;
		out->family = one->family;
		out->name = one->name;
		out->rules = one->rules;
		if (one->rules & (CHAT_OPENS | CHAT_SWITCHES | CHAT_LATEST | CHAT_FORGETS))
			out->thoughts = thought_syntax_named("think");
		snprintf(out->system, sizeof out->system, "%s", one->system ? one->system : "");
		return true;
	}
	return false;
}

const char *chat_template_names(char text[CHAT_NAMES_BYTES])
{
	size_t length = 0;
	text[0] = 0;
	for (size_t i = 0; i < USUAL && length < CHAT_NAMES_BYTES; i++)
		length += (size_t)snprintf(text + length, CHAT_NAMES_BYTES - length, "%s%s", i ? ", " : "",
					   usual[i].name);
	return text;
}
