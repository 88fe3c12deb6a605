/* A stage on a CUDA device, as its files share it.
 *
 *	stage.c           create, destroy, pages, the calls of struct stage_slots
 *	stage_memory.c    its memory on the device
 *	stage_weights.c   weights: from the file through pinned memory into tiles (kernels/stage_layout.h)
 *	stage_launch.c    its kernels: loading, launches, waiting
 *	stage_step.c      a step: which kernels, in which order
 *	stage_layer.c     the kernels of a layer, and of what is around them
 *	stage_product.c   its products
 *	stage_experts.c   its experts
 *	stage_mixture.c   its experts for few rows
 *	stage_delta.c     its layers with a state in the place of keys and values
 *	stage_latent.c    its attention to latents
 *	stage_pages.c     pages out and in
 *	stage_joined.c    slices of one stage: shared memory, and sums
 *	stage_wide.c      products of many rows on Hopper
 *	stage_decode.c    a step of one row there, by one kernel
 *	stage_timer.c     how long each kernel of a step takes
 *
 * Everything goes through one stream of the stage's own. A step of up to 128 rows, one of each sequence, is a graph
 * that is recorded once: it reads the values that change from step to step (tokens, positions, pages) from device
 * memory. On Hopper and later each kernel of the graph is launched before the previous one has ended, and prefetches
 * its first weights. Thread: that of the device. */
#pragma once
#include "engine/cuda/device.h"
#include "engine/cuda/kernels/stage_params.h"
#include "engine/stage.h"

#define STAGE_COUNT_SET(name, formats) +1
enum { STAGE_DECODE_SETS = 0 DECODE_SETS(STAGE_COUNT_SET) }; // kernels of stage_decode.cu
#undef STAGE_COUNT_SET

enum stage_kernel {
	STAGE_EMBED,
	STAGE_PREPARE,
	STAGE_POST,
	STAGE_ARGMAX,
	STAGE_CANDIDATES,
	STAGE_REPACK,
	STAGE_REDUCE,
	STAGE_ROUTE,
	STAGE_ORDER,
	STAGE_MIX,
	STAGE_TURN_ROWS,
	STAGE_ATTEND_1,
	STAGE_ATTEND_2,
	STAGE_PROMPT_64,
	STAGE_PROMPT_128,
	STAGE_CONVOLVE_4,
	STAGE_CONVOLVE_16,
	STAGE_DELTA_8,
	STAGE_DELTA_16,
	STAGE_DELTA_32,
	STAGE_DELTA_OUT,
	STAGE_LATENT_TURN,
	STAGE_LATENT_ATTEND_16,
	STAGE_LATENT_ATTEND_64,
	STAGE_LATENT_ATTEND_EXACT,
	STAGE_LATENT_COMBINE,
	STAGE_PLAIN_KERNELS,
	STAGE_DECODE = STAGE_PLAIN_KERNELS,            // + stage_decode_set
	STAGE_GEMV = STAGE_DECODE + STAGE_DECODE_SETS, // + format; TILE_NONE: of several
	STAGE_MIXTURE_IN = STAGE_GEMV + TILE_COUNT,    // + format
	STAGE_MIXTURE_OUT = STAGE_MIXTURE_IN + TILE_COUNT,
	STAGE_GEMM_32 = STAGE_MIXTURE_OUT + TILE_COUNT,
	STAGE_GEMM_128 = STAGE_GEMM_32 + TILE_COUNT,
	STAGE_WIDE_8 = STAGE_GEMM_128 + TILE_COUNT,
	STAGE_WIDE_16 = STAGE_WIDE_8 + TILE_COUNT,
	STAGE_WIDE_32 = STAGE_WIDE_16 + TILE_COUNT,
	STAGE_WIDE_64 = STAGE_WIDE_32 + TILE_COUNT,
	STAGE_WIDE_128 = STAGE_WIDE_64 + TILE_COUNT,
	STAGE_WIDE_256 = STAGE_WIDE_128 + TILE_COUNT,
	STAGE_KERNELS = STAGE_WIDE_256 + TILE_COUNT
};
enum stage_file {
	STAGE_FILE_ROWS,
	STAGE_FILE_GEMV,
	STAGE_FILE_ATTENTION,
	STAGE_FILE_PROMPT,
	STAGE_FILE_REDUCE,
	STAGE_FILE_DECODE,
	STAGE_FILE_EXPERTS,
	STAGE_FILE_MIXTURE,
	STAGE_FILE_DELTA,
	STAGE_FILE_LATENT,
	STAGE_FILE_GEMM,                                // + format
	STAGE_FILE_WIDE = STAGE_FILE_GEMM + TILE_COUNT, // + format
	STAGE_FILES = STAGE_FILE_WIDE + TILE_COUNT
};

