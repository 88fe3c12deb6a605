/* See stage_classifier.h. */
#include "engine/stage_classifier.h"

#include <math.h>
#include <stdlib.h>

struct stage_classifier {
	uint32_t width;
	float *head, *head_bias;   // (width, width), (width); NULL: there is no such layer
	float *score, *score_bias; // (1, width), (1); of a language model (2, width) for yes and no, NULL
	uint64_t bytes;
};

static enum status load(struct stage_classifier *classifier, const struct stage_params *params, enum model_role role,
			float **out, struct error *error)
{
	struct model_tensor tensor;
	if (!model_has_role(params->shape, role))
		return STATUS_OK;
	enum status status = params->tensor(params->context, role, 0, &tensor, error);
	if (status)
		return status;
	const uint64_t row_bytes = tensor.bytes / tensor.rows;
	*out = calloc((size_t)tensor.rows * tensor.columns, sizeof(float));
	if (!*out)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a classifier of %u rows", tensor.rows);
	for (uint32_t row = 0; row < tensor.rows; row++)
		format_decode(tensor.format, tensor.data + row * row_bytes, *out + (size_t)row * tensor.columns,
			      tensor.columns);
	classifier->bytes += (uint64_t)tensor.rows * tensor.columns * sizeof(float);
	return STATUS_OK;
}

enum status stage_classifier_create(struct stage_classifier **out, const struct stage_params *params,
				    struct error *error)
{
	*out = NULL;
	if (!params->predicts || params->shape->pooling != POOLING_RANK)
		return STATUS_OK;
	struct stage_classifier *classifier = calloc(1, sizeof(*classifier));
	if (!classifier)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a classifier");
	classifier->width = params->shape->embedding;
	enum status status = load(classifier, params, ROLE_HEAD, &classifier->head, error);
	if (!status)
		status = load(classifier, params, ROLE_HEAD_BIAS, &classifier->head_bias, error);
	if (!status)
		status = load(classifier, params, ROLE_SCORE, &classifier->score, error);
	if (!status)
		status = load(classifier, params, ROLE_SCORE_BIAS, &classifier->score_bias, error);
	if (status)
		stage_classifier_destroy(&classifier);
	*out = classifier;
	return status;
}

void stage_classifier_destroy(struct stage_classifier **classifier_pointer)
{
	struct stage_classifier *classifier = *classifier_pointer;
	if (!classifier)
		return;
	free(classifier->head);
	free(classifier->head_bias);
	free(classifier->score);
	free(classifier->score_bias);
	free(classifier);
	*classifier_pointer = NULL;
}

uint64_t stage_classifier_bytes(const struct stage_classifier *classifier)
{
	return classifier->bytes;
}

static double product(const float *row, const float *x, uint32_t n)
{
	double sum = 0;
	for (uint32_t i = 0; i < n; i++)
		sum += (double)row[i] * (double)x[i];
	return sum;
}

float stage_classifier_score(const struct stage_classifier *classifier, const float *x)
{
	const uint32_t n = classifier->width;
	if (!classifier->head)
		return (float)(product(classifier->score, x, n) - product(classifier->score + n, x, n));
	double score = (double)classifier->score_bias[0];
	for (uint32_t i = 0; i < n; i++)
		score += (double)classifier->score[i] *
			 tanh(product(classifier->head + (size_t)i * n, x, n) + (double)classifier->head_bias[i]);
	return (float)score;
}
