/* See servers.h. */
#include "server/api/nodes/servers.h"

struct json *servers_json(const struct turn *turn)
{
	struct turn_view view;
	struct json *list = json_new_array();
	turn_look(turn, &view);
	for (size_t i = 0; i < view.count; i++)
		json_push(list, json_new_string(view.servers[i]));
	return list;
}
