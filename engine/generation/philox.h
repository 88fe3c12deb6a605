/* Random numbers for draws. */
#pragma once
#include <stdint.h>
#include <string.h>

// Philox 4x32 with ten rounds (Salmon and others, "Parallel random numbers: as easy as 1, 2, 3", 2011): a number in
// [0, 1) that depends on seed and position alone.
static inline double uniform(uint64_t seed, uint64_t position)
{
	uint32_t x[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0, 0};
	uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
	for (int round = 0; round < 10; round++) {
		uint64_t a = 0xD2511F53ull * x[0], b = 0xCD9E8D57ull * x[2];
		uint32_t next[4] = {(uint32_t)(b >> 32) ^ x[1] ^ key[0], (uint32_t)b,
				    (uint32_t)(a >> 32) ^ x[3] ^ key[1], (uint32_t)a};
		memcpy(x, next, sizeof(x));
		key[0] += 0x9E3779B9u;
		key[1] += 0xBB67AE85u;
	}
	return (double)(((uint64_t)x[0] << 32 | x[1]) >> 11) * 0x1p-53;
}
