/* Lists whose elements know what points at them: put in, taken out from either end and from the middle, emptied. */
#include "common/base/list.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

struct thing {
	struct thing *next, **link;
	int number;
};

// The numbers of the list, as digits; every element must know what points at it.
static int digits_of(struct thing **list)
{
	int digits = 0;
	struct thing **at = list;
	for (struct thing *thing = *list; thing; at = &thing->next, thing = thing->next) {
		assert_ptr_equal(thing->link, at);
		digits = 10 * digits + thing->number;
	}
	return digits;
}

static void elements_come_and_go(void **state)
{
	struct thing things[4], *list = NULL;
	(void)state;
	for (int i = 0; i < 4; i++) {
		things[i].number = i + 1;
		LIST_PUSH(&list, &things[i], link);
	}
	assert_int_equal(digits_of(&list), 4321);
	LIST_REMOVE(&things[1], link); // in the middle
	assert_int_equal(digits_of(&list), 431);
	LIST_REMOVE(&things[0], link); // the last
	assert_int_equal(digits_of(&list), 43);
	LIST_REMOVE(&things[3], link); // the first
	assert_int_equal(digits_of(&list), 3);
	LIST_PUSH(&list, &things[1], link);
	assert_int_equal(digits_of(&list), 23);
	while (list)
		LIST_REMOVE(list, link);
	assert_int_equal(digits_of(&list), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(elements_come_and_go),
	};
	return cmocka_run_group_tests_name("base/list", tests, NULL, NULL);
}
