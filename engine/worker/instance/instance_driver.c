/* The driver's thread of a model instance: orders between steps, and steps. See instance.h. */
#include "common/base/clock.h"
#include "engine/device/info.h"
#include "engine/worker/fault.h"
#include "engine/worker/instance/instance_ring.h"
#include "engine/worker/instance/instance_spent.h"
#include "engine/worker/instance/ring_timing.h"
#include "engine/worker/prefix/prefix.h"

enum { STATE_MS = 1000 };

// Note since when the driver is in an order or a step, for the watch and for pings.
static void note(struct instance *instance, int64_t *place, bool begins)
{
	pthread_mutex_lock(&instance->lock);
	*place = begins ? clock_steady_ns() : 0;
	pthread_mutex_unlock(&instance->lock);
}

// At its own pace, until the server says otherwise.
static void reset_pace(struct instance *instance)
{
	instance->rest_percent = 0;
	instance->rest_until_ns = 0;
	instance->paced_ns = 0;
}

static void load(struct instance *instance, const struct order *order)
{
	struct error error = {0};
	struct json *result = NULL;
	reset_pace(instance);
	enum status status = instance_load(instance, order->message.params, &result, &error);
	if (status)
		error_set(&error, status, "%s", status_text(status));
	pthread_mutex_lock(&instance->lock);
	instance->loaded = instance->stage_count > 0;
	pthread_mutex_unlock(&instance->lock);
	if (!status && !instance->told_loaded) {
		instance->told_loaded = json_copy(result);
		instance->epoch = (uint64_t)json_get_integer(json_get(order->message.params, "part"), "epoch", 0);
	}
	instance_answer(instance, order->message.id, &error, result);
}

// Another server takes over, or the placement has changed: the requests in progress are unknown there, and are
// cancelled.
static void adopt(struct instance *instance, const struct order *order)
{
	struct error error = {0};
	const struct json *params = order->message.params;
	const uint64_t epoch = (uint64_t)json_get_integer(params, "epoch", 0);
	if (!instance->told_loaded) {
		error_set(&error, STATUS_CONFLICT, "no model is loaded yet");
	} else if (epoch < instance->epoch) {
		error_set(&error, STATUS_CONFLICT, "this worker is of epoch %llu already",
			  (unsigned long long)instance->epoch);
	} else if (!instance_ring_may_adopt(instance, params, &error)) {
		instance->epoch = epoch;
		instance->rest_percent = 0;
		requests_cancel(instance);
		if (instance->generator)
			generator_forget(instance->generator, 0);
		if (instance->ring && instance_ring_adopt(instance, params, &error))
			instance_fail(instance, &error);
	}
	instance_answer(instance, order->message.id, &error, error.status ? NULL : json_copy(instance->told_loaded));
}

// How large a share of the time steps may take, from now on.
static void set_pace(struct instance *instance, const struct order *order)
{
	instance->rest_percent = 100 - (unsigned)json_get_integer(order->message.params, "percent", 100);
	instance->rest_until_ns = 0;
	instance_answer(instance, order->message.id, &(struct error){0}, json_new_object());
}

static void obey(struct instance *instance, struct order *order)
{
	note(instance, &instance->work_ns, true);
	switch (order->kind) {
	case ORDER_UNKNOWN:
		break;
	case ORDER_LOAD:
		load(instance, order);
		break;
	case ORDER_ADOPT:
		adopt(instance, order);
		break;
	case ORDER_CHECK:
		instance->rest_percent = 0; // its token goes around at once
		instance->rest_until_ns = 0;
		instance_ring_check(instance, order);
		break;
	case ORDER_GENERATE:
		request_start(instance, order);
		break;
	case ORDER_CANCEL:
		request_cancel(instance, order);
		break;
	case ORDER_EMBED:
		request_embed(instance, order);
		break;
	case ORDER_FORGET:
		requests_forget(instance, order);
		break;
	case ORDER_PACE:
		set_pace(instance, order);
		break;
	case ORDER_TAKE:
		prefix_take(instance, order);
		break;
	}
	note(instance, &instance->work_ns, false);
	order_destroy(&order);
}

// RingTiming of the whole model in one part of several stages; null where there is one, or nothing was computed.
static struct json *timing(struct instance *instance, const struct generator_state *state)
{
	uint64_t stages_ns[LIMIT_INSTANCE_STAGES];
	const uint64_t steps = state->steps - instance->timed.steps;
	if (instance->ring)
		return instance_ring_timing(instance);
	if (instance->stage_count < 2 || !steps)
		return json_new_null();
	const struct generator_state before = instance->timed;
	instance->timed = *state;
	for (unsigned i = 0; i < instance->stage_count; i++) {
		const uint64_t spent_ns = stage_spent_ns(instance->stages[i]);
		stages_ns[i] = spent_ns - instance->timed_stages_ns[i];
		instance->timed_stages_ns[i] = spent_ns;
	}
	if (!before.steps) // what a stage has spent by then it has on being measured, too
		return json_new_null();
	const struct ring_told told = {.spent_ns = state->step_ns - before.step_ns,
				       .stage_count = instance->stage_count};
	const double to_ms = 1e-6 / (double)steps;
	struct json *out = json_new_object(), *parts = json_new_array();
	json_push(parts, ring_timing_part_json(&told, stages_ns, to_ms));
	json_set_integer(out, "steps", (int64_t)steps);
	json_set_integer(out, "tokens", (int64_t)(state->generated_tokens - before.generated_tokens));
	json_set_number(out, "step_ms", (double)told.spent_ns * to_ms);
	json_set(out, "parts", parts);
	json_set_number(out, "hops_ms", 0);
	return out;
}

