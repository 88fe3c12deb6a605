/* Weights of a stage: how they are laid out on the device, and how they get there.
 *
 * Blocks of model files begin at any two bytes; shaders want 16 at a time, side by side. So each row is taken apart
 * into planes (shaders/stage_decode.glsl draws them), bit for bit the same numbers in the same number of bytes, on its
 * way through two pieces of host memory that the device copies from: while it copies one, the other is filled. A matrix
 * that is larger than a binding reaches is cut by rows. Vectors, which are few and F32, lie in one buffer. */
#include "engine/vulkan/stage/stage.h"

#include <stdlib.h>
#include <string.h>

enum { GROUP = 32, SUPER = 8 /* groups */, PIECE_BYTES = 16 };
static const uint64_t staging_bytes = 4ull << 20, chunk_bytes = 1ull << 30;

// Bytes of each plane: of a group; of the last one, of a run of 8.
static const uint32_t plane_bytes[FORMAT_COUNT][STAGE_PLANES] = {
	[FORMAT_F32] = {128},           [FORMAT_F16] = {64},
	[FORMAT_BF16] = {64},           [FORMAT_Q8_0] = {32, 0, 2},
	[FORMAT_Q4_0] = {16, 0, 2},     [FORMAT_MXFP4] = {16, 0, 1},
	[FORMAT_Q4_K] = {16, 0, 0, 16}, [FORMAT_Q5_K] = {16, 4, 0, 16},
	[FORMAT_Q6_K] = {16, 8, 2, 2},
};

static uint64_t row_bytes(enum tensor_format format, uint32_t groups, int plane)
{
	return (uint64_t)plane_bytes[format][plane] * (plane == 3 ? groups / SUPER : groups);
}

static uint64_t aligned(uint64_t bytes)
{
	return (bytes + PIECE_BYTES - 1) & ~(uint64_t)(PIECE_BYTES - 1);
}

// ---- one row into planes ----

static uint32_t word_at(const uint8_t *bytes)
{
	uint32_t word;
	memcpy(&word, bytes, sizeof(word));
	return word;
}

static void put_word(uint8_t *bytes, uint32_t word)
{
	memcpy(bytes, &word, sizeof(word));
}

// Values of 4 or 2 bytes each, in pieces.
static void pack_plain(const uint8_t *row, uint32_t columns, uint32_t groups, uint32_t bytes, uint8_t *pieces)
{
	uint32_t per = PIECE_BYTES / bytes;
	if (columns % GROUP)
		memset(pieces, 0, (size_t)groups * GROUP * bytes);
	for (uint32_t c = 0; c < columns; c += per) {
		uint32_t count = columns - c < per ? columns - c : per;
		uint64_t at = (uint64_t)(c % GROUP / per) * groups + c / GROUP;
		memcpy(pieces + at * PIECE_BYTES, row + (size_t)c * bytes, (size_t)count * bytes);
	}
}

static void pack_q8_0(const struct block_q8_0 *row, uint32_t groups, uint8_t *const planes[STAGE_PLANES])
{
	for (uint32_t g = 0; g < groups; g++) {
		memcpy(planes[0] + (size_t)g * PIECE_BYTES, row[g].q, PIECE_BYTES);
		memcpy(planes[0] + ((size_t)groups + g) * PIECE_BYTES, row[g].q + PIECE_BYTES, PIECE_BYTES);
		memcpy(planes[2] + (size_t)g * 2, &row[g].d, 2);
	}
}

enum { LOW = 0x0f0f0f0f };

// Two words of 8 halves of bytes in all into one: the first's in the low halves.
static uint32_t join(uint32_t first, uint32_t second)
{
	return (first & LOW) | (second & LOW) << 4;
}

