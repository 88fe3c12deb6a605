/* See prefill.h. */
#include "server/instances/requests/prefill.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/longer.h"
#include "server/cluster/topology/topology.h"
#include "server/instances/decide/phases.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	OTHERS_MOST = 4,
	ASK_MS = 300,       // that answers about tokens are waited for: a worker in a long step answers late
	PATIENCE_TIMES = 3, // of what was predicted, that pages are waited for,
	PATIENCE_MS = 2000, // and so much more
	TOKEN_BYTES = 2,    // a prompt's text has at least so many for each token, mostly
};

static const double local_bytes_per_s = 2e9; // between two workers of a machine: a guess on the safe side

// An instance that is asked.
struct asked {
	struct prefill *prefill;
	char instance_id[INSTANCE_ID_BYTES];
	bool answered;
	uint64_t prompt_tokens, cached_tokens;
};

struct prefill {
	struct generation *generation; // NULL: it is not waited for any more
	struct instances *all;
	struct asked home, others[OTHERS_MOST]; // (other_count)
	unsigned other_count;
	unsigned calls;         // of workers, not answered; and 1 while there is a generation
	bool decided, finished; // finished: the request was sent
	struct phases_decision decision;
	struct direct *channel;
	struct generation *giving; // at the other instance; NULL: not yet, or it has ended
	struct net_timer patience;
	int64_t began_ns;
	// What came of it:
	uint64_t taken_tokens, bytes; // that came
	double seconds;
	bool moved;
	char other_name[GATHER_NAME_BYTES], home_name[GATHER_NAME_BYTES]; // of the devices, and of their nodes
	char other_device_id[STORE_ID_BYTES], home_device_id[STORE_ID_BYTES];
};

// ---- life ----

static void release(struct prefill *prefill)
{
	if (--prefill->calls == 0)
		free(prefill);
}

static void stop(struct prefill *prefill)
{
	net_timer_stop(prefill->all->params.loop, &prefill->patience);
	direct_close(&prefill->channel);
	if (prefill->moved) // it has nothing left to do but to say so
		generation_forget(&prefill->giving);
	else
		generation_cancel(&prefill->giving);
}

// The first of those in the instance that wait for the same prompt; NULL: none does.
static struct generation *follower(const struct prefill *prefill, const struct instance *instance)
{
	struct generation *one = instance->generations;
	while (one && one->follows != prefill)
		one = one->next;
	return one;
}

void prefill_drop(struct prefill **pointer)
{
	struct prefill *prefill = *pointer;
	if (!prefill)
		return;
	*pointer = NULL;
	struct generation *next = prefill->finished ? NULL : follower(prefill, prefill->generation->instance);
	prefill->generation = next;
	if (next) { // it goes on for that one
		next->follows = NULL;
		next->prefill = prefill;
		return;
	}
	stop(prefill);
	release(prefill);
}

// A request that is sent may end, and its client may then end others.
static void send_followers(struct prefill *prefill)
{
	struct instance *one = prefill->all->first;
	while (one) {
		struct generation *next = follower(prefill, one);
		if (next) {
			next->follows = NULL;
			generation_send_now(next);
		}
		one = next ? prefill->all->first : one->next;
	}
}

// For the log.
static const char *request_of(const struct prefill *prefill)
{
	return prefill->generation ? prefill->generation->request_id : "none";
}

// The request is sent now, and those with the same prompt; what came of this stays with it, for its client.
static void finish(struct prefill *prefill)
{
	if (prefill->finished)
		return;
	prefill->finished = true;
	prefill->calls++; // it stays until all are sent
	stop(prefill);
	prefill->seconds = (double)(clock_steady_ns() - prefill->began_ns) * 1e-9;
	if (prefill->decision.other >= 0)
		log_debug("models", "request %s: %llu of %llu tokens of its prompt came in %.3f s", request_of(prefill),
			  (unsigned long long)prefill->taken_tokens, (unsigned long long)prefill->home.prompt_tokens,
			  prefill->seconds);
	if (prefill->generation)
		generation_send_now(prefill->generation);
	send_followers(prefill);
	release(prefill);
}

static struct instance *find(struct instances *all, const char *instance_id)
{
	struct instance *one = all->first;
	while (one && strcmp(one->instance_id, instance_id) != 0)
		one = one->next;
	return one;
}

// ---- facts ----

static bool is_browser(const struct instance *instance)
{
	for (unsigned i = 0; i < instance->stage_count; i++)
		if (!strcmp("webgpu",
			    json_get_string(cluster_device_record(instance->stages[i].device), "backend", "")))
			return true;
	return false;
}

