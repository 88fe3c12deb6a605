/* How an instance is created: every combination of the facts, against the invariants of each decision. */
#include "server/instances/decide/start.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on
#include "common/base/limits.h"

enum { BITS = 7 };

// Bit by bit; `tries` and `instances` are at, or below, their limits.
static struct start_seen see(unsigned bits)
{
	return (struct start_seen){.search = bits & 1 ? STATUS_UNAVAILABLE : STATUS_OK,
				   .unneeded = bits & 2,
				   .fits = bits & 4,
				   .whole = bits & 8,
				   .lags = bits & 16,
				   .evicts_used = bits & 32,
				   .tries = bits & 64 ? START_TRIES : START_TRIES - 1,
				   .instances = bits & 128 ? LIMIT_INSTANCES : LIMIT_INSTANCES - 1};
}

static void check(const struct start_seen *seen, const struct start_decision *decision)
{
	if (seen->search || seen->unneeded)
		assert_int_equal(decision->action, START_REFUSE);
	if (decision->action == START_LAUNCH)
		assert_true(!seen->search && !seen->unneeded && seen->fits && !seen->evicts_used &&
			    seen->instances < LIMIT_INSTANCES && (seen->whole || !seen->lags));
	if (decision->action == START_LATER)
		assert_true(seen->lags && !(seen->fits && seen->whole));
	if (decision->action == START_AGAIN) // it ends at some time
		assert_true(seen->evicts_used && seen->tries < START_TRIES);
	if (decision->action == START_NOWHERE)
		assert_false(seen->fits || seen->lags);
	if (decision->action == START_REFUSE)
		assert_true(decision->status && (seen->search || decision->reason));
}

static void test_all(void **context)
{
	unsigned actions = 0;
	(void)context;
	for (unsigned bits = 0; bits < 2u << BITS; bits++) {
		const struct start_seen seen = see(bits);
		struct start_decision decision;
		start_decide(&decision, &seen);
		assert_non_null(decision.rule);
		check(&seen, &decision);
		actions |= 1u << decision.action;
	}
	assert_int_equal(actions, (1u << (START_REFUSE + 1)) - 1); // each is reached
}

static void test_statuses(void **context)
{
	struct start_seen seen = {.fits = true, .whole = true, .evicts_used = true, .tries = START_TRIES};
	struct start_decision decision;
	(void)context;
	start_decide(&decision, &seen);
	assert_int_equal(decision.status, STATUS_UNAVAILABLE);
	seen.instances = LIMIT_INSTANCES;
	start_decide(&decision, &seen);
	assert_int_equal(decision.status, STATUS_LIMIT_EXCEEDED);
	seen.unneeded = true;
	start_decide(&decision, &seen);
	assert_int_equal(decision.status, STATUS_CONFLICT);
	seen.search = STATUS_NOT_FOUND; // the search's own reason
	start_decide(&decision, &seen);
	assert_int_equal(decision.status, STATUS_NOT_FOUND);
	assert_null(decision.reason);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all),
		cmocka_unit_test(test_statuses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