// 16 bytes: their low halves are the first 16 columns, the high halves the others.
static void pack_block(const uint8_t q[16], uint8_t *piece)
{
	for (uint32_t w = 0; w < 4; w++) {
		uint32_t shift = w < 2 ? 0 : 4, at = w % 2 * 8;
		put_word(piece + 4 * w, join(word_at(q + at) >> shift, word_at(q + at + 4) >> shift));
	}
}

static void pack_q4_0(const struct block_q4_0 *row, uint32_t groups, uint8_t *const planes[STAGE_PLANES])
{
	for (uint32_t g = 0; g < groups; g++) {
		pack_block(row[g].q, planes[0] + (size_t)g * PIECE_BYTES);
		memcpy(planes[2] + (size_t)g * 2, &row[g].d, 2);
	}
}

static void pack_mxfp4(const struct block_mxfp4 *row, uint32_t groups, uint8_t *const planes[STAGE_PLANES])
{
	for (uint32_t g = 0; g < groups; g++) {
		pack_block(row[g].q, planes[0] + (size_t)g * PIECE_BYTES);
		planes[2][g] = row[g].e;
	}
}

// 32 bytes, whose low or high halves belong to one group.
static void pack_halves(const uint8_t *q, uint32_t shift, uint8_t *piece)
{
	for (uint32_t w = 0; w < 4; w++)
		put_word(piece + 4 * w, join(word_at(q + 8 * w) >> shift, word_at(q + 8 * w + 4) >> shift));
}

// Scales and mins of 8 groups, 6 bits each: words of the low 4 bits of each, and of the top 2 of both.
static void pack_scales(uint16_t d, uint16_t dmin, const uint8_t *scales, uint8_t *top)
{
	uint32_t words[4] = {d | (uint32_t)dmin << 16};
	for (uint32_t g = 0; g < SUPER; g++) {
		uint32_t scale, min;
		if (g < 4) {
			scale = scales[g] & 63u;
			min = scales[g + 4] & 63u;
		} else {
			scale = (scales[g + 4] & 15u) | (uint32_t)(scales[g - 4] >> 6) << 4;
			min = (uint32_t)(scales[g + 4] >> 4) | (uint32_t)(scales[g] >> 6) << 4;
		}
		words[1] |= (scale & 15) << 4 * g;
		words[2] |= (min & 15) << 4 * g;
		words[3] |= scale >> 4 << 2 * g | min >> 4 << (16 + 2 * g);
	}
	memcpy(top, words, sizeof(words));
}

static void pack_q4_k(const struct block_q4_k *row, uint32_t groups, uint8_t *const planes[STAGE_PLANES])
{
	for (uint32_t g = 0; g < groups; g++)
		pack_halves(row[g / SUPER].q + g % SUPER / 2 * GROUP, g % 2 * 4, planes[0] + (size_t)g * PIECE_BYTES);
	for (uint32_t i = 0; i < groups / SUPER; i++)
		pack_scales(row[i].d, row[i].dmin, row[i].scales, planes[3] + (size_t)i * PIECE_BYTES);
}

static void pack_q5_k(const struct block_q5_k *row, uint32_t groups, uint8_t *const planes[STAGE_PLANES])
{
	for (uint32_t g = 0; g < groups; g++) {
		const struct block_q5_k *block = &row[g / SUPER];
		uint32_t bits = 0;
		pack_halves(block->q + g % SUPER / 2 * GROUP, g % 2 * 4, planes[0] + (size_t)g * PIECE_BYTES);
		for (uint32_t i = 0; i < GROUP; i++)
			bits |= (block->high[i] >> g % SUPER & 1u) << i;
		put_word(planes[1] + (size_t)g * 4, bits);
	}
	for (uint32_t i = 0; i < groups / SUPER; i++)
		pack_scales(row[i].d, row[i].dmin, row[i].scales, planes[3] + (size_t)i * PIECE_BYTES);
}

