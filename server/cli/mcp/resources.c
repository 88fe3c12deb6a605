/* What agents may read beside tools: each device of the cluster, as the contract describes it. See mcp.h. */
#include "server/cli/mcp/mcp.h"

#include <stdio.h>
#include <string.h>

#define SCHEME "exogpu://device/"

struct json *mcp_resources(const struct json *snapshot)
{
	struct json *result = json_new_object(), *resources = json_new_array();
	const struct json *device = json_first(json_get(snapshot, "devices"));
	for (; device; device = json_next(device)) {
		char uri[160], about[160];
		struct json *one = json_new_object();
		const char *name = json_get_string(device, "name", "");
		snprintf(uri, sizeof uri, SCHEME "%s", json_get_string(device, "device_id", ""));
		snprintf(about, sizeof about, "A device by %s, which is %s.", json_get_string(device, "backend", "?"),
			 json_get_string(device, "state", "?"));
		json_set_string(one, "uri", uri);
		json_set_string(one, "name", json_get_string(device, "device_id", ""));
		json_set_string(one, "title", name);
		json_set_string(one, "description", about);
		json_set_string(one, "mimeType", "application/json");
		json_push(resources, one);
	}
	json_set(result, "resources", resources);
	return result;
}

struct json *mcp_resource(const struct json *snapshot, const char *uri)
{
	const struct json *device = json_first(json_get(snapshot, "devices"));
	if (strncmp(uri, SCHEME, strlen(SCHEME)) != 0)
		return NULL;
	while (device && strcmp(json_get_string(device, "device_id", ""), uri + strlen(SCHEME)) != 0)
		device = json_next(device);
	if (!device)
		return NULL;
	struct json *result = json_new_object(), *contents = json_new_array(), *one = json_new_object();
	struct buffer text;
	buffer_init(&text, LIMIT_HEAD_BYTES);
	json_print(device, &text);
	json_set_string(one, "uri", uri);
	json_set_string(one, "mimeType", "application/json");
	json_set_string(one, "text", buffer_text(&text));
	json_push(contents, one);
	json_set(result, "contents", contents);
	buffer_finish(&text);
	return result;
}