struct cuda_layer {
	CUdeviceptr attention_norm, ffn_norm, attention_post_norm, ffn_post_norm, q_norm, k_norm; // f32; 0: none
	CUdeviceptr output_bias, attention_post_bias, up_bias, down_bias, ffn_post_bias;          // of an encoder
	CUdeviceptr sinks, router_choice;
	CUdeviceptr delta_conv, delta_decay, delta_bias, delta_norm;
	struct stage_matrix q, k, v, attention_output, gate, up, down;
	struct stage_matrix q_a, k_b, v_b; // of latents; k_b, v_b: with the rows of all heads
	struct stage_matrix router, shared_gate;
	struct stage_matrix expert_gate, expert_up, expert_down; // with the rows of all
	struct stage_matrix delta_qkv, delta_gate, delta_beta, delta_alpha, delta_output;
	uint64_t place; // among the stage's layers with keys and values, or among those with a state
};

// The input of a step on the device, copied at once: tokens (for an encoder ends) (rows), positions (rows), tables
// (rows), of a model with states its runs (struct state_run), outputs (outputs), then the pages of all runs, rows with
// attention one by one, and tiles of rows of prompts.
struct cuda_step {
	CUdeviceptr tokens, positions, tables, runs, outputs, pages, singles, tiles;
	uint32_t rows, output_count, single_count, tile_count, run_count, longest_run;
};

struct cuda_memory {
	struct cuda_memory *next;
	CUdeviceptr pointer;
	bool host;
};

// Memory that a slice shares with the others. There are two places for everything, used in turn: a place is written
// again only when all slices have reported that they are done with it.
struct cuda_slice {
	CUdeviceptr summands[2]; // (rows, embedding)
	CUdeviceptr came;        // (2, slices, up to GEMV_ROWS, embedding), each number with its turn
	CUdeviceptr told, turn;  // struct reduce_params'
	struct reduce_params reduce;
	volatile uint32_t *failed; // of the host
	bool loading;              // kernels are loaded where they would be launched
};

// Memory of a mixture of experts. A slot is a row together with one of its experts; slots are sorted by expert.
struct cuda_experts {
	uint32_t rows;                    // that go through at a time
	CUdeviceptr scores, shared_score; // (batch rows, experts); (batch rows)
	CUdeviceptr chosen, weights;      // (batch rows, experts_used)
	CUdeviceptr places;               // (rows, experts_used): the slot of each
	CUdeviceptr slot_rows;            // (slots): the row of each
	CUdeviceptr groups;               // struct gemm_group
	CUdeviceptr gate_up, out;         // (slots, 2 * expert_width); (slots, embedding)
};

enum { STAGE_SINGLE_ROWS = 128 }; // of a step with one row of each sequence, that is a graph

struct backend_stage {
	struct backend_device *device;
	struct cuda *cuda;
	struct stage_params params; // shape and rope are not used after create
	struct model_shape shape;
	CUstream stream;
	CUevent done;
	CUmodule files[STAGE_FILES];
	CUfunction kernels[STAGE_KERNELS];
	bool wide;     // Hopper's own products (kernels/stage_wide.cuh)
	bool overlaps; // kernels are launched before the one before has ended
	uint32_t units, shared_bytes, head_padded, head_blocks;
	struct cuda_memory *memory; // all that it holds
	struct stage_memory sizes;

	struct cuda_layer *layers; // (layer_count)
	struct stage_matrix embedding, output;
	CUdeviceptr output_norm;
	CUdeviceptr vectors, vectors_end; // where the next norm or bias goes
	bool halves, pairs;               // whether any format takes f16, or two bf16

