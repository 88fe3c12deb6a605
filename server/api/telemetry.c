/* telemetry.*: readings over time. Ten minutes come from memory, more from history.db through the reader thread.
 * Thread: the loop's. */
#include "common/base/clock.h"
#include "server/api/call.h"
#include "server/cluster/samples.h"

#include <math.h>

enum { MINUTE_MS = 60000 };

// The rows of history.db have arrived.
static void history_read(void *context, enum status status, const struct store_history *history)
{
	struct api_call *call = context;
	struct error error = {0};
	if (status) {
		error_set(&error, status, "the history cannot be read now");
		error_hint(&error,
			   "the last ten minutes are still there; the server's log says what is wrong with history.db");
		api_finish(call, status, NULL, &error);
		return;
	}
	struct json *result = call->kept, *rows = json_new_array();
	call->kept = NULL;
	for (size_t i = 0; i < history->rows && i < LIMIT_HISTORY_ROWS + 1; i++)
		json_push(rows, samples_row(history->at_ms[i], history->values[i]));
	json_set_number(result, "step_s", (double)history->step_ms / 1000);
	json_set_string(result, "source", "minutes");
	json_set(result, "columns", samples_columns());
	json_set(result, "rows", rows);
	api_finish(call, STATUS_OK, result, NULL);
}

// What came before the first sample that is in memory, as when the server was started a minute ago, goes before it.
static void older_read(void *context, enum status status, const struct store_history *history)
{
	struct api_call *call = context;
	struct json *result = call->kept, *rows = json_new_array();
	call->kept = NULL;
	for (size_t i = 0; !status && i < history->rows && i < LIMIT_HISTORY_ROWS / 2; i++)
		json_push(rows, samples_row(history->at_ms[i], history->values[i]));
	for (const struct json *row = json_first(json_get(result, "rows")); row; row = json_next(row))
		json_push(rows, json_copy(row));
	json_set(result, "rows", rows);
	api_finish(call, STATUS_OK, result, NULL);
}

// The step that keeps the answer within LIMIT_HISTORY_ROWS rows.
static int64_t widen(int64_t step_ms, int64_t range_ms, int64_t unit_ms)
{
	const int64_t most = LIMIT_HISTORY_ROWS -
			     1; // steps lie at whole multiples, so one more may be cut at both ends
	int64_t least = (range_ms + most - 1) / most;
	if (step_ms < least)
		step_ms = least;
	return (step_ms + unit_ms - 1) / unit_ms * unit_ms;
}

// The last ten minutes.
static enum status recent(struct api_call *call, const struct cluster_device *device, int64_t from_ms, int64_t to_ms,
			  int64_t step_ms, struct json **result)
{
	bool many = to_ms - from_ms > (int64_t)LIMIT_HISTORY_ROWS * 400;
	int64_t step = many || step_ms ? widen(step_ms, to_ms - from_ms, 500) : 0;
	int64_t first_ms = cluster_first_sample_ms(device), edge_ms = first_ms && first_ms < to_ms ? first_ms : to_ms;
	struct json *samples = cluster_recent_samples(device, from_ms, to_ms, step);
	json_set_string(samples, "device_id", cluster_device_id(device));
	edge_ms -= edge_ms % MINUTE_MS;
	if (edge_ms - from_ms < MINUTE_MS) {
		*result = samples;
		return STATUS_OK;
	}
	call->kept = samples;
	from_ms -= from_ms % MINUTE_MS;
	if (!store_read_history(call->api->params.store, cluster_device_id(device), from_ms, edge_ms,
				step < MINUTE_MS ? MINUTE_MS : widen(step, edge_ms - from_ms, MINUTE_MS), older_read,
				call))
		return STATUS_PENDING;
	call->kept = NULL; // what is in memory is an answer too
	*result = samples;
	return STATUS_OK;
}

static enum status telemetry_history(struct api_call *call, const struct json *params, struct json **result,
				     struct error *error)
{
	int64_t from_ms, to_ms, now_ms = clock_wall_ms();
	const struct api_params *server = &call->api->params;
	const char *device_id = json_get_string(params, "device_id", "");
	struct cluster_device *device = cluster_find_device(server->cluster, device_id);
	if (!device)
		return error_set(error, STATUS_NOT_FOUND, "there is no device %s", device_id);
	if (clock_parse(json_get_string(params, "from", ""), &from_ms) ||
	    clock_parse(json_get_string(params, "to", ""), &to_ms)) {
		error_set(error, STATUS_INVALID_PARAMS, "from and to must be times such as 2026-11-20T14:31:52.000Z");
		return STATUS_INVALID_PARAMS;
	}
	if (from_ms >= to_ms)
		return error_set(error, STATUS_INVALID_PARAMS, "from must be before to");
	if (to_ms > now_ms + 1000) // there is nothing yet, and the step is not to be widened for it
		to_ms = from_ms < now_ms ? now_ms + 1000 : from_ms + 1000;
	int64_t step_ms = (int64_t)llround(json_get_number(params, "step_s", 0) * 1000);
	if (from_ms >= now_ms - CLUSTER_SAMPLES_MS - 1000)
		return recent(call, device, from_ms, to_ms, step_ms, result);
	from_ms -= from_ms % MINUTE_MS;
	step_ms = widen(step_ms < MINUTE_MS ? MINUTE_MS : step_ms, to_ms - from_ms, MINUTE_MS);
	call->kept = json_new_object();
	json_set_string(call->kept, "device_id", device_id);
	enum status status = store_read_history(server->store, device_id, from_ms, to_ms, step_ms, history_read, call);
	return status ? error_set(error, status, "the history cannot be read now") : STATUS_PENDING;
}

const struct api_handler telemetry_handlers[] = {
	{"telemetry.history", .run = telemetry_history},
	{0},
};
