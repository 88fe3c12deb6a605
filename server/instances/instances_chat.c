/* The view of models for the holder of a token that may only use them (schema's ChatModel): whether each answers now,
 * since when, and until when requests wait for it. Neither devices, machines and ids nor reasons in words, which name
 * them. Thread: the loop's. */
#include "common/base/clock.h"
#include "server/instances/instances_inside.h"

#include <string.h>

// The state as it is shown to everybody: of a change that is not on disk yet, the one before.
static const char *shown_state(const struct instance *instance)
{
	const char *now = instance_state_name(instance->state);
	return instance->shown ? json_get_string(instance->shown->json, "state", now) : now;
}

static bool is_leaving(const struct instance *instance)
{
	for (unsigned i = 0; i < instance->stage_count; i++)
		if (instance_is_draining(&instance->stages[i]))
			return true;
	return false;
}

// Where a paused one is loaded again, it moves; else it waits for a place.
static const char *chat_state(const struct instance *instance)
{
	const char *shown = shown_state(instance);
	if (!strcmp(shown, "running"))
		return is_leaving(instance) ? "leaving" : "ready";
	if (!strcmp(shown, "paused"))
		return instance->parts && instance_is_anew(instance) ? "moving" : "paused";
	return !strcmp(shown, "starting") ? "starting" : "not_loaded";
}

// The instance that tells how the model is: the one that comes first in this order; the oldest of those that are alike.
static const struct instance *speaker(const struct instances *all, const struct model_record *model, const char **state)
{
	static const char *const order[] = {"ready", "leaving", "moving", "paused", "starting"};
	for (size_t i = 0; i < sizeof order / sizeof *order; i++)
		for (const struct instance *one = all->first; one; one = one->next) {
			*state = strcmp(one->model_id, model->model_id) ? "" : chat_state(one);
			if (!strcmp(*state, order[i]))
				return one;
		}
	*state = "not_loaded";
	return NULL;
}

static struct json *loaded_json(const struct instance *instance)
{
	uint64_t done, total, all_done = 0, all_total = 0;
	for (unsigned i = 0; i < parts_count(instance->parts); i++) {
		parts_progress(instance->parts, i, &done, &total);
		all_done += done;
		all_total += total;
	}
	struct json *json = json_new_object();
	instance_set_bytes(json, "loaded_bytes", all_done);
	instance_set_bytes(json, "total_bytes", all_total);
	return json;
}

// When requests that wait for it end, on the wall clock, in whole seconds; 0: none wait.
static int64_t until_ms(const struct instance *instance)
{
	const int64_t until = instance->recovery.requests_until_ms;
	if (instance->state != INSTANCE_PAUSED || !until)
		return 0;
	return (clock_wall_ms() + until - instances_now(instance->all)) / 1000 * 1000;
}

static struct json *chat_model_json(const struct instances *all, const struct model_record *model)
{
	char at[CLOCK_TEXT_BYTES];
	const char *state;
	const struct instance *instance = speaker(all, model, &state);
	const bool loads = !strcmp(state, "starting") || !strcmp(state, "moving");
	const int64_t until = instance ? until_ms(instance) : 0;
	struct json *json = json_new_object();
	json_set_string(json, "name", model->name);
	json_set_string(json, "task", model_task_name(model_task(&model->shape)));
	json_set_string(json, "state", state);
	json_set_string(json, "since", instance ? clock_format(instance->state_ms, at) : NULL);
	json_set_string(json, "until", until ? clock_format(until, at) : NULL);
	json_set(json, "chat", instance ? json_new_bool(instance->chat) : json_new_null());
	json_set(json, "progress", loads && parts_at_work(instance->parts) ? loaded_json(instance) : json_new_null());
	json_set(json, "sampling", instance ? instance_sampling(instance, NULL) : json_new_null());
	return json;
}

struct json *instances_chat_json(const struct instances *instances)
{
	const struct model_record *model;
	struct json *list = json_new_array();
	for (size_t i = 0; (model = models_at(instances->params.models, i)); i++)
		if (model->state == MODEL_READY)
			json_push(list, chat_model_json(instances, model));
	return list;
}
