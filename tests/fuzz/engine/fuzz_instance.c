/* Fuzz target: the server's end of a model instance's worker, with a small model on the CPU.
 *
 * The first byte says how the rest arrives: as it is, or as messages that are well framed: each begins with the length
 * of its head, a byte, and its head is one of the calls below where its first byte is under 0x20. The instance has
 * loaded its model before and serves until the input ends; then it frees all. What it says must be framed, and be what
 * the contract says. What is well framed ends with generate.forget, whose answer says that all was heard; then the same
 * instance serves the next input, unless it has gone: loading takes a hundred times as long. */
#include "common/base/log.h"
#include "engine/worker/instance/instance.h"
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

enum { MOST_INPUT = 16384, QUIET_MS = 20, PATIENCE_MS = 5000 };

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

static struct {
	struct instance *instance; // NULL: the next input begins one
	struct buffer in;
	int node[2], server[2];
	pthread_t reader;
	unsigned generating;    // calls that are taken and have not ended
	bool heard_last, ended; // the last call is answered; the instance has closed its end
} world;

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
		if (!strcmp(message.method, "generate.end"))
			require(world.generating-- > 0);
	} else {
		require(message.kind == MESSAGE_RESULT || message.kind == MESSAGE_ERROR);
		world.heard_last |= !strcmp(json_string(message.id, ""), "last");
		world.generating += message.kind == MESSAGE_RESULT && json_get(message.result, "prompt_tokens") &&
				    !json_get(message.result, "embedding");
	}
	message_finish(&message);
}

// Read what there is. False once there is nothing more for wait_ms, or the other end is closed.
static bool read_some(int wait_ms)
{
	uint8_t bytes[65536];
	const uint8_t *frame;
	size_t length, used = 1;
	struct pollfd wait = {.fd = world.server[0], .events = POLLIN};
	const int ready = poll(&wait, 1, wait_ms);
	if (ready <= 0)
		return ready < 0 && errno == EINTR; // libFuzzer's own alarm, every 3 s with -timeout=5
	ssize_t got = recv(world.server[0], bytes, sizeof(bytes), MSG_DONTWAIT);
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

static void *serve(void *instance)
{
	struct error error = {0};
	instance_read(instance, &error);
	return NULL;
}

static void begin(void)
{
	struct buffer load;
	struct error error = {0};
	if (world.instance)
		return;
	log_set_level(LOG_ERROR);
	buffer_init(&load, 1024);
	buffer_init(&world.in, LIMIT_WORKER_MESSAGE_BYTES);
	world.ended = false;
	put_call(&load,
		 "'instance.load','params':{'stages':[{'hardware_key':'cpu','first_layer':0,'layer_count':1,"
		 "'host_layers':0}],'context_tokens':128,'page_count':6,'batch_rows':16,'sequences':3}",
		 1);
	require(!socketpair(AF_UNIX, SOCK_STREAM, 0, world.node) && !socketpair(AF_UNIX, SOCK_STREAM, 0, world.server));
	const struct instance_params params = {.contract = contract_once(),
					       .backend = "cpu",
					       .node_fd = world.node[1],
					       .stream_fd = world.server[1],
					       .model_fd = model_once()};
	require(!instance_create(&world.instance, &params, &error) && !instance_start(world.instance, &error));
	require(!pthread_create(&world.reader, NULL, serve, world.instance));
	require(send(world.server[0], load.data, load.length, MSG_NOSIGNAL) == (ssize_t)load.length);
	while (!instance_loaded(world.instance))
		read_some(QUIET_MS);
	buffer_finish(&load);
}

static void end(void)
{
	shutdown(world.server[0], SHUT_RDWR);
	pthread_join(world.reader, NULL);
	instance_stop(world.instance);
	instance_destroy(&world.instance);
	for (int i = 0; i < 2; i++) {
		close(world.node[i]);
		close(world.server[i]);
	}
	buffer_finish(&world.in);
	world.generating = 0;
}

// Send all, reading meanwhile, and read until it has gone quiet, or all is answered.
static void drive(const struct buffer *input)
{
	for (size_t sent = 0; sent < input->length;) {
		ssize_t wrote = send(world.server[0], input->data + sent, input->length - sent,
				     MSG_NOSIGNAL | MSG_DONTWAIT);
		if (wrote < 0 && errno == EPIPE)
			break;
		sent += wrote > 0 ? (size_t)wrote : 0;
		if (wrote < 0)
			read_some(QUIET_MS);
	}
	while (!(world.heard_last && !world.generating) && read_some(world.heard_last ? PATIENCE_MS : QUIET_MS))
		;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char last[] = "{\"jsonrpc\":\"2.0\",\"id\":\"last\",\"method\":\"generate.forget\",\"params\":{"
				   "\"owner\":0}}";
	struct buffer input;
	if (!size || size > MOST_INPUT)
		return 0;
	const bool framed = data[0] & 1;
	begin();
	buffer_init(&input, MOST_INPUT * 600);
	if (framed)
		frame_calls(&input, data + 1, size - 1);
	else
		buffer_append(&input, data + 1, size - 1);
	if (framed)
		message_encode_stream(&input, last, sizeof last - 1, NULL, 0);
	world.heard_last = false;
	drive(&input);
	require(!world.heard_last || !world.generating || world.ended);
	if (!framed || !world.heard_last || world.ended)
		end();
	buffer_finish(&input);
	return 0;
}
