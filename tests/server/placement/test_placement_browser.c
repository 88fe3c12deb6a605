/* A browser's GPU in placements: between others, first where it is pinned so, never the last; and only of models that a
 * browser computes. */
#include "server/placement/placement_inside.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on
#include <string.h>

#define GIB (1024ull * 1024 * 1024)

static const struct model_shape llama = {.family = FAMILY_LLAMA,
					 .layers = 12,
					 .embedding = 2048,
					 .feed_forward = 5632,
					 .heads = 32,
					 .kv_heads = 4,
					 .head_size = 64,
					 .vocabulary = 32000,
					 .context = 4096,
					 .rope_size = 64};
static struct model_shape shape;
static struct model_sizes sizes;
static struct placement_device devices[3];
static struct placement_wanted wanted;
static struct placement placement;
static struct error error;

enum { TAB, PROCESSOR, GPU };

static struct placement_device device(const char *id, enum placement_backend backend, unsigned node, uint64_t bytes)
{
	return (struct placement_device){.device_id = id,
					 .name = id,
					 .node_id = id,
					 .pool = id,
					 .node = node,
					 .backend = backend,
					 .memory_bytes = bytes,
					 .free_bytes = bytes,
					 .free_known = true,
					 .bandwidth = 1e11};
}

static int begin(void **unused)
{
	(void)unused;
	shape = llama;
	sizes = (struct model_sizes){.embedding_bytes = 130000000,
				     .output_bytes = 131000000,
				     .layer_bytes = 100000000,
				     .layers_bytes = 1200000000,
				     .main_format = FORMAT_Q8_0};
	sizes.format_bytes[FORMAT_Q8_0] = sizes.layers_bytes;
	devices[TAB] = device("tab", PLACE_WEBGPU, 0, 64 * GIB);
	devices[PROCESSOR] = device("processor", PLACE_CPU, 1, 64 * GIB);
	devices[GPU] = device("gpu", PLACE_VULKAN, 1, 64 * GIB);
	wanted = (struct placement_wanted){.shape = &shape,
					   .sizes = &sizes,
					   .devices = devices,
					   .device_count = 3,
					   .node_count = 2,
					   .timeout_s = 100,
					   .context_tokens = 2048,
					   .sequences = 4};
	return 0;
}

static bool uses(unsigned which)
{
	bool used = false;
	for (unsigned i = 0; i < placement.stage_count; i++)
		used |= placement.stages[i].device == which;
	return used;
}

static void between_others(void **unused)
{
	(void)unused;
	devices[TAB].bandwidth = 1e14;
	devices[PROCESSOR].free_bytes = devices[GPU].free_bytes = 700000000; // they do not hold the model
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
	assert_true(placement.feasible);
	assert_int_equal(placement.stage_count, 3);
	assert_int_equal(placement.stages[1].device, TAB);
	devices[GPU].unusable = "it is lost"; // there is nothing that the browser is between
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
	assert_false(placement.feasible);
}

static void not_where_it_only_costs(void **unused)
{
	(void)unused;
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
	assert_true(placement.feasible && !uses(TAB));
}

static void pins_that_end_in_a_browser(void **unused)
{
	(void)unused;
	struct placement_pin pins[] = {{.device = PROCESSOR, .first_layer = 0, .layer_count = 4},
				       {.device = TAB, .first_layer = 4, .layer_count = 0}};
	wanted.pins = pins;
	wanted.pin_count = 2;
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "cannot be the last"));
	pins[0].device = TAB;
	pins[1].device = PROCESSOR;
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
	assert_true(placement.feasible);
}

// Each is refused by name, and the processor has the model then.
static void what_a_browser_does_not_compute(void **unused)
{
	(void)unused;
	static const char *const words[] = {"experts", "encoders",    "a cap",        "norms", "biases",
					    "gate",    "a window of", "groups of 32", "MXFP4", "in the file"};
	for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
		begin(NULL);
		shape.experts = i == 0 ? 8 : 0;
		shape.encoder = i == 1;
		shape.attention_cap = i == 2 ? 50 : 0;
		shape.post_norm = i == 3;
		shape.output_bias = i == 4;
		shape.gate = i == 5 ? GATE_CLAMPED : GATE_SILU;
		shape.layer_kinds[3] = i == 6 ? LAYER_SLIDES : 0;
		shape.embedding = i == 7 ? 2064 : 2048;
		sizes.format_bytes[FORMAT_MXFP4] = i == 8 ? 1000 : 0;
		wanted.may_shrink = i == 9;
		const char *refused = browser_refuses(&wanted);
		assert_non_null(refused);
		assert_non_null(strstr(refused, words[i]));
		assert_string_equal(cost_unusable(&wanted, TAB), refused);
		assert_null(cost_unusable(&wanted, PROCESSOR));
	}
	begin(NULL);
	assert_null(browser_refuses(&wanted));
	devices[TAB].bandwidth = 1e14;
	shape.experts = 8;
	shape.experts_used = 2;
	shape.expert_width = 512;
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
	assert_true(placement.feasible && !uses(TAB));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(between_others, begin),
		cmocka_unit_test_setup(not_where_it_only_costs, begin),
		cmocka_unit_test_setup(pins_that_end_in_a_browser, begin),
		cmocka_unit_test_setup(what_a_browser_does_not_compute, begin),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
