/* The thread of one NVIDIA GPU: see nvml.h.
 *
 * It waits to be asked, reads, hands over and wakes the sampler. Which card it is, is looked up by UUID, else by PCI
 * address, and again every 5 s while the card is not there. Without the library a sample with nothing in it is handed
 * over: the device is there, its readings are not. A card that NVML calls lost has no samples until it is found again.
 *
 * PCIe traffic comes from two byte counters. They have 32 bits and a fast link wraps them in 70 ms, so they are read
 * twice within one round, 20 ms apart, rather than once a second. A driver without them is asked by the call that
 * measures for 20 ms itself. */
#include "engine/telemetry/nvml.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "engine/telemetry/nvml_library.h"
#include "engine/telemetry/sensor.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FIND_AGAIN_MS = 5000, PROCESSES_MS = 2000, PCIE_WINDOW_MS = 20, LEAVE_MS = 500, PROCESSES_READ = 512 };

static const double slowdown_least = 20, slowdown_most = 200; // °C, of any card
static const double slowdown_step = 0.25;                     // of a reading

struct nvml_gpu {
	struct telemetry_target target;
	char proc_root[SENSOR_PATH_BYTES / 4];
	void (*wake)(void *context);
	void *context;
	pthread_t thread;
	atomic_bool busy;

	pthread_mutex_t mutex; // guards the next five
	pthread_cond_t changed;
	enum pace_round wanted;
	bool stop, ended, abandoned, fresh;
	struct telemetry_sample handed;

	// The thread's own.
	const struct nvml_calls *nvml; // NULL: not loaded
	struct nvml_device *device;    // NULL: not found
	bool tried, lost, complained;
	int64_t tried_ms, processes_ms; // when the card, and its processes, were last looked for; steady clock
	double threshold, slowdown;     // °C, or 0: as the card tells it; where it slows down
	double memory_slowdown;         // the same of its memory
	struct telemetry_sample sample;
	struct nvml_process processes[PROCESSES_READ];
};

void nvml_throttle_words(unsigned long long mask, struct telemetry_sample *sample)
{
	static const struct {
		unsigned long long bit;
		const char *word; // NULL: no reason to tell
	} known[] = {{0x1, NULL},
		     {0x2, "application_clocks"},
		     {0x4, "power_cap"},
		     {0x8, "hardware_slowdown"},
		     {0x10, "sync_boost"},
		     {0x20, "thermal"},
		     {0x40, "hardware_thermal"},
		     {0x80, "power_brake"},
		     {0x100, "display_clock"}};
	sample->throttle_count = 0;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		if (mask & known[i].bit && known[i].word)
			sample_throttle(sample, known[i].word);
		mask &= ~known[i].bit;
	}
	if (mask)
		sample_throttle(sample, "other");
}

bool nvml_counter_rate(uint64_t before, uint64_t after, int64_t elapsed_ns, double *per_s)
{
	// PCIe 6 with 16 lanes carries 128 GB/s each way, and moves 4 GiB in 33 ms: up to there it wraps once at most.
	static const double fastest = 130e9;
	if (elapsed_ns < 1000000 || elapsed_ns > 33000000)
		return false;
	uint64_t grown = after - before;
	if (after < before) {
		if (before > UINT32_MAX)
			return false;
		grown = (UINT64_C(1) << 32) - before + after;
	}
	*per_s = (double)grown * 1e9 / (double)elapsed_ns;
	return *per_s <= fastest;
}

// Whether a call answered; notes a card that is lost.
static bool told(struct nvml_gpu *gpu, int code)
{
	if (code == NVML_GPU_IS_LOST)
		gpu->lost = true;
	return code == NVML_SUCCESS;
}

static void close_card(struct nvml_gpu *gpu)
{
	if (gpu->nvml)
		nvml_library_release();
	gpu->nvml = NULL;
	gpu->device = NULL;
}

