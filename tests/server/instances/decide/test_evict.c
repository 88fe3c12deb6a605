/* Which instances are evicted: random machines, candidates, and a model that wants a place. What is found has room
 * where it goes, with what was said of each; no candidate is evicted in vain, and none frees more than it may. */
#include "server/instances/instances_inside.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES = 2000, GPUS = 3 };
#define MIB (1024ull * 1024)

static uint64_t state = 88172645463325252u;
static uint64_t draw(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

static struct placing *placing;
static struct evict_candidate before[LIMIT_CANDIDATES];

static void make_model(struct model_shape *shape, struct model_sizes *sizes)
{
	const uint32_t layers = 4 + (uint32_t)draw(28);
	const uint64_t layer_bytes = (20 + draw(100)) * MIB;
	*shape = (struct model_shape){.family = FAMILY_LLAMA,
				      .layers = layers,
				      .embedding = draw(2) ? 2048 : 2052, // which CUDA fills up
				      .feed_forward = 5632,
				      .heads = 32,
				      .kv_heads = 4,
				      .head_size = 64,
				      .vocabulary = 32000,
				      .context = 4096,
				      .rope_size = 64};
	*sizes = (struct model_sizes){.embedding_bytes = 130000000,
				      .output_bytes = 131000000,
				      .layer_bytes = layer_bytes,
				      .layers_bytes = layer_bytes * layers,
				      .main_format = FORMAT_Q4_0};
	sizes->format_bytes[FORMAT_Q4_0] = sizes->layers_bytes + sizes->embedding_bytes + sizes->output_bytes;
}

static uint64_t on_device(const struct stage_memory *memory)
{
	return memory->weights_bytes + memory->kv_bytes + memory->workspace_bytes;
}

static struct stage_memory estimate(const struct evict_candidate *candidate, const struct placement_stage *stage)
{
	struct stage_memory memory;
	const struct stage_params params = {.shape = &candidate->shape,
					    .first_layer = stage->first_layer,
					    .layer_count = stage->layer_count,
					    .embeds = stage->embeds,
					    .predicts = stage->predicts,
					    .context_tokens = candidate->context_tokens,
					    .page_count = candidate->page_count,
					    .batch_rows = PLACEMENT_BATCH_ROWS,
					    .batch_sequences = candidate->sequences,
					    .batch_outputs = candidate->sequences,
					    .host_layers = stage->host_layers,
					    .tiled = placing->devices[stage->device].backend == PLACE_CUDA};
	stage_estimate(&params, &candidate->sizes, &memory);
	return memory;
}

static unsigned host(void)
{
	return placing->wanted.device_count - 1;
}

// One that lies whole on a device; what it takes is taken from what is free there.
static void make_candidate(unsigned at)
{
	struct evict_candidate *candidate = &placing->candidates[at];
	*candidate = (struct evict_candidate){.kind = draw(2) ? EVICT_UNLOAD : EVICT_SPILL,
					      .used_ms = at + 1,
					      .idle_ms = 1000 - at,
					      .context_tokens = 2048,
					      .sequences = 1,
					      .page_count = placement_pages(2048, 1),
					      .stage_count = 1};
	snprintf(candidate->instance_id, sizeof candidate->instance_id, "ins_%u", at);
	snprintf(candidate->model_name, sizeof candidate->model_name, "model%u", at);
	make_model(&candidate->shape, &candidate->sizes);
	struct placement_stage *stage = &candidate->stages[0];
	*stage = (struct placement_stage){.device = (unsigned)draw(placing->wanted.device_count),
					  .layer_count = candidate->shape.layers,
					  .embeds = true,
					  .predicts = true};
	stage->memory = estimate(candidate, stage);
	candidate->hosts[0] = stage->device == host() ? -1 : (int)host();
	placing->devices[stage->device].memory_bytes += on_device(&stage->memory);
	if (candidate->kind == EVICT_UNLOAD) {
		candidate->frees[stage->device] = on_device(&stage->memory);
	} else if (candidate->hosts[0] >= 0) {
		struct placement_stage all = *stage;
		all.host_layers = all.layer_count;
		const struct stage_memory spilled = estimate(candidate, &all);
		candidate->frees[stage->device] = on_device(&stage->memory) - on_device(&spilled);
	}
}

static void make_case(void)
{
	static const char *const ids[] = {"dev_0", "dev_1", "dev_2", "dev_3"};
	memset(placing, 0, sizeof *placing);
	const unsigned gpus = (unsigned)draw(GPUS + 1);
	for (unsigned i = 0; i <= gpus; i++)
		placing->devices[i] = (struct placement_device){.device_id = ids[i],
								.name = ids[i],
								.node_id = "nod",
								.pool = ids[i],
								.backend = i < gpus ? PLACE_CUDA : PLACE_CPU,
								.free_bytes = draw(3000) * MIB,
								.free_known = true,
								.bandwidth = i < gpus ? 1e12 : 1e11};
	for (unsigned i = 0; i <= gpus; i++) {
		placing->devices[i].memory_bytes = placing->devices[i].free_bytes;
		if (!draw(4)) { // more is taken than there is
			placing->lacking[i] = draw(500) * MIB;
			placing->devices[i].free_bytes = 0;
		}
	}
	make_model(&placing->shape, &placing->sizes);
	placing->wanted = (struct placement_wanted){.shape = &placing->shape,
						    .sizes = &placing->sizes,
						    .devices = placing->devices,
						    .pins = placing->pins,
						    .device_count = gpus + 1,
						    .node_count = 1,
						    .timeout_s = 100,
						    .context_tokens = 2048,
						    .sequences = 1 + (uint32_t)draw(4)};
	placing->candidate_count = (unsigned)draw(LIMIT_CANDIDATES + 1);
	for (unsigned i = 0; i < placing->candidate_count; i++)
		make_candidate(i);
	memcpy(before, placing->candidates, sizeof before);
}

// What is left of a device with all that was said, but that candidate `but` stays as it was. Its own pool: nobody
// shares it.
static int64_t left(unsigned device, int but)
{
	int64_t bytes = (int64_t)placing->devices[device].free_bytes - (int64_t)placing->lacking[device];
	for (unsigned i = 0; i < placing->placement.stage_count; i++) {
		const struct placement_stage *stage = &placing->placement.stages[i];
		bytes -= stage->device == device ? (int64_t)on_device(&stage->memory) : 0;
		bytes -= device == host() ? (int64_t)stage->memory.host_bytes : 0;
	}
	for (unsigned i = 0; i < placing->candidate_count; i++) {
		const struct evict_candidate *candidate = &placing->candidates[i];
		const struct placement_stage *was = &before[i].stages[0], *is = &candidate->stages[0];
		if (!candidate->evicted || (int)i == but)
			continue;
		if (was->device == device)
			bytes += (int64_t)on_device(&was->memory) -
				 (candidate->unloads ? 0 : (int64_t)on_device(&is->memory));
		if (device == host() && !candidate->unloads)
			bytes -= (int64_t)(is->memory.host_bytes - was->memory.host_bytes);
	}
	return bytes;
}

// With so many of its layers in the host's memory, and not with one fewer, or it would make no difference.
static void check_spilled(unsigned at)
{
	const struct evict_candidate *candidate = &placing->candidates[at];
	const struct placement_stage *was = &before[at].stages[0], *is = &candidate->stages[0];
	assert_true(is->host_layers > was->host_layers && is->host_layers <= is->layer_count);
	const struct stage_memory expected = estimate(candidate, is);
	assert_int_equal(on_device(&is->memory), on_device(&expected));
	assert_int_equal(is->memory.host_bytes, expected.host_bytes);
	assert_int_not_equal(is->device, host());
	assert_true(left(host(), -1) >= 0);
}

static unsigned check(const struct placement *alone)
{
	const struct placement *placement = &placing->placement;
	unsigned evicted_count = 0;
	for (unsigned i = 0; i < placing->candidate_count; i++)
		evicted_count += placing->candidates[i].evicted;
	for (unsigned i = 0; i < placement->stage_count; i++)
		assert_true(left(placement->stages[i].device, -1) >= 0);
	if (!evicted_count) { // the search counts layers by the largest one: what is found for more room may fit into
			      // less
		assert_true(placement->feasible >= alone->feasible);
		for (unsigned i = 0; i < placing->wanted.device_count; i++)
			assert_int_equal(placing->given[i], 0);
		return 0;
	}
	assert_true(placement->feasible);
	assert_true(!alone->feasible || (alone->step != STEP_NONE && placement->step == STEP_NONE));
	assert_non_null(strstr(placement->whys[0].text, "is evicted, idle for"));
	for (unsigned i = 0; i < placing->candidate_count; i++) {
		const struct evict_candidate *candidate = &placing->candidates[i];
		bool needed = false;
		for (unsigned j = 0; j < placement->stage_count; j++)
			needed |= left(placement->stages[j].device, (int)i) < 0 ||
				  (placement->stages[j].memory.host_bytes && left(host(), (int)i) < 0);
		if (!candidate->evicted)
			continue;
		assert_true(needed);
		assert_true(!candidate->unloads || candidate->kind == EVICT_UNLOAD);
		if (!candidate->unloads)
			check_spilled(i);
	}
	return evicted_count;
}

static void test_random(void **context)
{
	unsigned given = 0, spilled = 0, unloaded = 0, several = 0;
	struct placement *alone = malloc(sizeof *alone);
	(void)context;
	placing = malloc(sizeof *placing);
	assert_non_null(alone);
	assert_non_null(placing);
	for (int i = 0; i < CASES; i++) {
		struct error error = {0};
		make_case();
		struct placement_device devices[GPUS + 1];
		memcpy(devices, placing->devices, sizeof devices);
		assert_int_equal(placement_find(alone, &placing->wanted, &error), STATUS_OK);
		assert_int_equal(evict_find(placing, &error), STATUS_OK);
		assert_memory_equal(devices, placing->devices, sizeof devices);
		const unsigned count = check(alone);
		given += count > 0;
		several += count > 1;
		for (unsigned j = 0; j < placing->candidate_count; j++) {
			unloaded += placing->candidates[j].evicted && placing->candidates[j].unloads;
			spilled += placing->candidates[j].evicted && !placing->candidates[j].unloads;
		}
	}
	print_message("%d cases: in %u some are evicted, in %u several; %u spilled, %u unloaded\n", CASES, given,
		      several, spilled, unloaded);
	assert_true(given > CASES / 10 && several > CASES / 50 && spilled > CASES / 50 && unloaded > CASES / 50);
	free(placing);
	free(alone);
}

// Of two that would do, the one that was used the longest ago.
static void test_order(void **context)
{
	struct error error = {0};
	(void)context;
	placing = malloc(sizeof *placing);
	assert_non_null(placing);
	do {
		make_case();
	} while (placing->wanted.device_count < 2);
	placing->wanted.device_count = 2;
	placing->wanted.sequences = 1;
	placing->candidate_count = 0;
	memset(placing->lacking, 0, sizeof placing->lacking);
	placing->devices[0].backend = PLACE_CUDA;
	placing->devices[1].backend = PLACE_CPU;
	placing->devices[0].free_bytes = 8192 * MIB;
	placing->devices[1].free_bytes = 0;
	struct placement *alone = malloc(sizeof *alone);
	assert_non_null(alone);
	assert_int_equal(placement_find(alone, &placing->wanted, &error), STATUS_OK);
	assert_true(alone->feasible);
	const uint64_t needed = on_device(&alone->stages[0].memory);
	placing->devices[0].free_bytes = needed / 2;
	placing->candidate_count = 3;
	for (unsigned i = 0; i < 3; i++) {
		make_candidate(i);
		struct evict_candidate *candidate = &placing->candidates[i];
		candidate->kind = EVICT_UNLOAD;
		candidate->hosts[0] = -1;
		candidate->stages[0].device = 0;
		memset(candidate->frees, 0, sizeof candidate->frees);
		candidate->frees[0] = i ? needed : needed / 4; // the oldest frees too little
	}
	assert_int_equal(evict_find(placing, &error), STATUS_OK);
	assert_true(placing->placement.feasible);
	assert_false(placing->candidates[0].evicted);
	assert_true(placing->candidates[1].evicted && placing->candidates[1].unloads);
	assert_false(placing->candidates[2].evicted);
	assert_int_equal(placing->given[0], needed);
	free(alone);
	free(placing);
}

// At a start of the server: what was evicted is behind one that is listed by itself, whatever the order of the rows,
// and also where one was evicted for another that was evicted for a third, since the end of the first was not stored.
static void test_restore(void **context)
{
	static const char *const ids[] = {"ins_a", "ins_b", "ins_c"}, *const to[] = {"ins_b", "ins_c", ""};
	static const unsigned orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
	struct instance *rows = malloc(3 * sizeof *rows);
	struct instances *all = malloc(sizeof *all);
	(void)context;
	assert_non_null(rows);
	assert_non_null(all);
	for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
		memset(all, 0, sizeof *all);
		memset(rows, 0, 3 * sizeof *rows);
		struct instance **last = &all->first;
		for (unsigned j = 0; j < 3; j++) {
			struct instance *one = *last = &rows[orders[i][j]];
			snprintf(one->instance_id, sizeof one->instance_id, "%s", ids[orders[i][j]]);
			snprintf(one->gave_way_to, sizeof one->gave_way_to, "%s", to[orders[i][j]]);
			last = &one->next;
		}
		all->count = 3;
		evict_restore(all);
		for (unsigned j = 0; j < 3; j++)
			assert_ptr_equal(instances_find(all, ids[j]), &rows[j]);
		assert_ptr_equal(rows[2].displaced, &rows[1]);
		assert_int_equal(all->count, 2);
	}
	free(all);
	free(rows);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_order),
					   cmocka_unit_test(test_restore)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