	CUdeviceptr kv;     // (layers with them, pages, 2, kv_heads, STAGE_PAGE_TOKENS, head_padded) f16; of latents
			    // (layers, pages, STAGE_PAGE_TOKENS, head_padded)
	CUdeviceptr states; // (layers with one, slots) of stage_state_bytes
	CUdeviceptr moved;  // pages, pinned; 0: none went yet
	CUdeviceptr rope;
	CUdeviceptr told; // struct cuda_step's arrays
	uint32_t *told_host;
	uint64_t told_words;
	CUdeviceptr x;                 // (rows, embedding)
	CUdeviceptr qkv;               // (rows, q, k and v)
	CUdeviceptr attended;          // (rows, heads * head_size)
	CUdeviceptr post;              // (rows, embedding): values that are normed or weighted before they are added to
				       // x
	CUdeviceptr up;                // (rows, feed_forward): silu(gate) * up
	CUdeviceptr gate_up;           // (rows, 2 * feed_forward)
	CUdeviceptr prepared, factors; // (rows, planes, widest); (rows)
	CUdeviceptr partial, ready;    // of products and attention that are split
	struct {
		CUdeviceptr in, mixed, out; // (rows, stage_delta_width); (rows, channels); (rows, values)
	} delta;
	struct {
		uint32_t rows;           // of a turn
		CUdeviceptr query, k;    // (rows of a step, query_rank); (rows of a step, head_size)
		CUdeviceptr queries;     // (rows of a step, heads, key_size)
		CUdeviceptr q, attended; // (rows, heads, head_size); (rows, heads, rank in whole fours)
	} latent;
	struct cuda_experts experts;
	CUdeviceptr logits, hidden;                   // (outputs, vocabulary); (outputs, embedding)
	uint32_t *argmax;                             // (outputs), of the host
	struct stage_candidates *candidates;          // the same
	struct cuda_slice slice;                      // of a stage in slices
	struct cuda_timer *timer;                     // of a step whose kernels are timed, else NULL
	bool graphless;                               // a graph was not to be had: steps go without from then on
	bool decodes;                                 // one row goes by stage_decode
	struct decode_params decode;                  // without the fields of a step
	uint32_t decode_shared;                       // bytes of a block
	unsigned decode_set;                          // which of DECODE_SETS, if it decodes
	CUgraphExec graphs[STAGE_SINGLE_ROWS + 1][3]; // by rows, and by what comes after the layers (stage_step.c)
};

enum {
	STAGE_PARTIAL_BYTES = 32 * 1024 * 1024,
	STAGE_READY = 16384, // counters
	PROMPT_LEAST = 16,   // rows of a run that is attended as a prompt
};
#define STAGE_CLOSE_NS (1000000000ll) // after so long the work in flight of a stage that is closed counts as endless

// ---- stage_memory.c ----

// Device memory, or pinned memory of the host that the device reads; freed with the stage.
enum status stage_take(struct backend_stage *stage, CUdeviceptr *out, uint64_t bytes, bool host, struct error *error);
enum status stage_take_workspace(struct backend_stage *stage, struct error *error);
void stage_free(struct backend_stage *stage); // of a device that is abandoned, the notes alone

// ---- stage_weights.c ----

// The weights of a stage, or of all slices of one, in turn from tensor to tensor.
enum status stage_load(struct backend_stage *const *stages, uint32_t count, struct error *error);

// ---- stage_launch.c ----

