/* See convert.h. */
#include "server/convert/convert.h"

#include "common/base/limits.h"
#include "server/convert/bounded.h"
#include "server/convert/tensors.h"
#include "server/convert/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char single[] = "model.safetensors", shared_index[] = "model.safetensors.index.json";

struct converting {
	const struct convert_params *params;
	struct json *config, *tokenizer, *tokenizer_config, *generation_config;
	struct buffer template;
	int files[LIMIT_MODEL_PARTS]; // (file_count)
	unsigned file_count;
	struct safetensors tensors;
	struct model_config model;
	struct tensor_plan plan;
	struct output_keys keys;
	struct error *error;
};

// ---- files ----

static bool has_file(const struct converting *converting, const char *name)
{
	int fd;
	uint64_t bytes;
	const bool there = !bounded_open(converting->params->directory, name, &fd, &bytes, NULL);
	if (fd >= 0)
		close(fd);
	return there;
}

static enum status missing(const struct converting *converting, const char *name)
{
	error_set(converting->error, STATUS_INVALID_PARAMS, "%.200s has no %s", converting->params->directory, name);
	if (!strcmp(name, single) && has_file(converting, "pytorch_model.bin"))
		error_hint(converting->error,
			   "pytorch_model.bin can hold code, so it is not read: save the model with safetensors");
	else if (!strcmp(name, "tokenizer.json") && has_file(converting, "tokenizer.model"))
		error_hint(converting->error,
			   "tokenizer.model is not read: let transformers' AutoTokenizer load it and "
			   "save_pretrained write tokenizer.json");
	else
		error_hint(converting->error, "a model's directory has config.json, model.safetensors and "
					      "tokenizer.json; a GGUF file is added by its own path");
	return STATUS_INVALID_PARAMS;
}

static enum status say_file(const struct converting *converting, const char *name, const struct error *why)
{
	error_set(converting->error, why->status, "%.100s: %s", name,
		  why->message[0] ? why->message : status_text(why->status));
	if (why->hint[0])
		error_hint(converting->error, "%s", why->hint);
	return why->status;
}

static enum status open_tensors(struct converting *converting, const char *name)
{
	uint64_t bytes = 0;
	struct error why = {0};
	int *fd = &converting->files[converting->file_count];
	enum status status = bounded_open(converting->params->directory, name, fd, &bytes, &why);
	if (status == STATUS_NOT_FOUND)
		return missing(converting, name);
	converting->file_count += !status;
	if (!status)
		status = safetensors_read(&converting->tensors, *fd, bytes, converting->file_count - 1, &why);
	if (!status)
		return STATUS_OK;
	why.status = status;
	return say_file(converting, name, &why);
}

static bool is_plain_name(const char *name)
{
	return *name && *name != '.' && !strchr(name, '/') && strlen(name) < CONVERT_NAME_BYTES;
}

// Each file that the index names, once. The names are the index's.
static enum status list_shards(const struct json *index, const char *names[LIMIT_MODEL_PARTS], unsigned *count,
			       struct error *error)
{
	const struct json *map = json_get(index, "weight_map");
	*count = 0;
	for (const struct json *one = json_first(map); one; one = json_next(one)) {
		const char *name = json_string(one, "");
		unsigned i = 0;
		while (i < *count && strcmp(names[i], name) != 0)
			i++;
		if (i < *count)
			continue;
		if (!is_plain_name(name))
			return error_set(error, STATUS_INVALID_PARAMS, "%s: %.40s is not a file's name", shared_index,
					 name);
		if (*count == LIMIT_MODEL_PARTS)
			return error_set(error, STATUS_LIMIT_EXCEEDED, "%s: a model in more than %d files",
					 shared_index, LIMIT_MODEL_PARTS);
		names[(*count)++] = name;
	}
	return *count ? STATUS_OK : error_set(error, STATUS_INVALID_PARAMS, "%s names no file", shared_index);
}

