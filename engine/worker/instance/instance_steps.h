/* The times of steps by their number of rows, with which the server corrects its times of layers. It counts steps that
 * only generate (one row of each run), by octaves of rows, and pieces of prompts. Steps that were alone in flight are
 * counted apart from the others, because the parts of one machine slow each other down. Thread: the driver's. */
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

// Count a step of `rows` in `runs`, and the time that each part computed: (part_count, at most RING_PARTS).
void instance_steps_add(struct instance_steps *steps, uint32_t rows, uint32_t runs, bool alone,
			const uint64_t *parts_ns, uint32_t part_count);
// steps_took of instance.state: the means of all kinds with enough steps since the last report.
struct json *instance_steps_tell(struct instance_steps *steps, uint32_t part_count);
