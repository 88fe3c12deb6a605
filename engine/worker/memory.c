/* memory.* in the driver's thread. See session.h.
 *
 * Ranges, handles and limits are checked here and in the wrapper; the contract has been checked before. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/reserve.h"
#include "engine/worker/fault.h"
#include "engine/worker/session.h"

#include <stdlib.h>
#include <string.h>

enum {
	ACROSS_BYTES = 256 * 1024 * 1024, // of a copy from device to device, waited for at once
	WITHIN_BYTES = 64 * 1024 * 1024,  // of one within a device, in a step: at least,
	WITHIN_STEPS = 16,                // and so many steps at most
	ZEROED_BYTES = 128 * 1024,        // of an allocation that the driver's thread zeroes itself
};

struct memory_slot *memory_find(struct session *session, uint32_t handle)
{
	for (unsigned i = 0; i < session->memory_count; i++)
		if (session->memory[i].handle == handle)
			return &session->memory[i];
	return NULL;
}

static struct memory_slot *slot_of(struct session *session, struct call *call, const char *name, uint64_t handle)
{
	struct memory_slot *slot = memory_find(session, (uint32_t)handle);
	if (!slot)
		error_set(&call->error, STATUS_NOT_FOUND, "%s: there is no allocation %u here", name, (uint32_t)handle);
	return slot;
}

static struct memory_slot *slot_named(struct session *session, struct call *call, const char *name)
{
	return slot_of(session, call, name, call_count(call, name));
}

enum status memory_check_range(const struct memory_slot *slot, uint64_t offset, uint64_t bytes, struct error *error)
{
	if (offset <= slot->bytes && bytes <= slot->bytes - offset)
		return STATUS_OK;
	return error_set(error, STATUS_INVALID_PARAMS, "%llu bytes at %llu are not within the allocation of %llu",
			 (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)slot->bytes);
}

// ---- allocate and free ----

// On a device that is this machine's processor: check that there is memory for the call, beside the memory that other
// calls were promised and may not have touched yet, and beside a reserve for the rest of the machine.
static enum status machine_check(struct call *call, const struct worker_device *device)
{
	uint64_t bytes = call_count(call, "bytes"), awaited = call_count(call, "awaited_bytes"), total, available;
	enum status status = exogpu_device_memory(device->device, &total, &available, &call->error);
	const uint64_t kept = status ? 0 : reserve_bytes(total);
	if (status || (awaited <= available && kept <= available - awaited && bytes <= available - awaited - kept))
		return status;
	error_set(&call->error, STATUS_OUT_OF_MEMORY,
		  "%llu bytes; of this machine's memory %llu are available, of which %llu were just given to others "
		  "and %llu are kept free",
		  (unsigned long long)bytes, (unsigned long long)available, (unsigned long long)awaited,
		  (unsigned long long)kept);
	// Memory of other calls counts until their workers have answered, even if they have touched it already and it
	// is counted twice.
	const bool soon = awaited && kept <= available && bytes <= available - kept;
	error_hint(&call->error,
		   soon ? "ask again in a moment: memory that others were just given may be counted twice until then"
			: "free other memory, or ask for less");
	return STATUS_OUT_OF_MEMORY;
}

static enum status take_memory(struct session *session, struct call *call, struct worker_device *device,
			       struct memory_slot *slot)
{
	const struct exogpu_device_limits *limits = exogpu_device_limits(device->device);
	const uint32_t direct = EXOGPU_CAN_MAP | EXOGPU_CAN_SOFTWARE;
	bool mapped = (limits->capabilities & direct) == direct &&
		      !fault_injected("pieces", backend_kind_parse(session->backend));
	uint64_t limit = session->memory_limit_bytes;
	*slot = (struct memory_slot){
		.handle = (uint32_t)call_count(call, "handle"), .device = device, .bytes = call_count(call, "bytes")};
	if (limit && (slot->bytes > limit || session->memory_bytes > limit - slot->bytes))
		return error_set(&call->error, STATUS_LIMIT_EXCEEDED,
				 "%llu bytes asked, %llu held, at most %llu are allowed",
				 (unsigned long long)slot->bytes, (unsigned long long)session->memory_bytes,
				 (unsigned long long)limit);
	const bool software = limits->capabilities & EXOGPU_CAN_SOFTWARE;
	enum status status = software ? machine_check(call, device) : STATUS_OK;
	if (!status)
		status = exogpu_buffer_create(device->device, &slot->buffer, slot->bytes,
					      mapped ? EXOGPU_MEMORY_MAPPED : EXOGPU_MEMORY_DEVICE, &call->error);
	if (!status && mapped)
		slot->direct = exogpu_buffer_pointer(slot->buffer);
	// Untouched memory of the machine is only promised: Linux would promise it again. So it is touched now.
	if (!status && slot->direct && slot->bytes <= ZEROED_BYTES)
		memset(slot->direct, 0, slot->bytes);
	else if (!status && (software || !(limits->capabilities & EXOGPU_CAN_ZEROED)))
		status = exogpu_fill(device->stream, slot->buffer, 0, slot->bytes, 0, &call->error);
	if (status)
		exogpu_buffer_destroy(&slot->buffer);
	return driver_told(session, call, status);
}

void memory_allocate(struct session *session, struct call *call)
{
	struct worker_device *device = session->devices[call_count(call, "device")];
	struct memory_slot slot, *room = memory_find(session, 0);
	if (!device)
		error_set(&call->error, STATUS_NOT_FOUND, "device %u is not open in this worker",
			  (unsigned)call_count(call, "device"));
	else if (memory_find(session, (uint32_t)call_count(call, "handle")))
		error_set(&call->error, STATUS_CONFLICT, "handle %u is taken", (unsigned)call_count(call, "handle"));
	else if (!room && session->memory_count == LIMIT_ALLOCATIONS_OF_SESSION)
		error_set(&call->error, STATUS_LIMIT_EXCEEDED, "a session holds at most %d allocations",
			  LIMIT_ALLOCATIONS_OF_SESSION);
	if (call->error.status) {
		driver_answer(session, call, NULL);
		return;
	}
	driver_drain(session, device);
	watch_enter(session, call);
	if (take_memory(session, call, device, &slot)) {
		driver_answer(session, call, NULL);
		return;
	}
	pthread_mutex_lock(&session->lock);
	*(room ? room : &session->memory[session->memory_count++]) = slot;
	pthread_mutex_unlock(&session->lock);
	session->memory_bytes += slot.bytes;
	driver_step(session, device, &(struct step){.call = call, .piece = NO_PIECE, .last = true});
}

void memory_free(struct session *session, struct call *call)
{
	struct memory_slot *slot = slot_named(session, call, "handle");
	if (slot) {
		struct memory_slot gone = *slot;
		driver_drain(session, slot->device);
		watch_enter(session, call);
		pthread_mutex_lock(&session->lock);
		*slot = (struct memory_slot){0};
		pthread_mutex_unlock(&session->lock);
		session->memory_bytes -= gone.bytes;
		exogpu_buffer_destroy(&gone.buffer);
		driver_told(session, call, exogpu_device_lost(gone.device->device) ? STATUS_DEVICE_LOST : STATUS_OK);
	}
	driver_answer(session, call, slot ? json_new_object() : NULL);
}

// ---- write and read ----

void memory_write(struct session *session, struct call *call)
{
	struct memory_slot *slot = memory_find(session, call->handle);
	struct worker_device *device = session->devices[call->device];
	bool last = call->message.head;
	if (!call->offset)
		session->write_error = (struct error){0};
	driver_room(session, device);
	watch_enter(session, call);
	enum status status = session->write_error.status;
	if (!status && (!slot || slot->device != device))
		status = error_set(&session->write_error, STATUS_NOT_FOUND, "handle: there is no allocation %u here",
				   call->handle);
	if (!status)
		status = memory_check_range(slot, call->to_offset, call->total_bytes, &session->write_error);
	if (!status && call->bytes)
		status = exogpu_copy(
			device->stream,
			&(struct exogpu_copy){.to = slot->buffer,
					      .from = device->in.memory,
					      .to_offset = call->to_offset + call->offset,
					      .from_offset = (uint64_t)call->piece * LIMIT_WORKER_PIECE_BYTES,
					      .bytes = call->bytes},
			&session->write_error);
	if (status)
		call->error = session->write_error;
	driver_told(session, call, status);
	// A part that failed is a step, too: the piece may be in use, and the answer comes after the parts before it.
	driver_step(session, device, &(struct step){.call = call, .piece = call->piece, .last = last});
}

static void read_pieces(struct session *session, struct call *call, const struct memory_slot *slot)
{
	struct worker_device *device = slot->device;
	struct exogpu_buffer *from = slot->buffer;
	for (uint64_t done = 0; done < call->total_bytes;) {
		uint64_t left = call->total_bytes - done;
		uint64_t bytes = left < LIMIT_WORKER_PIECE_BYTES ? left : LIMIT_WORKER_PIECE_BYTES;
		while (!device->out.count) // all are in steps: the oldest gives one back
			driver_finish_oldest(session, device);
		driver_room(session, device);
		watch_enter(session, call);
		int piece = device->out.free[--device->out.count];
		enum status status = exogpu_copy(
			device->stream,
			&(struct exogpu_copy){.to = device->out.memory,
					      .from = from,
					      .to_offset = (uint64_t)piece * LIMIT_WORKER_PIECE_BYTES,
					      .from_offset = call->read.offset + done,
					      .bytes = bytes},
			&call->error);
		// Once the head may have been sent there is no other way to say that the rest does not come.
		driver_told(session, call, status ? STATUS_DEVICE_LOST : STATUS_OK);
		done += bytes;
		driver_step(session, device,
			    &(struct step){
				    .call = call, .piece = piece, .bytes = bytes, .last = done == call->total_bytes});
		watch_return(session);
	}
}

// The device puts it where it is wanted.
static void read_there(struct session *session, struct call *call, const struct memory_slot *slot)
{
	struct worker_device *device = slot->device;
	driver_room(session, device);
	watch_enter(session, call);
	driver_told(session, call,
		    exogpu_copy(device->stream,
				&(struct exogpu_copy){.to = device->shared,
						      .from = slot->buffer,
						      .to_offset = call->read.at,
						      .from_offset = call->read.offset,
						      .bytes = call->read.bytes},
				&call->error));
	driver_step(session, device, &(struct step){.call = call, .piece = NO_PIECE, .last = true});
}

void memory_read(struct session *session, struct call *call)
{
	const struct net_shared_note *read = &call->read;
	const struct memory_slot *slot = slot_of(session, call, "handle", read->handle);
	call->total_bytes = read->bytes;
	if (slot && call->placed && !(session->shared && net_shared_at(session->shared, read->at, read->bytes)))
		error_set(&call->error, STATUS_INVALID_PARAMS, "at: no memory is shared there");
	if (call->error.status || memory_check_range(slot, read->offset, read->bytes, &call->error)) {
		driver_answer(session, call, NULL);
		return;
	}
	if (call->placed && slot->device->shared && read->bytes) {
		read_there(session, call, slot);
		return;
	}
	if (!slot->direct && call->total_bytes) {
		read_pieces(session, call, slot);
		return;
	}
	driver_drain(session, slot->device);
	while (session->message_open)
		driver_finish_oldest(session, session->open_device);
	answer_call(session, call, NULL, slot->direct ? slot->direct + read->offset : NULL, call->total_bytes);
	calls_remove(session, call);
}

const uint8_t *memory_direct(struct session *session, uint64_t handle, uint64_t offset, uint64_t bytes)
{
	const struct memory_slot *slot = memory_find(session, (uint32_t)handle);
	return slot && slot->direct && !memory_check_range(slot, offset, bytes, NULL) ? slot->direct + offset : NULL;
}

// The processor of this machine copies no faster by an import.
void memory_import(struct session *session, struct worker_device *device)
{
	const uint32_t software = exogpu_device_limits(device->device)->capabilities & EXOGPU_CAN_SOFTWARE;
	const enum backend_kind backend = backend_kind_parse(session->backend);
	exogpu_buffer_destroy(&device->shared);
	if (!session->shared || (software && !fault_injected("import", backend)))
		return;
	struct error refused = {0};
	if (exogpu_buffer_import(device->device, &device->shared, net_shared_at(session->shared, 0, LIMIT_SHARED_BYTES),
				 LIMIT_SHARED_BYTES, &refused) &&
	    !device->refusal_told) {
		log_info("worker", "reads of device %u go by pieces: %s", device->number, refused.message);
		device->refusal_told = true;
	}
}

void memory_share(struct session *session, struct call *call)
{
	for (unsigned i = 0; i < session->device_end; i++)
		if (session->devices[i])
			driver_drain(session, session->devices[i]); // a read may still go there
	watch_enter(session, call);
	for (unsigned i = 0; i < session->device_end; i++)
		if (session->devices[i])
			exogpu_buffer_destroy(&session->devices[i]->shared);
	struct net_shared *made = NULL, *before = session->shared;
	if (json_get_bool(call->message.params, "wanted", false))
		net_shared_create(&made, &session->shared_fd, NULL);
	pthread_mutex_lock(&session->lock);
	session->shared = made;
	net_shared_destroy(&before); // the reader may still take from it, and holds it
	pthread_mutex_unlock(&session->lock);
	for (unsigned i = 0; made && i < session->device_end; i++)
		if (session->devices[i])
			memory_import(session, session->devices[i]);
	struct json *result = json_new_object();
	json_set_bool(result, "shared", session->shared);
	driver_answer(session, call, result);
}

// ---- copy and fill ----

void memory_copied(struct session *session, struct call *call, uint64_t bytes)
{
	int64_t now_ns = clock_steady_ns(), id;
	call->copied_bytes += bytes;
	if (now_ns - call->told_ns < LIMIT_COPY_TELL_MS * 1000000ll || json_integer(call->message.id, &id))
		return;
	struct json *params = json_new_object();
	json_set_integer(params, "call", id);
	json_set_integer(params, "done_bytes", (int64_t)call->copied_bytes);
	if (answer_notice(session, "memory.moved", params))
		call->told_ns = now_ns;
}

// Between two devices. Errors: STATUS_UNAVAILABLE (not directly).
static enum status copy_direct(struct exogpu_stream *stream, const struct exogpu_copy *copy, int64_t limit_ns,
			       struct error *error)
{
	uint64_t point;
	enum status status = exogpu_copy(stream, copy, error);
	if (!status)
		status = exogpu_mark(stream, &point, error);
	return status ? status : exogpu_wait(stream, point, limit_ns, error);
}

// The same through memory of the process: *piece, allocated the first time.
static enum status copy_staged(const struct exogpu_copy *copy, uint8_t **piece, struct error *error)
{
	if (!*piece && !(*piece = malloc(LIMIT_WORKER_STAGE_BYTES)))
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to copy through");
	enum status status = exogpu_read(*piece, copy->from, copy->from_offset, copy->bytes, error);
	return status ? status : exogpu_write(copy->to, copy->to_offset, *piece, copy->bytes, error);
}

static void copy_across(struct session *session, struct call *call, struct worker_device *from,
			struct worker_device *to, struct exogpu_copy *copy)
{
	const uint64_t total = copy->bytes;
	uint8_t *piece = NULL;
	bool direct = false, staged = false;
	enum status status;
	driver_drain(session, from);
	driver_drain(session, to);
	copy->direct = &direct;
	do {
		const uint64_t left = total - call->copied_bytes;
		struct error refused = {0};
		copy->bytes = left < ACROSS_BYTES ? left : ACROSS_BYTES;
		watch_enter(session, call);
		status = staged ? STATUS_UNAVAILABLE : copy_direct(from->stream, copy, call->limit_ns * 2, &refused);
		if (status == STATUS_UNAVAILABLE) {
			staged = true;
			copy->bytes = left < LIMIT_WORKER_STAGE_BYTES ? left : LIMIT_WORKER_STAGE_BYTES;
			status = copy_staged(copy, &piece, &call->error);
		} else if (status) {
			call->error = refused;
		}
		driver_told(session, call, status);
		copy->from_offset += copy->bytes;
		copy->to_offset += copy->bytes;
		watch_return(session);
		if (!status)
			memory_copied(session, call, copy->bytes);
	} while (!status && call->copied_bytes < total);
	free(piece);
	struct json *result = status ? NULL : json_new_object();
	if (result) {
		json_set_integer(result, "bytes", (int64_t)total);
		json_set_string(result, "path", direct && !staged ? "peer" : "staged");
	}
	driver_answer(session, call, result);
}

// Copy in steps, so that progress can be reported; they are few enough for other calls to run meanwhile.
static void copy_within(struct session *session, struct call *call, struct worker_device *device,
			struct exogpu_copy *copy)
{
	const uint64_t total = copy->bytes, even = (total + WITHIN_STEPS - 1) / WITHIN_STEPS;
	const uint64_t most = even < WITHIN_BYTES ? WITHIN_BYTES : even;
	bool last = false;
	for (uint64_t done = 0; !last; done += copy->bytes) {
		copy->bytes = total - done < most ? total - done : most;
		driver_room(session, device);
		watch_enter(session, call);
		enum status status = driver_told(session, call, exogpu_copy(device->stream, copy, &call->error));
		last = status || done + copy->bytes == total;
		driver_step(session, device,
			    &(struct step){.call = call, .piece = NO_PIECE, .bytes = copy->bytes, .last = last});
		watch_return(session);
		copy->from_offset += copy->bytes;
		copy->to_offset += copy->bytes;
	}
}

void memory_copy(struct session *session, struct call *call)
{
	struct memory_slot *from = slot_named(session, call, "from"),
			   *to = from ? slot_named(session, call, "to") : NULL;
	if (!to) {
		driver_answer(session, call, NULL);
		return;
	}
	struct exogpu_copy copy = {.to = to->buffer,
				   .from = from->buffer,
				   .to_offset = call_count(call, "to_offset"),
				   .from_offset = call_count(call, "from_offset"),
				   .bytes = call_count(call, "bytes")};
	enum status status = memory_check_range(from, copy.from_offset, copy.bytes, &call->error);
	if (!status)
		status = memory_check_range(to, copy.to_offset, copy.bytes, &call->error);
	// Check the whole ranges: their pieces may not overlap.
	if (!status && from == to && copy.bytes && copy.from_offset < copy.to_offset + copy.bytes &&
	    copy.to_offset < copy.from_offset + copy.bytes)
		status = error_set(&call->error, STATUS_INVALID_PARAMS, "the two ranges overlap");
	if (status) {
		driver_answer(session, call, NULL);
		return;
	}
	call->told_ns = clock_steady_ns();
	if (from->device == to->device)
		copy_within(session, call, from->device, &copy);
	else
		copy_across(session, call, from->device, to->device, &copy);
}

void memory_fill(struct session *session, struct call *call)
{
	struct memory_slot *slot = slot_named(session, call, "handle");
	uint64_t offset = call_count(call, "offset"), bytes = call_count(call, "bytes");
	if (!slot || memory_check_range(slot, offset, bytes, &call->error)) {
		driver_answer(session, call, NULL);
		return;
	}
	driver_room(session, slot->device);
	watch_enter(session, call);
	driver_told(session, call,
		    exogpu_fill(slot->device->stream, slot->buffer, offset, bytes, (uint8_t)call_count(call, "value"),
				&call->error));
	driver_step(session, slot->device, &(struct step){.call = call, .piece = NO_PIECE, .last = true});
}
