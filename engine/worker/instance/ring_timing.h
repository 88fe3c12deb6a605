/* What the steps of a ring took, summed up until it is told (RingTiming of schema/node.json). Pure. */
#pragma once
#include "common/json/json.h"
#include "engine/worker/instance/ring.h"

// Sums over the steps that have come back since they were last told.
struct ring_timing {
	uint64_t steps, tokens_before;
	uint64_t round_ns, hops_ns;
	struct ring_told parts[RING_PARTS];
	uint64_t stages_ns[LIMIT_INSTANCE_STAGES];
};

// round_ns: from the sending of the step to its end.
void ring_timing_add(struct ring_timing *timing, const struct ring_step *step, uint64_t round_ns);
// RingTiming of at least one step. generated_tokens: until now.
struct json *ring_timing_json(const struct ring_timing *timing, uint32_t parts, uint64_t generated_tokens);
// The timing of one part, with the time of each stage: (told->stage_count). The values are sums; to_ms turns them into
// means in ms.
struct json *ring_timing_part_json(const struct ring_told *told, const uint64_t *stages_ns, double to_ms);
