/* See conformance.h: which devices there are, what a test begins and ends with, and helpers of the tests. */
#include "tests/engine/conformance/conformance.h"

#include "common/base/clock.h"
#include "engine/backend.h"

enum { MOST_DEVICES = 32 };

static struct {
	const char *backend;
	struct {
		char hardware_key[INFO_KEY_BYTES], name[INFO_NAME_BYTES];
		bool software;
	} devices[MOST_DEVICES];
	unsigned count, current;
} suite;

static void note(void *context, const struct exogpu_found_device *device)
{
	(void)context;
	if (strcmp(device->backend, suite.backend))
		return;
	printf("%s: %s, %s, driver %s, %llu MiB%s%s\n", device->backend, device->name, device->hardware_key,
	       device->driver_version, (unsigned long long)(device->memory_bytes >> 20),
	       device->reason ? ": not usable: " : "", device->reason ? device->reason : "");
	if (device->reason || suite.count == MOST_DEVICES)
		return;
	text_copy(suite.devices[suite.count].hardware_key, INFO_KEY_BYTES, device->hardware_key);
	text_copy(suite.devices[suite.count].name, INFO_NAME_BYTES, device->name);
	suite.devices[suite.count++].software = device->software || !strcmp(device->backend, "cpu");
}

int conformance_begin(void **state)
{
	struct conformance *c = calloc(1, sizeof(*c));
	const char *exhaust = getenv("EXOGPU_TEST_EXHAUST");
	c->backend = suite.backend;
	c->hardware_key = suite.devices[suite.current].hardware_key;
	c->software = suite.devices[suite.current].software;
	c->exhaust = !c->software || (exhaust && !strcmp(exhaust, "1"));
	OK(exogpu_device_open(
		&c->device,
		&(struct exogpu_open){.backend = c->backend, .hardware_key = c->hardware_key, .debug = true}, &error));
	c->limits = exogpu_device_limits(c->device);
	OK(exogpu_stream_create(c->device, &c->stream, &error));
	OK(exogpu_module_load(c->device, &c->builtin, EXOGPU_FORMAT_BUILTIN, NULL, 0, &error));
	*state = c;
	return 0;
}

int conformance_end(void **state)
{
	struct conformance *c = *state;
	struct exogpu_usage left;
	exogpu_stream_destroy(&c->stream);
	exogpu_module_unload(&c->builtin);
	exogpu_device_close(&c->device, &left);
	free(c);
	if (left.buffers || left.streams || left.modules || left.device_bytes || left.host_bytes) {
		print_error("left open: %u buffers of %llu and %llu bytes, %u streams, %u modules\n", left.buffers,
			    (unsigned long long)left.device_bytes, (unsigned long long)left.host_bytes, left.streams,
			    left.modules);
		return -1;
	}
	return 0;
}

// What the libraries of the back end say about there being no device.
static void say_why(const char *backend_name)
{
	const struct backend *backend = backend_find(backend_kind_parse(backend_name));
	struct found *found = found_create();
	struct error error = {0};
	if (!found || !backend || backend->enumerate(found, &error))
		printf("skipped: %s: %s\n", backend_name, error.message);
	printf("skipped: no %s device here that can be used\n", backend_name);
	for (size_t i = 0; found && i < found->library_count; i++)
		printf("skipped: %s: %s %s\n", found->libraries[i].name, library_state_name(found->libraries[i].state),
		       found->libraries[i].reason);
	found_destroy(&found);
}

int conformance_run_tests(const char *backend, const struct CMUnitTest *tests, size_t count)
{
	struct error error = {0};
	int failed = 0;
	suite.backend = backend;
	suite.count = 0;
	if (getenv("EXOGPU_TEST_ONLY")) // the tests of this name, with * for anything
		cmocka_set_test_filter(getenv("EXOGPU_TEST_ONLY"));
	if (getenv("EXOGPU_TEST_WITHOUT")) // all but these
		cmocka_set_skip_filter(getenv("EXOGPU_TEST_WITHOUT"));
	if (exogpu_find_devices(note, NULL, &error)) {
		fprintf(stderr, "listing devices failed: %s\n", error.message);
		return 1;
	}
	if (!suite.count) {
		say_why(backend);
		return 77;
	}
	for (suite.current = 0; suite.current < suite.count; suite.current++)
		failed += _cmocka_run_group_tests(suite.devices[suite.current].name, tests, count, NULL, NULL);
	return failed ? 1 : 0;
}

int conformance_run(const char *backend)
{
#define X(name) cmocka_unit_test_setup_teardown(test_##name, conformance_begin, conformance_end),
	static const struct CMUnitTest tests[] = {CONFORMANCE_TESTS(X)};
#undef X
	return conformance_run_tests(backend, tests, sizeof(tests) / sizeof(*tests));
}

