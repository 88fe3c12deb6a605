/* See requests.h. A request is in the list of its instance until its worker has sent the last message.
 *
 * A request is kept with its delivered tokens and bytes of text. When the instance is placed again its requests are
 * started again from these, in the order of arrival, and continue after the last token that their client has. Each has
 * a seed from the start, so that the same tokens are drawn.
 *
 * One of the requests may have crashed the worker. Those of the worker that got no token since are suspects: they are
 * sent one at a time, so that the next lost worker identifies the request, and that one ends. */
#include "server/instances/requests/requests.h"

#include "common/base/log.h"
#include "server/instances/requests/prefill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { LOSSES_MOST = 2 }; // of workers that a request may bring about, or be there at, without getting a token

// ---- the end ----

static void silence(struct generation *generation)
{
	if (generation->ended)
		generation->instance->generation_count--;
	generation->started = NULL;
	generation->delta = NULL;
	generation->ended = NULL;
	generation->run = NULL;
}

// It is in no list any more, and its instance may go.
static void leave(struct generation *generation)
{
	if (generation->ended)
		generation->instance->generation_count--;
	generation->instance->line_tokens -= generation->given_tokens;
	if (generation->instance->used_ms)
		generation->instance->used_ms = instances_now(generation->instance->all);
	*generation->link = generation->next;
	if (generation->next)
		generation->next->link = generation->link;
}

void generation_destroy(struct generation *generation)
{
	prefill_drop(&generation->prefill);
	json_destroy(&generation->end);
	json_destroy(&generation->call);
	json_destroy(&generation->sampling);
	delivered_finish(&generation->delivered);
	json_destroy(&generation->format_changes);
	free(generation);
}

static void generation_free(struct generation *generation)
{
	leave(generation);
	generation_destroy(generation);
}

static bool suspected(const struct generation *generation)
{
	return generation->losses && generation->delivered.count == generation->losses_seen;
}

// The last callback. The callee may start and cancel other requests.
static void end(struct generation *generation, enum status status, const struct json *json, const struct error *error)
{
	void (*ended)(void *, enum status, const struct json *, const struct error *) = generation->ended;
	void *context = generation->context;
	struct instance *instance = generation->instance;
	const bool was_next = generation->sent && suspected(generation);
	if (generation->prompt_waits) // while it has an instance, in which others may wait for the same prompt
		prefill_drop(&generation->prefill);
	if (generation->run)
		generation_note_run(generation, json);
	const bool holds = generation_record(generation, status, json);
	if (holds) {
		leave(generation);
		generation_hold(generation, json);
	} else {
		generation_free(generation);
	}
	if (was_next)
		generations_resume(instance);
	if (ended && !holds)
		ended(context, status, status ? NULL : json, error);
}

bool sees_why(const struct token *token)
{
	return !token || token_allows(token, SCOPE_OBSERVE);
}

void generations_fail(struct instance *instance, const struct error *fault)
{
	while (instance->generations) {
		struct error told = *fault;
		struct generation *generation = instance->generations;
		if (told.status == STATUS_DEVICE_LOST)
			error_hint(&told, "an admin can load the model again: exogpu place %.128s",
				   instance->model_name);
		if (!sees_why(generation->token)) {
			told = (struct error){0};
			error_set(&told, fault->status, "the model %.128s cannot answer: an admin can see why",
				  instance->model_name);
			error_hint(&told, "try again later");
		}
		end(generation, fault->status, NULL, &told);
	}
}

unsigned generations_of(const struct instance *instance, const struct token *token)
{
	unsigned count = 0;
	for (const struct generation *one = instance->generations; one; one = one->next)
		count += one->token == token && one->ended;
	return count;
}

