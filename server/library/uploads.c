/* See uploads.h. A job holds its upload; the last one, which closes or deletes its files, frees it. */
#include "server/library/uploads.h"

#include "common/base/list.h"
#include "common/base/log.h"
#include "common/work/jobs.h"
#include "server/hub/fetch_part.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ID_BYTES = 32 };

struct uploads {
	struct jobs *jobs;
	struct upload *all;         // that are not dropped
	struct upload_job *waiting; // not delivered yet
};

struct upload {
	struct upload *next, **link; // the loop's; link NULL: it is dropped
	char model_id[ID_BYTES], file[FETCH_PATH_BYTES];
	unsigned writes; // the loop's: that are not written yet
	// The thread's.
	struct fetch_part part;
	struct error fault; // since it could not be begun, or was no model
	bool unusable, ended;
};

struct upload_job {
	struct job job;                  // first member
	struct upload_job *next, **link; // the loop's
	struct uploads *uploads;
	struct upload *upload;
	void (*work)(struct upload_job *job); // on the thread
	bool writes, forgets, drops;
	int64_t bytes, offset;
	bool takes_up;
	char mark[UPLOAD_MARK_BYTES], sha256[65];
	struct net_frame *holder;
	uint8_t *copy;
	const uint8_t *piece; // (length)
	size_t length;
	upload_answered *done; // NULL: nobody waits
	void *context;
	struct upload_answer answer;
};

// ---- the thread's side ----

static void tell(struct upload_job *job)
{
	struct upload *upload = job->upload;
	struct upload_answer *answer = &job->answer;
	struct fetch_span next;
	if (upload->fault.status) {
		answer->error = upload->fault;
		answer->unusable = upload->unusable;
	}
	answer->status = answer->error.status;
	answer->done_bytes = upload->part.done_bytes;
	answer->next_offset = upload->part.identity.bytes;
	if (fetch_part_next(&upload->part, NULL, 0, 1, &next))
		answer->next_offset = next.first;
	snprintf(answer->mark, sizeof answer->mark, "%.31s", upload->part.identity.etag);
	snprintf(answer->part, sizeof answer->part, "%s", upload->part.path);
	snprintf(answer->sha256, sizeof answer->sha256, "%s", upload->part.identity.sha256);
}

static void begin(struct upload_job *job)
{
	bool anew;
	struct stat found;
	struct upload *upload = job->upload;
	struct fetch_identity identity = {.bytes = job->bytes};
	fetch_part_init(&upload->part, upload->file);
	const bool there = upload->part.identity.bytes == job->bytes;
	snprintf(identity.etag, sizeof identity.etag, "%s", job->mark);
	if (job->takes_up && !there)
		error_set(&upload->fault, STATUS_NOT_FOUND, "what was uploaded of it is lost");
	else if (!stat(upload->part.journal, &found))
		job->answer.touched_ms = (int64_t)found.st_mtim.tv_sec * 1000 + found.st_mtim.tv_nsec / 1000000;
	if (job->takes_up && there)
		identity = upload->part.identity;
	if (!upload->fault.status)
		fetch_part_open(&upload->part, &identity, &anew, &upload->fault);
}

static bool is_as_sent(struct upload_job *job)
{
	unsigned char digest[32];
	char text[65];
	if (!job->sha256[0])
		return true;
	if (EVP_Digest(job->piece, job->length, digest, NULL, EVP_sha256(), NULL) != 1) {
		error_set(&job->answer.error, STATUS_INTERNAL, "SHA-256 is not available");
		return false;
	}
	for (size_t i = 0; i < sizeof digest; i++)
		snprintf(text + 2 * i, 3, "%02x", digest[i]);
	if (!strcmp(text, job->sha256))
		return true;
	error_set(&job->answer.error, STATUS_INVALID_PARAMS,
		  "the piece is not what was sent: its SHA-256 is %.16s..., not %.16s...", text, job->sha256);
	error_hint(&job->answer.error, "send the piece again");
	return false;
}

static void write_piece(struct upload_job *job)
{
	struct upload *upload = job->upload;
	struct fetch_part *part = &upload->part;
	struct error *error = &job->answer.error;
	if (upload->fault.status || !is_as_sent(job))
		return;
	enum status status = fetch_part_begins(job->offset, job->piece, job->length, &upload->fault);
	if (!status)
		status = fetch_part_write(part, job->offset, job->piece, job->length, error);
	if (!status && !fetch_part_save(part, false, error))
		status = fetch_part_judge(part, &upload->fault);
	if (status == STATUS_OUT_OF_MEMORY)
		upload->fault = (struct error){0}; // it is judged at the end, too
	upload->unusable = upload->fault.status;
}

