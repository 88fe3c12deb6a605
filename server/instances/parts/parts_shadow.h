/* A worker on a trusted device that has the layers of a browser's part, and computes some of its rows again. It is a
 * part of a ring whose other parts are the server itself: it hears ring.hello and ring.step from here, and what it
 * sends on comes back here. Its memory is held while it is there. Nothing is told from inside a call. Thread: the
 * loop's. */
#pragma once
#include "engine/worker/instance/ring.h"
#include "server/instances/parts/parts_inside.h"

struct shadow;

struct shadow_params {
	const struct part *part; // whose layers; outlives the shadow
	const struct cluster_device *device;
	uint64_t needs_bytes;
	void (*moved)(void *context); // it loads
	void (*ready)(void *context);
	// The rows of shadow_compute: (row_count, embedding), valid during the call.
	void (*computed)(void *context, const float *rows, uint32_t row_count);
	void (*lost)(void *context, const char *why); // nothing more comes of it; destroy it
	void *context;
};
// Errors: instance_worker_create's.
enum status shadow_create(struct shadow **out, const struct shadow_params *params, struct error *error);
void shadow_destroy(struct shadow **shadow); // accepts NULL, leaves NULL behind

struct shadow_rows {
	uint32_t row_count, position;
	const uint32_t *tokens;   // (row_count), for the first part, or
	const float *activations; // (row_count, embedding)
};
// Once it is ready, and the rows before are computed: the next ones of one sequence, the first with position 0.
enum status shadow_compute(struct shadow *shadow, const struct shadow_rows *rows);

// A part of the instance's ring, as it reads and writes messages; `index` may be that of the last plus one.
void shadow_ring_part(struct ring_part *out, const struct parts *parts, unsigned index);
// The message as such a part reads it; NULL: out of memory.
struct ring_message *shadow_read(const struct ring_part *part, const struct contract *contract,
				 const struct net_parts *message);
// The memory that one needs for the layers of this part, at least.
uint64_t shadow_needs(const struct part *part);
