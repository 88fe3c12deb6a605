/* Opens and closes hops over direct links; see links.h and links_hops.c. The out end calls hop.open, and sends when the
 * in end has accepted; `opened` is called at both ends. A hop.open that comes before this end knows the hop waits for
 * LIMIT_LINK_ASK_MS. Bulk hops are counted apart, so that they take no place from others. */
#include "common/base/clock.h"
#include "engine/node/links/links_hops_inside.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINK_BULK_HOPS = LIMIT_LINK_HOPS / 2 };

static void drop_ask(struct link *link, struct link_ask **at)
{
	struct link_ask *ask = *at;
	*at = ask->next;
	link->ask_count--;
	json_destroy(&ask->id);
	OPENSSL_cleanse(ask->key, sizeof ask->key);
	free(ask);
}

static bool same_key(const char *a, const char *b)
{
	return strlen(a) == strlen(b) && !CRYPTO_memcmp(a, b, strlen(a));
}

static void give_channel(struct link_hop *hop, uint32_t channel, const struct json *id)
{
	hop->channel = channel;
	hop->ask_id = json_copy(id);
	hop->state = HOP_ANSWER;
	links_hops_turn_soon(hop->links);
}

// Has the other end asked for this hop already?
static void look_for_ask(struct link_hop *hop)
{
	for (struct link_ask **at = &hop->link->asks; *at;) {
		struct link_ask *ask = *at;
		if (strcmp(ask->hop_id, hop->hop_id) != 0 || !same_key(ask->key, hop->key)) {
			at = &ask->next;
			continue;
		}
		if (hop->state == HOP_WAITS)
			give_channel(hop, ask->channel, ask->id);
		drop_ask(hop->link, at);
	}
}

static void hop_answered(struct link *link, const struct link_answer *answer);

enum status link_hop_open(struct link_hop **out, struct links *links, const struct link_hop_params *params,
			  struct error *error)
{
	*out = NULL;
	struct link *link = links_find(links, params->peer_id);
	if (!link || !link->conn)
		return error_set(error, STATUS_UNAVAILABLE, "there is no direct link to node %.64s%s%s",
				 params->peer_id, link ? ": " : "", link ? link->reason : "");
	if (strlen(params->hop_id) >= LINK_ID_BYTES || strlen(params->key) >= LINK_ID_BYTES)
		return error_set(error, STATUS_INVALID_PARAMS, "the hop's id or key is too long");
	size_t count = 0;
	for (const struct link_hop *other = links->hops; other; other = other->next)
		count += other->link == link && other->bulk == params->bulk;
	if (count >= (params->bulk ? LINK_BULK_HOPS : LIMIT_LINK_HOPS))
		return error_set(error, STATUS_UNAVAILABLE, "the link to %.128s has %zu %s already", link->name, count,
				 params->bulk ? "copies" : "hops");
	struct link_hop *hop = calloc(1, sizeof(*hop));
	if (!hop)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	hop->links = links;
	hop->link = link;
	hop->handler = params->handler;
	hop->user = params->user;
	hop->sends = params->sends;
	hop->bulk = params->bulk;
	hop->last = &hop->first;
	snprintf(hop->hop_id, sizeof hop->hop_id, "%s", params->hop_id);
	snprintf(hop->key, sizeof hop->key, "%s", params->key);
	hop->next = links->hops;
	links->hops = hop;
	*out = hop;
	if (!hop->sends) {
		look_for_ask(hop);
		return STATUS_OK;
	}
	hop->channel = link->next_channel;
	link->next_channel += 2;
	hop->state = HOP_ASKED;
	struct json *ask = json_new_object();
	json_set_string(ask, "hop_id", hop->hop_id);
	json_set_string(ask, "key", hop->key);
	json_set_integer(ask, "channel", hop->channel);
	if (link_call(link,
		      &(struct link_call){
			      .method = "hop.open", .params = ask, .answered = hop_answered, .number = hop->channel}))
		link_hop_end(hop, "the other node could not be asked for it");
	return STATUS_OK;
}

static void send_close(struct link *link, uint32_t channel, const char *message)
{
	struct json *params = json_new_object();
	json_set_integer(params, "channel", channel);
	json_set_string(params, "message", message);
	link_notify(link, "hop.close", params);
}

