/* See reading.h. What is asked for is jobs of one thread (common/work/jobs.h). A digest that nobody waits for gives way
 * to other jobs, and is put behind them. */
#include "common/base/clock.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "server/hub/fetch.h"
#include "server/library/reading_inside.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 1024 * 1024 };

struct reading {
	struct reading_params params;
	struct jobs *jobs;
	struct reading_job *all;
	atomic_bool stop;
	atomic_uint urgent; // jobs that are not begun, and that digests give way to
};

static void job_destroy(struct reading_job **pointer)
{
	struct reading_job *job = *pointer;
	*pointer = NULL;
	if (!job)
		return;
	free(job->path);
	free(job->place);
	free(job->part_sha256s);
	free(job);
}

// ---- progress ----

struct progress {
	struct outbox_item item; // first member
	const struct reading *reading;
	struct reading_progress said;
};

static void tell(struct outbox_item *item, bool tell)
{
	struct progress *progress = (struct progress *)item;
	const struct reading_params *params = &progress->reading->params;
	if (tell)
		params->progress(params->context, &progress->said);
	free(progress);
}

void reading_tell(const struct reading_job *job, uint64_t done_bytes, uint64_t total_bytes)
{
	struct progress *progress = calloc(1, sizeof *progress);
	if (!progress)
		return;
	*progress = (struct progress){
		.item.deliver = tell,
		.reading = job->reading,
		.said = {.converting = job->converting, .done_bytes = done_bytes, .total_bytes = total_bytes}};
	memcpy(progress->said.model_id, job->result.model_id, sizeof progress->said.model_id);
	outbox_post(job->reading->params.outbox, &progress->item);
}

// ---- one file ----

bool reading_given_up(struct reading_job *job)
{
	return atomic_load(&job->reading->stop) || atomic_load(&job->forgotten);
}

static bool others_wait(const struct reading_job *job)
{
	return job->hash_only && atomic_load(&job->reading->urgent);
}

enum status reading_hash(struct reading_job *job, const struct reading_file *file, char sha256[65], struct error *error)
{
	uint64_t at = 0;
	int64_t told_ms = clock_steady_ms();
	unsigned char digest[32];
	enum status status = STATUS_OK;
	uint8_t *bytes = malloc(READ_BYTES);
	EVP_MD_CTX *hash = EVP_MD_CTX_new();
	if (!bytes || !hash || EVP_DigestInit_ex(hash, EVP_sha256(), NULL) != 1)
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory to hash %s", file->path);
	while (!status && at < file->bytes) {
		size_t most = file->bytes - at < READ_BYTES ? (size_t)(file->bytes - at) : READ_BYTES;
		ssize_t length = pread(file->fd, bytes, most, (off_t)at);
		if (length < 0 && errno == EINTR)
			continue;
		if (length <= 0)
			status = model_file_error(file->path, length, error);
		else if (reading_given_up(job))
			status = error_set(error, STATUS_UNAVAILABLE, "the server stops");
		else if (EVP_DigestUpdate(hash, bytes, (size_t)length) != 1)
			status = error_set(error, STATUS_INTERNAL, "SHA-256 is not available");
		at += length > 0 ? (uint64_t)length : 0;
		if (!status && clock_steady_ms() - told_ms >= READING_PROGRESS_MS) {
			job->again = others_wait(job);
			if (job->again)
				status = error_set(error, STATUS_PENDING, "others are read first");
			reading_tell(job, job->before_bytes + at, job->all_bytes ? job->all_bytes : file->bytes);
			told_ms = clock_steady_ms();
		}
	}
	if (!status && EVP_DigestFinal_ex(hash, digest, NULL) != 1)
		status = error_set(error, STATUS_INTERNAL, "SHA-256 is not available");
	for (size_t i = 0; i < sizeof digest && !status; i++)
		snprintf(sha256 + 2 * i, 3, "%02x", digest[i]);
	EVP_MD_CTX_free(hash);
	free(bytes);
	return status;
}

// On disk for good, under its own name.
enum status reading_move(const struct reading_file *file, const char *place, struct error *error)
{
	char directory[READING_PATH_BYTES];
	snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(place, '/') - place), place);
	if (fsync(file->fd) || rename(file->path, place))
		return error_errno(error, STATUS_UNAVAILABLE, errno, "%s cannot be put in its place", file->path);
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool synced = fd >= 0 && !fsync(fd);
	if (fd >= 0)
		close(fd);
	return synced ? STATUS_OK : error_errno(error, STATUS_UNAVAILABLE, errno, "%s cannot be written", directory);
}

enum status reading_compare(const char *promised, const char *sha256, struct error *error)
{
	if (!promised[0] || !strcmp(promised, sha256))
		return STATUS_OK;
	error_set(error, STATUS_UNAVAILABLE, "the file that came is wrong: its SHA-256 is %.16s..., not %.16s...",
		  sha256, promised);
	error_hint(error, "add it again; if that does not help, something on the way changes it");
	return STATUS_UNAVAILABLE;
}

