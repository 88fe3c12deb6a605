/* Opens a model file's model: its shape, and the tensor of each role.
 *
 * model_open checks that the file is of a supported family, that every tensor is there with a supported format and the
 * size that follows from the shape, and that the vocabulary fits. So back ends check nothing again. Thread: any, once
 * it is open; immutable. */
#pragma once
#include "common/base/limits.h"
#include "engine/model/gguf.h"

#include <math.h>

// architecture.c describes what each family computes.
enum model_family {
	FAMILY_UNKNOWN,
	FAMILY_LLAMA,
	FAMILY_QWEN2,
	FAMILY_QWEN3,
	FAMILY_PHI3,
	FAMILY_GRANITE,
	FAMILY_SMOLLM3,
	FAMILY_OLMO2,
	FAMILY_GLM4,
	FAMILY_GEMMA,
	FAMILY_GEMMA2,
	FAMILY_GEMMA3,
	FAMILY_QWEN3MOE,
	FAMILY_QWEN2MOE,
	FAMILY_GRANITEMOE,
	FAMILY_OLMOE,
	FAMILY_QWEN35,
	FAMILY_QWEN35MOE,
	FAMILY_BERT,
	FAMILY_NOMIC_BERT,
	FAMILY_GPT_OSS,
	FAMILY_MISTRAL3,
	FAMILY_GLM4MOE,
	FAMILY_QWEN3NEXT,
	FAMILY_LFM2,
	FAMILY_LFM2MOE,
	FAMILY_QWEN2VL,
	FAMILY_QWEN3VL,
	FAMILY_QWEN3VLMOE,
	FAMILY_SEED_OSS,
	FAMILY_ERNIE4_5,
	FAMILY_MINIMAX_M2,
	FAMILY_DEEPSEEK2,
	FAMILY_COUNT
};
const char *model_family_name(enum model_family family);
enum model_family model_family_parse(const char *name); // FAMILY_UNKNOWN if the name is unknown

// The gate of the feed-forward network. GATE_GELU: with tanh. GATE_NONE: no gate; GELU (with erf) of up and its bias.
// GATE_CLAMPED (gpt-oss): for gate g, at most 7, and up u, from -7 to 7, it gives (u + 1) * g * sigmoid(1.702 g).
enum model_gate { GATE_SILU, GATE_GELU, GATE_NONE, GATE_CLAMPED };
// How the embedding of a text is made of the hidden states of its tokens. Numbers as in the file.
enum model_pooling {
	POOLING_UNKNOWN, // the file does not say: the mean
	POOLING_MEAN,
	POOLING_FIRST, // the first token's
	POOLING_LAST,  // the last token's
	POOLING_RANK,  // a score for a query and a document, by the classifier behind the first token's or, of a
		       // language model, the last token's
};
// The text that a language model is asked with about a {query} and a {document}, if it is a reranker: the file's key,
// and the most bytes.
#define MODEL_PAIR_TEMPLATE "tokenizer.chat_template.rerank"
enum { MODEL_PAIR_BYTES = 65536 };
enum qk_norm { QK_NORM_NONE, QK_NORM_HEADS, QK_NORM_WHOLE };
// Bits of a layer.
enum model_layer {
	LAYER_SLIDES = 1,   // attends to the last `window` positions only, its own included
	LAYER_UNTURNED = 2, // no rotary positions
	LAYER_LOCAL = 4,    // turns by the second table of positions
	LAYER_DELTA = 8,    // a state in the place of keys and values (struct model_delta)
	LAYER_DENSE = 16,   // no experts, in a model whose other layers have some
};

