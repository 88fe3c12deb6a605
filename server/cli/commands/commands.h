/* The client commands, one file a noun, and what they share.
 *
 * A command gets its arguments read and prints an answer; cli.c prints its errors. Thread: the process's only one. */
#pragma once
#include "common/json/json.h"
#include "server/cli/arguments.h"
#include "server/cli/client.h"
#include "server/cli/table.h"

#include <stdio.h>

struct cli_command {
	const char *name;         // "token create"
	const char *operand;      // what its operands are called, as struct flags has them; NULL: it takes none
	const char *summary;      // one line, for the list of commands
	const char *more;         // paragraphs for its own help, each line with its end; NULL: none
	const struct flag *flags; // its own, ending with a NULL name; NULL: none
	// Exit status of the process: 0 done, 1 failed, 2 bad usage; with *error unless 0.
	int (*run)(const struct cli_arguments *arguments, struct error *error);
};
extern const struct cli_command devices_command, devices_drain_command, devices_return_command, nodes_command,
	topology_command, discover_command, nodes_approve_command, nodes_refuse_command, nodes_remove_command,
	ticket_create_command, ticket_list_command, ticket_revoke_command, token_create_command, token_list_command,
	token_revoke_command, alloc_command, alloc_list_command, alloc_free_command, model_add_command,
	model_upload_command, model_list_command, model_remove_command, model_search_command, model_catalog_command,
	model_browse_command, bench_device_command, health_command, history_command, log_command, audit_list_command,
	audit_verify_command, audit_export_command, place_command, instances_command, move_command, stop_command,
	run_model_command, state_settle_command, store_copy_command, alerts_command, alerts_ack_command,
	alerts_rules_command, alerts_rule_command, forecast_command, forecast_policy_command, usage_command,
	alerts_channels_command, alerts_channels_add_command, alerts_channels_test_command,
	alerts_channels_remove_command, mcp_command, lend_command, lend_list_command, lend_revoke_command,
	lend_policy_command, open_command, conversations_list_command, conversations_export_command,
	conversations_delete_command;

// Call a method of the server that the arguments name; `params` is taken, may be NULL. With --json the result is
// printed and *result stays NULL. Returns an exit status: 2 for an address or directory that cannot be one, 1 for
// whatever else failed.
int command_call(const struct cli_arguments *arguments, const char *method, struct json *params, struct json **result,
		 struct error *error);
// Ask for a list and print it as a table, a row for each member; `nothing` is said where there is none. Returns an exit
// status.
struct command_list {
	const char *method, *member; // "token.list", "tokens"
	const struct table_column *columns;
	size_t column_count;
	void (*add)(struct table *table, const struct json *row);
	// For each, what is printed below the table; may be NULL.
	void (*below)(const struct json *row, const struct json *answer);
	const char *nothing;
};
int command_list(const struct cli_arguments *arguments, const struct command_list *list, struct error *error);
// Connect to the server that the arguments name. `target` outlives the client. Returns an exit status.
int command_open(const struct cli_arguments *arguments, struct target *target, struct client **client,
		 struct error *error);
// Print an answer as one line of JSON. What a terminal would obey is escaped. Errors: STATUS_LIMIT_EXCEEDED.
enum status command_print_json(const struct json *result, struct error *error);
// The same of JSON that is printed already.
void command_put_json(FILE *out, const char *text);
// The device that `text` means: its id, its name, or the beginning of either if no other device has it, whatever the
// case of letters. *devices is the answer to be destroyed; *device points into it. Where the token may not list
// devices, text is taken for an id and *device is NULL.
// Errors: STATUS_NOT_FOUND, STATUS_CONFLICT (several), with the names that there are; the call's own.
enum status command_device(struct client *client, const char *text, struct json **devices, const struct json **device,
			   struct error *error);
// The member of `list` whose `key` is `id`; NULL if there is none. `from` (the result of the last search, or NULL) is
// where it looks first: lists mostly come in the same order.
const struct json *command_find(const struct json *list, const char *key, const char *id, const struct json *from);
enum { COMMAND_NODE_LABEL_BYTES = 136, COMMAND_LABEL_BYTES = 256 };
// How a node is called: its name, with its id where another has the same. One that is not among `nodes` goes by its id.
// Returns text.
const char *command_node_label(const struct json *nodes, const char *node_id, char text[COMMAND_NODE_LABEL_BYTES]);
// How a device is called: its name, with its number among those of its node that have the same, as the server and the
// dashboard count them, and its node's where there are several. One that is not in the snapshot (cluster.snapshot) goes
// by its id. Returns text.
const char *command_device_label(const struct json *snapshot, const char *device_id, char text[COMMAND_LABEL_BYTES]);
// Milliseconds since the wall time in object's member `name`; -1 if it has none.
int64_t command_age_ms(const struct json *object, const char *name);
// Print two texts from the server as a line: control characters replaced, nothing blank at its end.
void command_print_text(FILE *out, const char *before, const char *text);
// The same of a format, whose line is what may be too long and is cut.
void command_say(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
