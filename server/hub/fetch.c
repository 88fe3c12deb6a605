/* See fetch.h: the thread, its tasks, and what it tells the loop. */
#include "common/base/clock.h"
#include "server/hub/fetch_inside.h"
#include "server/hub/fetch_search.h"
#include "server/hub/hub.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TICK_MS = 250 };

// ---- what is told to the loop ----

struct said {
	struct outbox_item item; // first member
	struct fetcher *fetcher;
	enum { SAID_PICKED, SAID_PROGRESS, SAID_DONE } what;
	struct source source;
	char why[200];
	struct fetch_progress progress; // its model_id is that of all
	struct fetch_result result;
	char (*part_sha256s)[65];
};

static void deliver(struct outbox_item *item, bool tell)
{
	struct said *said = (struct said *)item;
	const struct fetcher_params *params = &said->fetcher->params;
	if (tell && said->what == SAID_PICKED)
		params->picked(params->context, said->progress.model_id, &said->source, said->why);
	else if (tell && said->what == SAID_PROGRESS)
		params->progress(params->context, &said->progress);
	else if (tell)
		params->done(params->context, &said->result);
	free(said->part_sha256s);
	free(said);
}

static struct said *said_create(const struct fetch_job *job)
{
	struct said *said = calloc(1, sizeof *said);
	if (!said)
		return NULL;
	said->item.deliver = deliver;
	said->fetcher = job->fetcher;
	snprintf(said->progress.model_id, sizeof said->progress.model_id, "%s", job->model_id);
	snprintf(said->result.model_id, sizeof said->result.model_id, "%s", job->model_id);
	return said;
}

void fetch_tell_picked(struct fetch_job *job, const char *why)
{
	struct said *said = said_create(job);
	if (!said)
		return;
	said->what = SAID_PICKED;
	said->source = job->source;
	snprintf(said->why, sizeof said->why, "%s", why);
	outbox_post(job->fetcher->params.outbox, &said->item);
}

static unsigned busy_connections(const struct fetch_job *job)
{
	unsigned count = 0;
	for (size_t i = 0; i < LIMIT_FETCH_CONNECTIONS; i++)
		count += job->connections[i].question != NULL;
	return count;
}

// How fast it is, of the last seconds.
static void measure(struct fetch_job *job, int64_t now_ms)
{
	const int64_t ms = now_ms - job->told_ms, bytes = job->part.done_bytes - job->told_bytes;
	if (job->told_ms && ms > 0 && bytes >= 0) {
		const double now = (double)bytes * 1000 / (double)ms;
		job->bytes_per_s = job->bytes_per_s < 0 ? now : job->bytes_per_s * 0.85 + now * 0.15;
	}
	job->told_ms = now_ms;
	job->told_bytes = job->part.done_bytes;
}

static void tell_progress(struct fetch_job *job)
{
	struct said *said = said_create(job);
	if (!said)
		return;
	struct fetch_progress *progress = &said->progress;
	measure(job, clock_steady_ms());
	said->what = SAID_PROGRESS;
	progress->step = !job->running || job->due_ms         ? FETCH_WAITING
			 : job->identified || job->number > 1 ? FETCH_DOWNLOADING // also between two files
							      : FETCH_FINDING;
	const int64_t total = fetch_job_files(job) ? job->all_bytes : job->part.identity.bytes;
	progress->done_bytes = (uint64_t)(job->before_bytes + job->part.done_bytes);
	progress->total_bytes = total > 0 ? (uint64_t)total : 0;
	progress->bytes_per_s = progress->step == FETCH_DOWNLOADING ? job->bytes_per_s : -1;
	progress->connections = busy_connections(job);
	progress->retries = job->retries;
	snprintf(progress->reason, sizeof progress->reason, "%s", job->due_ms ? job->reason : "");
	outbox_post(job->fetcher->params.outbox, &said->item);
}

