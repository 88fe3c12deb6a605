/* The list of models in Ollama's words: /api/tags, /api/ps, /api/show, /api/version. */
#include "server/http/infer/ollama/ollama.h"

#include <stdio.h>
#include <string.h>

// As its clients name models: without a tag it is `latest`.
const struct model_record *ollama_find(const struct models *models, const char *name)
{
	char other[MODEL_NAME_BYTES + 8];
	const struct model_record *model = models_find(models, name);
	const size_t length = strlen(name), tag = strlen(":latest");
	if (model)
		return model;
	if (length > tag && !strcmp(name + length - tag, ":latest"))
		snprintf(other, sizeof other, "%.*s", (int)(length - tag), name);
	else if (!strchr(name, ':'))
		snprintf(other, sizeof other, "%.*s:latest", MODEL_NAME_BYTES, name);
	else
		return NULL;
	return models_find(models, other);
}

// 135000000 as "135M".
static void print_parameters(uint64_t count, char text[24])
{
	const double millions = (double)count / 1e6;
	if (millions >= 1000)
		snprintf(text, 24, "%.1fB", millions / 1000);
	else
		snprintf(text, 24, "%.2fM", millions);
}

static struct json *details_of(const struct json *architecture)
{
	char parameters[24];
	struct json *details = json_new_object(), *families = json_new_array();
	const char *family = json_get_string(architecture, "family", "");
	print_parameters((uint64_t)json_get_integer(architecture, "parameters", 0), parameters);
	json_push(families, json_new_string(family));
	json_set_string(details, "parent_model", "");
	json_set_string(details, "format", "gguf");
	json_set_string(details, "family", family);
	json_set(details, "families", families);
	json_set_string(details, "parameter_size", parameters);
	json_set_string(details, "quantization_level", json_get_string(architecture, "file_format", ""));
	return details;
}

static struct json *entry_of(const struct json *record)
{
	struct json *json = json_new_object();
	json_set(json, "name", json_copy(json_get(record, "name")));
	json_set(json, "model", json_copy(json_get(record, "name")));
	json_set(json, "modified_at", json_copy(json_get(record, "added_at")));
	json_set(json, "size", json_copy(json_get(record, "file_bytes")));
	json_set_string(json, "digest", json_get_string(record, "sha256", ""));
	json_set(json, "details", details_of(json_get(record, "architecture")));
	return json;
}

static struct json *list_tags(const struct infer_params *params)
{
	const struct model_record *model;
	struct json *json = json_new_object(), *list = json_new_array();
	for (size_t i = 0; (model = models_at(params->models, i)); i++) {
		struct json *record = models_record_json(params->models, model);
		if (model->state == MODEL_READY)
			json_push(list, entry_of(record));
		json_destroy(&record);
	}
	json_set(json, "models", list);
	return json;
}

static int64_t bytes_of(const struct infer_params *params, const struct json *stage, bool gpu)
{
	static const char *const parts[] = {"weights_bytes", "kv_bytes", "workspace_bytes"};
	int64_t bytes = gpu ? 0 : json_get_integer(stage, "host_bytes", 0);
	const struct cluster_device *device = cluster_find_device(params->cluster,
								  json_get_string(stage, "device_id", ""));
	if (gpu && (!device || !strcmp(json_get_string(cluster_device_record(device), "backend", "cpu"), "cpu")))
		return 0;
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		bytes += json_get_integer(stage, parts[i], 0);
	return bytes;
}

