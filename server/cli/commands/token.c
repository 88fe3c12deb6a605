/* `exogpu token`: make, list and revoke tokens. A new token's text goes to standard output alone, so that it can be
 * piped; what belongs to it goes to standard error. Which scopes there are is read from the contract. */
#include "common/base/clock.h"
#include "common/wire/contract.h"
#include "server/cli/commands/commands.h"
#include "server/cli/format.h"
#include "server/cli/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool has_scope(const struct json *known, const char *scope, size_t length)
{
	for (const struct json *one = json_first(known); one; one = json_next(one)) {
		const char *name = json_string(one, "");
		if (strlen(name) == length && !memcmp(name, scope, length))
			return true;
	}
	return false;
}

static enum status unknown_scope(const struct json *known, const char *scope, size_t length, struct error *error)
{
	char list[200] = "";
	for (const struct json *one = json_first(known); one; one = json_next(one)) {
		size_t used = strlen(list);
		snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", json_string(one, ""));
	}
	error_set(error, STATUS_INVALID_PARAMS, "there is no scope \"%.*s\"", length > 40 ? 40 : (int)length, scope);
	error_hint(error, "the scopes are %s", list);
	return STATUS_INVALID_PARAMS;
}

// "a,b" as an array. Errors: STATUS_INVALID_PARAMS.
static enum status parse_scopes(const char *text, struct json **out, struct error *error)
{
	size_t length;
	struct json *contract = NULL, *scopes = json_new_array();
	const char *document = contract_text(CONTRACT_API, &length);
	enum status status = json_parse(&contract, document, length, error);
	const struct json *schemas = json_get(json_get(contract, "components"), "schemas");
	const struct json *known = json_get(json_get(schemas, "Scope"), "enum");
	for (const char *scope = text; !status;) {
		char name[32];
		const char *comma = scope + strcspn(scope, ",");
		while (*scope == ' ' || *scope == '\t')
			scope++;
		for (length = (size_t)(comma - scope); length && strchr(" \t", scope[length - 1]);)
			length--;
		if (!length) {
			status = error_set(error, STATUS_INVALID_PARAMS, "--scopes has an empty scope between commas");
			break;
		}
		if (!has_scope(known, scope, length)) {
			status = unknown_scope(known, scope, length, error);
			break;
		}
		snprintf(name, sizeof name, "%.*s", (int)length, scope);
		json_push(scopes, json_new_string(name));
		if (!*comma)
			break;
		scope = comma + 1;
	}
	json_destroy(&contract);
	if (status)
		json_destroy(&scopes);
	*out = scopes;
	return status;
}

static enum status missing(struct error *error, const char *flag)
{
	error_set(error, STATUS_INVALID_PARAMS, "%s is missing", flag);
	error_hint(error, "see: exogpu token create --name NAME --scopes observe");
	return STATUS_INVALID_PARAMS;
}

static enum status parse_limits(const struct cli_arguments *arguments, struct json *params, struct error *error)
{
	char *end;
	int64_t seconds;
	errno = 0;
	if (arguments->expires) {
		struct error why = {0};
		enum status status = parse_duration(arguments->expires, &seconds, &why);
		if (status) {
			error_set(error, status, "--expires: %s", why.message);
			error_hint(error, "%s", why.hint[0] ? why.hint : "at least 1s, at most 3650d: 90m, 24h, 30d");
			return status;
		}
		json_set_integer(params, "expires_in_s", seconds);
	}
	if (arguments->calls_per_s) {
		double calls = strtod(arguments->calls_per_s, &end);
		if (*end || errno || !(calls >= 0.1 && calls <= 100000))
			return error_set(error, STATUS_INVALID_PARAMS,
					 "--calls-per-s takes a number from 0.1 to 100000");
		json_set_number(params, "calls_per_s", calls);
	}
	if (arguments->memory_limit) {
		struct error why = {0};
		int64_t bytes;
		enum status status = parse_size(arguments->memory_limit, &bytes, &why);
		if (status) {
			error_set(error, status, "--memory-limit: %s", why.message);
			error_hint(error, "%s", why.hint);
			return status;
		}
		json_set_integer(params, "memory_limit_bytes", bytes);
	}
	if (arguments->max_sessions) {
		long sessions = strtol(arguments->max_sessions, &end, 10);
		if (*end || errno || sessions < 1 || sessions > 10000)
			return error_set(error, STATUS_INVALID_PARAMS,
					 "--max-sessions takes a whole number from 1 to 10000");
		json_set_integer(params, "max_sessions", sessions);
	}
	return STATUS_OK;
}