// Once a second while anything goes on, and once when it ends.
static void tell_state(struct instance *instance, bool idle)
{
	int64_t now_ns = clock_steady_ns();
	struct generator_state state;
	if (idle ? !instance->told_state : now_ns - instance->state_ns < STATE_MS * 1000000ll) {
		instance->told_state |= !idle; // its end is reported, however short it was
		return;
	}
	generator_state(instance->generator, &state);
	const struct {
		const char *name;
		uint64_t value;
	} figures[] = {
		{"running", state.running},
		{"waiting", state.waiting},
		{"pages_used", state.pages_used},
		{"pages_cached", state.pages_cached},
		{"page_count", state.page_count},
		{"prompt_tokens", state.prompt_tokens},
		{"generated_tokens", state.generated_tokens},
		{"proposed_tokens", state.proposed_tokens},
		{"drafted_tokens", state.drafted_tokens},
		{"draft_accepted_tokens", state.draft_accepted_tokens},
		{"accepted_tokens", state.accepted_tokens},
		{"preemptions", state.preemptions},
		{"ties", state.ties},
	};
	struct json *params = json_new_object();
	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
		json_set_integer(params, figures[i].name, (int64_t)figures[i].value);
	json_set(params, "steps_took",
		 instance_steps_tell(&instance->steps, instance->ring ? instance_ring_parts(instance) : 1));
	json_set(params, "timing", timing(instance, &state));
	json_set(params, "spent", instance_spent_json(instance, NULL));
	instance_tell(instance, "instance.state", params);
	instance->told_state = !idle;
	instance->state_ns = now_ns;
}

// Without a ring: what the step took that was just computed, if one was.
static void add_step(struct instance *instance, const struct generator_state *before)
{
	struct generator_state now;
	generator_state(instance->generator, &now);
	const uint64_t ns = now.step_ns - before->step_ns;
	if (!instance->ring && now.steps == before->steps + 1)
		instance_steps_add(&instance->steps, now.step_rows, now.step_runs, true, &ns, 1);
}

enum { REST_MOST_MS = 5000 };

// Whether no step is to begin now, and until when (steady; INT64_MAX: until the pace changes).
static bool rests(const struct instance *instance, int64_t *until_ns)
{
	*until_ns = instance->rest_percent >= 100 ? INT64_MAX : instance->rest_until_ns;
	return clock_steady_ns() < *until_ns;
}

// After a step, also one of a ring that came back: rest for as long as the pace asks.
static void rest(struct instance *instance)
{
	struct generator_state state;
	generator_state(instance->generator, &state);
	const double ns = (double)(state.step_ns - instance->paced_ns), most_ns = REST_MOST_MS * 1e6;
	instance->paced_ns = state.step_ns;
	if (!(ns > 0) || !instance->rest_percent || instance->rest_percent >= 100)
		return;
	const double rest_ns = ns * instance->rest_percent / (100 - instance->rest_percent);
	instance->rest_until_ns = clock_steady_ns() + (int64_t)(rest_ns < most_ns ? rest_ns : most_ns);
}

// Compute one step. False if there was nothing to do.
static bool step(struct instance *instance)
{
	struct error error = {0};
	bool idle = true;
	enum backend_kind backend = backend_kind_parse(instance->backend);
	note(instance, &instance->step_ns, true);
	if (instance->requests)
		fault_strike("step", backend);
	if (instance->requests && fault_injected("step-lost", backend)) {
		error_set(&error, STATUS_DEVICE_LOST, "the device is lost");
		generator_fail(instance->generator, &error);
	}
	struct generator_state before;
	generator_state(instance->generator, &before);
	enum status status = error.status ? error.status : generator_step(instance->generator, &idle, &error);
	add_step(instance, &before);
	note(instance, &instance->step_ns, false);
	requests_tell(instance);
	if (status)
		instance_fail(instance, &error);
	else
		tell_state(instance, idle && !instance->requests); // steps on their way around a ring count as work
	return !idle && !instance->ring;                           // with a ring all that can be sent has been
}

// Handle one message of the previous part. False if none has come.
static bool serve_ring(struct instance *instance)
{
	struct ring_message *message = instance_ring_take(instance);
	if (!message)
		return false;
	note(instance, &instance->step_ns, true);
	instance_ring_serve(instance, &message);
	note(instance, &instance->step_ns, false);
	requests_tell(instance);
	return true;
}

// A step, unless it is time to rest: then only the ring is served, and orders are obeyed. False if there is nothing to
// do before *until_ns, or at all.
static bool step_at_pace(struct instance *instance, int64_t *until_ns)
{
	rest(instance);
	if (rests(instance, until_ns))
		return false;
	*until_ns = 0;
	const bool busy = step(instance);
	rest(instance);
	return busy;
}

void *instance_main(void *context)
{
	struct instance *instance = context;
	int64_t until_ns = 0; // that it rests; 0: it does not
	bool busy = false;
	while (!instance_ending(instance)) {
		struct order *order = instance_take(instance, !busy, until_ns);
		for (int i = 0; order && i < LIMIT_INSTANCE_ORDERS; i++) {
			obey(instance, order);
			order = i + 1 < LIMIT_INSTANCE_ORDERS ? instance_take(instance, false, 0) : NULL;
		}
		busy = instance->ring && !instance_ending(instance) && serve_ring(instance);
		if (instance->generator && !instance_ending(instance)) {
			prefixes_tend(instance);
			busy |= step_at_pace(instance, &until_ns);
		}
	}
	pthread_mutex_lock(&instance->lock);
	bool failed = instance->failed;
	pthread_mutex_unlock(&instance->lock);
	if (failed)
		return NULL; // the process ends, and the reader may be at work still
	requests_drop(instance);
	instance_unload(instance);
	return NULL;
}
