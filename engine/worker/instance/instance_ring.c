/* See instance_ring.h. Order of reading: instance_ring_serve, pass_on (of a part that has no generator), take_back (of
 * the last), instance_ring_check. */
#include "engine/worker/instance/instance_ring.h"

#include "common/base/clock.h"
#include "engine/device/info.h"
#include "engine/worker/fault.h"
#include "engine/worker/instance/instance_measure.h"
#include "engine/worker/instance/ring_timing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct instance_ring {
	struct ring *ring;
	struct ring_part part;
	bool last;            // of the parts, whatever their number; never changes: the reader asks, too
	uint64_t first_epoch; // that it was loaded with
	uint64_t round;
	bool greeted;                              // the previous part has said a good hello in this round
	float *activations[2];                     // (batch_rows, embedding), of a part without generator
	uint64_t stages_ns[LIMIT_INSTANCE_STAGES]; // stage_spent_ns of each, when it was last looked at
	// For the last part.
	struct json *check; // the id of the call; NULL: none is under way
	bool checked_now;
	struct generator_checked checked;
	uint32_t expected_token; // whose logit is asked for besides; UINT32_MAX: none
	float expected_logit;
	double spread;               // of all logits: their standard deviation
	int64_t sent_ns[RING_PARTS]; // by lane
	// By lane: its step was sent and is not back; and no other step has been in flight since, so that its time is
	// that of the devices, not of a queue.
	bool under_way[RING_PARTS], alone[RING_PARTS];
	struct ring_timing timing;
};

static bool is_last(const struct ring_part *part)
{
	return part->index + 1 == part->count;
}

bool instance_ring_is_last(const struct instance *instance)
{
	return instance->ring->last;
}

uint32_t instance_ring_parts(const struct instance *instance)
{
	return instance->ring->part.count;
}

// ---- loading ----

enum status instance_ring_prepare(const struct instance *instance, const struct json *params, struct ring_part *part,
				  struct error *error)
{
	const struct json *told = json_get(params, "part"), *first = json_first(json_get(params, "stages"));
	if (!told && instance->ring_in_fd >= 0)
		return error_set(error, STATUS_INVALID_PARAMS, "this worker is a part of an instance: of which?");
	if (!told)
		return STATUS_OK;
	if (instance->ring_in_fd < 0)
		return error_set(error, STATUS_INVALID_PARAMS, "this worker has no ring: it is no part of an instance");
	*part = (struct ring_part){
		.epoch = (uint64_t)json_get_integer(told, "epoch", 0),
		.index = (uint32_t)json_get_integer(told, "index", 0),
		.count = (uint32_t)json_get_integer(told, "count", 0),
		.first_layer = (uint32_t)json_get_integer(first, "first_layer", 0),
		.next_layer = (uint32_t)json_get_integer(told, "last_layer", 0),
		.activations = !strcmp(json_get_string(told, "activations", ""), "f16") ? RING_F16 : RING_F32,
	};
	snprintf(part->instance_id, sizeof(part->instance_id), "%s", json_get_string(told, "instance_id", ""));
	if (part->index >= part->count || (part->index ? !part->first_layer : part->first_layer) || !part->next_layer)
		return error_set(error, STATUS_INVALID_PARAMS, "part %u of %u, from layer %u to %u", part->index,
				 part->count, part->first_layer, part->next_layer);
	if (is_last(part))
		part->next_layer = 0;
	return STATUS_OK;
}

enum status instance_ring_rows(struct ring_part *part, struct stage_params *stage, struct error *error)
{
	part->embedding = stage->shape->embedding;
	part->vocabulary = stage->shape->vocabulary;
	part->context_tokens = stage->context_tokens;
	part->page_count = stage->page_count;
	part->batch_rows = stage->batch_rows;
	part->sequences = stage->batch_sequences;
	part->state_count = stage_state_count(stage->shape, stage->batch_sequences);
	uint32_t rows = ring_rows(part);
	if (!rows)
		return error_set(error, STATUS_INVALID_PARAMS,
				 "a step of %u sequences, each with its pages, does not fit a message of %d bytes",
				 part->sequences, LIMIT_BODY_BYTES);
	part->batch_rows = stage->batch_rows = rows;
	if (stage->batch_outputs > rows)
		stage->batch_outputs = rows;
	return STATUS_OK;
}

