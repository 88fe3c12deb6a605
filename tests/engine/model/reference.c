/* See reference.h. It reads top to bottom: a layer is attention and then the feed-forward, each on the norm of what has
 * been added up so far, and each added to it. */
#include "tests/engine/model/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reference {
	const struct model *model;
	const struct model_shape *shape;
	float *outer[ROLE_OUTPUT + 1];
	float *(*layers)[ROLE_COUNT]; // (shape->layers); NULL where there is no such tensor
};

static void *must_alloc(size_t count, size_t size)
{
	void *memory = calloc(count ? count : 1, size);
	if (!memory)
		abort();
	return memory;
}

static double *doubles(size_t rows, size_t columns)
{
	return must_alloc(rows * columns, sizeof(double));
}

static float *decode(const struct model *model, enum model_role role, uint32_t layer)
{
	struct model_tensor tensor;
	if (!model_tensor(model, role, layer, &tensor))
		return NULL;
	float *values = must_alloc((size_t)tensor.rows * tensor.columns, sizeof(float));
	for (uint32_t row = 0; row < tensor.rows; row++)
		format_decode(tensor.format, tensor.data + row * (tensor.bytes / tensor.rows),
			      values + (size_t)row * tensor.columns, tensor.columns);
	return values;
}

struct reference *reference_create(const struct model *model)
{
	struct reference *reference = must_alloc(1, sizeof(*reference));
	reference->model = model;
	reference->shape = model_shape(model);
	reference->layers = must_alloc(reference->shape->layers, sizeof(*reference->layers));
	for (enum model_role role = ROLE_TOKEN_EMBEDDING; role <= ROLE_OUTPUT; role++)
		reference->outer[role] = decode(model, role, 0);
	for (uint32_t layer = 0; layer < reference->shape->layers; layer++)
		for (enum model_role role = ROLE_ATTENTION_NORM; role < ROLE_COUNT; role++)
			reference->layers[layer][role] = decode(model, role, layer);
	return reference;
}

void reference_destroy(struct reference **reference_pointer)
{
	struct reference *reference = *reference_pointer;
	if (!reference)
		return;
	for (enum model_role role = 0; role <= ROLE_OUTPUT; role++)
		free(reference->outer[role]);
	for (uint32_t layer = 0; layer < reference->shape->layers; layer++)
		for (enum model_role role = 0; role < ROLE_COUNT; role++)
			free(reference->layers[layer][role]);
	free(reference->layers);
	free(reference);
	*reference_pointer = NULL;
}

// ---- what a back end may round ----

// To 11 significant bits.
static double round_11(double value)
{
	int exponent;
	double fraction = frexp(value, &exponent);
	return ldexp(rint(ldexp(fraction, 11)), exponent - 11);
}

static void round_input(enum reference_rounding rounding, double *values, size_t count)
{
	if (rounding == REFERENCE_F16)
		for (size_t i = 0; i < count; i++)
			values[i] = round_11(values[i]);
	if (rounding != REFERENCE_BLOCKS)
		return;
	for (size_t from = 0; from < count; from += 32) {
		size_t to = from + 32 < count ? from + 32 : count;
		double most = 0;
		for (size_t i = from; i < to; i++)
			most = fmax(most, fabs(values[i]));
		double step = most > 0 ? most / 32767 : 1;
		for (size_t i = from; i < to; i++)
			values[i] = rint(values[i] / step) * step;
	}
}

static void round_stored(enum reference_rounding rounding, double *values, size_t count)
{
	for (size_t i = 0; rounding && i < count; i++)
		values[i] = (double)f16_to_f32(f32_to_f16((float)values[i]));
}

// ---- operations ----

// out (rows of W) = W (rows, columns) x (columns)
static void multiply(double *out, const float *w, const double *x, size_t rows, size_t columns)
{
	for (size_t row = 0; row < rows; row++, w += columns) {
		double a = 0, b = 0, c = 0, d = 0; // side by side, which is faster
		size_t i = 0;
		for (; i + 4 <= columns; i += 4) {
			a += (double)w[i] * x[i];
			b += (double)w[i + 1] * x[i + 1];
			c += (double)w[i + 2] * x[i + 2];
			d += (double)w[i + 3] * x[i + 3];
		}
		for (; i < columns; i++)
			a += (double)w[i] * x[i];
		out[row] = a + b + c + d;
	}
}

