/* Number formats: the 16-bit ones over all their values, blocks worked out by hand from the layouts of format.h, what
 * encoding loses, and what it does with numbers that are none. */
#include "engine/model/format.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs those above it.
#include <cmocka.h>

enum { VALUES = 256 * 64 };

static void same(float got, float wanted, const char *what, unsigned place)
{
	if (memcmp(&got, &wanted, sizeof(got)))
		fail_msg("%s %u: %.9g, not %.9g", what, place, (double)got, (double)wanted);
}

// Every f16 is what its sign, exponent and fraction say, and comes back.
static void test_f16(void **state)
{
	(void)state;
	for (unsigned bits = 0; bits < 65536; bits++) {
		int exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 1023);
		float value = f16_to_f32((uint16_t)bits);
		if (exponent == 31 && fraction) {
			assert_true(isnan(value) && isnan(f16_to_f32(f32_to_f16(value))));
			continue;
		}
		float wanted = exponent == 31 ? INFINITY
			       : exponent     ? ldexpf((float)(1024 + fraction), exponent - 25)
					      : ldexpf((float)fraction, -24);
		same(value, bits & 0x8000 ? -wanted : wanted, "f16", bits);
		if (f32_to_f16(value) != bits)
			fail_msg("f16 0x%04x came back as 0x%04x", bits, f32_to_f16(value));
	}
}

// Between two neighbours the nearer is taken, of halves the even one.
static void test_f16_rounding(void **state)
{
	(void)state;
	for (unsigned bits = 0; bits < 0x7bff; bits++) {
		float low = f16_to_f32((uint16_t)bits), high = f16_to_f32((uint16_t)(bits + 1));
		float half = low + (high - low) / 2;
		unsigned even = bits & 1 ? bits + 1 : bits;
		if (f32_to_f16(half) != even || f32_to_f16(nextafterf(half, 0)) != bits ||
		    f32_to_f16(nextafterf(half, INFINITY)) != bits + 1 || f32_to_f16(-half) != (even | 0x8000))
			fail_msg("between 0x%04x and 0x%04x: 0x%04x", bits, bits + 1, f32_to_f16(half));
	}
	assert_int_equal(f32_to_f16(65519.99f), 0x7bff);
	assert_int_equal(f32_to_f16(65520), 0x7c00);
	assert_int_equal(f32_to_f16(1e38f), 0x7c00);
	assert_int_equal(f32_to_f16(-INFINITY), 0xfc00);
	assert_int_equal(f32_to_f16(1e-30f), 0);
}

static void test_bf16(void **state)
{
	(void)state;
	static const struct {
		float value;
		uint16_t bits;
	} cases[] = {{1, 0x3f80},           {-2.5f, 0xc020},         {1 + 0x1p-8f, 0x3f80}, // half way: even
		     {1 + 0x3p-8f, 0x3f82}, {1 + 0x1.1p-8f, 0x3f81}, {3.4e38f, 0x7f80},     {0, 0}};
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		uint16_t bits;
		float back, wanted;
		uint32_t wide = (uint32_t)cases[i].bits << 16;
		format_encode(FORMAT_BF16, &cases[i].value, (uint8_t *)&bits, 1);
		assert_int_equal(bits, cases[i].bits);
		format_decode(FORMAT_BF16, (const uint8_t *)&bits, &back, 1);
		memcpy(&wanted, &wide, sizeof(wanted));
		same(back, wanted, "bf16", i);
	}
}

static void test_info(void **state)
{
	(void)state;
	assert_int_equal(format_parse("q4_k"), FORMAT_Q4_K);
	assert_int_equal(format_parse("BF16"), FORMAT_BF16);
	assert_int_equal(format_parse("Q4"), FORMAT_UNKNOWN);
	assert_int_equal(format_parse(""), FORMAT_UNKNOWN);
	assert_int_equal(format_row_bytes(FORMAT_Q4_K, 512), 288);
	assert_int_equal(format_row_bytes(FORMAT_Q4_K, 128), 0);
	assert_int_equal(format_row_bytes(FORMAT_Q8_0, 33), 0);
	assert_int_equal(format_row_bytes(FORMAT_F16, 3), 6);
	assert_int_equal(format_row_bytes(FORMAT_F32, UINT64_MAX), 0);
	assert_int_equal(format_row_bytes(FORMAT_UNKNOWN, 32), 0);
}

