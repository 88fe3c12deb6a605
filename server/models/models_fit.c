/* See models_fit.h. */
#include "server/models/models_fit.h"

#include "server/models/hub.h"

#include <stdio.h>
#include <string.h>

enum { GROUPS = 256 };

struct group { // of devices that one instance may use together
	char node_id[65], backend[16];
	uint64_t bytes;
};

struct counting {
	struct models_room *room;
	struct group groups[GROUPS];
	size_t count;
};

static uint64_t free_bytes(const struct json *record, const struct json *telemetry)
{
	const int64_t total = json_get_integer(telemetry, "memory_total_bytes",
					       json_get_integer(record, "memory_bytes", 0));
	const int64_t used = json_get_integer(telemetry, "memory_used_bytes", 0);
	return total > used && used >= 0 ? (uint64_t)(total - used) : 0;
}

static struct group *group_of(struct counting *counting, const char *node_id, const char *backend)
{
	for (size_t i = 0; i < counting->count; i++)
		if (!strcmp(counting->groups[i].node_id, node_id) && !strcmp(counting->groups[i].backend, backend))
			return &counting->groups[i];
	if (counting->count == GROUPS)
		return NULL;
	struct group *group = &counting->groups[counting->count++];
	snprintf(group->node_id, sizeof group->node_id, "%s", node_id);
	snprintf(group->backend, sizeof group->backend, "%s", backend);
	return group;
}

static void count_device(void *context, const struct cluster_device *device, const struct json *telemetry)
{
	struct counting *counting = context;
	const char *reason, *state = cluster_device_state(device, &reason);
	const struct json *record = cluster_device_record(device);
	if (!strcmp(state, "offline") || !strcmp(state, "unsupported") || !strcmp(state, "draining"))
		return;
	const uint64_t bytes = free_bytes(record, telemetry);
	struct group *group = group_of(counting, cluster_device_node_id(device),
				       json_get_string(record, "backend", ""));
	if (bytes > counting->room->device)
		counting->room->device = bytes;
	if (group)
		group->bytes += bytes;
}

void models_room(const struct cluster *cluster, struct models_room *room)
{
	struct counting counting = {.room = room};
	*room = (struct models_room){0};
	cluster_each_device(cluster, count_device, &counting);
	for (size_t i = 0; i < counting.count; i++)
		if (counting.groups[i].bytes > room->devices)
			room->devices = counting.groups[i].bytes;
}

const char *models_fit(const struct models_room *room, uint64_t bytes)
{
	const uint64_t needed = hub_needed_bytes(bytes);
	if (!bytes || !room->device)
		return "unknown";
	return needed <= room->device ? "device" : needed <= room->devices ? "devices" : "no";
}
