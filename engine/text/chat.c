/* Conversations in the chat templates that have names, for files without one. See chat.h.
 *
 * Each family is a function, which the rules of its templates vary. It writes through a writer: the text between two
 * markers is collected and tokenized as one piece, because a word may begin in the template and end in the message. A
 * marker is written as its token if the vocabulary has one, else as text (in Llama 2's "[INST]" is text, in later
 * Mistral's a token). Roles and the beginning follow the published templates, which also decide what is refused.
 * Thread: any; no state. */
#include "engine/text/chat.h"

#include "common/base/limits.h"
#include "common/text/unicode.h"
#include "engine/text/vocabulary.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

struct writer {
	const struct chat_template *template;
	const struct tokenizer *tokenizer;
	const struct conversation *conversation;
	unsigned rules;
	struct token_list *out;
	struct error *error;
	struct buffer text; // not made into tokens yet
	enum status status; // of the first thing that failed; nothing is done after
};

// ---- what a template consists of ----

static void fail(struct writer *writer, enum status status)
{
	if (!writer->status)
		writer->status = status;
}

static void refuse(struct writer *writer, const char *what)
{
	if (!writer->status)
		writer->status = error_set(writer->error, STATUS_INVALID_PARAMS, "%s (chat template %s)", what,
					   writer->template->name);
}

static void put_bytes(struct writer *writer, const char *text, size_t length)
{
	if (writer->status)
		return;
	fail(writer, buffer_append(&writer->text, text, length));
	if (writer->status == STATUS_LIMIT_EXCEEDED)
		error_set(writer->error, writer->status, "a conversation of more than %d bytes", LIMIT_TOKENIZE_BYTES);
}

static void put(struct writer *writer, const char *text)
{
	put_bytes(writer, text, strlen(text));
}

static void put_message(struct writer *writer, const struct chat_message *message)
{
	put_bytes(writer, message->text, message->length);
}

// Make tokens of the text so far. Behind a token, as at the beginning, it is a text of its own.
static void flush(struct writer *writer)
{
	if (writer->status || !writer->text.length)
		return;
	struct tokenize_params params = {.text = buffer_text(&writer->text), .length = writer->text.length};
	fail(writer, tokenize(writer->tokenizer, &params, writer->out, writer->error));
	buffer_clear(&writer->text);
}

static bool is_marker(const struct tokenizer *tokenizer, int32_t token)
{
	return token != NO_TOKEN && tokenizer->tokens[token].type != TOKEN_NORMAL;
}

static void put_token(struct writer *writer, int32_t token)
{
	if (token == NO_TOKEN)
		return;
	flush(writer);
	if (!writer->status)
		fail(writer, token_list_add(writer->out, (uint32_t)token));
}

static void mark(struct writer *writer, const char *marker)
{
	int32_t token = tokenizer_find(writer->tokenizer, marker, strlen(marker));
	if (is_marker(writer->tokenizer, token))
		put_token(writer, token);
	else
		put(writer, marker);
}

// The message without white space at its beginning and end.
static struct chat_message trimmed(const struct chat_message *message)
{
	struct chat_message out = *message;
	unsigned bytes;
	while (out.length && unicode_class(utf8_first(out.text, &bytes)) == CHARACTER_SPACE) {
		out.text += bytes;
		out.length -= bytes;
	}
	while (out.length) {
		size_t last = out.length - 1;
		while (last && ((uint8_t)out.text[last] & 0xC0) == 0x80)
			last--;
		if (unicode_class(utf8_first(out.text + last, &bytes)) != CHARACTER_SPACE)
			break;
		out.length = last;
	}
	return out;
}

static bool is_role(const struct chat_message *message, const char *role)
{
	return !strcmp(message->role, role);
}

static bool has(const struct writer *writer, enum chat_rule rule)
{
	return writer->rules & rule;
}

static struct chat_message part(const struct chat_message *message, const char *from, const char *to)
{
	return (struct chat_message){.role = message->role, .text = from, .length = (size_t)(to - from)};
}

