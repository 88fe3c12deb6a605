/* The flags of the client commands, as common/text/flags.h reads them: those that all have, and the members for those
 * that a command has of its own. Texts are owned by argv. Pure. Thread: any. */
#pragma once
#include "common/text/flags.h"

struct cli_arguments {
	const char *data, *url, *ca; // common
	bool json, help;
	bool wide;                                                                       // nodes
	bool print;                                                                      // open
	const char *listen;                                                              // discover
	const char *name, *scopes, *expires, *calls_per_s, *max_sessions, *memory_limit; // token create
	const char *uses;                                                                // ticket create
	const char *check;                                                               // lend policy
	const char *token_file;                                                          // model add
	const char *sha256;                                                              // model upload
	bool no_wait;
	const char *context, *sequences, *objective, *strategy, *chat_template, *gives_way, *least_format,
		*draft; // place
	bool preview;
	const char *system, *max_tokens, *seed, *form, *tools;                 // run
	const char *temperature, *top_k, *top_p, *min_p, *repetition_penalty;  // run, place
	const char *label;                                                     // alloc
	const char *actor, *action, *device, *outcome, *text, *limit, *before; // audit list
	bool follow;
	const char *from, *to, *format;                   // audit list, export
	const char *archives, *witness[FLAGS_MANY], *key; // audit verify
	const char *row[FLAGS_MANY];                      // state settle
	const char *threshold, *clear, *lasting;          // alerts rule; lasting: forecast
	const char *watts;                                // forecast
	bool memory;
	const char *margin, *resume, *actions;        // forecast policy
	const char *by, *step;                        // usage; step: history
	const char *severities, *quiet, *secret_file; // alerts channels add
	bool on, off;
	bool all;
	const char *operand, *second; // token revoke ID; alloc DEVICE SIZE; alloc free ID; bench device [DEVICE]
};

extern const struct flag arguments_common[]; // ends with a NULL name

// Read argv[0] to argv[argc - 1]. `own` (may be NULL) ends with a NULL name; `operands` is what the operands are
// called, NULL if there are none. Errors: flags_read's.
enum status arguments_parse(struct cli_arguments *arguments, const struct flag *own, const char *operands, int argc,
			    char **argv, struct error *error);