static void pack_q6_k(const struct block_q6_k *row, uint32_t groups, uint8_t *const planes[STAGE_PLANES])
{
	for (uint32_t g = 0; g < groups; g++) {
		const struct block_q6_k *block = &row[g / SUPER];
		uint32_t part = g % SUPER / 4, quarter = g % 4;
		uint64_t bits = 0;
		pack_halves(block->low + 64 * part + quarter % 2 * GROUP, quarter / 2 * 4,
			    planes[0] + (size_t)g * PIECE_BYTES);
		for (uint32_t i = 0; i < GROUP; i++)
			bits |= (uint64_t)(block->high[32 * part + i] >> 2 * quarter & 3) << 2 * i;
		memcpy(planes[1] + (size_t)g * 8, &bits, 8);
		memcpy(planes[2] + (size_t)g * 2, block->scales + 2 * (g % SUPER), 2);
	}
	for (uint32_t i = 0; i < groups / SUPER; i++)
		memcpy(planes[3] + (size_t)i * 2, &row[i].d, 2);
}

static void pack_row(const struct stage_matrix *matrix, const uint8_t *row, uint8_t *const planes[STAGE_PLANES])
{
	const void *blocks = row; // of bytes and pairs of bytes: model files align tensors to more than that
	switch (matrix->format) {
	case FORMAT_F32:
		pack_plain(row, matrix->columns, matrix->groups, 4, planes[0]);
		break;
	case FORMAT_F16:
	case FORMAT_BF16:
		pack_plain(row, matrix->columns, matrix->groups, 2, planes[0]);
		break;
	case FORMAT_Q8_0:
		pack_q8_0(blocks, matrix->groups, planes);
		break;
	case FORMAT_Q4_0:
		pack_q4_0(blocks, matrix->groups, planes);
		break;
	case FORMAT_MXFP4:
		pack_mxfp4(blocks, matrix->groups, planes);
		break;
	case FORMAT_Q4_K:
		pack_q4_k(blocks, matrix->groups, planes);
		break;
	case FORMAT_Q5_K:
		pack_q5_k(blocks, matrix->groups, planes);
		break;
	case FORMAT_Q6_K:
		pack_q6_k(blocks, matrix->groups, planes);
		break;
	case FORMAT_UNKNOWN:
	case FORMAT_COUNT:
		break;
	}
}

void stage_weights_place(const float *values, uint32_t count, float *placed)
{
	uint32_t groups = (count + GROUP - 1) / GROUP;
	pack_plain((const uint8_t *)values, count, groups, sizeof(float), (uint8_t *)placed);
}

// ---- to the device ----

// Two pieces of host memory, used in turn.
struct loader {
	struct backend_stage *stage;
	struct backend_buffer *staging[2];
	uint64_t points[2]; // when the copies out of them are done; 0: they are
	unsigned turn;
	uint64_t loaded_bytes;
};

// Take a piece that no copy reads any more.
static enum status take_piece(struct loader *loader, struct backend_buffer **piece, struct error *error)
{
	struct backend_stream *stream = loader->stage->stream;
	loader->turn ^= 1;
	*piece = loader->staging[loader->turn];
	uint64_t point = loader->points[loader->turn];
	return point ? vulkan_wait(stream, point, stage_timeout_ns(loader->stage->device), error) : STATUS_OK;
}

