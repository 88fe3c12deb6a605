/* See stage_encoder.h. Tables stay in the format of the file; a row is decoded when it is looked up. */
#include "engine/stage_encoder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct table {
	enum tensor_format format;
	uint32_t rows, columns;
	uint8_t *bytes;
};

struct stage_encoder {
	const struct model_shape *shape;
	bool embeds, predicts;
	struct table tokens, positions, types;
	struct table norm, norm_bias; // F32, of one row
	float *input, *output;        // (batch_rows, embedding)
	float *row;                   // (embedding)
	uint64_t bytes;
};

static enum status load(struct stage_encoder *encoder, const struct stage_params *params, enum model_role role,
			struct table *out, struct error *error)
{
	struct model_tensor tensor;
	if (!model_has_role(params->shape, role))
		return STATUS_OK;
	enum status status = params->tensor(params->context, role, 0, &tensor, error);
	if (status)
		return status;
	*out = (struct table){
		.format = tensor.format, .rows = tensor.rows, .columns = tensor.columns, .bytes = malloc(tensor.bytes)};
	if (!out->bytes)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a table of %llu bytes",
				 (unsigned long long)tensor.bytes);
	memcpy(out->bytes, tensor.data, tensor.bytes);
	encoder->bytes += tensor.bytes;
	return STATUS_OK;
}

enum status stage_encoder_create(struct stage_encoder **out, const struct stage_params *params, struct error *error)
{
	struct stage_encoder *encoder = calloc(1, sizeof(*encoder));
	*out = NULL;
	if (!encoder)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for an encoder");
	const struct {
		enum model_role role;
		struct table *table;
	} tables[] = {
		{ROLE_TOKEN_EMBEDDING, &encoder->tokens},
		{ROLE_POSITIONS, &encoder->positions},
		{ROLE_TYPES, &encoder->types},
		{ROLE_EMBEDDING_NORM, &encoder->norm},
		{ROLE_EMBEDDING_BIAS, &encoder->norm_bias},
	};
	const size_t numbers = (size_t)params->batch_rows * params->shape->embedding;
	enum status status = STATUS_OK;
	encoder->shape = params->shape;
	encoder->embeds = params->embeds;
	encoder->predicts = params->predicts;
	encoder->row = calloc(params->shape->embedding, sizeof(float));
	encoder->input = params->embeds ? calloc(numbers, sizeof(float)) : NULL;
	encoder->output = params->predicts ? calloc(numbers, sizeof(float)) : NULL;
	if (!encoder->row || (params->embeds && !encoder->input) || (params->predicts && !encoder->output))
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the rows of an encoder");
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]) && !status; i++)
		if (params->embeds)
			status = load(encoder, params, tables[i].role, tables[i].table, error);
	if (status)
		stage_encoder_destroy(&encoder);
	*out = encoder;
	return status;
}

void stage_encoder_destroy(struct stage_encoder **encoder_pointer)
{
	struct stage_encoder *encoder = *encoder_pointer;
	if (!encoder)
		return;
	struct table *tables[] = {&encoder->tokens, &encoder->positions, &encoder->types, &encoder->norm,
				  &encoder->norm_bias};
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		free(tables[i]->bytes);
	free(encoder->input);
	free(encoder->output);
	free(encoder->row);
	free(encoder);
	*encoder_pointer = NULL;
}

uint64_t stage_encoder_bytes(const struct stage_encoder *encoder)
{
	return encoder->bytes;
}

static void row_of(const struct table *table, uint32_t row, float *out)
{
	format_decode(table->format, table->bytes + row * format_row_bytes(table->format, table->columns), out,
		      table->columns);
}

// A row of a table is added to x; nothing without the table.
static void add_row(const struct stage_encoder *encoder, const struct table *table, uint32_t row, float *x)
{
	if (!table->bytes)
		return;
	row_of(table, row, encoder->row);
	for (uint32_t i = 0; i < table->columns; i++)
		x[i] += encoder->row[i];
}

static float vector_at(const struct table *vector, uint32_t i)
{
	float value;
	memcpy(&value, vector->bytes + i * sizeof(value), sizeof(value));
	return value;
}

// x = (x - its mean) / its deviation * weights + bias.
static void norm(const struct stage_encoder *encoder, float *x)
{
	const uint32_t n = encoder->shape->embedding;
	double mean = 0, square = 0;
	for (uint32_t i = 0; i < n; i++)
		mean += (double)x[i] / n;
	for (uint32_t i = 0; i < n; i++)
		square += ((double)x[i] - mean) * ((double)x[i] - mean) / n;
	const double by = 1 / sqrt(square + (double)encoder->shape->norm_epsilon);
	for (uint32_t i = 0; i < n; i++)
		x[i] = (float)(((double)x[i] - mean) * by) * vector_at(&encoder->norm, i) +
		       vector_at(&encoder->norm_bias, i);
}

static void embed(struct stage_encoder *encoder, const struct stage_batch *batch)
{
	const struct model_shape *shape = encoder->shape;
	uint32_t row = 0;
	for (uint32_t i = 0; i < batch->run_count; i++) {
		bool behind = false; // the first separator of a pair
		for (uint32_t k = 0; k < batch->runs[i].row_count; k++, row++) {
			float *x = encoder->input + (size_t)row * shape->embedding;
			const uint32_t token = batch->tokens[row];
			row_of(&encoder->tokens, token, x);
			add_row(encoder, &encoder->types, behind && shape->types > 1, x);
			add_row(encoder, &encoder->positions, batch->runs[i].position + k, x);
			norm(encoder, x);
			behind = behind || (shape->pooling == POOLING_RANK && token == shape->separator);
		}
	}
}

void stage_encoder_begin(struct stage_encoder *encoder, const struct stage_batch *batch, struct stage_batch *inner)
{
	*inner = (struct stage_batch){.row_count = batch->row_count,
				      .runs = batch->runs,
				      .run_count = batch->run_count,
				      .input = batch->input,
				      .output = batch->output};
	if (encoder->embeds) {
		embed(encoder, batch);
		inner->input = encoder->input;
	}
	if (encoder->predicts)
		inner->output = encoder->output;
}

// An encoder has no logits. A caller that asks for logits, to measure or check a device, gets values that say whether
// the numbers are finite.
static void pretend(const struct stage_encoder *encoder, const struct stage_batch *batch, uint32_t output,
		    const float *x)
{
	const uint32_t vocabulary = encoder->shape->vocabulary;
	bool finite = true;
	for (uint32_t i = 0; i < encoder->shape->embedding; i++)
		finite = finite && isfinite(x[i]);
	if (batch->argmax)
		batch->argmax[output] = finite ? 0 : STAGE_NO_TOKEN;
	if (!batch->logits)
		return;
	memset(batch->logits + (size_t)output * vocabulary, 0, vocabulary * sizeof(float));
	batch->logits[(size_t)output * vocabulary] = finite ? x[0] : NAN;
}

void stage_encoder_end(const struct stage_encoder *encoder, const struct stage_batch *batch)
{
	const size_t n = encoder->shape->embedding;
	for (uint32_t i = 0; encoder->predicts && i < batch->output_count; i++) {
		const float *x = encoder->output + batch->output_rows[i] * n;
		if (batch->hidden)
			memcpy(batch->hidden + i * n, x, n * sizeof(*x));
		if (batch->argmax || batch->logits)
			pretend(encoder, batch, i, x);
	}
}
