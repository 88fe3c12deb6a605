/* See seal.h. */
#include "server/conversations/seal.h"

#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

enum { ABOUT_BYTES = 256 };

// Each part ends with a newline, which no id has: two that differ are never the same bytes.
static int print_about(const struct seal_about *about, uint8_t text[ABOUT_BYTES])
{
	int length = snprintf((char *)text, ABOUT_BYTES, "exogpu conversation 1\n%s\n%s\n%lld\n", about->token_id,
			      about->conversation_id, (long long)about->version);
	return length > 0 && length < ABOUT_BYTES ? length : -1;
}

enum status seal(const uint8_t key[SEAL_KEY_BYTES], const struct seal_about *about, const void *bytes, size_t length,
		 uint8_t *sealed)
{
	uint8_t text[ABOUT_BYTES];
	const int text_length = print_about(about, text);
	uint8_t *const encrypted = sealed + SEAL_NONCE_BYTES;
	int done = 0, rest = 0;
	EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
	if (!cipher)
		return STATUS_OUT_OF_MEMORY;
	const bool good = text_length > 0 && length <= INT_MAX && RAND_bytes(sealed, SEAL_NONCE_BYTES) == 1 &&
			  EVP_EncryptInit_ex(cipher, EVP_aes_256_gcm(), NULL, key, sealed) == 1 &&
			  EVP_EncryptUpdate(cipher, NULL, &done, text, text_length) == 1 &&
			  EVP_EncryptUpdate(cipher, encrypted, &done, bytes, (int)length) == 1 &&
			  EVP_EncryptFinal_ex(cipher, encrypted + done, &rest) == 1 &&
			  (size_t)(done + rest) == length &&
			  EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_GET_TAG, SEAL_TAG_BYTES, encrypted + length) == 1;
	EVP_CIPHER_CTX_free(cipher);
	return good ? STATUS_OK : STATUS_UNAVAILABLE;
}

enum status seal_open(const uint8_t key[SEAL_KEY_BYTES], const struct seal_about *about, const uint8_t *sealed,
		      size_t length, uint8_t *bytes)
{
	uint8_t text[ABOUT_BYTES], tag[SEAL_TAG_BYTES];
	const int text_length = print_about(about, text);
	int done = 0, rest = 0;
	if (length < SEAL_MORE_BYTES || length > INT_MAX)
		return STATUS_UNAVAILABLE;
	length -= SEAL_MORE_BYTES;
	EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
	if (!cipher)
		return STATUS_OUT_OF_MEMORY;
	memcpy(tag, sealed + SEAL_NONCE_BYTES + length, sizeof tag);
	const bool good = text_length > 0 && EVP_DecryptInit_ex(cipher, EVP_aes_256_gcm(), NULL, key, sealed) == 1 &&
			  EVP_DecryptUpdate(cipher, NULL, &done, text, text_length) == 1 &&
			  EVP_DecryptUpdate(cipher, bytes, &done, sealed + SEAL_NONCE_BYTES, (int)length) == 1 &&
			  EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_SET_TAG, SEAL_TAG_BYTES, tag) == 1 &&
			  EVP_DecryptFinal_ex(cipher, bytes + done, &rest) == 1;
	EVP_CIPHER_CTX_free(cipher);
	if (!good)
		OPENSSL_cleanse(bytes, length);
	return good ? STATUS_OK : STATUS_UNAVAILABLE;
}
