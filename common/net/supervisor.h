/* Talks to the service manager that started this process, if there is one: says when
 * the process is ready, when it stops, and regularly that the event loop still turns.
 * The protocol is systemd's: text datagrams to the Unix socket in NOTIFY_SOCKET, with
 * the watchdog's limit in WATCHDOG_USEC. Both are removed from the environment, so
 * that no child speaks for this process. Without them nothing is sent. Thread: the
 * loop's. */
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
