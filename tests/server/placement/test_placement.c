/* Where models go: random machines and models, compared with an exhaustive search for the fewest devices; pins; and the
 * steps when memory is short. */
#include "tests/server/placement/placed.h"

enum { CASES = 3000 };

static uint64_t state = 88172645463325252u;
static uint64_t draw(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

static uint64_t takes(uint32_t first, uint32_t count, uint32_t pages)
{
	struct stage_memory memory;
	const struct stage_params params = {.shape = &shape,
					    .first_layer = first,
					    .layer_count = count,
					    .embeds = first == 0,
					    .predicts = first + count == shape.layers,
					    .context_tokens = wanted.context_tokens,
					    .page_count = pages,
					    .batch_rows = PLACEMENT_BATCH_ROWS,
					    .batch_sequences = wanted.sequences,
					    .batch_outputs = wanted.sequences};
	stage_estimate(&params, &sizes, &memory);
	return memory.weights_bytes + memory.kv_bytes + memory.workspace_bytes;
}

// The fewest of these devices that hold layers from `first` on, in any order and split; MOST + 1: they do not.
static unsigned fewest(uint32_t first, unsigned used, unsigned count, uint32_t pages)
{
	unsigned best = MOST + 1;
	if (first == shape.layers)
		return 0;
	for (unsigned i = 0; i < count; i++)
		for (uint32_t layers = 1; !(used & 1u << i) && layers <= shape.layers - first; layers++)
			if (takes(first, layers, pages) <= devices[i].free_bytes) {
				unsigned more = 1 + fewest(first + layers, used | 1u << i, count, pages);
				best = more < best ? more : best;
			}
	return best;
}

static void check_stages(void)
{
	uint32_t next = 0;
	for (unsigned i = 0; i < placement.stage_count; i++) {
		const struct placement_stage *stage = &placement.stages[i];
		assert_int_equal(stage->first_layer, next);
		assert_true(stage->layer_count > 0);
		assert_int_equal(stage->embeds, i == 0);
		assert_int_equal(stage->predicts, i == placement.stage_count - 1);
		assert_true(stage->memory.weights_bytes + stage->memory.kv_bytes + stage->memory.workspace_bytes <=
			    devices[stage->device].free_bytes);
		next += stage->layer_count;
	}
	assert_int_equal(next, shape.layers);
}

static void the_fewest_devices(void **unused)
{
	(void)unused;
	unsigned several = 0, none = 0;
	for (int i = 0; i < CASES; i++) {
		unsigned count = 1 + (unsigned)draw(4);
		make_model(1 + (uint32_t)draw(6), 50000000 + draw(400000000));
		want(count);
		for (unsigned j = 0; j < count; j++)
			make_device(j, PLACE_CUDA, draw(3 * GIB / 2));
		assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
		uint32_t pages = placement_pages(wanted.context_tokens, wanted.sequences);
		unsigned least = fewest(0, 0, count, pages);
		if (least > MOST) {
			pages = placement_pages(wanted.context_tokens, 1);
			least = fewest(0, 0, count, pages);
		}
		assert_int_equal(placement.feasible, least <= MOST);
		none += !placement.feasible;
		if (!placement.feasible) {
			assert_true(placement.missing_bytes > 0);
			assert_true(placement.why_count > 0);
			continue;
		}
		assert_int_equal(placement.proof, PROOF_OPTIMAL);
		assert_int_equal(placement.stage_count, least);
		assert_int_equal(placement.page_count, pages);
		several += least > 1;
		check_stages();
	}
	print_message("%d cases: %u on several devices, %u nowhere\n", CASES, several, none);
	assert_true(several > CASES / 50 && none > CASES / 50);
}

static void back_ends_in_their_order(void **unused)
{
	(void)unused;
	make_model(4, 100000000);
	make_device(0, PLACE_CPU, 16 * GIB);
	make_device(1, PLACE_VULKAN, 8 * GIB);
	make_device(2, PLACE_CUDA, 4 * GIB);
	want(3);
	for (unsigned least = 2;; least--) {
		assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
		assert_int_equal(placement.stages[0].device, least);
		if (!least)
			break;
		devices[least].unusable = "it is draining";
	}
	assert_int_equal(placement.step, STEP_NONE);
}

static void when_memory_is_short(void **unused)
{
	(void)unused;
	make_model(8, 200000000);
	make_device(0, PLACE_CPU, 16 * GIB);
	make_device(1, PLACE_CUDA, 3 * GIB / 2);
	want(2);
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_int_equal(placement.step, STEP_SPILLED);
	assert_int_equal(placement.stages[0].device, 1);
	assert_true(placement.stages[0].host_layers > 0 && placement.stages[0].host_layers < 8);
	check_stages();
	devices[1].free_bytes = 300000000; // not even what is no layer
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_int_equal(placement.step, STEP_CPU);
	assert_int_equal(placement.stages[0].device, 0);
	devices[0].free_bytes = 3 * GIB / 2;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_false(placement.feasible);
	wanted.may_shrink = true;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_true(placement.feasible);
	assert_int_equal(placement.step, STEP_SMALLER_FORMAT);
	assert_int_equal(placement.format, FORMAT_Q8_0);
}

static void pins(void **unused)
{
	(void)unused;
	struct placement_pin two[] = {{.device = 1, .layer_count = 3}, {.device = 0, .first_layer = 3}};
	make_model(8, 100000000);
	make_device(0, PLACE_CUDA, 4 * GIB);
	make_device(1, PLACE_CUDA, 4 * GIB);
	want(2);
	wanted.pins = two;
	wanted.pin_count = 2;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_true(placement.feasible);
	assert_int_equal(placement.stages[0].device, 1);
	assert_int_equal(placement.stages[1].layer_count, 5);
	check_stages();
	wanted.page_count = placement.page_count - 1; // as parts that are kept have them: no more, and no fewer
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_true(placement.feasible);
	assert_int_equal(placement.page_count, wanted.page_count);
	check_stages();
	wanted.page_count = 1u << 30;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_false(placement.feasible);
	wanted.page_count = 0;
	two[1].first_layer = 4;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_INVALID_PARAMS);
	two[1].first_layer = 3;
	devices[0].backend = PLACE_VULKAN; // back ends may differ
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_true(placement.feasible);
	devices[0].backend = PLACE_CUDA;
	devices[1].unusable = "it is offline";
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_UNAVAILABLE);
	devices[1].unusable = NULL;
	devices[1].free_bytes = 1000;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_false(placement.feasible);
}

