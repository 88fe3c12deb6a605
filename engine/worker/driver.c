/* The driver's thread: takes calls in order, enqueues them, and answers those whose points are reached. See session.h.
 *
 * Work of a device is in one stream, so its calls are done in the order in which they came. Calls that a driver can
 * only make while no work is in flight (allocate, free, load) first wait for the device's steps: their time limit
 * begins after that. */
#include "common/base/clock.h"
#include "engine/worker/fault.h"
#include "engine/worker/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PIECES_OUT = 8,
	WAIT_NS = 500 * 1000, // a call that arrives meanwhile waits for this long at most
	WARM_NS = 1000000000, // an idle device answers in far less
};

enum status driver_told(struct session *session, struct call *call, enum status status)
{
	if (status != STATUS_DEVICE_LOST)
		return status;
	struct error error = {0};
	error_set(&error, STATUS_DEVICE_LOST, "the device was lost: %s",
		  call && call->error.message[0] ? call->error.message : "the driver gave no reason");
	error_hint(&error, "the session's memory on this device is lost; allocate again");
	pthread_mutex_lock(&session->lock);
	session_end(session, session->calls, true, &error);
}

uint64_t call_count(const struct call *call, const char *name)
{
	int64_t value = 0;
	return json_integer(json_get(call->message.params, name), &value) || value < 0 ? 0 : (uint64_t)value;
}

// ---- steps ----

static void give_back(struct session *session, struct worker_device *device, int piece, bool in)
{
	if (piece == NO_PIECE)
		return;
	pthread_mutex_lock(&session->lock);
	struct pool *pool = in ? &device->in : &device->out;
	pool->free[pool->count++] = piece;
	if (in)
		session_wake_reader(session);
	pthread_mutex_unlock(&session->lock);
}

void driver_answer(struct session *session, struct call *call, struct json *result)
{
	while (session->message_open) // the rest of a read's body is in the stream of the device that it is from
		driver_finish_oldest(session, session->open_device);
	answer_call(session, call, result, NULL, 0);
	calls_remove(session, call);
}

// The result in the form that answer_call takes.
static struct json *result_of(struct session *session, struct worker_device *device, const struct step *step)
{
	struct call *call = step->call;
	if (call->kind == CALL_WRITE || call->kind == CALL_READ)
		return NULL;
	struct json *result = json_new_object();
	int64_t ns = 0;
	switch (call->kind) {
	case CALL_FILL:
		json_set_integer(result, "bytes", (int64_t)call_count(call, "bytes"));
		break;
	case CALL_COPY:
		json_set_integer(result, "bytes", (int64_t)call_count(call, "bytes"));
		json_set_string(result, "path", "device");
		break;
	case CALL_LAUNCH:
		driver_told(session, call,
			    exogpu_elapsed(device->stream, step->started, step->point, &ns, &call->error));
		json_set_number(result, "device_us", (double)(ns > 0 ? ns : 0) * 1e-3);
		break;
	case CALL_UNKNOWN:
	case CALL_DEVICE:
	case CALL_WARM:
	case CALL_ALLOCATE:
	case CALL_WRITE:
	case CALL_READ:
	case CALL_FREE:
	case CALL_SHARE:
	case CALL_LOAD:
	case CALL_RUN:
	case CALL_UNLOAD:
	case CALL_SEND:
	case CALL_RECEIVE:
	case CALL_PIECE:
		break;
	}
	return result;
}

static void send_piece(struct session *session, struct worker_device *device, const struct step *step)
{
	while (session->message_open && session->open_device != device)
		driver_finish_oldest(session, session->open_device);
	if (!session->message_open) {
		session->open_device = device;
		answer_open(session, step->call);
	}
	answer_more(session, device->out.bytes + (size_t)step->piece * LIMIT_WORKER_PIECE_BYTES, step->bytes,
		    step->last);
}

