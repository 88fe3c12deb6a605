/* What steps took, by how many rows they had: what the server corrects its times of layers by. Counted are steps that
 * only generate, one row of each run, by octaves of rows, and pieces of prompts; those that were alone under way and
 * those that were not apart, since the parts of one machine disturb each other. Thread: the driver's. */
#pragma once
#include "common/json/json.h"
#include "engine/worker/instance/ring.h"

enum { STEPS_OCTAVES = 6, STEPS_PIECES = STEPS_OCTAVES, STEPS_KINDS }; // 1, 2, 3 and 4, to 8, to 16, to 32 rows

struct instance_steps {
	struct steps_took {
		uint64_t steps, rows, runs; // sums
		uint64_t parts_ns[RING_PARTS];
	} of[2][STEPS_KINDS]; // alone or not
};

// One step of `rows` in `runs`, and what each part computed: (part_count, at most RING_PARTS).
void instance_steps_add(struct instance_steps *steps, uint32_t rows, uint32_t runs, bool alone,
			const uint64_t *parts_ns, uint32_t part_count);
// steps_took of instance.state: the means of those of which there were enough since they were last told.
struct json *instance_steps_tell(struct instance_steps *steps, uint32_t part_count);
