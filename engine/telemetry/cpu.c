/* Readings of the CPU, from where Linux keeps them:
 *
 *   temperature   hwmon coretemp ("Package id N"), k10temp and zenpower ("Tdie", else "Tctl"; k10temp's only sensor
 *                 where it has no labels); else the thermal zones that are named after a CPU. Of several packages the
 *                 hottest, with its own slowdown point. While there is none, and once one is gone, they are looked for
 *                 again, since a driver may be loaded late or anew
 *   power         RAPL energy of all packages over time (root only on most kernels since 2020, else absent)
 *   limit         RAPL's long-term limit, all packages
 *   clock         cpufreq, the mean of up to 8 policies spread over the machine
 *   throttling    the packages' count of thermal throttle events, whether it grew since the last sample
 *
 * Sensors are found by name and label, never by number. Thread: the sampler's; owns its open files. */
#include "engine/telemetry/cpu.h"

#include "engine/telemetry/sensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEATS = 8, PACKAGES = 8, POLICIES = 8, POLICIES_SEEN = 4096, TRIPS = 16 };
static const int64_t look_again_ns = 30000000000; // for a sensor of temperature

struct heat {
	struct sensor temperature;
	double slowdown; // °C, or 0
};

struct package {
	struct sensor energy;
	uint64_t energy_wrap; // µJ
	struct rate energy_rate;
	int64_t last_energy; // µJ
	double joules;       // since the first reading, over the end of the counter
	bool energy_known;
	double limit; // W, or 0
};

struct throttled {
	int id; // of its package
	struct sensor count;
	int64_t last;
	bool last_known;
};

struct cpu_reader {
	char root[SENSOR_PATH_BYTES / 4];
	struct heat heats[HEATS];
	int heat_count;
	int64_t looked_ns; // for them; 0: when it was created
	struct package powers[PACKAGES];
	struct throttled throttled[PACKAGES];
	int power_count, throttled_count;
	struct sensor policies[POLICIES];
	int policy_count;
	int policies_seen[POLICIES_SEEN], policies_found;
};

static void add_heat(struct cpu_reader *cpu, const char *path, double slowdown)
{
	if (cpu->heat_count == HEATS)
		return;
	struct heat *heat = &cpu->heats[cpu->heat_count];
	if (!sensor_open(&heat->temperature, "%s", path))
		return;
	heat->slowdown = slowdown > 0 && slowdown <= 200 ? slowdown : 0;
	cpu->heat_count++;
}

// hwmonN: take it if it is a CPU's.
static bool visit_hwmon(void *context, const char *name)
{
	static const struct {
		const char *driver, *label;
		bool prefix;
	} known[] = {{"coretemp", "Package id", true}, {"coretemp", "Physical id", true}, {"k10temp", "Tdie", false},
		     {"k10temp", "Tctl", false},       {"k10temp", NULL, false},          {"zenpower", "Tdie", false},
		     {"zenpower", "Tctl", false}};
	struct cpu_reader *cpu = context;
	char folder[SENSOR_PATH_BYTES / 2], driver[64], path[SENSOR_PATH_BYTES];
	snprintf(folder, sizeof folder, "%s/class/hwmon/%s", cpu->root, name);
	if (!sensor_once_text(driver, sizeof driver, "%s/name", folder))
		return true;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		if (strcmp(driver, known[i].driver) != 0)
			continue;
		int number = known[i].label ? sensor_labelled(folder, "temp", known[i].label, known[i].prefix) : 1;
		if (!number || (!known[i].label && sensor_exists("%s/temp1_label", folder)))
			continue;
		int64_t limit = 0;
		if (!sensor_once_integer(&limit, "%s/temp%d_crit", folder, number))
			limit = 0;
		snprintf(path, sizeof path, "%s/temp%d_input", folder, number);
		add_heat(cpu, path, (double)limit / 1000);
		break; // the first label of the list that is there: Tctl may carry an offset, Tdie does not
	}
	return true;
}

