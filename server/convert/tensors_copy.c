/* See tensors.h: rows are read in pieces of at most PIECE_BYTES, turned into what the model file has, and written. */
#include "server/convert/bounded.h"
#include "server/convert/tensors_inside.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 4 * 1024 * 1024 };

struct copying {
	const struct tensors_copy *copy;
	uint8_t *read; // (PIECE_BYTES)
	float *wide;   // (PIECE_BYTES) the same as F32
	uint64_t done_bytes;
};

struct rows {
	const struct safetensor *from;
	enum tensor_format format; // that they are written in
	uint64_t count, columns;
	uint32_t head_size; // 0: rows stay in their order
	float add;
};

// Where row `row` of the model file stands in the directory's.
static uint64_t source_row(const struct rows *rows, uint64_t row)
{
	if (!rows->head_size)
		return row;
	const uint64_t within = row % rows->head_size;
	return row - within + within / 2 + within % 2 * (rows->head_size / 2);
}

static enum status read_rows(struct copying *copying, const struct rows *rows, uint64_t first, uint64_t count,
			     struct error *error)
{
	const uint64_t row_bytes = rows->columns * (rows->from->format == FORMAT_F32 ? 4 : 2);
	const int fd = copying->copy->files[rows->from->file];
	enum status status = STATUS_OK;
	if (!rows->head_size)
		return bounded_read(fd, copying->read, (size_t)(count * row_bytes),
				    rows->from->from + first * row_bytes, error);
	for (uint64_t i = 0; i < count && !status; i++)
		status = bounded_read(fd, copying->read + i * row_bytes, (size_t)row_bytes,
				      rows->from->from + source_row(rows, first + i) * row_bytes, error);
	return status;
}

// Values of consecutive rows, which fit into a piece.
static enum status copy_piece(struct copying *copying, const struct rows *rows, uint64_t first, uint64_t count,
			      uint64_t place, struct error *error)
{
	const uint64_t values = count * rows->columns;
	const bool same = rows->format == rows->from->format;
	enum status status = read_rows(copying, rows, first, count, error);
	if (status)
		return status;
	if (!same || rows->add > 0) {
		format_decode(rows->from->format, copying->read, copying->wide, values);
		for (uint64_t i = 0; i < values && rows->add > 0; i++)
			copying->wide[i] += rows->add;
	}
	const uint64_t bytes = values * (rows->format == FORMAT_F32 ? 4 : 2);
	const uint8_t *from = same && !(rows->add > 0) ? copying->read : (const uint8_t *)copying->wide;
	status = output_write(copying->copy->to, from, (size_t)bytes, place, error);
	copying->done_bytes += bytes;
	if (!status && !copying->copy->progress(copying->copy->context, copying->done_bytes))
		status = error_set(error, STATUS_UNAVAILABLE, "the server stops");
	return status;
}

static enum status copy_rows(struct copying *copying, const struct rows *rows, uint64_t place, struct error *error)
{
	const uint64_t most = PIECE_BYTES / 4 / rows->columns,
		       row_bytes = rows->columns * (rows->format == FORMAT_F32 ? 4 : 2);
	enum status status = STATUS_OK;
	if (!most)
		return error_set(error, STATUS_INVALID_PARAMS, "the tensor %.80s has too long rows", rows->from->name);
	for (uint64_t row = 0; row < rows->count && !status;) {
		const uint64_t count = rows->count - row < most ? rows->count - row : most;
		status = copy_piece(copying, rows, row, count, place + row * row_bytes, error);
		row += count;
	}
	return status;
}

static enum status copy_tensor(struct copying *copying, const struct planned_tensor *planned, uint64_t place,
			       struct error *error)
{
	const struct tensor_plan *plan = copying->copy->plan;
	const struct tensor_rule *rule = planned->rule;
	const struct model_config *config = plan->config;
	if (!rule)
		return output_write(copying->copy->to, (const uint8_t *)config->factors[planned->factors].values,
				    (size_t)planned->tensor.bytes, place, error);
	const bool turned = config->family->pairs && (rule->kind == KIND_Q || rule->kind == KIND_K);
	const uint32_t pieces = tensors_pieces(plan, rule);
	enum status status = STATUS_OK;
	for (uint32_t i = 0; i < pieces && !status; i++) {
		const struct safetensor *from = tensors_source(plan, rule, planned->layer, i);
		const bool split = from->dimension_count == 2 || turned; // a vector is one row, but where values turn
		const struct rows rows = {.from = from,
					  .format = planned->tensor.format,
					  .count = split ? from->size[0] : 1,
					  .columns = from->dimension_count == 2 ? from->size[1]
						     : split                    ? 1
										: from->size[0],
					  .head_size = turned ? config->head_size : 0,
					  .add = config->family->from_one && rule->kind == KIND_NORM ? 1 : 0};
		status = copy_rows(copying, &rows, place + i * (planned->tensor.bytes / pieces), error);
	}
	return status;
}

enum status tensors_copy(const struct tensors_copy *copy, struct error *error)
{
	struct copying copying = {.copy = copy, .read = malloc(PIECE_BYTES), .wide = malloc(PIECE_BYTES)};
	enum status status = copying.read && copying.wide
				     ? STATUS_OK
				     : error_set(error, STATUS_OUT_OF_MEMORY, "no memory to convert a model");
	uint64_t place = copy->at;
	for (size_t i = 0; i < copy->plan->count && !status; i++) {
		status = copy_tensor(&copying, &copy->plan->tensors[i], place, error);
		place += output_aligned(copy->plan->tensors[i].tensor.bytes, PLAN_ALIGNMENT);
	}
	free(copying.read);
	free(copying.wide);
	return status;
}
