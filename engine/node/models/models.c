/* See models.h. Order of reading: node_models_fetch, begin_next, checked, conn_opened; then models_pieces.c; then end.
 *
 * A fetch has three steps: a job of the thread checks the bytes on disk; then a connection is dialled, over which
 * PIECES calls of model.read are in flight, and a job writes each piece; then a job writes the index. A fetch that
 * fails takes the same last step. A model is fetched by one call at a time; others for the same model wait. While a job
 * of a struct model exists, its files are the thread's. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/longer.h"
#include "engine/node/models/models_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TICK_MS = 250, STALL_MS = 60000, CLOSE_DONE = 1000 };

// ---- the thread ----

static void run(struct job *item)
{
	struct disk_job *job = (struct disk_job *)item;
	struct model_disk *disk = &job->model->disk;
	switch (job->kind) {
	case JOB_OPEN:
		model_disk_open(disk, &job->fetch->wanted, &job->error);
		break;
	case JOB_PUT:
		model_disk_put(disk, &job->piece, net_frame_data(job->bytes), &job->error);
		break;
	case JOB_CLOSE:
		model_disk_close(disk, &job->error);
		break;
	case JOB_FORGET:
		job->freed = model_disk_forget(disk);
		break;
	case JOB_GIVE:
		model_disk_get(disk, &job->piece.at, net_frame_data(job->bytes), &job->error);
		break;
	case JOB_UNKNOWN:
		break;
	}
}

static void deliver(struct outbox_item *item, bool tell);

void node_models_put_job(struct node_models *models, struct disk_job *job)
{
	job->job = (struct job){.item = {.deliver = deliver}, .run = run};
	job->models = models;
	if (job->fetch)
		job->fetch->jobs++;
	jobs_put(models->jobs, &job->job);
}

static void job_free(struct disk_job *job)
{
	net_frame_unref(&job->bytes);
	if (!job->embedded)
		free(job);
}

// ---- the end of a fetch ----

static void release(struct fetch *fetch)
{
	free(fetch->wanted.spans);
	free(fetch->wanted.gaps);
	node_models_cancel_pieces(fetch);
	model_peers_destroy(&fetch->peers);
	free(fetch);
#ifdef __GLIBC__
	malloc_trim(0); // return the memory of the pieces to the system: it counts against placements here
#endif
}

static void answer(struct fetch *fetch)
{
	struct json *result = NULL;
	if (!fetch->error.status) {
		result = json_new_object();
		json_set_integer(result, "fetched_bytes", (int64_t)fetch->fetched);
		json_set_integer(result, "reused_bytes", (int64_t)(fetch->total - fetch->fetched));
		json_set_integer(result, "peer_bytes", (int64_t)fetch->peer_bytes);
		struct json *wrong = model_peers_wrong_json(fetch->peers);
		if (wrong)
			json_set(result, "wrong_peers", wrong);
		if (fetch->fetched)
			log_info("node", "model %s: %llu bytes came from the server, and %llu from other nodes",
				 fetch->model->id, (unsigned long long)(fetch->fetched - fetch->peer_bytes),
				 (unsigned long long)fetch->peer_bytes);
	} else {
		log_warning("node", "model %s was not fetched: %s", fetch->model->id, fetch->error.message);
	}
	uplink_answer(&fetch->call, result, result ? NULL : &fetch->error);
}

// Answer it; it goes when its connection has. Those that wait for its model are begun from the loop.
static void next_may_begin(void *arg);

static void end(struct fetch *fetch)
{
	struct node_models *models = fetch->all;
	struct fetch **at = &models->fetches;
	while (*at != fetch)
		at = &(*at)->next;
	*at = fetch->next;
	if (fetch->begun)
		fetch->model->busy = NULL;
	if (!fetch->error.status)
		fetch->model->fetched = true;
	net_timer_stop(models->params.loop, &fetch->tick);
	answer(fetch);
	fetch->ended = true;
	if (!fetch->dialled)
		release(fetch);
	net_timer_start(models->params.loop, &models->next, 0, next_may_begin, models);
}

// When nothing is in flight any more, begin the last step on the thread.
static void look_whether_over(struct fetch *fetch)
{
	if (!fetch->over || fetch->jobs || fetch->last.kind)
		return;
	fetch->last = (struct disk_job){.kind = JOB_CLOSE, .model = fetch->model, .fetch = fetch, .embedded = true};
	if (fetch->begun)
		node_models_put_job(fetch->all, &fetch->last);
	else
		end(fetch);
}

// The fetch asks for nothing more.
void node_models_finish(struct fetch *fetch)
{
	fetch->over = true;
	node_models_cancel_pieces(fetch);
	if (fetch->conn)
		net_conn_close(fetch->conn, CLOSE_DONE, "that is all");
	look_whether_over(fetch);
}

void node_models_fail(struct fetch *fetch, const struct error *error)
{
	if (!fetch->error.status)
		fetch->error = *error;
	atomic_store(&fetch->given_up, true);
	if (!fetch->over)
		node_models_finish(fetch);
}

static void fail(struct fetch *fetch, enum status status, const char *message)
{
	struct error error = {0};
	error_set(&error, status, "%s", message);
	node_models_fail(fetch, &error);
}

// ---- the connection ----

static void conn_opened(void *user, struct net_conn *conn)
{
	struct fetch *fetch = user;
	fetch->conn = conn;
	if (fetch->over)
		net_conn_close(conn, CLOSE_DONE, "it is no longer needed");
	else
		node_models_ask_more(fetch);
}

static void conn_closed(void *user, struct net_conn *conn, int code)
{
	struct fetch *fetch = user;
	char why[128];
	fetch->conn = NULL;
	fetch->dialled = false;
	rpc_close(&fetch->rpc, NULL);
	snprintf(why, sizeof(why), conn ? "the connection for the model ended (%d)" : NET_NOTHING_ANSWERS, code);
	if (fetch->ended)
		release(fetch);
	else if (!fetch->over)
		fail(fetch, STATUS_UNAVAILABLE, why);
}

static const struct net_handler conn_handler = {
	.opened = conn_opened, .message = node_models_take_answer, .closed = conn_closed};

static void dial(struct fetch *fetch)
{
	struct error error = {0};
	struct net_dial_params params = {.path = "/node",
					 .subprotocol = "exogpu.model.v1",
					 .ping_s = LIMIT_NODE_PING_S,
					 .silence_s = longer_node_silence_s(),
					 .speaks_first = true, // model.read
					 .handler = &conn_handler,
					 .user = fetch};
	fetch->dialled = true;
	node_models_calls_init(fetch);
	enum status status = uplink_dial(fetch->all->params.uplink, &params, &error);
	if (!status || !fetch->dialled)
		return;
	fetch->dialled = false;
	node_models_fail(fetch, &error);
}

// ---- the beginning ----

static void tick(void *arg)
{
	struct fetch *fetch = arg;
	struct node_models *models = fetch->all;
	const uint64_t here = atomic_load(&fetch->here), now = here + fetch->fetched;
	const int64_t now_ms = clock_steady_ms();
	net_timer_start(models->params.loop, &fetch->tick, TICK_MS, tick, fetch);
	if (now != fetch->told || now_ms - fetch->told_ms >= LIMIT_FETCH_TELL_MS) {
		struct json *params = json_new_object();
		json_set_string(params, "model_id", fetch->model->id);
		json_set_integer(params, "fetched_bytes", (int64_t)now);
		json_set_integer(params, "reused_bytes", (int64_t)here);
		json_set_integer(params, "total_bytes", (int64_t)fetch->total);
		uplink_notify(models->params.uplink, "model.fetching", params);
		fetch->told = now;
		fetch->told_ms = now_ms;
	}
	if (fetch->dialled && !fetch->over && now_ms - fetch->moved_ms > STALL_MS)
		fail(fetch, STATUS_TIMEOUT, "no data of the model arrived for 60 s");
}

static void checked(struct fetch *fetch, const struct disk_job *job)
{
	fetch->moved_ms = clock_steady_ms();
	if (job->error.status)
		node_models_fail(fetch, &job->error);
	else if (!fetch->over && !fetch->wanted.gap_count)
		node_models_finish(fetch);
	else if (!fetch->over)
		dial(fetch);
}

// Begin those whose model no other has.
static void begin_next(struct node_models *models)
{
	for (struct fetch *fetch = models->fetches, *next; fetch; fetch = next) {
		next = fetch->next;
		if (fetch->begun || fetch->over || fetch->model->busy)
			continue;
		struct disk_job *job = malloc(sizeof(*job));
		if (!job) {
			fail(fetch, STATUS_OUT_OF_MEMORY, "no memory to fetch a model");
			continue;
		}
		*job = (struct disk_job){.kind = JOB_OPEN, .model = fetch->model, .fetch = fetch};
		fetch->begun = true;
		fetch->model->busy = fetch;
		node_models_put_job(models, job);
	}
}

static void answer_forget(struct disk_job *job)
{
	struct json *result = json_new_object();
	json_set_integer(result, "freed_bytes", (int64_t)job->freed);
	uplink_answer(&job->call, result, NULL);
}

static void take_back(struct disk_job *job)
{
	struct fetch *fetch = job->fetch;
	if (fetch)
		fetch->jobs--;
	switch (job->kind) {
	case JOB_OPEN:
		checked(fetch, job);
		break;
	case JOB_PUT:
		node_models_piece_written(fetch, job);
		break;
	case JOB_CLOSE:
		if (!fetch->error.status)
			fetch->error = job->error;
		end(fetch); // and with it the job
		return;
	case JOB_FORGET:
		answer_forget(job);
		break;
	case JOB_GIVE:
		node_models_gave(job);
		break;
	case JOB_UNKNOWN:
		break;
	}
	if (fetch)
		look_whether_over(fetch);
	job_free(job);
}

static void next_may_begin(void *arg)
{
	begin_next(arg);
}

// The node stops: the job gets no callback, but its caller gets an answer.
static void drop(struct disk_job *job)
{
	struct error error = {0};
	error_set(&error, STATUS_UNAVAILABLE, "the node stops");
	if (job->call)
		uplink_answer(&job->call, NULL, &error);
	if (job->request)
		link_request_answer(&job->request, NULL, &error);
	job_free(job);
}

static void deliver(struct outbox_item *item, bool tell)
{
	struct disk_job *job = (struct disk_job *)item;
	if (tell)
		take_back(job);
	else
		drop(job);
}

// ---- the calls of the server ----

// A name of a file that lies in the folder and nowhere else.
static bool is_file_name(const char *id)
{
	size_t length = strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-");
	return length && length <= 64 && !id[length];
}

struct model *node_models_find(const struct node_models *models, const char *id)
{
	struct model *model = models->models;
	while (model && strcmp(model->id, id) != 0)
		model = model->next;
	return model;
}

// The model of this id, made if it is new. NULL, with the error.
static struct model *need(struct node_models *models, const char *id, struct error *error)
{
	size_t count = 0;
	struct model *model = node_models_find(models, id);
	if (model)
		return model;
	for (model = models->models; model; model = model->next)
		count++;
	if (!is_file_name(id)) {
		error_set(error, STATUS_INVALID_PARAMS, "a model's id may have letters, digits, _ and - only");
		return NULL;
	}
	if (count < LIMIT_MODELS)
		model = calloc(1, sizeof(*model));
	if (!model) {
		error_set(error, STATUS_LIMIT_EXCEEDED, "the node knows %zu models, which is its limit", count);
		return NULL;
	}
	snprintf(model->id, sizeof(model->id), "%s", id);
	model_disk_init(&model->disk, models->folder, id);
	model->next = models->models;
	models->models = model;
	return model;
}

static enum status read_ranges(struct model_wanted *wanted, const struct json *params, struct error *error)
{
	const struct json *ranges = json_get(params, "ranges");
	wanted->file_bytes = (uint64_t)json_get_integer(params, "bytes", 0);
	if (wanted->file_bytes > (uint64_t)LIMIT_MODEL_FILE_GIB << 30)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "a model file of over %d GiB", LIMIT_MODEL_FILE_GIB);
	wanted->spans = calloc(json_count(ranges) + 1, sizeof(*wanted->spans));
	if (!wanted->spans)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to fetch a model");
	for (const struct json *range = json_first(ranges); range; range = json_next(range)) {
		int64_t offset = -1, bytes = -1;
		json_integer(json_first(range), &offset);
		json_integer(json_next(json_first(range)), &bytes);
		if (offset < 0 || bytes < 0 || (uint64_t)offset > wanted->file_bytes ||
		    (uint64_t)bytes > wanted->file_bytes - (uint64_t)offset)
			return error_set(error, STATUS_INVALID_PARAMS, "a range reaches beyond the end of the file");
		wanted->spans[wanted->count++] = (struct model_span){(uint64_t)offset, (uint64_t)bytes};
	}
	wanted->count = model_spans_join(wanted->spans, wanted->count);
	return STATUS_OK;
}

void node_models_fetch(struct node_models *models, struct uplink_call *call)
{
	struct error error = {0};
	struct fetch **last = &models->fetches;
	size_t count = 0;
	for (; *last; last = &(*last)->next)
		count++;
	struct model *model = need(models, json_get_string(call->params, "model_id", ""), &error);
	struct fetch *fetch = model && count < LIMIT_MODEL_FETCHES ? calloc(1, sizeof(*fetch)) : NULL;
	if (!fetch)
		error_set(&error, STATUS_LIMIT_EXCEEDED, "the node is fetching %zu models, which is its limit", count);
	else if (read_ranges(&fetch->wanted, call->params, &error)) {
		release(fetch);
		fetch = NULL;
	}
	if (!fetch) {
		uplink_answer(&call, NULL, &error);
		return;
	}
	fetch->all = models;
	fetch->model = model;
	fetch->call = call;
	snprintf(fetch->key, sizeof(fetch->key), "%s", json_get_string(call->params, "key", ""));
	fetch->peers = model_peers_create(models->params.links, model->id, json_get(call->params, "peers"));
	fetch->wanted.given_up = &fetch->given_up;
	fetch->wanted.here = &fetch->here;
	for (size_t i = 0; i < fetch->wanted.count; i++)
		fetch->total += fetch->wanted.spans[i].bytes;
	*last = fetch;
	fetch->told_ms = clock_steady_ms();
	net_timer_start(models->params.loop, &fetch->tick, TICK_MS, tick, fetch); // while it waits for another one, too
	begin_next(models);
}

void node_models_forget(struct node_models *models, struct uplink_call *call)
{
	struct error error = {0};
	struct model *model = need(models, json_get_string(call->params, "model_id", ""), &error);
	struct disk_job *job = model ? malloc(sizeof(*job)) : NULL;
	if (!job) {
		error_set(&error, STATUS_OUT_OF_MEMORY, "no memory to forget a model");
		uplink_answer(&call, NULL, &error);
		return;
	}
	for (struct fetch *fetch = models->fetches, *next; fetch; fetch = next) {
		next = fetch->next;
		if (fetch->model == model)
			fail(fetch, STATUS_CONFLICT, "the model was removed");
	}
	model->fetched = false;
	*job = (struct disk_job){.kind = JOB_FORGET, .model = model, .call = call};
	node_models_put_job(models, job);
}

enum status node_models_open(struct node_models *models, const char *model_id, int *fd, struct error *error)
{
	const struct timespec used[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
	struct stat info;
	struct model *model = node_models_find(models, model_id);
	*fd = model && model->fetched ? open(model->disk.part, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK) : -1;
	if (*fd < 0) {
		error_hint(error, "model.fetch comes first");
		return error_set(error, STATUS_NOT_FOUND, "nothing of the model was fetched");
	}
	// While the worker holds the lock, the file is not deleted for another model.
	if (flock(*fd, LOCK_SH | LOCK_NB) || fstat(*fd, &info) || !S_ISREG(info.st_mode)) {
		close(*fd);
		*fd = -1;
		return error_set(error, STATUS_UNAVAILABLE, "the model's file in the cache is being deleted");
	}
	futimens(*fd, used);
	return STATUS_OK;
}

void node_models_lost(struct node_models *models)
{
	for (struct fetch *fetch = models->fetches, *next; fetch; fetch = next) {
		next = fetch->next;
		fail(fetch, STATUS_UNAVAILABLE, "the connection to the server ended");
	}
}

// ---- all of it ----

enum status node_models_create(struct node_models **out, const struct node_models_params *params, struct error *error)
{
	struct node_models *models = calloc(1, sizeof(*models));
	*out = NULL;
	if (!models)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the cache of models");
	models->params = *params;
	snprintf(models->folder, sizeof(models->folder), "%s", params->folder);
	const enum status status = jobs_create(&models->jobs, params->loop, 1, error);
	if (status) {
		free(models);
		return status;
	}
	*out = models;
	return STATUS_OK;
}

void node_models_destroy(struct node_models **pointer)
{
	struct node_models *models = *pointer;
	struct error error = {0};
	if (!models)
		return;
	*pointer = NULL;
	error_set(&error, STATUS_UNAVAILABLE, "the node stops");
	for (struct fetch *fetch = models->fetches; fetch; fetch = fetch->next)
		atomic_store(&fetch->given_up, true);
	jobs_destroy(&models->jobs);
	net_timer_stop(models->params.loop, &models->next);
	while (models->fetches) {
		struct fetch *fetch = models->fetches;
		models->fetches = fetch->next;
		net_timer_stop(models->params.loop, &fetch->tick);
		uplink_answer(&fetch->call, NULL, &error);
		release(fetch);
	}
	while (models->models) {
		struct model *model = models->models;
		models->models = model->next;
		model_disk_finish(&model->disk);
		free(model);
	}
	free(models);
}