static void norm(double *out, const double *x, const float *weight, size_t count, double epsilon)
{
	double squares = 0;
	for (size_t i = 0; i < count; i++)
		squares += x[i] * x[i];
	double scale = 1 / sqrt(squares / (double)count + epsilon);
	for (size_t i = 0; i < count; i++)
		out[i] = x[i] * scale * (double)weight[i];
}

static void turn(const struct model_shape *shape, double *head, uint32_t position)
{
	uint32_t pairs = shape->rope_size / 2;
	for (uint32_t i = 0; i < pairs; i++) {
		double *a = shape->rope_halves ? &head[i] : &head[2 * i];
		double *b = shape->rope_halves ? &head[i + pairs] : &head[2 * i + 1];
		double angle = position * shape->rope_frequency[i], size = (double)shape->rope_magnitude;
		double cosine = cos(angle) * size, sine = sin(angle) * size, before = *a;
		*a = before * cosine - *b * sine;
		*b = before * sine + *b * cosine;
	}
}

// What a layer works on, for all rows.
struct work {
	const struct reference_run *run;
	struct reference_result *result;
	double *x;         // (count, embedding)
	double *q;         // (count, heads, head_size)
	double *k, *v;     // (count, kv_heads, head_size)
	double *normed;    // (embedding)
	double *mixed;     // (heads, head_size)
	double *scores;    // (count)
	double *gate, *up; // (feed_forward), or (expert_width)
	double *added;     // (embedding)
	double *experts;   // (experts): scores
};

static void project(const struct reference *reference, uint32_t layer, struct work *work, uint32_t row)
{
	const struct model_shape *shape = reference->shape;
	float *const *w = reference->layers[layer];
	size_t size = shape->head_size, q_count = shape->heads * size, kv_count = shape->kv_heads * size;
	double *q = work->q + row * q_count, *k = work->k + row * kv_count, *v = work->v + row * kv_count;
	norm(work->normed, work->x + (size_t)row * shape->embedding, w[ROLE_ATTENTION_NORM], shape->embedding,
	     (double)shape->norm_epsilon);
	round_input(work->run->rounding, work->normed, shape->embedding);
	multiply(q, w[ROLE_Q], work->normed, q_count, shape->embedding);
	multiply(k, w[ROLE_K], work->normed, kv_count, shape->embedding);
	multiply(v, w[ROLE_V], work->normed, kv_count, shape->embedding);
	for (size_t i = 0; shape->qkv_bias && i < q_count; i++)
		q[i] += (double)w[ROLE_Q_BIAS][i];
	for (size_t i = 0; shape->qkv_bias && i < kv_count; i++) {
		k[i] += (double)w[ROLE_K_BIAS][i];
		v[i] += (double)w[ROLE_V_BIAS][i];
	}
	for (uint32_t head = 0; head < shape->heads; head++) {
		if (shape->qk_norm)
			norm(q + head * size, q + head * size, w[ROLE_Q_NORM], size, (double)shape->norm_epsilon);
		turn(shape, q + head * size, row);
		round_input(work->run->rounding, q + head * size, size);
	}
	for (uint32_t head = 0; head < shape->kv_heads; head++) {
		if (shape->qk_norm)
			norm(k + head * size, k + head * size, w[ROLE_K_NORM], size, (double)shape->norm_epsilon);
		turn(shape, k + head * size, row);
	}
	round_stored(work->run->rounding, k, kv_count);
	round_stored(work->run->rounding, v, kv_count);
	if (row < work->run->zero_before) {
		memset(k, 0, kv_count * sizeof(*k));
		memset(v, 0, kv_count * sizeof(*v));
	}
}

