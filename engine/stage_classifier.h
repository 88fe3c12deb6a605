/* The classifier of a reranker, which the host computes for all back ends: a score from the values of one token.
 *
 *     score = Wscore tanh(Whead x + bias) + bias         of an encoder (bert): x is the first token's
 *     score = Wyes x - Wno x                             of a language model (Qwen3-Reranker): x is the last token's,
 *                                                        after the output norm
 *
 * The sigmoid of the score is the published one: of a language model, the softmax of the two rows. Thread: the
 * stage's. */
#pragma once
#include "engine/stage.h"

struct stage_classifier;

// Asks `params` for the classifier's tensors and keeps them as F32. *out stays NULL if the stage does not have the end
// of a reranker. Errors: those of params->tensor, STATUS_OUT_OF_MEMORY.
enum status stage_classifier_create(struct stage_classifier **out, const struct stage_params *params,
				    struct error *error);
void stage_classifier_destroy(struct stage_classifier **classifier);
uint64_t stage_classifier_bytes(const struct stage_classifier *classifier); // of host memory
// The score of x (embedding).
float stage_classifier_score(const struct stage_classifier *classifier, const float *x);
