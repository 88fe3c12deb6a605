/* The service manager that started this process, where there is one: it is told when the process is ready, when it
 * stops, and, as often as it asks for, that the event loop still turns.
 *
 * The protocol is systemd's: datagrams of text to the Unix socket that NOTIFY_SOCKET names, the watchdog's limit in
 * WATCHDOG_USEC. Both are taken out of the environment, so that no child speaks for this process. Without them all of
 * this does nothing. Thread: the loop's. */
#pragma once
#include "common/net/loop.h"

struct supervisor {
	struct net_loop *loop;
	int fd;           // -1: nobody is told anything
	int64_t pause_ms; // between two signs of life; 0: none are wanted
	struct net_timer timer;
};

// Before other threads are started, since it changes the environment. What fails is logged: the process runs on, and
// the manager finds it late.
void supervisor_init(struct supervisor *supervisor, struct net_loop *loop);
void supervisor_finish(struct supervisor *supervisor);
void supervisor_ready(struct supervisor *supervisor);
void supervisor_stopping(struct supervisor *supervisor);
