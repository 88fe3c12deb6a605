/* What a user's PTX says about itself: its kernels and the arguments that they take.
 *
 * The driver compiles PTX and checks what it does; it does not tell a kernel's signature, without which arguments
 * cannot be checked or packed. So the text is read here as far as that goes (PTX ISA, "Directives"): the header
 * (.version, .target, .address_size), and every .entry outside of braces with its .param list and .reqntid. Bodies are
 * skipped. Reads hostile bytes: bounded, and nothing of it is trusted but by the driver's own compiler. Thread: any. */
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
