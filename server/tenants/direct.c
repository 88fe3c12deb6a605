/* Channels: what a copy between two workers goes by, past the server, and the prefix that one model instance gives
 * another. See inside.h.
 *
 *     connecting   copy.connect to the node of each worker: within a node, or by the direct link between two
 *     moving       memory.receive to the worker that is written, memory.send to the one that is read; where `opened`
 *                  is given that is called instead, once, and the rest is up to the callee
 *
 * What does not come about, or breaks off, is no error: whoever asked is told how far it came. Only what the workers
 * say of their memory is one. Nodes and workers answer in any case, also when nobody waits any more; it lives
 * until they have. */
#include "common/base/log.h"
#include "server/security/random_id.h"
#include "server/tenants/inside.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct direct {
	struct direct_params params; // its `ended` is NULL once nobody waits
	char id[TENANT_ID_BYTES], from_id[TENANT_ID_BYTES], to_id[TENANT_ID_BYTES]; // from_id, to_id: of the workers
	unsigned asks;              // of nodes and workers, not answered; and 1 until it is closed
	unsigned connected, moving; // ends; calls of workers
	uint64_t came;
	struct error error; // the first
};

// One of the asks is over.
static void settle(struct direct *direct)
{
	if (!--direct->asks)
		free(direct);
}

// It is over: tell, once.
static void finish(struct direct *direct)
{
	const struct direct_params params = direct->params;
	direct->params.ended = NULL;
	if (params.ended)
		params.ended(params.context, direct->came, direct->error.status ? &direct->error : NULL);
}

// ---- moving ----

static void moved(struct direct *direct, enum status status, const struct error *error)
{
	if (status && !direct->error.status)
		direct->error = *error;
	if (--direct->moving == 0)
		finish(direct);
	settle(direct);
}

static void received(struct worker_call *call, enum status status, const struct json *result, struct net_frame *body,
		     const struct error *error)
{
	struct direct *direct = call->context;
	const uint64_t bytes = status ? 0 : (uint64_t)json_get_integer(result, "bytes", 0);
	(void)body;
	direct->came = bytes < direct->params.bytes ? bytes : direct->params.bytes;
	moved(direct, status, error);
}

static void sent(struct worker_call *call, enum status status, const struct json *result, struct net_frame *body,
		 const struct error *error)
{
	(void)result, (void)body;
	moved(call->context, status, error);
}

static enum status ask_worker(struct direct *direct, bool out, struct error *error)
{
	const struct direct_params *params = &direct->params;
	struct worker_call *call = worker_call_create(NULL, out ? sent : received);
	if (!call)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	struct json *given = json_new_object();
	json_set_string(given, "channel", direct->id);
	json_set_integer(given, "handle", out ? params->from_handle : params->to_handle);
	json_set_integer(given, "offset", (int64_t)(out ? params->from_offset : params->to_offset));
	json_set_integer(given, "bytes", (int64_t)params->bytes);
	call->context = direct;
	const struct worker_send_params send = {.method = out ? "memory.send" : "memory.receive", .params = given};
	enum status status = worker_send(out ? params->from : params->to, call, &send, error);
	if (status)
		worker_call_destroy(&call);
	direct->asks += !status;
	direct->moving += !status;
	return status;
}

static void move(struct direct *direct)
{
	struct error error = {0};
	enum status status = ask_worker(direct, false, &error);
	if (!status)
		status = ask_worker(direct, true, &error);
	// One end that is not asked: the other waits for it in vain, and the copy is done another way.
	if (status)
		finish(direct);
}

// ---- connecting ----

static void connected(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct direct *direct = context;
	(void)result;
	direct->connected += !status;
	if (status && direct->params.ended)
		log_info("tenants", "no channel via %s from worker %s to %s: %s",
			 direct->params.link ? "link" : "local", direct->from_id, direct->to_id, error->message);
	if (direct->params.ended && status)
		finish(direct);
	else if (direct->params.ended && direct->connected == 2 && direct->params.opened)
		direct->params.opened(direct->params.context);
	else if (direct->params.ended && direct->connected == 2)
		move(direct);
	settle(direct);
}

static enum status ask_node(struct direct *direct, bool out, const char *key)
{
	const struct direct_params *params = &direct->params;
	const struct worker *at = out ? params->from : params->to, *other = out ? params->to : params->from;
	struct json *given = json_new_object();
	json_set_string(given, "worker_id", at->worker_id);
	json_set_string(given, "end", out ? "out" : "in");
	json_set_string(given, "hop_id", direct->id);
	json_set_string(given, "key", key);
	json_set_string(given, "via", params->link ? "link" : "local");
	if (params->link)
		json_set_string(given, "peer_id", other->node_id);
	enum status status = cluster_ask(at->tenants->params.cluster, at->node_id, "copy.connect", given, connected,
					 direct);
	direct->asks += !status;
	return status;
}

enum status direct_open(struct direct **out, const struct direct_params *params)
{
	unsigned char bytes[(WORKER_KEY_BYTES - 1) / 2];
	char key[WORKER_KEY_BYTES];
	struct direct *direct = *out = calloc(1, sizeof(*direct));
	if (!direct)
		return STATUS_OUT_OF_MEMORY;
	direct->params = *params;
	direct->params.ended = NULL; // not from in here
	snprintf(direct->from_id, sizeof direct->from_id, "%s", params->from->worker_id);
	snprintf(direct->to_id, sizeof direct->to_id, "%s", params->to->worker_id);
	enum status status = random_id("cpy_", direct->id, sizeof direct->id);
	if (!status && RAND_bytes(bytes, sizeof bytes) != 1)
		status = STATUS_UNAVAILABLE;
	for (size_t i = 0; !status && i < sizeof bytes; i++)
		snprintf(key + 2 * i, 3, "%02x", bytes[i]);
	direct->asks = 1; // for whoever has it
	if (!status)
		status = ask_node(direct, false, key);
	if (!status)
		status = ask_node(direct, true, key);
	OPENSSL_cleanse(bytes, sizeof bytes);
	OPENSSL_cleanse(key, sizeof key);
	direct->params.ended = params->ended;
	if (!status)
		return STATUS_OK;
	direct_close(out);
	return status;
}

void direct_close(struct direct **pointer)
{
	struct direct *direct = *pointer;
	if (!direct)
		return;
	*pointer = NULL;
	direct->params.ended = NULL;
	settle(direct);
}

const char *direct_id(const struct direct *direct)
{
	return direct->id;
}