struct exogpu_buffer *make(struct conformance *c, uint64_t bytes, enum exogpu_memory memory)
{
	struct exogpu_buffer *buffer = NULL;
	OK(exogpu_buffer_create(c->device, &buffer, bytes, memory, &error));
	return buffer;
}

uint8_t *make_pattern(uint64_t bytes, uint32_t seed)
{
	uint8_t *data = malloc(bytes ? bytes : 1);
	assert_non_null(data);
	for (uint64_t i = 0; i < bytes; i++)
		data[i] = pattern(i, seed);
	return data;
}

void same_bytes(const uint8_t *got, const uint8_t *wanted, uint64_t bytes, const char *what)
{
	if (!memcmp(got, wanted, bytes))
		return;
	for (uint64_t i = 0; i < bytes; i++)
		if (got[i] != wanted[i])
			fail_msg("%s: byte %llu of %llu is 0x%02x, not 0x%02x", what, (unsigned long long)i,
				 (unsigned long long)bytes, got[i], wanted[i]);
}

void holds(struct exogpu_buffer *buffer, const uint8_t *wanted, uint64_t bytes, const char *what)
{
	uint8_t *got = malloc(bytes ? bytes : 1);
	assert_non_null(got);
	memset(got, 0xa5, bytes);
	OK(exogpu_read(got, buffer, 0, bytes, &error));
	same_bytes(got, wanted, bytes, what);
	free(got);
}

void finish(struct exogpu_stream *stream)
{
	uint64_t point = 0;
	OK(exogpu_mark(stream, &point, &error));
	OK(exogpu_wait(stream, point, long_ns, &error));
}

struct exogpu_argument buffer_argument(struct exogpu_buffer *buffer)
{
	return (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = buffer};
}

struct exogpu_argument f32_argument(float value)
{
	return (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_F32, .f32 = value};
}

struct exogpu_argument u32_argument(uint32_t value)
{
	return (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_U32, .u32 = value};
}

struct exogpu_argument u64_argument(uint64_t value)
{
	return (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_U64, .u64 = value};
}

enum status launch(struct conformance *c, const char *kernel, const struct exogpu_argument *arguments, unsigned count,
		   struct error *error)
{
	return exogpu_launch(
		c->stream,
		&(struct exogpu_launch){
			.module = c->builtin, .kernel = kernel, .arguments = arguments, .argument_count = count},
		error);
}

void long_work_init(struct conformance *c, struct long_work *work)
{
	const int64_t wanted_ns = 200 * 1000 * 1000;
	uint64_t before = 0, after = 0;
	int64_t ns = 0;
	*work = (struct long_work){.side = c->software ? 128 : 2048, .times = 1};
	uint64_t bytes = 4ull * work->side * work->side;
	work->a = make(c, bytes, EXOGPU_MEMORY_DEVICE);
	work->b = make(c, bytes, EXOGPU_MEMORY_DEVICE);
	work->c = make(c, bytes, EXOGPU_MEMORY_DEVICE);
	LAUNCH(c, "fill_f32", buffer_argument(work->a), f32_argument(0.5f), u64_argument(bytes / 4));
	LAUNCH(c, "fill_f32", buffer_argument(work->b), f32_argument(0.25f), u64_argument(bytes / 4));
	long_work_enqueue(c, work, c->stream); // once beforehand: what the first launch prepares does not count
	OK(exogpu_mark(c->stream, &before, &error));
	long_work_enqueue(c, work, c->stream);
	OK(exogpu_mark(c->stream, &after, &error));
	OK(exogpu_wait(c->stream, after, long_ns, &error));
	OK(exogpu_elapsed(c->stream, before, after, &ns, &error));
	if (ns <= 0)
		fail_msg("a matmul of %u took %lld ns", work->side, (long long)ns);
	work->times = ns < wanted_ns ? (unsigned)(wanted_ns / ns) + 1 : 1;
	if (work->times > 5000)
		work->times = 5000;
}

void long_work_enqueue(struct conformance *c, struct long_work *work, struct exogpu_stream *stream)
{
	const struct exogpu_argument arguments[] = {buffer_argument(work->c), buffer_argument(work->a),
						    buffer_argument(work->b), u32_argument(work->side),
						    u32_argument(work->side), u32_argument(work->side)};
	struct exogpu_launch one = {
		.module = c->builtin, .kernel = "matmul_f32", .arguments = arguments, .argument_count = 6};
	for (unsigned i = 0; i < work->times; i++)
		OK(exogpu_launch(stream, &one, &error));
}

void long_work_finish(struct long_work *work)
{
	exogpu_buffer_destroy(&work->a);
	exogpu_buffer_destroy(&work->b);
	exogpu_buffer_destroy(&work->c);
}
