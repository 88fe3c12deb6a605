/* `exogpu run`: ask a model from the terminal. If it is not loaded, it is loaded first; what it answers is printed as
 * it comes. The answer itself comes by /v1, as for any other program. */
#include "common/base/limits.h"
#include "server/cli/commands/place.h"
#include "server/cli/format.h"
#include "server/cli/http_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FORM_BYTES = 256 * 1024 };

// ---- the request ----

static enum status read_stdin(struct buffer *text, struct error *error)
{
	char piece[8192];
	ssize_t got;
	while ((got = read(STDIN_FILENO, piece, sizeof piece)) > 0 || (got < 0 && errno == EINTR))
		if (got > 0 && buffer_append(text, piece, (size_t)got))
			return error_set(error, STATUS_LIMIT_EXCEEDED, "the prompt has more than %d bytes",
					 LIMIT_POST_BYTES);
	if (got < 0)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "standard input cannot be read");
	while (text->length && text->data[text->length - 1] == '\n') // as `echo` and files have it
		text->data[--text->length] = 0;
	return STATUS_OK;
}

static void push_message(struct json *messages, const char *role, const char *text)
{
	struct json *message = json_new_object();
	json_set_string(message, "role", role);
	json_set_string(message, "content", text);
	json_push(messages, message);
}

// `what` it is, for errors.
static enum status read_file(const char *what, const char *path, struct buffer *out, struct error *error)
{
	char piece[8192];
	ssize_t got;
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return error_errno(error, STATUS_INVALID_PARAMS, errno, "%s %.200s cannot be opened", what, path);
	enum status status = STATUS_OK;
	while (!status && ((got = read(fd, piece, sizeof piece)) > 0 || (got < 0 && errno == EINTR)))
		if (got > 0 && buffer_append(out, piece, (size_t)got))
			status = error_set(error, STATUS_LIMIT_EXCEEDED, "%s %.200s has more than 256 KiB", what, path);
	if (!status && got < 0)
		status = error_errno(error, STATUS_INVALID_PARAMS, errno, "%s %.200s cannot be read", what, path);
	close(fd);
	return status;
}

// --form: what the answer is to be.
static enum status put_form(const char *form, struct json *request, struct error *error)
{
	struct buffer text;
	struct json *format = json_new_object(), *schema = NULL;
	const char *ending = strrchr(form, '.');
	enum status status = STATUS_OK;
	json_set(request, "response_format", format);
	json_set_string(format, "type", "json_object");
	if (!strcmp(form, "json"))
		return STATUS_OK;
	buffer_init(&text, FORM_BYTES);
	status = read_file("the form", form, &text, error);
	if (!status && ending && !strcmp(ending, ".gbnf")) {
		json_set_string(format, "type", "grammar");
		json_set_string(format, "grammar", buffer_text(&text));
	} else if (!status) {
		struct json *named = json_new_object();
		status = json_parse(&schema, buffer_text(&text), text.length, error);
		json_set_string(format, "type", "json_schema");
		json_set_string(named, "name", "answer");
		json_set(named, "schema", schema);
		json_set(format, "json_schema", named);
	}
	buffer_finish(&text);
	return status;
}

// --tools: a list of functions, as the API takes them.
static enum status put_tools(const char *path, struct json *request, struct error *error)
{
	struct buffer text;
	struct json *tools = NULL;
	struct error fault = {0};
	buffer_init(&text, FORM_BYTES);
	enum status status = read_file("the tools", path, &text, error);
	if (!status && json_parse(&tools, buffer_text(&text), text.length, &fault)) {
		error_hint(error, "a list of {\"type\": \"function\", \"function\": {\"name\", \"description\", "
				  "\"parameters\"}}, as OpenAI's API takes them");
		status = error_set(error, STATUS_INVALID_PARAMS, "the tools %.200s are no JSON: %.100s", path,
				   fault.message);
	}
	if (!status)
		json_set(request, "tools", tools);
	buffer_finish(&text);
	return status;
}

