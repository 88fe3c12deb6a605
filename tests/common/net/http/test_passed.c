/* The header with which a server passes a connection on: written and read again, and not believed where a byte of it is
 * another's. That the rest of the head stays the same request is tests/fuzz/common/fuzz_passed.c's. */
#include "common/net/http/passed.h"

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

static const uint8_t key[NET_PASS_KEY_BYTES] = {1, 2, 3}, other[NET_PASS_KEY_BYTES] = {1, 2, 4};

static struct head *parse(const char *text)
{
	struct head *head = malloc(sizeof *head);
	size_t taken;
	assert_non_null(head);
	head_begin(head);
	assert_int_equal(head_take(head, (const uint8_t *)text, strlen(text), &taken), HEAD_WHOLE);
	return head;
}

static char *pass(const char *text, const char *peer, bool tls)
{
	struct buffer out;
	struct head *head = parse(text);
	buffer_init(&out, 65536);
	assert_int_equal(net_passed_print(head, peer, tls, key, &out), STATUS_OK);
	char *copy = buffer_copy_text(out.data, out.length);
	buffer_finish(&out);
	free(head);
	return copy;
}

static bool reads(const char *text, const uint8_t *with, struct net_passed *out)
{
	struct head *head = parse(text);
	const bool read = net_passed_read(head, with, out);
	free(head);
	return read;
}

static void it_says_for_whom(void **state)
{
	struct net_passed passed;
	static const char *const peers[] = {"192.0.2.7", "2001:db8::1", "::ffff:192.0.2.7", "fe80::1%eth0"};
	(void)state;
	for (size_t i = 0; i < sizeof peers / sizeof *peers; i++)
		for (int tls = 0; tls < 2; tls++) {
			char *text = pass("GET /a?b=%20 HTTP/1.1\r\nHost:   x  \r\nCookie: a\r\nCookie: b\r\n\r\n",
					  peers[i], tls);
			assert_true(reads(text, key, &passed));
			assert_string_equal(passed.peer, peers[i]);
			assert_int_equal(passed.tls, tls);
			assert_false(reads(text, other, &passed));
			assert_ptr_equal(strstr(text, "GET /a?b=%20 HTTP/1.1\r\nhost: x\r\ncookie: a\r\ncookie: "
						      "b\r\n" NET_PASSED_HEADER ": 1 "),
					 text);
			free(text);
		}
}

static void what_a_client_says_of_itself_goes(void **state)
{
	struct net_passed passed;
	(void)state;
	char *inner = pass("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "192.0.2.1", true);
	char *text = pass(inner, "192.0.2.2", false); // even with the key: whoever passes on speaks for itself
	assert_true(reads(text, key, &passed));
	assert_string_equal(passed.peer, "192.0.2.2");
	assert_null(strstr(text, "192.0.2.1"));
	free(inner);
	free(text);
}

static void any_other_byte_is_not_believed(void **state)
{
	struct net_passed passed;
	(void)state;
	char *text = pass("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "192.0.2.7", true);
	char *value = strstr(text, NET_PASSED_HEADER ": ") + strlen(NET_PASSED_HEADER ": ");
	const size_t length = strcspn(value, "\r");
	for (size_t at = 0; at < length; at++) {
		const char was = value[at];
		for (const char *to = "0179af .:t"; *to; to++) {
			value[at] = *to;
			assert_int_equal(reads(text, key, &passed), *to == was);
		}
		value[at] = was;
	}
	free(text);
	assert_false(reads("GET / HTTP/1.1\r\nHost: x\r\n\r\n", key, &passed));
	assert_false(reads("GET / HTTP/1.1\r\nHost: x\r\n" NET_PASSED_HEADER ":\r\n\r\n", key, &passed));
}

static void it_does_not_fit_everywhere(void **state)
{
	struct buffer out;
	(void)state;
	struct head *head = parse("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
	buffer_init(&out, 100);
	assert_int_equal(net_passed_print(head, "192.0.2.7", true, key, &out), STATUS_LIMIT_EXCEEDED);
	buffer_finish(&out);
	free(head);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_says_for_whom),
		cmocka_unit_test(what_a_client_says_of_itself_goes),
		cmocka_unit_test(any_other_byte_is_not_believed),
		cmocka_unit_test(it_does_not_fit_everywhere),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
