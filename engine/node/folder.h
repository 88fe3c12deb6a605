/* A node's folder, which one node at a time serves. Thread: the process's first, before it has others. */
#pragma once
#include "common/base/status.h"

#include <signal.h>

// With its parents, for this user alone. path: at most 4,095 bytes. Errors: STATUS_UNAVAILABLE with a hint.
enum status folder_make(const char *path, struct error *error);
// A node whose server crashed serves on for 30 s, for the server's successor: that one's node waits here meanwhile. The
// lock is held until *lock, a descriptor, is closed; -1 where there is none. `ends`: blocked signals that end the wait.
// Errors: STATUS_UNAVAILABLE; STATUS_CONFLICT without a message when told to stop while waiting.
enum status folder_lock(const char *folder, const sigset_t *ends, int *lock, struct error *error);
