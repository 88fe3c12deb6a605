/* Searches for places: which one begins, which one stops another, and what happens at the end of one. Pure functions,
 * with the facts in placing/planner.c. Thread: any. */
#pragma once
#include <stdbool.h>

enum placing_kind {
	PLACING_RECOVERY, // of an instance that waits for a place: before all others
	PLACING_WORK,     // for an instance that is created, moved, or previewed
	PLACING_PREVIEW,  // that changes nothing
	PLACING_KINDS
};

enum { SEARCH_TRIES = 3 }; // while devices come and go

// Whether a search waits until the devices of the server's machine are found. waited: one has, for as long as it may.
bool search_waits(enum placing_kind kind, bool discovering, bool waited);
// Whether a newer search stops the one that runs: a more urgent one, or a preview of the same connection.
bool search_stops(enum placing_kind running, enum placing_kind newer, bool same_connection);

struct search_over_seen {
	enum placing_kind kind;
	bool listened_to;           // somebody waits for the result
	bool stopped, stopped_once; // it was stopped for another one; this has happened before
	bool failed, unavailable;   // with an error; with STATUS_UNAVAILABLE
	bool feasible;              // a place was found
	bool stands;                // all that it names is there still
	unsigned changes;           // how often it did not, before
	bool pinned;                // by who asks: then an error says more of its own
	bool discovering;           // devices of the server's machine are still being found
};
enum search_over {
	SEARCH_TELLS,
	SEARCH_TELLS_CHANGES,     // devices come and go faster than a place can be found
	SEARCH_TELLS_DISCOVERING, // there is no place yet, since devices are still being found
	SEARCH_AGAIN_STOPPED,     // before others that are as urgent
	SEARCH_AGAIN_CHANGED      // the same, as something that it names is gone
};
enum search_over search_over_decide(const struct search_over_seen *seen);
