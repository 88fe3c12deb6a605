/* Tokens of several requests, drawn side by side.
 *
 * Drawing from a vocabulary of 128,000 takes about a millisecond of a processor; 32 of them, one after the other, would
 * hold back a device whose step takes eight. Each thread has a sampler's memory of its own, and what is drawn does not
 * depend on who draws it. Threads are started when there is something to share for the first time, and sleep between
 * steps. Thread: the caller's draws as well; one caller. Owns its threads. */
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