static void find_card(struct nvml_gpu *gpu)
{
	struct error error = {0};
	char uuid[64];
	unsigned celsius;
	int64_t now = clock_steady_ms();
	if (gpu->tried && now - gpu->tried_ms < FIND_AGAIN_MS)
		return;
	gpu->tried = true;
	gpu->tried_ms = now;
	gpu->lost = false;
	if (!gpu->nvml && nvml_library_acquire(&gpu->nvml, &error) != STATUS_OK) {
		if (!gpu->complained)
			log_warning("telemetry", "%s: %s", error.message, error.hint);
		gpu->complained = true;
		gpu->nvml = NULL;
		return;
	}
	snprintf(uuid, sizeof uuid, "GPU-%s", gpu->target.uuid);
	if ((!gpu->target.uuid[0] || gpu->nvml->by_uuid(uuid, &gpu->device) != NVML_SUCCESS) &&
	    (!gpu->target.pci_address[0] || gpu->nvml->by_pci(gpu->target.pci_address, &gpu->device) != NVML_SUCCESS)) {
		// The library lists the cards when it starts: one that comes back is only seen by a new start.
		close_card(gpu);
		gpu->lost = true;
		return;
	}
	gpu->threshold = gpu->slowdown = gpu->memory_slowdown = 0;
	if (gpu->nvml->threshold && told(gpu, gpu->nvml->threshold(gpu->device, NVML_THRESHOLD_SLOWDOWN, &celsius)))
		gpu->threshold = celsius;
	if (gpu->nvml->threshold && told(gpu, gpu->nvml->threshold(gpu->device, NVML_THRESHOLD_MEMORY_MAX, &celsius)))
		gpu->memory_slowdown = celsius;
}

// A field's value as a count; false for a type that cannot be one.
static bool field_count(const struct nvml_field *field, uint64_t *count)
{
	switch ((enum nvml_type)field->type) {
	case NVML_TYPE_UINT:
		*count = field->value.u32;
		return true;
	case NVML_TYPE_ULONG:
		*count = field->value.ulong;
		return true;
	case NVML_TYPE_UINT64:
		*count = field->value.u64;
		return true;
	case NVML_TYPE_INT64:
		*count = (uint64_t)field->value.i64;
		return field->value.i64 >= 0;
	case NVML_TYPE_INT:
		*count = (uint64_t)field->value.i32;
		return field->value.i32 >= 0;
	case NVML_TYPE_USHORT:
		*count = field->value.u16;
		return true;
	case NVML_TYPE_DOUBLE:
		return false;
	}
	return false;
}

static void read_fast(struct nvml_gpu *gpu)
{
	const struct nvml_calls *nvml = gpu->nvml;
	struct nvml_field memory = {.field = NVML_FIELD_MEMORY_TEMPERATURE};
	unsigned value;
	unsigned long long millijoules;
	uint64_t celsius;
	if (nvml->temperature && told(gpu, nvml->temperature(gpu->device, NVML_TEMPERATURE_GPU, &value)))
		sample_set(&gpu->sample, READING_TEMPERATURE_CELSIUS, value);
	// A card without a sensor there answers 0 rather than a code.
	if (nvml->fields && told(gpu, nvml->fields(gpu->device, 1, &memory)) && told(gpu, memory.code) &&
	    field_count(&memory, &celsius) && celsius > 0)
		sample_set(&gpu->sample, READING_MEMORY_TEMPERATURE_CELSIUS, (double)celsius);
	if (nvml->power && told(gpu, nvml->power(gpu->device, &value)))
		sample_set(&gpu->sample, READING_POWER_WATTS, value / 1000.0);
	if (nvml->energy && told(gpu, nvml->energy(gpu->device, &millijoules))) {
		gpu->sample.counter_known = true;
		gpu->sample.counter_joules = (double)millijoules / 1000;
	}
}

static void read_memory(struct nvml_gpu *gpu)
{
	const struct nvml_calls *nvml = gpu->nvml;
	struct nvml_memory_v2 newer = {.version = NVML_MEMORY_V2};
	struct nvml_memory older;
	if (nvml->memory_v2 && told(gpu, nvml->memory_v2(gpu->device, &newer))) {
		sample_set(&gpu->sample, READING_MEMORY_USED_BYTES, (double)newer.used);
		sample_set(&gpu->sample, READING_MEMORY_TOTAL_BYTES, (double)newer.total);
	} else if (nvml->memory && told(gpu, nvml->memory(gpu->device, &older))) {
		sample_set(&gpu->sample, READING_MEMORY_USED_BYTES, (double)older.used);
		sample_set(&gpu->sample, READING_MEMORY_TOTAL_BYTES, (double)older.total);
	}
}

double nvml_slowdown(double threshold, double celsius, bool margin_known, int margin, double before)
{
	const double by_margin = celsius + margin;
	if (!margin_known || by_margin < slowdown_least || by_margin > slowdown_most)
		return threshold;
	const double found = threshold > 0 && threshold < by_margin ? threshold : by_margin;
	if (before <= 0)
		return found;
	const double change = found - before;
	return fabs(change) < 2 ? before : before + fmin(fmax(change, -slowdown_step), slowdown_step);
}

