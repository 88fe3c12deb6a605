/* See assets.h. ui/assets.json, written by the dashboard's build, lists {path, file, type, immutable}; beside each file
 * stands the same compressed. */
#include "server/http/assets.h"

#include "common/files/embedded.h"
#include "common/json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct asset {
	char path[128], type[64], etag[40];
	const struct embedded_file *plain, *compressed; // compressed: NULL if there is none
	bool immutable;
};

struct assets {
	struct asset *list; // (count)
	size_t count;
};

static const char missing_page[] = "<!doctype html><meta charset=utf-8><title>exogpu</title><p>This binary was built "
				   "without the dashboard: node or npm was "
				   "missing. Install both and build again; the API at /ws works as it is.</p>\n";

// FNV-1a of the content: names a version, proves nothing.
static void make_etag(const struct embedded_file *file, char etag[40])
{
	uint64_t hash = 14695981039346656037u;
	for (size_t i = 0; i < file->length; i++)
		hash = (hash ^ file->data[i]) * 1099511628211u;
	snprintf(etag, 40, "\"%016llx\"", (unsigned long long)hash);
}

static enum status load_asset(struct asset *asset, const struct json *entry, struct error *error)
{
	char name[160];
	const char *file = json_get_string(entry, "file", "");
	snprintf(name, sizeof name, "ui/%s", file);
	asset->plain = embedded_find(name);
	if (!asset->plain)
		return error_set(error, STATUS_INTERNAL, "the dashboard's file %s is not in the binary", file);
	snprintf(name, sizeof name, "ui/%s.gz", file);
	asset->compressed = embedded_find(name);
	asset->immutable = json_get_bool(entry, "immutable", false);
	snprintf(asset->path, sizeof asset->path, "%s", json_get_string(entry, "path", ""));
	snprintf(asset->type, sizeof asset->type, "%s", json_get_string(entry, "type", "application/octet-stream"));
	make_etag(asset->plain, asset->etag);
	return STATUS_OK;
}

enum status assets_create(struct assets **out, struct error *error)
{
	struct json *list = NULL;
	enum status status = STATUS_OK;
	struct assets *assets = calloc(1, sizeof(*assets));
	const struct embedded_file *file = embedded_find("ui/assets.json");
	*out = NULL;
	if (!assets)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	if (file)
		status = json_parse(&list, (const char *)file->data, file->length, error);
	assets->list = calloc(json_count(list) + 1, sizeof(*assets->list));
	if (!status && !assets->list)
		status = error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	for (const struct json *entry = json_first(list); entry && !status; entry = json_next(entry))
		status = load_asset(&assets->list[assets->count++], entry, error);
	json_destroy(&list);
	if (status)
		assets_destroy(&assets);
	*out = assets;
	return status;
}

void assets_destroy(struct assets **assets)
{
	if (!*assets)
		return;
	free((*assets)->list);
	free(*assets);
	*assets = NULL;
}

bool assets_serve(const struct assets *assets, const struct net_request *request, struct net_response *response)
{
	if (!assets->count && !strcmp(request->path, "/")) {
		response->status = 200;
		response->content_type = "text/html; charset=utf-8";
		response->body = (const uint8_t *)missing_page;
		response->body_bytes = sizeof missing_page - 1;
		return true;
	}
	for (size_t i = 0; i < assets->count; i++) {
		const struct asset *asset = &assets->list[i];
		if (strcmp(request->path, asset->path) != 0)
			continue;
		const struct embedded_file *file = request->gzip && asset->compressed ? asset->compressed
										      : asset->plain;
		response->status = 200;
		response->content_type = asset->type;
		response->immutable = asset->immutable;
		response->etag = asset->etag;
		if (!strcmp(request->if_none_match, asset->etag)) {
			response->status = 304;
			return true;
		}
		response->gzip = file == asset->compressed;
		response->body = file->data;
		response->body_bytes = file->length;
		return true;
	}
	return false;
}