// Whether its worker is here, has the whole model and may share prefixes.
static bool is_whole(const struct instance *instance)
{
	const struct instance_worker *worker = parts_generator(instance->parts);
	return instance->state == INSTANCE_RUNNING && worker && parts_count(instance->parts) == 1 &&
	       !instance_worker_is_away(worker) && !is_browser(instance);
}

static bool may_help(const struct instance *other, const struct instance *home)
{
	struct topology_reading way;
	if (other == home || other->model != home->model || other->held_format != home->held_format || !is_whole(other))
		return false;
	for (unsigned i = 0; i < other->stage_count; i++)
		if (instance_is_draining(&other->stages[i]) || other->stages[i].device == home->stages[0].device)
			return false;
	const char *from = parts_node_id(other->parts, 0), *to = parts_node_id(home->parts, 0);
	topology_find(home->all->params.topology, from, to, &way);
	return !strcmp(from, to) || way.direct;
}

// Seconds to compute a token of a prompt, as its stages were measured; < 0: one was not.
static double token_s(const struct instance *instance)
{
	double sum_s = 0;
	for (unsigned i = 0; i < instance->stage_count; i++) {
		const struct instance_stage *stage = &instance->stages[i];
		if (stage->slices && stage->slice)
			continue;
		if (!(stage->timed.layer_s > 0) || !(stage->timed.prompt_s > 0))
			return -1;
		sum_s += stage->timed.prompt_s * stage->layer_count;
	}
	return sum_s;
}

// ---- moving ----

// Tokens of the prompt that the answering instance had, in whole pages: these do not come.
static uint64_t had_tokens(const struct prefill *prefill)
{
	return prefill->home.cached_tokens / STAGE_PAGE_TOKENS * STAGE_PAGE_TOKENS;
}

static void taken(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct prefill *prefill = context;
	if (status && prefill->generation)
		log_warning("models", "request %s: its prompt was computed elsewhere, and could not be taken: %s",
			    prefill->generation->request_id, error->message);
	if (!status && !prefill->finished) {
		prefill->taken_tokens = (uint64_t)json_get_integer(result, "tokens", 0);
		prefill->bytes = (uint64_t)json_get_integer(result, "bytes", 0);
		prefill->moved = prefill->taken_tokens > had_tokens(prefill);
		prefill->taken_tokens -= prefill->moved ? had_tokens(prefill) : prefill->taken_tokens;
	}
	if (prefill->generation && status != STATUS_DEVICE_LOST) // else all requests of its instance are seen to
		finish(prefill);
	release(prefill);
}

static void given(void *context, enum status status, const struct json *end, const struct error *error)
{
	struct prefill *prefill = context;
	(void)status, (void)end, (void)error;
	prefill->giving = NULL; // the channel ends with it, so the other side answers
}

static void impatient(void *context)
{
	struct prefill *prefill = context;
	log_warning("models", "request %s: %s: its pages do not come, so it is computed where it is answered",
		    request_of(prefill), prefill->decision.reason);
	finish(prefill);
}

static void opened(void *context)
{
	struct prefill *prefill = context;
	struct error error = {0};
	struct generation *generation = prefill->generation;
	struct instance *other = find(prefill->all, prefill->others[prefill->decision.other].instance_id);
	enum status status = other && may_help(other, generation->instance) ? STATUS_OK : STATUS_UNAVAILABLE;
	if (!status) {
		struct json *params = json_new_object();
		json_set_string(params, "channel", direct_id(prefill->channel));
		json_set(params, "owner", json_copy(json_get(generation->call, "owner")));
		status = instance_worker_call(parts_generator(generation->instance->parts), "prefix.take", params,
					      taken, prefill, &error);
	}
	prefill->calls += !status;
	if (!status)
		status = generation_give(&prefill->giving, generation, other, direct_id(prefill->channel),
					 had_tokens(prefill), given, prefill, &error);
	if (status) // no pages come, and the channel's end need not be waited for
		finish(prefill);
}

static void not_opened(void *context, uint64_t done, const struct error *error)
{
	(void)done, (void)error;
	finish(context);
}

// ---- deciding ----

static void note_device(const struct instance *instance, char name[GATHER_NAME_BYTES], char device_id[STORE_ID_BYTES])
{
	gather_name(instance->all, instance->stages[0].device, name);
	snprintf(device_id, STORE_ID_BYTES, "%s", cluster_device_id(instance->stages[0].device));
}

