/* See openai.h: which request is which, who may, and the life of one. */
#include "common/base/clock.h"
#include "common/base/list.h"
#include "server/http/openai_inside.h"
#include "server/security/random_id.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct openai {
	struct openai_params params;
	struct openai_parser *parser;
	struct answer *answers;
	size_t choices;               // with their alternatives, that wait for their clients, of all answers
	size_t input_tokens;          // that inputs for embeddings are given as, of all answers
	struct net_header headers[6]; // of the answer that is being made
};

static const struct {
	const char *path, *action;
	enum endpoint endpoint;
} endpoints[] = {
	{"/v1/chat/completions", "infer.chat", ENDPOINT_CHAT},
	{"/v1/completions", "infer.completions", ENDPOINT_COMPLETIONS},
	{"/v1/embeddings", "infer.embeddings", ENDPOINT_EMBEDDINGS},
	{"/v1/rerank", "infer.rerank", ENDPOINT_RERANK},
};
enum { ENDPOINTS = sizeof endpoints / sizeof *endpoints };

static const char models_path[] = "/v1/models";

bool openai_takes(const char *path)
{
	return !strcmp(path, "/v1") || !strncmp(path, "/v1/", 4);
}

static int endpoint_of(const char *path)
{
	for (int i = 0; i < ENDPOINTS; i++)
		if (!strcmp(path, endpoints[i].path))
			return i;
	return -1;
}

bool openai_hold_choices(struct openai *openai, size_t more)
{
	if (more > LIMIT_ALL_CHOICES - openai->choices)
		return false;
	openai->choices += more;
	return true;
}

void openai_let_go_of_choices(struct openai *openai, size_t fewer)
{
	openai->choices -= fewer;
}

// ---- headers ----

// The origin that may read the answer; "" if none may that asks.
static const char *allowed_origin(const struct openai *openai, const char *origin)
{
	const char *const *one = openai->params.cors_origins;
	while (one && *one && strcasecmp(*one, origin) != 0)
		one++;
	return origin[0] && one && *one ? origin : "";
}

bool openai_origin_named(const struct openai *openai, const char *origin)
{
	return allowed_origin(openai, origin)[0] != 0;
}

static void add_headers(struct openai *openai, struct net_response *response, const char *origin, bool preflight)
{
	size_t count = 0;
	struct net_header *headers = openai->headers;
	if (response->status == 429 || response->status == 503)
		headers[count++] = (struct net_header){"retry-after:", "2"};
	if (openai->params.cors_origins && *openai->params.cors_origins) // another origin's answer has other headers
		headers[count++] = (struct net_header){"vary:", "origin"};
	if (origin[0])
		headers[count++] = (struct net_header){"access-control-allow-origin:", origin};
	if (origin[0] && preflight) {
		headers[count++] = (struct net_header){"access-control-allow-methods:", "GET, POST"};
		// A browser names those that it is about to send; * would not stand for Authorization.
		headers[count++] = (struct net_header){"access-control-allow-headers:",
						       "authorization, content-type, openai-organization, "
						       "openai-project, openai-beta, x-stainless-arch, "
						       "x-stainless-lang, x-stainless-os, x-stainless-package-version, "
						       "x-stainless-retry-count, x-stainless-runtime, "
						       "x-stainless-runtime-version, x-stainless-timeout, "
						       "x-stainless-helper-method, x-stainless-async"};
	}
	headers[count] = (struct net_header){0};
	response->more = headers;
	response->no_store = true;
}

// ---- errors ----

struct shape {
	int http;
	const char *type, *code;
};

