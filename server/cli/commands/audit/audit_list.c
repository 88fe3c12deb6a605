/* `exogpu audit list`: what was done, by whom. Every time the server's head is compared with the one that this user saw
 * last (pins.h), since a list says nothing of what is not in it. */
#include "common/base/clock.h"
#include "server/cli/commands/audit/audit.h"
#include "server/cli/format.h"
#include "server/cli/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_MOST = 100000, PAGE = 1000 }; // entries that are listed; that are asked for at once

static const struct table_column columns[] = {
	{.title = "TIME"},
	{.title = "SEQ", .right = true, .leave_out = 4},
	{.title = "WHO", .narrowest = 10},
	{.title = "FROM", .narrowest = 8, .leave_out = 2},
	{.title = "ACTION", .narrowest = 10},
	{.title = "TARGET", .narrowest = 10, .leave_out = 5},
	{.title = "DEVICE", .narrowest = 8, .leave_out = 3},
	{.title = "OUTCOME"},
	{.title = "TIMES", .right = true, .leave_out = 1},
	{.title = "TOOK", .right = true, .leave_out = 1},
};

enum status audit_time(const char *option, const char *text, int64_t *ms, struct error *error)
{
	char date[40];
	int64_t ago_s;
	*ms = 0;
	if (!text || !clock_parse(text, ms))
		return STATUS_OK;
	if (strlen(text) == 10 && snprintf(date, sizeof date, "%sT00:00:00Z", text) > 0 && !clock_parse(date, ms))
		return STATUS_OK;
	if (!parse_duration(text, &ago_s, NULL)) {
		*ms = clock_wall_ms() - ago_s * 1000;
		return STATUS_OK;
	}
	error_set(error, STATUS_INVALID_PARAMS, "--%s %.40s is no time", option, text);
	error_hint(error, "write it as 2026-11-21, 2026-11-21T08:00:00Z, or 24h for a day ago");
	return STATUS_INVALID_PARAMS;
}

int audit_compare_pin(struct client *client, const struct target *target, struct error *error)
{
	struct json *answer = NULL, *params = NULL;
	struct pin pin;
	struct pin_head head;
	struct error first = {.status = STATUS_OK};
	char text[256];
	if (client_ask(client, &(struct client_call){.method = "audit.head"}, &answer, error))
		return 1;
	enum status status = pin_load(&pin, json_get_string(answer, "origin", ""), target->name, &first);
	if (!status && pin.there) {
		struct json *proved = NULL;
		params = json_new_object();
		json_set_integer(params, "since_size", (int64_t)pin.checkpoint.size);
		status = client_ask(client, &(struct client_call){.method = "audit.head", .params = params}, &proved,
				    &first);
		if (!status) {
			json_destroy(&answer);
			answer = proved;
		} else if (status == STATUS_NOT_FOUND) { // it is smaller: its head says by how much
			status = STATUS_OK;
		}
	}
	enum journal_verdict verdict = status ? JOURNAL_HOLDS : pin_compare(&pin, answer, &head, text, sizeof text);
	if (!status && !verdict)
		status = pin_save(&pin, &head, &first);
	if (status)
		command_print_text(stderr, "exogpu: the audit log's head is not remembered: ", first.message);
	if (verdict) {
		error_set(error, STATUS_CONFLICT, "the audit log is not the one that you saw before: %s", text);
		error_hint(error, "do not trust it; see exogpu audit verify, and compare with witnesses and backups");
	}
	json_destroy(&answer);
	return (int)verdict;
}

static void set(struct json *params, const char *name, const char *text)
{
	if (text)
		json_set_string(params, name, text);
}

