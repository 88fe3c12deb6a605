/* The bottleneck of an instance: what slows its tokens down. It is decided once, for words and colours alike, and is
 * shown for a while, so that a person can read it: it changes when several consecutive reports agree on another one.
 * Pure. Thread: any. */
#pragma once
#include <stdbool.h>

enum { BOTTLENECK_REPORTS = 5 }; // in a row that another one needs; a report comes each second

enum bottleneck_kind {
	BOTTLENECK_NONE,  // its parts take about equally long
	BOTTLENECK_STAGE, // a stage computes for longer than the others
	BOTTLENECK_WAIT,  // steps wait for a stage, which has more to do than the others
	BOTTLENECK_HOPS   // what passes between the parts
};

struct bottleneck {
	enum bottleneck_kind kind;
	unsigned stage; // of the instance; 0 where it is not about one
};

// The bottleneck of an instance in one placement; all zero before the first report.
struct bottleneck_shown {
	struct bottleneck now, next; // next: what reports call for instead
	unsigned times;              // how many in a row did
	bool known;
};

// Take the bottleneck of a report; returns the one to show.
struct bottleneck bottleneck_settle(struct bottleneck_shown *shown, struct bottleneck called_for);
const char *bottleneck_name(enum bottleneck_kind kind); // in the API