static void read_slowdown(struct nvml_gpu *gpu)
{
	const struct nvml_calls *nvml = gpu->nvml;
	struct nvml_margin margin = {.version = NVML_MARGIN};
	unsigned celsius = 0;
	const bool known = nvml->margin && nvml->temperature &&
			   told(gpu, nvml->temperature(gpu->device, NVML_TEMPERATURE_GPU, &celsius)) &&
			   told(gpu, nvml->margin(gpu->device, &margin));
	gpu->slowdown = nvml_slowdown(gpu->threshold, celsius, known, margin.celsius, gpu->slowdown);
	if (gpu->slowdown > 0)
		sample_set(&gpu->sample, READING_SLOWDOWN_CELSIUS, gpu->slowdown);
	if (gpu->memory_slowdown > 0)
		sample_set(&gpu->sample, READING_MEMORY_SLOWDOWN_CELSIUS, gpu->memory_slowdown);
}

static void read_rest(struct nvml_gpu *gpu)
{
	const struct nvml_calls *nvml = gpu->nvml;
	struct telemetry_sample *sample = &gpu->sample;
	struct nvml_utilization use;
	unsigned value;
	unsigned long long wide;
	read_slowdown(gpu);
	if (nvml->utilization && told(gpu, nvml->utilization(gpu->device, &use)))
		sample_set(sample, READING_UTILIZATION_PERCENT, use.gpu);
	if (nvml->power_limit && told(gpu, nvml->power_limit(gpu->device, &value)))
		sample_set(sample, READING_POWER_LIMIT_WATTS, value / 1000.0);
	if (nvml->clock && told(gpu, nvml->clock(gpu->device, NVML_CLOCK_SM, &value)))
		sample_set(sample, READING_CLOCK_MHZ, value);
	if (nvml->clock && told(gpu, nvml->clock(gpu->device, NVML_CLOCK_MEMORY, &value)))
		sample_set(sample, READING_MEMORY_CLOCK_MHZ, value);
	if (nvml->throttle && told(gpu, nvml->throttle(gpu->device, &wide)))
		nvml_throttle_words(wide, sample);
	if (nvml->fan && told(gpu, nvml->fan(gpu->device, &value)))
		sample_set(sample, READING_FAN_PERCENT, value);
	// The aggregate holds the volatile count as well, so they are not added.
	if (nvml->ecc && (told(gpu, nvml->ecc(gpu->device, NVML_ECC_UNCORRECTED, NVML_ECC_AGGREGATE, &wide)) ||
			  told(gpu, nvml->ecc(gpu->device, NVML_ECC_UNCORRECTED, NVML_ECC_VOLATILE, &wide))))
		sample_set(sample, READING_ECC_ERRORS, (double)wide);
}

struct traffic {
	bool known;
	uint64_t tx, rx;
	int64_t at_ns;
};

static void read_counters(struct nvml_gpu *gpu, struct traffic *traffic)
{
	struct nvml_field fields[2] = {{.field = NVML_FIELD_PCIE_TX_BYTES}, {.field = NVML_FIELD_PCIE_RX_BYTES}};
	*traffic = (struct traffic){0};
	if (!gpu->nvml->fields || !told(gpu, gpu->nvml->fields(gpu->device, 2, fields)))
		return;
	traffic->at_ns = clock_steady_ns();
	traffic->known = told(gpu, fields[0].code) && told(gpu, fields[1].code) &&
			 field_count(&fields[0], &traffic->tx) && field_count(&fields[1], &traffic->rx);
}

static void read_pcie(struct nvml_gpu *gpu, const struct traffic *before)
{
	const struct nvml_calls *nvml = gpu->nvml;
	struct telemetry_sample *sample = &gpu->sample;
	struct traffic after;
	unsigned kilobytes;
	double per_s;
	if (before->known) {
		int64_t left = PCIE_WINDOW_MS * INT64_C(1000000) - (clock_steady_ns() - before->at_ns);
		struct timespec pause = {.tv_nsec = left > 0 ? (long)left : 0};
		nanosleep(&pause, NULL);
		read_counters(gpu, &after);
		int64_t elapsed = after.at_ns - before->at_ns;
		if (after.known && nvml_counter_rate(before->tx, after.tx, elapsed, &per_s))
			sample_set(sample, READING_PCIE_TX_BYTES_PER_S, per_s);
		if (after.known && nvml_counter_rate(before->rx, after.rx, elapsed, &per_s))
			sample_set(sample, READING_PCIE_RX_BYTES_PER_S, per_s);
		return;
	}
	if (nvml->pcie && told(gpu, nvml->pcie(gpu->device, NVML_PCIE_TX, &kilobytes)))
		sample_set(sample, READING_PCIE_TX_BYTES_PER_S, kilobytes * 1000.0);
	if (nvml->pcie && told(gpu, nvml->pcie(gpu->device, NVML_PCIE_RX, &kilobytes)))
		sample_set(sample, READING_PCIE_RX_BYTES_PER_S, kilobytes * 1000.0);
}

