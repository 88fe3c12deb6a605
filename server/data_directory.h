/* The data directory: made, checked and locked, before anything is opened in it. Thread: before any other. */
#pragma once
#include "common/base/status.h"

// Makes `path` (mode 0700) and takes its lock; *lock is a file to keep open while the server runs.
// Errors: STATUS_CONFLICT (another server runs on it), STATUS_FORBIDDEN (not writable, or another user's), with hints.
enum status data_directory_open(const char *path, int *lock, struct error *error);
