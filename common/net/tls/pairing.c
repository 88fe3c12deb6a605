/* See pairing.h. */
#include "common/net/tls/pairing.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char label[] = "exogpu join";

enum status pairing_nonce(uint8_t nonce[PAIRING_NONCE_BYTES])
{
	return RAND_bytes(nonce, PAIRING_NONCE_BYTES) == 1 ? STATUS_OK : STATUS_UNAVAILABLE;
}

// Without SHA-256 nothing here can be done, and nothing may be pretended.
static void require(int made)
{
	if (made != 1)
		abort();
}

void pairing_commit(const uint8_t nonce[PAIRING_NONCE_BYTES], uint8_t commitment[32])
{
	require(EVP_Digest(nonce, PAIRING_NONCE_BYTES, commitment, NULL, EVP_sha256(), NULL));
}

bool pairing_opens(const uint8_t nonce[PAIRING_NONCE_BYTES], const uint8_t commitment[32])
{
	uint8_t expected[32];
	pairing_commit(nonce, expected);
	return !CRYPTO_memcmp(expected, commitment, sizeof expected);
}

void pairing_code(const struct pairing *pairing, char code[PAIRING_CODE_BYTES])
{
	uint8_t digest[32];
	uint64_t number = 0;
	EVP_MD_CTX *hash = EVP_MD_CTX_new();
	require(hash != NULL);
	require(EVP_DigestInit_ex(hash, EVP_sha256(), NULL));
	require(EVP_DigestUpdate(hash, label, sizeof label - 1));
	require(EVP_DigestUpdate(hash, pairing->authority_sha256, 32));
	require(EVP_DigestUpdate(hash, pairing->key, pairing->key_bytes));
	require(EVP_DigestUpdate(hash, pairing->node_nonce, PAIRING_NONCE_BYTES));
	require(EVP_DigestUpdate(hash, pairing->server_nonce, PAIRING_NONCE_BYTES));
	require(EVP_DigestFinal_ex(hash, digest, NULL));
	EVP_MD_CTX_free(hash);
	for (int i = 0; i < 8; i++)
		number = number << 8 | digest[i];
	snprintf(code, PAIRING_CODE_BYTES, "%06u", (unsigned)(number % 1000000));
}

void pairing_print(const uint8_t bytes[32], char text[PAIRING_HEX_BYTES])
{
	for (int i = 0; i < 32; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

bool pairing_read(const char *text, uint8_t bytes[32])
{
	static const char digits[] = "0123456789abcdef";
	if (strnlen(text, PAIRING_HEX_BYTES) != PAIRING_HEX_BYTES - 1)
		return false;
	for (int i = 0; i < 32; i++) {
		const char *high = strchr(digits, text[2 * i]), *low = strchr(digits, text[2 * i + 1]);
		if (!high || !low)
			return false;
		bytes[i] = (uint8_t)((high - digits) << 4 | (low - digits));
	}
	return true;
}