void generations_move(struct instance *from, struct instance *to)
{
	struct generation **last = &from->generations;
	if (!*last)
		return;
	while (*last) {
		(*last)->instance = to;
		last = &(*last)->next;
	}
	*last = to->generations;
	if (*last)
		(*last)->link = last;
	to->generations = from->generations;
	to->generations->link = &to->generations;
	to->generation_count += from->generation_count;
	to->line_tokens += from->line_tokens;
	from->generations = NULL;
	from->generation_count = 0;
	from->line_tokens = 0;
	generations_resume(to);
}

// ---- what the worker says ----

static struct generation *find(const struct instance *instance, int64_t number)
{
	struct generation *one = instance->generations;
	while (one && one->number != number)
		one = one->next;
	return one;
}

// Once for each placement: where weights are damaged every request fails.
static void say_failed(const struct generation *generation, const char *message)
{
	struct instance *instance = generation->instance;
	if (instance->failed_epoch == instance->epoch)
		return;
	instance->failed_epoch = instance->epoch;
	log_error("models", "instance %s of %s, request %s: %s", instance->instance_id, instance->model_name,
		  generation->request_id, message);
}

static void took(struct generation *generation, const struct json *params)
{
	struct error error = {0};
	struct json *prefilled = prefill_json(generation);
	struct json *more = generation->format_changes || generation->prefill ? json_copy(params) : NULL;
	if (generation->format_changes)
		json_set(more, "format_changes", json_copy(generation->format_changes));
	if (generation->prefill)
		json_set_integer(more, "cached_tokens",
				 prefill_cached(generation, json_get_integer(params, "cached_tokens", 0)));
	if (prefilled)
		json_set(more, "prefill", prefilled);
	params = more ? more : params;
	const char *reason = json_get_string(params, "reason", "");
	enum status status = STATUS_OK;
	if (!strcmp(reason, "failed")) {
		status = error_set(&error, STATUS_INTERNAL, "the request failed: %s",
				   json_get_string(params, "error", "no reason given"));
		say_failed(generation, error.message);
	} else if (!strcmp(reason, "cancelled") && generation->ended) {
		status = error_set(&error, STATUS_UNAVAILABLE, "the request was ended by its worker");
	}
	end(generation, status, params, &error);
	json_destroy(&more);
}

// Send this error to its client, and stop it on its worker.
void generation_cancel_for(struct generation *generation, const struct error *error)
{
	void (*ended)(void *, enum status, const struct json *, const struct error *) = generation->ended;
	void *context = generation->context;
	generation_cancel(&generation);
	if (ended)
		ended(context, error->status, NULL, error);
}