// The loaded models. Nobody knows how long each stays: it stays until its memory is needed.
static struct json *list_running(const struct infer_params *params)
{
	struct json *json = json_new_object(), *list = json_new_array();
	struct json *instances = instances_list_json(params->instances);
	for (const struct json *one = json_first(instances); one; one = json_next(one)) {
		const struct model_record *model = models_find(params->models, json_get_string(one, "model_id", ""));
		int64_t all = 0, on_gpus = 0;
		if (!model || strcmp(json_get_string(one, "state", ""), "running") != 0)
			continue;
		struct json *record = models_record_json(params->models, model), *entry = entry_of(record);
		const struct json *stages = json_get(one, "stages");
		for (const struct json *stage = json_first(stages); stage; stage = json_next(stage)) {
			all += bytes_of(params, stage, false);
			on_gpus += bytes_of(params, stage, true);
		}
		json_remove(entry, "modified_at");
		json_set_integer(entry, "size", all);
		json_set_integer(entry, "size_vram", on_gpus);
		json_set_null(entry, "expires_at");
		json_set(entry, "context_length", json_copy(json_get(one, "context_tokens")));
		json_push(list, entry);
		json_destroy(&record);
	}
	json_destroy(&instances);
	json_set(json, "models", list);
	return json;
}

enum status ollama_no_such(const char *path, struct error *error)
{
	error_hint(error, "GET /api/version, /api/tags, /api/ps; POST /api/chat, /api/generate, /api/embed, "
			  "/api/embeddings, /api/show, /api/pull");
	return error_set(error, STATUS_METHOD_NOT_FOUND, "%.100s is not served here", path);
}

enum status ollama_get(const struct infer_params *params, const char *path, struct json **out, struct error *error)
{
	if (!strcmp(path, "/api/version")) {
		*out = json_new_object();
		json_set_string(*out, "version", EXOGPU_VERSION);
	} else if (!strcmp(path, "/api/tags")) {
		*out = list_tags(params);
	} else if (!strcmp(path, "/api/ps")) {
		*out = list_running(params);
	} else {
		return ollama_no_such(path, error);
	}
	return STATUS_OK;
}

// ---- /api/show ----

static void set_number(struct json *info, const char *family, const char *name, const struct json *value)
{
	char text[96];
	snprintf(text, sizeof text, "%s.%s", family, name);
	if (value && json_type(value) != JSON_NULL)
		json_set(info, text, json_copy(value));
}

static struct json *info_of(const struct json *architecture)
{
	static const char *const names[][2] = {{"context_length", "context_tokens"},
					       {"embedding_length", "embedding"},
					       {"block_count", "layers"},
					       {"feed_forward_length", "feed_forward"},
					       {"attention.head_count", "heads"},
					       {"attention.head_count_kv", "kv_heads"}};
	struct json *info = json_new_object();
	const char *family = json_get_string(architecture, "family", "");
	json_set_string(info, "general.architecture", family);
	json_set(info, "general.parameter_count", json_copy(json_get(architecture, "parameters")));
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		set_number(info, family, names[i][0], json_get(architecture, names[i][1]));
	return info;
}

// Tools are told to every model that chats, as text where its template knows none. Whether it thinks is known to its
// worker alone, so that is not among them.
static struct json *capabilities_of(const struct json *architecture)
{
	struct json *list = json_new_array();
	const bool text = !strcmp(json_get_string(architecture, "task", ""), "text");
	json_push(list, json_new_string(text ? "completion" : "embedding"));
	if (text)
		json_push(list, json_new_string("tools"));
	return list;
}

enum status ollama_show(struct answer *answer, const struct infer_params *params, struct error *error)
{
	const struct model_record *model = ollama_find(params->models, answer->model);
	if (!model || model->state != MODEL_READY) {
		error_hint(error, "GET /api/tags lists the models");
		return error_set(error, STATUS_NOT_FOUND, "there is no model %.128s", answer->model);
	}
	struct json *record = models_record_json(params->models, model), *json = json_new_object();
	const struct json *architecture = json_get(record, "architecture");
	json_set(json, "details", details_of(architecture));
	json_set(json, "model_info", info_of(architecture));
	json_set(json, "capabilities", capabilities_of(architecture));
	json_set(json, "modified_at", json_copy(json_get(record, "added_at")));
	json_destroy(&record);
	answer_json(answer, json);
	return STATUS_OK;
}
