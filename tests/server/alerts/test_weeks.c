/* Weeks of a simulated cluster on a clock of its own, looked at every five seconds by the default rules: healthy ones,
 * in which nothing is raised, and sick ones, in which each trouble is raised once and cleared once. Seeds are printed.
 */
#include "server/alerts/engine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

#ifdef __SANITIZE_ADDRESS__ // a day of it
enum { WEEK_S = 86400 };
#else
enum { WEEK_S = 7 * 86400 };
#endif
enum { NODES = 3, DEVICES = 6, STEP_S = 5, HOUR_S = 3600, EVENTS_MOST = 256 };

struct told {
	char kind[32], subject[32];
	enum alert_turn turn;
	int64_t at_s;
};

// What the simulated cluster is like now. Troubles are set by a test for a time.
struct week {
	uint64_t random;
	int64_t now_s;
	struct engine *engine;
	int64_t offline_until_s[NODES]; // a node is away until then
	double memory[DEVICES];
	int64_t hot_until_s[DEVICES];
	struct told told[EVENTS_MOST];
	size_t count;
	// The trouble of sick weeks, by time.
	bool node_down, device_gone, full, hot, uneven, token_ends;
};

static double draw(struct week *week) // splitmix64, from 0 to 1
{
	uint64_t z = week->random += 0x9E3779B97F4A7C15u;
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return (double)((z ^ (z >> 31)) >> 11) / 9007199254740992.0;
}

static void note(void *context, const struct alert_rule *rule, const char *subject_id, const struct engine_seen *seen,
		 enum alert_turn turn)
{
	struct week *week = context;
	(void)seen;
	assert_true(week->count < EVENTS_MOST);
	struct told *told = &week->told[week->count++];
	snprintf(told->kind, sizeof told->kind, "%s", rule->kind);
	snprintf(told->subject, sizeof told->subject, "%s", subject_id);
	told->turn = turn;
	told->at_s = week->now_s;
}

static void see(struct week *week, enum alert_rule_number rule, const char *subject, double value)
{
	const struct engine_seen seen = {
		.rule = rule,
		.subject_id = subject,
		.subject_name = subject,
		.sample = {.at_ms = week->now_s * 1000, .known = !isnan(value), .value = value},
		.message = "",
		.hint = ""};
	engine_see(week->engine, &seen);
}

// What a healthy cluster does all the time, too: short restarts of nodes, bursts of memory, a hot moment.
static void live(struct week *week)
{
	for (int node = 0; node < NODES; node++)
		if (draw(week) < (double)STEP_S / (12 * HOUR_S)) // twice a day, for 30 s at most
			week->offline_until_s[node] = week->now_s + 1 + (int64_t)(30 * draw(week));
	for (int device = 0; device < DEVICES; device++) {
		if (draw(week) < (double)STEP_S / HOUR_S) // a model comes or goes
			week->memory[device] = 20 + 70 * draw(week);
		if (draw(week) < (double)STEP_S / (4 * HOUR_S)) // 20 s of heat, a few times a day
			week->hot_until_s[device] = week->now_s + (int64_t)(20 * draw(week));
	}
}

static void look(struct week *week)
{
	char subject[32];
	bool online[NODES];
	engine_begin(week->engine);
	for (int node = 0; node < NODES; node++) {
		online[node] = week->now_s >= week->offline_until_s[node] && !(week->node_down && node == 1);
		snprintf(subject, sizeof subject, "node%d", node);
		see(week, ALERT_RULE_NODE_OFFLINE, subject, !online[node]);
		see(week, ALERT_RULE_VERSION_DIFFERS, subject, online[node] ? 0 : NAN);
		see(week, ALERT_RULE_DRIVER_UNUSABLE, subject, online[node] ? 0 : NAN);
		see(week, ALERT_RULE_LINK_DEGRADED, subject, online[node] ? 0 : NAN);
		see(week, ALERT_RULE_NODE_MEMORY, subject, online[node] ? 40 + 45 * draw(week) : NAN);
	}
	for (int device = 0; device < DEVICES; device++) {
		const bool here = online[device % NODES];
		const bool gone = week->device_gone && device == 0;
		const double burst = draw(week) < 0.01 ? 9.5 : 0; // one sample that passes the threshold
		const double memory = week->full && device == 2 ? 99.5 : week->memory[device] + burst;
		const bool hot = week->now_s < week->hot_until_s[device] || (week->hot && device == 3);
		snprintf(subject, sizeof subject, "device%d", device);
		see(week, ALERT_RULE_DEVICE_LOST, subject, here ? gone : NAN);
		see(week, ALERT_RULE_DEVICE_MEMORY, subject, here && !gone ? memory : NAN);
		see(week, ALERT_RULE_THROTTLED, subject, here && !gone ? hot : NAN);
		see(week, ALERT_RULE_ECC_ERRORS, subject, here && !gone ? 0 : NAN);
		see(week, ALERT_RULE_WORKER_FAILING, subject, here && !gone ? draw(week) < 0.001 : NAN);
	}
	// A model that works now and then. Its parts differ by what it is asked, and a search may err once.
	const double gain = draw(week) < 0.002 ? 40 : week->uneven ? 35 : 0;
	see(week, ALERT_RULE_SHARDS_UNBALANCED, "model", draw(week) < 0.1 && !week->uneven ? NAN : gain);
	see(week, ALERT_RULE_DISK_FULL, "server", 60 + 20 * draw(week));
	see(week, ALERT_RULE_HISTORY_UNWRITTEN, "server", draw(week) < 0.0005); // a write that failed once
	see(week, ALERT_RULE_AUDIT_FAILED, "server", NAN);                      // nobody has verified it
	see(week, ALERT_RULE_CERTIFICATE_EXPIRING, "certificate", 30);
	see(week, ALERT_RULE_TOKEN_EXPIRING, "token", week->token_ends ? 6.9 : 60);
	engine_end(week->engine);
}

