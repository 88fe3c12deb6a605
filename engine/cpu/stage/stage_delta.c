/* The CPU back end: layers with a gated delta rule or a short convolution, which have a state instead of keys and
 * values (model.h).
 *
 * A layer goes through three phases: products of the norm's rows; the convolution, which mixes each channel with the
 * rows before it; and the heads, which take a run's rows one after another. A run's state contains what its first rows
 * need of the rows before them, so the result does not depend on how a text is cut. Thread: the device's. */
#include "engine/cpu/stage/stage.h"
#include "engine/cpu/team.h"

#include <math.h>
#include <string.h>

enum { CHANNELS = 64 }; // of a piece of the convolution

static uint32_t channel_pieces(const struct model_delta *sizes)
{
	return (model_delta_channels(sizes) + CHANNELS - 1) / CHANNELS;
}

// The state of this layer in a slot.
static float *state_at(const struct step *step, uint32_t slot)
{
	const struct backend_stage *stage = step->stage;
	const struct stage_params *params = &stage->params;
	const uint64_t layers = model_delta_layers(stage->shape, params->first_layer, params->layer_count);
	const uint64_t at = ((slot - 1) * layers + step->layer->delta.index) * stage_state_bytes(stage->shape);
	return (float *)(void *)(stage->states->data + at);
}

// Some channels of a run: silu of the sum of the last `kernel` rows, each by a weight of the channel's own.
static void convolve_piece(void *context, uint64_t index)
{
	const struct step *step = context;
	const struct backend_stage *stage = step->stage;
	const struct model_delta *sizes = &stage->shape->delta;
	const uint32_t pieces = channel_pieces(sizes), all = model_delta_channels(sizes), before = sizes->kernel - 1;
	const struct stage_run *run = &step->batch->runs[index / pieces];
	const uint32_t first = (uint32_t)(index % pieces) * CHANNELS;
	const uint32_t count = all - first < CHANNELS ? all - first : CHANNELS;
	const size_t at = (size_t)stage->delta.run_rows[index / pieces] * all;
	const float *rows = stage->delta.channels + at,
		    *from = run->state_from ? state_at(step, run->state_from) : NULL;
	float *mixed = stage->delta.mixed + at, *to = state_at(step, run->state_to);
	for (uint32_t channel = first; channel < first + count; channel++) {
		const float *weights = step->layer->delta.conv + (size_t)channel * sizes->kernel;
		float last[MODEL_KERNEL_MOST]; // the rows that the weights are for
		for (uint32_t i = 0; i < before; i++)
			last[i] = from ? from[(size_t)i * all + channel] : 0;
		for (uint32_t row = 0; row < run->row_count; row++) {
			float sum = 0;
			last[before] = rows[(size_t)row * all + channel];
			for (uint32_t i = 0; i <= before; i++)
				sum += weights[i] * last[i];
			mixed[(size_t)row * all + channel] = sum / (1 + expf(-sum));
			memmove(last, last + 1, before * sizeof(*last));
		}
		for (uint32_t i = 0; i < before; i++)
			to[(size_t)i * all + channel] = last[i];
	}
}

