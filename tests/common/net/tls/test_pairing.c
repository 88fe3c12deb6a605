/* Six digits that two sides compare: the same for the same conversation, others for any other, and nothing that
 * somebody in between can choose. */
#include "common/net/tls/pairing.h"

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

// What one side saw of a meeting.
struct seen {
	uint8_t authority[32], key[91], node_nonce[PAIRING_NONCE_BYTES], server_nonce[PAIRING_NONCE_BYTES];
};

static void code_of(const struct seen *seen, char code[PAIRING_CODE_BYTES])
{
	pairing_code(&(struct pairing){.authority_sha256 = seen->authority,
				       .key = seen->key,
				       .key_bytes = sizeof seen->key,
				       .node_nonce = seen->node_nonce,
				       .server_nonce = seen->server_nonce},
		     code);
}

static struct seen make_seen(void)
{
	struct seen seen;
	for (size_t i = 0; i < sizeof seen; i++)
		((uint8_t *)&seen)[i] = (uint8_t)(i * 7 + 1);
	assert_int_equal(pairing_nonce(seen.node_nonce), STATUS_OK);
	assert_int_equal(pairing_nonce(seen.server_nonce), STATUS_OK);
	return seen;
}

// Computed apart with Python: int.from_bytes(sha256(b"exogpu join" + bytes(32) + b"\1" * 91 + b"\2" * 32 +
// b"\3" * 32).digest()[:8], "big") % 10**6
static void the_code_is_the_one_that_is_written_down(void **state)
{
	struct seen seen;
	char code[PAIRING_CODE_BYTES];
	(void)state;
	memset(seen.authority, 0, sizeof seen.authority);
	memset(seen.key, 1, sizeof seen.key);
	memset(seen.node_nonce, 2, sizeof seen.node_nonce);
	memset(seen.server_nonce, 3, sizeof seen.server_nonce);
	code_of(&seen, code);
	assert_string_equal(code, "845517");
}

static void a_changed_bit_changes_the_code(void **state)
{
	struct seen node = make_seen();
	char shown[PAIRING_CODE_BYTES], other[PAIRING_CODE_BYTES];
	unsigned same = 0;
	(void)state;
	code_of(&node, shown);
	for (size_t bit = 0; bit < 8 * sizeof node; bit++) {
		struct seen server = node;
		((uint8_t *)&server)[bit / 8] ^= (uint8_t)(1 << bit % 8);
		code_of(&server, other);
		assert_int_equal(strlen(other), 6);
		same += !strcmp(shown, other);
	}
	assert_in_range(same, 0, 1); // of 1504 changes, one in a million each
}

// Who stands between shows the node an authority of his own and the server a key of his own. He must commit to his
// nonce before he knows the server's, and send the node his before he knows the node's: what is left is luck.
static void one_in_between_cannot_make_both_codes_the_same(void **state)
{
	enum { TRIES = 20000 };
	unsigned same = 0;
	(void)state;
	for (int i = 0; i < TRIES; i++) {
		struct seen node = make_seen(), server = make_seen(); // the nonces of each conversation
		char at_node[PAIRING_CODE_BYTES], at_server[PAIRING_CODE_BYTES];
		memset(node.authority, 0xaa, sizeof node.authority);
		memset(server.key, 0xbb, sizeof server.key);
		code_of(&node, at_node);
		code_of(&server, at_server);
		same += !strcmp(at_node, at_server);
	}
	assert_in_range(same, 0, 3); // 0.02 of them are to be expected
}

static void another_nonce_does_not_open_the_commitment(void **state)
{
	uint8_t nonce[PAIRING_NONCE_BYTES], commitment[32];
	(void)state;
	assert_int_equal(pairing_nonce(nonce), STATUS_OK);
	pairing_commit(nonce, commitment);
	assert_true(pairing_opens(nonce, commitment));
	for (size_t bit = 0; bit < 8 * sizeof nonce; bit++) {
		nonce[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_false(pairing_opens(nonce, commitment));
		nonce[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void hexadecimal_is_read_strictly(void **state)
{
	uint8_t bytes[32], back[32];
	char text[PAIRING_HEX_BYTES + 1] = "";
	(void)state;
	assert_int_equal(pairing_nonce(bytes), STATUS_OK);
	pairing_print(bytes, text);
	assert_true(pairing_read(text, back));
	assert_memory_equal(bytes, back, sizeof bytes);
	text[3] = 'G';
	assert_false(pairing_read(text, back));
	text[3] = 'A'; // upper case is another text
	assert_false(pairing_read(text, back));
	memset(text, '0', 65);
	text[65] = 0;
	assert_false(pairing_read(text, back));
	text[63] = 0;
	assert_false(pairing_read(text, back));
	assert_false(pairing_read("", back));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_code_is_the_one_that_is_written_down),
		cmocka_unit_test(a_changed_bit_changes_the_code),
		cmocka_unit_test(one_in_between_cannot_make_both_codes_the_same),
		cmocka_unit_test(another_nonce_does_not_open_the_commitment),
		cmocka_unit_test(hexadecimal_is_read_strictly),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
