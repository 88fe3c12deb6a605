/* The small cluster of simulation.h with all that is real: what instances do is decided by instance_decide, and where
 * they go is found by placement_find, on four GPUs of four machines, in MiB; nodes are asked for workers through the
 * endpoints of common/wire/rpc.h (simulated_wire.h), and changes are stored by the real store (simulated_store.h).
 *
 * What must hold is said there, and: a place that is found has room, and no paused model waits while one device has
 * room for all of it, unless a rule says so that ends.
 *
 * The seed of a failure is printed. Arguments: the first seed, and how many (1). `./dev bench simulation` runs ten
 * thousand. */
#include "server/placement/placement_inside.h"
#include "tests/server/instances/decide/simulated_store.h"
#include "tests/server/instances/decide/simulated_wire.h"
#include "tests/server/instances/decide/simulation.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on

enum { SEEDS = 60, PLANTED_SEEDS = 200, LAYERS_MOST = 16, CAPACITY_MIB = 10 * 1024 };
#define MIB ((uint64_t)1024 * 1024)
#define LAYER_BYTES (900 * MIB)

static uint64_t searches, visited;
static bool overcommits; // a fault that is planted: the planner believes that each device is empty

static int search(const struct world *world, const struct instance *instance, bool pins, int avoid,
		  struct placement *found)
{
	static const char *const ids[DEVICES] = {"dev_0", "dev_1", "dev_2", "dev_3"};
	struct placement_device devices[DEVICES];
	struct error error = {0};
	const uint32_t layers = (uint32_t)instance->units;
	const struct model_shape shape = {.family = FAMILY_LLAMA,
					  .layers = layers,
					  .embedding = 4096,
					  .feed_forward = 14336,
					  .heads = 32,
					  .kv_heads = 8,
					  .head_size = 128,
					  .vocabulary = 32000,
					  .context = 4096,
					  .rope_size = 128};
	struct model_sizes sizes = {.embedding_bytes = 60 * MIB,
				    .output_bytes = 60 * MIB,
				    .layer_bytes = LAYER_BYTES,
				    .layers_bytes = LAYER_BYTES * layers,
				    .main_format = FORMAT_Q4_0};
	sizes.format_bytes[FORMAT_Q4_0] = sizes.layers_bytes + sizes.embedding_bytes + sizes.output_bytes;
	for (unsigned i = 0; i < DEVICES; i++) {
		const struct device *device = &world->devices[i];
		const int room = overcommits ? CAPACITY_MIB : available(world, (int)i, instance);
		devices[i] = (struct placement_device){.device_id = ids[i],
						       .name = device->name,
						       .node_id = ids[i],
						       .pool = "",
						       .node = i,
						       .backend = PLACE_CUDA,
						       .unusable = !device->online                    ? "it is offline"
								   : device->draining                 ? "it is draining"
								   : too_hot(world, instance, (int)i) ? "it is too hot"
								   : (int)i == avoid ? "the model failed on it"
										     : NULL,
						       .draining = device->draining,
						       .memory_bytes = CAPACITY_MIB * MIB,
						       .free_bytes = (uint64_t)(room > 0 ? room : 0) * MIB,
						       .free_known = true,
						       .bandwidth = 5e11 + 1e11 * i,
						       .heat_room = -1};
	}
	const struct placement_pin pin = {.device = instance->pin >= 0 ? (unsigned)instance->pin : 0};
	const struct placement_wanted wanted = {.shape = &shape,
						.sizes = &sizes,
						.devices = devices,
						.device_count = DEVICES,
						.node_count = DEVICES,
						.pins = &pin,
						.pin_count = pins && instance->pin >= 0,
						.context_tokens = 1024,
						.sequences = 1,
						.timeout_s = 5};
	searches++;
	const enum status status = placement_find(found, &wanted, &error);
	if (status && status != STATUS_UNAVAILABLE)
		fail_msg("placement_find: %s", error.message);
	visited += status ? 0 : found->visited;
	return !status && found->feasible;
}

static bool real_plan(const struct world *world, const struct instance *instance, bool pins, int avoid,
		      struct place *place)
{
	static struct placement found;
	*place = (struct place){0};
	if (!search(world, instance, pins, avoid, &found))
		return false;
	assert_in_range(found.stage_count, 1, PARTS);
	uint32_t layers = 0;
	for (unsigned i = 0; i < found.stage_count; i++) {
		const struct placement_stage *stage = &found.stages[i];
		assert_int_equal(stage->first_layer, layers);
		layers += stage->layer_count;
		place->device[i] = (int)stage->device;
		place->units[i] = (int)((cost_on_device(&stage->memory) + MIB - 1) / MIB);
	}
	assert_int_equal(layers, instance->units);
	place->count = found.stage_count;
	return true;
}

// What so many layers take of one device that is empty.
static int alone_mib(const struct instance *instance)
{
	static int known[LAYERS_MOST + 1];
	static struct placement found;
	int *mib = &known[instance->units];
	if (*mib)
		return *mib;
	const struct planning planning = {.capacity = CAPACITY_MIB};
	struct world world = {.planning = &planning, .devices = {{.name = "GPU", .online = true}}};
	const struct instance one = {.units = instance->units, .pin = 0};
	*mib = search(&world, &one, true, -1, &found) ? (int)((cost_on_device(&found.stages[0].memory) + MIB - 1) / MIB)
						      : INT32_MAX;
	return *mib;
}

