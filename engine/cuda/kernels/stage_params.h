/* Parameters of the stage's kernels: each takes one of these by value. For the kernels and for the host, to which
 * addresses on the device are numbers. */
#pragma once
#include "engine/cuda/kernels/stage_layout.h"

#if defined(__CUDACC__) || defined(__CUDA__)
#define ON_DEVICE(type) type *
#else
#include <stdint.h>
#define ON_DEVICE(type) uint64_t
#endif

enum {
	STAGE_KV_PAGE = 32, // positions of a page; as STAGE_PAGE_TOKENS
	GEMV_WARPS = 16,    // of a block
	GEMV_THREADS = GEMV_WARPS * 32,
	GEMV_ROWS = 8, // of activations, at most: the width of a fragment
	ATTENTION_WARPS = 4,
	ATTENTION_HEADS = 4, // of a block, at most
	ATTENTION_SPLITS = 64,
	PROMPT_ROWS = 64, // of a run, of a block
	PROMPT_KEYS = 64, // positions at a time
	GEMM_THREADS = 256,
	GEMM_DEPTH = 64, // columns of a step
	WIDE_THREADS = 384,
	WIDE_ROWS = 128,      // of activations that lie together
	CONVOLVE_BLOCK = 128, // channels
	CONVOLVE_ROWS = 16,   // of a run, of a thread at a time
	DELTA_BLOCK = 128,
	DELTA_HELD = 16,   // rows of a head's state that a thread holds
	DELTA_COLUMNS = 2, // of a head's state, of a thread
	DELTA_AT_ONCE = 8, // rows of a run in shared memory
	DELTA_OUT_WARPS = 4,
	LATENT_TURN_BLOCK = 128,
	LATENT_KEYS = STAGE_KV_PAGE,     // positions at a time
	LATENT_SCORES = LATENT_KEYS + 4, // numbers of a query's scores in shared memory
	LATENT_PART = 4 * LATENT_KEYS,   // positions of a part, at least
	DECODE_WARPS = 16,
	DECODE_THREADS = DECODE_WARPS * 32,
	DECODE_UNITS = 8, // row tiles whose sums are added up at once, of one matrix
	DECODE_MATRICES = 7,
	DECODE_COPY = 2048, // bytes of a copy of whole pieces, at least, unless its row ends
	DECODE_ALIGN = 128, // of copies in shared memory
};

struct stage_matrix {
	ON_DEVICE(const unsigned char) tiles;
	ON_DEVICE(const float) bias; // (rows) or NULL
	unsigned format, rows;
	unsigned row_tiles, column_tiles;
	unsigned first; // of its results, among those of a row
};

enum gemv_mode {
	GEMV_STORE, // y = W x (+ bias)
	GEMV_ADD,   // y += W x (+ bias)
	GEMV_GATED, // y = silu(W0 x) * (W1 x)
};

struct gemv_params {
	struct stage_matrix matrices[3];
	ON_DEVICE(const float) x;     // (rows, columns)
	ON_DEVICE(const float) norm;  // (columns): the input is x's RMS norm; NULL: x itself
	ON_DEVICE(float) y;           // (rows, y_stride)
	unsigned matrix_count, units; // units: row tiles of all; of the first, if gated
	unsigned rows, columns, padded, y_stride;
	unsigned mode, warps_of_unit, slot_bytes;
	unsigned integers, halves, pairs; // how x is wanted: 16-bit integers, f16, two bf16
	float epsilon;
};

struct embed_params {
	struct stage_matrix table;
	ON_DEVICE(const unsigned) tokens;
	ON_DEVICE(float) x;
	unsigned rows, columns;
	float scale;
};

// POST_NORM: RMS norms of whole rows, in place: q or k of all heads. POST_ADD: the same for the output of half a layer,
// added to x. For encoders: POST_END: x = norm(x + bias), a LayerNorm with its own bias (shift); POST_GELU: GELU of x +
// bias with the error function, in place.
enum post_mode { POST_NORM, POST_ADD, POST_END, POST_GELU };

struct post_params {
	ON_DEVICE(const float) from; // (rows, stride)
	ON_DEVICE(const float) norm; // (columns)
	ON_DEVICE(float) to;         // (rows, stride): the result, or the sum to add to
	ON_DEVICE(const float) bias; // (columns), or NULL
	ON_DEVICE(const float) shift;
	unsigned columns, stride, mode;
	float epsilon;
};

