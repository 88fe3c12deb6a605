/* Readings of this machine and its devices. A sampler reads NVML for NVIDIA, sysfs and
 * hwmon for AMD and Intel, and /proc, hwmon, thermal zones and RAPL for the CPU. A missing
 * reading has its valid bit off; it is never 0. NVML runs on one thread for each GPU,
 * because one of its calls blocks for 20 ms; everything else is read on the sampler's
 * thread, so nothing blocks the node's loop. A callback on the sampler's thread receives
 * the readings. docs/telemetry.md lists each reading's source, unit, pace, and when it is
 * missing. */
#pragma once
#include "common/json/json.h"

#include <stdint.h>

enum telemetry_reading { // of a device, in the order of DeviceTelemetry in schema/api.json
	READING_UTILIZATION_PERCENT,
	READING_MEMORY_USED_BYTES,
	READING_MEMORY_TOTAL_BYTES,
	READING_POWER_WATTS,
	READING_POWER_LIMIT_WATTS,
	READING_TEMPERATURE_CELSIUS,
	READING_MEMORY_TEMPERATURE_CELSIUS,
	READING_SLOWDOWN_CELSIUS,
	READING_MEMORY_SLOWDOWN_CELSIUS,
	READING_ECC_ERRORS,
	READING_CLOCK_MHZ,
	READING_MEMORY_CLOCK_MHZ,
	READING_FAN_PERCENT,
	READING_PCIE_RX_BYTES_PER_S,
	READING_PCIE_TX_BYTES_PER_S,
	READING_COUNT
};

enum { TELEMETRY_PROCESSES = 64, TELEMETRY_THROTTLES = 16 };

struct telemetry_process {
	int64_t pid, memory_bytes; // memory_bytes -1: not reported
	char name[64];             // "": not known
};

struct telemetry_sample {
	int64_t at_ms;
	double values[READING_COUNT];
	uint32_t valid;                             // bit per reading
	const char *throttles[TELEMETRY_THROTTLES]; // static words: power_cap, thermal, hardware_slowdown, …
	int throttle_count;                         // -1: not reported
	struct telemetry_process processes[TELEMETRY_PROCESSES];
	int process_count;     // -1: not reported
	bool computes;         // one of the processes computes, rather than draws
	double counter_joules; // the hardware's count of what it has drawn, from any beginning
	bool counter_known;
};

// How a device is found again by each source; empty strings where it does not apply.
struct telemetry_target {
	char device_id[65];
	// SYSFS: AMD and Intel by pci_address; NVIDIA by uuid, else pci_address; NONE: software devices and the like.
	enum { TELEMETRY_CPU, TELEMETRY_NVIDIA, TELEMETRY_SYSFS, TELEMETRY_NONE } source;
	char uuid[48];        // lower-case, with dashes, no prefix
	char pci_address[16]; // 0000:00:06.0
};

struct telemetry_params {
	const char *sysfs_root, *proc_root; // "/sys", "/proc"; a test gives a recorded tree
	// A round's readings, as the parameters of schema/node.json's node.telemetry: {"node": … or null, "devices":
	// […]}. Taken by the callee. Called on the sampler's thread; telemetry_destroy waits for it to return.
	void (*report)(void *context, struct json *telemetry);
	void *context;
	const char *node_id;
};

struct telemetry;

// Starts the sampler's thread; params are copied. The node's first readings are reported at once.
// Errors: STATUS_OUT_OF_MEMORY, STATUS_UNAVAILABLE (no thread), STATUS_INVALID_PARAMS (a root of over 127 bytes).
enum status telemetry_create(struct telemetry **out, const struct telemetry_params *params, struct error *error);
// Joins its threads; no report comes afterwards. A driver that hangs is waited for half a second.
void telemetry_destroy(struct telemetry **telemetry);
// The devices to read from now on (copied). Those that were there before go on; new ones are read at once. Any thread.
// Errors: STATUS_LIMIT_EXCEEDED (over LIMIT_DEVICES_PER_NODE), STATUS_OUT_OF_MEMORY.
enum status telemetry_set_targets(struct telemetry *telemetry, const struct telemetry_target *targets, size_t count);
// Whether somebody watches: sets the pace (T1: temperature and power every 0.5 s while a device works; other readings
// every 1 s while it works or somebody watches, every 5 s idle and unwatched). Any thread.
void telemetry_set_watched(struct telemetry *telemetry, bool watched);
