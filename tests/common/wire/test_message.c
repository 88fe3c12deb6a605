/* The one message: the vectors that the dashboard's codec is tested with too, and what only the C side has: streams,
 * printing, kinds. */
#include "common/base/limits.h"
#include "common/wire/message.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct json *load_vectors(void)
{
	struct json *json = NULL;
	struct buffer text;
	uint8_t piece[4096];
	size_t length;
	struct error error = {0};
	FILE *file = fopen(TESTS_DIR "/vectors/wire.json", "re");
	assert_non_null(file);
	buffer_init(&text, 1 << 22);
	while ((length = fread(piece, 1, sizeof piece, file)) > 0)
		assert_int_equal(buffer_append(&text, piece, length), STATUS_OK);
	fclose(file);
	if (json_parse(&json, buffer_text(&text), text.length, &error))
		fail_msg("vectors/wire.json: %s", error.message);
	buffer_finish(&text);
	return json;
}

static void from_hex(const char *hex, struct buffer *bytes)
{
	for (; hex[0] && hex[1]; hex += 2) {
		const char digits[] = {hex[0], hex[1], 0};
		assert_int_equal(buffer_append_byte(bytes, (uint8_t)strtoul(digits, NULL, 16)), STATUS_OK);
	}
}

// What the vectors call an error, and what it is here.
static enum status status_of(const char *word)
{
	if (!strcmp(word, "head_too_big"))
		return STATUS_LIMIT_EXCEEDED;
	if (!strcmp(word, "short") || !strcmp(word, "not_json") || !strcmp(word, "not_utf8"))
		return STATUS_PARSE_ERROR;
	fail_msg("the vectors know an error that this test does not: %s", word);
	return STATUS_INTERNAL;
}

static void expect_good(const char *name, const struct json *vector, const struct buffer *frame)
{
	struct message message, text_message;
	struct error error = {0};
	struct buffer body, encoded;
	const char *head = json_get_string(vector, "head", "");
	if (message_decode(&message, frame->data, frame->length, &error))
		fail_msg("%s: %s", name, error.message);
	if (message_decode_text(&text_message, head, strlen(head), &error))
		fail_msg("%s, as text: %s", name, error.message);
	assert_true(json_equal(message.head, text_message.head));
	assert_int_equal(message.kind, text_message.kind);
	buffer_init(&body, 1 << 20);
	buffer_init(&encoded, 1 << 20);
	from_hex(json_get_string(vector, "body_hex", ""), &body);
	assert_int_equal(message.body_bytes, body.length);
	if (body.length)
		assert_memory_equal(message.body, body.data, body.length);
	assert_int_equal(message_encode(&encoded, head, strlen(head), body.data, body.length), STATUS_OK);
	if (encoded.length != frame->length || memcmp(encoded.data, frame->data, frame->length) != 0)
		fail_msg("%s: encoded to %zu bytes, not to the %zu of the vector", name, encoded.length, frame->length);
	buffer_finish(&body);
	buffer_finish(&encoded);
	message_finish(&message);
	message_finish(&text_message);
}

static void vectors(void **state)
{
	(void)state;
	struct json *document = load_vectors();
	size_t good = 0, bad = 0;
	for (const struct json *vector = json_first(json_get(document, "vectors")); vector;
	     vector = json_next(vector)) {
		const char *name = json_get_string(vector, "name", ""), *word = json_get_string(vector, "error", NULL);
		struct buffer frame;
		buffer_init(&frame, 1 << 22);
		from_hex(json_get_string(vector, "hex", ""), &frame);
		if (word) {
			struct message message;
			struct error error = {0};
			enum status status = message_decode(&message, frame.data, frame.length, &error);
			// What is refused by who reads an answer as no JSON may be a call that has one.
			const char *answer = json_get_string(vector, "answer", NULL);
			if (answer ? strcmp(status_word(status), answer) != 0 : status != status_of(word))
				fail_msg("%s: %s, expected %s (%s)", name, status_word(status), word, error.message);
			message_finish(&message);
			bad++;
		} else {
			expect_good(name, vector, &frame);
			good++;
		}
		buffer_finish(&frame);
	}
	assert_true(good >= 15);
	assert_true(bad >= 15);
	json_destroy(&document);
}