// One head's mean of the values up to this row, weighted by how well their keys fit its query.
static void attend(const struct model_shape *shape, struct work *work, uint32_t row, uint32_t head)
{
	size_t size = shape->head_size, kv_count = shape->kv_heads * size;
	size_t kv_head = head / (shape->heads / shape->kv_heads);
	const double *q = work->q + ((size_t)row * shape->heads + head) * size;
	double most = -INFINITY, sum = 0;
	for (uint32_t at = 0; at <= row; at++) {
		const double *k = work->k + at * kv_count + kv_head * size;
		double score = 0;
		for (size_t i = 0; i < size; i++)
			score += q[i] * k[i];
		work->scores[at] = score / sqrt((double)size);
		most = fmax(most, work->scores[at]);
	}
	for (uint32_t at = 0; at <= row; at++)
		sum += work->scores[at] = exp(work->scores[at] - most);
	round_input(work->run->rounding, work->scores, row + 1);
	double *out = work->mixed + head * size;
	memset(out, 0, size * sizeof(*out));
	for (uint32_t at = 0; at <= row; at++)
		for (size_t i = 0; i < size; i++)
			out[i] += work->scores[at] / sum * work->v[at * kv_count + kv_head * size + i];
}

// x += by * the network of these matrices, `width` wide.
static void add_network(const struct model_shape *shape, struct work *work, const float *const matrices[3],
			uint32_t width, double by, double *x)
{
	multiply(work->gate, matrices[0], work->normed, width, shape->embedding);
	multiply(work->up, matrices[1], work->normed, width, shape->embedding);
	for (uint32_t i = 0; i < width; i++)
		work->gate[i] = work->gate[i] / (1 + exp(-work->gate[i])) * work->up[i];
	round_input(work->run->rounding, work->gate, width);
	multiply(work->added, matrices[2], work->gate, shape->embedding, width);
	for (uint32_t i = 0; i < shape->embedding; i++)
		x[i] += by * work->added[i];
}

static double spread_of(const double *values, uint32_t count)
{
	double mean = 0, squares = 0;
	for (uint32_t i = 0; i < count; i++)
		mean += values[i] / count;
	for (uint32_t i = 0; i < count; i++)
		squares += (values[i] - mean) * (values[i] - mean);
	return sqrt(squares / count);
}

// last: the least score that was chosen; those that were chosen are gone from the scores.
static void note_gap(const struct model_shape *shape, struct work *work, uint32_t row, double last, double spread)
{
	double next = -INFINITY;
	for (uint32_t e = 0; e < shape->experts; e++)
		next = fmax(next, work->experts[e]);
	if (row < work->run->zero_before || !((last - next) / spread < work->result->least_gap))
		return;
	work->result->least_gap = (last - next) / spread;
	work->result->gap_row = row;
}

// The experts with the largest scores, each by its part of the softmax.
static void add_experts(const struct model_shape *shape, struct work *work, float *const *w, uint32_t row, double *x)
{
	const size_t of_expert = (size_t)shape->expert_width * shape->embedding;
	double most = -INFINITY, all = 0, chosen = 0, weights[LIMIT_MODEL_EXPERTS_USED];
	uint32_t numbers[LIMIT_MODEL_EXPERTS_USED];
	multiply(work->experts, w[ROLE_ROUTER], work->normed, shape->experts, shape->embedding);
	for (uint32_t e = 0; e < shape->experts; e++)
		most = fmax(most, work->experts[e]);
	for (uint32_t e = 0; e < shape->experts; e++)
		all += exp(work->experts[e] - most);
	const double spread = spread_of(work->experts, shape->experts);
	double last = most;
	for (uint32_t k = 0; k < shape->experts_used; k++) {
		uint32_t best = 0;
		for (uint32_t e = 1; e < shape->experts; e++)
			best = work->experts[e] > work->experts[best] ? e : best;
		const double score = work->experts[best];
		numbers[k] = best;
		weights[k] = exp(work->experts[best] - most);
		chosen += weights[k];
		work->experts[best] = -INFINITY;
		last = score;
	}
	note_gap(shape, work, row, last, spread);
	for (uint32_t k = 0; k < shape->experts_used; k++) {
		const size_t at = numbers[k] * of_expert;
		const float *const matrices[] = {w[ROLE_EXPERT_GATE] + at, w[ROLE_EXPERT_UP] + at,
						 w[ROLE_EXPERT_DOWN] + at};
		add_network(shape, work, matrices, shape->expert_width,
			    weights[k] / (shape->expert_share ? all : chosen), x);
	}
}

