/* AMD (amdgpu) and Intel (i915, xe) GPUs under /sys/bus/pci/devices/ADDRESS;
 * see sysfs.h. A driver is recognised by its files, and hwmon's sensors by
 * their labels, because numbers differ between cards and kernels. The files
 * stay open and are looked for again when one reports that its device has gone,
 * and when a card returns. A sleeping card is not read, because reading would
 * wake it. Not read on purpose: amdgpu's pcie_bw (each read blocks for a
 * second) and use by process (needs a scan of all of /proc). Owns its open
 * files. */
#include "engine/telemetry/sysfs.h"

#include "engine/telemetry/sensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REASONS = 8, FOLDER_BYTES = SENSOR_PATH_BYTES / 4, LOOK_AGAIN_S = 30 };

enum file {
	FILE_SLEEP,        // "suspended" while it is powered down
	FILE_BUSY,         // percent
	FILE_MEMORY_USED,  // bytes
	FILE_MEMORY_TOTAL, // bytes
	FILE_POWER,        // µW
	FILE_ENERGY,       // µJ, grows
	FILE_POWER_LIMIT,  // µW
	FILE_TEMPERATURE,  // m°C
	FILE_MEMORY_TEMPERATURE,
	FILE_CLOCK, // clock_scale
	FILE_MEMORY_CLOCK,
	FILE_FAN,       // fan_scale
	FILE_ECC,       // "ue: N" and "ce: N"
	FILE_IDLE,      // ms in its deepest sleep state, grows
	FILE_THROTTLED, // 1 while any of the reasons holds
	FILE_COUNT
};

struct reason {
	struct sensor file; // 0 or 1
	const char *word;
};

struct sysfs_gpu {
	char folder[FOLDER_BYTES], hwmon[FOLDER_BYTES + 64], card[FOLDER_BYTES + 64];
	bool hwmon_known;
	bool looked; // its files were looked for, at looked_ns
	int64_t looked_ns;
	struct sensor files[FILE_COUNT];
	double slowdown, memory_slowdown;       // °C, or 0
	double clock_scale, memory_clock_scale; // to MHz
	double fan_scale;                       // to percent
	struct rate energy_rate, idle_rate;
	struct reason reasons[REASONS];
	int reason_count;
};

static void close_files(struct sysfs_gpu *gpu)
{
	for (int i = 0; i < FILE_COUNT; i++)
		sensor_finish(&gpu->files[i]);
	for (int i = 0; i < REASONS; i++)
		sensor_finish(&gpu->reasons[i].file);
	gpu->reason_count = 0;
	gpu->slowdown = gpu->memory_slowdown = 0;
	gpu->energy_rate = gpu->idle_rate = (struct rate){0};
	gpu->hwmon_known = gpu->looked = false;
	gpu->hwmon[0] = gpu->card[0] = 0;
}

enum status sysfs_gpu_create(struct sysfs_gpu **out, const char *sysfs_root, const char *pci_address,
			     struct error *error)
{
	struct sysfs_gpu *gpu = calloc(1, sizeof *gpu);
	if (!gpu)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to read the GPU at %s", pci_address);
	for (int i = 0; i < FILE_COUNT; i++)
		sensor_init(&gpu->files[i]);
	for (int i = 0; i < REASONS; i++)
		sensor_init(&gpu->reasons[i].file);
	snprintf(gpu->folder, sizeof gpu->folder, "%s/bus/pci/devices/%s", sysfs_root, pci_address);
	*out = gpu;
	return STATUS_OK;
}

void sysfs_gpu_destroy(struct sysfs_gpu **gpu)
{
	if (!*gpu)
		return;
	close_files(*gpu);
	free(*gpu);
	*gpu = NULL;
}

// A card has one hwmon folder named after its driver; Intel adds one for each tile ("i915_gt0"), which is a part of it.
static bool visit_hwmon(void *context, const char *name)
{
	struct sysfs_gpu *gpu = context;
	char driver[64];
	if (!sensor_once_text(driver, sizeof driver, "%s/hwmon/%s/name", gpu->folder, name) || strstr(driver, "_gt"))
		return true;
	snprintf(gpu->hwmon, sizeof gpu->hwmon, "%s/hwmon/%.32s", gpu->folder, name);
	gpu->hwmon_known = true;
	return false;
}

static bool visit_card(void *context, const char *name)
{
	struct sysfs_gpu *gpu = context;
	snprintf(gpu->card, sizeof gpu->card, "%s/drm/%.32s", gpu->folder, name);
	return false;
}

