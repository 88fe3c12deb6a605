/* See models.h. Order of reading: node_models_fetch, begin, opened, ask_more, take_answer, end.
 *
 * A fetch is: what is there is checked (a job of the thread), then a connection is made, over which PIECES calls of
 * model.read are under way until each has been written (a job each), then it is noted what is there (a job). A fetch
 * that fails takes the same last step. One model is fetched by one call at a time; others of it wait for that. The
 * thread's jobs come back by an eventfd. What a struct model has on disk is the thread's while a job of it is there. */
#include "engine/node/models.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/net/parts.h"
#include "common/wire/message.h"
#include "engine/node/models_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECES = 4, TICK_MS = 250, STALL_MS = 60000, CLOSE_DONE = 1000 };

struct model {
	struct model *next;
	char id[65];
	struct model_disk disk; // the thread's
	struct fetch *busy;     // that has it now; NULL: none
	bool fetched;           // once since the node started
};

// A piece that was asked for, until it is written.
struct piece {
	int64_t id; // of the call; 0: none
	struct model_span at;
};

enum job_kind { JOB_UNKNOWN, JOB_OPEN, JOB_PUT, JOB_CLOSE, JOB_FORGET };

struct job {
	struct job *next;
	enum job_kind kind;
	struct model *model;
	struct fetch *fetch; // NULL: model.forget
	struct uplink_call *call;
	struct model_piece piece;
	struct net_frame *bytes; // of the piece
	uint64_t freed;
	struct error error;
	bool embedded; // in its fetch
};

struct fetch {
	struct fetch *next;
	struct node_models *all;
	struct model *model;
	struct uplink_call *call;
	char key[65];
	struct model_wanted wanted; // the thread's until JOB_OPEN is back
	uint64_t total, fetched;    // bytes
	_Atomic uint64_t here;
	atomic_bool given_up;
	struct net_conn *conn; // NULL before it is open
	bool dialled;          // and not closed yet
	bool begun, over;      // has its model; nothing more is asked for
	bool ended;            // answered: waits for its connection to close, and is in no list
	unsigned jobs;
	struct job last; // JOB_CLOSE; its kind says that it is under way
	struct piece pieces[PIECES];
	size_t next_gap;
	int64_t last_id, moved_ms;
	uint64_t told; // bytes
	struct net_timer tick;
	struct error error;
};

struct node_models {
	struct node_models_params params;
	char folder[4096];
	struct model *models;
	struct fetch *fetches; // in the order in which they came
	struct net_watch *returned;
	int event; // owned by the watch
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct job *waiting, **last; // under lock
	struct job *done;            // under lock; the latest first
	bool stop;                   // under lock
};

// ---- the thread ----

static void run(struct job *job)
{
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
	case JOB_UNKNOWN:
		break;
	}
}

static void *disk_thread(void *arg)
{
	struct node_models *models = arg;
	pthread_mutex_lock(&models->lock);
	while (!models->stop) {
		struct job *job = models->waiting;
		if (!job) {
			pthread_cond_wait(&models->wake, &models->lock);
			continue;
		}
		models->waiting = job->next;
		if (!models->waiting)
			models->last = &models->waiting;
		pthread_mutex_unlock(&models->lock);
		run(job);
		pthread_mutex_lock(&models->lock);
		job->next = models->done;
		models->done = job;
		eventfd_write(models->event, 1);
	}
	pthread_mutex_unlock(&models->lock);
	return NULL;
}

static void put_job(struct node_models *models, struct job *job)
{
	job->next = NULL;
	if (job->fetch)
		job->fetch->jobs++;
	pthread_mutex_lock(&models->lock);
	*models->last = job;
	models->last = &job->next;
	pthread_cond_signal(&models->wake);
	pthread_mutex_unlock(&models->lock);
}

static void job_free(struct job *job)
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
	free(fetch);
}