enum status convert_tensor_files(const char *directory, char (*names)[CONVERT_NAME_BYTES], unsigned *count,
				 struct error *error)
{
	struct json *index = NULL;
	const char *named[LIMIT_MODEL_PARTS] = {single};
	*count = 1;
	enum status status = bounded_json(directory, shared_index, CONVERT_JSON_BYTES, CONVERT_CONFIG_VALUES, &index,
					  error);
	if (!status && index)
		status = list_shards(index, named, count, error);
	for (unsigned i = 0; i < *count && !status; i++)
		snprintf(names[i], CONVERT_NAME_BYTES, "%s", named[i]);
	json_destroy(&index);
	return status;
}

static enum status open_shards(struct converting *converting, const struct json *index)
{
	unsigned count = 0;
	const char *names[LIMIT_MODEL_PARTS];
	enum status status = list_shards(index, names, &count, converting->error);
	for (unsigned i = 0; i < count && !status; i++)
		status = open_tensors(converting, names[i]);
	return status;
}

static enum status open_all(struct converting *converting)
{
	struct json *index = NULL;
	enum status status = bounded_json(converting->params->directory, shared_index, CONVERT_JSON_BYTES,
					  CONVERT_CONFIG_VALUES, &index, converting->error);
	if (!status && index && !has_file(converting, single))
		status = open_shards(converting, index);
	else if (!status)
		status = open_tensors(converting, single);
	json_destroy(&index);
	return status ? status : safetensors_sort(&converting->tensors, converting->error);
}

// `whole` false: tokenizer.json may not be there yet.
static enum status read_texts(struct converting *converting, bool whole)
{
	const struct {
		const char *name;
		size_t most, values;
		struct json **out;
		bool needed;
	} files[] = {
		{"config.json", CONVERT_CONFIG_BYTES, CONVERT_CONFIG_VALUES, &converting->config, true},
		{"tokenizer.json", CONVERT_JSON_BYTES, CONVERT_VALUES, &converting->tokenizer, whole},
		{"tokenizer_config.json", CONVERT_CONFIG_BYTES, CONVERT_CONFIG_VALUES, &converting->tokenizer_config,
		 false},
		{"generation_config.json", CONVERT_CONFIG_BYTES, CONVERT_CONFIG_VALUES, &converting->generation_config,
		 false},
	};
	enum status status = STATUS_OK;
	for (size_t i = 0; i < sizeof files / sizeof *files && !status; i++) {
		status = bounded_json(converting->params->directory, files[i].name, files[i].most, files[i].values,
				      files[i].out, converting->error);
		if (!status && files[i].needed && !*files[i].out)
			status = missing(converting, files[i].name);
	}
	if (!status)
		status = bounded_text(converting->params->directory, "chat_template.jinja", &converting->template,
				      converting->error);
	if (!status && !json_utf8((const char *)converting->template.data, converting->template.length))
		status = error_set(converting->error, STATUS_INVALID_PARAMS, "chat_template.jinja is not UTF-8");
	return status;
}

// ---- the model file ----

static enum status make_vocabulary(struct converting *converting, uint32_t count)
{
	const struct vocabulary_files files = {.tokenizer = converting->tokenizer,
					       .tokenizer_config = converting->tokenizer_config,
					       .generation_config = converting->generation_config,
					       .config = converting->config,
					       .template = (const char *)converting->template.data,
					       .template_bytes = converting->template.length};
	return vocabulary_convert(&files, count, &converting->keys, converting->error);
}

static enum status make_keys(struct converting *converting)
{
	const char *given = converting->params->name, *slash = strrchr(converting->params->directory, '/'),
		   *name = given   ? given
			   : slash ? slash + 1
				   : "";
	static const uint32_t types[FORMAT_COUNT] = {[FORMAT_F32] = 0, [FORMAT_F16] = 1, [FORMAT_BF16] = 32};
	enum status status = config_read(converting->config, &converting->model, &converting->keys, converting->error);
	if (!status)
		status = tensors_plan(&converting->plan, &converting->model, &converting->tensors, converting->error);
	if (status)
		return status;
	if (*name && json_utf8(name, strlen(name)))
		output_word(&converting->keys, "general.name", name);
	output_u32(&converting->keys, "general.file_type", types[converting->plan.format]);
	return make_vocabulary(converting, converting->plan.vocabulary);
}

