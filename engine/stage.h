/* A stage: some layers of a model on one device, and the keys and values of the tokens that went through them.
 *
 * This is what inference asks of a back end (struct backend's `stage` slots); stage.c checks everything once, as
 * exogpu.c does, and dispatches. A model runs as one stage or as several, each on a device of its own: the output of
 * one (f32, rows by embedding) is the input of the next. The first embeds tokens, the last predicts.
 *
 *     tokens -> [embed | layers 0..k] -> activations -> [layers k..n | norm, output] -> logits
 *
 * A stage may be cut lengthwise, over several devices of one back end (stage_create_sliced): each slice has its share
 * of the heads, with their keys and values, and of the columns of the feed-forward network. The outputs of the slices
 * are added twice a layer, in the order of the slices, so that all continue with the same bits.
 *
 * A step computes a batch: runs of new tokens of several sequences, prompts and single tokens alike. Keys and values
 * lie in pages of STAGE_PAGE_TOKENS positions each; the caller decides which page holds which positions of which
 * sequence, and may let sequences share full pages that are not written again.
 *
 * A layer with a gated delta rule (struct model_delta) has no keys and values; it has a state for each request, which
 * every token changes. States lie in `stage_state_count` slots of the stage, numbered from 1 on, each with the states
 * of all such layers. A run says which slot holds the state before its first row, and to which slot the state after its
 * last row is written: the same slot, or another one if the state before is kept for a later request. Rows are computed
 * one after the other, so a prompt in pieces gives the same result as the whole.
 *
 * Numbers: weights are used as their format says, exactly. Activations between operations are f32; a back end may round
 * an operation's input to what its multiplier takes, but to no less than 11 significant bits (f16, int16 by blocks of
 * 32, or a pair of bf16; never to 8-bit integers), and sums in f32 or wider. In products of several rows it may round a
 * weight to f16, and before that the scale of its block and what is added to it. Keys and values are f16. The same
 * batch on the same device gives the same bits.
 *
 * Thread: a stage and its device belong to one thread at a time. */
#pragma once
#include "engine/include/exogpu/exogpu.h"
#include "engine/model/model.h"

enum { STAGE_PAGE_TOKENS = 32, STAGE_SLICES = 8 };
enum { STAGE_ROWS_MOST = 8192 };  // of a step: as long as the texts of bge-m3, which are one step each
enum { STAGE_EXPERT_ROWS = 512 }; // that go through experts at a time: each takes memory for every expert that it uses
// On a device that orders rows by expert, the rows of each expert begin at a multiple of STAGE_EXPERT_ALIGN. After the
// last rows there is room for STAGE_EXPERT_SPARE more, which a block of a product reads but does not use.
enum { STAGE_EXPERT_ALIGN = 8, STAGE_EXPERT_SPARE = 64 };
#define STAGE_NO_TOKEN UINT32_MAX // one of a row's logits is NaN or infinite: weights are damaged

struct stage;

struct stage_params {
	const struct model_shape *shape; // outlives the stage
	uint32_t first_layer, layer_count;
	bool embeds, predicts;   // has the token embedding; has output norm and output matrix
	uint32_t context_tokens; // positions lie below
	uint32_t page_count;     // pages are numbered below
	uint32_t batch_rows;     // of a step, at most; <= STAGE_ROWS_MOST
	uint32_t batch_sequences, batch_outputs;
	uint32_t host_layers; // the last so many of its layers keep their weights in host memory, if the device has its
			      // own
	const float *rope; // model_rope_table's, of context_tokens; outlives the stage

	// The weights: asked once for each tensor that the stage needs, layer by layer; the bytes are good until
	// another tensor is asked for. Of a slice a tensor's rows may have a pitch. Errors are passed on
	// (STATUS_CANCELLED-like: whatever the caller says).
	enum status (*tensor)(void *context, enum model_role role, uint32_t layer, struct model_tensor *out,
			      struct error *error);
	// Bytes of weights that are on the device now, of all of this stage's; may be NULL. An error stops the loading.
	enum status (*progress)(void *context, uint64_t loaded_bytes, struct error *error);
	void *context;

