/* The ring of an instance's parts: hops from each to the next, and the check that they fit together. See parts.h.
 *
 * Both ends of a hop are asked at once; each answers when the other is there. A direct link that does not carry it is
 * replaced by the way through the server, once. */
#include "common/base/log.h"
#include "server/cluster/topology.h"
#include "server/models/parts_inside.h"
#include "server/security/random_id.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

enum { HOP_TRIES = 4 };

static const char *const way_names[] = {[WAY_LOCAL] = "local", [WAY_LINK] = "link", [WAY_SERVER] = "server"};

static struct part *next_of(const struct part *part)
{
	struct parts *parts = part->parts;
	return &parts->part[(part->index + 1) % parts->count];
}

const char *parts_via(const struct parts *parts, unsigned part)
{
	return way_names[parts->part[part].way];
}

unsigned parts_unconnected(const struct parts *parts)
{
	unsigned part = 0;
	while (part + 1 < parts->count && parts->part[part].ends == 2)
		part++;
	return part;
}

// ---- checking ----

static void checked(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct parts *parts;
	unsigned which;
	if (!parts_ask_answered(context, &parts, &which) || parts->failed || status == STATUS_DEVICE_LOST)
		return;
	if (status) {
		parts_fail_at(parts, which, "the parts do not work together", error);
		return;
	}
	log_info("models", "instance %s: a reference token went around its %u parts in %.1f ms",
		 parts->instance->instance_id, parts->count, json_get_number(result, "round_ms", 0));
	parts_set_ready(parts);
}