struct stage_launch {
	unsigned kernel; // an enum stage_kernel, plus a format for kernels that have one for each
	uint32_t grid[3], block, shared_bytes;
	bool together;         // its blocks wait for each other, so all of them run at the same time
	uint64_t weight_bytes; // that a product reads
	const void *params;
};
enum status stage_launch(struct backend_stage *stage, const struct stage_launch *launch, struct error *error);
void stage_kernel_name(unsigned kernel, char *name, size_t size);
// Load a kernel before its first launch, as it has to be before a capture.
enum status stage_prepare(struct backend_stage *stage, unsigned kernel, struct error *error);
void stage_unload(struct backend_stage *stage);
// Whether kernels are launched before the previous one has ended: images with `overlaps` (images.h).
bool cuda_stage_overlaps(const struct backend_device *device);
bool cuda_stage_wide(const struct backend_device *device); // whether the kernels of stage_wide_*.cu run on it
// struct stage_slots' compile: every file of kernels that this device would load, into the cache.
enum status cuda_stage_compile(struct backend_device *device, struct error *error);
// Wait until all enqueued work is done, even if it failed. After any result except STATUS_TIMEOUT and
// STATUS_DEVICE_LOST nothing is in flight.
enum status stage_wait(struct backend_stage *stage, struct error *error);
// Until the event is reached, or, if it is NULL or cannot be asked, the same. error: may be NULL.
enum status stage_wait_event(struct backend_stage *stage, CUevent event, struct error *error);
// Wait until none of these stages has work in flight, all of them together within the limit. False: one still has, and
// may read memory of the others. Then nothing of their devices is freed before the process ends, because freeing would
// wait for a kernel that never ends.
bool stage_settle(struct backend_stage *const *stages, uint32_t count, int64_t limit_ns);

// ---- stage_wide.c ----

// A product of the rows that `prepare` has put into stage->prepared, in blocks.
struct stage_wide {
	const struct stage_matrix *matrices[3];
	uint32_t count; // of matrices; gate and up, if gated
	CUdeviceptr y;
	uint32_t rows, columns, y_stride;
	enum gemv_mode mode;
	// For experts: the matrices have the rows of all experts. groups (struct gemm_group): up to `width` rows of x
	// each, which begin at multiples of STAGE_EXPERT_ALIGN, of `together` rows.
	CUdeviceptr groups;
	uint32_t group_count, width, experts, together;
};
enum { STAGE_WIDE_NARROW = STAGE_EXPERT_SPARE }; // rows of a block up to which prepare lays them together
// Whether a matrix of this format can go that way.
bool stage_wide_fits(const struct backend_stage *stage, unsigned format);
// The number of rows of a block, at most STAGE_WIDE_NARROW.
uint32_t stage_wide_width(uint32_t rows);
// How many rows lie together, for narrow blocks; 0: blocks are wide. Narrow blocks make the weights f16 more often, but
// where a product has few results wide ones leave processors idle.
uint32_t stage_wide_together(uint32_t rows, uint32_t results);
enum status stage_wide_multiply(struct backend_stage *stage, const struct stage_wide *product, struct error *error);

// ---- stage_decode.c ----

// The first of DECODE_SETS that has all these formats (bits 1 << enum tile_format), STAGE_DECODE_SETS if none has; and
// the name of a set.
unsigned stage_decode_set(unsigned formats);
const char *stage_decode_name(unsigned set);
const char *cuda_stage_single_kernel(const struct backend_stage *stage); // struct stage_slots'
// Find out whether steps of one row can go this way (stage->decodes), once weights and workspace are there.
enum status stage_decode_begin(struct backend_stage *stage, struct error *error);
// Compute all layers for one row in place in stage->x and, if `predicts`, the logits. attention: of the first layer.
enum status stage_decode(struct backend_stage *stage, const struct attention_params *attention, bool predicts,
			 struct error *error);

// ---- stage_experts.c ----

// x += what the experts of a layer give for the norm of x; of a model with a norm after them, stage->post = that. The
// part for all rows, if there is one, waits in stage->post, and is added, too.
enum status stage_experts(struct backend_stage *stage, const struct cuda_layer *layer, uint32_t rows,
			  struct error *error);
// The factor by which weights of experts are multiplied.
float stage_expert_scale(const struct backend_stage *stage);
// How many places so many slots need if those of each expert begin at a multiple of STAGE_EXPERT_ALIGN.
uint32_t stage_expert_slots(const struct backend_stage *stage, uint32_t slots);
// Groups that so many slots may make, at most.
uint32_t stage_expert_groups(const struct backend_stage *stage, uint32_t slots, uint32_t group_rows);

// ---- stage_delta.c ----

