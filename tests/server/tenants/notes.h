/* A session's worker that has come and shares memory, for test_notes.c and tests/fuzz/server/fuzz_notes.c: who includes
 * this is the worker, down to what lies in the memory; the node, and the socket between, are not there. What must be so
 * for either ends the program if it is not. */
#pragma once
#include "common/base/log.h"
#include "server/tenants/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 65536, CALLS = 64 };

static struct {
	struct net_loop *loop;
	struct contract *contract;
	struct tenancy tenants;
	struct tenant tenant;
	struct worker *worker; // NULL once it has ended
	struct arrival *arrival;
	struct line line;
	struct net_shared *shared; // the worker's end
	struct net_shared *kept;   // the server's, where the next worker is to share the same memory; else NULL
	int fd;                    // to be passed
	int64_t last_id;           // of the newest call by the stream
	unsigned bells;            // that the server rang
	enum status told[CALLS];   // PENDING until it is
	bool with_body[CALLS];
} world;

static inline void require(bool condition)
{
	if (!condition)
		abort();
}

// ---- the line ----

static inline enum status line_send(struct line *line, const struct net_parts *parts)
{
	struct message message;
	(void)line;
	if (!parts->head_bytes) {
		world.bells++;
		return STATUS_OK;
	}
	require(!message_decode_text(&message, (const char *)parts->head, parts->head_bytes, NULL));
	require(!json_integer(message.id, &world.last_id));
	message_finish(&message);
	return STATUS_OK;
}

static inline size_t line_queued(const struct line *line)
{
	(void)line;
	return 0;
}

static inline void line_nothing(struct line *line)
{
	(void)line;
}

static inline int line_take_fd(struct line *line)
{
	(void)line;
	int fd = world.fd;
	world.fd = -1;
	return fd;
}

static inline void line_destroy(struct line **line)
{
	*line = NULL;
	world.arrival = NULL;
	world.worker = NULL;
}

static inline void say(const char *text)
{
	arrival_message(world.arrival, &(struct net_parts){.head = (const uint8_t *)text, .head_bytes = strlen(text)});
}

static inline void ring(void)
{
	say("");
}

static inline void answer(int64_t id, const char *result)
{
	char text[256];
	snprintf(text, sizeof text, "{\"jsonrpc\":\"2.0\",\"id\":%lld,\"result\":{%s}}", (long long)id, result);
	say(text);
}

// ---- calls ----

static inline void told(struct worker_call *call, enum status status, const struct json *result, struct net_frame *body,
			const struct error *error)
{
	const size_t which = (size_t)(uintptr_t)call->context;
	(void)result, (void)error;
	require(world.told[which] == STATUS_PENDING); // once
	world.told[which] = status;
	world.with_body[which] = body && body == call->place;
}

// A read into shared memory, as server/tenants/memory.c makes it. Returns whether it was asked for by a note.
static inline bool ask(size_t which, int64_t *id)
{
	uint64_t at = 0;
	struct worker_call *call = worker_call_create(NULL, told);
	require(call != NULL);
	call->context = (void *)(uintptr_t)which;
	call->counts = true;
	call->bytes = call->body_bytes = PIECE;
	require((call->place = sharing_place(world.worker, PIECE, &at)) != NULL);
	world.told[which] = STATUS_PENDING;
	const struct net_shared_note note = {.handle = 7, .offset = which, .bytes = PIECE, .at = at};
	const bool noted = sharing_ask(world.worker, call, &note);
	if (!noted) {
		const struct message_number numbers[] = {{"handle", 7}, {"offset", 0}, {"bytes", PIECE}};
		const struct worker_send_params send = {.method = "memory.read", .numbers = numbers, .number_count = 3};
		require(!worker_send(world.worker, call, &send, NULL));
	}
	*id = call->id;
	return noted;
}

// A call by the stream. Returns its id.
static inline int64_t send_free(size_t which)
{
	struct worker_call *call = worker_call_create(NULL, told);
	call->context = (void *)(uintptr_t)which;
	world.told[which] = STATUS_PENDING;
	struct json *params = json_new_object();
	json_set_integer(params, "handle", 7);
	const struct worker_send_params send = {.method = "memory.free", .params = params};
	require(!worker_send(world.worker, call, &send, NULL));
	return world.last_id;
}

static inline bool done(uint64_t call)
{
	return net_shared_put(world.shared, &(struct net_shared_note){.call = call});
}

// Where the worker finds all that lies behind the blocks: NET_SHARED_ALL_BYTES - LIMIT_SHARED_BYTES.
static inline uint8_t *lanes(void)
{
	return net_shared_at(world.shared, 0, LIMIT_SHARED_BYTES) + LIMIT_SHARED_BYTES;
}

// ---- the worker's life ----

static inline int load(void **state)
{
	(void)state;
	log_set_level(LOG_ERROR);
	return contract_create(&world.contract, CONTRACT_NODE, NULL) || net_loop_create(&world.loop, NULL);
}

// A worker that has come, and shares memory since enough was read.
static inline int set_up(void **state)
{
	static const char key[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
	char hello[256];
	uint64_t at;
	(void)state;
	world.tenants = (struct tenancy){.tenants = &world.tenant,
					 .params = {.loop = world.loop, .contract = world.contract}};
	buffer_init(&world.tenants.text, LIMIT_HEAD_BYTES);
	struct worker *worker = world.worker = calloc(1, sizeof *worker);
	require(worker != NULL);
	world.tenant = (struct tenant){.tenants = &world.tenants, .workers = worker};
	worker->tenants = &world.tenants;
	worker->tenant = &world.tenant;
	worker->last_item = &worker->items;
	worker->opens = json_new_object(); // no node is told of its end
	worker_calls_init(worker, 0);
	snprintf(worker->worker_id, sizeof worker->worker_id, "wrk_1");
	snprintf(worker->key, sizeof worker->key, "%s", key);
	world.line = (struct line){.send = line_send,
				   .queued = line_queued,
				   .pause = line_nothing,
				   .resume = line_nothing,
				   .take_fd = line_take_fd,
				   .destroy = line_destroy};
	require((world.arrival = arrival_create(&world.tenants, &world.line, "", false)) != NULL);
	snprintf(hello, sizeof hello,
		 "{\"jsonrpc\":\"2.0\",\"method\":\"link.hello\",\"params\":{\"worker_id\":\"wrk_1\",\"key\":\"%s\"}}",
		 key);
	say(hello);
	require(world.worker->stream == world.arrival);
	if (world.kept) {
		world.arrival->sharing.asked = true;
		world.arrival->sharing.memory = net_shared_ref(world.kept);
	} else {
		require(!net_shared_create(&world.shared, &world.fd, NULL));
		require(!sharing_place(worker, LIMIT_SHARED_BYTES + 1, &at));
		answer(world.last_id, "\"shared\":true");
		require(world.arrival->sharing.memory != NULL);
	}
	world.bells = 0;
	return 0;
}

static inline int tear_down(void **state)
{
	(void)state;
	if (world.worker)
		worker_lose(world.worker, "the test is over");
	require(!world.arrival && !world.tenant.workers);
	for (size_t i = 0; i < CALLS; i++)
		require(world.told[i] != STATUS_PENDING);
	if (!world.kept)
		net_shared_destroy(&world.shared);
	buffer_finish(&world.tenants.text);
	return 0;
}