static enum status build(const struct cli_arguments *arguments, struct json *params, struct error *error)
{
	char at[CLOCK_TEXT_BYTES], *end = NULL;
	int64_t ms;
	enum status status = audit_time("from", arguments->from, &ms, error);
	if (!status && ms)
		json_set_string(params, "from", clock_format(ms, at));
	if (!status)
		status = audit_time("to", arguments->to, &ms, error);
	if (!status && ms)
		json_set_string(params, "to", clock_format(ms, at));
	long limit = arguments->limit ? strtol(arguments->limit, &end, 10) : 50;
	if (!status && (limit < 1 || limit > LIST_MOST || (end && *end)))
		status = error_set(error, STATUS_INVALID_PARAMS, "--limit takes 1 to %d", LIST_MOST);
	json_set_integer(params, "limit", limit);
	if (!status && arguments->before) {
		const long long before = strtoll(arguments->before, &end, 10);
		if (before < 0 || before >= INT64_C(1) << 53 || *end || end == arguments->before)
			status = error_set(error, STATUS_INVALID_PARAMS, "--before takes the number of an entry");
		json_set_integer(params, "before", before);
	}
	set(params, "actor", arguments->actor);
	set(params, "action", arguments->action);
	set(params, "device_id", arguments->device);
	set(params, "outcome", arguments->outcome);
	set(params, "text", arguments->text);
	if (!status && arguments->before && arguments->follow)
		status = error_set(error, STATUS_INVALID_PARAMS,
				   "--follow is for the newest entries, --before for others");
	return status;
}

static void add_entry(struct table *table, const struct json *entry)
{
	char text[FORMAT_BYTES];
	int64_t at_ms = 0;
	const char *outcome = json_get_string(entry, "outcome", "");
	const char *name = json_get_string(entry, "actor_name", "");
	double took_ms = json_get_number(entry, "duration_ms", -1);
	clock_parse(json_get_string(entry, "at", ""), &at_ms);
	table_add(table, TONE_PLAIN, "%s", format_time_s(at_ms, text));
	table_add(table, TONE_FAINT, "%" PRId64, json_get_integer(entry, "seq", 0));
	table_add(table, TONE_PLAIN, "%s%s%s%s", json_get_string(entry, "actor", ""), name[0] ? " (" : "", name,
		  name[0] ? ")" : "");
	table_add(table, TONE_FAINT, "%s", json_get_string(entry, "peer", ""));
	table_add(table, TONE_PLAIN, "%s", json_get_string(entry, "action", ""));
	table_add(table, TONE_PLAIN, "%s", json_get_string(entry, "target", ""));
	table_add(table, TONE_PLAIN, "%s", json_get_string(entry, "device_id", ""));
	table_add(table, strcmp(outcome, "ok") ? TONE_ATTENTION : TONE_PLAIN, "%s", outcome);
	table_add(table, TONE_PLAIN, "%" PRId64, json_get_integer(entry, "count", 1));
	table_add(table, TONE_FAINT, "%s", format_quantity(took_ms, "ms", text));
}

// The members of a list, the last one first. NULL: out of memory.
static const struct json **turned(const struct json *list, size_t *count)
{
	const struct json **order = calloc(json_count(list) + 1, sizeof(*order));
	size_t at = *count = order ? json_count(list) : 0;
	for (const struct json *one = json_first(list); one && order; one = json_next(one))
		order[--at] = one;
	return order;
}

// Oldest first, as they are read, and as what follows goes on. Lines of JSON where that was asked.
static int print_entries(const struct json *entries, bool lines, struct error *error)
{
	struct table table;
	struct terminal terminal = terminal_of_stdout();
	size_t count;
	const struct json **order = turned(entries, &count);
	int result = order ? 0 : 1;
	table_init(&table, columns, sizeof(columns) / sizeof(*columns));
	for (size_t at = 0; at < count && !result; at++) {
		if (lines)
			result = command_print_json(order[at], error) ? 1 : 0;
		else
			add_entry(&table, order[at]);
	}
	if (!result && !lines)
		result = table_print(&table, stdout, &terminal, error) ? 1 : 0;
	table_finish(&table);
	free(order);
	return result;
}

struct following {
	const struct cli_arguments *arguments;
	struct error *error;
	int64_t last; // seq
	bool missed;
};

static bool matches(const struct cli_arguments *arguments, const struct json *entry)
{
	const char *action = json_get_string(entry, "action", ""), *outcome = json_get_string(entry, "outcome", "");
	size_t length = arguments->action ? strlen(arguments->action) : 0;
	if (arguments->actor && strcmp(arguments->actor, json_get_string(entry, "actor", "")) != 0)
		return false;
	if (arguments->device && strcmp(arguments->device, json_get_string(entry, "device_id", "")) != 0)
		return false;
	if (length && (arguments->action[length - 1] == '.' ? strncmp(action, arguments->action, length)
							    : strcmp(action, arguments->action)) != 0)
		return false;
	if (arguments->outcome && !strcmp(arguments->outcome, "failed"))
		return strcmp(outcome, "ok") != 0;
	return !arguments->outcome || !strcmp(outcome, arguments->outcome);
}