struct attention_params {
	ON_DEVICE(float) qkv;          // (rows, qkv_stride): q, of each head with its gate, k, v
	ON_DEVICE(const float) q_norm; // (head_size) or NULL
	ON_DEVICE(const float) k_norm;
	ON_DEVICE(const float) rope;         // of this layer: (context, rope_size / 2, 2)
	ON_DEVICE(unsigned short) kv;        // of this layer: (pages, 2, kv_heads, STAGE_KV_PAGE, head_padded)
	ON_DEVICE(const unsigned) positions; // (rows)
	ON_DEVICE(const unsigned) ends;      // (rows): behind the last position that a row attends to; NULL: its own
	ON_DEVICE(const unsigned) tables;    // where a row's pages begin in `pages` (rows)
	ON_DEVICE(const unsigned) pages;
	ON_DEVICE(const unsigned) singles; // which rows, if not the first ones; or NULL
	ON_DEVICE(const unsigned) tiles;   // of prompts: the first row, and how many (up to PROMPT_ROWS)
	ON_DEVICE(float) partial;          // (rows, blocks of heads, splits, ATTENTION_HEADS, head_padded + 2)
	ON_DEVICE(unsigned) ready;         // (rows, blocks of heads): zero before and after
	ON_DEVICE(float) out;              // (rows, heads * head_size)
	unsigned rows, qkv_stride, heads, kv_heads, head_size, head_padded, rope_size, rope_halves;
	unsigned q_rows;              // numbers of a head of q: head_size, or twice as many with its gate
	unsigned splits, head_blocks; // head_blocks: of one head of k
	unsigned lanes;               // of a warp that share a position
	unsigned turned;              // q has been turned and k, v are in their pages
	unsigned window;              // positions that a row attends to, its own included; at least 1
	ON_DEVICE(const float) sinks; // (heads): of each a score without a value; or NULL
	float epsilon, scale;         // scale: with log2 e
	float cap;                    // of scores, with log2 e; 0: none
};

// The formats to which a product of stage_decode.cu rounds its input, and the number of columns that its warps share at
// a time: bits.
enum decode_input { DECODE_INTEGERS = 1, DECODE_HALVES = 2, DECODE_PAIRS = 4, DECODE_BY_256 = 8 };

// The kernels of stage_decode.cu: the name, and the formats that a model's matrices may have, bits 1 << enum
// tile_format. The first one that has all formats of a model computes it.
// clang-format off
#define DECODE_SETS(X) \
	X(f16, 1u << TILE_F16) \
	X(bf16, 1u << TILE_BF16) \
	X(q8_0, 1u << TILE_Q8_0) \
	X(q4_0, 1u << TILE_Q4_0) \
	X(q4_k, 1u << TILE_Q4_K) \
	X(q5_k, 1u << TILE_Q5_K) \
	X(q6_k, 1u << TILE_Q6_K) \
	X(q4_0_q6_k, 1u << TILE_Q4_0 | 1u << TILE_Q6_K) \
	X(f16_q8_0, 1u << TILE_F16 | 1u << TILE_Q8_0) \
	X(k, 1u << TILE_Q4_K | 1u << TILE_Q5_K | 1u << TILE_Q6_K) \
	X(integers, 1u << TILE_Q8_0 | 1u << TILE_Q4_0 | 1u << TILE_Q4_K | 1u << TILE_Q5_K | 1u << TILE_Q6_K) \
	X(mixed, 1u << TILE_F16 | 1u << TILE_BF16 | 1u << TILE_Q8_0 | 1u << TILE_Q4_0 | 1u << TILE_Q4_K | \
		1u << TILE_Q5_K | 1u << TILE_Q6_K)
// clang-format on

// Pieces of a matrix that are copied at once, at most.
STAGE_BOTH unsigned decode_at_once(unsigned format)
{
	return (DECODE_COPY + piece_bytes(format) - 1) / piece_bytes(format);
}

enum decode_kind { DECODE_QKV, DECODE_ATTENTION_OUTPUT, DECODE_GATE_UP, DECODE_DOWN, DECODE_OUTPUT, DECODE_KINDS };