// Rows [first, first + count) of a chunk, which fit a piece.
static enum status send_rows(struct loader *loader, const struct stage_matrix *matrix, const struct stage_chunk *chunk,
			     const uint8_t *rows, uint32_t first, uint32_t count, struct error *error)
{
	struct backend_stream *stream = loader->stage->stream;
	uint64_t begins[STAGE_PLANES], at = 0, bytes = format_row_bytes(matrix->format, matrix->columns);
	struct backend_buffer *piece;
	enum status status = take_piece(loader, &piece, error);
	if (status)
		return status;
	for (int plane = 0; plane < STAGE_PLANES; plane++) {
		begins[plane] = at;
		at += aligned(count * row_bytes(matrix->format, matrix->groups, plane));
	}
	for (uint32_t i = 0; i < count; i++) {
		uint8_t *planes[STAGE_PLANES];
		for (int plane = 0; plane < STAGE_PLANES; plane++)
			planes[plane] = piece->pointer + begins[plane] +
					i * row_bytes(matrix->format, matrix->groups, plane);
		pack_row(matrix, rows + i * bytes, planes);
	}
	for (int plane = 0; !status && plane < STAGE_PLANES; plane++) {
		uint64_t of_row = row_bytes(matrix->format, matrix->groups, plane);
		struct backend_copy copy = {.to = chunk->buffer,
					    .from = piece,
					    .to_offset = (uint64_t)chunk->planes[plane] * PIECE_BYTES + first * of_row,
					    .from_offset = begins[plane],
					    .bytes = count * of_row};
		if (copy.bytes)
			status = vulkan_copy(stream, &copy, error);
	}
	return status ? status : vulkan_mark(stream, &loader->points[loader->turn], error);
}

static enum status load_chunk(struct loader *loader, const struct stage_matrix *matrix, struct stage_chunk *chunk,
			      const struct model_tensor *tensor, enum exogpu_memory memory, struct error *error)
{
	struct backend_stage *stage = loader->stage;
	uint64_t bytes = 0, of_row = 0;
	for (int plane = 0; plane < STAGE_PLANES; plane++) {
		chunk->planes[plane] = (uint32_t)(bytes / PIECE_BYTES);
		bytes += aligned(chunk->rows * row_bytes(matrix->format, matrix->groups, plane));
		of_row += row_bytes(matrix->format, matrix->groups, plane);
	}
	struct backend_buffer_params params = {.bytes = bytes, .memory = memory};
	enum status status = vulkan_buffer_create(stage->device, &chunk->buffer, &params, error);
	*(memory == EXOGPU_MEMORY_HOST ? &stage->memory.host_bytes : &stage->memory.weights_bytes) += bytes;
	uint64_t source_row = format_row_bytes(matrix->format, matrix->columns);
	uint32_t most = (uint32_t)((staging_bytes - STAGE_PLANES * PIECE_BYTES) / of_row);
	for (uint32_t first = 0; !status && first < chunk->rows; first += most) {
		uint32_t count = chunk->rows - first < most ? chunk->rows - first : most;
		status = send_rows(loader, matrix, chunk, tensor->data + (chunk->first_row + first) * source_row, first,
				   count, error);
		loader->loaded_bytes += count * source_row;
		if (!status && stage->params.progress)
			status = stage->params.progress(stage->params.context, loader->loaded_bytes, error);
	}
	return status;
}

// unit: the number of rows that must stay together, which is that of an expert.
static enum status load_matrix(struct loader *loader, struct stage_matrix *matrix, const struct model_tensor *tensor,
			       uint32_t unit, enum exogpu_memory memory, struct error *error)
{
	*matrix = (struct stage_matrix){.format = tensor->format,
					.rows = tensor->rows,
					.columns = tensor->columns,
					.groups = (tensor->columns + GROUP - 1) / GROUP};
	uint64_t most = loader->stage->device->properties.limits.maxStorageBufferRange, of_row = 0;
	most = most < chunk_bytes ? most : chunk_bytes;
	for (int plane = 0; plane < STAGE_PLANES; plane++)
		of_row += row_bytes(matrix->format, matrix->groups, plane);
	const uint64_t units = matrix->rows / unit, fit = (most - STAGE_PLANES * PIECE_BYTES) / (of_row * unit);
	if (!fit)
		return error_set(error, STATUS_UNAVAILABLE,
				 "the matrix of one expert or head is larger than a shader of this device can address");
	const uint32_t count = (uint32_t)((units + fit - 1) / fit),
		       each = (uint32_t)((units + count - 1) / count) * unit;
	matrix->chunks = calloc(count, sizeof(*matrix->chunks));
	if (!matrix->chunks)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a matrix's record");
	enum status status = STATUS_OK;
	for (uint32_t row = 0; !status && row < matrix->rows; row += each) {
		struct stage_chunk *chunk = &matrix->chunks[matrix->chunk_count++];
		chunk->first_row = row;
		chunk->rows = matrix->rows - row < each ? matrix->rows - row : each;
		status = load_chunk(loader, matrix, chunk, tensor, memory, error);
	}
	return status;
}

