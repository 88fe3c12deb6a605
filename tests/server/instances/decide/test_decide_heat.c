/* What an instance does next on devices that get hot: a table of situations with the expected decisions. */
#include "tests/server/instances/decide/situations.h"

// Its device is held back: it leaves, if it is a part of the load, that lasts, and it pays.
static void test_hot(void **context)
{
	struct decide_wanted wanted = plain;
	struct decide_seen seen = running();
	(void)context;
	seen.hot = "GPU 1";
	seen.hot_ms = DECIDE_HOT_MS;
	expect(&wanted, &seen, ACTION_WAIT, "well"); // idle: it is not what heats the device
	seen.works = true;
	seen.hot_ms = DECIDE_HOT_MS - 1;
	expect(&wanted, &seen, ACTION_WAIT, "well");
	seen.hot_ms = DECIDE_HOT_MS;
	expect(&wanted, &seen, ACTION_SEARCH, "held back for its heat");
	assert_int_equal(decide(&wanted, &seen).purpose, PURPOSE_COOLER);
	wanted.pinned = true;
	expect(&wanted, &seen, ACTION_WAIT, "well");
	wanted.pinned = false;
	seen.eased_ms = DECIDE_EASED_MS - 1; // what another one has left may be cool enough
	expect(&wanted, &seen, ACTION_WAIT, "well");
	seen.eased_ms = DECIDE_EASED_MS;
	seen.heat_searched_ms = DECIDE_HEAT_AGAIN_MS - 1;
	expect(&wanted, &seen, ACTION_WAIT, "well");
	seen.heat_searched_ms = DECIDE_HEAT_AGAIN_MS;
	seen.heat_moved_ms = DECIDE_HEAT_APART_MS - 1;
	expect(&wanted, &seen, ACTION_WAIT, "well");
	seen.heat_moved_ms = DECIDE_HEAT_APART_MS;
	expect(&wanted, &seen, ACTION_SEARCH, "held back for its heat");
	seen.draining = "GPU 1";
	expect(&wanted, &seen, ACTION_SEARCH, "draining");
	seen.draining = NULL;
	seen.search = SEARCH_FOUND;
	seen.purpose = PURPOSE_COOLER;
	seen.search_text = "GPU 2";
	expect(&wanted, &seen, ACTION_STAY, "no cooler place is faster");
	seen.pays_there = true;
	expect(&wanted, &seen, ACTION_PLACE, "it leaves GPU 1, which gets too hot for its work, for GPU 2");
	assert_int_equal(decide(&wanted, &seen).cause, CAUSE_HEAT);
	seen.gives = 11;
	seen.gives_of = 32;
	seen.gives_from = "GPU 1";
	expect(&wanted, &seen, ACTION_PLACE, "GPU 1 gets too hot for its work: 11 of its 32 layers go to GPU 2");
	assert_int_equal(decide(&wanted, &seen).cause, CAUSE_HEAT);
	seen.pays_there = false;
	expect(&wanted, &seen, ACTION_STAY, "no cooler place is faster");
	seen.pays_there = true;
	seen.gives = 0;
	seen.works = false; // its last request has ended meanwhile, and others will come
	expect(&wanted, &seen, ACTION_PLACE, "it leaves GPU 1");
	seen.eased_ms = 0;
	expect(&wanted, &seen, ACTION_DROP, "any more");
	seen.hot = NULL;
	expect(&wanted, &seen, ACTION_DROP, "any more");
	seen = running();
	seen.hot = "GPU 1";
	seen.hot_ms = DECIDE_HOT_MS;
	seen.search = SEARCH_NOWHERE;
	seen.purpose = PURPOSE_COOLER;
	seen.search_text = "2 GiB are missing";
	expect(&wanted, &seen, ACTION_STAY, "2 GiB are missing");
}

