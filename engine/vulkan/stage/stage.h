/* A stage on a Vulkan device (engine/stage.h): the types and functions that its files share.
 *
 *   stage.c          create and destroy; a batch in parts, each submitted and waited for
 *   stage_weights.c  matrices: their layout, and their upload to the device
 *   stage_program.c  the dispatches of a part, recorded once for each shape of it
 *   stage_experts.c  the same for a mixture of experts
 *   stage_delta.c    the same for a gated delta rule
 *   stage_latent.c   the same for attention to latents
 *   stage_pages.c    pages of zeros, and pages out and in
 *   stage_pipeline.c shaders, layouts, descriptor sets
 *
 * A step is computed in parts of as many rows as the workspace has. The input of a part (tokens, positions, pages) is
 * written into `step`, which the shaders read. They write the results into memory of the host, except logits, which are
 * copied. So the commands of a part depend on its shape only. The commands of the shapes used last are kept as
 * secondary command buffers: generating tokens submits the same one again and again. Long parts go in several
 * submissions, so that none exceeds the time of a driver's watchdog.
 *
 * The barriers between the operations of a layer cover only writes of shaders. The operations of a layer are:
 *
 *     q, k, v = norm(x) * W | rotate, write to the pages | attention (| combine) | x += a * W
 *     | f = silu(gate) up | x += f * W
 *
 * Norms are part of the products for few rows, and separate for many. Gate and up are one dispatch, unless their
 * formats differ.
 *
 * Descriptor set 0 has the inputs and outputs of an operation, set 1 the matrix (or two), set 2 the layer's pages. Only
 * Vulkan 1.1 is needed, and storage buffers of 32-bit words.
 *
 * Pages of each layer (h: padded to a multiple of 8):
 *     keys   (pages, kv_heads, h / 8, 32 tokens, 8) f16: one key a lane, side by side in memory
 *     values (pages, kv_heads, 32 tokens, h) f16; of latents there are keys alone
 * Thread: that of the device. */
#pragma once
#include "engine/stage.h"
#include "engine/vulkan/device.h"

enum {
	STAGE_PUSH_BYTES = 128,
	STAGE_BINDINGS = 5,      // of set 0
	STAGE_SETS = 48,         // of set 0, that there may be
	STAGE_PIPELINES = 512,   // of all stages of a device
	STAGE_PROGRAMS = 16,     // shapes of parts that are kept
	STAGE_ROWS = 512,        // of a part, at most
	STAGE_ARGMAX_RUN = 4096, // logits of a group of stage_argmax.comp
};

enum stage_shader {
	STAGE_EMBED,
	STAGE_MOVE,
	STAGE_NORM,
	STAGE_POST,
	STAGE_ENCODE,
	STAGE_PRODUCT,
	STAGE_TILE,
	STAGE_ROPE,
	STAGE_ATTENTION,
	STAGE_COMBINE,
	STAGE_ARGMAX,
	STAGE_ZERO,
	STAGE_ROUTE,
	STAGE_ORDER,
	STAGE_MIX,
	STAGE_CONVOLVE,
	STAGE_SHORT,
	STAGE_DELTA,
	STAGE_LATENT,
	STAGE_HEADS,
	STAGE_SHADERS
};

// Constants of a pipeline; the shader says what each means.
struct stage_constants {
	uint32_t values[7];
};

struct stage_pipeline {
	enum stage_shader shader;
	struct stage_constants constants;
	VkPipeline pipeline;
};

// The part that the stages of a device share: layouts, and the pipelines that any of them has needed. A stage that
// comes later finds them compiled, so they stay when their stage goes; many that no stage is left to use are dropped.
struct stage_pipelines {
	VkDescriptorSetLayout sets[3];
	VkPipelineLayout layout;
	struct stage_pipeline made[STAGE_PIPELINES];
	uint32_t count;
	uint32_t stages; // that there are
};

// Descriptor set 0 of an operation; NULL: it does not use that one.
struct stage_set {
	const struct backend_buffer *from, *to, *also, *lists; // lists: instead of `step`
	VkDescriptorSet set;
};

