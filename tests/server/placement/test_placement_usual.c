/* How long requests may be, and how many run at once, where nobody says. */
#include "engine/stage.h"
#include "server/placement/placement.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#define GIB (1024ull * 1024 * 1024)

// 8 billion parameters in four bits and a half: 128 KiB of keys and values a token, 4 GiB for 32,768 tokens.
static const struct model_shape shape = {
	.family = FAMILY_LLAMA,
	.layers = 32,
	.embedding = 4096,
	.feed_forward = 14336,
	.heads = 32,
	.kv_heads = 8,
	.head_size = 128,
	.vocabulary = 128256,
	.context = 131072,
};
static const struct model_sizes sizes = {
	.embedding_bytes = GIB / 4, .output_bytes = GIB / 2, .layer_bytes = GIB / 8, .layers_bytes = 4 * GIB};

static struct placement_device device(enum placement_backend backend, uint64_t free_gib, const char *pool)
{
	return (struct placement_device){.device_id = "dev_x",
					 .name = "one",
					 .node_id = "nod_a",
					 .pool = pool,
					 .backend = backend,
					 .memory_bytes = 2 * free_gib * GIB,
					 .free_bytes = free_gib * GIB,
					 .free_known = true};
}

static void check(const struct placement_device *devices, unsigned count, uint32_t context, uint32_t sequences)
{
	const struct placement_wanted wanted = {
		.shape = &shape, .sizes = &sizes, .devices = devices, .device_count = count};
	uint32_t is_context = 0, is_sequences = 0;
	placement_usual(&wanted, &is_context, &is_sequences);
	assert_int_equal(is_context, context);
	assert_int_equal(is_sequences, sequences);
}

// The weights and a sixteenth take 5.05 GiB.
static void test_memory(void **state)
{
	(void)state;
	assert_int_equal(stage_page_bytes(&shape) * shape.layers * 1024, 4 * GIB);
	const struct {
		uint64_t free_gib;
		uint32_t context, sequences;
	} cases[] = {
		{140, 32768, 128}, {80, 32768, 53}, {40, 32768, 17}, {24, 16384, 18},
		{16, 8192, 21},    {10, 4096, 19},  {7, 2048, 15},   {6, 2048, 8},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct placement_device one = device(PLACE_CUDA, cases[i].free_gib, "");
		check(&one, 1, cases[i].context, cases[i].sequences);
	}
}

// More memory never gives less of either, at the same of the other.
static void test_more_is_never_less(void **state)
{
	(void)state;
	uint64_t tokens = 0;
	for (uint64_t gib = 1; gib < 200; gib++) {
		const struct placement_device one = {
			.backend = PLACE_CUDA, .memory_bytes = 200 * GIB, .free_bytes = gib * GIB, .free_known = true};
		const struct placement_wanted wanted = {
			.shape = &shape, .sizes = &sizes, .devices = &one, .device_count = 1};
		uint32_t context = 8192, sequences = 0;
		placement_usual(&wanted, &context, &sequences);
		assert_int_equal(context, 8192);
		assert_true(sequences >= 8 && sequences <= 128);
		if (gib > 6)
			assert_true(sequences >= tokens);
		tokens = gib > 6 ? sequences : 0;
	}
}

static void test_what_is_said_stays(void **state)
{
	(void)state;
	const struct placement_device one = device(PLACE_CUDA, 10, "");
	const struct placement_wanted wanted = {.shape = &shape, .sizes = &sizes, .devices = &one, .device_count = 1};
	uint32_t context = 100000, sequences = 3;
	placement_usual(&wanted, &context, &sequences);
	assert_int_equal(context, 100000);
	assert_int_equal(sequences, 3);
	sequences = 0;
	placement_usual(&wanted, &context, &sequences);
	assert_int_equal(sequences, 8); // of that length there is room for none; they share what there is
	context = 0;
	sequences = 200;
	placement_usual(&wanted, &context, &sequences);
	assert_int_equal(context, 4096);
	assert_int_equal(sequences, 200);
}

