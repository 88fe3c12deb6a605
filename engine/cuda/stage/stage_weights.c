/* Weights: from the mapped file into tiles.
 *
 * A tensor goes in pieces of some rows through a ring of pinned memory; each piece has its own place on the device,
 * where a kernel makes tiles of it. Several threads fill a piece together, because one thread copies from a mapped file
 * at a tenth of the speed of the bus, and reads one part at a time from the disk; meanwhile the pieces filled before
 * are copied to the device. Slices load side by side, a piece of each in turn: of a matrix cut by rows each slice has
 * its own range of the file, of one cut by columns its part of each row. Layers that stay in host memory take the same
 * way, and their tiles are copied back to pinned memory, from which kernels read them. Norms and biases are f32 and are
 * not converted. */
#include "engine/cuda/stage/stage.h"
#include "engine/pool.h"

#include <string.h>

_Static_assert((int)TILE_F32 == FORMAT_F32 && (int)TILE_F16 == FORMAT_F16 && (int)TILE_BF16 == FORMAT_BF16 &&
		       (int)TILE_Q8_0 == FORMAT_Q8_0 && (int)TILE_Q4_0 == FORMAT_Q4_0 &&
		       (int)TILE_MXFP4 == FORMAT_MXFP4 && (int)TILE_Q4_K == FORMAT_Q4_K &&
		       (int)TILE_Q5_K == FORMAT_Q5_K && (int)TILE_Q6_K == FORMAT_Q6_K &&
		       (int)TILE_COUNT == FORMAT_COUNT,
	       "the kernels know the formats by other numbers");

enum {
	REPACK_BLOCK = 256,
	REPACK_BLOCKS = 4096,
	RING = 4, // pieces of a whole stage; of slices, which are filled in turn, half as many each
	PIECE_BYTES = 16 * 1024 * 1024,
	FILL_THREADS = 8, // each copies about 4 GB/s
	FILL_BYTES = 256 * 1024,
};

// The upload of one slice.
struct upload {
	struct backend_stage *stage;
	CUdeviceptr pinned[RING], staging[RING];
	CUevent events[RING]; // the piece has been repacked
	uint64_t pieces;
};

struct loading {
	struct upload uploads[STAGE_SLICES]; // (count)
	uint32_t count, ring;
	const struct upload *entered; // whose context is current
	struct pool *pool;
};

static enum status enter(struct loading *loading, const struct upload *upload, struct error *error)
{
	if (loading->entered == upload)
		return STATUS_OK;
	loading->entered = upload;
	return cuda_check(upload->stage->device, error, "cuCtxSetCurrent", cuda_enter(upload->stage->device));
}

static void upload_finish(const struct upload *upload)
{
	struct cuda *cuda = upload->stage->cuda;
	cuda_enter(upload->stage->device);
	for (unsigned i = 0; i < RING; i++) {
		if (upload->pinned[i])
			cuda->cuMemFreeHost((void *)(uintptr_t)upload->pinned[i]);
		if (upload->staging[i])
			cuda->cuMemFree_v2(upload->staging[i]);
		if (upload->events[i])
			cuda->cuEventDestroy_v2(upload->events[i]);
	}
}

static enum status upload_init(struct loading *loading, struct upload *upload, struct error *error)
{
	struct cuda *cuda = upload->stage->cuda;
	CUresult result = CUDA_SUCCESS;
	enum status status = enter(loading, upload, error);
	if (status)
		return status;
	for (unsigned i = 0; !result && i < loading->ring; i++) {
		void *pinned; // what a call that fails leaves is nothing to keep
		CUdeviceptr staging;
		CUevent event;
		result = cuda->cuMemHostAlloc(&pinned, PIECE_BYTES, CUDA_HOST_PORTABLE);
		if (!result)
			upload->pinned[i] = (CUdeviceptr)(uintptr_t)pinned;
		if (!result)
			result = cuda->cuMemAlloc_v2(&staging, PIECE_BYTES);
		if (!result)
			upload->staging[i] = staging;
		if (!result)
			result = cuda->cuEventCreate(&event, CUDA_EVENT_NO_TIMING);
		if (!result)
			upload->events[i] = event;
	}
	return cuda_check(upload->stage->device, error, "memory for loading", result);
}

// ---- from the file to pinned memory ----

