/* `exogpu ticket`: make, list and revoke tickets, with which nodes join. On a terminal a new one is shown in the line
 * that is to be typed on the other machine; into a pipe goes its text alone. */
#include "common/base/clock.h"
#include "server/cli/commands/commands.h"
#include "server/cli/format.h"
#include "server/cli/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum status read_create(const struct cli_arguments *arguments, struct json *params, struct error *error)
{
	char *end;
	int64_t seconds;
	if (arguments->expires) {
		struct error why = {0};
		enum status status = parse_duration(arguments->expires, &seconds, &why);
		if (!status && seconds > 30 * 24 * 3600)
			status = error_set(&why, STATUS_INVALID_PARAMS, "a ticket lasts 30d at most");
		if (status) {
			error_set(error, status, "--expires: %s", why.message);
			error_hint(error, "%s", why.hint[0] ? why.hint : "10m, 24h, 30d");
			return status;
		}
		json_set_integer(params, "expires_in_s", seconds);
	}
	if (arguments->uses) {
		errno = 0;
		long uses = strtol(arguments->uses, &end, 10);
		if (*end || errno || uses < 1 || uses > 1000)
			return error_set(error, STATUS_INVALID_PARAMS, "--uses takes a whole number from 1 to 1000");
		json_set_integer(params, "uses", uses);
	}
	return STATUS_OK;
}

static int print_created(const struct json *created, struct error *error)
{
	char text[FORMAT_BYTES];
	int64_t expires_ms = -1, uses = json_get_integer(created, "uses", 1);
	const char *ticket_id = json_get_string(created, "ticket_id", "");
	const char *address = json_get_string(created, "address", NULL),
		   *ticket = json_get_string(created, "ticket", "");
	const bool terminal = isatty(STDOUT_FILENO);
	if (terminal)
		command_say(stdout, "exogpu node --join %s --ticket %s", address ? address : "HOST:PORT", ticket);
	else
		command_print_text(stdout, "", ticket);
	if (ferror(stdout) || fflush(stdout)) {
		error_errno(error, STATUS_UNAVAILABLE, errno, "ticket %s was made, but could not be written",
			    ticket_id);
		error_hint(error, "it cannot be shown again: exogpu ticket revoke %s", ticket_id);
		return 1;
	}
	clock_parse(json_get_string(created, "expires_at", ""), &expires_ms);
	command_say(stderr, "ticket %s: for %lld node%s; expires %s", ticket_id, (long long)uses, uses == 1 ? "" : "s",
		    format_time(expires_ms, text));
	if (!address)
		fprintf(stderr, "  Only this machine reaches this server now: start it with --lan first.\n");
	else if (!terminal)
		command_say(stderr, "  On the other machine: exogpu node --join %s --ticket TICKET", address);
	return 0;
}

static int run_create(const struct cli_arguments *arguments, struct error *error)
{
	struct json *params = json_new_object(), *created = NULL;
	if (read_create(arguments, params, error)) {
		json_destroy(&params);
		return 2;
	}
	int result = command_call(arguments, "node.ticket", params, &created, error);
	if (created)
		result = print_created(created, error);
	json_destroy(&created);
	return result;
}

static const struct table_column columns[] = {
	{.title = "ID"},
	{.title = "MADE BY", .narrowest = 8, .leave_out = 2},
	{.title = "USED", .right = true},
	{.title = "CREATED", .leave_out = 1},
	{.title = "EXPIRES", .leave_out = 3},
	{.title = "STATE"},
};

static int64_t time_of(const struct json *ticket, const char *name)
{
	int64_t at;
	return clock_parse(json_get_string(ticket, name, ""), &at) ? -1 : at;
}

static void add_ticket(struct table *table, const struct json *ticket)
{
	char text[FORMAT_BYTES];
	int64_t used = json_get_integer(ticket, "used", 0), uses = json_get_integer(ticket, "uses", 0);
	table_add(table, TONE_PLAIN, "%s", json_get_string(ticket, "ticket_id", ""));
	table_add(table, TONE_PLAIN, "%s", json_get_string(ticket, "made_by", ""));
	table_add(table, TONE_PLAIN, "%lld of %lld", (long long)used, (long long)uses);
	table_add(table, TONE_PLAIN, "%s", format_time(time_of(ticket, "created_at"), text));
	table_add(table, TONE_PLAIN, "%s", format_time(time_of(ticket, "expires_at"), text));
	if (json_get_string(ticket, "revoked_at", "")[0])
		table_add(table, TONE_BAD, "revoked");
	else if (time_of(ticket, "expires_at") <= clock_wall_ms())
		table_add(table, TONE_FAINT, "expired");
	else
		table_add(table, used < uses ? TONE_GOOD : TONE_FAINT, used < uses ? "good" : "used up");
}

static int run_list(const struct cli_arguments *arguments, struct error *error)
{
	const struct command_list list = {.method = "ticket.list",
					  .member = "tickets",
					  .columns = columns,
					  .column_count = sizeof columns / sizeof *columns,
					  .add = add_ticket,
					  .nothing = "No tickets. exogpu ticket create makes one."};
	return command_list(arguments, &list, error);
}

static int run_revoke(const struct cli_arguments *arguments, struct error *error)
{
	struct json *params, *answer = NULL;
	if (!strncmp(arguments->operand, "exojoin_", 8) || strlen(arguments->operand) > 64) {
		error_set(error, STATUS_INVALID_PARAMS, "a ticket is revoked by its id, not by its text");
		error_hint(error, "the id is the part between the first two underscores; exogpu ticket list shows all");
		return 2;
	}
	params = json_new_object();
	json_set_string(params, "ticket_id", arguments->operand);
	int result = command_call(arguments, "ticket.revoke", params, &answer, error);
	if (error->status == STATUS_NOT_FOUND)
		error_hint(error, "see: exogpu ticket list");
	if (answer)
		command_print_text(stdout, "revoked ", json_get_string(answer, "ticket_id", ""));
	json_destroy(&answer);
	return result;
}

static const struct flag create_flags[] = {
	{"expires", "SPAN", "how long it lasts: 600s, 10m, 24h, 30d (default 1h, 30d at most)",
	 offsetof(struct cli_arguments, expires)},
	{"uses", "N", "how many nodes may join with it, 1 to 1000 (default 1)", offsetof(struct cli_arguments, uses)},
	{0},
};

const struct cli_command ticket_create_command = {
	.name = "ticket create",
	.summary = "make a ticket with which a node joins at once",
	.more = "On a terminal it prints the line to type on the other machine; into a pipe the ticket alone, the "
		"rest\n"
		"to standard error:\n"
		"  TICKET=$(exogpu ticket create --uses 8 --expires 24h)\n",
	.flags = create_flags,
	.run = run_create,
};
const struct cli_command ticket_list_command = {
	.name = "ticket list",
	.summary = "list tickets, with those that ended recently",
	.run = run_list,
};
const struct cli_command ticket_revoke_command = {
	.name = "ticket revoke",
	.operand = "ID",
	.summary = "end a ticket; nodes that joined with it stay",
	.run = run_revoke,
};