// Its device is held back, and it permits a smaller format: that comes before a move, if it lasts and pays.
static void test_steps_down(void **context)
{
	struct decide_wanted wanted = plain;
	struct decide_seen seen = running();
	(void)context;
	seen.strained = seen.hot = "GPU 1";
	seen.strained_ms = seen.hot_ms = DECIDE_HOT_MS;
	seen.works = true;
	assert_int_equal(decide(&wanted, &seen).purpose, PURPOSE_COOLER); // it permits none
	seen.smaller = "Q8_0";
	expect(&wanted, &seen, ACTION_SEARCH, "may be in a smaller format");
	assert_int_equal(decide(&wanted, &seen).purpose, PURPOSE_STEP_DOWN);
	seen.hot = NULL;
	wanted.pinned = true; // it stays where it is
	expect(&wanted, &seen, ACTION_SEARCH, "may be in a smaller format");
	seen.strained_ms = DECIDE_HOT_MS - 1;
	expect(&wanted, &seen, ACTION_WAIT, "well");
	seen.strained_ms = DECIDE_HOT_MS;
	seen.works = false;
	expect(&wanted, &seen, ACTION_WAIT, "well");
	seen.works = true;
	seen.relieved_ms = DECIDE_EASED_MS - 1;
	expect(&wanted, &seen, ACTION_WAIT, "well");
	seen.relieved_ms = DECIDE_EASED_MS;
	seen.heat_moved_ms = DECIDE_HEAT_APART_MS - 1;
	expect(&wanted, &seen, ACTION_WAIT, "well");
	seen.heat_moved_ms = DECIDE_HEAT_APART_MS;
	seen.format_searched_ms = DECIDE_HEAT_AGAIN_MS - 1;
	expect(&wanted, &seen, ACTION_WAIT, "well");
	wanted.pinned = false;
	seen.hot = "GPU 1"; // where a smaller format was looked at in vain, it may leave at once
	assert_int_equal(decide(&wanted, &seen).purpose, PURPOSE_COOLER);
	seen.search = SEARCH_FOUND;
	seen.purpose = PURPOSE_STEP_DOWN;
	expect(&wanted, &seen, ACTION_STAY, "it is not faster in a smaller format");
	seen.pays_there = true;
	expect(&wanted, &seen, ACTION_PLACE, "GPU 1 gets too hot for its work: its weights go from F16 to Q8_0");
	assert_int_equal(decide(&wanted, &seen).cause, CAUSE_STEP_DOWN);
	seen.smaller = NULL;
	expect(&wanted, &seen, ACTION_DROP, "any more");
	seen.smaller = "Q8_0";
	seen.strained = NULL;
	expect(&wanted, &seen, ACTION_DROP, "any more");
	seen.strained = "GPU 1";
	seen.search = SEARCH_NOWHERE;
	seen.search_text = "2 GiB are missing";
	expect(&wanted, &seen, ACTION_STAY, "2 GiB are missing");
}

// Heat has changed its format, and its devices are cool for good: it goes back, ten minutes later at the earliest.
static void test_steps_back(void **context)
{
	struct decide_seen seen = running();
	(void)context;
	seen.held_format = "Q8_0";
	seen.stepped_from = "F16";
	seen.heat_moved_ms = seen.format_searched_ms = DECIDE_HEAT_APART_MS;
	expect(&plain, &seen, ACTION_WAIT, "well");
	seen.all_cool = true;
	expect(&plain, &seen, ACTION_SEARCH, "heat has changed its format");
	assert_int_equal(decide(&plain, &seen).purpose, PURPOSE_STEP_BACK);
	seen.heat_moved_ms--;
	expect(&plain, &seen, ACTION_WAIT, "well");
	seen.heat_moved_ms++;
	seen.format_searched_ms--;
	expect(&plain, &seen, ACTION_WAIT, "well");
	seen.search = SEARCH_FOUND;
	seen.purpose = PURPOSE_STEP_BACK;
	expect(&plain, &seen, ACTION_STAY, "no room on devices");
	seen.whole_there = true;
	expect(&plain, &seen, ACTION_PLACE, "its devices are cool again: its weights go back from Q8_0 to F16");
	assert_int_equal(decide(&plain, &seen).cause, CAUSE_STEP_BACK);
	seen.all_cool = false;
	expect(&plain, &seen, ACTION_DROP, "any more");
}

// The device that it has left is cool again: it goes back, if it has been away for long enough and it pays.
static void test_cooled(void **context)
{
	struct decide_wanted wanted = plain;
	struct decide_seen seen = running();
	(void)context;
	seen.left = "GPU 1";
	seen.heat_moved_ms = seen.heat_searched_ms = DECIDE_HEAT_APART_MS;
	expect(&wanted, &seen, ACTION_WAIT, "well");
	seen.left_cool = true;
	expect(&wanted, &seen, ACTION_SEARCH, "is cool again");
	assert_int_equal(decide(&wanted, &seen).purpose, PURPOSE_COOLED);
	seen.heat_moved_ms--;
	expect(&wanted, &seen, ACTION_WAIT, "well");
	seen.heat_moved_ms++;
	seen.heat_searched_ms--;
	expect(&wanted, &seen, ACTION_WAIT, "well");
	seen.search = SEARCH_FOUND;
	seen.purpose = PURPOSE_COOLED;
	seen.search_text = "GPU 1";
	expect(&wanted, &seen, ACTION_STAY, "no place is faster");
	seen.pays_there = true;
	expect(&wanted, &seen, ACTION_PLACE, "GPU 1, which it had left for its heat, is cool again: it goes to GPU 1");
	assert_int_equal(decide(&wanted, &seen).cause, CAUSE_COOLED);
	seen.left_cool = false;
	expect(&wanted, &seen, ACTION_DROP, "any more");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hot),
		cmocka_unit_test(test_steps_down),
		cmocka_unit_test(test_steps_back),
		cmocka_unit_test(test_cooled),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