static void look(struct upload_job *job)
{
	(void)job;
}

static void end(struct upload_job *job)
{
	struct fetch_span next;
	struct upload *upload = job->upload;
	struct fetch_part *part = &upload->part;
	struct error *error = &job->answer.error;
	if (upload->fault.status)
		return;
	if (fetch_part_next(part, NULL, 0, INT64_MAX, &next)) {
		error_set(error, STATUS_CONFLICT, "the bytes %lld to %lld of the file are missing",
			  (long long)next.first, (long long)next.end - 1);
		error_hint(error, "send them with model.upload_write");
		return;
	}
	if (job->sha256[0])
		snprintf(part->identity.sha256, sizeof part->identity.sha256, "%s", job->sha256);
	part->dirty = true;
	upload->ended = !fetch_part_save(part, true, error);
	if (upload->ended)
		fetch_part_finish(part);
}

static void drop(struct upload_job *job)
{
	struct fetch_part *part = &job->upload->part;
	if (!part->path[0])
		fetch_part_init(part, job->upload->file);
	if (!job->forgets) {
		fetch_part_finish(part);
		return;
	}
	if (part->fd >= 0)
		close(part->fd);
	part->fd = -1;
	if ((unlink(part->journal) && errno != ENOENT) || (unlink(part->path) && errno != ENOENT))
		log_warning("models", "%s cannot be deleted: %s", part->path, strerror(errno));
}

static void run(struct job *pointer)
{
	struct upload_job *job = (struct upload_job *)pointer;
	job->work(job);
	tell(job);
}

// ---- the loop's side ----

static void upload_free(struct upload *upload)
{
	if (upload->link)
		LIST_REMOVE(upload, link);
	free(upload);
}

static void deliver(struct outbox_item *item, bool tells)
{
	struct upload_job *job = (struct upload_job *)item;
	struct upload *upload = job->upload;
	LIST_REMOVE(job, link);
	upload->writes -= job->writes;
	if (!tells && job->drops) // it may not have been begun
		drop(job);
	if (!tells || !upload->link) {
		job->answer.unusable = false; // whoever dropped it knows
		if (!tells || !job->answer.status) {
			job->answer.error = (struct error){0};
			error_set(&job->answer.error, STATUS_NOT_FOUND, "the upload was cancelled");
			job->answer.status = STATUS_NOT_FOUND;
		}
	}
	if (job->done)
		job->done(job->context, &job->answer);
	net_frame_unref(&job->holder);
	free(job->copy);
	if (job->drops)
		upload_free(upload);
	free(job);
}

static struct upload_job *put(struct uploads *uploads, struct upload *upload, const struct upload_job *of,
			      struct error *error)
{
	struct upload_job *job = malloc(sizeof *job);
	if (!job) {
		error_set(error, STATUS_OUT_OF_MEMORY, "no memory for an upload");
		return NULL;
	}
	*job = *of;
	job->job = (struct job){.item.deliver = deliver, .run = run};
	job->uploads = uploads;
	job->upload = upload;
	LIST_PUSH(&uploads->waiting, job, link);
	jobs_put(uploads->jobs, &job->job);
	return job;
}

static struct upload *find(const struct uploads *uploads, const char *model_id)
{
	struct upload *upload = uploads->all;
	while (upload && strcmp(upload->model_id, model_id) != 0)
		upload = upload->next;
	return upload;
}

static struct upload *create(struct uploads *uploads, const char *model_id, const char *file)
{
	struct upload *upload = calloc(1, sizeof *upload);
	if (!upload)
		return NULL;
	snprintf(upload->model_id, sizeof upload->model_id, "%s", model_id);
	snprintf(upload->file, sizeof upload->file, "%s", file);
	upload->part.fd = -1;
	LIST_PUSH(&uploads->all, upload, link);
	return upload;
}

static enum status no_upload(struct error *error)
{
	error_set(error, STATUS_NOT_FOUND, "this is no upload that goes on");
	error_hint(error, "model.upload_begin begins one, and answers which bytes are missing");
	return STATUS_NOT_FOUND;
}