static void test_a_short_model(void **state)
{
	(void)state;
	struct model_shape own = shape;
	own.context = 512;
	const struct placement_device one = device(PLACE_CPU, 16, "");
	const struct placement_wanted wanted = {.shape = &own, .sizes = &sizes, .devices = &one, .device_count = 1};
	uint32_t context = 0, sequences = 0;
	placement_usual(&wanted, &context, &sequences);
	assert_int_equal(context, 512);
	assert_int_equal(sequences, 32);
}

// Three of four layers have a state of 2 MiB for each request, two of which are kept: 24 layers, 96 MiB a request.
static void test_states(void **state)
{
	(void)state;
	struct model_shape own = shape;
	own.delta = (struct model_delta){.heads = 32, .key_heads = 16, .key_size = 128, .value_size = 128, .kernel = 4};
	for (uint32_t i = 0; i < own.layers; i++)
		own.layer_kinds[i] = i % 4 == 3 ? 0 : LAYER_DELTA;
	for (uint64_t gib = 16; gib <= 64; gib *= 2) {
		const struct placement_device one = device(PLACE_CPU, gib, "");
		const struct placement_wanted wanted = {
			.shape = &own, .sizes = &sizes, .devices = &one, .device_count = 1};
		uint32_t context = 0, sequences = 0;
		placement_usual(&wanted, &context, &sequences);
		const uint64_t states = stage_state_bytes(&own) * stage_state_count(&own, sequences) * 24,
			       pages = placement_pages(context, sequences) * stage_page_bytes(&own) * 8;
		print_message("%u GiB: %u tokens, %u at once, %.1f GiB of states\n", (unsigned)gib, context, sequences,
			      (double)states / GIB);
		assert_true(sequences >= 8 && states + pages <= (gib - 5) * GIB / 2);
		assert_true(gib < 64 || sequences == 32);
	}
}

static void test_which_memory(void **state)
{
	(void)state;
	// The largest GPU, whatever the host has.
	const struct placement_device both[] = {device(PLACE_CPU, 100, "host"), device(PLACE_CUDA, 10, "")};
	check(both, 2, 4096, 19);
	// Two that hold it together, and count once where they share memory.
	const struct placement_device two[] = {device(PLACE_CUDA, 5, "a"), device(PLACE_CUDA, 5, "b")};
	check(two, 2, 4096, 19);
	const struct placement_device same[] = {device(PLACE_CUDA, 5, "a"), device(PLACE_VULKAN, 5, "a"),
						device(PLACE_CUDA, 5, "b")};
	check(same, 3, 4096, 19);
	// The host where GPUs do not hold it; not one that cannot be used, or stands for another.
	struct placement_device small[] = {device(PLACE_CPU, 10, "host"), device(PLACE_CUDA, 2, ""),
					   device(PLACE_CUDA, 100, ""), device(PLACE_VULKAN, 100, "host")};
	small[2].unusable = "it is draining";
	small[3].software = true;
	check(small, 4, 4096, 19);
	// Nothing is free, but idle models may be evicted: by what there is, 20 GiB less a sixteenth.
	struct placement_device full = device(PLACE_CUDA, 10, "");
	full.free_bytes = 0;
	check(&full, 1, 8192, 27);
	// Nothing holds it, or there is nothing: what a step down has to do with is as little as may be.
	const struct placement_device tiny = device(PLACE_CUDA, 1, "");
	check(&tiny, 1, 2048, 8);
	check(NULL, 0, 2048, 8);
	// Pins, and nothing else.
	const struct placement_pin pin = {.device = 0};
	const struct placement_wanted pinned = {
		.shape = &shape, .sizes = &sizes, .devices = both, .device_count = 2, .pins = &pin, .pin_count = 1};
	uint32_t context = 0, sequences = 0;
	placement_usual(&pinned, &context, &sequences);
	assert_int_equal(context, 32768);
	assert_int_equal(sequences, 32);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_more_is_never_less),
		cmocka_unit_test(test_what_is_said_stays),
		cmocka_unit_test(test_a_short_model),
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_which_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
