/* Shared by the CUDA tests: the GPUs of this machine, and small kernels written by hand. */
#pragma once
#include "engine/include/exogpu/exogpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs those above it.
#include <cmocka.h>

enum { HERE_DEVICES = 8 };
static char here_keys[HERE_DEVICES][257];
static unsigned here_count;

#define HERE_OK(call) \
	do { \
		struct error error = {0}; \
		if (call) \
			fail_msg("%s: %s", #call, error.message); \
	} while (0)

static inline void here_add(void *context, const struct exogpu_found_device *device)
{
	(void)context;
	if (!strcmp(device->backend, "cuda") && !device->reason && here_count < HERE_DEVICES)
		snprintf(here_keys[here_count++], sizeof(here_keys[0]), "%s", device->hardware_key);
}

// False, and says so, with fewer CUDA devices than that.
static inline bool here_find(unsigned least)
{
	struct error error = {0};
	if (exogpu_find_devices(here_add, NULL, &error))
		fprintf(stderr, "listing devices failed: %s\n", error.message);
	if (here_count < least)
		printf("skipped: %u CUDA devices here, %u are needed\n", here_count, least);
	return here_count >= least;
}

static inline struct exogpu_device *here_open(unsigned index)
{
	struct exogpu_device *device = NULL;
	HERE_OK(exogpu_device_open(&device, &(struct exogpu_open){.backend = "cuda", .hardware_key = here_keys[index]},
				   &error));
	return device;
}

#define HERE_PTX ".version 7.0\n.target sm_80\n.address_size 64\n"

// scale: y[i] = factor * x[i] + i, for i < n.   fixed: only in blocks of 64.   touch: writes where it is told.
// for_ever: what it says.
static const char here_kernels[] = HERE_PTX
	".visible .entry scale(.param .u64 y, .param .u64 .ptr .global .align 4 x, .param .f32 factor, .param .u32 n)\n"
	"{\n"
	"	.reg .pred %p; .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .b64 %d<8>;\n"
	"	ld.param.u64 %d1, [y]; ld.param.u64 %d2, [x]; ld.param.f32 %f1, [factor]; ld.param.u32 %r1, [n];\n"
	"	mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;\n"
	"	mad.lo.u32 %r5, %r2, %r3, %r4;\n"
	"	setp.ge.u32 %p, %r5, %r1;\n"
	"	@%p bra done;\n"
	"	mul.wide.u32 %d3, %r5, 4; add.u64 %d1, %d1, %d3; add.u64 %d2, %d2, %d3;\n"
	"	ld.global.f32 %f2, [%d2]; cvt.rn.f32.u32 %f3, %r5;\n"
	"	fma.rn.f32 %f2, %f2, %f1, %f3;\n"
	"	st.global.f32 [%d1], %f2;\n"
	"done:	ret;\n"
	"}\n"
	".visible .entry fixed(.param .u64 out) .reqntid 64\n"
	"{\n"
	"	.reg .b32 %r; .reg .b64 %d;\n"
	"	ld.param.u64 %d, [out]; mov.u32 %r, %ntid.x; st.global.u32 [%d], %r; ret;\n"
	"}\n"
	".visible .entry touch(.param .u64 at)\n"
	"{\n"
	"	.reg .b64 %d;\n"
	"	ld.param.u64 %d, [at]; st.global.u64 [%d], %d; ret;\n"
	"}\n"
	".visible .entry for_ever(.param .u64 out)\n"
	"{\n"
	"	.reg .b32 %r; .reg .b64 %d;\n"
	"	ld.param.u64 %d, [out];\n"
	"again:	atom.global.add.u32 %r, [%d], 1;\n"
	"	bra again;\n"
	"}\n";