// Gated DeltaNet (Yang et al., "Gated Delta Networks: Improving Mamba2 with Delta Rule", 2024): what layers with
// LAYER_DELTA compute. Such a layer has no keys and values of earlier tokens; it has a state of a fixed size for each
// request: for each head a matrix (key_size, value_size), and the last kernel - 1 rows that its convolution took.
// Head i takes the queries and keys of key head i % key_heads or, of grouped heads (qwen3next), of key head
// i / (heads / key_heads). There beta and alpha are one matrix: for each key head the rows of beta of its heads, then
// those of alpha.
//
// Without key heads (LFM2) such a layer is a short convolution alone: b, c, x = parts of Win h; a row gives
// Wout (c * (convolution of b * x)), and its state is the last kernel - 1 rows of b * x. There is one head, and
// value_size is the embedding.
enum { MODEL_KERNEL_MOST = 16, MODEL_EXPERT_GROUPS_MOST = 64 };
struct model_delta {
	uint32_t key_heads, heads;     // heads is a multiple of key_heads
	uint32_t key_size, value_size; // of a head
	uint32_t kernel;               // rows of the convolution, the row's own included
	bool grouped;
};

// Multi-head latent attention (DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1): a token's keys and values are made of
// one latent of `rank` numbers, beside which there is one key of rope_size numbers that turns. The matrices that would
// make each head's key and value of the latent are applied to its query and to its result instead, so that only latents
// are kept: one head of keys of head_size = rank + rope_size numbers, whose first `rank` numbers are its value, too.
//
//     c, r = parts of Wk h; c = norm(c); r turns            kept
//     n, t = parts of Wq norm(Wqa h), of each head; t turns  without query_rank: of Wq h
//     q = Wkb n over t; a = attention(q, c over r, c)
//     x = x + Wo (Wvb a of each head)
struct model_latent {
	uint32_t rank;                 // 0: the model has none
	uint32_t query_rank;           // 0: queries come from h
	uint32_t key_size, value_size; // of a head, as if keys and values were made: n and t; Wvb a
};

