/* How much of a machine's memory is left free for all other programs. */
#pragma once
#include <stdint.h>

enum { RESERVE_SHARE = 16, RESERVE_MOST_BYTES = 1 << 30 };

// The reserve of `total` bytes: a sixteenth of them, but no more than 1 GiB.
static inline uint64_t reserve_bytes(uint64_t total)
{
	return total / RESERVE_SHARE < RESERVE_MOST_BYTES ? total / RESERVE_SHARE : RESERVE_MOST_BYTES;
}