// The number of the first of the labels that the card has; 1 if its sensors of this kind have no labels; else 0.
static int sensor_number_of(const struct sysfs_gpu *gpu, const char *kind, const char *const *labels)
{
	for (; *labels; labels++) {
		int number = sensor_labelled(gpu->hwmon, kind, *labels, false);
		if (number)
			return number;
	}
	return sensor_exists("%s/%s1_label", gpu->hwmon, kind) ? 0 : 1;
}

static void look_for_heat(struct sysfs_gpu *gpu)
{
	// The hot spot comes first: it is what these cards slow down by, and its limit belongs to it.
	static const char *const core[] = {"junction", "edge", "pkg", NULL};
	static const char *const memory[] = {"mem", "vram"};
	int64_t limit;
	int number = sensor_number_of(gpu, "temp", core);
	if (number) {
		sensor_open(&gpu->files[FILE_TEMPERATURE], "%s/temp%d_input", gpu->hwmon, number);
		if (sensor_once_integer(&limit, "%s/temp%d_crit", gpu->hwmon, number))
			gpu->slowdown = (double)limit / 1000;
	}
	for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) {
		number = sensor_labelled(gpu->hwmon, "temp", memory[i], false);
		if (!number ||
		    !sensor_open(&gpu->files[FILE_MEMORY_TEMPERATURE], "%s/temp%d_input", gpu->hwmon, number))
			continue;
		if (sensor_once_integer(&limit, "%s/temp%d_crit", gpu->hwmon, number))
			gpu->memory_slowdown = (double)limit / 1000;
		break;
	}
}

static void look_for_power(struct sysfs_gpu *gpu)
{
	static const char *const energy[] = {"card", "pkg", NULL};
	if (!sensor_open(&gpu->files[FILE_POWER], "%s/power1_average", gpu->hwmon))
		sensor_open(&gpu->files[FILE_POWER], "%s/power1_input", gpu->hwmon);
	int number = sensor_number_of(gpu, "energy", energy);
	if (number)
		sensor_open(&gpu->files[FILE_ENERGY], "%s/energy%d_input", gpu->hwmon, number);
	if (!sensor_open(&gpu->files[FILE_POWER_LIMIT], "%s/power1_cap", gpu->hwmon) && number)
		sensor_open(&gpu->files[FILE_POWER_LIMIT], "%s/power%d_max", gpu->hwmon, number);
}

static void look_for_fan(struct sysfs_gpu *gpu)
{
	int64_t most;
	if (sensor_open(&gpu->files[FILE_FAN], "%s/pwm1", gpu->hwmon)) {
		bool told = sensor_once_integer(&most, "%s/pwm1_max", gpu->hwmon) && most > 0;
		gpu->fan_scale = 100.0 / (told ? (double)most : 255.0);
	} else if (sensor_once_integer(&most, "%s/fan1_max", gpu->hwmon) && most > 0) {
		sensor_open(&gpu->files[FILE_FAN], "%s/fan1_input", gpu->hwmon);
		gpu->fan_scale = 100.0 / (double)most;
	}
}

static void look_for_clocks(struct sysfs_gpu *gpu)
{
	struct sensor *clock = &gpu->files[FILE_CLOCK];
	int core = gpu->hwmon_known ? sensor_labelled(gpu->hwmon, "freq", "sclk", false) : 0;
	int memory = gpu->hwmon_known ? sensor_labelled(gpu->hwmon, "freq", "mclk", false) : 0;
	gpu->clock_scale = gpu->memory_clock_scale = 1e-6; // hwmon has Hz
	if (memory)
		sensor_open(&gpu->files[FILE_MEMORY_CLOCK], "%s/freq%d_input", gpu->hwmon, memory);
	if (core && sensor_open(clock, "%s/freq%d_input", gpu->hwmon, core))
		return;
	gpu->clock_scale = 1; // Intel's files have MHz: i915, i915 before Linux 5.18, xe
	if (gpu->card[0] && (sensor_open(clock, "%s/gt/gt0/rps_act_freq_mhz", gpu->card) ||
			     sensor_open(clock, "%s/gt_act_freq_mhz", gpu->card)))
		return;
	sensor_open(clock, "%s/tile0/gt0/freq0/act_freq", gpu->folder);
}