static struct shape shape_of(enum status status)
{
	switch (status) {
	case STATUS_UNAUTHENTICATED:
		return (struct shape){401, "authentication_error", "invalid_api_key"};
	case STATUS_FORBIDDEN:
		return (struct shape){403, "permission_error", "forbidden"};
	case STATUS_NOT_FOUND:
		return (struct shape){404, "invalid_request_error", "model_not_found"};
	case STATUS_METHOD_NOT_FOUND:
		return (struct shape){404, "invalid_request_error", "not_found"};
	case STATUS_RATE_LIMITED:
		return (struct shape){429, "rate_limit_error", "rate_limit_exceeded"};
	case STATUS_PARSE_ERROR:
	case STATUS_INVALID_REQUEST:
	case STATUS_INVALID_PARAMS:
	case STATUS_CONFLICT:
		return (struct shape){400, "invalid_request_error", NULL};
	case STATUS_LIMIT_EXCEEDED:
		return (struct shape){413, "invalid_request_error", "too_large"};
	case STATUS_DEVICE_LOST:
		return (struct shape){503, "server_error", "device_lost"};
	case STATUS_UNAVAILABLE:
		return (struct shape){503, "server_error", "unavailable"};
	case STATUS_TIMEOUT:
		return (struct shape){504, "server_error", "timeout"};
	case STATUS_OK:
	case STATUS_PENDING:
	case STATUS_INTERNAL:
	case STATUS_OUT_OF_MEMORY:
	case STATUS_COUNT:
		break;
	}
	return (struct shape){500, "server_error", NULL};
}

static struct json *error_json(const struct error *error, const struct shape shape, const char *param)
{
	char message[700];
	struct json *json = json_new_object(), *inside = json_new_object();
	snprintf(message, sizeof message, "%s%s%s", error->message[0] ? error->message : status_text(error->status),
		 error->hint[0] ? "; " : "", error->hint);
	json_set_string(inside, "message", message);
	json_set_string(inside, "type", shape.type);
	json_set_string(inside, "param", param);
	json_set_string(inside, "code", shape.code);
	json_set(json, "error", inside);
	return json;
}

static void fill(struct net_response *response, int status, struct json *json)
{
	buffer_clear(&response->owned);
	if (json_print(json, &response->owned))
		status = 500;
	json_destroy(&json);
	response->status = status;
	response->content_type = "application/json";
	response->body = response->owned.data;
	response->body_bytes = response->owned.length;
}

static void fail_as(struct net_response *response, const struct error *error, const struct shape shape,
		    const char *param)
{
	fill(response, shape.http, error_json(error, shape, param));
	if (error->status == STATUS_UNAUTHENTICATED)
		response->authenticate = "Bearer realm=\"exogpu\"";
}

void openai_fail(struct net_response *response, const struct error *error, const char *param)
{
	fail_as(response, error, shape_of(error->status), param);
}

// ---- answers ----

static void answer_fail_as(struct answer *answer, const struct error *error, const struct shape shape,
			   const char *param)
{
	struct net_response response = {0};
	if (answer->begun) {
		answer_event(answer, error_json(error, shape, param));
		net_exchange_end(answer->exchange);
		return;
	}
	buffer_init(&response.owned, LIMIT_BODY_BYTES);
	fail_as(&response, error, shape, param);
	add_headers(answer->openai, &response, answer->origin, false);
	net_exchange_answer(answer->exchange, &response);
}

void answer_fail(struct answer *answer, const struct error *error, const char *param)
{
	answer_fail_as(answer, error, shape_of(error->status), param);
}

void answer_fail_model(struct answer *answer, const struct error *error)
{
	static const struct shape too_long = {400, "invalid_request_error", "context_length_exceeded"};
	static const char *const prompts[] = {[ENDPOINT_CHAT] = "messages",
					      [ENDPOINT_COMPLETIONS] = "prompt",
					      [ENDPOINT_EMBEDDINGS] = "input",
					      [ENDPOINT_RERANK] = "documents"};
	const char *prompt = prompts[answer->endpoint];
	if (strstr(error->message, "a bias is for token"))
		prompt = "logit_bias";
	else if (!strncmp(error->message, "the form of the answer", 22))
		prompt = "response_format";
	else if (!strncmp(error->message, "the tools:", 10))
		prompt = "tools";
	else if (!strncmp(error->message, "tool_choice:", 12))
		prompt = "tool_choice";
	else if (!strncmp(error->message, "dimensions:", 11))
		prompt = "dimensions";
	else if (!strncmp(error->message, "the model ", 10) && error->status == STATUS_INVALID_PARAMS)
		prompt = "model";
	else if (strstr(error->message, "reasoning_effort is not known"))
		prompt = "reasoning_effort";
	else if (strstr(error->message, "enable_thinking is not known"))
		prompt = "chat_template_kwargs";
	if (error->status == STATUS_LIMIT_EXCEEDED)
		answer_fail_as(answer, error, too_long, prompt);
	else
		answer_fail(answer, error,
			    error->status == STATUS_NOT_FOUND        ? "model"
			    : error->status == STATUS_INVALID_PARAMS ? prompt
								     : NULL);
}

