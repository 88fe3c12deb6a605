/* Models in slices: on which devices, when that is faster than one, and what is said where it cannot be. */
#include "tests/server/placement/placed.h"

// Two equal GPUs: as one where that is much faster or nothing else holds the model, and as it is asked for.
static void slices_of_equal_devices(void **unused)
{
	struct error error = {0};
	(void)unused;
	make_model(16, GIB / 4);
	make_device(0, PLACE_CUDA, 40 * GIB);
	make_device(1, PLACE_CUDA, 40 * GIB);
	want(2);
	set_linked(0, 1, true);
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
	print_message("two of them: %s, %.3f ms a token\n", placement.strategy, placement.seconds_per_token * 1e3);
	assert_string_equal(placement.strategy, "tensor");
	assert_int_equal(placement.stage_count, 2);
	const double sliced_s = placement.seconds_per_token;
	for (unsigned i = 0; i < 2; i++) {
		const struct placement_stage *stage = &placement.stages[i];
		assert_int_equal(stage->device, i);
		assert_int_equal(stage->slice, i);
		assert_int_equal(stage->slices, 2);
		assert_int_equal(stage->first_layer, 0);
		assert_int_equal(stage->layer_count, 16);
		// A half of the layers; the first also has what is no layer.
		assert_true(stage->memory.weights_bytes >= 2 * GIB && stage->memory.weights_bytes < 5 * GIB / 2);
	}
	assert_true(placement.stages[0].memory.weights_bytes > placement.stages[1].memory.weights_bytes);
	wanted.strategy = PLACE_PIPELINE;
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
	assert_string_equal(placement.strategy, "pipeline");
	assert_int_equal(placement.stage_count, 1);
	if (sliced_s < placement.seconds_per_token / 2 || sliced_s > placement.seconds_per_token * 0.8)
		fail_msg("%.3f ms a token in slices, %.3f ms without", sliced_s * 1e3,
			 placement.seconds_per_token * 1e3);
	// Neither holds it alone.
	wanted.strategy = PLACE_TENSOR;
	devices[0].free_bytes = devices[1].free_bytes = 7 * GIB / 2;
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
	assert_true(placement.feasible && placement.stages[1].slices == 2);
	for (unsigned i = 0; i < 2; i++) {
		const struct stage_memory *memory = &placement.stages[i].memory;
		assert_true(memory->weights_bytes + memory->kv_bytes + memory->workspace_bytes <= 7 * GIB / 2);
	}
	// As pins name them, the second first.
	wanted.strategy = PLACE_ANY;
	const struct placement_pin pins[] = {{.device = 1}, {.device = 0}}, none[] = {{.device = 1}, {.device = 1}};
	wanted.pins = pins;
	wanted.pin_count = 2;
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
	assert_string_equal(placement.strategy, "tensor");
	assert_int_equal(placement.stage_count, 2);
	assert_int_equal(placement.stages[0].device, 1);
	assert_int_equal(placement.stages[1].device, 0);
	assert_int_equal(placement.stages[1].slice, 1);
	wanted.pins = none;
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_UNAVAILABLE);
	// Nor can one of a group hold layers beside it.
	const struct placement_pin beside[] = {
		{.device = 0, .layer_count = 8}, {.device = 1, .layer_count = 8}, {.device = 0, .first_layer = 8}};
	wanted.pins = beside;
	wanted.pin_count = 3;
	error = (struct error){.status = STATUS_OK};
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "twice"));
}

// Small layers are not worth it, unequal devices are no group, and a model is not cut where it cannot be.
static void no_slices(void **unused)
{
	(void)unused;
	for (unsigned which = 0; which < 6; which++) {
		struct error error = {0};
		make_model(16, which ? GIB / 4 : 1 << 20);
		make_device(0, PLACE_CUDA, 40 * GIB);
		make_device(1, which == 1 ? PLACE_VULKAN : PLACE_CUDA, which == 2 ? 30 * GIB : 40 * GIB);
		if (which == 3)
			devices[1].pool = devices[0].pool;
		if (which == 4)
			shape.kv_heads = 5, shape.heads = 35;
		want(2);
		set_linked(0, 1, which != 5);
		assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
		if (strcmp(placement.strategy, "pipeline") != 0)
			fail_msg("case %u: %s", which, placement.strategy);
		wanted.strategy = PLACE_TENSOR;
		if (which % 5) // small ones, and by way of the host, are as it is asked for
			assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_UNAVAILABLE);
	}
}

