/* See catalog.h. */
#include "server/library/catalog.h"

#include "common/files/embedded.h"
#include "common/json/schema.h"
#include "engine/model/geometry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20 };

struct catalog {
	struct json *json;
	struct catalog_entry *entries; // (count)
	size_t count;
};

// Values that may be null, and have a source otherwise.
static const char *const with_source[] = {"licence", "languages", "revision", "bytes", "sha256", "geometry"};
enum { WITH_SOURCE = sizeof with_source / sizeof *with_source };

static enum status refuse(struct error *error, const struct json *entry, const char *what)
{
	return error_set(error, STATUS_INVALID_PARAMS, "%.64s of the catalogue: %.280s",
			 json_get_string(entry, "id", ""), what);
}

static bool is_known(const struct json *entry, const char *name)
{
	return json_type(json_get(entry, name)) != JSON_NULL;
}

static bool has_source(const struct json *entry, const char *name)
{
	for (const struct json *one = json_first(json_get(entry, "read")); one; one = json_next(one))
		for (const struct json *what = json_first(json_get(one, "what")); what; what = json_next(what))
			if (!strcmp(json_string(what, ""), name))
				return true;
	return false;
}

static bool is_hex(const struct json *text)
{
	const char *digits = json_string(text, "");
	return strspn(digits, "0123456789abcdef") == strlen(digits);
}

static bool is_day(const char *text)
{
	for (int i = 0; i < 10; i++)
		if (i == 4 || i == 7 ? text[i] != '-' : text[i] < '0' || text[i] > '9')
			return false;
	return true;
}

static enum status check_sources(const struct json *entry, struct error *error)
{
	char text[128];
	for (int i = 0; i < WITH_SOURCE; i++) {
		if (is_known(entry, with_source[i]) == has_source(entry, with_source[i]))
			continue;
		snprintf(text, sizeof text,
			 is_known(entry, with_source[i]) ? "where %s was read is not said"
							 : "%s is null, and where it was read is said",
			 with_source[i]);
		return refuse(error, entry, text);
	}
	for (const struct json *one = json_first(json_get(entry, "read")); one; one = json_next(one))
		if (!is_day(json_get_string(one, "on", "")))
			return refuse(error, entry, "a date is not written YYYY-MM-DD");
	if (!is_hex(json_get(entry, "sha256")) || !is_hex(json_get(entry, "revision")))
		return refuse(error, entry, "sha256 and revision are written in the digits 0 to 9 and a to f");
	return STATUS_OK;
}

static uint32_t count_of(const struct json *object, const char *name)
{
	return (uint32_t)json_get_integer(object, name, 0);
}

static enum status read_geometry(struct catalog_entry *out, struct error *error)
{
	struct error why = {0};
	const struct json *of = json_get(out->json, "geometry"), *delta = json_get(of, "delta");
	const struct model_geometry geometry = {
		.family = model_family_parse(json_get_string(of, "architecture", "")),
		.layers = count_of(of, "layers"),
		.embedding = count_of(of, "embedding"),
		.feed_forward = count_of(of, "feed_forward"),
		.heads = count_of(of, "heads"),
		.kv_heads = count_of(of, "kv_heads"),
		.head_size = count_of(of, "head_size"),
		.vocabulary = count_of(of, "vocabulary"),
		.context = count_of(of, "context"),
		.experts = count_of(of, "experts"),
		.experts_used = count_of(of, "experts_used"),
		.expert_width = count_of(of, "expert_width"),
		.delta = {.key_heads = count_of(delta, "key_heads"),
			  .heads = count_of(delta, "heads"),
			  .key_size = count_of(delta, "key_size"),
			  .value_size = count_of(delta, "value_size"),
			  .kernel = count_of(delta, "kernel")},
		.pooling = model_pooling_parse(json_get_string(of, "pooling", "")),
		.tied = json_get_bool(of, "tied", false),
		.format = format_parse(json_get_string(out->json, "format", "")),
		.bytes = out->bytes ? out->bytes : 1,
	};
	if (!is_known(out->json, "geometry"))
		return STATUS_OK;
	if (model_geometry_shape(&geometry, &out->shape, &out->sizes, &why))
		return refuse(error, out->json, why.message);
	out->predictable = out->bytes > 0;
	return STATUS_OK;
}

