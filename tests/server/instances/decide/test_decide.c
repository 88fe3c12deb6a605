/* What an instance does next: a table of situations with the expected decisions, and a hundred thousand generated ones
 * that must all satisfy the invariants. */
#include "server/instances/decide/decide.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on
#include "common/base/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES = 100000, NOW_MS = 1000000, RULES_MOST = 64 };

// ---- a table ----

static const struct decide_wanted plain = {.pause_ms = 60000};

// An instance that runs and has nothing to do.
static struct decide_seen running(void)
{
	return (struct decide_seen){.instance_state = INSTANCE_RUNNING,
				    .workers = WORKERS_READY,
				    .load_ms = 1000,
				    .deaths_most = 3,
				    .why = "",
				    .news_text = "",
				    .search_text = "",
				    .eased_ms = -1,
				    .heat_moved_ms = -1,
				    .heat_searched_ms = -1,
				    .held_format = "F16",
				    .relieved_ms = -1,
				    .format_searched_ms = -1};
}

// One that was paused a second ago and has no workers.
static struct decide_seen paused(void)
{
	struct decide_seen seen = running();
	seen.instance_state = INSTANCE_PAUSED;
	seen.cause = CAUSE_LOSS;
	seen.why = "its worker ended";
	seen.paused_ms = NOW_MS - 1000;
	seen.requests_until_ms = NOW_MS + 59000;
	seen.workers = WORKERS_NONE;
	seen.searched = true;
	return seen;
}

static struct decision decide(const struct decide_wanted *wanted, const struct decide_seen *seen)
{
	struct decision decision;
	instance_decide(&decision, wanted, seen, NOW_MS);
	return decision;
}

static void expect(const struct decide_wanted *wanted, const struct decide_seen *seen, enum decide_action action,
		   const char *reason)
{
	const struct decision decision = decide(wanted, seen);
	if (decision.action != action || !strstr(decision.reason, reason))
		fail_msg("expected %s with \"%s\", got %s with \"%s\" by the rule \"%s\"", decide_action_name(action),
			 reason, decide_action_name(decision.action), decision.reason, decision.rule);
}

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

// ---- generated cases ----

static uint64_t state = 88172645463325252u;

