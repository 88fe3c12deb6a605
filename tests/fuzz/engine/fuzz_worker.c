/* Fuzz target: the server's end of a session's worker, with a CPU device and all its threads.
 *
 * The first byte says how the rest arrives: where it is 0, as it is, and where it is 1, with calls for shared memory
 * among them, either of which takes ten times as long; else as messages that are well
 * framed, so that what lies behind the framing is reached, too: each begins with the length of its head and of its
 * body, a byte each, and its head is one of the calls below where its first byte is under 0x20. All that the worker
 * says is framed, and a message. What is well framed ends with a call whose answer says that all was heard; then all
 * that the session has is given back, call by call, and it serves the next input, unless it has gone: another one takes
 * ten times as long. */
#include "common/base/limits.h"
#include "common/base/log.h"
#include "engine/worker/session.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void __wrap_host_memory_read(int64_t *total_bytes, int64_t *available_bytes);

enum { MOST_INPUT = 65536, PATIENCE_MS = 60000, ANSWER_BYTES = 1 << 20 };

static const char *const calls[] = {
	"'memory.allocate','params':{'device':0,'handle':1,'bytes':600000}",
	"'memory.allocate','params':{'device':0,'handle':2,'bytes':77}",
	"'memory.write','params':{'handle':1,'offset':5}",
	"'memory.write','params':{'handle':2,'offset':70}",
	"'memory.read','params':{'handle':1,'offset':1,'bytes':599999}",
	"'memory.read','params':{'handle':2,'offset':0,'bytes':77}",
	"'memory.copy','params':{'from':1,'from_offset':0,'to':2,'to_offset':0,'bytes':77}",
	"'memory.copy','params':{'from':1,'from_offset':0,'to':1,'to_offset':300000,'bytes':300000}",
	"'memory.fill','params':{'handle':1,'offset':3,'bytes':599997,'value':7}",
	"'memory.free','params':{'handle':1}",
	"'memory.free','params':{'handle':2}",
	"'compute.load','params':{'device':0,'module':1,'format':'builtin'}",
	"'compute.load','params':{'device':0,'module':2,'format':'spirv'}",
	"'compute.launch','params':{'module':1,'kernel':'fill_f32','args':[{'handle':1},{'f32':1},{'u64':'1000'}],"
	"'timeout_ms':60000}",
	"'compute.launch','params':{'module':1,'kernel':'sum_f32','args':[{'handle':2},{'handle':1},{'u64':1000}],"
	"'timeout_ms':60000}",
	"'compute.unload','params':{'module':1}",
	"'memory.share','params':{'wanted':true}",
	"'memory.share','params':{'wanted':false}",
	"'memory.write','params':{'handle':1,'offset':5,'bytes':400000,'at':262144}",
	"'memory.write','params':{'handle':2,'offset':70,'bytes':7,'at':16777209}",
	"'memory.read','params':{'handle':1,'offset':1,'bytes':599999,'at':0}",
};

enum { CALLS = sizeof(calls) / sizeof(calls[0]), CALLS_TO_SHARE = 5 }; // the last of them

static void put_call(struct buffer *out, const char *call, size_t id, const uint8_t *body, size_t body_bytes)
{
	char head[512];
	snprintf(head, sizeof(head), "{'jsonrpc':'2.0','id':%zu,'method':%s}", id, call);
	for (char *one = head; *one; one++)
		*one = *one == '\'' ? '"' : *one;
	message_encode_stream(out, head, strlen(head), body, body_bytes);
}