	// For a back end that creates a slice: the index of the slice and the number of slices; `shape` and the tensors
	// are the slice's own. Only the first slice embeds and predicts. For stage_estimate: the estimate is for one
	// slice. 0 slices: the stage is whole.
	uint32_t slice, slices;
	// For stage_estimate: the back end stores matrices in whole tiles of 16 rows by 128 columns, and heads of keys
	// and values in multiples of 8 numbers (CUDA).
	bool tiled;
};

struct stage_memory {
	uint64_t weights_bytes, kv_bytes, workspace_bytes; // on the device; kv: keys, values and states
	uint64_t host_bytes;                               // weights of host_layers
};

// Errors: STATUS_UNAVAILABLE (the back end computes no models, or its kernels are not built), STATUS_OUT_OF_MEMORY
// (with how much was missing), STATUS_INVALID_PARAMS, STATUS_DEVICE_LOST, and those of `tensor` and `progress`.
enum status stage_create(struct stage **out, struct exogpu_device *device, const struct stage_params *params,
			 struct error *error);
// A stage in `count` slices, one on each device; a device may hold several. `tensor` is asked for whole tensors: once,
// if the back end loads slices side by side, else once for each slice that has a part of it. Errors: also
// STATUS_UNAVAILABLE (the model cannot be cut into so many slices, with the size that does not divide; or the back end
// has no slices).
enum status stage_create_sliced(struct stage **out, struct exogpu_device *const *devices, uint32_t count,
				const struct stage_params *params, struct error *error);
// Before the devices are closed. Accepts NULL, leaves NULL behind.
void stage_destroy(struct stage **stage);
void stage_memory(const struct stage *stage, struct stage_memory *memory); // of all slices
// The memory of one slice: slice 0 of a whole stage.
void stage_slice_memory(const struct stage *stage, uint32_t slice, struct stage_memory *memory);
uint32_t stage_slice_count(const struct stage *stage); // 1: it is whole
// Whether slices read each other's results directly, over a link of their devices or in one memory; false: by way of
// the host's memory.
bool stage_slices_linked(const struct stage *stage);

// A run of new tokens of one sequence; for an encoder a whole text, whose tokens attend to all of it. Keys and values
// before `position` are in the pages already; those of the run's rows are written there.
struct stage_run {
	uint32_t row_count;    // > 0; the runs' rows follow each other in the batch
	uint32_t position;     // of the first row
	const uint32_t *pages; // at least (position + row_count) / STAGE_PAGE_TOKENS, rounded up
	// For a model with states (else 0): the slot, from 1 on, of the state before `position` (0 if position is 0),
	// and the slot for the state after the last row. No other run of the batch may write to either.
	uint32_t state_from, state_to;
};

// The tokens of an output from which sampling chooses, in no order: those with the STAGE_CANDIDATES_LEAST largest
// logits, and perhaps more, or none at all where more than STAGE_CANDIDATES_MOST would have to be named, as where many
// logits are equal.
enum { STAGE_CANDIDATES_LEAST = 64, STAGE_CANDIDATES_MOST = 256 };
struct stage_candidates {
	uint32_t count;
	struct stage_candidate {
		float logit;
		uint32_t token;
	} of[STAGE_CANDIDATES_MOST]; // (count)
};

