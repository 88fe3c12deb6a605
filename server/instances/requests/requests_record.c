/* What stays of a request: its entry in the audit log, and what it used. Every request passes here once, whatever API
 * it came by, so this is where tokens and the time of devices are counted. See usage.h. */
#include "common/base/list.h"
#include "server/instances/requests/requests_inside.h"

#include <stdio.h>
#include <string.h>

enum { DEVICES_BYTES = 2048 }; // of their ids, in an entry of the audit log

// ---- usage ----

void generation_count(struct generation *generation)
{
	const struct token *token = generation->token;
	const struct instance *instance = generation->instance;
	const struct usage_who who = {.token_id = token ? token->token_id : "owner",
				      .token_name = token ? token->name : "the machine's owner",
				      .model_id = instance->model_id,
				      .model_name = instance->model_name};
	if (!generation->counts)
		generation->usage = usage_begin(instance->all->params.usage, &who);
}

void generation_count_anew(struct generation *generation)
{
	memset(generation->spent_ms, 0, sizeof generation->spent_ms);
}

// A worker's stage is one of the instance's, or as many as it has slices, which compute at the same time.
static void spend(struct generation *generation, unsigned at, double ms)
{
	unsigned stage = 0;
	const double more_ms = ms - generation->spent_ms[at];
	struct instance *instance = generation->instance;
	if (!(more_ms > 0))
		return;
	generation->spent_ms[at] = ms;
	for (unsigned i = 0; i < instance->stage_count; i++) {
		struct instance_stage *one = &instance->stages[i];
		stage += i && !(one->slices && one->slice);
		if (stage != at)
			continue;
		one->spent_ms += more_ms;
		usage_spend(generation->usage, cluster_device_id(one->device), cluster_device_name(one->device),
			    more_ms / 1000);
	}
}

static void unclaim(struct instance *instance, struct instance_stage *stage, double ms)
{
	usage_unclaimed(instance->all->params.usage, cluster_device_id(stage->device),
			(ms - stage->unclaimed_ms) / 1000);
	stage->unclaimed_ms = ms;
}

void generations_unclaim(struct instance *instance)
{
	for (unsigned i = 0; i < instance->stage_count; i++)
		unclaim(instance, &instance->stages[i], 0);
}

// busy_ms: what each of the worker's stages has spent for all requests.
static void note_busy(struct instance *instance, const struct json *busy_ms, bool whole)
{
	const struct json *busy = json_first(busy_ms);
	for (unsigned i = 0; i < instance->stage_count && busy; i++) {
		struct instance_stage *stage = &instance->stages[i];
		if (i && !(stage->slices && stage->slice) && !(busy = json_next(busy)))
			break;
		const double ms = json_number(busy, 0);
		if (whole) // what is left belonged to requests that are gone
			stage->spent_ms = ms;
		unclaim(instance, stage, ms > stage->spent_ms ? ms - stage->spent_ms : 0);
	}
}

void generations_spent(struct instance *instance, const struct json *spent, bool whole)
{
	if (!spent)
		return;
	const struct json *requests = json_get(spent, "requests");
	for (const struct json *told = json_first(requests); told; told = json_next(told)) {
		const int64_t number = json_get_integer(told, "request", 0);
		struct generation *one = instance->generations;
		unsigned at = 0;
		while (one && one->number != number)
			one = one->next;
		const struct json *ms = one ? json_first(json_get(told, "stages_ms")) : NULL;
		for (; ms && at < LIMIT_INSTANCE_STAGES; ms = json_next(ms))
			spend(one, at++, json_number(ms, 0));
	}
	note_busy(instance, json_get(spent, "busy_ms"), whole);
}

