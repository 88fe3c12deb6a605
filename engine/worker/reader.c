/* The reader's thread: the node's calls, the server's calls with their bodies, and the watch. See session.h.
 *
 * From fd 4 it reads a little at a time until a head is whole, decides where the body goes, and receives that in place:
 *
 *   HEAD     until a head is whole
 *   TARGET   a write to an unknown allocation, while a call that may create it is unanswered; a body without
 *            room for it; more calls than LIMIT_WORKER_CALLS: nothing is read until the driver wakes the reader
 *   PIECES   into pieces of host memory of the device; each full piece is queued
 *   PLACE    straight into memory that the processor computes with, or into a module's
 *   DISCARD  the body of a call that is refused
 *
 * The bytes of a write may be in shared memory instead of following its head: they are copied from there to the same
 * places. Reads can also be requested by doorbells in that memory (struct net_shared_note), while no other call is in
 * progress. The reader looks for doorbells before each head and before it sleeps, and an empty message wakes it. A
 * malformed head gets an error as its answer and is skipped; impossible lengths end the session. */
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "engine/pool.h"
#include "engine/worker/fault.h"
#include "engine/worker/session.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	READ_BYTES = 4096,         // of heads; what of a body comes with them is copied
	READS_AT_ONCE = 16,        // of fd 4, before fd 3 is looked at
	TICK_MS = 20,              // of the watch
	CALL_BYTES_PER_MS = 50000, // how much longer a call may take that moves bytes
	LENGTHS_BYTES = 8,
	LOOK_NS = 50 * 1000,
	LOOK_PROCESSORS = 4, // the server, the client and the driver have one each
};

enum receiving { RECEIVING_HEAD, RECEIVING_TARGET, RECEIVING_PIECES, RECEIVING_PLACE, RECEIVING_DISCARD };

struct reader {
	struct session *session;
	struct buffer in; // of fd 4, not used yet
	enum receiving receiving;
	struct call *call;         // whose body comes; its message is its own
	uint64_t left;             // of the body
	uint64_t received;         // of the body
	uint8_t *place;            // PLACE: where the next byte goes; PIECES: the current piece
	struct call *part;         // PIECES: what the current piece belongs to, or NULL
	struct net_shared *source; // where the body lies, and
	const uint8_t *from;       // the next byte of it; NULL, both: it comes
	bool looks;                // there is a processor to look for notes with
	int64_t looked_ns;         // when there was one last
};

// How much longer a call may take that moves so many bytes. A note may say any number.
static int64_t moving_ns(uint64_t bytes)
{
	const uint64_t most = UINT64_C(1) << 53; // as numbers of a message
	return (int64_t)((bytes < most ? bytes : most) / CALL_BYTES_PER_MS) * 1000000;
}

// ---- the server's calls ----

static const struct {
	const char *method;
	enum call_kind kind;
} methods[] = {
	{"memory.allocate", CALL_ALLOCATE}, {"memory.write", CALL_WRITE},    {"memory.read", CALL_READ},
	{"memory.copy", CALL_COPY},         {"memory.fill", CALL_FILL},      {"memory.free", CALL_FREE},
	{"compute.load", CALL_LOAD},        {"compute.launch", CALL_LAUNCH}, {"compute.unload", CALL_UNLOAD},
	{"memory.share", CALL_SHARE},       {"memory.send", CALL_SEND},      {"memory.receive", CALL_RECEIVE},
	{"compute.run", CALL_RUN},
};

// The method's kind, after its parameters have been checked.
static enum status check(struct session *session, const struct message *message, enum call_kind *kind,
			 struct error *error)
{
	*kind = CALL_UNKNOWN;
	if (message->kind != MESSAGE_REQUEST)
		return error_set(error, STATUS_INVALID_REQUEST, "a worker answers requests only");
	const struct contract_method *method = contract_find(session->contract, message->method);
	if (!method || !method->direction || strcmp(method->direction, "server-to-worker") != 0)
		return error_set(error, STATUS_METHOD_NOT_FOUND, "a session's worker has no method %.64s here",
				 message->method);
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		if (!strcmp(methods[i].method, method->name))
			*kind = methods[i].kind;
	return contract_check_params(session->contract, method, message->params, error);
}

