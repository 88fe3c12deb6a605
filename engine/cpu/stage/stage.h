/* The inside of a stage on the processor: what stage.c (making and loading it) and stage_step.c (computing) share.
 *
 * Weights lie in panels (panels.h), in a few large buffers of the device one behind another. Keys and values:
 *
 *     f16 kv[layer][page]: keys[kv_head][head_size][STAGE_PAGE_TOKENS] | values[kv_head][STAGE_PAGE_TOKENS][head_size]
 *
 * so that a lane of a vector is a token where keys are multiplied, and a part of the head where values are added up. Of
 * latents (struct model_latent) a page has only rows: f16 [STAGE_PAGE_TOKENS][head_size].
 * Thread: the device's. */
#pragma once
#include "engine/cpu/device.h"
#include "engine/cpu/stage/stage_kernels.h"
#include "engine/stage.h"

// Attention of a row is cut into so many chunks at most, and only if there are few rows, or rows and heads make fewer
// pieces than this.
enum { STAGE_CHUNKS = 8, STAGE_CUT_ROWS = 16, STAGE_ATTENTION_PIECES = 64 };

// The weights of a layer with a recurrent state (engine/model/model.h, struct model_delta).
struct stage_delta_layer {
	struct panels qkv, gate, beta, alpha, output;
	float *conv;                // (channels, kernel)
	float *decay, *bias, *norm; // (heads), (heads), (value_size)
	uint32_t index;             // among such layers of the stage
};

// The LayerNorm of an encoder: its weights and its bias.
struct encoder_norm {
	float *weights, *bias; // (embedding)
};

struct stage_layer {
	struct panels q, k, v, attention_output, gate, up, down;
	struct panels q_a, *k_b, *v_b; // of latents: (heads) each; NULL without
	struct panels router, shared_gate;
	struct panels *expert_gate, *expert_up, *expert_down; // (experts) each; NULL without
	float *router_choice;                                 // (experts); NULL without
	// NULL where the model has none: (experts), (experts, expert_width), (experts, embedding)
	float *router_bias, *expert_gate_bias, *expert_up_bias, *expert_down_bias;
	// NULL where the model has none
	float *attention_norm, *ffn_norm; // (embedding)
	float *attention_post_norm, *ffn_post_norm;
	float *q_bias, *k_bias, *v_bias; // (heads * head_size), (kv_heads * head_size)
	float *q_norm, *k_norm;          // (head_size), or as q and k
	uint32_t kv_index;               // among the stage's layers that have keys and values
	struct stage_delta_layer delta;  // of a layer with a state
	// The biases of an encoder (gpt-oss has output_bias, too), NULL where the model has none, and its last norms.
	float *output_bias, *up_bias, *down_bias; // (embedding), (feed_forward), (embedding)
	struct encoder_norm attention_end, ffn_end;
	float *sinks; // (heads)
};

// Memory for weights: buffers that are filled one after another.
struct stage_arena {
	struct backend_buffer **buffers; // (buffer_count)
	uint32_t buffer_count;
	uint64_t buffer_used; // of the last one
	uint64_t used;        // of all
};

// The work of one expert: slots from `first` on, of the rows that are computed at a time.
struct stage_job {
	uint32_t expert, first, count;
	uint32_t tile; // where its rows begin in stage_experts' tiles, in 16 rows
};

// Workspace of a mixture of experts. A slot is a row together with one of its experts; slots are sorted by expert.
struct stage_experts {
	uint32_t rows;                // that go through experts at a time: STAGE_EXPERT_ROWS, or fewer
	float *scores, *shared_score; // (batch_rows, experts), (batch_rows)
	uint32_t *chosen;             // (batch_rows, experts_used)
	float *weights;               // the same
	uint32_t *slots;              // (rows, experts_used): the slot of each of a row's experts
	uint32_t *slot_rows;          // (slots)
	float *values;                // (slots, embedding): first the inputs, then the results
	float *gate, *up;             // (slots, expert_width)
	struct stage_group *groups;   // (slots, of the wider row)
	uint8_t *tiles;               // rows of jobs that have enough
	struct stage_job *jobs;       // (experts)
};

// The part of the workspace that layers with a recurrent state use. See stage_delta.c.
struct stage_delta {
	float *channels, *mixed; // (batch_rows, channels): before and after the convolution
	float *gate;             // (batch_rows, heads * value_size)
	float *beta, *alpha;     // (batch_rows, model_delta_betas), (batch_rows, heads)
	float *out;              // (batch_rows, heads * value_size in whole groups)
	uint32_t *run_rows;      // (batch_sequences): first rows of the batch's runs
};

struct backend_stage {
	struct backend_device *device;
	struct stage_params params;
	const struct model_shape *shape;
	const struct stage_kernels *kernels;
	struct stage_layer *layers; // (params.layer_count)
	struct panels embedding, output;
	float *output_norm;
	struct stage_arena arena;
	struct backend_buffer *kv, *workspace;
	struct backend_buffer *states; // f32 state[slot][layer with one]: (stage_state_bytes); NULL: there are none
	// In the workspace. Inputs of products (normed, attended, gate), and q and up, have rows of whole groups of 32,
	// filled up with zeros. The other rows have no gaps.
	float *x, *normed;          // (batch_rows, embedding); x: of slices, the first one's
	float *summand;             // (batch_rows, embedding), for a slice, post_norm or shared_gate: the summand for x
	float *q;                   // (batch_rows, heads * model_query_rows)
	float *attended;            // (batch_rows, model_attended)
	float *query, *head_q;      // of latents: (batch_rows, query_rank), (batch_rows, heads * key_size)
	float *k, *v;               // (batch_rows, kv_heads * head_size)
	float *gate, *up;           // (batch_rows, feed_forward)
	float *logits;              // (batch_outputs, vocabulary)
	float *partial;             // attention's: (batch_rows, chunks, heads, model_value_size + 2)
	struct stage_group *groups; // (batch_rows, of the widest row)
	uint8_t *tiles;             // (batch_rows in whole tiles, of the widest row): stage_amx.h
	uint32_t *row_positions;    // (batch_rows)
	uint32_t *row_ends;         // (batch_rows): behind the last position that it attends to
	uint32_t *row_runs;         // (batch_rows): the run that a row belongs to
	struct stage_experts experts;
	struct stage_delta delta;
	uint32_t *row_groups; // (batch_rows + 1): first rows of the groups whose attention is one piece, and the end
};

