/* Spot checks of parts in browsers: what a tab sends on for some requests is compared with what a trusted device makes
 * of the same rows. What is decided, and how, is in decide/spot.h.
 *
 *     hop to the tab ----> came ---+                      +--> computed: compare, row for row
 *                                  +--> steps ---> shadow-+
 *     hop from the tab --> goes ---+
 *
 * A request is chosen when it begins. From then on its rows, and what the tab sends on for them, are copied, up to a
 * bound; nothing waits for the check, and the tab is sent nothing else than without it. The shadow is made when the
 * request is chosen, computes the copies one after the other, and ends with the check. What comes from the tab is
 * hostile: it is read as the next part reads it.
 *
 * Checked or not: a tab that makes NaN or infinite numbers of finite ones computes wrong, and nothing of that goes on,
 * as it would end the request. Thread: the loop's. */
#include "server/instances/parts/parts_spot.h"

#include "common/base/log.h"
#include "server/instances/decide/spot.h"
#include "server/instances/parts/parts_shadow.h"

#include <math.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHY_BYTES = 400, PAGES_MOST = SPOT_ROWS_MOST / STAGE_PAGE_TOKENS };

// A step with rows of the request, as copied.
struct spot_step {
	struct spot_step *next;
	uint64_t round, number;
	uint32_t lane, row_at, row_count, position; // row_at: in the step, whose rows are of others, too
	uint32_t *tokens;                           // (row_count), or
	float *input;                               // (row_count, embedding)
	float *output;                              // the same, what the tab sent on; NULL: not yet
	uint8_t *plan;                              // (plan_bytes): the step's body before its rows, but for its kind
	size_t plan_bytes;
};

struct spot_check {
	struct spot_request request;
	uint32_t pages[PAGES_MOST];
	struct spot_step *first, *last; // that are not compared yet, oldest first
	uint64_t round, rows, bytes;    // copied; bytes: that are still there
	uint64_t compared;              // rows
	double worst;                   // error of these
	bool closed, ready, under_way;  // no more is copied; the shadow is there; it computes the first step
	struct shadow *shadow;
	char name[GATHER_NAME_BYTES]; // its device
	char device_id[STORE_ID_BYTES];
	struct net_timer limit;
	char given_up[WHY_BYTES]; // the turn is to act on that
};

struct spot {
	struct part *part;
	const struct cluster_device *device; // the tab's
	struct ring_part own, next;          // that read what comes to the tab, and what it sends on
	int64_t rests_until_ms;              // steady
	struct spot_check *check;            // NULL: none is under way
	struct net_timer turn;
	char wrong[WHY_BYTES]; // the turn is to act on that; nothing of the tab goes on any more
	bool seen;             // what is wrong was seen here: nobody has to be believed for it
	bool overflows;        // what came to the tab was no finite number already: what it makes of that is not judged
};

static struct instances *all_of(const struct spot *spot)
{
	return spot->part->parts->instance->all;
}

// ---- its end ----

static void step_destroy(struct spot_check *check, struct spot_step *step)
{
	free(step->tokens);
	free(step->input);
	free(step->output);
	free(step->plan);
	check->first = step->next;
	if (!check->first)
		check->last = NULL;
	free(step);
}

static void check_destroy(struct spot *spot)
{
	struct spot_check *check = spot->check;
	if (!check)
		return;
	spot->check = NULL;
	all_of(spot)->spot_checks--;
	net_timer_stop(spot->part->parts->loop, &check->limit);
	net_timer_stop(spot->part->parts->loop, &spot->turn);
	shadow_destroy(&check->shadow);
	while (check->first)
		step_destroy(check, check->first);
	free(check);
}

static void note(const struct spot *spot, const struct cluster_check *check)
{
	cluster_note_check(all_of(spot)->params.cluster, spot->device, check);
}

static void give_up(struct spot *spot, const char *why)
{
	const struct spot_check *check = spot->check;
	const struct instance *instance = spot->part->parts->instance;
	log_info("models", "instance %s: a spot check of part %u was given up after %llu rows: %s",
		 instance->instance_id, spot->part->index + 1, (unsigned long long)check->compared, why);
	note(spot, &(struct cluster_check){.outcome = CLUSTER_CHECK_GIVEN_UP, .error = check->worst, .why = why});
	check_destroy(spot);
}

static void pass(struct spot *spot)
{
	const struct spot_check *check = spot->check;
	const struct instance *instance = spot->part->parts->instance;
	log_info("models",
		 "instance %s: a spot check of part %u passed: %llu rows of a request as on %s, the largest error is "
		 "%.2g of %.2g",
		 instance->instance_id, spot->part->index + 1, (unsigned long long)check->compared, check->name,
		 check->worst, spot_tolerance);
	note(spot, &(struct cluster_check){.outcome = CLUSTER_CHECK_PASSED, .error = check->worst});
	check_destroy(spot);
}

