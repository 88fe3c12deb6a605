/* `exogpu mcp`: the cluster as tools of a language model's agent (Model Context Protocol), over standard input and
 * output, or with --listen over HTTP (http.c).
 *
 * Over standard input and output: one JSON-RPC object a line, in both directions. A tool is a method of the contract:
 * its description, its parameters and its name (with _ for .) come from there, so the table below only says which of
 * them are offered. Each call of a tool is a connection of its own, with the token of the command line, whose scopes
 * the server enforces; a refusal is told to the model as a failed call, with the server's hint. Standard output carries
 * nothing else. The devices are resources, too. Source: modelcontextprotocol.io, revision 2025-11-25. Thread: the
 * process's only one. */
#include "server/cli/mcp/mcp.h"

#include "common/base/limits.h"
#include "common/wire/contract.h"
#include "server/cli/commands/commands.h"

#include <stdlib.h>
#include <string.h>

enum {
	REFERENCES_DEEP = 16,       // of schemas within schemas
	ANSWER_MS = 90000,          // longer than a kernel may take unless it is told otherwise
	LONGEST_NAMED_MS = 3600000, // what the contract lets a call name
};

// What an agent may do. Not here: what gives rights, and what only makes sense within one session.
static const struct offer {
	const char *method;
	bool changes; // more than nothing
} offers[] = {
	{"cluster.snapshot", false}, {"topology.summary", false}, {"telemetry.history", false},
	{"alert.list", false},       {"model.list", false},       {"placement.preview", false},
	{"instance.list", false},    {"instance.create", true},   {"instance.delete", true},
	{"compute.run", true},       {"thermal.forecast", false}, {"usage.list", false},
};
static const char *const revisions[] = {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}; // the newest first

struct mcp {
	struct contract *contract;
	struct json *document; // schema/api.json, for its schemas
	struct json *tools;
};

// A copy of a schema in which no reference is left: a tool's schema stands alone. NULL if it is too deep.
static struct json *resolve(const struct json *document, const struct json *schema, int deep)
{
	static const char prefix[] = "#/components/schemas/";
	const char *reference = json_get_string(schema, "$ref", NULL);
	if (reference && !strncmp(reference, prefix, sizeof prefix - 1)) {
		const struct json *all = json_get(json_get(document, "components"), "schemas");
		return deep ? resolve(document, json_get(all, reference + sizeof prefix - 1), deep - 1) : NULL;
	}
	if (json_type(schema) != JSON_OBJECT && json_type(schema) != JSON_ARRAY)
		return json_copy(schema);
	const bool array = json_type(schema) == JSON_ARRAY;
	struct json *made = array ? json_new_array() : json_new_object();
	for (const struct json *one = json_first(schema); one; one = json_next(one)) {
		if (array)
			json_push(made, resolve(document, one, deep));
		else
			json_set(made, json_name(one), resolve(document, one, deep));
	}
	return made;
}

// {name, description, inputSchema, annotations}.
static struct json *tool_of(const struct mcp *mcp, const struct offer *offer, const struct contract_method *method)
{
	char name[64];
	struct json *tool = json_new_object(), *schema = json_new_object(), *properties = json_new_object(),
		    *required = json_new_array(), *annotations = json_new_object();
	const struct json *params = json_get(method->description, "params");
	snprintf(name, sizeof name, "%s", method->name);
	for (char *dot = strchr(name, '.'); dot; dot = strchr(dot, '.'))
		*dot = '_';
	for (const struct json *one = json_first(params); one; one = json_next(one)) {
		const char *parameter = json_get_string(one, "name", "");
		json_set(properties, parameter, resolve(mcp->document, json_get(one, "schema"), REFERENCES_DEEP));
		if (json_get_bool(one, "required", false))
			json_push(required, json_new_string(parameter));
	}
	json_set_string(schema, "type", "object");
	json_set(schema, "properties", properties);
	json_set(schema, "required", required);
	json_set_bool(schema, "additionalProperties", false);
	json_set_bool(annotations, "readOnlyHint", !offer->changes);
	json_set_string(tool, "name", name);
	json_set_string(tool, "description", json_get_string(method->description, "summary", ""));
	json_set(tool, "inputSchema", schema);
	json_set(tool, "annotations", annotations);
	return tool;
}

