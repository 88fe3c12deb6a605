/* The stage's kernels: see stage.h.
 *
 * Which files there are depends on the image that the device runs (images.h): kernels that overlap, and with them the
 * kernel for all layers, are in those for compute capability 9.0 and later. Which kernels a model needs depends on its
 * formats; each file is loaded at the first launch of a kernel of it. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "engine/cuda/images.h"
#include "engine/cuda/stage/stage.h"

#include <stdio.h>
#include <time.h>

enum { WAIT_BUSY_NS = 50 * 1000 * 1000, WAIT_PAUSE_NS = 50 * 1000, SETTLE_PAUSE_NS = 100 * 1000 };

static const char *const files[STAGE_FILES] = {
	[STAGE_FILE_ROWS] = "stage_rows",
	[STAGE_FILE_GEMV] = "stage_gemv",
	[STAGE_FILE_ATTENTION] = "stage_attention",
	[STAGE_FILE_PROMPT] = "stage_prompt",
	[STAGE_FILE_REDUCE] = "stage_reduce",
	[STAGE_FILE_DECODE] = "stage_decode",
	[STAGE_FILE_EXPERTS] = "stage_experts",
	[STAGE_FILE_MIXTURE] = "stage_mixture",
	[STAGE_FILE_DELTA] = "stage_delta",
	[STAGE_FILE_LATENT] = "stage_latent",
	[STAGE_FILE_GEMM + TILE_F32] = "stage_gemm_f32",
	[STAGE_FILE_GEMM + TILE_F16] = "stage_gemm_f16",
	[STAGE_FILE_GEMM + TILE_BF16] = "stage_gemm_bf16",
	[STAGE_FILE_GEMM + TILE_Q8_0] = "stage_gemm_q8_0",
	[STAGE_FILE_GEMM + TILE_Q4_0] = "stage_gemm_q4_0",
	[STAGE_FILE_GEMM + TILE_MXFP4] = "stage_gemm_mxfp4",
	[STAGE_FILE_GEMM + TILE_Q4_K] = "stage_gemm_q4_k",
	[STAGE_FILE_GEMM + TILE_Q5_K] = "stage_gemm_q5_k",
	[STAGE_FILE_GEMM + TILE_Q6_K] = "stage_gemm_q6_k",
	[STAGE_FILE_WIDE + TILE_F16] = "stage_wide_f16",
	[STAGE_FILE_WIDE + TILE_Q8_0] = "stage_wide_q8_0",
	[STAGE_FILE_WIDE + TILE_Q4_0] = "stage_wide_q4_0",
	[STAGE_FILE_WIDE + TILE_Q4_K] = "stage_wide_q4_k",
	[STAGE_FILE_WIDE + TILE_Q5_K] = "stage_wide_q5_k",
	[STAGE_FILE_WIDE + TILE_Q6_K] = "stage_wide_q6_k",
};

static const char *const formats[TILE_COUNT] = {
	[TILE_NONE] = "mixed", [TILE_F32] = "f32",   [TILE_F16] = "f16",   [TILE_BF16] = "bf16", [TILE_Q8_0] = "q8_0",
	[TILE_Q4_0] = "q4_0",  [TILE_Q4_K] = "q4_k", [TILE_Q5_K] = "q5_k", [TILE_Q6_K] = "q6_k", [TILE_MXFP4] = "mxfp4",
};

static const struct {
	enum stage_file file;
	const char *name;
} places[STAGE_PLAIN_KERNELS] = {
	[STAGE_EMBED] = {STAGE_FILE_ROWS, "embed"},
	[STAGE_PREPARE] = {STAGE_FILE_ROWS, "prepare"},
	[STAGE_POST] = {STAGE_FILE_ROWS, "post"},
	[STAGE_ARGMAX] = {STAGE_FILE_ROWS, "argmax"},
	[STAGE_CANDIDATES] = {STAGE_FILE_ROWS, "candidates"},
	[STAGE_REPACK] = {STAGE_FILE_ROWS, "repack"},
	[STAGE_REDUCE] = {STAGE_FILE_REDUCE, "reduce"},
	[STAGE_ROUTE] = {STAGE_FILE_EXPERTS, "route"},
	[STAGE_ORDER] = {STAGE_FILE_EXPERTS, "order"},
	[STAGE_MIX] = {STAGE_FILE_EXPERTS, "mix"},
	[STAGE_TURN_ROWS] = {STAGE_FILE_ATTENTION, "turn_rows"},
	[STAGE_ATTEND_1] = {STAGE_FILE_ATTENTION, "attend_1"},
	[STAGE_ATTEND_2] = {STAGE_FILE_ATTENTION, "attend_2"},
	[STAGE_PROMPT_64] = {STAGE_FILE_PROMPT, "attend_prompt_64"},
	[STAGE_PROMPT_128] = {STAGE_FILE_PROMPT, "attend_prompt_128"},
	[STAGE_CONVOLVE_4] = {STAGE_FILE_DELTA, "convolve_4"},
	[STAGE_CONVOLVE_16] = {STAGE_FILE_DELTA, "convolve_16"},
	[STAGE_DELTA_8] = {STAGE_FILE_DELTA, "delta_8"},
	[STAGE_DELTA_16] = {STAGE_FILE_DELTA, "delta_16"},
	[STAGE_DELTA_32] = {STAGE_FILE_DELTA, "delta_32"},
	[STAGE_DELTA_OUT] = {STAGE_FILE_DELTA, "delta_out"},
	[STAGE_LATENT_TURN] = {STAGE_FILE_LATENT, "latent_turn"},
	[STAGE_LATENT_ATTEND_16] = {STAGE_FILE_LATENT, "latent_attend_16"},
	[STAGE_LATENT_ATTEND_64] = {STAGE_FILE_LATENT, "latent_attend_64"},
	[STAGE_LATENT_ATTEND_EXACT] = {STAGE_FILE_LATENT, "latent_attend_exact"},
	[STAGE_LATENT_COMBINE] = {STAGE_FILE_LATENT, "latent_combine"},
};

bool cuda_stage_overlaps(const struct backend_device *device)
{
	return device->image && device->image->overlaps && device->cuda->cuLaunchKernelEx;
}

bool cuda_stage_wide(const struct backend_device *device)
{
	return cuda_stage_overlaps(device) && device->image->wide;
}

// False if there is no such file in the device's image, or this device has no use for it.
static bool has_file(const struct backend_device *device, unsigned file)
{
	return files[file] && (file < STAGE_FILE_WIDE || cuda_stage_wide(device)) &&
	       (file != STAGE_FILE_DECODE || cuda_stage_overlaps(device));
}

// The file of a kernel, and its name there.
static unsigned place_of(unsigned kernel, char *name, size_t size)
{
	if (kernel < STAGE_PLAIN_KERNELS) {
		snprintf(name, size, "%s", places[kernel].name);
		return places[kernel].file;
	}
	if (kernel < STAGE_GEMV) {
		snprintf(name, size, "decode_%s", stage_decode_name(kernel - STAGE_DECODE));
		return STAGE_FILE_DECODE;
	}
	if (kernel < STAGE_MIXTURE_IN) {
		snprintf(name, size, "gemv_%s", formats[kernel - STAGE_GEMV]);
		return STAGE_FILE_GEMV;
	}
	if (kernel < STAGE_GEMM_32) {
		snprintf(name, size, "mixture_%s_%s", formats[(kernel - STAGE_MIXTURE_IN) % TILE_COUNT],
			 kernel < STAGE_MIXTURE_OUT ? "in" : "out");
		return STAGE_FILE_MIXTURE;
	}
	unsigned format = (kernel - STAGE_GEMM_32) % TILE_COUNT;
	if (kernel >= STAGE_WIDE_8) {
		snprintf(name, size, "wide_%s_%u", formats[format], 8u << (kernel - STAGE_WIDE_8) / TILE_COUNT);
		return STAGE_FILE_WIDE + format;
	}
	snprintf(name, size, "gemm_%s_%u", formats[format], kernel < STAGE_GEMM_128 ? 32u : 128u);
	return STAGE_FILE_GEMM + format;
}

void stage_kernel_name(unsigned kernel, char *name, size_t size)
{
	place_of(kernel, name, size);
}

enum status stage_prepare(struct backend_stage *stage, unsigned kernel, struct error *error)
{
	CUfunction function;
	char name[48];
	if (stage->kernels[kernel])
		return STATUS_OK;
	unsigned file = place_of(kernel, name, sizeof(name));
	enum status status = cuda_kernels_load(stage->device, files[file], &stage->files[file], error);
	if (status)
		return status;
	CUresult result = stage->cuda->cuModuleGetFunction(&function, stage->files[file], name);
	if (!result && kernel >= STAGE_TURN_ROWS)
		result = stage->cuda->cuFuncSetAttribute(function, CUDA_FUNCTION_SHARED_BYTES,
							 (int)stage->shared_bytes - 1024);
	// A multiprocessor changes how it divides its memory only when it is empty: all alike, or none overlap.
	if (!result)
		result = stage->cuda->cuFuncSetAttribute(function, CUDA_FUNCTION_SHARED_PERCENT, 100);
	if (!result)
		stage->kernels[kernel] = function;
	return cuda_check(stage->device, error, name, result);
}

enum status stage_launch(struct backend_stage *stage, const struct stage_launch *launch, struct error *error)
{
	const struct cuda *cuda = stage->cuda;
	const uint32_t *grid = launch->grid;
	enum status status = stage_prepare(stage, launch->kernel, error);
	if (status || stage->slice.loading)
		return status;
	CUfunction function = stage->kernels[launch->kernel];
	void *arguments[] = {(void *)(uintptr_t)launch->params};
	CUresult result;
	if (stage->overlaps) {
		CUlaunchAttribute attribute = {.id = CUDA_LAUNCH_PROGRAMMATIC_SERIAL, .value.programmatic = 1};
		if (launch->together)
			attribute = (CUlaunchAttribute){.id = CUDA_LAUNCH_COOPERATIVE, .value.cooperative = 1};
		const CUlaunchConfig config = {.grid_x = grid[0],
					       .grid_y = grid[1],
					       .grid_z = grid[2],
					       .block_x = launch->block,
					       .block_y = 1,
					       .block_z = 1,
					       .shared_bytes = launch->shared_bytes,
					       .stream = stage->stream,
					       .attributes = &attribute,
					       .attribute_count = 1};
		result = cuda->cuLaunchKernelEx(&config, function, arguments, NULL);
	} else {
		result = cuda->cuLaunchKernel(function, grid[0], grid[1], grid[2], launch->block, 1, 1,
					      launch->shared_bytes, stage->stream, arguments, NULL);
	}
	status = cuda_check(stage->device, error,
			    launch->kernel < STAGE_PLAIN_KERNELS ? places[launch->kernel].name : "a product", result);
	return status || !stage->timer ? status : stage_timer_note(stage, launch, error);
}

enum status cuda_stage_compile(struct backend_device *device, struct error *error)
{
	struct cuda *cuda = device->cuda;
	if (!device->image || !device->image->ptx || !device->cache_directory || !device->cache_writable)
		return STATUS_OK;
	CUresult result = cuda_enter(device);
	enum status status = result ? cuda_failed(cuda, error, "cuCtxSetCurrent", result) : STATUS_OK;
	for (unsigned file = 0; !status && file < STAGE_FILES; file++) {
		CUmodule module = NULL;
		if (!has_file(device, file))
			continue;
		status = cuda_kernels_load(device, files[file], &module, error);
		if (module)
			cuda->cuModuleUnload(module);
	}
	return status;
}

void stage_unload(struct backend_stage *stage)
{
	for (unsigned i = 0; i < STAGE_FILES; i++)
		if (stage->files[i])
			stage->cuda->cuModuleUnload(stage->files[i]);
}

enum status stage_wait(struct backend_stage *stage, struct error *error)
{
	CUresult result = stage->cuda->cuEventRecord(stage->done, stage->stream);
	if (!result)
		return stage_wait_event(stage, stage->done, error);
	stage_wait_event(stage, NULL, NULL);
	return cuda_failed(stage->cuda, error, "cuEventRecord", result);
}

// Polling makes a step of a fraction of a millisecond return in time; long steps are polled with pauses. If the event
// cannot be polled the stream is polled: in every case the work is over afterwards.
enum status stage_wait_event(struct backend_stage *stage, CUevent event, struct error *error)
{
	const struct cuda *cuda = stage->cuda;
	int64_t began_ns = clock_steady_ns();
	CUresult failed = CUDA_SUCCESS, result;
	for (;;) {
		result = event && !failed ? cuda->cuEventQuery(event) : cuda->cuStreamQuery(stage->stream);
		if (result && result != CUDA_ERROR_NOT_READY && event && !failed && !cuda_lost(result)) {
			failed = result;
			continue;
		}
		if (result != CUDA_ERROR_NOT_READY)
			return cuda_check(stage->device, error, "a step", failed ? failed : result);
		int64_t waited_ns = clock_steady_ns() - began_ns;
		if (waited_ns > stage->device->timeout_ns)
			return error_set(error, STATUS_TIMEOUT, "a GPU did not finish its work within %lld ms",
					 (long long)(stage->device->timeout_ns / 1000000));
		if (waited_ns > WAIT_BUSY_NS)
			nanosleep(&(struct timespec){.tv_nsec = WAIT_PAUSE_NS}, NULL);
	}
}

static bool any_busy(struct backend_stage *const *stages, uint32_t count)
{
	bool busy = false;
	for (uint32_t i = 0; i < count; i++) {
		const struct backend_stage *stage = stages[i];
		if (stage->stream && !stage->device->abandoned && !cuda_enter(stage->device))
			busy |= stage->cuda->cuStreamQuery(stage->stream) == CUDA_ERROR_NOT_READY;
	}
	return busy;
}

bool stage_settle(struct backend_stage *const *stages, uint32_t count, int64_t limit_ns)
{
	const int64_t end_ns = clock_steady_ns() + limit_ns;
	while (any_busy(stages, count)) {
		if (clock_steady_ns() >= end_ns) {
			log_warning("cuda",
				    "a stage ends while it computes; its memory is freed when this process ends");
			for (uint32_t i = 0; i < count; i++)
				stages[i]->device->abandoned = true;
			return false;
		}
		nanosleep(&(struct timespec){.tv_nsec = SETTLE_PAUSE_NS}, NULL);
	}
	return true;
}
