/* Where several servers are that take turns, for nodes on other machines: they go on at the next one. */
#include "server/api/nodes/node_link_inside.h"
#include "server/api/nodes/servers.h"

#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 1000 };

struct json *servers_json(const struct turn *turn)
{
	struct turn_view view;
	struct json *list = json_new_array();
	turn_look(turn, &view);
	for (size_t i = 0; i < view.count; i++)
		json_push(list, json_new_string(view.servers[i]));
	return list;
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
	net_timer_start(links->params.loop, &links->servers_look, LOOK_MS, node_links_look_at_servers, links);
}
