/* `exogpu alloc`: hold memory of a device until told to stop, list what is held, free it. What is held belongs to the
 * connection, so the command stays; that is also the simplest way to see what the rest of the cluster makes of it. */
#include "common/base/clock.h"
#include "server/cli/commands/commands.h"
#include "server/cli/format.h"
#include "server/cli/table.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALLOCATE_MS = 60000 }; // a first allocation starts a worker, and a large one is zeroed

static void print_held(const struct json *answer, const struct json *device)
{
	char size[FORMAT_BYTES];
	const char *id = json_get_string(answer, "device_id", ""), *name = json_get_string(device, "name", "");
	char line[400];
	snprintf(line, sizeof line, "%s of %s%s%s%s held as %s",
		 format_memory(json_get_integer(answer, "bytes", -1), size), name[0] ? name : id, name[0] ? " (" : "",
		 name[0] ? id : "", name[0] ? ")" : "", json_get_string(answer, "allocation_id", ""));
	command_print_text(stdout, "", line);
	fprintf(stderr, "  until this command ends: Ctrl-C\n");
	fflush(stdout);
}

struct hold {
	const char *allocation_id;
	char lost[300]; // why it is gone; "" while it is there
};

static bool on_notice(void *context, const char *method, const struct json *params)
{
	struct hold *hold = context;
	if (strcmp(method, "session.device_lost") != 0)
		return true;
	for (const struct json *one = json_first(json_get(params, "allocations")); one; one = json_next(one))
		if (!strcmp(json_string(one, ""), hold->allocation_id))
			snprintf(hold->lost, sizeof hold->lost, "%s",
				 json_get_string(params, "message", "no reason given"));
	return !hold->lost[0];
}

static enum status allocate(struct client *client, const struct cli_arguments *arguments, const char *device_id,
			    int64_t bytes, struct json **answer, struct error *error)
{
	struct json *params = json_new_object();
	struct client_wait wait = {.timeout_ms = ALLOCATE_MS, .result = answer};
	json_set_string(params, "device_id", device_id);
	json_set_integer(params, "bytes", bytes);
	if (arguments->label)
		json_set_string(params, "label", arguments->label);
	enum status status = client_send(client, &(struct client_call){.method = "memory.allocate", .params = params},
					 &wait.id, error);
	if (!status)
		status = client_wait(client, &wait, error);
	if (status == STATUS_LIMIT_EXCEEDED || status == STATUS_NOT_FOUND)
		error->hint[0] = 0; // the server's names methods
	if (status == STATUS_LIMIT_EXCEEDED)
		error_hint(error, "exogpu alloc list shows what is held; free some, or use another device");
	else if (status == STATUS_NOT_FOUND)
		error_hint(error, "without the scope observe only a whole id is understood, not a name or an "
				  "abbreviation");
	return status;
}

// At once: the server would wait for the session to come back first. What an admin freed meanwhile is no fault.
static enum status give_back(struct client *client, const char *allocation_id, struct error *error)
{
	struct json *params = json_new_object(), *answer;
	struct error fault = {0};
	json_set_string(params, "allocation_id", allocation_id);
	enum status status = client_ask(client, &(struct client_call){.method = "memory.free", .params = params},
					&answer, &fault);
	json_destroy(&answer);
	if (!status || status == STATUS_NOT_FOUND || status == STATUS_DEVICE_LOST)
		return STATUS_OK;
	*error = fault;
	return status;
}

// Allocate, say so, and stay.
static enum status hold(struct client *client, const struct cli_arguments *arguments, int64_t bytes,
			struct error *error)
{
	struct json *snapshot = NULL, *answer = NULL;
	const struct json *device;
	enum status status = command_device(client, arguments->operand, &snapshot, &device, error);
	if (!status)
		status = allocate(client, arguments,
				  device ? json_get_string(device, "device_id", "") : arguments->operand, bytes,
				  &answer, error);
	if (!status)
		status = client_catch(client, error); // whoever reads that it is held may end this at once
	if (!status && arguments->json)
		status = command_print_json(answer, error);
	else if (!status)
		print_held(answer, device);
	if (!status) {
		struct hold held = {.allocation_id = json_get_string(answer, "allocation_id", "")};
		fflush(stdout);
		status = client_stay(client, on_notice, &held, error);
		text_clean(held.lost);
		if (held.lost[0])
			status = error_set(error, STATUS_DEVICE_LOST, "it is lost: %s", held.lost);
		else if (!status)
			status = give_back(client, held.allocation_id, error);
	}
	json_destroy(&answer);
	json_destroy(&snapshot);
	return status;
}

static int run_alloc(const struct cli_arguments *arguments, struct error *error)
{
	struct target target;
	struct client *client;
	int64_t bytes;
	if (parse_size(arguments->second, &bytes, error))
		return 2;
	if (arguments->label &&
	    (text_width(arguments->label) > 64 || !json_utf8(arguments->label, strlen(arguments->label)))) {
		error_set(error, STATUS_INVALID_PARAMS, "--label takes 1 to 64 characters of UTF-8");
		return 2;
	}
	int result = command_open(arguments, &target, &client, error);
	if (!result)
		result = hold(client, arguments, bytes, error) ? 1 : 0;
	client_close(&client);
	return result;
}

