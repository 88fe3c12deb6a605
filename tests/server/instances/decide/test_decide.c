/* What an instance does next: a table of situations with the expected decisions. Those of heat are in
 * test_decide_heat.c, generated ones in test_decide_generated.c. */
#include "tests/server/instances/decide/situations.h"

static void test_loss(void **context)
{
	struct decide_seen seen = running();
	(void)context;
	expect(&plain, &seen, ACTION_WAIT, "well");
	seen.news = NEWS_LOST;
	seen.news_text = "it was killed";
	seen.news_of_part = seen.part_has_no_worker = seen.worker_died = true;
	expect(&plain, &seen, ACTION_PAUSE, "it was killed");
	seen.deaths = 3;
	expect(&plain, &seen, ACTION_FAIL, "it was killed");
	seen = paused();
	seen.news = NEWS_LOST;
	seen.news_text = "it was killed";
	seen.news_of_part = seen.part_has_no_worker = true;
	expect(&plain, &seen, ACTION_SPARE, "it was killed");
	assert_false(decide(&plain, &seen).avoids);
	seen.placed_anew = true; // and that has failed, too
	seen.attempts = 1;
	expect(&plain, &seen, ACTION_RELEASE, "it was killed");
	assert_true(decide(&plain, &seen).avoids);
	seen.all_kept_failed = true; // not the device is to blame, maybe, but what was kept
	assert_false(decide(&plain, &seen).avoids);
}

static void test_loading(void **context)
{
	struct decide_seen seen = running();
	(void)context;
	for (int i = INSTANCE_STARTING; i <= INSTANCE_LOADING; i++) {
		seen.instance_state = (enum instance_state)i;
		seen.news = NEWS_NONE;
		expect(&plain, &seen, ACTION_WAIT, "being loaded");
		seen.news = NEWS_LOST;
		seen.news_text = "3 GiB are missing";
		expect(&plain, &seen, ACTION_FAIL, "3 GiB are missing");
	}
}

static void test_cut_off(void **context)
{
	struct decide_seen seen = running();
	(void)context;
	seen.news = NEWS_CUT_OFF;
	seen.news_text = "a GPU is cut off";
	expect(&plain, &seen, ACTION_PAUSE, "a GPU is cut off");
	seen = paused();
	seen.workers = WORKERS_AWAY;
	seen.workers_ms = NOW_MS - 999;
	expect(&plain, &seen, ACTION_WAIT, "may be back");
	assert_int_equal(decide(&plain, &seen).until_ms, NOW_MS + 1);
	seen.workers_ms = NOW_MS - 1000; // it loads in a second: a node is waited for half of that, a second at least
	expect(&plain, &seen, ACTION_SEARCH, "no place");
	seen.load_ms = 100000; // what takes long to load waits longer
	expect(&plain, &seen, ACTION_WAIT, "may be back");
	seen.workers = WORKERS_BACK;
	expect(&plain, &seen, ACTION_MEND, "back");
	seen = running();
	seen.workers = WORKERS_BROKEN;
	expect(&plain, &seen, ACTION_PAUSE, "connection");
	seen.instance_state = INSTANCE_PAUSED;
	expect(&plain, &seen, ACTION_MEND, "connection");
}

static void test_restart(void **context)
{
	struct decide_seen seen = paused();
	(void)context;
	seen.cause = CAUSE_RESTART;
	seen.why = "the server was restarted";
	seen.searched = false;
	seen.coming = "GPU 0";
	expect(&plain, &seen, ACTION_WAIT, "the server was restarted: it waits for GPU 0");
	seen.several_missing = true;
	expect(&plain, &seen, ACTION_WAIT, "GPU 0 and the other devices it was on");
	seen.coming = NULL;
	seen.workers = WORKERS_AWAY;
	expect(&plain, &seen, ACTION_WAIT, "it waits for its workers");
	seen.workers = WORKERS_NONE;
	expect(&plain, &seen, ACTION_SEARCH, "no place");
	seen.several_nodes = true;
	seen.devices_back_ms = NOW_MS - 1999;
	expect(&plain, &seen, ACTION_WAIT, "its nodes to reach each other");
	seen.devices_back_ms = NOW_MS - 2000;
	expect(&plain, &seen, ACTION_SEARCH, "no place");
	seen.coming = "GPU 0"; // half of what requests wait is over
	seen.paused_ms = NOW_MS - 30000;
	expect(&plain, &seen, ACTION_SEARCH, "no place");
	seen.removed = "the model m was removed";
	expect(&plain, &seen, ACTION_FAIL, "the model m was removed");
}

