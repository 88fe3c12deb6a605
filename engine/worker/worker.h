/* The worker process: the only one that touches a driver.
 *
 * `exogpu worker --parent PID` speaks the node-to-worker methods of schema/node.json over the socket on descriptor 3:
 * one request, one answer, then it ends; it also ends when the socket does or its node dies. It answers from one
 * thread: a driver that hangs is ended by the node's deadline, from outside.
 * Faults for tests: see fault.h. */
#pragma once

enum { WORKER_SOCKET = 3 };

// Exit status of the process: 0 after an answer or the end of the socket, 1 on failure, 2 on bad usage.
int worker_main(int argc, char **argv);