// Whether this trusted device has disagreed with another browser before; from now on it has with this one.
static bool disagreed_before(struct instances *all, const char *device_id, const char *node_id)
{
	const size_t count = all->disagreed_count < LIMIT_INSTANCES ? all->disagreed_count : LIMIT_INSTANCES;
	bool before = false;
	for (size_t i = 0; i < count; i++)
		before |= !strcmp(all->disagreed[i].device_id, device_id) &&
			  strcmp(all->disagreed[i].node_id, node_id) != 0;
	struct disagreed *one = &all->disagreed[all->disagreed_count++ % LIMIT_INSTANCES];
	snprintf(one->device_id, sizeof one->device_id, "%s", device_id);
	snprintf(one->node_id, sizeof one->node_id, "%s", node_id);
	return before;
}

// The tab computes wrong: it gets no more layers. Writes why.
static void accuse(struct spot *spot, char why[WHY_BYTES + 232])
{
	const struct part *part = spot->part;
	const struct spot_check *check = spot->check;
	const bool again = !spot->seen && disagreed_before(all_of(spot), check->device_id, part->node_id);
	snprintf(why, WHY_BYTES + 232, "a spot check has failed%s%.100s%s: %s", again ? " (" : "",
		 again ? check->name : "",
		 again ? " has disagreed with another browser, too, and may be the one that is wrong)" : "",
		 spot->wrong);
	log_warning("models", "instance %s: part %u: %s", part->parts->instance->instance_id, part->index + 1, why);
	note(spot, &(struct cluster_check){.outcome = CLUSTER_CHECK_FAILED,
					   .error = spot->seen ? (double)INFINITY : check->worst,
					   .why = why});
	spot->wrong[0] = 0;
	check_destroy(spot);
}

// The verdict, in a turn of the loop of its own: nobody may be ended from inside of a callback.
static void decide(void *arg)
{
	struct spot *spot = arg;
	const struct spot_check *check = spot->check;
	if (spot->wrong[0]) {
		char why[WHY_BYTES + 232];
		accuse(spot, why);
		instance_worker_fail(spot->part->worker, why); // its layers go elsewhere; the parts may be gone then
	} else if (check->given_up[0]) {
		give_up(spot, check->given_up);
	} else if (check->compared) {
		pass(spot);
	} else {
		give_up(spot, "no row of it was there to be compared");
	}
}

static void decide_soon(struct spot *spot)
{
	net_timer_start(spot->part->parts->loop, &spot->turn, 0, decide, spot);
}

static void set_given_up(struct spot *spot, const char *why)
{
	struct spot_check *check = spot->check;
	check->closed = true;
	if (spot->wrong[0] || check->given_up[0])
		return;
	snprintf(check->given_up, sizeof check->given_up, "%s", why);
	decide_soon(spot);
}

static void silent(void *arg)
{
	struct spot *spot = arg;
	const struct spot_check *check = spot->check;
	if (check->under_way || !check->ready)
		set_given_up(spot, "the device that computes again is silent");
	else if (check->first && !check->compared)
		set_given_up(spot, "the browser has not passed on what it got");
	else
		decide_soon(
			spot); // the request has ended, or has paused for SPOT_PAUSE_MS: it counts by the rows compared
}

static void moved(void *context)
{
	struct spot *spot = context;
	const bool pauses = spot->check->ready && !spot->check->first;
	net_timer_start(spot->part->parts->loop, &spot->check->limit, pauses ? SPOT_PAUSE_MS : SPOT_SILENCE_MS, silent,
			spot);
}

// ---- the shadow ----

static void compute_next(struct spot *spot)
{
	struct spot_check *check = spot->check;
	const struct spot_step *step = check->first;
	if (!step && check->closed)
		decide_soon(spot);
	if (!step || !step->output || !check->ready || check->under_way || spot->wrong[0])
		return;
	check->under_way = true;
	if (shadow_compute(check->shadow, &(struct shadow_rows){.row_count = step->row_count,
								.position = step->position,
								.tokens = step->tokens,
								.activations = step->input}))
		set_given_up(spot, "the device that computes again takes nothing");
}

static void shadow_is_ready(void *context)
{
	struct spot *spot = context;
	spot->check->ready = true;
	moved(spot);
	compute_next(spot);
}