void answer_json(struct answer *answer, struct json *json)
{
	struct net_response response = {0};
	buffer_init(&response.owned, LIMIT_BODY_BYTES);
	fill(&response, 200, json);
	add_headers(answer->openai, &response, answer->origin, false);
	net_exchange_answer(answer->exchange, &response);
}

void answer_begin_events(struct answer *answer)
{
	struct net_response response = {.status = 200, .content_type = "text/event-stream; charset=utf-8"};
	add_headers(answer->openai, &response, answer->origin, false);
	net_exchange_begin(answer->exchange, &response);
	answer->begun = true;
}

void answer_event(struct answer *answer, struct json *json)
{
	struct buffer text;
	buffer_init(&text, LIMIT_ANSWER_QUEUE_BYTES);
	buffer_append_text(&text, "data: ");
	if (json)
		json_print(json, &text);
	else
		buffer_append_text(&text, "[DONE]");
	buffer_append_text(&text, "\n\n");
	json_destroy(&json);
	if (text.failed || net_exchange_send(answer->exchange, text.data, text.length)) {
		generation_cancel(&answer->generation);
		net_exchange_drop(answer->exchange);
	}
	buffer_finish(&text);
}

// ---- a POST ----

static void answer_destroy(struct answer *answer)
{
	generation_cancel(&answer->generation);
	answer_embed_finish(answer);
	if (answer->counted)
		answer->openai->input_tokens -= answer->input_tokens;
	LIST_REMOVE(answer, link);
	said_finish(&answer->said);
	json_destroy(&answer->tools);
	buffer_finish(&answer->text);
	answer_drop_choices(answer);
	json_destroy(&answer->sampling);
	json_destroy(&answer->inputs);
	json_destroy(&answer->query);
	free(answer);
}

static enum status answer_create(struct answer **out, struct openai *openai, int at, struct error *error)
{
	static const char *const prefixes[] = {"chatcmpl-", "cmpl-", "emb-", "rank-"};
	struct answer *answer = calloc(1, sizeof(*answer));
	*out = answer;
	if (!answer || random_id(prefixes[at], answer->id, sizeof answer->id)) {
		free(answer);
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	}
	answer->openai = openai;
	answer->endpoint = endpoints[at].endpoint;
	answer->created_s = clock_wall_ms() / 1000;
	answer->logprobs = -1;
	buffer_init(&answer->text, LIMIT_ANSWER_QUEUE_BYTES);
	said_init(&answer->said, &answer->text, false);
	LIST_PUSH(&openai->answers, answer, link);
	return STATUS_OK;
}

static enum status check_length(const struct net_request *request, struct error *error)
{
	if (request->body_bytes == NET_NO_LENGTH)
		return error_set(error, STATUS_INVALID_REQUEST,
				 "the request must say how long it is: Content-Length, or chunks and nothing else");
	if (request->body_bytes > LIMIT_POST_BYTES)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "the request has %zu bytes; it may have %d",
				 request->body_bytes, LIMIT_POST_BYTES);
	return STATUS_OK;
}

static enum status no_such(const struct net_request *request, struct error *error)
{
	error_set(error, STATUS_METHOD_NOT_FOUND, "%.100s is not served here", request->path);
	error_hint(error, "GET /v1/models; POST /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/rerank");
	return STATUS_METHOD_NOT_FOUND;
}

bool openai_post(struct openai *openai, const struct net_request *request, void **user, struct net_response *response)
{
	struct error error = {0};
	struct caller caller;
	struct answer *answer = NULL;
	const char *origin = allowed_origin(openai, request->origin);
	const int at = endpoint_of(request->path);
	enum status status = access_admit(openai->params.access, request, SCOPE_INFER,
					  at < 0 ? "infer" : endpoints[at].action, &caller, &error);
	if (!status && at < 0)
		status = no_such(request, &error);
	if (!status)
		status = check_length(request, &error);
	if (!status)
		status = answer_create(&answer, openai, at, &error);
	if (status) {
		openai_fail(response, &error, NULL);
		add_headers(openai, response, origin, false);
		return false;
	}
	answer->caller = caller;
	response->holder = access_holder(caller.token);
	snprintf(answer->origin, sizeof answer->origin, "%s", origin);
	*user = answer;
	return true;
}

