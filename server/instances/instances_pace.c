/* Tells the worker of an instance how large a share of the time its steps may take, for the hottest of its devices
 * (server/cluster/heat.h). A worker rests between two steps, so no token changes. Thread: the loop's. */
#include "server/cluster/heat.h"
#include "server/instances/instances_inside.h"

void instance_pace(struct instance *instance)
{
	unsigned percent = 100;
	if (instance->state != INSTANCE_RUNNING)
		return;
	for (unsigned i = 0; i < instance->stage_count; i++) {
		const unsigned one = cluster_work_percent(instance->stages[i].device);
		percent = one < percent ? one : percent;
	}
	if (instance->held_percent == 100 - percent)
		return;
	struct json *params = json_new_object();
	json_set_integer(params, "percent", percent);
	if (!instance_worker_call(parts_generator(instance->parts), "instance.pace", params, NULL, NULL, NULL))
		instance->held_percent = 100 - percent;
}
