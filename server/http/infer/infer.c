/* See infer.h: which request is which, who may, and the life of one. */
#include "common/base/clock.h"
#include "common/base/list.h"
#include "server/http/infer/inside.h"
#include "server/security/random_id.h"
#include "server/traces/traces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct infer {
	struct infer_params params;
	struct infer_parser *parser;
	struct answer *answers;
	size_t choices;      // with their alternatives, that wait for their clients, of all answers
	size_t input_tokens; // that inputs for embeddings are given as, of all answers
	struct net_header headers[REPLY_HEADERS]; // of the answer that is being made
	char request_id[REQUEST_ID_BYTES];        // of one that has no struct answer
};

static const struct {
	const char *path, *action;
	enum endpoint endpoint;
	const char *prefix; // of the ids of answers
	const struct wording *wording;
} endpoints[] = {
	{"/v1/chat/completions", "infer.chat", ENDPOINT_CHAT, "chatcmpl-", &openai_wording},
	{"/v1/completions", "infer.completions", ENDPOINT_COMPLETIONS, "cmpl-", &openai_wording},
	{"/v1/embeddings", "infer.embeddings", ENDPOINT_EMBEDDINGS, "emb-", &openai_wording},
	{"/v1/rerank", "infer.rerank", ENDPOINT_RERANK, "rank-", &openai_wording},
	{"/v1/messages", "infer.messages", ENDPOINT_MESSAGES, "msg_", &anthropic_wording},
	{"/v1/messages/count_tokens", "infer.count_tokens", ENDPOINT_COUNT_TOKENS, "count_", &anthropic_wording},
	{"/v1/responses", "infer.responses", ENDPOINT_RESPONSES, "resp_", &responses_wording},
	{"/api/chat", "ollama.chat", ENDPOINT_OLLAMA_CHAT, "chat_", &ollama_wording},
	{"/api/generate", "ollama.generate", ENDPOINT_OLLAMA_GENERATE, "gen_", &ollama_wording},
	{"/api/embed", "ollama.embed", ENDPOINT_OLLAMA_EMBED, "emb_", &ollama_wording},
	{"/api/embeddings", "ollama.embed", ENDPOINT_OLLAMA_EMBEDDINGS, "emb_", &ollama_wording},
	{"/api/show", "infer.models", ENDPOINT_OLLAMA_SHOW, "show_", &ollama_wording},
	{"/api/pull", "model.add", ENDPOINT_OLLAMA_PULL, "pull_", &ollama_wording},
};
enum { ENDPOINTS = sizeof endpoints / sizeof *endpoints };

static const char models_path[] = "/v1/models";

bool infer_takes(const char *path)
{
	return !strcmp(path, "/v1") || !strncmp(path, "/v1/", 4) || !strncmp(path, "/api/", 5);
}

static int endpoint_of(const char *path)
{
	for (int i = 0; i < ENDPOINTS; i++)
		if (!strcmp(path, endpoints[i].path))
			return i;
	return -1;
}

static int number_of(enum endpoint endpoint)
{
	for (int i = 0; i < ENDPOINTS; i++)
		if (endpoints[i].endpoint == endpoint)
			return i;
	return -1;
}

bool infer_hold_choices(struct infer *infer, size_t more)
{
	if (more > LIMIT_ALL_CHOICES - infer->choices)
		return false;
	infer->choices += more;
	return true;
}

void infer_let_go_of_choices(struct infer *infer, size_t fewer)
{
	infer->choices -= fewer;
}

// Where no address tells: Anthropic's clients name the version of its API.
static const struct wording *wording_of(const struct net_request *request)
{
	if (!strncmp(request->path, "/api/", 5))
		return &ollama_wording;
	return request->anthropic_version[0] ? &anthropic_wording : &openai_wording;
}

static void name_request(struct infer *infer)
{
	if (random_id("req_", infer->request_id, sizeof infer->request_id))
		infer->request_id[0] = 0;
}

bool infer_origin_named(const struct infer *infer, const char *origin)
{
	return reply_origin(infer->params.cors_origins, origin)[0] != 0;
}

const char *const *infer_origins(const struct infer *infer)
{
	return infer->params.cors_origins;
}