enum { STAGE_PLANES = 4 };
// Rows of a matrix, as many as a binding reaches.
struct stage_chunk {
	struct backend_buffer *buffer;
	VkDescriptorSet set;
	uint32_t first_row, rows;
	uint32_t planes[STAGE_PLANES]; // where they begin, in 16 bytes
};

struct stage_matrix {
	enum tensor_format format;
	uint32_t rows, columns, groups; // of 32 columns, rounded up
	uint32_t chunk_count;
	struct stage_chunk *chunks;
};

// A layer, or the ends of the model before the first and after the last layer.
struct stage_layer {
	struct stage_matrix matrices[ROLE_COUNT];
	uint32_t vectors[ROLE_COUNT];         // where they are in `vectors`, in floats
	struct backend_buffer *keys, *values; // of a layer with a state: NULL; values: of latents NULL, too
	struct backend_buffer *states;        // f32 (slots, stage_state_bytes), of such a layer
	VkDescriptorSet set;
};

// Up to `tile` queries that share keys and values: from query `first` of a run on, where each row has one for each head
// of a group. As in stage_attention.comp.
struct stage_tile {
	uint32_t row, position; // of the run's first row
	uint32_t first, count;
	uint32_t pages; // where the run's begin in the list
	uint32_t end;   // behind the last position that all of them attend to; 0: each attends up to its own
};

// The shape of a part, on which its commands depend.
struct stage_shape {
	uint32_t rows, outputs;
	uint32_t tiles, tile, splits; // of attention
	uint32_t runs;                // of a model with states; else 0
	bool logits, argmax, hidden;
};

struct stage_program {
	struct stage_shape shape;
	uint64_t used;             // when last
	VkCommandBuffer *segments; // (stage->segments_most)
	uint32_t segment_count;
};

// The offsets of a part's inputs in `step`, in words.
struct stage_places {
	uint32_t tokens, slots, outputs, tiles, rope, runs, input, pages, words;
};

// Memory of a mixture of experts for a part. A slot is a row together with one of its experts.
struct stage_experts {
	struct backend_buffer *scores, *shared_scores; // (rows, experts); (rows)
	struct backend_buffer *lists;                  // which experts: shaders/stage_route.comp
	struct backend_buffer *gate, *f;               // (slots, expert_width); f is in places
	struct backend_buffer *out; // (slots, embedding); before that of the part for all rows (rows)
};

// For layers with a gated delta rule (stage_delta.c).
struct stage_delta {
	struct backend_buffer *channels, *mixed; // (rows, channels): before and behind the convolution
	struct backend_buffer *gate, *out;       // (rows, heads * value_size); out is in places
	struct backend_buffer *alpha;            // (rows, heads)
	struct stage_chunk scores;               // beta, the same; its set has alpha, too
};

// For attention to latents (stage_latent.c). A slot is a row together with a head.
struct stage_latent {
	struct backend_buffer *lists;           // shaders/stage_heads.comp
	struct backend_buffer *query, *query_h; // (rows, query_rank): as it comes, and in places
	struct backend_buffer *heads;           // (slots, key_size), then (slots, value_size)
	struct backend_buffer *plain, *values;  // (slots, what does not turn), (slots, rank), in places
};

struct backend_stage {
	struct backend_device *device;
	struct backend_stream *stream;
	struct stage_params params;
	struct model_shape shape;
	struct stage_memory memory;

	uint32_t rows, outputs;        // of a part, at most
	uint32_t padded, padded_value; // head_size, model_value_size
	float scale;                   // of scores
	uint32_t tile_few, tile_many;  // queries of a group of stage_attention.comp: of single tokens, of prompts
	uint32_t tiles, page_list;     // at most
	struct stage_places places;
	struct stage_run *runs; // (params.batch_sequences), of the part at hand

	struct stage_layer ends;
	struct stage_layer *layers; // (params.layer_count)
	struct backend_buffer *vectors;

