/* Telemetry for the node: tells the sampler which devices to read, and brings its readings to the loop's thread.
 *
 * The sampler (engine/telemetry) reports on its own thread; reports wait in a short queue for the loop, and the oldest
 * is dropped when it is full. Thread: the loop's, except the sampler's callback. */
#pragma once
#include "common/net/loop.h"
#include "engine/device/table.h"

struct readings;

struct readings_params {
	struct net_loop *loop;
	const char *node_id;
	void (*report)(void *arg, struct json *telemetry); // on the loop's thread; takes `telemetry`
	void *arg;
};

enum status readings_create(struct readings **out, const struct readings_params *params, struct error *error);
void readings_destroy(struct readings **readings); // joins the sampler
// Read the devices of the table that are present.
void readings_set_devices(struct readings *readings, const struct device_table *table);
void readings_set_watched(struct readings *readings, bool watched);
