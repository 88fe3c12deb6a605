/* Signed notes: a published key and signature, the exact bytes of checkpoints, successions and cosignatures, and that
 * nothing is accepted that is not byte for byte of the form, or not signed by the key that is asked for. */
#include "common/journal/note.h"
#include "common/text/base64.h"

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
#include <stdlib.h>
#include <string.h>

#define ROOT "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=" // of nothing

static struct checkpoint sample = {.origin = "exogpu-audit-3f9c0b1e22d4a786", .size = 1042};
static struct note_signer signer, witness;

static int make_keys(void **state)
{
	uint8_t private_key[NOTE_KEY_BYTES];
	(void)state;
	memset(private_key, 7, sizeof(private_key));
	if (note_key_load(&signer, NOTE_ED25519, sample.origin, private_key))
		return -1;
	memset(private_key, 8, sizeof(private_key));
	if (note_key_load(&witness, NOTE_COSIGNATURE, "exogpu-witness-nod_41ab", private_key))
		return -1;
	return base64_decode(ROOT, strlen(ROOT), sample.root.bytes, TREE_HASH_BYTES) ? 0 : -1;
}

// The example of Go's golang.org/x/mod/sumdb/note, which defined the form.
static void test_published(void **state)
{
	static const char public_key[] = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
	static const char private_key[] = "AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
	static const char text[] = "If you think cryptography is the answer to your problem,\n"
				   "then you don't know what your problem is.\n\n";
	static const char line[] = "\xe2\x80\x94 PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFY"
				   "C2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";
	struct note_key key;
	struct note_signer neumann;
	struct buffer note;
	uint8_t bytes[33];
	char printed[NOTE_KEY_TEXT_BYTES];
	(void)state;
	assert_int_equal(note_key_parse(&key, public_key), STATUS_OK);
	note_key_print(&key, printed);
	assert_string_equal(printed, public_key);
	assert_true(base64_decode(private_key, strlen(private_key), bytes, sizeof(bytes)));
	assert_int_equal(note_key_load(&neumann, NOTE_ED25519, "PeterNeumann", bytes + 1), STATUS_OK);
	assert_memory_equal(neumann.key.public_key, key.public_key, NOTE_KEY_BYTES);
	buffer_init(&note, NOTE_BYTES);
	buffer_append_text(&note, text);
	assert_int_equal(note_sign(&note, &neumann, 0), STATUS_OK);
	assert_string_equal(buffer_text(&note) + strlen(text), line);
	assert_true(note_check(buffer_text(&note), &key, NULL));
	buffer_finish(&note);
}

static void make_note(struct buffer *note)
{
	buffer_init(note, NOTE_BYTES);
	assert_int_equal(checkpoint_print(&sample, note), STATUS_OK);
	assert_int_equal(note_sign(note, &signer, 0), STATUS_OK);
	assert_int_equal(note_sign(note, &witness, 1700000000), STATUS_OK);
}

static void test_checkpoint(void **state)
{
	static const char text[] = "exogpu-audit-3f9c0b1e22d4a786\n1042\n" ROOT "\n\n";
	static const char line[] = "\xe2\x80\x94 exogpu-audit-3f9c0b1e22d4a786 ";
	struct buffer note;
	struct checkpoint read;
	int64_t at_s = 0;
	(void)state;
	make_note(&note);
	assert_int_equal(strncmp(buffer_text(&note), text, strlen(text)), 0);
	assert_int_equal(strncmp(buffer_text(&note) + strlen(text), line, strlen(line)), 0);
	assert_int_equal(note.length, strlen(text) + strlen(line) + 92 + 1 + 4 + 23 + 1 + 104 + 1);
	assert_int_equal(checkpoint_parse(&read, buffer_text(&note), NULL), STATUS_OK);
	assert_true(read.size == sample.size && !strcmp(read.origin, sample.origin) &&
		    !memcmp(&read.root, &sample.root, sizeof(read.root)));
	assert_true(note_check(buffer_text(&note), &signer.key, NULL));
	assert_true(note_check(buffer_text(&note), &witness.key, &at_s));
	assert_int_equal(at_s, 1700000000);
	buffer_finish(&note);
}