	// (rows, ...): x, h, a and f are in places (shaders/stage_common.glsl)
	struct backend_buffer *x, *h, *q, *k, *v, *a, *gate, *f, *logits, *partial;
	struct stage_experts experts;
	struct stage_delta delta;
	struct stage_latent latent;
	struct backend_buffer *step;                                  // the host writes it, shaders read it
	struct backend_buffer *told_rows, *told_tokens, *told_logits; // of the host
	struct backend_buffer *moved;                                 // pages, of the host; NULL: none went yet

	struct stage_pipelines *shared; // the device's; NULL: this stage does not count among its users
	VkDescriptorPool pool;
	struct stage_set sets[STAGE_SETS];
	uint32_t set_count;

	VkCommandPool commands;
	struct stage_program programs[STAGE_PROGRAMS];
	uint32_t segments_most;
	uint64_t uses;
};

// How long a step or a copy of a stage may take before its device is taken for lost. A software device is as slow as
// the processor is busy, and does not hang as a GPU does.
static inline int64_t stage_timeout_ns(const struct backend_device *device)
{
	return (device->software ? 120ll : 30ll) * 1000 * 1000 * 1000;
}

// ---- stage.c ----

// A buffer of at least 4 bytes; on the device, of zeros.
enum status stage_buffer_make(struct backend_stage *stage, struct backend_buffer **out, uint64_t bytes,
			      enum exogpu_memory memory, struct error *error);
// Wait until all that was asked of the stage's stream is done.
enum status vulkan_stage_settle(struct backend_stage *stage, struct error *error);

// ---- stage_pages.c: slots ----

enum status vulkan_stage_zero(struct backend_stage *stage, const uint32_t *pages, uint32_t count, struct error *error);
enum status vulkan_stage_read_pages(struct backend_stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count,
				    void *to, uint64_t pitch, struct error *error);
enum status vulkan_stage_write_pages(struct backend_stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count,
				     const void *from, uint64_t pitch, struct error *error);

// ---- stage_latent.c ----

// Numbers of the widest row of struct stage_latent; 0: there are no latents. Its buffers, if there are.
uint64_t stage_latent_widest(const struct model_shape *shape);
enum status stage_latent_make(struct backend_stage *stage, struct error *error);
void stage_latent_finish(struct backend_stage *stage);

// ---- stage_weights.c ----

// Every matrix and vector that the stage needs. Fills memory.weights_bytes and host_bytes.
enum status stage_weights_load(struct backend_stage *stage, struct error *error);
void stage_weights_finish(struct backend_stage *stage);
// `values` (count), in places: padded to whole groups of 32.
void stage_weights_place(const float *values, uint32_t count, float *placed);

// ---- stage_pipeline.c ----

enum status stage_layouts_make(struct backend_stage *stage, struct error *error);
void stage_layouts_finish(struct backend_stage *stage);
// `second`: of the other matrix, where a dispatch takes two, else the chunk's own.
enum status stage_set_weights(struct backend_stage *stage, struct stage_chunk *chunk,
			      const struct backend_buffer *second, struct error *error);
enum status stage_set_pages(struct backend_stage *stage, struct stage_layer *layer, struct error *error);

struct stage_dispatch {
	enum stage_shader shader;
	struct stage_constants constants;
	const struct backend_buffer *from, *to, *also; // of set 0
	const struct backend_buffer *lists;            // of set 0, instead of `step`; NULL: not
	VkDescriptorSet weights, pages;                // VK_NULL_HANDLE: not used
	uint32_t groups[3];
	const void *push;
	uint32_t push_bytes;
};
enum status stage_dispatch(struct backend_stage *stage, VkCommandBuffer commands, const struct stage_dispatch *dispatch,
			   struct error *error);
// Everything before is seen by everything behind.
void stage_barrier(struct backend_stage *stage, VkCommandBuffer commands);

// ---- stage_program.c ----

// Arithmetic of a submission, about; whole layers. Tests make it small.
extern double stage_segment_operations;

// The commands of a part of this shape, recorded if they are not kept.
enum status stage_program(struct backend_stage *stage, const struct stage_shape *shape, struct stage_program **program,
			  struct error *error);
void stage_programs_finish(struct backend_stage *stage);

extern const struct stage_slots vulkan_stage;