void generation_note_run(struct generation *generation, const struct json *end)
{
	unsigned stage = 0;
	struct generation_run *run = generation->run;
	const struct instance *instance = generation->instance;
	run->ended_ns = clock_steady_ns();
	run->queued_ms = json_get_number(end, "queued_ms", -1);
	run->prompt_ms = json_get_number(end, "prompt_ms", -1);
	run->generate_ms = json_get_number(end, "generate_ms", -1);
	run->device_count = instance->stage_count;
	for (unsigned i = 0; i < instance->stage_count; i++) {
		const struct instance_stage *one = &instance->stages[i];
		stage += i && !(one->slices && one->slice);
		snprintf(run->devices[i].device_id, sizeof run->devices[i].device_id, "%s",
			 cluster_device_id(one->device));
		run->devices[i].compute_ms = generation->spent_ms[stage];
	}
}

// ---- formats ----

// Another worker has its weights in another format: tokens from this position on are computed with these, and so are
// the keys and values of all tokens before.
void generation_note_format(struct generation *generation)
{
	const enum tensor_format before = generation->format, now = generation->instance->format;
	const int64_t position = (int64_t)generation->delivered.count;
	generation->format = now;
	if (before == FORMAT_UNKNOWN || before == now || !position)
		return;
	struct json *change = json_new_object();
	json_set_integer(change, "position", position);
	json_set_string(change, "from", format_info(before)->name);
	json_set_string(change, "format", format_info(now)->name);
	if (!generation->format_changes)
		generation->format_changes = json_new_array();
	json_push(generation->format_changes, change);
}

// ---- joules that a client waits for ----

static void leave_held(struct generation *generation)
{
	net_timer_stop(generation->all->params.loop, &generation->give_up);
	usage_drop(&generation->usage);
	LIST_REMOVE(generation, link);
}

static void tell_held(struct generation *generation)
{
	void (*ended)(void *, enum status, const struct json *, const struct error *) = generation->ended;
	void *context = generation->context;
	struct json *end = generation->end;
	generation->end = NULL;
	json_set_number(end, "energy_joules", generation->joules);
	leave_held(generation);
	generation_destroy(generation);
	ended(context, STATUS_OK, end, NULL);
	json_destroy(&end);
}

static void give_up(void *context)
{
	tell_held(context);
}

void generation_hold(struct generation *generation, const struct json *end)
{
	generation->is_held = true;
	generation->instance = NULL;
	generation->end = json_copy(end);
	LIST_PUSH(&generation->all->held, generation, link);
	// Not at once, even if nothing is to be waited for: who ends it may have more to do.
	net_timer_start(generation->all->params.loop, &generation->give_up,
			generation->usage ? GENERATION_ENERGY_MS : 0, give_up, generation);
}

void generation_drop_held(struct generation *generation)
{
	leave_held(generation);
	generation_destroy(generation);
}

static int64_t at_least_0(int64_t count)
{
	return count > 0 ? count : 0;
}

static void joules_known(void *context, double joules)
{
	struct generation *generation = context;
	generation->joules = joules;
	if (!generation->is_held)
		return;
	generation->usage = NULL;
	tell_held(generation);
}

static int64_t between_0_and(int64_t value, int64_t most)
{
	return value < 0 ? 0 : value < most ? value : most;
}

