/* The spans of a request's trace: that of its HTTP exchange, and below it, of each choice, those of the queue, of the
 * prompt and of the answer.
 *
 * Only what is known is told. The queue begins when the request is passed on, by the server's clock. The times of the
 * prompt and of the answer are measured by the worker; they are put before the moment at which the server heard of the
 * end. Where these do not fit together, or the worker told none, there are no such spans. A request that went on with
 * another worker has those of the last one. Nobody measures the hops of a single request: of a model that is split
 * there are the devices, and how long each computed. No text of a prompt or an answer, no token and no address of a
 * client is told. */
#include "server/http/infer/inside.h"
#include "server/traces/traces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double ns_of_ms = 1e6;

void traced_begin(struct answer *answer, struct traces *traces, const struct net_request *request)
{
	answer->traced.trace = trace_begin(traces, request->traceparent);
	answer->traced.tls = request->tls;
}

struct generation_run *traced_run(struct answer *answer)
{
	if (answer_whole(answer)->traced.trace && !answer->run)
		answer->run = calloc(1, sizeof(*answer->run));
	return answer->run;
}

void traced_answered(struct answer *answer, int status, const struct error *error)
{
	struct traced *traced = &answer->traced;
	if (!traced->status)
		traced->status = status;
	if (error)
		traced->fault = status_word(error->status); // static
	traced->broke |= error && answer->begun;
}

void traced_tokens(struct answer *answer, uint64_t input, uint64_t output)
{
	answer->traced.counted = true;
	answer->traced.input_tokens += input;
	answer->traced.output_tokens += output;
}

// ---- a choice ----

static void add(struct answer *answer, const char *name, int64_t begin_ns, int64_t end_ns, struct json *attributes)
{
	if (answer->several.of)
		span_set_integer(attributes, "exogpu.choice", answer->several.index);
	trace_add(answer_whole(answer)->traced.trace,
		  &(struct trace_part){.name = name, .begin_ns = begin_ns, .end_ns = end_ns, .attributes = attributes});
}

static struct json *of_devices(const struct generation_run *run)
{
	struct json *attributes = json_new_array(), *ids = json_new_array(), *times = json_new_array();
	for (unsigned i = 0; i < run->device_count; i++) {
		json_push(ids, json_new_string(run->devices[i].device_id));
		json_push(times, json_new_number(run->devices[i].compute_ms));
	}
	span_set_list(attributes, "exogpu.device_ids", ids);
	span_set_list(attributes, "exogpu.compute_ms", times);
	return attributes;
}

static void add_run(struct answer *answer, const struct json *end)
{
	const struct generation_run *run = answer->run;
	if (!(run->queued_ms >= 0 && run->prompt_ms >= 0 && run->generate_ms >= 0))
		return;
	const int64_t asked_ns = run->sends > 1 ? run->sent_ns : run->began_ns;
	const double elapsed_ns = (double)(run->ended_ns - asked_ns),
		     told_ns = (run->queued_ms + run->prompt_ms + run->generate_ms) * ns_of_ms;
	if (told_ns > elapsed_ns)
		return;
	const int64_t first_ns = run->ended_ns - (int64_t)(run->generate_ms * ns_of_ms),
		      begun_ns = first_ns - (int64_t)(run->prompt_ms * ns_of_ms);
	struct json *queue = json_new_array(), *prompt = json_new_array();
	if (run->sends > 1)
		span_set_integer(queue, "exogpu.restarts", run->sends - 1);
	add(answer, "queue", asked_ns, begun_ns, queue);
	span_set_integer(prompt, "exogpu.cached_tokens", json_get_integer(end, "cached_tokens", 0));
	if (run->prompt_ms > 0)
		add(answer, "prompt", begun_ns, first_ns, prompt);
	else
		json_destroy(&prompt);
	if (run->generate_ms > 0)
		add(answer, "decode", first_ns, run->ended_ns, of_devices(run));
}

void traced_ended(struct answer *answer, const struct json *end)
{
	struct answer *whole = answer_whole(answer);
	if (!answer->run)
		return;
	add_run(answer, end);
	// A prompt counts once, however many choices it has.
	const bool first = !answer->several.of || answer->several.index % whole->several.each == 0;
	if (end)
		traced_tokens(whole, first ? (uint64_t)json_get_integer(end, "prompt_tokens", 0) : 0,
			      (uint64_t)json_get_integer(end, "generated_tokens", 0));
}

// ---- the request ----

// As OpenTelemetry names operations; NULL: it has no name there.
static const char *operation_of(const struct answer *answer)
{
	if (answer->endpoint == ENDPOINT_COMPLETIONS || answer->endpoint == ENDPOINT_OLLAMA_GENERATE)
		return "text_completion";
	if (answer_talks(answer))
		return "chat";
	return answer_embeds(answer) && answer->endpoint != ENDPOINT_RERANK ? "embeddings" : NULL;
}

void traced_finish(struct answer *answer, const char *path)
{
	char name[64];
	const struct traced *traced = &answer->traced;
	struct json *attributes = traced->trace ? json_new_array() : NULL;
	free(answer->run);
	if (!traced->trace)
		return;
	snprintf(name, sizeof name, "POST %s", path);
	span_set_string(attributes, "http.request.method", "POST");
	span_set_string(attributes, "http.route", path);
	span_set_string(attributes, "url.path", path);
	span_set_string(attributes, "url.scheme", traced->tls ? "https" : "http");
	if (traced->status)
		span_set_integer(attributes, "http.response.status_code", traced->status);
	// Without an answer, or in the middle of one, its client has gone.
	span_set_string(attributes, "error.type", traced->fault ? traced->fault : traced->whole ? NULL : "cancelled");
	span_set_string(attributes, "exogpu.request_id", answer->request_id);
	if (traced->asked) {
		span_set_string(attributes, "gen_ai.operation.name", operation_of(answer));
		span_set_string(attributes, "gen_ai.provider.name", "exogpu");
		span_set_string(attributes, "gen_ai.request.model", answer->model);
	}
	if (traced->counted) {
		span_set_integer(attributes, "gen_ai.usage.input_tokens", (int64_t)traced->input_tokens);
		if (!answer_embeds(answer))
			span_set_integer(attributes, "gen_ai.usage.output_tokens", (int64_t)traced->output_tokens);
	}
	trace_put(&answer->traced.trace, &(struct trace_request){.name = name,
								 .attributes = attributes,
								 .failed = traced->status >= 500 || traced->broke});
}
