/* The model in double precision, written as plainly as it can be: what every back end's stage is compared with.
 *
 * Weights are format_decode's, everything else is double. How far a back end may be from it follows from what stage.h
 * lets it round: the same computation can be run with those roundings, and no others, and its distance from the exact
 * one says how large an error is to be expected for this model and these tokens. Memory that runs out ends the program.
 * Thread: one at a time. */
#pragma once
#include "engine/model/model.h"

enum reference_rounding {
	REFERENCE_EXACT,
	REFERENCE_F16,    // inputs of products have 11 significant bits; keys and values are f16
	REFERENCE_BLOCKS, // inputs are 16-bit integers by blocks of 32; keys and values are f16
};

struct reference;
struct reference *reference_create(const struct model *model); // which must outlive it
void reference_destroy(struct reference **reference);

struct reference_run {
	const uint32_t *tokens; // (count), one sequence from position 0 on
	uint32_t count;
	uint32_t layers;      // computed; 0: all
	uint32_t zero_before; // keys and values of positions below are zero; their rows of the result mean nothing
	enum reference_rounding rounding;
};
struct reference_result {
	uint32_t count;
	double *activations; // (count, embedding), after the last layer that was computed
	double *hidden;      // (count, embedding), after the output norm
	double *logits;      // (count, vocabulary)
	// Of experts: how far the last one that was chosen is from the best that was not, at least, in units of how a
	// row's scores are spread. Where it is next to nothing rounding decides, and a stage may choose the other.
	double least_gap;
	uint32_t gap_row;
};
void reference_run(const struct reference *reference, const struct reference_run *run, struct reference_result *result);
void reference_result_finish(struct reference_result *result);