static enum status read_create(const struct cli_arguments *arguments, struct json *params, struct error *error)
{
	struct json *scopes = NULL;
	if (!arguments->name)
		return missing(error, "--name NAME");
	if (!arguments->scopes)
		return missing(error, "--scopes LIST");
	if (text_width(arguments->name) > 64 || !json_utf8(arguments->name, strlen(arguments->name)))
		return error_set(error, STATUS_INVALID_PARAMS, "--name takes 1 to 64 characters of UTF-8");
	enum status status = parse_scopes(arguments->scopes, &scopes, error);
	if (status)
		return status;
	json_set_string(params, "name", arguments->name);
	json_set(params, "scopes", scopes);
	return parse_limits(arguments, params, error);
}

// Standard output holds the token and nothing else.
static int print_created(const struct cli_arguments *arguments, const struct json *created, struct error *error)
{
	char text[FORMAT_BYTES];
	int64_t expires_ms = -1;
	const char *token_id = json_get_string(created, "token_id", "");
	clock_parse(json_get_string(created, "expires_at", ""), &expires_ms);
	command_print_text(stdout, "", json_get_string(created, "token", ""));
	if (ferror(stdout) || fflush(stdout)) {
		error_errno(error, STATUS_UNAVAILABLE, errno, "token %s was made, but could not be written", token_id);
		error_hint(error, "it cannot be shown again: exogpu token revoke %s", token_id);
		return 1;
	}
	command_say(stderr, "token %s: scopes %s; expires %s", token_id, arguments->scopes,
		    format_time(expires_ms, text));
	command_say(stderr, "  Keep it now: it cannot be shown again.");
	return 0;
}

static int run_create(const struct cli_arguments *arguments, struct error *error)
{
	struct json *params = json_new_object(), *created = NULL;
	if (read_create(arguments, params, error)) {
		json_destroy(&params);
		return 2;
	}
	int result = command_call(arguments, "token.create", params, &created, error);
	if (created)
		result = print_created(arguments, created, error);
	json_destroy(&created);
	return result;
}

static const struct table_column columns[] = {
	{.title = "ID"},
	{.title = "NAME", .narrowest = 8},
	{.title = "SCOPES", .narrowest = 12},
	{.title = "CREATED", .leave_out = 1},
	{.title = "EXPIRES", .leave_out = 3},
	{.title = "LAST USED", .leave_out = 2},
	{.title = "MEMORY", .right = true, .leave_out = 4},
	{.title = "STATE"},
};

static void add_time(struct table *table, const struct json *token, const char *name)
{
	char text[FORMAT_BYTES];
	int64_t at = -1;
	if (clock_parse(json_get_string(token, name, ""), &at))
		at = -1;
	table_add(table, TONE_PLAIN, "%s", format_time(at, text));
}

static void add_token(struct table *table, const struct json *token)
{
	char list[200] = "", age[FORMAT_BYTES], memory[FORMAT_BYTES];
	for (const struct json *one = json_first(json_get(token, "scopes")); one; one = json_next(one)) {
		size_t used = strlen(list);
		snprintf(list + used, sizeof list - used, "%s%s", used ? "," : "", json_string(one, ""));
	}
	int64_t used = command_age_ms(token, "last_used_at"), expires = -1;
	bool expired = !clock_parse(json_get_string(token, "expires_at", ""), &expires) && expires <= clock_wall_ms();
	table_add(table, TONE_PLAIN, "%s", json_get_string(token, "token_id", ""));
	table_add(table, TONE_PLAIN, "%s", json_get_string(token, "name", ""));
	table_add(table, TONE_PLAIN, "%s", list);
	add_time(table, token, "created_at");
	add_time(table, token, "expires_at");
	if (used < 0)
		table_add(table, TONE_PLAIN, "never");
	else
		table_add(table, TONE_PLAIN, "%s ago", format_age(used, age));
	table_add(table, TONE_PLAIN, "%s",
		  format_memory_of(json_get_integer(token, "memory_bytes", -1),
				   json_get_integer(token, "memory_limit_bytes", -1), memory));
	if (json_get_string(token, "revoked_at", "")[0])
		table_add(table, TONE_BAD, "revoked");
	else
		table_add(table, expired ? TONE_FAINT : TONE_GOOD, expired ? "expired" : "active");
}

