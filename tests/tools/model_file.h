/* Small model files with random weights, in memory, for tests: any family, format, shape.
 *
 * The weights are drawn by seed and tensor and are the same numbers in every format (rounded to f16 first, then
 * encoded), of a scale at which activations neither die nor explode. Memory that runs out ends the program. */
#pragma once
#include "engine/model/model.h"
#include "tests/tools/model_words.h"

enum model_scaling {
	SCALING_NONE,
	SCALING_LINEAR,  // factor 4
	SCALING_FACTORS, // rope_freqs.weight, as Llama 3: 1 to 8
	SCALING_YARN,    // factor 4
};

struct model_file {
	enum model_family family;
	uint32_t layers, embedding, feed_forward;
	uint32_t heads, kv_heads;
	uint32_t head_size;                           // 0: embedding / heads
	uint32_t experts, experts_used, expert_width; // of architectures that have them; feed_forward: what all share
	struct model_delta delta; // of qwen35; zeros: heads and sizes as of attention, the keys' heads as its keys'
	uint32_t vocabulary, context;
	enum tensor_format format; // of matrices; one that a matrix' columns do not fit becomes Q8_0, or F16
	enum tensor_format embedding_format, output_format; // FORMAT_UNKNOWN: as the others
	bool mixed;                                         // each matrix in another format, all in turn
	enum tensor_format more_format; // of attn_v and ffn_down in half of the layers: Q6_K in llama.cpp's Q4_K_M
	bool tied;
	enum model_scaling scaling;
	float rope_base;    // 0: 10000
	uint32_t rope_size; // 0: head_size
	float norm_epsilon; // 0: 1e-5
	float outlier;      // not 0: about how large some activations in the first layer get
	enum model_words words;
	const char *chat_template; // NULL: usual for the words
	const char *name;          // NULL: "random"
	uint64_t seed;
	uint32_t alignment;                       // 0: 32
	void (*more)(struct gguf_writer *writer); // NULL, or puts further keys, and tensors of zeros
};

// A plain small model: llama, 2 layers, embedding 64, feed_forward 160, 4 heads, 2 of keys, vocabulary 512 with
// WORDS_PIECES, context 256, Q8_0.
struct model_file model_file_small(void);

// The whole file; the caller frees it.
uint8_t *model_file_make(const struct model_file *file, size_t *length);
// The same to a path. False (and errno) if it cannot be written.
bool model_file_save(const struct model_file *file, const char *path);
// Opened: parsed over memory of its own.
struct model_file_open {
	uint8_t *bytes;
	struct gguf *gguf;
	struct model *model;
};
void model_file_open(struct model_file_open *out, const struct model_file *file); // a fault ends the program
void model_file_close(struct model_file_open *open);

// ---- for writers of large files: what there is, without the data ----

enum model_file_kind { KIND_MATRIX, KIND_NORM, KIND_BIAS, KIND_FACTORS, KIND_DECAY };
struct model_file_tensor {
	char name[GGUF_NAME_BYTES + 1];
	enum model_file_kind kind;
	enum tensor_format format;
	uint64_t rows, columns, place, bytes; // place: within the file; rows: of all experts
	uint32_t experts;                     // whose rows they are; 0: of none
	float scale;                          // standard deviation
	uint64_t seed;
};
struct model_file_plan {
	struct buffer head;                // until the data
	struct model_file_tensor *tensors; // (count)
	size_t count;
	uint64_t bytes; // of the file
};
void model_file_plan(struct model_file_plan *plan, const struct model_file *file);
void model_file_plan_finish(struct model_file_plan *plan);
// `count` numbers of a tensor, from `first` on.
void model_file_numbers(const struct model_file_tensor *tensor, uint64_t first, uint64_t count, float *values);