// The oldest step is reached.
static void finish(struct session *session, struct worker_device *device)
{
	pthread_mutex_lock(&session->lock);
	struct step step = device->steps[device->first_step];
	device->first_step = (device->first_step + 1) % LIMIT_WORKER_STEPS;
	device->step_count--;
	session->step_count--;
	step.call->deadline_ns = 0;
	if (device->step_count) {
		struct call *next = device->steps[device->first_step].call;
		next->deadline_ns = clock_steady_ns() + next->limit_ns;
	}
	pthread_mutex_unlock(&session->lock);
	if (step.call->kind == CALL_READ && step.piece != NO_PIECE) {
		send_piece(session, device, &step);
		give_back(session, device, step.piece, false);
		if (step.last)
			calls_remove(session, step.call);
		return;
	}
	if (step.call->kind == CALL_COPY && !step.last) {
		memory_copied(session, step.call, step.bytes);
		return;
	}
	give_back(session, device, step.piece, true);
	if (!step.last || (step.call->kind == CALL_WRITE && !step.call->message.head))
		calls_remove(session, step.call); // a part of a write
	else
		driver_answer(session, step.call, step.call->error.status ? NULL : result_of(session, device, &step));
}

void driver_finish_oldest(struct session *session, struct worker_device *device)
{
	struct error error = {0};
	enum status status = STATUS_TIMEOUT;
	struct step *step = &device->steps[device->first_step];
	while (status == STATUS_TIMEOUT) {
		error = (struct error){0};
		status = exogpu_wait(device->stream, step->point, WAIT_NS, &error);
	}
	if (status && !step->call->error.status)
		step->call->error = error;
	driver_told(session, step->call, status);
	finish(session, device);
}

void driver_room(struct session *session, struct worker_device *device)
{
	while (device->step_count == LIMIT_WORKER_STEPS)
		driver_finish_oldest(session, device);
}

void driver_drain(struct session *session, struct worker_device *device)
{
	while (device->step_count)
		driver_finish_oldest(session, device);
}

void driver_step(struct session *session, struct worker_device *device, const struct step *given)
{
	struct step step = *given;
	enum status status = exogpu_mark(device->stream, &step.point, &step.call->error);
	// Without a mark the work cannot be waited for, and its memory would be reused too early.
	driver_told(session, step.call, status ? STATUS_DEVICE_LOST : STATUS_OK);
	pthread_mutex_lock(&session->lock);
	device->steps[(device->first_step + device->step_count) % LIMIT_WORKER_STEPS] = step;
	// The time limit begins when the call is the oldest; for a transfer whose first step is the oldest already, it
	// continues.
	if (device->step_count && device->steps[device->first_step].call != step.call)
		step.call->deadline_ns = 0;
	device->step_count++;
	session->step_count++;
	session->current = NULL;
	pthread_mutex_unlock(&session->lock);
}

static void finish_reached(struct session *session)
{
	for (unsigned i = 0; session->step_count && i < session->device_end; i++) {
		struct worker_device *device = session->devices[i];
		uint64_t reached = 0;
		if (!device || !device->step_count)
			continue;
		struct call *call = device->steps[device->first_step].call;
		driver_told(session, call, exogpu_reached(device->stream, &reached, &call->error));
		while (device->step_count && device->steps[device->first_step].point <= reached &&
		       (!session->message_open || session->open_device == device))
			finish(session, device);
	}
}

// No call has come and no point is reached: wait a little for the step of the oldest call.
static void wait_a_little(struct session *session)
{
	struct worker_device *oldest = session->message_open ? session->open_device : NULL;
	for (unsigned i = 0; !session->message_open && i < session->device_end; i++) {
		struct worker_device *device = session->devices[i];
		if (device && device->step_count &&
		    (!oldest || device->steps[device->first_step].call->arrived_ns <
					oldest->steps[oldest->first_step].call->arrived_ns))
			oldest = device;
	}
	if (!oldest)
		return;
	const struct step *step = &oldest->steps[oldest->first_step];
	struct error error = {0};
	enum status status = exogpu_wait(oldest->stream, step->point, WAIT_NS, &error);
	if (status && status != STATUS_TIMEOUT && !step->call->error.status)
		step->call->error = error;
	driver_told(session, step->call, status);
}

// ---- devices ----

