/* Parses the declarations of a user's PTX: its kernels and their parameters.
 *
 * The driver compiles and checks PTX, but does not return the signature of a kernel, which is needed to check and pack
 * arguments. So the declarations are parsed here (PTX ISA, "Directives"): the header (.version, .target,
 * .address_size), and every .entry outside of braces with its .param list and .reqntid. Bodies are skipped. The input
 * is hostile: everything is bounded and validated, and only the driver's compiler runs it. Thread: any. */
#pragma once
#include "common/base/status.h"
#include "engine/include/exogpu/types.h"

#include <stddef.h>
#include <stdint.h>

struct ptx {
	struct exogpu_kernel *kernels; // (count)
	unsigned count;                // 1 to EXOGPU_MODULE_KERNELS
};

// `text` (length) needs no 0 at its end. Errors: STATUS_INVALID_PARAMS, with the line; STATUS_OUT_OF_MEMORY.
// An argument must have 4 or 8 bytes, a structure of that size included.
enum status ptx_init(struct ptx *ptx, const uint8_t *text, size_t length, struct error *error);
void ptx_finish(struct ptx *ptx);
