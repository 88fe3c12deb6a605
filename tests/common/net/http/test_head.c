/* Heads of requests: what RFC 9112 has in one reading is taken, and whatever has two is refused, in pieces of any size.
 * The cases are those by which requests are smuggled past a proxy: two lengths, a length that is no plain number, lines
 * that end in another way, white space where none may be, control characters, folded lines. */
#include "common/net/http/head.h"

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

#define REQUEST "POST /a HTTP/1.1\r\nHost: x\r\n"

struct text {
	const char *bytes;
	size_t length;
};
// Text that may hold a NUL.
#define TEXT(literal) \
	{ \
		literal, sizeof(literal) - 1 \
	}

static enum head_result take(struct head *head, const char *text, size_t length, size_t piece, size_t *at)
{
	enum head_result result = HEAD_MORE;
	head_begin(head);
	*at = 0;
	while (result == HEAD_MORE && *at < length) {
		// Of its own size, so that a byte beyond it is found.
		const size_t now = length - *at < piece ? length - *at : piece;
		uint8_t *copy = malloc(now);
		size_t taken = 0;
		assert_non_null(copy);
		memcpy(copy, text + *at, now);
		result = head_take(head, copy, now, &taken);
		free(copy);
		*at += taken;
	}
	return result;
}

static struct head head;

static void refused(const char *text, size_t length, int status)
{
	for (size_t piece = 1; piece <= length; piece++) {
		size_t at, more = 9;
		if (take(&head, text, length, piece, &at) != HEAD_REFUSED || head.status != status)
			fail_msg("%s in pieces of %zu: status %d, not %d", text, piece, head.status, status);
		assert_true(head.message && head.hint);
		assert_int_equal(head_take(&head, (const uint8_t *)text, length, &more), HEAD_REFUSED);
		assert_int_equal(more, 0);
	}
}

static void taken(const char *text)
{
	const size_t length = strlen(text);
	for (size_t piece = 1; piece <= length + 3; piece++) {
		char behind[256];
		size_t at;
		assert_true(length + 3 < sizeof behind);
		memcpy(behind, text, length);
		memcpy(behind + length, "\r\nx", 3);
		if (take(&head, behind, length + 3, piece, &at) != HEAD_WHOLE || at != length)
			fail_msg("%s in pieces of %zu: status %d (%s), %zu taken", text, piece, head.status,
				 head.message ? head.message : "", at);
	}
}

static void test_taken(void **state)
{
	(void)state;
	char text[64];
	taken("GET / HTTP/1.0\r\n\r\n");
	assert_true(head.method == HEAD_GET && !head.http_11 && head.close && !head.says_length && !head.has_body);
	taken("\r\nGET /a%20b//c?d=%zz&e HTTP/1.1\r\nhOST:\t x \t\r\nX-Empty:\r\nX: a\tb \xe4\xff\r\n\r\n");
	assert_true(head.http_11 && !head.close && head.field_count == 3);
	assert_true(head_path(&head, text, sizeof text) && !strcmp(text, "/a b/c"));
	assert_true(head_copy(&head, "host", text, sizeof text) && !strcmp(text, "x"));
	assert_true(head_copy(&head, "x-empty", text, sizeof text) && !text[0]);
	assert_true(head_copy(&head, "x", text, sizeof text) && !strcmp(text, "a\tb \xe4\xff"));
	assert_true(head_copy(&head, "none", text, sizeof text) && !text[0]);
	assert_false(head_copy(&head, "x", text, 4));
	assert_string_equal(text, HEAD_TOO_LONG);
	assert_false(head_path(&head, text, 6));
	taken("OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: keep-alive , Close\r\n\r\n");
	assert_true(head.method == HEAD_OPTIONS && head.close);
	taken("HEAD / HTTP/1.1\r\nHost:\r\nConnection: closed\r\nAccept-Encoding: br\r\nAccept-Encoding: "
	      "gzip;q=1,gzip\r\n\r\n");
	assert_true(head.method == HEAD_HEAD && !head.close && head_lists(&head, "accept-encoding", "GZIP"));
	assert_true(head_copy(&head, "accept-encoding", text, sizeof text) && !strcmp(text, "br, gzip;q=1,gzip"));
	taken("get / HTTP/1.1\r\nHost: x\r\n\r\n");
	assert_int_equal(head.method, HEAD_OTHER);
}

static void test_lengths(void **state)
{
	(void)state;
	taken(REQUEST "Content-Length: 0\r\n\r\n");
	assert_true(head.method == HEAD_POST && head.says_length && !head.has_body && !head.body_bytes);
	taken(REQUEST "Content-Length: 0042\r\nExpect: 100-Continue\r\n\r\n");
	assert_true(head.has_body && head.body_bytes == 42 && !head.chunked && head.expects);
	taken(REQUEST "Content-Length: 99999999999999999999999999999999\r\n\r\n");
	assert_true(head.body_bytes == SIZE_MAX - 1);
	taken(REQUEST "Transfer-Encoding: Chunked\r\n\r\n");
	assert_true(head.has_body && head.chunked && head.says_length && !head.body_bytes);
	static const char *const wrong[] = {
		"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",    // CL.TE
		"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",    // TE.CL
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n", // TE.TE
		"Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n",
		"Transfer-Encoding: xchunked\r\n",
		"Transfer-Encoding: chunked, identity\r\n",
		"Transfer-Encoding: gzip, chunked\r\n",
		"Transfer-Encoding: chunked;x=1\r\n",
		"Transfer-Encoding: \"chunked\"\r\n",
		"Transfer-Encoding: identity\r\n",
		"Transfer-Encoding:\r\n",
		"Content-Length: 3\r\nContent-Length: 3\r\n",
		"Content-Length: 3\r\nContent-Length: 4\r\n",
		"Content-Length: 3\r\ncontent-length: 0\r\n",
		"Content-Length: 3, 3\r\n",
		"Content-Length: 3,4\r\n",
		"Content-Length: +3\r\n",
		"Content-Length: -3\r\n",
		"Content-Length: 3 4\r\n",
		"Content-Length: 0x3\r\n",
		"Content-Length: 3a\r\n",
		"Content-Length: 3.0\r\n",
		"Content-Length: 1e3\r\n",
		"Content-Length: \"3\"\r\n",
		"Content-Length: \xd9\xa3\r\n",
		"Content-Length:\r\n",
		"Content-Length: \t\r\n",
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		char text[256];
		const int length = snprintf(text, sizeof text, REQUEST "%s\r\n", wrong[i]);
		refused(text, (size_t)length, 400);
	}
	static const char old[] = "POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
	refused(old, sizeof old - 1, 400);
}