// ---- vectors ----

static bool placed(enum model_role role)
{
	return role == ROLE_ATTENTION_NORM || role == ROLE_FFN_NORM || role == ROLE_OUTPUT_NORM;
}

// `count` values, which fit a piece, to place `at` of the vectors.
static enum status send_vector(struct loader *loader, uint64_t at, enum model_role role, const uint8_t *values,
			       uint32_t count, struct error *error)
{
	struct backend_buffer *piece;
	enum status status = take_piece(loader, &piece, error);
	if (status)
		return status;
	const uint32_t whole = (count + GROUP - 1) / GROUP * GROUP;
	memset(piece->pointer, 0, whole * sizeof(float));
	if (placed(role))
		pack_plain(values, count, whole / GROUP, sizeof(float), piece->pointer);
	else
		memcpy(piece->pointer, values, count * sizeof(float));
	struct backend_copy copy = {.to = loader->stage->vectors,
				    .from = piece,
				    .to_offset = at * sizeof(float),
				    .bytes = whole * sizeof(float)};
	status = vulkan_copy(loader->stage->stream, &copy, error);
	return status ? status : vulkan_mark(loader->stage->stream, &loader->points[loader->turn], error);
}

// Biases of experts may be more than a piece. Norms, which are placed, are one row of a width that fits.
static enum status load_vector(struct loader *loader, uint32_t at, enum model_role role,
			       const struct model_tensor *tensor, struct error *error)
{
	const uint64_t count = (uint64_t)tensor->rows * tensor->columns, most = staging_bytes / sizeof(float);
	enum status status = STATUS_OK;
	for (uint64_t done = 0; !status && done < count; done += most)
		status = send_vector(loader, at + done, role, tensor->data + done * sizeof(float),
				     (uint32_t)(count - done < most ? count - done : most), error);
	loader->loaded_bytes += tensor->bytes;
	return status;
}

static bool of_layer(enum model_role role)
{
	return role >= ROLE_ATTENTION_NORM;
}

// Sets the place of each vector; returns the total number of floats.
static uint64_t place_vectors(struct backend_stage *stage)
{
	uint64_t at = 0;
	for (uint32_t i = 0; i <= stage->params.layer_count; i++) {
		struct stage_layer *layer = i ? &stage->layers[i - 1] : &stage->ends;
		for (int role = 0; role < ROLE_COUNT; role++)
			if (of_layer((enum model_role)role) == (i > 0)) {
				layer->vectors[role] = (uint32_t)at;
				at += (model_vector_length(&stage->shape, (enum model_role)role) + GROUP - 1) / GROUP *
				      GROUP;
			}
	}
	return at;
}

// ---- all of it ----

static enum status load_role(struct loader *loader, struct stage_layer *layer, enum model_role role, uint32_t number,
			     enum exogpu_memory memory, struct error *error)
{
	struct backend_stage *stage = loader->stage;
	if (of_layer(role) ? !model_layer_has_role(&stage->shape, number, role) : !model_has_role(&stage->shape, role))
		return STATUS_OK;
	struct model_tensor tensor;
	enum status status = stage->params.tensor(stage->params.context, role, number, &tensor, error);
	if (status)
		return status;
	if (model_vector_length(&stage->shape, role))
		return load_vector(loader, layer->vectors[role], role, &tensor, error);
	const uint32_t unit = model_role_is_experts(role) ? tensor.rows / stage->shape.experts
			      : model_role_is_heads(role) ? tensor.rows / stage->shape.heads
							  : 1;
	return load_matrix(loader, &layer->matrices[role], &tensor, unit, memory, error);
}

