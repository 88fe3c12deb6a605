/* What happens to a request to a model: a table of situations with the expected decisions, and generated ones that must
 * all satisfy the invariants. */
#include "server/instances/decide/question.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on
#include "common/base/limits.h"

#include <stdio.h>
#include <string.h>

enum { CASES = 200000, NOW_MS = 1000000, INSTANCES = 4, RULES_MOST = 32 };

static const struct error no_place = {.status = STATUS_OUT_OF_MEMORY, .message = "6 GiB are missing"};

// ---- a table ----

static const struct question_instance running = {
	.instance_state = INSTANCE_RUNNING, .reason = "", .holds_model = true, .request_count = 3};
static const struct question_instance idle = {.instance_state = INSTANCE_RUNNING, .reason = "", .holds_model = true};
static const struct question_instance fast = {
	.instance_state = INSTANCE_RUNNING, .reason = "", .holds_model = true, .request_count = 3, .rate = 100};
static const struct question_instance slow = {
	.instance_state = INSTANCE_RUNNING, .reason = "", .holds_model = true, .rate = 20};
static const struct question_instance hardly_slower = {
	.instance_state = INSTANCE_RUNNING, .reason = "", .holds_model = true, .request_count = 2, .rate = 90};
static const struct question_instance draining = {
	.instance_state = INSTANCE_RUNNING, .reason = "", .holds_model = true, .draining = true, .stays = true};
static const struct question_instance leaving = {
	.instance_state = INSTANCE_RUNNING, .reason = "", .holds_model = true, .draining = true};
static const struct question_instance loading = {.instance_state = INSTANCE_LOADING, .reason = "", .holds_model = true};
static const struct question_instance waited = {
	.instance_state = INSTANCE_PAUSED, .reason = "it waits", .holds_model = true, .requests_wait = true};
static const struct question_instance paused = {.instance_state = INSTANCE_PAUSED, .reason = "no memory"};
static const struct question_instance failed = {
	.instance_state = INSTANCE_FAILED, .reason = "it broke", .failed_ms = 1};
static const struct question_instance just_failed = {
	.instance_state = INSTANCE_FAILED, .reason = "it broke", .failed_ms = NOW_MS - QUESTION_AGAIN_MS + 1};
static const struct question_instance pinned = {
	.instance_state = INSTANCE_FAILED, .reason = "it broke", .particular = true};

static const struct situation {
	const char *name;
	struct question_instance instances[INSTANCES];
	unsigned count;
	struct question_seen seen;
	enum question_action action;
	const char *text; // of the error, or NULL
	unsigned instance;
} situations[] = {
	{"the least busy one", {running, idle, waited}, 3, {.loads = true}, QUESTION_JOINS, NULL, 1},
	{"a fast one that has something to do", {slow, fast}, 2, {0}, QUESTION_JOINS, NULL, 1},
	{"rates that hardly differ do not count", {fast, hardly_slower}, 2, {0}, QUESTION_JOINS, NULL, 1},
	{"nor do they if one is not known", {fast, idle}, 2, {0}, QUESTION_JOINS, NULL, 1},
	{"one that runs before one that is paused", {waited, running}, 2, {0}, QUESTION_JOINS, NULL, 1},
	{"one that is paused, for a while", {draining, waited}, 2, {0}, QUESTION_JOINS, NULL, 1},
	{"an idle one, although the server ends", {idle}, 1, {.ending = true}, QUESTION_JOINS, NULL, 0},
	{"nothing while the server ends", {loading}, 1, {.ending = true}, QUESTION_REFUSED, "the server restarts", 0},
	{"paused", {paused}, 1, {.loads = true, .ready = true}, QUESTION_REFUSED, "is paused: no memory", 0},
	{"draining", {draining}, 1, {.loads = true, .ready = true}, QUESTION_REFUSED, "is draining", 0},
	{"its device has begun to drain", {leaving}, 1, {0}, QUESTION_JOINS, NULL, 0},
	{"another one stays", {leaving, idle}, 2, {0}, QUESTION_JOINS, NULL, 1},
	{"it answers, and the other one is paused", {waited, leaving}, 2, {0}, QUESTION_JOINS, NULL, 1},
	{"the other one leaves in vain", {draining, leaving}, 2, {0}, QUESTION_JOINS, NULL, 1},
	{"loading", {failed, loading}, 2, {.loads = true, .ready = true}, QUESTION_JOINS, NULL, 1},
	{"loading, and it may not wait", {loading}, 1, {.ready = true}, QUESTION_REFUSED, "is being loaded", 0},
	{"nothing is loaded", {failed}, 0, {.ready = true}, QUESTION_REFUSED, "m is not loaded", 0},
	{"what failed is not loaded", {failed}, 1, {.ready = true}, QUESTION_REFUSED, "not loaded: it broke", 0},
	{"its file is not ready", {failed}, 0, {.loads = true}, QUESTION_REFUSED, "m is not loaded", 0},
	{"it is begun", {failed}, 1, {.loads = true, .ready = true, .begun = true}, QUESTION_WAITS, NULL, 0},
	{"it is loaded", {failed}, 0, {.loads = true, .ready = true}, QUESTION_LOADS, NULL, 0},
	{"it failed long ago", {failed}, 1, {.loads = true, .ready = true}, QUESTION_LOADS, NULL, 0},
	{"it failed just now", {just_failed}, 1, {.loads = true, .ready = true}, QUESTION_REFUSED, "it broke", 0},
	{"an admin tries again",
	 {just_failed},
	 1,
	 {.loads = true, .ready = true, .admin = true},
	 QUESTION_LOADS,
	 NULL,
	 0},
	{"an admin's own", {pinned}, 1, {.loads = true, .ready = true, .admin = true}, QUESTION_REFUSED, "it broke", 0},
	{"it fits nowhere",
	 {failed},
	 0,
	 {.loads = true, .ready = true, .nowhere = &no_place, .nowhere_proven = true},
	 QUESTION_LOOKS,
	 NULL,
	 0},
	{"nor now",
	 {failed},
	 0,
	 {.loads = true, .ready = true, .nowhere = &no_place, .nowhere_proven = true, .room = ROOM_SAME},
	 QUESTION_REFUSED,
	 "6 GiB",
	 0},
	{"there is more room",
	 {failed},
	 0,
	 {.loads = true, .ready = true, .nowhere = &no_place, .nowhere_proven = true, .room = ROOM_MORE},
	 QUESTION_LOADS,
	 NULL,
	 0},
	{"it was not proven, and a minute is over",
	 {failed},
	 0,
	 {.loads = true, .ready = true, .nowhere = &no_place, .nowhere_ms = NOW_MS - QUESTION_AGAIN_MS},
	 QUESTION_LOADS,
	 NULL,
	 0},
};

