/* See instance_steps.h. */
#include "engine/worker/instance/instance_steps.h"

#include <string.h>

enum { STEPS_LEAST = 8, PIECES_LEAST = 4 }; // steps, and pieces, that a mean needs

// STEPS_KINDS: it is neither.
static unsigned kind_of(uint32_t rows, uint32_t runs)
{
	unsigned octave = 0;
	if (runs && rows / runs >= STAGE_PAGE_TOKENS)
		return STEPS_PIECES;
	while (octave < STEPS_OCTAVES && rows > 1u << octave)
		octave++;
	return rows != runs || !rows || octave == STEPS_OCTAVES ? STEPS_KINDS : octave;
}

void instance_steps_add(struct instance_steps *steps, uint32_t rows, uint32_t runs, bool alone,
			const uint64_t *parts_ns, uint32_t part_count)
{
	const unsigned kind = kind_of(rows, runs);
	if (kind == STEPS_KINDS)
		return;
	struct steps_took *took = &steps->of[alone][kind];
	took->steps++;
	took->rows += rows;
	took->runs += runs;
	for (uint32_t i = 0; i < part_count && i < RING_PARTS; i++)
		took->parts_ns[i] += parts_ns[i];
}

struct json *instance_steps_tell(struct instance_steps *steps, uint32_t part_count)
{
	struct json *out = json_new_array();
	for (int alone = 0; alone < 2; alone++)
		for (unsigned kind = 0; kind < STEPS_KINDS; kind++) {
			struct steps_took *took = &steps->of[alone][kind];
			if (took->steps < (kind == STEPS_PIECES ? PIECES_LEAST : STEPS_LEAST))
				continue;
			struct json *one = json_new_object(), *parts_ms = json_new_array();
			for (uint32_t i = 0; i < part_count; i++)
				json_push(parts_ms,
					  json_new_number((double)took->parts_ns[i] * 1e-6 / (double)took->steps));
			json_set_number(one, "rows", (double)took->rows / (double)took->steps);
			json_set_bool(one, "generating", kind != STEPS_PIECES);
			json_set_bool(one, "alone", alone);
			json_set(one, "parts_ms", parts_ms);
			json_push(out, one);
			memset(took, 0, sizeof *took);
		}
	return out;
}
