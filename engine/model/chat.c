/* The known chat templates. See chat.h.
 *
 * Each is a few facts in one table, and a function that several share. What they write goes through a writer: text is
 * gathered and made into tokens up to the next marker, as one piece, because words may begin in the template and end in
 * the message; a marker is its token where the vocabulary has one, and text where it has none (in Llama 2's "[INST]"
 * is text, in later Mistral's a token). Roles and the beginning follow the published templates; what they refuse is
 * refused here. Thread: any; nothing is kept. */
#include "engine/model/chat.h"

#include "common/base/limits.h"
#include "engine/model/tokenizer_inside.h"
#include "engine/model/unicode.h"

#include <string.h>

struct writer {
	const struct chat_template *template;
	const struct tokenizer *tokenizer;
	struct token_list *out;
	struct error *error;
	struct buffer text; // not made into tokens yet
	enum status status; // of the first thing that failed; nothing is done after
};

struct chat_template {
	const char *name;
	// Texts of the template by which it is recognised, and such as it must not have.
	const char *has[3], *has_not[3];
	void (*write)(struct writer *writer, const struct chat_message *messages, size_t count);
	// Whether the token of the beginning comes first even if the file does not ask for it.
	bool begins;
	const char *system; // what a conversation without a system message is given; NULL: nothing
	bool tool_turns;    // answers of tools are part of the user's turn
	bool thinks;        // thoughts of earlier turns are left out
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

// ---- families ----

static void write_llama3(struct writer *writer, const struct chat_message *messages, size_t count)
{
	const char *dated = writer->template->system; // comes before any system message
	if (dated) {
		mark(writer, "<|start_header_id|>");
		put(writer, "system");
		mark(writer, "<|end_header_id|>");
		put(writer, "\n\n");
		put(writer, dated);
	}
	for (size_t i = 0; i < count; i++) {
		struct chat_message message = trimmed(&messages[i]);
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

// The answer behind the thoughts.
static struct chat_message without_thoughts(const struct chat_message *message)
{
	static const char end[] = "</think>";
	struct chat_message out = *message;
	for (const char *found; (found = memmem(out.text, out.length, end, strlen(end)));) {
		out.length -= (size_t)(found - out.text) + strlen(end);
		out.text = found + strlen(end);
	}
	while (out.text != message->text && out.length && *out.text == '\n') {
		out.text++;
		out.length--;
	}
	return out;
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

static void write_chatml(struct writer *writer, const struct chat_message *messages, size_t count)
{
	const struct chat_template *template = writer->template;
	if (template->system && !is_role(&messages[0], "system")) {
		open_turn(writer, "system\n");
		put(writer, template->system);
		close_turn(writer);
	}
	for (size_t i = 0; i < count; i++) {
		struct chat_message message = messages[i];
		bool tool = template->tool_turns && is_role(&message, "tool");
		if (tool) {
			if (!i || !is_role(&messages[i - 1], "tool"))
				open_turn(writer, "user");
			put(writer, "\n");
			mark(writer, "<tool_response>");
			put(writer, "\n");
			put_message(writer, &message);
			put(writer, "\n");
			mark(writer, "</tool_response>");
			if (i + 1 == count || !is_role(&messages[i + 1], "tool"))
				close_turn(writer);
			continue;
		}
		if (template->thinks && is_role(&message, "assistant"))
			message = without_thoughts(&message);
		open_turn(writer, message.role);
		put(writer, "\n");
		put_message(writer, &message);
		close_turn(writer);
	}
	open_turn(writer, "assistant\n");
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
		if (first && i == first) { // then what is trimmed is the whole, so the message's beginning stays
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

// The first Mistrals have "[INST]" as text, with spaces around; in later ones it is a token. There a SentencePiece
// vocabulary puts its own space behind it. The system message goes to the first, later to the last, of the user's.
static void write_mistral(struct writer *writer, const struct chat_message *messages, size_t count)
{
	size_t first = check_turns(writer, messages, count);
	bool tokens = is_marker(writer->tokenizer, tokenizer_find(writer->tokenizer, "[INST]", 6));
	for (size_t i = first; i < count && !writer->status; i++) {
		if ((i - first) % 2) {
			struct chat_message message = trimmed(&messages[i]);
			put(writer, tokens ? "" : " ");
			put_message(writer, &message);
			put_token(writer, writer->tokenizer->end);
			continue;
		}
		mark(writer, "[INST]");
		put(writer, tokens ? "" : " ");
		if (first && i == (tokens ? count - 1 : first)) {
			put_message(writer, &messages[0]);
			put(writer, "\n\n");
		}
		put_message(writer, &messages[i]);
		put(writer, tokens ? "" : " ");
		mark(writer, "[/INST]");
	}
}

// The first that fits counts.
static const struct chat_template templates[] = {
	{.name = "llama3.1",
	 .has = {"<|start_header_id|>", "<|eot_id|>", "Cutting Knowledge Date"},
	 .write = write_llama3,
	 .begins = true,
	 .system = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"},
	{.name = "llama3", .has = {"<|start_header_id|>", "<|eot_id|>"}, .write = write_llama3, .begins = true},
	{.name = "qwen2.5",
	 .has = {"<|im_start|>", "<tool_response>"},
	 .write = write_chatml,
	 .system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
	 .tool_turns = true},
	{.name = "qwen3",
	 .has = {"<|im_start|>", "<tool_response>"},
	 .write = write_chatml,
	 .tool_turns = true,
	 .thinks = true},
	{.name = "qwen2",
	 .has = {"<|im_start|>"},
	 .has_not = {"<tool_response>"},
	 .write = write_chatml,
	 .system = "You are a helpful assistant."},
	{.name = "qwen1.5",
	 .has = {"<|im_start|>"},
	 .has_not = {"<tool_response>"},
	 .write = write_chatml,
	 .system = "You are a helpful assistant"},
	{.name = "smollm2",
	 .has = {"<|im_start|>"},
	 .has_not = {"<tool_response>"},
	 .write = write_chatml,
	 .system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
	{.name = "chatml",
	 .has = {"<|im_start|>", "<|im_end|>"},
	 .has_not = {"<tool_response>", "system_message = 'You", "system_message = \"You"},
	 .write = write_chatml},
	{.name = "llama2", .has = {"[INST]", "<<SYS>>"}, .write = write_llama2, .begins = true},
	{.name = "mistral",
	 .has = {"[INST]", "[/INST]"},
	 .has_not = {"[SYSTEM_PROMPT]"},
	 .write = write_mistral,
	 .begins = true},
	{.name = "zephyr",
	 .has = {"<|user|>", "<|assistant|>", "eos_token"},
	 .has_not = {"<|end|>", "[gMASK]"},
	 .write = write_zephyr},
};

static bool contains(const struct gguf_text *text, const char *what)
{
	return memmem(text->bytes, text->length, what, strlen(what));
}

// Whether this is the system message that a template of ChatML writes by itself: what stands behind the beginning of
// the turn, unless there the string of the program ends.
static bool has_system(const struct gguf_text *text, const char *system)
{
	static const char *const beginnings[] = {"<|im_start|>system\\n", "<|im_start|>system\n"};
	const char *end = text->bytes + text->length;
	for (unsigned i = 0; i < 2; i++) {
		size_t length = strlen(beginnings[i]);
		for (const char *at = text->bytes; (at = memmem(at, (size_t)(end - at), beginnings[i], length));) {
			at += length;
			size_t left = (size_t)(end - at), wanted = system ? strlen(system) : 0;
			if (left && (*at == '\'' || *at == '"' || *at == '{'))
				continue;
			return wanted && left > wanted && !memcmp(at, system, wanted) && at[wanted] == '<';
		}
	}
	return !system;
}

static bool fits(const struct chat_template *template, const struct gguf_text *text)
{
	for (unsigned i = 0; i < 3 && template->has[i]; i++)
		if (!contains(text, template->has[i]))
			return false;
	for (unsigned i = 0; i < 3 && template->has_not[i]; i++)
		if (contains(text, template->has_not[i]))
			return false;
	return template->write != write_chatml || has_system(text, template->system);
}

const struct chat_template *chat_template_recognise(const struct gguf *gguf)
{
	struct gguf_text text;
	if (!gguf_get_text(gguf, "tokenizer.chat_template", &text) || !text.length)
		return NULL;
	for (size_t i = 0; i < sizeof templates / sizeof *templates; i++)
		if (fits(&templates[i], &text))
			return &templates[i];
	return NULL;
}

const char *chat_template_name(const struct chat_template *template)
{
	return template->name;
}

// What every family takes for granted of messages.
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

enum status chat_template_apply(const struct chat_template *template, const struct tokenizer *tokenizer,
				const struct chat_message *messages, size_t count, struct token_list *out,
				struct error *error)
{
	struct writer writer = {.template = template, .tokenizer = tokenizer, .out = out, .error = error};
	enum status status = check_messages(messages, count, error);
	if (status)
		return status;
	buffer_init(&writer.text, LIMIT_TOKENIZE_BYTES);
	if (template->begins || tokenizer->add_begin)
		put_token(&writer, tokenizer->begin);
	template->write(&writer, messages, count);
	flush(&writer);
	buffer_finish(&writer.text);
	if (writer.status)
		error_set(error, writer.status,
			  writer.status == STATUS_LIMIT_EXCEEDED ? "the conversation has too many tokens"
								 : "no memory for the conversation");
	return writer.status;
}