static inline uint32_t stage_padded(uint32_t columns)
{
	return (columns + PANEL_GROUP - 1) / PANEL_GROUP * PANEL_GROUP;
}

// row += bias (n), if there is one.
static inline void stage_add_bias(float *row, const float *bias, size_t n)
{
	for (size_t i = 0; bias && i < n; i++)
		row[i] += bias[i];
}

// Applies the model's gate to rows of gate and up; n is a multiple of 16.
static inline void stage_gate(const struct backend_stage *stage, float *gate, const float *up, size_t n)
{
	void (*const of_gate[])(float *gate, const float *up, size_t n) = {[GATE_SILU] = stage->kernels->silu,
									   [GATE_GELU] = stage->kernels->gelu,
									   [GATE_CLAMPED] = stage->kernels->clamped};
	of_gate[stage->shape->gate](gate, up, n);
}

// A step in progress (stage_step.c).
struct step {
	struct backend_stage *stage;
	const struct stage_batch *batch;
	struct team *team;
	const struct stage_layer *layer;
	uint32_t layer_index;
	uint32_t chunks, row_groups;    // of attention
	bool whole;                     // there is one chunk, however long
	const float *weights;           // of the norm that is computed; NULL: none
	const struct encoder_norm *end; // of half a layer of an encoder
	const float *end_bias;          // that is added before
};
// A product of many rows, or several of one input, by all threads (stage_step.c).
enum { PRODUCTS = 4 };
struct products {
	const struct backend_stage *stage;
	struct product of[PRODUCTS];
	unsigned count;
	const float *bias; // of a feed-forward network without a gate; NULL: it has one
};
void cpu_multiply(struct step *step, struct products *products);
// to = from, scaled to a mean square of 1, times weights. May be in place.
void cpu_rms_norm(float *to, const float *from, const float *weights, size_t n, float epsilon);
// The input of a product: row `row` of `rows`, n values in whole groups, as the kernels take it.
void cpu_prepare(const struct backend_stage *stage, uint64_t row, uint32_t rows, const float *values, size_t n);
// The tiles of a product of so many rows; NULL: it takes groups.
uint8_t *cpu_tiles(const struct backend_stage *stage, uint32_t rows);

// The bits of the layer that is computed (enum model_layer).
static inline unsigned cpu_layer_kinds(const struct step *step)
{
	return step->stage->shape->layer_kinds[step->stage->params.first_layer + step->layer_index];
}

// Attention of a layer: of the norm's rows, which are there, to `sum` (batch_rows, embedding), which it is added to,
// or, unless `add`, put into (stage_attention.c). Before the first layer of a step: how it is cut into pieces.
void cpu_attention_begin(struct step *step);
void cpu_attention_compute(struct step *step, float *sum, bool add);

// The pieces of cpu_attention_compute. The length of a row of queries; where a layer's pages begin; a head's
// rope_size values, turned; a head's result, put together from those of the chunks (model_value_size).
size_t cpu_query_stride(const struct model_shape *shape);
uint8_t *cpu_layer_pages(const struct step *step);
uint8_t *cpu_pages_of(const struct backend_stage *stage, const struct stage_layer *layer);
void cpu_turn(const struct step *step, float *head, uint32_t position);
void cpu_gather_head(const struct step *step, uint32_t row, uint32_t head, float *out);

// The steps of attention to latents: queries, of the norm's rows, and the rows' latents into their pages; then results
// of heads, from those of attention, as the output's product takes them (stage_latent.c).
void cpu_latent_begin(struct step *step);
void cpu_latent_end(struct step *step);

// The gated delta rule of a layer with a state: of the norm's rows, which are there, to `sum` (batch_rows, embedding),
// which it is added to, or, unless `add`, put into (stage_delta.c).
void cpu_delta_compute(struct step *step, float *sum, bool add);

// Compute the experts' results of all rows, and add them to `sum` (batch_rows, embedding) or, unless `add`, store them
// there. Input: the rows after the norm, and their scores; for a shared expert with a score, also its result (summand).
// See stage_experts.c.
void cpu_experts_compute(struct step *step, float *sum, bool add);

void cpu_encoder_norm(float *x, const float *bias, const struct encoder_norm *norm, size_t n, float epsilon);
void cpu_encoder_gelu(float *x, const float *bias, size_t n); // of x + bias, in place

enum status cpu_stage_step(struct backend_stage *stage, const struct stage_batch *batch, struct error *error);
enum status cpu_stage_step_joined(struct backend_stage *const *slices, uint32_t count, const struct stage_batch *batch,
				  struct error *error);

// See stage_pages.c.
enum status cpu_stage_read_pages(struct backend_stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count,
				 void *to, uint64_t pitch, struct error *error);
enum status cpu_stage_write_pages(struct backend_stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count,
				  const void *from, uint64_t pitch, struct error *error);

extern const struct stage_slots cpu_stage;
