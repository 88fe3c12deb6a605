/* model.catalog: the models that are offered for download, and what would become of each here. Thread: the loop's. */
#include "server/library/catalog.h"

#include "common/wire/said.h"
#include "server/api/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ENTRIES = 64 }; // catalog/schema.json

// Whoever added the file by its name alone has it, too: of the branch main.
static const struct model_record *find_model(const struct models *models, const struct catalog_entry *entry)
{
	char unpinned[SOURCE_TEXT_BYTES];
	const struct model_record *record;
	snprintf(unpinned, sizeof unpinned, "hf:%s/%s", json_get_string(entry->json, "repository", ""),
		 json_get_string(entry->json, "file", ""));
	for (size_t i = 0; (record = models_at(models, i)); i++)
		if (!strcmp(record->source, entry->source) || !strcmp(record->source, unpinned))
			return record;
	return NULL;
}

static const char *state_of(const struct instances *instances, const struct model_record *record)
{
	if (!record)
		return "absent";
	switch (record->state) {
	case MODEL_DOWNLOADING:
		return "downloading";
	case MODEL_FAILED:
		return "failed";
	case MODEL_MISSING:
		return "missing";
	case MODEL_READY:
		break;
	}
	return instances_ready(instances, record) ? "loaded" : record->holds ? "loading" : "ready";
}

static const char *fit_name(enum instances_fit fit)
{
	switch (fit) {
	case FIT_UNKNOWN:
		return "unknown";
	case FIT_DEVICE:
		return "device";
	case FIT_DEVICES:
		return "devices";
	case FIT_NO:
		return "no";
	}
	return "unknown";
}

static void set_counts(struct json *json, const struct catalog_entry *entry)
{
	static const char *const names[] = {"parameters", "context"};
	const bool known = entry->shape.layers > 0;
	const uint64_t values[] = {entry->sizes.parameters, entry->shape.context};
	for (int i = 0; i < 2; i++)
		if (known)
			json_set_integer(json, names[i], (int64_t)values[i]);
		else
			json_set_null(json, names[i]);
	json_set_string(json, "family", known ? model_family_name(entry->shape.family) : NULL);
	json_set_string(json, "task", known ? model_task_name(model_task(&entry->shape)) : NULL);
}

static struct json *entry_json(const struct api *api, const struct catalog_entry *entry,
			       const struct instances_foreseen *foreseen)
{
	static const char *const copied[] = {"id",      "name",       "publisher", "licence", "languages",
					     "good_at", "repository", "revision",  "file",    "bytes",
					     "sha256",  "format",     "read"};
	struct json *json = json_new_object();
	const struct model_record *record = find_model(api->params.models, entry);
	for (size_t i = 0; i < sizeof copied / sizeof *copied; i++)
		json_set(json, copied[i], json_copy(json_get(entry->json, copied[i])));
	// One that is here keeps the source that it was added by, so that adding it again fetches nothing.
	json_set_string(json, "source", record ? record->source : entry->source);
	set_counts(json, entry);
	json_set(json, "unverified", catalog_unverified(entry));
	json_set_string(json, "fits", fit_name(foreseen->fit));
	said_set(json, "why", foreseen->why[0] ? foreseen->why : NULL);
	if (foreseen->missing_bytes)
		json_set_integer(json, "missing_bytes", (int64_t)foreseen->missing_bytes);
	else
		json_set_null(json, "missing_bytes");
	if (foreseen->tokens_per_s > 0)
		json_set_number(json, "predicted_tokens_per_s", foreseen->tokens_per_s);
	else
		json_set_null(json, "predicted_tokens_per_s");
	json_set_string(json, "state", state_of(api->params.instances, record));
	json_set_string(json, "model_id", record ? record->model_id : NULL);
	return json;
}

static struct json *answer(const struct api *api, const struct instances_foreseen *foreseen)
{
	const struct catalog_entry *entry;
	struct json *result = json_new_object(), *models = json_new_array();
	for (size_t i = 0; (entry = catalog_at(api->params.catalog, i)); i++)
		json_push(models, entry_json(api, entry, &foreseen[i]));
	json_set(result, "models", models);
	return result;
}

static void was_foreseen(void *context, const struct instances_foreseen *found, size_t count)
{
	struct api_call *call = context;
	(void)count;
	api_finish(call, STATUS_OK, answer(call->api, found), NULL);
}

static enum status model_catalog(struct api_call *call, const struct json *params, struct json **result,
				 struct error *error)
{
	(void)params;
	size_t count = 0, known = 0;
	const struct api_session *session = call->client->session;
	const struct catalog_entry *entry;
	struct instances_foreseen *models = calloc(MOST_ENTRIES, sizeof *models);
	if (!models)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	for (; count < MOST_ENTRIES && (entry = catalog_at(call->api->params.catalog, count)); count++) {
		models[count] = (struct instances_foreseen){
			.shape = entry->predictable ? &entry->shape : NULL, .sizes = &entry->sizes, .tokens_per_s = -1};
		known += entry->predictable;
	}
	const struct instances_foresight foresight = {.models = models,
						      .count = count,
						      .asker = session->token ? (const void *)session->token : session,
						      .connection = call->client,
						      .done = was_foreseen,
						      .context = call};
	enum status status = STATUS_PENDING;
	if (!known)
		*result = answer(call->api, models);
	else
		status = instances_foresee(call->api->params.instances, &foresight, error);
	free(models);
	return !known ? STATUS_OK : status ? status : STATUS_PENDING;
}

const struct api_handler catalog_handlers[] = {
	{"model.catalog", .run = model_catalog},
	{0},
};
