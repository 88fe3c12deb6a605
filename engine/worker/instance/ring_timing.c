/* See ring_timing.h. */
#include "engine/worker/instance/ring_timing.h"

void ring_timing_add(struct ring_timing *timing, const struct ring_step *step, uint64_t round_ns)
{
	uint64_t known_ns = 0;
	for (uint32_t i = 0; i < step->part_count; i++) {
		const struct ring_told *told = &step->parts[i];
		timing->parts[i].spent_ns += told->spent_ns;
		timing->parts[i].waited_ns += told->waited_ns;
		timing->parts[i].came_bytes += told->came_bytes;
		timing->parts[i].stage_count = told->stage_count;
		known_ns += told->waited_ns + told->spent_ns;
	}
	for (uint32_t i = 0; i < step->stage_count; i++)
		timing->stages_ns[i] += step->stages_ns[i];
	timing->steps++;
	timing->round_ns += round_ns;
	timing->hops_ns += round_ns > known_ns ? round_ns - known_ns : 0;
}

struct json *ring_timing_part_json(const struct ring_told *told, const uint64_t *stages_ns, double to_ms)
{
	struct json *part = json_new_object(), *stages = json_new_array();
	json_set_number(part, "waited_ms", (double)told->waited_ns * to_ms);
	json_set_number(part, "compute_ms", (double)told->spent_ns * to_ms);
	json_set_integer(part, "came_bytes", (int64_t)told->came_bytes);
	for (uint32_t i = 0; i < told->stage_count; i++)
		json_push(stages, json_new_number((double)stages_ns[i] * to_ms));
	json_set(part, "stages_ms", stages);
	return part;
}

struct json *ring_timing_json(const struct ring_timing *timing, uint32_t parts, uint64_t generated_tokens)
{
	struct json *out = json_new_object(), *list = json_new_array();
	const uint64_t *stages_ns = timing->stages_ns;
	const double to_ms = 1e-6 / (double)timing->steps;
	json_set_integer(out, "steps", (int64_t)timing->steps);
	json_set_integer(out, "tokens", (int64_t)(generated_tokens - timing->tokens_before));
	json_set_number(out, "step_ms", (double)timing->round_ns * to_ms);
	for (uint32_t i = 0; i < parts; i++) {
		json_push(list, ring_timing_part_json(&timing->parts[i], stages_ns, to_ms));
		stages_ns += timing->parts[i].stage_count;
	}
	json_set(out, "parts", list);
	json_set_number(out, "hops_ms", (double)timing->hops_ns * to_ms);
	return out;
}
