/* Models are added here; see models_add in models.h. A new record is in the list from the start, so that its name and
 * source are taken; others see it once it is on disk. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/library/models_inside.h"
#include "server/security/random_id.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool name_taken(const struct models *models, const char *name, const struct model *but)
{
	for (size_t i = 0; i < models->count; i++)
		if (models->all[i] != but && !strcmp(models->all[i]->record.name, name))
			return true;
	return false;
}

static void make_name(const struct models *models, const struct source *source, char name[MODEL_NAME_BYTES])
{
	char base[SOURCE_NAME_BYTES];
	source_name(source, base);
	snprintf(name, MODEL_NAME_BYTES, "%s", base);
	for (size_t i = 2; name_taken(models, name, NULL); i++)
		snprintf(name, MODEL_NAME_BYTES, "%.*s-%zu", SOURCE_NAME_BYTES - 9, base, i);
}

// Of a repository its safetensors, too, once they are what was picked.
static bool is_of(const struct model *model, const struct source *source)
{
	const size_t length = strlen(source->text);
	return !strncmp(model->record.source, source->text, length) &&
	       (!model->record.source[length] ||
		(source->kind == SOURCE_HUB && !strcmp(model->record.source + length, "/model.safetensors")));
}

// A URL's query may say which file it is, so with one only a download that asks for the very same is the same.
struct model *models_of_source(const struct models *models, const struct source *source)
{
	const bool query = source->kind == SOURCE_URL && strchr(source->location, '?');
	for (size_t i = 0; i < models->count; i++) {
		struct model *model = models->all[i];
		const bool same = query ? model->request && !strcmp(model->request, source->location)
					: !model->request && is_of(model, source);
		if (same)
			return model;
	}
	return NULL;
}

static enum status check_name(const struct models *models, const char *name, const struct model *of,
			      struct error *error)
{
	if (!name)
		return STATUS_OK;
	if (!source_name_usable(name)) {
		error_set(error, STATUS_INVALID_PARAMS, "a model cannot be called \"%.40s\"", name);
		error_hint(error, "without / \\ ? # %% and control characters, and beginning neither with . nor mod_");
		return STATUS_INVALID_PARAMS;
	}
	if (!name_taken(models, name, of))
		return STATUS_OK;
	error_set(error, STATUS_CONFLICT, "there is a model \"%.60s\" already", name);
	error_hint(error, "choose another name");
	return STATUS_CONFLICT;
}

// It becomes a part of a header.
static enum status check_token(const char *token, struct error *error)
{
	for (; token && *token; token++)
		if (*token <= ' ' || *token >= 0x7f)
			return error_set(error, STATUS_INVALID_PARAMS,
					 "an access token has letters, digits and signs "
					 "of ASCII alone");
	return STATUS_OK;
}

// A file that is whole stays where it is; what is fetched, joined or converted becomes a file of ours, and stays one
// when its source is gone.
static void put_path(const struct models *models, const struct source *source, struct model_record *record)
{
	uint64_t bytes;
	int64_t modified_ns;
	if (models_is_ours(models, record->path) && reading_look(record->path, &bytes, &modified_ns))
		return;
	if (source->kind == SOURCE_PATH && !source->parts && !reading_is_folder(source->location))
		snprintf(record->path, sizeof record->path, "%s", source->location);
	else
		snprintf(record->path, sizeof record->path, "%s/%s.gguf", models->directory, record->model_id);
}

// Into the list, not seen yet.
static enum status enter(struct models *models, const struct source *source, const char *name, struct model **out,
			 struct error *error)
{
	if (models->count == LIMIT_MODELS) {
		error_set(error, STATUS_LIMIT_EXCEEDED, "there are %d models", LIMIT_MODELS);
		error_hint(error, "remove some");
		return STATUS_LIMIT_EXCEEDED;
	}
	struct model *model = calloc(1, sizeof *model);
	if (!model)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a model");
	struct model_record *record = &model->record;
	*record = (struct model_record){.state = MODEL_DOWNLOADING, .added_ms = clock_wall_ms()};
	model->kind = source->kind;
	model->bytes_per_s = -1;
	if (random_id("mod_", record->model_id, sizeof record->model_id)) {
		free(model);
		return error_set(error, STATUS_UNAVAILABLE, "the system gives no random numbers");
	}
	snprintf(record->source, sizeof record->source, "%s", source->text);
	put_path(models, source, record);
	if (name)
		snprintf(record->name, sizeof record->name, "%s", name);
	else
		make_name(models, source, record->name);
	models->all[models->count++] = model;
	*out = model;
	return STATUS_OK;
}

static void added(struct model_change *change, enum status status, const struct error *error)
{
	struct models *models = change->models;
	struct model *model = change->model;
	model->working = false;
	if (status) {
		if (!model->saved)
			models_drop(models, model);
		change->add.done(change->add.context, status, NULL, error);
		return;
	}
	const unsigned holds = model->record.holds;
	model->record = change->becomes;
	model->record.holds = holds;
	model->saved = true;
	if (change->request) {
		model_secret_free(model->request);
		model->request = change->request;
		change->request = NULL;
	}
	log_info("models", "%s is added from %s", model->record.name, model->record.source);
	model_work_start(models, model, change->access_token);
	models_publish(models, model);
	change->add.done(change->add.context, STATUS_OK, &model->record, NULL);
}

static enum status store_addition(struct models *models, struct model *model, const struct models_add *add,
				  const struct source *source, struct error *error)
{
	struct buffer detail;
	struct model_change *change = model_change_create(models, model);
	const bool query = source->kind == SOURCE_URL && strchr(source->location, '?');
	if (change && add->access_token)
		change->access_token = strdup(add->access_token);
	if (change && query)
		change->request = strdup(source->location);
	if (!change || (add->access_token && !change->access_token) || (query && !change->request)) {
		model_change_destroy(&change);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to add a model");
	}
	change->apply = added;
	change->add.done = add->done;
	change->add.context = add->context;
	change->becomes.state = MODEL_DOWNLOADING;
	change->becomes.state_reason[0] = 0;
	if (add->file_bytes)
		change->becomes.file_bytes = add->file_bytes;
	if (add->name)
		snprintf(change->becomes.name, sizeof change->becomes.name, "%s", add->name);
	struct json *json = json_new_object();
	json_set_string(json, "source", source->text);
	json_set_string(json, "name", change->becomes.name);
	buffer_init(&detail, ENTRY_TEXT_BYTES);
	json_print(json, &detail);
	json_destroy(&json);
	model->working = true;
	enum status status = model_change_commit(&change,
						 &(struct audit_event){.by = add->by,
								       .action = "model.add",
								       .target = model->record.model_id,
								       .detail = buffer_text(&detail)},
						 error);
	model->working = !status;
	buffer_finish(&detail);
	return status;
}

enum status models_add(struct models *models, const struct models_add *add, const struct model_record **there,
		       struct error *error)
{
	struct source source;
	enum status status = source_parse(add->source, &source, error);
	if (!status && source.kind == SOURCE_UPLOAD) {
		error_set(error, STATUS_INVALID_PARAMS, "a file of another machine is uploaded, not added");
		error_hint(error, "exogpu model upload FILE, or drop the file on the page Models");
		return STATUS_INVALID_PARAMS;
	}
	if (!status)
		status = check_token(add->access_token, error);
	return status ? status : models_add_source(models, add, &source, there, error);
}

enum status models_add_source(struct models *models, const struct models_add *add, const struct source *source,
			      const struct model_record **there, struct error *error)
{
	enum status status;
	struct model *model = models_of_source(models, source);
	if (model && (model->removing || !model->saved || (model->working && model->record.state != MODEL_DOWNLOADING)))
		return error_set(error, STATUS_CONFLICT, "this model is being %s at the moment",
				 model->removing ? "removed" : "added");
	if (model && (model->record.state == MODEL_DOWNLOADING || model->record.state == MODEL_READY)) {
		*there = &model->record;
		return STATUS_OK;
	}
	status = check_name(models, add->name, model, error);
	if (!status && model)
		put_path(models, source, &model->record); // it may be another thing by now
	if (!status && !model)
		status = enter(models, source, add->name, &model, error);
	if (!status)
		status = store_addition(models, model, add, source, error);
	if (status && model && !model->saved)
		models_drop(models, model);
	return status ? status : STATUS_PENDING;
}
