/* Where drivers and back ends keep compiled kernels between processes: one folder of the node's own.
 *
 *     cache/         what the back ends keep themselves (engine/device/cache.h)
 *     cache/cuda     what CUDA's driver compiled from PTX        CUDA_CACHE_PATH
 *     cache/mesa     what Mesa's drivers compiled from shaders   MESA_SHADER_CACHE_DIR
 *
 * Left to themselves, drivers write into the home directory of whoever runs the node: what one tenant's process put
 * there another tenant's would run. Here only workers that verify devices write; a session's worker may read (its
 * sandbox sees to that). The variables are set in the node's own environment, and so in that of every worker.
 * Thread: before any other thread is made, since it changes the environment. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>

// Make the folders below `data` and set the variables. The folder's path goes into path[size].
// Errors: STATUS_UNAVAILABLE, STATUS_INVALID_PARAMS (too long).
enum status cache_prepare(const char *data, char *path, size_t size, struct error *error);
