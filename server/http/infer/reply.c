/* What is sent to a client of a model: headers, a whole answer, events, an error in the words of its API. */
#include "server/http/infer/inside.h"
#include "server/traces/traces.h"

#include <stdio.h>
#include <string.h>

const char *reply_origin(const char *const *cors_origins, const char *origin)
{
	const char *const *one = cors_origins;
	while (one && *one && strcasecmp(*one, origin) != 0)
		one++;
	return origin[0] && one && *one ? origin : "";
}

void reply_add_headers(struct net_response *response, struct net_header headers[REPLY_HEADERS],
		       const char *const *cors_origins, const char *origin, const struct wording *wording,
		       const char *id)
{
	size_t count = 0;
	if (wording)
		headers[count++] = (struct net_header){wording->id_header, id};
	if (response->status == 429 || response->status == 503 || response->status == 529)
		headers[count++] = (struct net_header){"retry-after:", "2"};
	if (cors_origins && *cors_origins) // another origin's answer has other headers
		headers[count++] = (struct net_header){"vary:", "origin"};
	if (origin[0])
		headers[count++] = (struct net_header){"access-control-allow-origin:", origin};
	if (origin[0] && !wording) {
		headers[count++] = (struct net_header){"access-control-allow-methods:", "GET, POST"};
		// A browser names those that it is about to send; * would not stand for Authorization.
		headers[count++] = (struct net_header){"access-control-allow-headers:",
						       "authorization, content-type, x-api-key, anthropic-version, "
						       "anthropic-beta, anthropic-dangerous-direct-browser-access, "
						       "openai-organization, "
						       "openai-project, openai-beta, x-stainless-arch, "
						       "x-stainless-lang, x-stainless-os, x-stainless-package-version, "
						       "x-stainless-retry-count, x-stainless-runtime, "
						       "x-stainless-runtime-version, x-stainless-timeout, "
						       "x-stainless-helper-method, x-stainless-async, "
						       "traceparent, tracestate"};
	}
	headers[count] = (struct net_header){0};
	response->more = headers;
	response->no_store = true;
}

void reply_fill(struct net_response *response, int status, struct json *json)
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

void reply_fail(struct net_response *response, const struct wording *wording, const struct fault *fault)
{
	struct json *json = NULL;
	const int status = wording->fail(fault, &json);
	reply_fill(response, status, json);
	if (fault->error->status == STATUS_UNAUTHENTICATED)
		response->authenticate = "Bearer realm=\"exogpu\"";
}

// How long a token has to wait that has used up its tokens a minute is known; else it is a moment.
static void add_headers(struct answer *answer, struct net_response *response, struct net_header headers[REPLY_HEADERS])
{
	const int64_t wait_s = infer_wait_s(answer->infer, answer->caller.token);
	reply_add_headers(response, headers, infer_origins(answer->infer), answer->origin, answer->wording,
			  answer->request_id);
	snprintf(answer->retry_after, sizeof answer->retry_after, "%lld", (long long)wait_s);
	for (struct net_header *header = headers; header->name && response->status == 429 && wait_s; header++)
		if (!strcmp(header->name, "retry-after:"))
			header->value = answer->retry_after;
}

static void answer_fault(struct answer *choice, const struct fault *fault)
{
	struct net_response response = {0};
	struct net_header headers[REPLY_HEADERS];
	struct answer *answer = answer_whole(choice);
	answer_cancel_several(answer);
	if (answer->begun) {
		struct json *json = NULL;
		traced_answered(answer, 0, fault->error);
		answer->wording->fail(fault, &json);
		answer_event(answer, json);
		answer_end(answer);
		return;
	}
	buffer_init(&response.owned, LIMIT_BODY_BYTES);
	reply_fail(&response, answer->wording, fault);
	traced_answered(answer, response.status, fault->error);
	add_headers(answer, &response, headers);
	net_exchange_answer(answer->exchange, &response);
}

void answer_fail(struct answer *answer, const struct error *error, const char *param)
{
	answer_fault(answer, &(struct fault){.error = error,
					     .param = param,
					     .endpoint = answer->endpoint,
					     .request_id = answer->request_id,
					     .answer = answer->begun ? answer : NULL});
}

void answer_fail_model(struct answer *answer, const struct error *error)
{
	answer_fault(answer, &(struct fault){.error = error,
					     .of_model = true,
					     .endpoint = answer->endpoint,
					     .request_id = answer->request_id,
					     .answer = answer->begun ? answer : NULL});
}

void answer_json(struct answer *answer, struct json *json)
{
	struct error error = {0};
	struct net_response response = {0};
	struct net_header headers[REPLY_HEADERS];
	buffer_init(&response.owned, LIMIT_BODY_BYTES);
	reply_fill(&response, 200, json);
	if (!response.owned.failed) {
		traced_answered(answer, response.status, NULL);
		answer->traced.whole = true;
		add_headers(answer, &response, headers);
		net_exchange_answer(answer->exchange, &response);
		return;
	}
	buffer_finish(&response.owned);
	error_hint(&error, "ask with stream, or for fewer choices or tokens");
	error_set(&error, STATUS_LIMIT_EXCEEDED, "the answer is longer than %d bytes", LIMIT_BODY_BYTES);
	answer_fail(answer, &error, NULL);
}

void answer_begin_events(struct answer *answer)
{
	struct net_response response = {.status = 200,
					.content_type = answer->wording->lines ? "application/x-ndjson"
									       : "text/event-stream; charset=utf-8"};
	struct net_header headers[REPLY_HEADERS];
	add_headers(answer, &response, headers);
	traced_answered(answer, response.status, NULL);
	net_exchange_begin(answer->exchange, &response);
	answer->begun = true;
}

void answer_end(struct answer *answer)
{
	answer->traced.whole = true;
	net_exchange_end(answer->exchange);
}

void answer_event(struct answer *answer, struct json *json)
{
	struct buffer text;
	const bool line = answer->wording->lines;
	buffer_init(&text, LIMIT_ANSWER_QUEUE_BYTES);
	if (json && answer->wording->names_events)
		buffer_printf(&text, "event: %s\n", json_get_string(json, "type", "error"));
	if (!line)
		buffer_append_text(&text, "data: ");
	if (json)
		json_print(json, &text);
	else
		buffer_append_text(&text, "[DONE]");
	buffer_append_text(&text, line ? "\n" : "\n\n");
	json_destroy(&json);
	if (text.failed || net_exchange_send(answer->exchange, text.data, text.length)) {
		generation_cancel(&answer->generation);
		net_exchange_drop(answer->exchange);
	}
	buffer_finish(&text);
}