int64_t infer_wait_s(const struct infer *infer, const struct token *token)
{
	return instances_wait_s(infer->params.instances, token);
}

static void add_headers(struct infer *infer, struct net_response *response, const char *origin,
			const struct wording *wording, const char *id)
{
	reply_add_headers(response, infer->headers, infer->params.cors_origins, origin, wording, id);
}

// A request that has no struct answer.
static void refuse(struct infer *infer, struct net_response *response, const struct wording *wording,
		   const struct error *error)
{
	reply_fail(response, wording, &(struct fault){.error = error, .request_id = infer->request_id});
}

// ---- a POST ----

void answer_free(struct answer *answer)
{
	const int at = number_of(answer->endpoint);
	generation_cancel(&answer->generation);
	answer_finish_several(answer);
	answer_embed_finish(answer);
	ollama_pull_leave(answer);
	if (answer->counted)
		answer->infer->input_tokens -= answer->input_tokens;
	said_finish(&answer->said);
	responses_finish(answer);
	json_destroy(&answer->tools);
	buffer_finish(&answer->text);
	answer_drop_choices(answer);
	json_destroy(&answer->sampling);
	json_destroy(&answer->inputs);
	json_destroy(&answer->query);
	traced_finish(answer, at < 0 ? "" : endpoints[at].path);
	free(answer);
}

static void answer_destroy(struct answer *answer)
{
	LIST_REMOVE(answer, link);
	answer_free(answer);
}

struct answer *answer_copy(const struct answer *answer)
{
	struct answer *copy = calloc(1, sizeof(*copy));
	if (!copy)
		return NULL;
	*copy = (struct answer){.infer = answer->infer,
				.wording = answer->wording,
				.endpoint = answer->endpoint,
				.caller = answer->caller,
				.exchange = answer->exchange,
				.created_s = answer->created_s,
				.streams = answer->streams,
				.wants_usage = answer->wants_usage,
				.energy = answer->energy,
				.echo = answer->echo,
				.hides_thoughts = answer->hides_thoughts,
				.logprobs = answer->logprobs,
				.tools = answer->tools ? json_copy(answer->tools) : NULL};
	memcpy(copy->id, answer->id, sizeof copy->id);
	memcpy(copy->request_id, answer->request_id, sizeof copy->request_id);
	memcpy(copy->model, answer->model, sizeof copy->model);
	buffer_init(&copy->text, LIMIT_ANSWER_QUEUE_BYTES);
	said_init(&copy->said, &copy->text, false);
	return copy;
}

static enum status answer_create(struct answer **out, struct infer *infer, int at, struct error *error)
{
	struct answer *answer = calloc(1, sizeof(*answer));
	*out = answer;
	if (!answer || random_id(endpoints[at].prefix, answer->id, sizeof answer->id) ||
	    random_id("req_", answer->request_id, sizeof answer->request_id)) {
		free(answer);
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	}
	answer->infer = infer;
	answer->endpoint = endpoints[at].endpoint;
	answer->wording = endpoints[at].wording;
	answer->created_s = clock_wall_ms() / 1000;
	answer->logprobs = -1;
	buffer_init(&answer->text, LIMIT_ANSWER_QUEUE_BYTES);
	said_init(&answer->said, &answer->text, false);
	LIST_PUSH(&infer->answers, answer, link);
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
	if (wording_of(request) == &ollama_wording)
		return ollama_no_such(request->path, error);
	error_set(error, STATUS_METHOD_NOT_FOUND, "%.100s is not served here", request->path);
	error_hint(error, "GET /v1/models; POST /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/rerank, "
			  "/v1/messages, /v1/messages/count_tokens, /v1/responses");
	return STATUS_METHOD_NOT_FOUND;
}

