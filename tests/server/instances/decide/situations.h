/* Situations of instances, for the tests of decide.c: what is usual, and what is to be decided. */
#pragma once
#include "common/base/limits.h"
#include "server/instances/decide/decide.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <string.h>

enum { NOW_MS = 1000000 };

static const struct decide_wanted plain = {.pause_ms = 60000};

// An instance that runs and has nothing to do.
static inline struct decide_seen running(void)
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
static inline struct decide_seen paused(void)
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

static inline struct decision decide(const struct decide_wanted *wanted, const struct decide_seen *seen)
{
	struct decision decision;
	instance_decide(&decision, wanted, seen, NOW_MS);
	return decision;
}

static inline void expect(const struct decide_wanted *wanted, const struct decide_seen *seen, enum decide_action action,
			  const char *reason)
{
	const struct decision decision = decide(wanted, seen);
	if (decision.action != action || !strstr(decision.reason, reason))
		fail_msg("expected %s with \"%s\", got %s with \"%s\" by the rule \"%s\"", decide_action_name(action),
			 reason, decide_action_name(decision.action), decision.reason, decision.rule);
}