// The device of the remedy with this text; MOST: there is none.
static int helps(const char *text)
{
	for (unsigned i = 0; i < placement.remedy_count; i++)
		if (strstr(placement.remedies[i].text, text))
			return placement.remedies[i].device;
	return MOST;
}

// In words: what would give it a place where nothing can be used, one layer, and memory of less than a GiB.
static void what_is_said(void **unused)
{
	static const struct placement_pin all[] = {{.device = 0}};
	(void)unused;
	make_model(4, 100000000);
	make_device(0, PLACE_CUDA, 4 * GIB);
	make_device(1, PLACE_CUDA, 4 * GIB);
	want(2);
	devices[0].unusable = devices[1].unusable = "it is offline";
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_string_equal(placement.whys[0].text, "no device can be used");
	devices[1].unusable = "it is draining";
	devices[1].draining = true;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_string_equal(placement.whys[0].text, "no device can be used: dev_1 is draining");
	assert_int_equal(placement.remedies[0].device, 1);
	assert_string_equal(placement.remedies[0].text,
			    "with dev_1 back in service it would fit: exogpu devices return dev_1");
	devices[0].unusable = "it is draining";
	devices[0].draining = true;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_string_equal(placement.whys[0].text, "no device can be used: dev_0 and 1 other are draining");

	// One that is too small beside others that are draining: the first that would do, else all of them, if they
	// would.
	make_device(0, PLACE_CUDA, GIB / 4);
	make_device(2, PLACE_CUDA, 4 * GIB);
	devices[1].free_bytes = GIB / 4;
	devices[2].unusable = "it is draining";
	devices[2].draining = true;
	want(3);
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_int_equal(helps("with dev_2 back in service it would fit: exogpu devices return dev_2"), 2);
	devices[0].free_bytes = 0;
	devices[1].free_bytes = devices[2].free_bytes = GIB / 2;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_int_equal(helps("with the 2 devices that are draining back in service it would fit"), -1);
	devices[1].free_bytes = devices[2].free_bytes = 0;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_int_equal(helps("back in service"), MOST);

	make_device(0, PLACE_CUDA, 0);
	want(1);
	wanted.pins = all;
	wanted.pin_count = 1;
	devices[0].free_bytes = takes(0, 4, placement_pages(wanted.context_tokens, 1)) - 1;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_false(placement.feasible);
	assert_true(says(", and 1 B are missing"));
	assert_string_equal(placement.remedies[0].text, "with 1 layer fewer on dev_0 they would fit there");
	assert_string_equal(placement.remedies[1].text, "with 1 MiB more on dev_0 they would fit there");
}

