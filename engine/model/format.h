/* Number formats of model files, with the layouts that they have in files.
 *
 * A tensor's rows are runs of blocks; a row never ends inside a block. Little-endian; no block is aligned to more than
 * two bytes. `value = scale * q` and the like are exact statements: format_decode is what every back end is compared
 * with. Thread: any; plain data and pure functions. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum tensor_format {
	FORMAT_UNKNOWN,
	FORMAT_F32,
	FORMAT_F16,
	FORMAT_BF16,
	FORMAT_Q8_0,
	FORMAT_Q4_0,
	FORMAT_MXFP4,
	FORMAT_Q4_K,
	FORMAT_Q5_K,
	FORMAT_Q6_K,
	FORMAT_COUNT
};

// 32 values: d * q[i]
struct block_q8_0 {
	uint16_t d; // f16
	int8_t q[32];
};
// 32 values: d * (n - 8); value i is the low half of q[i], value 16 + i the high half
struct block_q4_0 {
	uint16_t d; // f16
	uint8_t q[16];
};
// 32 values (OCP Microscaling Formats MX v1.0): 2^(e - 127) * v[n], where n has the bits of an e2m1 number: v is 0,
// 0.5, 1, 1.5, 2, 3, 4, 6, and the same negative from n = 8 on. An e of 255 means NaN in the standard; here it is 2^128
// as in llama.cpp, so v times it may be infinite. Halves of q[i] as in block_q4_0.
struct block_mxfp4 {
	uint8_t e;
	uint8_t q[16];
};
// 256 values in 8 groups of 32: d * scale[g] * n - dmin * min[g]. Groups 2k and 2k + 1 are the low and the high halves
// of q[32 k ...]. Scales and mins have 6 bits each: those of groups 0 to 3 are the low 6 bits of bytes g and g + 4; of
// groups 4 to 7 the low and high half of byte g + 4, above which come the top 2 bits of bytes g - 4 (scale) and g
// (min).
struct block_q4_k {
	uint16_t d, dmin; // f16
	uint8_t scales[12];
	uint8_t q[128];
};
// Like block_q4_k, with a fifth bit for value i of group g: bit g of high[i].
struct block_q5_k {
	uint16_t d, dmin;
	uint8_t scales[12];
	uint8_t high[32];
	uint8_t q[128];
};
// 256 values in 16 groups of 16: d * scales[g] * (n - 32). In each half h of 128 values, for l < 32: value l is the low
// half of low[64 h + l] with bits 0-1 of high[32 h + l] above, value 32 + l the low half of low[64 h + 32 + l] with
// bits 2-3, value 64 + l the high half of low[64 h + l] with bits 4-5, value 96 + l the high half of low[64 h + 32 + l]
// with bits 6-7.
struct block_q6_k {
	uint8_t low[128];
	uint8_t high[64];
	int8_t scales[16];
	uint16_t d; // f16
};

struct format_info {
	const char *name; // as users write it: "Q4_K"
	uint32_t block_values, block_bytes;
};
// The properties of a known format.
const struct format_info *format_info(enum tensor_format format);
// FORMAT_UNKNOWN if the name is unknown; case does not matter.
enum tensor_format format_parse(const char *name);
bool format_is_wide(enum tensor_format format); // of 16 or 32 bits: it can be held in a smaller one
// The bytes of a row of `columns` values; 0 if a row cannot have so many.
uint64_t format_row_bytes(enum tensor_format format, uint64_t columns);

// `count` values, a multiple of the block's, to and from f32. Encoding rounds to nearest: Q8_0 and Q4_0 exactly as the
// published quantisers do (performance notes), the K formats by least squares within a block.
void format_decode(enum tensor_format format, const uint8_t *bytes, float *values, uint64_t count);
void format_encode(enum tensor_format format, const float *values, uint8_t *bytes, uint64_t count);

// Twice the value of an e2m1 number, which is whole: 0 to 12, or negative. n: 0 to 15.
int8_t e2m1_doubled(unsigned n);
// 2^(e - 128), half the scale of a block of MXFP4: what doubled values are multiplied by.
float e8m0_half(uint8_t e);

float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value); // to nearest, ties to even; too large becomes infinite
