/* Which tensors a model file gets, and which tensors of a model's directory each is made of: one table of names for all
 * architectures. Matrices keep their format; vectors, and the matrices that choose experts, become F32. In files of
 * `llama` the rows of a head of q and k that turn together are neighbours: row 2 i is row i, and row 2 i + 1 is row
 * size / 2 + i. Experts, each a tensor in the directory, become one. Thread: any; what copies waits for the disk. */
#pragma once
#include "server/convert/config.h"
#include "server/convert/safetensors.h"

#include <stdbool.h>

struct tensor_rule;

struct planned_tensor {
	struct gguf_tensor tensor;      // without its data
	const struct tensor_rule *rule; // NULL: `factors` are its values
	uint32_t layer;
	enum config_factors factors;
};

struct tensor_plan {
	const struct model_config *config;
	const struct safetensors *from; // sorted
	struct planned_tensor *tensors; // (count)
	size_t count, capacity;
	bool *used;                // (from->count)
	uint32_t vocabulary;       // rows of the token embedding
	enum tensor_format format; // of most matrices
	uint64_t bytes;            // of all tensors, each aligned
};

enum { PLAN_ALIGNMENT = 32 };

// Errors: STATUS_INVALID_PARAMS (a tensor is missing or has another shape), STATUS_UNAVAILABLE (a tensor, or the type
// of one, that is not converted), STATUS_OUT_OF_MEMORY; by name. To be finished in any case.
enum status tensors_plan(struct tensor_plan *plan, const struct model_config *config, const struct safetensors *from,
			 struct error *error);
void tensor_plan_finish(struct tensor_plan *plan);

struct tensors_copy {
	const struct tensor_plan *plan;
	int to;
	uint64_t at;      // where the tensors begin
	const int *files; // by the number of each tensor's file
	// So many bytes are written. False: give up.
	bool (*progress)(void *context, uint64_t done_bytes);
	void *context;
};
// Write all of them. Errors: STATUS_UNAVAILABLE (a file cannot be read or written; it was given up),
// STATUS_LIMIT_EXCEEDED (the disk is full), STATUS_OUT_OF_MEMORY.
enum status tensors_copy(const struct tensors_copy *copy, struct error *error);