// A device that would take as long, to two digits, is not called slower.
static void no_faster(void **unused)
{
	(void)unused;
	make_model(4, 100000000);
	make_device(0, PLACE_CUDA, 4 * GIB);
	make_device(1, PLACE_CUDA, 4 * GIB);
	devices[1].bandwidth = 0.999999 * devices[0].bandwidth;
	want(2);
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_int_equal(placement.stages[0].device, 0);
	assert_true(says("dev_1 would make it no faster: "));
	devices[1].bandwidth /= 2;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_true(says("dev_1 would make it slower: "));
}

// CUDA takes no widths that are not multiples of 4: that is said, and others hold the model.
static void widths_of_cuda(void **unused)
{
	(void)unused;
	struct error error = {0};
	const struct placement_pin pin = {0};
	make_model(4, 100000000);
	make_device(0, PLACE_CPU, 16 * GIB);
	make_device(1, PLACE_CUDA, 16 * GIB);
	want(2);
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_int_equal(placement.stages[0].device, 1);
	shape.embedding = 2046;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_int_equal(placement.stages[0].device, 0);
	assert_true(says("widths are multiples of 4"));
	wanted.pins = (const struct placement_pin[]){{.device = 1}};
	wanted.pin_count = 1;
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "widths are multiples of 4"));
	wanted.pins = &pin; // the CPU
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_true(placement.feasible);
}

// Latents are kept once for all heads; by CUDA, too, unless its kernels do not load their queries.
static void latents(void **unused)
{
	(void)unused;
	make_model(4, 100000000);
	make_device(0, PLACE_CPU, 16 * GIB);
	make_device(1, PLACE_CUDA, 16 * GIB);
	want(2);
	const uint32_t pages = placement_pages(wanted.context_tokens, wanted.sequences);
	shape.kv_heads = 1;
	shape.head_size = 576;
	shape.latent = (struct model_latent){.rank = 512, .query_rank = 1536, .key_size = 192, .value_size = 128};
	assert_int_equal(stage_page_bytes(&shape), 576 * 2 * STAGE_PAGE_TOKENS);
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_true(placement.feasible && placement.stage_count == 1);
	assert_int_equal(placement.stages[0].device, 1);
	assert_true(placement.stages[0].memory.kv_bytes == 4 * stage_page_bytes(&shape) * pages);
	shape.latent.query_rank = 1534;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_int_equal(placement.stages[0].device, 0);
	assert_true(says("widths are multiples of 4"));
}

// Layers with a state: their memory counts, and that of keys and values in the others. CUDA takes them, unless the
// heads are of a size that its kernels do not load.
static void recurrent_layers(void **unused)
{
	(void)unused;
	struct error error = {0};
	make_model(4, 100000000);
	make_device(0, PLACE_CPU, 16 * GIB);
	make_device(1, PLACE_CUDA, 16 * GIB);
	want(2);
	const uint32_t pages = placement_pages(wanted.context_tokens, wanted.sequences);
	const uint64_t without = takes(1, 2, pages);
	shape.delta = (struct model_delta){16, 32, 128, 128, 4, false};
	shape.layer_kinds[0] = shape.layer_kinds[1] = shape.layer_kinds[2] = LAYER_DELTA;
	const uint64_t states = stage_state_bytes(&shape) * stage_state_count(&shape, wanted.sequences);
	assert_int_equal(stage_state_bytes(&shape), 4 * (32 * 128 * 128 + 3 * 8192));
	assert_true(takes(1, 2, pages) >= without + 2 * (states - stage_page_bytes(&shape) * pages));
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_true(placement.feasible && placement.stage_count == 1);
	assert_int_equal(placement.stages[0].device, 1);
	assert_true(placement.stages[0].memory.kv_bytes == 3 * states + stage_page_bytes(&shape) * pages);
	const struct model_delta rule = shape.delta;
	shape.delta = (struct model_delta){.heads = 1, .value_size = shape.embedding, .kernel = 3};
	assert_int_equal(stage_state_bytes(&shape), 4 * 2 * shape.embedding);
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_int_equal(placement.stages[0].device, 1);
	shape.delta = rule;
	shape.delta.value_size = 126;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_int_equal(placement.stages[0].device, 0);
	assert_true(says("multiples of 4"));
	assert_false(says("does not fit the usable GPUs"));
	make_device(2, PLACE_VULKAN, 16 * GIB);
	want(3);
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_int_equal(placement.stages[0].device, 2);
	wanted.pins = (const struct placement_pin[]){{.device = 1}};
	wanted.pin_count = 1;
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "multiples of 4"));
}