// What it computed, however it ended. A worker that was lost says nothing: then the prompt was read if a token came.
static void count_end(struct generation *generation, const struct json *end, bool waits)
{
	const int64_t known = (int64_t)(generation->embeds ? 0 : generation->prompt_tokens),
		      delivered = (int64_t)generation->delivered.count,
		      prompt = json_get_integer(end, "prompt_tokens", delivered ? known : 0);
	struct usage_ended ended = {.requests = !generation->part,
				    .prompt_tokens = json_get_integer(end, "read_tokens", prompt),
				    .cached_tokens = json_get_integer(end, "cached_tokens", 0),
				    .completion_tokens = json_get_integer(end, "generated_tokens", delivered),
				    .proposed_tokens = json_get_integer(end, "proposed_tokens", 0),
				    .accepted_tokens = json_get_integer(end, "accepted_tokens", 0),
				    .drafted_tokens = json_get_integer(end, "drafted_tokens", 0),
				    .draft_accepted_tokens = json_get_integer(end, "draft_accepted_tokens", 0)};
	if (generation->gives) // the request itself counts its tokens
		ended = (struct usage_ended){0};
	ended.settled = waits ? joules_known : NULL;
	ended.context = generation;
	ended.prompt_tokens = at_least_0(ended.prompt_tokens);
	ended.cached_tokens = at_least_0(ended.cached_tokens);
	ended.completion_tokens = at_least_0(ended.completion_tokens);
	ended.proposed_tokens = at_least_0(ended.proposed_tokens);
	ended.accepted_tokens = at_least_0(ended.accepted_tokens);
	if (ended.accepted_tokens > ended.proposed_tokens)
		ended.accepted_tokens = ended.proposed_tokens;
	ended.drafted_tokens = between_0_and(ended.drafted_tokens, ended.proposed_tokens);
	ended.draft_accepted_tokens = between_0_and(
		ended.draft_accepted_tokens,
		ended.drafted_tokens < ended.accepted_tokens ? ended.drafted_tokens : ended.accepted_tokens);
	if (ended.cached_tokens > ended.prompt_tokens)
		ended.cached_tokens = ended.prompt_tokens;
	usage_end(&generation->usage, &ended);
	if (generation->token)
		token_spend(generation->token, ended.prompt_tokens - ended.cached_tokens + ended.completion_tokens,
			    generation->all->params.tokens_per_minute, instances_now(generation->all));
}

// ---- the audit log ----

static void print_detail(const struct generation *generation, const struct json *end, struct buffer *text)
{
	const struct instance *instance = generation->instance;
	char devices[DEVICES_BYTES] = "";
	struct json *detail = json_new_object();
	int64_t prompt = json_get_integer(end, "prompt_tokens", (int64_t)generation->prompt_tokens);
	for (unsigned i = 0; i < instance->stage_count; i++) {
		size_t at = strlen(devices);
		snprintf(devices + at, sizeof devices - at, "%s%s", i ? " " : "",
			 cluster_device_id(instance->stages[i].device));
	}
	json_set_string(detail, "model", instance->model_name);
	json_set_string(detail, "instance_id", instance->instance_id);
	json_set_string(detail, "devices", devices);
	if (generation->gives)
		json_set_integer(detail, "given_tokens", json_get_integer(end, "given_tokens", 0));
	json_set_integer(detail, "prompt_tokens", prompt);
	if (!generation->embeds) {
		json_set_integer(detail, "cached_tokens", json_get_integer(end, "cached_tokens", 0));
		json_set_integer(detail, "generated_tokens",
				 json_get_integer(end, "generated_tokens", (int64_t)generation->delivered.count));
		json_set_string(detail, "reason", json_get_string(end, "reason", NULL));
	} else if (!generation->ended) {
		json_set_string(detail, "reason", "cancelled");
	}
	json_print(detail, text);
	json_destroy(&detail);
}

// Write its audit entry. If that is not possible now, it is written as soon as it is.
static void write_entry(const struct generation *generation, enum status status, const struct json *end)
{
	struct buffer detail;
	const struct instance *instance = generation->instance;
	struct audit *audit = instance->all->params.audit;
	const struct cluster_device *device = instance->stage_count ? instance->stages[0].device : NULL;
	buffer_init(&detail, LIMIT_AUDIT_DETAIL_BYTES);
	print_detail(generation, end, &detail);
	const char *text = detail.failed ? NULL : buffer_text(&detail);
	audit_tell(audit, &(struct audit_tally){.by = &generation->by,
						.action = generation->action,
						.target = instance->model_name,
						.node_id = device ? cluster_device_node_id(device) : NULL,
						.device_id = device ? cluster_device_id(device) : NULL,
						.outcome = status,
						.duration_us = (clock_steady_ns() - generation->began_ns) / 1000,
						.detail = text});
	buffer_finish(&detail);
}

bool generation_record(struct generation *generation, enum status status, const struct json *end)
{
	const bool waits = generation->energy && generation->ended && end && !status;
	count_end(generation, end, waits);
	write_entry(generation, status, end);
	return waits;
}