enum status mcp_create(struct mcp **out, struct error *error)
{
	struct mcp *mcp = calloc(1, sizeof(*mcp));
	size_t length;
	*out = mcp;
	if (!mcp)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	const char *text = contract_text(CONTRACT_API, &length);
	enum status status = contract_create(&mcp->contract, CONTRACT_API, error);
	if (!status)
		status = json_parse(&mcp->document, text, length, error);
	mcp->tools = json_new_array();
	for (size_t i = 0; !status && i < sizeof offers / sizeof *offers; i++) {
		const struct contract_method *method = contract_find(mcp->contract, offers[i].method);
		if (!method)
			return error_set(error, STATUS_INTERNAL, "the contract has no %s", offers[i].method);
		json_push(mcp->tools, tool_of(mcp, &offers[i], method));
	}
	return status;
}

void mcp_destroy(struct mcp **pointer)
{
	struct mcp *mcp = *pointer;
	*pointer = NULL;
	if (!mcp)
		return;
	json_destroy(&mcp->tools);
	json_destroy(&mcp->document);
	contract_destroy(&mcp->contract);
	free(mcp);
}

// What a call of a tool answers: the result as text and as it is, or why there is none.
static struct json *called(const struct json *result, const struct error *error)
{
	struct json *answer = json_new_object(), *content = json_new_array(), *text = json_new_object();
	struct buffer printed;
	buffer_init(&printed, LIMIT_HEAD_BYTES + LIMIT_BODY_BYTES);
	if (result)
		json_print(result, &printed);
	else
		buffer_printf(&printed, "%s: %s%s%s", status_word(error->status), error->message,
			      error->hint[0] ? "\n" : "", error->hint);
	json_set_string(text, "type", "text");
	json_set_string(text, "text", buffer_text(&printed));
	json_push(content, text);
	json_set(answer, "content", content);
	json_set_bool(answer, "isError", !result);
	if (result)
		json_set(answer, "structuredContent", json_copy(result));
	buffer_finish(&printed);
	return answer;
}

int64_t mcp_patience_ms(const struct json *arguments)
{
	const int64_t named_ms = json_get_integer(arguments, "timeout_ms", 0);
	return ANSWER_MS + (named_ms > 0 && named_ms <= LONGEST_NAMED_MS ? named_ms : 0);
}

// One call on a connection of its own.
static enum status ask(const struct target *target, const char *method, const struct json *arguments,
		       struct json **answer, struct error *error)
{
	struct client *client = NULL;
	struct json *params = arguments ? json_copy(arguments) : NULL;
	struct client_wait wait = {.timeout_ms = mcp_patience_ms(arguments), .result = answer};
	enum status status = client_open(&client, target, error);
	if (status) {
		json_destroy(&params);
		return status;
	}
	const struct client_call call = {.method = method, .params = params};
	status = client_send(client, &call, &wait.id, error);
	if (!status)
		status = client_wait(client, &wait, error);
	client_close(&client);
	return status;
}

enum status mcp_find(const struct mcp *mcp, const struct json *message, struct mcp_asked *asked, struct error *error)
{
	const char *method = json_get_string(message, "method", "");
	const struct json *params = json_get(message, "params");
	const char *name = json_get_string(params, "name", "");
	size_t at = 0;
	*asked = (struct mcp_asked){0};
	if (!strcmp(method, "resources/list") || !strcmp(method, "resources/read"))
		asked->method = "cluster.snapshot";
	if (strcmp(method, "tools/call") != 0)
		return STATUS_OK;
	const struct json *tool = json_first(mcp->tools);
	for (; tool && strcmp(json_get_string(tool, "name", ""), name) != 0; tool = json_next(tool))
		at++;
	if (!tool)
		return error_set(error, STATUS_INVALID_PARAMS, "Unknown tool: %.64s", name);
	*asked = (struct mcp_asked){offers[at].method, json_get(params, "arguments")};
	return STATUS_OK;
}

