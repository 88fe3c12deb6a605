/* See packing.h. */
#include "engine/model/packing.h"

#include <string.h>

_Static_assert(sizeof(struct block_q4_1) == 20 && sizeof(struct block_q5_0) == 22, "blocks as in files");
_Static_assert(sizeof(struct block_q5_1) == 24 && sizeof(struct block_iq4_nl) == 18, "blocks as in files");

static const struct packing_info infos[PACKING_COUNT] = {
	[PACKING_Q4_1] = {"Q4_1", 3, sizeof(struct block_q4_1), FORMAT_F16},
	[PACKING_Q5_0] = {"Q5_0", 6, sizeof(struct block_q5_0), FORMAT_Q8_0},
	[PACKING_Q5_1] = {"Q5_1", 7, sizeof(struct block_q5_1), FORMAT_F16},
	[PACKING_IQ4_NL] = {"IQ4_NL", 20, sizeof(struct block_iq4_nl), FORMAT_Q8_0},
};

const struct packing_info *packing_info(enum tensor_packing packing)
{
	return &infos[packing];
}

enum tensor_packing packing_of_type(uint32_t type)
{
	for (enum tensor_packing packing = PACKING_NONE + 1; packing < PACKING_COUNT; packing++)
		if (infos[packing].type == type)
			return packing;
	return PACKING_NONE;
}

uint64_t packing_row_bytes(enum tensor_packing packing, uint64_t columns)
{
	const uint64_t blocks = columns / PACKING_VALUES, bytes = infos[packing].block_bytes;
	return columns % PACKING_VALUES || blocks > UINT64_MAX / bytes ? 0 : blocks * bytes;
}

// ---- numbers of a block ----

static void halves(const uint8_t q[16], int n[PACKING_VALUES])
{
	for (int i = 0; i < 16; i++) {
		n[i] = q[i] & 15;
		n[16 + i] = q[i] >> 4;
	}
}

static void add_high(const uint8_t high[4], int n[PACKING_VALUES])
{
	for (int i = 0; i < PACKING_VALUES; i++)
		n[i] |= (high[i / 8] >> i % 8 & 1) << 4;
}

// ---- blocks ----

static void put_q8_0(uint16_t d, const int n[PACKING_VALUES], uint8_t *held)
{
	struct block_q8_0 block = {.d = d};
	for (int i = 0; i < PACKING_VALUES; i++)
		block.q[i] = (int8_t)n[i];
	memcpy(held, &block, sizeof block);
}

static void put_f16(uint16_t d, uint16_t m, const int n[PACKING_VALUES], uint8_t *held)
{
	const float scale = f16_to_f32(d), offset = f16_to_f32(m);
	for (int i = 0; i < PACKING_VALUES; i++) {
		const uint16_t half = f32_to_f16(scale * (float)n[i] + offset);
		held[2 * i] = (uint8_t)half;
		held[2 * i + 1] = (uint8_t)(half >> 8);
	}
}

static void unpack_q4_1(const uint8_t *bytes, uint8_t *held)
{
	struct block_q4_1 block;
	int n[PACKING_VALUES];
	memcpy(&block, bytes, sizeof block);
	halves(block.q, n);
	put_f16(block.d, block.m, n, held);
}

static void unpack_q5_0(const uint8_t *bytes, uint8_t *held)
{
	struct block_q5_0 block;
	int n[PACKING_VALUES];
	memcpy(&block, bytes, sizeof block);
	halves(block.q, n);
	add_high(block.high, n);
	for (int i = 0; i < PACKING_VALUES; i++)
		n[i] -= 16;
	put_q8_0(block.d, n, held);
}

static void unpack_q5_1(const uint8_t *bytes, uint8_t *held)
{
	struct block_q5_1 block;
	int n[PACKING_VALUES];
	memcpy(&block, bytes, sizeof block);
	halves(block.q, n);
	add_high(block.high, n);
	put_f16(block.d, block.m, n, held);
}

static void unpack_iq4_nl(const uint8_t *bytes, uint8_t *held)
{
	static const int levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
	struct block_iq4_nl block;
	int n[PACKING_VALUES];
	memcpy(&block, bytes, sizeof block);
	halves(block.q, n);
	for (int i = 0; i < PACKING_VALUES; i++)
		n[i] = levels[n[i]];
	put_q8_0(block.d, n, held);
}

void packing_unpack(enum tensor_packing packing, const uint8_t *bytes, uint8_t *held, uint64_t count)
{
	static void (*const unpack[PACKING_COUNT])(const uint8_t *bytes, uint8_t *held) = {
		[PACKING_Q4_1] = unpack_q4_1,
		[PACKING_Q5_0] = unpack_q5_0,
		[PACKING_Q5_1] = unpack_q5_1,
		[PACKING_IQ4_NL] = unpack_iq4_nl,
	};
	const uint64_t to_bytes = format_row_bytes(infos[packing].held, PACKING_VALUES);
	for (; count; count -= PACKING_VALUES, bytes += infos[packing].block_bytes, held += to_bytes)
		unpack[packing](bytes, held);
}
