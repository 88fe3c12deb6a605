/* See commands.h. */
#include "server/cli/commands/commands.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "server/cli/client.h"
#include "server/cli/format.h"

#include <stdarg.h>
#include <string.h>

// Escapes the characters that JSON may hold as they are but a terminal obeys: DEL, and U+0080 to U+009F (C2 80 to C2
// 9F).
void command_put_json(FILE *out, const char *text)
{
	for (; *text; text++) {
		const unsigned char byte = (unsigned char)*text, next = (unsigned char)text[1];
		const bool late = byte == 0xC2 && next >= 0x80 && next < 0xA0;
		if (late || byte == 0x7F)
			fprintf(out, "\\u%04x", late ? next : byte);
		else
			putc(byte, out);
		text += late;
	}
	putc('\n', out);
}

enum status command_print_json(const struct json *result, struct error *error)
{
	struct buffer text;
	buffer_init(&text, LIMIT_HEAD_BYTES + LIMIT_BODY_BYTES);
	enum status status = json_print(result, &text);
	if (status)
		error_set(error, status, "the answer cannot be printed: %s", status_text(status));
	else
		command_put_json(stdout, buffer_text(&text));
	buffer_finish(&text);
	return status;
}

static enum status find_target(struct target *target, const struct cli_arguments *arguments, struct error *error)
{
	const struct target_wanted wanted = {.data = arguments->data, .url = arguments->url, .ca = arguments->ca};
	return target_find(target, &wanted, error);
}

// "token:ID" as a person knows it: "NAME (ID)". NULL: it is no token of these.
static const char *maker_of(const struct json *row, const struct json *tokens, char *text, size_t size)
{
	static const char prefix[] = "token:";
	const char *made_by = json_get_string(row, "made_by", "");
	const bool is_token = !strncmp(made_by, prefix, sizeof prefix - 1);
	for (const struct json *one = json_first(tokens); one && is_token; one = json_next(one))
		if (!strcmp(json_get_string(one, "token_id", ""), made_by + sizeof prefix - 1)) {
			snprintf(text, size, "%s (%s)", json_get_string(one, "name", ""), made_by + sizeof prefix - 1);
			return text;
		}
	return NULL;
}

// Add the rows, with the names of the tokens that made them, if this one may list tokens.
static void add_rows(struct table *table, const struct cli_arguments *arguments, const struct command_list *list,
		     const struct json *rows)
{
	struct json *tokens = NULL;
	struct error ignored = {0};
	char text[256];
	if (json_get(json_first(rows), "made_by"))
		command_call(arguments, "token.list", NULL, &tokens, &ignored);
	for (const struct json *row = json_first(rows); row; row = json_next(row)) {
		const char *maker = maker_of(row, json_get(tokens, "tokens"), text, sizeof text);
		struct json *named = maker ? json_copy(row) : NULL;
		if (maker)
			json_set_string(named, "made_by", maker);
		list->add(table, named ? named : row);
		json_destroy(&named);
	}
	json_destroy(&tokens);
}

int command_list(const struct cli_arguments *arguments, const struct command_list *list, struct error *error)
{
	struct json *answer = NULL;
	struct table table;
	struct terminal terminal = terminal_of_stdout();
	int result = command_call(arguments, list->method, NULL, &answer, error);
	if (result || !answer)
		return result;
	const struct json *rows = json_get(answer, list->member);
	table_init(&table, list->columns, list->column_count);
	add_rows(&table, arguments, list, rows);
	if (json_count(rows))
		result = table_print(&table, stdout, &terminal, error) ? 1 : 0;
	else
		fprintf(stderr, "%s\n", list->nothing);
	for (const struct json *row = json_first(rows); row && list->below; row = json_next(row))
		list->below(row, answer);
	table_finish(&table);
	json_destroy(&answer);
	return result;
}

int command_open(const struct cli_arguments *arguments, struct target *target, struct client **client,
		 struct error *error)
{
	*client = NULL;
	enum status status = find_target(target, arguments, error);
	if (status)
		return status == STATUS_INVALID_PARAMS ? 2 : 1;
	return client_open(client, target, error) ? 1 : 0;
}

int command_call(const struct cli_arguments *arguments, const char *method, struct json *params, struct json **result,
		 struct error *error)
{
	struct target target;
	*result = NULL;
	enum status status = find_target(&target, arguments, error);
	if (status) {
		json_destroy(&params);
		return status == STATUS_INVALID_PARAMS ? 2 : 1;
	}
	status = client_call(&target, method, params, result, error);
	if (!status && arguments->json) {
		status = command_print_json(*result, error);
		json_destroy(result);
	}
	return status ? 1 : 0;
}

static bool begins(const char *text, const char *beginning)
{
	return !strncasecmp(text, beginning, strlen(beginning));
}

// How well a device fits: 3 its id or its name as a whole, 2 the beginning of either, 1 somewhere in its name; else 0.
static int fitness(const struct json *device, const char *text)
{
	const char *id = json_get_string(device, "device_id", ""), *name = json_get_string(device, "name", "");
	if (!strcmp(id, text) || !strcasecmp(name, text))
		return 3;
	if (begins(id, text) || begins(name, text))
		return 2;
	return strcasestr(name, text) ? 1 : 0;
}