struct json *mcp_reply(const struct json *message, const struct json *result, const struct error *error)
{
	const char *method = json_get_string(message, "method", "");
	const char *uri = json_get_string(json_get(message, "params"), "uri", "");
	const struct json *id = json_get(message, "id");
	struct error absent = {0};
	if (!strcmp(method, "tools/call"))
		return mcp_message(id, called(result, error), NULL);
	if (!result)
		return mcp_message(id, NULL, error);
	if (!strcmp(method, "resources/list"))
		return mcp_message(id, mcp_resources(result), NULL);
	error_set(&absent, STATUS_INVALID_PARAMS, "Resource not found: %.128s", uri);
	return mcp_message(id, mcp_resource(result, uri), &absent);
}

bool mcp_speaks(const char *revision)
{
	for (size_t i = 0; i < sizeof revisions / sizeof *revisions; i++)
		if (!strcmp(revision, revisions[i]))
			return true;
	return false;
}

static struct json *initialized(const struct json *params, bool streams)
{
	struct json *result = json_new_object(), *capabilities = json_new_object(), *info = json_new_object(),
		    *resources = json_new_object();
	const char *wanted = json_get_string(params, "protocolVersion", "");
	const char *revision = mcp_speaks(wanted) ? wanted : revisions[0];
	json_set(capabilities, "tools", json_new_object());
	if (streams)
		json_set_bool(resources, "listChanged", true);
	json_set(capabilities, "resources", resources);
	json_set_string(info, "name", "exogpu");
	json_set_string(info, "version", EXOGPU_VERSION);
	json_set_string(result, "protocolVersion", revision);
	json_set(result, "capabilities", capabilities);
	json_set(result, "serverInfo", info);
	json_set_string(result, "instructions",
			"The GPUs, processors and loaded models of an exogpu cluster. Ids come from cluster_snapshot.");
	return result;
}

enum status mcp_answer(const struct mcp *mcp, const struct json *message, bool streams, struct json **result,
		       struct error *error)
{
	const char *method = json_get_string(message, "method", "");
	if (!strcmp(method, "initialize"))
		*result = initialized(json_get(message, "params"), streams);
	else if (!strcmp(method, "ping"))
		*result = json_new_object();
	else if (!strcmp(method, "tools/list")) {
		*result = json_new_object();
		json_set(*result, "tools", json_copy(mcp->tools));
	} else if (!strcmp(method, "resources/templates/list")) {
		*result = json_new_object();
		json_set(*result, "resourceTemplates", json_new_array());
	} else
		return error_set(error, STATUS_METHOD_NOT_FOUND, "Method not found: %.64s", method);
	return STATUS_OK;
}

struct json *mcp_message(const struct json *id, struct json *result, const struct error *error)
{
	struct json *message = json_new_object();
	json_set_string(message, "jsonrpc", "2.0");
	json_set(message, "id", id ? json_copy(id) : json_new_null());
	if (result) {
		json_set(message, "result", result);
	} else {
		struct json *fault = json_new_object();
		json_set_integer(fault, "code", status_rpc_code(error->status));
		json_set_string(fault, "message", error->message);
		json_set(message, "error", fault);
	}
	return message;
}

// Write one message (taken) and its newline. False: nobody reads them any more.
static bool say(struct json *message)
{
	struct buffer line;
	buffer_init(&line,
		    3 * (size_t)(LIMIT_HEAD_BYTES + LIMIT_BODY_BYTES)); // a result stands in it twice, once quoted
	const bool said = !json_print(message, &line) && puts(buffer_text(&line)) >= 0 && !fflush(stdout);
	buffer_finish(&line);
	json_destroy(&message);
	return said;
}

