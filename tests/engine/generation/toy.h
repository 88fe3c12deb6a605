/* A back end whose model is a toy: what comes next is a hash of everything before, read from its pages.
 *
 * So whatever a generator does wrong with pages, positions, turns or batches gives other tokens than toy_next. Tokens
 * belong to people, VOICES to each, and so does what follows them: a page that is written while it still holds another
 * person's tokens is counted. The rest of the back end is the CPU's. */
#pragma once
#include "engine/inside.h"
#include "engine/stage.h"

#include <stdlib.h>
#include <string.h>

enum {
	VOICES = 64,
	PEOPLE = 8,
	TOY_VOCABULARY = VOICES * PEOPLE,
	TOY_EMBEDDING = 32,
	TOY_LAYERS = 4,
	PAGES_MOST = 1024,
	STATES_MOST = 128,
	FOUND_MOST = 8,      // outputs that candidates are found of
	TOY_DRAFT_LAYERS = 1 // of a draft model: a quarter of its tokens are wrong
};

struct backend_stage {
	struct stage_params params;
	uint32_t pages[PAGES_MOST][STAGE_PAGE_TOKENS]; // token + 1
	struct toy_state {
		uint64_t hash;
		uint32_t person; // whose it is + 1
	} states[STATES_MOST];
	float logits[FOUND_MOST][TOY_VOCABULARY];
	struct stage_candidates found[FOUND_MOST];
};

static struct {
	long steps, rows, zeroed, foreign; // foreign: written over another person's tokens or state
	long fail_after;                   // steps; 0: never
	uint32_t most_rows;
	long found, unfound; // outputs that had candidates, and that had none
	bool repeats;        // most tokens follow from the two before them
	struct backend_stage *first, *draft;
	long draft_steps, draft_rows;
	void (*stepped)(bool drafts, uint32_t rows); // NULL: nobody is told
} toy;

static const struct model_shape toy_shape = {.family = FAMILY_LLAMA,
					     .layers = TOY_LAYERS,
					     .embedding = TOY_EMBEDDING,
					     .feed_forward = 32,
					     .heads = 1,
					     .kv_heads = 1,
					     .head_size = 32,
					     .vocabulary = TOY_VOCABULARY,
					     .context = 4096,
					     .rope_size = 32};

static uint64_t toy_hash(uint64_t hash, uint32_t token)
{
	hash = (hash ^ (token + 1)) * 0x9E3779B97F4A7C15ull;
	return hash ^ hash >> 31;
}

// The hash that tells what comes next, of the hash of everything and of the last two tokens.
static uint64_t toy_mixed(uint64_t hash, uint32_t before, uint32_t last)
{
	if (!toy.repeats || hash % 16 == 0)
		return hash;
	hash = toy_hash(toy_hash(1, before), last) & ~(48ull << 20); // of 16 voices
	return hash;
}

static const struct model_shape toy_draft_shape = {.family = FAMILY_LLAMA,
						   .layers = TOY_DRAFT_LAYERS,
						   .embedding = TOY_EMBEDDING,
						   .feed_forward = 32,
						   .heads = 1,
						   .kv_heads = 1,
						   .head_size = 32,
						   .vocabulary = TOY_VOCABULARY,
						   .context = 4096,
						   .rope_size = 32};

// What follows `last`, with this hash of everything up to it.
static uint32_t toy_answer(uint64_t hash, uint32_t last)
{
	return last / VOICES * VOICES + (uint32_t)(hash >> 20) % VOICES;
}

static inline uint32_t toy_next(const uint32_t *tokens, size_t count)
{
	uint64_t hash = 0;
	for (size_t i = 0; i < count; i++)
		hash = toy_hash(hash, tokens[i]);
	return toy_answer(toy_mixed(hash, count > 1 ? tokens[count - 2] : 0, tokens[count - 1]), tokens[count - 1]);
}

static enum status toy_create(struct backend_device *device, struct backend_stage **out,
			      const struct stage_params *params, struct error *error)
{
	(void)device;
	*out = calloc(1, sizeof(**out));
	if (!*out || params->page_count > PAGES_MOST ||
	    stage_state_count(params->shape, params->batch_sequences) > STATES_MOST)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a toy");
	(*out)->params = *params;
	if (params->shape->layers == TOY_DRAFT_LAYERS)
		toy.draft = *out;
	else if (params->embeds)
		toy.first = *out;
	return STATUS_OK;
}

static void toy_destroy(struct backend_device *device, struct backend_stage **stage)
{
	(void)device;
	free(*stage);
	*stage = NULL;
}

static void toy_memory(const struct backend_stage *stage, struct stage_memory *memory)
{
	memory->kv_bytes = sizeof(stage->pages);
}

static void toy_write(struct backend_stage *stage, const struct stage_run *run, uint32_t position, uint32_t token)
{
	uint32_t *page = stage->pages[run->pages[position / STAGE_PAGE_TOKENS]];
	for (uint32_t i = 0; i < STAGE_PAGE_TOKENS; i++)
		toy.foreign += page[i] && (page[i] - 1) / VOICES != token / VOICES;
	page[position % STAGE_PAGE_TOKENS] = token + 1;
}

// With states, what comes next is a hash of the state that the run goes on from, and not of its pages.
static struct toy_state toy_begin(struct backend_stage *stage, const struct stage_run *run, uint32_t token)
{
	struct toy_state state = {.person = token / VOICES + 1};
	if (!model_is_recurrent(stage->params.shape))
		return state;
	if (run->state_from)
		state = stage->states[run->state_from - 1];
	toy.foreign += state.person != token / VOICES + 1;
	const struct toy_state *to = &stage->states[run->state_to - 1];
	toy.foreign += to->person && to->person != state.person;
	return state;
}