// An event holds one entry, or, where several came at once, a list.
static bool on_notice(void *context, const char *method, const struct json *params)
{
	struct following *following = context;
	const struct json *entry = json_get(params, "data");
	if (strcmp(method, "event") != 0 || strcmp(json_get_string(params, "topic", ""), "audit") != 0)
		return true;
	if (json_get(entry, "entry"))
		entry = json_get(entry, "entry");
	int64_t seq = json_get_integer(entry, "seq", -1);
	if (seq <= following->last || !matches(following->arguments, entry))
		return true;
	following->last = seq;
	if (following->arguments->json) {
		command_print_json(entry, following->error);
	} else {
		char line[700], text[FORMAT_BYTES];
		int64_t at_ms = 0;
		clock_parse(json_get_string(entry, "at", ""), &at_ms);
		snprintf(line, sizeof(line), "%s  %.80s  %.64s  %.100s  %.64s  %.32s", format_time_s(at_ms, text),
			 json_get_string(entry, "actor", ""), json_get_string(entry, "action", ""),
			 json_get_string(entry, "target", ""), json_get_string(entry, "device_id", ""),
			 json_get_string(entry, "outcome", ""));
		command_print_text(stdout, "", line);
	}
	return !fflush(stdout);
}

static int follow(struct client *client, const struct cli_arguments *arguments, int64_t last, struct error *error)
{
	struct following following = {.arguments = arguments, .error = error, .last = last};
	if (client_catch(client, error))
		return 1;
	return client_stay(client, on_notice, &following, error) ? 1 : 0;
}

static enum status subscribe(struct client *client, struct error *error)
{
	struct json *params = json_new_object(), *topics = json_new_array(), *answer = NULL;
	json_push(topics, json_new_string("audit"));
	json_set(params, "topics", topics);
	enum status status = client_ask(client, &(struct client_call){.method = "events.subscribe", .params = params},
					&answer, error);
	json_destroy(&answer);
	return status;
}

// Pages, until there are as many entries as were wanted: {entries, more, next, gaps} of all of them.
static enum status ask_pages(struct client *client, struct json *params, struct json **all, struct error *error)
{
	int64_t left = json_get_integer(params, "limit", PAGE);
	struct json *entries = json_new_array(), *gaps = json_new_array(), *answer = NULL;
	enum status status = STATUS_OK;
	bool more = true;
	while (more && left > 0) {
		json_destroy(&answer);
		json_set_integer(params, "limit", left < PAGE ? left : PAGE);
		status = client_ask(client, &(struct client_call){.method = "audit.list", .params = json_copy(params)},
				    &answer, error);
		if (status)
			break;
		for (const struct json *one = json_first(json_get(answer, "entries")); one;
		     one = json_next(one), left--)
			json_push(entries, json_copy(one));
		for (const struct json *one = json_first(json_get(answer, "gaps")); one; one = json_next(one))
			json_push(gaps, json_copy(one));
		// A server of before says nothing of archives, and goes on from the last entry itself.
		const int64_t next = json_get_integer(answer, "next", -1);
		more = json_get_bool(answer, "more", false) && next >= 0;
		if (more && next >= json_get_integer(params, "before", INT64_MAX)) { // it would never end
			status = error_set(error, STATUS_INTERNAL, "the server's pages do not go on to older entries");
			break;
		}
		if (more)
			json_set_integer(params, "before", next);
	}
	json_set(answer, "entries", entries); // without an answer they are freed here
	json_set(answer, "gaps", gaps);
	*all = answer;
	json_destroy(&params);
	return status;
}

