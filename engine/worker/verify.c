/* See verify.h. The reference works in 64-bit integers and doubles, not with the code that it checks. */
#include "engine/worker/verify.h"

#include "common/base/clock.h"
#include "engine/worker/fault.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VERIFY_ELEMENTS = 256 * 1024, VERIFY_BYTES = 4 * VERIFY_ELEMENTS };
static const float verify_scale = 3.25f, verify_bias = -1.5f;

struct verify {
	struct exogpu_stream *stream;
	struct exogpu_module *module;
	struct exogpu_buffer *in, *copy, *out;
	uint32_t *pattern; // (VERIFY_ELEMENTS)
	uint32_t *result;  // (2 * VERIFY_ELEMENTS)
	uint32_t seed;
};

static uint32_t reference_mix(uint32_t value, uint32_t seed)
{
	uint64_t x = (uint64_t)value ^ seed;
	x = ((x ^ (x >> 16)) * 2654435761u) & UINT32_MAX;
	x = ((x ^ (x >> 15)) * 3039394381u) & UINT32_MAX;
	return (uint32_t)(x ^ (x >> 16));
}

static enum status compare_copy(struct verify *verify, struct error *error)
{
	for (size_t i = 0; i < VERIFY_ELEMENTS; i++)
		if (verify->result[i] != verify->pattern[i])
			return error_set(
				error, STATUS_UNAVAILABLE,
				"verification failed: word %zu read back as 0x%08x, written and copied as 0x%08x", i,
				verify->result[i], verify->pattern[i]);
	return STATUS_OK;
}

static enum status compare_kernel(struct verify *verify, struct error *error)
{
	for (uint32_t i = 0; i < VERIFY_ELEMENTS; i++) {
		uint32_t hash = reference_mix(verify->pattern[i] + i, verify->seed);
		if (verify->result[i] != hash)
			return error_set(error, STATUS_UNAVAILABLE,
					 "verification failed: the kernel's integer %u is 0x%08x, not 0x%08x", i,
					 verify->result[i], hash);
		float value;
		memcpy(&value, &verify->result[VERIFY_ELEMENTS + i], sizeof(value));
		double expected = (double)(hash >> 8) / 16777216.0 * (double)verify_scale + (double)verify_bias;
		if (!(fabs((double)value - expected) <= 1e-6)) // also false for NaN
			return error_set(error, STATUS_UNAVAILABLE,
					 "verification failed: the kernel's float %u is %.9g, not %.9g", i,
					 (double)value, expected);
	}
	return STATUS_OK;
}

static enum status make(struct verify *verify, struct exogpu_device *device, struct error *error)
{
	struct exogpu_buffer **buffers[] = {&verify->in, &verify->copy, &verify->out};
	enum status status = exogpu_stream_create(device, &verify->stream, error);
	if (!status)
		status = exogpu_module_load(device, &verify->module, EXOGPU_FORMAT_BUILTIN, NULL, 0, error);
	for (int i = 0; !status && i < 3; i++)
		status = exogpu_buffer_create(device, buffers[i], (i == 2 ? 2 : 1) * VERIFY_BYTES, EXOGPU_MEMORY_DEVICE,
					      error);
	return status;
}

static enum status run(struct verify *verify, enum backend_kind kind, struct error *error)
{
	const struct exogpu_argument arguments[] = {
		{.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = verify->copy},
		{.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = verify->out},
		{.kind = EXOGPU_ARGUMENT_U32, .u32 = VERIFY_ELEMENTS},
		{.kind = EXOGPU_ARGUMENT_U32, .u32 = verify->seed},
		{.kind = EXOGPU_ARGUMENT_F32, .f32 = verify_scale},
		{.kind = EXOGPU_ARGUMENT_F32, .f32 = verify_bias},
	};
	struct exogpu_launch launch = {
		.module = verify->module, .kernel = "verify", .arguments = arguments, .argument_count = 6};
	struct exogpu_copy copy = {.to = verify->copy, .from = verify->in, .bytes = VERIFY_BYTES};
	enum status status = exogpu_write(verify->in, 0, verify->pattern, VERIFY_BYTES, error);
	if (!status)
		status = exogpu_copy(verify->stream, &copy, error);
	if (!status)
		status = exogpu_read(verify->result, verify->copy, 0, VERIFY_BYTES, error);
	if (!status && fault_injected("verify-corrupt", kind))
		verify->result[VERIFY_ELEMENTS / 2] ^= 0x100;
	if (!status)
		status = compare_copy(verify, error);
	if (!status)
		status = exogpu_launch(verify->stream, &launch, error);
	if (!status)
		status = exogpu_read(verify->result, verify->out, 0, 2 * VERIFY_BYTES, error);
	if (!status)
		status = compare_kernel(verify, error);
	return status;
}

enum status verify_device(struct exogpu_device *device, enum backend_kind kind, struct error *error)
{
	struct verify verify = {
		.pattern = malloc(VERIFY_BYTES),
		.result = calloc(2, VERIFY_BYTES),
		.seed = (uint32_t)clock_steady_ns(), // another each time: memory left over from before does not pass
	};
	enum status status = STATUS_OUT_OF_MEMORY;
	if (!verify.pattern || !verify.result)
		error_set(error, status, "no memory for the reference");
	else {
		for (uint32_t i = 0; i < VERIFY_ELEMENTS; i++)
			verify.pattern[i] = reference_mix(i, ~verify.seed);
		status = make(&verify, device, error);
		if (!status)
			status = run(&verify, kind, error);
	}
	exogpu_buffer_destroy(&verify.in);
	exogpu_buffer_destroy(&verify.copy);
	exogpu_buffer_destroy(&verify.out);
	exogpu_module_unload(&verify.module);
	exogpu_stream_destroy(&verify.stream);
	free(verify.pattern);
	free(verify.result);
	return status;
}
