/* See keyed_hash.h. */
#include "common/base/keyed_hash.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

static uint8_t process_key[SIPHASH_KEY_BYTES];
static pthread_once_t key_made = PTHREAD_ONCE_INIT;

// 16 bytes come whole or, to a signal, not at all. A kernel without random numbers starts no server.
static void make_key(void)
{
	while (getrandom(process_key, sizeof process_key, 0) != (ssize_t)sizeof process_key)
		if (errno != EINTR)
			abort();
}

static uint64_t read_word(const uint8_t *bytes, size_t length)
{
	uint64_t word = 0;
	for (size_t i = 0; i < length; i++)
		word |= (uint64_t)bytes[i] << 8 * i;
	return word;
}

static uint64_t turn(uint64_t word, unsigned bits)
{
	return word << bits | word >> (64 - bits);
}

static void mix(uint64_t v[4], int rounds)
{
	while (rounds-- > 0) {
		v[0] += v[1];
		v[2] += v[3];
		v[1] = turn(v[1], 13) ^ v[0];
		v[3] = turn(v[3], 16) ^ v[2];
		v[0] = turn(v[0], 32) + v[3];
		v[2] += v[1];
		v[3] = turn(v[3], 21) ^ v[0];
		v[1] = turn(v[1], 17) ^ v[2];
		v[2] = turn(v[2], 32);
	}
}

static void take_word(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	mix(v, 2);
	v[0] ^= word;
}

uint64_t siphash(const uint8_t key[SIPHASH_KEY_BYTES], const void *bytes, size_t length)
{
	const uint8_t *at = bytes;
	const uint64_t low = read_word(key, 8), high = read_word(key + 8, 8);
	uint64_t v[4] = {low ^ UINT64_C(0x736f6d6570736575), high ^ UINT64_C(0x646f72616e646f6d),
			 low ^ UINT64_C(0x6c7967656e657261), high ^ UINT64_C(0x7465646279746573)};
	size_t left = length;
	for (; left >= 8; left -= 8, at += 8)
		take_word(v, read_word(at, 8));
	take_word(v, read_word(at, left) | (uint64_t)length << 56);
	v[2] ^= 0xff;
	mix(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

uint64_t keyed_hash(const void *bytes, size_t length)
{
	pthread_once(&key_made, make_key);
	return siphash(process_key, bytes, length);
}
