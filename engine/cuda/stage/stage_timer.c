/* How long each kernel of a step takes: see stage.h and engine/stage.h's stage_time.
 *
 * An event follows every launch. So a kernel begins when the one before has ended, and its time holds its launch; in a
 * step kernels overlap. The difference between the sum and a step's time says how much that gains. */
#include "engine/cuda/stage/stage.h"

#include <stdlib.h>

enum { TIMED_MOST = 4096 };

struct cuda_timer {
	CUevent events[TIMED_MOST + 1]; // events[i + 1]: the end of launch i
	struct stage_launch launches[TIMED_MOST];
	uint32_t count;
};

static enum status record(struct backend_stage *stage, CUevent *event, struct error *error)
{
	CUresult result = stage->cuda->cuEventCreate(event, 0);
	if (!result)
		result = stage->cuda->cuEventRecord(*event, stage->stream);
	return cuda_check(stage->device, error, "an event", result);
}

enum status stage_timer_begin(struct backend_stage *stage, struct error *error)
{
	stage->timer = calloc(1, sizeof(*stage->timer));
	if (!stage->timer)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the times of kernels");
	return record(stage, &stage->timer->events[0], error);
}

enum status stage_timer_note(struct backend_stage *stage, const struct stage_launch *launch, struct error *error)
{
	struct cuda_timer *timer = stage->timer;
	if (timer->count == TIMED_MOST)
		return error_set(error, STATUS_UNAVAILABLE, "a step of more than %d kernels is not timed", TIMED_MOST);
	timer->launches[timer->count++] = *launch;
	return record(stage, &timer->events[timer->count], error);
}

enum status stage_timer_end(struct backend_stage *stage, stage_timing_fn *each, void *context, struct error *error)
{
	struct cuda_timer *timer = stage->timer;
	CUresult result = CUDA_SUCCESS;
	if (!timer)
		return STATUS_OK;
	for (uint32_t i = 0; each && !result && i < timer->count; i++) {
		const struct stage_launch *launch = &timer->launches[i];
		char name[48];
		float ms = 0;
		stage_kernel_name(launch->kernel, name, sizeof(name));
		result = stage->cuda->cuEventElapsedTime(&ms, timer->events[i], timer->events[i + 1]);
		if (!result)
			each(context, &(struct stage_timing){
					      .kernel = name,
					      .grid = {launch->grid[0], launch->grid[1], launch->grid[2]},
					      .weight_bytes = launch->weight_bytes,
					      .us = ms * 1000,
				      });
	}
	for (uint32_t i = 0; i <= timer->count; i++)
		if (timer->events[i] && !stage->device->abandoned)
			stage->cuda->cuEventDestroy_v2(timer->events[i]);
	free(timer);
	stage->timer = NULL;
	return cuda_check(stage->device, error, "cuEventElapsedTime", result);
}