static void test_no_place(void **context)
{
	struct decide_wanted wanted = plain;
	struct decide_seen seen = paused();
	(void)context;
	seen.search = SEARCH_NOWHERE;
	seen.purpose = PURPOSE_PLACE;
	seen.search_text = "3 GiB are missing";
	expect(&wanted, &seen, ACTION_NO_PLACE, "it waits for a place: 3 GiB are missing");
	wanted.pinned = seen.avoided = true;
	expect(&wanted, &seen, ACTION_SEARCH, "pinned");
	assert_true(decide(&wanted, &seen).without_pins && decide(&wanted, &seen).avoids);
	seen.without_pins = true;
	expect(&wanted, &seen, ACTION_SEARCH, "failed the last time");
	assert_true(!decide(&wanted, &seen).without_pins && !decide(&wanted, &seen).avoids);
	seen.avoided = false;
	expect(&wanted, &seen, ACTION_NO_PLACE, "it waits for a place");
	seen.workers = WORKERS_SPARED;
	expect(&wanted, &seen, ACTION_RELEASE, "no place for the rest");
	seen.paused_ms = NOW_MS; // but a node may be back
	expect(&wanted, &seen, ACTION_NO_PLACE, "it waits for a place");
	seen.search = SEARCH_NONE;
	seen.due_ms = NOW_MS + 3000;
	expect(&wanted, &seen, ACTION_WAIT, "again");
	assert_int_equal(decide(&wanted, &seen).until_ms, NOW_MS + 3000);
	seen.requests_until_ms = NOW_MS + 10;
	assert_int_equal(decide(&wanted, &seen).until_ms, NOW_MS + 10);
	seen.requests_until_ms = NOW_MS;
	expect(&wanted, &seen, ACTION_END_REQUESTS, "60 s");
}

static void test_stale(void **context)
{
	struct decide_seen seen = paused();
	(void)context;
	seen.search = SEARCH_FOUND;
	seen.purpose = PURPOSE_PLACE;
	expect(&plain, &seen, ACTION_PLACE, "");
	seen.stale = true;
	expect(&plain, &seen, ACTION_DROP, "another placement");
	seen.stale = false;
	seen.purpose = PURPOSE_FASTER; // it was searched for while it ran
	expect(&plain, &seen, ACTION_DROP, "another placement");
	seen = running();
	seen.search = SEARCH_FOUND;
	seen.purpose = PURPOSE_PLACE;
	expect(&plain, &seen, ACTION_DROP, "another placement");
}

static void test_drain(void **context)
{
	struct decide_seen seen = running();
	(void)context;
	seen.draining = "GPU 1";
	expect(&plain, &seen, ACTION_SEARCH, "draining");
	seen.purpose = PURPOSE_LEAVE;
	seen.search = SEARCH_RUNS;
	expect(&plain, &seen, ACTION_WAIT, "");
	seen.search = SEARCH_FOUND;
	expect(&plain, &seen, ACTION_PLACE, "it leaves GPU 1, which is draining");
	assert_int_equal(decide(&plain, &seen).cause, CAUSE_DRAIN);
	seen.search = SEARCH_NOWHERE;
	seen.search_text = "nothing is free";
	expect(&plain, &seen, ACTION_STAY, "nothing is free");
	seen.draining = NULL;
	expect(&plain, &seen, ACTION_DROP, "any more");
}

// As from a device that is draining, with another reason.
static void test_rest(void **context)
{
	struct decide_seen seen = running();
	(void)context;
	seen.draining = "a phone";
	seen.rests = "its page is in the background";
	expect(&plain, &seen, ACTION_SEARCH, "a device that it is on rests");
	seen.purpose = PURPOSE_LEAVE;
	seen.search = SEARCH_FOUND;
	expect(&plain, &seen, ACTION_PLACE, "it leaves a phone, which rests: its page is in the background");
	seen.purpose = PURPOSE_FASTER;
	expect(&plain, &seen, ACTION_DROP, "a phone rests, which comes first");
}

static void test_wishes(void **context)
{
	struct decide_wanted wanted = plain;
	struct decide_seen seen = running();
	(void)context;
	seen.devices_changed = true;
	expect(&wanted, &seen, ACTION_SEARCH, "other devices");
	wanted.pinned = true;
	expect(&wanted, &seen, ACTION_WAIT, "well");
	wanted.pinned = false;
	seen.search = SEARCH_FOUND;
	seen.purpose = PURPOSE_FASTER;
	seen.search_text = "GPU 2";
	expect(&wanted, &seen, ACTION_STAY, "no place is faster");
	seen.faster_there = true;
	expect(&wanted, &seen, ACTION_STAY, "offered");
	wanted.takes_faster = true;
	expect(&wanted, &seen, ACTION_PLACE, "it moves to GPU 2, where it is faster");
	seen = running();
	wanted.format = "Q8_0";
	expect(&wanted, &seen, ACTION_SEARCH, "format");
	seen.search = SEARCH_NOWHERE;
	seen.purpose = PURPOSE_FORMAT;
	seen.search_text = "no room";
	expect(&wanted, &seen, ACTION_STAY, "it stays in F16; in Q8_0: no room");
	seen.search = SEARCH_FOUND;
	expect(&wanted, &seen, ACTION_PLACE, "its weights are to be held in Q8_0");
	wanted.format = NULL;
	expect(&wanted, &seen, ACTION_DROP, "no other format");
}

