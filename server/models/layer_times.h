/* How long layers took on devices: what workers measure by a short run when they have loaded a model
 * (engine/worker/instance_measure.h), kept by device, format and size, for placements (placement_cost.c).
 *
 * The newest of a kind counts. LIMIT_LAYER_TIMES are kept in memory, the newest; rows of state.db stay until the node
 * is removed. Thread: the loop's. */
#pragma once
#include "engine/model/format.h"
#include "server/store/store.h"

struct layer_times;

struct layer_time {
	char device_id[STORE_ID_BYTES];
	enum tensor_format format; // of most weights, as they are held
	uint64_t layer_bytes, output_bytes;
	double layer_s, output_s, share; // output_s, share < 0: not measured
	int64_t measured_ms;             // wall clock
};

enum status layer_times_create(struct layer_times **out, struct store *store, struct error *error);
void layer_times_destroy(struct layer_times **times);
void layer_times_put(struct layer_times *times, const struct layer_time *time);
const struct layer_time *layer_times_at(const struct layer_times *times, size_t index); // NULL past the last