// The id is the beginning of SHA-256(name || 0x0A || algorithm || key), and what a witness signs is the text with two
// lines before it: both put together here by hand.
static void test_cosignature(void **state)
{
	uint8_t bytes[512], digest[EVP_MAX_MD_SIZE], line[76];
	char base64[BASE64_TEXT_BYTES(sizeof(line))], message[512];
	struct buffer note;
	(void)state;
	make_note(&note);
	const char *last = strrchr(buffer_text(&note), ' ') + 1;
	snprintf(base64, sizeof(base64), "%.*s", (int)strcspn(last, "\n"), last);
	assert_true(base64_decode(base64, strlen(base64), line, sizeof(line)));
	int length = snprintf((char *)bytes, sizeof(bytes), "%s\n\x04", witness.key.name);
	memcpy(bytes + length, witness.key.public_key, NOTE_KEY_BYTES);
	assert_true(EVP_Digest(bytes, (size_t)length + NOTE_KEY_BYTES, digest, NULL, EVP_sha256(), NULL));
	assert_memory_equal(line, digest, 4);
	assert_memory_equal(line + 4, "\0\0\0\0\x65\x53\xf1\x00", 8); // 1700000000
	snprintf(message, sizeof(message), "cosignature/v1\ntime 1700000000\n%s\n1042\n%s\n", sample.origin, ROOT);
	EVP_MD_CTX *context = EVP_MD_CTX_new();
	EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, witness.key.public_key, NOTE_KEY_BYTES);
	assert_int_equal(EVP_DigestVerifyInit(context, NULL, NULL, NULL, key), 1);
	assert_int_equal(EVP_DigestVerify(context, line + 12, 64, (uint8_t *)message, strlen(message)), 1);
	EVP_PKEY_free(key);
	EVP_MD_CTX_free(context);
	buffer_finish(&note);
}

// A flipped bit anywhere: no checkpoint, or the signature of the one or the other is wrong.
static void test_every_bit(void **state)
{
	struct buffer note;
	struct checkpoint read;
	(void)state;
	make_note(&note);
	char *text = (char *)note.data;
	size_t witness_at = (size_t)(strstr(text, "\xe2\x80\x94 exogpu-witness") - text);
	for (size_t bit = 0; bit < note.length * 8; bit++) {
		text[bit / 8] ^= (char)(1u << bit % 8);
		bool parses = !checkpoint_parse(&read, text, NULL);
		bool log = note_check(text, &signer.key, NULL), cosigned = note_check(text, &witness.key, NULL);
		assert_false(parses && log && cosigned);
		if (parses) // what is flipped is found by the one whose line, or whose text, it lies in
			assert_true(bit / 8 >= witness_at ? !cosigned : !log);
		text[bit / 8] ^= (char)(1u << bit % 8);
	}
	for (size_t length = 0; length < note.length; length++) {
		char kept = text[length];
		text[length] = 0;
		assert_false(!checkpoint_parse(&read, text, NULL) && note_check(text, &signer.key, NULL) &&
			     note_check(text, &witness.key, NULL));
		text[length] = kept;
	}
	buffer_finish(&note);
}

