/* node.peers: tells every node that takes direct links about the others, whenever this list
 * changes. Changes are gathered for a moment, because nodes arrive together when a server starts; a
 * node that already has the list on its current connection does not get it again. The first address
 * is the one at which the server sees a node, because it is known to work. For the server's own
 * node it is the one at which the other node reached the server, followed by the addresses that the
 * server listens at. Link-local and loopback addresses are left out: they are valid on one machine
 * only. */
#include "common/base/log.h"
#include "server/cluster/topology/topology_inside.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum { GATHER_MS = 100, PEER_ADDRESSES = 64 };

enum reach { REACH_NOT_AN_ADDRESS, REACH_MACHINE, REACH_NETWORK };

static enum reach reach_of(const char *text)
{
	struct in_addr four;
	struct in6_addr six;
	char plain[INET6_ADDRSTRLEN + 1];
	snprintf(plain, sizeof plain, "%.*s", (int)strcspn(text, "%"), text);
	if (inet_pton(AF_INET, plain, &four) == 1) {
		const uint32_t address = ntohl(four.s_addr);
		return address >> 24 == 127 || address >> 16 == 0xA9FE || !address ? REACH_MACHINE : REACH_NETWORK;
	}
	if (inet_pton(AF_INET6, plain, &six) != 1)
		return REACH_NOT_AN_ADDRESS;
	return IN6_IS_ADDR_LOOPBACK(&six) || IN6_IS_ADDR_LINKLOCAL(&six) || IN6_IS_ADDR_UNSPECIFIED(&six)
		       ? REACH_MACHINE
		       : REACH_NETWORK;
}

static bool takes_links(const struct cluster_node *node)
{
	return node->link && node->first_seen_ms && json_get_integer(node->record, "link_port", 0) > 0;
}

static void add_address(struct json *addresses, const char *address, bool same_machine)
{
	const enum reach reach = reach_of(address);
	if (reach == REACH_NOT_AN_ADDRESS || (reach == REACH_MACHINE && !same_machine) ||
	    json_count(addresses) >= PEER_ADDRESSES)
		return;
	for (const struct json *one = json_first(addresses); one; one = json_next(one))
		if (!strcmp(json_string(one, ""), address))
			return;
	json_push(addresses, json_new_string(address));
}

static bool listens_at(const struct topology *topology, const struct cluster_node *peer, const char *address)
{
	const char *where = topology->params.address;
	if (!peer->local || !where || !strcmp(where, "::"))
		return true;
	return !strcmp(where, "0.0.0.0") ? !strchr(address, ':') : !strcmp(where, address);
}

static struct json *peer_json(const struct topology *topology, const struct cluster_node *node,
			      const struct cluster_node *peer)
{
	char name[129];
	struct json *json = json_new_object(), *addresses = json_new_array();
	const char *host = json_get_string(node->record, "host_name", "");
	const bool same = !strcmp(host, json_get_string(peer->record, "host_name", ""));
	add_address(addresses, peer->local ? node->link->reached : peer->link->actor.peer, same);
	for (const struct json *one = json_first(json_get(peer->record, "addresses")); one; one = json_next(one))
		if (listens_at(topology, peer, json_string(one, "")))
			add_address(addresses, json_string(one, ""), same);
	if (same && listens_at(topology, peer, "127.0.0.1"))
		add_address(addresses, "127.0.0.1", true);
	snprintf(name, sizeof name, "%s", topology_node_name(peer));
	json_set_string(json, "node_id", peer->node_id);
	json_set_string(json, "name", name);
	json_set(json, "addresses", addresses);
	json_set_integer(json, "port", json_get_integer(peer->record, "link_port", 0));
	return json;
}

static uint64_t hash_of(const struct json *json)
{
	uint64_t hash = 14695981039346656037u; // FNV-1a, 64 bits
	struct buffer text;
	buffer_init(&text, LIMIT_HEAD_BYTES);
	if (json_print(json, &text))
		hash = 0;
	for (size_t i = 0; hash && i < text.length; i++)
		hash = (hash ^ text.data[i]) * 1099511628211u;
	buffer_finish(&text);
	return hash;
}

static void tell_node(struct topology *topology, struct cluster_node *node)
{
	const struct cluster *cluster = topology->params.cluster;
	struct json *params = json_new_object(), *peers = json_new_array();
	for (size_t i = 0; i < cluster->node_count; i++) {
		const struct cluster_node *peer = cluster->nodes[i];
		if (peer != node && takes_links(peer) && json_count(peers) < LIMIT_LINK_PEERS)
			json_push(peers, peer_json(topology, node, peer));
	}
	json_set(params, "peers", peers);
	const uint64_t hash = hash_of(params);
	struct topology_from *from = topology_from(topology, node);
	if (from && from->peers_on == node->link && from->peers_hash == hash && hash) {
		json_destroy(&params);
		return;
	}
	if (from) {
		from->peers_on = node->link;
		from->peers_hash = hash;
	}
	node->link->tell(node->link, "node.peers", params);
}

static void tell_all(void *arg)
{
	struct topology *topology = arg;
	const struct cluster *cluster = topology->params.cluster;
	for (size_t i = 0; i < cluster->node_count; i++)
		if (takes_links(cluster->nodes[i]))
			tell_node(topology, cluster->nodes[i]);
}

void topology_tell_peers(struct topology *topology)
{
	if (!topology->peers.running)
		net_timer_start(topology->params.loop, &topology->peers, GATHER_MS, tell_all, topology);
}
