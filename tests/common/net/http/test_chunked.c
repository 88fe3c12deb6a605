/* Bodies in chunks: as they may come, whole and byte by byte; and what is no such body, or too much of one. */
#include "common/base/limits.h"
#include "common/net/http/chunked.h"

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

enum { MOST = 64 };

struct outcome {
	enum status status;
	bool over;
	size_t taken;
	struct buffer body;
	struct error error;
};

static struct outcome take(const char *text, size_t length, size_t piece)
{
	struct outcome outcome = {0};
	struct chunked chunked = {0};
	buffer_init(&outcome.body, MOST);
	while (!outcome.status && !outcome.over && outcome.taken < length) {
		size_t now = length - outcome.taken < piece ? length - outcome.taken : piece, taken = 0;
		outcome.status = chunked_take(&chunked, (const uint8_t *)text + outcome.taken, now, &outcome.body,
					      &taken, &outcome.error);
		outcome.taken += taken;
		outcome.over = chunked.state == CHUNKED_OVER;
	}
	return outcome;
}

static void check(const char *text, enum status status, const char *body, size_t left)
{
	for (size_t piece = 1; piece <= strlen(text); piece++) {
		struct outcome outcome = take(text, strlen(text), piece);
		if (outcome.status != status || (!status && outcome.over != (body != NULL)) ||
		    (body && (strcmp(buffer_text(&outcome.body), body) != 0 || strlen(text) - outcome.taken != left)))
			fail_msg("%s in pieces of %zu: %s (%s), '%s', %zu left; wanted %s, '%s', %zu", text, piece,
				 status_word(outcome.status), outcome.error.message, buffer_text(&outcome.body),
				 strlen(text) - outcome.taken, status_word(status), body ? body : "", left);
		assert_int_equal(!outcome.error.message[0], !status);
		buffer_finish(&outcome.body);
	}
}

static void test_bodies(void **state)
{
	(void)state;
	check("0\r\n\r\n", STATUS_OK, "", 0);
	check("5\r\nhello\r\n0\r\n\r\n", STATUS_OK, "hello", 0);
	check("5\r\nhello\r\n1\r\n \r\n00005\r\nworld\r\n000\r\n\r\n", STATUS_OK, "hello world", 0);
	check("a\r\n0123456789\r\nA\r\n0123456789\r\n0\r\n\r\n", STATUS_OK, "01234567890123456789", 0);
	check("2;name=\"val;ue\"\r\n\r\n\r\n0;x\r\n\r\n", STATUS_OK, "\r\n", 0);
	check("1\r\nx\r\n0\r\nSum: abc\r\nOther:\tq\r\n\r\n", STATUS_OK, "x", 0);
	check("1\r\nx\r\n0\r\n\r\nGET / HTTP/1.1\r\n", STATUS_OK, "x", strlen("GET / HTTP/1.1\r\n"));
}

static void test_half(void **state)
{
	(void)state;
	const char *const halves[] = {"",      "5",       "5\r",          "5\r\n", "5\r\nhel", "5\r\nhello\r\n",
				      "0\r\n", "0\r\n\r", "0\r\na: b\r\n"};
	for (size_t i = 0; i < sizeof halves / sizeof *halves; i++)
		check(halves[i], STATUS_OK, NULL, 0);
}

static void test_wrong(void **state)
{
	(void)state;
	const char *const wrong[] = {
		"\r\n",
		"g\r\n",
		"-1\r\n",
		"+5\r\nhello\r\n",
		"0x5\r\nhello\r\n",
		" 5\r\nhello\r\n",
		"5 \r\nhello\r\n",
		"5\nhello\r\n",
		"5\r\nhello\n",
		"5\r\nhell\r\n0",
		"5\r\nhello0\r\n",
		"5\rx",
		";x\r\n",
		"000000005\r\n",
		"123456789\r\n",
		"1;a\nb\r\n",
		"1;a\001\r\n",
		"0\r\nx\ny\r\n\r\n",
		"0\r\n\n",
		"0\r\nx\ry",
		"0\r\n\rx",
		"5, 5\r\n",
		"2\r\nab\r\n\r\n0\r\n",
		"{}",
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		check(wrong[i], STATUS_INVALID_REQUEST, NULL, 0);
}

static void test_too_much(void **state)
{
	char text[LIMIT_CHUNK_LINE_BYTES + 64];
	(void)state;
	check("40\r\n0123456789012345678901234567890123456789012345678901234567890123\r\n0\r\n\r\n", STATUS_OK,
	      "0123456789012345678901234567890123456789012345678901234567890123", 0);
	check("41\r\n", STATUS_LIMIT_EXCEEDED, NULL, 0);
	check("ffffffff\r\n", STATUS_LIMIT_EXCEEDED, NULL, 0);
	check("20\r\n01234567890123456789012345678901\r\n20\r\n01234567890123456789012345678901\r\n1\r\n",
	      STATUS_LIMIT_EXCEEDED, NULL, 0);
	for (int trailer = 0; trailer < 2; trailer++) {
		int head = snprintf(text, sizeof text, trailer ? "0\r\n" : "1;");
		memset(text + head, 'x', sizeof text - (size_t)head - 1);
		text[sizeof text - 1] = 0;
		check(text, STATUS_LIMIT_EXCEEDED, NULL, 0);
	}
}

// Lines that are none too long, of which there is no end.
static void test_endless(void **state)
{
	static const char *const heads[] = {"0\r\n", "1;"}, *const lines[] = {"a: b\r\n",
									      "yyyyyyyyyyyyyyyyyyy\r\nx\r\n1;"};
	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct chunked chunked = {0};
		struct buffer body;
		struct error error = {0};
		size_t taken, sent = strlen(heads[i]);
		buffer_init(&body, 1024 * 1024);
		enum status status = chunked_take(&chunked, (const uint8_t *)heads[i], sent, &body, &taken, &error);
		for (; !status && sent < 64 * LIMIT_CHUNK_FRAME_BYTES; sent += strlen(lines[i]))
			status = chunked_take(&chunked, (const uint8_t *)lines[i], strlen(lines[i]), &body, &taken,
					      &error);
		if (status != STATUS_LIMIT_EXCEEDED || sent > 2 * LIMIT_CHUNK_FRAME_BYTES)
			fail_msg("%s after %zu bytes: %s", status_word(status), sent, error.message);
		buffer_finish(&body);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bodies),   cmocka_unit_test(test_half),    cmocka_unit_test(test_wrong),
		cmocka_unit_test(test_too_much), cmocka_unit_test(test_endless),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