static struct chat_message without_lines_before(struct chat_message message)
{
	while (message.length && *message.text == '\n') {
		message.text++;
		message.length--;
	}
	return message;
}

static const char thoughts_begin[] = "<think>", thoughts_end[] = "</think>";

static const char *find(const struct chat_message *message, const char *what)
{
	return memmem(message->text, message->length, what, strlen(what));
}

// The text after the last occurrence of `what`; the whole text if there is none.
static struct chat_message behind(struct chat_message message, const char *what)
{
	for (const char *found; (found = find(&message, what));)
		message = part(&message, found + strlen(what), message.text + message.length);
	return message;
}

// `system` of the template, with the day in it.
static void put_system(struct writer *writer)
{
	static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
					 "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
	const time_t now = (time_t)(writer->conversation->now_ms / 1000);
	struct tm day = {0};
	char date[64];
	gmtime_r(&now, &day);
	if (writer->template->family == CHAT_LLAMA3)
		snprintf(date, sizeof date, "%02d %s %04d", day.tm_mday, months[day.tm_mon % 12], day.tm_year + 1900);
	else
		snprintf(date, sizeof date, "%04d-%02d-%02d", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
	for (const char *at = writer->template->system; *at; at++)
		if (*at == CHAT_DATE)
			put(writer, date);
		else
			put_bytes(writer, at, 1);
}

// ---- families ----

static void write_llama3(struct writer *writer, const struct chat_message *messages, size_t count)
{
	const bool dated = writer->template->system[0];
	if (dated) {
		mark(writer, "<|start_header_id|>");
		put(writer, "system");
		mark(writer, "<|end_header_id|>");
		put(writer, "\n\n");
		put_system(writer);
	}
	for (size_t i = 0; i < count; i++) {
		struct chat_message message = has(writer, CHAT_TRIMS) ? trimmed(&messages[i]) : messages[i];
		if (is_role(&message, "tool"))
			refuse(writer, "messages of tools are not known to it");
		if (dated && !i) {
			bool first = is_role(&message, "system");
			if (first)
				put_message(writer, &message);
			mark(writer, "<|eot_id|>");
			if (first)
				continue;
		}
		mark(writer, "<|start_header_id|>");
		put(writer, message.role);
		mark(writer, "<|end_header_id|>");
		put(writer, "\n\n");
		put_message(writer, &message);
		mark(writer, "<|eot_id|>");
	}
	mark(writer, "<|start_header_id|>");
	put(writer, "assistant");
	mark(writer, "<|end_header_id|>");
	put(writer, "\n\n");
}

static void open_turn(struct writer *writer, const char *role)
{
	mark(writer, "<|im_start|>");
	put(writer, role);
}

static void close_turn(struct writer *writer)
{
	mark(writer, "<|im_end|>");
	put(writer, "\n");
}

// The last message of the user that is not a tool's answer; if there is none, the last message.
static size_t last_question(const struct chat_message *messages, size_t count)
{
	static const char begin[] = "<tool_response>", end[] = "</tool_response>";
	for (size_t i = count; i-- > 0;) {
		const struct chat_message *one = &messages[i];
		const bool tools = one->length >= strlen(end) && !memcmp(one->text, begin, strlen(begin)) &&
				   !memcmp(one->text + one->length - strlen(end), end, strlen(end));
		if (is_role(one, "user") && !tools)
			return i;
	}
	return count - 1;
}

// A message after the last question: its thoughts, and the answer.
static void put_thoughts(struct writer *writer, const struct chat_message *message, bool last)
{
	const char *end = find(message, thoughts_end);
	struct chat_message answer = *message, thoughts = part(message, message->text, end ? end : message->text);
	if (end)
		answer = without_lines_before(behind(answer, thoughts_end));
	while (thoughts.length && thoughts.text[thoughts.length - 1] == '\n')
		thoughts.length--;
	thoughts = without_lines_before(behind(thoughts, thoughts_begin));
	if (last || thoughts.length) {
		mark(writer, thoughts_begin);
		put(writer, "\n");
		put_message(writer, &thoughts);
		put(writer, "\n");
		mark(writer, thoughts_end);
		put(writer, "\n\n");
		answer = without_lines_before(answer);
	}
	put_message(writer, &answer);
}

static void put_answer(struct writer *writer, const struct chat_message *messages, size_t count, size_t at)
{
	struct chat_message message = messages[at];
	if (has(writer, CHAT_LATEST) && at > last_question(messages, count)) {
		put_thoughts(writer, &message, at + 1 == count);
		return;
	}
	if (has(writer, CHAT_FORGETS) ? at + 1 < count : has(writer, CHAT_LATEST) && find(&message, thoughts_end))
		message = without_lines_before(behind(message, thoughts_end));
	put_message(writer, &message);
}

static void put_tool(struct writer *writer, const struct chat_message *messages, size_t count, size_t at)
{
	if (!at || !is_role(&messages[at - 1], "tool"))
		open_turn(writer, "user");
	put(writer, "\n");
	mark(writer, "<tool_response>");
	put(writer, "\n");
	put_message(writer, &messages[at]);
	put(writer, "\n");
	mark(writer, "</tool_response>");
	if (at + 1 == count || !is_role(&messages[at + 1], "tool"))
		close_turn(writer);
}

static void write_chatml(struct writer *writer, const struct chat_message *messages, size_t count)
{
	if (writer->template->system[0] && !is_role(&messages[0], "system")) {
		open_turn(writer, "system\n");
		put_system(writer);
		close_turn(writer);
	}
	for (size_t i = 0; i < count; i++) {
		if (has(writer, CHAT_TOOLS) && is_role(&messages[i], "tool")) {
			put_tool(writer, messages, count, i);
			continue;
		}
		open_turn(writer, messages[i].role);
		put(writer, "\n");
		if (is_role(&messages[i], "assistant"))
			put_answer(writer, messages, count, i);
		else
			put_message(writer, &messages[i]);
		close_turn(writer);
	}
	open_turn(writer, "assistant\n");
	if (writer->conversation->thinking == THINKING_OFF) {
		mark(writer, thoughts_begin);
		put(writer, "\n\n");
		mark(writer, thoughts_end);
		put(writer, "\n\n");
	} else if (has(writer, CHAT_OPENS)) {
		mark(writer, thoughts_begin);
		put(writer, "\n");
	}
}

// All system messages come before the conversation.
static void write_deepseek(struct writer *writer, const struct chat_message *messages, size_t count)
{
	static const char answer[] = "<｜Assistant｜>";
	size_t systems = 0;
	bool begun = false;
	for (size_t i = 0; i < count; i++)
		systems += is_role(&messages[i], "system");
	for (size_t i = 0, seen = 0; i < count; i++) {
		if (!is_role(&messages[i], "system") || (++seen < systems && !has(writer, CHAT_JOINS)))
			continue;
		put(writer, seen > 1 && has(writer, CHAT_JOINS) ? "\n\n" : "");
		put_message(writer, &messages[i]);
	}
	for (size_t i = 0; i < count; i++) {
		struct chat_message message = messages[i];
		if (is_role(&message, "tool"))
			refuse(writer, "messages of tools are not known to it");
		if (is_role(&message, "user")) {
			mark(writer, "<｜User｜>");
			put_message(writer, &message);
			begun = has(writer, CHAT_BEGUN);
			if (begun)
				mark(writer, answer);
		} else if (is_role(&message, "assistant")) {
			if (!has(writer, CHAT_BEGUN))
				mark(writer, answer);
			if (has(writer, CHAT_FORGETS))
				message = behind(message, thoughts_end);
			put_message(writer, &message);
			mark(writer, "<｜end▁of▁sentence｜>");
			begun = false;
		}
	}
	if (!begun)
		mark(writer, answer);
	if (has(writer, CHAT_OPENS)) {
		mark(writer, thoughts_begin);
		put(writer, "\n");
	}
}

static void write_zephyr(struct writer *writer, const struct chat_message *messages, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (is_role(&messages[i], "tool"))
			refuse(writer, "messages of tools are not known to it");
		char role[32] = "<|user|>";
		if (is_role(&messages[i], "system"))
			memcpy(role, "<|system|>", sizeof "<|system|>");
		else if (is_role(&messages[i], "assistant"))
			memcpy(role, "<|assistant|>", sizeof "<|assistant|>");
		mark(writer, role);
		put(writer, "\n");
		put_message(writer, &messages[i]);
		put_token(writer, writer->tokenizer->end);
		put(writer, "\n");
	}
	mark(writer, "<|assistant|>");
	put(writer, "\n");
}