static void toy_logits(float *logits, uint64_t hash, uint32_t token)
{
	const uint32_t next = toy_answer(hash, token);
	for (uint32_t i = 0; i < TOY_VOCABULARY; i++)
		logits[i] = i / VOICES != token / VOICES ? -1000
			    : i == next                  ? 5
							 : (float)(toy_hash(hash, i) % 1000) / 250;
}

// The candidates are the tokens of this person; now and then there are too many to name.
static void toy_find(struct backend_stage *stage, uint32_t output, uint64_t hash, uint32_t token)
{
	struct stage_candidates *found = &stage->found[output];
	toy_logits(stage->logits[output], hash, token);
	found->count = 0;
	for (uint32_t i = VOICES; i-- > 0 && hash % 4;)
		found->of[found->count++] = (struct stage_candidate){stage->logits[output][token / VOICES * VOICES + i],
								     token / VOICES * VOICES + i};
	toy.found += found->count > 0;
	toy.unfound += !found->count;
}

static void toy_output(struct backend_stage *stage, const struct stage_batch *batch, uint32_t output, uint64_t hash,
		       uint32_t token)
{
	if (batch->argmax)
		batch->argmax[output] = toy_answer(hash, token);
	if (batch->logits)
		toy_logits(&batch->logits[(size_t)output * TOY_VOCABULARY], hash, token);
	if (batch->candidates && output < FOUND_MOST)
		toy_find(stage, output, hash, token);
	for (uint32_t i = 0; batch->hidden && i < TOY_EMBEDDING; i++)
		batch->hidden[(size_t)output * TOY_EMBEDDING + i] = (float)(token % (i + 2)) + 1;
}

static enum status toy_step(struct backend_stage *stage, const struct stage_batch *batch, struct error *error)
{
	uint32_t row = 0, output = 0;
	if (toy.fail_after && toy.steps >= toy.fail_after)
		return error_set(error, STATUS_DEVICE_LOST, "the toy broke");
	const bool drafts = stage->params.shape->layers == TOY_DRAFT_LAYERS;
	if (toy.stepped)
		toy.stepped(drafts, batch->row_count);
	*(drafts ? &toy.draft_steps : &toy.steps) += 1;
	*(drafts ? &toy.draft_rows : &toy.rows) += batch->row_count;
	toy.most_rows = batch->row_count > toy.most_rows ? batch->row_count : toy.most_rows;
	for (uint32_t i = 0; i < batch->run_count; i++) {
		const struct stage_run *run = &batch->runs[i];
		const bool recurrent = model_is_recurrent(stage->params.shape);
		struct toy_state state = {0};
		for (uint32_t j = 0; j < run->row_count; j++, row++) {
			uint64_t hash = 0;
			uint32_t token = stage->params.embeds ? batch->tokens[row]
							      : (uint32_t)batch->input[(size_t)row * TOY_EMBEDDING];
			toy_write(stage, run, run->position + j, token);
			if (!j)
				state = toy_begin(stage, run, token);
			state.hash = toy_hash(state.hash, token);
			for (uint32_t at = 0; at <= run->position + j; at++)
				hash = toy_hash(
					hash,
					stage->pages[run->pages[at / STAGE_PAGE_TOKENS]][at % STAGE_PAGE_TOKENS] - 1);
			const uint32_t at = run->position + j, last = at ? at - 1 : 0;
			const uint32_t before =
				stage->pages[run->pages[last / STAGE_PAGE_TOKENS]][last % STAGE_PAGE_TOKENS] - 1;
			hash = recurrent ? state.hash : toy_mixed(hash, at ? before : 0, token);
			if (batch->output)
				batch->output[(size_t)row * TOY_EMBEDDING] = (float)token;
			if (drafts && hash % 4 == 1)
				hash = toy_hash(hash, 7);
			if (output < batch->output_count && batch->output_rows[output] == row)
				toy_output(stage, batch, output++, hash, token);
		}
		if (recurrent)
			stage->states[run->state_to - 1] = state;
	}
	return STATUS_OK;
}

static enum status toy_zero(struct backend_stage *stage, const uint32_t *pages, uint32_t count, struct error *error)
{
	(void)error;
	toy.zeroed += count;
	for (uint32_t i = 0; i < count; i++)
		if (pages[i] < stage->params.page_count)
			memset(stage->pages[pages[i]], 0, sizeof(stage->pages[0]));
		else
			stage->states[pages[i] - stage->params.page_count] = (struct toy_state){0};
	return STATUS_OK;
}

static const struct stage_candidates *toy_found(const struct backend_stage *stage)
{
	return stage->found;
}

static enum status toy_logits_of(struct backend_stage *stage, uint32_t output, float *to, struct error *error)
{
	(void)error;
	memcpy(to, stage->logits[output], sizeof(stage->logits[output]));
	return STATUS_OK;
}

static const struct stage_slots toy_finding_slots = {
	.create = toy_create,
	.destroy = toy_destroy,
	.memory = toy_memory,
	.step = toy_step,
	.zero = toy_zero,
	.candidates = toy_found,
	.logits = toy_logits_of,
};

static const struct stage_slots toy_slots = {
	.create = toy_create,
	.destroy = toy_destroy,
	.memory = toy_memory,
	.step = toy_step,
	.zero = toy_zero,
};

static inline enum status toy_tensor(void *context, enum model_role role, uint32_t layer, struct model_tensor *out,
				     struct error *error)
{
	(void)context, (void)role, (void)layer, (void)out;
	return error_set(error, STATUS_INTERNAL, "a toy has no weights");
}
