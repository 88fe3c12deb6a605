/* Whose the time of a step is: each job's share is that of its rows, prompts and decoding alike. Jobs that have ended
 * while a step was in flight have their share of it all the same, in the sum of all jobs. Thread: the generator's. */
#include "engine/generation/generator_inside.h"

void generator_spent_begin(struct generator *generator, const struct generator_returned *returned)
{
	for (uint32_t i = 0; i < generator->params.stage_count && i < LIMIT_INSTANCE_STAGES; i++)
		generator->seen_ns[i] = stage_spent_ns(generator->params.stages[i]);
	generator->stage_count = 0;
	for (uint32_t i = 0; returned && i < returned->stage_count && i < LIMIT_INSTANCE_STAGES; i++)
		generator->stages_ns[generator->stage_count++] = returned->stages_ns[i];
}

void generator_spent_add(struct generator *generator, const struct lane *lane)
{
	for (uint32_t i = 0; i < generator->params.stage_count && i < LIMIT_INSTANCE_STAGES; i++) {
		const uint64_t now_ns = stage_spent_ns(generator->params.stages[i]);
		if (generator->stage_count < LIMIT_INSTANCE_STAGES)
			generator->stages_ns[generator->stage_count++] = now_ns - generator->seen_ns[i];
	}
	for (uint32_t stage = 0; stage < generator->stage_count && lane->row_count && !lane->check; stage++) {
		// The draft model is where the last stage is.
		const uint64_t drafting_ns = stage + 1 == generator->stage_count ? lane->drafting_ns : 0;
		const uint64_t ns = generator->stages_ns[stage] + drafting_ns;
		generator->spent_ns[stage] += ns;
		for (uint32_t i = 0; i < lane->run_count; i++)
			lane->pieces[i].job->spent_ns[stage] += ns * lane->pieces[i].rows / lane->row_count;
	}
}

struct generator_spent generator_job_spent(const struct generator_job *job)
{
	return (struct generator_spent){.stages_ns = job->spent_ns, .count = job->generator->stage_count};
}
