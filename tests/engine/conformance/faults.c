/* Failures of the back end: at its n-th call, for good, or by never finishing.
 *
 * `faulty` is a struct backend that hands every call on to a real one, counts, and makes one of them fail. It also
 * checks the wrapper: after a loss only close is called, and every object is destroyed. */
#include "engine/inside.h"
#include "tests/engine/conformance/conformance.h"

static struct {
	const struct backend *real;
	struct backend backend;
	enum status status;  // what the chosen call says
	long countdown;      // to the call that fails; < 0: none
	bool hangs;          // waiting is never over
	bool struck, silent; // it has failed; it says nothing in its error
	bool told_lost;
	long buffers, streams, modules; // not given back yet
	long calls_after_loss;
} faulty;

static bool strike(struct error *error)
{
	faulty.calls_after_loss += faulty.told_lost;
	if (faulty.countdown < 0 || faulty.countdown-- > 0)
		return false;
	faulty.struck = true;
	faulty.told_lost = faulty.status == STATUS_DEVICE_LOST;
	if (!faulty.silent)
		error_set(error, faulty.status, "the injected fault");
	return true;
}

static enum status faulty_open(struct backend_device **out, const struct backend_open *params, struct error *error)
{
	return strike(error) ? faulty.status : faulty.real->open(out, params, error);
}

static enum status faulty_memory(struct backend_device *device, uint64_t *total, uint64_t *available,
				 struct error *error)
{
	return strike(error) ? faulty.status : faulty.real->memory(device, total, available, error);
}

static enum status faulty_buffer_create(struct backend_device *device, struct backend_buffer **out,
					const struct backend_buffer_params *params, struct error *error)
{
	enum status status = strike(error) ? faulty.status : faulty.real->buffer_create(device, out, params, error);
	faulty.buffers += !status;
	return status;
}

static void faulty_buffer_destroy(struct backend_device *device, struct backend_buffer **buffer)
{
	faulty.calls_after_loss += faulty.told_lost;
	faulty.buffers--;
	faulty.real->buffer_destroy(device, buffer);
}

static enum status faulty_stream_create(struct backend_device *device, struct backend_stream **out, struct error *error)
{
	enum status status = strike(error) ? faulty.status : faulty.real->stream_create(device, out, error);
	faulty.streams += !status;
	return status;
}

static void faulty_stream_destroy(struct backend_device *device, struct backend_stream **stream)
{
	faulty.calls_after_loss += faulty.told_lost;
	faulty.streams--;
	faulty.real->stream_destroy(device, stream);
}

static enum status faulty_copy(struct backend_stream *stream, const struct backend_copy *copy, struct error *error)
{
	return strike(error) ? faulty.status : faulty.real->copy(stream, copy, error);
}

static enum status faulty_fill(struct backend_stream *stream, struct backend_buffer *buffer, uint64_t offset,
			       uint64_t bytes, uint8_t value, struct error *error)
{
	return strike(error) ? faulty.status : faulty.real->fill(stream, buffer, offset, bytes, value, error);
}

static enum status faulty_launch(struct backend_stream *stream, const struct backend_launch *launch,
				 struct error *error)
{
	return strike(error) ? faulty.status : faulty.real->launch(stream, launch, error);
}

static enum status faulty_mark(struct backend_stream *stream, uint64_t *point, struct error *error)
{
	return strike(error) ? faulty.status : faulty.real->mark(stream, point, error);
}

static enum status faulty_reached(struct backend_stream *stream, uint64_t *point, struct error *error)
{
	return strike(error) ? faulty.status : faulty.real->reached(stream, point, error);
}

static enum status faulty_wait(struct backend_stream *stream, uint64_t point, int64_t timeout_ns, struct error *error)
{
	if (faulty.hangs)
		return error_set(error, STATUS_TIMEOUT, "it goes on and on");
	return strike(error) ? faulty.status : faulty.real->wait(stream, point, timeout_ns, error);
}

static enum status faulty_follow(struct backend_stream *stream, struct backend_stream *other, uint64_t point,
				 struct error *error)
{
	return strike(error) ? faulty.status : faulty.real->follow(stream, other, point, error);
}

static enum status faulty_elapsed(struct backend_stream *stream, uint64_t from, uint64_t to, int64_t *ns,
				  struct error *error)
{
	return strike(error) ? faulty.status : faulty.real->elapsed(stream, from, to, ns, error);
}

