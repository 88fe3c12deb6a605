/* Which tokens keep to a grammar, from where an answer is. See grammar.h. */
#include "engine/grammar/states.h"
#include "engine/grammar/vocabulary.h"

#include <stdlib.h>
#include <string.h>

enum {
	KEPT_BYTES = 2 * 1024 * 1024, // of masks
	KEPT_MOST = 512,              // of them
};

struct kept {
	uint32_t state; // STATE_DEAD: nothing is kept here
	uint32_t *mask; // (words)
};

struct matcher {
	struct grammar *grammar;
	const struct vocabulary *vocabulary;
	struct states *states;
	struct error error;
	bool ends, over; // over: a token has ended it
	uint32_t at;
	uint32_t *path; // (longest + 1): states of a walk
	struct kept kept[KEPT_MOST];
	unsigned kept_count, kept_next; // in use; the next to be replaced
	uint16_t *kept_of;              // (GRAMMAR_STATES): a state's place in `kept` + 1, or 0
};

enum status matcher_create(struct matcher **out, struct grammar **grammar, const struct vocabulary *vocabulary,
			   bool ends)
{
	struct matcher *matcher = *out = calloc(1, sizeof(*matcher));
	if (!matcher) {
		grammar_destroy(grammar);
		return STATUS_OUT_OF_MEMORY;
	}
	matcher->grammar = *grammar;
	*grammar = NULL;
	matcher->vocabulary = vocabulary;
	matcher->ends = ends;
	matcher->path = malloc((vocabulary->longest + 1) * sizeof(uint32_t));
	matcher->kept_of = calloc(GRAMMAR_STATES, sizeof(uint16_t));
	if (!matcher->path || !matcher->kept_of || states_create(&matcher->states, matcher->grammar)) {
		matcher_destroy(out);
		return STATUS_OUT_OF_MEMORY;
	}
	matcher->at = states_first(matcher->states);
	return STATUS_OK;
}

void matcher_destroy(struct matcher **pointer)
{
	struct matcher *matcher = *pointer;
	if (!matcher)
		return;
	for (unsigned i = 0; i < KEPT_MOST; i++)
		free(matcher->kept[i].mask);
	states_destroy(&matcher->states);
	grammar_destroy(&matcher->grammar);
	free(matcher->path);
	free(matcher->kept_of);
	free(matcher);
	*pointer = NULL;
}

const struct error *matcher_error(const struct matcher *matcher)
{
	return &matcher->error;
}

static bool in_trouble(struct matcher *matcher)
{
	if (!matcher->error.status)
		matcher->error = *states_error(matcher->states);
	return matcher->error.status;
}

// ---- masks ----

// How many plain characters may come, whichever they are: PLAIN_MOST at most.
static unsigned plain_ahead(struct matcher *matcher)
{
	unsigned count = 0;
	uint32_t state = matcher->at, next;
	while (count < PLAIN_MOST && (next = states_plain(matcher->states, state))) {
		count = next == state ? PLAIN_MOST : count + 1;
		state = next;
	}
	return count;
}

static void walk(struct matcher *matcher, uint32_t *mask)
{
	const struct vocabulary *vocabulary = matcher->vocabulary;
	const struct branch *branches = vocabulary->branches;
	const unsigned plain = plain_ahead(matcher);
	uint32_t *path = matcher->path, steps = 0;
	memcpy(mask, &vocabulary->plain[(size_t)plain * vocabulary->words], vocabulary->words * sizeof(uint32_t));
	path[0] = matcher->at;
	for (uint32_t i = 0; i < vocabulary->branch_count && !states_error(matcher->states)->status; steps++) {
		const struct branch *branch = &branches[i];
		if (branch->plain <= plain) {
			i = branch->end;
			continue;
		}
		const uint32_t state = states_step(matcher->states, path[branch->depth - 1], branch->byte);
		path[branch->depth] = state;
		i = state ? i + 1 : branch->end;
		if (state && branch->token != VOCABULARY_NO_TOKEN)
			mask[branch->token / 32] |= 1u << branch->token % 32;
	}
	states_spend(matcher->states, steps);
	for (uint32_t i = 0; i < vocabulary->same_count; i++) {
		const uint32_t first = vocabulary->same[i][0], other = vocabulary->same[i][1];
		mask[other / 32] |= (mask[first / 32] >> first % 32 & 1) << other % 32;
	}
	for (uint32_t i = 0; i < vocabulary->end_count; i++)
		if (matcher->ends && states_accepts(matcher->states, matcher->at))
			mask[vocabulary->ends[i] / 32] |= 1u << vocabulary->ends[i] % 32;
}

static void forget_masks(struct matcher *matcher)
{
	for (unsigned i = 0; i < matcher->kept_count; i++) {
		matcher->kept_of[matcher->kept[i].state] = 0;
		matcher->kept[i].state = STATE_DEAD;
	}
}

