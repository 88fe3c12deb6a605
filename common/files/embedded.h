/* Files that are part of the binary: the contract, migrations, dashboard, shaders, kernels.
 *
 * cmake/embed.cmake turns each into bytes (.incbin) and one table sorted by name. Read-only; any thread. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct embedded_file {
	const char *name;    // "schema/api.json", "migrations/state/0001_inventory.sql", "ui/index.html",
			     // "kernels/vulkan/verify.spv", "kernels/cuda/sm_90a/verify.cubin.gz"
	const uint8_t *data; // (length), followed by a 0 byte that is not counted
	size_t length;
};

// NULL if there is no such file.
const struct embedded_file *embedded_find(const char *name);
// The files whose names begin with `prefix`, in order of name: the first at *first, their number is the result.
size_t embedded_list(const char *prefix, const struct embedded_file **first);
// Decompress a file whose name ends with .gz into *bytes (*length), with a 0 byte behind it that is not counted; the
// caller frees it. Errors, with NULL in *bytes: STATUS_OUT_OF_MEMORY, STATUS_INTERNAL (it is no gzip file).
enum status embedded_inflate(const struct embedded_file *file, uint8_t **bytes, size_t *length, struct error *error);