// A layer of the table in device memory; the output matrix is one more, with its norm.
struct decode_layer {
	ON_DEVICE(const unsigned char) tiles[DECODE_MATRICES]; // q, k, v, attention output, gate, up, down
	ON_DEVICE(const float) norms[2];                       // of attention, of the feed-forward part
	ON_DEVICE(const float) bias[3];                        // of q, k, v; or NULL
	ON_DEVICE(const float) q_norm;
	ON_DEVICE(const float) k_norm;
	unsigned char formats[DECODE_MATRICES + 1], inputs[DECODE_KINDS + 3]; // enum tile_format, enum decode_input
};

// A product, as it is in all layers.
struct decode_product {
	ON_DEVICE(const float) x;
	ON_DEVICE(float) y;
	unsigned count, units; // matrices; units: row tiles of all, of the first if gated
	unsigned matrix, norm; // its first ones in decode_layer; norm: DECODE_NO_NORM for none
	unsigned rows[3], row_tiles[3];
	unsigned columns, padded, mode;
};
enum { DECODE_NO_NORM = 2 };

struct decode_params {
	ON_DEVICE(const struct decode_layer) layers; // (layer_count + 1)
	ON_DEVICE(unsigned) arrived;                 // blocks, at all barriers so far; and before this launch
	struct decode_product products[DECODE_KINDS];
	struct attention_params attention;     // kv: of the first layer
	unsigned long long kv_layer;           // numbers of a layer's keys and values
	unsigned layer_count, predicts;        // predicts: the output matrix, too
	unsigned tasks;                        // of attention: k heads by blocks of their heads
	unsigned slots, ring_bytes;            // of each warp's ring: copies at a time, at most; bytes
	unsigned char at_once[TILE_COUNT + 3]; // pieces of a copy, at most
	unsigned slice_bytes;                  // of each warp's part of the input
	float epsilon;
};

struct prepare_params {
	ON_DEVICE(const float) x;                         // (rows, x_stride)
	ON_DEVICE(const float) gate;                      // silu(gate) * x, or gelu; or NULL
	ON_DEVICE(const float) norm;                      // (columns): the RMS norm, or NULL
	ON_DEVICE(const unsigned) from;                   // which rows, or NULL: as they are
	ON_DEVICE(const unsigned) places;                 // of experts: the slot of each row and expert; or NULL
	ON_DEVICE(unsigned short) out;                    // (rows, planes, padded)
	ON_DEVICE(float) factors;                         // (rows): what results are multiplied by
	ON_DEVICE(float) plain;                           // (rows, columns): not rounded; or NULL
	unsigned rows, x_stride, columns, padded, planes; // planes: halves + 2 * pairs
	unsigned halves, pairs, kind;                     // kind: enum model_gate
	// The swizzled layout of stage_wide.cuh: (rows / 128, columns / 64, 128, 64) halves; or, with `together`,
	// (columns / 64, together, 64).
	unsigned blocks, together;
	// With places: the number of slots of each row, and the first row; 0: the input of a slot is at its place.
	unsigned copies, first_row;
	unsigned head_rows, x_head; // as struct gemm_params; x_head: numbers from a head of x to the next
	float epsilon;
};

// Rows of one expert, which a block multiplies: none if first == last.
struct gemm_group {
	unsigned expert, first, last;
};

struct gemm_params {
	struct stage_matrix matrix;                // of experts: the first one's; the others' tiles lie behind
	ON_DEVICE(const struct gemm_group) groups; // by BLOCK_Y; NULL: rows of one matrix
	ON_DEVICE(const unsigned short) x;         // prepare's
	ON_DEVICE(const float) factors;
	ON_DEVICE(float) y;        // (rows, y_stride)
	ON_DEVICE(float) partial;  // (splits, rows, y rows) if there are several
	ON_DEVICE(unsigned) ready; // (tiles): zero before and after
	unsigned rows, padded, planes, plane, y_stride, mode, splits;
	// Products of heads: each head has so many rows of x, behind those of the head before, and tiles behind that
	// one's. Its results are in the same rows of y, y_head numbers behind those of the head before. 0: there are no
	// heads.
	unsigned head_rows, y_head;
};

// ---- experts; a slot is a row together with one of its experts ----

struct route_params {
	ON_DEVICE(const float) scores; // (rows, experts)
	ON_DEVICE(unsigned) chosen;    // (rows, used)
	ON_DEVICE(float) weights;      // (rows, used)
	// (experts): scores are sigmoids, and this is added to them where experts are chosen; or NULL
	ON_DEVICE(const float) choice;
	unsigned experts, used, share; // share: weights are parts of the softmax of all scores, or sigmoids as they are
	unsigned groups, groups_used;  // of experts, as struct model_shape; 0: there are none
	float scale;                   // of weights
};