static int by_slot(const struct json *one, const struct json *other)
{
	const int order = strcmp(json_get_string(one, "pci_address", ""), json_get_string(other, "pci_address", ""));
	return order ? order : strcmp(json_get_string(one, "device_id", ""), json_get_string(other, "device_id", ""));
}

const char *command_node_label(const struct json *nodes, const char *node_id, char text[COMMAND_NODE_LABEL_BYTES])
{
	const char *name = json_get_string(command_find(nodes, "node_id", node_id, NULL), "name", node_id);
	unsigned alike = 0;
	for (const struct json *one = json_first(nodes); one; one = json_next(one))
		alike += !strcmp(json_get_string(one, "name", ""), name);
	snprintf(text, COMMAND_NODE_LABEL_BYTES, alike > 1 ? "%.64s (%.64s)" : "%.64s", name, node_id);
	return text;
}

const char *command_device_label(const struct json *snapshot, const char *device_id, char text[COMMAND_LABEL_BYTES])
{
	const struct json *nodes = json_get(snapshot, "nodes"), *devices = json_get(snapshot, "devices");
	const struct json *device = command_find(devices, "device_id", device_id, NULL);
	const char *name = json_get_string(device, "name", device_id),
		   *node_id = json_get_string(device, "node_id", "");
	const bool several = device && json_count(nodes) > 1;
	char number[24] = "", node[COMMAND_NODE_LABEL_BYTES];
	unsigned alike = 0, before = 0;
	for (const struct json *one = json_first(devices); one && device; one = json_next(one)) {
		if (strcmp(json_get_string(one, "node_id", ""), node_id) != 0 ||
		    strcmp(json_get_string(one, "name", ""), name) != 0)
			continue;
		alike++;
		before += by_slot(one, device) < 0;
	}
	if (alike > 1)
		snprintf(number, sizeof number, " \u00b7 %u", before);
	snprintf(text, COMMAND_LABEL_BYTES, "%.76s%s%s%s", name, number, several ? " of " : "",
		 several ? command_node_label(nodes, node_id, node) : "");
	return text;
}

// Those that fit at least so well, as many as there is room for.
static void list_devices(const struct json *snapshot, const char *text, int least, struct error *error)
{
	char list[220] = "", label[COMMAND_LABEL_BYTES], one[COMMAND_LABEL_BYTES + 80];
	size_t used = 0, more = 0;
	const struct json *device = json_first(json_get(snapshot, "devices"));
	for (; device; device = json_next(device)) {
		const char *id = json_get_string(device, "device_id", "");
		if (fitness(device, text) < least)
			continue;
		const int length = snprintf(one, sizeof one, "%s%.64s (%s)", used ? ", " : "", id,
					    command_device_label(snapshot, id, label));
		if (more || used + (size_t)length > sizeof list - sizeof " and 1000 more") {
			more++;
			continue;
		}
		memcpy(list + used, one, (size_t)length + 1);
		used += (size_t)length;
	}
	if (more)
		snprintf(list + used, sizeof list - used, " and %zu more", more);
	text_clean(list);
	error_hint(error, "%s%s", least ? "give its id: " : list[0] ? "there are " : "there are none yet", list);
}

enum status command_device(struct client *client, const char *text, struct json **snapshot, const struct json **device,
			   struct error *error)
{
	struct error fault = {0};
	int best = 1, count = 0;
	*device = NULL;
	enum status status = client_ask(client, &(struct client_call){.method = "cluster.snapshot"}, snapshot, &fault);
	if (status == STATUS_FORBIDDEN)
		return STATUS_OK;
	if (status) {
		*error = fault;
		return status;
	}
	const struct json *devices = json_get(*snapshot, "devices");
	for (const struct json *one = json_first(devices); one; one = json_next(one)) {
		int fits = fitness(one, text);
		if (fits < best)
			continue;
		count = fits > best ? 1 : count + 1;
		best = fits;
		*device = one;
	}
	if (count == 1)
		return STATUS_OK;
	status = count ? STATUS_CONFLICT : STATUS_NOT_FOUND;
	error_set(error, status, count ? "\"%.60s\" may be one of %d devices" : "there is no device \"%.60s\"", text,
		  count);
	list_devices(*snapshot, text, count ? best : 0, error);
	return status;
}

static bool fits(const struct json *member, const char *key, const char *id)
{
	return member && !strcmp(json_get_string(member, key, ""), id);
}

const struct json *command_find(const struct json *list, const char *key, const char *id, const struct json *from)
{
	if (fits(from, key, id))
		return from;
	if (from && fits(json_next(from), key, id))
		return json_next(from);
	for (const struct json *one = json_first(list); one; one = json_next(one))
		if (fits(one, key, id))
			return one;
	return NULL;
}

int64_t command_age_ms(const struct json *object, const char *name)
{
	int64_t at, now = clock_wall_ms();
	if (clock_parse(json_get_string(object, name, ""), &at))
		return -1;
	return at < now ? now - at : 0;
}

void command_print_text(FILE *out, const char *before, const char *text)
{
	command_say(out, "%s%s", before, text);
}

void command_say(FILE *out, const char *format, ...)
{
	char line[1280];
	va_list args;
	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	text_clean(line);
	for (size_t length = strlen(line); length && line[length - 1] == ' '; length--)
		line[length - 1] = 0;
	fprintf(out, "%s\n", line);
}