// The name of the process: from the previous list, else from /proc.
static void name_process(const struct nvml_gpu *gpu, const struct telemetry_sample *before,
			 struct telemetry_process *process)
{
	for (int i = 0; i < before->process_count; i++) {
		if (before->processes[i].pid == process->pid && before->processes[i].name[0]) {
			memcpy(process->name, before->processes[i].name, sizeof process->name);
			return;
		}
	}
	if (!sensor_once_text(process->name, sizeof process->name, "%s/%lld/comm", gpu->proc_root,
			      (long long)process->pid))
		process->name[0] = 0;
}

// A process that computes and draws is in both lists. Past the maximum the smallest give way.
static void add_process(struct telemetry_sample *sample, const struct nvml_process *one)
{
	struct telemetry_process process = {.pid = one->pid, .memory_bytes = -1};
	if (one->used_memory <= (unsigned long long)INT64_MAX)
		process.memory_bytes = (int64_t)one->used_memory;
	int smallest = 0;
	for (int i = 0; i < sample->process_count; i++) {
		if (sample->processes[i].pid == process.pid) {
			if (sample->processes[i].memory_bytes < process.memory_bytes)
				sample->processes[i].memory_bytes = process.memory_bytes;
			return;
		}
		if (sample->processes[i].memory_bytes < sample->processes[smallest].memory_bytes)
			smallest = i;
	}
	if (sample->process_count < TELEMETRY_PROCESSES)
		sample->processes[sample->process_count++] = process;
	else if (sample->processes[smallest].memory_bytes < process.memory_bytes)
		sample->processes[smallest] = process;
}

static void read_processes(struct nvml_gpu *gpu)
{
	struct telemetry_sample before = gpu->sample;
	struct telemetry_sample *sample = &gpu->sample;
	int (*const calls[])(struct nvml_device *, unsigned *, struct nvml_process *) = {gpu->nvml->compute_processes,
											 gpu->nvml->graphics_processes};
	int64_t now = clock_steady_ms();
	if (before.process_count >= 0 && now - gpu->processes_ms < PROCESSES_MS - 50)
		return;
	gpu->processes_ms = now;
	sample->process_count = -1;
	sample->computes = false;
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		unsigned count = PROCESSES_READ;
		int code = calls[i] ? calls[i](gpu->device, &count, gpu->processes) : NVML_NOT_SUPPORTED;
		if (!told(gpu, code))
			continue;
		if (sample->process_count < 0)
			sample->process_count = 0;
		for (unsigned j = 0; j < count && j < PROCESSES_READ; j++)
			add_process(sample, &gpu->processes[j]);
		sample->computes = sample->computes || (i == 0 && count > 0);
	}
	for (int i = 0; i < sample->process_count; i++)
		name_process(gpu, &before, &sample->processes[i]);
}

// Read into gpu->sample; false while the card is not there.
static bool read_card(struct nvml_gpu *gpu, enum pace_round round)
{
	struct traffic before;
	if (!gpu->device) {
		find_card(gpu);
		round = PACE_FULL; // a card that was just found has no other readings to go with its temperature
	}
	if (!gpu->device) {
		sample_clear(&gpu->sample);
		gpu->sample.at_ms = clock_wall_ms();
		return !gpu->lost;
	}
	sample_begin(&gpu->sample, round);
	if (round == PACE_FULL) {
		read_counters(gpu, &before);
		read_rest(gpu);
		read_memory(gpu);
		read_processes(gpu);
	}
	read_fast(gpu);
	if (round == PACE_FULL)
		read_pcie(gpu, &before);
	gpu->sample.at_ms = clock_wall_ms();
	if (gpu->lost)
		close_card(gpu);
	return !gpu->lost;
}

