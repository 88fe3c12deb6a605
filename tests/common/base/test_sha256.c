/* SHA-256 beside OpenSSL's, in pieces of all kinds, and the digests that FIPS 180-4's examples have. */
#include "common/base/sha256.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

static void is_of(const char *text, const char *digest_text)
{
	uint8_t digest[SHA256_BYTES];
	char hex[2 * SHA256_BYTES + 1] = "";
	struct sha256 sha;
	sha256_begin(&sha);
	sha256_add(&sha, text, strlen(text));
	sha256_end(&sha, digest);
	for (int i = 0; i < SHA256_BYTES; i++)
		snprintf(hex + 2 * i, 3, "%02x", digest[i]);
	assert_string_equal(hex, digest_text);
}

static void the_examples_of_the_standard(void **state)
{
	(void)state;
	is_of("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	is_of("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	is_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
	      "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

// Every length around the ends of blocks, given in pieces of every size up to a block and a bit.
static void is_openssls_whatever_the_pieces(void **state)
{
	enum { MOST = 200, PIECE = 70 };
	uint8_t bytes[MOST], ours[SHA256_BYTES], theirs[SHA256_BYTES];
	(void)state;
	for (size_t i = 0; i < MOST; i++)
		bytes[i] = (uint8_t)(i * 151 + 7);
	for (size_t length = 0; length <= MOST; length++) {
		assert_int_equal(EVP_Digest(bytes, length, theirs, NULL, EVP_sha256(), NULL), 1);
		for (size_t piece = 1; piece <= PIECE; piece++) {
			struct sha256 sha;
			sha256_begin(&sha);
			for (size_t at = 0; at < length; at += piece)
				sha256_add(&sha, bytes + at, length - at < piece ? length - at : piece);
			sha256_end(&sha, ours);
			assert_memory_equal(ours, theirs, SHA256_BYTES);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_examples_of_the_standard),
		cmocka_unit_test(is_openssls_whatever_the_pieces),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
