/* See hub.h. */
#include "server/hub/hub.h"

#include "common/base/limits.h"
#include "common/text/size_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static enum status no_answer(struct error *error, const char *whose)
{
	return error_set(error, STATUS_UNAVAILABLE, "%s sent an unexpected answer", whose);
}

static bool take_sha256(const char *text, char out[65])
{
	out[0] = 0;
	if (!strncmp(text, "sha256:", 7))
		text += 7;
	if (strlen(text) != 64 || strspn(text, "0123456789abcdef") != 64)
		return false;
	snprintf(out, 65, "%s", text);
	return true;
}

static uint64_t take_bytes(const struct json *object, const char *name)
{
	int64_t bytes = json_get_integer(object, name, 0);
	return bytes > 0 && bytes / ((int64_t)1024 * 1024 * 1024) < LIMIT_MODEL_FILE_GIB ? (uint64_t)bytes : 0;
}

static bool ends_with(const char *text, const char *end)
{
	size_t length = strlen(text), tail = strlen(end);
	return length >= tail && !strcasecmp(text + length - tail, end);
}

// ---- files of a repository ----

// To those of the same model that are known, or as the first of them.
static void add_part(struct hub_files *out, struct hub_file *file)
{
	struct hub_file *known = out->files;
	while (known < file && strcmp(known->source.text, file->source.text) != 0)
		known++;
	file->sha256[0] = 0;
	if (known < file)
		known->bytes += file->bytes; // below LIMIT_HUB_FILES times LIMIT_MODEL_FILE_GIB
	else
		out->count++;
	known->there++;
}

static void take_file(const struct source *repository, const struct json *entry, struct hub_files *out)
{
	struct error ignored = {0};
	const char *path = json_get_string(entry, "path", "");
	const struct json *lfs = json_get(entry, "lfs");
	struct hub_file *file = &out->files[out->count];
	if (strcmp(json_get_string(entry, "type", ""), "file") != 0 || !ends_with(path, ".gguf") ||
	    strcasestr(path, "mmproj")) // that part of a model which sees pictures
		return;
	*file = (struct hub_file){.bytes = take_bytes(lfs ? lfs : entry, "size")};
	take_sha256(json_get_string(lfs, "oid", ""), file->sha256);
	if (!file->bytes || source_pick(repository, path, &file->source, &ignored))
		return;
	if (file->source.parts)
		add_part(out, file);
	else
		out->count++;
}

enum status hub_read_files(const struct source *repository, const char *text, size_t length, struct hub_files *out,
			   struct error *error)
{
	struct json *json = NULL;
	*out = (struct hub_files){0};
	if (json_parse(&json, text, length, NULL) || json_type(json) != JSON_ARRAY) {
		json_destroy(&json);
		return no_answer(error, "Hugging Face");
	}
	out->files = calloc(LIMIT_HUB_FILES, sizeof *out->files);
	if (out->files)
		for (const struct json *one = json_first(json); one && out->count < LIMIT_HUB_FILES;
		     one = json_next(one))
			take_file(repository, one, out);
	json_destroy(&json);
	return out->files ? STATUS_OK : error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a list of files");
}

void hub_files_finish(struct hub_files *files)
{
	free(files->files);
	*files = (struct hub_files){0};
}

const char *hub_format_of(const char *file)
{
	static const struct {
		const char *word, *format;
	} formats[] = {
		{"Q8_0", "Q8_0"}, {"Q6_K", "Q6_K"}, {"Q5_K", "Q5_K"}, {"Q4_K", "Q4_K"}, {"MXFP4", "MXFP4"},
		{"Q4_0", "Q4_0"}, {"BF16", "BF16"}, {"F16", "F16"},   {"F32", "F32"},
	};
	for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
		const char *at = strcasestr(file, formats[i].word);
		const bool rearranged = at && !strncasecmp(at, "Q4_0_", 5); // Q4_0_4_4 and its kin, which are others
		if (at && !rearranged)
			return formats[i].format;
	}
	return NULL;
}

static bool is_preferred(const char *file)
{
	return strcasestr(file, "Q8_0") || strcasestr(file, "Q4_K_M");
}

// On how little of the cluster it fits: 2, one device, or that is not known; 1, all of it; 0, nowhere.
static int fit_of(const struct hub_file *file, const struct models_room *room)
{
	const uint64_t needed = models_fit_needed(file->bytes);
	return !room->known || needed <= room->device ? 2 : needed <= room->devices;
}