static enum status faulty_module_load(struct backend_device *device, struct backend_module **out,
				      const struct backend_module_params *params, struct error *error)
{
	enum status status = strike(error) ? faulty.status : faulty.real->module_load(device, out, params, error);
	faulty.modules += !status;
	return status;
}

static void faulty_module_unload(struct backend_device *device, struct backend_module **module)
{
	faulty.calls_after_loss += faulty.told_lost;
	faulty.modules--;
	faulty.real->module_unload(device, module);
}

static void faulty_begin(struct conformance *c, enum status status, long countdown)
{
	memset(&faulty, 0, sizeof(faulty));
	faulty.real = backend_find(backend_kind_parse(c->backend));
	assert_non_null(faulty.real);
	faulty.status = status;
	faulty.countdown = countdown;
	faulty.silent = countdown % 3 == 2;
	faulty.backend = *faulty.real;
	faulty.backend.open = faulty_open;
	faulty.backend.memory = faulty_memory;
	faulty.backend.buffer_create = faulty_buffer_create;
	faulty.backend.buffer_destroy = faulty_buffer_destroy;
	faulty.backend.stream_create = faulty_stream_create;
	faulty.backend.stream_destroy = faulty_stream_destroy;
	faulty.backend.copy = faulty_copy;
	faulty.backend.fill = faulty_fill;
	faulty.backend.launch = faulty_launch;
	faulty.backend.mark = faulty_mark;
	faulty.backend.reached = faulty_reached;
	faulty.backend.wait = faulty_wait;
	faulty.backend.follow = faulty_follow;
	faulty.backend.elapsed = faulty_elapsed;
	faulty.backend.module_load = faulty_module_load;
	faulty.backend.module_unload = faulty_module_unload;
}

// All that a scenario makes: what it gets to, finish_all destroys.
struct scenario {
	struct exogpu_device *device;
	struct exogpu_module *module;
	struct exogpu_stream *streams[2];
	struct exogpu_buffer *x, *y, *host;
	uint8_t data[5000], got[5000];
};

enum { FLOATS = 1000 };

static enum status make_all(struct conformance *c, struct scenario *s, struct error *error)
{
	const struct exogpu_open open = {.backend = c->backend, .hardware_key = c->hardware_key};
	enum status status = device_open_over(&s->device, &faulty.backend, &open, error);
	for (int i = 0; !status && i < 2; i++)
		status = exogpu_stream_create(s->device, &s->streams[i], error);
	if (!status)
		status = exogpu_module_load(s->device, &s->module, EXOGPU_FORMAT_BUILTIN, NULL, 0, error);
	if (!status)
		status = exogpu_buffer_create(s->device, &s->x, 5000, EXOGPU_MEMORY_DEVICE, error);
	if (!status)
		status = exogpu_buffer_create(s->device, &s->y, 5000, EXOGPU_MEMORY_DEVICE, error);
	if (!status)
		status = exogpu_buffer_create(s->device, &s->host, 5000, EXOGPU_MEMORY_HOST, error);
	return status;
}

static enum status run_all(struct scenario *s, struct error *error)
{
	const struct exogpu_argument arguments[] = {buffer_argument(s->y), buffer_argument(s->x), f32_argument(1),
						    u32_argument(FLOATS)};
	struct exogpu_launch saxpy = {
		.module = s->module, .kernel = "saxpy_f32", .arguments = arguments, .argument_count = 4};
	uint64_t point = 0, after = 0;
	int64_t ns;
	enum status status = exogpu_write(s->x, 0, s->data, 5000, error);
	if (!status)
		status = exogpu_fill(s->streams[0], s->y, 0, 5000, 0, error);
	if (!status)
		status = exogpu_launch(s->streams[0], &saxpy, error);
	if (!status)
		status = exogpu_mark(s->streams[0], &point, error);
	if (!status)
		status = exogpu_follow(s->streams[1], s->streams[0], point, error);
	if (!status)
		status = exogpu_copy(s->streams[1], &(struct exogpu_copy){.to = s->host, .from = s->y, .bytes = 5000},
				     error);
	if (!status)
		status = exogpu_read(s->got, s->y, 0, 5000, error);
	if (!status)
		status = exogpu_read(s->got, s->host, 0, 5000, error);
	if (!status)
		status = exogpu_mark(s->streams[0], &after, error);
	if (!status)
		status = exogpu_wait(s->streams[0], after, long_ns, error);
	if (!status)
		status = exogpu_elapsed(s->streams[0], point, after, &ns, error);
	if (!status) // left under way for finish_all
		status = exogpu_fill(s->streams[1], s->host, 0, 5000, 0, error);
	return status;
}