static void run(struct week *week, int64_t until_s)
{
	for (; week->now_s < until_s; week->now_s += STEP_S) {
		live(week);
		look(week);
	}
}

static struct week *begin(uint64_t seed)
{
	struct week *week = calloc(1, sizeof(*week));
	assert_non_null(week);
	week->random = seed;
	week->now_s = STEP_S;
	for (int device = 0; device < DEVICES; device++)
		week->memory[device] = 50;
	assert_int_equal(engine_create(&week->engine, note, week), STATUS_OK);
	return week;
}

static void end(struct week **week)
{
	engine_destroy(&(*week)->engine);
	free(*week);
	*week = NULL;
}

static void print_told(const struct week *week)
{
	for (size_t i = 0; i < week->count; i++)
		print_message("  %lld s: %s %s %s\n", (long long)week->told[i].at_s, week->told[i].kind,
			      week->told[i].subject, week->told[i].turn == ALERT_RAISES ? "raised" : "cleared");
}

static void test_healthy(void **state)
{
	(void)state;
	struct week *week = begin(1);
	run(week, WEEK_S);
	print_told(week);
	assert_int_equal(week->count, 0);
	end(&week);
}

// The n-th thing that is told, which comes no sooner than after_s and no later than by_s.
static void expect(const struct week *week, size_t n, const char *kind, const char *subject, enum alert_turn turn,
		   int64_t after_s, int64_t by_s)
{
	assert_true(n < week->count);
	const struct told *told = &week->told[n];
	assert_string_equal(told->kind, kind);
	assert_string_equal(told->subject, subject);
	assert_int_equal(told->turn, turn);
	assert_in_range(told->at_s, after_s, by_s);
}

static void test_sick(void **state)
{
	(void)state;
	for (uint64_t seed = 11; seed <= 12; seed++) {
		struct week *week = begin(seed);
		size_t n = 0;
		print_message("sick week, seed %llu\n", (unsigned long long)seed);
		run(week, HOUR_S);
		// Its two devices say nothing, although their readings are gone: one trouble, one alert.
		week->node_down = true;
		run(week, 2 * HOUR_S);
		week->node_down = false;
		run(week, 3 * HOUR_S);
		week->device_gone = true;
		run(week, 4 * HOUR_S);
		week->device_gone = false;
		run(week, 5 * HOUR_S);
		week->full = week->hot = true;
		run(week, 6 * HOUR_S);
		week->full = week->hot = false;
		week->uneven = true;
		run(week, 7 * HOUR_S);
		week->uneven = false;
		run(week, 8 * HOUR_S);
		week->token_ends = true;
		run(week, WEEK_S);
		print_told(week);
		const int64_t slack_s = 120; // a short restart in between begins a count anew
		expect(week, n++, "node_offline", "node1", ALERT_RAISES, HOUR_S + 60 - 35, HOUR_S + 60 + slack_s);
		expect(week, n++, "node_offline", "node1", ALERT_CLEARS, 2 * HOUR_S + 60, 2 * HOUR_S + 60 + slack_s);
		expect(week, n++, "device_lost", "device0", ALERT_RAISES, 3 * HOUR_S + 30, 3 * HOUR_S + 30 + slack_s);
		expect(week, n++, "device_lost", "device0", ALERT_CLEARS, 4 * HOUR_S + 30, 4 * HOUR_S + 30 + slack_s);
		expect(week, n++, "throttled", "device3", ALERT_RAISES, 5 * HOUR_S + 30 - 20,
		       5 * HOUR_S + 30 + slack_s);
		expect(week, n++, "memory_full", "device2", ALERT_RAISES, 5 * HOUR_S + 60 - 5,
		       5 * HOUR_S + 60 + slack_s);
		expect(week, n++, "throttled", "device3", ALERT_CLEARS, 6 * HOUR_S + 30, 6 * HOUR_S + 90 + slack_s);
		n++; // the memory
		expect(week, n++, "shards_unbalanced", "model", ALERT_RAISES, 6 * HOUR_S + 60,
		       6 * HOUR_S + 60 + slack_s);
		expect(week, n++, "shards_unbalanced", "model", ALERT_CLEARS, 7 * HOUR_S + 60, 8 * HOUR_S);
		n++; // the token
		assert_int_equal(week->count, n);
		end(&week);
	}
}

