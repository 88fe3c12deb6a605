/* See format.h: values to and from the blocks of each number format.
 *
 * Decoding is the definition that back ends are compared with, so each format is written as its formula. Blocks are
 * copied out before they are read: rows of a mapped file may lie at any address. Encoding is for quantising when a
 * model is loaded, and for test models. The K formats alternate between the best numbers for a scale and the best scale
 * for the numbers, which is least squares in a few rounds; then the scales are rounded themselves and the numbers
 * chosen once more. Whatever comes in, also infinities, gives defined bytes. Thread: any; pure functions. */
#include "engine/model/format.h"

#include <math.h>
#include <string.h>
#include <strings.h>

_Static_assert(sizeof(struct block_q8_0) == 34 && sizeof(struct block_q4_0) == 18, "blocks as in files");
_Static_assert(sizeof(struct block_mxfp4) == 17, "blocks as in files");
_Static_assert(sizeof(struct block_q4_k) == 144 && sizeof(struct block_q5_k) == 176, "blocks as in files");
_Static_assert(sizeof(struct block_q6_k) == 210, "blocks as in files");

enum { ROUNDS = 4, DECODED_16 = 256 }; // of least squares; values at a time

static const struct format_info infos[FORMAT_COUNT] = {
	[FORMAT_F32] = {"F32", 1, 4},
	[FORMAT_F16] = {"F16", 1, 2},
	[FORMAT_BF16] = {"BF16", 1, 2},
	[FORMAT_Q8_0] = {"Q8_0", 32, sizeof(struct block_q8_0)},
	[FORMAT_Q4_0] = {"Q4_0", 32, sizeof(struct block_q4_0)},
	[FORMAT_MXFP4] = {"MXFP4", 32, sizeof(struct block_mxfp4)},
	[FORMAT_Q4_K] = {"Q4_K", 256, sizeof(struct block_q4_k)},
	[FORMAT_Q5_K] = {"Q5_K", 256, sizeof(struct block_q5_k)},
	[FORMAT_Q6_K] = {"Q6_K", 256, sizeof(struct block_q6_k)},
};

const struct format_info *format_info(enum tensor_format format)
{
	return &infos[format];
}

enum tensor_format format_parse(const char *name)
{
	for (enum tensor_format format = FORMAT_UNKNOWN + 1; format < FORMAT_COUNT; format++)
		if (!strcasecmp(infos[format].name, name))
			return format;
	return FORMAT_UNKNOWN;
}

bool format_is_wide(enum tensor_format format)
{
	return format == FORMAT_F32 || format == FORMAT_F16 || format == FORMAT_BF16;
}

uint64_t format_row_bytes(enum tensor_format format, uint64_t columns)
{
	const struct format_info *info = &infos[format];
	if (!info->block_values || columns % info->block_values ||
	    columns / info->block_values > UINT64_MAX / info->block_bytes)
		return 0;
	return columns / info->block_values * info->block_bytes;
}

// ---- 16 bits ----

// Not copied by memcpy: with a sanitizer each of these would have a frame to check, and they are called for every
// number.
union f32 {
	float value;
	uint32_t bits;
};

static float f32_of(uint32_t bits)
{
	return (union f32){.bits = bits}.value;
}

static uint32_t bits_of(float value)
{
	return (union f32){.value = value}.bits;
}

// Without branches, so that loops over it become vectors.
static inline float half_value(uint16_t half)
{
	uint32_t sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
	uint32_t offset = 112u << 23; // the exponent's is 15 here and 127 there; infinities have the largest in both
	uint32_t normal = (rest << 13) + offset + (rest >= 0x7c00 ? offset : 0);
	uint32_t small = bits_of((float)(int32_t)rest * 0x1p-24f);
	return f32_of(sign | (rest < 0x400 ? small : normal));
}

float f16_to_f32(uint16_t half)
{
	return half_value(half);
}

