/* Converts tensors to other formats than those of the file while they are loaded. Packed formats (packing.h) are always
 * converted, and so are tensors of heads that older files have in one (struct model_joined): what is the other way
 * round there is held in F16 if it has blocks, because those go along its rows. To save memory, matrices of 16 and 32
 * bits can be held in Q8_0 or Q4_0. Other quantised tensors, and vectors, stay as they are. The token embedding and the
 * output matrix are converted like all other matrices. Thread: any; pure functions. */
#pragma once
#include "engine/model/model.h"

// How `tensor` is held if `format` is wished for: format and bytes, and no data if that is not the file's.
// FORMAT_UNKNOWN wishes for nothing.
void model_tensor_as(const struct model_tensor *tensor, enum tensor_format format, struct model_tensor *held);

// Rows of a tensor in another format, `held` as model_tensor_as gave it: row_count rows from first_row on, to `bytes`
// (row_count of held's rows). Errors: STATUS_OUT_OF_MEMORY.
enum status model_convert(const struct model_tensor *tensor, const struct model_tensor *held, uint32_t first_row,
			  uint32_t row_count, uint8_t *bytes);
