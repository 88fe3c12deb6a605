/* See convert.h. A row is decoded to f32 and encoded again, one after the other. */
#include "engine/model/convert.h"

#include <stdlib.h>

void model_tensor_as(const struct model_tensor *tensor, enum tensor_format format, struct model_tensor *held)
{
	bool wide = tensor->format == FORMAT_F32 || tensor->format == FORMAT_F16 || tensor->format == FORMAT_BF16;
	*held = *tensor;
	if (tensor->packing) // whatever is wished for: it is not computed with as it is
		*held = (struct model_tensor){.format = tensor->format,
					      .rows = tensor->rows,
					      .columns = tensor->columns,
					      .bytes = format_row_bytes(tensor->format, tensor->columns) *
						       tensor->rows};
	if (!format || !wide || tensor->kept || tensor->rows == 1 || tensor->format == format)
		return;
	uint64_t row_bytes = format_row_bytes(format, tensor->columns);
	if (!row_bytes || row_bytes * tensor->rows >= held->bytes)
		return;
	*held = (struct model_tensor){
		.format = format, .rows = tensor->rows, .columns = tensor->columns, .bytes = row_bytes * tensor->rows};
}

enum status model_convert(const struct model_tensor *tensor, const struct model_tensor *held, uint32_t first_row,
			  uint32_t row_count, uint8_t *bytes)
{
	uint64_t from_bytes = tensor->bytes / tensor->rows, to_bytes = held->bytes / held->rows;
	const uint8_t *from = tensor->data + first_row * from_bytes;
	const bool as_held = tensor->packing && held->format == tensor->format;
	float *row = malloc(tensor->columns * sizeof(*row));
	uint8_t *plain = malloc(format_row_bytes(tensor->format, tensor->columns));
	const bool room = row && plain;
	for (uint32_t i = 0; i < row_count && room; i++, from += from_bytes, bytes += to_bytes) {
		if (tensor->packing)
			packing_unpack(tensor->packing, from, as_held ? bytes : plain, tensor->columns);
		if (as_held)
			continue;
		format_decode(tensor->format, tensor->packing ? plain : from, row, tensor->columns);
		format_encode(held->format, row, bytes, tensor->columns);
	}
	free(plain);
	free(row);
	return room ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}