static void feed_forward(const struct reference *reference, uint32_t layer, struct work *work, uint32_t row, double *x)
{
	const struct model_shape *shape = reference->shape;
	float *const *w = reference->layers[layer];
	const float *const matrices[] = {w[ROLE_FFN_GATE], w[ROLE_FFN_UP], w[ROLE_FFN_DOWN]};
	double by = 1, score;
	norm(work->normed, x, w[ROLE_FFN_NORM], shape->embedding, (double)shape->norm_epsilon);
	round_input(work->run->rounding, work->normed, shape->embedding);
	if (shape->shared_gate) {
		multiply(&score, w[ROLE_SHARED_GATE], work->normed, 1, shape->embedding);
		by = 1 / (1 + exp(-score));
	}
	if (shape->feed_forward)
		add_network(shape, work, matrices, shape->feed_forward, by, x);
	if (shape->experts)
		add_experts(shape, work, w, row, x);
}

static void run_layer(const struct reference *reference, uint32_t layer, struct work *work)
{
	const struct model_shape *shape = reference->shape;
	for (uint32_t row = 0; row < work->run->count; row++)
		project(reference, layer, work, row);
	for (uint32_t row = 0; row < work->run->count; row++) {
		double *x = work->x + (size_t)row * shape->embedding;
		for (uint32_t head = 0; head < shape->heads; head++)
			attend(shape, work, row, head);
		size_t count = (size_t)shape->heads * shape->head_size;
		round_input(work->run->rounding, work->mixed, count);
		multiply(work->added, reference->layers[layer][ROLE_ATTENTION_OUTPUT], work->mixed, shape->embedding,
			 count);
		for (uint32_t i = 0; i < shape->embedding; i++)
			x[i] += work->added[i];
		feed_forward(reference, layer, work, row, x);
	}
}

static void predict(const struct reference *reference, const struct reference_run *run, struct reference_result *result)
{
	const struct model_shape *shape = reference->shape;
	double *input = doubles(1, shape->embedding);
	for (uint32_t row = 0; row < run->count; row++) {
		double *hidden = result->hidden + (size_t)row * shape->embedding;
		norm(hidden, result->activations + (size_t)row * shape->embedding, reference->outer[ROLE_OUTPUT_NORM],
		     shape->embedding, (double)shape->norm_epsilon);
		memcpy(input, hidden, shape->embedding * sizeof(*input));
		round_input(run->rounding, input, shape->embedding);
		multiply(result->logits + (size_t)row * shape->vocabulary, reference->outer[ROLE_OUTPUT], input,
			 shape->vocabulary, shape->embedding);
	}
	free(input);
}

void reference_run(const struct reference *reference, const struct reference_run *run, struct reference_result *result)
{
	const struct model_shape *shape = reference->shape;
	size_t q_count = (size_t)shape->heads * shape->head_size, kv_count = (size_t)shape->kv_heads * shape->head_size;
	*result = (struct reference_result){
		.count = run->count,
		.activations = doubles(run->count, shape->embedding),
		.hidden = doubles(run->count, shape->embedding),
		.logits = doubles(run->count, shape->vocabulary),
		.least_gap = INFINITY,
	};
	struct work work = {
		.run = run,
		.result = result,
		.x = result->activations,
		.q = doubles(run->count, q_count),
		.k = doubles(run->count, kv_count),
		.v = doubles(run->count, kv_count),
		.normed = doubles(1, shape->embedding),
		.mixed = doubles(1, q_count),
		.scores = doubles(1, run->count),
		.gate = doubles(1, (size_t)shape->feed_forward + shape->expert_width),
		.up = doubles(1, (size_t)shape->feed_forward + shape->expert_width),
		.experts = doubles(1, shape->experts),
		.added = doubles(1, shape->embedding),
	};
	for (uint32_t row = 0; row < run->count; row++)
		for (uint32_t i = 0; i < shape->embedding; i++)
			work.x[(size_t)row * shape->embedding + i] =
				(double)reference
					->outer[ROLE_TOKEN_EMBEDDING][(size_t)run->tokens[row] * shape->embedding + i];
	for (uint32_t layer = 0; layer < (run->layers ? run->layers : shape->layers); layer++)
		run_layer(reference, layer, &work);
	predict(reference, run, result);
	free(work.q);
	free(work.k);
	free(work.v);
	free(work.normed);
	free(work.mixed);
	free(work.scores);
	free(work.gate);
	free(work.up);
	free(work.added);
	free(work.experts);
}

void reference_result_finish(struct reference_result *result)
{
	free(result->activations);
	free(result->hidden);
	free(result->logits);
	*result = (struct reference_result){.count = 0};
}
