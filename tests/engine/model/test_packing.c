/* Formats that stand in files only: random blocks against their definition, worked out another way in double precision,
 * and tensors of them as they are held. */
#include "engine/model/convert.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs those above it.
#include <cmocka.h>

enum { BLOCKS = 2000, MOST_BYTES = 24 };

static uint64_t seed = 88172645463325252u;
static uint8_t draw(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint8_t)(seed >> 24);
}

static double half_at(const uint8_t *bytes)
{
	return (double)f16_to_f32((uint16_t)(bytes[0] | bytes[1] << 8));
}

// Value i of a block, from its bytes.
static double exact(enum tensor_packing packing, const uint8_t *bytes, int i)
{
	static const double levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
	const bool offset = packing == PACKING_Q4_1 || packing == PACKING_Q5_1;
	const bool fifth = packing == PACKING_Q5_0 || packing == PACKING_Q5_1;
	const uint8_t *q = bytes + 2 + 2 * offset + 4 * fifth;
	int n = i < 16 ? q[i] % 16 : q[i - 16] / 16;
	if (fifth && bytes[2 + 2 * offset + i / 8] & 1 << i % 8)
		n += 16;
	double value = packing == PACKING_IQ4_NL ? levels[n] : packing == PACKING_Q5_0 ? n - 16 : n;
	return half_at(bytes) * value + (offset ? half_at(bytes + 2) : 0);
}

// Random, of scales and offsets that weights have: powers from 2^-14 to 2^1.
static void fill(uint8_t *bytes, uint32_t block_bytes)
{
	for (uint32_t i = 0; i < block_bytes; i++)
		bytes[i] = draw();
	bytes[1] &= 0xBF; // a half below 2
	bytes[3] &= 0xBF;
}

static void test_blocks(void **state)
{
	(void)state;
	for (enum tensor_packing packing = PACKING_NONE + 1; packing < PACKING_COUNT; packing++) {
		const struct packing_info *info = packing_info(packing);
		assert_int_equal(packing_of_type(info->type), packing);
		for (int block = 0; block < BLOCKS; block++) {
			uint8_t bytes[MOST_BYTES], held[2 * PACKING_VALUES];
			float values[PACKING_VALUES];
			fill(bytes, info->block_bytes);
			packing_unpack(packing, bytes, held, PACKING_VALUES);
			format_decode(info->held, held, values, PACKING_VALUES);
			for (int i = 0; i < PACKING_VALUES; i++) {
				const double wanted = exact(packing, bytes, i);
				const double most = info->held == FORMAT_Q8_0 ? 0 : fabs(wanted) * 0x1p-11 + 0x1p-25;
				if (!(fabs((double)values[i] - wanted) <= most))
					fail_msg("%s: value %d is %.9g, not %.9g", info->name, i, (double)values[i],
						 wanted);
			}
		}
	}
	assert_int_equal(packing_of_type(2), PACKING_NONE);
}

// Whatever a file has in the place of a scale: bytes come out.
static void test_no_numbers(void **state)
{
	(void)state;
	for (enum tensor_packing packing = PACKING_NONE + 1; packing < PACKING_COUNT; packing++) {
		uint8_t bytes[MOST_BYTES], held[2 * PACKING_VALUES];
		memset(bytes, 0xFF, sizeof bytes);
		packing_unpack(packing, bytes, held, PACKING_VALUES);
	}
}

static void test_rows(void **state)
{
	(void)state;
	assert_int_equal(packing_row_bytes(PACKING_Q5_0, 96), 66);
	assert_int_equal(packing_row_bytes(PACKING_Q5_0, 95), 0);
}

// Rows of a tensor as they are held, with and without a wish for a smaller format.
static void test_tensors(void **state)
{
	enum { ROWS = 5, COLUMNS = 96 };
	(void)state;
	for (enum tensor_packing packing = PACKING_NONE + 1; packing < PACKING_COUNT; packing++) {
		const struct packing_info *info = packing_info(packing);
		const uint32_t row_bytes = COLUMNS / PACKING_VALUES * info->block_bytes;
		uint8_t *bytes = malloc(ROWS * row_bytes), *out = malloc(2 * ROWS * COLUMNS);
		for (uint32_t at = 0; at < ROWS * row_bytes; at += info->block_bytes)
			fill(bytes + at, info->block_bytes);
		const struct model_tensor tensor = {.format = info->held,
						    .rows = ROWS,
						    .columns = COLUMNS,
						    .data = bytes,
						    .bytes = ROWS * row_bytes,
						    .packing = packing};
		for (enum tensor_format wish = FORMAT_UNKNOWN; wish <= FORMAT_Q8_0; wish += FORMAT_Q8_0) {
			struct model_tensor held;
			float values[COLUMNS];
			model_tensor_as(&tensor, wish, &held);
			assert_null(held.data);
			assert_int_equal(held.packing, PACKING_NONE);
			assert_int_equal(held.format, wish ? FORMAT_Q8_0 : info->held);
			assert_int_equal(held.bytes, ROWS * format_row_bytes(held.format, COLUMNS));
			assert_int_equal(model_convert(&tensor, &held, 1, ROWS - 1, out), STATUS_OK);
			for (uint32_t row = 1; row < ROWS; row++) {
				format_decode(held.format, out + (row - 1) * (held.bytes / ROWS), values, COLUMNS);
				for (uint32_t i = 0; i < COLUMNS; i++) {
					const uint8_t *block = bytes + row * row_bytes +
							       i / PACKING_VALUES * info->block_bytes;
					double largest = 0;
					for (int j = 0; j < PACKING_VALUES; j++)
						largest = fmax(largest, fabs(exact(packing, block, j)));
					const double wanted = exact(packing, block, (int)i % PACKING_VALUES);
					const bool whole = info->held == FORMAT_Q8_0;
					const double most = whole ? 0 : largest * (wish ? 1 / 235.0 : 0x1p-11) + 1e-7;
					if (!(fabs((double)values[i] - wanted) <= most))
						fail_msg("%s as %s: row %u column %u is %.9g, not %.9g", info->name,
							 format_info(held.format)->name, row, i, (double)values[i],
							 wanted);
				}
			}
		}
		free(bytes);
		free(out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_blocks), cmocka_unit_test(test_no_numbers),
					   cmocka_unit_test(test_rows), cmocka_unit_test(test_tensors)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