static int run_list(const struct cli_arguments *arguments, struct error *error)
{
	const struct command_list list = {
		.method = "token.list",
		.member = "tokens",
		.columns = columns,
		.column_count = sizeof columns / sizeof *columns,
		.add = add_token,
		.nothing = "No tokens. exogpu token create --name NAME --scopes observe makes one."};
	return command_list(arguments, &list, error);
}

// The named one, and in a second line those that ended with it.
static void print_revoked(const struct json *answer)
{
	const char *token_id = json_get_string(answer, "token_id", "");
	const struct json *revoked = json_get(answer, "revoked");
	size_t more = 0;
	command_print_text(stdout, "revoked ", token_id);
	for (const struct json *one = json_first(revoked); one; one = json_next(one))
		more += strcmp(json_string(one, ""), token_id) != 0;
	if (!more)
		return;
	printf("and %zu token%s made with it: ", more, more == 1 ? "" : "s");
	for (const struct json *one = json_first(revoked); one; one = json_next(one)) {
		char text[80];
		if (!strcmp(json_string(one, ""), token_id))
			continue;
		snprintf(text, sizeof text, "%s", json_string(one, ""));
		text_clean(text);
		printf("%s%s", text, --more ? ", " : "\n");
	}
}

static int run_revoke(const struct cli_arguments *arguments, struct error *error)
{
	struct json *params, *answer = NULL;
	const char *id = arguments->operand;
	if (!strncmp(id, "exo_", 4) || strlen(id) > 64) {
		error_set(error, STATUS_INVALID_PARAMS, "a token is revoked by its id, not by its text");
		error_hint(error, "the id is the part between the first two underscores; exogpu token list shows all");
		return 2;
	}
	params = json_new_object();
	json_set_string(params, "token_id", id);
	int result = command_call(arguments, "token.revoke", params, &answer, error);
	if (error->status == STATUS_NOT_FOUND)
		error_hint(error, "see: exogpu token list");
	if (answer)
		print_revoked(answer);
	json_destroy(&answer);
	return result;
}

static const struct flag create_flags[] = {
	{"name", "NAME", "what it is for, 1 to 64 characters", offsetof(struct cli_arguments, name)},
	{"scopes", "LIST", "what it may do: admin, observe, allocate, compute, infer, join; with commas",
	 offsetof(struct cli_arguments, scopes)},
	{"expires", "SPAN", "how long it lasts: 3600s, 90m, 24h, 30d, 2w (default 90d, with admin 30d)",
	 offsetof(struct cli_arguments, expires)},
	{"calls-per-s", "X", "how many calls a second it may make, 0.1 to 100000 (default: no own limit)",
	 offsetof(struct cli_arguments, calls_per_s)},
	{"max-sessions", "N", "how many sessions it may have open, 1 to 10000 (default: no own limit)",
	 offsetof(struct cli_arguments, max_sessions)},
	{"memory-limit", "SIZE",
	 "how much memory it may hold at once, on all devices: 512MiB, 4GiB (default: no limit)",
	 offsetof(struct cli_arguments, memory_limit)},
	{0},
};

const struct cli_command token_create_command = {
	.name = "token create",
	.summary = "make a token; it is shown only once",
	.more = "The token alone goes to standard output, the rest to standard error:\n"
		"  TOKEN=$(exogpu token create --name ci --scopes observe --expires 24h)\n",
	.flags = create_flags,
	.run = run_create,
};
const struct cli_command token_list_command = {
	.name = "token list",
	.summary = "list all tokens, with those that have ended",
	.run = run_list,
};
const struct cli_command token_revoke_command = {
	.name = "token revoke",
	.operand = "ID",
	.summary = "end a token and every token made with it",
	.run = run_revoke,
};