static void answer(struct fetch *fetch)
{
	struct json *result = NULL;
	if (!fetch->error.status) {
		result = json_new_object();
		json_set_integer(result, "fetched_bytes", (int64_t)fetch->fetched);
		json_set_integer(result, "reused_bytes", (int64_t)(fetch->total - fetch->fetched));
	} else {
		log_warning("node", "model %s was not fetched: %s", fetch->model->id, fetch->error.message);
	}
	uplink_answer(&fetch->call, result, result ? NULL : &fetch->error);
}

// Answer it; it goes when its connection has. Those that wait for its model are begun from the loop.
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
	eventfd_write(models->event, 1);
}

// Once nothing is under way any more: the last step, which is the thread's.
static void look_whether_over(struct fetch *fetch)
{
	if (!fetch->over || fetch->jobs || fetch->last.kind)
		return;
	fetch->last = (struct job){.kind = JOB_CLOSE, .model = fetch->model, .fetch = fetch, .embedded = true};
	if (fetch->begun)
		put_job(fetch->all, &fetch->last);
	else
		end(fetch);
}

// Nothing more is asked for.
static void finish(struct fetch *fetch)
{
	fetch->over = true;
	if (fetch->conn)
		net_conn_close(fetch->conn, CLOSE_DONE, "that is all");
	look_whether_over(fetch);
}

static void fail_with(struct fetch *fetch, const struct error *error)
{
	if (!fetch->error.status)
		fetch->error = *error;
	atomic_store(&fetch->given_up, true);
	if (!fetch->over)
		finish(fetch);
}

static void fail(struct fetch *fetch, enum status status, const char *message)
{
	struct error error = {0};
	error_set(&error, status, "%s", message);
	fail_with(fetch, &error);
}

// ---- pieces ----

static void ask(struct fetch *fetch, struct piece *piece)
{
	struct buffer head;
	struct json *params = json_new_object();
	*piece = (struct piece){.id = ++fetch->last_id, .at = fetch->wanted.gaps[fetch->next_gap++]};
	struct json *id = json_new_integer(piece->id);
	buffer_init(&head, LIMIT_HEAD_BYTES);
	json_set_string(params, "model_id", fetch->model->id);
	json_set_string(params, "key", fetch->key);
	json_set_integer(params, "offset", (int64_t)piece->at.offset);
	json_set_integer(params, "bytes", (int64_t)piece->at.bytes);
	enum status status = message_print_call(&head, id, "model.read", params);
	if (!status)
		status = net_conn_send_parts(fetch->conn,
					     &(struct net_parts){.head = head.data, .head_bytes = head.length});
	json_destroy(&id);
	buffer_finish(&head);
	if (status)
		fail(fetch, status, "the server cannot be asked for the model");
}

static void ask_more(struct fetch *fetch)
{
	bool waits = false;
	for (int i = 0; i < PIECES && !fetch->over; i++) {
		if (!fetch->pieces[i].id && fetch->next_gap < fetch->wanted.gap_count)
			ask(fetch, &fetch->pieces[i]);
		waits = waits || fetch->pieces[i].id;
	}
	if (!waits && !fetch->over)
		finish(fetch);
}

static bool read_sha256(uint8_t *sha256, const char *text)
{
	static const char digits[] = "0123456789abcdef";
	for (int i = 0; i < MODEL_SHA256_BYTES; i++) {
		const char *high = text[2 * i] ? strchr(digits, text[2 * i]) : NULL,
			   *low = high && text[2 * i + 1] ? strchr(digits, text[2 * i + 1]) : NULL;
		if (!low)
			return false;
		sha256[i] = (uint8_t)((high - digits) << 4 | (low - digits));
	}
	return !text[2 * MODEL_SHA256_BYTES];
}

