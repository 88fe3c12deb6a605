/* A hash for tables whose keys an attacker may choose: SipHash-2-4 with a random key for each process, so nobody
 * outside can construct many keys that collide. Thread: any. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { SIPHASH_KEY_BYTES = 16 };

uint64_t keyed_hash(const void *bytes, size_t length);
// With a key of the caller's.
uint64_t siphash(const uint8_t key[SIPHASH_KEY_BYTES], const void *bytes, size_t length);