// What CUDA fills up with zeros counts: 2180 columns take as much as 2304.
static void padding_of_cuda(void **unused)
{
	(void)unused;
	make_model(4, 100000000);
	shape.embedding = 2180;
	make_device(0, PLACE_VULKAN, 16 * GIB);
	want(1);
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	const uint64_t plain = placement.stages[0].memory.weights_bytes;
	make_device(0, PLACE_CUDA, 16 * GIB);
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	const uint64_t filled = placement.stages[0].memory.weights_bytes;
	if (filled < plain + plain / 50 || filled > plain + plain / 15)
		fail_msg("%llu bytes, and %llu filled up", (unsigned long long)plain, (unsigned long long)filled);
}

static double predicted(void)
{
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_true(placement.feasible);
	return placement.stages[0].seconds_per_token;
}

// A token reads the experts that it takes; memory is for all of them. Tokens of several texts read more of them.
static void experts(void **unused)
{
	(void)unused;
	make_model(12, 400000000);
	make_device(0, PLACE_CPU, 16 * GIB);
	devices[0].bandwidth = 50e9;
	want(1);
	const double dense_s = predicted();
	const uint64_t bytes = placement.stages[0].memory.weights_bytes;
	shape.feed_forward = 0;
	shape.experts = 64;
	shape.experts_used = 4;
	shape.expert_width = 256;
	sizes.expert_bytes = sizes.layers_bytes / 10 * 9;
	const double mixed_s = predicted();
	const double rest = 0.1 + 0.9 * 4 / 64;
	assert_true(placement.stages[0].memory.weights_bytes == bytes);
	if (mixed_s < dense_s * rest || mixed_s > dense_s * (rest + 0.05))
		fail_msg("%.3f ms a token, and %.3f with a %.3fth read", dense_s * 1e3, mixed_s * 1e3, rest);
	struct cost_time alone = cost_time(&wanted, &sizes, 0);
	const double eight = model_layer_read(&shape, &sizes, 8) / model_layer_read(&shape, &sizes, 1);
	shape.experts = 0;
	const struct cost_time dense = cost_time(&wanted, &sizes, 0);
	assert_true(fabs(alone.batch[3] - fmin(dense.batch[3] * eight, 8)) < 1e-9);
	// Timed, it has what more rows read in its figures, for an equal device, too.
	shape.experts = 64;
	make_device(1, PLACE_CPU, 16 * GIB);
	devices[1].bandwidth = 50e9;
	want(2);
	const struct placement_timed timed = {.device = 0,
					      .format = sizes.main_format,
					      .layer_bytes = (uint64_t)model_layer_read(&shape, &sizes, 1),
					      .layer_s = 1e-3,
					      .output_s = -1,
					      .prompt_s = -1,
					      .batch = {1, 1, 2, 4, 4, -1, -1}};
	wanted.timed = &timed;
	wanted.timed_count = 1;
	for (unsigned device = 0; device < 2; device++)
		assert_true(fabs(cost_time(&wanted, &sizes, device).batch[3] - 2) < 1e-9);
}

