/* Fuzz target: a text that may be a sentence of ours. What is found prints the text again, is as deep and as long as
 * said.h says, and has keys of the list alone. */
#include "common/files/embedded.h"
#include "common/wire/said.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static bool is_listed(const char *key)
{
	static struct json *list;
	const struct embedded_file *file = embedded_find("schema/sentences.json");
	if (!list)
		require(!json_parse(&list, (const char *)file->data, file->length, NULL));
	for (const struct json *area = json_first(list); area; area = json_next(area))
		for (const struct json *one = json_first(area); one && json_type(area) == JSON_ARRAY;
		     one = json_next(one))
			if (!strcmp(json_string(one, ""), key))
				return true;
	return false;
}

static void print(const struct json *said, int depth, struct buffer *out)
{
	const struct json *arg = json_first(json_get(said, "args"));
	const char *key = json_get_string(said, "key", "");
	require(depth < SAID_DEPTH && json_count(json_get(said, "args")) <= SAID_ARGS && is_listed(key));
	while (*key) {
		if (key[0] != '%' || key[1] == '%' || key[1] == ' ' || !key[1]) {
			buffer_append_byte(out, (uint8_t)*key);
			key += key[0] == '%' && key[1] == '%' ? 2 : 1;
			continue;
		}
		key += 1 + strspn(key + 1, "-+#0123456789.*hlzjt") + 1;
		require(arg != NULL);
		if (json_type(arg) == JSON_OBJECT)
			print(arg, depth + 1, out);
		else
			buffer_append_text(out, json_string(arg, ""));
		arg = json_next(arg);
	}
	require(!arg);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buffer out;
	char *text = malloc(size + 1);
	require(text != NULL);
	memcpy(text, data, size);
	text[size] = 0;
	struct json *said = said_read(text);
	buffer_init(&out, 1 << 20);
	if (said) {
		print(said, 0, &out);
		require(strlen(text) <= SAID_BYTES);
		require(!json_utf8(text, strlen(text)) || !strcmp(buffer_text(&out), text));
	}
	buffer_finish(&out);
	json_destroy(&said);
	free(text);
	return 0;
}