// The temperature at which the kernel slows the CPU down: the zone's passive trip point, else its hot one.
static double zone_slowdown(const char *folder)
{
	double passive = 0, hot = 0;
	char type[32];
	for (int trip = 0; trip < TRIPS; trip++) {
		int64_t limit;
		if (!sensor_once_text(type, sizeof type, "%s/trip_point_%d_type", folder, trip))
			break;
		if (!sensor_once_integer(&limit, "%s/trip_point_%d_temp", folder, trip) || limit < 20000)
			continue; // a trip point that is not set reads as 0 or below
		if (strcmp(type, "passive") == 0 && (passive == 0 || (double)limit / 1000 < passive))
			passive = (double)limit / 1000;
		else if (strcmp(type, "hot") == 0 && hot == 0)
			hot = (double)limit / 1000;
	}
	return passive > 0 ? passive : hot;
}

static bool visit_zone(void *context, const char *name)
{
	struct cpu_reader *cpu = context;
	char folder[SENSOR_PATH_BYTES / 2], type[64], path[SENSOR_PATH_BYTES];
	snprintf(folder, sizeof folder, "%s/class/thermal/%s", cpu->root, name);
	if (!sensor_once_text(type, sizeof type, "%s/type", folder))
		return true;
	// "x86_pkg_temp", "cpu-thermal", "cpu_thermal", "cpu0-thermal", "cpuss0-thermal"
	bool ours = strcmp(type, "x86_pkg_temp") == 0 || (strncmp(type, "cpu", 3) == 0 && strstr(type, "thermal"));
	if (!ours)
		return true;
	snprintf(path, sizeof path, "%s/temp", folder);
	// The trip points of x86_pkg_temp only tell a program that asked for it, and slow nothing down.
	add_heat(cpu, path, strcmp(type, "x86_pkg_temp") ? zone_slowdown(folder) : 0);
	return true;
}

// intel-rapl:N is a package or "psys"; intel-rapl:N:M is a part of one. AMD's driver uses the same names.
static bool visit_rapl(void *context, const char *name)
{
	struct cpu_reader *cpu = context;
	char folder[SENSOR_PATH_BYTES / 2], text[64];
	int64_t number;
	snprintf(folder, sizeof folder, "%s/class/powercap/%s", cpu->root, name);
	if (cpu->power_count == PACKAGES || !sensor_once_text(text, sizeof text, "%s/name", folder) ||
	    strncmp(text, "package", 7) != 0)
		return true;
	struct package *package = &cpu->powers[cpu->power_count++];
	sensor_open(&package->energy, "%s/energy_uj", folder);
	if (sensor_once_integer(&number, "%s/max_energy_range_uj", folder) && number > 0)
		package->energy_wrap = (uint64_t)number;
	if (sensor_once_text(text, sizeof text, "%s/constraint_0_name", folder) && strcmp(text, "long_term") == 0 &&
	    sensor_once_integer(&number, "%s/constraint_0_power_limit_uw", folder) && number > 0)
		package->limit = (double)number / 1e6;
	return true;
}

// Open the count of each package, through the first of its processors.
static bool visit_processor(void *context, const char *name)
{
	struct cpu_reader *cpu = context;
	int64_t package = 0;
	if (name[3] < '0' || name[3] > '9')
		return true;
	if (!sensor_once_integer(&package, "%s/devices/system/cpu/%s/topology/physical_package_id", cpu->root, name))
		package = 0;
	for (int i = 0; i < cpu->throttled_count; i++)
		if (cpu->throttled[i].id == (int)package)
			return true;
	if (cpu->throttled_count == PACKAGES)
		return false;
	struct throttled *one = &cpu->throttled[cpu->throttled_count];
	// If one processor lacks the file, all do: this is a virtual machine, or not an Intel CPU.
	if (!sensor_open(&one->count, "%s/devices/system/cpu/%s/thermal_throttle/package_throttle_count", cpu->root,
			 name))
		return false;
	one->id = (int)package;
	cpu->throttled_count++;
	return true;
}

static bool visit_policy(void *context, const char *name)
{
	struct cpu_reader *cpu = context;
	int64_t number;
	if (sensor_parse(name + strlen("policy"), &number) && number >= 0 && number < INT32_MAX)
		cpu->policies_seen[cpu->policies_found++] = (int)number;
	return cpu->policies_found < POLICIES_SEEN;
}

static int compare(const void *a, const void *b)
{
	int left = *(const int *)a, right = *(const int *)b;
	return (left > right) - (left < right);
}