// A prompt's pieces are in all parts at once: the slowest part, or the wire, says how fast it is read.
static void prompts(void **unused)
{
	(void)unused;
	struct placement_timed timed[2];
	struct placement_pin pins[] = {{.device = 0, .layer_count = 6}, {.device = 1, .first_layer = 6}};
	struct placement_link links[4];
	make_model(8, 100000000);
	for (unsigned i = 0; i < 2; i++) {
		make_device(i, PLACE_CPU, 4 * GIB);
		devices[i].node = i;
		timed[i] = (struct placement_timed){.device = i,
						    .format = FORMAT_F16,
						    .layer_bytes = 100000000,
						    .layer_s = 4e-3,
						    .output_s = -1,
						    .prompt_s = 1e-4 * (i + 1)};
		for (int k = 0; k < PLACEMENT_BATCHES; k++)
			timed[i].batch[k] = -1;
	}
	for (int i = 0; i < 4; i++)
		links[i] = (struct placement_link){.known = true, .round_trip_s = 1e-3, .bytes_per_s = 1e9};
	want(2);
	wanted.node_count = 2;
	wanted.links = links;
	wanted.pins = pins;
	wanted.pin_count = 2;
	wanted.timed = timed;
	wanted.timed_count = 2;
	const double first = 9.0 / 8; // eight pieces, of which the first is waited for
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_true(fabs(placement.prompt_tokens_per_s * 6e-4 * first - 1) <
		    1e-9); // six layers here, two there that take 4e-4
	timed[1].prompt_s = 4e-4;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_true(fabs(placement.prompt_tokens_per_s * 8e-4 * first - 1) < 1e-9);
	links[1].bytes_per_s = 4.0 * shape.embedding / 2e-3;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_true(fabs(placement.prompt_tokens_per_s * 2e-3 * first - 1) < 1e-9);
	timed[1].layer_bytes = 50000000; // of one half as large: twice as many products
	links[1].bytes_per_s = 1e9;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_true(fabs(placement.prompt_tokens_per_s * 1.6e-3 * first - 1) < 1e-9);
	wanted.timed_count = 1;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_true(placement.prompt_tokens_per_s < 0);
}

// A hop that would help is named: a faster one, and one past the server.
static void faster_hops(void **unused)
{
	struct placement_link links[4];
	(void)unused;
	make_model(8, 100000000);
	for (unsigned i = 0; i < 2; i++) {
		make_device(i, PLACE_CUDA, 3 * GIB / 4);
		devices[i].node = i;
		devices[i].node_name = i ? "three" : "one";
	}
	for (int i = 0; i < 4; i++)
		links[i] = (struct placement_link){.known = true, .round_trip_s = 20e-3, .bytes_per_s = 1e6};
	want(2);
	wanted.node_count = 2;
	wanted.links = links;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_int_equal(placement.hop_count, 2);
	assert_true(helps("the slowest hop, from one to three, at 1 Gbit/s: ") == -1 ||
		    helps("the slowest hop, from three to one, at 1 Gbit/s: ") == -1);
	assert_int_equal(helps(", instead of the path through the server, with half its round trip: "), -1);
}

// How many times as long as one sequence so many take.
static double batch_of(uint32_t sequences)
{
	wanted.sequences = 1;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	const double one_s = 1 / placement.tokens_per_s - cost_stage_s();
	wanted.sequences = sequences;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	return (sequences / placement.tokens_per_s - cost_stage_s()) / one_s;
}