static void shadow_lost(void *context, const char *why)
{
	char text[WHY_BYTES];
	struct spot *spot = context;
	snprintf(text, sizeof text, "%.120s cannot compute again: %.200s", spot->check->name, why);
	set_given_up(spot, text);
}

static void compare_row(struct spot *spot, const struct spot_step *step, uint32_t row, const float *wanted)
{
	double error;
	char name[GATHER_NAME_BYTES];
	struct spot_check *check = spot->check;
	const struct instance *instance = spot->part->parts->instance;
	const struct instance_stage *stage = &instance->stages[spot->part->first_stage];
	const uint32_t width = spot->own.embedding;
	const enum spot_verdict verdict = spot_judge(step->output + (size_t)row * width, wanted + (size_t)row * width,
						     width, &error);
	check->worst = error > check->worst ? error : check->worst;
	check->compared++;
	if (verdict == SPOT_UNCLEAR)
		set_given_up(spot, "what it is to be compared with is no finite number");
	else if (verdict == SPOT_DIFFERS && !spot->wrong[0])
		snprintf(spot->wrong, sizeof spot->wrong,
			 "of layers %u to %u of %.64s, the row at position %u of a request is off by %.3g on %.100s, "
			 "where %.2g is allowed, beside %.100s",
			 stage->first_layer, stage->first_layer + stage->layer_count - 1, instance->model_name,
			 step->position + row, error, gather_name(instance->all, spot->device, name), spot_tolerance,
			 check->name);
}

static void computed(void *context, const float *rows, uint32_t row_count)
{
	struct spot *spot = context;
	struct spot_check *check = spot->check;
	struct spot_step *step = check->first;
	if (check->given_up[0] || spot->wrong[0])
		return;
	if (!step || row_count != step->row_count) {
		set_given_up(spot, "the device that computes again sent other rows");
		return;
	}
	for (uint32_t row = 0; row < row_count && !spot->wrong[0] && !check->given_up[0]; row++)
		compare_row(spot, step, row, rows);
	check->under_way = false;
	step_destroy(check, step);
	moved(spot);
	if (spot->wrong[0])
		decide_soon(spot);
	else if (!check->given_up[0])
		compute_next(spot);
}

// ---- beginning ----

// The trusted device that is to compute again; NULL: none has room.
static const struct cluster_device *choose_device(const struct spot *spot, uint64_t needs)
{
	int at = -1;
	struct placing *placing;
	const struct instances *all = all_of(spot);
	const struct cluster_device *found = NULL;
	struct spot_device devices[PLACEMENT_DEVICES];
	if (placing_gather_memory(&placing, all, spot->part->parts->instance->model))
		return NULL;
	for (unsigned i = 0; i < placing->wanted.device_count; i++) {
		const char *reason;
		const struct placement_device *one = &placing->devices[i];
		const char *node_id = cluster_device_node_id(placing->where[i]);
		devices[i] = (struct spot_device){
			.usable = !one->unusable && one->backend != PLACE_WEBGPU && !one->software &&
				  one->heat < HEAT_THROTTLED,
			.idle = !strcmp(cluster_device_state(placing->where[i], &reason), "idle"),
			.free_bytes = one->free_bytes};
		if (!cluster_has_node(all->params.cluster, node_id, &devices[i].trusted))
			devices[i].trusted = false;
	}
	at = spot_choose(devices, placing->wanted.device_count, needs);
	if (at >= 0)
		found = placing->where[at];
	free(placing);
	return found;
}

static void cannot_begin(struct spot *spot, const char *why)
{
	spot->rests_until_ms = instances_now(all_of(spot)) + SPOT_REST_MS;
	note(spot, &(struct cluster_check){.outcome = CLUSTER_CHECK_NOT_BEGUN, .why = why});
}

static void begin(struct spot *spot, uint64_t round)
{
	struct error error = {0};
	struct instances *all = all_of(spot);
	const uint64_t needs = shadow_needs(spot->part);
	const struct cluster_device *device = choose_device(spot, needs);
	struct spot_check *check = device ? calloc(1, sizeof *check) : NULL;
	if (!check) {
		cannot_begin(spot, "no trusted device has room for its layers");
		return;
	}
	check->round = round;
	check->request.pages = check->pages;
	gather_name(all, device, check->name);
	snprintf(check->device_id, sizeof check->device_id, "%s", cluster_device_id(device));
	spot->check = check;
	all->spot_checks++;
	const struct shadow_params params = {.part = spot->part,
					     .device = device,
					     .needs_bytes = needs,
					     .moved = moved,
					     .ready = shadow_is_ready,
					     .computed = computed,
					     .lost = shadow_lost,
					     .context = spot};
	if (shadow_create(&check->shadow, &params, &error)) {
		check_destroy(spot);
		cannot_begin(spot, error.message);
		return;
	}
	spot->part->spot_owed = false;
	moved(spot);
}