// Here and now: a write that lies in its place, a read from memory of the processor to shared memory, a refusal, if no
// other call is before it.
static bool answer_here(struct session *session, struct call *call)
{
	if (calls_count(session) || call->read.call || (!call->quiet && call->kind != CALL_READ))
		return false;
	const struct net_shared_note *read = &call->read;
	const uint8_t *from = call->quiet ? NULL : memory_direct(session, read->handle, read->offset, read->bytes);
	if (from)
		call->total_bytes = read->bytes;
	return (call->quiet || from) && answer_at_once(session, call, from);
}

static void drop_source(struct reader *reader)
{
	if (!reader->source)
		return;
	pthread_mutex_lock(&reader->session->lock);
	net_shared_destroy(&reader->source);
	pthread_mutex_unlock(&reader->session->lock);
	reader->from = NULL;
}

// The bytes of this write are in shared memory.
static enum status find_source(struct reader *reader)
{
	struct session *session = reader->session;
	struct call *call = reader->call;
	const uint64_t at = call_count(call, "at"), bytes = call_count(call, "bytes");
	pthread_mutex_lock(&session->lock);
	reader->from = session->shared && !reader->left ? net_shared_at(session->shared, at, bytes) : NULL;
	reader->source = reader->from ? net_shared_ref(session->shared) : NULL;
	pthread_mutex_unlock(&session->lock);
	if (!reader->from)
		return error_set(&call->error, STATUS_INVALID_PARAMS, "at: no memory is shared there");
	reader->left = bytes;
	return STATUS_OK;
}

static void put(struct reader *reader)
{
	struct call *call = reader->call;
	reader->call = NULL;
	reader->receiving = RECEIVING_HEAD;
	drop_source(reader);
	if (answer_here(reader->session, call))
		call_destroy(&call);
	else
		calls_put(reader->session, call);
}

static void refuse(struct reader *reader)
{
	reader->call->quiet = true;
	reader->receiving = RECEIVING_DISCARD;
	if (reader->source)
		reader->left = 0;
}

// A head is whole: make its call. Errors: STATUS_OUT_OF_MEMORY.
static enum status begin_call(struct reader *reader, const uint8_t *head, size_t head_bytes, struct error *error)
{
	struct call *call = reader->call = call_create(CALL_UNKNOWN);
	if (!call)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a call");
	enum status status = message_decode_text(&call->message, (const char *)head, head_bytes, &call->error);
	if (!status)
		status = check(reader->session, &call->message, &call->kind, &call->error);
	if (!status && reader->left && call->kind != CALL_WRITE && call->kind != CALL_LOAD)
		status = error_set(&call->error, STATUS_INVALID_PARAMS, "%s takes no body", call->message.method);
	if (!status && call->kind == CALL_WRITE && json_get(call->message.params, "at"))
		status = find_source(reader);
	if (!status && call->kind == CALL_RUN)
		status = compute_check_run(call);
	if (!status && call->kind == CALL_READ) {
		call->placed = json_get(call->message.params, "at");
		call->read = (struct net_shared_note){.handle = call_count(call, "handle"),
						      .offset = call_count(call, "offset"),
						      .bytes = call_count(call, "bytes"),
						      .at = call_count(call, "at")};
	}
	reader->received = 0;
	call->total_bytes = reader->left;
	// compute.run sets its own, when all is there for its kernel.
	if (!status && call->kind == CALL_LAUNCH)
		call->limit_ns = (int64_t)call_count(call, "timeout_ms") * 1000000;
	uint64_t moved = call->kind == CALL_WRITE ? call->total_bytes : call_count(call, "bytes");
	if (call->kind != CALL_LAUNCH)
		call->limit_ns += moving_ns(moved);
	reader->receiving = RECEIVING_TARGET;
	if (status)
		refuse(reader);
	return STATUS_OK;
}

// ---- reads that notes ask for ----

static struct net_shared *hold_shared(struct session *session)
{
	pthread_mutex_lock(&session->lock);
	struct net_shared *shared = session->shared ? net_shared_ref(session->shared) : NULL;
	pthread_mutex_unlock(&session->lock);
	return shared;
}

static void let_go(struct session *session, struct net_shared **shared)
{
	pthread_mutex_lock(&session->lock);
	net_shared_destroy(shared);
	pthread_mutex_unlock(&session->lock);
}

