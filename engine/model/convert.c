/* See convert.h. A row is decoded to f32 and encoded again, one after the other, unless its format stays. */
#include "engine/model/convert.h"

#include <stdlib.h>
#include <string.h>

void model_tensor_as(const struct model_tensor *tensor, enum tensor_format format, struct model_tensor *held)
{
	bool wide = format_is_wide(tensor->format);
	*held = *tensor;
	if (tensor->packing || tensor->joined.heads) // whatever is wished for: it is not computed with as it is
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

// Rows of the file as they are, and where a row of the tensor is among them.
struct source {
	const struct model_tensor *tensor;
	enum tensor_format format; // of the file's rows, once they are not packed
	uint32_t columns;
	uint64_t row_bytes;
	uint8_t *plain; // of a row that is packed
};

static struct source source_of(const struct model_tensor *tensor)
{
	const struct model_joined *joined = &tensor->joined;
	if (!joined->heads)
		return (struct source){tensor, tensor->format, tensor->columns, tensor->bytes / tensor->rows, NULL};
	return (struct source){tensor, joined->format, joined->columns, tensor->bytes / joined->rows / joined->heads,
			       NULL};
}

static const uint8_t *row_at(const struct source *source, uint32_t row)
{
	const struct model_joined *joined = &source->tensor->joined;
	const uint32_t of_head = joined->heads ? source->tensor->rows / joined->heads : 1;
	const uint64_t at = joined->heads ? (uint64_t)(row / of_head) * joined->rows + joined->first + row % of_head
					  : row;
	return source->tensor->data + at * source->row_bytes;
}

static void decode_row(const struct source *source, const uint8_t *from, float *row)
{
	if (source->tensor->packing)
		packing_unpack(source->tensor->packing, from, source->plain, source->columns);
	format_decode(source->format, source->tensor->packing ? source->plain : from, row, source->columns);
}

// Rows of a tensor that is transposed in the file. all: room for the part of a head, (columns, rows of a head).
static void convert_across(const struct source *source, const struct model_tensor *held, uint32_t first_row,
			   uint32_t row_count, float *all, float *row, uint8_t *bytes)
{
	const struct model_joined *joined = &source->tensor->joined;
	const uint32_t columns = source->tensor->columns, of_head = joined->columns;
	const uint64_t to_bytes = held->bytes / held->rows;
	for (uint32_t i = 0; i < row_count; i++, bytes += to_bytes) {
		const uint32_t at = (first_row + i) % of_head, head = (first_row + i) / of_head;
		const uint8_t *from = source->tensor->data +
				      ((uint64_t)head * joined->rows + joined->first) * source->row_bytes;
		for (uint32_t k = 0; k < columns && (!i || !at); k++, from += source->row_bytes)
			decode_row(source, from, all + (size_t)k * of_head);
		for (uint32_t k = 0; k < columns; k++)
			row[k] = all[(size_t)k * of_head + at];
		format_encode(held->format, row, bytes, columns);
	}
}

static void convert_along(const struct source *source, const struct model_tensor *held, uint32_t first_row,
			  uint32_t row_count, float *row, uint8_t *bytes)
{
	const struct model_tensor *tensor = source->tensor;
	const bool as_held = held->format == tensor->format;
	const uint64_t to_bytes = held->bytes / held->rows;
	for (uint32_t i = 0; i < row_count; i++, bytes += to_bytes) {
		const uint8_t *from = row_at(source, first_row + i);
		if (as_held && tensor->packing) {
			packing_unpack(tensor->packing, from, bytes, tensor->columns);
		} else if (as_held) {
			memcpy(bytes, from, to_bytes);
		} else {
			decode_row(source, from, row);
			format_encode(held->format, row, bytes, tensor->columns);
		}
	}
}

enum status model_convert(const struct model_tensor *tensor, const struct model_tensor *held, uint32_t first_row,
			  uint32_t row_count, uint8_t *bytes)
{
	struct source source = source_of(tensor);
	const bool across = tensor->joined.across;
	float *row = malloc(tensor->columns * sizeof(*row));
	float *all = malloc(across ? (size_t)tensor->columns * source.columns * sizeof(*all) : 1);
	source.plain = malloc(format_row_bytes(source.format, source.columns));
	const bool room = row && all && source.plain;
	if (room && across)
		convert_across(&source, held, first_row, row_count, all, row, bytes);
	else if (room)
		convert_along(&source, held, first_row, row_count, row, bytes);
	free(source.plain);
	free(all);
	free(row);
	return room ? STATUS_OK : STATUS_OUT_OF_MEMORY;
}
