/* Conversations in a file's own chat template. See chat.h.
 *
 * The template writes text in which each byte is marked if it comes from a message. Special tokens are only looked for
 * in the other bytes. The text between two special tokens is tokenized as one piece, because a word may begin in the
 * template and end in the message. Roles are checked names and count as the template's own text, because some templates
 * write '<|' + role + '|>'. */
#include "common/base/limits.h"
#include "engine/text/chat.h"
#include "engine/text/vocabulary.h"

#include <stdlib.h>
#include <string.h>

enum status chat_template_of_file(const struct gguf *gguf, struct chat_template *out, struct error *error)
{
	struct gguf_text text;
	memset(out, 0, sizeof *out);
	if (!gguf_get_text(gguf, "tokenizer.chat_template", &text) || !text.length)
		return STATUS_OK;
	struct jinja_template *program = NULL;
	enum status status = jinja_template_create(&program, text.bytes, text.length, error);
	if (status)
		return status;
	if (!chat_template_recognise(gguf, out)) {
		out->family = CHAT_JINJA;
		out->name = "jinja";
	}
	out->program = program;
	out->thoughts = thought_syntax_of_template(text.bytes, text.length);
	if (jinja_template_names(program, "tools"))
		out->calls = call_syntax_of_template(text.bytes, text.length);
	return STATUS_OK;
}

bool chat_template_takes(const struct chat_template *template, const char *variable)
{
	return template->program && jinja_template_names(template->program, variable);
}

void chat_template_finish(struct chat_template *template)
{
	jinja_template_destroy(&template->program);
	memset(template, 0, sizeof *template);
}

// ---- what the template is given ----

static void set_text(struct json *object, const char *name, const void *bytes, size_t length)
{
	char *text = buffer_copy_text(bytes, length);
	json_set_string(object, name, text ? text : "");
	free(text);
}

static void set_token(const struct tokenizer *tokenizer, struct json *own, const char *name, int32_t token)
{
	if (token != NO_TOKEN)
		set_text(own, name, token_text(tokenizer, (uint32_t)token), tokenizer->tokens[token].length);
}

// The calls of an answer, as OpenAI has them. Templates expect arguments as an object, and a few as text.
static struct json *calls_of(const struct json *calls, bool as_text)
{
	struct json *out = json_new_array();
	for (const struct json *one = json_first(calls); one; one = json_next(one)) {
		const char *text = json_get_string(one, "arguments", "");
		struct json *call = json_new_object(), *function = json_new_object(), *arguments = NULL;
		json_set_string(call, "id", json_get_string(one, "id", ""));
		json_set_string(call, "type", "function");
		json_set_string(function, "name", json_get_string(one, "name", ""));
		if (as_text || json_parse(&arguments, text, strlen(text), NULL))
			arguments = json_new_string(text);
		json_set(function, "arguments", arguments);
		json_set(call, "function", function);
		json_push(out, call);
	}
	return out;
}

// Differences between templates: arguments as an object or as text; a missing text as null or as an empty text;
// thoughts, which gpt-oss's template refuses in a message that has both a text and a call.
enum { WRITE_TEXT = 1, WRITE_EMPTY = 2, WRITE_THOUGHTLESS = 4, WRITE_WAYS = 8 };

static struct json *message_of(const struct chat_message *from, unsigned way)
{
	struct json *message = json_new_object();
	json_set_string(message, "role", from->role);
	if (from->silent && !(way & WRITE_EMPTY))
		json_set_null(message, "content");
	else
		set_text(message, "content", from->text, from->length);
	if (from->thoughts && !((way & WRITE_THOUGHTLESS) && !from->silent && json_count(from->calls))) {
		json_set_string(message, "reasoning_content", from->thoughts);
		json_set_string(message, "thinking", from->thoughts); // by gpt-oss
	}
	if (json_count(from->calls))
		json_set(message, "tool_calls", calls_of(from->calls, way & WRITE_TEXT));
	if (from->call_id)
		json_set_string(message, "tool_call_id", from->call_id);
	return message;
}