static const char *action_of(const struct answer *answer)
{
	for (int i = 0; i < ENDPOINTS; i++)
		if (endpoints[i].endpoint == answer->endpoint)
			return endpoints[i].action;
	return "infer";
}

struct generation_params answer_question(const struct answer *answer, struct json *call)
{
	const struct token *token = answer->caller.token;
	return (struct generation_params){.by = &answer->caller.actor,
					  .token = answer->caller.token,
					  .action = action_of(answer),
					  .model = answer->model,
					  .loads = answer->openai->params.load_on_demand || !token ||
						   token_allows(token, SCOPE_ADMIN),
					  .call = call};
}

enum status answer_ask(struct answer *answer, struct generation **out, const struct generation_params *params,
		       struct error *error)
{
	return generation_start(out, answer->openai->params.instances, params, error);
}

void answer_refused(const struct answer *answer, enum status status)
{
	audit_count(answer->openai->params.audit,
		    &(struct audit_tally){.by = &answer->caller.actor, .action = action_of(answer), .outcome = status});
}

enum status answer_generate(struct answer *answer, struct json *call, struct error *error)
{
	struct generation_params params = answer_question(answer, call);
	answer->said.streams = answer->streams;
	params.started = answer_started;
	params.delta = answer_delta;
	params.ended = answer_ended;
	params.context = answer;
	enum status status = answer_ask(answer, &answer->generation, &params, error);
	if (status)
		answer_refused(answer, status);
	else
		answer->sampling = json_copy(generation_sampling(answer->generation));
	return status;
}

// Since its headers were admitted the token may have been revoked, or have expired. False: that was answered.
static bool may_ask(const struct answer *answer, struct error *error)
{
	const struct token *token = answer->caller.token; // which lives as long as the server
	if (!token || !token_usable(token, token_clock_ms(), error))
		return true;
	answer_refused(answer, error->status);
	return false;
}

// Inputs wait in the answer, a few at a time in the line of the model.
static enum status count_inputs(struct answer *answer, struct error *error)
{
	size_t *all = &answer->openai->input_tokens;
	const int64_t most = instances_line_tokens(answer->openai->params.instances);
	if ((int64_t)answer->input_tokens > most) {
		answer_refused(answer, STATUS_LIMIT_EXCEEDED);
		error_hint(error, "send them in several requests");
		return error_set(error, STATUS_LIMIT_EXCEEDED,
				 "the inputs have %zu tokens; those of all requests together may have %lld",
				 answer->input_tokens, (long long)most);
	}
	if (answer->input_tokens && (int64_t)(*all + answer->input_tokens) > most) {
		error_set(error, STATUS_RATE_LIMITED,
			  "inputs with %zu tokens already wait; with these %zu they would exceed %lld", *all,
			  answer->input_tokens, (long long)most);
		error_hint(error, "try again in a few seconds");
		answer_refused(answer, STATUS_RATE_LIMITED);
		return STATUS_RATE_LIMITED;
	}
	*all += answer->input_tokens;
	answer->counted = true;
	return STATUS_OK;
}

void openai_read_through(struct answer *answer, struct openai_reading *reading)
{
	struct error error = reading->error;
	struct json *call = reading->call;
	const bool late = answer->reading;
	enum status status = reading->status;
	answer->reading = false;
	reading->call = NULL;
	if (answer->gone) {
		json_destroy(&call);
		answer_destroy(answer);
		return;
	}
	if (late && !may_ask(answer, &error))
		status = error.status;
	if (!status && answer_embeds(answer))
		status = count_inputs(answer, &error);
	if (status) {
		json_destroy(&call);
		answer_fail(answer, &error, reading->param);
	} else if (answer_embeds(answer)) {
		answer_embed(answer);
	} else if (answer_generate(answer, call, &error)) {
		answer_fail_model(answer, &error);
	}
}