static void test_situations(void **context)
{
	(void)context;
	for (size_t i = 0; i < sizeof situations / sizeof *situations; i++) {
		const struct situation *one = &situations[i];
		struct question_decision decision;
		struct error error = {0};
		struct question_seen seen = one->seen;
		seen.model_name = "m";
		seen.instances = one->instances;
		seen.count = one->count;
		seen.sees_why = true;
		question_decide(&decision, &seen, NOW_MS, &error);
		if (decision.action != one->action || decision.instance != one->instance ||
		    (one->text && !strstr(error.message, one->text)))
			fail_msg("%s: action %d, instance %u, \"%s\" by the rule \"%s\"", one->name,
				 (int)decision.action, decision.instance, error.message, decision.rule);
	}
}

// Who may not know reasons is refused alike, and is told none of them.
static void test_reasons_are_kept_back(void **context)
{
	static const char *const reasons[] = {"no memory", "it broke", "6 GiB"};
	unsigned kept = 0;
	(void)context;
	for (size_t i = 0; i < sizeof situations / sizeof *situations; i++) {
		const struct situation *one = &situations[i];
		struct question_decision decision;
		struct error error = {0};
		struct question_seen seen = one->seen;
		seen.model_name = "m";
		seen.instances = one->instances;
		seen.count = one->count;
		question_decide(&decision, &seen, NOW_MS, &error);
		assert_int_equal(decision.action, one->action);
		for (size_t j = 0; j < sizeof reasons / sizeof *reasons; j++)
			if (strstr(error.message, reasons[j]) || strstr(error.hint, reasons[j]))
				fail_msg("%s: \"%s\"", one->name, error.message);
		kept += strstr(error.message, "an admin can see why") != NULL;
	}
	assert_int_equal(kept, 5);
}

// ---- generated situations ----

static uint64_t state = 88172645463325252u;
static unsigned draw(unsigned below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (unsigned)(state % below);
}

static void generate(struct question_seen *seen, struct question_instance *instances)
{
	*seen = (struct question_seen){.model_name = "m",
				       .instances = instances,
				       .count = draw(INSTANCES + 1),
				       .ending = !draw(8),
				       .loads = draw(2),
				       .ready = draw(2),
				       .admin = draw(2),
				       .begun = !draw(4),
				       .nowhere = draw(2) ? &no_place : NULL,
				       .nowhere_proven = draw(2),
				       .nowhere_ms = NOW_MS - (int64_t)draw(2 * QUESTION_AGAIN_MS),
				       .room = (enum question_room)draw(3)};
	for (unsigned i = 0; i < seen->count; i++)
		instances[i] = (struct question_instance){.instance_state = (enum instance_state)draw(INSTANCE_STATES),
							  .reason = "why",
							  .holds_model = draw(2),
							  .requests_wait = draw(2),
							  .draining = !draw(4),
							  .stays = draw(2),
							  .particular = !draw(4),
							  .failed_ms = NOW_MS - (int64_t)draw(2 * QUESTION_AGAIN_MS),
							  .request_count = draw(4),
							  .rate = draw(3) ? 10.0 * draw(4) : -1};
}