// One number in a block of zeros stands where the layout says, and is what it says.
static void test_layouts(void **state)
{
	(void)state;
	float values[256];
	struct block_q8_0 q8 = {.d = 0x3800}; // a half
	q8.q[5] = -9;
	format_decode(FORMAT_Q8_0, (const uint8_t *)&q8, values, 32);
	for (unsigned i = 0; i < 32; i++)
		same(values[i], i == 5 ? -4.5f : 0, "Q8_0", i);

	struct block_q4_0 q4 = {.d = 0x4000}; // 2
	memset(q4.q, 0x88, sizeof(q4.q));
	q4.q[3] = 0xf1;
	format_decode(FORMAT_Q4_0, (const uint8_t *)&q4, values, 32);
	for (unsigned i = 0; i < 32; i++)
		same(values[i], i == 3 ? -14.0f : i == 19 ? 14.0f : 0, "Q4_0", i);

	// Groups 1 and 6 have scales 33 and 44 and mins 7 and 58.
	struct block_q4_k k4 = {.d = 0x3c00, .dmin = 0x3800};
	k4.scales[1] = 33;
	k4.scales[5] = 7;
	k4.scales[2] = 2 << 6; // above 12
	k4.scales[6] = 3 << 6; // above 10
	k4.scales[10] = 12 | 10 << 4;
	k4.q[4] = 9 << 4;       // group 1
	k4.q[3 * 32 + 31] = 14; // group 6
	format_decode(FORMAT_Q4_K, (const uint8_t *)&k4, values, 256);
	for (unsigned i = 0; i < 256; i++) {
		float low = i / 32 == 1 ? -3.5f : i / 32 == 6 ? -29.0f : 0;
		same(values[i], i == 36 ? 33 * 9 - 3.5f : i == 223 ? 44 * 14 - 29.0f : low, "Q4_K", i);
	}

	struct block_q5_k k5 = {.d = 0x3c00};
	k5.scales[1] = 33;
	k5.scales[2] = 2 << 6;
	k5.scales[10] = 12;
	k5.q[4] = 9 << 4;
	k5.high[4] = 1 << 1;
	k5.high[31] = 1 << 6;
	format_decode(FORMAT_Q5_K, (const uint8_t *)&k5, values, 256);
	for (unsigned i = 0; i < 256; i++)
		same(values[i], i == 36 ? 33 * 25 : i == 223 ? 44 * 16 : 0, "Q5_K", i);
}

// Q6_K: every quarter of both halves.
static void test_q6_k(void **state)
{
	(void)state;
	float values[256];
	for (unsigned at = 0; at < 256; at++) {
		struct block_q6_k block = {.d = 0x3c00};
		unsigned half = at / 128, quarter = at % 128 / 32, l = at % 32;
		for (unsigned g = 0; g < 16; g++)
			block.scales[g] = (int8_t)(g == at / 16 ? -3 : 0);
		block.low[64 * half + 32 * (quarter & 1) + l] = (uint8_t)(11 << (quarter >= 2 ? 4 : 0));
		block.high[32 * half + l] = (uint8_t)(2 << 2 * quarter);
		format_decode(FORMAT_Q6_K, (const uint8_t *)&block, values, 256);
		for (unsigned i = 0; i < 256; i++) {
			float wanted = i / 16 == at / 16 ? -3.0f * (i == at ? 11 : -32) : 0;
			if (values[i] < wanted || values[i] > wanted)
				fail_msg("Q6_K with a number at %u: value %u is %g, not %g", at, i, (double)values[i],
					 (double)wanted);
		}
	}
}

// As the published quantisers: Q8_0 rounds halves away from zero, Q4_0's largest is -8 exactly.
static void test_exact_encoding(void **state)
{
	(void)state;
	float values[32] = {127, 0.5f, -0.5f, 1.5f, -2.5f, 2.49f};
	struct block_q8_0 q8;
	format_encode(FORMAT_Q8_0, values, (uint8_t *)&q8, 32);
	static const int8_t wanted[] = {127, 1, -1, 2, -3, 2, 0};
	assert_int_equal(q8.d, 0x3c00);
	assert_memory_equal(q8.q, wanted, sizeof(wanted));
	float others[32] = {-4, 8, 0.4f, -0.5f, 7};
	others[16] = -7.6f;
	struct block_q4_0 q4;
	format_encode(FORMAT_Q4_0, others, (uint8_t *)&q4, 32);
	assert_int_equal(q4.d, 0xbc00);          // -1
	assert_int_equal(q4.q[0], 12 | 15 << 4); // 15: 16 there is not
	assert_int_equal(q4.q[1], 0 | 8 << 4);
	assert_int_equal(q4.q[2], 8 | 8 << 4);
	assert_int_equal(q4.q[3], 9 | 8 << 4);
	assert_int_equal(q4.q[4], 1 | 8 << 4);
}

