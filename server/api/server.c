/* server.*: what this server is. Answers before login. Thread: the loop's. */
#include "common/base/clock.h"
#include "server/api/call.h"
#include "server/api/nodes/servers.h"

#include <stdio.h>

static const char *print_sha256(const uint8_t *bytes, char text[2 * NET_SHA256_BYTES + 1])
{
	for (size_t i = 0; i < NET_SHA256_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	return text;
}

static enum status server_info(struct api_call *call, const struct json *params, struct json **result,
			       struct error *error)
{
	char at[CLOCK_TEXT_BYTES], sha256[2 * NET_SHA256_BYTES + 1];
	const struct api_params *server = &call->api->params;
	struct json *info = json_new_object();
	(void)params, (void)error;
	json_set_string(info, "name", server->name);
	json_set_string(info, "version", EXOGPU_VERSION);
	json_set_string(info, "cluster_id", server->cluster_id);
	json_set_string(info, "started_at", clock_format(server->started_ms, at));
	json_set_string(info, "schema_sha256", server->schema_sha256);
	json_set_bool(info, "tls", server->tls);
	json_set_bool(info, "discovering", cluster_discovering(server->cluster));
	json_set_string(info, "authority_sha256", print_sha256(authority_sha256(server->authority), sha256));
	json_set(info, "servers", server->turn ? servers_json(server->turn) : json_new_array());
	json_set(info, "limits", limits_json(server->limits));
	*result = info;
	return STATUS_OK;
}

const struct api_handler server_handlers[] = {
	{"server.info", .run = server_info},
	{0},
};