static void look_for_idle(struct sysfs_gpu *gpu)
{
	struct sensor *idle = &gpu->files[FILE_IDLE];
	if (gpu->card[0] && (sensor_open(idle, "%s/gt/gt0/rc6_residency_ms", gpu->card) ||
			     sensor_open(idle, "%s/power/rc6_residency_ms", gpu->card)))
		return;
	sensor_open(idle, "%s/tile0/gt0/gtidle/idle_residency_ms", gpu->folder);
}

static void look_for_reasons(struct sysfs_gpu *gpu)
{
	static const struct {
		const char *name, *word;
	} known[] = {{"pl1", "power_cap"},   {"pl2", "power_cap"}, {"pl4", "power_cap"},         {"thermal", "thermal"},
		     {"prochot", "thermal"}, {"ratl", "thermal"},  {"vr_thermalert", "thermal"}, {"vr_tdc", "current"}};
	char prefix[SENSOR_PATH_BYTES];
	_Static_assert(sizeof known / sizeof *known <= REASONS, "each reason has its file");
	snprintf(prefix, sizeof prefix, "%s/gt/gt0/throttle_reason_", gpu->card);
	if (!gpu->card[0] || !sensor_open(&gpu->files[FILE_THROTTLED], "%sstatus", prefix)) {
		snprintf(prefix, sizeof prefix, "%s/tile0/gt0/freq0/throttle/reason_", gpu->folder);
		if (!sensor_open(&gpu->files[FILE_THROTTLED], "%s/tile0/gt0/freq0/throttle/status", gpu->folder))
			return;
	}
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		struct reason *reason = &gpu->reasons[gpu->reason_count];
		if (!sensor_open(&reason->file, "%s%s", prefix, known[i].name))
			continue;
		reason->word = known[i].word;
		gpu->reason_count++;
	}
}

static void look(struct sysfs_gpu *gpu, int64_t now_ns)
{
	char folder[SENSOR_PATH_BYTES];
	close_files(gpu);
	gpu->looked = true;
	gpu->looked_ns = now_ns;
	snprintf(folder, sizeof folder, "%s/hwmon", gpu->folder);
	sensor_list(folder, "hwmon", visit_hwmon, gpu);
	snprintf(folder, sizeof folder, "%s/drm", gpu->folder);
	sensor_list(folder, "card", visit_card, gpu);
	sensor_open(&gpu->files[FILE_SLEEP], "%s/power/runtime_status", gpu->folder);
	sensor_open(&gpu->files[FILE_BUSY], "%s/gpu_busy_percent", gpu->folder);
	sensor_open(&gpu->files[FILE_MEMORY_USED], "%s/mem_info_vram_used", gpu->folder);
	// Intel's xe tells it for each tile; of a card of several tiles one is not the total.
	if (!sensor_open(&gpu->files[FILE_MEMORY_TOTAL], "%s/mem_info_vram_total", gpu->folder) &&
	    !sensor_exists("%s/tile1", gpu->folder))
		sensor_open(&gpu->files[FILE_MEMORY_TOTAL], "%s/tile0/physical_vram_size_bytes", gpu->folder);
	sensor_open(&gpu->files[FILE_ECC], "%s/ras/umc_err_count", gpu->folder);
	if (gpu->hwmon_known) {
		look_for_heat(gpu);
		look_for_power(gpu);
		look_for_fan(gpu);
	}
	look_for_clocks(gpu);
	look_for_idle(gpu);
	look_for_reasons(gpu);
}

// True if the files have to be looked for again: one says that its device went, or there were none.
static bool stale(const struct sysfs_gpu *gpu, int64_t now_ns)
{
	bool any = false;
	if (!gpu->looked)
		return true;
	for (int i = 0; i < FILE_COUNT; i++) {
		if (gpu->files[i].gone)
			return true;
		any = any || (i != FILE_SLEEP && sensor_is_open(&gpu->files[i]));
	}
	return !any && now_ns - gpu->looked_ns >= LOOK_AGAIN_S * INT64_C(1000000000);
}

static void take(struct sysfs_gpu *gpu, enum file file, double scale, enum telemetry_reading reading,
		 struct telemetry_sample *sample)
{
	double value;
	if (sensor_number(&gpu->files[file], scale, &value))
		sample_set(sample, reading, value);
}