static enum status read_entry(struct catalog_entry *out, const struct json *entry, struct error *error)
{
	struct source source;
	struct error why = {0};
	char text[512];
	*out = (struct catalog_entry){.json = entry, .bytes = (uint64_t)json_get_integer(entry, "bytes", 0)};
	const char *revision = json_get_string(entry, "revision", "");
	snprintf(text, sizeof text, "hf:%s%s%s/%s", json_get_string(entry, "repository", ""), revision[0] ? "@" : "",
		 revision, json_get_string(entry, "file", ""));
	if (source_parse(text, &source, &why))
		return refuse(error, entry, why.message);
	if (source.kind != SOURCE_HUB_FILE || source.parts)
		return refuse(error, entry, "repository and file do not name one GGUF file");
	if (format_parse(json_get_string(entry, "format", "")) == FORMAT_UNKNOWN)
		return refuse(error, entry, "the format is not computed");
	snprintf(out->source, sizeof out->source, "%s", source.text);
	enum status status = check_sources(entry, error);
	return status ? status : read_geometry(out, error);
}

static enum status check_form(const struct json *json, struct error *error)
{
	struct json *schema = NULL;
	const struct embedded_file *file = embedded_find("catalog/schema.json");
	if (!file)
		return error_set(error, STATUS_INTERNAL, "the catalogue's schema is not in the binary");
	enum status status = json_parse(&schema, (const char *)file->data, file->length, error);
	if (!status) {
		schema_link(schema, NULL);
		status = schema_check(schema, json, "$", error);
	}
	json_destroy(&schema);
	return status;
}

static enum status read_entries(struct catalog *catalog, struct error *error)
{
	enum status status = STATUS_OK;
	const struct json *models = json_get(catalog->json, "models");
	catalog->entries = calloc(json_count(models) + 1, sizeof *catalog->entries);
	if (!catalog->entries)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the catalogue");
	for (const struct json *one = json_first(models); !status && one; one = json_next(one)) {
		status = read_entry(&catalog->entries[catalog->count], one, error);
		for (size_t i = 0; !status && i < catalog->count; i++)
			if (!strcmp(json_get_string(catalog->entries[i].json, "id", ""),
				    json_get_string(one, "id", "")) ||
			    !strcmp(catalog->entries[i].source, catalog->entries[catalog->count].source))
				status = refuse(error, one, "there is another entry of this id or file");
		catalog->count++;
	}
	return status;
}

enum status catalog_read(struct catalog **out, const char *text, size_t length, struct error *error)
{
	struct catalog *catalog = *out = calloc(1, sizeof *catalog);
	if (!catalog)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the catalogue");
	enum status status = json_parse(&catalog->json, text, length, error);
	if (!status)
		status = check_form(catalog->json, error);
	if (!status)
		status = read_entries(catalog, error);
	if (status)
		catalog_destroy(out);
	return status;
}

static enum status read_file(const char *path, struct buffer *out, struct error *error)
{
	uint8_t piece[4096];
	size_t count;
	FILE *file = fopen(path, "re");
	if (!file)
		return error_errno(error, STATUS_NOT_FOUND, errno, "the catalogue %.200s cannot be read", path);
	while ((count = fread(piece, 1, sizeof piece, file)) > 0)
		buffer_append(out, piece, count);
	const bool failed = ferror(file) != 0;
	fclose(file);
	if (failed || out->failed)
		return error_set(error, STATUS_INVALID_PARAMS, "the catalogue %.200s cannot be read, or is over 1 MiB",
				 path);
	return STATUS_OK;
}

enum status catalog_create(struct catalog **out, const char *path, struct error *error)
{
	struct buffer text;
	const struct embedded_file *file = embedded_find("catalog/models.json");
	*out = NULL;
	if (!path)
		return file ? catalog_read(out, (const char *)file->data, file->length, error)
			    : error_set(error, STATUS_INTERNAL, "the catalogue is not in the binary");
	buffer_init(&text, MOST_BYTES);
	enum status status = read_file(path, &text, error);
	if (!status)
		status = catalog_read(out, buffer_text(&text), text.length, error);
	if (status)
		error_hint(error, "--catalog takes a file like catalog/models.json of the sources");
	buffer_finish(&text);
	return status;
}

void catalog_destroy(struct catalog **pointer)
{
	struct catalog *catalog = *pointer;
	*pointer = NULL;
	if (!catalog)
		return;
	json_destroy(&catalog->json);
	free(catalog->entries);
	free(catalog);
}

const struct catalog_entry *catalog_at(const struct catalog *catalog, size_t index)
{
	return index < catalog->count ? &catalog->entries[index] : NULL;
}

struct json *catalog_unverified(const struct catalog_entry *entry)
{
	struct json *names = json_new_array();
	for (int i = 0; i < WITH_SOURCE; i++)
		if (!is_known(entry->json, with_source[i]))
			json_push(names, json_new_string(with_source[i]));
	return names;
}
