/* See info.h. */
#include "engine/device/info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name, *title;
} backend_names[BACKEND_COUNT] = {
	[BACKEND_UNKNOWN] = {"unknown", "unknown"},
	[BACKEND_CUDA] = {"cuda", "CUDA"},
	[BACKEND_HIP] = {"hip", "HIP"},
	[BACKEND_VULKAN] = {"vulkan", "Vulkan"},
	[BACKEND_WEBGPU] = {"webgpu", "WebGPU"},
	[BACKEND_CPU] = {"cpu", "CPU"},
};
static const char *const kind_names[] = {
	[DEVICE_UNKNOWN] = "virtual",   [DEVICE_INTEGRATED] = "integrated",
	[DEVICE_DISCRETE] = "discrete", [DEVICE_VIRTUAL] = "virtual",
	[DEVICE_CPU] = "cpu",
};
static const char *const support_names[] = {
	[SUPPORT_UNKNOWN] = "unsupported",     [SUPPORT_FULL] = "full",
	[SUPPORT_PARTIAL] = "partial",         [SUPPORT_EXPERIMENTAL] = "experimental",
	[SUPPORT_UNSUPPORTED] = "unsupported",
};
static const char *const library_state_names[] = {
	[LIBRARY_UNKNOWN] = "broken",  [LIBRARY_FOUND] = "found",   [LIBRARY_MISSING] = "missing",
	[LIBRARY_TOO_OLD] = "too_old", [LIBRARY_BROKEN] = "broken",
};

struct found *found_create(void)
{
	return calloc(1, sizeof(struct found));
}

void found_destroy(struct found **found)
{
	free(*found);
	*found = NULL;
}

struct device_info *found_add_device(struct found *found)
{
	if (found->device_count == INFO_DEVICES)
		return NULL;
	struct device_info *info = &found->devices[found->device_count++];
	*info = (struct device_info){
		.memory_bytes = -1, .memory_budget_bytes = -1, .compute_units = -1, .largest_buffer_bytes = -1};
	return info;
}

struct library_info *found_add_library(struct found *found)
{
	if (found->library_count == INFO_LIBRARIES)
		return NULL;
	struct library_info *library = &found->libraries[found->library_count++];
	*library = (struct library_info){0};
	return library;
}

const char *backend_kind_name(enum backend_kind kind)
{
	return backend_names[(unsigned)kind < BACKEND_COUNT ? kind : BACKEND_UNKNOWN].name;
}

const char *backend_kind_title(enum backend_kind kind)
{
	return backend_names[(unsigned)kind < BACKEND_COUNT ? kind : BACKEND_UNKNOWN].title;
}

enum backend_kind backend_kind_parse(const char *name)
{
	for (int kind = BACKEND_UNKNOWN + 1; kind < BACKEND_COUNT; kind++)
		if (!strcmp(backend_names[kind].name, name))
			return (enum backend_kind)kind;
	return BACKEND_UNKNOWN;
}

const char *device_kind_name(enum device_kind kind)
{
	return kind_names[kind];
}

const char *device_support_name(enum device_support support)
{
	return support_names[support];
}

const char *library_state_name(enum library_state state)
{
	return library_state_names[state];
}

void text_copy(char *to, size_t size, const char *from)
{
	size_t length = from ? strnlen(from, size - 1) : 0;
	if (length)
		memmove(to, from, length);
	to[length] = 0;
}