static void finish_all(struct scenario *s, struct exogpu_usage *left)
{
	exogpu_buffer_destroy(&s->host);
	exogpu_module_unload(&s->module);
	exogpu_stream_destroy(&s->streams[0]);
	exogpu_buffer_destroy(&s->x);
	exogpu_stream_destroy(&s->streams[1]);
	exogpu_buffer_destroy(&s->y);
	exogpu_device_close(&s->device, left);
}

// One call fails. Returns whether there was one that could.
static bool one_fault(struct conformance *c, enum status injected, long place)
{
	struct scenario *s = calloc(1, sizeof(*s));
	struct error fault = {0};
	struct exogpu_usage left;
	for (int i = 0; i < FLOATS; i++)
		memcpy(&s->data[4 * i], &(float){(float)i}, 4);
	faulty_begin(c, injected, place);
	enum status status = make_all(c, s, &fault);
	if (!status)
		status = run_all(s, &fault);
	bool struck = faulty.struck, lost = s->device && exogpu_device_lost(s->device);
	if (status != (struck ? injected : STATUS_OK) || (status && !fault.message[0]))
		fail_msg("call %ld, %s: the scenario said %s: %s", place, status_word(injected), status_word(status),
			 fault.message);
	if (!status)
		same_bytes(s->got, s->data, 4 * FLOATS, "a scenario without a fault");
	if (s->device && lost != (struck && injected == STATUS_DEVICE_LOST))
		fail_msg("call %ld, %s: lost is %d", place, status_word(injected), lost);
	if (lost && s->streams[0] && s->x)
		REFUSED(STATUS_DEVICE_LOST, exogpu_fill(s->streams[0], s->x, 0, 1, 0, &error));
	finish_all(s, &left);
	assert_int_equal(left.buffers + left.streams + left.modules + left.device_bytes + left.host_bytes, 0);
	assert_int_equal(faulty.calls_after_loss, 0);
	// Given back one by one but for the ring and its stream, which the back end's close frees; after a loss, all
	// are.
	if (!faulty.told_lost && (faulty.buffers > 1 || faulty.streams > 1 || faulty.modules))
		fail_msg("call %ld, %s: %ld buffers, %ld streams, %ld modules not given back", place,
			 status_word(injected), faulty.buffers, faulty.streams, faulty.modules);
	free(s);
	return faulty.struck;
}

void test_faults_everywhere(void **state)
{
	const enum status statuses[] = {STATUS_OUT_OF_MEMORY, STATUS_UNAVAILABLE, STATUS_DEVICE_LOST};
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
		long place = 0;
		while (one_fault(*state, statuses[i], place))
			place++;
		print_message("%s: each of %ld calls failed once\n", status_word(statuses[i]), place);
		assert_true(place > 20);
	}
}

