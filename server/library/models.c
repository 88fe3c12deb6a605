/* See models.h and models_inside.h. */
#include "common/base/clock.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/files/paths.h"
#include "server/library/models_inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- finding ----

struct model *models_by_id(const struct models *models, const char *model_id)
{
	for (size_t i = 0; i < models->count; i++)
		if (models->all[i]->saved && !strcmp(models->all[i]->record.model_id, model_id))
			return models->all[i];
	return NULL;
}

const struct model_record *models_find(const struct models *models, const char *id_or_name)
{
	const struct model *found = models_by_id(models, id_or_name);
	for (size_t i = 0; i < models->count && !found; i++)
		if (models->all[i]->saved && !strcmp(models->all[i]->record.name, id_or_name))
			found = models->all[i];
	return found ? &found->record : NULL;
}

const struct model_record *models_at(const struct models *models, size_t index)
{
	for (size_t i = models->count; i-- > 0;)
		if (models->all[i]->saved && !index--)
			return &models->all[i]->record;
	return NULL;
}

void model_secret_free(char *text)
{
	if (text)
		OPENSSL_cleanse(text, strlen(text));
	free(text);
}

void models_drop(struct models *models, struct model *model)
{
	size_t at = 0;
	while (at < models->count && models->all[at] != model)
		at++;
	memmove(&models->all[at], &models->all[at + 1], (models->count - at - 1) * sizeof *models->all);
	models->count--;
	model_secret_free(model->request);
	free(model);
}

// ---- telling ----

// One key for all events about a model: a slow client only needs the newest.
static uint64_t event_key(const char *model_id)
{
	uint64_t hash = 14695981039346656037u; // FNV-1a
	for (; *model_id; model_id++)
		hash = (hash ^ (uint8_t)*model_id) * 1099511628211u;
	return hash | 1;
}

// `record` NULL: it was removed.
static void publish(struct models *models, const char *model_id, const struct model_record *record)
{
	struct json *event = json_new_object(), *changed = json_new_array(), *masked = json_new_array(),
		    *removed = json_new_array();
	if (record) {
		json_push(changed, models_record_json(models, record));
		json_push(masked, models_masked_json(models, record));
	} else {
		json_push(removed, json_new_string(model_id));
	}
	json_set(event, "models", changed);
	json_set(event, "masked", masked);
	json_set(event, "removed_models", removed);
	json_set(event, "instances", json_new_array());
	json_set(event, "removed_instances", json_new_array());
	events_publish_seen(models->params.events, TOPIC_PLACEMENT, event_key(model_id), event, &models_view);
}

void models_publish(struct models *models, const struct model *model)
{
	publish(models, model->record.model_id, &model->record);
}

// ---- room ----

void models_watch_room(struct models *models, models_look *look, void *context)
{
	models->look_room = look;
	models->look_context = context;
}

void models_look_room(const struct models *models, struct models_room *room)
{
	*room = (struct models_room){0};
	if (models->look_room)
		models->look_room(models->look_context, room);
}

// ---- changes ----

struct model_change *model_change_create(struct models *models, struct model *model)
{
	struct model_change *change = calloc(1, sizeof *change);
	if (!change)
		return NULL;
	change->models = models;
	change->model = model;
	change->becomes = model->record;
	change->modified_ns = model->modified_ns;
	LIST_PUSH(&models->changes, change, link);
	return change;
}

void model_change_destroy(struct model_change **pointer)
{
	struct model_change *change = *pointer;
	*pointer = NULL;
	if (!change)
		return;
	LIST_REMOVE(change, link);
	model_secret_free(change->access_token);
	model_secret_free(change->request);
	free(change);
}

static void committed(void *context, enum status status, const struct error *error)
{
	struct model_change *change = context;
	change->apply(change, status, error);
	model_change_destroy(&change);
}

