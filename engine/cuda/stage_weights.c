/* Weights: from the mapped file into tiles.
 *
 * A tensor goes in pieces of some rows through a ring of pinned memory, each piece to a place of its own on the device,
 * where a kernel makes tiles of it: while one piece is read from the file, others are on their way. Layers that stay in
 * host memory take the same way, and their tiles are written back to pinned memory, from where kernels read them.
 * Norms and biases are f32 and stay as they are. */
#include "engine/cuda/stage.h"

#include <string.h>

_Static_assert((int)TILE_F32 == FORMAT_F32 && (int)TILE_F16 == FORMAT_F16 && (int)TILE_BF16 == FORMAT_BF16 &&
		       (int)TILE_Q8_0 == FORMAT_Q8_0 && (int)TILE_Q4_0 == FORMAT_Q4_0 &&
		       (int)TILE_Q4_K == FORMAT_Q4_K && (int)TILE_Q5_K == FORMAT_Q5_K &&
		       (int)TILE_Q6_K == FORMAT_Q6_K && (int)TILE_COUNT == FORMAT_COUNT,
	       "the kernels know the formats by other numbers");

enum { REPACK_BLOCK = 256, REPACK_BLOCKS = 4096 };

struct upload {
	struct backend_stage *stage;
	CUdeviceptr pinned[STAGE_UPLOAD_PIECES], staging[STAGE_UPLOAD_PIECES];
	CUevent events[STAGE_UPLOAD_PIECES]; // the piece has been repacked
	uint64_t pieces;
};

static void upload_finish(struct upload *upload)
{
	struct cuda *cuda = upload->stage->cuda;
	for (unsigned i = 0; i < STAGE_UPLOAD_PIECES; i++) {
		if (upload->pinned[i])
			cuda->cuMemFreeHost((void *)(uintptr_t)upload->pinned[i]);
		if (upload->staging[i])
			cuda->cuMemFree_v2(upload->staging[i]);
		if (upload->events[i])
			cuda->cuEventDestroy_v2(upload->events[i]);
	}
}

static enum status upload_init(struct upload *upload, struct backend_stage *stage, struct error *error)
{
	struct cuda *cuda = stage->cuda;
	CUresult result = CUDA_SUCCESS;
	*upload = (struct upload){.stage = stage};
	for (unsigned i = 0; !result && i < STAGE_UPLOAD_PIECES; i++) {
		void *pinned; // what a call that fails leaves is nothing to keep
		CUdeviceptr staging;
		CUevent event;
		result = cuda->cuMemHostAlloc(&pinned, STAGE_UPLOAD_BYTES, CUDA_HOST_PORTABLE);
		if (!result)
			upload->pinned[i] = (CUdeviceptr)(uintptr_t)pinned;
		if (!result)
			result = cuda->cuMemAlloc_v2(&staging, STAGE_UPLOAD_BYTES);
		if (!result)
			upload->staging[i] = staging;
		if (!result)
			result = cuda->cuEventCreate(&event, CUDA_EVENT_NO_TIMING);
		if (!result)
			upload->events[i] = event;
	}
	return cuda_check(stage->device, error, "memory for loading", result);
}

// The next piece's number, when nothing uses it any more.
static enum status next_piece(struct upload *upload, unsigned *out, struct error *error)
{
	struct backend_stage *stage = upload->stage;
	unsigned piece = (unsigned)(upload->pieces % STAGE_UPLOAD_PIECES);
	bool again = upload->pieces++ >= STAGE_UPLOAD_PIECES;
	*out = piece;
	return again ? stage_wait_event(stage, upload->events[piece], error) : STATUS_OK;
}

