/* See hop.h. */
#include "server/tenants/hop.h"

#include "common/base/list.h"
#include "common/base/log.h"
#include "server/tenants/inside.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum hop_end { END_OUT, END_IN, ENDS };
static const char *const end_names[ENDS] = {"out", "in"};

struct hop {
	struct hop *next, **link; // of all
	struct tenancy *tenants;
	char hop_id[TENANT_ID_BYTES], key[WORKER_KEY_BYTES], node_ids[ENDS][STORE_ID_BYTES];
	struct arrival *ends[ENDS]; // NULL: not there yet
	bool held;                  // the out end is not read
	bool own[ENDS];             // the server itself is that end
	uint64_t passed;            // messages
	hop_gate *gate;             // may be NULL
	void *gate_context;
	hop_message *tap; // may be NULL
	void *tap_context;
	void (*opened)(void *context);
	hop_message *came;
	void (*ended)(void *context);
	void *context;
};

enum status hop_relay_create(struct hop **out, struct tenancy *tenants, const struct hop_params *params,
			     struct error *error)
{
	struct hop *hop = NULL;
	*out = NULL;
	if (tenants->hop_count >= LIMIT_HOPS)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "there are %d hops by way of the server already",
				 LIMIT_HOPS);
	hop = calloc(1, sizeof(*hop));
	if (!hop)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	*hop = (struct hop){.tenants = tenants,
			    .own = {[END_OUT] = !params->out_node_id, [END_IN] = !params->in_node_id},
			    .opened = params->opened,
			    .came = params->came,
			    .ended = params->ended,
			    .context = params->context};
	snprintf(hop->hop_id, sizeof hop->hop_id, "%s", params->hop_id);
	snprintf(hop->key, sizeof hop->key, "%s", params->key);
	snprintf(hop->node_ids[END_OUT], STORE_ID_BYTES, "%s", hop->own[END_OUT] ? "" : params->out_node_id);
	snprintf(hop->node_ids[END_IN], STORE_ID_BYTES, "%s", hop->own[END_IN] ? "" : params->in_node_id);
	LIST_PUSH(&tenants->hops, hop, link);
	tenants->hop_count++;
	*out = hop;
	return STATUS_OK;
}

enum status hop_relay_send(struct hop *hop, const struct net_parts *message)
{
	const struct arrival *in = hop->ends[END_IN];
	return in ? in->line->send(in->line, message) : STATUS_UNAVAILABLE;
}

void hop_relay_gate(struct hop *hop, hop_gate *gate, void *context)
{
	hop->gate = gate;
	hop->gate_context = context;
}

void hop_relay_tap(struct hop *hop, hop_message *tap, void *context)
{
	hop->tap = tap;
	hop->tap_context = context;
}

uint64_t hop_relay_passed(const struct hop *hop)
{
	return hop->passed;
}

void hop_relay_recount(struct hop *hop)
{
	hop->passed = 0;
}

void hop_relay_destroy(struct hop **pointer)
{
	struct hop *hop = *pointer;
	if (!hop)
		return;
	*pointer = NULL;
	for (int end = 0; end < ENDS; end++) {
		struct arrival *arrival = hop->ends[end];
		hop->ends[end] = NULL;
		if (!arrival)
			continue;
		arrival->hop = NULL;
		arrival_drop(arrival);
	}
	LIST_REMOVE(hop, link);
	hop->tenants->hop_count--;
	OPENSSL_cleanse(hop->key, sizeof hop->key);
	free(hop);
}

static void break_off(struct hop *hop, const char *why)
{
	void (*ended)(void *) = hop->ended;
	void *context = hop->context;
	log_debug("tenants", "hop %s is over: %s", hop->hop_id, why);
	hop_relay_destroy(&hop);
	if (ended)
		ended(context);
}

// ---- coming ----

// Whether ends of this node may come this way: a tab has no certificate, and its node_id here is its address.
static bool brings(const struct arrival *arrival, const char *node_id)
{
	const bool tab = cluster_is_tab(arrival->tenants->params.cluster, node_id);
	if (arrival->tab || tab)
		return arrival->tab && tab;
	return !arrival->node_id[0] || !strcmp(arrival->node_id, node_id);
}

static struct hop *awaited(const struct arrival *arrival, const struct json *params, enum hop_end *end)
{
	const char *hop_id = json_get_string(params, "hop_id", ""), *key = json_get_string(params, "key", "");
	struct hop *hop = arrival->tenants->hops;
	*end = !strcmp(json_get_string(params, "end", ""), end_names[END_OUT]) ? END_OUT : END_IN;
	while (hop && strcmp(hop->hop_id, hop_id) != 0)
		hop = hop->next;
	if (!hop || hop->ends[*end] || hop->own[*end] || !brings(arrival, hop->node_ids[*end]) ||
	    strlen(key) != WORKER_KEY_BYTES - 1 || CRYPTO_memcmp(key, hop->key, WORKER_KEY_BYTES - 1) != 0)
		return NULL;
	return hop;
}

static enum status greet(const struct hop *hop, enum hop_end end)
{
	struct line *line = hop->ends[end]->line;
	struct buffer *text = &hop->tenants->text;
	struct json *params = json_new_object();
	json_set_string(params, "hop_id", hop->hop_id);
	json_set_string(params, "key", hop->key);
	json_set_string(params, "end", end_names[end]);
	buffer_clear(text);
	enum status status = message_print_call(text, NULL, "hop.hello", params);
	if (!status)
		status = line->send(line, &(struct net_parts){.head = text->data, .head_bytes = text->length});
	return status;
}

bool hop_relay_greeted(struct arrival *arrival, const struct json *params)
{
	enum hop_end end;
	struct hop *hop = awaited(arrival, params, &end);
	if (!hop)
		return false;
	hop->ends[end] = arrival;
	arrival->hop = hop;
	for (int i = 0; i < ENDS; i++)
		if (!hop->ends[i] && !hop->own[i])
			return true;
	if ((!hop->own[END_IN] && greet(hop, END_IN)) || (!hop->own[END_OUT] && greet(hop, END_OUT)))
		break_off(hop, "an end takes nothing");
	else if (hop->opened)
		hop->opened(hop->context);
	return true;
}

// ---- passing on ----

void hop_relay_message(struct arrival *arrival, const struct net_parts *parts)
{
	struct hop *hop = arrival->hop;
	struct arrival *in = hop->ends[END_IN];
	if (hop->own[END_IN]) {
		hop->came(hop->context, parts);
		return;
	}
	if (arrival == in || !in) {
		break_off(hop, "a message came from the end that sends none, or before the other was there");
		return;
	}
	if (hop->gate && !hop->gate(hop->gate_context, parts))
		return;
	if (in->line->send(in->line, parts)) {
		break_off(hop, "more came than fits its queue");
		return;
	}
	hop->passed++;
	hop->tenants->stats.relayed_bytes += parts->head_bytes + parts->body_bytes;
	if (!hop->held && in->line->queued(in->line) > LIMIT_STREAM_FULL_BYTES) {
		hop->held = true;
		arrival->line->pause(arrival->line);
	}
	if (hop->tap)
		hop->tap(hop->tap_context, parts);
}

void hop_relay_drained(struct arrival *arrival)
{
	struct hop *hop = arrival->hop;
	const struct arrival *out = hop->ends[END_OUT];
	if (arrival != hop->ends[END_IN] || !hop->held)
		return;
	hop->held = false;
	out->line->resume(out->line);
}

void hop_relay_lost(struct arrival *arrival, const char *why)
{
	break_off(arrival->hop, why);
}
