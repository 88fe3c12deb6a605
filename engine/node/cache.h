/* The folder in which drivers and back ends keep compiled kernels between processes.
 *
 *     cache/         files of the back ends (engine/device/cache.h)
 *     cache/cuda     kernels that CUDA's driver compiled from PTX        CUDA_CACHE_PATH
 *     cache/mesa     kernels that Mesa's drivers compiled from shaders   MESA_SHADER_CACHE_DIR
 *
 * By default, drivers write into the home directory of the node's user: one tenant's process could put kernels there
 * that another tenant's would run. In this folder only workers that verify devices write; the sandbox lets a session's
 * worker read it. The variables are set in the node's own environment, and so in that of every worker. Thread: the main
 * one, before any other exists, because it changes the environment. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>

// Make the folders below `data` and set the variables. The folder's path goes into path[size].
// Errors: STATUS_UNAVAILABLE, STATUS_INVALID_PARAMS (too long).
enum status cache_prepare(const char *data, char *path, size_t size, struct error *error);