// A call as if its message had come.
static enum status begin_noted(struct reader *reader, const struct net_shared_note *note, struct error *error)
{
	struct call *call = reader->call = call_create(CALL_READ);
	if (!call)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a call");
	struct json *id = json_new_integer((int64_t)note->call); // of an error's answer
	call->message = (struct message){.kind = MESSAGE_REQUEST, .head = id, .id = id};
	call->read = *note;
	call->placed = true;
	call->limit_ns += moving_ns(note->bytes);
	reader->left = reader->received = 0;
	reader->receiving = RECEIVING_TARGET;
	return STATUS_OK;
}

// Answer the doorbells that can be answered at once, up to the first that must be queued: then *more is set. At most
// NET_SHARED_NOTES are taken before the stream is read again; calls of the node are served in between.
static enum status take_notes(struct reader *reader, bool *more, struct error *error)
{
	struct session *session = reader->session;
	struct net_shared_note note;
	enum status status = STATUS_OK;
	struct net_shared *shared = hold_shared(session);
	*more = false;
	for (int i = 0; shared && !*more && i < NET_SHARED_NOTES && net_shared_get(shared, &note); i++) {
		reader->looked_ns = reader->looks ? clock_steady_ns() : 0;
		const uint8_t *from = calls_count(session)
					      ? NULL
					      : memory_direct(session, note.handle, note.offset, note.bytes);
		*more = !from || !answer_note(session, shared, &note, from);
		if (*more)
			status = begin_noted(reader, &note, error);
	}
	if (shared)
		let_go(session, &shared);
	return status;
}

// Before the reader sleeps: whether a doorbell has been rung already; otherwise the next one will wake it. Shortly
// after a doorbell the reader polls for the next one, because waking it costs both sides more; this needs a spare
// processor.
static bool is_noted(struct reader *reader)
{
	struct net_shared *shared = reader->receiving == RECEIVING_HEAD ? hold_shared(reader->session) : NULL;
	int64_t now_ns = shared && reader->looks ? clock_steady_ns() : 0;
	const int64_t until_ns = reader->looked_ns + LOOK_NS;
	while (now_ns && now_ns < until_ns && !net_shared_noted(shared))
		now_ns = clock_steady_ns();
	const bool noted = shared && !net_shared_wait(shared);
	if (shared)
		let_go(reader->session, &shared);
	return noted;
}

// ---- bodies ----

// Find the target of a write. False while its allocation may still be created.
static bool write_target(struct reader *reader)
{
	struct session *session = reader->session;
	struct call *call = reader->call;
	bool decided = true;
	call->handle = (uint32_t)call_count(call, "handle");
	call->to_offset = call_count(call, "offset");
	pthread_mutex_lock(&session->lock);
	const struct memory_slot *slot = memory_find(session, call->handle);
	if (!slot && session->loud_count > session->piece_count) {
		session->reader_waits = true;
		decided = false;
	} else if (!slot) {
		error_set(&call->error, STATUS_NOT_FOUND, "handle: there is no allocation %u here", call->handle);
	} else if (!memory_check_range(slot, call->to_offset, call->total_bytes, &call->error)) {
		call->device = slot->device->number;
		reader->place = slot->direct && !session->loud_count ? slot->direct + call->to_offset : NULL;
	}
	pthread_mutex_unlock(&session->lock);
	if (!decided)
		return false;
	if (call->error.status) {
		refuse(reader);
	} else if (reader->place) {
		call->quiet = true;
		reader->receiving = RECEIVING_PLACE;
	} else {
		reader->receiving = RECEIVING_PIECES;
	}
	return true;
}

static bool module_target(struct reader *reader)
{
	struct call *call = reader->call;
	call->module_bytes = reader->left;
	call->module = reader->place = malloc(reader->left);
	reader->receiving = RECEIVING_PLACE;
	if (!call->module) {
		error_set(&call->error, STATUS_OUT_OF_MEMORY, "no memory for a module of %llu bytes",
			  (unsigned long long)reader->left);
		refuse(reader);
	}
	return true;
}

