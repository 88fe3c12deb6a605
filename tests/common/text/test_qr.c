/* QR codes, compared module by module with those of the Python package qrcode 8.2 (level M, byte mode): for each
 * version, the SHA-256 of all eight masks of a text of so many characters. The dashboard's are held to the same. */
#include "common/base/buffer.h"
#include "common/text/qr.h"
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

static const struct {
	unsigned version, length;
	const char *sha256;
} known[] = {
	{1, 9, "727e9d526f9dbd371148379afb5415e71ea2fdfb9ca8962b9878107a6a7006bf"},
	{2, 25, "5e203a6708c968dfab23edd83dad717699184204d0d78e358b12570f8eb2837e"},
	{3, 40, "b640e14ef94f432751a9c5cbaec3136af6aae667ee13ab4ad9a56bd0d4a89450"},
	{4, 60, "9e406468816e51aa0f5da7218a0def5522b7437e697a25865cb5ba28de6bbcb5"},
	{5, 80, "46933a5935ddc75ea966ffdd06acc59d09253b199b968542be3d196ce4e79421"},
	{6, 100, "f7e4a72d260b51392f228e649a2b09aeaa5c12b5d9f4397c463bf6e487d1be9b"},
	{7, 120, "95d7658e19ccafe351b7379f2a79405253ec89950308a49ef48727c3f6910b22"},
	{8, 150, "507388781ea87ff7a7664040aa539639a0b686938a344030b8f8f2b8e6e3c83d"},
	{9, 175, "1e0d449b00d00ad0aa752820c3219ec4f57c8e53f80f1c0dfa83ccafcccd32aa"},
	{10, 213, "34a4e1154cbe94705e38200e1bf742358d57b2a0e1f8f61488a0218f7f3b437c"},
};

static void make_text(char *text, unsigned length)
{
	static const char characters[] = "0123456789abcdefghijklmnopqrstuvwxyz/#=_";
	for (unsigned i = 0; i < length; i++)
		text[i] = characters[i % (sizeof characters - 1)];
	text[length] = 0;
}

static void every_version_and_mask(void **state)
{
	static struct qr qr;
	(void)state;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		char text[QR_TEXT_BYTES + 1], hex[65];
		uint8_t digest[32];
		struct buffer lines;
		buffer_init(&lines, 1 << 20);
		make_text(text, known[i].length);
		for (int mask = 0; mask < QR_MASKS; mask++) {
			assert_int_equal(qr_make(&qr, text, mask), STATUS_OK);
			assert_int_equal(qr.size, 17 + 4 * known[i].version);
			for (unsigned y = 0; y < qr.size; y++) {
				for (unsigned x = 0; x < qr.size; x++)
					buffer_append_byte(&lines, qr.dark[y][x] ? '1' : '0');
				if (y + 1 < qr.size)
					buffer_append_byte(&lines, '\n');
			}
			if (mask + 1 < QR_MASKS)
				buffer_append_text(&lines, "\n\n");
		}
		assert_int_equal(EVP_Digest(lines.data, lines.length, digest, NULL, EVP_sha256(), NULL), 1);
		for (unsigned n = 0; n < sizeof digest; n++)
			snprintf(hex + 2 * n, 3, "%02x", digest[n]);
		assert_string_equal(hex, known[i].sha256);
		buffer_finish(&lines);
	}
}

static void the_best_mask_is_one_of_them(void **state)
{
	static struct qr best, one;
	unsigned same = 0;
	(void)state;
	assert_int_equal(qr_make(&best, "https://192.0.2.7:52415/lend#token=x", -1), STATUS_OK);
	for (int mask = 0; mask < QR_MASKS; mask++) {
		assert_int_equal(qr_make(&one, "https://192.0.2.7:52415/lend#token=x", mask), STATUS_OK);
		same += !memcmp(one.dark, best.dark, sizeof one.dark);
	}
	assert_int_equal(same, 1);
}

static void what_is_too_long_has_none(void **state)
{
	static struct qr qr;
	char text[QR_TEXT_BYTES + 2];
	(void)state;
	make_text(text, QR_TEXT_BYTES + 1);
	assert_int_equal(qr_make(&qr, text, -1), STATUS_INVALID_PARAMS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_version_and_mask),
		cmocka_unit_test(the_best_mask_is_one_of_them),
		cmocka_unit_test(what_is_too_long_has_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
