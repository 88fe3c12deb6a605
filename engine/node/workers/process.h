/* A worker's process: starts this binary, reads what it prints, and reaps it.
 *
 * It gets the caller's sockets as descriptors 3 and 4, a model file as 5, the sockets of a ring as 6 and 7 and the file
 * of a draft model as 8, its standard error in a pipe of which the last lines are kept, and nothing else that is open
 * here. A pidfd reports its end or, on kernels without one, a poll every PROCESS_POLL_MS. Descriptors 3 to 7 of the
 * node must be in use already (node_main ensures this): none of the descriptors that are passed may have one of these
 * numbers. Thread: the loop's. Embedded in its owner and zero before first use; owns the pipe, the pidfd and the child.
 */
#pragma once
#include "common/base/buffer.h"
#include "common/net/loop.h"

#include <sys/types.h>

struct process {
	struct net_loop *loop;
	pid_t pid;           // 0: not running
	bool killed, ending; // by process_kill; process_expect_end was told that it ends
	int stderr_fd;       // owned by its watch
	struct net_watch *stderr_pipe, *pidfd;
	struct net_timer poll;
	struct buffer printed;
	void (*ended)(void *arg, int wait_status);
	void *arg;
};

struct process_params {
	struct net_loop *loop;
	// The descriptors that it gets as 3, 4, 5, 6 and 7; -1 for all but the first: none. They stay the caller's.
	int socket, stream, model, ring_in, ring_out, draft;
	bool alone; // in namespaces of its own (spawn.h): one that stays
	// Reaped: the last call. The owner may finish and free the process in it.
	void (*ended)(void *arg, int wait_status);
	void *arg;
};

// Errors: STATUS_UNAVAILABLE, STATUS_OUT_OF_MEMORY.
enum status process_start(struct process *process, const struct process_params *params, struct error *error);
void process_kill(struct process *process); // SIGKILL; `ended` follows
// It has closed its socket, so it has ended or is about to; its exit status tells why. It is killed if it does not end
// soon.
void process_expect_end(struct process *process);
// How it ended, in words, for a person: the signal or exit status, and the last line that it printed.
void process_describe(const struct process *process, int wait_status, char *text, size_t size);
// The last line that it printed, without control characters; "" if it printed nothing.
const char *process_last_line(const struct process *process, char *line, size_t size);
// Kill and reap it without `ended`, waiting *patience_ms at most, from which the time is taken.
void process_finish(struct process *process, int *patience_ms);
