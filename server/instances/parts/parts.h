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
 *     check    a reference token goes around (instance.check), and each part compares what its neighbour says it sends
 *
 * Parts that are placed anew keep what they can (parts_keep.c): one that is to have what it has, and whose worker
 * lives, is told of the new placement (instance.adopt) in the place of all before `connect`.
 *
 * All or nothing: whatever fails, or lasts too long, is told once, with the part and its device, and the owner destroys
 * all of them. Once they are ready a hop that breaks can be mended: connected anew and checked, with all workers as
 * they are. A set of parts has one epoch; what an older one's workers still say reaches nobody. Thread: the loop's. */
#pragma once
#include "server/instances/instances.h"

struct parts;
struct instance_stage;

// Begin, with the stages of the instance, which outlives it. Then instance_parts_* are called (instances_inside.h),
// never from inside. Errors: STATUS_LIMIT_EXCEEDED, STATUS_UNAVAILABLE, STATUS_OUT_OF_MEMORY.
// before: parts of the placement before, which are taken (also on failure) and of which nothing remains but what is
// kept; NULL, or of NULL: there are none.
enum status parts_create(struct parts **out, struct instance *instance, struct parts **before, struct error *error);
// Once they were ready: end what is lost or cut off, and let go of what was asked; what is left does nothing until it
// is kept or ended. To be called while the instance has the stages that they have. False: nothing is left, or to be
// kept (they were never ready); then nothing has happened.
bool parts_spare(struct parts *parts, const char *why);
bool parts_at_work(const struct parts *parts); // false: NULL, or spared
// How many were kept, of those that were created; and of a stage which one of the placement before it was; -1: none.
unsigned parts_kept(const struct parts *parts);
int parts_was_stage(const struct parts *parts, unsigned stage);
// End all workers, in this turn; calls under way are answered with `why`. Accepts NULL, leaves NULL behind.
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
// Connect all hops anew and check. Then instance_parts_ready or instance_parts_failed. Only once they were ready.
void parts_mend(struct parts *parts);

unsigned parts_count(const struct parts *parts);
const struct instance_stage *parts_stage(const struct parts *parts, unsigned part); // its first
bool parts_has(const struct parts *parts, unsigned stage);       // whether that stage's worker is there
bool parts_has_worker(const struct parts *parts, unsigned part); // whether it has one, maybe cut off
double parts_load_ms(const struct parts *parts);
const char *parts_node_id(const struct parts *parts, unsigned part);
// How far fetching and loading are, of a part.
void parts_progress(const struct parts *parts, unsigned part, uint64_t *done_bytes, uint64_t *total_bytes);
// The same of one of its stages: a worker loads them one after the other, the slices of one together, so it follows
// from what it has loaded of all and how large each was reckoned to be; what is fetched counts for each by its size.
// stage: of the instance. False: it is none of the part's.
bool parts_stage_progress(const struct parts *parts, unsigned part, unsigned stage, uint64_t *done_bytes,
			  uint64_t *total_bytes);
// How a hop goes: "local", "link" or "server"; of the part's to the next.
const char *parts_via(const struct parts *parts, unsigned part);

// Handle a node's notification, model.fetching or hop.ended. False: it concerns none of these parts.
bool parts_fetching(struct parts *parts, const char *node_id, const struct json *params);
bool parts_hop_ended(struct parts *parts, const char *node_id, const struct json *params);