static double draw(void)
{
	uint32_t number;
	return RAND_bytes((unsigned char *)&number, sizeof number) == 1 ? number / 4294967296.0 : 1;
}

static bool is_wanted(const struct spot *spot)
{
	const struct instances *all = all_of(spot);
	return all->spot_checks < SPOT_CHECKS_MOST && instances_now(all) >= spot->rests_until_ms &&
	       spot_wanted(cluster_check_percent(all->params.cluster), spot->part->spot_owed, draw());
}

// ---- what comes to the tab ----

static void *copy_of(const void *bytes, size_t count)
{
	void *copy = malloc(count ? count : 1);
	if (copy)
		memcpy(copy, bytes, count);
	return copy;
}

static struct spot_run as_run(const struct stage_run *run)
{
	return (struct spot_run){.row_count = run->row_count,
				 .position = run->position,
				 .pages = run->pages,
				 .page_count = (run->position + run->row_count + STAGE_PAGE_TOKENS - 1) /
					       STAGE_PAGE_TOKENS};
}

// The part of a step's body before its rows, without its kind.
static size_t plan_of(const struct net_parts *message, const struct ring_step *step, uint32_t embedding)
{
	const size_t row_bytes = step->kind == RING_TOKENS ? sizeof(uint32_t) : sizeof(float) * embedding;
	return message->body_bytes - sizeof(uint32_t) - row_bytes * step->row_count;
}

static void copy_step(struct spot *spot, const struct net_parts *message, const struct ring_step *told,
		      const struct stage_run *run, uint32_t row_at)
{
	struct spot_check *check = spot->check;
	const uint32_t width = spot->own.embedding;
	const struct spot_run own = as_run(run);
	const size_t plan_bytes = plan_of(message, told, width), row_bytes = sizeof(float) * width,
		     bytes = plan_bytes + 2 * row_bytes * run->row_count;
	if (own.page_count > PAGES_MOST || check->bytes + bytes > SPOT_BYTES_MOST ||
	    check->rows + run->row_count > SPOT_ROWS_MOST) {
		check->closed = true; // what was copied is compared all the same
		compute_next(spot);
		return;
	}
	struct spot_step *step = calloc(1, sizeof *step);
	if (step) {
		*step = (struct spot_step){.round = told->round,
					   .number = told->step,
					   .lane = told->lane,
					   .row_at = row_at,
					   .row_count = run->row_count,
					   .position = run->position,
					   .plan = copy_of(message->body + sizeof(uint32_t), plan_bytes),
					   .plan_bytes = plan_bytes};
		if (told->tokens)
			step->tokens = copy_of(told->tokens + row_at, run->row_count * sizeof *step->tokens);
		else
			step->input = copy_of(told->activations + (size_t)row_at * width, run->row_count * row_bytes);
		if (check->last)
			check->last->next = step;
		else
			check->first = step;
		check->last = step;
	}
	if (!step || !step->plan || (!step->tokens && !step->input)) {
		set_given_up(spot, "the server is out of memory");
		return;
	}
	check->rows += run->row_count;
	check->bytes += bytes;
	memcpy(check->pages, own.pages, own.page_count * sizeof *own.pages);
	check->request.page_count = own.page_count > check->request.page_count ? own.page_count
									       : check->request.page_count;
	check->request.tokens = run->position + run->row_count;
	moved(spot);
}

static void look_runs(struct spot *spot, const struct net_parts *message, const struct ring_step *step)
{
	uint32_t row_at = 0;
	for (uint32_t i = 0; i < step->run_count; row_at += step->runs[i++].row_count) {
		const struct stage_run *run = &step->runs[i];
		const struct spot_run told = as_run(run);
		if (!spot->check && !run->position && is_wanted(spot)) {
			begin(spot, step->round);
			if (spot->check)
				copy_step(spot, message, step, run, row_at);
			continue;
		}
		if (!spot->check || spot->check->closed)
			continue;
		const enum spot_whose what = spot_look(&spot->check->request, &told);
		if (what == SPOT_OWN) {
			copy_step(spot, message, step, run, row_at);
		} else if (what == SPOT_OVER) {
			spot->check->closed = true;
			compute_next(spot);
		}
	}
}

