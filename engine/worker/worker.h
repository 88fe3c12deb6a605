/* The worker process: the only one that touches a driver.
 *
 * `exogpu worker --parent PID ...` speaks the node-to-worker methods of schema/node.json over the socket on
 * descriptor 3. worker.enumerate, verify, peers and compile are one request, one answer, and then it ends; before the
 * answer it sends a message without a head, with the other end of its filter of system calls
 * (engine/node/workers/refusals.h), where it has one. worker.open makes it a session's worker: it then also has a
 * stream to the server on descriptor 4, speaks the server-to-worker methods there, and stays until either ends or it is
 * killed. worker.instance makes it a model instance's: the same, with the model's file on descriptor 5 and
 * instance.load and generate.* on the stream. It ends when its node dies. A driver that hangs is ended from outside, by
 * the node's deadline, or by the worker's own reader thread when a launch outlasts its timeout_ms. Faults for tests:
 * see fault.h. */
#pragma once

// For a model instance: its file, and for a part of several the ring: messages of the previous part, and messages to
// the next part.
enum {
	WORKER_SOCKET = 3,
	WORKER_STREAM = 4,
	WORKER_MODEL = 5,
	WORKER_RING_IN = 6,
	WORKER_RING_OUT = 7,
	WORKER_DRAFT = 8
};

// Exit status of the process: 0 after an answer or the end of a socket, 1 on failure, 2 on bad usage, and these of a
// session's or an instance's worker; the last line on standard error says more.
enum { WORKER_DEVICE_LOST = 3, WORKER_TIMED_OUT = 4 };
int worker_main(int argc, char **argv);

// Give a file or folder of the cache of compiled kernels (open; this process's user is root) to the user that workers
// which fill it become: one of their own, or root where a driver comes first that root alone can use. 0, or an errno
// value: EPERM for one that is neither's. Thread: any.
int worker_give_cache(int file);

// The name of a system call (calls_list.c), for reports of refused calls; NULL: unknown, because it is newer or no
// longer in Linux. Thread: any, of a process that is not a worker.
const char *worker_call_name(int number);
