/* See search.h. */
#include "server/instances/decide/search.h"

// An instance that lost its place has waited for these devices by itself.
bool search_waits(enum placing_kind kind, bool discovering, bool waited)
{
	return discovering && !waited && kind != PLACING_RECOVERY;
}

bool search_stops(enum placing_kind running, enum placing_kind newer, bool same_connection)
{
	return running > newer || (running == PLACING_PREVIEW && newer == PLACING_PREVIEW && same_connection);
}

enum search_over search_over_decide(const struct search_over_seen *seen)
{
	const bool nowhere = seen->failed ? seen->unavailable && !seen->pinned : !seen->feasible;
	if (seen->listened_to && seen->stopped && !seen->stopped_once && seen->kind == PLACING_WORK)
		return SEARCH_AGAIN_STOPPED; // a preview answers with its result so far, and so does a search that is
					     // stopped a second time
	if (seen->listened_to && !seen->failed && !seen->stands)
		return seen->changes + 1 < SEARCH_TRIES ? SEARCH_AGAIN_CHANGED : SEARCH_TELLS_CHANGES;
	if (nowhere && seen->discovering && seen->kind != PLACING_RECOVERY)
		return SEARCH_TELLS_DISCOVERING;
	return SEARCH_TELLS;
}
