// Panels hold a matrix exactly: what is read from them is what format_decode says of the file's bytes, for every
// format, also where rows and columns do not fill the last panel and group.
#include "engine/cpu/panels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

// after its own requirements
#include <cmocka.h>

static uint32_t state = 1;

static uint8_t next_byte(void)
{
	state = state * 1664525u + 1013904223u;
	return (uint8_t)(state >> 24);
}

struct case_size {
	uint32_t rows, columns;
};

static void check_matrix(enum tensor_format format, struct case_size size)
{
	uint64_t row_bytes = format_row_bytes(format, size.columns);
	uint8_t *bytes = malloc(row_bytes * size.rows);
	float *expected = malloc(size.columns * sizeof(float)), *row = malloc(size.columns * sizeof(float));
	assert_true(row_bytes && bytes && expected && row);
	for (uint64_t i = 0; i < row_bytes * size.rows; i++)
		bytes[i] = next_byte();
	struct model_tensor tensor = {.format = format,
				      .rows = size.rows,
				      .columns = size.columns,
				      .data = bytes,
				      .bytes = row_bytes * size.rows};
	struct panels panels;
	panels_init(&panels, &tensor);
	panels.data = aligned_alloc(64, (panels_bytes(&panels) + 63) / 64 * 64);
	assert_non_null(panels.data);
	for (uint32_t panel = 0; panel < panels.panel_count; panel++)
		panels_pack(&panels, &tensor, panel);
	for (uint32_t i = 0; i < size.rows; i++) {
		format_decode(format, bytes + i * row_bytes, expected, size.columns);
		panels_row(&panels, i, row);
		for (uint32_t j = 0; j < size.columns; j++) {
			float values[PANEL_GROUP][PANEL_ROWS];
			if (j % PANEL_GROUP == 0)
				panels_values(&panels, i / PANEL_ROWS, j / PANEL_GROUP, values);
			float value = values[j % PANEL_GROUP][i % PANEL_ROWS];
			if (isnan(expected[j]) ? !isnan(row[j]) || !isnan(value)
					       : row[j] != expected[j] || value != expected[j])
				fail_msg("%s %ux%u, row %u column %u: %a and %a, not %a", format_info(format)->name,
					 size.rows, size.columns, i, j, (double)row[j], (double)value,
					 (double)expected[j]);
		}
	}
	free(panels.data);
	free(row);
	free(expected);
	free(bytes);
}

static void test_exact(void **context)
{
	static const struct case_size sizes[] = {{16, 256}, {1, 256}, {40, 512}, {33, 1024}};
	static const struct case_size plain[] = {{7, 2}, {17, 34}, {16, 96}};
	(void)context;
	for (enum tensor_format format = FORMAT_F32; format < FORMAT_COUNT; format++) {
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
			check_matrix(format, sizes[i]);
		for (size_t i = 0; format_info(format)->block_values == 1 && i < sizeof(plain) / sizeof(plain[0]); i++)
			check_matrix(format, plain[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_exact)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