// Rows that go behind each other.
struct fill {
	uint8_t *to;
	const uint8_t *from;
	uint64_t row_bytes, pitch;
	uint32_t rows, at_once;
};

static uint32_t least(uint64_t a, uint64_t b)
{
	return (uint32_t)(a < b ? a : b);
}

static void fill_some(void *context, uint64_t index)
{
	const struct fill *fill = context;
	const uint32_t first = (uint32_t)index * fill->at_once, rows = least(fill->rows - first, fill->at_once);
	const uint8_t *from = fill->from + first * fill->pitch;
	uint8_t *to = fill->to + first * fill->row_bytes;
	if (fill->pitch == fill->row_bytes)
		memcpy(to, from, rows * fill->row_bytes);
	else
		for (uint32_t i = 0; i < rows; i++, from += fill->pitch, to += fill->row_bytes)
			memcpy(to, from, fill->row_bytes);
}

// ---- matrices ----

// A matrix of a stage or, in `count` slices, of each slice or of the first alone.
struct matrices {
	enum model_role role;
	uint32_t layer, count;
	struct stage_matrix *to[STAGE_SLICES];
};

// The progress of one matrix.
struct part {
	struct model_tensor tensor;
	struct stage_matrix *matrix;
	uint32_t unit; // rows of a head or an expert, each of which begins with a tile of its own; else all
	uint32_t next; // row
};

static uint32_t tile_rows_of(uint32_t rows)
{
	return (rows + TILE_ROWS - 1) / TILE_ROWS;
}

// The next piece's number, when nothing uses it any more.
static enum status next_piece(const struct loading *loading, struct upload *upload, unsigned *out, struct error *error)
{
	unsigned piece = (unsigned)(upload->pieces % loading->ring);
	bool again = upload->pieces++ >= loading->ring;
	*out = piece;
	return again ? stage_wait_event(upload->stage, upload->events[piece], error) : STATUS_OK;
}