struct stage_batch {
	uint32_t row_count; // of all runs
	const struct stage_run *runs;
	uint32_t run_count;
	const uint32_t *tokens; // (row_count), of a stage that embeds
	const float *input;     // (row_count, embedding), if the stage does not embed
	// For a stage that does not predict:
	float *output; // (row_count, embedding)
	// For a stage that predicts: the rows of interest and their results.
	const uint32_t *output_rows; // (output_count), ascending
	uint32_t output_count;
	float *logits;    // (output_count, vocabulary), or NULL
	uint32_t *argmax; // (output_count): the token of the largest logit, the lowest of equals, or STAGE_NO_TOKEN;
			  // or NULL
	float *hidden;    // (output_count, embedding) after the output norm, or NULL
	bool candidates;  // stage_candidates of all outputs are wanted, if stage_finds_candidates
};
// Compute the batch, and return when the results are there. Errors: STATUS_INVALID_PARAMS, STATUS_DEVICE_LOST,
// STATUS_TIMEOUT (CUDA and Vulkan, after 30 s: the device counts as lost. On the CPU only the end of the process, after
// LIMIT_STEP_MS, ends a step. A model instance asks for steps of about a second).
enum status stage_step(struct stage *stage, const struct stage_batch *batch, struct error *error);
// Whether the device finds candidates, so that it need not give all logits.
bool stage_finds_candidates(const struct stage *stage);
// (output_count) of the last step, whose batch asked for them; good until the next step.
const struct stage_candidates *stage_candidates(const struct stage *stage);
// The logits (vocabulary) of an output of the last step, if stage_finds_candidates. Errors: STATUS_DEVICE_LOST.
enum status stage_logits(struct stage *stage, uint32_t output, float *to, struct error *error);
// Memory of the host for the results of its steps, all zero: the device copies there at its full speed, where its
// driver can. It is freed with the stage, once for each stage. NULL: there is not so much.
void *stage_results(struct stage *stage, size_t bytes);
// A reranker's last stage: the score of a pair, from `hidden` (embedding) of its first row or, of a language model, its
// last. NaN for other models.
float stage_score(const struct stage *stage, const float *hidden);
// The name of the one kernel that computes all layers of a step of one row; NULL if there is a kernel for each
// operation.
const char *stage_single_kernel(const struct stage *stage);
// How long all its steps have taken together, in nanoseconds. Thread: that of the steps.
uint64_t stage_spent_ns(const struct stage *stage);

// A kernel of a step, timed alone: it began when the one before had ended.
struct stage_timing {
	const char *kernel;
	uint32_t grid[3];      // blocks
	uint64_t weight_bytes; // that it reads, of the matrices of a product
	float us;              // with the launch of it, about 2 us on a GPU
};
typedef void stage_timing_fn(void *context, const struct stage_timing *timing);
// Computes the batch several times, and calls `each` for every kernel of the last time, in order. The results stay on
// the device. For measurements: kernels do not overlap here as in a step. Errors: those of stage_step, and
// STATUS_UNAVAILABLE (a back end without timed kernels, or a stage in slices).
enum status stage_time(struct stage *stage, const struct stage_batch *batch, stage_timing_fn *each, void *context,
		       struct error *error);
// Set pages to zero, before somebody else's tokens come into them. The number of a state is page_count + slot - 1.
enum status stage_zero(struct stage *stage, const uint32_t *pages, uint32_t count, struct error *error);

// Whether keys and values can leave the stage and enter it, page by page.
bool stage_moves_pages(const struct stage *stage);
bool stage_has_layer(const struct stage *stage, uint32_t layer); // of the model
// Keys and values of whole pages of one layer of the model, in one form for all back ends, so that one goes on from
// what another has computed. Of each page stage_page_bytes of the whole model: for each head of keys, of all slices in
// order, its keys, turned by their positions, and its values, both f16 (STAGE_PAGE_TOKENS, head_size); of a model with
// latents those, f16 (STAGE_PAGE_TOKENS, head_size). Bytes at any address. A write names each page once. After an error
// of a write its pages hold anything. Thread: that of the steps. Errors: STATUS_INVALID_PARAMS (the stage has no keys
// and values of this layer, or no such page), STATUS_UNAVAILABLE (not stage_moves_pages), STATUS_DEVICE_LOST,
// STATUS_TIMEOUT, STATUS_OUT_OF_MEMORY.
enum status stage_read_pages(struct stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count, void *to,
			     struct error *error);
enum status stage_write_pages(struct stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count,
			      const void *from, struct error *error);

