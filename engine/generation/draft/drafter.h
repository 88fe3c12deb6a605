/* A draft model: a small model of the same vocabulary, whole on one device, which says how a text may go on.
 *
 * It has a place for each of a few texts: the keys and values of the tokens that it has read. A place is found again by
 * its tokens: as far as a text begins like what was read there, nothing is read again. So tokens that were proposed and
 * not chosen need no rolling back, and a request that continues after a loss reads its text anew. A place serves one
 * owner's requests; before another owner's, its pages are zeroed. Owner 0 shares with nobody, not even with itself.
 *
 * Thread: one at a time. */
#pragma once
#include "engine/stage.h"

enum {
	DRAFT_PLACES = 4,    // texts at a time, at most
	DRAFT_TOKENS = 4096, // of a text, at most, those that are proposed included
	DRAFT_ROWS = 128,    // of a step that reads a text
};

struct drafter;

struct drafter_params {
	struct stage *stage; // all layers; the caller's, as is `shape`
	const struct model_shape *shape;
	uint32_t places; // texts; <= DRAFT_PLACES
	// With which the stage was created: context_tokens, a multiple of STAGE_PAGE_TOKENS; places * context_tokens /
	// STAGE_PAGE_TOKENS pages; rows; `places` outputs at least.
	uint32_t context_tokens, batch_rows;
	double step_s, read_s; // what a token takes to be proposed, and to be read; 0: not known
};
// Errors: STATUS_OUT_OF_MEMORY, STATUS_INVALID_PARAMS.
enum status drafter_create(struct drafter **out, const struct drafter_params *params, struct error *error);
void drafter_destroy(struct drafter **drafter);

// A question for one text.
struct draft_wish {
	uint64_t owner;
	uint64_t who;           // a number of the request, not 0: asked again, it has the same place
	const uint32_t *tokens; // (count)
	uint32_t count, wanted;
	uint32_t *proposed; // (wanted), to be filled
	uint32_t given;     // how many were
};
// How many tokens of the text have not been read, but for the last few. UINT32_MAX: it does not fit with `wanted` more,
// or has a token that the draft does not know.
uint32_t drafter_unread(const struct drafter *drafter, const struct draft_wish *wish);
// Propose the likeliest tokens for all these texts, at most `places` of them. Fewer than wanted are given where the
// likeliest is not of `vocabulary`, or not a number. Errors: those of stage_step.
enum status drafter_propose(struct drafter *drafter, struct draft_wish *wishes, uint32_t count, uint32_t vocabulary,
			    struct error *error);
// Keys and values of the owner's texts (0: of all) are no longer found; drafter_tidy zeroes them.
void drafter_forget(struct drafter *drafter, uint64_t owner);
enum status drafter_tidy(struct drafter *drafter, struct error *error);
uint32_t drafter_places(const struct drafter *drafter);

struct drafter_figures {
	double step_s, read_s; // what a token took last to be proposed, and to be read
	uint64_t spent_ns;     // ever
};
struct drafter_figures drafter_figures(const struct drafter *drafter);