// Users and assistants must take turns behind an optional system message, and the user have the last word.
static size_t check_turns(struct writer *writer, const struct chat_message *messages, size_t count)
{
	size_t first = is_role(&messages[0], "system");
	for (size_t i = first; i < count; i++)
		if (!is_role(&messages[i], (i - first) % 2 ? "assistant" : "user"))
			refuse(writer, "after a system message, user and assistant must take turns");
	if ((count - first) % 2 == 0)
		refuse(writer, "the last message must be the user's");
	return first;
}

static void write_llama2(struct writer *writer, const struct chat_message *messages, size_t count)
{
	size_t first = check_turns(writer, messages, count);
	for (size_t i = first; i < count && !writer->status; i++) {
		struct chat_message message = trimmed(&messages[i]);
		if ((i - first) % 2) {
			put(writer, " ");
			put_message(writer, &message);
			put(writer, " ");
			put_token(writer, writer->tokenizer->end);
			continue;
		}
		if (i > first)
			put_token(writer, writer->tokenizer->begin);
		mark(writer, "[INST]");
		put(writer, " ");
		if (first && i == first) { // the conversation as a whole is trimmed, so the beginning of this message
					   // stays
			put(writer, "<<SYS>>\n");
			put_message(writer, &messages[0]);
			put(writer, "\n<</SYS>>\n\n");
			size_t skipped = (size_t)(message.text - messages[i].text);
			message.text -= skipped;
			message.length += skipped;
		}
		put_message(writer, &message);
		put(writer, " ");
		mark(writer, "[/INST]");
	}
}