static void kinds(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		enum message_kind kind; // MESSAGE_UNKNOWN: refused
	} heads[] = {
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}", MESSAGE_REQUEST},
		{"{\"jsonrpc\":\"2.0\",\"id\":\"\",\"method\":\"m\",\"params\":{}}", MESSAGE_REQUEST},
		{"{\"jsonrpc\":\"2.0\",\"method\":\"m\"}", MESSAGE_NOTIFICATION},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":null}", MESSAGE_RESULT},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{}}", MESSAGE_ERROR},
		{"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{}}", MESSAGE_ERROR},
		{"{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":1}", MESSAGE_UNKNOWN},
		{"{\"jsonrpc\":\"2.0\",\"result\":1}", MESSAGE_UNKNOWN},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":1}", MESSAGE_UNKNOWN},
		{"{\"jsonrpc\":\"2.0\",\"id\":1}", MESSAGE_UNKNOWN},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":[]}", MESSAGE_UNKNOWN},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"result\":1}", MESSAGE_UNKNOWN},
		{"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1,\"error\":{}}", MESSAGE_UNKNOWN},
		{"{\"jsonrpc\":\"2.1\",\"id\":1,\"method\":\"m\"}", MESSAGE_UNKNOWN},
		{"[]", MESSAGE_UNKNOWN},
		{"1", MESSAGE_UNKNOWN},
	};
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
		struct message message;
		struct error error = {0};
		enum status status = message_decode_text(&message, heads[i].text, strlen(heads[i].text), &error);
		if (status != (heads[i].kind ? STATUS_OK : STATUS_INVALID_REQUEST) ||
		    (!status && message.kind != heads[i].kind))
			fail_msg("%s: %s, kind %d, expected kind %d", heads[i].text, status_word(status), message.kind,
				 heads[i].kind);
		message_finish(&message);
	}
}

static void limits_of_size(void **state)
{
	(void)state;
	size_t length = 4 + (size_t)LIMIT_HEAD_BYTES + LIMIT_BODY_BYTES + 1;
	uint8_t *bytes = malloc(length);
	struct message message;
	assert_non_null(bytes);
	memset(bytes, ' ', length);
	static const char head[] = "{\"jsonrpc\":\"2.0\",\"method\":\"m\"}";
	memcpy(bytes + 4, head, sizeof head - 1);
	bytes[0] = 0, bytes[1] = 0, bytes[2] = 0x10, bytes[3] = 0;
	assert_int_equal(message_decode(&message, bytes, length - 1, NULL), STATUS_OK);
	assert_int_equal(message.body_bytes, LIMIT_BODY_BYTES);
	message_finish(&message);
	assert_int_equal(message_decode(&message, bytes, length, NULL), STATUS_LIMIT_EXCEEDED);
	message_finish(&message);
	assert_int_equal(message_decode_text(&message, (char *)bytes + 4, LIMIT_HEAD_BYTES + 1, NULL),
			 STATUS_LIMIT_EXCEEDED);
	message_finish(&message);
	struct buffer out;
	buffer_init(&out, length * 2);
	assert_int_equal(message_encode(&out, (char *)bytes, LIMIT_HEAD_BYTES + 1, NULL, 0), STATUS_LIMIT_EXCEEDED);
	assert_int_equal(message_encode(&out, head, 1, bytes, LIMIT_BODY_BYTES + 1), STATUS_LIMIT_EXCEEDED);
	assert_int_equal(out.length, 0);
	buffer_finish(&out);
	free(bytes);
}

static void a_stream_in_pieces(void **state)
{
	(void)state;
	struct buffer whole, in;
	buffer_init(&whole, 1 << 20);
	buffer_init(&in, LIMIT_WORKER_MESSAGE_BYTES + 4);
	for (int i = 0; i < 20; i++) {
		char head[64], body[64];
		int length = snprintf(head, sizeof head, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":null}", i);
		memset(body, i, sizeof body);
		assert_int_equal(message_encode_stream(&whole, head, (size_t)length, body, (size_t)i), STATUS_OK);
	}
	for (size_t piece = 1; piece < 200; piece += piece < 20 ? 1 : 37) {
		int64_t seen = 0;
		for (size_t at = 0; at < whole.length; at += piece) {
			const uint8_t *frame;
			size_t frame_bytes, used, more = whole.length - at < piece ? whole.length - at : piece;
			assert_int_equal(buffer_append(&in, whole.data + at, more), STATUS_OK);
			while (!message_next(&in, &frame, &frame_bytes, &used) && used) {
				struct message message;
				assert_int_equal(message_decode(&message, frame, frame_bytes, NULL), STATUS_OK);
				assert_int_equal(json_get_integer(message.head, "id", -1), seen);
				assert_int_equal(message.body_bytes, seen);
				seen++;
				message_finish(&message);
				buffer_consume(&in, used);
			}
		}
		assert_int_equal(seen, 20);
		assert_int_equal(in.length, 0);
	}
	buffer_finish(&whole);
	buffer_finish(&in);
}

static void a_stream_with_an_impossible_total(void **state)
{
	(void)state;
	static const uint8_t totals[][4] = {{0, 0, 0, 0}, {3, 0, 0, 0}, {0xFF, 0xFF, 0xFF, 0xFF}, {9, 0, 0x10, 1}};
	for (size_t i = 0; i < sizeof totals / sizeof *totals; i++) {
		struct buffer in;
		const uint8_t *frame;
		size_t frame_bytes, used = 7;
		buffer_init(&in, 64);
		assert_int_equal(buffer_append(&in, totals[i], 3), STATUS_OK);
		assert_int_equal(message_next(&in, &frame, &frame_bytes, &used), STATUS_OK);
		assert_int_equal(used, 0);
		assert_int_equal(buffer_append(&in, totals[i] + 3, 1), STATUS_OK);
		assert_int_equal(message_next(&in, &frame, &frame_bytes, &used), STATUS_LIMIT_EXCEEDED);
		buffer_finish(&in);
	}
}

