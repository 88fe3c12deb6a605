/* The ends of an encoder (bert): what is computed before and after its layers. The host computes both for all back
 * ends: they are lookups in tables and one norm. So a back end computes layers only. stage_classifier.h has the
 * classifier of rerankers.
 *
 *     x = norm(embedding[token] + type[of the token] + place[its position])
 *
 * A token's type is 0; in a reranker, whose texts are pairs, it is 1 after the first separator. Thread: the stage's.
 *  */
#pragma once
#include "engine/stage.h"

struct stage_encoder;

// Asks `params` for the tensors of those ends that the stage has. Errors: those of params->tensor,
// STATUS_OUT_OF_MEMORY.
enum status stage_encoder_create(struct stage_encoder **out, const struct stage_params *params, struct error *error);
void stage_encoder_destroy(struct stage_encoder **encoder);
uint64_t stage_encoder_bytes(const struct stage_encoder *encoder); // of host memory that the tables take
// Make the batch of the layers: the embedded rows as input, and room for the output.
void stage_encoder_begin(struct stage_encoder *encoder, const struct stage_batch *batch, struct stage_batch *inner);
// Compute the results of the batch from the output of the layers.
void stage_encoder_end(const struct stage_encoder *encoder, const struct stage_batch *batch);