bool infer_post(struct infer *infer, const struct net_request *request, void **user, struct net_response *response)
{
	struct error error = {0};
	struct caller caller;
	struct answer *answer = NULL;
	const char *origin = reply_origin(infer->params.cors_origins, request->origin);
	const int at = endpoint_of(request->path);
	const struct wording *wording = at < 0 ? wording_of(request) : endpoints[at].wording;
	name_request(infer);
	const bool adds = at >= 0 && endpoints[at].endpoint == ENDPOINT_OLLAMA_PULL;
	enum status status = access_admit(infer->params.access, request, adds ? SCOPE_ADMIN : SCOPE_INFER,
					  at < 0 ? "infer" : endpoints[at].action, &caller, &error);
	if (!status && at < 0)
		status = no_such(request, &error);
	if (!status)
		status = check_length(request, &error);
	if (!status)
		status = answer_create(&answer, infer, at, &error);
	if (status) {
		refuse(infer, response, wording, &error);
		add_headers(infer, response, origin, wording, infer->request_id);
		return false;
	}
	answer->caller = caller;
	response->holder = access_holder(caller.token);
	snprintf(answer->origin, sizeof answer->origin, "%s", origin);
	traced_begin(answer, infer->params.traces, request);
	*user = answer;
	return true;
}

static const char *action_of(const struct answer *answer)
{
	const int at = number_of(answer->endpoint);
	return at < 0 ? "infer" : endpoints[at].action;
}

struct generation_params answer_question(const struct answer *answer, struct json *call)
{
	const struct token *token = answer->caller.token;
	return (struct generation_params){.by = &answer->caller.actor,
					  .token = answer->caller.token,
					  .action = action_of(answer),
					  .request_id = answer->request_id,
					  .model = answer->model,
					  .energy = answer->energy,
					  .loads = answer->infer->params.load_on_demand || !token ||
						   token_allows(token, SCOPE_ADMIN),
					  .call = call};
}

enum status answer_ask(struct answer *answer, struct generation **out, const struct generation_params *params,
		       struct error *error)
{
	const enum status status = generation_start(out, answer->infer->params.instances, params, error);
	answer_whole(answer)->traced.asked |= !status;
	return status;
}

void answer_refused(const struct answer *answer, enum status status)
{
	audit_count(answer->infer->params.audit,
		    &(struct audit_tally){.by = &answer->caller.actor, .action = action_of(answer), .outcome = status});
}

enum status answer_generate(struct answer *answer, struct json *call, struct error *error)
{
	struct generation_params params = answer_question(answer, call);
	answer->said.streams = answer->streams && !answer->wording->whole_calls;
	params.started = answer_started;
	params.delta = answer_delta;
	params.ended = answer_ended;
	params.context = answer;
	params.counts = answer->counts;
	params.part = answer->several.index > 0;
	params.run = params.counts ? NULL : traced_run(answer);
	enum status status = answer_ask(answer, &answer->generation, &params, error);
	if (status)
		answer_refused(answer, status);
	else if (!params.counts)
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
	size_t *all = &answer->infer->input_tokens;
	const int64_t most = instances_line_tokens(answer->infer->params.instances);
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

// By the name that it has here.
static void find_model(struct answer *answer)
{
	const struct models *models = answer->infer->params.models;
	const struct model_record *model = answer->wording->find ? answer->wording->find(models, answer->model) : NULL;
	if (model)
		snprintf(answer->model, sizeof answer->model, "%s", model->name);
}

void infer_read_through(struct answer *answer, struct infer_reading *reading)
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
	if (!status && answer->endpoint != ENDPOINT_OLLAMA_PULL)
		find_model(answer);
	if (!status && answer_serves(answer)) {
		json_destroy(&call);
		if (answer->wording->serve(answer, &answer->infer->params, &error))
			answer_fail(answer, &error, NULL);
		return;
	}
	if (status) {
		json_destroy(&call);
		answer_fail(answer, &error, reading->param);
	} else if (answer_embeds(answer)) {
		answer_embed(answer);
	} else if (answer_has_several(answer) ? answer_generate_several(answer, call, &error)
					      : answer_generate(answer, call, &error)) {
		answer_fail_model(answer, &error);
	}
}

