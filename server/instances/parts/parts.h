/* The parts of an instance: its workers, brought up together, connected in a ring, and ended together.
 *
 * A part has consecutive stages on one node and back end. One part alone is a worker and needs no ring. Of several:
 *
 *     plan     which bytes of the file each part on another machine needs (shards.h)
 *     fetch    its node gets them (model.fetch), then   | each part
 *     open     its worker is started (tenant.open)      | for
 *     load     it loads its layers (instance.load)      | itself
 *     connect  each part to the next, the last to the first (hop.connect): within a node, by a direct link between two
 *              nodes where there is one, else by way of the server (server/tenants/hop.h)
 *     check    a reference token goes around (instance.check), and each part compares its neighbour's announcement
 *              with its own
 *
 * A new placement keeps parts if possible (parts_keep.c): a part with the same layers whose worker lives gets
 * instance.adopt instead of all steps before `connect`.
 *
 * All or nothing: the first step that fails, or takes too long, is reported once, with the part and its device, and the
 * owner destroys all parts. Once they are ready a broken hop can be connected again and checked, without changing the
 * workers. A set of parts has one epoch; messages of workers of an older one are dropped. Thread: the loop's. */
#pragma once
#include "server/instances/instances.h"

struct parts;
struct instance_stage;

// Begin, with the stages of the instance, which outlives the parts. Then instance_parts_* are called
// (instances_inside.h), never during this call. Errors: STATUS_LIMIT_EXCEEDED, STATUS_UNAVAILABLE,
// STATUS_OUT_OF_MEMORY. before: the parts of the previous placement, which are taken over (also on failure); those that
// are not kept end. NULL, or a pointer to NULL: there are none.
enum status parts_create(struct parts **out, struct instance *instance, struct parts **before, struct error *error);
// For parts that were ready: end those that are lost or cut off, and drop pending calls. The others do nothing until
// they are kept or ended. Call it while the instance still has their stages. False: no part is left, or none can be
// kept (they were never ready); then nothing has happened.
bool parts_spare(struct parts *parts, const char *why);
bool parts_at_work(const struct parts *parts); // false: NULL, or spared
// How many of the created parts were kept; and the stage of the previous placement that a stage was; -1: none.
unsigned parts_kept(const struct parts *parts);
int parts_was_stage(const struct parts *parts, unsigned stage);
// End all workers in this turn of the loop; pending calls fail with `why`. Accepts NULL, leaves NULL behind.
void parts_destroy(struct parts **parts, const char *why);
// The one that is asked to generate: the last part's. NULL if it has none.
struct instance_worker *parts_generator(const struct parts *parts);
// Workers that a server before this one had, one for each part of the stages of the instance, all of them on other
// machines: away, as after a loss. Once all are back (instance_parts_back) parts_mend tells them of this server and
// connects them; where a worker is not found, or has loaded something else, instance_parts_failed. Errors:
// STATUS_CONFLICT (that many parts there are not, or one is on this machine), also instance_worker_restore's.
enum status parts_restore(struct parts **out, struct instance *instance, const struct instance_worker_left *left,
			  unsigned count, struct error *error);
// Whether they can be found again by the next server: they were ready, and are all on other machines.
bool parts_outlive(const struct parts *parts);
void parts_describe(const struct parts *parts, unsigned part, struct instance_worker_left *left);
// Leave them to the next server. Leaves NULL behind.
void parts_leave(struct parts **parts);
// Connect all hops again and check. Then instance_parts_ready or instance_parts_failed is called. Only for parts that
// were ready.
void parts_mend(struct parts *parts);

unsigned parts_count(const struct parts *parts);
const struct instance_stage *parts_stage(const struct parts *parts, unsigned part); // its first
bool parts_has(const struct parts *parts, unsigned stage);       // whether that stage's worker is there
bool parts_has_worker(const struct parts *parts, unsigned part); // whether it has one, maybe cut off
// Its worker has died of itself: not with its node, and not since the connection to it broke.
bool parts_worker_died(const struct parts *parts, unsigned part);
double parts_load_ms(const struct parts *parts);
const char *parts_node_id(const struct parts *parts, unsigned part);
// How far fetching and loading are, of a part.
void parts_progress(const struct parts *parts, unsigned part, uint64_t *done_bytes, uint64_t *total_bytes);
// The same for one stage. A worker loads its stages one after the other, and the slices of one together, so the
// progress follows from the loaded bytes of all and the expected size of each; downloaded bytes count for each by its
// size. stage: of the instance. False: the part has no such stage.
bool parts_stage_progress(const struct parts *parts, unsigned part, unsigned stage, uint64_t *done_bytes,
			  uint64_t *total_bytes);
// How a hop goes: "local", "link" or "server"; of the part's to the next.
const char *parts_via(const struct parts *parts, unsigned part);

// Handle a node's notification, model.fetching or hop.ended. False: it concerns none of these parts.
bool parts_fetching(struct parts *parts, const char *node_id, const struct json *params);
bool parts_hop_ended(struct parts *parts, const char *node_id, const struct json *params);