// Some channels of a run of short convolutions: c times the sum of the last rows of b * x.
static void shorten_piece(void *context, uint64_t index)
{
	const struct step *step = context;
	const struct backend_stage *stage = step->stage;
	const struct model_delta *sizes = &stage->shape->delta;
	const uint32_t pieces = channel_pieces(sizes), all = model_delta_channels(sizes), before = sizes->kernel - 1;
	const struct stage_run *run = &step->batch->runs[index / pieces];
	const uint32_t first = (uint32_t)(index % pieces) * CHANNELS;
	const uint32_t end = all - first < CHANNELS ? all : first + CHANNELS;
	const size_t top = stage->delta.run_rows[index / pieces], padded = stage_padded(all);
	const float *from = run->state_from ? state_at(step, run->state_from) : NULL;
	float *to = state_at(step, run->state_to);
	for (uint32_t channel = first; channel < end; channel++) {
		const float *weights = step->layer->delta.conv + (size_t)channel * sizes->kernel;
		float last[MODEL_KERNEL_MOST];
		for (uint32_t i = 0; i < before; i++)
			last[i] = from ? from[(size_t)i * all + channel] : 0;
		for (size_t row = top; row < top + run->row_count; row++) {
			const size_t at = row * all + channel;
			float sum = 0;
			last[before] = stage->delta.beta[at] * stage->delta.channels[at];
			for (uint32_t i = 0; i <= before; i++)
				sum += weights[i] * last[i];
			stage->delta.out[row * padded + channel] = stage->delta.gate[at] * sum;
			memmove(last, last + 1, before * sizeof(*last));
		}
		for (uint32_t i = 0; i < before; i++)
			to[(size_t)i * all + channel] = last[i];
	}
}

// `from` at a length of 1 times `scale`, and not beyond that where it is next to nothing.
static void to_length(float *to, const float *from, uint32_t n, float scale)
{
	const double least = 1e-6; // added to the square
	double squares = 0;
	for (uint32_t i = 0; i < n; i++)
		squares += (double)from[i] * (double)from[i];
	const float by = (float)((double)scale / sqrt(squares + least));
	for (uint32_t i = 0; i < n; i++)
		to[i] = from[i] * by;
}

// log(1 + e to the x)
static float softplus(float x)
{
	return x > 20 ? x : log1pf(expf(x));
}

// Where a head's queries and keys are, among those of the key heads.
static uint32_t key_head_of(const struct model_delta *sizes, uint32_t head)
{
	return sizes->grouped ? head / (sizes->heads / sizes->key_heads) : head % sizes->key_heads;
}

// A row's beta and alpha of a head (struct model_delta).
static void scores_of(const struct backend_stage *stage, size_t row, uint32_t head, float *beta, float *alpha)
{
	const struct model_delta *sizes = &stage->shape->delta;
	const float *betas = stage->delta.beta + row * model_delta_betas(sizes);
	const uint32_t each = sizes->heads / sizes->key_heads;
	*beta = betas[sizes->grouped ? head + head / each * each : head];
	*alpha = sizes->grouped ? betas[head + (head / each + 1) * each]
				: stage->delta.alpha[row * sizes->heads + head];
}

// A head of a run, its rows one after another.
static void head_piece(void *context, uint64_t index)
{
	const struct step *step = context;
	const struct backend_stage *stage = step->stage;
	const struct model_delta *sizes = &stage->shape->delta;
	const struct stage_delta_layer *layer = &step->layer->delta;
	const uint32_t head = (uint32_t)(index % sizes->heads), keys = sizes->key_size, values = sizes->value_size;
	const struct stage_run *run = &step->batch->runs[index / sizes->heads];
	const size_t channels = model_delta_channels(sizes), of_keys = (size_t)sizes->key_heads * keys;
	const size_t state = (sizes->kernel - 1) * channels + (size_t)head * keys * values;
	const size_t out_stride = stage_padded(sizes->heads * values);
	const size_t at = key_head_of(sizes, head) * (size_t)keys, value_at = (size_t)head * values;
	float query[LIMIT_MODEL_HEAD_SIZE], key[LIMIT_MODEL_HEAD_SIZE], *to = state_at(step, run->state_to) + state;
	if (!run->state_from)
		memset(to, 0, (size_t)keys * values * sizeof(*to));
	else if (run->state_from != run->state_to)
		memcpy(to, state_at(step, run->state_from) + state, (size_t)keys * values * sizeof(*to));
	for (size_t row = stage->delta.run_rows[index / sizes->heads], end = row + run->row_count; row < end; row++) {
		const float *mixed = stage->delta.mixed + row * channels;
		const float *gate = stage->delta.gate + (row * sizes->heads + head) * values;
		float beta, alpha;
		scores_of(stage, row, head, &beta, &alpha);
		float *out = stage->delta.out + row * out_stride + value_at;
		to_length(query, mixed + at, keys, 1 / sqrtf((float)keys));
		to_length(key, mixed + of_keys + at, keys, 1);
		stage->kernels->delta(&(struct delta_row){
			.state = to,
			.query = query,
			.key = key,
			.values = mixed + 2 * of_keys + value_at,
			.decay = expf(layer->decay[head] * softplus(alpha + layer->bias[head])),
			.beta = 1 / (1 + expf(-beta)),
			.key_size = keys,
			.value_size = values,
			.out = out,
		});
		cpu_rms_norm(out, out, layer->norm, values, stage->shape->norm_epsilon);
		for (uint32_t i = 0; i < values; i++)
			out[i] *= gate[i] / (1 + expf(-gate[i]));
	}
}