static enum status make_request(const struct cli_arguments *arguments, const struct json *instance, const char *prompt,
				struct json **out, struct error *error)
{
	struct json *request = json_new_object();
	const bool chat = json_get_bool(instance, "chat", false);
	*out = request;
	json_set_string(request, "model", json_get_string(instance, "model_name", ""));
	json_set_bool(request, "stream", !arguments->json);
	if (chat) {
		struct json *messages = json_new_array();
		if (arguments->system)
			push_message(messages, "system", arguments->system);
		push_message(messages, "user", prompt);
		json_set(request, "messages", messages);
	} else {
		json_set_string(request, "prompt", prompt);
		json_set_integer(request, "max_tokens", 256);
	}
	if (!chat && (arguments->system || arguments->tools)) {
		error_set(error, STATUS_INVALID_PARAMS, "this model only completes text and has no --%s",
			  arguments->system ? "system" : "tools");
		error_hint(error, "its file has no known chat template; choose one with exogpu place --chat-template");
		return STATUS_INVALID_PARAMS;
	}
	enum status status = place_number(request, "max_tokens", arguments->max_tokens, error);
	if (!status && arguments->form)
		status = put_form(arguments->form, request, error);
	if (!status && arguments->tools)
		status = put_tools(arguments->tools, request, error);
	if (!status)
		status = place_sampling(arguments, request, error);
	if (!status)
		status = place_number(request, "seed", arguments->seed, error);
	return status;
}

// ---- the answer ----

// The server's own words.
static enum status read_fault(const struct json *json, int http, struct error *error)
{
	const char *message = json_get_string(json_get(json, "error"), "message", NULL);
	enum status status = http == 401   ? STATUS_UNAUTHENTICATED
			     : http == 403 ? STATUS_FORBIDDEN
			     : http == 404 ? STATUS_NOT_FOUND
			     : http == 429 ? STATUS_RATE_LIMITED
			     : http == 400 ? STATUS_INVALID_PARAMS
					   : STATUS_UNAVAILABLE;
	if (message)
		return error_set(error, status, "%.370s", message);
	return error_set(error, status, "the server answered %d", http);
}

// What a model says is text from elsewhere: it may move on, and not steer the terminal.
static void print_text(FILE *to, const char *text, bool terminal)
{
	for (; *text; text++) {
		unsigned char byte = (unsigned char)*text;
		bool control = byte < 32 ? byte != '\n' && byte != '\t' : byte == 127;
		// C1 controls are C2 80 to C2 9F.
		if (terminal && byte == 0xC2 && ((unsigned char)text[1] & 0xE0) == 0x80) {
			text++;
			control = true;
		}
		putc(terminal && control ? '?' : *text, to);
	}
	fflush(to);
}

// Thoughts are for whoever watches, not for what reads the answer: dim, on a terminal's standard error.
static void print_thought(const char *text)
{
	if (!isatty(STDERR_FILENO))
		return;
	fputs("\033[2m", stderr);
	print_text(stderr, text, true);
	fputs("\033[0m", stderr);
}

enum { CALLS_MOST = 64 };

// Of a stream: calls come in pieces.
struct heard_call {
	char name[65];
	struct buffer arguments;
};

struct heard {
	bool whole;   // the mark of the end has come
	bool cut;     // the answer ended because it may have no more tokens
	bool thought; // is what came last
	bool spoke;   // there is text
	struct heard_call calls[CALLS_MOST];
	size_t call_count;
};

static void take_calls(const struct json *delta, struct heard *heard)
{
	for (const struct json *one = json_first(json_get(delta, "tool_calls")); one; one = json_next(one)) {
		const int64_t index = json_get_integer(one, "index", -1);
		const struct json *function = json_get(one, "function");
		if (index < 0 || index >= CALLS_MOST || index > (int64_t)heard->call_count)
			continue;
		struct heard_call *call = &heard->calls[index];
		if (index == (int64_t)heard->call_count) {
			heard->call_count++;
			buffer_init(&call->arguments, LIMIT_BODY_BYTES);
			snprintf(call->name, sizeof call->name, "%s", json_get_string(function, "name", ""));
		}
		buffer_append_text(&call->arguments, json_get_string(function, "arguments", ""));
	}
}

// A line each: NAME {ARGUMENTS}.
static void finish_calls(struct heard *heard, bool terminal, bool print)
{
	for (size_t i = 0; i < heard->call_count; i++) {
		struct heard_call *call = &heard->calls[i];
		if (print) {
			print_text(stdout, call->name, terminal);
			putchar(' ');
			print_text(stdout, buffer_text(&call->arguments), terminal);
			putchar('\n');
		}
		buffer_finish(&call->arguments);
	}
}

