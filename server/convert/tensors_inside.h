/* What tensors.c, which plans, and tensors_copy.c share. Not for others. */
#pragma once
#include "server/convert/tensors.h"

enum tensor_kind { KIND_MATRIX, KIND_VECTOR, KIND_NORM, KIND_Q, KIND_K, KIND_ROUTER, KIND_EXPERTS };

// A tensor of the directory, and what it is called in the model file. In a layer both names stand behind its number;
// '#' in the first is the number of an expert.
struct tensor_rule {
	const char *from, *to;
	enum tensor_kind kind;
	enum { IN_ALL, WITHOUT_POST_NORMS, WITH_POST_NORMS } in;
};

// The tensor that expert `expert` (0, where there are none) of a planned tensor is made of; NULL: there is none.
const struct safetensor *tensors_source(const struct tensor_plan *plan, const struct tensor_rule *rule, uint32_t layer,
					uint32_t expert);
// How many tensors a planned one is made of.
uint32_t tensors_pieces(const struct tensor_plan *plan, const struct tensor_rule *rule);