static enum status load_ends(struct loader *loader, struct error *error)
{
	struct backend_stage *stage = loader->stage;
	const struct stage_params *params = &stage->params;
	bool tied = params->embeds && params->predicts && stage->shape.tied;
	enum status status = STATUS_OK;
	if (params->embeds)
		status = load_role(loader, &stage->ends, ROLE_TOKEN_EMBEDDING, 0, EXOGPU_MEMORY_DEVICE, error);
	if (!status && params->predicts)
		status = load_role(loader, &stage->ends, ROLE_OUTPUT_NORM, 0, EXOGPU_MEMORY_DEVICE, error);
	if (!status && params->predicts && !tied)
		status = load_role(loader, &stage->ends, ROLE_OUTPUT, 0, EXOGPU_MEMORY_DEVICE, error);
	return status;
}

static enum status load_layers(struct loader *loader, struct error *error)
{
	struct backend_stage *stage = loader->stage;
	const struct stage_params *params = &stage->params;
	enum status status = STATUS_OK;
	for (uint32_t i = 0; !status && i < params->layer_count; i++) {
		bool host = i >= params->layer_count - params->host_layers;
		for (int role = ROLE_ATTENTION_NORM; !status && role < ROLE_COUNT; role++)
			status = load_role(loader, &stage->layers[i], (enum model_role)role, params->first_layer + i,
					   host ? EXOGPU_MEMORY_HOST : EXOGPU_MEMORY_DEVICE, error);
	}
	return status;
}

enum status stage_weights_load(struct backend_stage *stage, struct error *error)
{
	struct loader loader = {.stage = stage};
	struct backend_buffer_params staging = {.bytes = staging_bytes, .memory = EXOGPU_MEMORY_HOST};
	struct backend_buffer_params vectors = {.bytes = place_vectors(stage) * sizeof(float),
						.memory = EXOGPU_MEMORY_DEVICE};
	if (vectors.bytes > stage->device->properties.limits.maxStorageBufferRange)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "the model's vectors are larger than a binding reaches");
	vectors.bytes = vectors.bytes ? vectors.bytes : sizeof(float);
	enum status status = vulkan_buffer_create(stage->device, &stage->vectors, &vectors, error);
	stage->memory.weights_bytes += vectors.bytes;
	for (int i = 0; !status && i < 2; i++)
		status = vulkan_buffer_create(stage->device, &loader.staging[i], &staging, error);
	if (!status)
		status = load_ends(&loader, error);
	if (!status)
		status = load_layers(&loader, error);
	for (int i = 0; i < 2; i++) {
		if (loader.points[i]) {
			enum status waited = vulkan_wait(stage->stream, loader.points[i],
							 stage_timeout_ns(stage->device), status ? NULL : error);
			status = status ? status : waited;
		}
	}
	bool idle = vulkan_streams_idle(stage->device, 0); // else the device closes with them
	for (int i = 0; i < 2 && idle; i++)
		vulkan_buffer_destroy(stage->device, &loader.staging[i]);
	return status;
}

static void finish_layer(struct backend_stage *stage, struct stage_layer *layer)
{
	for (int role = 0; role < ROLE_COUNT; role++) {
		struct stage_matrix *matrix = &layer->matrices[role];
		for (uint32_t i = 0; i < matrix->chunk_count; i++)
			vulkan_buffer_destroy(stage->device, &matrix->chunks[i].buffer);
		free(matrix->chunks);
		*matrix = (struct stage_matrix){0};
	}
}

void stage_weights_finish(struct backend_stage *stage)
{
	finish_layer(stage, &stage->ends);
	for (uint32_t i = 0; stage->layers && i < stage->params.layer_count; i++)
		finish_layer(stage, &stage->layers[i]);
	vulkan_buffer_destroy(stage->device, &stage->vectors);
}
