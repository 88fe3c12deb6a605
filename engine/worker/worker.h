/* The worker process: the only one that touches a driver.
 *
 * `exogpu worker --parent PID` speaks the node-to-worker methods of schema/node.json over the socket on descriptor 3.
 * worker.enumerate and worker.verify are one request, one answer, and then it ends. worker.open makes it a session's
 * worker: it then also has a stream to the server on descriptor 4, speaks the server-to-worker methods there, and stays
 * until either ends or it is killed. worker.instance makes it a model instance's: the same, with the model's file on
 * descriptor 5 and instance.load and generate.* on the stream. It ends when its node dies. A driver that hangs is ended
 * from outside, by the node's deadline, or by the worker's own reader thread when a launch outlasts its timeout_ms.
 * Faults for tests: see fault.h. */
#pragma once

// Of a model instance's worker: its file, and of one that is a part of several the ring: what comes from the previous
// part, and what goes to the next.
enum { WORKER_SOCKET = 3, WORKER_STREAM = 4, WORKER_MODEL = 5, WORKER_RING_IN = 6, WORKER_RING_OUT = 7 };

// Exit status of the process: 0 after an answer or the end of a socket, 1 on failure, 2 on bad usage, and these of a
// session's or an instance's worker; the last line on standard error says more.
enum { WORKER_DEVICE_LOST = 3, WORKER_TIMED_OUT = 4 };
int worker_main(int argc, char **argv);