// Limits on shapes, so that nothing overflows: layers 512, embedding, feed_forward and expert_width 65536 (even; a
// format of blocks has rows of whole blocks), heads 512, head_size 512 (even; of latents 640), vocabulary 1,048,576,
// context 16,777,216, experts 1024, of which a token takes 64. A shape with only its sizes set is llama's without
// rotary positions: every other field has no effect at 0.
struct model_shape {
	enum model_family family;
	uint32_t layers, embedding;
	uint32_t feed_forward;    // of the part that every token goes through; 0: there are experts alone
	uint32_t heads, kv_heads; // heads is a multiple of kv_heads
	uint32_t head_size;       // heads * head_size need not be embedding (qwen3)
	uint32_t vocabulary, context;
	// Activations are stored divided by the residual scale, if the model has one; so the scale costs nothing.
	float norm_epsilon;
	float embedding_scale;        // of embeddings, divided by the residual scale, too; 0: 1
	float attention_scale;        // of scores; 0: 1 / sqrt(head_size)
	float attention_cap;          // scores = cap * tanh(scores / cap); 0: none
	float logit_scale, logit_cap; // of logits, the same way, the scale first; 0: none
	enum model_gate gate;
	uint32_t window;                         // of layers that slide
	uint8_t layer_kinds[LIMIT_MODEL_LAYERS]; // bits of enum model_layer
	bool bare_input;                         // olmo2: q, k, v, gate and up take x without a norm
	bool post_norm;                          // what either half of a layer adds has a norm of its own
	// Rotary positions: the first rope_size values of a head turn in pairs. With rope_halves value i is paired with
	// i + rope_size / 2 (qwen), else 2 i with 2 i + 1 (llama). The angle of pair i at position p is p *
	// rope_frequency[i]; both values are multiplied by rope_magnitude. All scalings (linear, factors of Llama 3,
	// YaRN) are in these; factors only where their tensor could be read (gguf_holds). A context of more than
	// rope_original positions turns by rope_frequency_long (LongRoPE; 0: there is but one). Layers that are local
	// turn by rope_frequency_local, whose table lies behind the other.
	uint32_t rope_size, rope_original;
	bool rope_halves;
	float rope_magnitude;
	double rope_frequency[256], rope_frequency_long[256], rope_frequency_local[256];
	bool rope_local;      // there is a second table
	bool qkv_bias;        // qwen2
	bool output_bias;     // gpt-oss: the attention's output has a bias, too
	bool sinks;           // gpt-oss: each head has a score that takes its part of the softmax, and no value
	enum qk_norm qk_norm; // RMS norm of q and k before they turn: of each head (qwen3), or of all (olmo2)
	bool tied;            // the output matrix is the token embedding
	// A mixture of experts: a router gives each of a token's experts a score, and the experts_used largest are
	// computed. Each is a feed-forward network of its own, expert_width wide. The result for a token is the sum of
	// their outputs, each times its weight: the softmax over the scores of the chosen experts or, with
	// expert_share, of all experts. The shared expert (feed_forward wide), which all tokens go through, is added;
	// with shared_gate it is multiplied by the sigmoid of a score of its own.
	uint32_t experts, experts_used, expert_width; // experts 0: none
	bool expert_share, shared_gate;
	// glm4moe: an expert's score is the sigmoid of the router's. A bias of the layer is added where experts are
	// chosen, and is no part of their weights, which are their scores divided by the sum of the chosen ones'; with
	// expert_share they are not divided.
	bool expert_sigmoid;
	float expert_scale;                 // weights of experts are multiplied by it; 0: 1
	uint32_t dense_layers, dense_width; // the first layers, without experts, and how wide they are
	// deepseek2: experts are in so many groups, one group's behind another's, and a token takes only experts of the
	// expert_groups_used best. A group is as good as its best expert or, with sigmoids, as the sum of the best two.
	uint32_t expert_groups, expert_groups_used; // 0: there are no groups
	struct model_delta delta;                   // of layers with LAYER_DELTA; zeros: there are none
	struct model_latent latent;
	// For each head q has 2 * head_size rows: the query, and a gate. The output of the head is multiplied by the
	// sigmoid of the gate.
	bool gated_attention;
	enum model_pooling pooling;
	// An encoder (bert): it generates no text. Every token attends to all of its text, x = norm(x + what half a
	// layer gives), and norms take off the mean and add a bias. Embedding and classifier are the host's
	// (stage_encoder.h): back ends have the layers alone.
	bool encoder;
	bool turned;        // positions turn (nomic-bert); else they are a table that is added to embeddings
	bool biases;        // bert: of attention's output and of the feed-forward network
	uint32_t types;     // rows of the table of token types; 0: the model has none
	uint32_t separator; // of an encoder: tokens behind the first of these are of the second type, in pairs
	bool head;          // there is a layer before the classifier's last
	bool expert_bias;   // gpt-oss: the router's scores and each expert's gate, up and down have biases
};