// Batches that were timed count as they were, and lie on straight lines between them; by steps of 2.2 %.
static void batches_that_were_timed(void **unused)
{
	(void)unused;
	struct placement_timed timed = {.format = FORMAT_F16,
					.layer_bytes = 100000000,
					.output_bytes = 131000000,
					.layer_s = 4e-3,
					.output_s = 5e-3,
					.prompt_s = -1};
	static const struct {
		double batch[PLACEMENT_BATCHES];
		struct {
			uint32_t sequences;
			double times;
		} at[4];
	} cases[] = {
		{{1.2, 1.5, 2, 4, 6, -1, -1}, {{2, 1.2}, {3, 1.35}, {12, 3}, {64, 10}}},
		{{-1, -1, 4.5, -1, -1, -1, -1},
		 {{3, 2}, {8, 4.5}, {9, 5}, {32, 16.5}}}, // as it was stored before: one slope
		{{1.189, -1, -1, -1, -1, -1, -1}, {{2, 1.189}, {4, 1.567}, {8, 2.324}, {32, 6.86}}}, // on a slow device
		{{1.5, 1.2, 5, 90, -1, -1, -1}, {{2, 1.5}, {4, 1.5}, {8, 5}, {16, 16}}},             // disturbed
		{{1, 1, 1, 1, 1, -1, -1}, {{32, 1}, {64, 1.5}, {256, 4.5}, {2, 1}}},                 // flat
		{{1, 1, 1, 1, 1, 1, 1}, {{128, 1}, {256, 1.5}, {512, 2.5}, {2, 1}}},    // flat as far as is timed
		{{2, 4, 4, 4, 32, -1, -1}, {{24, 18}, {32, 32}, {64, 64}, {256, 256}}}, // steep at its end
		{{1, 2, 3, 4, 5, 6, 12}, {{64, 6}, {96, 9}, {128, 12}, {256, 24}}},     // of many rows
		{{1, 4, -1, -1, -1, -1, -1}, {{2, 1}, {4, 4}, {16, 16}, {32, 32}}},     // and where it ends earlier
	};
	make_model(8, 100000000);
	make_device(0, PLACE_CPU, 16 * GIB);
	want(1);
	wanted.timed = &timed;
	wanted.timed_count = 1;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		for (size_t j = 0; j < sizeof cases[i].at / sizeof *cases[i].at; j++) {
			memcpy(timed.batch, cases[i].batch, sizeof timed.batch);
			const double times = batch_of(cases[i].at[j].sequences);
			if (fabs(times / cases[i].at[j].times - 1) > 0.025)
				fail_msg("%u sequences take %.3f times as long as one, not %.3f",
					 cases[i].at[j].sequences, times, cases[i].at[j].times);
		}
}

// What was timed counts for more than bandwidths: to the last per cent where it is of the same layer and device.
static void layers_that_were_timed(void **unused)
{
	(void)unused;
	struct placement_timed timed = {.device = 0,
					.format = FORMAT_F16,
					.layer_bytes = 100000000,
					.output_bytes = 131000000,
					.layer_s = 4e-3,
					.output_s = 5e-3,
					.batch = {-1, -1, 4.5, -1, -1, -1, -1},
					.age_s = 7200};
	make_model(8, 100000000);
	make_device(0, PLACE_CPU, 4 * GIB);
	make_device(1, PLACE_CPU, 4 * GIB);
	devices[1].bandwidth = 1.1e11;
	want(1);
	const double estimated = predicted();
	assert_true(says("estimated from its memory's bandwidth"));
	wanted.timed = &timed;
	wanted.timed_count = 1;
	const double same = predicted();
	printf("estimated %.2f ms, timed %.2f ms\n", estimated * 1e3, same * 1e3);
	assert_true(says("measured 2 hours ago"));
	assert_true(fabs(same - (8 * 4e-3 + 5e-3)) < 0.02 * same);
	timed.layer_bytes = 50000000; // half the bytes took as long: twice as slow as was thought
	timed.output_bytes = 0;
	const double other = predicted();
	assert_true(says("by one of another size"));
	assert_true(other > 1.6 * same && other < 2.4 * same);
	timed.format = FORMAT_Q8_0;
	assert_true(fabs(predicted() - estimated) < 1e-9);
	// A device that was not timed is judged by one of its kind that was, so that the two can be compared.
	timed = (struct placement_timed){
		.format = FORMAT_F16, .layer_bytes = 100000000, .layer_s = 4e-3, .output_s = -1, .prompt_s = -1};
	for (int i = 0; i < PLACEMENT_BATCHES; i++)
		timed.batch[i] = -1;
	want(2);
	wanted.timed = &timed;
	wanted.timed_count = 1;
	const double faster = predicted();
	assert_int_equal(placement.stages[0].device, 1);
	assert_true(says("by the share of theirs that layers measured on dev_0 reach"));
	assert_true(faster > 0.85 * 8 * 4e-3 && faster > estimated);
	// No bandwidth is known, and still a time is told.
	devices[0].bandwidth = 0;
	want(1);
	assert_true(predicted() < 0);
	wanted.timed = &timed;
	wanted.timed_count = 1;
	assert_true(fabs(predicted() / (8 * 4e-3) - 1) < 0.2);
}

