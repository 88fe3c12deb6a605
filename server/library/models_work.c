/* See models_inside.h: what becomes of a model that is being added. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/library/models_inside.h"

#include <stdio.h>
#include <string.h>

enum { TELL_NS = 250000000 }; // progress at most so often

static void outcome_stored(struct model_change *change, enum status status, const struct error *error)
{
	struct model *model = change->model;
	const unsigned holds = model->record.holds;
	model->working = false;
	if (status) { // it is taken up again at the next start
		model->record.state = MODEL_FAILED;
		snprintf(model->record.state_reason, sizeof model->record.state_reason, "%.200s", error->message);
	} else {
		model->record = change->becomes;
		model->record.holds = holds;
		model->modified_ns = change->modified_ns;
	}
	if (model->record.state == MODEL_READY)
		log_info("models", "%s is ready", model->record.name);
	else
		log_warning("models", "%s: %s", model->record.name, model->record.state_reason);
	models_publish(change->models, model);
	if (model->record.state == MODEL_READY)
		model_work_hash(change->models, model);
}

static void print_outcome(const struct model_record *record, struct buffer *detail)
{
	struct json *json = json_new_object();
	if (record->state == MODEL_READY) {
		json_set_string(json, "sha256", record->sha256[0] ? record->sha256 : NULL);
		json_set_integer(json, "bytes", (int64_t)record->file_bytes);
	} else {
		json_set_string(json, "reason", record->state_reason);
	}
	json_set_string(json, "source", record->source);
	json_print(json, detail);
	json_destroy(&json);
}

// Ready or failed, as change->becomes says.
static void settle(struct models *models, struct model_change *change, enum status outcome)
{
	struct buffer detail;
	struct error error = {0};
	struct model *model = change->model;
	change->apply = outcome_stored;
	buffer_init(&detail, ENTRY_TEXT_BYTES);
	print_outcome(&change->becomes, &detail);
	const struct audit_event event = {.action = outcome ? "model.failed" : "model.ready",
					  .target = model->record.model_id,
					  .outcome = outcome,
					  .detail = buffer_text(&detail)};
	if (model_change_commit(&change, &event, &error)) {
		model->working = false;
		model->record.state = MODEL_FAILED;
		snprintf(model->record.state_reason, sizeof model->record.state_reason, "%.200s", error.message);
		models_publish(models, model);
	}
	buffer_finish(&detail);
}

void model_work_fail(struct models *models, struct model *model, const struct error *why)
{
	struct model_change *change = model_change_create(models, model);
	if (!change)
		return; // it is taken up again at the next start
	struct model_record *becomes = &change->becomes;
	becomes->state = MODEL_FAILED;
	snprintf(becomes->state_reason, sizeof becomes->state_reason, "%s%s%s", why->message, why->hint[0] ? "; " : "",
		 why->hint);
	settle(models, change, why->status ? why->status : STATUS_INTERNAL);
}

static void hash_stored(struct model_change *change, enum status status, const struct error *error)
{
	struct model *model = change->model;
	if (status) // it is hashed again at the next start
		log_warning("models", "%s: its SHA-256 is not stored: %s", model->record.name, error->message);
	snprintf(model->record.sha256, sizeof model->record.sha256, "%s", change->becomes.sha256);
	models_publish(change->models, model);
}

// Stores the SHA-256 of a file that is already in use; an unreadable one is noticed at its next use.
static void hashed(struct models *models, struct model *model, const struct reading_result *result)
{
	struct buffer detail;
	struct error error = {0};
	const bool same = result->bytes == model->record.file_bytes && result->modified_ns == model->modified_ns;
	struct model_change *change = result->status || !same ? NULL : model_change_create(models, model);
	if (!change)
		return;
	change->apply = hash_stored;
	snprintf(change->becomes.sha256, sizeof change->becomes.sha256, "%s", result->sha256);
	buffer_init(&detail, ENTRY_TEXT_BYTES);
	print_outcome(&change->becomes, &detail);
	const struct audit_event event = {
		.action = "model.hashed", .target = model->record.model_id, .detail = buffer_text(&detail)};
	if (model_change_commit(&change, &event, &error))
		log_warning("models", "%s: its SHA-256 is not stored: %s", model->record.name, error.message);
	buffer_finish(&detail);
}

// Joined or converted from files that stay where they are.
static bool is_made(const struct model *model)
{
	return model->kind == SOURCE_PATH && strcmp(model->record.path, model->record.source) != 0;
}

// Of what was downloaded or uploaded.
static void let_go(struct models *models, const struct model *model, bool delete_file)
{
	if (model->kind == SOURCE_UPLOAD)
		uploads_drop(models->uploads, model->record.model_id, model->record.path, delete_file);
	else if (model->kind != SOURCE_PATH)
		fetcher_cancel(models->fetcher, model->record.model_id, model->record.path, delete_file);
}

void models_work_read(void *context, const struct reading_result *result)
{
	struct models *models = context;
	struct model *model = models_by_id(models, result->model_id);
	if (model && !model->removing && result->hashed_only && model->record.state == MODEL_READY) {
		hashed(models, model, result);
		return;
	}
	if (!model || model->removing || model->record.state != MODEL_DOWNLOADING)
		return;
	// Of a download nothing but the file is needed any more, and nothing at all if that is not what it should be.
	if (!result->status || result->unusable)
		let_go(models, model, true);
	if (result->unusable && is_made(model)) // made again when it is added again
		reading_forget(models->reading, model->record.model_id, model->record.path);
	if (result->status) {
		model_work_fail(models, model, &result->error);
		return;
	}
	struct model_change *change = model_change_create(models, model);
	if (!change)
		return;
	struct model_record *becomes = &change->becomes;
	becomes->state = MODEL_READY;
	becomes->state_reason[0] = 0;
	becomes->file_bytes = result->bytes;
	becomes->shape = result->shape;
	becomes->sizes = result->sizes;
	snprintf(becomes->sha256, sizeof becomes->sha256, "%s", result->sha256);
	snprintf(becomes->file_format, sizeof becomes->file_format, "%s", result->file_format);
	snprintf(becomes->chat_template, sizeof becomes->chat_template, "%s", result->chat_template);
	becomes->sampling = result->sampling;
	change->modified_ns = result->modified_ns;
	settle(models, change, STATUS_OK);
}

void model_work_hash(struct models *models, const struct model *model)
{
	const struct reading_request request = {
		.model_id = model->record.model_id, .path = model->record.path, .hash = true};
	struct error ignored = {0};
	if (!model->record.sha256[0])
		reading_ask(models->reading, &request, &ignored);
}

// ---- progress ----

static void tell(struct models *models, struct model *model, bool now)
{
	if (!now && clock_steady_ns() - model->told_ns < TELL_NS)
		return;
	model->told_ns = clock_steady_ns();
	models_publish(models, model);
}

void models_work_hashed(void *context, const struct reading_progress *progress)
{
	struct models *models = context;
	struct model *model = models_by_id(models, progress->model_id);
	if (!model || model->record.state != MODEL_DOWNLOADING)
		return;
	const enum model_step before = model->step;
	model->step = progress->converting ? STEP_CONVERTING : STEP_VERIFYING;
	model->done_bytes = progress->done_bytes;
	model->total_bytes = progress->total_bytes;
	tell(models, model, model->step != before);
}

void models_work_progress(void *context, const struct fetch_progress *progress)
{
	static const enum model_step steps[] = {
		[FETCH_WAITING] = STEP_WAITING, [FETCH_FINDING] = STEP_FINDING, [FETCH_DOWNLOADING] = STEP_DOWNLOADING};
	struct models *models = context;
	struct model *model = models_by_id(models, progress->model_id);
	if (!model || model->record.state != MODEL_DOWNLOADING || model->step >= STEP_VERIFYING)
		return;
	const enum model_step before = model->step;
	model->step = steps[progress->step];
	model->done_bytes = progress->done_bytes;
	model->total_bytes = progress->total_bytes;
	model->bytes_per_s = progress->bytes_per_s;
	model->connections = progress->connections;
	model->retries = progress->retries;
	if (progress->total_bytes)
		model->record.file_bytes = progress->total_bytes;
	snprintf(model->record.state_reason, sizeof model->record.state_reason, "%s",
		 progress->reason[0] ? progress->reason : model->why);
	tell(models, model, model->step != before);
}

static void picked_stored(struct model_change *change, enum status status, const struct error *error)
{
	struct model *model = change->model;
	if (status) // at the next start it is picked again
		log_warning("models", "%s: the chosen file could not be stored: %s", model->record.name,
			    error->message);
	else
		snprintf(model->record.source, sizeof model->record.source, "%s", change->becomes.source);
	models_publish(change->models, model);
}

void models_work_picked(void *context, const char *model_id, const struct source *source, const char *why)
{
	struct models *models = context;
	struct error error = {0};
	struct model *model = models_by_id(models, model_id);
	if (!model || model->removing || model->record.state != MODEL_DOWNLOADING)
		return;
	for (size_t i = 0; i < models->count; i++) {
		const struct model *other = models->all[i];
		if (other == model || strcmp(other->record.source, source->text) != 0)
			continue;
		error_set(&error, STATUS_CONFLICT, "%.100s, which fits best, is here already: %.100s", source->file,
			  other->record.name);
		model_work_stop(models, model, true);
		model_work_fail(models, model, &error);
		return;
	}
	log_info("models", "%s: %s", model->record.name, why);
	snprintf(model->why, sizeof model->why, "%s", why);
	struct model_change *change = model_change_create(models, model);
	if (!change)
		return;
	change->apply = picked_stored;
	change->becomes.state_reason[0] = 0;
	snprintf(change->becomes.source, sizeof change->becomes.source, "%s", source->text);
	model_change_commit(&change, NULL, &error);
}

void model_work_tell(struct models *models, struct model *model)
{
	tell(models, model, false);
}

// ---- from one thread to the next ----

void model_work_verify(struct models *models, struct model *model, const struct reading_request *request)
{
	struct error error = {0};
	model->step = request->folder && !request->fetched ? STEP_CONVERTING : STEP_VERIFYING;
	model->done_bytes = 0;
	model->total_bytes = model->record.file_bytes;
	model->bytes_per_s = -1;
	model->connections = 0;
	model->record.state_reason[0] = 0;
	if (reading_ask(models->reading, request, &error))
		model_work_fail(models, model, &error);
	else
		tell(models, model, true);
}

// A repository of safetensors, all files of which are there.
static void convert_fetched(struct models *models, struct model *model)
{
	struct source source;
	const bool known = !source_parse(model->record.source, &source, NULL);
	const struct reading_request request = {.model_id = model->record.model_id,
						.path = model->record.source,
						.place = model->record.path,
						.folder = true,
						.fetched = true,
						.title = known ? source.repository : NULL};
	model_work_verify(models, model, &request);
}

// All of a fetched folder was compared with what its hub says, before a stop or before its conversion failed.
static bool is_fetched(const struct model *model)
{
	char folder[MODEL_PATH_BYTES + 16];
	return (model->kind == SOURCE_HUB || model->kind == SOURCE_HUB_WEIGHTS) &&
	       fetch_folder_path(model->record.path, true, folder, sizeof folder) && reading_is_folder(folder);
}

void models_work_fetched(void *context, const struct fetch_result *result)
{
	struct models *models = context;
	struct model *model = models_by_id(models, result->model_id);
	if (!model || model->removing || model->record.state != MODEL_DOWNLOADING)
		return;
	if (result->status) {
		if (result->unusable)
			fetcher_cancel(models->fetcher, model->record.model_id, model->record.path, true);
		model_work_fail(models, model, &result->error);
		return;
	}
	if (result->folder) {
		convert_fetched(models, model);
		return;
	}
	const struct reading_request request = {.model_id = model->record.model_id,
						.path = result->part,
						.place = model->record.path,
						.sha256 = result->sha256,
						.sampling = &result->sampling,
						.parts = result->parts,
						.part_sha256s = result->part_sha256s};
	model_work_verify(models, model, &request);
}

static void fetch(struct models *models, struct model *model, const char *access_token)
{
	struct source source;
	struct error error = {0};
	struct models_room room;
	enum status status = source_parse(model->request ? model->request : model->record.source, &source, &error);
	models_look_room(models, &room);
	const struct fetch_request request = {.model_id = model->record.model_id,
					      .file = model->record.path,
					      .source = &source,
					      .access_token = access_token,
					      .room = room};
	model->step = STEP_WAITING;
	model->done_bytes = model->total_bytes = 0;
	model->retries = 0;
	model->why[0] = 0;
	if (!status)
		status = fetcher_start(models->fetcher, &request, &error);
	if (status)
		model_work_fail(models, model, &error);
}

void model_work_start(struct models *models, struct model *model, const char *access_token)
{
	uint64_t bytes;
	int64_t modified_ns;
	model->working = true;
	size_t number_at;
	const unsigned parts = model->kind == SOURCE_PATH ? source_parts(model->record.source, &number_at) : 0;
	const bool whole = reading_look(model->record.path, &bytes, &modified_ns),
		   there = model->kind == SOURCE_PATH || whole;
	const struct reading_request request = {.model_id = model->record.model_id, .path = model->record.path},
				     together = {.model_id = model->record.model_id,
						 .path = model->record.source,
						 .place = model->record.path,
						 .parts = parts,
						 .folder = !parts};
	if (is_made(model) && !whole)
		model_work_verify(models, model, &together);
	else if (there) // one that was fetched, too, if its outcome could not be stored
		model_work_verify(models, model, &request);
	else if (model->kind == SOURCE_UPLOAD)
		model_upload_start(models, model);
	else if (is_fetched(model))
		convert_fetched(models, model);
	else
		fetch(models, model, access_token);
}

void model_work_stop(struct models *models, struct model *model, bool delete_file)
{
	model->working = false;
	reading_forget(models->reading, model->record.model_id, delete_file ? model->record.path : NULL);
	let_go(models, model, delete_file);
}