struct order_params {
	ON_DEVICE(const unsigned) chosen;    // (slots): row by row
	ON_DEVICE(unsigned) places;          // (slots): for each place the slot, sorted by expert
	ON_DEVICE(unsigned) slot_rows;       // (slots): rows
	ON_DEVICE(struct gemm_group) groups; // (group_count)
	unsigned first_row, slots, used, experts, group_rows, group_count;
	unsigned align; // the slots of an expert begin at a multiple of it
};

struct mix_params {
	ON_DEVICE(const float) out;          // (slots, columns)
	ON_DEVICE(const float) weights;      // (rows, used)
	ON_DEVICE(const unsigned) places;    // (rows, used)
	ON_DEVICE(const float) shared;       // (rows, columns): the part for all rows, or NULL
	ON_DEVICE(const float) shared_score; // (rows): it is multiplied by the sigmoid; or NULL
	ON_DEVICE(float) x;                  // (rows, columns)
	unsigned columns, used, store;       // store: x = the sum, instead of x += the sum
};

enum {
	MIXTURE_SLOTS = 64,
	MIXTURE_EXPERTS = 256,
	MIXTURE_CHOICE_BYTES = 2560
}; // the largest numbers; and the bytes
   // of a block's choice

// Few rows through their experts; a row's slots follow each other. In: gate and up; out: down.
struct mixture_params {
	ON_DEVICE(const unsigned char) tiles[2]; // of the first expert; the others' lie behind
	ON_DEVICE(const float) scores;           // (rows, experts)
	ON_DEVICE(const float) x;                // in: (rows, columns); out: (slots, columns)
	ON_DEVICE(const float) norm;             // in: (columns): the input is x's RMS norm; NULL: x itself
	ON_DEVICE(const float) shared;           // out: (rows, results): the part for all rows, or NULL
	ON_DEVICE(const float) shared_score;     // out: (rows): it is multiplied by the sigmoid; or NULL
	ON_DEVICE(const float) choice;           // as struct route_params
	ON_DEVICE(float) y;                      // in: (slots, results) =; out: (rows, results) +=
	unsigned rows, columns, padded, results; // results: of one expert
	unsigned row_tiles, column_tiles;        // of one expert
	unsigned experts, used, share;           // as struct route_params
	unsigned groups, groups_used;
	unsigned warps_of_unit;
	float epsilon, scale;
};

struct wide_params {
	struct stage_matrix matrices[3];   // of one format; gate and up, if gated
	ON_DEVICE(const unsigned short) x; // prepare's, in blocks
	ON_DEVICE(const float) factors;
	ON_DEVICE(float) y;                        // (rows, y_stride)
	ON_DEVICE(float) partial;                  // (splits, rows, y rows) if there are several
	ON_DEVICE(unsigned) ready;                 // (blocks): zero before and after
	ON_DEVICE(const struct gemm_group) groups; // of experts, by BLOCK_X: the matrices are the first one's; or NULL
	unsigned matrix_count, rows, padded, y_stride, mode, splits;
	unsigned x_rows;    // of blocks of up to 64 rows: how many rows lie together
	unsigned part_rows; // results of a row, of all matrices, whole tiles
};

// ---- layers with a state (engine/model/model.h, struct model_delta) ----

// A run in a step's input: its first row, how many, and the slots of the state before and after it. 0: none before.
struct state_run {
	unsigned row, rows, from, to;
};

struct convolve_params {
	ON_DEVICE(const float) in;              // (rows, in_stride): the channels; of a short convolution x, c and b
	ON_DEVICE(const float) weights;         // (channels, kernel)
	ON_DEVICE(float) states;                // of this layer: (slots, state_size)
	ON_DEVICE(const struct state_run) runs; // by BLOCK_Y
	ON_DEVICE(float) out;                   // (rows, channels)
	unsigned in_stride, channels, kernel, state_size;
	unsigned is_short;
};