bool words_have(const char *words, const char *word)
{
	size_t length = strlen(word);
	for (const char *at = words; (at = strstr(at, word)); at += length)
		if ((at == words || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
			return true;
	return false;
}

void words_add(char *words, size_t size, const char *word)
{
	size_t used = strlen(words), length = strlen(word);
	if (!length || words_have(words, word) || used + (used > 0) + length >= size)
		return;
	if (used)
		words[used++] = ' ';
	memcpy(words + used, word, length + 1);
}

struct json *words_to_json(const char *words)
{
	struct json *array = json_new_array();
	while (*words) {
		char word[INFO_WORD_BYTES];
		size_t length = strcspn(words, " ");
		snprintf(word, sizeof(word), "%.*s", (int)length, words);
		if (length)
			json_push(array, json_new_string(word));
		words += length + (words[length] == ' ');
	}
	return array;
}

void words_from_json(char *words, size_t size, const struct json *array)
{
	words[0] = 0;
	for (const struct json *word = json_first(array); word; word = json_next(word))
		if (!strchr(json_string(word, ""), ' '))
			words_add(words, size, json_string(word, ""));
}

void json_set_maybe_text(struct json *object, const char *name, const char *text)
{
	json_set_string(object, name, text && text[0] ? text : NULL);
}

void json_set_maybe_count(struct json *object, const char *name, int64_t count)
{
	if (count < 0)
		json_set_null(object, name);
	else
		json_set_integer(object, name, count);
}

struct json *device_info_to_json(const struct device_info *info)
{
	struct json *json = json_new_object();
	json_set_string(json, "backend", backend_kind_name(info->backend));
	json_set_string(json, "hardware_key", info->hardware_key);
	json_set_integer(json, "index", info->index);
	json_set_string(json, "name", info->name);
	json_set_string(json, "vendor", info->vendor);
	json_set_string(json, "model", info->model);
	json_set_maybe_text(json, "family", info->family);
	json_set_string(json, "kind", device_kind_name(info->kind));
	json_set_bool(json, "removable", info->removable);
	json_set_bool(json, "low_power", info->low_power);
	json_set_bool(json, "unified_memory", info->unified_memory);
	json_set_string(json, "memory_pool", info->memory_pool);
	json_set_maybe_count(json, "memory_bytes", info->memory_bytes);
	json_set_maybe_count(json, "memory_budget_bytes", info->memory_budget_bytes);
	json_set_maybe_count(json, "largest_buffer_bytes", info->largest_buffer_bytes);
	json_set_maybe_count(json, "compute_units", info->compute_units);
	json_set_maybe_text(json, "api_version", info->api_version);
	json_set_maybe_text(json, "driver_version", info->driver_version);
	json_set(json, "formats", words_to_json(info->formats));
	json_set(json, "features", words_to_json(info->features));
	json_set(json, "peers", words_to_json(info->peers));
	json_set_maybe_text(json, "uuid", info->uuid);
	json_set_maybe_text(json, "pci_address", info->pci_address);
	json_set_string(json, "support", device_support_name(info->support));
	json_set_maybe_text(json, "support_reason", info->support_reason);
	return json;
}

// The index of `name` among `count` names; 0 (the unknown one) if it is not among them. The search begins at 1.
static int name_index(const char *const *names, int count, const char *name)
{
	for (int i = 1; i < count; i++)
		if (!strcmp(names[i], name))
			return i;
	return 0;
}

#define NAME_INDEX(names, name) name_index(names, (int)(sizeof(names) / sizeof((names)[0])), name)

void device_info_from_json(struct device_info *info, const struct json *json)
{
	*info = (struct device_info){.backend = backend_kind_parse(json_get_string(json, "backend", ""))};
	text_copy(info->hardware_key, sizeof(info->hardware_key), json_get_string(json, "hardware_key", ""));
	info->index = (int)json_get_integer(json, "index", 0);
	text_copy(info->name, sizeof(info->name), json_get_string(json, "name", ""));
	text_copy(info->vendor, sizeof(info->vendor), json_get_string(json, "vendor", ""));
	text_copy(info->model, sizeof(info->model), json_get_string(json, "model", ""));
	text_copy(info->family, sizeof(info->family), json_get_string(json, "family", ""));
	info->kind = (enum device_kind)NAME_INDEX(kind_names, json_get_string(json, "kind", ""));
	info->removable = json_get_bool(json, "removable", false);
	info->low_power = json_get_bool(json, "low_power", false);
	info->unified_memory = json_get_bool(json, "unified_memory", false);
	text_copy(info->memory_pool, sizeof(info->memory_pool), json_get_string(json, "memory_pool", ""));
	info->memory_bytes = json_get_integer(json, "memory_bytes", -1);
	info->memory_budget_bytes = json_get_integer(json, "memory_budget_bytes", -1);
	info->largest_buffer_bytes = json_get_integer(json, "largest_buffer_bytes", -1);
	info->compute_units = json_get_integer(json, "compute_units", -1);
	text_copy(info->api_version, sizeof(info->api_version), json_get_string(json, "api_version", ""));
	text_copy(info->driver_version, sizeof(info->driver_version), json_get_string(json, "driver_version", ""));
	words_from_json(info->formats, sizeof(info->formats), json_get(json, "formats"));
	words_from_json(info->peers, sizeof(info->peers), json_get(json, "peers"));
	words_from_json(info->features, sizeof(info->features), json_get(json, "features"));
	text_copy(info->uuid, sizeof(info->uuid), json_get_string(json, "uuid", ""));
	text_copy(info->pci_address, sizeof(info->pci_address), json_get_string(json, "pci_address", ""));
	info->support = (enum device_support)NAME_INDEX(support_names, json_get_string(json, "support", ""));
	text_copy(info->support_reason, sizeof(info->support_reason), json_get_string(json, "support_reason", ""));
}

struct json *library_info_to_json(const struct library_info *library)
{
	struct json *json = json_new_object();
	json_set_string(json, "name", library->name);
	json_set_maybe_text(json, "file", library->file);
	json_set_string(json, "state", library_state_name(library->state));
	json_set_maybe_text(json, "version", library->version);
	json_set_maybe_text(json, "minimum_version", library->minimum_version);
	json_set_maybe_text(json, "reason", library->reason);
	json_set_maybe_text(json, "hint", library->hint);
	return json;
}

void library_info_from_json(struct library_info *library, const struct json *json)
{
	*library = (struct library_info){0};
	text_copy(library->name, sizeof(library->name), json_get_string(json, "name", ""));
	text_copy(library->file, sizeof(library->file), json_get_string(json, "file", ""));
	library->state = (enum library_state)NAME_INDEX(library_state_names, json_get_string(json, "state", ""));
	text_copy(library->version, sizeof(library->version), json_get_string(json, "version", ""));
	text_copy(library->minimum_version, sizeof(library->minimum_version),
		  json_get_string(json, "minimum_version", ""));
	text_copy(library->reason, sizeof(library->reason), json_get_string(json, "reason", ""));
	text_copy(library->hint, sizeof(library->hint), json_get_string(json, "hint", ""));
}
