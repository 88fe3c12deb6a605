/* Slices of one stage on several CUDA devices: see stage.h and kernels/stage_reduce.cu.
 *
 * Where every device reads the memory of every other (over NVLink or PCIe), each slice's summands and marks are in its
 * own memory. Where any two cannot, all are in pinned memory of the host, which all of them read. Thread: the
 * devices'. */
#include "engine/cuda/stage/stage.h"

enum { REDUCE_BLOCK = 256, REDUCE_BLOCKS = 128, REDUCE_BLOCKS_SHARED = 32 };

_Static_assert((int)REDUCE_SLICES == (int)STAGE_SLICES, "the kernels know another number of slices");

// The bytes of the sums sent to a slice, or by it: indexed by place, slice, and number.
static uint64_t sent_bytes(const struct backend_stage *stage)
{
	uint32_t rows = stage->params.batch_rows < GEMV_ROWS ? stage->params.batch_rows : GEMV_ROWS;
	return (uint64_t)rows * stage->shape.embedding * sizeof(uint64_t);
}

enum status stage_reduce(struct backend_stage *stage, uint32_t rows, enum stage_reduction which, struct error *error)
{
	struct reduce_params params = stage->slice.reduce;
	bool second = which == STAGE_ADD_ATTENTION;
	params.few = rows <= GEMV_ROWS;
	params.numbers = rows * stage->shape.embedding;
	params.first_only = which == STAGE_SPREAD;
	for (uint32_t i = 0; second && i < params.slices; i++) {
		params.summands[i] += stage->slice.summands[1] - stage->slice.summands[0]; // the same in all slices
		params.came[i] += params.slices * sent_bytes(stage);
		params.send[i] += params.slices * sent_bytes(stage);
	}
	uint32_t of_block = REDUCE_BLOCK * (params.few ? 2 : 4), blocks = (params.numbers + of_block - 1) / of_block;
	uint32_t most = params.early ? REDUCE_BLOCKS : REDUCE_BLOCKS_SHARED;
	return stage_launch(stage,
			    &(struct stage_launch){.kernel = STAGE_REDUCE,
						   .grid = {blocks < most ? blocks : most, 1, 1},
						   .block = REDUCE_BLOCK,
						   .params = &params},
			    error);
}

// Whether each reads the memory of each, and whether any two are on one device.
static enum status all_linked(struct backend_stage *const *slices, uint32_t count, bool *linked, bool *shared,
			      struct error *error)
{
	enum status status = STATUS_OK;
	*linked = true;
	*shared = false;
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t k = 0; k < count; k++) {
			bool same = slices[i]->device->ordinal == slices[k]->device->ordinal;
			*shared = *shared || (same && i != k);
			if (!status && *linked && !same)
				status = cuda_peers_linked(slices[i]->device, slices[k]->device, linked, error);
		}
	return status;
}

static enum status take(struct backend_stage *stage, bool linked, struct error *error)
{
	struct cuda_slice *slice = &stage->slice;
	uint64_t bytes = (uint64_t)stage->params.batch_rows * stage->shape.embedding * sizeof(float);
	uint64_t sent = 2 * stage->params.slices * sent_bytes(stage);
	CUdeviceptr failed = 0;
	CUresult result = cuda_enter(stage->device);
	if (result)
		return cuda_failed(stage->cuda, error, "cuCtxSetCurrent", result);
	enum status status = stage_take(stage, &slice->summands[0], 2 * bytes, !linked, error);
	slice->summands[1] = slice->summands[0] + bytes;
	if (!status)
		status = stage_take(stage, &slice->came, sent, !linked, error);
	if (!status)
		status = stage_take(stage, &slice->told, STAGE_SLICES * sizeof(uint32_t), !linked, error);
	if (!status)
		status = stage_take(stage, &slice->turn, 2 * sizeof(uint32_t), false, error);
	if (!status)
		status = stage_take(stage, &failed, sizeof(uint32_t), true, error);
	if (status)
		return status;
	*(linked ? &stage->sizes.workspace_bytes : &stage->sizes.host_bytes) += 2 * bytes + sent;
	slice->failed = (volatile uint32_t *)(uintptr_t)failed;
	*slice->failed = 0;
	const struct {
		CUdeviceptr at;
		uint64_t bytes;
	} zeros[] = {{slice->came, sent},
		     {slice->told, STAGE_SLICES * sizeof(uint32_t)},
		     {slice->turn, 2 * sizeof(uint32_t)}};
	for (size_t i = 0; !result && i < sizeof(zeros) / sizeof(zeros[0]); i++)
		result = stage->cuda->cuMemsetD8Async(zeros[i].at, 0, zeros[i].bytes, stage->stream);
	return result ? cuda_failed(stage->cuda, error, "cuMemsetD8Async", result) : stage_wait(stage, error);
}

enum status cuda_stage_join(struct backend_stage *const *slices, uint32_t count, bool *linked, struct error *error)
{
	bool shared;
	enum status status = all_linked(slices, count, linked, &shared, error);
	for (uint32_t i = 0; !status && i < count; i++)
		status = take(slices[i], *linked, error);
	for (uint32_t i = 0; !status && i < count; i++) {
		struct reduce_params *reduce = &slices[i]->slice.reduce;
		*reduce = (struct reduce_params){
			.x = slices[i]->x,
			.told = slices[i]->slice.told,
			.turn = slices[i]->slice.turn,
			.failed = (CUdeviceptr)(uintptr_t)slices[0]->slice.failed,
			.slices = count,
			.slice = i,
			.early = !shared,
		};
		for (uint32_t k = 0; k < count; k++) {
			reduce->summands[k] = slices[k]->slice.summands[0];
			reduce->tells[k] = slices[k]->slice.told + i * sizeof(uint32_t);
			reduce->came[k] = slices[i]->slice.came + k * sent_bytes(slices[i]);
			reduce->send[k] = slices[k]->slice.came + i * sent_bytes(slices[i]);
		}
	}
	return status;
}
