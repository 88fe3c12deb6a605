/* See readings.h. */
#include "engine/node/readings.h"

#include "common/base/limits.h"
#include "common/base/log.h"
#include "engine/telemetry/telemetry.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { READINGS_WAITING = 64 };

struct readings {
	struct readings_params params;
	struct telemetry *telemetry;
	struct telemetry_target *targets; // (target_count), what the sampler was told last
	size_t target_count;
	pthread_mutex_t lock;
	struct json *waiting[READINGS_WAITING]; // under lock, oldest first
	size_t count;                           // under lock
	bool posted;                            // under lock: the loop has been told
};

static void deliver(void *arg)
{
	struct readings *readings = arg;
	struct json *taken[READINGS_WAITING];
	pthread_mutex_lock(&readings->lock);
	size_t count = readings->count;
	memcpy(taken, readings->waiting, count * sizeof(taken[0]));
	readings->count = 0;
	readings->posted = false;
	pthread_mutex_unlock(&readings->lock);
	for (size_t i = 0; i < count; i++)
		readings->params.report(readings->params.arg, taken[i]);
}

// On the sampler's thread.
static void reported(void *context, struct json *telemetry)
{
	struct readings *readings = context;
	struct json *oldest = NULL;
	pthread_mutex_lock(&readings->lock);
	if (readings->count == READINGS_WAITING) {
		oldest = readings->waiting[0];
		memmove(readings->waiting, readings->waiting + 1,
			(READINGS_WAITING - 1) * sizeof(readings->waiting[0]));
		readings->count--;
	}
	readings->waiting[readings->count++] = telemetry;
	if (!readings->posted)
		readings->posted = !net_loop_post(readings->params.loop, deliver, readings);
	pthread_mutex_unlock(&readings->lock);
	json_destroy(&oldest);
}

enum status readings_create(struct readings **out, const struct readings_params *params, struct error *error)
{
	struct readings *readings = calloc(1, sizeof(*readings));
	*out = readings;
	if (!readings)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for telemetry");
	readings->params = *params;
	pthread_mutex_init(&readings->lock, NULL);
	struct telemetry_params telemetry = {.sysfs_root = "/sys",
					     .proc_root = "/proc",
					     .report = reported,
					     .context = readings,
					     .node_id = params->node_id};
	enum status status = telemetry_create(&readings->telemetry, &telemetry, error);
	if (status)
		readings_destroy(out);
	return status;
}

void readings_destroy(struct readings **readings)
{
	if (!*readings)
		return;
	telemetry_destroy(&(*readings)->telemetry); // no report comes afterwards
	for (size_t i = 0; i < (*readings)->count; i++)
		json_destroy(&(*readings)->waiting[i]);
	pthread_mutex_destroy(&(*readings)->lock);
	free((*readings)->targets);
	free(*readings);
	*readings = NULL;
}

static void describe(const struct device_record *record, struct telemetry_target *target)
{
	memset(target, 0, sizeof(*target)); // compared byte by byte
	text_copy(target->device_id, sizeof(target->device_id), record->device_id);
	target->source = TELEMETRY_NONE;
	for (int kind = BACKEND_UNKNOWN + 1; kind < BACKEND_COUNT; kind++) {
		const struct device_info *info = &record->apis[kind].info;
		if (!record->apis[kind].listed)
			continue;
		if (!target->uuid[0] && info->kind != DEVICE_CPU)
			text_copy(target->uuid, sizeof(target->uuid), info->uuid);
		if (!target->pci_address[0])
			text_copy(target->pci_address, sizeof(target->pci_address), info->pci_address);
		if (kind == BACKEND_CPU)
			target->source = TELEMETRY_CPU;
		else if (!strcmp(info->vendor, "NVIDIA"))
			target->source = TELEMETRY_NVIDIA;
		else if (target->source == TELEMETRY_NONE && info->pci_address[0])
			target->source = TELEMETRY_SYSFS;
	}
}

void readings_set_devices(struct readings *readings, const struct device_table *table)
{
	struct telemetry_target *targets = calloc(table->count + 1, sizeof(*targets));
	size_t count = 0;
	if (!targets)
		return;
	for (size_t i = 0; i < table->count; i++)
		if (device_record_present(table->records[i]))
			describe(table->records[i], &targets[count++]);
	bool same = readings->targets && count == readings->target_count &&
		    !memcmp(targets, readings->targets, count * sizeof(*targets));
	if (!same) {
		enum status status = telemetry_set_targets(readings->telemetry, targets, count);
		if (status)
			log_warning("node", "telemetry cannot read these devices: %s", status_text(status));
		free(readings->targets);
		readings->targets = targets;
		readings->target_count = count;
	} else {
		free(targets);
	}
}

void readings_set_watched(struct readings *readings, bool watched)
{
	telemetry_set_watched(readings->telemetry, watched);
}