void openai_posted(void *user, struct net_exchange *exchange, const uint8_t *body, size_t length)
{
	struct answer *answer = user;
	struct error error = {0};
	struct openai_reading reading;
	answer->exchange = exchange;
	if (!may_ask(answer, &error)) {
		answer_fail(answer, &error, NULL);
	} else if (length <= LIMIT_BODY_AT_ONCE_BYTES) {
		openai_read_body(answer, (const char *)body, length, &reading);
		openai_read_through(answer, &reading);
		openai_reading_finish(&reading);
	} else if (openai_parser_take(answer->openai->parser, answer, body, length, &error)) {
		answer_refused(answer, error.status);
		answer_fail(answer, &error, NULL);
	}
}

void openai_misread(void *user, struct net_exchange *exchange, const struct error *error)
{
	struct answer *answer = user;
	answer->exchange = exchange;
	answer_fail(answer, error, NULL);
}

void openai_sent(void *user, struct net_exchange *exchange)
{
	(void)exchange;
	answer_flush(user);
}

void openai_over(void *user)
{
	struct answer *answer = user;
	answer->gone = true;
	if (!answer->reading)
		answer_destroy(answer);
}

// ---- GET and OPTIONS ----

static struct json *model_json(const struct openai *openai, const struct model_record *model)
{
	struct json *json = json_new_object();
	json_set_string(json, "id", model->name);
	json_set_string(json, "object", "model");
	json_set_integer(json, "created", model->added_ms / 1000);
	json_set_string(json, "owned_by", "exogpu");
	json_set_bool(json, "loaded", instances_ready(openai->params.instances, model) > 0);
	return json;
}

// Those that could answer, the ones that do first.
static struct json *list_models(const struct openai *openai)
{
	const struct model_record *model;
	struct json *json = json_new_object(), *data = json_new_array();
	for (int loaded = 1; loaded >= 0; loaded--)
		for (size_t i = 0; (model = models_at(openai->params.models, i)); i++)
			if (model->state == MODEL_READY &&
			    (instances_ready(openai->params.instances, model) > 0) == (loaded == 1))
				json_push(data, model_json(openai, model));
	json_set_string(json, "object", "list");
	json_set(json, "data", data);
	return json;
}

void openai_get(struct openai *openai, const struct net_request *request, struct net_response *response)
{
	struct caller caller;
	struct error error = {0};
	struct json *json = NULL;
	const size_t length = sizeof models_path - 1;
	enum status status = access_admit(openai->params.access, request, SCOPE_INFER, "infer.models", &caller, &error);
	response->holder = status ? 0 : access_holder(caller.token);
	const bool below = !strncmp(request->path, models_path, length) && request->path[length] == '/';
	const struct model_record *model = below ? models_find(openai->params.models, request->path + length + 1)
						 : NULL;
	if (!status && !strcmp(request->path, models_path)) {
		json = list_models(openai);
	} else if (!status && model && model->state == MODEL_READY) {
		json = model_json(openai, model);
	} else if (!status && below) {
		status = error_set(&error, STATUS_NOT_FOUND, "there is no model %.128s", request->path + length + 1);
		error_hint(&error, "GET /v1/models lists the models");
	} else if (!status) {
		status = no_such(request, &error);
	}
	if (status)
		openai_fail(response, &error, NULL);
	else
		fill(response, 200, json);
	add_headers(openai, response, allowed_origin(openai, request->origin), false);
}

void openai_options(struct openai *openai, const struct net_request *request, struct net_response *response)
{
	const char *origin = allowed_origin(openai, request->origin);
	response->status = origin[0] ? 204 : 403;
	add_headers(openai, response, origin, true);
}

// ---- all of it ----

enum status openai_create(struct openai **out, const struct openai_params *params, struct error *error)
{
	struct openai *openai = calloc(1, sizeof(*openai));
	*out = openai;
	if (!openai)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	openai->params = *params;
	enum status status = openai_parser_create(&openai->parser, params->loop, error);
	if (status)
		openai_destroy(out);
	return status;
}

bool openai_answering(const struct openai *openai)
{
	return openai->answers != NULL;
}

void openai_destroy(struct openai **pointer)
{
	struct openai *openai = *pointer;
	if (!openai)
		return;
	*pointer = NULL;
	openai_parser_destroy(&openai->parser);
	while (openai->answers)
		answer_destroy(openai->answers);
	free(openai);
}