static void test_gone(void **state)
{
	struct week *week = begin(1);
	(void)state;
	week->now_s = 1;
	for (int i = 0; i < 2; i++, week->now_s++) {
		engine_begin(week->engine);
		see(week, ALERT_RULE_ECC_ERRORS, "a", 4);
		see(week, ALERT_RULE_ECC_ERRORS, "b", 0);
		engine_end(week->engine);
	}
	assert_int_equal(week->count, 1);
	engine_begin(week->engine); // both were removed: the alert of the one goes with it, once
	engine_end(week->engine);
	assert_int_equal(week->count, 2);
	assert_int_equal(week->told[1].turn, ALERT_CLEARS);
	engine_begin(week->engine);
	engine_end(week->engine);
	assert_int_equal(week->count, 2);
	end(&week);
}

static void see_many(struct week *week, int nodes, int devices, double value)
{
	engine_begin(week->engine);
	for (int node = 0; node < nodes; node++)
		for (int device = 0; device < devices; device++) {
			char id[32], node_id[32];
			snprintf(node_id, sizeof node_id, "node%d", node);
			snprintf(id, sizeof id, "%d.%d", node, device);
			engine_see(week->engine,
				   &(struct engine_seen){
					   .rule = ALERT_RULE_ECC_ERRORS,
					   .subject_id = id,
					   .subject_name = id,
					   .node_id = node_id,
					   .sample = {.at_ms = week->now_s * 1000, .known = true, .value = value},
					   .message = "",
					   .hint = ""});
		}
	engine_end(week->engine);
	week->now_s++;
}

// A round changes so many alerts, and so many of a node stand; the rest is cleared in the next rounds.
static void test_bounds(void **state)
{
	struct week *week = begin(1);
	(void)state;
	see_many(week, 1, 40, 1);
	see_many(week, 1, 40, 1);
	assert_int_equal(week->count, 40);
	assert_false(engine_full(week->engine));
	see_many(week, 1, 1024, 1);
	see_many(week, 1, 1024, 1);
	assert_int_equal(week->count, ENGINE_STAND_NODE);
	assert_true(engine_full(week->engine));
	see_many(week, 1, 1024, 1);
	assert_int_equal(week->count, ENGINE_STAND_NODE);
	see_many(week, 0, 0, 0); // all are gone
	assert_int_equal(week->count, 2 * ENGINE_STAND_NODE);
	week->count = 0;
	see_many(week, 3, 50, 1); // three nodes: more than one round may raise
	see_many(week, 3, 50, 1);
	assert_int_equal(week->count, ENGINE_CHANGES);
	see_many(week, 3, 50, 1);
	assert_int_equal(week->count, 2 * ENGINE_CHANGES);
	end(&week);
}

static bool never(void *context, const char *kind, const char *subject_id)
{
	(void)context, (void)kind, (void)subject_id;
	return false;
}

// What stood before the start is not raised again; what could not be raised is raised again.
static void test_restart(void **state)
{
	struct week *week = begin(1);
	(void)state;
	assert_int_equal(engine_stands(week->engine, ALERT_RULE_NODE_OFFLINE, "node0"), STATUS_OK);
	for (week->now_s = 1; week->now_s < 200; week->now_s += STEP_S) {
		engine_begin(week->engine);
		see(week, ALERT_RULE_NODE_OFFLINE, "node0", 1);
		engine_end(week->engine);
	}
	assert_int_equal(week->count, 0);
	engine_sync(week->engine, never, NULL);
	for (; week->now_s < 400; week->now_s += STEP_S) {
		engine_begin(week->engine);
		see(week, ALERT_RULE_NODE_OFFLINE, "node0", 1);
		engine_end(week->engine);
	}
	assert_int_equal(week->count, 1);
	assert_int_equal(week->told[0].turn, ALERT_RAISES);
	end(&week);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_healthy), cmocka_unit_test(test_sick),    cmocka_unit_test(test_gone),
		cmocka_unit_test(test_bounds),  cmocka_unit_test(test_restart),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