static void groups_piece(void *context, uint64_t row)
{
	const struct step *step = context;
	const struct model_delta *sizes = &step->stage->shape->delta;
	const size_t n = stage_padded(sizes->heads * sizes->value_size);
	cpu_prepare(step->stage, row, step->batch->row_count, step->stage->delta.out + row * n, n);
}

// The norm's rows through the layer's matrices: three, if there is no alpha.
static void multiply_rows(struct step *step)
{
	struct backend_stage *stage = step->stage;
	const struct model_delta *sizes = &stage->shape->delta;
	const struct stage_delta_layer *layer = &step->layer->delta;
	const uint32_t rows = step->batch->row_count;
	const bool alpha = model_has_role(stage->shape, ROLE_DELTA_ALPHA);
	const struct {
		const struct panels *panels;
		float *output;
		uint32_t width;
	} parts[] = {
		{&layer->qkv, stage->delta.channels, model_delta_channels(sizes)},
		{&layer->gate, stage->delta.gate, sizes->heads * sizes->value_size},
		{&layer->beta, stage->delta.beta, model_delta_betas(sizes)},
		{&layer->alpha, stage->delta.alpha, sizes->heads},
	};
	struct products products = {.count = sizeof(parts) / sizeof(*parts) - !alpha};
	_Static_assert(sizeof(parts) / sizeof(*parts) <= PRODUCTS, "a product for each");
	for (unsigned i = 0; i < products.count; i++)
		products.of[i] = (struct product){.panels = parts[i].panels,
						  .values = stage->normed,
						  .groups = stage->groups,
						  .tiles = cpu_tiles(stage, rows),
						  .value_stride = stage_padded(stage->shape->embedding),
						  .rows = rows,
						  .output = parts[i].output,
						  .output_stride = parts[i].width};
	cpu_multiply(step, &products);
}

void cpu_delta_compute(struct step *step, float *sum, bool add)
{
	struct backend_stage *stage = step->stage;
	const struct model_delta *sizes = &stage->shape->delta;
	const struct stage_batch *batch = step->batch;
	const uint32_t rows = batch->row_count;
	for (uint32_t i = 0, row = 0; i < batch->run_count; row += batch->runs[i++].row_count)
		stage->delta.run_rows[i] = row;
	multiply_rows(step);
	const bool is_short = model_delta_is_short(sizes);
	team_run(step->team, is_short ? shorten_piece : convolve_piece, step, batch->run_count * channel_pieces(sizes));
	if (!is_short)
		team_run(step->team, head_piece, step, batch->run_count * sizes->heads);
	team_run(step->team, groups_piece, step, rows);
	cpu_multiply(step, &(struct products){.of = {{.panels = &step->layer->delta.output,
						      .values = stage->delta.out,
						      .groups = stage->groups,
						      .tiles = cpu_tiles(stage, rows),
						      .value_stride = stage_padded(sizes->heads * sizes->value_size),
						      .rows = rows,
						      .output = sum,
						      .output_stride = stage->shape->embedding,
						      .add = add}},
					      .count = 1});
}
