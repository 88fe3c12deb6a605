/* Fuzz target: the stream of a prefix that moves (engine/worker/prefix/prefix.h), at both of its ends, and the calls
 * that begin and end it, with a small model on the CPU.
 *
 * The first byte says which end the instance has (1: it gives, 0: it takes) and how many tokens its taker has (the
 * other bits). Then come moves of the other side, each a byte that says which, and a byte of how much:
 *
 *     0  so many bytes of the input, in a message of its own    4  a call (`calls`)
 *     1  so many bytes of the input, as they are                5  a group of so many pages, well framed
 *     2  the stream's header                                    6  the end of the stream
 *     3  read so many times 256 bytes                           7  close the sending half
 *
 * Afterwards the other side closes, and what the instance owes must come: an answer to prefix.take, an end to each
 * request. Then it must have no move left, hold no page, and have none of which another owner could find anything. */
#include "common/base/bytes.h"
#include "common/base/log.h"
#include "engine/worker/prefix/prefix.h"
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

enum { MOST_INPUT = 8192, PATIENCE_MS = 60000, CONTEXT = 256, PAGES = 8, VOCABULARY = 512, HEADER = 16 };

#define ALPHABETS "abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz "
#define PROMPT "'prompt':{'text':'" ALPHABETS ALPHABETS "'}"
static const char *const calls[] = {
	"'generate.start','params':{'request':1,'owner':1," PROMPT ",'max_tokens':4}",
	"'generate.start','params':{'request':2,'owner':2," PROMPT ",'max_tokens':4}",
	"'generate.start','params':{'request':3,'owner':1," PROMPT ",'counts':true,'cached':true}",
	"'generate.start','params':{'request':4,'owner':1," PROMPT ",'give':'ch','taker_tokens':32}",
	"'prefix.take','params':{'channel':'ch','owner':1}",
	"'prefix.take','params':{'channel':'none','owner':1}",
	"'generate.cancel','params':{'request':9}",
	"'generate.cancel','params':{'request':1}",
	"'generate.forget','params':{'owner':1}",
	"'generate.forget','params':{'owner':0}",
};
enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