// An answer begins on a line of its own, below the thoughts.
static void print_delta(const struct json *delta, bool terminal, struct heard *heard)
{
	const char *thought = json_get_string(delta, "reasoning_content", ""),
		   *text = json_get_string(delta, "content", "");
	if (thought[0]) {
		print_thought(thought);
		heard->thought = true;
	}
	if (text[0] && heard->thought && isatty(STDERR_FILENO))
		fputs("\n\n", stderr);
	heard->spoke |= text[0] != 0;
	heard->thought &= !text[0];
	print_text(stdout, text, terminal);
	take_calls(delta, heard);
}

static enum status take_event(const char *data, bool terminal, struct heard *heard, struct error *error)
{
	struct json *json = NULL;
	if (!strcmp(data, "[DONE]")) {
		heard->whole = true;
		return STATUS_OK;
	}
	enum status status = json_parse(&json, data, strlen(data), error);
	const struct json *choice = json_first(json_get(json, "choices"));
	if (!status && json_get(json, "error"))
		status = read_fault(json, 503, error);
	if (!status) {
		print_delta(json_get(choice, "delta"), terminal, heard);
		print_text(stdout, json_get_string(choice, "text", ""), terminal);
		heard->cut |= !strcmp(json_get_string(choice, "finish_reason", ""), "length");
	}
	json_destroy(&json);
	return status;
}

static enum status follow(struct http_stream *stream, bool raw, struct error *error)
{
	struct buffer line;
	enum status status = STATUS_OK;
	const int http = http_stream_status(stream);
	const bool terminal = isatty(STDOUT_FILENO);
	struct heard heard = {0};
	bool any = true;
	buffer_init(&line, LIMIT_BODY_BYTES);
	while (!(status = http_stream_line(stream, &line, &any, error)) && any && !status) {
		const char *text = buffer_text(&line);
		if (http != 200 || raw) {
			struct json *json = NULL;
			if (http == 200 && !line.length)
				continue;
			const bool read = !json_parse(&json, text, line.length, http == 200 ? error : NULL);
			if (http != 200 && read)
				status = read_fault(json, http, error);
			else if (http == 200)
				status = read ? command_print_json(json, error) : error->status;
			json_destroy(&json);
			heard.whole = true;
		} else if (!strncmp(text, "data: ", 6)) {
			status = take_event(text + 6, terminal, &heard, error);
		}
		if (status)
			break;
	}
	buffer_finish(&line);
	if (!status && http != 200)
		status = read_fault(NULL, http, error);
	if (!status && !heard.whole)
		status = error_set(error, STATUS_UNAVAILABLE, "the answer broke off; try again");
	const bool only_calls = heard.call_count && !heard.spoke;
	if (!raw && http == 200 && !only_calls)
		putchar('\n');
	finish_calls(&heard, terminal, !status);
	fflush(stdout);
	if (!status && heard.cut)
		command_print_text(stderr,
				   "the answer was cut off: it reached the limit of tokens (--max-tokens), or the "
				   "context is full",
				   "");
	return status;
}

static enum status ask(const struct target *target, const struct cli_arguments *arguments, const struct json *instance,
		       const char *prompt, struct error *error)
{
	struct buffer body;
	struct json *request = NULL;
	struct http_stream *stream = NULL;
	const bool chat = json_get_bool(instance, "chat", false);
	buffer_init(&body, LIMIT_POST_BYTES);
	enum status status = make_request(arguments, instance, prompt, &request, error);
	if (!status && json_print(request, &body))
		status = error_set(error, STATUS_LIMIT_EXCEEDED, "the prompt is too long");
	if (!status)
		status = http_stream_post(&stream, target, chat ? "/v1/chat/completions" : "/v1/completions", &body,
					  error);
	if (!status)
		status = follow(stream, arguments->json, error);
	http_stream_close(&stream);
	json_destroy(&request);
	buffer_finish(&body);
	return status;
}

// Without a template nobody is asked: the text goes on.
static void tell_completion(const struct json *instance)
{
	if (!json_get_bool(instance, "chat", false))
		command_print_text(stderr, "it has no known chat template, so it continues the prompt: ",
				   json_get_string(instance, "model_name", ""));
}

// ---- the instance ----

// How soon one in this state answers: 0: not at all. Of a paused one requests wait.
static int rank_of(const char *state)
{
	return !strcmp(state, "running") ? 3 : !strcmp(state, "paused") ? 2 : !strcmp(state, "starting") ? 1 : 0;
}

static const char *state_of(const struct json *instance)
{
	return json_get_string(instance, "state", "");
}

