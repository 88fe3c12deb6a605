/* Fuzz target: what a session's worker is told by its server, read and put into the line, and not done: the reader
 * (engine/worker/reader.c) and the answers (answer.c), on one thread, without sockets and without a device. fuzz_worker
 * is the whole, with all its threads and a device, at a tenth of the pace.
 *
 * The first byte says how the rest arrives: where its lowest bit is 0, as it is; else as messages that are well framed:
 * each begins with the length of its head and of its body, a byte each (of the body times 8 where the head's first byte
 * is odd), and its head is one of the calls below where its first byte is under 0x20, or, where that is 0x1f, a note in
 * the shared memory. The other bits say in what pieces it comes. Handle 1 is memory of a device, handle 2 memory where
 * sockets may write, and there is nothing else. A part of a write lies within its piece and its memory and has the
 * bytes that were sent, each other call is what the contract says, and all that is answered is a message. */
#include "common/base/log.h"
#include "engine/worker/session.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout);
int __real_poll(struct pollfd *fds, nfds_t count, int timeout);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __real_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
void __wrap_calls_put(struct session *session, struct call *call);

enum { MOST_INPUT = 65536, STREAM_FD = 1 << 20, NODE_FD, POOL_PIECES = 2, MEMORY_BYTES = 600000, DIRECT_BYTES = 77 };

static const char *const calls[] = {
	"'memory.allocate','params':{'device':0,'handle':3,'bytes':600000}",
	"'memory.write','params':{'handle':1,'offset':5}",
	"'memory.write','params':{'handle':2,'offset':70}",
	"'memory.write','params':{'handle':1,'offset':599999}",
	"'memory.read','params':{'handle':1,'offset':1,'bytes':599999}",
	"'memory.read','params':{'handle':2,'offset':0,'bytes':77}",
	"'memory.read','params':{'handle':2,'offset':1,'bytes':76,'at':0}",
	"'memory.read','params':{'handle':2,'offset':1,'bytes':7,'at':16777214}",
	"'memory.write','params':{'handle':1,'offset':5,'bytes':400000,'at':262144}",
	"'memory.write','params':{'handle':2,'offset':70,'bytes':7,'at':16777209}",
	"'memory.copy','params':{'from':1,'from_offset':0,'to':2,'to_offset':0,'bytes':77}",
	"'memory.fill','params':{'handle':1,'offset':3,'bytes':599997,'value':7}",
	"'memory.free','params':{'handle':9}",
	"'memory.send','params':{'channel':1,'copy':1,'handle':1,'offset':0,'bytes':77}",
	"'compute.load','params':{'device':0,'module':1,'format':'builtin'}",
	"'compute.load','params':{'device':0,'module':2,'format':'spirv'}",
	"'compute.launch','params':{'module':1,'kernel':'fill_f32','args':[{'handle':1},{'f32':1}],'timeout_ms':60000}",
	"'compute.unload','params':{'module':1}",
	"'memory.share','params':{'wanted':true}",
};
enum { CALLS = sizeof(calls) / sizeof(calls[0]), NOTE = 0x1f };

static struct {
	struct contract *contract;
	struct session *session;
	struct worker_device device;
	struct net_shared *shared, *server_shared; // the worker's end; the server's
	struct net_shared_note notes[8];
	size_t note_count;
	const uint8_t *data; // (left): what has not been received
	size_t left, piece;
	struct buffer said; // by the worker, and not looked at
	uint64_t written;   // of the write whose parts are coming
} world;

static void require(bool condition)
{
	if (!condition)
		abort();
}

// ---- the system ----

int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout)
{
	int ready = 0;
	if (!count || fds[0].fd != NODE_FD)
		return __real_poll(fds, count, timeout);
	for (nfds_t i = 0; i < count; i++) {
		fds[i].revents = fds[i].fd == STREAM_FD ? fds[i].events & POLLIN : 0;
		ready += fds[i].revents != 0;
	}
	require(ready); // else it would wait for nobody
	return ready;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags)
{
	if (fd != STREAM_FD)
		return __real_recv(fd, bytes, size, flags);
	size_t now = world.left < world.piece ? world.left : world.piece;
	now = now < size ? now : size;
	if (now)
		memcpy(bytes, world.data, now);
	world.data += now;
	world.left -= now;
	return (ssize_t)now;
}

static void check_message(const uint8_t *frame, size_t length)
{
	struct message message;
	if (length == 4 && !memcmp(frame, "\0\0\0\0", 4))
		return; // it only wakes: there is a note
	require(!message_decode(&message, frame, length, NULL));
	require(message.kind == MESSAGE_RESULT || message.kind == MESSAGE_ERROR);
	message_finish(&message);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
	const uint8_t *frame;
	size_t length, used = 1;
	ssize_t sent = 0;
	if (fd != STREAM_FD)
		return __real_sendmsg(fd, message, flags);
	for (size_t i = 0; i < message->msg_iovlen; i++) {
		require(!buffer_append(&world.said, message->msg_iov[i].iov_base, message->msg_iov[i].iov_len));
		sent += (ssize_t)message->msg_iov[i].iov_len;
	}
	while (used) {
		require(!message_next(&world.said, &frame, &length, &used));
		if (used)
			check_message(frame, length);
		buffer_consume(&world.said, used);
	}
	return sent;
}

// ---- the driver, which answers each call and does nothing ----

