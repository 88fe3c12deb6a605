/* Copies between two GPUs: over their link, staged by the driver, and staged here. */
#include "engine/cuda/device.h"
#include "engine/inside.h"
#include "tests/engine/cuda/here.h"

enum { BYTES = 40 * 1024 * 1024 + 5 };

struct side {
	struct exogpu_device *device;
	struct exogpu_stream *stream;
	struct exogpu_buffer *buffer;
};

static void open_side(struct side *side, unsigned index)
{
	side->device = here_open(index);
	HERE_OK(exogpu_stream_create(side->device, &side->stream, &error));
	HERE_OK(exogpu_buffer_create(side->device, &side->buffer, BYTES, EXOGPU_MEMORY_DEVICE, &error));
}

static void finish(struct side *side)
{
	uint64_t point;
	HERE_OK(exogpu_mark(side->stream, &point, &error));
	HERE_OK(exogpu_wait(side->stream, point, 20000000000, &error));
}

static bool copy(struct side *from, struct side *to, uint64_t offset, uint64_t bytes)
{
	bool direct = false;
	struct exogpu_copy params = {.to = to->buffer,
				     .from = from->buffer,
				     .to_offset = offset,
				     .from_offset = offset,
				     .bytes = bytes,
				     .direct = &direct};
	HERE_OK(exogpu_copy(from->stream, &params, &error));
	finish(from);
	return direct;
}

// Fill the target, copy a part, and look at every byte.
static bool check(struct side *from, struct side *to, uint64_t offset, uint64_t bytes)
{
	uint8_t *sent = malloc(BYTES), *got = malloc(BYTES);
	for (size_t i = 0; i < BYTES; i++)
		sent[i] = (uint8_t)(i * 131 + i / 4096);
	HERE_OK(exogpu_write(from->buffer, 0, sent, BYTES, &error));
	HERE_OK(exogpu_fill(to->stream, to->buffer, 0, BYTES, 0xee, &error));
	finish(to);
	bool direct = copy(from, to, offset, bytes);
	HERE_OK(exogpu_read(got, to->buffer, 0, BYTES, &error));
	for (size_t i = 0; i < BYTES; i++) {
		uint8_t expected = i >= offset && i - offset < bytes ? sent[i] : 0xee;
		if (got[i] != expected)
			fail_msg("byte %zu is 0x%02x, not 0x%02x", i, got[i], expected);
	}
	free(sent);
	free(got);
	return direct;
}

static void test_copies(void **state)
{
	static const enum cuda_way ways[] = {CUDA_WAY_UNKNOWN, CUDA_WAY_DRIVER, CUDA_WAY_STAGED};
	struct side a, b;
	(void)state;
	open_side(&a, 0);
	open_side(&b, 1);
	assert_true(exogpu_device_limits(a.device)->capabilities & EXOGPU_CAN_PEER);
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		struct cuda_peer *peer = &a.device->handle->peers[b.device->handle->ordinal];
		if (ways[i] != CUDA_WAY_UNKNOWN) // as if it had failed before
			*peer = (struct cuda_peer){.serial = b.device->handle->serial, .way = ways[i]};
		bool direct = check(&a, &b, 0, BYTES);
		print_message("asked for way %d, went by way %d%s\n", (int)ways[i], (int)peer->way,
			      direct ? ", over the link" : "");
		assert_int_equal(direct, peer->way == CUDA_WAY_DIRECT);
		assert_int_equal(check(&a, &b, 3, 1), direct);
		assert_int_equal(check(&a, &b, 4097, 999999), direct);
		check(&b, &a, 1, BYTES - 1);
	}
	exogpu_device_close(&b.device, NULL);
	exogpu_device_close(&a.device, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_copies)};
	if (!here_find(2))
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
