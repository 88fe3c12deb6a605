// A real NVIDIA GPU: every reading is plausible, and what a sample costs. Skips (77) where there is no NVML or no GPU.
//
// The GPU is given work through the CUDA driver, where it is there: copies to and from it, so that PCIe traffic,
// processes and clocks have something to tell.
#include "common/base/clock.h"
#include "engine/telemetry/nvml.h"
#include "engine/telemetry/nvml_library.h"
#include "engine/telemetry/sensor.h"
#include "tests/engine/telemetry/tree.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

enum { COPY_BYTES = 256 << 20, SKIP = 77 };

static struct telemetry_target target;
static atomic_bool copying, working;

static void wake(void *context)
{
	(void)context;
}

static struct telemetry_sample read_once(struct nvml_gpu *gpu, enum pace_round round)
{
	struct telemetry_sample sample;
	sample_clear(&sample);
	nvml_gpu_request(gpu, round);
	for (int i = 0; i < 20000 && nvml_gpu_busy(gpu); i++)
		usleep(500);
	assert_false(nvml_gpu_busy(gpu));
	assert_true(nvml_gpu_take(gpu, &sample));
	return sample;
}

static struct nvml_gpu *open_gpu(void)
{
	struct nvml_gpu *gpu = NULL;
	struct error error = {0};
	struct nvml_gpu_params params = {.target = &target, .proc_root = "/proc", .wake = wake};
	assert_int_equal(nvml_gpu_create(&gpu, &params, &error), STATUS_OK);
	return gpu;
}

static void print_sample(const struct telemetry_sample *sample)
{
	struct json *json = sample_json(sample, "gpu");
	struct buffer text;
	buffer_init(&text, 65536);
	json_print(json, &text);
	print_message("%s\n", buffer_text(&text));
	buffer_finish(&text);
	json_destroy(&json);
}

static double processor_us(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// Copies one way and back until told to stop.
static void *copy_thread(void *argument)
{
	(void)argument;
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
	int (*init)(unsigned), (*retain)(void **, int), (*current)(void *), (*allocate)(uint64_t *, size_t);
	int (*pin)(void **, size_t, unsigned), (*down)(uint64_t, const void *, size_t);
	int (*up)(void *, uint64_t, size_t), (*release)(int), (*free_device)(uint64_t), (*unpin)(void *);
	const struct {
		const char *name;
		void *pointer;
	} symbols[] = {{"cuInit", &init},
		       {"cuDevicePrimaryCtxRetain", &retain},
		       {"cuCtxSetCurrent", &current},
		       {"cuMemAlloc_v2", &allocate},
		       {"cuMemHostAlloc", &pin},
		       {"cuMemcpyHtoD_v2", &down},
		       {"cuMemcpyDtoH_v2", &up},
		       {"cuDevicePrimaryCtxRelease_v2", &release},
		       {"cuMemFree_v2", &free_device},
		       {"cuMemFreeHost", &unpin}};
	void *context, *host;
	uint64_t device;
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *address = cuda ? dlsym(cuda, symbols[i].name) : NULL;
		if (!address) {
			print_message("no CUDA driver: the GPU is read idle\n");
			return NULL;
		}
		memcpy(symbols[i].pointer, &address, sizeof address);
	}
	if (init(0) || retain(&context, 0) || current(context) || allocate(&device, COPY_BYTES) ||
	    pin(&host, COPY_BYTES, 0)) {
		print_message("CUDA does not start: the GPU is read idle\n");
		return NULL;
	}
	memset(host, 1, COPY_BYTES);
	while (atomic_load(&copying)) {
		down(device, host, COPY_BYTES);
		up(host, device, COPY_BYTES);
		atomic_store(&working, true);
	}
	unpin(host);
	free_device(device);
	release(0);
	return NULL;
}

static void check_range(const struct telemetry_sample *sample, enum telemetry_reading reading, double low, double high)
{
	if (!sample_has(sample, reading))
		fail_msg("reading %d is absent", reading);
	if (sample->values[reading] < low || sample->values[reading] > high)
		fail_msg("reading %d is %g, expected %g to %g", reading, sample->values[reading], low, high);
}

static void test_idle(void **state)
{
	(void)state;
	struct nvml_gpu *gpu = open_gpu();
	struct telemetry_sample sample = read_once(gpu, PACE_FULL);
	print_sample(&sample);
	check_range(&sample, READING_UTILIZATION_PERCENT, 0, 100);
	check_range(&sample, READING_MEMORY_TOTAL_BYTES, 1e9, 1e12);
	check_range(&sample, READING_MEMORY_USED_BYTES, 0, sample.values[READING_MEMORY_TOTAL_BYTES]);
	check_range(&sample, READING_TEMPERATURE_CELSIUS, 10, 110);
	check_range(&sample, READING_CLOCK_MHZ, 100, 4000);
	assert_true(sample.process_count >= 0);
	assert_true(llabs(sample.at_ms - clock_wall_ms()) < 60000);
	nvml_gpu_destroy(&gpu);
}