// The score's fifth part: copies directly, then of the same machine or over a direct link, then the rest.
static void who_takes_activations(void **unused)
{
	struct error error = {0};
	struct placement_link links[4] = {{.known = false}};
	(void)unused;
	make_model(4, 100000000);
	make_device(0, PLACE_CUDA, 4 * GIB);
	want(1);
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
	assert_true(placement.scores[0].bandwidth == 1); // nobody else is there to take them
	make_device(1, PLACE_CPU, 4 * GIB);
	want(2);
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
	assert_true(placement.scores[0].bandwidth == 0.5 && placement.scores[1].bandwidth == 0.5);
	make_device(1, PLACE_CUDA, 4 * GIB);
	memset(copies, 0, sizeof copies);
	set_linked(0, 1, true);
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
	assert_true(placement.scores[0].bandwidth == 1 && placement.scores[1].bandwidth == 1);
	set_linked(0, 1, false);
	devices[1].node = 1;
	wanted.node_count = 2;
	wanted.links = links;
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
	assert_true(placement.scores[0].bandwidth == 0);
	links[1].direct = links[2].direct = true;
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_OK);
	assert_true(placement.scores[0].bandwidth == 0.5);
}

// A device that is warm counts for less, the more so the hotter: it is left for one that is cool.
static void heat_counts(void **unused)
{
	double before_s = 0;
	static const char *const words[] = {"", "is almost too hot, and counts with 90 %",
					    "has reduced its clock, and counts with 60 %",
					    "is too hot now, and counts with 30 %"};
	(void)unused;
	make_model(8, 100000000);
	make_device(0, PLACE_CUDA, 4 * GIB);
	want(1);
	for (int heat = HEAT_NORMAL; heat <= HEAT_CRITICAL; heat++) {
		devices[0].heat = (enum placement_heat)heat;
		devices[0].heat_room = 0.2;
		const double seconds = predicted();
		print_message("heat %d: %.2f ms\n", heat, seconds * 1e3);
		assert_true(seconds > before_s * 1.05);
		assert_true(!heat || says(words[heat]));
		assert_true(placement.scores[0].thermal == (heat < HEAT_THROTTLED ? 0.2 : 0));
		before_s = seconds;
	}
	make_device(1, PLACE_CUDA, 4 * GIB);
	want(2);
	devices[1].bandwidth = 0.8 * devices[0].bandwidth;
	for (int heat = HEAT_NORMAL; heat <= HEAT_CRITICAL; heat++) {
		devices[0].heat = (enum placement_heat)heat;
		predicted();
		assert_int_equal(placement.stages[0].device, heat >= HEAT_THROTTLED);
	}
	// A forecast says it in place of the state, but for a device that is throttled already.
	const struct {
		double rate;
		enum placement_heat heat;
		const char *words;
	} foreseen[] = {{1, HEAT_WARM, "is almost too hot, and counts with 100 %"},
			{0.5, HEAT_NORMAL, "would become too hot at its full rate, and counts with 50 %"},
			{0.5, HEAT_CRITICAL, "is too hot now, and counts with 30 %"}};
	make_device(0, PLACE_CUDA, 4 * GIB);
	want(1);
	before_s = 0;
	for (size_t i = 0; i < sizeof foreseen / sizeof *foreseen; i++) {
		devices[0].heat = foreseen[i].heat;
		devices[0].heat_rate = foreseen[i].rate;
		const double seconds = predicted();
		assert_true(seconds > before_s * 1.05);
		assert_true(says(foreseen[i].words));
		before_s = seconds;
	}
	// Two in slices go at the pace of the hotter one.
	make_model(16, GIB / 4);
	make_device(0, PLACE_CUDA, 40 * GIB);
	make_device(1, PLACE_CUDA, 40 * GIB);
	want(2);
	memset(copies, 0, sizeof copies);
	set_linked(0, 1, true);
	wanted.strategy = PLACE_TENSOR;
	const double cool_s = predicted();
	devices[1].heat = HEAT_WARM;
	const double warm_s = predicted();
	assert_true(warm_s > 1.05 * cool_s && warm_s < 1.15 * cool_s);
	devices[1].heat = HEAT_THROTTLED; // no longer equal
	struct error error = {0};
	assert_int_equal(placement_find(&placement, &wanted, &error), STATUS_UNAVAILABLE);
}