enum model_role {
	ROLE_UNKNOWN,
	ROLE_TOKEN_EMBEDDING, // (vocabulary, embedding)
	ROLE_POSITIONS,       // (context, embedding), of an encoder, unless positions turn
	ROLE_TYPES,           // (types, embedding), of an encoder
	ROLE_EMBEDDING_NORM,  // (embedding), of an encoder
	ROLE_EMBEDDING_BIAS,
	ROLE_OUTPUT_NORM, // (embedding)
	ROLE_HEAD,        // (embedding, embedding), of a reranker; may be missing
	ROLE_HEAD_BIAS,
	ROLE_SCORE, // (1, embedding), of a reranker; (2, embedding) of a language model: for yes and no
	ROLE_SCORE_BIAS,
	ROLE_OUTPUT, // (vocabulary, embedding); the token embedding's, if tied
	// of each layer
	ROLE_ATTENTION_NORM, // (embedding), unless bare_input
	ROLE_Q,              // (heads * head_size, embedding); twice the rows with gated_attention
	ROLE_K,              // (kv_heads * head_size, embedding)
	ROLE_V,
	ROLE_Q_BIAS, // (heads * head_size), with qkv_bias
	ROLE_K_BIAS,
	ROLE_V_BIAS,
	ROLE_Q_NORM,           // (head_size), with qk_norm; (heads * head_size) of QK_NORM_WHOLE
	ROLE_K_NORM,           // (head_size); (kv_heads * head_size)
	ROLE_Q_A,              // (query_rank, embedding), of latents, where ROLE_Q is (heads * key_size, query_rank)
			       // or, without it, (heads * key_size, embedding), ROLE_Q_NORM (query_rank),
			       // ROLE_K_NORM (rank), and there is no ROLE_V
	ROLE_K_B,              // (heads * rank, key_size - rope_size): one head's rows behind another's
	ROLE_V_B,              // (heads * value_size, rank): the same
	ROLE_ATTENTION_OUTPUT, // (embedding, heads * head_size); of latents (embedding, heads * value_size)
	ROLE_ATTENTION_OUTPUT_BIAS, // (embedding), with biases or output_bias
	ROLE_ATTENTION_POST_NORM,   // (embedding), with post_norm; of an encoder
	ROLE_ATTENTION_POST_BIAS,   // (embedding), of an encoder
	ROLE_FFN_NORM,              // (embedding), unless bare_input
	ROLE_FFN_GATE,              // (feed_forward, embedding), unless there are experts alone
	ROLE_FFN_UP,
	ROLE_FFN_UP_BIAS,   // (feed_forward), with biases
	ROLE_FFN_DOWN,      // (embedding, feed_forward)
	ROLE_FFN_DOWN_BIAS, // (embedding), with biases
	ROLE_FFN_POST_NORM, // (embedding), with post_norm; of an encoder
	ROLE_FFN_POST_BIAS, // (embedding), of an encoder
	ROLE_ROUTER,        // (experts, embedding), with experts
	ROLE_EXPERT_GATE,   // (experts * expert_width, embedding): one expert's rows behind another's
	ROLE_EXPERT_UP,
	ROLE_EXPERT_DOWN,      // (experts * embedding, expert_width)
	ROLE_SHARED_GATE,      // (1, embedding), with shared_gate: a matrix of one row
	ROLE_SINKS,            // (heads), with sinks
	ROLE_ROUTER_BIAS,      // (experts), with expert_bias
	ROLE_ROUTER_CHOICE,    // (experts), with expert_sigmoid: added to scores where experts are chosen
	ROLE_EXPERT_GATE_BIAS, // (experts, expert_width): vectors, too
	ROLE_EXPERT_UP_BIAS,
	ROLE_EXPERT_DOWN_BIAS, // (experts, embedding)
	// Of each layer with LAYER_DELTA, instead of the roles of attention. Channels: the queries of all key heads,
	// their keys, and the values of all heads.
	ROLE_DELTA_QKV,    // (channels, embedding); of a short convolution x, and the next two are c and b
	ROLE_DELTA_GATE,   // (heads * value_size, embedding)
	ROLE_DELTA_BETA,   // (heads, embedding); of grouped heads (2 * heads, embedding), and there is no alpha;
			   // of a short convolution (embedding, embedding)
	ROLE_DELTA_ALPHA,  // (heads, embedding); this, decay, bias and norm are not of a short convolution
	ROLE_DELTA_CONV,   // (channels, kernel), F32, the oldest row first
	ROLE_DELTA_DECAY,  // (heads): negative
	ROLE_DELTA_BIAS,   // (heads), added to alpha
	ROLE_DELTA_NORM,   // (value_size)
	ROLE_DELTA_OUTPUT, // (embedding, heads * value_size)
	ROLE_COUNT
};

// Where a tensor of heads lies in an older file: each head has `rows` rows there, in which this tensor's part begins
// with row `first`. across: that part is the other way round, its columns are this tensor's rows. heads 0: it does not.
struct model_joined {
	uint32_t heads, rows, columns, first;
	bool across;
	enum tensor_format format; // of the file, once it is not packed
};