static bool has_brackets(const struct tokenizer *tokenizer)
{
	return is_marker(tokenizer, tokenizer_find(tokenizer, "[INST]", 6));
}

// The first Mistrals have "[INST]" as text, with spaces around; in later ones it is a token, behind which Tekken's have
// no space. The system message goes to the first, later to the last, of the user's.
static unsigned usual_of_mistral(const struct tokenizer *tokenizer)
{
	if (!has_brackets(tokenizer))
		return CHAT_ALTERNATES | CHAT_SPACE_IN | CHAT_SPACE_OUT | CHAT_SPACE_ANSWER | CHAT_TRIMS;
	if (tokenizer->pieces)
		return CHAT_ALTERNATES | CHAT_SPACE_IN | CHAT_SPACE_ANSWER | CHAT_TRIMS | CHAT_SYSTEM_LAST;
	return CHAT_ALTERNATES | CHAT_SYSTEM_LAST;
}

// The template's space; behind a token a vocabulary of pieces puts its own.
static void space(struct writer *writer, enum chat_rule rule)
{
	if (has(writer, rule) && (writer->text.length || !writer->tokenizer->pieces))
		put(writer, " ");
}

static void put_system_turn(struct writer *writer, const struct chat_message *message)
{
	mark(writer, "[SYSTEM_PROMPT]");
	if (message)
		put_message(writer, message);
	else
		put_system(writer);
	mark(writer, "[/SYSTEM_PROMPT]");
}

