/* Fuzz target: the server's end of a model instance's worker, with a small model on the CPU.
 *
 * The first byte says how the rest arrives: as it is, or as messages that are well framed: each begins with the length
 * of its head, a byte, and its head is one of the calls below where its first byte is under 0x20. The instance has
 * loaded its model before and serves until the input ends; then it frees all. What it says must be framed, and be what
 * the contract says. */
#include "common/base/log.h"
#include "engine/worker/instance.h"
#include "tests/tools/model_file.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_INPUT = 16384, QUIET_MS = 20 };

static const char *const calls[] = {
	"'generate.start','params':{'request':1,'owner':1,'prompt':{'text':'a b c'},'max_tokens':9}",
	"'generate.start','params':{'request':2,'owner':1,'prompt':{'tokens':[1,2,3]},'max_tokens':5,'echo':true}",
	"'generate.start','params':{'request':3,'owner':2,'prompt':{'messages':[{'role':'user','text':'hello'}]},"
	"'max_tokens':20,'stop':['a','e','th']}",
	"'generate.start','params':{'request':4,'owner':0,'prompt':{'text':'abcdefghijklmnopqrstuvwxyz "
	"abcdefghijklmnopq'"
	"},'max_tokens':40,'ignore_end':true,'sampling':{'temperature':0}}",
	"'generate.start','params':{'request':5,'owner':1,'prompt':{'text':'x'},'max_tokens':4,'sampling':{'logprobs':"
	"true,'top_logprobs':20,'top_k':3,'logit_bias':[{'token':7,'bias':50}],'seed':1}}",
	"'generate.start','params':{'request':1,'owner':1,'prompt':{'messages':[{'role':'assistant','text':''}]}}",
	"'generate.cancel','params':{'request':1}",
	"'generate.cancel','params':{'request':4}",
	"'generate.embed','params':{'request':8,'owner':1,'prompt':{'text':'some text'}}",
	"'generate.embed','params':{'request':9,'owner':1,'prompt':{'tokens':[511]}}",
	"'instance.load','params':{'stages':[],'context_tokens':1,'page_count':1,'batch_rows':1,'sequences':1}",
};
enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void put_call(struct buffer *out, const char *call, size_t id)
{
	char head[512];
	snprintf(head, sizeof(head), "{'jsonrpc':'2.0','id':%zu,'method':%s}", id, call);
	for (char *one = head; *one; one++)
		*one = *one == '\'' ? '"' : *one;
	message_encode_stream(out, head, strlen(head), NULL, 0);
}

static void frame_calls(struct buffer *out, const uint8_t *data, size_t size)
{
	for (size_t at = 0; at + 2 <= size;) {
		size_t left = size - at - 1, bytes = data[at] < left ? data[at] : left;
		if (bytes && data[at + 1] < 0x20)
			put_call(out, calls[data[at + 1] % CALLS], at);
		else
			message_encode_stream(out, (const char *)&data[at + 1], bytes, NULL, 0);
		at += 1 + bytes;
	}
}

static const struct contract *contract_once(void)
{
	static struct contract *contract;
	if (!contract)
		require(contract_create(&contract, CONTRACT_NODE, NULL) == STATUS_OK);
	return contract;
}

static int model_once(void)
{
	static int fd = -1;
	struct model_file small = model_file_small();
	size_t length;
	if (fd >= 0)
		return fd;
	small.layers = 1;
	uint8_t *bytes = model_file_make(&small, &length);
	fd = memfd_create("model", MFD_CLOEXEC);
	require(fd >= 0 && write(fd, bytes, length) == (ssize_t)length);
	free(bytes);
	return fd;
}

// One message of the instance, which the contract must know.
static void check_message(const uint8_t *frame, size_t length)
{
	struct message message;
	require(!message_decode(&message, frame, length, NULL));
	if (message.kind == MESSAGE_NOTIFICATION) {
		const struct contract_method *method = contract_find(contract_once(), message.method);
		require(method && !contract_check_params(contract_once(), method, message.params, NULL));
	} else {
		require(message.kind == MESSAGE_RESULT || message.kind == MESSAGE_ERROR);
	}
	message_finish(&message);
}

// Read what there is. False once there is nothing more for QUIET_MS, or the other end is closed.
static bool read_some(int fd, struct buffer *in)
{
	uint8_t bytes[65536];
	const uint8_t *frame;
	size_t length, used = 1;
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	if (poll(&wait, 1, QUIET_MS) <= 0)
		return false;
	ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	if (got <= 0)
		return got < 0 && (errno == EINTR || errno == EAGAIN);
	require(!buffer_append(in, bytes, (size_t)got));
	while (used) {
		require(!message_next(in, &frame, &length, &used));
		if (used)
			check_message(frame, length);
		buffer_consume(in, used);
	}
	return true;
}

static void *serve(void *instance)
{
	struct error error = {0};
	instance_read(instance, &error);
	return NULL;
}

// Send all, reading meanwhile, and read until it has gone quiet.
static void drive(int fd, const struct buffer *input, struct buffer *in)
{
	for (size_t sent = 0; sent < input->length;) {
		ssize_t wrote = send(fd, input->data + sent, input->length - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (wrote < 0 && errno == EPIPE)
			break;
		sent += wrote > 0 ? (size_t)wrote : 0;
		if (wrote < 0)
			read_some(fd, in);
	}
	while (read_some(fd, in))
		;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct instance *instance = NULL;
	struct buffer input, in;
	struct error error = {0};
	int node[2], server[2];
	pthread_t reader;
	if (!size || size > MOST_INPUT)
		return 0;
	log_set_level(LOG_ERROR);
	buffer_init(&input, MOST_INPUT * 600);
	buffer_init(&in, LIMIT_WORKER_MESSAGE_BYTES);
	put_call(&input,
		 "'instance.load','params':{'stages':[{'hardware_key':'cpu','first_layer':0,'layer_count':1,"
		 "'host_layers':0}],'context_tokens':128,'page_count':6,'batch_rows':16,'sequences':3}",
		 1);
	require(!socketpair(AF_UNIX, SOCK_STREAM, 0, node) && !socketpair(AF_UNIX, SOCK_STREAM, 0, server));
	const struct instance_params params = {.contract = contract_once(),
					       .backend = "cpu",
					       .node_fd = node[1],
					       .stream_fd = server[1],
					       .model_fd = model_once()};
	require(!instance_create(&instance, &params, &error) && !instance_start(instance, &error));
	require(!pthread_create(&reader, NULL, serve, instance));
	require(send(server[0], input.data, input.length, MSG_NOSIGNAL) == (ssize_t)input.length);
	while (!in.length && !instance_loaded(instance))
		read_some(server[0], &in);
	buffer_clear(&input);
	if (data[0] & 1)
		frame_calls(&input, data + 1, size - 1);
	else
		buffer_append(&input, data + 1, size - 1);
	drive(server[0], &input, &in);
	shutdown(server[0], SHUT_RDWR);
	pthread_join(reader, NULL);
	instance_stop(instance);
	instance_destroy(&instance);
	for (int i = 0; i < 2; i++) {
		close(node[i]);
		close(server[i]);
	}
	buffer_finish(&input);
	buffer_finish(&in);
	return 0;
}
