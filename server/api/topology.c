/* topology.*, link.* and discovery.*: how far apart the machines are, and who else is heard. A link's history comes
 * from history.db through the reader thread. Thread: the loop's. */
#include "common/base/clock.h"
#include "server/api/call.h"

#include <stdio.h>

enum { MINUTE_MS = 60000 };

static enum status topology_summary(struct api_call *call, const struct json *params, struct json **result,
				    struct error *error)
{
	(void)params, (void)error;
	*result = topology_summary_json(call->api->params.topology);
	return STATUS_OK;
}

static void history_read(void *context, enum status status, const struct store_history *history)
{
	char at[CLOCK_TEXT_BYTES];
	struct api_call *call = context;
	struct error error = {0};
	if (status) {
		error_set(&error, status, "the history cannot be read now");
		error_hint(&error, "the server's log says what is wrong with history.db");
		api_finish(call, status, NULL, &error);
		return;
	}
	struct json *result = call->kept, *columns = json_new_array(), *rows = json_new_array();
	call->kept = NULL;
	json_push(columns, json_new_string("at"));
	for (int i = 0; i < STORE_LINK_COLUMNS; i++)
		json_push(columns, json_new_string(store_link_names[i]));
	for (size_t i = 0; i < history->rows && i < LIMIT_HISTORY_ROWS + 1; i++) {
		struct json *row = json_new_array();
		json_push(row, json_new_string(clock_format(history->at_ms[i], at)));
		for (int j = 0; j < STORE_LINK_COLUMNS; j++)
			json_push(row, json_new_number(history->values[i][j]));
		json_push(rows, row);
	}
	json_set_integer(result, "step_s", history->step_ms / 1000);
	json_set(result, "columns", columns);
	json_set(result, "rows", rows);
	api_finish(call, STATUS_OK, result, NULL);
}

static enum status link_history(struct api_call *call, const struct json *params, struct json **result,
				struct error *error)
{
	int64_t from_ms, to_ms;
	char series[STORE_SERIES_BYTES];
	const int64_t now_ms = clock_wall_ms(), most = LIMIT_HISTORY_ROWS - 1; // both ends may be cut
	const char *from_id = json_get_string(params, "from_node_id", ""),
		   *to_id = json_get_string(params, "to_node_id", "");
	(void)result;
	if (!topology_series(call->api->params.topology, from_id, to_id, series)) {
		error_set(error, STATUS_NOT_FOUND, "there are no nodes %.64s and %.64s", from_id, to_id);
		error_hint(error, "exogpu topology lists the links; to_node_id may also be server");
		return STATUS_NOT_FOUND;
	}
	if (clock_parse(json_get_string(params, "from", ""), &from_ms) ||
	    clock_parse(json_get_string(params, "to", ""), &to_ms))
		return error_set(error, STATUS_INVALID_PARAMS,
				 "from and to must be times such as 2026-11-20T14:31:52.000Z");
	if (from_ms >= to_ms)
		return error_set(error, STATUS_INVALID_PARAMS, "from must be before to");
	if (to_ms > now_ms + MINUTE_MS) // there is nothing yet, and the step is not to be widened for it
		to_ms = from_ms < now_ms ? now_ms + MINUTE_MS : from_ms + MINUTE_MS;
	from_ms -= from_ms % MINUTE_MS;
	int64_t step_ms = json_get_integer(params, "step_s", MINUTE_MS / 1000) * 1000;
	const int64_t least_ms = (to_ms - from_ms + most - 1) / most;
	step_ms = ((step_ms < least_ms ? least_ms : step_ms) + MINUTE_MS - 1) / MINUTE_MS * MINUTE_MS;
	call->kept = json_new_object();
	json_set_string(call->kept, "from_node_id", from_id);
	json_set_string(call->kept, "to_node_id", to_id);
	const enum status status = store_read_link_history(call->api->params.store, series, from_ms, to_ms, step_ms,
							   history_read, call);
	return status ? error_set(error, status, "the history cannot be read now") : STATUS_PENDING;
}

static enum status discovery_list(struct api_call *call, const struct json *params, struct json **result,
				  struct error *error)
{
	(void)params, (void)error;
	*result = discovery_json(call->api->params.discovery);
	return STATUS_OK;
}

const struct api_handler topology_handlers[] = {
	{"topology.summary", .run = topology_summary},
	{"link.history", .run = link_history},
	{"discovery.list", .run = discovery_list},
	{0},
};