static void check(struct parts *parts)
{
	struct error error = {0};
	struct parts_ask *ask = parts_ask_create(parts, parts->count - 1);
	parts->step = PARTS_CHECKING;
	parts_limit(parts, LIMIT_CHECK_MS);
	if (!ask)
		error_set(&error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	else if (!instance_worker_call(parts->part[parts->count - 1].worker, "instance.check", json_new_object(),
				       checked, ask, &error))
		return;
	if (ask)
		parts_ask_answered(ask, &(struct parts *){NULL}, &(unsigned){0});
	parts_fail_at(parts, parts->count - 1, "the parts cannot be checked", &error);
}

// ---- connecting ----

static void connect_hop(struct part *part, enum hop_way way);

static void relay_ended(void *context)
{
	struct part *part = context;
	part->hop = NULL; // the nodes tell of it: hop.ended
}

static void answered(void *context, enum status status, const struct json *result, const struct error *error)
{
	unsigned which;
	struct parts *parts;
	(void)result;
	if (!parts_ask_answered(context, &parts, &which) || parts->failed)
		return;
	struct part *part = &parts->part[which];
	if (status && part->way == WAY_LINK) {
		log_info("models", "instance %s: no direct link from %s to %s carries a hop (%s): through the server",
			 parts->instance->instance_id, part->node_id, next_of(part)->node_id, error->message);
		connect_hop(part, WAY_SERVER);
		return;
	}
	if (status) {
		parts_fail_at(parts, which, "it could not be connected to the next part", error);
		return;
	}
	part->ends++;
	for (unsigned i = 0; i < parts->count; i++)
		if (parts->part[i].ends < 2)
			return;
	check(parts);
}

static enum status ask_end(struct part *part, const char *end, const char *key, struct error *error)
{
	struct parts *parts = part->parts;
	const bool out = !strcmp(end, "out");
	const struct part *at = out ? part : next_of(part), *other = out ? next_of(part) : part;
	struct parts_ask *ask = at->worker ? parts_ask_create(parts, part->index) : NULL;
	if (!ask)
		return error_set(error, STATUS_UNAVAILABLE, "its worker is gone");
	struct json *params = json_new_object();
	json_set_string(params, "worker_id", instance_worker_id(at->worker));
	json_set_string(params, "end", end);
	json_set_string(params, "hop_id", part->hop_id);
	json_set_string(params, "key", key);
	json_set_string(params, "via", way_names[part->way]);
	if (part->way == WAY_LINK)
		json_set_string(params, "peer_id", other->node_id);
	ask->attempt = part->attempt;
	enum status status = cluster_ask(parts->instance->all->params.cluster, at->node_id, "hop.connect", params,
					 answered, ask);
	if (!status)
		return STATUS_OK;
	parts_ask_answered(ask, &(struct parts *){NULL}, &(unsigned){0});
	return error_set(error, status, "the node of the other end cannot be asked now");
}

static void connect_hop(struct part *part, enum hop_way way)
{
	struct error error = {0};
	struct parts *parts = part->parts;
	char key[PARTS_KEY_BYTES];
	hop_relay_destroy(&part->hop);
	part->way = way;
	part->ends = 0;
	part->attempt++;
	enum status status = random_id("hop_", part->hop_id, sizeof part->hop_id);
	if (!status)
		status = parts_make_key(key);
	if (status)
		error_set(&error, status, "the system gives no random numbers");
	const struct hop_params params = {.hop_id = part->hop_id,
					  .key = key,
					  .out_node_id = part->node_id,
					  .in_node_id = next_of(part)->node_id,
					  .ended = relay_ended,
					  .context = part};
	if (!status && way == WAY_SERVER)
		status = hop_relay_create(&part->hop, parts->instance->all->params.tenants, &params, &error);
	if (!status)
		status = ask_end(part, "in", key, &error);
	if (!status)
		status = ask_end(part, "out", key, &error);
	OPENSSL_cleanse(key, sizeof key);
	if (status)
		parts_fail_at(parts, part->index, "it could not be connected to the next part", &error);
}

static enum hop_way way_of(const struct part *part)
{
	struct topology_reading reading;
	const struct part *next = next_of(part);
	if (!strcmp(part->node_id, next->node_id))
		return WAY_LOCAL;
	topology_find(part->parts->instance->all->params.topology, part->node_id, next->node_id, &reading);
	return reading.direct ? WAY_LINK : WAY_SERVER;
}

void parts_connect(struct parts *parts)
{
	parts->step = PARTS_CONNECTING;
	parts->broken = 0;
	parts_limit(parts, LIMIT_HOP_CONNECT_MS);
	for (unsigned i = 0; i < parts->count; i++) // before any is asked, or the first answers would seem to be all
		parts->part[i].ends = 0;
	for (unsigned i = 0; i < parts->count && !parts->failed; i++)
		connect_hop(&parts->part[i], way_of(&parts->part[i]));
}

void parts_disconnect(struct parts *parts)
{
	for (unsigned i = 0; i < parts->count; i++) {
		hop_relay_destroy(&parts->part[i].hop);
		parts->part[i].attempt++; // what its ends still say is of no interest
	}
}

void parts_mend(struct parts *parts)
{
	if (parts->count > 1)
		parts_connect(parts);
	else
		parts_set_ready(parts);
}

// It broke before all were connected and checked: a few times, within the same limit.
static void connect_again(struct part *part, const char *why)
{
	struct error error = {0};
	struct parts *parts = part->parts;
	parts->step = PARTS_CONNECTING;
	if (++parts->broken <= HOP_TRIES) {
		connect_hop(part, part->way == WAY_LINK ? WAY_SERVER : part->way);
		return;
	}
	error_set(&error, STATUS_UNAVAILABLE, "%s", why);
	parts_fail_at(parts, part->index, "its way to the next part breaks again and again", &error);
}

bool parts_hop_ended(struct parts *parts, const char *node_id, const struct json *params)
{
	const char *hop_id = json_get_string(params, "hop_id", "");
	for (unsigned i = 0; parts && i < parts->count; i++) {
		struct part *part = &parts->part[i];
		if (strcmp(part->hop_id, hop_id) != 0 ||
		    (strcmp(part->node_id, node_id) != 0 && strcmp(next_of(part)->node_id, node_id) != 0))
			continue;
		if (parts->failed)
			return true;
		log_info("models", "instance %s: the way from part %u to the next is broken: %s",
			 parts->instance->instance_id, i + 1, json_get_string(params, "message", ""));
		if (parts->step == PARTS_READY)
			instance_parts_broken(parts->instance);
		else if (parts->step == PARTS_CONNECTING || parts->step == PARTS_CHECKING)
			connect_again(part, json_get_string(params, "message", ""));
		return true;
	}
	return false;
}
