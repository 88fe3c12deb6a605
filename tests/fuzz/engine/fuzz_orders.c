/* Fuzz target: what a model instance's worker is told by its server, read and begun, and not computed: the reader
 * (engine/worker/instance/instance_reader.c) and the requests that the driver makes of its orders, on one thread,
 * without sockets. fuzz_instance is the whole, with all its threads and what they generate, at a hundredth of the pace.
 *
 * The first byte says how the rest arrives: where its lowest bit is 0, as it is; else as messages that are well framed:
 * each begins with the length of its head, a byte, and its head is one of the calls below where its first byte is under
 * 0x20; a head that ends before a tab has what follows as its body. The other bits say in what pieces it comes. An
 * order has the prompt that its call asks for, what is said is what the contract says, and all that was begun ends. */
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
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout);
int __real_poll(struct pollfd *fds, nfds_t count, int timeout);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __real_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __real_send(int fd, const void *bytes, size_t size, int flags);
void __wrap_instance_put(struct instance *instance, struct order *order);

enum { MOST_INPUT = 16384, STREAM_FD = 1 << 20, NODE_FD, PROMPT_TOKENS = LIMIT_PROMPT_TOKENS };

static const char *const calls[] = {
	"'generate.start','params':{'request':1,'owner':1,'prompt':{'text':'a b c'},'max_tokens':9}",
	"'generate.start','params':{'request':2,'owner':1,'prompt':{'tokens':[1,2,3]},'max_tokens':5,'echo':true}",
	"'generate.start','params':{'request':3,'owner':2,'prompt':{'messages':[{'role':'user','text':'hello'}]},"
	"'max_tokens':20,'stop':['a','e','th']}",
	"'generate.start','params':{'request':4,'owner':0,'prompt':{'text':'abcdefghijklmnopqrstuvwxyz'},'max_tokens':"
	"40,"
	"'ignore_end':true,'sampling':{'temperature':0}}",
	"'generate.start','params':{'request':5,'owner':1,'prompt':{'text':'x'},'max_tokens':4,'sampling':{'logprobs':"
	"true,'top_logprobs':20,'top_k':3,'logit_bias':[{'token':7,'bias':50}],'seed':1}}",
	"'generate.start','params':{'request':6,'owner':1,'prompt':{'text':'a'},'generated':[5,6],'delivered':1}",
	"'generate.cancel','params':{'request':1}",
	"'generate.cancel','params':{'request':4}",
	"'generate.embed','params':{'request':8,'owner':1,'prompt':{'text':'some text'}}",
	"'generate.embed','params':{'request':9,'owner':1,'prompt':{'tokens':[511]}}",
	"'generate.forget','params':{'owner':1}",
	"'generate.start','params':{}",
};
enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

static struct {
	struct contract *contract;
	struct instance *instance;
	const uint8_t *data; // (left): what has not been received
	size_t left, piece;
	struct buffer said; // by the instance, and not looked at
	size_t running;     // requests whose end is to be told
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
		fds[i].revents = fds[i].fd == STREAM_FD ? fds[i].events & (POLLIN | POLLOUT) : 0;
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
	require(!message_decode(&message, frame, length, NULL));
	if (message.kind == MESSAGE_NOTIFICATION) {
		const struct contract_method *method = contract_find(world.contract, message.method);
		require(method && !contract_check_params(world.contract, method, message.params, NULL));
		if (!strcmp(message.method, "generate.end"))
			require(world.running-- > 0);
	} else {
		require(message.kind == MESSAGE_RESULT || message.kind == MESSAGE_ERROR);
		world.running += message.kind == MESSAGE_RESULT && json_get(message.result, "prompt_tokens") &&
				 !json_get(message.result, "embedding");
	}
	message_finish(&message);
}

static void check_said(void)
{
	const uint8_t *frame;
	size_t length, used = 1;
	while (used) {
		require(!message_next(&world.said, &frame, &length, &used));
		if (used)
			check_message(frame, length);
		buffer_consume(&world.said, used);
	}
}

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags)
{
	if (fd != STREAM_FD)
		return __real_send(fd, bytes, size, flags);
	require(!buffer_append(&world.said, bytes, size));
	check_said();
	return (ssize_t)size;
}

// ---- the driver ----

