/* Decides how an instance is created, after the search for its place: a pure function. The rules are a table in
 * start.c; the first that applies decides. instances_start.c gathers the facts and carries out the decision. Nothing
 * here reads a clock or allocates. Thread: any. */
#pragma once
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	START_TRIES = 3,      // searches, while instances that were to be evicted are used meanwhile
	START_AGAIN_MS = 1000 // between searches, while memory that was freed does not show as free
};

struct start_seen {
	enum status search; // how the search ended
	bool unneeded;      // requests have it loaded, and another instance of the model has come up since
	bool fits;          // a place was found
	bool whole;         // with all layers on devices, in the format that was asked for
	bool lags;          // readings still show memory as used that has been freed
	bool evicts_used;   // an instance that was to be evicted has been used since the search began
	unsigned tries;     // searches that have ended so, if this one has, too
	unsigned instances; // existing ones, without those that it replaces
};

enum start_action {
	START_LAUNCH,  // at the place that was found
	START_AGAIN,   // search once more, at once
	START_LATER,   // search once more, in START_AGAIN_MS
	START_NOWHERE, // the model fits nowhere: the caller gets the missing memory
	START_REFUSE   // with `status` and the reason
};

struct start_decision {
	enum start_action action;
	const char *rule; // by its name in the table
	enum status status;
	const char *reason, *hint; // static texts; NULL: the search has told why, or there is nothing to advise
};

void start_decide(struct start_decision *out, const struct start_seen *seen);