enum status instance_ring_create(struct instance *instance, const struct ring_part *part, struct error *error)
{
	struct instance_ring *own = instance->ring = calloc(1, sizeof(*own));
	if (!own)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a ring");
	own->part = *part;
	own->last = is_last(part);
	own->first_epoch = part->epoch;
	for (int i = 0; i < 2 && !own->last; i++) {
		own->activations[i] = malloc((size_t)part->batch_rows * part->embedding * sizeof(float));
		if (!own->activations[i])
			return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for activations");
	}
	const struct ring_params params = {.contract = instance->contract,
					   .part = &own->part,
					   .in_fd = instance->ring_in_fd,
					   .out_fd = instance->ring_out_fd,
					   .came = instance_wake,
					   .context = instance};
	return ring_create(&own->ring, &params, error);
}

void instance_ring_destroy(struct instance *instance)
{
	struct instance_ring *own = instance->ring;
	if (!own)
		return;
	ring_destroy(&own->ring);
	json_destroy(&own->check);
	free(own->activations[0]);
	free(own->activations[1]);
	free(own);
	instance->ring = NULL;
}

// ---- sending ----

static enum status send_step(struct instance_ring *own, const struct ring_step *step, struct error *error)
{
	struct buffer out;
	buffer_init(&out, LIMIT_WORKER_MESSAGE_BYTES);
	enum status status = ring_write_step(&out, &own->part, step);
	if (!status)
		return ring_send(own->ring, &out, error);
	buffer_finish(&out);
	return error_set(error, status, "no memory for a step to the next part");
}

static enum status send_hello(struct instance_ring *own, struct error *error)
{
	struct buffer out;
	buffer_init(&out, LIMIT_HEAD_BYTES);
	enum status status = ring_write_hello(&out, &own->part, own->round);
	if (!status)
		return ring_send(own->ring, &out, error);
	buffer_finish(&out);
	return error_set(error, status, "no memory for a message to the next part");
}

// As far as it can be said: who cannot hears of it by the end of this worker.
static void send_failed(struct instance_ring *own, uint64_t epoch, uint32_t part, const char *text)
{
	struct buffer out;
	buffer_init(&out, LIMIT_HEAD_BYTES);
	if (!ring_write_failed(&out, epoch, part, text))
		ring_send(own->ring, &out, NULL);
	buffer_finish(&out);
}

static void answer_check(struct instance *instance, const struct error *error, struct json *result)
{
	struct instance_ring *own = instance->ring;
	if (own->check)
		instance_answer(instance, own->check, error, result);
	else
		json_destroy(&result);
	json_destroy(&own->check);
}

// This part cannot continue: notify the others, and end the process.
static void fail(struct instance *instance, const struct error *error)
{
	const struct ring_part *part = &instance->ring->part;
	char text[RING_TEXT_BYTES];
	snprintf(text, sizeof(text), "part %u of %u: %s", part->index + 1, part->count, error->message);
	if (!instance_ring_is_last(instance))
		send_failed(instance->ring, part->epoch, part->index, text);
	answer_check(instance, error, NULL);
	instance_fail(instance, error);
}

// ---- a part without generator ----

static enum status compute(struct instance *instance, const struct ring_step *step, const float **output,
			   struct error *error)
{
	struct instance_ring *own = instance->ring;
	const float *input = step->activations;
	enum status status = STATUS_OK;
	for (unsigned i = 0; !status && step->zero_count && i < instance->stage_count; i++)
		status = stage_zero(instance->stages[i], step->zero, step->zero_count, error);
	for (unsigned i = 0; !status && step->row_count && i < instance->stage_count; i++) {
		const struct stage_batch batch = {.row_count = step->row_count,
						  .runs = step->runs,
						  .run_count = step->run_count,
						  .tokens = step->tokens,
						  .input = input,
						  .output = own->activations[i % 2]};
		status = stage_step(instance->stages[i], &batch, error);
		input = batch.output;
	}
	*output = input;
	if (!status && step->row_count && fault_injected("step-wrong", backend_kind_parse(instance->backend)))
		memset(own->activations[(instance->stage_count - 1) % 2], 0, own->part.embedding * sizeof(float) / 2);
	return status;
}

// Add this part's share of the step, from `began_ns` until now.
static void tell_of_it(struct instance *instance, struct ring_step *step, int64_t arrived_ns, int64_t began_ns)
{
	struct ring_told *told = &step->parts[step->part_count++];
	*told = (struct ring_told){.waited_ns = (uint64_t)(began_ns - arrived_ns),
				   .spent_ns = (uint64_t)(clock_steady_ns() - began_ns),
				   .came_bytes = step->came_bytes};
	for (unsigned i = 0; i < instance->stage_count; i++) {
		const uint64_t spent_ns = stage_spent_ns(instance->stages[i]);
		if (step->stage_count < LIMIT_INSTANCE_STAGES) {
			step->stages_ns[step->stage_count++] = spent_ns - instance->ring->stages_ns[i];
			told->stage_count++;
		}
		instance->ring->stages_ns[i] = spent_ns;
	}
}