static void deliver(struct generation *generation, const struct json *params)
{
	struct delivered *delivered = &generation->delivered;
	const bool was_suspected = suspected(generation);
	struct json *rest = delivered_rest(delivered, params);
	params = rest ? rest : params;
	if (!json_first(json_get(params, "tokens")) && !json_first(json_get(params, "choices")) &&
	    !json_get_string(params, "text", "")[0]) {
		json_destroy(&rest);
		return;
	}
	const bool kept = delivered_keep(delivered, params);
	if (was_suspected && !suspected(generation))
		generations_resume(generation->instance);
	if (!kept) {
		struct error error = {0};
		error_set(&error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
		generation_cancel_for(generation, &error);
	} else if (generation->delta) {
		generation->delta(generation->context, params);
	}
	json_destroy(&rest);
}

bool generations_notice(struct instance *instance, const char *method, const struct json *params)
{
	int64_t number = json_get_integer(params, "request", 0);
	struct generation *generation = find(instance, number);
	const bool ends = !strcmp(method, "generate.end");
	if (!ends && strcmp(method, "generate.delta") != 0)
		return false;
	if (!generation && number <= instance->stale_request)
		return true;
	if (!generation || generation->embeds || !generation->answered)
		return false;
	// The kept tokens of a request are bounded by its context.
	if (!ends && generation->delivered.count + json_count(json_get(params, "tokens")) > instance->context_tokens)
		return false;
	if (ends) {
		generations_spent(instance, json_get(params, "spent"), false);
		took(generation, params);
	} else {
		deliver(generation, params);
	}
	return true;
}

static void start_answered(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct generation *generation = context;
	if (status == STATUS_DEVICE_LOST)
		return; // its instance is lost, and all of its requests are seen to in a moment
	if (status || generation->embeds) {
		generations_spent(generation->instance, json_get(result, "spent"), false);
		if (status == STATUS_UNAVAILABLE && !generation->ended)
			status = STATUS_OK; // it was cancelled
		generation->prompt_tokens = (uint64_t)json_get_integer(result, "prompt_tokens", 0);
		if (status == STATUS_INTERNAL)
			say_failed(generation, error->message);
		end(generation, status, result, error);
		return;
	}
	generation->answered = true;
	generation->prompt_tokens = (uint64_t)json_get_integer(result, "prompt_tokens", 0);
	const bool first = !generation->told_started;
	generation->told_started = true;
	if (first && generation->started)
		generation->started(generation->context, generation->prompt_tokens);
}

// ---- to the worker ----

// Whether its steps may have rows for foreseen tokens: as it says; else where there is a draft model, or as the server
// does where the whole model is computed by processors. These compute a few rows as they compute one; a GPU has kernels
// of its own for one row, so that a tie within rounding may go the other way.
static bool speculates(const struct generation *generation)
{
	const struct instance *instance = generation->instance;
	bool processors = instance->all->params.speculate;
	for (unsigned i = 0; i < instance->stage_count; i++)
		processors = processors &&
			     !strcmp("cpu",
				     json_get_string(cluster_device_record(instance->stages[i].device), "backend", ""));
	return json_get_bool(generation->call, "speculate", processors || instance_draft(instance));
}

// Pages in browsers hold the text of one request only.
static bool shares_prefixes(const struct instance *instance)
{
	for (unsigned i = 0; i < instance->stage_count; i++)
		if (!strcmp("webgpu",
			    json_get_string(cluster_device_record(instance->stages[i].device), "backend", "")))
			return false;
	return true;
}

// From the beginning, or from the client's last token.
struct json *generation_call(struct generation *generation)
{
	struct json *call = json_copy(generation->call);
	if (!generation->embeds && !generation->counts && speculates(generation))
		json_set_bool(call, "speculate", true);
	else
		json_remove(call, "speculate");
	if (!shares_prefixes(generation->instance))
		json_set_integer(call, "owner", 0);
	json_set_integer(call, "request", generation->number);
	delivered_resume(&generation->delivered, call);
	return call;
}

static enum status send(struct generation *generation, struct error *error)
{
	generation_note_format(generation);
	enum status status = instance_worker_call(parts_generator(generation->instance->parts),
						  generation->embeds && !generation->counts ? "generate.embed"
											    : "generate.start",
						  generation_call(generation), start_answered, generation, error);
	generation->sent = !status;
	generation->was_sent = true;
	if (generation->run) {
		generation->run->sends++;
		generation->run->sent_ns = clock_steady_ns();
	}
	generation_count_anew(generation);
	return status;
}

// Its worker is gone, or cut off: so is the prompt that comes from elsewhere.
static void stop_waiting(struct generation *generation)
{
	if (generation->prompt_waits)
		prefill_drop(&generation->prefill);
	generation->prompt_waits = false;
	generation->follows = NULL;
}

void generations_pause(struct instance *instance)
{
	generations_unclaim(instance);
	for (struct generation *one = instance->generations; one; one = one->next) {
		stop_waiting(one);
		one->sent = one->answered = false;
		one->old_number = 0;
	}
}

static void send_cancel(const struct generation *generation, int64_t number)
{
	struct json *params = json_new_object();
	json_set_integer(params, "request", number);
	instance_worker_call(parts_generator(generation->instance->parts), "generate.cancel", params, NULL, NULL, NULL);
}

void generations_blame(struct instance *instance)
{
	struct generation *one;
	generations_unclaim(instance);
	for (one = instance->generations; one; one = one->next)
		if (one->sent) {
			one->losses = suspected(one) ? one->losses + 1 : 1;
			one->losses_seen = one->delivered.count;
			one->sent = one->answered = false;
		}
	while ((one = instance->generations)) {
		struct error error = {0};
		while (one && one->losses < LOSSES_MOST)
			one = one->next;
		if (!one)
			return;
		error_set(&error, STATUS_DEVICE_LOST,
			  "the model's worker was lost %u times while it was at this request", one->losses);
		error_hint(&error, "it is not tried again; a shorter prompt, or another device, may do");
		end(one, STATUS_DEVICE_LOST, NULL, &error);
	}
}

// The next request to send; a suspect only while no other suspect is at the worker.
static struct generation *first_waiting(const struct instance *instance)
{
	bool tried = false;
	for (const struct generation *one = instance->generations; one; one = one->next)
		tried |= one->sent && suspected(one);
	struct generation *one = instance->generations;
	while (one && (one->sent || one->prompt_waits || (tried && suspected(one))))
		one = one->next;
	return one;
}

bool generations_send_forget(const struct instance *instance, int64_t owner)
{
	struct json *params = json_new_object();
	json_set_integer(params, "owner", owner);
	return !instance_worker_call(parts_generator(instance->parts), "generate.forget", params, NULL, NULL, NULL);
}

void generations_resume(struct instance *instance)
{
	if (instance->state == INSTANCE_RUNNING && instance->forgets)
		instance->forgets = !generations_send_forget(instance, 0);
	for (struct generation *one; instance->state == INSTANCE_RUNNING && (one = first_waiting(instance));) {
		struct error error = {0};
		if (one->old_number)
			send_cancel(one, one->old_number);
		one->old_number = 0;
		if (!one->ended)
			end(one, STATUS_OK, NULL, NULL); // cancelled meanwhile
		else if (one->gives && one->was_sent)
			end(one, STATUS_DEVICE_LOST, NULL, &error); // who waits for it has it from elsewhere by now
		else if (send(one, &error))
			end(one, error.status, NULL, &error);
	}
}

void generations_cut(struct instance *instance)
{
	generations_unclaim(instance);
	instance->stale_request = instance->all->next_request;
	for (struct generation *one = instance->generations; one; one = one->next) {
		if (one->sent && !one->old_number)
			one->old_number = one->number;
		one->number = ++instance->all->next_request;
		one->sent = one->answered = false;
		stop_waiting(one);
	}
}

void generation_send_now(struct generation *generation)
{
	struct error error = {0};
	generation->prompt_waits = false;
	if (generation->instance->state == INSTANCE_RUNNING && parts_generator(generation->instance->parts) &&
	    send(generation, &error))
		end(generation, error.status, NULL, &error);
}

// ---- what clients want ----

// The same tokens must be drawn on another worker: settle the seed and all other sampling values once. Returns the
// values with their origins.
static struct json *settle_sampling(const struct instance *instance, struct json *call)
{
	uint64_t seed;
	struct json *sampling = json_get(call, "sampling") ? json_copy(json_get(call, "sampling")) : json_new_object();
	if (!json_get(sampling, "seed") && getrandom(&seed, sizeof seed, 0) == sizeof seed)
		json_set_integer(sampling, "seed", (int64_t)(seed >> 11)); // of 53 bits, as numbers of JSON are
	struct json *told = instance_sampling(instance, sampling);
	json_set(call, "sampling", sampling);
	return told;
}

const struct json *generation_sampling(const struct generation *generation)
{
	return generation->sampling;
}

// It is the last in the instance's list, and counts.
static void join(struct generation *generation, struct instance *instance)
{
	struct generation **last = &instance->generations;
	while (*last)
		last = &(*last)->next;
	generation->instance = instance;
	generation->link = last;
	*last = generation;
	generation_count(generation);
	instance->generation_count++;
	instance->line_tokens += generation->given_tokens;
}

enum status generation_start(struct generation **out, struct instances *all, const struct generation_params *params,
			     struct error *error)
{
	struct instance *instance;
	struct json *call = params->call;
	struct generation *generation = NULL;
	const bool embeds = params->embeds || params->counts;
	const size_t given_tokens = json_count(json_get(json_get(call, "prompt"), "tokens"));
	*out = NULL;
	enum status status = requests_choose(&instance, all, params, given_tokens, error);
	if (!status)
		status = audit_check(all->params.audit, error);
	if (!status && !(generation = calloc(1, sizeof(*generation))))
		status = error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	if (status) {
		json_destroy(&call);
		return status;
	}
	json_set_integer(call, "owner", generation_owner(all, params->token));
	if (params->counts)
		json_set_bool(call, "counts", true);
	struct json *sampling = embeds ? NULL : settle_sampling(instance, call);
	*generation = (struct generation){.number = ++all->next_request,
					  .by = *params->by,
					  .token = params->token,
					  .action = params->action,
					  .began_ns = clock_steady_ns(),
					  .embeds = embeds,
					  .counts = params->counts,
					  .part = params->part,
					  .energy = params->energy,
					  .run = params->run,
					  .joules = NAN,
					  .all = all,
					  .call = call,
					  .sampling = sampling,
					  .given_tokens = given_tokens,
					  .started = params->started,
					  .delta = params->delta,
					  .ended = params->ended,
					  .context = params->context};
	snprintf(generation->request_id, sizeof generation->request_id, "%s",
		 params->request_id && *params->request_id ? params->request_id : "none");
	if (params->run)
		*params->run = (struct generation_run){.began_ns = generation->began_ns, .queued_ms = -1};
	join(generation, instance);
	if (instance->state == INSTANCE_RUNNING && parts_generator(instance->parts)) { // else it is sent later
		generation->prompt_waits = prefill_begin(generation);
		status = generation->prompt_waits ? STATUS_OK : send(generation, error);
	}
	if (status) {
		usage_drop(&generation->usage);
		generation_free(generation);
	} else {
		*out = generation;
	}
	return status;
}

enum status generation_give(struct generation **out, struct generation *of, struct instance *instance,
			    const char *channel, uint64_t taker_tokens,
			    void (*ended)(void *context, enum status status, const struct json *end,
					  const struct error *error),
			    void *context, struct error *error)
{
	struct generation *generation = *out = calloc(1, sizeof(*generation));
	if (!generation)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	*generation = (struct generation){.number = ++instance->all->next_request,
					  .by = of->by,
					  .token = of->token,
					  .action = of->action,
					  .began_ns = clock_steady_ns(),
					  .part = true,
					  .gives = true,
					  .joules = NAN,
					  .all = instance->all,
					  .call = json_copy(of->call),
					  .ended = ended,
					  .context = context};
	json_set_string(generation->call, "give", channel);
	json_set_integer(generation->call, "taker_tokens", (int64_t)taker_tokens);
	join(generation, instance);
	enum status status = send(generation, error);
	if (!status)
		return STATUS_OK;
	usage_drop(&generation->usage);
	generation_free(generation);
	*out = NULL;
	return status;
}

void generation_forget(struct generation **pointer)
{
	if (*pointer)
		silence(*pointer);
	*pointer = NULL;
}

void generation_cancel(struct generation **pointer)
{
	struct generation *generation = *pointer;
	if (!generation)
		return;
	*pointer = NULL;
	if (generation->is_held) {
		generation_drop_held(generation);
		return;
	}
	silence(generation);
	if (!generation->sent && !generation->old_number)
		end(generation, STATUS_OK, NULL, NULL);
	else if (generation->sent && parts_generator(generation->instance->parts))
		send_cancel(generation, generation->number);
}

void generations_give_up(struct instance *instance, const struct error *fault)
{
	struct generation *one = instance->generations;
	while (one) {
		if (one->ended) {
			generation_cancel_for(one, fault);
			one = instance->generations; // the callee may have changed the list
		} else {
			one = one->next;
		}
	}
}
