/* A node's folder, which one node at a time serves. Thread: the process's first, before it has others. */
#pragma once
#include "common/base/status.h"

#include <signal.h>

// Create the folder and its parents, for this user alone. path: at most 4,095 bytes. Errors: STATUS_UNAVAILABLE with a
// hint.
enum status folder_make(const char *path, struct error *error);
struct folder_lock_params {
	const char *folder;
	const sigset_t *ends; // blocked signals that end the wait, SIGTERM among them
	int parent;           // the wait also ends when this process ends; 0: none
};
// Lock the folder. The node of a server that crashed serves for another 30 s, for the next server; that server's node
// waits here meanwhile, but no longer than its server lives, so at most one node waits. The lock is held until *lock, a
// descriptor, is closed; -1 if there is no lock. Errors: STATUS_UNAVAILABLE; STATUS_CONFLICT without a message if the
// node is told to stop while it waits, or the parent is gone.
enum status folder_lock(const struct folder_lock_params *params, int *lock, struct error *error);
