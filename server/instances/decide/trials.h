/* What a model's reference token led to, start after start, and which device computes wrong where that differs.
 *
 * Each start of a model in parts sends the same token around its parts (instance.check). What it leads to must be the
 * same on all devices, but for rounding. Nobody knows beforehand which result is right, so no start is believed because
 * it was the first: the results of all starts are kept with the devices that took part, and a device is to blame if all
 * starts without it have one result, and none with it has that. Where several devices could be to blame, or none alone,
 * the result of most placements counts, of these the one that came first.
 *
 *     starts on            results      to blame      the next start
 *     {a, b}               W            nobody        with W runs
 *     {a, b} {c, b}        W G          a or c        with W runs, with G has failed: it is open which is right
 *     {a, b} {c, b} {d, b} W G G        a             with G runs, and fails with a
 *
 * A device that has been verified anew counts as another one: another driver, or another program, may be at work.
 * Pure but for its memory. Thread: any. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { TRIALS_SEEN = 12, TRIAL_NAME_BYTES = 208, TRIAL_SUSPECTS = 4 };

// A device of a start. Its key changes when it is verified anew.
struct trial_device {
	uint64_t key;
	char name[TRIAL_NAME_BYTES]; // in words
};

// A start and its result.
struct trial {
	const struct trial_device *devices; // (device_count), each once
	unsigned device_count;
	uint32_t token; // with the largest logit
	double logit;
	double spread;         // of all logits: their standard deviation; 0: not known, and nothing can be compared
	double expected_logit; // of trials_expected's token; NAN: it was not asked for
};

struct trial_verdict {
	bool agrees;
	// Else: what the token led to by the starts that count.
	uint32_t token;
	double logit;
	// Of the devices of this start, the first that may be to blame, by its place; -1: nobody in particular is.
	int suspect;
	// Others that may be: their names, of different texts than the suspect's.
	char others[TRIAL_SUSPECTS][TRIAL_NAME_BYTES];
	unsigned other_count; // all of them, also where that is more
};

struct trials; // of one model, in one format and length of context

// NULL: out of memory.
struct trials *trials_create(void);
void trials_destroy(struct trials **trials);
// The token whose logit the next start should tell besides. False: nothing has been seen.
bool trials_expected(const struct trials *trials, uint32_t *token);
// Judge a start by all before it, and keep it.
void trials_judge(struct trials *trials, const struct trial *start, struct trial_verdict *out);
