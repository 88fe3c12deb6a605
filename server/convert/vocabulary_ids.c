/* See vocabulary_inside.h. */
#include "server/convert/vocabulary_inside.h"

#include <math.h>
#include <string.h>

static bool is_type(const struct json *json, const char *type)
{
	return !strcmp(json_get_string(json, "type", ""), type);
}

const char *vocabulary_unknown(const struct vocabulary_files *files)
{
	const struct json *json = json_get(files->tokenizer_config, "unk_token");
	const char *text = json_get_string(json_get(files->tokenizer, "model"), "unk_token", NULL);
	return text ? text : json_string(json, json_get_string(json, "content", NULL));
}

static int32_t id_of(const struct vocabulary *vocabulary, double number)
{
	return number >= 0 && number < vocabulary->count && number == floor(number) ? (int32_t)number : NO_ID;
}

// What a member "bos_token" and the like of tokenizer_config.json names: a text, or an object with one.
static int32_t named(const struct vocabulary *vocabulary, const char *member)
{
	const struct json *json = json_get(vocabulary->files->tokenizer_config, member);
	const char *text = json_string(json, json_get_string(json, "content", NULL));
	return text ? vocabulary_find(vocabulary, text) : NO_ID;
}

// The first of several ids that config.json or another file names.
static int32_t numbered(const struct vocabulary *vocabulary, const struct json *file, const char *member)
{
	const struct json *json = json_get(file, member);
	return id_of(vocabulary, json_number(json_type(json) == JSON_ARRAY ? json_first(json) : json, -1));
}

static int32_t find(const struct vocabulary *vocabulary, const char *name, const char *id)
{
	int32_t found = named(vocabulary, name);
	if (found == NO_ID)
		found = numbered(vocabulary, vocabulary->files->generation_config, id);
	return found == NO_ID ? numbered(vocabulary, vocabulary->files->config, id) : found;
}

static void put(struct vocabulary *vocabulary, const char *key, int32_t id)
{
	if (id != NO_ID)
		output_u32(vocabulary->keys, key, (uint32_t)id);
}

// Generation ends with each of generation_config.json's; a model file has keys for three.
static void put_ends(struct vocabulary *vocabulary)
{
	static const char *const keys[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
	const int32_t end = find(vocabulary, "eos_token", "eos_token_id");
	const struct json *files[] = {vocabulary->files->generation_config, vocabulary->files->config};
	put(vocabulary, "tokenizer.ggml.eos_token_id", end);
	for (size_t i = 0, used = 0; i < 2 && !used; i++) {
		const struct json *list = json_get(files[i], "eos_token_id");
		const bool several = json_type(list) == JSON_ARRAY;
		for (const struct json *one = several ? json_first(list) : list; one && used < 2;
		     one = several ? json_next(one) : NULL) {
			const int32_t id = id_of(vocabulary, json_number(one, -1));
			if (id != NO_ID && id != end)
				put(vocabulary, keys[used++], id);
		}
	}
}

// ---- what is put around a text ----

static const struct json *find_template(const struct json *processor)
{
	if (is_type(processor, "TemplateProcessing"))
		return processor;
	for (const struct json *one = json_first(json_get(processor, "processors")); one; one = json_next(one))
		if (is_type(one, "TemplateProcessing"))
			return one;
	return NULL;
}

static bool is_special(const struct vocabulary *vocabulary, const struct json *piece, int32_t id)
{
	const char *text = json_get_string(json_get(piece, "SpecialToken"), "id", NULL);
	return text && id != NO_ID && vocabulary_find(vocabulary, text) == id;
}

static void put_around(struct vocabulary *vocabulary, int32_t begin, int32_t end)
{
	const struct json *template = find_template(json_get(vocabulary->files->tokenizer, "post_processor")),
			  *first = json_first(json_get(template, "single")), *last = first;
	while (last && json_next(last))
		last = json_next(last);
	const bool begins = template ? is_special(vocabulary, first, begin)
				     : json_get_bool(vocabulary->files->tokenizer_config, "add_bos_token", false);
	const bool ends = template ? is_special(vocabulary, last, end)
				   : json_get_bool(vocabulary->files->tokenizer_config, "add_eos_token", false);
	output_bool(vocabulary->keys, "tokenizer.ggml.add_bos_token", begins && begin != NO_ID);
	output_bool(vocabulary->keys, "tokenizer.ggml.add_eos_token", ends && end != NO_ID);
}

// ---- the chat template ----

// chat_template.jinja, or what older tokenizer_config.json have: a text, or a list of named ones.
static void put_template(struct vocabulary *vocabulary)
{
	static const char key[] = "tokenizer.chat_template";
	const struct vocabulary_files *files = vocabulary->files;
	const struct json *json = json_get(files->tokenizer_config, "chat_template");
	const char *text = json_string(json, NULL);
	if (files->template_bytes) {
		output_text(vocabulary->keys, key, files->template, files->template_bytes);
		return;
	}
	for (const struct json *one = text ? NULL : json_first(json); one; one = json_next(one))
		if (!strcmp(json_get_string(one, "name", ""), "default"))
			text = json_get_string(one, "template", NULL);
	if (text)
		output_word(vocabulary->keys, key, text);
}

enum status vocabulary_put_ids(struct vocabulary *vocabulary)
{
	const int32_t begin = find(vocabulary, "bos_token", "bos_token_id"),
		      end = find(vocabulary, "eos_token", "eos_token_id");
	const char *unknown = vocabulary_unknown(vocabulary->files);
	if (end == NO_ID)
		return error_set(vocabulary->error, STATUS_INVALID_PARAMS,
				 "neither tokenizer_config.json nor config.json names the token that ends a text "
				 "(eos_token, eos_token_id)");
	put(vocabulary, "tokenizer.ggml.bos_token_id", begin);
	put_ends(vocabulary);
	put(vocabulary, "tokenizer.ggml.padding_token_id", find(vocabulary, "pad_token", "pad_token_id"));
	put(vocabulary, "tokenizer.ggml.unknown_token_id", unknown ? vocabulary_find(vocabulary, unknown) : NO_ID);
	put_around(vocabulary, begin, end);
	put_template(vocabulary);
	return STATUS_OK;
}
