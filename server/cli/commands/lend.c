/* `exogpu lend`: make, list and revoke addresses by which browser tabs join as nodes, and how much of what they compute
 * is checked. On a terminal a new address is shown with its QR code; into a pipe goes the address alone. */
#include "common/base/clock.h"
#include "common/text/qr.h"
#include "server/cli/commands/commands.h"
#include "server/cli/format.h"
#include "server/cli/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { QUIET_MODULES = 2 }; // light ones around the code; phones read it with two

static enum status read_create(const struct cli_arguments *arguments, struct json *params, struct error *error)
{
	char *end;
	int64_t seconds;
	json_set_string(params, "name", arguments->name ? arguments->name : "a browser");
	if (arguments->expires) {
		struct error why = {0};
		enum status status = parse_duration(arguments->expires, &seconds, &why);
		if (!status && seconds > 30 * 24 * 3600)
			status = error_set(&why, STATUS_INVALID_PARAMS, "an address lasts 30d at most");
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

// Two rows of modules in one line of characters. Light modules are drawn, in white on black whatever the terminal's
// colours are.
static void print_code(const char *url)
{
	static struct qr qr;
	if (qr_make(&qr, url, -1))
		return;
	const int size = (int)qr.size, from = -QUIET_MODULES, to = size + QUIET_MODULES;
	for (int y = from; y < to; y += 2) {
		printf("\033[97;40m");
		for (int x = from; x < to; x++) {
			const bool inside = x >= 0 && x < size;
			const bool upper = !(inside && y >= 0 && y < size && qr.dark[y][x]);
			const bool lower = y + 1 < to && !(inside && y + 1 >= 0 && y + 1 < size && qr.dark[y + 1][x]);
			fputs(upper && lower ? "\u2588" : upper ? "\u2580" : lower ? "\u2584" : " ", stdout);
		}
		printf("\033[0m\n");
	}
}

static void print_advice(const struct json *created)
{
	const char *fingerprint = json_get_string(created, "fingerprint", NULL);
	const bool reachable = json_get_bool(created, "reachable", false);
	if (!reachable)
		fprintf(stderr,
			"  Only browsers on this machine reach it now: start the server with --lan for others.\n");
	else if (fingerprint)
		fprintf(stderr,
			"  A device that does not know this cluster warns of its certificate: install its authority "
			"there\n"
			"  first (/ca.pem at the same address, see docs/lend.md). Its fingerprint:\n");
	if (reachable && fingerprint)
		command_print_text(stderr, "  ", fingerprint);
}

static int print_created(const struct json *created, struct error *error)
{
	char text[FORMAT_BYTES];
	int64_t expires_ms = -1, uses = json_get_integer(created, "uses", 1);
	const char *lend_id = json_get_string(created, "lend_id", ""), *url = json_get_string(created, "url", "");
	if (isatty(STDOUT_FILENO))
		print_code(url);
	command_print_text(stdout, "", url);
	if (ferror(stdout) || fflush(stdout)) {
		error_errno(error, STATUS_UNAVAILABLE, errno, "address %s was made, but could not be written", lend_id);
		error_hint(error, "it cannot be shown again: exogpu lend revoke %s", lend_id);
		return 1;
	}
	clock_parse(json_get_string(created, "expires_at", ""), &expires_ms);
	command_say(stderr, "address %s: for %lld browser%s; expires %s", lend_id, (long long)uses,
		    uses == 1 ? "" : "s", format_time(expires_ms, text));
	print_advice(created);
	return 0;
}

static int run_create(const struct cli_arguments *arguments, struct error *error)
{
	struct json *params = json_new_object(), *created = NULL;
	if (read_create(arguments, params, error)) {
		json_destroy(&params);
		return 2;
	}
	int result = command_call(arguments, "lend.create", params, &created, error);
	if (created)
		result = print_created(created, error);
	json_destroy(&created);
	return result;
}

static const struct table_column columns[] = {
	{.title = "ID"},
	{.title = "NAME", .narrowest = 8, .leave_out = 4},
	{.title = "MADE BY", .narrowest = 8, .leave_out = 2},
	{.title = "USED", .right = true},
	{.title = "JOINED", .right = true},
	{.title = "CREATED", .leave_out = 1},
	{.title = "EXPIRES", .leave_out = 3},
	{.title = "STATE"},
};

static int64_t time_of(const struct json *lend, const char *name)
{
	int64_t at;
	return clock_parse(json_get_string(lend, name, ""), &at) ? -1 : at;
}

static void add_lend(struct table *table, const struct json *lend)
{
	char text[FORMAT_BYTES];
	int64_t used = json_get_integer(lend, "used", 0), uses = json_get_integer(lend, "uses", 0);
	table_add(table, TONE_PLAIN, "%s", json_get_string(lend, "lend_id", ""));
	table_add(table, TONE_PLAIN, "%s", json_get_string(lend, "name", ""));
	table_add(table, TONE_PLAIN, "%s", json_get_string(lend, "made_by", ""));
	table_add(table, TONE_PLAIN, "%lld of %lld", (long long)used, (long long)uses);
	table_add(table, TONE_PLAIN, "%zu", json_count(json_get(lend, "node_ids")));
	table_add(table, TONE_PLAIN, "%s", format_time(time_of(lend, "created_at"), text));
	table_add(table, TONE_PLAIN, "%s", format_time(time_of(lend, "expires_at"), text));
	if (json_get_string(lend, "revoked_at", "")[0])
		table_add(table, TONE_BAD, "revoked");
	else if (time_of(lend, "expires_at") <= clock_wall_ms())
		table_add(table, TONE_FAINT, "expired");
	else
		table_add(table, used < uses ? TONE_GOOD : TONE_FAINT, used < uses ? "good" : "used up");
}

static int run_list(const struct cli_arguments *arguments, struct error *error)
{
	const struct command_list list = {.method = "lend.list",
					  .member = "lends",
					  .columns = columns,
					  .column_count = sizeof columns / sizeof *columns,
					  .add = add_lend,
					  .nothing = "No addresses for browsers. exogpu lend makes one."};
	return command_list(arguments, &list, error);
}

static int run_revoke(const struct cli_arguments *arguments, struct error *error)
{
	struct json *params, *answer = NULL;
	if (!strncmp(arguments->operand, "exolend_", 8) || strlen(arguments->operand) > 64) {
		error_set(error, STATUS_INVALID_PARAMS, "an address is revoked by its id, not by its token");
		error_hint(error, "the id is the part between the first two underscores; exogpu lend list shows all");
		return 2;
	}
	params = json_new_object();
	json_set_string(params, "lend_id", arguments->operand);
	int result = command_call(arguments, "lend.revoke", params, &answer, error);
	if (error->status == STATUS_NOT_FOUND)
		error_hint(error, "see: exogpu lend list");
	if (answer) {
		const int64_t tabs = json_get_integer(answer, "tabs", 0);
		command_print_text(stdout, "revoked ", json_get_string(answer, "lend_id", ""));
		if (tabs)
			fprintf(stderr, "%lld browser tab%s that had joined with it %s ended\n", (long long)tabs,
				tabs == 1 ? "" : "s", tabs == 1 ? "was" : "were");
	}
	json_destroy(&answer);
	return result;
}

static int run_policy(const struct cli_arguments *arguments, struct error *error)
{
	char *end = NULL;
	struct json *params = json_new_object(), *policy = NULL;
	const double percent = arguments->check ? strtod(arguments->check, &end) : 0;
	if (arguments->check && (end == arguments->check || *end || !(percent >= 0 && percent <= 100))) {
		json_destroy(&params);
		error_set(error, STATUS_INVALID_PARAMS, "--check takes a percentage from 0 to 100");
		return 2;
	}
	if (arguments->check)
		json_set_number(params, "check_percent", percent);
	int result = command_call(arguments, arguments->check ? "lend.policy_set" : "lend.policy", params, &policy,
				  error);
	if (policy) {
		const double now = json_get_number(policy, "check_percent", 0);
		if (now > 0)
			printf("%g %% of the requests that browsers have layers for are checked, and the first after "
			       "each load\n",
			       now);
		else
			printf("what browsers compute is not checked\n");
	}
	json_destroy(&policy);
	return result;
}

static const struct flag create_flags[] = {
	{"name", "NAME", "what it is for, shown in lists (default: a browser)", offsetof(struct cli_arguments, name)},
	{"expires", "SPAN", "how long it lasts: 600s, 10m, 24h, 30d (default 1h, 30d at most)",
	 offsetof(struct cli_arguments, expires)},
	{"uses", "N", "how many browsers may join with it, 1 to 1000 (default 1)",
	 offsetof(struct cli_arguments, uses)},
	{0},
};

const struct cli_command lend_command = {
	.name = "lend",
	.summary = "make an address by which a phone's or laptop's browser lends its GPU",
	.more = "On a terminal it prints the address and its QR code; into a pipe the address alone, the rest to\n"
		"standard error. Whoever opens it is asked first. A browser that has joined stays until it leaves,\n"
		"until its node is removed, or until the address is revoked.\n",
	.flags = create_flags,
	.run = run_create,
};
const struct cli_command lend_list_command = {
	.name = "lend list",
	.summary = "list these addresses, and how many browsers joined with each",
	.run = run_list,
};
static const struct flag policy_flags[] = {
	{"check", "PERCENT", "check so many of the requests, 0 to 100; 0: none", offsetof(struct cli_arguments, check)},
	{0},
};

const struct cli_command lend_policy_command = {
	.name = "lend policy",
	.summary = "show or set how much of what browsers compute is checked",
	.more = "Of a request that is checked, a trusted device computes the browsers' layers a second time.\n",
	.flags = policy_flags,
	.run = run_policy,
};
const struct cli_command lend_revoke_command = {
	.name = "lend revoke",
	.operand = "ID",
	.summary = "end an address, and every browser that joined with it",
	.run = run_revoke,
};