// Groups are of devices that all copy to each other directly, whichever these are.
static void pairs_that_do_not_copy(void **unused)
{
	struct error error = {0};
	(void)unused;
	make_model(16, GIB / 4);
	for (unsigned i = 0; i < 4; i++)
		make_device(i, PLACE_CUDA, 40 * GIB);
	want(4);
	for (unsigned i = 0; i < 4; i++)
		for (unsigned j = 0; j < i; j++)
			set_linked(i, j, true);
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
	assert_int_equal(placement.stages[0].slices, 4);
	const double four_s = placement.seconds_per_token;
	// One pair of them goes by way of the host's memory: two of the others.
	set_linked(0, 1, false);
	set_linked(0, 2, false);
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
	assert_int_equal(placement.stages[0].slices, 2);
	assert_int_equal(placement.stages[0].device, 0);
	assert_int_equal(placement.stages[1].device, 3);
	set_linked(0, 3, false);
	set_linked(1, 2, false);
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
	assert_int_equal(placement.stages[0].slices, 2);
	assert_int_equal(placement.stages[0].device, 1);
	assert_int_equal(placement.stages[1].device, 3);
	// One direction is not enough.
	copies[1 * 4 + 3] = copies[2 * 4 + 3] = false;
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
	assert_string_equal(placement.strategy, "pipeline");
	// Where it is asked for they are taken all the same, and cost more.
	wanted.strategy = PLACE_TENSOR;
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
	assert_int_equal(placement.stages[0].slices, 4);
	print_message("four: %.3f ms a token directly, %.3f ms by way of the host\n", four_s * 1e3,
		      placement.seconds_per_token * 1e3);
	assert_true(placement.seconds_per_token > four_s + 16 * 2 * 20e-6);
}

// Two machines of two GPUs, of which no machine holds the model: slices within, layers one behind another between.
static void slices_in_each_of_two_machines(void **unused)
{
	struct error error = {0};
	const struct placement_link link = {.known = true,
					    .direct = true,
					    .link_class = "ethernet",
					    .round_trip_s = 0.2e-3,
					    .bytes_per_s = 1e9},
				    links[] = {link, link, link, link};
	static const char *const nodes[] = {"nod_0", "nod_1"};
	(void)unused;
	make_model(16, GIB / 4);
	for (unsigned i = 0; i < 4; i++) {
		make_device(i, PLACE_CUDA, 7 * GIB / 4);
		devices[i].node = i / 2;
		devices[i].node_id = nodes[i / 2];
	}
	for (int objective = PLACE_LATENCY; objective <= PLACE_THROUGHPUT; objective++) {
		want(4);
		memset(copies, 0, sizeof copies);
		set_linked(0, 1, true);
		set_linked(2, 3, true);
		wanted.node_count = 2;
		wanted.links = links;
		wanted.objective = (enum placement_objective)objective;
		wanted.strategy = PLACE_PIPELINE;
		assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
		assert_true(placement.feasible);
		assert_true(says("proven: no other chain of the devices that can be used is faster"));
		const double piped_s = placement.value_s;
		wanted.strategy = PLACE_ANY;
		assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
		print_message("%s: %.2f ms a token, %.2f ms one behind another\n", placement.strategy,
			      placement.value_s * 1e3, piped_s * 1e3);
		assert_string_equal(placement.strategy, "hybrid");
		assert_true(placement.value_s < piped_s * 0.8);
		assert_int_equal(placement.proof, PROOF_OPTIMAL);
		assert_true(says("groups of 2 equal devices"));
		assert_int_equal(placement.stage_count, 4);
		for (unsigned i = 0; i < 4; i++) {
			const struct placement_stage *stage = &placement.stages[i],
						     *first = &placement.stages[i / 2 * 2];
			const struct stage_memory *memory = &stage->memory;
			assert_int_equal(stage->slices, 2);
			assert_int_equal(stage->slice, i % 2);
			assert_int_equal(devices[stage->device].node, devices[first->device].node);
			assert_int_equal(stage->first_layer, first->first_layer);
			assert_int_equal(stage->layer_count, first->layer_count);
			assert_int_equal(stage->embeds, i < 2);
			assert_int_equal(stage->predicts, i >= 2);
			assert_true(memory->weights_bytes + memory->kv_bytes + memory->workspace_bytes <=
				    devices[stage->device].free_bytes);
		}
		assert_int_not_equal(devices[placement.stages[0].device].node,
				     devices[placement.stages[2].device].node);
		assert_int_equal(placement.stages[0].layer_count + placement.stages[2].layer_count, 16);
		assert_int_equal(placement.stages[2].first_layer, placement.stages[0].layer_count);
		assert_int_equal(placement.hop_count, 2); // there and back
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slices_of_equal_devices),
		cmocka_unit_test(no_slices),
		cmocka_unit_test(pairs_that_do_not_copy),
		cmocka_unit_test(slices_in_each_of_two_machines),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