static void test_back(void **context)
{
	struct decide_wanted wanted = plain;
	struct decide_seen seen = running();
	(void)context;
	wanted.whole = true;
	expect(&wanted, &seen, ACTION_LOOK_ROOM, "room");
	seen.room_due_ms = NOW_MS + 5000;
	expect(&wanted, &seen, ACTION_WAIT, "well");
	seen.room = seen.room_untried = true;
	expect(&wanted, &seen, ACTION_SEARCH, "room");
	seen.others_wait = true;
	expect(&wanted, &seen, ACTION_WAIT, "well");
	seen.search = SEARCH_FOUND;
	seen.purpose = PURPOSE_WHOLE;
	seen.whole_there = true;
	expect(&wanted, &seen, ACTION_STAY_LATER, "another one waits");
	seen.others_wait = false;
	expect(&wanted, &seen, ACTION_PLACE, "room for all of its layers");
	assert_int_equal(decide(&wanted, &seen).cause, CAUSE_RETURN);
	seen.same_place = true;
	expect(&wanted, &seen, ACTION_WHOLE, "are where they are to be");
	seen.whole_there = false;
	seen.search_text = "a smaller format only";
	expect(&wanted, &seen, ACTION_STAY_LATER, "a smaller format only");
}

static void test_in_vain(void **context)
{
	struct decide_seen seen = paused();
	(void)context;
	seen.cause = CAUSE_IN_VAIN;
	seen.why = "it was evicted for other, which did not come up";
	seen.searched = false;
	seen.coming = "GPU 0";
	expect(&plain, &seen, ACTION_WAIT, "which did not come up: it waits for GPU 0");
	seen.coming = NULL;
	expect(&plain, &seen, ACTION_SEARCH, "no place");
	assert_false(decide(&plain, &seen).evicts);
	seen.searched = true;
	seen.search = SEARCH_FOUND;
	seen.purpose = PURPOSE_PLACE;
	expect(&plain, &seen, ACTION_NO_PLACE, "free yet"); // a place with layers in the host's memory
	seen.whole_there = true;
	expect(&plain, &seen, ACTION_PLACE, "");
	seen.whole_there = false;
	seen.paused_ms = NOW_MS - DECIDE_WHOLE_MS;
	expect(&plain, &seen, ACTION_PLACE, "");
	seen.lags = true;
	expect(&plain, &seen, ACTION_NO_PLACE, "free yet");
	seen.search = SEARCH_NOWHERE;
	seen.search_text = "nothing is free";
	expect(&plain, &seen, ACTION_NO_PLACE, "which did not come up: it waits for a place: nothing is free");
	seen.search = SEARCH_NONE;
	seen.paused_ms = NOW_MS - DECIDE_MODEST_MS;
	expect(&plain, &seen, ACTION_SEARCH, "no place");
	assert_true(decide(&plain, &seen).evicts);
	seen.stood_in_for = true;
	expect(&plain, &seen, ACTION_REMOVE, "begun meanwhile");
	seen.stood_in_for = false;
	seen.removed = "the model m was removed";
	expect(&plain, &seen, ACTION_REMOVE, "removed");
}

static void test_makes_room(void **context)
{
	struct decide_seen seen = running();
	(void)context;
	seen.evicted_for = "other";
	seen.draining = "GPU 1"; // whatever else there is to do
	seen.search = SEARCH_FOUND;
	seen.purpose = PURPOSE_FASTER;
	expect(&plain, &seen, ACTION_SPILL, "it is idle, and other needs its memory");
	seen.unloads = true;
	expect(&plain, &seen, ACTION_UNLOAD, "it is idle, and other needs its memory");
}

static void test_times(void **context)
{
	struct decide_seen seen = paused();
	(void)context;
	static const int expected[] = {0, 1000, 2000, 3000, 4000, 5000, 5000};
	for (unsigned i = 0; i < sizeof expected / sizeof *expected; i++)
		assert_int_equal(decide_due_ms(i, NOW_MS), NOW_MS + expected[i]);
	assert_int_equal(decide_due_ms(1u << 31, NOW_MS), NOW_MS + 5000);
	seen.load_ms = -1;
	assert_int_equal(decide_grace_ms(&seen), DECIDE_RETURN_LEAST_MS);
	seen.load_ms = 1e300;
	assert_int_equal(decide_grace_ms(&seen), LIMIT_RETURN_MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_loss),    cmocka_unit_test(test_loading),  cmocka_unit_test(test_cut_off),
		cmocka_unit_test(test_restart), cmocka_unit_test(test_no_place), cmocka_unit_test(test_stale),
		cmocka_unit_test(test_drain),   cmocka_unit_test(test_rest),     cmocka_unit_test(test_wishes),
		cmocka_unit_test(test_back),    cmocka_unit_test(test_in_vain),  cmocka_unit_test(test_makes_room),
		cmocka_unit_test(test_times),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