// Decide where the body goes; false: not yet.
static bool find_target(struct reader *reader)
{
	struct session *session = reader->session;
	pthread_mutex_lock(&session->lock);
	// A module is received only if no other call is queued, so that few modules are in memory; pieces of copies do
	// not count, because more of them always come.
	bool full = session->call_count >= LIMIT_WORKER_CALLS ||
		    (reader->call->kind == CALL_LOAD && reader->left && session->call_count > session->piece_count);
	session->reader_waits |= full;
	pthread_mutex_unlock(&session->lock);
	if (full)
		return false;
	if (reader->call->kind == CALL_WRITE)
		return write_target(reader);
	if (reader->left)
		return module_target(reader);
	if (reader->call->kind == CALL_SEND || reader->call->kind == CALL_RECEIVE) {
		struct call *call = reader->call;
		reader->call = NULL;
		reader->receiving = RECEIVING_HEAD;
		channel_call(session, call);
		return true;
	}
	put(reader);
	return true;
}

// A piece to receive into; false: all are in use.
static bool take_piece(struct reader *reader, struct error *error)
{
	struct session *session = reader->session;
	struct call *call = reader->call;
	bool last = reader->left <= LIMIT_WORKER_PIECE_BYTES;
	int piece = NO_PIECE;
	pthread_mutex_lock(&session->lock);
	struct worker_device *device = session->devices[call->device];
	if (device->in.count)
		piece = device->in.free[--device->in.count];
	session->reader_waits |= piece == NO_PIECE;
	pthread_mutex_unlock(&session->lock);
	if (piece == NO_PIECE)
		return false;
	struct call *part = last ? call : call_create(CALL_WRITE);
	if (!part) {
		error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a call");
		return false;
	}
	part->handle = call->handle;
	part->device = call->device;
	part->to_offset = call->to_offset;
	part->total_bytes = call->total_bytes;
	part->limit_ns = call->limit_ns;
	part->offset = reader->received;
	part->bytes = last ? reader->left : LIMIT_WORKER_PIECE_BYTES;
	part->piece = piece;
	reader->part = part;
	reader->place = device->in.bytes + (size_t)piece * LIMIT_WORKER_PIECE_BYTES;
	return true;
}

// How many bytes of the body may be received now, and where to.
static size_t room(struct reader *reader, uint8_t scratch[READ_BYTES], uint8_t **to, struct error *error)
{
	*to = reader->place;
	switch (reader->receiving) {
	case RECEIVING_HEAD:
	case RECEIVING_TARGET:
		break;
	case RECEIVING_PIECES:
		if (!reader->part && !take_piece(reader, error))
			break;
		*to = reader->place;
		return reader->part->offset + reader->part->bytes - reader->received;
	case RECEIVING_PLACE:
		return reader->left;
	case RECEIVING_DISCARD:
		*to = scratch;
		return reader->left < READ_BYTES ? reader->left : READ_BYTES;
	}
	return 0;
}

// `bytes` of the body have come to where they belong.
static void came(struct reader *reader, size_t bytes)
{
	reader->received += bytes;
	reader->left -= bytes;
	if (reader->receiving != RECEIVING_DISCARD)
		reader->place += bytes;
	struct call *part = reader->part;
	if (part && reader->received == part->offset + part->bytes) {
		reader->part = NULL;
		if (part != reader->call)
			calls_put(reader->session, part);
	}
	if (!reader->left)
		put(reader);
}

// A whole head in `in`: begin its call. *more: it was there. Errors: STATUS_INVALID_REQUEST (lengths that cannot be).
static enum status next_head(struct reader *reader, bool *more, struct error *error)
{
	struct buffer *in = &reader->in;
	*more = false;
	if (in->length < LENGTHS_BYTES)
		return STATUS_OK;
	uint64_t total = read_u32le(in->data), head = read_u32le(in->data + 4);
	if (total < 4 || head > LIMIT_HEAD_BYTES || head > total - 4 || total - 4 - head > LIMIT_BODY_BYTES)
		return error_set(error, STATUS_INVALID_REQUEST, "no message has %llu bytes and a head of %llu",
				 (unsigned long long)total, (unsigned long long)head);
	if (in->length - LENGTHS_BYTES < head)
		return STATUS_OK;
	*more = true;
	if (total == 4 && !head) { // it only wakes: there is a note
		buffer_consume(in, LENGTHS_BYTES);
		return STATUS_OK;
	}
	reader->left = total - 4 - head;
	enum status status = begin_call(reader, in->data + LENGTHS_BYTES, head, error);
	buffer_consume(in, LENGTHS_BYTES + head);
	return status;
}