static void test_lines(void **state)
{
	(void)state;
	static const struct text wrong[] = {
		TEXT("GET / HTTP/1.1\nHost: x\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\r\n\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\n\n"),
		TEXT("GET / HTTP/1.1\rHost: x\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\rX: y\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\r\n\rX: y\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\r\r\n\r\n"),
		TEXT("\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		TEXT("\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\r\n\tfolded: y\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\n Host: x\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost : x\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding\t: chunked\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\v\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\r\nNone\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\r\n(a): y\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\r\n\xe4: y\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\0\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\r\nUnread: a\0b\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\r\nUnread: \0\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\r\nUn\0read: b\r\n\r\n"),
		TEXT("GET / HTTP/1.1\r\nHost: x\r\n\0\r\n\r\n"),
		TEXT("GET /\0 HTTP/1.1\r\nHost: x\r\n\r\n"),
		TEXT("GET\0 / HTTP/1.1\r\nHost: x\r\n\r\n"),
		TEXT("GET / HTTP/1.1\0\r\nHost: x\r\n\r\n"),
		TEXT("\0GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		refused(wrong[i].bytes, wrong[i].length, 400);
	for (unsigned byte = 0; byte < 256; byte++) {
		char text[] = "GET / HTTP/1.1\r\nHost: x\r\nUnread: a?b\r\n\r\n";
		size_t at;
		*strchr(text, '?') = (char)byte;
		const bool control = (byte < ' ' && byte != '\t') || byte == 0x7f;
		assert_int_equal(take(&head, text, sizeof text - 1, sizeof text, &at),
				 control ? HEAD_REFUSED : HEAD_WHOLE);
	}
}

static void test_request_lines(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		int status;
	} wrong[] = {
		{" GET / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"GET /  HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"GET / HTTP/1.1 \r\nHost: x\r\n\r\n", 400},
		{"GET\t/ HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"GET /\r\n\r\n", 400},
		{"GET\r\n\r\n", 400},
		{"GET / http/1.1\r\nHost: x\r\n\r\n", 400},
		{"GET / HTTP/1.10\r\nHost: x\r\n\r\n", 400},
		{"GET / HTTP/01.1\r\nHost: x\r\n\r\n", 505},
		{"GET / HTTP/1.2\r\nHost: x\r\n\r\n", 505},
		{"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
		{"GET \xc3\xa4 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"GET a HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"GET /%0d%0aX HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"GET /%7F HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"GET /% HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"GET /%4 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"GET /%4g HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"AMETHODTHATISFARTOOLONGTOBEONE / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400},
		{"GET / HTTP/1.0\r\nHost: x\r\nhost: y\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: x\r\nOrigin: a\r\nOrigin: b\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: a\r\nAuthorization: a\r\n\r\n", 400},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		refused(wrong[i].text, strlen(wrong[i].text), wrong[i].status);
}

static void test_bounds(void **state)
{
	static const char begin[] = "GET / HTTP/1.1\r\nHost: x\r\nX: ", field[] = "A:b\r\n";
	static char text[4 * HEAD_BYTES];
	size_t at, length = sizeof begin - 1;
	(void)state;
	memcpy(text, begin, length);
	memset(text + length, 'a', sizeof text - length);
	memcpy(text + HEAD_BYTES - 4, "\r\n\r\n", 4);
	assert_int_equal(take(&head, text, HEAD_BYTES, 100, &at), HEAD_WHOLE); // exactly as long as it may be
	memset(text + HEAD_BYTES - 4, 'a', 4);
	for (size_t piece = 1; piece < sizeof text; piece = piece * 3 + 1) {
		assert_int_equal(take(&head, text, sizeof text, piece, &at), HEAD_REFUSED);
		assert_int_equal(head.status, 431);
		assert_int_equal(at, HEAD_BYTES);
	}
	for (int fields = HEAD_FIELDS - 1; fields <= HEAD_FIELDS; fields++) {
		length = sizeof begin - 1 - strlen("X: ");
		for (int i = 0; i < fields; i++, length += sizeof field - 1)
			memcpy(text + length, field, sizeof field - 1);
		memcpy(text + length, "\r\n", 2);
		assert_int_equal(take(&head, text, length + 2, 7, &at),
				 fields < HEAD_FIELDS ? HEAD_WHOLE : HEAD_REFUSED);
		assert_int_equal(head.status, fields < HEAD_FIELDS ? 0 : 431);
		memcpy(text, begin, sizeof begin - 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_taken), cmocka_unit_test(test_lengths),
					   cmocka_unit_test(test_lines), cmocka_unit_test(test_request_lines),
					   cmocka_unit_test(test_bounds)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