static enum status make_pool(struct exogpu_device *device, struct pool *pool, unsigned pieces, struct error *error)
{
	enum status status = exogpu_buffer_create(device, &pool->memory, (uint64_t)pieces * LIMIT_WORKER_PIECE_BYTES,
						  EXOGPU_MEMORY_HOST, error);
	if (status)
		return status;
	pool->bytes = exogpu_buffer_pointer(pool->memory);
	for (pool->count = 0; pool->count < pieces; pool->count++)
		pool->free[pool->count] = (int)(pieces - 1 - pool->count);
	return STATUS_OK;
}

static void close_device(struct worker_device **device)
{
	if (!*device)
		return;
	exogpu_module_unload(&(*device)->builtin);
	exogpu_stream_destroy(&(*device)->stream);
	exogpu_buffer_destroy(&(*device)->in.memory);
	exogpu_buffer_destroy(&(*device)->out.memory);
	exogpu_buffer_destroy(&(*device)->shared);
	exogpu_device_close(&(*device)->device, NULL);
	free(*device);
	*device = NULL;
}

static struct json *limits_to_json(const struct exogpu_device_limits *limits, uint64_t free_bytes)
{
	static const struct {
		uint32_t bit;
		const char *word;
	} words[] = {{EXOGPU_CAN_ZEROED, "zeroed"},    {EXOGPU_CAN_MAP, "map"},     {EXOGPU_CAN_PEER, "peer"},
		     {EXOGPU_CAN_PTX, "ptx"},          {EXOGPU_CAN_SPIRV, "spirv"}, {EXOGPU_CAN_TIME, "time"},
		     {EXOGPU_CAN_SOFTWARE, "software"}};
	struct json *out = json_new_object(), *capabilities = json_new_array();
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (limits->capabilities & words[i].bit)
			json_push(capabilities, json_new_string(words[i].word));
	json_set(out, "capabilities", capabilities);
	json_set_integer(out, "memory_bytes", (int64_t)limits->memory_bytes);
	json_set_integer(out, "free_bytes", (int64_t)free_bytes);
	json_set_integer(out, "buffer_bytes",
			 (int64_t)(limits->buffer_bytes >> 53 ? 1ull << 53 : limits->buffer_bytes));
	return out;
}

static enum status make_device(struct session *session, const char *hardware_key, struct worker_device **out,
			       struct error *error)
{
	struct worker_device *device = *out = calloc(1, sizeof(*device));
	if (!device)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a device's record");
	struct exogpu_open open = {
		.backend = session->backend, .hardware_key = hardware_key, .cache_directory = session->cache_directory};
	enum status status = exogpu_device_open(&device->device, &open, error);
	fault_escape(backend_kind_parse(session->backend), session->cache_directory);
	if (!status)
		status = exogpu_stream_create(device->device, &device->stream, error);
	if (!status)
		status = make_pool(device->device, &device->in, LIMIT_WORKER_PIECES, error);
	return status ? status : make_pool(device->device, &device->out, PIECES_OUT, error);
}

// Check that a device which waited unused still works.
static enum status check_warm(const struct worker_device *device, struct error *error)
{
	uint64_t point = 0;
	enum status status = exogpu_mark(device->stream, &point, error);
	return status ? status : exogpu_wait(device->stream, point, WARM_NS, error);
}

// The device that this worker opened as a spare, if it is this one.
static struct worker_device *take_warm(struct session *session, const char *hardware_key)
{
	struct worker_device *device = session->warm;
	if (!device || strcmp(session->warm_key, hardware_key) != 0)
		return NULL;
	session->warm = NULL;
	if (check_warm(device, NULL))
		close_device(&device);
	return device;
}

static enum status open_device(struct session *session, struct call *call, struct worker_device **out)
{
	unsigned number = (unsigned)call_count(call, "device");
	const char *key = json_get_string(call->message.params, "hardware_key", "");
	struct error *error = &call->error;
	if (session->devices[number])
		return error_set(error, STATUS_CONFLICT, "device %u is open already", number);
	if (session->device_count == LIMIT_WORKER_DEVICES)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "a worker opens at most %d devices",
				 LIMIT_WORKER_DEVICES);
	*out = take_warm(session, key);
	enum status status = *out ? STATUS_OK : make_device(session, key, out, error);
	if (*out)
		(*out)->number = number;
	return status;
}

