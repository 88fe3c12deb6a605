/* See start.h. */
#include "server/instances/decide/start.h"

#include "common/base/limits.h"

#include <stddef.h>

static bool search_failed(const struct start_seen *seen)
{
	return seen->search != STATUS_OK;
}

static bool is_unneeded(const struct start_seen *seen)
{
	return seen->unneeded;
}

// Where something is short now, there may be room for all of it in a moment.
static bool memory_lags(const struct start_seen *seen)
{
	return seen->lags && !(seen->fits && seen->whole);
}

static bool fits_nowhere(const struct start_seen *seen)
{
	return !seen->fits;
}

static bool are_too_many(const struct start_seen *seen)
{
	return seen->instances >= LIMIT_INSTANCES;
}

static bool is_used_again(const struct start_seen *seen)
{
	return seen->evicts_used && seen->tries < START_TRIES;
}

static bool is_used_still(const struct start_seen *seen)
{
	return seen->evicts_used;
}

static bool always(const struct start_seen *seen)
{
	(void)seen;
	return true;
}

static const struct rule {
	bool (*applies)(const struct start_seen *seen);
	struct start_decision decision;
} rules[] = {
	{search_failed, {START_REFUSE, "the search failed", STATUS_OK, NULL, NULL}},
	{is_unneeded,
	 {START_REFUSE, "another instance came up", STATUS_CONFLICT, "another instance was started in the meantime",
	  NULL}},
	{memory_lags, {START_LATER, "memory is not free yet", STATUS_OK, NULL, NULL}},
	{fits_nowhere, {START_NOWHERE, "it fits nowhere", STATUS_OUT_OF_MEMORY, NULL, NULL}},
	{are_too_many,
	 {START_REFUSE, "there are too many instances", STATUS_LIMIT_EXCEEDED, "there are too many instances already",
	  "stop one: exogpu stop ID"}},
	{is_used_again, {START_AGAIN, "an instance to be evicted is in use again", STATUS_OK, NULL, NULL}},
	{is_used_still,
	 {START_REFUSE, "instances to be evicted are in use each time", STATUS_UNAVAILABLE,
	  "a model that was to be evicted for it is in use again", "try again in a few seconds"}},
	{always, {START_LAUNCH, "it is launched", STATUS_OK, NULL, NULL}},
};

void start_decide(struct start_decision *out, const struct start_seen *seen)
{
	size_t i = 0;
	while (!rules[i].applies(seen))
		i++; // the last one always applies
	*out = rules[i].decision;
	if (seen->search)
		out->status = seen->search;
}
