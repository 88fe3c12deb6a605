/* The data directory and the names of the files in it. The data directory is the one
 * of --data, else $EXOGPU_DATA, else $XDG_DATA_HOME/exogpu, else
 * ~/.local/share/exogpu. Server, node and client commands must agree on it, so only
 * this file decides. Nothing here touches the disk. Thread: any, as long as nobody
 * changes the environment. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>

#define PATHS_SOCKET_NAME "exogpu.sock" // the Unix socket of the local node and the command line

// The data directory's absolute path without a slash at its end into path[size]; it need not exist. `flag` is what
// --data said, NULL or "" without it. An empty variable counts as unset, and so does a relative XDG_DATA_HOME.
// Errors: STATUS_INVALID_PARAMS (too long), STATUS_UNAVAILABLE (no home directory, no current directory); with hints.
enum status paths_data_directory(const char *flag, char *path, size_t size, struct error *error);
// directory/name into path[size]. Errors: STATUS_INVALID_PARAMS (too long).
enum status paths_join(const char *directory, const char *name, char *path, size_t size, struct error *error);
