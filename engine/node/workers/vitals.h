/* Whether a worker that does not answer hangs, and when that is decided.
 *
 * A worker is asked at every look, twice a second, unless an earlier question is open. One that hangs at any moment is
 * found out at most VITALS_HANG_MS later, if the looks are on time; each millisecond that a look is late adds one.
 *
 * vitals_excuse tells, from what the system reports, whether a worker that does not answer hangs or is delayed by
 * something temporary. It hangs if the process is stopped, if its first thread (which answers) sleeps while no thread
 * is delayed, or if its first thread computes something else. Time in the kernel does not count as computing: one
 * system call may search, clear or pin gigabytes of memory. A worker that calls the system in a loop looks the same,
 * and has that excuse until excuses end (VITALS_LATE_MS). Thread: any. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	VITALS_LOOK_MS = 500,
	VITALS_ANSWER_MS = 1500, // for an answer
	VITALS_HANG_MS = VITALS_LOOK_MS + VITALS_ANSWER_MS,
	VITALS_LATE_MS = 10000,      // for an answer of one that has an excuse
	VITALS_BUSY_MS = 20000,      // at most, that a worker may say it is busy
	VITALS_STOOD_STILL_MS = 250, // that a look is late when the machine was not just busy
};

struct vitals {
	char state;     // of the first thread, as in proc(5); 0: not known
	char others;    // D or R if another thread is in that state, D before R; else 0
	int64_t cpu_ms; // that the first thread has computed since it began, to the system's tick (10 ms)
	int64_t all_cpu_ms;
	int64_t system_ms, all_system_ms; // of these, inside system calls
};

// From /proc. False, with nothing known: there is no such process, or it is not to be looked at.
bool vitals_read(struct vitals *vitals, pid_t pid);
// Why one that has not answered for `ms`, since `before` was read, may do so yet, in words; NULL: there is no reason.
const char *vitals_excuse(const struct vitals *before, const struct vitals *now, int64_t ms);

// A question that a worker has not answered yet. Times are milliseconds of one steady clock.
struct silence {
	bool asked; // cleared by the caller once there is an answer
	int64_t asked_ms, due_ms;
	// The worker's state at the last look, and the time of that look: set by the first look that finds no answer.
	struct vitals seen;
	int64_t seen_ms;
	bool excused; // the log says why the answer may take longer
};

enum silence_verdict {
	SILENCE_WAIT,
	SILENCE_EXCUSED, // as WAIT; its time is over, and this is the first look that finds an excuse
	SILENCE_HANGS,
};

// The worker is asked now. busy_ms: for how long it has said that it does not answer.
void silence_begin(struct silence *silence, int64_t now_ms, int64_t busy_ms);
// Decide about a question that is open. Writes the excuse, or NULL.
enum silence_verdict silence_look(struct silence *silence, const struct vitals *now, int64_t now_ms,
				  const char **excuse);
// For how long this process, or the whole machine, stood still before a look; 0: the look is on time. Every worker
// has so much longer to answer.
int64_t silence_stood_still(int64_t looked_ms, int64_t now_ms);