static void frame_calls(struct buffer *out, size_t call_count, const uint8_t *data, size_t size)
{
	for (size_t at = 0; at + 3 <= size;) {
		size_t head_bytes = data[at], body_bytes = data[at + 1];
		const uint8_t *bytes = &data[at + 2];
		size_t left = size - at - 2;
		head_bytes = head_bytes < left ? head_bytes : left;
		body_bytes = body_bytes < left - head_bytes ? body_bytes : left - head_bytes;
		if (head_bytes && bytes[0] < 0x20)
			put_call(out, calls[bytes[0] % call_count], at, bytes + head_bytes, body_bytes);
		else
			message_encode_stream(out, (const char *)bytes, head_bytes, bytes + head_bytes, body_bytes);
		at += 2 + head_bytes + body_bytes;
	}
}

static struct {
	struct session *session; // NULL: the next input begins one
	struct buffer in;
	int node[2], server[2];
	pthread_t reader;
	bool heard_last, ended; // the last call is answered; the session has closed its end
} world;

static void require(bool condition)
{
	if (!condition)
		abort();
}

static const struct contract *contract_once(void)
{
	static struct contract *contract;
	if (!contract)
		require(contract_create(&contract, CONTRACT_NODE, NULL) == STATUS_OK);
	return contract;
}

// worker.device, as the node asks for it, and its answer.
static void open_device(int node)
{
	struct buffer out;
	uint8_t answer[4096];
	ssize_t got;
	buffer_init(&out, 1024);
	put_call(&out, "'worker.device','params':{'device':0,'hardware_key':'cpu'}", 1, NULL, 0);
	require(send(node, out.data, out.length, MSG_NOSIGNAL) == (ssize_t)out.length);
	buffer_finish(&out);
	while ((got = recv(node, answer, sizeof(answer), 0)) < 0 && errno == EINTR)
		; // the fuzzer's own alarm
	require(got > 0);
}

static void *serve(void *session)
{
	struct error error = {0};
	reader_run(session, &error);
	return NULL;
}

static void begin(void)
{
	struct error error = {0};
	if (world.session)
		return;
	log_set_level(LOG_ERROR);
	buffer_init(&world.in, ANSWER_BYTES);
	world.ended = false;
	require(!socketpair(AF_UNIX, SOCK_STREAM, 0, world.node) && !socketpair(AF_UNIX, SOCK_STREAM, 0, world.server));
	const struct session_params params = {.contract = contract_once(),
					      .backend = "cpu",
					      .memory_limit_bytes = 1024 * 1024,
					      .node_fd = world.node[1],
					      .stream_fd = world.server[1]};
	require(!session_create(&world.session, &params, &error) && !session_start(world.session, &error));
	require(!pthread_create(&world.reader, NULL, serve, world.session));
	open_device(world.node[0]);
}

// What is free is looked for in a dozen files, whenever memory is allocated.
void __wrap_host_memory_read(int64_t *total_bytes, int64_t *available_bytes)
{
	*total_bytes = (int64_t)1 << 34;
	*available_bytes = (int64_t)1 << 33;
}

// ---- what the worker says ----

static void check_message(const uint8_t *frame, size_t length)
{
	struct message message;
	if (length == 4 && !memcmp(frame, "\0\0\0\0", 4))
		return; // it only wakes: there is a note
	require(!message_decode(&message, frame, length, NULL));
	if (message.kind == MESSAGE_NOTIFICATION) {
		const struct contract_method *method = contract_find(contract_once(), message.method);
		require(method && !contract_check_params(contract_once(), method, message.params, NULL));
	} else {
		require(message.kind == MESSAGE_RESULT || message.kind == MESSAGE_ERROR);
		world.heard_last |= !strcmp(json_string(message.id, ""), "last");
	}
	message_finish(&message);
}

// Read what there is. False once the other end is closed, or there was nothing for wait_ms.
static bool read_some(int wait_ms)
{
	static uint8_t bytes[65536];
	const uint8_t *frame;
	size_t length, used = 1;
	struct pollfd wait = {.fd = world.server[0], .events = POLLIN};
	const int ready = poll(&wait, 1, wait_ms);
	if (ready <= 0)
		return ready < 0 && errno == EINTR;
	const ssize_t got = recv(world.server[0], bytes, sizeof(bytes), MSG_DONTWAIT);
	world.ended |= !got || (got < 0 && errno != EINTR && errno != EAGAIN);
	if (got <= 0)
		return !world.ended;
	require(!buffer_append(&world.in, bytes, (size_t)got));
	while (used) {
		require(!message_next(&world.in, &frame, &length, &used));
		if (used)
			check_message(frame, length);
		buffer_consume(&world.in, used);
	}
	return true;
}

