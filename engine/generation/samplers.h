/* Tokens of several requests, drawn side by side.
 *
 * Drawing from all logits of a vocabulary of 128,000 takes 0.07 to 0.9 ms of a processor; 128 of them, one after the
 * other, would delay a device whose step takes eight. Each thread has its own scratch memory, and the result does not
 * depend on the thread. Threads are started when there are several tasks for the first time, and sleep between steps.
 * Thread: one caller, whose thread draws as well. Owns its threads. */
#pragma once
#include "engine/generation/sampler.h"

struct samplers;

struct sampler_task {
	struct sampler_input input;
	struct token_choice *choice; // filled
};

// `most`: tasks at once. Errors: STATUS_OUT_OF_MEMORY.
enum status samplers_create(struct samplers **out, uint32_t vocabulary, uint32_t most);
void samplers_destroy(struct samplers **samplers); // accepts NULL
void samplers_choose(struct samplers *samplers, const struct sampler_task *tasks, uint32_t count);
struct sampler_scratch *samplers_scratch(struct samplers *samplers); // the caller's own