static const struct table_column columns[] = {
	{.title = "ALLOCATION"},
	{.title = "DEVICE", .narrowest = 12, .leave_out = 2},
	{.title = "HOLDER", .narrowest = 8},
	{.title = "LABEL", .narrowest = 8, .leave_out = 1},
	{.title = "SIZE", .right = true},
	{.title = "SINCE", .right = true},
};

static void add_allocation(struct table *table, const struct json *one, const struct json *device)
{
	char text[FORMAT_BYTES];
	const char *id = json_get_string(one, "device_id", "");
	table_add(table, TONE_PLAIN, "%s", json_get_string(one, "allocation_id", ""));
	table_add(table, TONE_PLAIN, "%s", json_get_string(device, "name", id));
	table_add(table, TONE_PLAIN, "%s", json_get_string(one, "holder", ""));
	table_add(table, TONE_FAINT, "%s", json_get_string(one, "label", ""));
	table_add(table, TONE_PLAIN, "%s", format_memory(json_get_integer(one, "bytes", -1), text));
	table_add(table, TONE_PLAIN, "%s", format_age(command_age_ms(one, "created_at"), text));
}

static int print_list(const struct json *list, const struct json *snapshot, struct error *error)
{
	struct table table;
	struct terminal terminal = terminal_of_stdout();
	const struct json *device = NULL, *devices = json_get(snapshot, "devices");
	table_init(&table, columns, sizeof columns / sizeof *columns);
	for (const struct json *one = json_first(list); one; one = json_next(one)) {
		device = command_find(devices, "device_id", json_get_string(one, "device_id", ""), device);
		add_allocation(&table, one, device);
	}
	int result = table_print(&table, stdout, &terminal, error) ? 1 : 0;
	table_finish(&table);
	return result;
}

static int run_list(const struct cli_arguments *arguments, struct error *error)
{
	struct target target;
	struct client *client;
	struct json *answer = NULL, *snapshot = NULL;
	int result = command_open(arguments, &target, &client, error);
	if (!result)
		result = client_ask(client, &(struct client_call){.method = "memory.list"}, &answer, error) ? 1 : 0;
	const struct json *list = json_get(answer, "allocations");
	if (result)
		goto done;
	if (arguments->json) {
		result = command_print_json(answer, error) ? 1 : 0;
	} else if (!json_count(list)) {
		fprintf(stderr, "Nothing is held. exogpu alloc DEVICE SIZE holds some.\n");
	} else { // names of devices, where this token may see them
		client_ask(client, &(struct client_call){.method = "cluster.snapshot"}, &snapshot, NULL);
		result = print_list(list, snapshot, error);
	}
done:
	client_close(&client);
	json_destroy(&snapshot);
	json_destroy(&answer);
	return result;
}

static int run_free(const struct cli_arguments *arguments, struct error *error)
{
	char size[FORMAT_BYTES], line[200];
	struct json *params = json_new_object(), *answer = NULL;
	json_set_string(params, "allocation_id", arguments->operand);
	int result = command_call(arguments, "memory.free", params, &answer, error);
	if (error->status == STATUS_NOT_FOUND) { // the server's hint names a method
		error->hint[0] = 0;
		error_hint(error, "see: exogpu alloc list");
	}
	if (answer) {
		snprintf(line, sizeof line, "%s, %s", json_get_string(answer, "allocation_id", ""),
			 format_memory(json_get_integer(answer, "bytes", -1), size));
		command_print_text(stdout, "freed ", line);
	}
	json_destroy(&answer);
	return result;
}

static const struct flag flags[] = {
	{"label", "TEXT", "what it is for, 1 to 64 characters; you and admins see it",
	 offsetof(struct cli_arguments, label)},
	{0},
};

const struct cli_command alloc_command = {
	.name = "alloc",
	.operand = "DEVICE SIZE",
	.summary = "hold memory of a device until Ctrl-C",
	.more = "DEVICE is an id, a name, or the beginning of either; SIZE is 512MiB, 4GiB, 1.5GB, 4096.\n"
		"The memory is zero, and is freed when the command ends. Exit status 1 if it is taken away.\n"
		"exogpu alloc list shows what is held, exogpu alloc free takes it away. Programs allocate over the "
		"API: the\n"
		"README shows how.\n",
	.flags = flags,
	.run = run_alloc,
};
const struct cli_command alloc_list_command = {
	.name = "alloc list",
	.summary = "list the memory held: by this token, or with the scope admin by all",
	.run = run_list,
};
const struct cli_command alloc_free_command = {
	.name = "alloc free",
	.operand = "ID",
	.summary = "free what any session holds (needs the scope admin)",
	.run = run_free,
};