// Reading a clock takes up to 10 ms on some kernels, so a machine of 128 processors is asked at 8 places.
static void open_policies(struct cpu_reader *cpu)
{
	char folder[SENSOR_PATH_BYTES];
	snprintf(folder, sizeof folder, "%s/devices/system/cpu/cpufreq", cpu->root);
	if (!sensor_list(folder, "policy", visit_policy, cpu))
		return;
	qsort(cpu->policies_seen, (size_t)cpu->policies_found, sizeof(int), compare);
	int wanted = cpu->policies_found < POLICIES ? cpu->policies_found : POLICIES;
	for (int i = 0; i < wanted; i++) {
		int number = cpu->policies_seen[i * cpu->policies_found / wanted];
		if (sensor_open(&cpu->policies[cpu->policy_count], "%s/policy%d/scaling_cur_freq", folder, number))
			cpu->policy_count++;
	}
}

static void find_heats(struct cpu_reader *cpu)
{
	char folder[SENSOR_PATH_BYTES];
	for (int i = 0; i < cpu->heat_count; i++)
		sensor_finish(&cpu->heats[i].temperature);
	cpu->heat_count = 0;
	snprintf(folder, sizeof folder, "%s/class/hwmon", cpu->root);
	sensor_list(folder, "hwmon", visit_hwmon, cpu);
	snprintf(folder, sizeof folder, "%s/class/thermal", cpu->root);
	if (cpu->heat_count == 0)
		sensor_list(folder, "thermal_zone", visit_zone, cpu);
}

enum status cpu_reader_create(struct cpu_reader **out, const char *sysfs_root, struct error *error)
{
	char folder[SENSOR_PATH_BYTES];
	struct cpu_reader *cpu = calloc(1, sizeof *cpu);
	if (!cpu)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to read the CPU's sensors");
	for (int i = 0; i < HEATS; i++)
		sensor_init(&cpu->heats[i].temperature);
	for (int i = 0; i < PACKAGES; i++) {
		sensor_init(&cpu->powers[i].energy);
		sensor_init(&cpu->throttled[i].count);
	}
	for (int i = 0; i < POLICIES; i++)
		sensor_init(&cpu->policies[i]);
	snprintf(cpu->root, sizeof cpu->root, "%s", sysfs_root);
	find_heats(cpu);
	snprintf(folder, sizeof folder, "%s/class/powercap", sysfs_root);
	sensor_list(folder, "intel-rapl:", visit_rapl, cpu);
	snprintf(folder, sizeof folder, "%s/devices/system/cpu", sysfs_root);
	sensor_list(folder, "cpu", visit_processor, cpu);
	open_policies(cpu);
	*out = cpu;
	return STATUS_OK;
}

void cpu_reader_destroy(struct cpu_reader **cpu)
{
	if (!*cpu)
		return;
	for (int i = 0; i < HEATS; i++)
		sensor_finish(&(*cpu)->heats[i].temperature);
	for (int i = 0; i < PACKAGES; i++) {
		sensor_finish(&(*cpu)->powers[i].energy);
		sensor_finish(&(*cpu)->throttled[i].count);
	}
	for (int i = 0; i < POLICIES; i++)
		sensor_finish(&(*cpu)->policies[i]);
	free(*cpu);
	*cpu = NULL;
}

// Whether a sensor of temperature is missing, and it is time to look for it.
static bool heats_are_due(struct cpu_reader *cpu, int64_t now_ns)
{
	bool missing = cpu->heat_count == 0;
	for (int i = 0; i < cpu->heat_count; i++)
		missing = missing || cpu->heats[i].temperature.gone;
	if (!cpu->looked_ns)
		cpu->looked_ns = now_ns;
	if (!missing || now_ns - cpu->looked_ns < look_again_ns)
		return false;
	cpu->looked_ns = now_ns;
	return true;
}

