/* See models_inside.h and models.h: models whose files clients send in pieces. Such a model is in the list from the
 * first piece on, downloading; so it is known under its name, survives a restart, and is cancelled by its removal.
 * Which file it is, of those that have the same name, its length and its time of change tell. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/hub/fetch_part.h"
#include "server/library/models_inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { RECKON_NS = 1000000000 };
static const int64_t expires_ms = LIMIT_UPLOAD_DAYS * 86400000LL;

// Who waits for an answer about an upload.
struct waiting {
	struct models *models;
	char model_id[MODEL_ID_BYTES];
	char mark[UPLOAD_MARK_BYTES]; // that the file must have; "": any
	models_told *done;
	void *context;
};

static struct waiting *wait(struct models *models, const char *model_id, models_told *done, void *context)
{
	struct waiting *waiting = calloc(1, sizeof *waiting);
	if (!waiting)
		return NULL;
	*waiting = (struct waiting){.models = models, .done = done, .context = context};
	snprintf(waiting->model_id, sizeof waiting->model_id, "%s", model_id);
	return waiting;
}

static enum status no_memory(struct error *error)
{
	return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for an upload");
}

static bool is_uploading(const struct model *model)
{
	return model->kind == SOURCE_UPLOAD && model->record.state == MODEL_DOWNLOADING &&
	       model->step == STEP_UPLOADING && !model->removing;
}

// Also one that is being stored.
static bool is_begun(const struct model *model)
{
	return model->kind == SOURCE_UPLOAD && (model->record.state == MODEL_DOWNLOADING || model->working) &&
	       model->step != STEP_VERIFYING;
}

// ---- how far it is ----

// The mean of about the last second, so that it says something when pieces come in bursts.
static void reckon(struct model *model)
{
	const int64_t now_ns = clock_steady_ns(), passed_ns = now_ns - model->came_ns;
	if (passed_ns < RECKON_NS)
		return;
	const double bytes = (double)model->done_bytes - (double)model->came_bytes;
	model->bytes_per_s = model->came_ns && bytes >= 0 ? bytes * 1e9 / (double)passed_ns : -1;
	model->came_ns = now_ns;
	model->came_bytes = (int64_t)model->done_bytes;
}

static void take(struct models *models, struct model *model, const struct upload_answer *answer)
{
	model->done_bytes = (uint64_t)answer->done_bytes;
	snprintf(model->mark, sizeof model->mark, "%s", answer->mark);
	reckon(model);
	model_work_tell(models, model);
}

static void verify(struct models *models, struct model *model, const struct upload_answer *whole)
{
	const struct reading_request request = {.model_id = model->record.model_id,
						.path = whole->part,
						.place = model->record.path,
						.sha256 = whole->sha256};
	model_work_verify(models, model, &request);
}

// Nothing more is taken of it.
static void give_up(struct models *models, struct model *model, const struct error *why)
{
	uploads_drop(models->uploads, model->record.model_id, model->record.path, true);
	model_work_fail(models, model, why);
}

// ---- beginning ----

static void ended_before(void *context, const struct upload_answer *answer)
{
	struct waiting *waiting = context;
	struct model *model = models_by_id(waiting->models, waiting->model_id);
	if (model && is_uploading(model) && !answer->status)
		verify(waiting->models, model, answer);
	free(waiting);
}

// All of it came before the server stopped.
static void end_now(struct models *models, struct model *model)
{
	struct error ignored = {0};
	struct waiting *waiting = wait(models, model->record.model_id, NULL, NULL);
	const struct upload_ask ask = {.model_id = model->record.model_id, .done = ended_before, .context = waiting};
	if (waiting && uploads_end(models->uploads, &ask, "", &ignored))
		free(waiting);
}

static void begun(void *context, const struct upload_answer *answer)
{
	struct waiting *waiting = context;
	struct models *models = waiting->models;
	struct model *model = models_by_id(models, waiting->model_id);
	const bool taken_up = model && !model->mark[0];
	free(waiting);
	if (models->stopping || !model || !is_uploading(model))
		return;
	struct error error = answer->error;
	if (!answer->status && taken_up && clock_wall_ms() - answer->touched_ms > expires_ms)
		error_set(&error, STATUS_TIMEOUT, "nothing came for %d days", LIMIT_UPLOAD_DAYS);
	if (error.status == STATUS_NOT_FOUND || error.status == STATUS_TIMEOUT ||
	    (error.status && !answer->done_bytes)) {
		error_hint(&error, "upload the file again");
		give_up(models, model, &error);
		return;
	}
	if (error.status) { // such as no room on the disk: what has come stays
		uploads_drop(models->uploads, model->record.model_id, model->record.path, false);
		model_work_fail(models, model, &error);
		return;
	}
	take(models, model, answer);
	if (taken_up && answer->done_bytes == (int64_t)model->record.file_bytes)
		end_now(models, model);
}

void model_upload_start(struct models *models, struct model *model)
{
	struct error error = {0};
	struct waiting *waiting = wait(models, model->record.model_id, NULL, NULL);
	const struct upload_begin begin = {.model_id = model->record.model_id,
					   .file = model->record.path,
					   .bytes = (int64_t)model->record.file_bytes,
					   .mark = model->mark[0] ? model->mark : NULL,
					   .done = begun,
					   .context = waiting};
	model->step = STEP_UPLOADING;
	model->done_bytes = 0;
	model->total_bytes = model->record.file_bytes;
	model->bytes_per_s = -1;
	model->connections = model->retries = 0;
	model->came_ns = model->came_bytes = 0;
	enum status status = waiting ? uploads_begin(models->uploads, &begin, &error) : no_memory(&error);
	if (status) {
		free(waiting);
		model_work_fail(models, model, &error);
	}
}

// ---- what clients ask ----

static void answer(struct waiting *waiting, const struct upload_answer *answer)
{
	struct models *models = waiting->models;
	const struct model *model = models_by_id(models, waiting->model_id);
	struct error error = answer->error;
	if (!answer->status && !model)
		error_set(&error, STATUS_NOT_FOUND, "the upload was cancelled");
	if (error.status) {
		waiting->done(waiting->context, NULL, &error);
	} else {
		const struct models_uploaded uploaded = {
			.record = &model->record, .done_bytes = answer->done_bytes, .next_offset = answer->next_offset};
		waiting->done(waiting->context, &uploaded, NULL);
	}
	free(waiting);
}

static enum status another(const struct model *model, const char *what, struct error *error)
{
	error_set(error, STATUS_CONFLICT, "a file of this name %s: the model %.80s, %" PRIu64 " bytes", what,
		  model->record.name, model->record.file_bytes);
	error_hint(error, "rename the file, or first remove that model: exogpu model remove %.80s", model->record.name);
	return STATUS_CONFLICT;
}

static const char other_content[] = "but with other content is being uploaded";

static void looked(void *context, const struct upload_answer *found)
{
	struct waiting *waiting = context;
	struct upload_answer other = {0};
	const struct model *model = models_by_id(waiting->models, waiting->model_id);
	if (model && !found->status && strcmp(found->mark, waiting->mark) != 0) {
		other.status = another(model, other_content, &other.error);
		found = &other;
	}
	answer(waiting, found);
}

static void look(struct waiting *waiting)
{
	struct upload_answer failed = {0};
	const struct upload_ask ask = {.model_id = waiting->model_id, .done = looked, .context = waiting};
	if (waiting->models->stopping)
		error_set(&failed.error, STATUS_UNAVAILABLE, "the server stops");
	else
		uploads_look(waiting->models->uploads, &ask, &failed.error);
	if (failed.error.status) {
		failed.status = failed.error.status;
		answer(waiting, &failed);
	}
}

// It is on disk that there is such a model, and its upload begins.
static void added(void *context, enum status status, const struct model_record *record, const struct error *error)
{
	struct waiting *waiting = context;
	if (status) {
		waiting->done(waiting->context, NULL, error);
		free(waiting);
		return;
	}
	snprintf(waiting->model_id, sizeof waiting->model_id, "%s", record->model_id);
	look(waiting);
}

// Whether this file may go on at the model of the same file name, if there is one, or take its place.
static enum status check_same(const struct model *model, const struct models_upload *upload, const char *mark,
			      struct error *error)
{
	uint64_t bytes;
	int64_t modified_ns;
	if (!model)
		return STATUS_OK;
	if (model->record.state == MODEL_READY)
		return another(model, "is here already", error);
	if (model->record.state == MODEL_MISSING && reading_look(model->record.path, &bytes, &modified_ns))
		return another(model, "is here and was changed on the server", error);
	if (model->record.state != MODEL_DOWNLOADING)
		return STATUS_OK;
	if (model->step == STEP_VERIFYING)
		return another(model, "was uploaded and is being checked", error);
	if ((int64_t)model->record.file_bytes != upload->bytes || (model->mark[0] && strcmp(model->mark, mark) != 0))
		return another(model, other_content, error);
	return STATUS_OK;
}

// A file in parts, one of which is no model.
static enum status check_parts(const struct models_upload *upload, struct error *error)
{
	size_t at;
	const unsigned parts = source_parts(upload->file, &at);
	if (!parts)
		return STATUS_OK;
	error_set(error, STATUS_INVALID_PARAMS, "this is one of %u files that are a model together", parts);
	error_hint(error, "join them first, with llama-gguf-split --merge, and upload the one file; or copy all to a "
			  "folder of the server's machine and add the first by its path");
	return STATUS_INVALID_PARAMS;
}

// On disk, of an upload that failed and that may go on.
static int64_t there_bytes(const struct model *model)
{
	struct stat found;
	char part[MODEL_PATH_BYTES + 8];
	snprintf(part, sizeof part, "%s.part", model->record.path);
	return lstat(part, &found) ? 0 : (int64_t)found.st_blocks * 512;
}

// `model`: that it will be, if there was one.
static enum status check_room(const struct models *models, const struct models_upload *upload,
			      const struct model *model, struct error *error)
{
	size_t uploads = 0;
	char place[MODEL_PATH_BYTES];
	const int64_t there = model ? there_bytes(model) : 0;
	for (size_t i = 0; i < models->count; i++)
		uploads += is_begun(models->all[i]);
	if (uploads >= LIMIT_UPLOADS) {
		error_set(error, STATUS_LIMIT_EXCEEDED, "%d files are being uploaded", LIMIT_UPLOADS);
		error_hint(error,
			   "wait for one, or cancel one: exogpu model list shows them, exogpu model remove NAME");
		return STATUS_LIMIT_EXCEEDED;
	}
	if (upload->bytes / (1024LL * 1024 * 1024) >= LIMIT_MODEL_FILE_GIB)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "the file is larger than %d GiB", LIMIT_MODEL_FILE_GIB);
	snprintf(place, sizeof place, "%s/", models->directory);
	return fetch_part_check_room(place, upload->bytes > there ? upload->bytes - there : 0, error);
}

enum status models_upload_begin(struct models *models, const struct models_upload *upload, struct error *error)
{
	struct source source;
	char text[SOURCE_TEXT_BYTES], mark[UPLOAD_MARK_BYTES];
	const struct model_record *there = NULL;
	snprintf(text, sizeof text, "upload:%s", upload->file);
	snprintf(mark, sizeof mark, "%" PRId64, upload->modified_ms);
	if (models->stopping)
		return error_set(error, STATUS_UNAVAILABLE, "the server stops");
	enum status status = source_parse(text, &source, error);
	if (!status)
		status = check_parts(upload, error);
	if (status)
		return status;
	struct model *model = models_of_source(models, &source);
	status = check_same(model, upload, mark, error);
	if (!status && !(model && is_uploading(model)))
		status = check_room(models, upload, model, error);
	if (status)
		return status;
	struct waiting *waiting = wait(models, model ? model->record.model_id : "", upload->done, upload->context);
	if (!waiting)
		return no_memory(error);
	snprintf(waiting->mark, sizeof waiting->mark, "%s", mark);
	const struct models_add add = {.source = text,
				       .name = upload->name,
				       .file_bytes = (uint64_t)upload->bytes,
				       .by = upload->by,
				       .done = added,
				       .context = waiting};
	status = models_add_source(models, &add, &source, &there, error);
	if (!status) {
		look(waiting);
		return STATUS_OK;
	}
	if (status != STATUS_PENDING) {
		free(waiting);
		return status;
	}
	model = models_of_source(models, &source);
	snprintf(model->mark, sizeof model->mark, "%s", mark);
	return STATUS_OK;
}

static void written(void *context, const struct upload_answer *found)
{
	struct waiting *waiting = context;
	struct models *models = waiting->models;
	struct model *model = models_by_id(models, waiting->model_id);
	if (!models->stopping && model && is_uploading(model)) {
		if (!found->status)
			take(models, model, found);
		else if (found->unusable)
			give_up(models, model, &found->error);
	}
	answer(waiting, found);
}

static enum status find_upload(const struct models *models, const char *model_id, struct model **out,
			       struct error *error)
{
	*out = models_by_id(models, model_id);
	if (!models->stopping && *out && is_uploading(*out))
		return STATUS_OK;
	error_set(error, STATUS_NOT_FOUND, "%.64s is no upload that goes on", model_id);
	error_hint(error, "model.upload_begin begins one, or says how far it is");
	return STATUS_NOT_FOUND;
}

enum status models_upload_write(struct models *models, const struct models_piece *piece, struct error *error)
{
	struct model *model;
	enum status status = find_upload(models, piece->model_id, &model, error);
	if (status)
		return status;
	const int64_t bytes = (int64_t)model->record.file_bytes;
	if (!piece->length || piece->length > LIMIT_UPLOAD_PIECE_BYTES) {
		error_set(error, STATUS_INVALID_PARAMS, "a piece has 1 to %d bytes", LIMIT_UPLOAD_PIECE_BYTES);
		error_hint(error, "send the file in more pieces");
		return STATUS_INVALID_PARAMS;
	}
	if (piece->offset > bytes || (int64_t)piece->length > bytes - piece->offset) {
		error_set(error, STATUS_INVALID_PARAMS, "the file was said to have %" PRId64 " bytes", bytes);
		error_hint(error, "if it has grown, cancel this upload (exogpu model remove) and begin anew");
		return STATUS_INVALID_PARAMS;
	}
	struct waiting *waiting = wait(models, piece->model_id, piece->done, piece->context);
	const struct upload_ask ask = {.model_id = piece->model_id, .done = written, .context = waiting};
	const struct upload_piece write = {.offset = piece->offset,
					   .bytes = piece->bytes,
					   .length = piece->length,
					   .holder = piece->holder,
					   .sha256 = piece->sha256};
	status = waiting ? uploads_write(models->uploads, &ask, &write, error) : no_memory(error);
	if (status)
		free(waiting);
	return status;
}

static void ended(void *context, const struct upload_answer *found)
{
	struct waiting *waiting = context;
	struct models *models = waiting->models;
	struct model *model = models_by_id(models, waiting->model_id);
	if (!models->stopping && model && is_uploading(model)) {
		if (!found->status)
			verify(models, model, found);
		else if (found->unusable)
			give_up(models, model, &found->error);
	}
	answer(waiting, found);
}

enum status models_upload_end(struct models *models, const struct models_upload_end *end, struct error *error)
{
	struct model *model;
	enum status status = find_upload(models, end->model_id, &model, error);
	if (status)
		return status;
	struct waiting *waiting = wait(models, end->model_id, end->done, end->context);
	const struct upload_ask ask = {.model_id = end->model_id, .done = ended, .context = waiting};
	status = waiting ? uploads_end(models->uploads, &ask, end->sha256, error) : no_memory(error);
	if (status)
		free(waiting);
	return status;
}