static void put(struct store_batch *batch, const struct model_change *change)
{
	const struct model_record *record = &change->becomes;
	const bool ready = record->state == MODEL_READY || record->state == MODEL_MISSING;
	const char *request = change->request ? change->request : change->model->request;
	struct buffer kept;
	buffer_init(&kept, ENTRY_TEXT_BYTES);
	if (ready) {
		struct json *json = model_kept_json(record);
		json_print(json, &kept); // what fails here is read again from the file at the next start
		json_destroy(&json);
	}
	store_put_model(batch, &(struct store_model){.model_id = record->model_id,
						     .name = record->name,
						     .source = record->source,
						     .request = request && !ready ? request : "",
						     .path = record->path,
						     .state = ready ? "ready" : model_state_name(record->state),
						     .state_reason = record->state_reason,
						     .added_ms = record->added_ms,
						     .file_bytes = (int64_t)record->file_bytes,
						     .modified_ns = change->modified_ns,
						     .sha256 = record->sha256,
						     .architecture = buffer_text(&kept)});
	buffer_finish(&kept);
}

enum status model_change_commit(struct model_change **pointer, const struct audit_event *event, struct error *error)
{
	struct model_change *change = *pointer;
	struct models *models = change->models;
	struct store_batch *batch = NULL;
	enum status status = store_batch_create(&batch);
	*pointer = NULL;
	if (!status) {
		if (change->remove.done)
			store_remove_model(batch, change->becomes.model_id);
		else
			put(batch, change);
		if (event)
			audit_put(models->params.audit, batch, event); // what fails here fails the batch
		status = store_commit(models->params.store, &batch, committed, change);
	}
	if (status) {
		model_change_destroy(&change);
		error_set(error, status, "too many changes wait for the disk");
	}
	return status;
}

// ---- removing ----

bool models_is_ours(const struct models *models, const char *path)
{
	const size_t length = strlen(models->directory);
	return !strncmp(path, models->directory, length) && path[length] == '/';
}

// What the files of a folder take, and those of folders in it, whose names begin so.
static uint64_t disk_bytes(const char *folder, const char *begins)
{
	uint64_t bytes = 0;
	DIR *directory = opendir(folder);
	if (!directory)
		return 0;
	for (struct dirent *entry; (entry = readdir(directory));) {
		struct stat found;
		char path[MODEL_PATH_BYTES + sizeof entry->d_name];
		if (entry->d_name[0] == '.' || strncmp(entry->d_name, begins, strlen(begins)) != 0 ||
		    fstatat(dirfd(directory), entry->d_name, &found, AT_SYMLINK_NOFOLLOW))
			continue;
		snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
		bytes += S_ISDIR(found.st_mode) && *begins ? disk_bytes(path, "") : (uint64_t)found.st_blocks * 512;
	}
	closedir(directory);
	return bytes;
}

static uint64_t taken_bytes(const struct models *models, const struct model *model)
{
	char begins[MODEL_ID_BYTES + 1];
	snprintf(begins, sizeof begins, "%s.", model->record.model_id);
	return models_is_ours(models, model->record.path) ? disk_bytes(models->directory, begins) : 0;
}

static void removed(struct model_change *change, enum status status, const struct error *error)
{
	struct models *models = change->models;
	struct model *model = change->model;
	model->removing = false;
	if (!status) {
		log_info("models", "%s is removed", model->record.name);
		model_work_stop(models, model, models_is_ours(models, model->record.path));
		publish(models, model->record.model_id, NULL);
		models_drop(models, model);
	}
	change->remove.done(change->remove.context, status, change->freed_bytes, error);
}