static bool better(const struct hub_file *file, const struct hub_file *than, const struct models_room *room)
{
	if (!than)
		return true;
	const int fit = fit_of(file, room), was_fit = fit_of(than, room);
	const bool preferred = is_preferred(file->source.file), was = is_preferred(than->source.file);
	if (fit != was_fit)
		return fit > was_fit;
	return preferred != was ? preferred : file->bytes > than->bytes;
}

// The formats of the others, as far as there is room.
static void say_others(const struct hub_files *files, const struct hub_file *best, char why[200])
{
	const char *before = "; others: ";
	for (size_t i = 0; i < files->count; i++) {
		const struct hub_file *file = &files->files[i];
		const char *format = hub_format_of(file->source.file);
		const size_t used = strlen(why);
		if (file == best || !format || file->there < file->source.parts ||
		    used + strlen(before) + strlen(format) >= 200)
			continue;
		snprintf(why + used, 200 - used, "%s%s", before, format);
		before = ", ";
	}
}

static void say_why(const struct hub_files *files, const struct hub_file *best, const struct models_room *room,
		    char why[200])
{
	const bool alone = fit_of(best, room) == 2, preferred = is_preferred(best->source.file);
	snprintf(why, 200, "%.90s, of %zu: %s%s", best->source.file, files->count,
		 preferred ? "of Q8_0 and Q4_K_M the largest" : "the largest",
		 !room->known ? "; no device is known yet"
		 : alone      ? " that fits one device"
			      : " that fits several devices; none fits one");
	say_others(files, best, why);
}

enum status hub_choose(const struct hub_files *files, const struct models_room *room, const struct hub_file **out,
		       char why[200], struct error *error)
{
	const struct hub_file *best = NULL, *smallest = NULL, *incomplete = NULL;
	for (size_t i = 0; i < files->count; i++) {
		const struct hub_file *file = &files->files[i];
		if (!hub_format_of(file->source.file))
			continue;
		if (file->there < file->source.parts) {
			incomplete = file;
			continue;
		}
		if (!smallest || file->bytes < smallest->bytes)
			smallest = file;
		if (fit_of(file, room) && better(file, best, room))
			best = file;
	}
	*out = best;
	if (best) {
		say_why(files, best, room, why);
		return STATUS_OK;
	}
	if (smallest) {
		error_set(error, STATUS_UNAVAILABLE,
			  "none of %zu files fits this cluster: %.120s, the smallest, has %s, and there is room for %s "
			  "now",
			  files->count, smallest->source.file, SIZE_TEXT((uint64_t)smallest->bytes),
			  SIZE_TEXT((uint64_t)room->devices));
		error_hint(error, "name a file to fetch it all the same: hf:owner/repo/file.gguf");
	} else if (incomplete) {
		error_set(error, STATUS_UNAVAILABLE, "of %.120s and its parts the repository has %u of %u",
			  incomplete->source.file, incomplete->there, incomplete->source.parts);
	} else {
		error_set(error, STATUS_UNAVAILABLE,
			  "this repository has no GGUF file in a supported "
			  "format");
		error_hint(error, "repositories with such files mostly have GGUF in their name");
	}
	return STATUS_UNAVAILABLE;
}

// ---- safetensors of a repository ----

static const char single[] = "model.safetensors", shared_index[] = "model.safetensors.index.json";

static bool is_read(const char *name)
{
	static const char *const texts[] = {
		"config.json",         "tokenizer.json", "tokenizer_config.json", "generation_config.json",
		"chat_template.jinja", shared_index,     "tokenizer.model"};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		if (!strcmp(texts[i], name))
			return true;
	return ends_with(name, ".safetensors");
}

static bool is_plain_name(const char *name)
{
	for (const char *letter = name; *letter; letter++)
		if ((unsigned char)*letter < 0x20 || *letter == 0x7f || *letter == '/' || *letter == '\\')
			return false;
	return *name && *name != '.' && strlen(name) < HUB_NAME_BYTES;
}

