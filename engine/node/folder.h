/* A node's folder, which one node at a time serves. Thread: the process's first, before it has others. */
#pragma once
#include "common/base/status.h"

#include <signal.h>

// With its parents, for this user alone. path: at most 4,095 bytes. Errors: STATUS_UNAVAILABLE with a hint.
enum status folder_make(const char *path, struct error *error);
struct folder_lock_params {
	const char *folder;
	const sigset_t *ends; // blocked signals that end the wait, SIGTERM among them
	int parent;           // the process whose end ends the wait, too; 0: nobody's
};
// A node whose server crashed serves on for 30 s, for the server's successor: that one's node waits here meanwhile, and
// no longer than that server lives, so there is one that waits at most. The lock is held until *lock, a descriptor, is
// closed; -1 where there is none. Errors: STATUS_UNAVAILABLE; STATUS_CONFLICT without a message when told to stop while
// waiting, or when the parent is gone.
enum status folder_lock(const struct folder_lock_params *params, int *lock, struct error *error);