// (rows, columns), row-major; vectors have one row (biases of experts one each) and are F32 always. y = W x takes
// `columns` values and gives `rows`.
struct model_tensor {
	enum tensor_format format;
	uint32_t rows, columns;
	const uint8_t *data; // (bytes)
	uint64_t bytes;
	bool kept;                   // held in its format even where another is wished for: what experts are chosen by
	enum tensor_packing packing; // not PACKING_NONE: data and bytes are as in the file, and not in `format` yet
	uint64_t pitch; // bytes from a row to the next, where something else lies between them; 0: nothing does
	struct model_joined joined; // with heads: data and bytes are as in the file, and not in this form yet
};
// Bytes from a row to the next; each has bytes / rows.
static inline uint64_t model_tensor_pitch(const struct model_tensor *tensor)
{
	return tensor->pitch ? tensor->pitch : tensor->bytes / tensor->rows;
}

// The task of a model, which follows from its shape.
enum model_task { TASK_TEXT, TASK_EMBEDDING, TASK_RERANK };
enum model_task model_task(const struct model_shape *shape);
// "text", "embedding", "rerank"; "mean", "first", "last", "rank", and NULL of POOLING_UNKNOWN.
const char *model_task_name(enum model_task task);
const char *model_pooling_name(enum model_pooling pooling);
enum model_pooling model_pooling_parse(const char *name); // POOLING_UNKNOWN if the name is unknown

struct model;

// `gguf` must outlive the model. Errors: STATUS_INVALID_PARAMS (what is missing or does not fit, by name),
// STATUS_UNAVAILABLE (an unsupported family, format or feature, by name, with a hint that lists those that are
// supported).
enum status model_open(struct model **out, const struct gguf *gguf, struct error *error);
void model_destroy(struct model **model);
const struct model_shape *model_shape(const struct model *model);
// False if this model has no such tensor (a bias, ROLE_OUTPUT is always there). `layer` is ignored for the first three.
bool model_tensor(const struct model *model, enum model_role role, uint32_t layer, struct model_tensor *out);

// The factor of attention scores.
static inline float model_attention_scale(const struct model_shape *shape)
{
	return shape->attention_scale > 0 ? shape->attention_scale : 1 / sqrtf((float)shape->head_size);
}
static inline bool model_is_latent(const struct model_shape *shape)
{
	return shape->latent.rank;
}
// Numbers of a value, and of the key and the value of a position and a head of keys as they are kept.
static inline uint32_t model_value_size(const struct model_shape *shape)
{
	return model_is_latent(shape) ? shape->latent.rank : shape->head_size;
}
static inline uint32_t model_kept_size(const struct model_shape *shape)
{
	return model_is_latent(shape) ? shape->head_size : 2 * shape->head_size;
}
// Columns of the attention's output matrix.
static inline uint32_t model_attended(const struct model_shape *shape)
{
	return shape->heads * (model_is_latent(shape) ? shape->latent.value_size : shape->head_size);
}
// How many positions a layer attends to, its own included; UINT32_MAX: all before.
static inline uint32_t model_layer_window(const struct model_shape *shape, uint32_t layer)
{
	return shape->layer_kinds[layer] & LAYER_SLIDES ? shape->window : UINT32_MAX;
}
// Columns of a layer's feed-forward network, or of the part of it that every token goes through; and of the widest.
static inline uint32_t model_layer_width(const struct model_shape *shape, uint32_t layer)
{
	return shape->layer_kinds[layer] & LAYER_DENSE ? shape->dense_width : shape->feed_forward;
}
static inline uint32_t model_widest_layer(const struct model_shape *shape)
{
	return shape->dense_width > shape->feed_forward ? shape->dense_width : shape->feed_forward;
}
static inline bool model_layer_has_experts(const struct model_shape *shape, uint32_t layer)
{
	return shape->experts && !(shape->layer_kinds[layer] & LAYER_DENSE);
}
// Whether the model uses only what llama and qwen use. Code paths that are made for those families serve only plain
// models.
static inline bool model_is_plain(const struct model_shape *shape)
{
	bool plain = !shape->bare_input && !shape->encoder && !shape->post_norm && !shape->gate &&
		     shape->qk_norm != QK_NORM_WHOLE && !(shape->attention_cap > 0) && !shape->experts &&
		     !shape->output_bias && !shape->sinks && !model_is_latent(shape);
	for (uint32_t i = 0; plain && i < shape->layers; i++)
		plain = !shape->layer_kinds[i];
	return plain;
}

