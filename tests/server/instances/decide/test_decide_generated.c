/* What an instance does next in a hundred thousand situations that are generated: each decision must satisfy the
 * invariants, and each invariant finds a fault that is planted. */
#include "tests/server/instances/decide/situations.h"

enum { CASES = 100000, RULES_MOST = 64 };

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
		cmocka_unit_test(test_generated),
		cmocka_unit_test(test_planted),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