// What answers a request.
static struct json *reply(const struct mcp *mcp, const struct target *target, const struct json *message)
{
	struct error error = {0};
	struct json *answer = NULL;
	struct mcp_asked asked;
	enum status status = mcp_find(mcp, message, &asked, &error);
	if (!status && asked.method) {
		status = ask(target, asked.method, asked.params, &answer, &error);
		struct json *made = mcp_reply(message, status ? NULL : answer, &error);
		json_destroy(&answer);
		return made;
	}
	if (!status)
		status = mcp_answer(mcp, message, false, &answer, &error);
	return mcp_message(json_get(message, "id"), status ? NULL : answer, &error);
}

// A line of the client's. False: nobody reads the answers.
static bool take_line(const struct mcp *mcp, const struct target *target, const char *text, size_t length)
{
	struct error error = {0};
	struct json *message = NULL;
	bool going = true;
	if (json_parse(&message, text, length, &error)) {
		error.status = STATUS_PARSE_ERROR;
		going = say(mcp_message(NULL, NULL, &error));
	} else if (json_type(message) != JSON_OBJECT || !json_get_string(message, "method", NULL)) {
		// An answer is to nothing that was asked here.
		error_set(&error, STATUS_INVALID_REQUEST, "Neither a request nor a notification");
		if (!json_get(message, "result") && !json_get(message, "error"))
			going = say(mcp_message(json_get(message, "id"), NULL, &error));
	} else if (json_get(message, "id")) {
		going = say(reply(mcp, target, message));
	}
	json_destroy(&message);
	return going;
}

static enum status serve(const struct mcp *mcp, const struct target *target, struct error *error)
{
	struct buffer line;
	buffer_init(&line, LIMIT_HEAD_BYTES);
	for (int letter = getchar(); letter != EOF; letter = getchar()) {
		if (letter != '\n') {
			if (buffer_append_byte(&line, (uint8_t)letter)) {
				buffer_finish(&line);
				return error_set(error, STATUS_LIMIT_EXCEEDED,
						 "a line of the client has more than %d bytes", LIMIT_HEAD_BYTES);
			}
			continue;
		}
		if (line.length && !take_line(mcp, target, buffer_text(&line), line.length))
			break;
		buffer_clear(&line);
	}
	buffer_finish(&line);
	return STATUS_OK;
}

static int run(const struct cli_arguments *arguments, struct error *error)
{
	struct mcp *mcp = NULL;
	struct target target = {0};
	struct mcp_place place = {0};
	struct target_wanted wanted = {.data = arguments->data, .url = arguments->url, .ca = arguments->ca};
	if (arguments->listen) {
		if (mcp_place_read(&place, arguments->listen, error))
			return 2;
		// Each request brings its own token; by the socket it would act as the owner.
		const char *url = getenv("EXOGPU_URL");
		wanted.anonymous = true;
		if (!wanted.url)
			wanted.url = url && *url ? url : "http://127.0.0.1:52415";
	}
	enum status status = target_find(&target, &wanted, error);
	if (status)
		return status == STATUS_INVALID_PARAMS ? 2 : 1;
	status = mcp_create(&mcp, error);
	if (!status)
		status = arguments->listen ? mcp_listen(mcp, &target, &place, error) : serve(mcp, &target, error);
	mcp_destroy(&mcp);
	return status ? 1 : 0;
}

static const struct flag flags[] = {
	{"listen", "ADDRESS:PORT",
	 "speak HTTP at a loopback address instead, at /mcp; a PORT alone is one of\n127.0.0.1, 0 any free one",
	 offsetof(struct cli_arguments, listen)},
	{0},
};

const struct cli_command mcp_command = {
	.name = "mcp",
	.summary = "offer the cluster as tools to an agent (MCP, over standard input and output or HTTP)",
	.more = "An agent starts it. With a token in EXOGPU_TOKEN and --url it may what the token's scopes allow;\n"
		"without, as the owner of the data directory, it may call all of its tools.\n"
		"  claude mcp add exogpu -e EXOGPU_TOKEN=TOKEN -- exogpu mcp --url http://127.0.0.1:52415\n"
		"With --listen each request brings a token (Authorization: Bearer TOKEN) and may what that one may.\n",
	.flags = flags,
	.run = run,
};