void infer_posted(void *user, struct net_exchange *exchange, const uint8_t *body, size_t length)
{
	struct answer *answer = user;
	struct error error = {0};
	struct infer_reading reading;
	answer->exchange = exchange;
	if (!may_ask(answer, &error)) {
		answer_fail(answer, &error, NULL);
	} else if (length <= LIMIT_BODY_AT_ONCE_BYTES) {
		infer_read_body(answer, (const char *)body, length, &reading);
		infer_read_through(answer, &reading);
		infer_reading_finish(&reading);
	} else if (infer_parser_take(answer->infer->parser, answer, body, length, &error)) {
		answer_refused(answer, error.status);
		answer_fail(answer, &error, NULL);
	}
}

void infer_misread(void *user, struct net_exchange *exchange, const struct error *error)
{
	struct answer *answer = user;
	answer->exchange = exchange;
	answer_fail(answer, error, NULL);
}

void infer_sent(void *user, struct net_exchange *exchange)
{
	struct answer *answer = user;
	(void)exchange;
	answer_flush(answer);
	for (size_t i = 0; i < answer->several.count; i++)
		answer_flush(answer->several.all[i]);
}

void infer_over(void *user)
{
	struct answer *answer = user;
	answer->gone = true;
	trace_stop(answer->traced.trace);
	if (!answer->reading)
		answer_destroy(answer);
}

// ---- GET and OPTIONS ----

// Those that could answer, the ones that do first.
static struct json *list_models(const struct infer *infer, const struct wording *wording)
{
	const struct model_record *model;
	struct json *list = json_new_array();
	for (int loaded = 1; loaded >= 0; loaded--)
		for (size_t i = 0; (model = models_at(infer->params.models, i)); i++)
			if (model->state == MODEL_READY &&
			    (instances_ready(infer->params.instances, model) > 0) == (loaded == 1))
				json_push(list, wording->model(model, loaded == 1));
	return wording->models(list);
}

void infer_get(struct infer *infer, const struct net_request *request, struct net_response *response)
{
	struct caller caller;
	struct error error = {0};
	struct json *json = NULL;
	const struct wording *wording = wording_of(request);
	const struct infer_params *params = &infer->params;
	const size_t length = sizeof models_path - 1;
	name_request(infer);
	enum status status = access_admit(infer->params.access, request, SCOPE_INFER, "infer.models", &caller, &error);
	response->holder = status ? 0 : access_holder(caller.token);
	const bool below = !strncmp(request->path, models_path, length) && request->path[length] == '/';
	const struct model_record *model = below ? models_find(params->models, request->path + length + 1) : NULL;
	if (!status && wording->get) {
		status = wording->get(params, request->path, &json, &error);
	} else if (!status && !strcmp(request->path, models_path)) {
		json = list_models(infer, wording);
	} else if (!status && model && model->state == MODEL_READY) {
		json = wording->model(model, instances_ready(params->instances, model) > 0);
	} else if (!status && below) {
		status = error_set(&error, STATUS_NOT_FOUND, "there is no model %.128s", request->path + length + 1);
		error_hint(&error, "GET /v1/models lists the models");
	} else if (!status) {
		status = no_such(request, &error);
	}
	if (status)
		refuse(infer, response, wording, &error);
	else
		reply_fill(response, 200, json);
	add_headers(infer, response, reply_origin(infer->params.cors_origins, request->origin), wording,
		    infer->request_id);
}

void infer_options(struct infer *infer, const struct net_request *request, struct net_response *response)
{
	const char *origin = reply_origin(infer->params.cors_origins, request->origin);
	response->status = origin[0] ? 204 : 403;
	add_headers(infer, response, origin, NULL, NULL);
}

// ---- all of it ----

enum status infer_create(struct infer **out, const struct infer_params *params, struct error *error)
{
	struct infer *infer = calloc(1, sizeof(*infer));
	*out = infer;
	if (!infer)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	infer->params = *params;
	enum status status = infer_parser_create(&infer->parser, params->loop, error);
	if (status)
		infer_destroy(out);
	return status;
}

bool infer_answering(const struct infer *infer)
{
	return infer->answers != NULL;
}

void infer_destroy(struct infer **pointer)
{
	struct infer *infer = *pointer;
	if (!infer)
		return;
	*pointer = NULL;
	infer_parser_destroy(&infer->parser);
	while (infer->answers)
		answer_destroy(infer->answers);
	free(infer);
}