// Send all, reading meanwhile.
static void say(const struct buffer *input)
{
	for (size_t sent = 0; sent < input->length && !world.ended;) {
		ssize_t wrote = send(world.server[0], input->data + sent, input->length - sent,
				     MSG_NOSIGNAL | MSG_DONTWAIT);
		if (wrote < 0 && errno == EPIPE)
			return;
		sent += wrote > 0 ? (size_t)wrote : 0;
		if (wrote < 0)
			read_some(1);
	}
}

// ---- a run ----

static void say_and_hear(struct buffer *input)
{
	static const char last[] = "{\"jsonrpc\":\"2.0\",\"id\":\"last\",\"method\":\"memory.free\",\"params\":{"
				   "\"handle\":4294967295}}";
	message_encode_stream(input, last, sizeof last - 1, NULL, 0);
	world.heard_last = false;
	say(input);
	while (!world.heard_last && !world.ended)
		require(read_some(PATIENCE_MS));
}

// All that the session has is freed. The driver has answered the last call, and does nothing.
static void give_back(struct buffer *input)
{
	char call[128];
	struct session *session = world.session;
	buffer_clear(input);
	pthread_mutex_lock(&session->lock);
	for (unsigned i = 0; i < session->memory_count; i++) {
		if (!session->memory[i].handle)
			continue;
		snprintf(call, sizeof call, "'memory.free','params':{'handle':%u}", session->memory[i].handle);
		put_call(input, call, i, NULL, 0);
	}
	for (unsigned i = 0; i < LIMIT_MODULES_OF_SESSION; i++) {
		if (!session->modules[i].handle)
			continue;
		snprintf(call, sizeof call, "'compute.unload','params':{'module':%u}", session->modules[i].handle);
		put_call(input, call, i, NULL, 0);
	}
	if (session->shared)
		put_call(input, "'memory.share','params':{'wanted':false}", 0, NULL, 0);
	pthread_mutex_unlock(&session->lock);
	if (input->length)
		say_and_hear(input);
	pthread_mutex_lock(&session->lock);
	require(world.ended || (!session->memory_bytes && !session->shared));
	pthread_mutex_unlock(&session->lock);
}

// The end of the stream ends it with whatever is waiting: give it the time to answer before.
static void end(void)
{
	int unread = 1;
	for (int i = 0; i < 5000 && !world.ended && (unread || calls_count(world.session)); i++) {
		read_some(0);
		usleep(50);
		if (ioctl(world.server[0], SIOCOUTQ, &unread))
			break;
	}
	shutdown(world.server[0], SHUT_RDWR);
	pthread_join(world.reader, NULL);
	session_stop(world.session);
	session_destroy(&world.session);
	for (int i = 0; i < 2; i++) {
		close(world.node[i]);
		close(world.server[i]);
	}
	buffer_finish(&world.in);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buffer input;
	if (!size || size > MOST_INPUT)
		return 0;
	const bool framed = data[0];
	begin();
	buffer_init(&input, MOST_INPUT * 512);
	if (framed) {
		frame_calls(&input, data[0] == 1 ? CALLS : CALLS - CALLS_TO_SHARE, data + 1, size - 1);
		say_and_hear(&input);
		if (!world.ended)
			give_back(&input);
	} else {
		buffer_append(&input, data + 1, size - 1);
		say(&input);
	}
	if (!framed || world.ended)
		end();
	buffer_finish(&input);
	return 0;
}
