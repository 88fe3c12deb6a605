/* SHA-256 (FIPS 180-4), for what must not need a library of its own: libexogpu, which Android has no OpenSSL for. What
 * is signed or compared with secrets is OpenSSL's. Thread: one at a time for each struct. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_BLOCK = 64 };

struct sha256 {
	uint32_t state[8];
	uint64_t length; // bytes so far
	uint8_t block[SHA256_BLOCK];
};

void sha256_begin(struct sha256 *sha);
void sha256_add(struct sha256 *sha, const void *bytes, size_t length);
// The struct is used up.
void sha256_end(struct sha256 *sha, uint8_t digest[SHA256_BYTES]);
