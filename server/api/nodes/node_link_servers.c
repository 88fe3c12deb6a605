/* Where several servers are that take turns, for nodes on other machines: they go on at the next one. And how these
 * servers stand, for whoever watches. */
#include "common/base/clock.h"
#include "server/api/nodes/node_link_inside.h"
#include "server/api/nodes/servers.h"

#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 1000, CONNECT_WITHIN_MS = 3600000 };

struct json *servers_json(const struct turn *turn)
{
	struct turn_view view;
	struct json *list = json_new_array();
	turn_look(turn, &view);
	for (size_t i = 0; i < view.count; i++)
		if (view.servers[i].silent_ms < CONNECT_WITHIN_MS)
			json_push(list, json_new_string(view.servers[i].address));
	return list;
}

static struct json *seen_json(const struct turn *turn)
{
	struct turn_view view;
	char since[CLOCK_TEXT_BYTES];
	struct json *list = json_new_array();
	turn_look(turn, &view);
	for (size_t i = 0; i < view.count; i++) {
		const struct turn_server *server = &view.servers[i];
		struct json *json = json_new_object();
		json_set_string(json, "address", server->address);
		json_set_string(json, "host", server->host);
		json_set_string(json, "role", server->leads ? "leader" : "follower");
		json_set_string(json, "since", clock_format(server->since_ms, since));
		json_set_bool(json, "answers", server->silent_ms < TURN_SILENT_MS);
		json_set_integer(json, "silent_ms", server->silent_ms);
		json_set_integer(json, "behind_ms", server->behind_ms);
		json_push(list, json);
	}
	return list;
}

// To whoever watches the topology, once there has been another server.
static void tell_watchers(struct node_links *links)
{
	struct turn_view view;
	turn_look(links->params.turn, &view);
	links->several |= view.count > 1;
	if (!links->several || links->servers_read == view.servers_read)
		return;
	links->servers_read = view.servers_read;
	topology_tell_servers(links->params.topology, seen_json(links->params.turn));
}

void node_link_tell_servers(struct node_link *link)
{
	const struct turn *turn = link->all->params.turn;
	if (!turn || link->local || link->tab || link->closed || link->cut)
		return;
	struct json *params = json_new_object();
	json_set(params, "servers", servers_json(turn));
	rpc_notify(&link->rpc, "node.servers", params);
}

void node_links_look_at_servers(void *arg)
{
	struct node_links *links = arg;
	struct json *now = servers_json(links->params.turn);
	struct buffer text;
	buffer_init(&text, TURN_SERVERS * (TURN_ADDRESS_BYTES + 8));
	json_print(now, &text);
	if (!links->servers || strcmp(links->servers, buffer_text(&text)) != 0) {
		free(links->servers);
		links->servers = strdup(buffer_text(&text)); // without memory for it they are told again
		for (struct node_link *link = links->links; link; link = link->next)
			if (link->known)
				node_link_tell_servers(link);
	}
	buffer_finish(&text);
	json_destroy(&now);
	tell_watchers(links);
	net_timer_start(links->params.loop, &links->servers_look, LOOK_MS, node_links_look_at_servers, links);
}
