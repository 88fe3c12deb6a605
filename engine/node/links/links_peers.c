/* The other nodes that the server tells of, and where they can be reached. See links.c. */
#include "common/base/log.h"
#include "engine/node/links/links_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct link *links_find(struct links *links, const char *peer_id)
{
	struct link *link = links->first;
	while (link && strcmp(link->peer_id, peer_id) != 0)
		link = link->next;
	return link;
}

// True: they are others than before.
static bool take_addresses(struct link *link, const struct json *peer)
{
	char was[sizeof link->addresses];
	const size_t was_count = link->address_count;
	const int was_port = link->port;
	memcpy(was, link->addresses, sizeof was);
	memset(link->addresses, 0, sizeof link->addresses);
	link->address_count = 0;
	link->port = (int)json_get_integer(peer, "port", 0);
	const struct json *address = json_first(json_get(peer, "addresses"));
	for (; address && link->address_count < LIMIT_LINK_ADDRESSES; address = json_next(address)) {
		const char *text = json_string(address, "");
		if (strlen(text) >= NET_ADDRESS_BYTES)
			continue;
		snprintf(link->addresses[link->address_count++], NET_ADDRESS_BYTES, "%s", text);
	}
	if (was_port == link->port && was_count == link->address_count &&
	    !memcmp(was, link->addresses, sizeof link->addresses))
		return false;
	link->address = 0;
	return true;
}

void link_init(struct link *link, struct links *links, const char *peer_id)
{
	link->links = links;
	snprintf(link->peer_id, sizeof link->peer_id, "%s", peer_id);
	link->route.class = "unknown";
	link_measures_up(link);
}

static struct link *add(struct links *links, const char *peer_id)
{
	struct link *link = calloc(1, sizeof(*link));
	if (!link) {
		log_error("node", "no memory for the link to another node");
		return NULL;
	}
	link_init(link, links, peer_id);
	link->dials = strcmp(links->node_id, peer_id) < 0;
	link->next_channel = link->dials ? 0 : 1;
	link_say_down(link, link->dials ? "not dialled yet" : "waiting for the other node to dial");
	link->next = links->first;
	links->first = link;
	return link;
}

void links_drop(struct links *links, struct link *link, const char *why)
{
	struct link **at = &links->first;
	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	net_timer_stop(links->params.loop, &link->redial);
	link->conn = NULL;
	link_hops_down(link, why);
	for (struct link_conn *conn = links->conns, *next; conn; conn = next) {
		next = conn->next;
		if (conn->link == link)
			link_conn_free(conn, why);
	}
	free(link);
}

static void take_peer(struct links *links, const struct json *peer)
{
	const char *peer_id = json_get_string(peer, "node_id", "");
	if (!strcmp(peer_id, links->node_id))
		return;
	struct link *link = links_find(links, peer_id);
	if (!link && !(link = add(links, peer_id)))
		return;
	link->wanted = true;
	snprintf(link->name, sizeof link->name, "%s", json_get_string(peer, "name", peer_id));
	if (!take_addresses(link, peer) || !link->dials || link->conn)
		return;
	link->redial_ms = LINK_REDIAL_FIRST_MS;
	link->tried = 0;
	if (!link->trying)
		net_timer_start(links->params.loop, &link->redial, 0, link_dial, link);
}

void links_set_peers(struct links *links, const struct json *params)
{
	const struct json *peers = json_get(params, "peers");
	for (struct link *link = links->first; link; link = link->next)
		link->wanted = false;
	for (const struct json *peer = json_first(peers); peer; peer = json_next(peer))
		take_peer(links, peer);
	for (struct link *link = links->first, *next; link; link = next) {
		next = link->next;
		if (!link->wanted)
			links_drop(links, link, "the other node is not in the cluster any more");
	}
	links_changed(links);
}