enum status models_remove(struct models *models, const struct models_remove *remove, struct error *error)
{
	struct model *model = models_by_id(models, remove->model_id);
	if (!model) {
		error_set(error, STATUS_NOT_FOUND, "there is no model %.64s", remove->model_id);
		error_hint(error, "exogpu model list shows the ids");
		return STATUS_NOT_FOUND;
	}
	if (model->removing)
		return error_set(error, STATUS_CONFLICT, "%s is being removed already", model->record.name);
	if (model->record.holds) {
		error_set(error, STATUS_CONFLICT, "%u instance%s %s", model->record.holds,
			  model->record.holds == 1 ? " uses" : "s use", model->record.name);
		error_hint(error, "stop them first; a model may also be the draft of another one's instance");
		return STATUS_CONFLICT;
	}
	struct model_change *change = model_change_create(models, model);
	if (!change)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to remove a model");
	change->apply = removed;
	change->remove.done = remove->done;
	change->remove.context = remove->context;
	change->freed_bytes = taken_bytes(models, model);
	model->removing = true;
	enum status status = model_change_commit(
		&change,
		&(struct audit_event){.by = remove->by, .action = "model.remove", .target = model->record.model_id},
		error);
	model->removing = !status;
	return status;
}

// ---- holding ----

// Looks at the file again, and reports if it has changed.
static void look(struct models *models, struct model *model)
{
	uint64_t bytes;
	int64_t modified_ns;
	struct model_record *record = &model->record;
	const enum model_state before = record->state;
	const bool there = reading_look(record->path, &bytes, &modified_ns);
	const bool same = there && bytes == record->file_bytes && modified_ns == model->modified_ns;
	record->state = same ? MODEL_READY : MODEL_MISSING;
	snprintf(record->state_reason, sizeof record->state_reason, "%s",
		 same    ? ""
		 : there ? "the file has changed since it was added; add it again"
			 : "the file is gone; put it back, or add it again");
	if (record->state != before)
		models_publish(models, model);
}

enum status models_hold(struct models *models, const struct model_record *record, struct error *error)
{
	struct model *model = models_by_id(models, record->model_id);
	if (!model || model->removing)
		return error_set(error, STATUS_CONFLICT, "the model is being removed");
	if (record->state == MODEL_READY || record->state == MODEL_MISSING)
		look(models, model);
	switch (record->state) {
	case MODEL_READY:
		model->record.holds++;
		return STATUS_OK;
	case MODEL_DOWNLOADING:
		return error_set(error, STATUS_CONFLICT, "%s is not here yet", record->name);
	case MODEL_FAILED:
	case MODEL_MISSING:
		error_set(error, STATUS_CONFLICT, "%s cannot be used: %s", record->name, models_why(record));
		return STATUS_CONFLICT;
	}
	return STATUS_INTERNAL;
}

void models_release(struct models *models, const struct model_record *record)
{
	struct model *model = models_by_id(models, record->model_id);
	if (model && model->record.holds)
		model->record.holds--;
}

// ---- starting and stopping ----

static void load_row(void *context, const struct store_model *row)
{
	struct models *models = context;
	struct model *model = models->count < LIMIT_MODELS ? calloc(1, sizeof *model) : NULL;
	struct source source;
	struct error ignored = {0};
	if (!model) {
		log_error("models", "%s is left out: no room for it", row->name);
		return;
	}
	struct model_record *record = &model->record;
	snprintf(record->model_id, sizeof record->model_id, "%s", row->model_id);
	snprintf(record->name, sizeof record->name, "%s", row->name);
	snprintf(record->source, sizeof record->source, "%s", row->source);
	snprintf(record->path, sizeof record->path, "%s", row->path);
	snprintf(record->state_reason, sizeof record->state_reason, "%s", row->state_reason);
	snprintf(record->sha256, sizeof record->sha256, "%s", row->sha256);
	record->added_ms = row->added_ms;
	record->file_bytes = (uint64_t)row->file_bytes;
	record->state = !strcmp(row->state, "ready")    ? MODEL_READY
			: !strcmp(row->state, "failed") ? MODEL_FAILED
							: MODEL_DOWNLOADING;
	// A shape that cannot be read is read from the file again.
	if (record->state == MODEL_READY && !model_kept_parse(row->architecture, record))
		record->state = MODEL_DOWNLOADING;
	model->kind = source_parse(row->source, &source, &ignored) ? SOURCE_UNKNOWN : source.kind;
	model->request = row->request[0] ? strdup(row->request) : NULL;
	model->modified_ns = row->modified_ns;
	model->bytes_per_s = -1;
	model->saved = true;
	models->all[models->count++] = model;
}

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

