/* A part of a model instance at work: what it does with the steps of its ring. See ring.h and instance.h.
 *
 * The last part sends what its generator plans, and gives it what comes back. The others zero, compute their layers and
 * send on. A round begins with instance.check: the last part says ring.hello and sends the check's step; each part, as
 * the hello reaches it, compares, takes the round's number and says its own hello. From then on what is left over from
 * earlier rounds is dropped wherever it turns up, and as the check follows the hello around the whole ring, nothing old
 * is computed any more once it is back. A part without a good hello takes no step.
 *
 * A step that fails, and bytes that are no message, end the worker, and ring.failed goes around before it does. Lost
 * messages are noticed by nobody here: the node knows when a hop breaks, and the server calls instance.check.
 *
 * Another epoch may have fewer parts, or more, with others before this one (instance.adopt). What it has loaded stays,
 * so the first part stays the first, the last one the last, and one between them between them.
 * Thread: the driver's, but for instance_ring_is_last. */
#pragma once
#include "engine/worker/instance/instance.h"
#include "engine/worker/instance/ring.h"

struct instance_ring;

// `part` of instance.load, checked for itself; `stage` as the stages are to be made: its batch_rows become fewer if a
// step would not fit a message. To be called before the stages are made. Errors: STATUS_INVALID_PARAMS,
// STATUS_OUT_OF_MEMORY.
enum status instance_ring_prepare(const struct instance *instance, const struct json *params, struct ring_part *part,
				  struct error *error);
enum status instance_ring_rows(struct ring_part *part, struct stage_params *stage, struct error *error);
// Once they are: messages are taken from now on.
enum status instance_ring_create(struct instance *instance, const struct ring_part *part, struct error *error);
void instance_ring_destroy(struct instance *instance);
// What the generator of the last part is made with besides.
void instance_ring_generator(struct instance *instance, uint32_t lanes, struct generator_params *params);

bool instance_ring_is_last(const struct instance *instance);
struct ring_message *instance_ring_take(struct instance *instance);
void instance_ring_serve(struct instance *instance, struct ring_message **message);
void instance_ring_check(struct instance *instance, struct order *order);
// Whether params of instance.adopt, with an epoch that is no smaller one, can be: nothing changes. Errors:
// STATUS_INVALID_PARAMS, STATUS_CONFLICT.
enum status instance_ring_may_adopt(const struct instance *instance, const struct json *params, struct error *error);
// From now on it is of this epoch, and the part of the ring that they say, as all other parts are before the next
// check. Nothing is sent until then. Errors: STATUS_OUT_OF_MEMORY: it cannot go on.
enum status instance_ring_adopt(struct instance *instance, const struct json *params, struct error *error);
// RingTiming since the last time, or null.
struct json *instance_ring_timing(struct instance *instance);
// A part of it, each stage's time beside: (told->stage_count); sums, of which to_ms makes means in ms.
struct json *instance_ring_part_json(const struct ring_told *told, const uint64_t *stages_ns, double to_ms);
uint32_t instance_ring_parts(const struct instance *instance);