static void pass_on(struct instance *instance, struct ring_step *step, int64_t arrived_ns)
{
	struct error error = {0};
	enum backend_kind backend = backend_kind_parse(instance->backend);
	int64_t began_ns = clock_steady_ns();
	const float *output = NULL;
	enum status status = STATUS_OK;
	if (step->step > 1)
		fault_strike("step", backend);
	if (step->step > 1 && fault_injected("step-lost", backend))
		status = error_set(&error, STATUS_DEVICE_LOST, "the device is lost");
	if (!status)
		status = compute(instance, step, &output, &error);
	if (!status) {
		step->tokens = NULL;
		step->activations = output;
		tell_of_it(instance, step, arrived_ns, began_ns);
		status = send_step(instance->ring, step, &error);
	}
	if (status) {
		error_set(&error, status, "%s", status_text(status));
		fail(instance, &error);
	}
}

// ---- the last part ----

static void note_sent(struct instance_ring *own, uint32_t lane)
{
	bool alone = true;
	own->under_way[lane] = false;
	for (uint32_t i = 0; i < RING_PARTS; i++) {
		alone = alone && !own->under_way[i];
		own->alone[i] = false;
	}
	own->under_way[lane] = true;
	own->alone[lane] = alone;
}

static enum status send_planned(void *context, const struct generator_sent *sent, struct error *error)
{
	struct instance *instance = context;
	struct instance_ring *own = instance->ring;
	const struct ring_step step = {.epoch = own->part.epoch,
				       .round = own->round,
				       .step = sent->step,
				       .lane = sent->lane,
				       .zero_count = sent->zero_count,
				       .run_count = sent->run_count,
				       .row_count = sent->row_count,
				       .zero = sent->zero,
				       .runs = sent->runs,
				       .tokens = sent->tokens};
	own->sent_ns[sent->lane] = clock_steady_ns();
	note_sent(own, sent->lane);
	return send_step(own, &step, error);
}

static double spread_of(const float *logits, uint32_t count)
{
	double sum = 0, squares = 0;
	for (uint32_t i = 0; i < count; i++) {
		sum += (double)logits[i];
		squares += (double)logits[i] * (double)logits[i];
	}
	const double variance = squares / count - sum / count * (sum / count);
	return variance > 0 ? sqrt(variance) : 0;
}

static void checked(void *context, const struct generator_checked *result)
{
	struct instance *instance = context;
	struct instance_ring *own = instance->ring;
	own->checked = *result;
	own->checked.logits = NULL; // the generator's
	own->spread = result->finite ? spread_of(result->logits, own->part.vocabulary) : 0;
	own->expected_logit = own->expected_token < own->part.vocabulary ? result->logits[own->expected_token] : 0;
	own->checked_now = true;
}

void instance_ring_generator(struct instance *instance, uint32_t lanes, struct generator_params *params)
{
	params->lanes = lanes;
	params->send = send_planned;
	params->checked = checked;
	params->context = instance;
}

static void finish_check(struct instance *instance, const struct ring_step *step, uint64_t round_ns)
{
	struct instance_ring *own = instance->ring;
	struct error error = {0};
	struct json *result = json_new_object(), *parts = json_new_array();
	own->checked_now = false;
	for (uint32_t i = 0; i < step->part_count; i++) {
		struct json *one = json_new_object();
		json_set_number(one, "compute_ms", (double)step->parts[i].spent_ns * 1e-6);
		json_push(parts, one);
	}
	json_set(result, "parts", parts);
	json_set_number(result, "round_ms", (double)round_ns * 1e-6);
	json_set_number(result, "logit", (double)own->checked.logit);
	json_set_integer(result, "token", own->checked.token);
	json_set_number(result, "spread", own->spread);
	if (own->expected_token < own->part.vocabulary)
		json_set_number(result, "expected_logit", (double)own->expected_logit);
	if (own->checked.finite) {
		answer_check(instance, NULL, result);
		return;
	}
	json_destroy(&result);
	generator_halt(instance->generator);
	error_set(&error, STATUS_INTERNAL, "the activations or logits of the reference token are NaN or infinite");
	answer_check(instance, &error, NULL);
}

static void add_step(struct instance *instance, const struct ring_step *step, bool alone)
{
	uint64_t parts_ns[RING_PARTS];
	for (uint32_t i = 0; i < step->part_count; i++)
		parts_ns[i] = step->parts[i].spent_ns;
	instance_steps_add(&instance->steps, step->row_count, step->run_count, alone, parts_ns, step->part_count);
}

