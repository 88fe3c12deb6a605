/* Headers as servers send them, and addresses that a redirect may not lead to. */
#include "common/base/limits.h"
#include "server/hub/fetch_header.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static struct fetch_headers take(const char *text)
{
	struct fetch_headers headers;
	fetch_headers_init(&headers);
	while (*text) {
		size_t length = strcspn(text, "\n");
		length += text[length] == '\n';
		fetch_headers_take(&headers, text, length);
		text += length;
	}
	return headers;
}

static void test_headers(void **state)
{
	(void)state;
	struct fetch_headers headers = take(
		"HTTP/1.1 206 Partial Content\r\nETag: \"abc\"\r\ncontent-range: bytes 5-9/100\r\nContent-Length:5\r\n"
		"X-Linked-Size: 77\r\nX-Linked-ETag: "
		"\"ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef0123456789\"\r\n\r\n");
	assert_int_equal(headers.status, 206);
	assert_string_equal(headers.etag, "\"abc\"");
	assert_int_equal(headers.first, 5);
	assert_int_equal(headers.last, 9);
	assert_int_equal(headers.total, 100);
	assert_int_equal(headers.length, 5);
	assert_int_equal(headers.linked_bytes, 77);
	assert_string_equal(headers.linked_sha256, "abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789");
	headers = take("HTTP/1.1 302 Found\r\nlocation: /x\r\nHTTP/1.1 200 OK\r\n");
	assert_int_equal(headers.status, 200);
	assert_string_equal(headers.location, ""); // of the answer before
}

static void test_odd_headers(void **state)
{
	static const char *const ranges[] = {
		"bytes 9-5/100",
		"bytes 0-100/100",
		"bytes -5/100",
		"bytes 5-/100",
		"items 0-1/2",
		"bytes 0-1",
		"bytes 0-1/x",
		"bytes 0-1/-1",
		"bytes 0-99999999999999999999/999999999999999999999",
		"bytes 0-1/2, 3-4",
		"",
	};
	char line[200];
	(void)state;
	for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
		snprintf(line, sizeof line, "Content-Range: %s\r\n", ranges[i]);
		struct fetch_headers headers = take(line);
		if (headers.first != -1 || headers.total != -1)
			fail_msg("%s gives %lld of %lld", ranges[i], (long long)headers.first,
				 (long long)headers.total);
	}
	struct fetch_headers headers = take(
		"ETag: W/\"weak\"\r\nX-Linked-Etag: short\r\nContent-Length: -1\r\nno colon\r\n"
		"Location: /a b\r\nContent-Encoding: gzip\r\n");
	assert_string_equal(headers.etag, "");
	assert_string_equal(headers.linked_sha256, "");
	assert_string_equal(headers.location, "");
	assert_int_equal(headers.length, -1);
	assert_true(headers.encoded);
	headers = take("ETag: \"a\rb\"\r\n");
	assert_string_equal(headers.etag, ""); // it would be sent back
	for (int i = 0; i < 5000 && !headers.excessive; i++)
		fetch_headers_take(&headers, "x: 34567890123456789\r\n", 22);
	assert_true(headers.excessive);
}

static void test_wait(void **state)
{
	(void)state;
	struct fetch_headers headers = take("Retry-After: 7\r\n");
	assert_int_equal(fetch_headers_wait_s(&headers), 7);
	headers = take("Retry-After: 99999999\r\n");
	assert_int_equal(fetch_headers_wait_s(&headers), LIMIT_FETCH_WAIT_S);
	headers = take("Retry-After: Sat, 21 Nov 2026 12:00:30 GMT\r\nDate: Sat, 21 Nov 2026 12:00:00 GMT\r\n");
	assert_int_equal(fetch_headers_wait_s(&headers), 30);
	headers = take("Retry-After: soon\r\n");
	assert_int_equal(fetch_headers_wait_s(&headers), 0);
}

static void test_places(void **state)
{
	char text[FETCH_ORIGIN_BYTES], url[FETCH_URL_BYTES];
	(void)state;
	assert_true(fetch_origin("HTTPS://Example.COM/a", text));
	assert_string_equal(text, "https://example.com:443");
	assert_true(fetch_origin("http://h:81?x", text));
	assert_string_equal(text, "http://h:81");
	assert_false(fetch_origin("ftp://h/", text));
	assert_false(fetch_origin("h", text));
	assert_true(fetch_resolve("https://h/a/b?c", "../d#e", url));
	assert_string_equal(url, "https://h/d");
	assert_true(fetch_resolve("https://h/a", "//other/x", url));
	assert_string_equal(url, "https://other/x");
	assert_false(fetch_resolve("https://h/a", "file:///etc/passwd", url));
	assert_false(fetch_resolve("https://h/a", "https://user:secret@other/", url));
	assert_false(fetch_resolve("https://h/a", "", url));
	assert_false(
		fetch_resolve("https://h/a", "//other%7F/x", url)); // a name with a control character, once decoded
}

static bool is_private(const char *text)
{
	struct sockaddr_in in = {.sin_family = AF_INET};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
	if (inet_pton(AF_INET, text, &in.sin_addr) == 1)
		return fetch_is_private((const struct sockaddr *)&in);
	assert_int_equal(inet_pton(AF_INET6, text, &in6.sin6_addr), 1);
	return fetch_is_private((const struct sockaddr *)&in6);
}

static void test_addresses(void **state)
{
	static const char *const hidden[] = {"127.0.0.1",
					     "10.1.2.3",
					     "172.16.0.1",
					     "172.31.255.255",
					     "192.168.1.1",
					     "169.254.169.254",
					     "100.64.0.1",
					     "0.0.0.0",
					     "224.0.0.1",
					     "255.255.255.255",
					     "198.18.0.1",
					     "::1",
					     "::",
					     "fe80::1",
					     "fc00::1",
					     "fd12::1",
					     "ff02::1",
					     "::ffff:10.0.0.1",
					     "64:ff9b::127.0.0.1",
					     "2002:7f00:1::1",
					     "2001:db8::1",
					     "::127.0.0.1",
					     "2001::1"};
	static const char *const open[] = {"1.1.1.1",     "8.8.8.8",       "172.32.0.1",      "172.15.255.255",
					   "100.63.0.1",  "100.128.0.1",   "2606:4700::1111", "64:ff9b::8.8.8.8",
					   "192.167.0.1", "::ffff:1.1.1.1"};
	(void)state;
	for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
		if (!is_private(hidden[i]))
			fail_msg("%s counts as public", hidden[i]);
	for (size_t i = 0; i < sizeof open / sizeof *open; i++)
		if (is_private(open[i]))
			fail_msg("%s counts as private", open[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_headers), cmocka_unit_test(test_odd_headers), cmocka_unit_test(test_wait),
		cmocka_unit_test(test_places),  cmocka_unit_test(test_addresses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
