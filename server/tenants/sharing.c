/* Memory that a worker of this machine shares (common/net/shared.h), for what is read and written. See inside.h.
 *
 * It is asked for once a session has read and written as much as it has, and given back after LIMIT_SHARED_IDLE_MS in
 * which nothing was: a session that moves a little, or that waits, holds none. Whatever stands in the way (the worker
 * finds no memory, the server has no descriptor left to take it with, what came is something else), bulk goes by the
 * stream, and the next try is after such a pause. */
#include "common/base/log.h"
#include "server/tenants/inside.h"

static void on_idle(void *arg);

static void watch(struct arrival *arrival)
{
	arrival->sharing.used = false;
	net_timer_start(arrival->tenants->params.loop, &arrival->sharing.idle, LIMIT_SHARED_IDLE_MS, on_idle, arrival);
}

static bool ask(struct worker *worker, bool wanted);

static void given_back(struct worker_call *call, enum status status, const struct json *result, struct net_frame *body,
		       const struct error *error)
{
	(void)call, (void)status, (void)result, (void)body, (void)error;
}

// The memory comes beside the answer; if it does not, the worker need not keep it.
static void came(struct worker_call *call, enum status status, const struct json *result, struct net_frame *body,
		 const struct error *error)
{
	struct worker *worker = call->context;
	struct arrival *arrival = worker->stream;
	struct error wrong = {0};
	(void)body, (void)error;
	if (!arrival)
		return;
	arrival->sharing.waits = false;
	if (status || !json_get_bool(result, "shared", false))
		return;
	int fd = arrival->line ? arrival->line->take_fd(arrival->line) : -1;
	if (fd < 0)
		error_set(&wrong, STATUS_UNAVAILABLE, "its descriptor did not arrive");
	else if (!net_shared_open(&arrival->sharing.memory, fd, &wrong))
		return;
	log_info("tenants", "worker %s does without shared memory for now: %s", worker->worker_id, wrong.message);
	ask(worker, false);
}

static bool ask(struct worker *worker, bool wanted)
{
	struct worker_call *call = worker_call_create(NULL, wanted ? came : given_back);
	if (!call)
		return false;
	struct json *params = json_new_object();
	json_set_bool(params, "wanted", wanted);
	call->context = worker;
	if (!worker_send(worker, call, &(struct worker_send_params){.method = "memory.share", .params = params}, NULL))
		return true;
	worker_call_destroy(&call);
	return false;
}

static void on_idle(void *arg)
{
	struct arrival *arrival = arg;
	struct sharing *sharing = &arrival->sharing;
	bool busy = sharing->used || sharing->waits || (sharing->memory && net_shared_in_use(sharing->memory));
	if (busy || (sharing->memory && !ask(arrival->worker, false))) {
		watch(arrival);
		return;
	}
	sharing_finish(arrival);
}

struct net_frame *sharing_place(struct worker *worker, size_t bytes, uint64_t *at)
{
	struct arrival *arrival = worker->stream;
	if (bytes < NET_SHARED_LEAST_BYTES || !arrival || !arrival->line || !arrival->line->take_fd)
		return NULL;
	struct sharing *sharing = &arrival->sharing;
	sharing->used = true;
	sharing->bytes += bytes;
	if (sharing->memory)
		return net_shared_take(sharing->memory, bytes, at);
	if (!sharing->asked && sharing->bytes > LIMIT_SHARED_BYTES) {
		sharing->asked = sharing->waits = ask(worker, true);
		if (sharing->asked)
			watch(arrival);
	}
	return NULL;
}

bool sharing_ask(struct worker *worker, struct worker_call *call, const struct net_shared_note *read)
{
	struct arrival *arrival = worker->stream;
	struct sharing *sharing = arrival ? &arrival->sharing : NULL;
	// The worker takes notes first, whatever the stream brings.
	if (!sharing || !sharing->memory || !call->place || worker->rpc.waiting > sharing->noted)
		return false;
	call->worker = worker;
	if (rpc_expect(&worker->rpc,
		       &(struct rpc_ask){.method = "memory.read", .done = worker_call_over, .context = call}))
		return false;
	struct net_shared_note note = *read;
	note.call = (uint64_t)(call->id = worker->rpc.last_id);
	call->noted = true;
	sharing->noted++;
	// Where its queue is full it has enough to read, and looks for notes before it does.
	if (net_shared_put(sharing->memory, &note))
		stream_send(worker, &(struct net_parts){.head = (const uint8_t *)""});
	return true;
}

void sharing_finish(struct arrival *arrival)
{
	net_timer_stop(arrival->tenants->params.loop, &arrival->sharing.idle);
	net_shared_destroy(&arrival->sharing.memory);
	arrival->sharing = (struct sharing){0};
}