static enum status upload_rows(struct upload *upload, const struct model_tensor *tensor,
			       const struct stage_matrix *matrix, uint32_t first, uint32_t rows, struct error *error)
{
	struct backend_stage *stage = upload->stage;
	uint64_t row_bytes = tensor->bytes / tensor->rows;
	unsigned piece = 0;
	enum status status = next_piece(upload, &piece, error);
	if (status)
		return status;
	memcpy((void *)(uintptr_t)upload->pinned[piece], tensor->data + first * row_bytes, rows * row_bytes);
	const struct repack_params params = {
		.source = {.bytes = (const unsigned char *)(uintptr_t)upload->staging[piece],
			   .format = matrix->format,
			   .rows = rows,
			   .columns = tensor->columns},
		.out = matrix->tiles +
		       (uint64_t)(first / TILE_ROWS) * matrix->column_tiles * tile_bytes(matrix->format),
		.row_tiles = (rows + TILE_ROWS - 1) / TILE_ROWS,
		.column_tiles = matrix->column_tiles,
	};
	CUresult result = stage->cuda->cuMemcpyAsync(upload->staging[piece], upload->pinned[piece], rows * row_bytes,
						     stage->stream);
	if (result)
		return cuda_failed(stage->cuda, error, "loading weights", result);
	status = stage_launch(stage,
			      &(struct stage_launch){.kernel = STAGE_REPACK,
						     .grid = {REPACK_BLOCKS, 1, 1},
						     .block = REPACK_BLOCK,
						     .params = &params},
			      error);
	if (status)
		return status;
	return cuda_check(stage->device, error, "cuEventRecord",
			  stage->cuda->cuEventRecord(upload->events[piece], stage->stream));
}

static enum status load_matrix(struct upload *upload, enum model_role role, uint32_t layer, struct stage_matrix *matrix,
			       struct error *error)
{
	struct backend_stage *stage = upload->stage;
	const struct stage_params *params = &stage->params;
	struct model_tensor tensor;
	bool of_layer = role >= ROLE_ATTENTION_NORM;
	bool host = of_layer && layer >= params->first_layer + params->layer_count - params->host_layers;
	CUdeviceptr tiles = 0;
	enum status status = params->tensor(params->context, role, layer, &tensor, error);
	if (status)
		return status;
	unsigned format = (unsigned)tensor.format;
	*matrix = (struct stage_matrix){
		.format = format,
		.rows = tensor.rows,
		.row_tiles = (tensor.rows + TILE_ROWS - 1) / TILE_ROWS,
		.column_tiles = (tile_padded(tensor.columns) + tile_columns(format) - 1) / tile_columns(format),
	};
	uint64_t bytes = (uint64_t)matrix->row_tiles * matrix->column_tiles * tile_bytes(format);
	uint64_t row_bytes = tensor.bytes / tensor.rows;
	uint32_t at_once = (uint32_t)(STAGE_UPLOAD_BYTES / row_bytes) / TILE_ROWS * TILE_ROWS;
	status = stage_take(stage, &tiles, bytes, host, error);
	matrix->tiles = tiles;
	for (uint32_t first = 0, rows; !status && first < tensor.rows; first += rows) {
		rows = tensor.rows - first < at_once ? tensor.rows - first : at_once;
		status = upload_rows(upload, &tensor, matrix, first, rows, error);
	}
	*(host ? &stage->sizes.host_bytes : &stage->sizes.weights_bytes) += bytes;
	if (format == TILE_F32 || format == TILE_BF16)
		stage->pairs = true;
	else
		stage->halves = true;
	if (!status && params->progress)
		status = params->progress(params->context, stage->sizes.weights_bytes, error);
	return status;
}

static enum status load_vector(struct upload *upload, enum model_role role, uint32_t layer, CUdeviceptr *out,
			       struct error *error)
{
	struct backend_stage *stage = upload->stage;
	struct model_tensor tensor;
	enum status status = stage->params.tensor(stage->params.context, role, layer, &tensor, error);
	if (status)
		return status;
	uint64_t bytes = tensor.columns * sizeof(float);
	if (bytes > stage->vectors_end - stage->vectors)
		return error_set(error, STATUS_INVALID_PARAMS, "a norm or bias of layer %u is longer than its shape",
				 layer);
	*out = stage->vectors;
	stage->vectors += (bytes + 15) / 16 * 16;
	return cuda_check(stage->device, error, "loading weights",
			  stage->cuda->cuMemcpyHtoD_v2(*out, tensor.data, bytes));
}