static void check_part(struct call *call)
{
	struct worker_device *device = &world.device;
	require(call->handle == 1 && call->device == 0 && call->bytes <= LIMIT_WORKER_PIECE_BYTES);
	require(call->offset == world.written && call->offset + call->bytes <= call->total_bytes);
	require(call->bytes || !call->total_bytes);
	require(call->to_offset <= MEMORY_BYTES && call->total_bytes <= MEMORY_BYTES - call->to_offset);
	require(call->piece >= 0 && call->piece < POOL_PIECES && device->in.count < POOL_PIECES);
	world.written = call->offset + call->bytes == call->total_bytes ? 0 : world.written + call->bytes;
	device->in.free[device->in.count++] = call->piece;
}

void __wrap_calls_put(struct session *session, struct call *call)
{
	const bool part = call->kind == CALL_WRITE && call->piece != NO_PIECE;
	if (part)
		check_part(call);
	else if (call->kind == CALL_WRITE && !call->error.status)
		require(call->quiet || !call->total_bytes);
	require(!call->module_bytes || (call->kind == CALL_LOAD && call->module));
	require(call->limit_ns > 0);
	if (call->error.status)
		require(call->error.message[0]);
	if (call->message.head)
		answer_call(session, call, NULL, NULL, 0);
	else
		require(part);
	call_destroy(&call);
}

// ---- a run ----

static void put_call(struct buffer *out, const char *call, size_t id, const uint8_t *body, size_t body_bytes)
{
	char head[512];
	snprintf(head, sizeof(head), "{'jsonrpc':'2.0','id':%zu,'method':%s}", id, call);
	for (char *one = head; *one; one++)
		*one = *one == '\'' ? '"' : *one;
	message_encode_stream(out, head, strlen(head), body, body_bytes);
}

// A note that asks for a read, and the empty message that tells of it.
static void put_note(struct buffer *out, const uint8_t *bytes, size_t length)
{
	static const uint8_t bell[8] = {4};
	struct net_shared_note note = {.call = 1, .handle = 2, .bytes = 8};
	memcpy(&note, bytes, length < sizeof note ? length : sizeof note);
	net_shared_put(world.server_shared, &note);
	buffer_append(out, bell, sizeof bell);
}

static void frame_calls(struct buffer *out, const uint8_t *data, size_t size)
{
	static const uint8_t zeros[8 * 255];
	for (size_t at = 0; at + 3 <= size;) {
		size_t head_bytes = data[at], body_bytes = data[at + 1];
		const uint8_t *bytes = &data[at + 2];
		const size_t left = size - at - 2;
		const bool many = bytes[0] < 0x20 && bytes[0] & 1;
		head_bytes = head_bytes < left ? head_bytes : left;
		if (!many)
			body_bytes = body_bytes < left - head_bytes ? body_bytes : left - head_bytes;
		const uint8_t *body = many ? zeros : bytes + head_bytes;
		if (head_bytes && bytes[0] == NOTE)
			put_note(out, bytes + 1, head_bytes - 1);
		else if (head_bytes && bytes[0] < 0x20)
			put_call(out, calls[bytes[0] % CALLS], at, body, many ? body_bytes * 8 : body_bytes);
		else
			message_encode_stream(out, (const char *)bytes, head_bytes, body, body_bytes);
		at += 2 + head_bytes + (many ? 0 : body_bytes);
	}
}

static void begin_once(void)
{
	struct error error = {0};
	int fd = -1;
	if (world.session)
		return;
	log_set_level(LOG_ERROR);
	require(!contract_create(&world.contract, CONTRACT_NODE, NULL));
	buffer_init(&world.said, LIMIT_WORKER_MESSAGE_BYTES);
	const struct session_params params = {
		.contract = world.contract, .backend = "cpu", .node_fd = NODE_FD, .stream_fd = STREAM_FD};
	require(!session_create(&world.session, &params, &error));
	struct session *session = world.session;
	require(!net_shared_create(&world.shared, &fd, &error));
	require(!net_shared_open(&world.server_shared, fd, &error));
	struct worker_device *device = &world.device;
	require((device->in.bytes = malloc((size_t)POOL_PIECES * LIMIT_WORKER_PIECE_BYTES)) != NULL);
	for (device->in.count = 0; device->in.count < POOL_PIECES; device->in.count++)
		device->in.free[device->in.count] = (int)device->in.count;
	session->devices[0] = device;
	session->device_count = session->device_end = 1;
	session->memory[0] = (struct memory_slot){.handle = 1, .device = device, .bytes = MEMORY_BYTES};
	session->memory[1] = (struct memory_slot){.handle = 2, .device = device, .bytes = DIRECT_BYTES};
	require((session->memory[1].direct = calloc(1, DIRECT_BYTES)) != NULL);
	session->memory_count = 2;
	session->shared = world.shared;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error error = {0};
	struct buffer input;
	if (!size || size > MOST_INPUT)
		return 0;
	begin_once();
	buffer_init(&input, MOST_INPUT * 1024);
	buffer_append(&input, "", 0);
	if (data[0] & 1)
		frame_calls(&input, data + 1, size - 1);
	else
		buffer_append(&input, data + 1, size - 1);
	require(!input.failed);
	world.data = input.data;
	world.left = input.length;
	world.piece = data[0] >> 1 ? (size_t)8 * (data[0] >> 1) : SIZE_MAX;
	world.written = 0;
	const enum status status = reader_run(world.session, &error);
	require(!status || (status == STATUS_INVALID_REQUEST && error.message[0]));
	// What was cut off in the middle has given its piece to nobody.
	struct worker_device *device = &world.device;
	for (device->in.count = 0; device->in.count < POOL_PIECES; device->in.count++)
		device->in.free[device->in.count] = (int)device->in.count;
	require(!world.said.length && !world.session->stream_gone);
	for (struct net_shared_note note; net_shared_get(world.shared, &note);)
		;
	for (struct net_shared_note note; net_shared_get(world.server_shared, &note);)
		;
	buffer_finish(&input);
	return 0;
}
