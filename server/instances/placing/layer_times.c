/* See layer_times.h. A ring: where it is full, the one that came first goes. */
#include "server/instances/placing/layer_times.h"

#include "common/base/limits.h"
#include "common/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct layer_times {
	struct store *store;
	struct layer_time all[LIMIT_LAYER_TIMES]; // (count)
	size_t count, next;                       // next: which one goes
};

const struct layer_time *layer_times_find(const struct layer_times *times, const char *device_id,
					  enum tensor_format format, uint64_t layer_bytes)
{
	size_t at = 0;
	while (at < times->count && (strcmp(times->all[at].device_id, device_id) != 0 ||
				     times->all[at].format != format || times->all[at].layer_bytes != layer_bytes))
		at++;
	return at < times->count ? &times->all[at] : NULL;
}

static void keep(struct layer_times *times, const struct layer_time *time)
{
	const struct layer_time *known = layer_times_find(times, time->device_id, time->format, time->layer_bytes);
	size_t at = known ? (size_t)(known - times->all) : times->count;
	if (at == LIMIT_LAYER_TIMES) {
		at = times->next;
		times->next = (times->next + 1) % LIMIT_LAYER_TIMES;
	} else if (at == times->count) {
		times->count++;
	}
	times->all[at] = *time;
}

static void load_row(void *context, const struct store_layer_time *row)
{
	struct layer_time time = {.format = format_parse(row->format),
				  .layer_bytes = (uint64_t)row->layer_bytes,
				  .output_bytes = (uint64_t)row->output_bytes,
				  .layer_s = row->layer_s,
				  .output_s = row->output_s,
				  .prompt_s = row->prompt_s,
				  .spread = row->spread,
				  .measured_ms = row->measured_ms};
	snprintf(time.device_id, sizeof time.device_id, "%s", row->device_id);
	memcpy(time.batch, row->batch, sizeof time.batch);
	if (time.format != FORMAT_UNKNOWN && time.layer_s > 0 && row->layer_bytes > 0 && row->output_bytes >= 0)
		keep(context, &time);
}

void layer_times_put(struct layer_times *times, const struct layer_time *time)
{
	struct store_batch *batch;
	struct store_layer_time row = {.device_id = time->device_id,
				       .format = format_info(time->format)->name,
				       .layer_bytes = (int64_t)time->layer_bytes,
				       .output_bytes = (int64_t)time->output_bytes,
				       .layer_s = time->layer_s,
				       .output_s = time->output_s,
				       .prompt_s = time->prompt_s,
				       .spread = time->spread,
				       .measured_ms = time->measured_ms};
	memcpy(row.batch, time->batch, sizeof row.batch);
	keep(times, time);
	if (store_batch_create(&batch))
		return;
	enum status status = store_put_layer_time(batch, &row);
	if (status)
		store_batch_destroy(&batch);
	else
		status = store_commit(times->store, &batch, NULL, NULL);
	if (status)
		log_warning("models", "how long a layer took on %s could not be stored", time->device_id);
}

const struct layer_time *layer_times_at(const struct layer_times *times, size_t index)
{
	return index < times->count ? &times->all[index] : NULL;
}

enum status layer_times_create(struct layer_times **out, struct store *store, struct error *error)
{
	struct layer_times *times = *out = calloc(1, sizeof *times);
	if (!times)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	times->store = store;
	return store_load_layer_times(store, load_row, times, error);
}

void layer_times_destroy(struct layer_times **times)
{
	free(*times);
	*times = NULL;
}