// One of this model that is running, or else one that is paused, or being loaded.
static enum status find_instance(struct client *client, const struct json *model, struct json **instance,
				 struct error *error)
{
	struct json *answer = NULL;
	const struct json *found = NULL;
	const char *model_id = json_get_string(model, "model_id", "");
	enum status status = client_ask(client, &(struct client_call){.method = "instance.list"}, &answer, error);
	for (const struct json *one = json_first(json_get(answer, "instances")); one; one = json_next(one))
		if (!strcmp(json_get_string(one, "model_id", ""), model_id) &&
		    rank_of(state_of(one)) > rank_of(state_of(found)))
			found = one;
	*instance = found ? json_copy(found) : NULL;
	json_destroy(&answer);
	return status;
}

// Wait for one that is being loaded; others stay as they are.
static enum status wait_for(struct client *client, struct json **instance, struct error *error)
{
	char id[64];
	if (rank_of(state_of(*instance)) > 1)
		return STATUS_OK;
	snprintf(id, sizeof id, "%s", json_get_string(*instance, "instance_id", ""));
	command_print_text(stderr, "being loaded already: ", json_get_string(*instance, "model_name", ""));
	json_destroy(instance);
	return place_wait(client, id, instance, error);
}

static enum status find_or_start(struct client *client, const struct cli_arguments *arguments, struct json **instance,
				 struct error *error)
{
	struct json *model = NULL, *params = NULL;
	enum status status = place_find_model(client, arguments->operand, &model, error);
	if (!status)
		status = find_instance(client, model, instance, error);
	if (!status && *instance) {
		status = wait_for(client, instance, error);
	} else if (!status) {
		command_print_text(stderr, "not loaded yet, starting ", json_get_string(model, "name", ""));
		status = place_params(client, arguments, model, &params, error);
		if (!status) {
			json_set_string(params, "gives_way", "unload"); // it is loaded again as easily
			status = place_start(client, params, instance, error);
		}
	}
	json_destroy(&model);
	return status;
}

static int run(const struct cli_arguments *arguments, struct error *error)
{
	struct target target;
	struct client *client;
	struct buffer prompt;
	struct json *instance = NULL;
	buffer_init(&prompt, LIMIT_POST_BYTES);
	enum status status = STATUS_OK;
	if (strcmp(arguments->second, "-") != 0)
		status = buffer_append_text(&prompt, arguments->second);
	else
		status = read_stdin(&prompt, error);
	if (!status && !json_utf8(buffer_text(&prompt), prompt.length))
		status = error_set(error, STATUS_INVALID_PARAMS, "the prompt is not UTF-8");
	int result = status ? 1 : command_open(arguments, &target, &client, error);
	if (!result) {
		status = find_or_start(client, arguments, &instance, error);
		client_close(&client);
		if (!status)
			tell_completion(instance);
		if (!status)
			status = ask(&target, arguments, instance, buffer_text(&prompt), error);
		result = status ? 1 : 0;
	}
	json_destroy(&instance);
	buffer_finish(&prompt);
	return result;
}

static const struct flag flags[] = {
	{"system", "TEXT", "instructions for the model before the prompt", offsetof(struct cli_arguments, system)},
	{"max-tokens", "N", "maximum number of tokens of the answer (default 4096; 256 if the model only completes)",
	 offsetof(struct cli_arguments, max_tokens)},
	{"form", "json|FILE",
	 "the answer is a JSON object, an instance of the JSON Schema in FILE, or a text of the grammar in "
	 "FILE.gbnf",
	 offsetof(struct cli_arguments, form)},
	{"tools", "FILE",
	 "a JSON list of functions that the model may call, as OpenAI's API takes them; its calls are "
	 "printed, a line each",
	 offsetof(struct cli_arguments, tools)},
	{"draft", "MODEL", "if it is loaded now: with this draft model, as exogpu place does",
	 offsetof(struct cli_arguments, draft)},
	PLACE_SAMPLING_FLAGS,
	{"seed", "N", "the same seed gives the same answer", offsetof(struct cli_arguments, seed)},
	{0},
};

const struct cli_command run_model_command = {
	.name = "run",
	.operand = "MODEL PROMPT",
	.summary = "ask a model; - reads the prompt from standard input",
	.more = "MODEL is a name or an id of exogpu model list. If it is not loaded, it is loaded first, as exogpu "
		"place\n"
		"does (that needs the scope admin). Ctrl-C ends the answer.\n",
	.flags = flags,
	.run = run,
};
