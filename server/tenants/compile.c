/* compute.load of CUDA C: its device's node compiles it, then it is loaded as the PTX that it has become. See inside.h.
 *
 * Until the node answers, the session has nothing of it but the caller who waits. A node answers in any case, also when
 * nobody waits any more; the record lives until then. */
#include "common/base/list.h"
#include "server/tenants/inside.h"

#include <stdlib.h>
#include <string.h>

struct compilation {
	struct compilation *next, **link; // of its tenant, while the client waits
	struct tenant_call client;        // its done is NULL once it was answered
};

static void answer(struct compilation *compilation, struct json *data, const struct error *error)
{
	const struct tenant_call client = compilation->client;
	if (!client.done) {
		json_destroy(&data);
		return;
	}
	compilation->client = (struct tenant_call){0};
	LIST_REMOVE(compilation, link);
	client.tenant->compilations_count--;
	client.done(client.context, error->status, data, NULL, error);
}

void compilations_end(struct tenant *tenant, const char *why)
{
	struct error error = {0};
	error_set(&error, STATUS_DEVICE_LOST, "%s", why);
	while (tenant->compilations)
		answer(tenant->compilations, NULL, &error);
}

// Its first error, without the lines that show the place.
static void tell_first_error(const char *log, struct error *error)
{
	const char *at = strstr(log, "error"), *begin = at;
	while (begin && begin > log && begin[-1] != '\n')
		begin--;
	const char *line = begin ? begin : log;
	error_set(error, STATUS_INVALID_PARAMS, "NVRTC rejects this source: %.*s", (int)strcspn(line, "\n"), line);
	error_hint(error, "the error's data has the compiler's log");
}

// As PTX. What is wrong now is told like what is wrong at once.
static void load(struct compilation *compilation, const char *ptx)
{
	struct error error = {0};
	struct json *params = json_new_object();
	struct tenant_call client = compilation->client;
	json_set_string(params, "device_id", client.about->device_id);
	json_set_string(params, "format", "ptx");
	client.params = params;
	client.holder = NULL;
	client.body = (const uint8_t *)ptx;
	client.body_bytes = strlen(ptx);
	if (tenant_load(&client, &error)) {
		answer(compilation, NULL, &error);
	} else { // it is a worker's call from here on
		LIST_REMOVE(compilation, link);
		client.tenant->compilations_count--;
		compilation->client = (struct tenant_call){0};
	}
	json_destroy(&params);
}

static void compiled(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct compilation *compilation = context;
	struct error fault = {0};
	const char *ptx = json_get_string(result, "ptx", NULL), *log = json_get_string(result, "log", "");
	if (status) {
		answer(compilation, NULL, error);
	} else if (!compilation->client.done) {
		// its session is over
	} else if (ptx) {
		load(compilation, ptx);
	} else {
		struct json *data = json_new_object();
		json_set_string(data, "log", log);
		tell_first_error(log, &fault);
		answer(compilation, data, &fault);
	}
	free(compilation);
}

enum status compilation_start(const struct tenant_call *client, const struct cluster_device *device,
			      struct error *error)
{
	struct tenant *tenant = client->tenant;
	if (client->body_bytes > LIMIT_CUDA_SOURCE_BYTES || memchr(client->body, 0, client->body_bytes) ||
	    !json_utf8((const char *)client->body, client->body_bytes))
		return error_set(error, STATUS_INVALID_PARAMS, "CUDA C is text in UTF-8, %d KiB at most",
				 LIMIT_CUDA_SOURCE_BYTES / 1024);
	if (tenant->compilations_count >= LIMIT_COMPILATIONS_OF_SESSION) {
		error_hint(error, "wait for one of them");
		return error_set(error, STATUS_LIMIT_EXCEEDED, "%d sources of this session are being compiled",
				 LIMIT_COMPILATIONS_OF_SESSION);
	}
	struct compilation *compilation = calloc(1, sizeof(*compilation));
	char *source = buffer_copy_text(client->body, client->body_bytes);
	struct json *params = json_new_object();
	json_set_string(params, "device_id", cluster_device_id(device));
	json_set_string(params, "source", source);
	const bool whole = compilation && source;
	free(source);
	enum status status = STATUS_OUT_OF_MEMORY;
	if (whole) {
		compilation->client = *client;
		LIST_PUSH(&tenant->compilations, compilation, link);
		tenant->compilations_count++;
		status = cluster_ask(tenant->tenants->params.cluster, cluster_device_node_id(device), "module.compile",
				     params, compiled, compilation);
		if (status) {
			LIST_REMOVE(compilation, link);
			tenant->compilations_count--;
		}
	} else {
		json_destroy(&params);
	}
	if (!status)
		return STATUS_OK;
	free(compilation);
	return error_set(error, status, "its node cannot be asked to compile it: %s", status_text(status));
}
