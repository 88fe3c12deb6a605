/* The sampler: one thread that keeps the pace, reads the CPU, the node and the sysfs GPUs itself, asks the threads of
 * the NVIDIA GPUs, and reports each round as one message. See telemetry.h and pace.h.
 *
 * A round's NVIDIA readings are waited for 100 ms at most; later ones are reported when they come. Between two full
 * rounds of a device, a report of its temperature and power carries its other readings as they were, at most a second
 * old. A device that is gone is not reported.
 *
 * Locks: telemetry.mutex guards what other threads set; it is never held while a reading or a callback runs. A GPU's
 * thread takes it inside its own lock, so nothing of a GPU that locks is called under it. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "engine/telemetry/cpu.h"
#include "engine/telemetry/energy.h"
#include "engine/telemetry/node.h"
#include "engine/telemetry/nvml.h"
#include "engine/telemetry/sensor.h"
#include "engine/telemetry/sysfs.h"
#include "engine/telemetry/telemetry.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GATHER_MS = 100 };

struct entry { // a device; the sampler thread's own
	struct telemetry_target target;
	struct pace pace;
	struct cpu_reader *cpu; // the one of its source, or none
	struct sysfs_gpu *sysfs;
	struct nvml_gpu *nvml;
	bool asked; // its GPU's thread is to answer
	bool late;  // it did not within a round; it is not waited for until it does
	bool fresh; // the sample is to be reported
	struct telemetry_sample sample;
	struct telemetry_energy energy; // of all samples so far
};

struct telemetry {
	char sysfs_root[SENSOR_PATH_BYTES / 4], proc_root[SENSOR_PATH_BYTES / 4], node_id[65];
	void (*report)(void *context, struct json *telemetry);
	void *context;
	pthread_t thread;

	pthread_mutex_t mutex; // guards the next block
	pthread_cond_t changed;
	bool stop, watched, woken;
	struct telemetry_target *targets; // new ones, not yet taken over; targets_set says whether there are
	size_t target_count;
	bool targets_set;

	// The sampler thread's own.
	struct entry *entries;
	size_t entry_count;
	struct pace node_pace;
	struct host_reader *host;
	struct node_reader *node;
};

// Something came for the sampler thread. Called on the threads of GPUs.
static void wake(void *context)
{
	struct telemetry *telemetry = context;
	pthread_mutex_lock(&telemetry->mutex);
	telemetry->woken = true;
	pthread_cond_signal(&telemetry->changed);
	pthread_mutex_unlock(&telemetry->mutex);
}

static struct timespec steady_time(int64_t ms)
{
	return (struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000L};
}

static bool same_target(const struct telemetry_target *a, const struct telemetry_target *b)
{
	return a->source == b->source && strcmp(a->device_id, b->device_id) == 0 && strcmp(a->uuid, b->uuid) == 0 &&
	       strcmp(a->pci_address, b->pci_address) == 0;
}

static void entry_open(struct telemetry *telemetry, struct entry *entry)
{
	struct error error = {0};
	enum status status = STATUS_OK;
	switch (entry->target.source) {
	case TELEMETRY_CPU:
		status = cpu_reader_create(&entry->cpu, telemetry->sysfs_root, &error);
		break;
	case TELEMETRY_NVIDIA:
		status = nvml_gpu_create(&entry->nvml,
					 &(struct nvml_gpu_params){.target = &entry->target,
								   .proc_root = telemetry->proc_root,
								   .wake = wake,
								   .context = telemetry},
					 &error);
		break;
	case TELEMETRY_SYSFS:
		status = sysfs_gpu_create(&entry->sysfs, telemetry->sysfs_root, entry->target.pci_address, &error);
		break;
	case TELEMETRY_NONE:
		break;
	}
	if (status != STATUS_OK)
		log_warning("telemetry", "device %s has no readings: %s", entry->target.device_id, error.message);
	sample_clear(&entry->sample);
}

static void entry_close(struct entry *entry)
{
	cpu_reader_destroy(&entry->cpu);
	sysfs_gpu_destroy(&entry->sysfs);
	nvml_gpu_destroy(&entry->nvml);
}

static void close_entries(struct entry *entries, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (entries[i].nvml)
			nvml_gpu_stop(entries[i].nvml);
	for (size_t i = 0; i < count; i++)
		entry_close(&entries[i]);
	free(entries);
}

// Take over new targets. A device that stays keeps its open files and its thread. A new one is read at once, and all
// others with it: so they stay in step, and processor time has one interval for the node and its CPU device.
static void take_targets(struct telemetry *telemetry, struct telemetry_target *targets, size_t count)
{
	struct entry *entries = calloc(count ? count : 1, sizeof *entries);
	bool added = false;
	if (!entries) {
		log_error("telemetry", "no memory for %zu devices; the ones before stay", count);
		goto out;
	}
	for (size_t i = 0; i < count; i++) {
		size_t old = 0;
		while (old < telemetry->entry_count && !same_target(&telemetry->entries[old].target, &targets[i]))
			old++;
		if (old < telemetry->entry_count) {
			entries[i] = telemetry->entries[old];
			telemetry->entries[old] = telemetry->entries[--telemetry->entry_count];
			continue;
		}
		entries[i].target = targets[i];
		entry_open(telemetry, &entries[i]);
		added = true;
	}
	for (size_t i = 0; i < count && added; i++)
		entries[i].pace = (struct pace){.working = entries[i].pace.working};
	if (added)
		telemetry->node_pace = (struct pace){0};
	close_entries(telemetry->entries, telemetry->entry_count);
	telemetry->entries = entries;
	telemetry->entry_count = count;
out:
	free(targets);
}

// Read one device, or ask its thread to.
static void read_entry(struct entry *entry, enum pace_round round, const struct host_sample *host)
{
	struct telemetry_sample *sample = &entry->sample;
	if (entry->nvml) {
		nvml_gpu_request(entry->nvml, round);
		entry->asked = true;
		return;
	}
	entry->fresh = true;
	if (entry->cpu)
		cpu_reader_read(entry->cpu, round, host, clock_steady_ns(), sample);
	else if (entry->sysfs)
		entry->fresh = sysfs_gpu_read(entry->sysfs, round, clock_steady_ns(), sample);
	if (!entry->fresh)
		sample_clear(sample);
	sample->at_ms = clock_wall_ms();
	entry->pace.working = entry->fresh && sample_works(sample);
}

// Whether a GPU that was asked has not answered. Takes no GPU's lock.
static bool awaited(const struct telemetry *telemetry)
{
	for (size_t i = 0; i < telemetry->entry_count; i++) {
		const struct entry *entry = &telemetry->entries[i];
		if (entry->nvml && !entry->late && nvml_gpu_busy(entry->nvml))
			return true;
	}
	return false;
}

static void await_gpus(struct telemetry *telemetry, int64_t until_ms)
{
	struct timespec until = steady_time(until_ms);
	int number = 0;
	pthread_mutex_lock(&telemetry->mutex);
	while (!telemetry->stop && number == 0 && awaited(telemetry))
		number = pthread_cond_timedwait(&telemetry->changed, &telemetry->mutex, &until);
	telemetry->woken = false;
	pthread_mutex_unlock(&telemetry->mutex);
}

static void take_gpus(struct telemetry *telemetry)
{
	for (size_t i = 0; i < telemetry->entry_count; i++) {
		struct entry *entry = &telemetry->entries[i];
		if (!entry->nvml)
			continue;
		bool busy = nvml_gpu_busy(entry->nvml); // asked first: an answer that comes in between is fresh
		entry->fresh = nvml_gpu_take(entry->nvml, &entry->sample);
		entry->late = busy && !entry->fresh;
		if (entry->fresh)
			entry->pace.working = sample_works(&entry->sample);
		else if (entry->asked && !entry->late)
			entry->pace.working = false; // it answered that the card is gone
		entry->asked = entry->late;
	}
}

static void send_report(struct telemetry *telemetry, struct json *node)
{
	struct json *devices = json_new_array();
	for (size_t i = 0; i < telemetry->entry_count; i++) {
		struct entry *entry = &telemetry->entries[i];
		if (entry->fresh) {
			struct json *device = sample_json(&entry->sample, entry->target.device_id);
			energy_add(&entry->energy, &entry->sample, clock_steady_ns());
			energy_json(&entry->energy, device);
			json_push(devices, device);
		}
		entry->fresh = false;
	}
	if (!node && json_count(devices) == 0) {
		json_destroy(&devices);
		return;
	}
	struct json *report = json_new_object();
	json_set(report, "node", node ? node : json_new_null());
	json_set(report, "devices", devices);
	if (report)
		telemetry->report(telemetry->context, report);
}

static void run_round(struct telemetry *telemetry, bool watched)
{
	struct host_sample host = {0};
	struct json *node = NULL;
	bool working = false, asked = false, host_read_now = false;
	int64_t now = clock_steady_ms();
	for (size_t i = 0; i < telemetry->entry_count; i++)
		working = working || telemetry->entries[i].pace.working;
	telemetry->node_pace.working = working;
	// The GPUs first: their threads read while this one does.
	for (size_t pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < telemetry->entry_count; i++) {
			struct entry *entry = &telemetry->entries[i];
			if ((entry->nvml != NULL) != (pass == 0))
				continue;
			enum pace_round round = pace_take(&entry->pace, watched, now);
			if (round == PACE_NOTHING)
				continue;
			if (entry->cpu && round == PACE_FULL && !host_read_now) {
				host_reader_read(telemetry->host, &host);
				host_read_now = true;
			}
			asked = asked || entry->nvml;
			read_entry(entry, round, &host);
		}
	}
	if (pace_take(&telemetry->node_pace, watched, now) == PACE_FULL) {
		if (!host_read_now)
			host_reader_read(telemetry->host, &host);
		node = node_reader_read(telemetry->node, &host, telemetry->node_id, clock_steady_ns(), clock_wall_ms());
	}
	if (asked)
		await_gpus(telemetry, now + GATHER_MS);
	take_gpus(telemetry);
	send_report(telemetry, node);
}

static int64_t next_round(const struct telemetry *telemetry, bool watched)
{
	int64_t next = pace_next(&telemetry->node_pace, watched);
	for (size_t i = 0; i < telemetry->entry_count; i++) {
		int64_t due = pace_next(&telemetry->entries[i].pace, watched);
		next = due < next ? due : next;
	}
	return next;
}

static void *sampler_thread(void *argument)
{
	struct telemetry *telemetry = argument;
	pthread_mutex_lock(&telemetry->mutex);
	for (;;) {
		int number = 0;
		while (!telemetry->stop && !telemetry->targets_set && !telemetry->woken && number == 0) {
			// Within the loop: who watches may have changed.
			struct timespec until = steady_time(next_round(telemetry, telemetry->watched));
			number = pthread_cond_timedwait(&telemetry->changed, &telemetry->mutex, &until);
		}
		if (telemetry->stop)
			break;
		bool watched = telemetry->watched, take = telemetry->targets_set;
		struct telemetry_target *targets = telemetry->targets;
		size_t count = telemetry->target_count;
		telemetry->targets = NULL;
		telemetry->targets_set = telemetry->woken = false;
		pthread_mutex_unlock(&telemetry->mutex);
		if (take)
			take_targets(telemetry, targets, count);
		run_round(telemetry, watched);
		pthread_mutex_lock(&telemetry->mutex);
	}
	pthread_mutex_unlock(&telemetry->mutex);
	close_entries(telemetry->entries, telemetry->entry_count);
	telemetry->entries = NULL;
	return NULL;
}

static void telemetry_free(struct telemetry *telemetry)
{
	node_reader_destroy(&telemetry->node);
	host_reader_destroy(&telemetry->host);
	pthread_mutex_destroy(&telemetry->mutex);
	pthread_cond_destroy(&telemetry->changed);
	free(telemetry->targets);
	free(telemetry);
}

enum status telemetry_create(struct telemetry **out, const struct telemetry_params *params, struct error *error)
{
	pthread_condattr_t attributes;
	enum status status;
	if (strlen(params->sysfs_root) >= SENSOR_PATH_BYTES / 4 || strlen(params->proc_root) >= SENSOR_PATH_BYTES / 4)
		return error_set(error, STATUS_INVALID_PARAMS, "the path of sysfs or /proc is too long");
	struct telemetry *telemetry = calloc(1, sizeof *telemetry);
	if (!telemetry)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for telemetry");
	snprintf(telemetry->sysfs_root, sizeof telemetry->sysfs_root, "%s", params->sysfs_root);
	snprintf(telemetry->proc_root, sizeof telemetry->proc_root, "%s", params->proc_root);
	snprintf(telemetry->node_id, sizeof telemetry->node_id, "%s", params->node_id);
	telemetry->report = params->report;
	telemetry->context = params->context;
	pthread_mutex_init(&telemetry->mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&telemetry->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	status = host_reader_create(&telemetry->host, telemetry->proc_root, telemetry->sysfs_root, error);
	if (status != STATUS_OK)
		goto fail;
	status = node_reader_create(&telemetry->node, telemetry->proc_root, telemetry->sysfs_root, error);
	if (status != STATUS_OK)
		goto fail;
	int number = pthread_create(&telemetry->thread, NULL, sampler_thread, telemetry);
	if (number) {
		status = error_errno(error, STATUS_UNAVAILABLE, number, "no thread for telemetry");
		goto fail;
	}
	*out = telemetry;
	return STATUS_OK;
fail:
	telemetry_free(telemetry);
	return status;
}

void telemetry_destroy(struct telemetry **out)
{
	struct telemetry *telemetry = *out;
	if (!telemetry)
		return;
	*out = NULL;
	pthread_mutex_lock(&telemetry->mutex);
	telemetry->stop = true;
	pthread_cond_signal(&telemetry->changed);
	pthread_mutex_unlock(&telemetry->mutex);
	pthread_join(telemetry->thread, NULL);
	telemetry_free(telemetry);
}

enum status telemetry_set_targets(struct telemetry *telemetry, const struct telemetry_target *targets, size_t count)
{
	if (count > LIMIT_DEVICES_PER_NODE)
		return STATUS_LIMIT_EXCEEDED;
	struct telemetry_target *copy = calloc(count ? count : 1, sizeof *copy);
	if (!copy)
		return STATUS_OUT_OF_MEMORY;
	for (size_t i = 0; i < count; i++)
		copy[i] = targets[i];
	pthread_mutex_lock(&telemetry->mutex);
	free(telemetry->targets);
	telemetry->targets = copy;
	telemetry->target_count = count;
	telemetry->targets_set = true;
	pthread_cond_signal(&telemetry->changed);
	pthread_mutex_unlock(&telemetry->mutex);
	return STATUS_OK;
}

void telemetry_set_watched(struct telemetry *telemetry, bool watched)
{
	pthread_mutex_lock(&telemetry->mutex);
	telemetry->watched = watched;
	pthread_cond_signal(&telemetry->changed);
	pthread_mutex_unlock(&telemetry->mutex);
}