static void write_mistral(struct writer *writer, const struct chat_message *messages, size_t count)
{
	const bool given = is_role(&messages[0], "system"), turns = has(writer, CHAT_SYSTEM_TURNS);
	size_t first = has(writer, CHAT_ALTERNATES) ? check_turns(writer, messages, count) : 0;
	if (turns && !given && writer->template->system[0])
		put_system_turn(writer, NULL);
	for (size_t i = turns ? 0 : first; i < count && !writer->status; i++) {
		struct chat_message message = messages[i];
		if (is_role(&message, "system")) {
			put_system_turn(writer, &message);
		} else if (is_role(&message, "assistant")) {
			if (has(writer, CHAT_TRIMS))
				message = trimmed(&message);
			space(writer, CHAT_SPACE_ANSWER);
			put_message(writer, &message);
			put_token(writer, writer->tokenizer->end);
			space(writer, CHAT_SPACE_AFTER);
		} else if (is_role(&message, "user")) {
			mark(writer, "[INST]");
			space(writer, CHAT_SPACE_IN);
			if (given && !turns && i == (has(writer, CHAT_SYSTEM_LAST) ? count - 1 : first)) {
				put_message(writer, &messages[0]);
				put(writer, "\n\n");
			}
			put_message(writer, &message);
			put(writer, has(writer, CHAT_SPACE_OUT) ? " " : "");
			mark(writer, "[/INST]");
		} else {
			refuse(writer, "messages of tools are not known to it");
		}
	}
	if (!is_role(&messages[count - 1], "user"))
		refuse(writer, "the last message must be the user's");
}

// Checks that apply to messages of every family.
static enum status check_messages(const struct chat_message *messages, size_t count, struct error *error)
{
	static const char *const roles[] = {"system", "user", "assistant", "tool"};
	if (!count)
		return error_set(error, STATUS_INVALID_PARAMS, "a conversation without messages");
	for (size_t i = 0; i < count; i++) {
		bool known = false;
		for (size_t k = 0; k < sizeof roles / sizeof *roles; k++)
			known = known || is_role(&messages[i], roles[k]);
		if (!known)
			return error_set(
				error, STATUS_INVALID_PARAMS,
				"message %zu is of the role \"%.40s\"; known are system, user, assistant and tool", i,
				messages[i].role);
		size_t good = utf8_good(messages[i].text, messages[i].length);
		if (good < messages[i].length)
			return error_set(error, STATUS_INVALID_PARAMS, "message %zu is not UTF-8 at byte %zu", i, good);
	}
	return STATUS_OK;
}

static void write_all(struct writer *writer)
{
	static void (*const writes[])(struct writer *, const struct chat_message *, size_t) = {
		[CHAT_LLAMA3] = write_llama3,   [CHAT_ML] = write_chatml,         [CHAT_LLAMA2] = write_llama2,
		[CHAT_MISTRAL] = write_mistral, [CHAT_DEEPSEEK] = write_deepseek, [CHAT_ZEPHYR] = write_zephyr};
	const enum chat_family family = writer->template->family;
	if (has(writer, CHAT_VOCABULARY))
		writer->rules = usual_of_mistral(writer->tokenizer);
	// Some templates put the token of the beginning first by themselves, whatever the file asks for.
	if ((family != CHAT_ML && family != CHAT_ZEPHYR) || writer->tokenizer->add_begin)
		put_token(writer, writer->tokenizer->begin);
	writes[family](writer, writer->conversation->messages, writer->conversation->count);
	flush(writer);
}

enum status chat_template_apply(const struct chat_template *template, const struct tokenizer *tokenizer,
				const struct conversation *conversation, struct token_list *out, struct error *error)
{
	struct writer writer = {.template = template,
				.tokenizer = tokenizer,
				.conversation = conversation,
				.rules = template->rules,
				.out = out,
				.error = error};
	enum status status = check_messages(conversation->messages, conversation->count, error);
	if (status)
		return status;
	if (template->program)
		return chat_render(template, tokenizer, conversation, out, error);
	if (conversation->opened)
		*conversation->opened = has(&writer, CHAT_OPENS) && conversation->thinking != THINKING_OFF;
	buffer_init(&writer.text, LIMIT_TOKENIZE_BYTES);
	if (conversation->thinking != THINKING_UNSAID && !has(&writer, CHAT_SWITCHES))
		refuse(&writer, "enable_thinking is not known to it");
	if (!writer.status)
		write_all(&writer);
	buffer_finish(&writer.text);
	if (writer.status)
		error_set(error, writer.status,
			  writer.status == STATUS_LIMIT_EXCEEDED ? "the conversation has too many tokens"
								 : "no memory for the conversation");
	return writer.status;
}
