/* Readings of the machine itself: NodeTelemetry of schema/api.json. Thread: the sampler's. */
#pragma once
#include "common/json/json.h"
#include "engine/telemetry/host.h"

struct node_reader;

// Errors: STATUS_OUT_OF_MEMORY.
enum status node_reader_create(struct node_reader **out, const char *proc_root, const char *sysfs_root,
			       struct error *error);
void node_reader_destroy(struct node_reader **reader);
// The readings now, as JSON; rates are since the last call. NULL if memory is short.
struct json *node_reader_read(struct node_reader *reader, const struct host_sample *host, const char *node_id,
			      int64_t now_ns, int64_t wall_ms);
