/* The room of a cluster for a model, and that a placement agrees. */
#include "server/hub/models_fit.h"
#include "server/placement/placement.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <string.h>

#define MIB (1024ull * 1024)
#define GIB (1024 * MIB)
enum { STEP_MIB = 256 };

static struct placement_device device(unsigned node, enum placement_backend backend, uint64_t free_gib,
				      const char *pool)
{
	return (struct placement_device){.device_id = "dev_x",
					 .name = "one",
					 .node_id = node ? "nod_b" : "nod_a",
					 .node = node,
					 .pool = pool,
					 .backend = backend,
					 .bandwidth = 100e9,
					 .memory_bytes = 2 * free_gib * GIB,
					 .free_bytes = free_gib * GIB,
					 .free_known = true,
					 .heat_room = -1};
}

static void check(const struct placement_device *devices, unsigned count, uint64_t device_mib, uint64_t devices_mib)
{
	struct models_room room;
	models_room(devices, count, &room);
	assert_true(room.known);
	assert_int_equal(room.device / MIB, device_mib);
	assert_int_equal(room.devices / MIB, devices_mib);
}

static void test_nodes_and_back_ends(void **state)
{
	const struct placement_device devices[] = {device(0, PLACE_CUDA, 8, ""), device(0, PLACE_CPU, 4, ""),
						   device(1, PLACE_VULKAN, 6, "")};
	(void)state;
	check(devices, 3, 8 * 1024 - STEP_MIB, 18 * 1024 - 3 * STEP_MIB);
}

static void test_shared_memory_counts_once(void **state)
{
	struct placement_device devices[] = {device(0, PLACE_VULKAN, 6, "host"), device(0, PLACE_CPU, 8, "host"),
					     device(0, PLACE_CUDA, 8, "host"), device(1, PLACE_CPU, 2, "host")};
	(void)state;
	check(devices, 4, 8 * 1024 - STEP_MIB, 10 * 1024 - 2 * STEP_MIB);
	devices[1].unusable = devices[2].unusable = "it is draining"; // then the third is what there is of that memory
	check(devices, 4, 6 * 1024 - STEP_MIB, 8 * 1024 - 2 * STEP_MIB);
}

static void test_what_is_not_used_unasked(void **state)
{
	struct models_room room;
	struct placement_device devices[] = {device(0, PLACE_VULKAN, 64, ""), device(0, PLACE_CUDA, 64, ""),
					     device(0, PLACE_CUDA, 64, ""), device(0, PLACE_CPU, 0, "")};
	(void)state;
	devices[0].software = true;
	devices[1].unusable = "it is offline";
	devices[2].memory_bytes = devices[2].free_bytes = 0;
	models_room(devices, 3, &room);
	assert_false(room.known);
	assert_string_equal(models_fit(&room, GIB), "unknown");
	devices[3].memory_bytes = GIB;
	devices[3].free_bytes = STEP_MIB * MIB - 1; // less than a step takes
	check(devices, 4, 0, 0);
	models_room(devices, 4, &room);
	assert_string_equal(models_fit(&room, 1), "no");
	assert_string_equal(models_fit(&room, 0), "unknown");
}

// ---- against the placement itself ----

static struct model_shape shape;
static struct model_sizes sizes;

// Whether `bytes` of weights, 32 layers of a llama's shape, are placed on these, and on how many.
static unsigned placed_on(const struct placement_device *devices, unsigned count, uint64_t bytes)
{
	static struct placement placement;
	struct error error = {0};
	shape = (struct model_shape){.family = FAMILY_LLAMA,
				     .layers = 32,
				     .embedding = 4096,
				     .feed_forward = 14336,
				     .heads = 32,
				     .kv_heads = 8,
				     .head_size = 128,
				     .vocabulary = 32000,
				     .context = 4096};
	sizes = (struct model_sizes){.main_format = FORMAT_Q4_K,
				     .embedding_bytes = bytes / 64,
				     .output_bytes = bytes / 64,
				     .layer_bytes = bytes / 33,
				     .layers_bytes = bytes - bytes / 32};
	sizes.format_bytes[FORMAT_Q4_K] = bytes;
	const struct placement_wanted wanted = {.shape = &shape,
						.sizes = &sizes,
						.devices = devices,
						.device_count = count,
						.node_count = 2,
						.context_tokens = 4096,
						.sequences = 1,
						.timeout_s = 5};
	if (placement_find(&placement, &wanted, &error))
		fail_msg("%s", error.message);
	return placement.feasible ? placement.stage_count : 0;
}

static void test_as_placed(void **state)
{
	const struct placement_device over[] = {device(0, PLACE_CUDA, 8, ""), device(0, PLACE_CPU, 6, ""),
						device(1, PLACE_CUDA, 8, "")};
	const struct placement_device shared[] = {device(0, PLACE_VULKAN, 8, "one"), device(0, PLACE_CUDA, 8, "one")};
	static const struct {
		bool shared;
		uint64_t gib;
		const char *fits;
	} cases[] = {{false, 6, "device"}, {false, 14, "devices"}, {false, 18, "devices"},
		     {false, 24, "no"},    {true, 6, "device"},    {true, 10, "no"}};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct models_room room;
		const struct placement_device *devices = cases[i].shared ? shared : over;
		const unsigned count = cases[i].shared ? 2 : 3;
		models_room(devices, count, &room);
		const char *fits = models_fit(&room, cases[i].gib * GIB);
		const unsigned stages = placed_on(devices, count, cases[i].gib * GIB);
		const char *placed = !stages ? "no" : stages == 1 ? "device" : "devices";
		if (strcmp(fits, cases[i].fits) != 0 || strcmp(placed, cases[i].fits) != 0)
			fail_msg("%d GiB: said %s, placed on %u (%s), not %s", (int)cases[i].gib, fits, stages, placed,
				 cases[i].fits);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nodes_and_back_ends), cmocka_unit_test(test_shared_memory_counts_once),
		cmocka_unit_test(test_what_is_not_used_unasked), cmocka_unit_test(test_as_placed)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