// Numbers of a row of the products that such a layer begins with, and where the results of each matrix go there.
uint32_t stage_delta_width(const struct model_shape *shape);
void stage_delta_place(const struct model_shape *shape, struct cuda_layer *layer);
// The first half of layer `index`, which has a state: x += what its heads or its short convolution give.
enum status stage_delta(struct backend_stage *stage, const struct cuda_step *step, uint32_t index, struct error *error);

// ---- stage_latent.c ----

// Rows of a step whose heads have memory at a time; and the numbers of a head's result there.
uint32_t stage_latent_rows(const struct backend_stage *stage);
uint32_t stage_latent_stride(const struct model_shape *shape);
// Whether the kernels have shared memory enough for a model with latents.
bool stage_latent_fits(const struct backend_stage *stage);
// The first half of layer `index` of such a model: x += output(attention(norm x)). single: as of stage_attention.
enum status stage_latent(struct backend_stage *stage, const struct cuda_step *step, uint32_t index, bool single,
			 struct error *error);

// ---- stage_layer.c ----

// Numbers of a row of q, k and v.
uint32_t stage_qkv_width(const struct model_shape *shape);
// Bytes of the keys and values of a layer in one page.
uint64_t stage_kv_page(const struct backend_stage *stage);
struct attention_params stage_attention_params(const struct backend_stage *stage, const struct cuda_step *step,
					       uint32_t layer);
// x = the embeddings of the step's tokens, times the model's scale.
enum status stage_embed(struct backend_stage *stage, const struct cuda_step *step, struct error *error);
// The first half of layer `index`: x += output(attention(norm x)). single: each row is of a run of its own, so that the
// kernel that attends also turns it.
enum status stage_attention(struct backend_stage *stage, const struct cuda_step *step, uint32_t index, bool single,
			    struct error *error);
// The second half: x += what the feed-forward network and the experts give.
enum status stage_feed_forward(struct backend_stage *stage, const struct cuda_step *step, uint32_t index,
			       struct error *error);
// Logits, unless they are `there`, the largest of each row and, if `hidden`, the rows after the norm. all: outputs are
// wanted of all rows.
enum status stage_predict(struct backend_stage *stage, const struct cuda_step *step, bool all, bool hidden, bool there,
			  struct error *error);
// stage->candidates of all outputs, from stage->logits.
enum status stage_find_candidates(struct backend_stage *stage, const struct cuda_step *step, struct error *error);

// ---- stage_step.c ----

enum status cuda_stage_step(struct backend_stage *stage, const struct stage_batch *batch, struct error *error);

enum status cuda_stage_step_joined(struct backend_stage *const *slices, uint32_t count, const struct stage_batch *batch,
				   struct error *error);

// As a step does, several times; and struct stage_slots' time.
enum status cuda_stage_time(struct backend_stage *stage, const struct stage_batch *batch, stage_timing_fn *each,
			    void *context, struct error *error);

// ---- stage_pages.c: struct stage_slots' read_pages and write_pages ----

enum status cuda_stage_read_pages(struct backend_stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count,
				  void *to, uint64_t pitch, struct error *error);
enum status cuda_stage_write_pages(struct backend_stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count,
				   const void *from, uint64_t pitch, struct error *error);

// ---- stage_timer.c: times of kernels between events ----

// From here on every launch is followed by an event, until the timer ends.
enum status stage_timer_begin(struct backend_stage *stage, struct error *error);
enum status stage_timer_note(struct backend_stage *stage, const struct stage_launch *launch, struct error *error);
// Once the work is done: calls `each` for every launch, and ends the timer. each: NULL after an error.
enum status stage_timer_end(struct backend_stage *stage, stage_timing_fn *each, void *context, struct error *error);

// ---- stage_joined.c ----

enum stage_reduction {
	STAGE_SPREAD,        // x of all = summands[0] of the first
	STAGE_ADD_ATTENTION, // x += all summands[1]
	STAGE_ADD_FFN,       // x += all summands[0]
};
enum status stage_reduce(struct backend_stage *stage, uint32_t rows, enum stage_reduction which, struct error *error);
enum status cuda_stage_join(struct backend_stage *const *slices, uint32_t count, bool *linked, struct error *error);

extern const struct stage_slots cuda_stage_slots;