static enum status upload_rows(struct loading *loading, struct upload *upload, struct part *part, struct error *error)
{
	struct backend_stage *stage = upload->stage;
	const struct model_tensor *tensor = &part->tensor;
	const struct stage_matrix *matrix = part->matrix;
	const uint64_t row_bytes = tensor->bytes / tensor->rows, pitch = model_tensor_pitch(tensor);
	const uint32_t first = part->next, of_unit = first % part->unit,
		       rows = least(part->unit - of_unit, PIECE_BYTES / row_bytes / TILE_ROWS * TILE_ROWS);
	const uint64_t row_tile = (uint64_t)(first / part->unit) * tile_rows_of(part->unit) + of_unit / TILE_ROWS;
	unsigned piece = 0;
	enum status status = enter(loading, upload, error);
	if (!status)
		status = next_piece(loading, upload, &piece, error);
	if (status)
		return status;
	struct fill fill = {.to = (uint8_t *)(uintptr_t)upload->pinned[piece],
			    .from = tensor->data + first * pitch,
			    .row_bytes = row_bytes,
			    .pitch = pitch,
			    .rows = rows,
			    .at_once = least(rows, FILL_BYTES / row_bytes + 1)};
	pool_run(loading->pool, fill_some, &fill, (rows + fill.at_once - 1) / fill.at_once);
	part->next += rows;
	const struct repack_params params = {
		.source = {.bytes = (const unsigned char *)(uintptr_t)upload->staging[piece],
			   .format = matrix->format,
			   .rows = rows,
			   .columns = tensor->columns},
		.out = matrix->tiles + row_tile * matrix->column_tiles * tile_bytes(matrix->format),
		.row_tiles = tile_rows_of(rows),
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

// Ask for the tensor, and take memory for its tiles.
static enum status begin_matrix(struct loading *loading, const struct matrices *matrices, uint32_t slice,
				struct part *part, struct error *error)
{
	struct upload *upload = &loading->uploads[slice];
	struct backend_stage *stage = upload->stage;
	const struct stage_params *params = &stage->params;
	struct model_tensor *tensor = &part->tensor;
	bool of_layer = matrices->role >= ROLE_ATTENTION_NORM;
	bool host = of_layer && matrices->layer >= params->first_layer + params->layer_count - params->host_layers;
	CUdeviceptr tiles = 0;
	enum status status = params->tensor(params->context, matrices->role, matrices->layer, tensor, error);
	if (!status)
		status = enter(loading, upload, error);
	if (status)
		return status;
	unsigned format = (unsigned)tensor->format;
	const uint32_t units = model_role_is_heads(matrices->role)     ? stage->shape.heads
			       : model_role_is_experts(matrices->role) ? stage->shape.experts
								       : 1;
	part->unit = tensor->rows / units % TILE_ROWS ? tensor->rows / units : tensor->rows;
	part->matrix = matrices->to[slice];
	*part->matrix = (struct stage_matrix){
		.format = format,
		.rows = tensor->rows,
		.row_tiles = tensor->rows / part->unit * tile_rows_of(part->unit),
		.column_tiles = (tile_padded(tensor->columns) + tile_columns(format) - 1) / tile_columns(format),
	};
	uint64_t bytes = (uint64_t)part->matrix->row_tiles * part->matrix->column_tiles * tile_bytes(format);
	status = stage_take(stage, &tiles, bytes, host, error);
	if (status)
		return status;
	part->matrix->tiles = tiles;
	*(host ? &stage->sizes.host_bytes : &stage->sizes.weights_bytes) += bytes;
	if (format == TILE_F32 || format == TILE_BF16)
		stage->pairs = true;
	else
		stage->halves = true;
	return STATUS_OK;
}

static enum status load_matrix(struct loading *loading, const struct matrices *matrices, struct error *error)
{
	struct part parts[STAGE_SLICES] = {0};
	enum status status = STATUS_OK;
	for (uint32_t i = 0; !status && i < matrices->count; i++)
		status = begin_matrix(loading, matrices, i, &parts[i], error);
	for (bool more = true; more && !status;) {
		more = false;
		for (uint32_t i = 0; !status && i < matrices->count; i++)
			if (parts[i].next < parts[i].tensor.rows) {
				status = upload_rows(loading, &loading->uploads[i], &parts[i], error);
				more = true;
			}
	}
	for (uint32_t i = 0; !status && i < matrices->count; i++) {
		const struct backend_stage *stage = loading->uploads[i].stage;
		if (stage->params.progress)
			status = stage->params.progress(stage->params.context, stage->sizes.weights_bytes, error);
	}
	return status;
}

// ---- vectors ----

static enum status load_vector(struct loading *loading, struct upload *upload, enum model_role role, uint32_t layer,
			       CUdeviceptr *out, struct error *error)
{
	struct backend_stage *stage = upload->stage;
	struct model_tensor tensor;
	enum status status = stage->params.tensor(stage->params.context, role, layer, &tensor, error);
	if (!status)
		status = enter(loading, upload, error);
	if (status)
		return status;
	uint64_t bytes = (uint64_t)tensor.rows * tensor.columns * sizeof(float);
	if (bytes > stage->vectors_end - stage->vectors)
		return error_set(error, STATUS_INVALID_PARAMS, "a norm or bias of layer %u is longer than its shape",
				 layer);
	*out = stage->vectors;
	stage->vectors += (bytes + 15) / 16 * 16;
	return cuda_check(stage->device, error, "loading weights",
			  stage->cuda->cuMemcpyHtoD_v2(*out, tensor.data, bytes));
}

// ---- layers ----

// The field at this offset of the layer's record, in every slice.
static void *place(const struct loading *loading, uint32_t slice, uint32_t layer, size_t offset)
{
	const struct backend_stage *stage = loading->uploads[slice].stage;
	return (char *)&stage->layers[layer - stage->params.first_layer] + offset;
}

static enum status load_layer_vector(struct loading *loading, enum model_role role, uint32_t layer, size_t offset,
				     struct error *error)
{
	enum status status = STATUS_OK;
	for (uint32_t i = 0; !status && i < loading->count; i++)
		status = load_vector(loading, &loading->uploads[i], role, layer, place(loading, i, layer, offset),
				     error);
	return status;
}

static enum status load_layer_matrix(struct loading *loading, enum model_role role, uint32_t layer, size_t offset,
				     struct error *error)
{
	struct matrices matrices = {.role = role, .layer = layer, .count = loading->count};
	for (uint32_t i = 0; i < loading->count; i++)
		matrices.to[i] = place(loading, i, layer, offset);
	return load_matrix(loading, &matrices, error);
}

static enum status load_layer(struct loading *loading, uint32_t layer, struct error *error)
{
	const struct model_shape *shape = &loading->uploads[0].stage->shape;
	const struct {
		enum model_role role;
		size_t offset;
	} matrices[] = {
		{ROLE_Q_A, offsetof(struct cuda_layer, q_a)},
		{ROLE_K_B, offsetof(struct cuda_layer, k_b)},
		{ROLE_V_B, offsetof(struct cuda_layer, v_b)},
		{ROLE_Q, offsetof(struct cuda_layer, q)},
		{ROLE_K, offsetof(struct cuda_layer, k)},
		{ROLE_V, offsetof(struct cuda_layer, v)},
		{ROLE_ATTENTION_OUTPUT, offsetof(struct cuda_layer, attention_output)},
		{ROLE_FFN_GATE, offsetof(struct cuda_layer, gate)},
		{ROLE_FFN_UP, offsetof(struct cuda_layer, up)},
		{ROLE_FFN_DOWN, offsetof(struct cuda_layer, down)},
		{ROLE_ROUTER, offsetof(struct cuda_layer, router)},
		{ROLE_EXPERT_GATE, offsetof(struct cuda_layer, expert_gate)},
		{ROLE_EXPERT_UP, offsetof(struct cuda_layer, expert_up)},
		{ROLE_EXPERT_DOWN, offsetof(struct cuda_layer, expert_down)},
		{ROLE_SHARED_GATE, offsetof(struct cuda_layer, shared_gate)},
		{ROLE_DELTA_QKV, offsetof(struct cuda_layer, delta_qkv)},
		{ROLE_DELTA_GATE, offsetof(struct cuda_layer, delta_gate)},
		{ROLE_DELTA_BETA, offsetof(struct cuda_layer, delta_beta)},
		{ROLE_DELTA_ALPHA, offsetof(struct cuda_layer, delta_alpha)},
		{ROLE_DELTA_OUTPUT, offsetof(struct cuda_layer, delta_output)},
	};
	const struct {
		enum model_role role;
		size_t offset;
	} vectors[] = {
		{ROLE_ATTENTION_NORM, offsetof(struct cuda_layer, attention_norm)},
		{ROLE_FFN_NORM, offsetof(struct cuda_layer, ffn_norm)},
		{ROLE_ATTENTION_POST_NORM, offsetof(struct cuda_layer, attention_post_norm)},
		{ROLE_FFN_POST_NORM, offsetof(struct cuda_layer, ffn_post_norm)},
		{ROLE_Q_BIAS, offsetof(struct cuda_layer, q.bias)},
		{ROLE_K_BIAS, offsetof(struct cuda_layer, k.bias)},
		{ROLE_V_BIAS, offsetof(struct cuda_layer, v.bias)},
		{ROLE_Q_NORM, offsetof(struct cuda_layer, q_norm)},
		{ROLE_K_NORM, offsetof(struct cuda_layer, k_norm)},
		{ROLE_ATTENTION_OUTPUT_BIAS, offsetof(struct cuda_layer, output_bias)},
		{ROLE_ATTENTION_POST_BIAS, offsetof(struct cuda_layer, attention_post_bias)},
		{ROLE_FFN_UP_BIAS, offsetof(struct cuda_layer, up_bias)},
		{ROLE_FFN_DOWN_BIAS, offsetof(struct cuda_layer, down_bias)},
		{ROLE_FFN_POST_BIAS, offsetof(struct cuda_layer, ffn_post_bias)},
		{ROLE_SINKS, offsetof(struct cuda_layer, sinks)},
		{ROLE_ROUTER_BIAS, offsetof(struct cuda_layer, router.bias)},
		{ROLE_ROUTER_CHOICE, offsetof(struct cuda_layer, router_choice)},
		{ROLE_EXPERT_GATE_BIAS, offsetof(struct cuda_layer, expert_gate.bias)},
		{ROLE_EXPERT_UP_BIAS, offsetof(struct cuda_layer, expert_up.bias)},
		{ROLE_EXPERT_DOWN_BIAS, offsetof(struct cuda_layer, expert_down.bias)},
		{ROLE_DELTA_CONV, offsetof(struct cuda_layer, delta_conv)},
		{ROLE_DELTA_DECAY, offsetof(struct cuda_layer, delta_decay)},
		{ROLE_DELTA_BIAS, offsetof(struct cuda_layer, delta_bias)},
		{ROLE_DELTA_NORM, offsetof(struct cuda_layer, delta_norm)},
	};
	enum status status = STATUS_OK;
	for (size_t i = 0; !status && i < sizeof(matrices) / sizeof(matrices[0]); i++)
		if (model_layer_has_role(shape, layer, matrices[i].role))
			status = load_layer_matrix(loading, matrices[i].role, layer, matrices[i].offset, error);
	for (size_t i = 0; !status && i < sizeof(vectors) / sizeof(vectors[0]); i++)
		if (model_layer_has_role(shape, layer, vectors[i].role))
			status = load_layer_vector(loading, vectors[i].role, layer, vectors[i].offset, error);
	for (uint32_t i = 0; i < loading->count; i++) {
		struct cuda_layer *to = place(loading, i, layer, 0);
		if (shape->output_bias)
			to->attention_output.bias = to->output_bias;
		to->k.first = model_is_latent(shape) ? 0 : to->q.rows;
		to->v.first = to->q.rows + to->k.rows;
		stage_delta_place(shape, to);
	}
	return status;
}

// Room for all norms and biases at once: each is small, and memory comes in large pieces.
static enum status take_vectors(struct backend_stage *stage, struct error *error)
{
	const struct model_shape *shape = &stage->shape;
	uint64_t layer = 0;
	for (enum model_role role = ROLE_ATTENTION_NORM; role < ROLE_COUNT; role++)
		layer += (model_vector_length(shape, role) + 3ull) / 4 * 4;
	uint64_t bytes = (layer * stage->params.layer_count + shape->embedding + 4) * sizeof(float);
	enum status status = stage_take(stage, &stage->vectors, bytes, false, error);
	stage->vectors_end = stage->vectors + bytes;
	stage->sizes.weights_bytes += bytes;
	return status;
}

// Embedding and output are the first slice's alone.
static enum status load_all(struct loading *loading, struct error *error)
{
	struct backend_stage *first = loading->uploads[0].stage;
	const struct stage_params *params = &first->params;
	const struct matrices embedding = {.role = ROLE_TOKEN_EMBEDDING, .count = 1, .to = {&first->embedding}},
			      output = {.role = ROLE_OUTPUT, .count = 1, .to = {&first->output}};
	enum status status = params->embeds ? load_matrix(loading, &embedding, error) : STATUS_OK;
	for (uint32_t i = 0; !status && i < params->layer_count; i++)
		status = load_layer(loading, params->first_layer + i, error);
	if (status || !params->predicts)
		return status;
	status = load_vector(loading, &loading->uploads[0], ROLE_OUTPUT_NORM, 0, &first->output_norm, error);
	if (!status && params->embeds && first->shape.tied)
		first->output = first->embedding;
	else if (!status)
		status = load_matrix(loading, &output, error);
	return status;
}

enum status stage_load(struct backend_stage *const *stages, uint32_t count, struct error *error)
{
	struct loading loading = {.count = count, .ring = count > 1 ? RING / 2 : RING};
	enum status status = pool_create(&loading.pool, pool_processors(FILL_THREADS), error);
	for (uint32_t i = 0; i < count; i++)
		loading.uploads[i].stage = stages[i];
	for (uint32_t i = 0; !status && i < count; i++) {
		status = upload_init(&loading, &loading.uploads[i], error);
		if (!status)
			status = take_vectors(stages[i], error);
	}
	if (!status)
		status = load_all(&loading, error);
	for (uint32_t i = 0; !status && i < count; i++) {
		status = enter(&loading, &loading.uploads[i], error);
		if (!status)
			status = stage_wait(stages[i], error);
	}
	if (status) // work in flight reads memory that is freed here
		stage_settle(stages, count, status == STATUS_TIMEOUT ? STAGE_CLOSE_NS : stages[0]->device->timeout_ns);
	for (uint32_t i = 0; i < count; i++)
		if (!stages[i]->device->abandoned)
			upload_finish(&loading.uploads[i]);
	pool_destroy(&loading.pool);
	return status;
}