// name: for as long as `out` is used.
static void side_of(const struct instance *instance, const struct asked *asked, const struct instance *home,
		    char name[GATHER_NAME_BYTES], struct phases_side *out)
{
	struct topology_reading way = {0};
	const char *from = parts_node_id(instance->parts, 0), *to = parts_node_id(home->parts, 0);
	*out = (struct phases_side){.name = gather_name(home->all, instance->stages[0].device, name),
				    .token_s = token_s(instance),
				    .cached_tokens = asked->cached_tokens,
				    .busy = instance->generation_count - (instance == home),
				    .bytes_per_s = local_bytes_per_s};
	if (!strcmp(from, to))
		return;
	topology_find(home->all->params.topology, from, to, &way);
	out->bytes_per_s = way.known ? way.throughput_bytes_per_s : -1;
	out->rtt_ms = way.known ? way.rtt_ms : -1;
}

static void decide(struct prefill *prefill)
{
	struct generation *generation = prefill->generation;
	struct instance *home = generation->instance;
	struct phases_side sides[OTHERS_MOST];
	char home_name[GATHER_NAME_BYTES], names[OTHERS_MOST][GATHER_NAME_BYTES];
	unsigned numbers[OTHERS_MOST], count = 0;
	const struct model_shape *shape = &home->model->shape;
	struct phases_seen seen = {.prompt_tokens = prefill->home.prompt_tokens,
				   .page_tokens = STAGE_PAGE_TOKENS,
				   .token_bytes = (double)shape->layers * (double)stage_page_bytes(shape) /
						  STAGE_PAGE_TOKENS,
				   .others = sides};
	net_timer_stop(prefill->all->params.loop, &prefill->patience);
	prefill->decided = true;
	side_of(home, &prefill->home, home, home_name, &seen.home);
	for (unsigned i = 0; i < prefill->other_count; i++) {
		const struct instance *other = find(prefill->all, prefill->others[i].instance_id);
		if (!prefill->others[i].answered || !other || !may_help(other, home))
			continue;
		if (!seen.prompt_tokens)
			seen.prompt_tokens = prefill->home.prompt_tokens = prefill->others[i].prompt_tokens;
		numbers[count] = i;
		side_of(other, &prefill->others[i], home, names[count], &sides[count]);
		count++;
	}
	seen.count = count;
	phases_decide(&prefill->decision, &seen);
	log_debug("models", "request %s: %s", request_of(prefill), prefill->decision.reason);
	if (prefill->decision.other < 0) {
		finish(prefill);
		return;
	}
	prefill->decision.other = (int)numbers[prefill->decision.other];
	struct instance *other = find(prefill->all, prefill->others[prefill->decision.other].instance_id);
	note_device(other, prefill->other_name, prefill->other_device_id);
	note_device(home, prefill->home_name, prefill->home_device_id);
	if (instance_worker_connect(&prefill->channel, parts_generator(other->parts), parts_generator(home->parts),
				    opened, not_opened, prefill)) {
		finish(prefill);
		return;
	}
	net_timer_start(prefill->all->params.loop, &prefill->patience,
			(int)(prefill->decision.other_s * 1000 * PATIENCE_TIMES) + PATIENCE_MS, impatient, prefill);
}

static void decide_late(void *context)
{
	decide(context);
}

static bool all_answered(const struct prefill *prefill)
{
	bool all = prefill->home.answered;
	for (unsigned i = 0; i < prefill->other_count; i++)
		all = all && prefill->others[i].answered;
	return all;
}

static void counted(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct asked *asked = context;
	struct prefill *prefill = asked->prefill;
	(void)error;
	asked->answered = true;
	if (!status) {
		asked->prompt_tokens = (uint64_t)json_get_integer(result, "prompt_tokens", 0);
		asked->cached_tokens = (uint64_t)json_get_integer(result, "cached_tokens", 0);
	}
	if (prefill->generation && !prefill->decided && status != STATUS_DEVICE_LOST && all_answered(prefill))
		decide(prefill);
	release(prefill);
}

static enum status ask(struct prefill *prefill, struct asked *asked, const struct instance *instance)
{
	struct json *call = generation_call(prefill->generation);
	asked->prefill = prefill;
	snprintf(asked->instance_id, sizeof asked->instance_id, "%s", instance->instance_id);
	json_set_bool(call, "counts", true);
	json_set_bool(call, "cached", true);
	json_set_integer(call, "request", ++prefill->all->next_request);
	const enum status status = instance_worker_call(parts_generator(instance->parts), "generate.start", call,
							counted, asked, NULL);
	prefill->calls += !status;
	return status;
}