// Compile what stages on this device need, and keep it where the next process finds it (exogpu_open.cache_directory): a
// first step is then as fast as others. Nothing, where the back end compiles nothing or nothing may be kept. Up to
// minutes. Errors: STATUS_UNAVAILABLE (kernels not built), and the driver's.
enum status stage_compile(struct exogpu_device *device, struct error *error);

// Estimate the memory that stage_create will take, within a few per cent; `sizes` of the model. For placement.
void stage_estimate(const struct stage_params *params, const struct model_sizes *sizes, struct stage_memory *memory);
// Whether CUDA computes the model: its kernels load four numbers of a row at a time.
bool stage_tiles_fit(const struct model_shape *shape);
// Numbers of a head of keys in CUDA's pages.
uint32_t stage_tiled_head(const struct model_shape *shape);
// Keys and values of one page in one layer.
uint64_t stage_page_bytes(const struct model_shape *shape);
// One slot in one layer with a state. All f32: the last kernel - 1 rows (channels) that the convolution took, then for
// each head the matrix (key_size, value_size).
uint64_t stage_state_bytes(const struct model_shape *shape);
// Slots of a stage for so many sequences: of each the state that it has, and one that is kept for those who go on from
// there. 0: the model has no states.
uint32_t stage_state_count(const struct model_shape *shape, uint32_t batch_sequences);

// ---- what a back end fills: struct backend's `stage`, NULL if it computes no models ----

struct backend_device;
struct backend_stage;
struct stage_slots {
	// The calls above with all arguments checked: shapes, runs that fit pages and context, counts within the
	// parameters.
	enum status (*create)(struct backend_device *device, struct backend_stage **out,
			      const struct stage_params *params, struct error *error);
	void (*destroy)(struct backend_device *device, struct backend_stage **stage);
	void (*memory)(const struct backend_stage *stage, struct stage_memory *memory);
	enum status (*step)(struct backend_stage *stage, const struct stage_batch *batch, struct error *error);
	enum status (*zero)(struct backend_stage *stage, const uint32_t *pages, uint32_t count, struct error *error);
	// stage_read_pages and stage_write_pages; both or none. layer: among the stage's. A page begins `pitch` bytes
	// behind the one before, and of a slice it has the heads of that slice.
	enum status (*read_pages)(struct backend_stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count,
				  void *to, uint64_t pitch, struct error *error);
	enum status (*write_pages)(struct backend_stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count,
				   const void *from, uint64_t pitch, struct error *error);
	// Optional, for stages in slices. All of them at once, on (count) devices, each with its params: a tensor is
	// asked for by all that have a part of it before any asks for the next. All or, with an error, none.
	enum status (*create_slices)(struct backend_device *const *devices, uint32_t count, struct backend_stage **out,
				     const struct stage_params *params, struct error *error);
	// Wait for the work in flight of all slices, before they are destroyed one by one.
	void (*settle)(struct backend_stage *const *slices, uint32_t count);
	// Once all have been created: *linked as of stage_slices_linked.
	enum status (*join)(struct backend_stage *const *slices, uint32_t count, bool *linked, struct error *error);
	// One step of all slices; the results come from the first.
	enum status (*step_joined)(struct backend_stage *const *slices, uint32_t count, const struct stage_batch *batch,
				   struct error *error);
	// The answers of stage_candidates and stage_logits; NULL: the back end finds none.
	const struct stage_candidates *(*candidates)(const struct backend_stage *stage);
	enum status (*logits)(struct backend_stage *stage, uint32_t output, float *to, struct error *error);
	// The answer of stage_results, freed by `destroy`; NULL: any memory is as good.
	void *(*results)(struct backend_stage *stage, size_t bytes);
	enum status (*compile)(struct backend_device *device, struct error *error); // NULL: there is nothing to compile
	// The answer of stage_single_kernel; NULL: the back end has no such kernel.
	const char *(*single_kernel)(const struct backend_stage *stage);
	// NULL: kernels are not timed.
	enum status (*time)(struct backend_stage *stage, const struct stage_batch *batch, stage_timing_fn *each,
			    void *context, struct error *error);
};
