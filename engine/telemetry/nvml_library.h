/* NVML, NVIDIA's management library: our own declarations of the calls that are used, loaded at run time.
 *
 * One table lists the calls, which of them are required, and the symbols by which they may be found (the newest first;
 * drivers keep old ones). A missing optional call is NULL, and what it would read is absent. Names, layouts and numbers
 * follow NVIDIA's published nvml.h. The library is opened once for the process and stays; it is initialised for the
 * first user that acquires it, and shut down after the last. Thread: any. */
#pragma once
#include "common/base/status.h"

#include <stdint.h>

struct nvml_device; // a handle of the library's

// Results of the calls. 2, 3 and 6 mean that this card does not have the reading (seen on an H200: the fan returns 2 or
// 3, process use returns 6 while nothing ran).
enum nvml_code {
	NVML_SUCCESS = 0,
	NVML_INVALID_ARGUMENT = 2,
	NVML_NOT_SUPPORTED = 3,
	NVML_NOT_FOUND = 6,
	NVML_INSUFFICIENT_SIZE = 7,
	NVML_GPU_IS_LOST = 15
};

enum { // arguments
	NVML_TEMPERATURE_GPU = 0,
	NVML_THRESHOLD_SLOWDOWN = 1,
	NVML_THRESHOLD_MEMORY_MAX =
		2, // °C of the memory. Field 195 is an offset of the core's, which says nothing of it
	NVML_CLOCK_SM = 1,
	NVML_CLOCK_MEMORY = 2,
	NVML_ECC_UNCORRECTED = 1,
	NVML_ECC_VOLATILE = 0,  // since the driver was loaded
	NVML_ECC_AGGREGATE = 1, // of the card's life
	NVML_PCIE_TX = 0,
	NVML_PCIE_RX = 1,
	NVML_FIELD_MEMORY_TEMPERATURE = 82,
	NVML_FIELD_PCIE_TX_BYTES = 197,
	NVML_FIELD_PCIE_RX_BYTES = 198
};

enum nvml_type { // of a field's value
	NVML_TYPE_DOUBLE = 0,
	NVML_TYPE_UINT = 1,
	NVML_TYPE_ULONG = 2,
	NVML_TYPE_UINT64 = 3,
	NVML_TYPE_INT64 = 4,
	NVML_TYPE_INT = 5,
	NVML_TYPE_USHORT = 6
};

struct nvml_utilization {
	unsigned gpu, memory; // percent
};

struct nvml_memory { // before version 2, used included what the driver keeps for itself
	unsigned long long total, free, used;
};

struct nvml_memory_v2 {
	unsigned version; // NVML_MEMORY_V2
	unsigned long long total, reserved, free, used;
};

#define NVML_MEMORY_V2 ((unsigned)sizeof(struct nvml_memory_v2) | 2U << 24)

struct nvml_margin {
	unsigned version; // NVML_MARGIN
	int celsius;      // to the nearest point at which the card slows down
};

#define NVML_MARGIN ((unsigned)sizeof(struct nvml_margin) | 1U << 24)

struct nvml_process { // of the v2 and v3 calls
	unsigned pid;
	unsigned long long used_memory; // all bits set: not told
	unsigned gpu_instance, compute_instance;
};

struct nvml_field {
	unsigned field, scope;
	long long timestamp_us, latency_us; // wall clock at the reading
	unsigned type;                      // enum nvml_type
	int code;                           // enum nvml_code
	union {
		double real;
		unsigned u32;
		unsigned long ulong;
		unsigned long long u64;
		long long i64;
		int i32;
		unsigned short u16;
	} value;
};

// clang-format off
// X(needed, name, arguments, symbol, older symbol or NULL). Results are enum nvml_code; arguments are as the symbol's.
#define NVML_CALLS(X) \
	X(REQUIRED, init, (void), \
	  "nvmlInit_v2", NULL) \
	X(REQUIRED, shutdown, (void), \
	  "nvmlShutdown", NULL) \
	X(REQUIRED, by_uuid, (const char *, struct nvml_device **), \
	  "nvmlDeviceGetHandleByUUID", NULL) \
	X(REQUIRED, by_pci, (const char *, struct nvml_device **), \
	  "nvmlDeviceGetHandleByPciBusId_v2", NULL) \
	X(OPTIONAL, utilization, (struct nvml_device *, struct nvml_utilization *), \
	  "nvmlDeviceGetUtilizationRates", NULL) \
	X(OPTIONAL, memory_v2, (struct nvml_device *, struct nvml_memory_v2 *), \
	  "nvmlDeviceGetMemoryInfo_v2", NULL) \
	X(OPTIONAL, memory, (struct nvml_device *, struct nvml_memory *), \
	  "nvmlDeviceGetMemoryInfo", NULL) \
	X(OPTIONAL, power, (struct nvml_device *, unsigned *), \
	  "nvmlDeviceGetPowerUsage", NULL) \
	X(OPTIONAL, energy, (struct nvml_device *, unsigned long long *), \
	  "nvmlDeviceGetTotalEnergyConsumption", NULL) \
	X(OPTIONAL, power_limit, (struct nvml_device *, unsigned *), \
	  "nvmlDeviceGetEnforcedPowerLimit", NULL) \
	X(OPTIONAL, temperature, (struct nvml_device *, int, unsigned *), \
	  "nvmlDeviceGetTemperature", NULL) \
	X(OPTIONAL, threshold, (struct nvml_device *, int, unsigned *), \
	  "nvmlDeviceGetTemperatureThreshold", NULL) \
	X(OPTIONAL, margin, (struct nvml_device *, struct nvml_margin *), \
	  "nvmlDeviceGetMarginTemperature", NULL) \
	X(OPTIONAL, clock, (struct nvml_device *, int, unsigned *), \
	  "nvmlDeviceGetClockInfo", NULL) \
	X(OPTIONAL, throttle, (struct nvml_device *, unsigned long long *), \
	  "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons") \
	X(OPTIONAL, fan, (struct nvml_device *, unsigned *), \
	  "nvmlDeviceGetFanSpeed", NULL) \
	X(OPTIONAL, ecc, (struct nvml_device *, int, int, unsigned long long *), \
	  "nvmlDeviceGetTotalEccErrors", NULL) \
	X(OPTIONAL, fields, (struct nvml_device *, int, struct nvml_field *), \
	  "nvmlDeviceGetFieldValues", NULL) \
	X(OPTIONAL, pcie, (struct nvml_device *, int, unsigned *), \
	  "nvmlDeviceGetPcieThroughput", NULL) \
	X(OPTIONAL, compute_processes, (struct nvml_device *, unsigned *, struct nvml_process *), \
	  "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2") \
	X(OPTIONAL, graphics_processes, (struct nvml_device *, unsigned *, struct nvml_process *), \
	  "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2")

struct nvml_calls {
#define X(needed, name, arguments, symbol, older) int(*name) arguments;
	NVML_CALLS(X)
#undef X
};
// clang-format on

// The calls of an initialised library. Errors: STATUS_UNAVAILABLE (no library, no driver, or one too old) with a hint.
// Each success must be released.
enum status nvml_library_acquire(const struct nvml_calls **calls, struct error *error);
void nvml_library_release(void);