static void test_strict(void **state)
{
	static const char *const bad[] = {
		"",
		"\n",
		"\n\n",
		"log\n1\n" ROOT "\n",          // no empty line
		"log\n1\n" ROOT,               // nor an end
		"\n1\n" ROOT "\n\n",           // no name
		"a log\n1\n" ROOT "\n\n",      // a space in it
		"a+log\n1\n" ROOT "\n\n",      // a plus
		"l\xc3\xb6g\n1\n" ROOT "\n\n", // not ASCII
		"log\r\n1\n" ROOT "\n\n",      // a carriage return
		"log\n01\n" ROOT "\n\n",       // another way to write 1
		"log\n+1\n" ROOT "\n\n",       // and others
		"log\n 1\n" ROOT "\n\n",
		"log\n1 \n" ROOT "\n\n",
		"log\n-1\n" ROOT "\n\n",
		"log\n\n" ROOT "\n\n",
		"log\n9223372036854775808\n" ROOT "\n\n", // over what a number may be
		"log\n99999999999999999999\n" ROOT "\n\n",
		"log\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFV=\n\n", // the same bytes, in another spelling
		"log\n1\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU\n\n",  // no padding
		"log\n1\n47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU=\n\n", // of the alphabet for URLs
		"log\n1\n" ROOT "\nmore\n\n",                               // another line
		"log\n1\n" ROOT "\n\n\n",
		"log\n1\n" ROOT "\n\nlog x\n",
		"log\n1\n" ROOT "\n\n\xe2\x80\x94 log\n",
		"log\n1\n" ROOT "\n\n\xe2\x80\x94 log \n",
		"log\n1\n" ROOT "\n\n\xe2\x80\x94 log AAAA\n",
		"log\n1\n" ROOT "\n\n- log AAAA\n",
	};
	struct checkpoint read;
	struct error error;
	(void)state;
	assert_int_equal(checkpoint_parse(&read, "log\n1\n" ROOT "\n\n", NULL), STATUS_OK);
	assert_int_equal(checkpoint_parse(&read, "log\n9223372036854775807\n" ROOT "\n\n", NULL), STATUS_OK);
	assert_int_equal(checkpoint_parse(&read, "log\n0\n" ROOT "\n\n", NULL), STATUS_OK);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		error = (struct error){0};
		if (checkpoint_parse(&read, bad[i], &error) != STATUS_INVALID_PARAMS)
			fail_msg("accepted: %s", bad[i]);
		assert_true(error.message[0]);
	}
	struct buffer note;
	buffer_init(&note, 2 * NOTE_BYTES);
	assert_int_equal(note_sign(&note, &signer, 0), STATUS_INVALID_PARAMS); // no note
	assert_int_equal(checkpoint_print(&sample, &note), STATUS_OK);
	for (unsigned i = 0; i < NOTE_SIGNATURES; i++)
		assert_int_equal(note_sign(&note, &signer, 0), STATUS_OK);
	assert_int_equal(checkpoint_parse(&read, buffer_text(&note), NULL), STATUS_OK);
	assert_int_equal(note_sign(&note, &signer, 0), STATUS_LIMIT_EXCEEDED);
	assert_int_equal(buffer_reserve(&note, note.length), STATUS_OK);
	assert_int_equal(buffer_append_text(&note, strrchr(buffer_text(&note), '\xe2')), STATUS_OK); // one more
	assert_int_equal(checkpoint_parse(&read, buffer_text(&note), NULL), STATUS_INVALID_PARAMS);
	buffer_finish(&note);
}

// A second line of a key that is wrong makes the note one that this key has not signed.
static void test_second_line(void **state)
{
	struct buffer note, other;
	struct checkpoint changed = sample;
	(void)state;
	make_note(&note);
	changed.size++;
	buffer_init(&other, NOTE_BYTES);
	checkpoint_print(&changed, &other);
	note_sign(&other, &signer, 0);
	buffer_append_text(&note, strstr(buffer_text(&other), "\xe2\x80\x94"));
	assert_false(note_check(buffer_text(&note), &signer.key, NULL));
	assert_true(note_check(buffer_text(&note), &witness.key, NULL));
	buffer_finish(&note);
	buffer_finish(&other);
}

