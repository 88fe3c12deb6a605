/* What each architecture computes: one description for each, which all back ends share.
 *
 * A token's x goes through one program; a description switches parts of it on and off:
 *
 *     x = embedding[token] * embedding scale
 *     of each layer:
 *         h = norm(x)                                   not with bare_input
 *         q, k, v = Wq h, Wk h, Wv h (+ bias)           qkv_bias; one tensor of the file with fused_qkv
 *         q, k = norm(q), norm(k)                       qk_norm: of each head, or of all of them
 *         q, k = turned by their positions              rope_halves; not in every `unturned_every`th layer; by a base
 *                                                       of their own (local_base) in layers that slide
 *         a = attention(q, k, v)                        its scale; its cap; `window` positions in layers that slide;
 *                                                       with sinks one more score for each head, without a value
 *         a = a * sigmoid(gate)                         gated_attention: the gate is part of Wq h
 *         with `latent` keys and values are one latent of a token: struct model_latent draws it
 *         x = x + residual scale * post(Wo a (+ bias))  post: a norm, with post_norm; output_bias
 *     or, in layers of a gated delta rule (whole_every with `recurrent`: all others):
 *         c = Wqkv h; u = silu(convolution of c and the rows before it, each channel by itself)
 *         q, k, v = parts of u; q, k = q / |q| / sqrt(key size), k / |k|            of each head
 *         g = exp(decay * softplus(Walpha h + bias)); b = sigmoid(Wbeta h)
 *         S = g S; S = S + k b (v - S' k)'; a = S' q                                S: the head's state
 *         x = x + Wdelta (norm(a) * silu(Wgate h))                                  norm: of each head
 *     or, in layers of a short convolution (`convolves`: those that the file names):
 *         x = x + Wout (Wc h * convolution of (Wb h * Wx h) and the rows before it)
 *         h = norm(x)
 *         x = x + residual scale * post(Wdown (gate(Wgate h) * Wup h))    gate: SiLU, GELU or clamped; fused_gate_up
 *     or, of a mixture of experts:
 *         s = Wrouter h (+ bias)                        a score for each expert; the experts_used largest are chosen
 *         w = softmax(s of the chosen ones)             expert_share: softmax(s of all)
 *         x = x + residual scale * (sum over the chosen e of w[e] * Wdown[e] (gate(Wgate[e] h) * Wup[e] h))
 *         with expert_bias a bias is added to Wgate[e] h, to Wup[e] h and to what Wdown[e] gives
 *         or, of a sigmoid mixture (expert_sigmoid):
 *         s = sigmoid(Wrouter h)                        the experts_used largest of s + bias are chosen
 *         w = scale * s / (sum of s of the chosen ones)
 *         with file_routing the file says whether s are sigmoids or softmax(Wrouter h), and whether w are divided by
 *         that sum; and only experts of the best groups are chosen (expert_groups)
 *         with a part for all tokens (shared_experts) x = x + residual scale * that part, as above,
 *                                                       times sigmoid(wshared h) with shared_gate
 *     logits = capped(logit scale * Woutput norm(x))
 *
 * An encoder is another program (`encoder`), whose ends stand in engine/stage_encoder.h. Its norms take off the mean
 * and add a bias:
 *
 *     x = norm(embedding[token] + type[of the token] + place[its position])    no place with `turned`
 *     of each layer:
 *         q, k, v = Wq x, Wk x, Wv x (+ bias)           turned by their positions with `turned`
 *         x = norm(x + Wo attention(q, k, v) (+ bias))  every token attends to all of its text
 *         x = norm(x + Wdown (gate(Wgate x) * Wup x))   nomic-bert
 *         x = norm(x + Wdown gelu(Wup x + bias) + bias) bert
 *
 * docs/adding-an-architecture.md tells how to add one. Thread: any; constants and pure functions. */
#pragma once
#include "engine/model/model.h"