static void read_fast(struct sysfs_gpu *gpu, int64_t now_ns, struct telemetry_sample *sample)
{
	int64_t energy;
	double microwatts;
	take(gpu, FILE_TEMPERATURE, 0.001, READING_TEMPERATURE_CELSIUS, sample);
	take(gpu, FILE_MEMORY_TEMPERATURE, 0.001, READING_MEMORY_TEMPERATURE_CELSIUS, sample);
	take(gpu, FILE_POWER, 1e-6, READING_POWER_WATTS, sample);
	if (!sensor_integer(&gpu->files[FILE_ENERGY], &energy) || energy < 0)
		return;
	sample->counter_known = true;
	sample->counter_joules = (double)energy * 1e-6;
	if (!sample_has(sample, READING_POWER_WATTS) &&
	    rate_per_s(&gpu->energy_rate, (uint64_t)energy, 0, now_ns, &microwatts))
		sample_set(sample, READING_POWER_WATTS, microwatts * 1e-6);
}

static void read_use(struct sysfs_gpu *gpu, int64_t now_ns, struct telemetry_sample *sample)
{
	int64_t idle_ms;
	double idle_per_s;
	take(gpu, FILE_BUSY, 1, READING_UTILIZATION_PERCENT, sample);
	if (sample_has(sample, READING_UTILIZATION_PERCENT))
		return;
	// Awake is not all busy, but it is what these drivers tell without privileges. The counter is of 32 bits.
	if (sensor_integer(&gpu->files[FILE_IDLE], &idle_ms) && idle_ms >= 0 &&
	    rate_per_s(&gpu->idle_rate, (uint64_t)idle_ms, UINT64_C(1) << 32, now_ns, &idle_per_s)) {
		double awake = 100 - idle_per_s / 10;
		sample_set(sample, READING_UTILIZATION_PERCENT, awake < 0 && awake > -5 ? 0 : awake); // ms are coarse
	}
}

static void read_throttling(struct sysfs_gpu *gpu, struct telemetry_sample *sample)
{
	int64_t active;
	if (!sensor_integer(&gpu->files[FILE_THROTTLED], &active))
		return;
	sample->throttle_count = 0;
	if (!active)
		return;
	for (int i = 0; i < gpu->reason_count; i++)
		if (sensor_integer(&gpu->reasons[i].file, &active) && active)
			sample_throttle(sample, gpu->reasons[i].word);
	if (sample->throttle_count == 0)
		sample_throttle(sample, "other");
}

static void read_ecc(struct sysfs_gpu *gpu, struct telemetry_sample *sample)
{
	char text[SENSOR_TEXT_BYTES];
	long long errors;
	if (sensor_read(&gpu->files[FILE_ECC], text, sizeof text) > 0 && sscanf(text, "ue: %lld", &errors) == 1)
		sample_set(sample, READING_ECC_ERRORS, (double)errors);
}

bool sysfs_gpu_read(struct sysfs_gpu *gpu, enum pace_round round, int64_t now_ns, struct telemetry_sample *sample)
{
	char state[32];
	if (!sensor_exists("%s/vendor", gpu->folder)) {
		close_files(gpu);
		return false;
	}
	if (round == PACE_FULL && stale(gpu, now_ns))
		look(gpu, now_ns);
	sample_begin(sample, round);
	bool asleep = sensor_text(&gpu->files[FILE_SLEEP], state, sizeof state) && strcmp(state, "suspended") == 0;
	if (!asleep)
		read_fast(gpu, now_ns, sample);
	if (round != PACE_FULL)
		return true;
	take(gpu, FILE_MEMORY_TOTAL, 1, READING_MEMORY_TOTAL_BYTES, sample);
	if (gpu->slowdown > 0)
		sample_set(sample, READING_SLOWDOWN_CELSIUS, gpu->slowdown);
	if (gpu->memory_slowdown > 0)
		sample_set(sample, READING_MEMORY_SLOWDOWN_CELSIUS, gpu->memory_slowdown);
	if (asleep)
		return true;
	read_use(gpu, now_ns, sample);
	take(gpu, FILE_MEMORY_USED, 1, READING_MEMORY_USED_BYTES, sample);
	take(gpu, FILE_POWER_LIMIT, 1e-6, READING_POWER_LIMIT_WATTS, sample);
	take(gpu, FILE_CLOCK, gpu->clock_scale, READING_CLOCK_MHZ, sample);
	take(gpu, FILE_MEMORY_CLOCK, gpu->memory_clock_scale, READING_MEMORY_CLOCK_MHZ, sample);
	take(gpu, FILE_FAN, gpu->fan_scale, READING_FAN_PERCENT, sample);
	read_throttling(gpu, sample);
	read_ecc(gpu, sample);
	return true;
}