static struct json *values_of(const struct conversation *conversation, unsigned way)
{
	struct json *values = json_new_object(), *messages = json_new_array();
	json_set(values, "messages", messages);
	for (size_t i = 0; i < conversation->count; i++)
		json_push(messages, message_of(&conversation->messages[i], way));
	if (json_count(conversation->tools))
		json_set(values, "tools", json_copy(conversation->tools));
	else
		json_set_null(values, "tools");
	json_set_null(values, "documents");
	json_set_bool(values, "add_generation_prompt", true);
	if (conversation->thinking != THINKING_UNSAID)
		json_set_bool(values, "enable_thinking", conversation->thinking == THINKING_ON);
	if (conversation->effort)
		json_set_string(values, "reasoning_effort", conversation->effort);
	return values;
}

// ---- tokens ----

struct piece { // of the rendering
	const struct tokenizer *tokenizer;
	const struct jinja_rendering *rendering;
	struct token_list *out;
	struct error *error;
	bool behind_token;
};

// Tokenizers with pieces put a space before a new text. After a token, a space of the template takes the place of that
// space.
static enum status add_text(struct piece *piece, size_t from, size_t to)
{
	const struct jinja_rendering *all = piece->rendering;
	if (from == to)
		return STATUS_OK;
	const bool spaced = all->text[from] == ' ' && !all->foreign[from];
	const struct tokenize_params params = {.text = all->text + from,
					       .length = to - from,
					       .continues = piece->behind_token && spaced && piece->tokenizer->pieces};
	return tokenize(piece->tokenizer, &params, piece->out, piece->error);
}

static enum status add_token(struct piece *piece, int32_t token)
{
	const enum status status = token_list_add(piece->out, (uint32_t)token);
	piece->behind_token = true;
	if (status)
		error_set(piece->error, status,
			  status == STATUS_LIMIT_EXCEEDED ? "the conversation has too many tokens"
							  : "no memory for the conversation");
	return status;
}

static bool begins_with(const struct piece *piece, int32_t token)
{
	const struct jinja_rendering *all = piece->rendering;
	const size_t length = piece->tokenizer->tokens[token].length;
	return all->length >= length && length && !memchr(all->foreign, 1, length) &&
	       !memcmp(all->text, token_text(piece->tokenizer, (uint32_t)token), length);
}

static enum status add_all(struct piece *piece)
{
	const struct tokenizer *tokenizer = piece->tokenizer;
	const struct jinja_rendering *all = piece->rendering;
	enum status status = STATUS_OK;
	size_t from = 0, own = 0; // `own`: where the template's text that the place is in ends
	if (tokenizer->add_begin && tokenizer->begin != NO_TOKEN && !begins_with(piece, tokenizer->begin))
		status = add_token(piece, tokenizer->begin);
	for (size_t at = 0; at < all->length && !status;) {
		for (own = own > at ? own : at; own < all->length && !all->foreign[own];)
			own++;
		const uint8_t *text = (const uint8_t *)all->text + at;
		const int32_t token = own > at ? tokenizer_special(tokenizer, text, own - at) : NO_TOKEN;
		if (token == NO_TOKEN) {
			at++;
			continue;
		}
		status = add_text(piece, from, at);
		if (!status)
			status = add_token(piece, token);
		at += tokenizer->tokens[token].length;
		from = at;
	}
	return status ? status : add_text(piece, from, all->length);
}

// Whether the template has ended with the mark that begins a thought.
static bool opens(const struct chat_template *template, const struct jinja_rendering *all)
{
	const char *mark = template->thoughts ? template->thoughts->begin : NULL;
	const size_t length = mark ? strlen(mark) : 0;
	size_t end = all->length;
	while (end && !all->foreign[end - 1] && memchr(" \t\r\n", all->text[end - 1], 4))
		end--;
	return length && end >= length && !memcmp(all->text + end - length, mark, length) &&
	       !memchr(all->foreign + end - length, 1, length);
}