static void gpu_free(struct nvml_gpu *gpu)
{
	pthread_mutex_destroy(&gpu->mutex);
	pthread_cond_destroy(&gpu->changed);
	free(gpu);
}

static void *gpu_thread(void *argument)
{
	struct nvml_gpu *gpu = argument;
	pthread_mutex_lock(&gpu->mutex);
	for (;;) {
		while (!gpu->stop && gpu->wanted == PACE_NOTHING)
			pthread_cond_wait(&gpu->changed, &gpu->mutex);
		if (gpu->stop)
			break;
		enum pace_round round = gpu->wanted;
		gpu->wanted = PACE_NOTHING;
		pthread_mutex_unlock(&gpu->mutex);
		bool there = read_card(gpu, round);
		pthread_mutex_lock(&gpu->mutex);
		gpu->fresh = there;
		if (there)
			gpu->handed = gpu->sample;
		if (gpu->wanted == PACE_NOTHING)
			atomic_store(&gpu->busy, false);
		if (!gpu->abandoned)
			gpu->wake(gpu->context);
	}
	pthread_mutex_unlock(&gpu->mutex);
	close_card(gpu);
	pthread_mutex_lock(&gpu->mutex);
	gpu->ended = true;
	bool abandoned = gpu->abandoned;
	pthread_cond_broadcast(&gpu->changed);
	pthread_mutex_unlock(&gpu->mutex);
	if (abandoned)
		gpu_free(gpu);
	return NULL;
}

enum status nvml_gpu_create(struct nvml_gpu **out, const struct nvml_gpu_params *params, struct error *error)
{
	pthread_condattr_t attributes;
	struct nvml_gpu *gpu = calloc(1, sizeof *gpu);
	if (!gpu)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to read a GPU");
	gpu->target = *params->target;
	snprintf(gpu->proc_root, sizeof gpu->proc_root, "%s", params->proc_root);
	gpu->wake = params->wake;
	gpu->context = params->context;
	sample_clear(&gpu->sample);
	atomic_init(&gpu->busy, false);
	pthread_mutex_init(&gpu->mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&gpu->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	int number = pthread_create(&gpu->thread, NULL, gpu_thread, gpu);
	if (number) {
		gpu_free(gpu);
		return error_errno(error, STATUS_UNAVAILABLE, number, "no thread to read a GPU");
	}
	*out = gpu;
	return STATUS_OK;
}

void nvml_gpu_stop(struct nvml_gpu *gpu)
{
	pthread_mutex_lock(&gpu->mutex);
	gpu->stop = true;
	pthread_cond_broadcast(&gpu->changed);
	pthread_mutex_unlock(&gpu->mutex);
}

void nvml_gpu_destroy(struct nvml_gpu **out)
{
	struct nvml_gpu *gpu = *out;
	struct timespec until;
	int number = 0;
	if (!gpu)
		return;
	*out = NULL;
	nvml_gpu_stop(gpu);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += LEAVE_MS * 1000000L;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	pthread_mutex_lock(&gpu->mutex);
	while (!gpu->ended && number == 0)
		number = pthread_cond_timedwait(&gpu->changed, &gpu->mutex, &until);
	bool ended = gpu->ended;
	gpu->abandoned = !ended;
	// Detached before the lock is given back: from then on the thread may free itself.
	if (!ended)
		pthread_detach(gpu->thread);
	pthread_mutex_unlock(&gpu->mutex);
	if (!ended) {
		log_warning("telemetry", "the NVIDIA driver does not answer; a thread is left waiting for it");
		return;
	}
	pthread_join(gpu->thread, NULL);
	gpu_free(gpu);
}

void nvml_gpu_request(struct nvml_gpu *gpu, enum pace_round round)
{
	pthread_mutex_lock(&gpu->mutex);
	if (gpu->wanted < round)
		gpu->wanted = round;
	atomic_store(&gpu->busy, true);
	pthread_cond_broadcast(&gpu->changed);
	pthread_mutex_unlock(&gpu->mutex);
}

bool nvml_gpu_busy(const struct nvml_gpu *gpu)
{
	return atomic_load(&gpu->busy);
}

bool nvml_gpu_take(struct nvml_gpu *gpu, struct telemetry_sample *sample)
{
	pthread_mutex_lock(&gpu->mutex);
	bool fresh = gpu->fresh;
	gpu->fresh = false;
	if (fresh)
		*sample = gpu->handed;
	pthread_mutex_unlock(&gpu->mutex);
	return fresh;
}
