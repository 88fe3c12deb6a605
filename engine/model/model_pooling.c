/* The result of a model for a text: an embedding, a score, or the next token; and the ends of an encoder. See
 * model_inside.h. */
#include "engine/model/model_inside.h"

#include <inttypes.h>
#include <string.h>

// llama.cpp's converter does not say that a cross-encoder is one. It has a classifier of one class; an encoder with
// more classes gives embeddings here, of which the classifier is no part.
static bool is_cross_encoder(const struct model_opening *opening)
{
	const struct gguf_tensor *score = gguf_find(opening->gguf, "cls.output.weight");
	return opening->architecture->encoder && score && score->size[1] == 1;
}

static bool text_has_one(const struct gguf_text *text, const char *word)
{
	const size_t length = strlen(word);
	unsigned found = 0;
	for (size_t i = 0; i + length <= text->length; i++)
		found += !memcmp(text->bytes + i, word, length);
	return found == 1;
}

// Qwen3-Reranker, as llama.cpp's converter makes it: the rows of "yes" and "no" of the output matrix as
// cls.output.weight, and a template that says how a query and a document are asked about.
static enum status check_reranker(struct model_opening *opening)
{
	struct gguf_text template, label;
	uint64_t first = 0;
	const char *labels = model_key(opening, "classifier.output_labels");
	if (opening->shape->family != FAMILY_QWEN3)
		return model_not_computed(opening, "a ranking of texts as its output (a reranker)");
	if (gguf_next_text(opening->gguf, labels, &first, &label) && !model_text_is(&label, "yes"))
		return model_not_computed(opening, "a classifier whose first class is not \"yes\"");
	if (gguf_get_text(opening->gguf, MODEL_PAIR_TEMPLATE, &template) && template.length <= MODEL_PAIR_BYTES &&
	    text_has_one(&template, "{query}") && text_has_one(&template, "{document}"))
		return STATUS_OK;
	error_set(opening->error, STATUS_UNAVAILABLE,
		  "the reranker's file does not say how it is asked about a query and a document (%s)",
		  MODEL_PAIR_TEMPLATE);
	error_hint(opening->error, "take a file that llama.cpp's converter of 2025-09 or later has made");
	return STATUS_UNAVAILABLE;
}

enum status model_read_pooling(struct model_opening *opening)
{
	uint64_t pooling = 0;
	if (!gguf_get_count(opening->gguf, model_key(opening, "pooling_type"), &pooling) && is_cross_encoder(opening))
		pooling = POOLING_RANK;
	if (pooling > POOLING_RANK)
		return model_not_computed(opening, "embeddings of another kind than the mean, the first or the last "
						   "token's");
	opening->shape->pooling = (enum model_pooling)pooling;
	return pooling == POOLING_RANK && !opening->architecture->encoder ? check_reranker(opening) : STATUS_OK;
}

// The ends of an encoder, as far as the tensors of the file show them.
enum status model_read_ends(struct model_opening *opening)
{
	enum { TYPES_MOST = 16 };
	struct model_shape *shape = opening->shape;
	const struct gguf_tensor *types = gguf_find(opening->gguf, "token_types.weight"),
				 *score = gguf_find(opening->gguf, "cls.output.weight");
	uint64_t separator = UINT32_MAX;
	if (!opening->architecture->encoder)
		return STATUS_OK;
	if (types && (!types->size[1] || types->size[1] > TYPES_MOST))
		return error_set(opening->error, STATUS_INVALID_PARAMS,
				 "token_types.weight has %" PRIu64 " rows, not 1 to %d", types->size[1], TYPES_MOST);
	shape->types = types ? (uint32_t)types->size[1] : 0;
	gguf_get_count(opening->gguf, "tokenizer.ggml.seperator_token_id", &separator);
	shape->separator = separator < UINT32_MAX ? (uint32_t)separator : UINT32_MAX;
	if (shape->pooling != POOLING_RANK)
		return STATUS_OK;
	if (score && score->size[1] != 1)
		return model_not_computed(opening, "a classifier of several classes (cls.output.weight)");
	// Every published reranker has this layer. llama.cpp's converter drops the pooler of
	// BertForSequenceClassification, as of ms-marco-MiniLM.
	shape->head = gguf_find(opening->gguf, "cls.weight");
	if (shape->head)
		return STATUS_OK;
	error_set(
		opening->error, STATUS_UNAVAILABLE,
		"the reranker lacks the layer before its classifier (cls.weight): its scores would not be the model's");
	error_hint(opening->error,
		   "llama.cpp's converter leaves out the pooler of BERT's rerankers (ms-marco and others); take one of "
		   "XLM-RoBERTa, such as bge-reranker-v2-m3, or a file that has the layer as cls.weight and cls.bias");
	return STATUS_UNAVAILABLE;
}