// The piece that an answer is of, as the thread takes it. Errors: STATUS_INVALID_REQUEST, and what the server says.
static enum status read_answer(struct fetch *fetch, const struct message *message, const struct net_parts *parts,
			       struct model_piece *out, struct error *error)
{
	const struct contract *contract = fetch->all->params.contract;
	struct piece *piece = fetch->pieces;
	int64_t id = 0;
	if (!message->id || json_integer(message->id, &id) || id <= 0)
		return error_set(error, STATUS_INVALID_REQUEST, "the server sent what nobody asked for");
	if (message->kind == MESSAGE_ERROR) {
		message_read_error(message, error);
		return error->status;
	}
	while (piece < fetch->pieces + PIECES && piece->id != id)
		piece++;
	if (piece == fetch->pieces + PIECES || message->kind != MESSAGE_RESULT)
		return error_set(error, STATUS_INVALID_REQUEST, "the server sent what nobody asked for");
	enum status status = contract_check_result(contract, contract_find(contract, "model.read"), message->result,
						   error);
	if (status)
		return status;
	*out = (struct model_piece){.at = piece->at, .checked = true};
	if (parts->body_bytes != piece->at.bytes ||
	    !read_sha256(out->sha256, json_get_string(message->result, "sha256", "")))
		return error_set(error, STATUS_INVALID_REQUEST,
				 "the server sent %zu bytes of the model where %" PRIu64
				 " were asked for, or no SHA-256 of them",
				 parts->body_bytes, piece->at.bytes);
	piece->id = -id; // its place is free again when it is written
	return STATUS_OK;
}

static void take_answer(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct fetch *fetch = user;
	struct net_parts parts = {.head = bytes, .head_bytes = length};
	struct message message = {0};
	struct error error = {0};
	struct job *job = NULL;
	struct model_piece piece;
	if (fetch->over)
		return;
	enum status status = binary ? net_conn_take_parts(conn, bytes, length, &parts) : STATUS_OK;
	if (!status)
		status = message_decode_text(&message, (const char *)parts.head, parts.head_bytes, &error);
	if (!status)
		status = read_answer(fetch, &message, &parts, &piece, &error);
	if (!status && !(job = malloc(sizeof(*job))))
		status = STATUS_OUT_OF_MEMORY;
	if (!status) {
		*job = (struct job){.kind = JOB_PUT,
				    .model = fetch->model,
				    .fetch = fetch,
				    .piece = piece,
				    .bytes = net_frame_ref(parts.holder)};
		put_job(fetch->all, job);
	} else {
		error_set(&error, status, "what came of the model cannot be taken: %s", status_text(status));
		fail_with(fetch, &error);
	}
	message_finish(&message);
	net_frame_unref(&parts.holder);
}

static void piece_written(struct fetch *fetch, const struct job *job)
{
	for (int i = 0; i < PIECES; i++)
		if (fetch->pieces[i].id < 0 && fetch->pieces[i].at.offset == job->piece.at.offset)
			fetch->pieces[i].id = 0;
	if (job->error.status) {
		fail_with(fetch, &job->error);
		return;
	}
	fetch->fetched += job->piece.at.bytes;
	fetch->moved_ms = clock_steady_ms();
	if (!fetch->over)
		ask_more(fetch);
}

// ---- the connection ----

static void conn_opened(void *user, struct net_conn *conn)
{
	struct fetch *fetch = user;
	fetch->conn = conn;
	if (fetch->over)
		net_conn_close(conn, CLOSE_DONE, "it is not needed any more");
	else
		ask_more(fetch);
}

static void conn_closed(void *user, struct net_conn *conn, int code)
{
	struct fetch *fetch = user;
	char why[128];
	fetch->conn = NULL;
	fetch->dialled = false;
	snprintf(why, sizeof(why), conn ? "the connection that the model came by ended (%d)" : NET_NOTHING_ANSWERS,
		 code);
	if (fetch->ended)
		release(fetch);
	else if (!fetch->over)
		fail(fetch, STATUS_UNAVAILABLE, why);
}

static const struct net_handler conn_handler = {.opened = conn_opened, .message = take_answer, .closed = conn_closed};