static void test_keys(void **state)
{
	static const char *const names[] = {"", "a b", "a+b", "a\n", "\xc3\xb6"};
	struct note_signer made, again;
	struct note_key key;
	char text[NOTE_KEY_TEXT_BYTES], name[NOTE_NAME_BYTES + 1];
	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_int_equal(note_key_make(&made, NOTE_ED25519, names[i]), STATUS_INVALID_PARAMS);
	memset(name, 'n', sizeof(name));
	name[NOTE_NAME_BYTES] = 0;
	assert_int_equal(note_key_make(&made, NOTE_ED25519, name), STATUS_INVALID_PARAMS);
	assert_int_equal(note_key_make(&made, NOTE_UNKNOWN, "n"), STATUS_INVALID_PARAMS);
	name[NOTE_NAME_BYTES - 1] = 0;
	assert_int_equal(note_key_make(&made, NOTE_COSIGNATURE, name), STATUS_OK);
	assert_int_equal(note_key_make(&again, NOTE_COSIGNATURE, name), STATUS_OK);
	assert_memory_not_equal(made.private_key, again.private_key, NOTE_KEY_BYTES);
	note_key_print(&made.key, text);
	assert_int_equal(note_key_parse(&key, text), STATUS_OK);
	assert_memory_equal(key.public_key, made.key.public_key, NOTE_KEY_BYTES);
	assert_true(key.algorithm == NOTE_COSIGNATURE && !strcmp(key.name, name));
	size_t length = strlen(text);
	for (size_t bit = 0; bit < length * 8; bit++) { // the id holds name, algorithm and key together
		text[bit / 8] ^= (char)(1u << bit % 8);
		assert_int_equal(note_key_parse(&key, text), STATUS_INVALID_PARAMS);
		text[bit / 8] ^= (char)(1u << bit % 8);
	}
	note_signer_finish(&made);
	static const struct note_signer wiped;
	assert_memory_equal(&made, &wiped, sizeof(made));
}

static void test_succession(void **state)
{
	struct succession next = {.number = 7, .first = 1042}, read;
	struct buffer note;
	char key[NOTE_KEY_TEXT_BYTES], wanted[1024];
	struct checkpoint checkpoint;
	(void)state;
	memcpy(next.origin, sample.origin, sizeof(next.origin));
	next.root = sample.root;
	next.key = witness.key;
	next.key.algorithm = NOTE_ED25519;
	buffer_init(&note, NOTE_BYTES);
	assert_int_equal(succession_print(&next, &note), STATUS_OK);
	note_key_print(&next.key, key);
	snprintf(wanted, sizeof(wanted), "%s/segment\n7\n1042\n%s\n%s\n\n", sample.origin, ROOT, key);
	assert_string_equal(buffer_text(&note), wanted);
	assert_int_equal(note_sign(&note, &signer, 0), STATUS_OK);
	assert_int_equal(succession_parse(&read, buffer_text(&note), NULL), STATUS_OK);
	assert_true(note_check(buffer_text(&note), &signer.key, NULL));
	struct buffer again;
	buffer_init(&again, NOTE_BYTES);
	assert_int_equal(succession_print(&read, &again), STATUS_OK);
	assert_string_equal(buffer_text(&again), wanted);
	buffer_finish(&again);
	// Neither can be taken for the other.
	assert_int_equal(checkpoint_parse(&checkpoint, buffer_text(&note), NULL), STATUS_INVALID_PARAMS);
	buffer_clear(&note);
	checkpoint_print(&sample, &note);
	assert_int_equal(succession_parse(&read, buffer_text(&note), NULL), STATUS_INVALID_PARAMS);
	buffer_finish(&note);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_published), cmocka_unit_test(test_checkpoint), cmocka_unit_test(test_cosignature),
		cmocka_unit_test(test_every_bit), cmocka_unit_test(test_strict),     cmocka_unit_test(test_second_line),
		cmocka_unit_test(test_keys),      cmocka_unit_test(test_succession),
	};
	return cmocka_run_group_tests(tests, make_keys, NULL);
}