static enum status render(const struct chat_template *template, const struct tokenizer *tokenizer,
			  const struct conversation *conversation, unsigned way, struct jinja_rendering *out,
			  struct error *error)
{
	static const char *const roles[] = {"system", "user", "assistant", "tool", NULL};
	struct json *values = values_of(conversation, way), *own = json_new_object();
	set_token(tokenizer, own, "bos_token", tokenizer->begin);
	set_token(tokenizer, own, "eos_token", tokenizer->end);
	const struct jinja_params params = {
		.own = own, .values = values, .own_texts = roles, .now_ms = conversation->now_ms};
	const enum status status = jinja_render(template->program, &params, out, error);
	json_destroy(&values);
	json_destroy(&own);
	return status;
}

static bool has_calls(const struct conversation *conversation)
{
	for (size_t i = 0; i < conversation->count; i++)
		if (json_count(conversation->messages[i].calls))
			return true;
	return false;
}

enum status chat_render(const struct chat_template *template, const struct tokenizer *tokenizer,
			const struct conversation *conversation, struct token_list *out, struct error *error)
{
	if (conversation->thinking != THINKING_UNSAID && !jinja_template_names(template->program, "enable_thinking"))
		return error_set(error, STATUS_INVALID_PARAMS, "enable_thinking is not known to it (chat template %s)",
				 template->name);
	struct jinja_rendering rendering = {0};
	struct error fault = {0};
	enum status status = render(template, tokenizer, conversation, 0, &rendering, &fault);
	// Try the other ways: some templates join arguments to a text (DeepSeek's), or search in a text that is null
	// (Qwen 3's first).
	for (unsigned way = 1; status == STATUS_INVALID_PARAMS && way < WRITE_WAYS && has_calls(conversation); way++)
		status = render(template, tokenizer, conversation, way, &rendering, NULL);
	if (status && error)
		*error = fault;
	struct piece piece = {.tokenizer = tokenizer, .rendering = &rendering, .out = out, .error = error};
	if (!status)
		status = add_all(&piece);
	if (!status && conversation->opened)
		*conversation->opened = opens(template, &rendering);
	jinja_rendering_finish(&rendering);
	return status;
}

// ---- pairs ----

static enum status append(struct buffer *text, struct buffer *foreign, const char *bytes, size_t length, bool other)
{
	const size_t from = foreign->length;
	enum status status = buffer_append(text, bytes, length);
	if (!status)
		status = buffer_append(foreign, bytes, length);
	if (!status && length)
		memset(foreign->data + from, other, length);
	return status;
}

enum status chat_pair(const char *template, const struct tokenizer *tokenizer, const char *query, const char *document,
		      struct token_list *out, struct error *error)
{
	const struct {
		const char *name, *text;
	} places[] = {{"{query}", query}, {"{document}", document}};
	struct buffer text, foreign;
	enum status status = STATUS_OK;
	const char *at = template;
	buffer_init(&text, LIMIT_TOKENIZE_BYTES);
	buffer_init(&foreign, LIMIT_TOKENIZE_BYTES);
	while (*at && !status) {
		const char *next = at + strlen(at), *put = NULL;
		size_t skip = 0;
		for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
			const char *found = strstr(at, places[i].name);
			if (!found || found >= next)
				continue;
			next = found;
			put = places[i].text;
			skip = strlen(places[i].name);
		}
		status = append(&text, &foreign, at, (size_t)(next - at), false);
		if (!status && put)
			status = append(&text, &foreign, put, strlen(put), true);
		at = next + skip;
	}
	const struct jinja_rendering whole = {
		.text = (char *)text.data, .length = text.length, .foreign = foreign.data};
	struct piece piece = {.tokenizer = tokenizer, .rendering = &whole, .out = out, .error = error};
	status = status ? error_set(error, status, "no room for a query and a document in the template")
			: add_all(&piece);
	buffer_finish(&text);
	buffer_finish(&foreign);
	return status;
}
