/* Fuzz target: JSON text.
 *
 * What is taken must be UTF-8 and print to something that reads back to the same and prints to the same again; what is
 * refused must say why; cJSON, with a scan before it and a check behind it, says and makes the same. The input lies in
 * memory of exactly its length, so that reading past its end is seen. */
#include "tests/common/json/json_oracle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void round_trip(const struct json *json)
{
	struct buffer first, second;
	struct json *again = NULL;
	buffer_init(&first, LIMIT_HEAD_BYTES * 8);
	buffer_init(&second, LIMIT_HEAD_BYTES * 8);
	require(json_print(json, &first) == STATUS_OK);
	require(json_utf8(buffer_text(&first), first.length));
	require(strlen(buffer_text(&first)) == first.length);
	require(json_parse(&again, buffer_text(&first), first.length, NULL) == STATUS_OK);
	require(json_equal(json, again));
	require(json_print(again, &second) == STATUS_OK);
	require(first.length == second.length && !memcmp(first.data, second.data, first.length));
	struct json *copy = json_copy(json);
	require(json_equal(copy, json));
	json_destroy(&copy);
	json_destroy(&again);
	buffer_finish(&first);
	buffer_finish(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size ? size : 1);
	struct json *json = NULL;
	struct error error = {0};
	require(text);
	if (size)
		memcpy(text, data, size);
	enum status status = json_parse(&json, text, size, &error);
	require(oracle_agrees(text, size, status, json));
	if (status) {
		require(!json && error.message[0]);
	} else {
		require(json_utf8(text, size));
		round_trip(json);
	}
	json_destroy(&json);
	free(text);
	return 0;
}