// The device's limits, and its free memory now.
static enum status tell_device(const struct worker_device *device, struct json **result, struct error *error)
{
	uint64_t total = 0, unused = 0;
	enum status status = exogpu_device_memory(device->device, &total, &unused, error);
	if (status)
		return status;
	*result = json_new_object();
	json_set(*result, "limits", limits_to_json(exogpu_device_limits(device->device), unused));
	return STATUS_OK;
}

static void answer_device(struct session *session, struct call *call)
{
	struct worker_device *device = NULL;
	struct json *result = NULL;
	enum status status = open_device(session, call, &device);
	if (!status)
		status = tell_device(device, &result, &call->error);
	if (status) {
		error_set(&call->error, status, "%s", status_text(status));
		close_device(&device);
	} else {
		pthread_mutex_lock(&session->lock);
		session->devices[device->number] = device;
		if (session->device_end <= device->number)
			session->device_end = device->number + 1;
		pthread_mutex_unlock(&session->lock);
		session->device_count++;
		memory_import(session, device);
	}
	driver_answer(session, call, result);
}

static void answer_warm(struct session *session, struct call *call)
{
	const char *key = json_get_string(call->message.params, "hardware_key", "");
	struct error *error = &call->error;
	struct json *result = NULL;
	enum status status = STATUS_OK;
	if (!session->warm) {
		snprintf(session->warm_key, sizeof(session->warm_key), "%s", key);
		status = make_device(session, key, &session->warm, error);
	} else if (strcmp(session->warm_key, key) != 0) {
		status = error_set(error, STATUS_CONFLICT, "this worker has opened another device");
	}
	if (!status)
		status = driver_told(session, call, check_warm(session->warm, error));
	if (!status)
		status = tell_device(session->warm, &result, error);
	if (status) {
		error_set(error, status, "%s", status_text(status));
		close_device(&session->warm);
	}
	driver_answer(session, call, result);
}

// ---- the thread ----

static void begin(struct session *session, struct call *call)
{
	if (call->kind == CALL_PIECE) {
		channel_move(session, call);
		return;
	}
	// A refused write has no parts; one that lies in its place already is only answered, as what a channel moved.
	if (call->error.status || call->quiet) {
		driver_answer(session, call, NULL);
		return;
	}
	switch (call->kind) {
	case CALL_UNKNOWN:
		break;
	case CALL_DEVICE:
		watch_enter(session, call);
		answer_device(session, call);
		break;
	case CALL_WARM:
		watch_enter(session, call);
		answer_warm(session, call);
		break;
	case CALL_ALLOCATE:
		memory_allocate(session, call);
		break;
	case CALL_WRITE:
		memory_write(session, call);
		break;
	case CALL_READ:
		memory_read(session, call);
		break;
	case CALL_COPY:
		memory_copy(session, call);
		break;
	case CALL_FILL:
		memory_fill(session, call);
		break;
	case CALL_FREE:
		memory_free(session, call);
		break;
	case CALL_SHARE:
		memory_share(session, call);
		break;
	case CALL_LOAD:
		compute_load(session, call);
		break;
	case CALL_LAUNCH:
		compute_launch(session, call);
		break;
	case CALL_RUN:
		compute_run(session, call);
		break;
	case CALL_UNLOAD:
		compute_unload(session, call);
		break;
	case CALL_SEND:
	case CALL_RECEIVE:
	case CALL_PIECE:
		break;
	}
	watch_return(session);
}

void *driver_main(void *context)
{
	struct session *session = context;
	for (;;) {
		struct call *call = calls_take(session, !session->step_count);
		if (call)
			begin(session, call);
		else if (!session->step_count)
			break;
		finish_reached(session);
		if (!call && session->step_count)
			wait_a_little(session);
	}
	for (unsigned i = 0; i < session->device_end; i++)
		if (session->devices[i])
			driver_drain(session, session->devices[i]);
	compute_drop_modules(session);
	for (unsigned i = 0; i < session->memory_count; i++)
		exogpu_buffer_destroy(&session->memory[i].buffer);
	for (unsigned i = 0; i < session->device_end; i++)
		close_device(&session->devices[i]);
	close_device(&session->warm);
	return NULL;
}