static void test_working(void **state)
{
	(void)state;
	pthread_t thread;
	atomic_store(&copying, true);
	assert_int_equal(pthread_create(&thread, NULL, copy_thread, NULL), 0);
	for (int i = 0; i < 100 && !atomic_load(&working); i++)
		usleep(100000);
	usleep(1500000);
	struct nvml_gpu *gpu = open_gpu();
	struct telemetry_sample sample;
	for (int i = 0; i < 5; i++) {
		sample = read_once(gpu, PACE_FULL);
		print_message("PCIe: to the GPU %.2f GB/s, from it %.2f GB/s\n",
			      sample.values[READING_PCIE_RX_BYTES_PER_S] / 1e9,
			      sample.values[READING_PCIE_TX_BYTES_PER_S] / 1e9);
		usleep(300000);
	}
	print_sample(&sample);
	if (atomic_load(&working)) {
		bool found = false;
		for (int i = 0; i < sample.process_count; i++)
			found = found || sample.processes[i].pid == getpid();
		print_message("this process (%d) is %sin the list\n", (int)getpid(), found ? "" : "not ");
		assert_true(sample.computes);
		check_range(&sample, READING_MEMORY_USED_BYTES, COPY_BYTES, 1e12);
		if (sample_has(&sample, READING_PCIE_RX_BYTES_PER_S))
			assert_true(sample.values[READING_PCIE_RX_BYTES_PER_S] +
					    sample.values[READING_PCIE_TX_BYTES_PER_S] >
				    1e8);
	}
	atomic_store(&copying, false);
	pthread_join(thread, NULL);
	nvml_gpu_destroy(&gpu);
}

// The counters beside the call that blocks, to see that they mean the same.
static void test_counters(void **state)
{
	(void)state;
	const struct nvml_calls *nvml;
	struct nvml_device *device;
	struct error error = {0};
	char uuid[64];
	assert_int_equal(nvml_library_acquire(&nvml, &error), STATUS_OK);
	snprintf(uuid, sizeof uuid, "GPU-%s", target.uuid);
	assert_int_equal(nvml->by_uuid(uuid, &device), NVML_SUCCESS);
	for (int i = 0; i < 4 && nvml->fields; i++) {
		struct nvml_field fields[2] = {{.field = NVML_FIELD_PCIE_TX_BYTES},
					       {.field = NVML_FIELD_PCIE_RX_BYTES}};
		int64_t begun = clock_steady_ns();
		int code = nvml->fields(device, 2, fields);
		print_message(
			"fields: code %d in %lld us; tx code %d type %u value %llu at %lld; rx code %d value %llu\n",
			code, (long long)(clock_steady_ns() - begun) / 1000, fields[0].code, fields[0].type,
			fields[0].value.u64, fields[0].timestamp_us, fields[1].code, fields[1].value.u64);
		usleep(20000);
	}
	unsigned kilobytes = 0;
	int64_t begun = clock_steady_ns();
	if (nvml->pcie && nvml->pcie(device, NVML_PCIE_TX, &kilobytes) == NVML_SUCCESS)
		print_message("blocking call: %u KB/s in %lld us\n", kilobytes,
			      (long long)(clock_steady_ns() - begun) / 1000);
	nvml_library_release();
}

static void test_cost(void **state)
{
	(void)state;
	struct nvml_gpu *gpu = open_gpu();
	static const char *const names[] = {[PACE_FAST] = "temperature and power", [PACE_FULL] = "everything"};
	read_once(gpu, PACE_FULL);
	for (int round = PACE_FAST; round <= PACE_FULL; round++) {
		enum { TIMES = 50 };
		double before = processor_us();
		int64_t begun = clock_steady_ns();
		for (int i = 0; i < TIMES; i++) {
			nvml_gpu_request(gpu, (enum pace_round)round);
			// Long sleeps, so that waiting is not what is measured.
			do
				usleep(25000);
			while (nvml_gpu_busy(gpu));
			struct telemetry_sample sample;
			assert_true(nvml_gpu_take(gpu, &sample));
		}
		print_message("%s: %.0f us of processor time a sample (%.0f us of wall time)\n", names[round],
			      (processor_us() - before) / TIMES, (double)(clock_steady_ns() - begun) / 1000 / TIMES);
	}
	nvml_gpu_destroy(&gpu);
}

// The first GPU's UUID, as the node would find it.
static bool find_gpu(void)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	int (*by_index)(unsigned, struct nvml_device **), (*uuid_of)(struct nvml_device *, char *, unsigned);
	const struct nvml_calls *nvml;
	struct nvml_device *device;
	struct error error = {0};
	char uuid[96];
	if (!library || nvml_library_acquire(&nvml, &error) != STATUS_OK)
		return false;
	void *index_address = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	void *uuid_address = dlsym(library, "nvmlDeviceGetUUID");
	memcpy(&by_index, &index_address, sizeof by_index);
	memcpy(&uuid_of, &uuid_address, sizeof uuid_of);
	bool found = index_address && uuid_address && by_index(0, &device) == NVML_SUCCESS &&
		     uuid_of(device, uuid, sizeof uuid) == NVML_SUCCESS && strncmp(uuid, "GPU-", 4) == 0;
	if (found)
		snprintf(target.uuid, sizeof target.uuid, "%.36s", uuid + 4);
	target.source = TELEMETRY_NVIDIA;
	nvml_library_release();
	return found;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_idle),
		cmocka_unit_test(test_counters),
		cmocka_unit_test(test_cost),
		cmocka_unit_test(test_working),
	};
	if (!find_gpu()) {
		printf("skipped: no NVML, or no NVIDIA GPU\n");
		return SKIP;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