// From sending to return, how long the step was neither computed nor waiting in a part. 0: another step was in flight
// meanwhile.
static uint64_t network_ns(const struct instance_ring *own, const struct ring_step *step, int64_t arrived_ns)
{
	int64_t ns = arrived_ns;
	if (step->lane >= RING_PARTS || !own->under_way[step->lane] || !own->alone[step->lane])
		return 0;
	ns -= own->sent_ns[step->lane];
	for (uint32_t i = 0; i < step->part_count && ns > 0; i++)
		ns -= (int64_t)(step->parts[i].waited_ns + step->parts[i].spent_ns);
	return ns > 0 ? (uint64_t)ns : 0;
}

static void take_back(struct instance *instance, struct ring_step *step, int64_t arrived_ns)
{
	struct instance_ring *own = instance->ring;
	struct error error = {0};
	int64_t began_ns = clock_steady_ns();
	bool taken = false;
	const struct generator_returned returned = {.lane = step->lane,
						    .row_count = step->row_count,
						    .step = step->step,
						    .network_ns = network_ns(own, step, arrived_ns),
						    .activations = step->activations,
						    .stages_ns = step->stages_ns,
						    .stage_count = step->stage_count};
	enum status status = generator_return(instance->generator, &returned, &taken, &error);
	if (status) {
		fail(instance, &error);
		return;
	}
	if (!taken)
		return;
	const bool alone = own->alone[step->lane];
	own->under_way[step->lane] = false;
	int64_t now_ns = clock_steady_ns();
	uint64_t round_ns = (uint64_t)(now_ns - own->sent_ns[step->lane]);
	tell_of_it(instance, step, arrived_ns, began_ns);
	if (own->checked_now) {
		finish_check(instance, step, round_ns);
	} else if (step->row_count) {
		ring_timing_add(&own->timing, step, round_ns);
		add_step(instance, step, alone);
	}
}

// Times of steps of few rows, of all parts together, in seconds. `told` NULL: a part has not told its own; times known
// from before may be those of other parts, and are forgotten.
static void take_row_times(struct generator *generator, const struct json *told)
{
	double times[ROW_TIMES] = {0};
	const struct json *one = json_first(told);
	for (int i = 0; i < ROW_TIMES && one; i++, one = json_next(one))
		times[i] = json_number(one, 0);
	generator_set_row_times(generator, times);
}

void instance_ring_check(struct instance *instance, struct order *order)
{
	struct instance_ring *own = instance->ring;
	struct error error = {0};
	if (!own || !instance_ring_is_last(instance)) {
		error_set(&error, STATUS_CONFLICT, "this is not the last part of an instance");
		instance_answer(instance, order->message.id, &error, NULL);
		return;
	}
	error_set(&error, STATUS_CONFLICT, "another check has begun");
	answer_check(instance, &error, NULL);
	error = (struct error){0};
	const struct json *params = order->message.params;
	own->check = json_copy(order->message.id);
	own->expected_token = (uint32_t)json_get_integer(params, "expected_token", UINT32_MAX);
	if (json_get(params, "prompt_row_s"))
		instance_set_prompt_rows(instance->generator, json_get_number(params, "prompt_row_s", 0),
					 own->part.batch_rows);
	take_row_times(instance->generator, json_get(params, "row_s"));
	own->round++;
	own->greeted = own->checked_now = false;
	memset(own->under_way, 0, sizeof own->under_way); // its steps are given up
	ring_forget(own->ring);
	enum status status = send_hello(own, &error);
	if (!status)
		status = generator_check(instance->generator, own->part.vocabulary / 2, &error);
	if (status)
		fail(instance, &error);
}

// The part that it is to be.
static struct ring_part adopted(const struct instance_ring *own, const struct json *params)
{
	struct ring_part part = own->part;
	const struct json *told = json_get(params, "part");
	part.epoch = (uint64_t)json_get_integer(params, "epoch", 0);
	part.index = (uint32_t)json_get_integer(told, "index", part.index);
	part.count = (uint32_t)json_get_integer(told, "count", part.count);
	return part;
}

