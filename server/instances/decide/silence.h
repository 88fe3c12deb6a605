/* How long the workers of an instance may be silent, and the error after that: pure functions; the facts are in parts/.
 * Thread: any. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

// A part. PART_ADOPTING: it has loaded, for a server before this one or an earlier placement.
enum part_step { PART_PLANNED, PART_FETCHING, PART_STARTING, PART_LOADING, PART_ADOPTING, PART_LOADED };
// The step of all parts. PARTS_AWAY: they were ready, and the node of one of them is cut off.
enum parts_step { PARTS_LOADING, PARTS_CONNECTING, PARTS_CHECKING, PARTS_READY, PARTS_AWAY };

enum {
	SILENCE_END_MS = 500,        // the word that a worker has ended is waited for, where a way to it has failed
	SILENCE_FIRST_END_MS = 3000, // the same before the parts have worked: nobody waits for a token yet
	SILENCE_ADOPT_MS = 2000,     // least time for a worker to confirm that it keeps its layers
	SILENCE_BROKEN_MOST = 4,     // connections between parts that may break until all are connected and checked
	SILENCE_PASS_MS = 60000      // that a browser may keep a message of the ring; its page gives a step up earlier
};

// From a sign of life in this step of `count` parts to the next one. PARTS_READY, PARTS_AWAY: 0, without end. A node
// that fetches gives signs all the time, a worker that loads may be busy for long.
int64_t silence_limit_ms(enum parts_step step, const enum part_step *parts, unsigned count);
// The limit for workers to confirm that they keep their layers, before which they may have to end a step: as long as
// loading takes, or half of the time that requests still wait. load_ms < 0: not known.
int64_t silence_adopt_limit_ms(int64_t requests_wait_ms, double load_ms);

struct silence_seen {
	enum parts_step step;
	const enum part_step *parts; // (count)
	unsigned count, unconnected; // unconnected: the first part whose connection to the next is not there
	bool adopting;               // the parts were a server's before this one
};
// Which part is to blame, and for what, in words. Only in a step that has a limit.
struct silence {
	unsigned part;
	const char *what; // static
};
struct silence silence_blame(const struct silence_seen *seen);

// A part that passes each message of the ring on as one message, seen from outside: how many have come and gone.
struct silence_passing {
	uint64_t gone;
	int64_t since_ms; // with nothing to pass on, or of the last that went
};
// Note what has come and gone until now. True: it has kept something for too long.
bool silence_keeps(struct silence_passing *seen, uint64_t come, uint64_t gone, int64_t now_ms);

// How long a failure is held back before it is reported. If the parts have worked or are being connected, and all
// workers seem to be there, a worker has probably ended. The report of that, which has the reason, may come a little
// later.
int64_t silence_doubt_ms(bool have_worked, bool connecting, unsigned count, bool worker_ended);