// What has to be in one piece is no larger than what a device's kernels reach.
static void the_largest_piece(void **unused)
{
	(void)unused;
	make_model(4, 100000000);
	make_device(0, PLACE_VULKAN, 4 * GIB);
	make_device(1, PLACE_CPU, 4 * GIB);
	want(2);
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	const uint32_t all = placement.page_count, one = placement_pages(wanted.context_tokens, 1);
	const uint64_t keys = 2ull * shape.kv_heads * shape.head_size * STAGE_PAGE_TOKENS; // of a page of a layer
	assert_int_equal(placement.stages[0].device, 0);
	assert_true(one < all);
	devices[0].largest_buffer = keys * all; // just enough
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_int_equal(placement.page_count, all);
	devices[0].largest_buffer = keys * all - 1; // fewer pages, then
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_int_equal(placement.stages[0].device, 0);
	assert_int_equal(placement.page_count, one);
	devices[0].largest_buffer = keys * one - 1; // another device
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_int_equal(placement.stages[0].device, 1);
	assert_true(says("the largest buffer is the limit: one buffer on dev_0 holds at most"));
	// As pins and alone: it is told, and what would help is a shorter context.
	const struct placement_pin pinned = {.device = 0};
	wanted.pins = &pinned;
	wanted.pin_count = 1;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_true(!placement.feasible && says("the largest buffer is the limit"));
	devices[0].largest_buffer = keys * one;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_true(placement.feasible && placement.page_count == one);
	devices[0].largest_buffer = keys * one - 1;
	want(1);
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_false(placement.feasible);
	assert_int_equal(placement.proof, PROOF_INFEASIBLE);
	assert_true(says("the largest buffer is the limit") && !says("memory is the limit"));
	assert_int_equal(placement.remedy_count, 1);
	assert_non_null(strstr(placement.remedies[0].text, "with a context of 1024 tokens it would fit"));
	// States lie in one buffer a layer, too.
	shape.delta = (struct model_delta){
		.heads = 16, .key_heads = 16, .key_size = 256, .value_size = 256, .kernel = 4};
	shape.layer_kinds[0] = LAYER_DELTA;
	want(2);
	const uint64_t states = stage_state_bytes(&shape) * stage_state_count(&shape, wanted.sequences);
	assert_true(states > keys * all);
	devices[0].largest_buffer = states;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_int_equal(placement.stages[0].device, 0);
	devices[0].largest_buffer = states - 1;
	assert_int_equal(placement_find(&placement, &wanted, NULL), STATUS_OK);
	assert_int_equal(placement.stages[0].device, 1);
	memset(&shape.delta, 0, sizeof shape.delta);
	memset(shape.layer_kinds, 0, sizeof shape.layer_kinds);
}

// Head-room by itself, within its limits, and as it is configured.
static void what_stays_free(void **unused)
{
	const uint64_t mib = 1024 * 1024;
	(void)unused;
	assert_int_equal(placement_reserve(24 * GIB, false, -1), 24 * GIB / 32);
	assert_int_equal(placement_reserve(GIB, false, -1), 64 * mib);
	assert_int_equal(placement_reserve(141 * GIB, false, -1), GIB);
	assert_int_equal(placement_reserve(8 * GIB, true, -1), GIB / 2 + 64 * mib);
	assert_int_equal(placement_reserve(141 * GIB, false, 0), 0);
	assert_int_equal(placement_reserve(140 * GIB, false, 0.25), 35 * GIB);
	assert_int_equal(placement_reserve(8 * GIB, true, 0.5), 4 * GIB + 64 * mib);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_fewest_devices),
		cmocka_unit_test(widths_of_cuda),
		cmocka_unit_test(recurrent_layers),
		cmocka_unit_test(latents),
		cmocka_unit_test(padding_of_cuda),
		cmocka_unit_test(back_ends_in_their_order),
		cmocka_unit_test(when_memory_is_short),
		cmocka_unit_test(pins),
		cmocka_unit_test(what_is_said),
		cmocka_unit_test(no_faster),
		cmocka_unit_test(experts),
		cmocka_unit_test(prompts),
		cmocka_unit_test(faster_hops),
		cmocka_unit_test(batches_that_were_timed),
		cmocka_unit_test(layers_that_were_timed),
		cmocka_unit_test(who_takes_activations),
		cmocka_unit_test(heat_counts),
		cmocka_unit_test(the_largest_piece),
		cmocka_unit_test(what_stays_free),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