static uint64_t draw(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

static bool flip(void)
{
	return draw(2) != 0;
}

static int64_t some_time(void)
{
	static const int64_t spans[] = {1, 250, 1000, 2000, 5000, 30000, 60000, 400000};
	const int64_t span = spans[draw(sizeof spans / sizeof *spans)];
	return NOW_MS - span + (int64_t)draw((uint64_t)(2 * span + 1));
}

static int64_t some_span(void)
{
	return (int64_t)draw(2 * DECIDE_HEAT_APART_MS) - DECIDE_HEAT_APART_MS / 4;
}

static void generate(struct decide_wanted *wanted, struct decide_seen *seen)
{
	*wanted = (struct decide_wanted){.pinned = flip(),
					 .moves = flip(),
					 .takes_faster = flip(),
					 .whole = flip(),
					 .format = draw(3) ? NULL : "Q8_0",
					 .pause_ms = (int64_t)draw(100000)};
	*seen = (struct decide_seen){.instance_state = (enum instance_state)draw(INSTANCE_STATES),
				     .cause = (enum decide_cause)draw(CAUSE_RETURN + 1),
				     .why = "WHY",
				     .paused_ms = some_time(),
				     .attempts = (unsigned)draw(4),
				     .placed_anew = flip(),
				     .searched = flip(),
				     .requests_until_ms = flip() ? 0 : some_time(),
				     .removed = draw(20) ? NULL : "REMOVED",
				     .workers = (enum decide_workers)draw(WORKERS_READY + 1),
				     .several = flip(),
				     .all_kept_failed = flip(),
				     .workers_ms = some_time(),
				     .load_ms = (double)draw(10000) - 1,
				     .news = draw(3) ? NEWS_NONE : (enum decide_news)draw(NEWS_CUT_OFF + 1),
				     .news_text = "NEWS",
				     .news_of_part = flip(),
				     .part_has_no_worker = flip(),
				     .worker_died = flip(),
				     .deaths = (unsigned)draw(4),
				     .deaths_most = 3,
				     .draining = draw(3) ? NULL : "DRAINING",
				     .coming = draw(3) ? NULL : "COMING",
				     .several_missing = flip(),
				     .several_nodes = flip(),
				     .devices_back_ms = some_time(),
				     .search = (enum decide_search)draw(SEARCH_NOWHERE + 1),
				     .stale = !draw(8),
				     .without_pins = flip(),
				     .avoided = flip(),
				     .failed_there = flip(),
				     .same_place = flip(),
				     .whole_there = flip(),
				     .lags = flip(),
				     .evicted_for = draw(8) ? NULL : "OTHER",
				     .unloads = flip(),
				     .stood_in_for = !draw(4),
				     .faster_there = flip(),
				     .search_text = "SEARCH",
				     .due_ms = some_time(),
				     .devices_changed = flip(),
				     .room = flip(),
				     .room_due_ms = some_time(),
				     .room_untried = flip(),
				     .others_wait = flip(),
				     .hot = flip() ? "HOT" : NULL,
				     .hot_ms = some_span(),
				     .eased_ms = some_span(),
				     .works = flip(),
				     .left = flip() ? "LEFT" : NULL,
				     .left_cool = flip(),
				     .heat_moved_ms = some_span(),
				     .heat_searched_ms = some_span(),
				     .pays_there = flip(),
				     .held_format = "F16",
				     .strained = flip() ? "STRAINED" : NULL,
				     .strained_ms = some_span(),
				     .relieved_ms = some_span(),
				     .smaller = flip() ? "SMALLER" : NULL,
				     .stepped_from = flip() ? "BEFORE" : NULL,
				     .all_cool = flip(),
				     .format_searched_ms = some_span()};
	seen->purpose = seen->search ? (enum decide_purpose)(1 + draw(PURPOSE_FASTER)) : PURPOSE_NONE;
	if (flip() && seen->search) // else most results would be dropped
		seen->purpose = seen->instance_state == INSTANCE_PAUSED ? PURPOSE_PLACE : seen->purpose;
}

static bool has(const struct decision *decision, const char *text)
{
	return strstr(decision->reason, text) != NULL;
}

// What is wrong with a decision; NULL: nothing.
static const char *find_fault(const struct decide_wanted *wanted, const struct decide_seen *seen,
			      const struct decision *is)
{
	const bool runs = seen->instance_state == INSTANCE_RUNNING, pauses = seen->instance_state == INSTANCE_PAUSED;
	const int64_t until_ms = is->until_ms - NOW_MS;
	if (!is->rule || !is->reason[0])
		return "no reason is given";
	if (seen->instance_state >= INSTANCE_STOPPING && is->action != ACTION_WAIT)
		return "it is over";
	if (!runs && !pauses && is->action != ACTION_WAIT && is->action != ACTION_PAUSE && is->action != ACTION_FAIL)
		return "one that loads is only paused, or fails";
	if (is->action == ACTION_WAIT && (until_ms < 0 || until_ms > DECIDE_WORK_MS + 400000))
		return "it waits without end, or for the past";
	if (is->action == ACTION_WAIT && pauses && seen->requests_until_ms && is->until_ms > seen->requests_until_ms)
		return "it sleeps longer than requests wait";
	if (is->action == ACTION_FAIL && !(pauses && seen->removed) && !(!runs && !pauses && seen->news == NEWS_LOST) &&
	    !(seen->worker_died && seen->deaths >= seen->deaths_most))
		return "it fails without having died often";
	if ((is->action == ACTION_SPILL || is->action == ACTION_UNLOAD) && !(runs && seen->evicted_for))
		return "nothing is evicted for it";
	if (is->action == ACTION_REMOVE && !(pauses && seen->cause == CAUSE_IN_VAIN))
		return "somebody's instance is removed";
	if (is->action == ACTION_PLACE && (seen->search != SEARCH_FOUND || seen->stale))
		return "a place is taken that was not found";
	if (is->action == ACTION_PLACE && pauses &&
	    (seen->workers == WORKERS_BUSY || seen->workers == WORKERS_BACK || seen->workers == WORKERS_BROKEN))
		return "a second placement begins beside workers that are there";
	if (is->action == ACTION_PLACE && runs && is->cause < CAUSE_DRAIN)
		return "one that runs leaves without a cause";
	if (is->action == ACTION_SEARCH && seen->search == SEARCH_RUNS)
		return "two searches at a time";
	if (is->action == ACTION_SEARCH && (is->purpose == PURPOSE_PLACE) != pauses)
		return "it searches for what it does not need";
	if (is->action == ACTION_SEARCH && is->purpose == PURPOSE_FASTER && wanted->pinned)
		return "one that is pinned looks elsewhere";
	if (is->action == ACTION_PLACE && runs && (is->cause == CAUSE_HEAT || is->cause == CAUSE_COOLED) &&
	    wanted->pinned)
		return "it moves for heat although it is pinned";
	if (is->action == ACTION_PLACE && runs && is->cause >= CAUSE_HEAT && is->cause <= CAUSE_STEP_BACK &&
	    seen->heat_moved_ms >= 0 && seen->heat_moved_ms < DECIDE_HEAT_APART_MS)
		return "it changes for heat again too soon";
	if (is->action == ACTION_PLACE && runs && is->cause == CAUSE_STEP_DOWN && !seen->smaller)
		return "it takes a format that it does not permit";
	if (is->action == ACTION_PLACE && runs && is->cause == CAUSE_STEP_BACK && !seen->stepped_from)
		return "it goes back to a format that it did not have";
	if (is->action == ACTION_SEARCH && is->purpose == PURPOSE_COOLER && seen->strained && seen->smaller &&
	    seen->strained_ms >= DECIDE_HOT_MS && (seen->relieved_ms < 0 || seen->relieved_ms >= DECIDE_EASED_MS) &&
	    (seen->format_searched_ms < 0 || seen->format_searched_ms >= DECIDE_HEAT_AGAIN_MS))
		return "it leaves before it has tried a smaller format";
	if (is->action == ACTION_WAIT && runs && (seen->search == SEARCH_FOUND || seen->search == SEARCH_NOWHERE))
		return "what was found is left lying";
	if (is->action == ACTION_MEND && seen->workers != WORKERS_BACK && seen->workers != WORKERS_BROKEN)
		return "nothing is there to be mended";
	if ((is->action == ACTION_SPARE || is->action == ACTION_RELEASE) && seen->news != NEWS_LOST &&
	    seen->workers != WORKERS_SPARED)
		return "workers end for nothing";
	if (is->action == ACTION_PAUSE && seen->news == NEWS_NONE && seen->workers != WORKERS_BROKEN)
		return "it pauses for nothing";
	if (is->action == ACTION_PAUSE && pauses && seen->news != NEWS_CUT_OFF)
		return "it pauses twice";
	return NULL;
}

// What a reason says must be so.
static const char *find_lie(const struct decide_wanted *wanted, const struct decide_seen *seen,
			    const struct decision *is)
{
	if (has(is, "DRAINING") && !seen->draining)
		return "no device is draining";
	if (has(is, "COMING") && !seen->coming)
		return "no device is on its way";
	if (has(is, "its workers") && is->action == ACTION_WAIT && seen->workers == WORKERS_NONE)
		return "it has no workers";
	if (has(is, "it waits for a place") && seen->search != SEARCH_NOWHERE)
		return "no place was searched for in vain";
	if (has(is, "where it is faster") && !(seen->faster_there && (wanted->moves || wanted->takes_faster)))
		return "it is not faster there, or nobody wants that";
	if (has(is, "HOT") && !seen->hot)
		return "no device is too hot";
	if (has(is, "STRAINED") && !(seen->strained && seen->pays_there))
		return "no device is held back, or a smaller format does not pay";
	if (has(is, "BEFORE") && !(seen->stepped_from && seen->all_cool))
		return "heat did not change its format, or is not over";
	if (has(is, "LEFT") && !(seen->left && seen->left_cool && seen->pays_there))
		return "it left no device, or that one is hot still";
	if (has(is, "to be held in") && !wanted->format)
		return "no format is wanted";
	if (has(is, "room for all of its layers again") && (!seen->whole_there || seen->others_wait))
		return "there is no room, or it is another's";
	if (has(is, "requests have waited") && NOW_MS < seen->requests_until_ms)
		return "they have not yet";
	if (has(is, "pinned to") && !wanted->pinned)
		return "it is not pinned";
	if (has(is, "it is well") &&
	    (seen->news || (seen->draining && seen->search == SEARCH_NONE && NOW_MS >= seen->due_ms)))
		return "it is not well";
	if (has(is, "REMOVED") && !seen->removed)
		return "it was not removed";
	return NULL;
}

static const char *find_any(const struct decide_wanted *wanted, const struct decide_seen *seen,
			    const struct decision *decision)
{
	const char *fault = find_fault(wanted, seen, decision);
	return fault ? fault : find_lie(wanted, seen, decision);
}

static void test_generated(void **context)
{
	unsigned actions[ACTION_LOOK_ROOM + 1] = {0}, rules[RULES_MOST] = {0};
	(void)context;
	for (int i = 0; i < CASES; i++) {
		struct decide_wanted wanted;
		struct decide_seen seen;
		struct decision first, again;
		const uint64_t seed = state;
		generate(&wanted, &seen);
		instance_decide(&first, &wanted, &seen, NOW_MS);
		instance_decide(&again, &wanted, &seen, NOW_MS);
		actions[first.action]++;
		for (unsigned j = 0; j < RULES_MOST && decide_rule_name(j); j++)
			rules[j] += decide_rule_name(j) == first.rule;
		const char *fault = find_any(&wanted, &seen, &first);
		if (first.action != again.action || strcmp(first.reason, again.reason) != 0)
			fault = "the same question gets two answers";
		// What it waits for is neither slept through nor looked at too early.
		if (!fault && first.action == ACTION_WAIT && first.until_ms > NOW_MS) {
			instance_decide(&again, &wanted, &seen, first.until_ms - 1);
			fault = again.action == ACTION_WAIT ? NULL : "it sleeps through something";
		}
		if (fault)
			fail_msg("case %d, seed %llu: %s: %s, \"%s\" by the rule \"%s\"", i, (unsigned long long)seed,
				 fault, decide_action_name(first.action), first.reason, first.rule);
	}
	for (int i = 0; i <= ACTION_LOOK_ROOM; i++)
		if (!actions[i])
			fail_msg("no case led to the action \"%s\"", decide_action_name((enum decide_action)i));
	for (unsigned i = 0; decide_rule_name(i); i++)
		if (!rules[i])
			fail_msg("no case is decided by the rule \"%s\"", decide_rule_name(i));
}

// ---- planted faults: each is found ----

struct planted {
	const char *what;
	void (*spoil)(struct decision *decision, struct decide_seen *seen);
};

static void sleep_on(struct decision *decision, struct decide_seen *seen)
{
	(void)seen;
	decision->until_ms += (int64_t)1 << 40;
}

static void wait_always(struct decision *decision, struct decide_seen *seen)
{
	if (seen->requests_until_ms)
		*decision = (struct decision){.rule = "planted", .reason = "planted", .until_ms = NOW_MS + 300000};
}

static void fail_always(struct decision *decision, struct decide_seen *seen)
{
	if (seen->instance_state == INSTANCE_RUNNING && seen->news)
		decision->action = ACTION_FAIL;
}

static void place_stale(struct decision *decision, struct decide_seen *seen)
{
	if (seen->stale && seen->search == SEARCH_FOUND)
		decision->action = ACTION_PLACE;
}

static void place_twice(struct decision *decision, struct decide_seen *seen)
{
	if (seen->workers == WORKERS_BUSY && seen->search == SEARCH_FOUND)
		decision->action = ACTION_PLACE;
}

static void search_twice(struct decision *decision, struct decide_seen *seen)
{
	if (seen->search == SEARCH_RUNS)
		decision->action = ACTION_SEARCH;
}

static void mend_nothing(struct decision *decision, struct decide_seen *seen)
{
	if (seen->workers == WORKERS_NONE)
		decision->action = ACTION_MEND;
}

static void end_for_nothing(struct decision *decision, struct decide_seen *seen)
{
	if (seen->news == NEWS_NONE)
		decision->action = ACTION_RELEASE;
}

static void say_nothing(struct decision *decision, struct decide_seen *seen)
{
	(void)seen;
	decision->reason[0] = 0;
}

static void say_draining(struct decision *decision, struct decide_seen *seen)
{
	(void)seen;
	snprintf(decision->reason, sizeof decision->reason, "it leaves DRAINING, which is draining");
}

static void leave_twice(struct decision *decision, struct decide_seen *seen)
{
	if (seen->instance_state == INSTANCE_RUNNING && seen->search == SEARCH_FOUND && !seen->stale) {
		decision->action = ACTION_PLACE;
		decision->cause = CAUSE_HEAT;
	}
}

static void step_further(struct decision *decision, struct decide_seen *seen)
{
	if (seen->instance_state == INSTANCE_RUNNING && seen->search == SEARCH_FOUND && !seen->stale) {
		decision->action = ACTION_PLACE;
		decision->cause = CAUSE_STEP_DOWN;
	}
}

static void leave_first(struct decision *decision, struct decide_seen *seen)
{
	(void)seen;
	if (decision->action == ACTION_SEARCH && decision->purpose == PURPOSE_STEP_DOWN)
		decision->purpose = PURPOSE_COOLER;
}

static void say_cool(struct decision *decision, struct decide_seen *seen)
{
	(void)seen;
	snprintf(decision->reason, sizeof decision->reason, "its weights go back to BEFORE");
}

static void say_well(struct decision *decision, struct decide_seen *seen)
{
	(void)seen;
	snprintf(decision->reason, sizeof decision->reason, "it is well where it is");
}

static void say_no_place(struct decision *decision, struct decide_seen *seen)
{
	(void)seen;
	snprintf(decision->reason, sizeof decision->reason, "it waits for a place: it does not");
}

static void test_planted(void **context)
{
	static const struct planted planted[] = {
		{"it sleeps on", sleep_on},
		{"it waits for whatever comes", wait_always},
		{"it gives up at once", fail_always},
		{"it takes a stale place", place_stale},
		{"it is placed twice", place_twice},
		{"it searches twice", search_twice},
		{"it mends nothing", mend_nothing},
		{"it ends workers for nothing", end_for_nothing},
		{"it says nothing", say_nothing},
		{"it says that a device is draining", say_draining},
		{"it leaves for heat again and again", leave_twice},
		{"it steps down further than it may", step_further},
		{"it leaves before it steps down", leave_first},
		{"it says that its devices are cool", say_cool},
		{"it says that it is well", say_well},
		{"it says that there is no place", say_no_place},
	};
	(void)context;
	for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) {
		bool found = false;
		for (int j = 0; j < 10000 && !found; j++) {
			struct decide_wanted wanted;
			struct decide_seen seen;
			struct decision decision;
			generate(&wanted, &seen);
			instance_decide(&decision, &wanted, &seen, NOW_MS);
			planted[i].spoil(&decision, &seen);
			found = find_any(&wanted, &seen, &decision) != NULL;
		}
		if (!found)
			fail_msg("nobody notices that %s", planted[i].what);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_loading),    cmocka_unit_test(test_loss),       cmocka_unit_test(test_cut_off),
		cmocka_unit_test(test_restart),    cmocka_unit_test(test_no_place),   cmocka_unit_test(test_stale),
		cmocka_unit_test(test_drain),      cmocka_unit_test(test_rest),       cmocka_unit_test(test_wishes),
		cmocka_unit_test(test_back),       cmocka_unit_test(test_times),      cmocka_unit_test(test_in_vain),
		cmocka_unit_test(test_makes_room), cmocka_unit_test(test_hot),        cmocka_unit_test(test_cooled),
		cmocka_unit_test(test_steps_down), cmocka_unit_test(test_steps_back), cmocka_unit_test(test_generated),
		cmocka_unit_test(test_planted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