static void read_temperature(struct cpu_reader *cpu, struct telemetry_sample *sample)
{
	double hottest = 0, slowdown = 0;
	bool known = false;
	for (int i = 0; i < cpu->heat_count; i++) {
		double celsius;
		if (!sensor_number(&cpu->heats[i].temperature, 0.001, &celsius) || celsius < -40 || celsius > 200)
			continue;
		if (known && celsius <= hottest)
			continue;
		known = true;
		hottest = celsius;
		slowdown = cpu->heats[i].slowdown;
	}
	if (known)
		sample_set(sample, READING_TEMPERATURE_CELSIUS, hottest);
	if (known && slowdown > 0)
		sample_set(sample, READING_SLOWDOWN_CELSIUS, slowdown);
	else
		sample_unset(sample, READING_SLOWDOWN_CELSIUS);
}

static void add_energy(struct package *package, int64_t energy)
{
	int64_t more = energy - package->last_energy;
	if (more < 0) // it began again at its end
		more = package->energy_wrap ? more + (int64_t)package->energy_wrap : 0;
	if (package->energy_known && more > 0)
		package->joules += (double)more * 1e-6;
	package->energy_known = true;
	package->last_energy = energy;
}

// Power is known only if all packages report it: part of the sum would be wrong.
static void read_power(struct cpu_reader *cpu, int64_t now_ns, struct telemetry_sample *sample)
{
	double watts = 0, limit = 0, joules = 0;
	bool known = cpu->power_count > 0, limited = cpu->power_count > 0, counted = cpu->power_count > 0;
	for (int i = 0; i < cpu->power_count; i++) {
		struct package *package = &cpu->powers[i];
		int64_t energy;
		double microwatts = 0;
		const bool read = sensor_integer(&package->energy, &energy) && energy >= 0;
		if (!read ||
		    !rate_per_s(&package->energy_rate, (uint64_t)energy, package->energy_wrap, now_ns, &microwatts))
			known = false;
		if (read)
			add_energy(package, energy);
		counted = counted && read;
		joules += package->joules;
		watts += microwatts / 1e6;
		limited = limited && package->limit > 0;
		limit += package->limit;
	}
	sample->counter_known = counted;
	sample->counter_joules = joules;
	if (known)
		sample_set(sample, READING_POWER_WATTS, watts);
	if (limited)
		sample_set(sample, READING_POWER_LIMIT_WATTS, limit);
}

static void read_clock(struct cpu_reader *cpu, struct telemetry_sample *sample)
{
	double sum = 0;
	int counted = 0;
	for (int i = 0; i < cpu->policy_count; i++) {
		double mhz;
		if (!sensor_number(&cpu->policies[i], 0.001, &mhz) || mhz <= 0)
			continue; // a processor that was taken offline
		sum += mhz;
		counted++;
	}
	if (counted)
		sample_set(sample, READING_CLOCK_MHZ, sum / counted);
}

static void read_throttling(struct cpu_reader *cpu, struct telemetry_sample *sample)
{
	bool known = cpu->throttled_count > 0, grown = false;
	for (int i = 0; i < cpu->throttled_count; i++) {
		struct throttled *package = &cpu->throttled[i];
		int64_t count;
		if (!sensor_integer(&package->count, &count)) {
			package->last_known = false;
			known = false;
			continue;
		}
		known = known && package->last_known;
		grown = grown || (package->last_known && count > package->last);
		package->last = count;
		package->last_known = true;
	}
	sample->throttle_count = known ? 0 : -1;
	if (known && grown)
		sample_throttle(sample, "thermal");
}

void cpu_reader_read(struct cpu_reader *cpu, enum pace_round round, const struct host_sample *host, int64_t now_ns,
		     struct telemetry_sample *sample)
{
	sample_begin(sample, round);
	if (round == PACE_FULL && heats_are_due(cpu, now_ns))
		find_heats(cpu);
	read_temperature(cpu, sample);
	read_power(cpu, now_ns, sample);
	if (round != PACE_FULL)
		return;
	sample->process_count = -1;
	if (host->cpu_known)
		sample_set(sample, READING_UTILIZATION_PERCENT, host->cpu_percent);
	if (host->memory_total >= 0)
		sample_set(sample, READING_MEMORY_TOTAL_BYTES, (double)host->memory_total);
	if (host->memory_total >= 0 && host->memory_available >= 0)
		sample_set(sample, READING_MEMORY_USED_BYTES, (double)(host->memory_total - host->memory_available));
	read_clock(cpu, sample);
	read_throttling(cpu, sample);
}