static size_t text_bytes(const struct json *prompt)
{
	size_t bytes = strlen(json_get_string(prompt, "text", ""));
	for (const struct json *one = json_first(json_get(prompt, "messages")); one; one = json_next(one))
		bytes += strlen(json_get_string(one, "text", ""));
	return bytes;
}

static bool is_worth_asking(const struct generation *generation)
{
	const struct json *prompt = json_get(generation->call, "prompt");
	return !generation->embeds && !generation->gives && !generation->delivered.count &&
	       !json_get_bool(generation->call, "echo", false) && json_get_integer(generation->call, "owner", 0) > 0 &&
	       (json_count(json_get(prompt, "tokens")) >= PHASES_TOKENS_LEAST ||
		text_bytes(prompt) >= (size_t)PHASES_TOKENS_LEAST * TOKEN_BYTES);
}

struct json *prefill_json(const struct generation *generation)
{
	const struct prefill *prefill = generation->prefill;
	if (!prefill || !prefill->moved || !sees_why(generation->token))
		return NULL;
	struct json *out = json_new_object();
	json_set_string(out, "prompt_device_id", prefill->other_device_id);
	json_set_string(out, "prompt_device", prefill->other_name);
	json_set_string(out, "answer_device_id", prefill->home_device_id);
	json_set_string(out, "answer_device", prefill->home_name);
	json_set_integer(out, "tokens", (int64_t)prefill->taken_tokens);
	json_set_integer(out, "bytes", (int64_t)prefill->bytes);
	json_set_number(out, "seconds", prefill->seconds);
	json_set_number(out, "predicted_seconds", prefill->decision.other_s);
	json_set_number(out, "instead_seconds", prefill->decision.home_s);
	return out;
}

int64_t prefill_cached(const struct generation *generation, int64_t cached_tokens)
{
	const struct prefill *prefill = generation->prefill;
	if (!prefill || !prefill->moved)
		return cached_tokens;
	const uint64_t here = prefill->home.cached_tokens,
		       there = prefill->others[prefill->decision.other].cached_tokens;
	const int64_t before = (int64_t)(here > there ? here : there);
	return before < cached_tokens ? before : cached_tokens;
}

// Whether they differ in what is drawn alone, as the choices of one request do.
static bool is_same(const struct generation *a, const struct generation *b)
{
	const struct json *of_a = json_first(a->call);
	if (a->token != b->token || json_count(a->call) != json_count(b->call))
		return false;
	while (of_a && (!strcmp(json_name(of_a), "sampling") || json_equal(of_a, json_get(b->call, json_name(of_a)))))
		of_a = json_next(of_a);
	return !of_a;
}

// The move under way for another request of the instance with the same prompt; NULL: there is none.
static struct prefill *under_way(const struct generation *generation)
{
	for (const struct generation *one = generation->instance->generations; one; one = one->next)
		if (one != generation && one->prompt_waits && one->prefill && is_same(one, generation))
			return one->prefill;
	return NULL;
}

bool prefill_begin(struct generation *generation)
{
	struct instance *home = generation->instance;
	struct instances *all = home->all;
	const struct instance *others[OTHERS_MOST];
	unsigned count = 0;
	if (!is_whole(home) || model_is_recurrent(&home->model->shape))
		return false;
	for (const struct instance *one = all->first; one && count < OTHERS_MOST; one = one->next)
		if (may_help(one, home))
			others[count++] = one;
	if (!count || !is_worth_asking(generation))
		return false;
	generation->follows = under_way(generation);
	if (generation->follows) {
		log_debug("models", "request %s: its prompt is under way for another request", generation->request_id);
		return true;
	}
	struct prefill *prefill = generation->prefill = calloc(1, sizeof(*prefill));
	if (!prefill)
		return false;
	*prefill = (struct prefill){
		.generation = generation, .all = all, .calls = 1, .began_ns = clock_steady_ns(), .other_count = count};
	enum status status = ask(prefill, &prefill->home, home);
	for (unsigned i = 0; i < count && !status; i++)
		status = ask(prefill, &prefill->others[i], others[i]);
	if (status) {
		prefill_drop(&generation->prefill);
		return false;
	}
	net_timer_start(all->params.loop, &prefill->patience, longer_ask_ms(ASK_MS), decide_late, prefill);
	return true;
}
