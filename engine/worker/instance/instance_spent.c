/* See instance_spent.h. */
#include "engine/worker/instance/instance_spent.h"

static struct json *list_of(const struct generator_spent *spent)
{
	struct json *list = json_new_array();
	for (uint32_t i = 0; i < spent->count; i++)
		json_push(list, json_new_number((double)spent->stages_ns[i] * 1e-6));
	return list;
}

static void add(struct json *list, const struct request *request)
{
	const struct generator_spent spent = generator_job_spent(request->job);
	if (!spent.count || !spent.stages_ns[0])
		return;
	struct json *one = json_new_object();
	json_set_integer(one, "request", (int64_t)request->number);
	json_set(one, "stages_ms", list_of(&spent));
	json_push(list, one);
}

struct json *instance_spent_json(const struct instance *instance, const struct request *request)
{
	struct generator_state state;
	struct json *out = json_new_object(), *list = json_new_array();
	generator_state(instance->generator, &state);
	json_set(out, "busy_ms", list_of(&state.spent));
	for (const struct request *one = request ? request : instance->requests; one; one = request ? NULL : one->next)
		if (one->job)
			add(list, one);
	json_set(out, "requests", list);
	return out;
}