struct delta_params {
	ON_DEVICE(const float) mixed; // (rows, channels): q of all key heads, their k, v of all heads
	ON_DEVICE(const float) in;    // (rows, in_stride): from gate_at on gates, from beta_at on beta and alpha
	ON_DEVICE(const float) decay; // (heads)
	ON_DEVICE(const float) bias;  // (heads), of alpha
	ON_DEVICE(const float) norm;  // (value_size)
	ON_DEVICE(float) states;      // of this layer: (slots, state_size); the matrices begin at state_at
	ON_DEVICE(const struct state_run) runs; // by BLOCK_Y
	ON_DEVICE(float) out;                   // (rows, heads * value_size)
	unsigned in_stride, channels, gate_at, beta_at, state_size, state_at;
	unsigned heads, key_heads, key_size, value_size;
	unsigned grouped;       // the heads of a key head are neighbours, and beta and alpha one matrix
	unsigned column_blocks; // of a head
	float epsilon;
};

// ---- attention to latents (engine/model/model.h, struct model_latent) ----

// Some rows of a step: a turn. Heads of a block of `attend`: block_heads of each of block_rows rows.
struct latent_params {
	ON_DEVICE(const float) k;            // (rows of the step, rank + turned): latents, and the keys that turn
	ON_DEVICE(const float) queries;      // (rows of the step, heads, key_size); the last `turned` numbers turn
	ON_DEVICE(const float) norm;         // (rank), of latents
	ON_DEVICE(const float) rope;         // (context, turned / 2, 2)
	ON_DEVICE(unsigned short) kv;        // of this layer: (pages, STAGE_KV_PAGE, padded)
	ON_DEVICE(const unsigned) positions; // (rows of the step)
	ON_DEVICE(const unsigned) tables;    // where a row's pages begin in `pages` (rows of the step)
	ON_DEVICE(const unsigned) pages;
	ON_DEVICE(float) q;       // (rows, heads, rank + turned)
	ON_DEVICE(float) out;     // (rows, heads, out_stride): the weighted latents, and zeros
	ON_DEVICE(float) partial; // (rows, heads, splits, rank + 2)
	unsigned first, rows;     // of the turn
	unsigned heads, key_size, rank, turned, padded, out_stride, rope_halves;
	unsigned block_heads, block_rows, splits;
	float epsilon, scale; // scale: with log2 e
};

struct argmax_params {
	ON_DEVICE(const float) logits; // (rows, count)
	ON_DEVICE(unsigned) out;
	ON_DEVICE(float) partial;  // (rows, blocks, 2)
	ON_DEVICE(unsigned) ready; // (rows): zero before and after
	unsigned rows, count;
};

enum { CANDIDATES_LEAST = 64, CANDIDATES_MOST = 256 }; // as STAGE_CANDIDATES_LEAST and STAGE_CANDIDATES_MOST

struct candidate {
	float logit;
	unsigned token;
};
struct candidate_list { // as struct stage_candidates
	unsigned count;
	struct candidate of[CANDIDATES_MOST];
};
struct candidates_params {
	ON_DEVICE(const float) logits; // (rows, count)
	ON_DEVICE(struct candidate_list) out;
	unsigned count;
};

enum { REDUCE_SLICES = 8 }; // as STAGE_SLICES

// Adds the outputs of the slices of a stage on the device of each slice. The others' outputs are read or, for few rows,
// sent by them.
struct reduce_params {
	ON_DEVICE(const float) summands[REDUCE_SLICES]; // (numbers), of each slice
	ON_DEVICE(float) x;                             // (numbers)
	ON_DEVICE(const unsigned) told;                 // (slices): in which turn each of them has its summand there
	ON_DEVICE(unsigned) tells[REDUCE_SLICES];       // this slice's place in the flags of each other slice
	// For few rows (numbers), each with its turn: the values received from each slice, and the place for this
	// slice's values.
	ON_DEVICE(const unsigned long long) came[REDUCE_SLICES];
	ON_DEVICE(unsigned long long) send[REDUCE_SLICES];
	ON_DEVICE(unsigned) turn;   // the last turn of this slice, and blocks that are done
	ON_DEVICE(unsigned) failed; // of the host: not 0 once a slice has not come
	unsigned slices, slice, numbers;
	unsigned few;        // few rows: the summands are sent
	unsigned first_only; // x = the first one's, instead of x += the sum of all
	unsigned early;      // the next kernel may begin while this one waits
};

struct repack_params {
	struct tile_source source;
	ON_DEVICE(unsigned) out;
	unsigned row_tiles, column_tiles;
};