// Keys of a file that an architecture computes by; a file of another that has them is refused.
enum architecture_keys {
	KEYS_SCALES = 1,        // attention.scale, embedding_scale, residual_scale, logit_scale
	KEYS_ATTENTION_CAP = 2, // attn_logit_softcapping
	KEYS_LOGIT_CAP = 4,     // final_logit_softcapping
	KEYS_WINDOW = 8,        // attention.sliding_window
	KEYS_EXPERTS = 16,      // expert_count and what belongs to it
	KEYS_TEMPERATURE = 64,  // attention.temperature_scale, and YaRN with a log multiplier
	KEYS_ROUTING = 128,     // weights of experts by a sigmoid and with a scale, first layers without experts
	KEYS_LATENT = 256,      // attention.kv_lora_rank and what belongs to it, and YaRN with a log multiplier
	KEYS_FURTHER = 32,      // nextn_predict_layers: the last so many blocks of the file, which are left out
};

struct architecture {
	const char *name; // general.architecture, and the beginning of its keys
	unsigned keys;    // of enum architecture_keys
	enum model_gate gate;
	enum qk_norm qk_norm;
	bool rope_halves;          // value i turns with i + rope_size / 2, else 2 i with 2 i + 1
	bool qkv_bias, maybe_bias; // maybe: where the file has them
	bool maybe_qk_norm;        // the same of qk_norm
	bool output_bias, sinks;   // model.h
	bool bare_input, post_norm;
	bool fused_qkv, fused_gate_up;  // q over k over v, gate over up, in one tensor
	bool root_scale;                // embeddings are multiplied by the root of their width
	uint32_t unturned_every;        // layers 1 * it, 2 * it, ... (from 1) do not turn; 0: all do
	uint32_t whole_every;           // the same of layers that attend to all: the others slide; 0: all slide
	bool recurrent;                 // the others have a gated delta rule; the file says how many are
	bool convolves;                 // the layers that do not attend have a short convolution; the file names them
	bool grouped_heads;             // of a gated delta rule: struct model_delta
	bool gated_attention;           // model.h
	bool exact_yarn;                // YaRN's bounds are not rounded to whole pairs
	double local_base;              // of positions in layers that slide; 0: as the others
	bool needs_window, needs_caps;  // the file must contain them, because readers differ in their defaults
	bool encoder, turned, biases;   // model.h
	bool needs_experts;             // the file must say how many; else it may be dense
	bool expert_share, expert_bias; // model.h
	bool expert_sigmoid;            // model.h
	bool file_routing;              // the file says whether, and whether weights add up to 1
	bool latent;                    // struct model_latent
	bool late_ffn_norm;             // the norm before the feed-forward network has the name of one behind attention
	bool shared_experts, shared_gate; // there may be a part for all tokens; it has a score of its own
	uint32_t wide_layers;             // a model of so many layers divides scores by the root of embedding / heads
};
// NULL for FAMILY_UNKNOWN.
const struct architecture *architecture_of(enum model_family family);

// Set the fields that follow from the description, the shape's sizes and its window: kinds of layers, norms, gate,
// scales.
void architecture_shape(const struct architecture *architecture, struct model_shape *shape);

// The tensor of a role in the file.
struct wanted_tensor {
	const char *name; // the name after "blk.N." for a tensor of a layer
	uint32_t rows, columns;
	bool vector;
	uint32_t first_row, of_rows; // of a tensor of the file that holds several; of_rows 0: it is this one alone
	bool kept;                   // model.h
	uint32_t experts;            // whose rows they are, in the file's third dimension; 0: of none
};
// The tensor of a role in a model of this shape; false if the model has none.
bool architecture_tensor(const struct model_shape *shape, enum model_role role, struct wanted_tensor *out);

// The tensor of a role in a model with latents (model_latent.c); false: it is the same as in other models.
bool architecture_latent_tensor(const struct model_shape *shape, enum model_role role, struct wanted_tensor *out);

// The same of this layer, which may be of another kind.
bool architecture_layer_tensor(const struct model_shape *shape, uint32_t layer, enum model_role role,
			       struct wanted_tensor *out);

// All names, or as many as there is room for and "...", as a list within a sentence; `bytes` is 64 at least.
void architecture_list(char *out, size_t bytes);