// What is wrong with the decision; NULL: nothing.
static const char *check(const struct question_seen *seen, const struct question_decision *decision,
			 const struct error *error)
{
	unsigned answering = 0;
	const struct question_instance *joined = &seen->instances[decision->instance];
	for (unsigned i = 0; i < seen->count; i++)
		answering += seen->instances[i].holds_model && !seen->instances[i].draining &&
			     seen->instances[i].instance_state == INSTANCE_RUNNING;
	if ((decision->action == QUESTION_REFUSED) != (error->message[0] && error->status))
		return "it is refused without a reason, or the other way round";
	if (answering &&
	    (decision->action != QUESTION_JOINS || joined->instance_state != INSTANCE_RUNNING || joined->draining))
		return "an instance runs, and does not get the request";
	if (decision->action == QUESTION_JOINS && joined->instance_state == INSTANCE_RUNNING && joined->draining &&
	    joined->stays)
		return "it joins an instance that is not to get new requests";
	for (unsigned i = 0; i < seen->count && decision->action == QUESTION_REFUSED; i++)
		if (seen->instances[i].holds_model && seen->instances[i].draining && !seen->instances[i].stays &&
		    seen->instances[i].instance_state == INSTANCE_RUNNING)
			return "it is refused while an instance answers that is leaving its device";
	if (decision->action == QUESTION_JOINS && (decision->instance >= seen->count || !joined->holds_model))
		return "it joins an instance that does not hold the model";
	for (unsigned i = 0; i < seen->count && decision->action == QUESTION_JOINS; i++)
		if (answering && seen->instances[i].instance_state == INSTANCE_RUNNING &&
		    seen->instances[i].holds_model && !seen->instances[i].draining &&
		    seen->instances[i].request_count < joined->request_count &&
		    !(joined->rate > seen->instances[i].rate))
			return "another one has less to do, and is as fast";
	if (decision->action == QUESTION_LOADS && (!seen->loads || !seen->ready || seen->ending || seen->begun))
		return "a model is loaded that must not be, or for a second time";
	for (unsigned i = 0; i < seen->count && decision->action == QUESTION_LOADS; i++)
		if (seen->instances[i].instance_state == INSTANCE_PAUSED ||
		    (seen->instances[i].instance_state == INSTANCE_FAILED && seen->instances[i].particular))
			return "it is loaded beside an instance that will go on, or in the place of an admin's";
	if (decision->action == QUESTION_LOOKS && (!seen->nowhere || seen->room != ROOM_NOT_LOOKED))
		return "room is looked for twice, or for nothing";
	return NULL;
}

static void test_invariants(void **context)
{
	bool used[RULES_MOST] = {false};
	(void)context;
	for (int i = 0; i < CASES; i++) {
		struct question_instance instances[INSTANCES];
		struct question_seen seen;
		struct question_decision decision;
		struct error error = {0};
		generate(&seen, instances);
		question_decide(&decision, &seen, NOW_MS, &error);
		const char *wrong = check(&seen, &decision, &error);
		if (wrong)
			fail_msg("case %d, rule \"%s\": %s", i, decision.rule, wrong);
		for (unsigned j = 0; question_rule_name(j); j++)
			used[j] |= !strcmp(question_rule_name(j), decision.rule);
	}
	for (unsigned j = 0; question_rule_name(j); j++)
		if (!used[j])
			fail_msg("no case needs the rule \"%s\"", question_rule_name(j));
}

// ---- the line ----

static void expect_line(const struct question_line *line, enum status status, const char *text)
{
	struct error error = {0};
	assert_int_equal(question_admit(line, &error), status);
	assert_non_null(strstr(error.message, text));
}

static void test_line(void **context)
{
	const struct question_line plain = {.line_tokens_most = 100, .context_tokens = 50};
	struct question_line line = plain;
	(void)context;
	expect_line(&line, STATUS_OK, "");
	line.given_tokens = 50;
	expect_line(&line, STATUS_OK, "");
	line.line_tokens = 51;
	expect_line(&line, STATUS_RATE_LIMITED, "would be more than 100");
	line.given_tokens = 51;
	expect_line(&line, STATUS_LIMIT_EXCEEDED, "the context has room for 50");
	line.context_tokens = 200;
	line.given_tokens = 101;
	expect_line(&line, STATUS_LIMIT_EXCEEDED, "have 100 at most");
	line = plain;
	line.request_count = LIMIT_REQUESTS_OF_INSTANCE;
	expect_line(&line, STATUS_RATE_LIMITED, "already wait");
	line.request_count = line.own_count = LIMIT_REQUESTS_OF_INSTANCE * 3 / 4 - 1;
	expect_line(&line, STATUS_OK, "");
	line.request_count = line.own_count = LIMIT_REQUESTS_OF_INSTANCE * 3 / 4;
	expect_line(&line, STATUS_RATE_LIMITED, "of this token");
	line.own_count = 0; // another token finds a place
	expect_line(&line, STATUS_OK, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_situations),
		cmocka_unit_test(test_reasons_are_kept_back),
		cmocka_unit_test(test_invariants),
		cmocka_unit_test(test_line),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