static void check_prompt(const struct order *order)
{
	const struct json *prompt = json_get(order->message.params, "prompt"), *tokens = json_get(prompt, "tokens");
	require(order->prompt.count <= PROMPT_TOKENS + json_count(json_get(order->message.params, "generated")));
	require(order->prompt_count + json_count(json_get(order->message.params, "generated")) == order->prompt.count);
	require(!tokens || json_count(tokens) == order->prompt_count);
}

// As engine/worker/instance/instance_driver.c, for those that the fuzzed server may call.
void __wrap_instance_put(struct instance *instance, struct order *order)
{
	check_prompt(order);
	switch (order->kind) {
	case ORDER_GENERATE:
		request_start(instance, order);
		break;
	case ORDER_EMBED:
		request_embed(instance, order);
		break;
	case ORDER_CANCEL:
		request_cancel(instance, order);
		break;
	case ORDER_FORGET:
		requests_forget(instance, order);
		break;
	case ORDER_UNKNOWN:
	case ORDER_LOAD:
	case ORDER_ADOPT:
	case ORDER_CHECK:
		break;
	}
	order_destroy(&order);
}

// ---- a run ----

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
		const size_t left = size - at - 1, bytes = data[at] < left ? data[at] : left;
		const uint8_t *text = &data[at + 1], *tab = memchr(text, '\t', bytes);
		const size_t head = tab ? (size_t)(tab - text) : bytes;
		if (bytes && text[0] < 0x20 && text[0] != '\t')
			put_call(out, calls[text[0] % CALLS], at);
		else
			message_encode_stream(out, (const char *)text, head, tab ? tab + 1 : NULL,
					      tab ? bytes - head - 1 : 0);
		at += 1 + bytes;
	}
}

static int make_model(void)
{
	struct model_file small = model_file_small();
	size_t length;
	small.layers = 1;
	uint8_t *bytes = model_file_make(&small, &length);
	const int fd = memfd_create("model", MFD_CLOEXEC);
	require(fd >= 0 && write(fd, bytes, length) == (ssize_t)length);
	free(bytes);
	return fd;
}

static void begin_once(void)
{
	static const char load[] = "{\"stages\":[{\"hardware_key\":\"cpu\",\"first_layer\":0,\"layer_count\":1,"
				   "\"host_layers\":0}],\"context_tokens\":128,\"page_count\":6,\"batch_rows\":16,"
				   "\"sequences\":3}";
	struct error error = {0};
	struct json *params = NULL, *result = NULL;
	if (world.instance)
		return;
	log_set_level(LOG_ERROR);
	require(!contract_create(&world.contract, CONTRACT_NODE, NULL));
	buffer_init(&world.said, LIMIT_WORKER_MESSAGE_BYTES);
	const struct instance_params of = {.contract = world.contract,
					   .backend = "cpu",
					   .node_fd = NODE_FD,
					   .stream_fd = STREAM_FD,
					   .model_fd = make_model()};
	require(!instance_create(&world.instance, &of, &error));
	require(!json_parse(&params, load, sizeof load - 1, NULL));
	require(!instance_load(world.instance, params, &result, &error));
	world.instance->loaded = true;
	json_destroy(&params);
	json_destroy(&result);
}

// What the reader had not sent when its stream ended, and what was told since.
static void take_queue(void)
{
	struct buffer *queue = &world.instance->queue;
	require(!buffer_append(&world.said, queue->data, queue->length));
	check_said();
	require(!world.said.length);
	buffer_clear(queue);
	world.instance->unsent = 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error error = {0};
	struct buffer input;
	if (!size || size > MOST_INPUT)
		return 0;
	begin_once();
	buffer_init(&input, MOST_INPUT * 600);
	buffer_append(&input, "", 0);
	if (data[0] & 1)
		frame_calls(&input, data + 1, size - 1);
	else
		buffer_append(&input, data + 1, size - 1);
	require(!input.failed);
	world.data = input.data;
	world.left = input.length;
	world.piece = data[0] >> 1 ? (size_t)8 * (data[0] >> 1) : SIZE_MAX;
	const enum status status = instance_read(world.instance, &error);
	require(!status || (status == STATUS_INVALID_REQUEST && error.message[0] && !(data[0] & 1)));
	requests_cancel(world.instance);
	generator_forget(world.instance->generator, 0);
	require(!world.instance->requests && !world.instance->request_count && !world.instance->token_count);
	take_queue();
	require(!world.running);
	buffer_finish(&input);
	return 0;
}