static struct {
	struct instance *instance; // serves all inputs
	struct buffer in;
	int node[2], server[2];
	pthread_t reader;
	unsigned owed;         // answers to calls, and ends of requests
	int64_t prompt_tokens; // as the last answer has them
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

static int make_model(void)
{
	struct model_file small = model_file_small();
	size_t length;
	small.layers = 1;
	require(small.vocabulary == VOCABULARY);
	uint8_t *bytes = model_file_make(&small, &length);
	const int fd = memfd_create("model", MFD_CLOEXEC);
	require(fd >= 0 && write(fd, bytes, length) == (ssize_t)length);
	free(bytes);
	return fd;
}

// ---- the server's end ----

// generate.start has an answer, which says whether an end follows.
static void check_message(const uint8_t *frame, size_t length)
{
	struct message message;
	require(!message_decode(&message, frame, length, NULL));
	if (message.kind == MESSAGE_NOTIFICATION) {
		const struct contract_method *method = contract_find(contract_once(), message.method);
		require(method && !contract_check_params(contract_once(), method, message.params, NULL));
		if (!strcmp(message.method, "generate.end"))
			require(world.owed-- > 0);
	} else {
		require(message.kind == MESSAGE_RESULT || message.kind == MESSAGE_ERROR);
		require(world.owed > 0);
		const bool starts = json_get(message.result, "prompt_tokens") &&
				    !json_get(message.result, "cached_tokens");
		const int64_t tokens = json_get_integer(message.result, "tokens", 0),
			      cached = json_get_integer(message.result, "cached_tokens", 0);
		require(tokens >= 0 && tokens <= PAGES * STAGE_PAGE_TOKENS && tokens % STAGE_PAGE_TOKENS == 0);
		require(cached <= PAGES * STAGE_PAGE_TOKENS);
		world.owed -= !starts;
		world.prompt_tokens = json_get_integer(message.result, "prompt_tokens", 0);
	}
	message_finish(&message);
}

// Read what there is, or comes within wait_ms. False: nothing does.
static bool read_some(int wait_ms)
{
	uint8_t bytes[65536];
	const uint8_t *frame;
	size_t length, used = 1;
	struct pollfd wait = {.fd = world.server[0], .events = POLLIN};
	const int ready = poll(&wait, 1, wait_ms);
	if (ready <= 0)
		return ready < 0 && errno == EINTR; // libFuzzer's own alarm
	const ssize_t got = recv(world.server[0], bytes, sizeof(bytes), MSG_DONTWAIT);
	require(got > 0);
	require(!buffer_append(&world.in, bytes, (size_t)got));
	while (used) {
		require(!message_next(&world.in, &frame, &length, &used));
		if (used)
			check_message(frame, length);
		buffer_consume(&world.in, used);
	}
	return true;
}

static void await_all(void)
{
	while (world.owed)
		require(read_some(PATIENCE_MS));
}

static void call(const char *text)
{
	struct buffer out;
	char head[1024];
	snprintf(head, sizeof(head), "{'jsonrpc':'2.0','id':1,'method':%s}", text);
	for (char *one = head; *one; one++)
		*one = *one == '\'' ? '"' : *one;
	buffer_init(&out, sizeof head);
	message_encode_stream(&out, head, strlen(head), NULL, 0);
	world.owed++;
	require(send(world.server[0], out.data, out.length, MSG_NOSIGNAL) == (ssize_t)out.length);
	buffer_finish(&out);
}

static void *serve(void *instance)
{
	struct error error = {0};
	instance_read(instance, &error);
	return NULL;
}

static void begin_once(void)
{
	struct error error = {0};
	if (world.instance)
		return;
	log_set_level(LOG_ERROR);
	buffer_init(&world.in, LIMIT_WORKER_MESSAGE_BYTES);
	require(!socketpair(AF_UNIX, SOCK_STREAM, 0, world.node) && !socketpair(AF_UNIX, SOCK_STREAM, 0, world.server));
	const struct instance_params params = {.contract = contract_once(),
					       .backend = "cpu",
					       .node_fd = world.node[1],
					       .stream_fd = world.server[1],
					       .model_fd = make_model()};
	require(!instance_create(&world.instance, &params, &error) && !instance_start(world.instance, &error));
	require(!pthread_create(&world.reader, NULL, serve, world.instance));
	call("'instance.load','params':{'stages':[{'hardware_key':'cpu','first_layer':0,'layer_count':1,'host_layers':"
	     "0}],"
	     "'context_tokens':256,'page_count':8,'batch_rows':64,'sequences':3}");
	await_all();
	require(prefix_possible(world.instance));
	call(calls[2]);
	await_all();
	require(world.prompt_tokens > 3 * STAGE_PAGE_TOKENS &&
		world.prompt_tokens < CONTEXT - 4); // it is given, and answered
}

// ---- the other end of the channel ----

struct other {
	int fd;
	uint64_t at; // of the stream
};

// As much as is taken at once: what the instance does not read any more need not go.
static void put(struct other *other, const uint8_t *bytes, size_t length)
{
	ssize_t sent = send(other->fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)sent;
}

static void say(struct other *other, const uint8_t *bytes, size_t length)
{
	struct buffer out;
	char head[128];
	snprintf(head, sizeof head, "{\"jsonrpc\":\"2.0\",\"method\":\"copy.data\",\"params\":{\"offset\":%llu}}",
		 (unsigned long long)other->at);
	buffer_init(&out, 1 << 20);
	require(!message_encode_stream(&out, head, strlen(head), bytes, length));
	put(other, out.data, out.length);
	other->at += length;
	buffer_finish(&out);
}

static void say_number(struct other *other, uint32_t number)
{
	uint8_t bytes[4];
	put_u32le(bytes, number);
	say(other, bytes, sizeof bytes);
}

static void say_header(struct other *other)
{
	const uint32_t numbers[] = {PREFIX_VERSION, prefix_layer_count(world.instance),
				    (uint32_t)prefix_page_bytes(world.instance), 0};
	for (int i = 0; i < 4; i++)
		say_number(other, numbers[i]);
}

// The upper half of `count` says that they are bare, and a quarter that a token is none.
static void say_group(struct other *other, uint8_t count)
{
	const uint32_t pages = count % (PREFIX_GROUP_PAGES + 2);
	const bool bare = count & 0x80;
	const size_t tokens = (size_t)pages * STAGE_PAGE_TOKENS * sizeof(uint32_t),
		     length = tokens + (bare ? 0 : pages * prefix_page_bytes(world.instance));
	uint8_t *bytes = calloc(1, length + 1);
	require(bytes != NULL);
	for (size_t i = 0; i < tokens / 4; i++)
		put_u32le(bytes + 4 * i, count & 0x40 ? VOCABULARY + i : (i * 7 + pages) % VOCABULARY);
	say_number(other, bare ? pages | PREFIX_BARE : pages);
	say(other, bytes, length);
	free(bytes);
}

static void hear(const struct other *other, size_t length)
{
	uint8_t bytes[65536];
	if (recv(other->fd, bytes, length < sizeof bytes ? length : sizeof bytes, MSG_DONTWAIT) < 0)
		return; // there is nothing yet
}

static size_t step(struct other *other, const uint8_t *data, size_t size)
{
	const uint8_t much = data[1];
	const size_t bytes = much < size - 2 ? much : size - 2;
	switch (data[0] % 8) {
	case 0:
		say(other, data + 2, bytes);
		return 2 + bytes;
	case 1:
		put(other, data + 2, bytes);
		return 2 + bytes;
	case 2:
		say_header(other);
		break;
	case 3:
		hear(other, (size_t)much * 256);
		break;
	case 4:
		call(calls[much % CALLS]);
		break;
	case 5:
		say_group(other, much);
		break;
	case 6:
		say_number(other, 0);
		break;
	default:
		shutdown(other->fd, SHUT_WR);
	}
	return 2;
}

// Nothing of the move is left: not the move, not a page that is held, not one that a request finds.
static void check_over(void)
{
	struct generator_state state;
	unsigned moves;
	do { // a channel whose call never came goes once its other end has closed and the next one comes
		pthread_mutex_lock(&world.instance->prefixes.lock);
		moves = 0;
		for (const struct prefix_move *one = world.instance->prefixes.list; one; one = one->next)
			moves += one->begun;
		pthread_mutex_unlock(&world.instance->prefixes.lock);
	} while (moves);
	call("'generate.forget','params':{'owner':0}");
	await_all();
	generator_state(world.instance->generator, &state); // the driver has nothing to do
	require(!state.running && !state.waiting && !state.pages_used && !state.pages_cached);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error error = {0};
	struct json *params;
	char text[1024];
	int pair[2];
	if (size < 3 || size > MOST_INPUT)
		return 0;
	begin_once();
	const bool gives = data[0] & 1;
	require(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	snprintf(text, sizeof text, "{\"channel\":\"ch\",\"end\":\"%s\"}", gives ? "out" : "in");
	require(!json_parse(&params, text, strlen(text), &error));
	require(!prefix_channel(world.instance, params, pair[1], &error));
	json_destroy(&params);
	if (gives)
		snprintf(text, sizeof text,
			 "'generate.start','params':{'request':9,'owner':1," PROMPT ",'give':'ch','taker_tokens':%u}",
			 data[0] / 2u);
	call(gives ? text : calls[4]);
	struct other other = {.fd = pair[0]};
	for (size_t at = 1; at + 2 <= size;)
		at += step(&other, data + at, size - at);
	close(pair[0]);
	await_all();
	check_over();
	return 0;
}
