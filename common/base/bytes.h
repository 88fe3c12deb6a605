/* Unaligned little-endian integers in byte buffers. Pure. Thread: any. */
#pragma once
#include <stddef.h>
#include <stdint.h>

static inline uint32_t read_u32le(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

static inline uint64_t read_u64le(const uint8_t *bytes)
{
	return read_u32le(bytes) | (uint64_t)read_u32le(bytes + 4) << 32;
}

// The lowest 32 bits of it: a length of a message, which is shorter than that.
static inline void put_u32le(uint8_t *bytes, size_t value)
{
	for (int i = 0; i < 4; i++)
		bytes[i] = (uint8_t)(value >> 8 * i);
}