static bool real_fits(const struct world *world, const struct instance *instance)
{
	for (int i = 0; i < DEVICES; i++)
		if (world->devices[i].online && !world->devices[i].draining &&
		    available(world, i, instance) >= alone_mib(instance))
			return true;
	return false;
}

static const struct planning real_planning = {CAPACITY_MIB, real_plan, real_fits};

static void run_real(struct world *world, uint64_t seed, enum planted planted)
{
	run(world, seed,
	    &(struct setting){
		    .planning = &real_planning, .wire = &real_wire, .keeping = &real_keeping, .planted = planted});
}

static uint64_t first_seed = 1, seed_count = SEEDS;

static void test_invariants(void **context)
{
	static struct world world;
	uint64_t steps = 0;
	unsigned failed = 0, running = 0, several = 0;
	(void)context;
	for (uint64_t seed = first_seed; seed - first_seed < seed_count; seed++) {
		run_real(&world, seed, PLANTED_NOTHING);
		steps += world.steps;
		if (world.broken)
			fail_msg("seed %llu: broken: %s: %s", (unsigned long long)seed, world.broken, world.detail);
		for (int i = 0; i < INSTANCES; i++) {
			failed += world.instances[i].state == INSTANCE_FAILED;
			running += world.instances[i].state == INSTANCE_RUNNING;
			several += world.instances[i].state == INSTANCE_RUNNING && world.instances[i].worker_count > 1;
		}
	}
	print_message("%llu seeds: %llu decisions, %llu searches; in the end %u instances run, %u of them on several "
		      "devices, and %u have failed\n",
		      (unsigned long long)seed_count, (unsigned long long)steps, (unsigned long long)searches, running,
		      several, failed);
	print_message(
		"%llu calls of nodes, whose answers were lost (%llu), late (%llu), doubled (%llu), refusals (%llu) or "
		"against the contract (%llu); %llu answers came that nobody waited for\n",
		(unsigned long long)wire_calls, (unsigned long long)wire_fates[FATE_LOST],
		(unsigned long long)wire_fates[FATE_LATE], (unsigned long long)wire_fates[FATE_TWICE],
		(unsigned long long)wire_fates[FATE_REFUSED], (unsigned long long)wire_fates[FATE_BREACH],
		(unsigned long long)wire_unasked);
	print_message("%llu commits, %llu starts of the store, %llu batches lost with their server\n",
		      (unsigned long long)keeping_commits, (unsigned long long)keeping_starts,
		      (unsigned long long)keeping_lost);
	assert_true(seed_count < SEEDS || (running > failed && several));
}

// Each fault that is planted is found by one of the invariants that it is meant for.
static void test_planted(void **context)
{
	static const struct {
		enum planted fault;
		bool overcommits;
		const char *found_by[2];
	} all[] = {{PLANTED_NOTHING, true, {"a place that is found has room", NULL}},
		   {PLANTED_NO_SEARCH,
		    false,
		    {"no device is idle but by a rule that ends", "each instance goes on once faults stop"}},
		   {PLANTED_NO_DEADLINE, false, {"a call ends by its deadline", NULL}},
		   {PLANTED_OLD_ANSWER, false, {"what runs has its workers", NULL}},
		   {PLANTED_ENDS_TWICE, false, {"each call ends once", NULL}},
		   {PLANTED_NO_CLOSE, false, {"no worker is left behind", NULL}},
		   {PLANTED_NO_CLOSE, false, {"no memory has two owners", NULL}},
		   {PLANTED_WRONG_PARAMS, false, {"both ends understand each other", NULL}},
		   {PLANTED_TOLD_EARLY, false, {"what is told is on disk", NULL}},
		   {PLANTED_TWO_BATCHES, false, {"row and entry are one", NULL}},
		   {PLANTED_EPOCHS_AGAIN, false, {"epochs only grow", NULL}}};
	static struct world world;
	(void)context;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		bool found = false;
		uint64_t seed = 0;
		for (overcommits = all[i].overcommits; !found && seed < PLANTED_SEEDS;) {
			run_real(&world, ++seed, all[i].fault);
			found = world.broken && (!strcmp(world.broken, all[i].found_by[0]) ||
						 (all[i].found_by[1] && !strcmp(world.broken, all[i].found_by[1])));
		}
		overcommits = false;
		if (!found)
			fail_msg("the fault planted as number %zu is not found by \"%s\"; the last said: %s", i + 1,
				 all[i].found_by[0], world.broken ? world.broken : "nothing");
		print_message("\"%s\" is broken by a planted fault: seed %llu\n", world.broken,
			      (unsigned long long)seed);
	}
}

int main(int count, char **words)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_invariants), cmocka_unit_test(test_planted)};
	if (count > 1) {
		first_seed = strtoull(words[1], NULL, 10);
		seed_count = count > 2 ? strtoull(words[2], NULL, 10) : 1;
	}
	const int failures = cmocka_run_group_tests(tests, NULL, NULL);
	keeping_finish();
	return failures;
}