// Whether any layer, or the ends of the model, have a tensor of this role.
bool model_has_role(const struct model_shape *shape, enum model_role role);
// Whether this layer has one.
bool model_layer_has_role(const struct model_shape *shape, uint32_t layer, enum model_role role);
// Whether any layer has a state.
static inline bool model_is_recurrent(const struct model_shape *shape)
{
	return shape->delta.heads;
}
// How many of the layers from `first` on have a state; the others have keys and values.
uint32_t model_delta_layers(const struct model_shape *shape, uint32_t first, uint32_t count);
// Columns that the convolution takes.
static inline uint32_t model_delta_channels(const struct model_delta *delta)
{
	return 2 * delta->key_heads * delta->key_size + delta->heads * delta->value_size;
}
// Whether layers with a state are short convolutions.
static inline bool model_delta_is_short(const struct model_delta *delta)
{
	return delta->heads && !delta->key_heads;
}
// Columns that the product with ROLE_DELTA_BETA gives.
static inline uint32_t model_delta_betas(const struct model_delta *delta)
{
	return model_delta_is_short(delta) ? delta->value_size : delta->grouped ? 2 * delta->heads : delta->heads;
}
// What layers with a state have, in messages.
static inline const char *model_delta_name(const struct model_delta *delta)
{
	return model_delta_is_short(delta) ? "short convolutions" : "layers with a gated delta rule";
}
// Rows of the queries' matrix for each head.
static inline uint32_t model_query_rows(const struct model_shape *shape)
{
	return shape->gated_attention ? 2 * shape->head_size : shape->head_size;
}
// How many values a vector has; 0 of a matrix, or if the model has none of this role.
uint32_t model_vector_length(const struct model_shape *shape, enum model_role role);
// Whether a stage of it can be cut into slices: no norm goes over what the slices would share, and there are no
// experts.
bool model_can_slice(const struct model_shape *shape);
// Whether the role's tensor has the rows of all heads, and each is a matrix of its own.
static inline bool model_role_is_heads(enum model_role role)
{
	return role == ROLE_K_B || role == ROLE_V_B;
}
// Whether the role's tensor has the rows of all experts.
static inline bool model_role_is_experts(enum model_role role)
{
	return role >= ROLE_EXPERT_GATE && role <= ROLE_EXPERT_DOWN;
}

struct model_sizes {
	uint64_t parameters;                    // numbers in all tensors, a tied output counted once
	uint64_t embedding_bytes, output_bytes; // output: matrix and norm
	uint64_t layer_bytes;                   // of the largest layer
	uint64_t layers_bytes;                  // of all
	uint64_t expert_bytes;                  // of the experts of all layers, among those
	uint64_t format_bytes[FORMAT_COUNT];    // by format
	enum tensor_format main_format;         // of most bytes
};
void model_sizes(const struct model *model, struct model_sizes *sizes);
// Mean bytes of a layer that a step of `rows` rows reads, if each row is of another text. Of the experts those count
// that any row chooses, if all are equally likely.
double model_layer_read(const struct model_shape *shape, const struct model_sizes *sizes, double rows);
// The sizes if matrices of 16 and 32 bits are held in `format` (FORMAT_Q8_0 or FORMAT_Q4_0).
void model_sizes_as(const struct model *model, enum tensor_format format, struct model_sizes *sizes);

// Numbers of the table below.
uint64_t model_rope_numbers(const struct model_shape *shape, uint32_t positions);
// Cosines and sines of all positions below `positions`, of a context of so many: table[(p * rope_size / 2 + i) * 2] is
// the cosine of pair i at position p times rope_magnitude, the next the sine. With rope_local the same for local layers
// behind it. Computed in double.
void model_rope_table(const struct model_shape *shape, uint32_t positions, float *table);
