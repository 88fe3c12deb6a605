/* The prober: keeps the table of devices up to date, by asking workers.
 *
 * A scan asks all enabled back ends, in parallel, for their devices. Each newly listed device is then verified by a
 * worker of its own, up to LIMIT_PROBES_AT_ONCE in parallel. When no device is being verified, the memory bandwidth of
 * devices without a record is measured, one at a time in each memory pool, so that measurements do not disturb each
 * other. Then copies between devices that are peers are measured (engine/device/peers.h), while no session and no model
 * instance uses their back end: one pair at a time, in both directions, in a worker that has the two open for about a
 * second, while no memory is measured and nothing is compiled. Thread: the loop's. Does not own the table. */
#pragma once
#include "engine/device/table.h"
#include "engine/node/workers/child.h"

struct prober;

struct prober_params {
	struct net_loop *loop;
	const struct contract *contract;
	struct device_table *table;
	const char *cache;                  // the folder of compiled kernels; outlives the prober
	bool enabled[BACKEND_COUNT];        // that may be used; others are not asked
	void (*devices_changed)(void *arg); // the table, or the state of the prober, has changed
	void (*record_changed)(void *arg);  // back ends or libraries changed
	// A worker opened this device through the API in use, and verified it, in so many ms from its call.
	void (*verified)(void *arg, const struct device_record *record, enum backend_kind kind, double took_ms);
	// Whether a session or a model instance uses devices of this back end. May be NULL: none ever does.
	bool (*in_use)(void *arg, enum backend_kind kind);
	void *arg;
};

enum status prober_create(struct prober **out, const struct prober_params *params, struct error *error);
void prober_destroy(struct prober **prober); // kills its workers
// Ask all back ends again. While a scan runs, one more is noted and follows it.
void prober_scan(struct prober *prober);
// Verify this device again. Errors: STATUS_NOT_FOUND; STATUS_CONFLICT (it is not present).
enum status prober_verify(struct prober *prober, const char *device_id, struct error *error);
// NodeBackend and Library arrays of schema/node.json's NodeRecord.
struct json *prober_backends(const struct prober *prober);
struct json *prober_libraries(const struct prober *prober);
