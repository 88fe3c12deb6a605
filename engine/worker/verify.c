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
	const struct backend *backend;
	struct old_device *device;
	struct old_buffer *in, *copy, *out;
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

static uint32_t float_bits(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof(bits));
	return bits;
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

static enum status run(struct verify *verify, struct error *error)
{
	const struct backend *backend = verify->backend;
	struct old_device *device = verify->device;
	enum status status = backend->old_buffer_create(device, &verify->in, VERIFY_BYTES, error);
	if (!status)
		status = backend->old_buffer_create(device, &verify->copy, VERIFY_BYTES, error);
	if (!status)
		status = backend->old_buffer_create(device, &verify->out, 2 * VERIFY_BYTES, error);
	if (!status)
		status = backend->old_write(device, verify->in, verify->pattern, VERIFY_BYTES, error);
	if (!status)
		status = backend->old_copy(device, verify->copy, verify->in, VERIFY_BYTES, error);
	if (!status)
		status = backend->old_read(device, verify->result, verify->copy, VERIFY_BYTES, error);
	if (!status && fault_injected("verify-corrupt", backend->kind))
		verify->result[VERIFY_ELEMENTS / 2] ^= 0x100;
	if (!status)
		status = compare_copy(verify, error);
	struct old_launch launch = {
		.kernel = KERNEL_VERIFY,
		.buffers = {verify->copy, verify->out},
		.constants = {verify->seed, float_bits(verify_scale), float_bits(verify_bias)},
		.elements = VERIFY_ELEMENTS,
		.repeat = 1,
	};
	if (!status)
		status = backend->old_launch(device, &launch, NULL, error);
	if (!status)
		status = backend->old_read(device, verify->result, verify->out, 2 * VERIFY_BYTES, error);
	if (!status)
		status = compare_kernel(verify, error);
	return status;
}

enum status verify_device(const struct backend *backend, struct old_device *device, struct error *error)
{
	struct verify verify = {
		.backend = backend,
		.device = device,
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
		status = run(&verify, error);
	}
	backend->old_buffer_destroy(device, &verify.in);
	backend->old_buffer_destroy(device, &verify.copy);
	backend->old_buffer_destroy(device, &verify.out);
	free(verify.pattern);
	free(verify.result);
	return status;
}
