/* Fuzz target: the server's end of a session's worker, with a CPU device.
 *
 * The first byte says how the rest arrives: as it is, or as messages that are well framed, so that what lies behind the
 * framing is reached, too: each begins with the length of its head and of its body, a byte each, and its head is one of
 * the calls below where its first byte is under 0x20. The session serves until the input ends, and then frees all. */
#include "common/base/limits.h"
#include "common/base/log.h"
#include "engine/worker/session.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_INPUT = 65536 };

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

static void frame_calls(struct buffer *out, const uint8_t *data, size_t size)
{
	char head[512];
	for (size_t at = 0; at + 3 <= size;) {
		size_t head_bytes = data[at], body_bytes = data[at + 1];
		const uint8_t *bytes = &data[at + 2];
		size_t left = size - at - 2;
		head_bytes = head_bytes < left ? head_bytes : left;
		body_bytes = body_bytes < left - head_bytes ? body_bytes : left - head_bytes;
		if (head_bytes && bytes[0] < 0x20) {
			snprintf(head, sizeof(head), "{'jsonrpc':'2.0','id':%zu,'method':%s}", at,
				 calls[bytes[0] % (sizeof(calls) / sizeof(calls[0]))]);
			for (char *one = head; *one; one++)
				*one = *one == '\'' ? '"' : *one;
			message_encode_stream(out, head, strlen(head), bytes + head_bytes, body_bytes);
		} else {
			message_encode_stream(out, (const char *)bytes, head_bytes, bytes + head_bytes, body_bytes);
		}
		at += 2 + head_bytes + body_bytes;
	}
}

// Send all, and read what is answered meanwhile until the worker's end is closed.
struct server {
	int fd;
	const struct buffer *input;
	struct session *session;
};

static void *send_input(void *context)
{
	const struct server *server = context;
	for (size_t sent = 0; sent < server->input->length;) {
		ssize_t wrote = send(server->fd, server->input->data + sent, server->input->length - sent,
				     MSG_NOSIGNAL);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote <= 0)
			break;
		sent += (size_t)wrote;
	}
	// Give it the time to answer: the end of the stream ends it with whatever is waiting.
	int unread = 1;
	for (int i = 0; i < 5000 && (unread || calls_count(server->session)); i++) {
		usleep(50);
		if (ioctl(server->fd, SIOCOUTQ, &unread))
			break;
	}
	shutdown(server->fd, SHUT_WR);
	return NULL;
}

static void *read_answers(void *context)
{
	static uint8_t bytes[65536];
	const struct server *server = context;
	ssize_t got;
	do
		got = recv(server->fd, bytes, sizeof(bytes), 0);
	while (got > 0 || (got < 0 && errno == EINTR));
	return NULL;
}

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
	static const char head[] =
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"worker.device\",\"params\":{\"device\":0,"
		"\"hardware_key\":\"cpu\"}}";
	struct buffer out;
	buffer_init(&out, sizeof(head) + 8);
	message_encode_stream(&out, head, sizeof(head) - 1, NULL, 0);
	require(send(node, out.data, out.length, MSG_NOSIGNAL) == (ssize_t)out.length);
	buffer_finish(&out);
}

static void *serve(void *session)
{
	struct error error = {0};
	reader_run(session, &error);
	return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct session *session = NULL;
	struct buffer input;
	struct error error = {0};
	int node[2], server[2];
	pthread_t sender, receiver, reader;
	uint8_t answer[4096];
	if (!size || size > MOST_INPUT)
		return 0;
	log_set_level(LOG_ERROR);
	buffer_init(&input, MOST_INPUT * 512);
	if (data[0] & 1)
		frame_calls(&input, data + 1, size - 1);
	else
		buffer_append(&input, data + 1, size - 1);
	require(!socketpair(AF_UNIX, SOCK_STREAM, 0, node) && !socketpair(AF_UNIX, SOCK_STREAM, 0, server));
	const struct session_params params = {.contract = contract_once(),
					      .backend = "cpu",
					      .memory_limit_bytes = 1024 * 1024,
					      .node_fd = node[1],
					      .stream_fd = server[1]};
	require(session_create(&session, &params, &error) == STATUS_OK);
	struct server end = {.fd = server[0], .input = &input, .session = session};
	require(session_start(session, &error) == STATUS_OK);
	require(!pthread_create(&reader, NULL, serve, session));
	open_device(node[0]);
	ssize_t got;
	while ((got = recv(node[0], answer, sizeof(answer), 0)) < 0 && errno == EINTR)
		; // the fuzzer's own alarm
	require(got > 0);
	require(!pthread_create(&receiver, NULL, read_answers, &end));
	require(!pthread_create(&sender, NULL, send_input, &end));
	pthread_join(reader, NULL);
	shutdown(server[1], SHUT_RDWR);
	pthread_join(sender, NULL);
	pthread_join(receiver, NULL);
	session_stop(session);
	session_destroy(&session);
	for (int i = 0; i < 2; i++) {
		close(node[i]);
		close(server[i]);
	}
	buffer_finish(&input);
	return 0;
}
