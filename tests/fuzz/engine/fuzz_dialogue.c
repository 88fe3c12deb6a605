/* Fuzz target: an answer of a model, taken apart as it comes: thoughts, text, calls of tools.
 *
 * The first byte says in which syntax, the second where it is cut and whether it begins inside a thought; then comes
 * the answer. However it is cut, the same is told; arguments of a call that ends are an object of JSON. */
#include "engine/dialogue/parser.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const calls[] = {"hermes",   "llama3",        "mistral", "mistral-args", "glm",
				    "deepseek", "deepseek-v3.1", "harmony", "qwen3-coder",  "gemma"};
static const char *const thoughts[] = {NULL, "think", "mistral", "harmony"};
static const char tools_text[] = "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":"
				 "\"string\"},\"n\":{\"type\":\"integer\"}}}}},{\"function\":{\"name\":\"g\"}}]";
static struct json *tools;

struct heard {
	struct buffer text, thoughts, calls, arguments;
	bool open, cut;
	size_t call_from;
};

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void hear(void *context, const struct dialogue_event *event)
{
	struct heard *heard = context;
	struct json *json = NULL;
	switch (event->kind) {
	case DIALOGUE_TEXT:
		buffer_append(&heard->text, event->text, event->length);
		return;
	case DIALOGUE_THOUGHT:
		buffer_append(&heard->thoughts, event->text, event->length);
		return;
	case DIALOGUE_CALL:
		require(!heard->open && event->length == 1 && (event->text[0] == 'f' || event->text[0] == 'g'));
		heard->open = true;
		heard->call_from = heard->calls.length;
		buffer_append(&heard->calls, event->text, event->length);
		buffer_clear(&heard->arguments);
		return;
	case DIALOGUE_ARGUMENTS:
		require(heard->open);
		buffer_append(&heard->calls, event->text, event->length);
		buffer_append(&heard->arguments, event->text, event->length);
		return;
	case DIALOGUE_CALL_END:
		require(heard->open);
		heard->open = false;
		if (heard->cut)
			return;
		// As it came: two members of a name, what is no UTF-8, and half of a surrogate are for who reads it.
		if (json_parse(&json, buffer_text(&heard->arguments), heard->arguments.length, NULL))
			require(!json_utf8(buffer_text(&heard->arguments), heard->arguments.length) ||
				strchr(buffer_text(&heard->arguments), '\\') || heard->arguments.length > 10);
		json_destroy(&json);
		return;
	case DIALOGUE_BROKEN:
		require(heard->open && event->told <= event->length);
		heard->open = false;
		heard->calls.length = heard->call_from;
		buffer_append(&heard->text, event->text, event->length);
		return;
	}
}

static void listen(struct heard *heard, const uint8_t *data, size_t size, size_t piece)
{
	struct dialogue *dialogue;
	const struct dialogue_params params = {.calls = call_syntax_named(calls[data[0] % 10]),
					       .thoughts = thought_syntax_named(thoughts[data[0] / 10 % 4]),
					       .opened = data[1] & 1,
					       .tools = tools,
					       .event = hear,
					       .context = heard};
	memset(heard, 0, sizeof(*heard));
	buffer_init(&heard->text, 1 << 24);
	buffer_init(&heard->thoughts, 1 << 24);
	buffer_init(&heard->calls, 1 << 24);
	buffer_init(&heard->arguments, 1 << 24);
	heard->cut = data[1] & 2;
	require(!dialogue_create(&dialogue, &params));
	for (size_t at = 2; at < size;) {
		const size_t count = size - at < piece ? size - at : piece;
		char *copy = malloc(count); // of just that length, so that reading past its end is seen
		require(copy);
		memcpy(copy, data + at, count);
		require(!dialogue_feed(dialogue, copy, count));
		free(copy);
		at += count;
	}
	require(!dialogue_end(dialogue, heard->cut));
	require(!heard->open);
	dialogue_destroy(&dialogue);
}

static void finish(struct heard *heard)
{
	buffer_finish(&heard->text);
	buffer_finish(&heard->thoughts);
	buffer_finish(&heard->calls);
	buffer_finish(&heard->arguments);
}

static void require_same(const struct buffer *a, const struct buffer *b)
{
	require(a->length == b->length && !memcmp(buffer_text(a), buffer_text(b), a->length));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct heard whole, cut;
	if (size < 2)
		return 0;
	if (!tools)
		require(!json_parse(&tools, tools_text, strlen(tools_text), NULL));
	listen(&whole, data, size, size);
	listen(&cut, data, size, 1 + data[1] / 4 % 8);
	require_same(&whole.text, &cut.text);
	require_same(&whole.thoughts, &cut.thoughts);
	require_same(&whole.calls, &cut.calls);
	finish(&whole);
	finish(&cut);
	return 0;
}
