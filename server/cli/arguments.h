/* What follows a command: --name VALUE, --name=VALUE, --switch, and at most one operand.
 *
 * A command lists its own flags; those that all client commands have stand in arguments_common. Values stay texts here,
 * owned by argv; each command reads its own. Pure. Thread: any. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>

struct cli_arguments {
	const char *data, *url; // common
	bool json, help;
	bool wide;                                                                       // nodes
	const char *name, *scopes, *expires, *calls_per_s, *max_sessions, *memory_limit; // token create
	const char *operand;                                                             // token revoke
};

struct cli_flag {
	const char *name;  // without its dashes
	const char *value; // what its value is called in the help; NULL: a switch
	const char *help;  // one line; NULL: not shown
	size_t offset;     // of its member in struct cli_arguments: const char *, bool for a switch
};
extern const struct cli_flag arguments_common[]; // ends with a NULL name

// Read argv[0] to argv[argc - 1]. `own` (may be NULL) ends with a NULL name; `operand` is what the operand is called,
// NULL if there is none. With --help the rest is not looked at, and an operand that is missing is no error.
// Errors: STATUS_INVALID_PARAMS, naming the flag and the nearest one known.
enum status arguments_parse(struct cli_arguments *arguments, const struct cli_flag *own, const char *operand, int argc,
			    char **argv, struct error *error);
