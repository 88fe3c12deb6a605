/* How long layers took on devices: what workers measure by a short run when they have loaded a model
 * (engine/worker/instance/instance_measure.h), kept by device, format and size, for placements (placement_cost.c).
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
	double layer_s, output_s;    // of one row; output_s < 0: not measured
	double prompt_s;             // of a row in a piece of a prompt; < 0: not measured
	double batch[STORE_BATCHES]; // of 2, 4, 8, 16, 32, 64, 128 rows: times one row's; < 0: not measured
	double spread;               // how many times the least of the runs their mean was; < 0: not known
	int64_t measured_ms;         // wall clock
};

enum status layer_times_create(struct layer_times **out, struct store *store, struct error *error);
void layer_times_destroy(struct layer_times **times);
void layer_times_put(struct layer_times *times, const struct layer_time *time);
// NULL: there is none.
const struct layer_time *layer_times_find(const struct layer_times *times, const char *device_id,
					  enum tensor_format format, uint64_t layer_bytes);
const struct layer_time *layer_times_at(const struct layer_times *times, size_t index); // NULL past the last
