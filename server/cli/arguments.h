/* The flags of the client commands, as common/base/flags.h reads them: those that all have, and the members for those
 * that a command has of its own. Texts are owned by argv. Pure. Thread: any. */
#pragma once
#include "common/base/flags.h"

struct cli_arguments {
	const char *data, *url; // common
	bool json, help;
	bool wide;                                                                       // nodes
	const char *name, *scopes, *expires, *calls_per_s, *max_sessions, *memory_limit; // token create
	const char *operand;                                                             // token revoke
};

extern const struct flag arguments_common[]; // ends with a NULL name

// Read argv[0] to argv[argc - 1]. `own` (may be NULL) ends with a NULL name; `operand` is what the operand is called,
// NULL if there is none. Errors: flags_read's.
enum status arguments_parse(struct cli_arguments *arguments, const struct flag *own, const char *operand, int argc,
			    char **argv, struct error *error);