static void dial(struct fetch *fetch)
{
	struct error error = {0};
	struct net_dial_params params = {.path = "/node",
					 .subprotocol = "exogpu.model.v1",
					 .ping_s = LIMIT_NODE_PING_S,
					 .silence_s = LIMIT_NODE_SILENCE_S,
					 .speaks_first = true, // model.read
					 .handler = &conn_handler,
					 .user = fetch};
	fetch->dialled = true;
	enum status status = uplink_dial(fetch->all->params.uplink, &params, &error);
	if (!status || !fetch->dialled)
		return;
	fetch->dialled = false;
	fail_with(fetch, &error);
}

// ---- the beginning ----

static void tick(void *arg)
{
	struct fetch *fetch = arg;
	struct node_models *models = fetch->all;
	uint64_t now = atomic_load(&fetch->here) + fetch->fetched;
	net_timer_start(models->params.loop, &fetch->tick, TICK_MS, tick, fetch);
	if (now != fetch->told) {
		struct json *params = json_new_object();
		json_set_string(params, "model_id", fetch->model->id);
		json_set_integer(params, "fetched_bytes", (int64_t)now);
		json_set_integer(params, "total_bytes", (int64_t)fetch->total);
		uplink_notify(models->params.uplink, "model.fetching", params);
		fetch->told = now;
	}
	if (fetch->dialled && !fetch->over && clock_steady_ms() - fetch->moved_ms > STALL_MS)
		fail(fetch, STATUS_TIMEOUT, "nothing of the model came for 60 s");
}

static void checked(struct fetch *fetch, const struct job *job)
{
	fetch->moved_ms = clock_steady_ms();
	if (job->error.status)
		fail_with(fetch, &job->error);
	else if (!fetch->over && !fetch->wanted.gap_count)
		finish(fetch);
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
		struct job *job = malloc(sizeof(*job));
		if (!job) {
			fail(fetch, STATUS_OUT_OF_MEMORY, "no memory to fetch a model");
			continue;
		}
		*job = (struct job){.kind = JOB_OPEN, .model = fetch->model, .fetch = fetch};
		fetch->begun = true;
		fetch->model->busy = fetch;
		net_timer_start(models->params.loop, &fetch->tick, TICK_MS, tick, fetch);
		put_job(models, job);
	}
}

static void answer_forget(struct job *job)
{
	struct json *result = json_new_object();
	json_set_integer(result, "freed_bytes", (int64_t)job->freed);
	uplink_answer(&job->call, result, NULL);
}

static void take_back(struct job *job)
{
	struct fetch *fetch = job->fetch;
	if (fetch)
		fetch->jobs--;
	switch (job->kind) {
	case JOB_OPEN:
		checked(fetch, job);
		break;
	case JOB_PUT:
		piece_written(fetch, job);
		break;
	case JOB_CLOSE:
		if (!fetch->error.status)
			fetch->error = job->error;
		end(fetch); // and with it the job
		return;
	case JOB_FORGET:
		answer_forget(job);
		break;
	case JOB_UNKNOWN:
		break;
	}
	if (fetch)
		look_whether_over(fetch);
	job_free(job);
}

static void jobs_returned(void *arg, int fd)
{
	struct node_models *models = arg;
	struct job *list = NULL;
	eventfd_t count;
	(void)eventfd_read(fd, &count);
	pthread_mutex_lock(&models->lock);
	struct job *done = models->done;
	models->done = NULL;
	pthread_mutex_unlock(&models->lock);
	while (done) { // the first first
		struct job *job = done;
		done = job->next;
		job->next = list;
		list = job;
	}
	while (list) {
		struct job *job = list;
		list = job->next;
		take_back(job);
	}
	begin_next(models);
}

// ---- the calls of the server ----