static void came(void *context, const struct net_parts *message)
{
	struct spot *spot = context;
	const struct parts *parts = spot->part->parts;
	spot->overflows |= !spot_finite(message->body, message->body_bytes, RING_F32, spot->own.embedding);
	if (parts->failed || parts->step != PARTS_READY ||
	    (spot->check ? spot->check->closed : !spot_begins(message->body, message->body_bytes)))
		return;
	struct ring_message *read = shadow_read(&spot->own, all_of(spot)->params.contract, message);
	if (read && read->said == RING_STEP)
		look_runs(spot, message, &read->step);
	ring_message_destroy(&read);
}

// ---- what the tab sends on ----

static struct spot_step *waiting_for(const struct spot_check *check, const struct ring_step *told)
{
	for (struct spot_step *step = check->first; step; step = step->next)
		if (!step->output && step->round == told->round && step->number == told->step &&
		    step->lane == told->lane)
			return step;
	return NULL;
}

static void take_output(struct spot *spot, struct spot_step *step, const struct net_parts *message,
			const struct ring_step *told)
{
	struct spot_check *check = spot->check;
	const uint32_t width = spot->own.embedding;
	if (plan_of(message, told, width) != step->plan_bytes ||
	    memcmp(message->body + sizeof(uint32_t), step->plan, step->plan_bytes) != 0) {
		check->closed = spot->seen = true;
		snprintf(spot->wrong, sizeof spot->wrong,
			 "at position %u of a request it passes on other rows, or pages, than it got", step->position);
		decide_soon(spot);
		return;
	}
	step->output = copy_of(told->activations + (size_t)step->row_at * width,
			       (size_t)step->row_count * width * sizeof(float));
	if (!step->output)
		set_given_up(spot, "the server is out of memory");
	else
		compute_next(spot);
}

static void copy_output(struct spot *spot, const struct net_parts *message)
{
	const struct spot_check *check = spot->check;
	if (!check || !check->last || check->last->output || check->given_up[0])
		return;
	struct ring_message *read = shadow_read(&spot->next, all_of(spot)->params.contract, message);
	struct spot_step *step = read && read->said == RING_STEP ? waiting_for(check, &read->step) : NULL;
	if (step)
		take_output(spot, step, message, &read->step);
	ring_message_destroy(&read);
}

static bool goes(void *context, const struct net_parts *message)
{
	struct spot *spot = context;
	const struct instance *instance = spot->part->parts->instance;
	const struct instance_stage *stage = &instance->stages[spot->part->first_stage];
	if (spot->wrong[0])
		return false;
	if (!spot->overflows && !spot_finite(message->body, message->body_bytes, RING_F32, spot->next.embedding)) {
		spot->seen = true;
		snprintf(spot->wrong, sizeof spot->wrong,
			 "of layers %u to %u of %.64s it passes on NaN or infinite numbers, and got finite ones",
			 stage->first_layer, stage->first_layer + stage->layer_count - 1, instance->model_name);
		decide_soon(spot);
	} else {
		copy_output(spot, message);
	}
	return !spot->wrong[0];
}

// ---- with the parts ----

static const struct part *before_of(const struct part *part)
{
	const struct parts *parts = part->parts;
	return &parts->part[(part->index + parts->count - 1) % parts->count];
}

void parts_spot_begin(struct part *part)
{
	const struct parts *parts = part->parts;
	const struct part *before = before_of(part);
	if (!part->tab || part->index + 1 == parts->count)
		return;
	parts_spot_end(part);
	struct spot *spot = part->spot = calloc(1, sizeof *spot);
	if (!spot)
		return; // nothing of it is checked
	*spot = (struct spot){.part = part, .device = parts->instance->stages[part->first_stage].device};
	shadow_ring_part(&spot->own, parts, part->index);
	shadow_ring_part(&spot->next, parts, part->index + 1);
	if (before->hop)
		hop_relay_tap(before->hop, came, spot);
	if (part->hop)
		hop_relay_gate(part->hop, goes, spot);
}

void parts_spot_end(struct part *part)
{
	if (!part->spot)
		return;
	const struct spot_check *check = part->spot->check;
	if (part->spot->wrong[0]) // found, and broken before its turn
		accuse(part->spot, (char[WHY_BYTES + 232]){""});
	else if (check && check->compared && !check->first && !check->given_up[0])
		pass(part->spot);
	else if (check)
		give_up(part->spot, "the ring was connected anew, or has ended");
	net_timer_stop(part->parts->loop, &part->spot->turn);
	if (before_of(part)->hop)
		hop_relay_tap(before_of(part)->hop, NULL, NULL);
	if (part->hop)
		hop_relay_gate(part->hop, NULL, NULL);
	free(part->spot);
	part->spot = NULL;
}