// What cannot be listed, the oldest first, as the entries are.
static void print_gaps(const struct json *answer)
{
	static const struct {
		const char *reason, *text;
	} texts[] = {
		{"pruned", "were pruned"},
		{"removed",
		 "are kept by their hashes alone, and no entry was found that says why: see exogpu audit verify"},
		{"missing", "are in an archive that is not there: see exogpu audit verify"},
		{"damaged", "are not in their archive as the log has them: see exogpu audit verify"},
	};
	size_t count;
	const struct json **order = turned(json_get(answer, "gaps"), &count);
	for (size_t at = 0; at < count; at++) {
		const struct json *gap = order[at];
		const char *reason = json_get_string(gap, "reason", ""), *text = "cannot be shown";
		const int64_t told_by = json_get_integer(gap, "told_by", -1);
		for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
			if (!strcmp(reason, texts[i].reason))
				text = texts[i].text;
		fprintf(stderr, "Entries %" PRId64 " to %" PRId64 " %s", json_get_integer(gap, "first", 0),
			json_get_integer(gap, "last", 0), text);
		if (told_by >= 0)
			fprintf(stderr, ", as entry %" PRId64 " tells", told_by);
		fprintf(stderr, ".\n");
	}
	free(order);
}

static int list(struct client *client, const struct cli_arguments *arguments, struct json *params, struct error *error)
{
	struct json *answer = NULL;
	int result = 0;
	if (arguments->follow && subscribe(client, error)) { // before the list, so that none falls between
		json_destroy(&params);
		return 1;
	}
	if (ask_pages(client, params, &answer, error)) {
		json_destroy(&answer);
		return 1;
	}
	const struct json *entries = json_get(answer, "entries");
	if (arguments->json && !arguments->follow)
		result = command_print_json(answer, error) ? 1 : 0;
	else if (json_count(entries) || arguments->follow)
		result = print_entries(entries, arguments->json, error);
	else
		fprintf(stderr, "No entry of the audit log matches.\n");
	if (!result && !arguments->json)
		print_gaps(answer);
	if (!result && !arguments->follow && !arguments->json && json_get_bool(answer, "more", false))
		fprintf(stderr, "There are older ones: --before %" PRId64 ", or a larger --limit.\n",
			json_get_integer(answer, "next", 0));
	fflush(stdout);
	int64_t last = json_get_integer(json_first(entries), "seq", -1);
	json_destroy(&answer);
	return result || !arguments->follow ? result : follow(client, arguments, last, error);
}

static int run(const struct cli_arguments *arguments, struct error *error)
{
	struct target target;
	struct client *client = NULL;
	struct json *params = json_new_object();
	if (build(arguments, params, error)) {
		json_destroy(&params);
		return 2;
	}
	int result = command_open(arguments, &target, &client, error);
	if (result)
		json_destroy(&params);
	else
		result = list(client, arguments, params, error);
	if (!result && !arguments->follow)
		result = audit_compare_pin(client, &target, error);
	client_close(&client);
	return result;
}

static const struct flag flags[] = {
	{"actor", "WHO", "only what token:ID, owner:UID, node:ID or server has done",
	 offsetof(struct cli_arguments, actor)},
	{"action", "ACTION", "only this, as token.create; or all of a noun, as token.",
	 offsetof(struct cli_arguments, action)},
	{"device", "ID", "only what was done to this device", offsetof(struct cli_arguments, device)},
	{"outcome", "WORD", "only what ended like this: ok, forbidden, …; or failed, for all except ok",
	 offsetof(struct cli_arguments, outcome)},
	{"text", "TEXT", "only if this text is in who, target, address or detail",
	 offsetof(struct cli_arguments, text)},
	{"from", "TIME", "only from this time on: 2026-11-21, 2026-11-21T08:00:00Z, or 24h",
	 offsetof(struct cli_arguments, from)},
	{"to", "TIME", "only before this time", offsetof(struct cli_arguments, to)},
	{"limit", "N", "how many of the newest (default 50, at most 100000)", offsetof(struct cli_arguments, limit)},
	{"before", "SEQ", "only those with a smaller number", offsetof(struct cli_arguments, before)},
	{"follow", NULL, "keep running and print new ones, until Ctrl-C", offsetof(struct cli_arguments, follow)},
	{0},
};

const struct cli_command audit_list_command = {
	.name = "audit list",
	.summary = "list who did what, from where, with what result",
	.more = "Archived entries are listed, too; gaps are reported on standard error.\n"
		"The server's head of the log is compared with the one that you saw last; if the log does not "
		"continue\n"
		"it, the exit status is 11 (it is smaller), 12 (it is another), 13 or 14 (signatures, keys).\n",
	.flags = flags,
	.run = run,
};
