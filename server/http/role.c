/* See role.h. */
#include "server/http/role.h"

#include "common/base/clock.h"
#include "common/json/json.h"

void role_print(const struct turn *turn, struct buffer *out)
{
	struct turn_view view;
	char since[CLOCK_TEXT_BYTES];
	turn_look(turn, &view);
	struct json *json = json_new_object();
	json_set_string(json, "role", view.leads ? "leader" : "follower");
	json_set_string(json, "since", clock_format(view.since_ms, since));
	json_set_string(json, "leader", view.leader);
	// How old is what this server knows: of a leader, since it renewed its stamp.
	json_set_integer(json, "behind_ms", view.looked_ms + (view.leads ? 0 : view.stamp_age_ms));
	struct buffer text;
	buffer_init(&text, 1024);
	json_print(json, &text);
	if (text.length > 2) // without its braces
		buffer_printf(out, ",%.*s", (int)text.length - 2, buffer_text(&text) + 1);
	buffer_finish(&text);
	json_destroy(&json);
}