// Files of models that are not known any more, and what one that is ready was made of: the server ended before they
// were deleted.
static void sweep(struct models *models)
{
	DIR *directory = opendir(models->directory);
	if (!directory)
		return;
	for (struct dirent *entry; (entry = readdir(directory));) {
		char id[MODEL_ID_BYTES], path[sizeof models->directory + sizeof entry->d_name + 1];
		snprintf(id, sizeof id, "%.*s", (int)strcspn(entry->d_name, "."), entry->d_name);
		if (strncmp(id, "mod_", 4) != 0)
			continue;
		snprintf(path, sizeof path, "%s/%s", models->directory, entry->d_name);
		const struct model *model = models_by_id(models, id);
		if (model &&
		    (model->record.state != MODEL_READY || !strcmp(name_of(model->record.path), entry->d_name)))
			continue;
		reading_forget(models->reading, id, path);
	}
	closedir(directory);
}

static void begin(struct models *models)
{
	sweep(models);
	for (size_t i = 0; i < models->count; i++) {
		struct model *model = models->all[i];
		if (model->record.state == MODEL_READY)
			look(models, model);
		if (model->record.state == MODEL_READY)
			model_work_hash(models, model);
		if (model->record.state == MODEL_DOWNLOADING)
			model_work_start(models, model, NULL);
	}
}

enum status models_create(struct models **out, const struct models_params *params, struct error *error)
{
	struct models *models = calloc(1, sizeof *models);
	*out = NULL;
	if (!models)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the models");
	models->params = *params;
	enum status status = paths_join(params->directory, "models", models->directory, sizeof models->directory,
					error);
	if (!status && mkdir(models->directory, 0700) && errno != EEXIST)
		status = error_errno(error, STATUS_FORBIDDEN, errno, "%s cannot be made", models->directory);
	if (!status)
		status = outbox_create(&models->outbox, params->loop, error);
	if (!status) {
		const struct reading_params reading = {.loop = params->loop,
						       .outbox = models->outbox,
						       .progress = models_work_hashed,
						       .done = models_work_read,
						       .context = models};
		status = reading_create(&models->reading, &reading, error);
	}
	if (!status) {
		const struct fetcher_params fetcher = {.outbox = models->outbox,
						       .hub_url = params->hub_url,
						       .ollama_url = params->ollama_url,
						       .picked = models_work_picked,
						       .progress = models_work_progress,
						       .done = models_work_fetched,
						       .context = models};
		status = fetcher_create(&models->fetcher, &fetcher, error);
	}
	if (!status)
		status = uploads_create(&models->uploads, params->loop, error);
	if (!status)
		status = browse_create(&models->browse, params->loop, params->directories, error);
	if (!status)
		status = store_load_models(params->store, load_row, models, error);
	if (status) {
		models_destroy(&models);
		return status;
	}
	begin(models);
	*out = models;
	return STATUS_OK;
}

void models_shut_down(struct models *models)
{
	models->stopping = true;
	reading_stop(models->reading);
	fetcher_stop(models->fetcher);
	uploads_stop(models->uploads);
	browse_stop(models->browse);
	models_end_searches(models);
}

void models_destroy(struct models **pointer)
{
	struct models *models = *pointer;
	if (!models)
		return;
	*pointer = NULL;
	models->stopping = true; // also where a start has failed: what was uploaded stays
	models_end_searches(models);
	browse_destroy(&models->browse);
	uploads_destroy(&models->uploads);
	fetcher_destroy(&models->fetcher);
	reading_destroy(&models->reading);
	outbox_destroy(&models->outbox);
	while (models->changes) { // whose outcome the store drops
		struct model_change *change = models->changes;
		model_change_destroy(&change);
	}
	while (models->count)
		models_drop(models, models->all[models->count - 1]);
	free(models);
}