void fetch_job_end(struct fetch_job *job, const struct error *why)
{
	if (job->ended)
		return;
	job->ended = true;
	struct said *said = said_create(job);
	if (!said)
		return; // it is taken up again at the next start
	struct fetch_result *result = &said->result;
	said->what = SAID_DONE;
	result->status = why ? why->status : STATUS_OK;
	if (why)
		result->error = *why;
	result->unusable = why && job->unusable;
	result->folder = job->weights != NULL;
	if (!result->folder || !fetch_folder_path(job->file, false, result->part, sizeof result->part))
		snprintf(result->part, sizeof result->part, "%s", job->part.path);
	snprintf(result->sha256, sizeof result->sha256, "%s", job->part.identity.sha256);
	result->sampling = job->sampling;
	result->parts = job->source.parts;
	result->part_sha256s = said->part_sha256s = job->part_sha256s;
	job->part_sha256s = NULL;
	fetch_part_finish(&job->part); // what it says of the file holds before the loop hears of it
	outbox_post(job->fetcher->params.outbox, &said->item);
}

// ---- the thread ----

static void end_jobs(struct fetcher *fetcher)
{
	for (struct fetch_job **link = &fetcher->jobs; *link;) {
		struct fetch_job *job = *link;
		if (!job->ended) {
			link = &job->next;
			continue;
		}
		*link = job->next;
		fetch_job_destroy(&job, false);
	}
}

static void tick(struct fetcher *fetcher)
{
	unsigned running = 0;
	end_jobs(fetcher);
	for (struct fetch_job *job = fetcher->jobs; job; job = job->next)
		running += job->running;
	for (struct fetch_job *job = fetcher->jobs; job; job = job->next) {
		if (!job->running && running < LIMIT_FETCHES) {
			job->running = true;
			running++;
			fetch_job_begin(job);
		}
		if (job->running && !job->ended)
			fetch_job_tick(job);
		if (!job->ended && clock_steady_ms() - job->told_ms >= TICK_MS)
			tell_progress(job);
	}
	end_jobs(fetcher);
}

static bool run_tasks(struct fetcher *fetcher)
{
	pthread_mutex_lock(&fetcher->lock);
	struct fetch_task *task = fetcher->first;
	fetcher->first = fetcher->last = NULL;
	const bool stop = fetcher->stop;
	pthread_mutex_unlock(&fetcher->lock);
	while (task) {
		struct fetch_task *next = task->next;
		task->run(task, fetcher);
		task = next;
	}
	return !stop;
}

static void *thread_main(void *argument)
{
	struct fetcher *fetcher = argument;
	while (run_tasks(fetcher)) {
		tick(fetcher);
		web_run(fetcher->web, fetcher->jobs || fetcher->searches ? TICK_MS : 60000);
	}
	while (fetcher->jobs) {
		struct fetch_job *job = fetcher->jobs;
		fetcher->jobs = job->next;
		fetch_job_destroy(&job, false);
	}
	searches_drop(fetcher);
	return NULL;
}

enum status fetcher_create(struct fetcher **out, const struct fetcher_params *params, struct error *error)
{
	struct fetcher *fetcher = calloc(1, sizeof *fetcher);
	const char *trusted[] = {params->hub_url, params->ollama_url};
	*out = NULL;
	if (!fetcher)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for downloads");
	fetcher->params = *params;
	pthread_mutex_init(&fetcher->lock, NULL);
	enum status status = web_create(&fetcher->web, trusted, 2, error);
	if (!status) {
		status = outbox_start_thread(&fetcher->thread, thread_main, fetcher, error);
		fetcher->started = !status;
	}
	if (status)
		fetcher_destroy(&fetcher);
	*out = fetcher;
	return status;
}

void fetcher_stop(struct fetcher *fetcher)
{
	pthread_mutex_lock(&fetcher->lock);
	fetcher->stop = true;
	pthread_mutex_unlock(&fetcher->lock);
	web_wake(fetcher->web);
}

void fetcher_destroy(struct fetcher **pointer)
{
	struct fetcher *fetcher = *pointer;
	if (!fetcher)
		return;
	*pointer = NULL;
	if (fetcher->started) {
		fetcher_stop(fetcher);
		pthread_join(fetcher->thread, NULL);
	}
	for (struct fetch_task *task = fetcher->first, *next; task; task = next) {
		next = task->next;
		task->run(task, NULL);
	}
	web_destroy(&fetcher->web);
	pthread_mutex_destroy(&fetcher->lock);
	free(fetcher);
}