// After a loss every call says so, and only close reaches the back end.
void test_loss_is_final(void **state)
{
	struct conformance *c = *state;
	struct scenario *s = calloc(1, sizeof(*s));
	struct exogpu_buffer *buffer = NULL;
	struct exogpu_stream *stream = NULL;
	struct exogpu_module *module = NULL;
	struct exogpu_usage left;
	uint64_t point;
	int64_t ns;
	const enum status lost = STATUS_DEVICE_LOST;
	faulty_begin(c, lost, -1);
	OK(make_all(c, s, &error));
	OK(run_all(s, &error));
	faulty.countdown = 0;
	REFUSED(lost, exogpu_mark(s->streams[0], &point, &error));
	assert_true(exogpu_device_lost(s->device));
	REFUSED(lost, exogpu_device_memory(s->device, &point, &point, &error));
	REFUSED(lost, exogpu_buffer_create(s->device, &buffer, 1, EXOGPU_MEMORY_DEVICE, &error));
	REFUSED(lost, exogpu_stream_create(s->device, &stream, &error));
	REFUSED(lost, exogpu_module_load(s->device, &module, EXOGPU_FORMAT_BUILTIN, NULL, 0, &error));
	REFUSED(lost, exogpu_write(s->x, 0, s->data, 1, &error));
	REFUSED(lost, exogpu_read(s->got, s->host, 0, 1, &error));
	REFUSED(lost, exogpu_fill(s->streams[1], s->x, 0, 1, 0, &error));
	REFUSED(lost, exogpu_copy(s->streams[1], &(struct exogpu_copy){.to = s->x, .from = s->y, .bytes = 1}, &error));
	REFUSED(lost, exogpu_mark(s->streams[1], &point, &error));
	REFUSED(lost, exogpu_reached(s->streams[1], &point, &error));
	REFUSED(lost, exogpu_wait(s->streams[1], 0, 0, &error));
	REFUSED(lost, exogpu_follow(s->streams[1], s->streams[0], 0, &error));
	REFUSED(lost, exogpu_elapsed(s->streams[1], 1, 1, &ns, &error));
	REFUSED(lost, exogpu_launch(s->streams[1], &(struct exogpu_launch){.module = s->module, .kernel = "sum_f32"},
				    &error));
	assert_null(exogpu_buffer_pointer(s->host));
	assert_int_equal(exogpu_buffer_bytes(s->host), 5000);
	finish_all(s, &left);
	assert_int_equal(left.buffers + left.streams + left.modules, 0);
	assert_int_equal(faulty.calls_after_loss, 0);
	free(s);
}

// Work that is never done: destroying what it uses loses the device, after a while, and close comes back.
void test_hang_is_a_loss(void **state)
{
	struct conformance *c = *state;
	for (int i = 0; i < 4; i++) {
		struct scenario *s = calloc(1, sizeof(*s));
		struct exogpu_usage left;
		faulty_begin(c, STATUS_DEVICE_LOST, -1);
		OK(make_all(c, s, &error));
		OK(run_all(s, &error));
		s->device->settle_ns = 1000 * 1000;
		faulty.hangs = true;
		if (i == 0)
			exogpu_buffer_destroy(&s->host);
		if (i == 1)
			exogpu_stream_destroy(&s->streams[1]);
		if (i == 2) {
			exogpu_module_unload(&s->module); // its work is known to be done
			assert_false(exogpu_device_lost(s->device));
		} else if (i != 3) {
			faulty.told_lost = true; // from here on nothing is called
			assert_true(exogpu_device_lost(s->device));
			REFUSED(STATUS_DEVICE_LOST, exogpu_fill(s->streams[0], s->x, 0, 1, 0, &error));
		}
		finish_all(s, &left);
		assert_int_equal(left.buffers + left.streams + left.modules, 0);
		assert_int_equal(faulty.calls_after_loss, 0);
		free(s);
	}
}

static struct exogpu_device_limits wrong_limits;

static void describe_wrong(const struct backend_device *device, struct exogpu_device_limits *limits)
{
	(void)device;
	*limits = wrong_limits;
}

// A back end that lacks what it says it has does not open.
void test_back_end_is_whole(void **state)
{
	struct conformance *c = *state;
	const struct exogpu_open open = {.backend = c->backend, .hardware_key = c->hardware_key};
	struct exogpu_device *device = NULL;
	faulty_begin(c, STATUS_OK, -1);
	faulty.backend.describe = describe_wrong;
	faulty.backend.copy_peer = NULL;
	faulty.backend.module_kernel = NULL;
	wrong_limits = *c->limits;
	wrong_limits.capabilities = EXOGPU_CAN_PEER;
	REFUSED(STATUS_INTERNAL, device_open_over(&device, &faulty.backend, &open, &error));
	wrong_limits.capabilities = EXOGPU_CAN_PTX;
	REFUSED(STATUS_INTERNAL, device_open_over(&device, &faulty.backend, &open, &error));
	wrong_limits.capabilities = 0;
	wrong_limits.buffer_bytes = 0;
	REFUSED(STATUS_INTERNAL, device_open_over(&device, &faulty.backend, &open, &error));
	wrong_limits.buffer_bytes = 1 << 20;
	OK(device_open_over(&device, &faulty.backend, &open, &error));
	exogpu_device_close(&device, NULL);
	faulty.backend.wait = NULL;
	REFUSED(STATUS_INTERNAL, device_open_over(&device, &faulty.backend, &open, &error));
	faulty.backend.open = NULL;
	REFUSED(STATUS_UNAVAILABLE, device_open_over(&device, &faulty.backend, &open, &error));
	assert_null(device);
}