static void what_is_printed_reads_back(void **state)
{
	(void)state;
	struct buffer text;
	struct message message;
	struct json *id = json_new_string("call-1"), *params = json_new_object();
	buffer_init(&text, 4096);
	json_set_integer(params, "n", 5);
	assert_int_equal(message_print_call(&text, id, "some.method", params), STATUS_OK);
	assert_int_equal(message_decode_text(&message, buffer_text(&text), text.length, NULL), STATUS_OK);
	assert_int_equal(message.kind, MESSAGE_REQUEST);
	assert_string_equal(message.method, "some.method");
	assert_string_equal(json_string(message.id, ""), "call-1");
	assert_int_equal(json_get_integer(message.params, "n", 0), 5);
	message_finish(&message);

	buffer_clear(&text);
	assert_int_equal(message_print_result(&text, id, NULL), STATUS_OK);
	assert_int_equal(message_decode_text(&message, buffer_text(&text), text.length, NULL), STATUS_OK);
	assert_int_equal(message.kind, MESSAGE_RESULT);
	message_finish(&message);

	struct error error = {0}, read;
	error_set(&error, STATUS_CONFLICT, "not \"now\"\n");
	error_hint(&error, "later");
	for (int with_id = 0; with_id < 2; with_id++) {
		buffer_clear(&text);
		assert_int_equal(message_print_error(&text, with_id ? id : NULL, &error), STATUS_OK);
		assert_int_equal(message_decode_text(&message, buffer_text(&text), text.length, NULL), STATUS_OK);
		assert_int_equal(message.kind, MESSAGE_ERROR);
		message_read_error(&message, &read);
		assert_int_equal(read.status, STATUS_CONFLICT);
		assert_string_equal(read.message, "not \"now\"\n");
		assert_string_equal(read.hint, "later");
		message_finish(&message);
	}
	json_destroy(&id);
	buffer_finish(&text);
}

static void an_error_from_elsewhere(void **state)
{
	(void)state;
	static const char *const heads[] = {
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{}}",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1e300,\"message\":7,\"data\":[]}}",
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-1,\"data\":{\"hint\":4}}}"};
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
		struct message message;
		struct error error;
		assert_int_equal(message_decode_text(&message, heads[i], strlen(heads[i]), NULL), STATUS_OK);
		message_read_error(&message, &error);
		assert_int_equal(error.status, STATUS_INTERNAL);
		assert_true(error.message[0]);
		message_finish(&message);
	}
}

// Numbers are printed as a tree of them is.
static void numbers_without_a_tree(void **state)
{
	(void)state;
	static const struct message_number numbers[] = {
		{"handle", 1}, {"offset", 9007199254740991}, {"bytes", INT64_MAX}, {"value", INT64_MIN}, {"none", 0}};
	struct json *id = json_new_integer(INT64_MAX);
	for (size_t count = 0; count <= sizeof numbers / sizeof *numbers; count++) {
		struct buffer texts[4];
		struct json *trees[2] = {json_new_object(), json_new_object()};
		for (int i = 0; i < 4; i++)
			buffer_init(&texts[i], 1 << 20);
		for (size_t i = 0; i < count; i++)
			for (int which = 0; which < 2; which++)
				json_set_integer(trees[which], numbers[i].name, numbers[i].value);
		assert_int_equal(message_print_call(&texts[0], id, "some.method", trees[0]), STATUS_OK);
		assert_int_equal(message_print_call_of(&texts[1], INT64_MAX, "some.method", numbers, count), STATUS_OK);
		assert_int_equal(message_print_result(&texts[2], id, trees[1]), STATUS_OK);
		assert_int_equal(message_print_result_of(&texts[3], id, numbers, count), STATUS_OK);
		assert_string_equal(buffer_text(&texts[0]), buffer_text(&texts[1]));
		assert_string_equal(buffer_text(&texts[2]), buffer_text(&texts[3]));
		for (int i = 0; i < 4; i++)
			buffer_finish(&texts[i]);
	}
	struct buffer little, odd;
	buffer_init(&little, 40);
	buffer_init(&odd, 1 << 20);
	assert_int_not_equal(message_print_call_of(&little, 1, "some.method", numbers, 5), STATUS_OK);
	assert_int_not_equal(message_print_result_of(&little, id, numbers, 5), STATUS_OK);
	assert_int_equal(message_print_call(&odd, id, "a\"\n\xFF", NULL), STATUS_OK);
	assert_non_null(strstr(buffer_text(&odd), "\"method\":\"a\\\"\\n\xEF\xBF\xBD\""));
	buffer_finish(&little);
	buffer_finish(&odd);
	json_destroy(&id);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_without_a_tree),
		cmocka_unit_test(vectors),
		cmocka_unit_test(kinds),
		cmocka_unit_test(limits_of_size),
		cmocka_unit_test(a_stream_in_pieces),
		cmocka_unit_test(a_stream_with_an_impossible_total),
		cmocka_unit_test(what_is_printed_reads_back),
		cmocka_unit_test(an_error_from_elsewhere),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