void fetcher_post(struct fetcher *fetcher, struct fetch_task *task)
{
	task->next = NULL;
	pthread_mutex_lock(&fetcher->lock);
	if (fetcher->last)
		fetcher->last->next = task;
	else
		fetcher->first = task;
	fetcher->last = task;
	pthread_mutex_unlock(&fetcher->lock);
	web_wake(fetcher->web);
}

// ---- starting and cancelling ----

struct start {
	struct fetch_task task; // first member
	struct fetch_job *job;
};

static void run_start(struct fetch_task *task, struct fetcher *fetcher)
{
	struct start *start = (struct start *)task;
	struct fetch_job **link = fetcher ? &fetcher->jobs : NULL;
	while (link && *link)
		link = &(*link)->next;
	if (link)
		*link = start->job;
	else
		fetch_job_destroy(&start->job, false);
	free(start);
}

enum status fetcher_start(struct fetcher *fetcher, const struct fetch_request *request, struct error *error)
{
	struct start *start = calloc(1, sizeof *start);
	struct fetch_job *job = calloc(1, sizeof *job);
	if (job && request->access_token)
		job->token = strdup(request->access_token);
	if (!start || !job || (request->access_token && !job->token)) {
		free(start);
		free(job);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a download");
	}
	job->fetcher = fetcher;
	job->source = *request->source;
	job->room = request->room;
	job->bytes_per_s = -1;
	job->promised.bytes = -1;
	sampling_say_nothing(&job->sampling);
	snprintf(job->model_id, sizeof job->model_id, "%s", request->model_id);
	buffer_init(&job->answer, LIMIT_FETCH_JSON_BYTES);
	for (size_t i = 0; i < LIMIT_FETCH_CONNECTIONS; i++)
		job->connections[i].job = job;
	snprintf(job->file, sizeof job->file, "%s", request->file);
	fetch_part_init(&job->part, request->file);
	if (job->source.parts && fetch_job_take_part(job, 1, error)) {
		free(start);
		fetch_job_destroy(&job, false);
		return STATUS_OUT_OF_MEMORY;
	}
	start->task.run = run_start;
	start->job = job;
	fetcher_post(fetcher, &start->task);
	return STATUS_OK;
}

struct cancel {
	struct fetch_task task; // first member
	char model_id[FETCH_ID_BYTES], file[FETCH_PATH_BYTES];
	bool forget;
};

bool fetch_part_file(const char *file, unsigned number, char *path, size_t size)
{
	const int length = snprintf(path, size, "%s.%05u", file, number);
	return length > 0 && (size_t)length < size;
}

static void delete_unfinished(const char *file)
{
	char path[FETCH_PATH_BYTES + 8];
	snprintf(path, sizeof path, "%s.part", file);
	unlink(path);
	snprintf(path, sizeof path, "%s.journal", file);
	unlink(path);
}

static void run_cancel(struct fetch_task *task, struct fetcher *fetcher)
{
	struct cancel *cancel = (struct cancel *)task;
	for (struct fetch_job **link = fetcher ? &fetcher->jobs : NULL; link && *link;) {
		struct fetch_job *job = *link;
		if (strcmp(job->model_id, cancel->model_id) != 0) {
			link = &job->next;
			continue;
		}
		*link = job->next;
		fetch_job_destroy(&job, false);
	}
	if (cancel->forget) { // also of one that has ended
		delete_unfinished(cancel->file);
		for (int whole = 0; whole <= 1; whole++) {
			char folder[FETCH_PATH_BYTES];
			if (fetch_folder_path(cancel->file, whole, folder, sizeof folder))
				fetch_folder_delete(folder);
		}
		for (unsigned i = 1; i <= LIMIT_MODEL_PARTS; i++) {
			char part[FETCH_PATH_BYTES];
			if (fetch_part_file(cancel->file, i, part, sizeof part))
				delete_unfinished(part);
		}
	}
	free(cancel);
}

void fetcher_cancel(struct fetcher *fetcher, const char *model_id, const char *file, bool forget)
{
	struct cancel *cancel = calloc(1, sizeof *cancel);
	if (!cancel)
		return; // its answers find no model, and its file goes at the next start
	cancel->task.run = run_cancel;
	cancel->forget = forget;
	snprintf(cancel->model_id, sizeof cancel->model_id, "%s", model_id);
	snprintf(cancel->file, sizeof cancel->file, "%s", file);
	fetcher_post(fetcher, &cancel->task);
}
