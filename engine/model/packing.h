/* Number formats of model files that no back end computes with: a tensor in one of them is converted to another format
 * (format.h) when it is loaded. Quantisers fall back to these if the length of a row is not a multiple of 256.
 *
 *     Q5_0, IQ4_NL  become Q8_0, number for number: their scale stays, and what it multiplies has 8 bits at most
 *     Q4_1, Q5_1    become F16: their numbers have an offset, so each is rounded once, to 11 bits
 *
 * Blocks of 32 values, with the layout that they have in files; value i is made of the low half of q[i], value 16 + i
 * of the high half. Thread: any; plain data and pure functions. */
#pragma once
#include "engine/model/format.h"

enum tensor_packing { PACKING_NONE, PACKING_Q4_1, PACKING_Q5_0, PACKING_Q5_1, PACKING_IQ4_NL, PACKING_COUNT };

enum { PACKING_VALUES = 32 }; // of a block

// d * n + m
struct block_q4_1 {
	uint16_t d, m; // f16
	uint8_t q[16];
};
// d * (n - 16); bit i of high is the fifth of value i
struct block_q5_0 {
	uint16_t d; // f16
	uint8_t high[4];
	uint8_t q[16];
};
// d * n + m, with a fifth bit as before
struct block_q5_1 {
	uint16_t d, m; // f16
	uint8_t high[4];
	uint8_t q[16];
};
// d * level[n], 16 levels that lie the closer together the nearer they are to 0
struct block_iq4_nl {
	uint16_t d; // f16
	uint8_t q[16];
};

struct packing_info {
	const char *name; // as users write it
	uint32_t type;    // its number in files
	uint32_t block_bytes;
	enum tensor_format held;
};
// The properties of a known packing, not PACKING_NONE.
const struct packing_info *packing_info(enum tensor_packing packing);
// PACKING_NONE if files mean something else with this number.
enum tensor_packing packing_of_type(uint32_t type);
// The bytes of a row of `columns` values; 0 if a row cannot have so many.
uint64_t packing_row_bytes(enum tensor_packing packing, uint64_t columns);
// `count` values, a multiple of PACKING_VALUES, in the format in which they are held.
void packing_unpack(enum tensor_packing packing, const uint8_t *bytes, uint8_t *held, uint64_t count);