struct telling {
	const struct convert_params *params;
	uint64_t all_bytes;
};

static bool tell(void *context, uint64_t done_bytes)
{
	const struct telling *telling = context;
	return telling->params->progress(telling->params->context, done_bytes, telling->all_bytes);
}

static enum status write_file(struct converting *converting)
{
	const struct tensor_plan *plan = &converting->plan;
	struct buffer head;
	uint64_t offset = 0;
	buffer_init(&head, LIMIT_MODEL_HEADER_BYTES);
	output_begin(&head, &converting->keys.bytes, converting->keys.count, plan->count);
	for (size_t i = 0; i < plan->count; i++) {
		output_tensor(&head, &plan->tensors[i].tensor, offset);
		offset += output_aligned(plan->tensors[i].tensor.bytes, PLAN_ALIGNMENT);
	}
	output_fill(&head, PLAN_ALIGNMENT);
	enum status status = converting->keys.bytes.failed || head.failed
				     ? error_set(converting->error, STATUS_LIMIT_EXCEEDED,
						 "the header of the model would be too long")
				     : output_make_room(converting->params->to, head.length + offset,
							converting->error);
	if (!status)
		status = output_write(converting->params->to, head.data, head.length, 0, converting->error);
	if (!status) {
		struct telling telling = {.params = converting->params, .all_bytes = plan->bytes};
		status = tensors_copy(&(struct tensors_copy){.plan = plan,
							     .to = converting->params->to,
							     .at = head.length,
							     .files = converting->files,
							     .progress = tell,
							     .context = &telling},
				      converting->error);
	}
	buffer_finish(&head);
	return status;
}

static void converting_init(struct converting *converting, const struct convert_params *params, struct error *error)
{
	*converting = (struct converting){.params = params, .error = error};
	buffer_init(&converting->template, LIMIT_JINJA_TEMPLATE_BYTES);
	output_keys_init(&converting->keys);
}

static void converting_finish(struct converting *converting)
{
	for (unsigned i = 0; i < converting->file_count; i++)
		close(converting->files[i]);
	safetensors_finish(&converting->tensors);
	tensor_plan_finish(&converting->plan);
	output_keys_finish(&converting->keys);
	buffer_finish(&converting->template);
	json_destroy(&converting->config);
	json_destroy(&converting->tokenizer);
	json_destroy(&converting->tokenizer_config);
	json_destroy(&converting->generation_config);
}

enum status convert_directory(const struct convert_params *params, struct error *error)
{
	struct error ignored = {0};
	struct converting converting;
	converting_init(&converting, params, error ? error : &ignored);
	enum status status = read_texts(&converting, true);
	if (!status)
		status = open_all(&converting);
	if (!status)
		status = make_keys(&converting);
	if (!status)
		status = write_file(&converting);
	converting_finish(&converting);
	return status;
}

enum status convert_check(const char *directory, struct error *error)
{
	struct error ignored = {0};
	struct converting converting;
	const struct convert_params params = {.directory = directory};
	converting_init(&converting, &params, error ? error : &ignored);
	enum status status = read_texts(&converting, false);
	if (!status)
		status = config_read(converting.config, &converting.model, &converting.keys, converting.error);
	// The embedding has a row for each token, but this is not known before the tensors are.
	const int64_t count = json_get_integer(converting.config, "vocab_size", 0);
	if (!status && converting.tokenizer && count > 0 && count <= LIMIT_MODEL_VOCABULARY)
		status = make_vocabulary(&converting, (uint32_t)count);
	converting_finish(&converting);
	return status;
}