enum status uploads_begin(struct uploads *uploads, const struct upload_begin *of, struct error *error)
{
	if (find(uploads, of->model_id))
		uploads_drop(uploads, of->model_id, of->file, false);
	struct upload *upload = create(uploads, of->model_id, of->file);
	struct upload_job job = {
		.work = begin, .bytes = of->bytes, .takes_up = !of->mark, .done = of->done, .context = of->context};
	snprintf(job.mark, sizeof job.mark, "%s", of->mark ? of->mark : "");
	if (upload && put(uploads, upload, &job, error))
		return STATUS_OK;
	if (upload)
		upload_free(upload);
	return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for an upload");
}

enum status uploads_look(struct uploads *uploads, const struct upload_ask *ask, struct error *error)
{
	struct upload *upload = find(uploads, ask->model_id);
	const struct upload_job job = {.work = look, .done = ask->done, .context = ask->context};
	if (!upload)
		return no_upload(error);
	return put(uploads, upload, &job, error) ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

enum status uploads_write(struct uploads *uploads, const struct upload_ask *ask, const struct upload_piece *piece,
			  struct error *error)
{
	struct upload *upload = find(uploads, ask->model_id);
	struct upload_job job = {.work = write_piece,
				 .writes = true,
				 .offset = piece->offset,
				 .piece = piece->bytes,
				 .length = piece->length,
				 .done = ask->done,
				 .context = ask->context};
	if (!upload)
		return no_upload(error);
	if (upload->writes >= LIMIT_UPLOAD_WRITES) {
		error_set(error, STATUS_LIMIT_EXCEEDED, "%d pieces of this file are not written yet",
			  LIMIT_UPLOAD_WRITES);
		error_hint(error, "wait for an answer before sending more");
		return STATUS_LIMIT_EXCEEDED;
	}
	snprintf(job.sha256, sizeof job.sha256, "%s", piece->sha256);
	if (piece->holder) {
		job.holder = net_frame_ref(piece->holder);
	} else {
		job.piece = job.copy = malloc(piece->length);
		if (!job.copy)
			return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for an upload");
		memcpy(job.copy, piece->bytes, piece->length);
	}
	if (put(uploads, upload, &job, error)) {
		upload->writes++;
		return STATUS_OK;
	}
	net_frame_unref(&job.holder);
	free(job.copy);
	return STATUS_OUT_OF_MEMORY;
}

enum status uploads_end(struct uploads *uploads, const struct upload_ask *ask, const char *sha256, struct error *error)
{
	struct upload *upload = find(uploads, ask->model_id);
	struct upload_job job = {.work = end, .done = ask->done, .context = ask->context};
	snprintf(job.sha256, sizeof job.sha256, "%s", sha256);
	if (!upload)
		return no_upload(error);
	return put(uploads, upload, &job, error) ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}

void uploads_drop(struct uploads *uploads, const char *model_id, const char *file, bool forget)
{
	struct error ignored = {0};
	struct upload *upload = find(uploads, model_id);
	const struct upload_job job = {.work = drop, .drops = true, .forgets = forget};
	if (!upload && forget)
		upload = create(uploads, model_id, file);
	if (!upload)
		return;
	if (!put(uploads, upload, &job, &ignored)) {
		log_warning("models", "%s cannot be deleted: no memory", file);
		return;
	}
	LIST_REMOVE(upload, link);
	upload->link = NULL;
}

enum status uploads_create(struct uploads **out, struct net_loop *loop, struct error *error)
{
	struct uploads *uploads = *out = calloc(1, sizeof *uploads);
	if (!uploads)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for uploads");
	const enum status status = jobs_create(&uploads->jobs, loop, 1, error);
	if (status)
		uploads_destroy(out);
	return status;
}

void uploads_stop(struct uploads *uploads)
{
	struct upload_answer stops = {.status = STATUS_UNAVAILABLE};
	error_set(&stops.error, STATUS_UNAVAILABLE, "the server stops");
	error_hint(&stops.error, "what was sent stays: begin again once the server is back");
	for (struct upload_job *job = uploads->waiting, *next; job; job = next) {
		upload_answered *done = job->done;
		next = job->next;
		job->done = NULL;
		if (done)
			done(job->context, &stops);
	}
}

void uploads_destroy(struct uploads **pointer)
{
	struct uploads *uploads = *pointer;
	if (!uploads)
		return;
	*pointer = NULL;
	uploads_stop(uploads);
	jobs_destroy(&uploads->jobs);
	while (uploads->all) {
		fetch_part_finish(&uploads->all->part);
		upload_free(uploads->all);
	}
	free(uploads);
}