enum status instance_ring_may_adopt(const struct instance *instance, const struct json *params, struct error *error)
{
	const struct instance_ring *own = instance->ring;
	if (!own)
		return json_get(params, "part") ? error_set(error, STATUS_INVALID_PARAMS,
							    "this worker has the whole model: it is no part")
						: STATUS_OK;
	const struct ring_part part = adopted(own, params), *now = &own->part;
	if (part.index >= part.count)
		return error_set(error, STATUS_INVALID_PARAMS, "part %u of %u", part.index, part.count);
	if (!part.index != !now->index || is_last(&part) != own->last)
		return error_set(error, STATUS_CONFLICT,
				 "what is loaded as part %u of %u, from layer %u on, cannot be part %u of %u",
				 now->index + 1, now->count, now->first_layer, part.index + 1, part.count);
	// The epoch tells for which of the two a message was meant.
	if (part.epoch == now->epoch && (part.index != now->index || part.count != now->count))
		return error_set(error, STATUS_CONFLICT, "in epoch %llu this is part %u of %u",
				 (unsigned long long)now->epoch, now->index + 1, now->count);
	return STATUS_OK;
}

enum status instance_ring_adopt(struct instance *instance, const struct json *params, struct error *error)
{
	struct instance_ring *own = instance->ring;
	const struct ring_part part = adopted(own, params);
	const struct json *lanes = json_get(json_get(params, "part"), "lanes");
	struct generator_state state = {0};
	if (part.epoch > own->part.epoch) // a last part that has just been loaded counts its rounds from the first
		own->round = 0;
	own->part = part;
	own->greeted = false;
	ring_set_part(own->ring, &part);
	ring_forget(own->ring);
	if (!instance->generator)
		return STATUS_OK;
	generator_halt(instance->generator);
	generator_state(instance->generator, &state);
	own->timing = (struct ring_timing){.tokens_before = state.generated_tokens}; // of steps that went another way
	instance->steps = (struct instance_steps){0};
	return lanes ? generator_set_lanes(instance->generator, (uint32_t)json_number(lanes, 1), error) : STATUS_OK;
}

struct json *instance_ring_timing(struct instance *instance)
{
	struct ring_timing *timing = &instance->ring->timing;
	struct generator_state state;
	if (!timing->steps)
		return json_new_null();
	generator_state(instance->generator, &state);
	struct json *out = ring_timing_json(timing, instance->ring->part.count, state.generated_tokens);
	*timing = (struct ring_timing){.tokens_before = state.generated_tokens};
	return out;
}

// ---- receiving ----

// Whether a message is of an earlier server or placement: with an epoch since this part was loaded, before the current
// one.
static bool is_past(const struct instance_ring *own, uint64_t epoch)
{
	return epoch >= own->first_epoch && epoch < own->part.epoch;
}

static void take_hello(struct instance *instance, const struct ring_message *message)
{
	struct instance_ring *own = instance->ring;
	struct error error = {0};
	bool last = instance_ring_is_last(instance);
	if (message->round < own->round || is_past(own, message->epoch))
		return; // left over
	if (message->text[0]) {
		error_set(&error, STATUS_CONFLICT, "the parts do not agree: %s", message->text);
		fail(instance, &error);
		return;
	}
	own->greeted = !last || message->round == own->round;
	if (last)
		return;
	own->round = message->round;
	ring_forget(own->ring);
	if (send_hello(own, &error))
		fail(instance, &error);
}

static void take_failed(struct instance *instance, const struct ring_message *message)
{
	struct error error = {0};
	if (!instance_ring_is_last(instance)) {
		send_failed(instance->ring, message->epoch, message->part, message->text);
		return;
	}
	error_set(&error, STATUS_UNAVAILABLE, "%s", message->text);
	answer_check(instance, &error, NULL);
	generator_halt(instance->generator);
}

static void take_step(struct instance *instance, struct ring_message *message)
{
	struct instance_ring *own = instance->ring;
	struct ring_step *step = &message->step;
	if (step->epoch != own->part.epoch || step->round != own->round || !own->greeted)
		return;
	if (instance_ring_is_last(instance))
		take_back(instance, step, message->arrived_ns);
	else
		pass_on(instance, step, message->arrived_ns);
}

struct ring_message *instance_ring_take(struct instance *instance)
{
	return ring_take(instance->ring->ring);
}

void instance_ring_serve(struct instance *instance, struct ring_message **message)
{
	struct error error = {0};
	switch ((*message)->said) {
	case RING_HELLO:
		take_hello(instance, *message);
		break;
	case RING_STEP:
		take_step(instance, *message);
		break;
	case RING_FAILED:
		take_failed(instance, *message);
		break;
	case RING_PAST:
		break;
	case RING_BROKEN:
		error_set(&error, STATUS_INVALID_REQUEST, "%s", (*message)->text);
		fail(instance, &error);
		break;
	}
	ring_message_destroy(message);
}
