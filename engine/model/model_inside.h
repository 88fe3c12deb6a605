/* Functions that the files that open a model share (model*.c). Internal. Thread: the one that opens it. */
#pragma once
#include "engine/model/architecture.h"

enum { MODEL_WORD_BYTES = 64 }; // of the file's words in messages

// The model that is being opened.
struct model_opening {
	const struct gguf *gguf;
	struct model_shape *shape;
	const struct architecture *architecture; // NULL until it is known
	char key[GGUF_NAME_BYTES + MODEL_WORD_BYTES];
	bool *used;      // (tensors of the file)
	uint32_t blocks; // blocks of the file: the layers, and those that predict further tokens
	bool joined;     // keys and values of heads are one tensor of each layer (model_latent.c)
	struct error *error;
};

// The name of one of the architecture's keys, good until the next is asked for.
const char *model_key(struct model_opening *opening, const char *name);
// A word of the file, fit to be shown.
const char *model_shown(const struct gguf_text *text, char out[MODEL_WORD_BYTES]);
bool model_text_is(const struct gguf_text *text, const char *word);
// STATUS_UNAVAILABLE, with what works.
enum status model_not_computed(struct model_opening *opening, const char *what);

struct model_range {
	uint64_t least, most, multiple;
};
// A whole number within the range. Errors: STATUS_INVALID_PARAMS, STATUS_UNAVAILABLE (a list, of each layer its own).
enum status model_read_count(struct model_opening *opening, const char *name, struct model_range range, uint32_t *out);
// The same for an optional key: without it *out stays unchanged. Errors: STATUS_INVALID_PARAMS, STATUS_UNAVAILABLE (a
// list with a value for each layer).
enum status model_read_optional(struct model_opening *opening, const char *name, struct model_range range,
				uint32_t *out);

// Which layers have keys and values, and how many heads of them, of an architecture with short convolutions. Errors:
// STATUS_INVALID_PARAMS.
enum status model_read_turns(struct model_opening *opening);

// Experts, if there are any, once the width of the feed-forward network is known (model_experts.c). Errors:
// STATUS_INVALID_PARAMS, STATUS_UNAVAILABLE (the architecture has none; another way of choosing them).
enum status model_read_experts(struct model_opening *opening);

// Heads, and the sizes of latents, of an architecture that has them (model_latent.c). Errors: STATUS_INVALID_PARAMS.
enum status model_read_latent(struct model_opening *opening);
// The tensor of an older file that both matrices of heads are parts of: what is wanted of the file, and, of the tensor
// that was found, the part that is `role`'s.
struct wanted_tensor model_joined_tensor(const struct model_shape *shape);
void model_take_part(const struct model_shape *shape, enum model_role role, struct model_tensor *tensor);

// Sizes of a gated delta rule, of an architecture that has one, once heads are known (model_delta.c). Errors:
// STATUS_INVALID_PARAMS, STATUS_UNAVAILABLE (layers in another order).
enum status model_read_delta(struct model_opening *opening);

// How the model makes an embedding or a score of a text (model_pooling.c). Errors: STATUS_UNAVAILABLE (another way; a
// language model as a reranker that is not Qwen3-Reranker).
enum status model_read_pooling(struct model_opening *opening);
// The tensors of an encoder before and after its layers. Errors: STATUS_INVALID_PARAMS, STATUS_UNAVAILABLE (several
// classes of a reranker; a classifier without the layer before it).
enum status model_read_ends(struct model_opening *opening);

// Everything about positions. Errors: STATUS_INVALID_PARAMS, STATUS_UNAVAILABLE (a scaling that is not known).
enum status model_read_rope(struct model_opening *opening);

struct model {
	struct model_shape shape;
	struct model_tensor outer[ROLE_OUTPUT + 1];
	struct model_tensor (*layers)[ROLE_COUNT]; // (shape.layers)
};

// model_tensors.c
// The vocabulary is what the token embedding has rows for; lists of tokens must be as long.
enum status model_read_vocabulary(struct model_opening *opening);
enum status model_find_tensors(struct model_opening *opening, struct model *model);
enum status model_refuse_others(
	struct model_opening *opening); // tensors that no role uses: they would change the result
