/* How many tokens a draft model is to propose for a request: as many as give the most tokens in a second, by measured
 * times and by how often its tokens were right. None where that is less than a step without them gives, or not clearly
 * more.
 *
 * A draft that does not pay is tried again now and then, within a credit: a fortieth of the request's steps, and what
 * accepted tokens have saved (proposals.h has the same for tokens of a text). So a request whose text a draft cannot
 * foresee loses a fortieth of its time at most, beyond what it has gained. Pure. */
#pragma once
#include "engine/generation/proposals.h"

// Seconds, means of what was measured last; 0: not known.
struct draft_times {
	float step;                  // of the draft model, a token
	float read;                  // of the draft model, a token of a text that it has not read yet
	float chain[PROPOSALS_ROWS]; // of a step of the whole model, by rows - 1, with the network
};
// A step of the whole model of so many rows took so many seconds.
void draft_times_chain(struct draft_times *times, uint32_t rows, double seconds);
void draft_times_step(struct draft_times *times, double seconds); // a step of the draft
// The time of a step of so many rows. A count that was not measured is taken from `base` rows, which were, by the
// prices that loading has measured. 0: not known.
float draft_times_of(const struct draft_times *times, const struct row_prices *prices, uint32_t base, uint32_t rows);

#define DRAFT_RIGHT_AT_FIRST 0.7f // before anything is known of a draft model

struct drafting {
	float right;  // the share of proposed tokens that were right
	float credit; // steps that may be lost
};
void drafting_init(struct drafting *drafting, float right); // `right`: what other requests had
// A proposed token was chosen, or another one.
void drafting_judge(float *right, bool chosen);
// As proposals_settle.
void drafting_settle(struct drafting *drafting, float price);

struct draft_question {
	const struct draft_times *times;
	const struct row_prices *prices;
	uint32_t rows;   // of the step without proposals, each of which gives a token
	uint32_t most;   // that may be proposed
	uint32_t unread; // tokens of the text that the draft has not read, without the last few
	uint32_t left;   // tokens that the answer is taken to have yet
};
struct draft_answer {
	uint32_t count;
	float price; // what it adds to the time of the step, in steps, without the reading
};
struct draft_answer drafting_count(const struct drafting *drafting, const struct draft_question *question);
// How many tokens an answer is taken to have yet, that has so many and may have `most` more: as many again, or a few.
uint32_t drafting_left(uint32_t tokens, uint32_t most);