static void read_file(struct reading_job *job, struct reading_result *result)
{
	struct reading_file file = {.fd = -1};
	struct error *error = &result->error;
	if (job->parts || job->folder) {
		reading_put_together(job, result);
		return;
	}
	enum status status = reading_open(job->path, &file, error);
	if (!status && (job->hash_only || job->place))
		status = reading_hash(job, &file, result->sha256, error);
	const bool read = !status;
	if (!status && job->place)
		status = reading_compare(job->sha256, result->sha256, error);
	if (!status && !job->hash_only)
		status = model_header_read(&(struct model_header){.path = file.path,
								  .fd = file.fd,
								  .bytes = file.bytes,
								  .there = file.bytes,
								  .look = reading_describe,
								  .context = result},
					   error);
	if (!status && !job->hash_only && !job->place)
		sampling_add_beside(job->path, &result->sampling);
	sampling_add(&job->sampling, &result->sampling);
	result->unusable = read && status;
	if (!status && job->place)
		status = reading_move(&file, job->place, error);
	if (file.fd >= 0)
		close(file.fd);
	result->status = status;
	result->bytes = file.bytes;
	result->modified_ns = file.modified_ns;
}

// A file, or a folder that was fetched.
static void delete_path(const char *path)
{
	if (reading_is_folder(path))
		fetch_folder_delete(path);
	else if (unlink(path) && errno != ENOENT)
		log_warning("models", "%s cannot be deleted: %s", path, strerror(errno));
}

static void run(struct job *pointer)
{
	struct reading_job *job = (struct reading_job *)pointer;
	job->again = false;
	job->result.error = (struct error){0};
	if (!job->hash_only)
		atomic_fetch_sub(&job->reading->urgent, 1);
	if (job->delete_only) {
		delete_path(job->path);
		return;
	}
	if (!reading_given_up(job))
		read_file(job, &job->result);
	// What a stop cut off is done again at the next start.
	job->cut_off = reading_given_up(job);
}

// ---- the loop's side ----

static void put(struct reading_job *job)
{
	if (!job->hash_only)
		atomic_fetch_add(&job->reading->urgent, 1);
	LIST_PUSH(&job->reading->all, job, link);
	jobs_put(job->reading->jobs, &job->job);
}

static void deliver(struct outbox_item *item, bool tell)
{
	struct reading_job *job = (struct reading_job *)item;
	const struct reading_params *params = &job->reading->params;
	LIST_REMOVE(job, link);
	if (!tell && job->delete_only)
		delete_path(job->path); // it may not have been begun
	if (tell && !job->delete_only && !job->cut_off && !atomic_load(&job->forgotten)) {
		if (job->again) {
			put(job);
			return;
		}
		params->done(params->context, &job->result);
	}
	job_destroy(&job);
}

enum status reading_create(struct reading **out, const struct reading_params *params, struct error *error)
{
	struct reading *reading = *out = calloc(1, sizeof *reading);
	if (!reading)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the models");
	reading->params = *params;
	const enum status status = jobs_create(&reading->jobs, params->loop, 1, error);
	if (status)
		reading_destroy(out);
	return status;
}

void reading_stop(struct reading *reading)
{
	atomic_store(&reading->stop, true);
}

void reading_destroy(struct reading **pointer)
{
	struct reading *reading = *pointer;
	if (!reading)
		return;
	*pointer = NULL;
	reading_stop(reading);
	jobs_destroy(&reading->jobs);
	free(reading);
}

static struct reading_job *job_create(struct reading *reading, const char *model_id, const char *path)
{
	struct reading_job *job = calloc(1, sizeof *job);
	if (job)
		job->path = strdup(path);
	if (job && !job->path)
		job_destroy(&job);
	if (!job)
		return NULL;
	job->job = (struct job){.item.deliver = deliver, .run = run};
	job->reading = reading;
	snprintf(job->result.model_id, sizeof job->result.model_id, "%s", model_id);
	sampling_say_nothing(&job->sampling);
	return job;
}

enum status reading_ask(struct reading *reading, const struct reading_request *request, struct error *error)
{
	struct reading_job *job = job_create(reading, request->model_id, request->path);
	if (job && request->place)
		job->place = strdup(request->place);
	if (job && request->part_sha256s)
		job->part_sha256s = calloc(request->parts, sizeof *job->part_sha256s);
	if (!job || (request->place && !job->place) || (request->part_sha256s && !job->part_sha256s)) {
		job_destroy(&job);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to read a model's file");
	}
	snprintf(job->sha256, sizeof job->sha256, "%s", request->sha256 ? request->sha256 : "");
	job->hash_only = job->result.hashed_only = request->hash;
	job->parts = request->parts;
	job->folder = request->folder;
	job->fetched = request->fetched;
	snprintf(job->title, sizeof job->title, "%s", request->title ? request->title : "");
	if (request->part_sha256s)
		memcpy(job->part_sha256s, request->part_sha256s, request->parts * sizeof *job->part_sha256s);
	if (request->sampling)
		job->sampling = *request->sampling;
	put(job);
	return STATUS_OK;
}

void reading_forget(struct reading *reading, const char *model_id, const char *path)
{
	for (struct reading_job *job = reading->all; job; job = job->next)
		if (!job->delete_only && !strcmp(job->result.model_id, model_id))
			atomic_store(&job->forgotten, true);
	struct reading_job *removal = path ? job_create(reading, model_id, path) : NULL;
	if (removal) {
		removal->delete_only = true;
		put(removal);
	} else if (path) {
		log_warning("models", "%s cannot be deleted: no memory", path);
	}
}
