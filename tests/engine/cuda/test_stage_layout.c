/* How matrices lie on the device, without one: what the file says of a value is found again where the kernels read it.
 *
 * Kernels take fragments; here each value is put together from the tile's words by the layout's own description. */
#include "engine/cuda/kernels/stage_layout.h"
#include "engine/model/format.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

// after its own requirements
#include <cmocka.h>

enum { ROWS = 37, COLUMNS = 768, SHORT_COLUMNS = 96 };

static uint32_t word_at(const uint8_t *tile, unsigned at)
{
	uint32_t word;
	memcpy(&word, tile + at / 4 * 4, 4);
	return word;
}

static float half_at(const uint8_t *tile, unsigned at)
{
	return f16_to_f32((uint16_t)(word_at(tile, at) >> at % 4 * 8));
}

static uint32_t random_bits(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

static float head_value(const uint8_t *head, unsigned group, unsigned q)
{
	const uint8_t *s = head + 4;
	unsigned scale = group < 4 ? s[group] & 63u : (s[group + 4] & 15u) | (unsigned)s[group - 4] >> 6 << 4;
	unsigned least = group < 4 ? s[group + 4] & 63u : (unsigned)s[group + 4] >> 4 | (unsigned)s[group] >> 6 << 4;
	return half_at(head, 0) * (float)scale * (float)q - half_at(head, 2) * (float)least;
}

static float value_at(const uint8_t *tile, enum tensor_format format, unsigned row, unsigned column)
{
	struct tile_place at = tile_place(row, column);
	unsigned lane = at.lane * TILE_LANE_BYTES, byte = at.pair / 2 + 2 * at.second, q;
	float f32;
	switch (format) {
	case FORMAT_F32:
		memcpy(&f32, tile + (at.step * 2 + at.pair / 2) * 512 + lane + (at.pair % 2 * 2 + at.second) * 4, 4);
		return f32;
	case FORMAT_F16:
		return half_at(tile, at.step * 512 + lane + at.pair * 4 + at.second * 2);
	case FORMAT_BF16: {
		uint32_t bits = word_at(tile, at.step * 512 + lane + at.pair * 4) >> at.second * 16 << 16;
		memcpy(&f32, &bits, 4);
		return f32;
	}
	case FORMAT_Q8_0:
		q = tile[at.step / 2 * 512 + lane + at.step % 2 * 8 + at.pair % 2 * 4 + byte];
		return half_at(tile, 1024 + row % 8 * 8 + (row / 8 * 2 + column / 32) * 2) * (float)(int8_t)q;
	case FORMAT_Q4_0:
	case FORMAT_MXFP4:
	case FORMAT_Q4_K:
	case FORMAT_Q5_K:
	case FORMAT_Q6_K:
		break;
	case FORMAT_UNKNOWN:
	case FORMAT_COUNT:
		fail();
	}
	q = word_at(tile, at.step / 4 * 512 + lane + at.step % 4 * 4) >> (at.pair + 4 * at.second) * 4 & 15;
	if (format == FORMAT_Q4_0)
		return half_at(tile, 1024 + row % 8 * 16 + (row / 8 * 4 + column / 32) * 2) * (float)((int)q - 8);
	if (format == FORMAT_MXFP4)
		return e8m0_half(tile[1024 + row % 8 * 8 + row / 8 * 4 + column / 32]) * (float)e2m1_doubled(q);
	if (format == FORMAT_Q4_K)
		return head_value(tile + 2048 + row * 16, column / 32, q);
	if (format == FORMAT_Q5_K) {
		uint32_t high = word_at(tile, 2048 + lane + at.step / 4 * 4);
		q |= (high >> (byte * 8 + at.step % 4 * 2 + at.pair % 2) & 1) << 4;
		return head_value(tile + 2560 + row * 16, column / 32, q);
	}
	uint32_t high = word_at(tile, 2048 + at.step / 8 * 512 + lane + at.step % 8 / 2 * 4);
	q |= (high >> (byte * 8 + (at.step % 2 * 2 + at.pair % 2) * 2) & 3) << 4;
	return half_at(tile, 3328 + row * 2) * (float)(int8_t)tile[3072 + row * 16 + column / 16] *
	       (float)((int)q - 32);
}

static void check(enum tensor_format format, uint32_t columns)
{
	uint64_t row_bytes = format_row_bytes(format, columns);
	uint8_t *file = malloc(ROWS * row_bytes);
	float *numbers = malloc(ROWS * columns * sizeof(float));
	uint32_t seed = 1, *tile = malloc(tile_bytes(format));
	assert_true(file && numbers && tile);
	for (uint32_t i = 0; i < ROWS * columns; i++)
		numbers[i] = ((float)random_bits(&seed) / (1 << 23) - 1) * (1 + (float)(i % 7));
	format_encode(format, numbers, file, (uint64_t)ROWS * columns);
	format_decode(format, file, numbers, (uint64_t)ROWS * columns);
	const struct tile_source source = {.bytes = file, .format = format, .rows = ROWS, .columns = columns};
	unsigned width = tile_columns(format), padded = (tile_padded(columns) + width - 1) / width * width;
	for (unsigned row0 = 0; row0 < ROWS; row0 += TILE_ROWS)
		for (unsigned column0 = 0; column0 < padded; column0 += width) {
			for (unsigned word = 0; word < tile_bytes(format) / 4; word++)
				tile[word] = repack_word(&source, row0, column0, word);
			for (unsigned i = 0; i < TILE_ROWS * width; i++) {
				unsigned row = row0 + i / width, column = column0 + i % width;
				float want = row < ROWS && column < columns ? numbers[row * columns + column] : 0;
				float got = value_at((const uint8_t *)tile, format, i / width, i % width);
				if (fabsf(got - want) > 1e-6f * fabsf(want) + 1e-6f)
					fail_msg("%s, row %u, column %u: %g, not %g", format_info(format)->name, row,
						 column, (double)got, (double)want);
			}
		}
	free(file);
	free(numbers);
	free(tile);
}

static void test_tiles(void **state)
{
	(void)state;
	for (enum tensor_format format = FORMAT_F32; format < FORMAT_COUNT; format++) {
		const struct format_info *info = format_info(format);
		assert_int_equal(info->block_bytes, file_block_bytes(format));
		assert_int_equal(info->block_values, file_block_values(format));
		// As many bytes as the file has: nothing is unpacked.
		assert_int_equal(tile_bytes(format), TILE_ROWS * format_row_bytes(format, tile_columns(format)));
		check(format, COLUMNS);
		if (info->block_values <= 32)
			check(format, SHORT_COLUMNS);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_tiles)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