// A name of a file that lies in the folder and nowhere else.
static bool is_file_name(const char *id)
{
	size_t length = strspn(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-");
	return length && length <= 64 && !id[length];
}

static struct model *find(struct node_models *models, const char *id)
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
	struct model *model = find(models, id);
	if (model)
		return model;
	for (model = models->models; model; model = model->next)
		count++;
	if (!is_file_name(id)) {
		error_set(error, STATUS_INVALID_PARAMS, "a model's id here is of letters, digits, _ and -");
		return NULL;
	}
	if (count < LIMIT_MODELS)
		model = calloc(1, sizeof(*model));
	if (!model) {
		error_set(error, STATUS_LIMIT_EXCEEDED, "the node knows %zu models, and takes no more", count);
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
		error_set(&error, STATUS_LIMIT_EXCEEDED, "the node fetches %zu models, and takes no more", count);
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
	fetch->wanted.given_up = &fetch->given_up;
	fetch->wanted.here = &fetch->here;
	for (size_t i = 0; i < fetch->wanted.count; i++)
		fetch->total += fetch->wanted.spans[i].bytes;
	*last = fetch;
	begin_next(models);
}

void node_models_forget(struct node_models *models, struct uplink_call *call)
{
	struct error error = {0};
	struct model *model = need(models, json_get_string(call->params, "model_id", ""), &error);
	struct job *job = model ? malloc(sizeof(*job)) : NULL;
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
	*job = (struct job){.kind = JOB_FORGET, .model = model, .call = call};
	put_job(models, job);
}

enum status node_models_open(struct node_models *models, const char *model_id, int *fd, struct error *error)
{
	const struct timespec used[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
	struct stat info;
	struct model *model = find(models, model_id);
	*fd = model && model->fetched ? open(model->disk.part, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK) : -1;
	if (*fd < 0) {
		error_hint(error, "model.fetch comes first");
		return error_set(error, STATUS_NOT_FOUND, "nothing of the model was fetched");
	}
	// As long as the worker has it, it is not deleted for another.
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

static const struct net_watch_events returned_events = {.readable = jobs_returned};

enum status node_models_create(struct node_models **out, const struct node_models_params *params, struct error *error)
{
	struct node_models *models = calloc(1, sizeof(*models));
	*out = NULL;
	if (!models)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the cache of models");
	models->params = *params;
	models->last = &models->waiting;
	snprintf(models->folder, sizeof(models->folder), "%s", params->folder);
	models->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	enum status status = STATUS_OK;
	if (models->event < 0)
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "the cache of models");
	if (!status)
		status = net_watch_create(&models->returned, params->loop, models->event, &returned_events, models,
					  error);
	if (status) {
		if (models->event >= 0)
			close(models->event);
		free(models);
		return status;
	}
	pthread_mutex_init(&models->lock, NULL);
	pthread_cond_init(&models->wake, NULL);
	int failure = pthread_create(&models->thread, NULL, disk_thread, models);
	if (failure) {
		net_watch_destroy(&models->returned);
		pthread_cond_destroy(&models->wake);
		pthread_mutex_destroy(&models->lock);
		free(models);
		return error_errno(error, STATUS_UNAVAILABLE, failure, "starting the cache of models");
	}
	*out = models;
	return STATUS_OK;
}

// What the thread did not come to, or what did not come back.
static void drop_jobs(struct job *job)
{
	struct error error = {0};
	error_set(&error, STATUS_UNAVAILABLE, "the node stops");
	while (job) {
		struct job *next = job->next;
		if (job->call)
			uplink_answer(&job->call, NULL, &error);
		job_free(job);
		job = next;
	}
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
	pthread_mutex_lock(&models->lock);
	models->stop = true;
	pthread_cond_signal(&models->wake);
	pthread_mutex_unlock(&models->lock);
	pthread_join(models->thread, NULL);
	drop_jobs(models->waiting);
	drop_jobs(models->done);
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
	net_watch_destroy(&models->returned); // closes the eventfd
	pthread_cond_destroy(&models->wake);
	pthread_mutex_destroy(&models->lock);
	free(models);
}