uint16_t f32_to_f16(float value)
{
	uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
	if (rest > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (rest >= bits_of(65520)) // half way from the largest to the next that there is not
		return (uint16_t)(sign | 0x7c00);
	if (rest < bits_of(0x1p-14f)) // multiples of 2^-24, which is also the precision of an f32 from 0.5 on
		return (uint16_t)(sign | (bits_of(f32_of(rest) + 0.5f) - bits_of(0.5f)));
	rest += 0xfff + (rest >> 13 & 1);
	return (uint16_t)(sign | (rest - (112u << 23)) >> 13);
}

static uint16_t f32_to_bf16(float value)
{
	uint32_t bits = bits_of(value);
	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// ---- MXFP4 ----

int8_t e2m1_doubled(unsigned n)
{
	static const int8_t values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
	return values[n];
}

float e8m0_half(uint8_t e)
{
	return f32_of(e < 2 ? 0x00200000u << e : (e - 1u) << 23); // the two smallest are denormal
}

// ---- decoding; each takes whole blocks ----

static void decode_16(enum tensor_format format, const uint8_t *bytes, float *values, uint64_t count)
{
	uint16_t some[DECODED_16];
	for (uint64_t done = 0; done < count; done += DECODED_16) {
		size_t left = count - done < DECODED_16 ? (size_t)(count - done) : DECODED_16;
		memcpy(some, bytes + 2 * done, 2 * left);
		for (size_t i = 0; i < left && format == FORMAT_F16; i++)
			values[done + i] = half_value(some[i]);
		for (size_t i = 0; i < left && format == FORMAT_BF16; i++)
			values[done + i] = f32_of((uint32_t)some[i] << 16);
	}
}

static void decode_q8_0(const uint8_t *bytes, float *values)
{
	struct block_q8_0 block;
	memcpy(&block, bytes, sizeof(block));
	float d = f16_to_f32(block.d);
	for (int i = 0; i < 32; i++)
		values[i] = d * block.q[i];
}

static void decode_q4_0(const uint8_t *bytes, float *values)
{
	struct block_q4_0 block;
	memcpy(&block, bytes, sizeof(block));
	float d = f16_to_f32(block.d);
	for (int i = 0; i < 16; i++) {
		values[i] = d * (float)((block.q[i] & 15) - 8);
		values[16 + i] = d * (float)((block.q[i] >> 4) - 8);
	}
}

static void decode_mxfp4(const uint8_t *bytes, float *values)
{
	struct block_mxfp4 block;
	memcpy(&block, bytes, sizeof(block));
	float d = e8m0_half(block.e);
	for (int i = 0; i < 16; i++) {
		values[i] = d * e2m1_doubled(block.q[i] & 15);
		values[16 + i] = d * e2m1_doubled(block.q[i] >> 4);
	}
}

// The 6-bit scale and min of group g of Q4_K and Q5_K.
static void unpack_scale(const uint8_t scales[12], int g, uint8_t *scale, uint8_t *min)
{
	if (g < 4) {
		*scale = scales[g] & 63;
		*min = scales[g + 4] & 63;
	} else {
		*scale = (uint8_t)((scales[g + 4] & 15) | scales[g - 4] >> 6 << 4);
		*min = (uint8_t)(scales[g + 4] >> 4 | scales[g] >> 6 << 4);
	}
}

static void decode_q4_k(const uint8_t *bytes, float *values)
{
	struct block_q4_k block;
	memcpy(&block, bytes, sizeof(block));
	float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
	for (int g = 0; g < 8; g++) {
		uint8_t scale, min;
		unpack_scale(block.scales, g, &scale, &min);
		float step = d * scale, low = dmin * min;
		const uint8_t *q = block.q + g / 2 * 32;
		int shift = g % 2 * 4;
		for (int i = 0; i < 32; i++)
			values[32 * g + i] = step * (float)(q[i] >> shift & 15) - low;
	}
}

static void decode_q5_k(const uint8_t *bytes, float *values)
{
	struct block_q5_k block;
	memcpy(&block, bytes, sizeof(block));
	float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
	for (int g = 0; g < 8; g++) {
		uint8_t scale, min;
		unpack_scale(block.scales, g, &scale, &min);
		float step = d * scale, low = dmin * min;
		const uint8_t *q = block.q + g / 2 * 32;
		int shift = g % 2 * 4;
		for (int i = 0; i < 32; i++)
			values[32 * g + i] = step * (float)((q[i] >> shift & 15) | (block.high[i] >> g & 1) << 4) - low;
	}
}

static void decode_q6_k(const uint8_t *bytes, float *values)
{
	struct block_q6_k block;
	memcpy(&block, bytes, sizeof(block));
	float d = f16_to_f32(block.d);
	for (int quarter = 0; quarter < 8; quarter++) { // four of each half
		const uint8_t *low = block.low + 64 * (quarter / 4) + 32 * (quarter % 2);
		const uint8_t *high = block.high + 32 * (quarter / 4);
		int low_shift = quarter % 4 / 2 * 4, high_shift = quarter % 4 * 2;
		for (int i = 0; i < 32; i++) {
			int n = (low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4;
			values[32 * quarter + i] = d * block.scales[2 * quarter + i / 16] * (float)(n - 32);
		}
	}
}

void format_decode(enum tensor_format format, const uint8_t *bytes, float *values, uint64_t count)
{
	void (*decode)(const uint8_t *bytes, float *values) = NULL;
	switch (format) {
	case FORMAT_F32:
		memcpy(values, bytes, count * sizeof(float));
		return;
	case FORMAT_F16:
	case FORMAT_BF16:
		decode_16(format, bytes, values, count);
		return;
	case FORMAT_Q8_0:
		decode = decode_q8_0;
		break;
	case FORMAT_Q4_0:
		decode = decode_q4_0;
		break;
	case FORMAT_MXFP4:
		decode = decode_mxfp4;
		break;
	case FORMAT_Q4_K:
		decode = decode_q4_k;
		break;
	case FORMAT_Q5_K:
		decode = decode_q5_k;
		break;
	case FORMAT_Q6_K:
		decode = decode_q6_k;
		break;
	case FORMAT_UNKNOWN:
	case FORMAT_COUNT:
		return;
	}
	const struct format_info *info = &infos[format];
	for (; count; count -= info->block_values, values += info->block_values, bytes += info->block_bytes)
		decode(bytes, values);
}

// ---- encoding ----

// The nearest integer from `low` to `high`; NaN becomes `low`.
static int nearest_in(float value, int low, int high)
{
	if (!(value > (float)low))
		return low;
	return value < (float)high ? (int)lrintf(value) : high;
}

static float inverse(float value)
{
	return value != 0 ? 1 / value : 0;
}

// The largest of 32 without its sign. Compared as bits, whose order is that of the numbers.
static float largest(const float *values)
{
	int32_t most = 0;
	for (int i = 0; i < 32; i++) {
		int32_t bits = (int32_t)(bits_of(values[i]) & 0x7fffffff);
		most = bits > most ? bits : most;
	}
	return f32_of((uint32_t)most);
}

static void encode_q8_0(const float *values, uint8_t *bytes)
{
	struct block_q8_0 block;
	float d = largest(values) / 127, per_step = inverse(d);
	block.d = f32_to_f16(d);
	for (int i = 0; i < 32; i++) {
		float value = values[i] * per_step;
		value = value > -127 ? value : -127; // NaN becomes -127, too
		value = value < 127 ? value : 127;
		int whole = (int)value; // towards zero; halves go away from it
		float rest = value - (float)whole;
		block.q[i] = (int8_t)(whole + (rest >= 0.5f) - (rest <= -0.5f));
	}
	memcpy(bytes, &block, sizeof(block));
}

static int q4_0_number(float value)
{
	value += 8.5f;
	value = value > 0 ? value : 0;
	return (int)(value < 15 ? value : 15);
}

static void encode_q4_0(const float *values, uint8_t *bytes)
{
	struct block_q4_0 block;
	float most = largest(values);
	int first = 0;
	while (first < 31 && !(fabsf(values[first]) >= most))
		first++;
	float d = values[first] / -8, per_step = inverse(d); // the largest value is -8 exactly
	block.d = f32_to_f16(d);
	for (int i = 0; i < 16; i++)
		block.q[i] = (uint8_t)(q4_0_number(values[i] * per_step) | q4_0_number(values[16 + i] * per_step) << 4);
	memcpy(bytes, &block, sizeof(block));
}

// The nearest e2m1 number of a doubled value; of two equally near, the even one. NaN becomes 0.
static unsigned e2m1_number(float doubled)
{
	static const float halfway[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 10}; // between the numbers
	float size = fabsf(doubled);
	unsigned n = 0;
	while (n < 7 && (n % 2 ? size >= halfway[n] : size > halfway[n]))
		n++;
	return n | (doubled < 0 ? 8u : 0u);
}

// The scale that the standard proposes: the largest value has the largest exponent.
static void encode_mxfp4(const float *values, uint8_t *bytes)
{
	struct block_mxfp4 block;
	int exponent = (int)(bits_of(largest(values)) >> 23) - 2; // 255 for infinities
	block.e = (uint8_t)(exponent > 0 ? exponent : 0);
	float per_step = 1 / e8m0_half(block.e);
	for (int i = 0; i < 16; i++)
		block.q[i] = (uint8_t)(e2m1_number(values[i] * per_step) | e2m1_number(values[16 + i] * per_step) << 4);
	memcpy(bytes, &block, sizeof(block));
}

// 32 values as scale * n - min, n from 0 to `most`, neither negative.
static void fit_scale_min(const float *values, int most, float *scale, float *min)
{
	float low = 0, high = values[0];
	for (int i = 0; i < 32; i++) {
		low = fminf(low, values[i]);
		high = fmaxf(high, values[i]);
	}
	*scale = (high - low) / (float)most;
	*min = -low;
	for (int round = 0; round<ROUNDS && * scale> 0; round++) {
		float per_step = 1 / *scale;
		double n1 = 0, n2 = 0, x1 = 0, xn = 0;
		for (int i = 0; i < 32; i++) {
			int n = nearest_in((values[i] + *min) * per_step, 0, most);
			n1 += n;
			n2 += (double)n * n;
			x1 += (double)values[i];
			xn += (double)values[i] * n;
		}
		double divisor = 32 * n2 - n1 * n1;
		if (divisor <= 0)
			return;
		double best_scale = (32 * xn - n1 * x1) / divisor, best_min = (n1 * best_scale - x1) / 32;
		if (best_min < 0) {
			best_min = 0;
			best_scale = xn / n2;
		}
		if (!(best_scale > 0))
			return;
		*scale = (float)best_scale;
		*min = (float)best_min;
	}
}

// The common part of Q4_K and Q5_K: the scales, and the numbers of 0 to `most` in n[256].
static void fit_k(const float *values, int most, uint16_t *d_bits, uint16_t *dmin_bits, uint8_t packed[12],
		  uint8_t n[256])
{
	float scales[8], mins[8], most_scale = 0, most_min = 0;
	for (int g = 0; g < 8; g++) {
		fit_scale_min(values + 32 * g, most, &scales[g], &mins[g]);
		most_scale = fmaxf(most_scale, scales[g]);
		most_min = fmaxf(most_min, mins[g]);
	}
	*d_bits = f32_to_f16(most_scale / 63);
	*dmin_bits = f32_to_f16(most_min / 63);
	float d = f16_to_f32(*d_bits), dmin = f16_to_f32(*dmin_bits);
	memset(packed, 0, 12);
	for (int g = 0; g < 8; g++) {
		int scale = nearest_in(scales[g] * inverse(d), 0, 63), min = nearest_in(mins[g] * inverse(dmin), 0, 63);
		if (g < 4) {
			packed[g] |= (uint8_t)scale;
			packed[g + 4] |= (uint8_t)min;
		} else {
			packed[g + 4] = (uint8_t)((scale & 15) | (min & 15) << 4);
			packed[g - 4] |= (uint8_t)(scale >> 4 << 6);
			packed[g] |= (uint8_t)(min >> 4 << 6);
		}
		float per_step = inverse(d * (float)scale), low = dmin * (float)min;
		for (int i = 0; i < 32; i++)
			n[32 * g + i] = (uint8_t)nearest_in((values[32 * g + i] + low) * per_step, 0, most);
	}
}

static void encode_q4_k(const float *values, uint8_t *bytes)
{
	struct block_q4_k block;
	uint8_t n[256];
	fit_k(values, 15, &block.d, &block.dmin, block.scales, n);
	for (int pair = 0; pair < 4; pair++)
		for (int i = 0; i < 32; i++)
			block.q[32 * pair + i] = (uint8_t)(n[64 * pair + i] | n[64 * pair + 32 + i] << 4);
	memcpy(bytes, &block, sizeof(block));
}

static void encode_q5_k(const float *values, uint8_t *bytes)
{
	struct block_q5_k block;
	uint8_t n[256];
	fit_k(values, 31, &block.d, &block.dmin, block.scales, n);
	memset(block.high, 0, sizeof(block.high));
	for (int g = 0; g < 8; g++)
		for (int i = 0; i < 32; i++)
			block.high[i] |= (uint8_t)(n[32 * g + i] >> 4 << g);
	for (int pair = 0; pair < 4; pair++)
		for (int i = 0; i < 32; i++)
			block.q[32 * pair + i] = (uint8_t)((n[64 * pair + i] & 15) | (n[64 * pair + 32 + i] & 15) << 4);
	memcpy(bytes, &block, sizeof(block));
}

// 16 values as scale * n, n from -32 to 31.
static float fit_scale(const float *values)
{
	float most = 0;
	for (int i = 0; i < 16; i++)
		if (fabsf(values[i]) > fabsf(most))
			most = values[i];
	float scale = most / -32;
	for (int round = 0; round < ROUNDS; round++) {
		double n2 = 0, xn = 0;
		float per_step = inverse(scale);
		for (int i = 0; i < 16; i++) {
			int n = nearest_in(values[i] * per_step, -32, 31);
			n2 += (double)n * n;
			xn += (double)values[i] * n;
		}
		if (n2 <= 0)
			break;
		scale = (float)(xn / n2);
	}
	return scale;
}

static void encode_q6_k(const float *values, uint8_t *bytes)
{
	struct block_q6_k block = {.d = 0};
	float scales[16], most = 0;
	for (int g = 0; g < 16; g++) {
		scales[g] = fit_scale(values + 16 * g);
		if (fabsf(scales[g]) > fabsf(most))
			most = scales[g];
	}
	block.d = f32_to_f16(most / -128);
	float d = f16_to_f32(block.d);
	for (int g = 0; g < 16; g++)
		block.scales[g] = (int8_t)nearest_in(scales[g] * inverse(d), -128, 127);
	for (int i = 0; i < 256; i++) {
		int half = i / 128, quarter = i % 128 / 32, l = i % 32;
		int n = nearest_in(values[i] * inverse(d * block.scales[i / 16]), -32, 31) + 32;
		block.low[64 * half + 32 * (quarter % 2) + l] |= (uint8_t)((n & 15) << (quarter / 2 * 4));
		block.high[32 * half + l] |= (uint8_t)(n >> 4 << (2 * quarter));
	}
	memcpy(bytes, &block, sizeof(block));
}

static void encode_16(enum tensor_format format, const float *values, uint8_t *bytes, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		uint16_t bits = format == FORMAT_F16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
		bytes[2 * i] = (uint8_t)bits;
		bytes[2 * i + 1] = (uint8_t)(bits >> 8);
	}
}

void format_encode(enum tensor_format format, const float *values, uint8_t *bytes, uint64_t count)
{
	void (*encode)(const float *values, uint8_t *bytes) = NULL;
	switch (format) {
	case FORMAT_F32:
		memcpy(bytes, values, count * sizeof(float));
		return;
	case FORMAT_F16:
	case FORMAT_BF16:
		encode_16(format, values, bytes, count);
		return;
	case FORMAT_Q8_0:
		encode = encode_q8_0;
		break;
	case FORMAT_Q4_0:
		encode = encode_q4_0;
		break;
	case FORMAT_MXFP4:
		encode = encode_mxfp4;
		break;
	case FORMAT_Q4_K:
		encode = encode_q4_k;
		break;
	case FORMAT_Q5_K:
		encode = encode_q5_k;
		break;
	case FORMAT_Q6_K:
		encode = encode_q6_k;
		break;
	case FORMAT_UNKNOWN:
	case FORMAT_COUNT:
		return;
	}
	const struct format_info *info = &infos[format];
	for (; count; count -= info->block_values, values += info->block_values, bytes += info->block_bytes)
		encode(values, bytes);
}