static void take_entry(const struct json *entry, struct hub_weights *out)
{
	const char *name = json_get_string(entry, "path", "");
	const struct json *lfs = json_get(entry, "lfs");
	const uint64_t bytes = take_bytes(lfs ? lfs : entry, "size");
	if (strcmp(json_get_string(entry, "type", ""), "file") != 0 || !is_plain_name(name) || !is_read(name) ||
	    !bytes || hub_weights_find(out, name))
		return;
	struct hub_entry *new = &out->entries[out->count++];
	*new = (struct hub_entry){.bytes = bytes};
	snprintf(new->name, sizeof new->name, "%s", name);
	take_sha256(json_get_string(lfs, "oid", ""), new->sha256);
}

enum status hub_read_weights(const char *text, size_t length, struct hub_weights *out, struct error *error)
{
	struct json *json = NULL;
	*out = (struct hub_weights){0};
	if (json_parse(&json, text, length, NULL) || json_type(json) != JSON_ARRAY) {
		json_destroy(&json);
		return no_answer(error, "Hugging Face");
	}
	out->entries = calloc(LIMIT_HUB_FILES, sizeof *out->entries);
	if (out->entries)
		for (const struct json *one = json_first(json); one && out->count < LIMIT_HUB_FILES;
		     one = json_next(one))
			take_entry(one, out);
	json_destroy(&json);
	return out->entries ? STATUS_OK : error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a list of files");
}

void hub_weights_finish(struct hub_weights *weights)
{
	free(weights->entries);
	*weights = (struct hub_weights){0};
}

const struct hub_entry *hub_weights_find(const struct hub_weights *weights, const char *name)
{
	for (size_t i = 0; i < weights->count; i++)
		if (!strcmp(weights->entries[i].name, name))
			return &weights->entries[i];
	return NULL;
}

enum status hub_weights_check(const struct hub_weights *weights, struct error *error)
{
	if (!hub_weights_find(weights, "config.json") ||
	    (!hub_weights_find(weights, single) && !hub_weights_find(weights, shared_index))) {
		error_set(error, STATUS_UNAVAILABLE, "this repository has neither a GGUF file nor safetensors");
		error_hint(error, "repositories with GGUF files mostly have GGUF in their name; safetensors are "
				  "config.json, tokenizer.json and model.safetensors or its index");
		return STATUS_UNAVAILABLE;
	}
	if (hub_weights_find(weights, "tokenizer.json"))
		return STATUS_OK;
	error_set(error, STATUS_UNAVAILABLE, "this repository has safetensors, but no tokenizer.json");
	error_hint(error, "%s",
		   hub_weights_find(weights, "tokenizer.model")
			   ? "tokenizer.model is not read: look for a GGUF file of this model"
			   : "without it they are not converted: look for a GGUF file of this model");
	return STATUS_UNAVAILABLE;
}

uint64_t hub_weights_bytes(const struct hub_weights *weights)
{
	uint64_t bytes = 0;
	const struct hub_entry *whole = hub_weights_find(weights, single);
	for (size_t i = 0; i < weights->count && !whole; i++)
		if (!strncmp(weights->entries[i].name, "model-", 6) &&
		    ends_with(weights->entries[i].name, ".safetensors"))
			bytes += weights->entries[i].bytes; // below LIMIT_HUB_FILES times LIMIT_MODEL_FILE_GIB
	return whole ? whole->bytes : bytes;
}

// ---- Ollama's manifest ----

enum status hub_read_manifest(const char *text, size_t length, struct hub_layer *out, struct error *error)
{
	struct json *json = NULL;
	*out = (struct hub_layer){0};
	if (json_parse(&json, text, length, NULL)) {
		json_destroy(&json);
		return no_answer(error, "Ollama's registry");
	}
	const struct json *layers = json_get(json, "layers");
	for (const struct json *one = json_first(layers); one; one = json_next(one)) {
		const char *type = json_get_string(one, "mediaType", "");
		if (!strcmp(type, "application/vnd.ollama.image.params") && !out->parameters[0])
			take_sha256(json_get_string(one, "digest", ""), out->parameters);
		if (!strcmp(type, "application/vnd.ollama.image.model") && !out->bytes &&
		    take_sha256(json_get_string(one, "digest", ""), out->digest))
			out->bytes = take_bytes(one, "size");
	}
	json_destroy(&json);
	return out->bytes ? STATUS_OK : error_set(error, STATUS_UNAVAILABLE, "this manifest of Ollama names no model");
}