static uint32_t draw(uint32_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 17;
	return *seed ^= *seed << 5;
}

static float normal(uint32_t *seed)
{
	float sum = 0;
	for (int i = 0; i < 12; i++)
		sum += (float)draw(seed) / 4294967296.0f;
	return sum - 6;
}

// The loss on numbers of a normal distribution: relative root mean square, below what an even rounding would cost.
static void test_loss(void **state)
{
	(void)state;
	static const double most[FORMAT_COUNT] = {
		[FORMAT_F32] = 0,      [FORMAT_F16] = 2.5e-4, [FORMAT_BF16] = 2e-3,
		[FORMAT_Q8_0] = 0.006, [FORMAT_Q4_0] = 0.095, [FORMAT_Q4_K] = 0.075,
		[FORMAT_Q5_K] = 0.037, [FORMAT_Q6_K] = 0.02,  [FORMAT_MXFP4] = 0.13,
	};
	float *values = malloc(VALUES * sizeof(*values)), *back = malloc(VALUES * sizeof(*back));
	uint8_t *bytes = malloc(VALUES * sizeof(*values));
	assert_true(values && back && bytes);
	for (unsigned size = 0; size < 3; size++) {
		static const float scales[] = {0.02f, 1, 3000};
		uint32_t seed = 4711;
		for (unsigned i = 0; i < VALUES; i++)
			values[i] = scales[size] * normal(&seed);
		for (enum tensor_format format = FORMAT_F32; format < FORMAT_COUNT; format++) {
			double squares = 0, all = 0;
			memset(bytes, 0xa5, VALUES * sizeof(*values));
			format_encode(format, values, bytes, VALUES);
			format_decode(format, bytes, back, VALUES);
			for (unsigned i = 0; i < VALUES; i++) {
				squares += pow((double)back[i] - (double)values[i], 2);
				all += pow((double)values[i], 2);
			}
			double loss = sqrt(squares / all);
			printf("%s of numbers about %g loses %.5f\n", format_info(format)->name, (double)scales[size],
			       loss);
			if (!(loss <= most[format]) || (format > FORMAT_F32 && loss < most[format] / 3))
				fail_msg("%s loses %.5f, not about %.5f", format_info(format)->name, loss,
					 most[format]);
		}
	}
	free(values);
	free(back);
	free(bytes);
}

// A block of zeros stays one; one of equal numbers stays near; what is no number gives some bytes, and no fault.
static void test_odd_numbers(void **state)
{
	(void)state;
	static const float odd[] = {0, 1, -3, 1e-30f, -1e38f, INFINITY, -INFINITY, NAN};
	float values[256], back[256];
	uint8_t bytes[1024];
	for (enum tensor_format format = FORMAT_F32; format < FORMAT_COUNT; format++)
		for (unsigned i = 0; i < sizeof(odd) / sizeof(*odd); i++)
			for (unsigned all = 0; all < 2; all++) {
				for (unsigned j = 0; j < 256; j++)
					values[j] = all || j % 37 == 5 ? odd[i] : 0;
				format_encode(format, values, bytes, 256);
				format_decode(format, bytes, back, 256);
				for (unsigned j = 0; j < 256 && i < 3; j++)
					if (!(fabsf(back[j] - values[j]) <= fabsf(odd[i]) * 0.04f))
						fail_msg("%s: %g became %g", format_info(format)->name,
							 (double)values[j], (double)back[j]);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_f16),
		cmocka_unit_test(test_f16_rounding),
		cmocka_unit_test(test_bf16),
		cmocka_unit_test(test_info),
		cmocka_unit_test(test_layouts),
		cmocka_unit_test(test_q6_k),
		cmocka_unit_test(test_exact_encoding),
		cmocka_unit_test(test_loss),
		cmocka_unit_test(test_odd_numbers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