void link_hop_destroy(struct link_hop **pointer)
{
	struct link_hop *hop = *pointer;
	if (!hop)
		return;
	*pointer = NULL;
	if (hop->destroyed)
		return;
	if (hop->state == HOP_ANSWER || hop->state == HOP_ASKED || hop->state == HOP_OPEN)
		send_close(hop->link, hop->channel, "it is no longer needed");
	link_hop_unlink(hop);
}

enum status link_serve_hop_open(void *arg, const struct message *message, struct error *refusal)
{
	struct link *link = ((struct link_conn *)arg)->link;
	struct error error = {0};
	const char *hop_id = json_get_string(message->params, "hop_id", ""),
		   *key = json_get_string(message->params, "key", "");
	uint32_t channel = (uint32_t)json_get_integer(message->params, "channel", 0);
	struct link_hop *hop = link->links->hops;
	(void)refusal;
	if (!message->id)
		return STATUS_OK;
	while (hop && (hop->link != link || hop->sends || hop->state != HOP_WAITS || strcmp(hop->hop_id, hop_id) != 0 ||
		       !same_key(hop->key, key)))
		hop = hop->next;
	struct link_ask *ask = NULL;
	if ((channel & 1) == (link->next_channel & 1) || link_hop_find(link, channel, false))
		error_set(&error, STATUS_INVALID_PARAMS, "channel %u is not free", (unsigned)channel);
	else if (hop)
		give_channel(hop, channel, message->id);
	else if (link->ask_count >= LIMIT_LINK_ASKS)
		error_set(&error, STATUS_LIMIT_EXCEEDED, "%d hops wait for this node already", LIMIT_LINK_ASKS);
	else if (!(ask = calloc(1, sizeof(*ask))))
		error_set(&error, STATUS_OUT_OF_MEMORY, "out of memory");
	if (error.status)
		link_answer(link, message->method, message->id, NULL, &error);
	if (!ask)
		return STATUS_PENDING;
	snprintf(ask->hop_id, sizeof ask->hop_id, "%s", hop_id);
	snprintf(ask->key, sizeof ask->key, "%s", key);
	ask->id = json_copy(message->id);
	ask->channel = channel;
	ask->came_ms = clock_steady_ms();
	ask->next = link->asks;
	link->asks = ask;
	link->ask_count++;
	return STATUS_PENDING;
}

enum status link_serve_hop_close(void *arg, const struct message *message, struct error *error)
{
	struct link *link = ((struct link_conn *)arg)->link;
	const uint32_t channel = link_hop_channel_of(message);
	(void)error;
	char why[LINK_REASON_BYTES];
	for (struct link_ask **at = &link->asks; *at;)
		if ((*at)->channel == channel)
			drop_ask(link, at);
		else
			at = &(*at)->next;
	struct link_hop *hop = link_hop_find(link, channel, (channel & 1) == (link->next_channel & 1));
	if (!hop)
		return STATUS_OK;
	snprintf(why, sizeof why, "the other node closed it: %.200s",
		 json_get_string(message->params, "message", "it gives no reason"));
	link_hop_end(hop, why);
	return STATUS_OK;
}

static void hop_answered(struct link *link, const struct link_answer *answer)
{
	struct links *links = link->links;
	struct link_hop *hop = link_hop_find(link, (uint32_t)answer->number, true);
	if (!hop || hop->state != HOP_ASKED)
		return;
	if (answer->error) {
		link_hop_end(hop, answer->error->message);
		return;
	}
	hop->state = HOP_OPEN;
	links_hops_enter(links);
	if (hop->handler->opened)
		hop->handler->opened(hop->user, hop);
	links_hops_leave(links);
	links_hops_feed(links, link);
}

void link_hops_second(struct link *link)
{
	struct error error = {0};
	error_set(&error, STATUS_TIMEOUT, "the node was not told of this hop in %d s", LIMIT_LINK_ASK_MS / 1000);
	for (struct link_ask **at = &link->asks; *at;) {
		if (clock_steady_ms() - (*at)->came_ms < LIMIT_LINK_ASK_MS) {
			at = &(*at)->next;
			continue;
		}
		link_answer(link, "hop.open", (*at)->id, NULL, &error);
		drop_ask(link, at);
	}
}

void link_hops_drop_asks(struct link *link)
{
	while (link->asks)
		drop_ask(link, &link->asks);
}