// ---- searches ----

enum status hub_read_search(const char *text, size_t length, struct hub_found *found, size_t most, size_t *count,
			    struct error *error)
{
	struct json *json = NULL;
	*count = 0;
	if (json_parse(&json, text, length, NULL) || json_type(json) != JSON_ARRAY) {
		json_destroy(&json);
		return no_answer(error, "Hugging Face");
	}
	for (const struct json *one = json_first(json); one && *count < most; one = json_next(one)) {
		char name[2 * SOURCE_PART_BYTES + 8];
		struct error ignored = {0};
		const char *id = json_get_string(one, "id", json_get_string(one, "modelId", ""));
		int printed = snprintf(name, sizeof name, "hf:%s", id);
		if (printed < 0 || (size_t)printed >= sizeof name ||
		    source_parse(name, &found[*count].source, &ignored) || found[*count].source.kind != SOURCE_HUB)
			continue;
		found[*count].downloads = json_get_integer(one, "downloads", -1);
		++*count;
	}
	json_destroy(&json);
	return STATUS_OK;
}

static bool seen(const struct hub_found *found, size_t count, const struct source *source)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(found[i].source.text, source->text))
			return true;
	return false;
}

// There is no other list than a page for people: models are what it links to as /library/NAME.
size_t hub_read_ollama_page(const char *text, size_t length, struct hub_found *found, size_t most)
{
	static const char link[] = "href=\"/library/";
	size_t count = 0;
	const char *at = text, *end = text + length;
	while (count < most && (at = memmem(at, (size_t)(end - at), link, sizeof link - 1))) {
		char name[SOURCE_PART_BYTES + 8];
		struct error ignored = {0};
		at += sizeof link - 1;
		const char *quote = memchr(at, '"', (size_t)(end - at));
		if (!quote || quote - at >= SOURCE_PART_BYTES || memchr(at, 0, (size_t)(quote - at)))
			continue;
		snprintf(name, sizeof name, "ollama:%.*s", (int)(quote - at), at);
		if (source_parse(name, &found[count].source, &ignored) || seen(found, count, &found[count].source))
			continue;
		found[count++].downloads = -1;
	}
	return count;
}

// ---- URLs ----

static bool fits(int length, size_t size)
{
	return length >= 0 && (size_t)length < size;
}

// The commit or branch of which files are asked for.
static const char *revision_of(const struct source *source)
{
	return source->revision[0] ? source->revision : "main";
}

bool hub_files_url(const char *base, const struct source *source, char *url, size_t size)
{
	return fits(snprintf(url, size, "%s/api/models/%s/%s/tree/%s?recursive=true", base, source->owner,
			     source->repository, revision_of(source)),
		    size);
}

bool hub_file_url(const char *base, const struct source *source, char *url, size_t size)
{
	return fits(snprintf(url, size, "%s/%s/%s/resolve/%s/", base, source->owner, source->repository,
			     revision_of(source)),
		    size) &&
	       source_append_encoded(url, size, source->file);
}

bool hub_config_url(const char *base, const struct source *source, char *url, size_t size)
{
	return fits(snprintf(url, size, "%s/%s/%s/resolve/%s/generation_config.json", base, source->owner,
			     source->repository, revision_of(source)),
		    size);
}

bool hub_manifest_url(const char *base, const struct source *source, char *url, size_t size)
{
	return fits(
		snprintf(url, size, "%s/v2/%s/%s/manifests/%s", base, source->owner, source->repository, source->tag),
		size);
}

bool hub_blob_url(const char *base, const struct source *source, const char *digest, char *url, size_t size)
{
	return fits(snprintf(url, size, "%s/v2/%s/%s/blobs/sha256:%s", base, source->owner, source->repository, digest),
		    size);
}

bool hub_search_url(const char *base, const char *text, unsigned limit, bool weights, char *url, size_t size)
{
	return fits(snprintf(url, size, "%s/api/models?filter=%s&sort=downloads&limit=%u&search=", base,
			     weights ? "safetensors&pipeline_tag=text-generation" : "gguf", limit),
		    size) &&
	       source_append_encoded(url, size, text);
}

bool hub_ollama_search_url(const char *base, const char *text, char *url, size_t size)
{
	return fits(snprintf(url, size, "%s/search?q=", base), size) && source_append_encoded(url, size, text);
}