static enum status load_biases(struct upload *upload, uint32_t layer, struct cuda_layer *to, struct error *error)
{
	const struct {
		enum model_role role;
		struct stage_matrix *matrix;
	} biases[] = {{ROLE_Q_BIAS, &to->q}, {ROLE_K_BIAS, &to->k}, {ROLE_V_BIAS, &to->v}};
	enum status status = STATUS_OK;
	for (size_t i = 0; !status && i < 3; i++) {
		CUdeviceptr bias = 0;
		status = load_vector(upload, biases[i].role, layer, &bias, error);
		biases[i].matrix->bias = bias;
	}
	return status;
}

static enum status load_layer(struct upload *upload, uint32_t layer, struct cuda_layer *to, struct error *error)
{
	const struct model_shape *shape = &upload->stage->shape;
	const struct {
		enum model_role role;
		struct stage_matrix *matrix;
	} matrices[] = {
		{ROLE_Q, &to->q},           {ROLE_K, &to->k},
		{ROLE_V, &to->v},           {ROLE_ATTENTION_OUTPUT, &to->attention_output},
		{ROLE_FFN_GATE, &to->gate}, {ROLE_FFN_UP, &to->up},
		{ROLE_FFN_DOWN, &to->down},
	};
	enum status status = load_vector(upload, ROLE_ATTENTION_NORM, layer, &to->attention_norm, error);
	for (size_t i = 0; !status && i < sizeof(matrices) / sizeof(matrices[0]); i++)
		status = load_matrix(upload, matrices[i].role, layer, matrices[i].matrix, error);
	if (!status)
		status = load_vector(upload, ROLE_FFN_NORM, layer, &to->ffn_norm, error);
	if (!status && shape->qkv_bias)
		status = load_biases(upload, layer, to, error);
	if (!status && shape->qk_norm)
		status = load_vector(upload, ROLE_Q_NORM, layer, &to->q_norm, error);
	if (!status && shape->qk_norm)
		status = load_vector(upload, ROLE_K_NORM, layer, &to->k_norm, error);
	to->k.first = to->q.rows;
	to->v.first = to->q.rows + to->k.rows;
	return status;
}

// Room for all norms and biases at once: each is small, and memory comes in large pieces.
static enum status take_vectors(struct backend_stage *stage, struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	uint64_t layer = 2ull * shape->embedding + (shape->heads + 2ull * shape->kv_heads) * shape->head_size +
			 2ull * shape->head_size + 8 * 4;
	uint64_t bytes = (layer * stage->params.layer_count + shape->embedding + 4) * sizeof(float);
	enum status status = stage_take(stage, &stage->vectors, bytes, false, error);
	stage->vectors_end = stage->vectors + bytes;
	stage->sizes.weights_bytes += bytes;
	return status;
}

enum status stage_load(struct backend_stage *stage, struct error *error)
{
	const struct stage_params *params = &stage->params;
	struct upload upload;
	enum status status = upload_init(&upload, stage, error);
	if (!status)
		status = take_vectors(stage, error);
	if (!status && params->embeds)
		status = load_matrix(&upload, ROLE_TOKEN_EMBEDDING, 0, &stage->embedding, error);
	for (uint32_t i = 0; !status && i < params->layer_count; i++)
		status = load_layer(&upload, params->first_layer + i, &stage->layers[i], error);
	if (!status && params->predicts)
		status = load_vector(&upload, ROLE_OUTPUT_NORM, 0, &stage->output_norm, error);
	if (!status && params->predicts && params->embeds && stage->shape.tied)
		stage->output = stage->embedding;
	else if (!status && params->predicts)
		status = load_matrix(&upload, ROLE_OUTPUT, 0, &stage->output, error);
	if (!status)
		status = stage_wait(stage, error);
	else
		stage_wait_event(stage, NULL, NULL); // its memory is in use
	upload_finish(&upload);
	return status;
}