void matcher_rewind(struct matcher *matcher)
{
	if (states_first(matcher->states) == STATE_DEAD) {
		forget_masks(matcher);
		states_restart(matcher->states);
	}
	matcher->at = states_first(matcher->states);
	matcher->over = false;
}

// A cache entry for the mask of the current state; the oldest entry is evicted.
static struct kept *place(struct matcher *matcher)
{
	const size_t bytes = (matcher->vocabulary->words + 1) * sizeof(uint32_t);
	const unsigned most = KEPT_BYTES / bytes < 2           ? 2
			      : KEPT_BYTES / bytes < KEPT_MOST ? (unsigned)(KEPT_BYTES / bytes)
							       : KEPT_MOST;
	struct kept *kept = &matcher->kept[matcher->kept_next];
	if (!kept->mask && !(kept->mask = malloc(bytes))) {
		error_set(&matcher->error, STATUS_OUT_OF_MEMORY, "no memory for a mask of tokens");
		return NULL;
	}
	matcher->kept_of[kept->state] = 0;
	matcher->kept_next = (matcher->kept_next + 1) % most;
	if (matcher->kept_count < matcher->kept_next)
		matcher->kept_count = matcher->kept_next;
	if (!matcher->kept_next)
		matcher->kept_count = most;
	kept->state = STATE_DEAD;
	return kept;
}

static bool is_empty(const uint32_t *mask, uint32_t words)
{
	uint32_t any = 0;
	for (uint32_t i = 0; i < words; i++)
		any |= mask[i];
	return !any;
}

const uint32_t *matcher_allowed(struct matcher *matcher)
{
	states_allow(matcher->states, GRAMMAR_WORK);
	if (matcher->over || in_trouble(matcher))
		return NULL;
	if (states_crowded(matcher->states)) {
		forget_masks(matcher);
		matcher->at = states_fresh(matcher->states, matcher->at);
	}
	if (matcher->kept_of[matcher->at])
		return matcher->kept[matcher->kept_of[matcher->at] - 1].mask;
	struct kept *kept = place(matcher);
	if (!kept)
		return NULL;
	walk(matcher, kept->mask);
	if (in_trouble(matcher))
		return NULL;
	if (is_empty(kept->mask, matcher->vocabulary->words)) {
		error_set(&matcher->error, STATUS_UNAVAILABLE, "no token of the model can continue the requested form");
		return NULL;
	}
	kept->state = matcher->at;
	matcher->kept_of[kept->state] = (uint16_t)(kept - matcher->kept + 1);
	return kept->mask;
}

// ---- the answer ----

enum status matcher_take_bytes(struct matcher *matcher, const void *bytes, size_t length)
{
	uint32_t state = matcher->at;
	states_allow(matcher->states, GRAMMAR_WORK);
	if (matcher->over)
		return STATUS_INVALID_PARAMS;
	for (size_t i = 0; i < length && state && !in_trouble(matcher); i++) {
		if (i % 256 == 255)
			states_allow(matcher->states, GRAMMAR_WORK);
		if (states_crowded(matcher->states)) {
			forget_masks(matcher);
			state = states_fresh(matcher->states, state);
		}
		state = states_step(matcher->states, state, ((const uint8_t *)bytes)[i]);
	}
	if (in_trouble(matcher))
		return matcher->error.status;
	if (!state)
		return STATUS_INVALID_PARAMS;
	matcher->at = state;
	return STATUS_OK;
}

enum status matcher_take(struct matcher *matcher, uint32_t token)
{
	const struct vocabulary *vocabulary = matcher->vocabulary;
	if (token >= vocabulary->count || matcher->over)
		return STATUS_INVALID_PARAMS;
	if (vocabulary->is_end[token]) {
		matcher->over = matcher->ends && matcher_complete(matcher);
		return matcher->over ? STATUS_OK : STATUS_INVALID_PARAMS;
	}
	const uint32_t first = vocabulary->offsets[token], length = vocabulary->offsets[token + 1] - first;
	return length ? matcher_take_bytes(matcher, vocabulary->bytes + first, length) : STATUS_INVALID_PARAMS;
}

bool matcher_fits(struct matcher *matcher, const void *bytes, size_t length)
{
	uint32_t state = matcher->at;
	states_allow(matcher->states, GRAMMAR_WORK);
	for (size_t i = 0; i < length && state; i++)
		state = states_step(matcher->states, state, ((const uint8_t *)bytes)[i]);
	return state && !matcher->over && !in_trouble(matcher);
}

bool matcher_complete(const struct matcher *matcher)
{
	return states_accepts(matcher->states, matcher->at);
}

bool matcher_finished(struct matcher *matcher)
{
	return matcher->over || states_ends(matcher->states, matcher->at);
}
