/* How a part of a model instance handles the steps of its ring. See ring.h and instance.h.
 *
 * The last part sends the steps that its generator plans, and returns their results to it. The other parts zero pages,
 * compute their layers and send the step on. A round begins with instance.check: the last part sends ring.hello and the
 * check's step. Each part that receives the hello compares it with its own values, takes over the round's number and
 * sends its own hello. From then on every part drops messages of earlier rounds. The check follows the hello around the
 * whole ring, so when it is back no old step is left. A part without a valid hello accepts no step.
 *
 * A failed step or a malformed message ends the worker, after it has sent ring.failed around the ring. Lost messages
 * are not detected here: the node knows when a hop breaks, and the server calls instance.check.
 *
 * Another epoch may have fewer or more parts before this one (instance.adopt). The loaded layers stay, so the first
 * part stays the first, the last one stays the last, and a part between them stays between them. Thread: the driver's,
 * but for instance_ring_is_last. */
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
// The generator's parameters that concern the ring, for the last part.
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
uint32_t instance_ring_parts(const struct instance *instance);
