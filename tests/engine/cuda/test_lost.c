/* A kernel that writes where it may not, and one that never ends, each in a process of its own as workers are: that
 * process loses its device, and another on the same GPU does not notice.
 *
 * The children are started before this process touches the driver, which does not survive a fork, and wait for a key.
 */
#include "engine/inside.h"
#include "tests/engine/cuda/here.h"

#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1 << 20, CHILDREN = 2 };

static struct exogpu_device *device;
static struct exogpu_stream *stream;
static struct exogpu_buffer *buffer;

static enum status launch(const char *kernel, struct exogpu_argument argument, struct error *error)
{
	static struct exogpu_module *module;
	enum status status = STATUS_OK;
	if (!module)
		status = exogpu_module_load(device, &module, EXOGPU_FORMAT_PTX, here_kernels, strlen(here_kernels),
					    error);
	struct exogpu_launch launch = {.module = module, .kernel = kernel, .arguments = &argument, .argument_count = 1};
	return status ? status : exogpu_launch(stream, &launch, error);
}

static void open_all(void)
{
	device = here_open(0);
	HERE_OK(exogpu_stream_create(device, &stream, &error));
	HERE_OK(exogpu_buffer_create(device, &buffer, BYTES, EXOGPU_MEMORY_DEVICE, &error));
}

static void bad_address(void **state)
{
	uint64_t point = 0;
	uint8_t byte;
	(void)state;
	open_all();
	HERE_OK(launch("touch", (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_U64, .u64 = 0x1000}, &error));
	struct error error = {0};
	enum status status = exogpu_mark(stream, &point, &error);
	if (!status)
		status = exogpu_wait(stream, point, 20000000000, &error);
	print_message("%s\n", error.message);
	assert_int_equal(status, STATUS_DEVICE_LOST);
	assert_true(exogpu_device_lost(device));
	error = (struct error){0};
	assert_int_equal(exogpu_read(&byte, buffer, 0, 1, &error), STATUS_DEVICE_LOST);
	exogpu_device_close(&device, NULL);
	assert_null(device);
}

// Through the slots: closing must not wait for it. The library would have waited for its work first.
static void never_ends(void **state)
{
	uint64_t point = 0;
	(void)state;
	open_all();
	HERE_OK(launch("for_ever", (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = buffer}, &error));
	HERE_OK(exogpu_mark(stream, &point, &error));
	struct error error = {0};
	assert_int_equal(exogpu_wait(stream, point, 100000000, &error), STATUS_TIMEOUT);
	backend_cuda.close(&device->handle);
	assert_null(device->handle);
}

static int run_child(unsigned which, int from)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(bad_address), cmocka_unit_test(never_ends)};
	const struct CMUnitTest one[] = {tests[which]};
	if (read(from, here_keys[0], sizeof(here_keys[0])) <= 0)
		return 77;
	return cmocka_run_group_tests(one, NULL, NULL);
}

static struct child {
	pid_t id;
	int to;
} children[CHILDREN];

static void start_children(void)
{
	for (unsigned i = 0; i < CHILDREN; i++) {
		int ends[2];
		if (pipe(ends))
			abort();
		children[i] = (struct child){.id = fork(), .to = ends[1]};
		if (!children[i].id) {
			for (unsigned j = 0; j <= i; j++)
				close(children[j].to);
			int failed = run_child(i, ends[0]);
			fflush(NULL);
			_exit(failed); // as a worker: the driver's own handlers would wait for the kernel
		}
		close(ends[0]);
	}
}

static void fill_own(struct exogpu_buffer *own, uint8_t value)
{
	uint64_t point;
	HERE_OK(exogpu_fill(stream, own, 0, BYTES, value, &error));
	HERE_OK(exogpu_mark(stream, &point, &error));
	HERE_OK(exogpu_wait(stream, point, 20000000000, &error));
}

static void others_do_not_notice(void **state)
{
	static uint8_t bytes[BYTES];
	(void)state;
	open_all();
	fill_own(buffer, 0x5a);
	for (unsigned i = 0; i < CHILDREN; i++) {
		int result = -1;
		assert_true(write(children[i].to, here_keys[0], sizeof(here_keys[0])) > 0);
		waitpid(children[i].id, &result, 0);
		if (!WIFEXITED(result) || WEXITSTATUS(result))
			fail_msg("child %u ended with status 0x%x", i, (unsigned)result);
		HERE_OK(exogpu_read(bytes, buffer, 0, BYTES, &error));
		for (size_t j = 0; j < BYTES; j++)
			assert_int_equal(bytes[j], 0x5a + (int)i);
		fill_own(buffer, (uint8_t)(0x5b + i)); // and it still works
	}
	exogpu_device_close(&device, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(others_do_not_notice)};
	start_children();
	if (here_find(1))
		return cmocka_run_group_tests(tests, NULL, NULL);
	for (unsigned i = 0; i < CHILDREN; i++) {
		close(children[i].to);
		waitpid(children[i].id, NULL, 0);
	}
	return 77;
}