// Use the bytes in `in`. *receive: more can be read from fd 4.
static enum status advance(struct reader *reader, bool *receive, struct error *error)
{
	uint8_t scratch[READ_BYTES], *to;
	enum status status = STATUS_OK;
	bool more = true;
	while (!status && more) {
		*receive = true;
		if (reader->receiving == RECEIVING_HEAD) {
			status = take_notes(reader, &more, error); // doorbells are older than messages of the stream
			if (!status && !more)
				status = next_head(reader, &more, error);
		} else if (reader->receiving == RECEIVING_TARGET) {
			*receive = more = find_target(reader);
		} else if (!reader->left && reader->receiving != RECEIVING_PIECES) {
			put(reader);
		} else {
			size_t bytes = room(reader, scratch, &to, error);
			status = error->status;
			if (!bytes && !reader->part) {
				*receive = more = false;
				break;
			}
			size_t have = reader->from || bytes < reader->in.length ? bytes : reader->in.length;
			more = have || !bytes;
			if (have)
				memcpy(to, reader->from ? reader->from : reader->in.data, have);
			if (reader->from)
				reader->from += have;
			else
				buffer_consume(&reader->in, have);
			if (more)
				came(reader, have);
		}
	}
	return status;
}

// Receive once. *received: something came, and there may be more. Errors: STATUS_UNAVAILABLE: the stream is at its end.
static enum status receive(struct reader *reader, bool *received, struct error *error)
{
	uint8_t scratch[READ_BYTES], *to;
	bool body = reader->receiving != RECEIVING_HEAD;
	size_t bytes = body ? room(reader, scratch, &to, error) : READ_BYTES;
	if (!body && buffer_reserve(&reader->in, READ_BYTES))
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a message");
	if (!body)
		to = scratch;
	ssize_t got = recv(reader->session->stream_fd, to, bytes, MSG_DONTWAIT);
	*received = body ? got > 0 : got == READ_BYTES;
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return STATUS_OK;
	if (got <= 0)
		return STATUS_UNAVAILABLE;
	if (body)
		came(reader, (size_t)got);
	else
		buffer_append(&reader->in, scratch, (size_t)got);
	return STATUS_OK;
}

static enum status serve_server(struct reader *reader, bool *receive_more, struct error *error)
{
	enum status status = STATUS_OK;
	bool received = true;
	for (int i = 0; !status && received && *receive_more && i < READS_AT_ONCE; i++) {
		status = receive(reader, &received, error);
		if (!status)
			status = advance(reader, receive_more, error);
	}
	return status;
}

enum status reader_run(struct session *session, struct error *error)
{
	struct reader reader = {.session = session,
				.looks = pool_processors(LOOK_PROCESSORS) >= LOOK_PROCESSORS ||
					 fault_injected("look", backend_kind_parse(session->backend))};
	enum status status = STATUS_OK;
	bool can_receive = true;
	buffer_init(&reader.in, LIMIT_HEAD_BYTES + LENGTHS_BYTES + READ_BYTES);
	while (!status) {
		struct pollfd fds[3] = {{.fd = session->node.fd, .events = POLLIN},
					{.fd = session->stream_fd, .events = can_receive ? POLLIN : POLLRDHUP},
					{.fd = session->wake_fd, .events = POLLIN}};
		const bool noted = can_receive && is_noted(&reader);
		int tick = noted ? 0 : calls_count(session) ? TICK_MS : -1;
		if (poll(fds, 3, tick) < 0 && errno != EINTR) {
			status = error_errno(error, STATUS_INTERNAL, errno, "waiting for the sockets");
			break;
		}
		watch_check(session);
		if (fds[0].revents)
			status = node_end_serve(&session->node, false, error);
		if (fds[2].revents & POLLIN) {
			uint64_t times;
			if (read(session->wake_fd, &times, sizeof(times)) == sizeof(times) && !status)
				status = advance(&reader, &can_receive, error);
		}
		if (!status && !can_receive && fds[1].revents & (POLLRDHUP | POLLHUP | POLLERR))
			status = STATUS_UNAVAILABLE;
		if (!status && can_receive && fds[1].revents)
			status = serve_server(&reader, &can_receive, error);
		else if (!status && noted)
			status = advance(&reader, &can_receive, error);
	}
	if (reader.part != reader.call)
		call_destroy(&reader.part);
	call_destroy(&reader.call);
	drop_source(&reader);
	buffer_finish(&reader.in);
	return status == STATUS_UNAVAILABLE ? STATUS_OK : status;
}
