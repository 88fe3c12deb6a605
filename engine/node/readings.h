/* Telemetry for the node: which devices the sampler reads, and its readings brought over to the loop's thread.
 *
 * The sampler (engine/telemetry) reports on its own thread; reports wait in a short queue until the loop takes them,
 * the oldest being left out when it is full. Thread: the loop's, but for the sampler's callback. */
#pragma once
#include "common/net/loop.h"
#include "engine/device/table.h"

struct readings;

struct readings_params {
	struct net_loop *loop;
	const char *node_id;
	void (*report)(void *arg, struct json *telemetry); // on the loop's thread; `telemetry` is to be taken
	void *arg;
};

enum status readings_create(struct readings **out, const struct readings_params *params, struct error *error);
void readings_destroy(struct readings **readings); // joins the sampler
// Read the devices of the table that are present.
void readings_set_devices(struct readings *readings, const struct device_table *table);
void readings_set_watched(struct readings *readings, bool watched);
