/* The search for a placement, compared with looking at everything there is: thousands of small random clusters, both
 * objectives. And what must hold of any answer: more memory or a faster link never makes it worse. */
#include "server/placement/placement_inside.h"
#include "tests/server/placement/exhaustive.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on

#ifdef __SANITIZE_ADDRESS__ // the plain build looks at the answers, this one at how they are found
enum { CASES = 1500, PROPERTY_CASES = 400 };
#else
enum { CASES = 12000, PROPERTY_CASES = 3000 };
#endif
enum { MOST_DEVICES = EXHAUSTIVE_DEVICES, MOST_NODES = 3, FAR_S = 1000 };
#define GIB (1024ull * 1024 * 1024)

static uint64_t state = 88172645463325252u;
static uint64_t draw(uint64_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state % below;
}

static double between(double least, double most)
{
	return least + (most - least) * (double)draw(1000001) / 1000000;
}

struct cluster {
	struct model_shape shape;
	struct model_sizes sizes;
	struct placement_device devices[MOST_DEVICES];
	struct placement_link links[MOST_NODES * MOST_NODES];
	bool copies[MOST_DEVICES * MOST_DEVICES];
	struct placement_timed timed[MOST_DEVICES];
	struct placement_wanted wanted;
};

static void make_model(struct cluster *cluster)
{
	const uint32_t layers = 2 + (uint32_t)draw(7);
	const uint64_t layer_bytes = 30000000 + draw(300000000);
	cluster->shape = (struct model_shape){.family = FAMILY_LLAMA,
					      .layers = layers,
					      .embedding = 2048,
					      .feed_forward = 5632,
					      .heads = 32,
					      .kv_heads = 4,
					      .head_size = 64,
					      .vocabulary = 32000,
					      .context = 4096,
					      .rope_size = 64,
					      .tied = draw(4) == 0};
	cluster->sizes = (struct model_sizes){.embedding_bytes = 130000000 + draw(300000000),
					      .output_bytes = 131000000 + draw(300000000),
					      .layer_bytes = layer_bytes,
					      .layers_bytes = layer_bytes * layers,
					      .main_format = draw(2) ? FORMAT_F16 : FORMAT_Q4_0};
	cluster->sizes.format_bytes[cluster->sizes.main_format] = cluster->sizes.layers_bytes;
}

// What was timed on some of the devices: batches as of kernels that take rows by steps, as far as they were measured.
static void make_times(struct cluster *cluster)
{
	const uint64_t layer_bytes = cluster->sizes.layers_bytes / cluster->shape.layers;
	cluster->wanted.timed_count = 0;
	for (unsigned i = 0; i < cluster->wanted.device_count; i++) {
		struct placement_timed *one = &cluster->timed[cluster->wanted.timed_count];
		const double most = draw(3) ? 2.2 : 4;
		double times = 1;
		if (draw(3))
			continue;
		cluster->wanted.timed_count++;
		*one = (struct placement_timed){.device = i,
						.format = cluster->sizes.main_format,
						.layer_bytes = draw(4) ? layer_bytes : layer_bytes / 3,
						.output_bytes = cluster->sizes.output_bytes,
						.layer_s = between(1e-4, 1e-2),
						.output_s = draw(3) ? between(1e-4, 1e-2) : -1,
						.prompt_s = -1};
		for (unsigned k = 0; k < PLACEMENT_BATCHES; k++) {
			times *= draw(3) ? between(1, most) : 1;
			one->batch[k] = draw(5) ? times : -1;
		}
	}
	cluster->wanted.timed = cluster->timed;
}

// Few values to choose from, so that equals are common.
static void make_cluster(struct cluster *cluster)
{
	static const char *const names[] = {"a", "b", "c", "d", "e"}, *const pools[] = {"p", "q"};
	static const char *const classes[] = {"ethernet", "wifi", "relay", NULL};
	const double bandwidths[] = {2e10, 5e10, 2e11, between(1e10, 1e12)};
	const unsigned count = 2 + (unsigned)draw(MOST_DEVICES - 1), nodes = 1 + (unsigned)draw(MOST_NODES);
	const uint64_t sizes[] = {GIB / 2, GIB, 2 * GIB, draw(3 * GIB)};
	make_model(cluster);
	for (unsigned i = 0; i < count; i++) {
		cluster->devices[i] = (struct placement_device){.device_id = names[i],
								.name = names[i],
								.node_id = names[i],
								.node = (unsigned)draw(nodes),
								.pool = draw(6) ? "" : pools[draw(2)],
								.backend = PLACE_CUDA + (enum placement_backend)draw(3),
								.heat = draw(10) ? HEAT_NORMAL
										 : (enum placement_heat)draw(4),
								.free_bytes = sizes[draw(4)],
								.bandwidth = draw(12) ? bandwidths[draw(4)] : 0,
								.heat_room = -1};
		cluster->devices[i].memory_bytes = cluster->devices[i].free_bytes;
	}
	for (unsigned i = 0; i < count; i++)
		for (unsigned j = 0; j < count; j++)
			cluster->copies[i * count + j] = cluster->devices[i].node == cluster->devices[j].node;
	const bool even = draw(3) == 0;
	for (unsigned i = 0; i < MOST_NODES * MOST_NODES; i++)
		cluster->links[i] = (struct placement_link){.known = even || draw(5),
							    .link_class = classes[draw(even ? 1 : 4)],
							    .round_trip_s = even ? 1e-3 : between(1e-4, 2e-2),
							    .bytes_per_s = even ? 1e8 : between(1e6, 1e9)};
	cluster->wanted = (struct placement_wanted){.shape = &cluster->shape,
						    .sizes = &cluster->sizes,
						    .devices = cluster->devices,
						    .device_count = count,
						    .node_count = nodes,
						    .links = draw(8) ? cluster->links : NULL,
						    .copies = cluster->copies,
						    .context_tokens = 2048,
						    .sequences = 1 + (uint32_t)draw(draw(3)   ? 9
										    : draw(3) ? 100
											      : 256),
						    .objective = draw(2) ? PLACE_LATENCY : PLACE_THROUGHPUT,
						    .timeout_s = FAR_S};
	if (draw(2))
		make_times(cluster);
}

static void make_problem(const struct cluster *cluster, struct problem *problem)
{
	problem_init(problem, &(struct problem_params){.wanted = &cluster->wanted,
						       .sizes = &cluster->sizes,
						       .pages = placement_pages(cluster->wanted.context_tokens,
										cluster->wanted.sequences)});
}

// ---- tests ----

static void check_chain(const struct problem *problem, struct chain *chain)
{
	uint32_t layers = 0;
	const double value = chain->value;
	assert_true(by_the_rules(problem, chain));
	for (unsigned i = 0; i < chain->count; i++) {
		assert_true(chain->layers[i] > 0);
		assert_true(takes(problem, chain, i) <= device_at(problem, chain, i)->free_bytes);
		layers += chain->layers[i];
	}
	assert_int_equal(layers, problem->layers);
	chain_measure(problem, chain);
	assert_true(fabs(chain->value - value) <= value * 1e-9);
}

static void as_good_as_everything(void **unused)
{
	(void)unused;
	static struct cluster cluster;
	static struct problem problem;
	struct search_result result;
	unsigned several = 0, none = 0, spilled = 0, nodes = 0, together = 0;
	for (int i = 0; i < CASES; i++) {
		make_cluster(&cluster);
		make_problem(&cluster, &problem);
		const double best = exhaustive(&problem, NULL);
		assert_int_equal(search_run(&problem, INFINITY, search_clock_s() + FAR_S, &result), STATUS_OK);
		assert_true(result.proven);
		const double found = result.best.count ? result.best.value : INFINITY;
		if (isinf(best) != isinf(found) || fabs(found - best) > best * 1e-6)
			fail_msg("case %d: found %g, the best of all is %g (%u devices, %u nodes, %u layers, %s)", i,
				 found, best, problem.count, cluster.wanted.node_count, problem.layers,
				 cluster.wanted.objective == PLACE_LATENCY ? "latency" : "throughput");
		none += isinf(best) != 0;
		if (isinf(best))
			continue;
		check_chain(&problem, &result.best);
		several += result.best.count > 1;
		spilled += result.best.host_layers[0] > 0;
		together += cluster.wanted.objective == PLACE_THROUGHPUT && result.best.count > 1;
		for (unsigned j = 1; j < result.best.count; j++)
			if (problem.devices[result.best.at[j]].node != problem.devices[result.best.at[0]].node) {
				nodes++;
				break;
			}
	}
	print_message(
		"%d cases: %u on several devices (%u for throughput), %u on several nodes, %u with host memory, %u "
		"nowhere\n",
		CASES, several, together, nodes, spilled, none);
	assert_true(several > CASES / 20 && nodes > CASES / 50 && spilled > CASES / 100 && none > CASES / 20);
}

static double solved(const struct cluster *cluster)
{
	static struct problem problem;
	struct search_result result;
	make_problem(cluster, &problem);
	assert_int_equal(search_run(&problem, INFINITY, search_clock_s() + FAR_S, &result), STATUS_OK);
	assert_true(result.proven);
	return result.best.count ? result.best.value : INFINITY;
}

static void more_is_never_worse(void **unused)
{
	(void)unused;
	static struct cluster cluster;
	unsigned better = 0;
	for (int i = 0; i < PROPERTY_CASES; i++) {
		make_cluster(&cluster);
		const double before = solved(&cluster);
		struct placement_device *device = &cluster.devices[draw(cluster.wanted.device_count)];
		device->free_bytes += draw(GIB);
		const double with_memory = solved(&cluster);
		for (unsigned j = 0; j < MOST_NODES * MOST_NODES; j++)
			if (cluster.links[j].known) {
				cluster.links[j].bytes_per_s *= between(1, 4);
				cluster.links[j].round_trip_s *= between(0.2, 1);
			}
		const double with_links = solved(&cluster);
		better += with_memory < before;
		better += with_links < with_memory;
		if (with_memory > before * (1 + 1e-9) || with_links > with_memory * (1 + 1e-9))
			fail_msg("case %d: %g, with more memory %g, with faster links %g", i, before, with_memory,
				 with_links);
	}
	print_message("%d cases, better in %u of %u steps\n", PROPERTY_CASES, better, 2 * PROPERTY_CASES);
	assert_true(better > PROPERTY_CASES / 20);
}

// Limits: nothing that is not better; and what is left open when time is up is told.
static void limits_and_time(void **unused)
{
	(void)unused;
	static struct cluster cluster;
	static struct problem problem;
	struct search_result all, limited, hurried;
	unsigned gaps = 0;
	for (int i = 0; i < PROPERTY_CASES; i++) {
		make_cluster(&cluster);
		make_problem(&cluster, &problem);
		assert_int_equal(search_run(&problem, INFINITY, search_clock_s() + FAR_S, &all), STATUS_OK);
		assert_int_equal(search_run(&problem, INFINITY, 0, &hurried), STATUS_OK);
		assert_int_equal(!all.best.count, !hurried.best.count); // a first answer there always is
		if (!all.best.count)
			continue;
		assert_true(hurried.best.value >= all.best.value * (1 - 1e-9));
		if (!hurried.proven && hurried.bound > all.best.value * (1 + 1e-9))
			fail_msg("case %d: the bound %g is above the best, %g", i, hurried.bound, all.best.value);
		gaps += !hurried.proven;
		assert_int_equal(search_run(&problem, all.best.value * (1 - 1e-8), search_clock_s() + FAR_S, &limited),
				 STATUS_OK);
		assert_int_equal(limited.best.count, 0);
		assert_true(limited.proven);
	}
	print_message("%d cases, %u with a gap\n", PROPERTY_CASES, gaps);
	assert_true(gaps > 0);
}

// The whole of placement_find: what it gives obeys every limit, whatever steps were taken, and is explained.
static void check_placement(const struct cluster *cluster, const struct placement *out)
{
	uint64_t used[MOST_DEVICES] = {0}, host[MOST_NODES] = {0};
	uint32_t next = 0;
	struct model_sizes sizes = cluster->sizes;
	if (out->format != FORMAT_UNKNOWN)
		placement_shrink(&sizes, out->format);
	for (unsigned i = 0; i < out->stage_count; i++) {
		const struct placement_stage *stage = &out->stages[i];
		const struct placement_device *device = &cluster->devices[stage->device];
		const struct stage_memory memory = cost_memory(&cluster->wanted, &sizes, out->page_count, stage);
		assert_int_equal(stage->first_layer, stage->slice ? stage[-1].first_layer : next);
		assert_true(stage->layer_count > 0 && stage->host_layers <= stage->layer_count);
		assert_int_equal(stage->embeds, stage->first_layer == 0);
		assert_int_equal(stage->predicts, stage->first_layer + stage->layer_count == cluster->shape.layers);
		assert_true(!stage->slices || stage->slice == (stage->slice ? stage[-1].slice + 1 : 0));
		assert_false(device->software || device->unusable);
		used[stage->device] += cost_on_device(&memory);
		host[device->node] += memory.host_bytes;
		next += stage->slice ? 0 : stage->layer_count;
	}
	assert_int_equal(next, cluster->shape.layers);
	for (unsigned i = 0; i < cluster->wanted.device_count; i++)
		assert_true(used[i] <= cluster->devices[i].free_bytes);
	for (unsigned i = 0; i < cluster->wanted.node_count; i++) {
		uint64_t most = 0;
		for (unsigned j = 0; j < cluster->wanted.device_count; j++)
			if (cluster->devices[j].node == i && cluster->devices[j].backend == PLACE_CPU)
				most = cluster->devices[j].free_bytes;
		assert_true(host[i] <= most);
	}
}

static void whole_placements(void **unused)
{
	(void)unused;
	static struct cluster cluster;
	static struct placement out;
	unsigned steps[4] = {0}, none = 0, remedies = 0, sliced = 0;
	for (int i = 0; i < PROPERTY_CASES; i++) {
		make_cluster(&cluster);
		for (unsigned j = 0; j < cluster.wanted.device_count; j++) {
			cluster.devices[j].software = cluster.devices[j].backend == PLACE_VULKAN && draw(3) == 0;
			cluster.devices[j].unusable = draw(8) ? NULL : "it is draining";
		}
		cluster.wanted.may_shrink = draw(2);
		cluster.wanted.remedies = draw(2);
		assert_int_equal(placement_find(&out, &cluster.wanted, NULL), STATUS_OK);
		assert_true(out.why_count > 0);
		for (unsigned j = 0; j < out.why_count; j++)
			assert_true(strlen(out.whys[j].text) > 0 &&
				    strlen(out.whys[j].text) + 1 < PLACEMENT_TEXT_BYTES);
		for (unsigned j = 0; j < cluster.wanted.device_count; j++)
			if (out.scores[j].total >= 0)
				assert_true(out.scores[j].total <= 1 && out.scores[j].memory <= 1);
		remedies += out.remedy_count;
		if (out.feasible) {
			check_placement(&cluster, &out);
			steps[out.step]++;
			sliced += strcmp(out.strategy, "pipeline") != 0;
		}
		none += !out.feasible;
		assert_int_equal(out.proof, out.feasible ? PROOF_OPTIMAL : PROOF_INFEASIBLE);
		if (!out.feasible) { // nor by any chain of all devices, with the fewest pages
			static struct problem problem;
			const struct problem_params params = {
				.wanted = &cluster.wanted,
				.sizes = &cluster.sizes,
				.pages = placement_pages(cluster.wanted.context_tokens, 1)};
			problem_init(&problem, &params);
			assert_true(isinf(exhaustive(&problem, NULL)));
		}
	}
	print_message(
		"%d cases: %u as asked, %u with host memory, %u in a smaller format, %u by processors, %u nowhere; "
		"%u in slices, %u remedies\n",
		PROPERTY_CASES, steps[STEP_NONE], steps[STEP_SPILLED], steps[STEP_SMALLER_FORMAT], steps[STEP_CPU],
		none, sliced, remedies);
	assert_true(steps[STEP_SPILLED] && steps[STEP_SMALLER_FORMAT] && steps[STEP_CPU] && none && sliced && remedies);
}

// A search that is stopped before it begins says that nothing fits only where nothing does.
static void a_stop_is_no_proof(void **unused)
{
	(void)unused;
	static struct cluster cluster;
	static struct placement out;
	static struct problem problem;
	atomic_bool stop = true;
	unsigned none = 0;
	for (int i = 0; i < PROPERTY_CASES; i++) {
		make_cluster(&cluster);
		cluster.wanted.timeout_s = 0;
		cluster.wanted.stop = &stop;
		assert_int_equal(placement_find(&out, &cluster.wanted, NULL), STATUS_OK);
		const struct problem_params params = {.wanted = &cluster.wanted,
						      .sizes = &cluster.sizes,
						      .pages = placement_pages(cluster.wanted.context_tokens, 1)};
		problem_init(&problem, &params);
		const bool fits = !isinf(exhaustive(&problem, NULL));
		if (!fits && out.feasible && strcmp(out.strategy, "pipeline") != 0)
			continue; // by slices it does
		assert_true(out.feasible || out.proof == (fits ? PROOF_NOT_FOUND : PROOF_INFEASIBLE));
		assert_true(fits || !out.feasible);
		none += !fits;
	}
	assert_true(none > PROPERTY_CASES / 50);
}

// ---- time ----

enum { MANY = 64, MANY_NODES = 22 };

// Unlike in everything; nobody proves this in minutes.
static struct many {
	struct model_shape shape;
	struct model_sizes sizes;
	struct placement_device devices[MANY];
	struct placement_link links[MANY_NODES * MANY_NODES];
	struct placement_wanted wanted;
} many;

static void make_many(void)
{
	uint64_t all = 0;
	for (unsigned i = 0; i < MANY; i++) {
		many.devices[i] = (struct placement_device){.device_id = "d",
							    .name = "d",
							    .node_id = "n",
							    .node = i / 3,
							    .pool = "",
							    .backend = draw(5) ? PLACE_CUDA : PLACE_CPU,
							    .free_bytes = (4 + draw(76)) * GIB,
							    .free_known = true,
							    .bandwidth = between(5e10, 3e12),
							    .heat_room = -1};
		many.devices[i].memory_bytes = many.devices[i].free_bytes;
		all += many.devices[i].free_bytes;
	}
	for (unsigned i = 0; i < MANY_NODES * MANY_NODES; i++)
		many.links[i] = (struct placement_link){.known = true,
							.link_class = "ethernet",
							.round_trip_s = between(1e-4, 2e-2),
							.bytes_per_s = between(1e7, 2e9)};
	many.shape = (struct model_shape){.family = FAMILY_LLAMA,
					  .layers = 80,
					  .embedding = 8192,
					  .feed_forward = 28672,
					  .heads = 64,
					  .kv_heads = 8,
					  .head_size = 128,
					  .vocabulary = 128256,
					  .context = 8192,
					  .rope_size = 128};
	many.sizes = (struct model_sizes){.embedding_bytes = GIB / 2,
					  .output_bytes = GIB / 2,
					  .layers_bytes = all / 2,
					  .layer_bytes = all / 2 / 80,
					  .main_format = FORMAT_Q4_0};
	many.sizes.format_bytes[FORMAT_Q4_0] = all / 2;
	many.wanted = (struct placement_wanted){.shape = &many.shape,
						.sizes = &many.sizes,
						.devices = many.devices,
						.device_count = MANY,
						.node_count = MANY_NODES,
						.links = many.links,
						.context_tokens = 4096,
						.sequences = 8,
						.objective = PLACE_THROUGHPUT,
						.remedies = true};
}

// What a thread has had of a processor, s: on a busy machine more time than that goes by.
static double processor_s(pthread_t thread)
{
	clockid_t id;
	struct timespec now = {0};
	assert_int_equal(pthread_getcpuclockid(thread, &id), 0);
	assert_int_equal(clock_gettime(id, &now), 0);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

struct stopping {
	atomic_bool stop;
	pthread_t searching;
	double after_s, stopped_s; // stopped_s: of the thread that searches
};

static void *stop_soon(void *argument)
{
	struct stopping *stopping = argument;
	nanosleep(&(struct timespec){.tv_nsec = (long)(stopping->after_s * 1e9)}, NULL);
	atomic_store(&stopping->stop, true); // before the clock is read: this thread may stand still in between
	stopping->stopped_s = processor_s(stopping->searching);
	return NULL;
}

// Whatever it is at, a search that is stopped soon answers with what it has.
static void stopped(void **unused)
{
	(void)unused;
	static struct placement out;
	const double after_s[] = {0.001, 0.02, 0.1, 0.5, 0.9};
	make_many();
	for (unsigned i = 0; i < sizeof after_s / sizeof *after_s; i++) {
		struct stopping stopping = {.searching = pthread_self(), .after_s = after_s[i]};
		pthread_t thread;
		many.wanted.stop = &stopping.stop;
		many.wanted.timeout_s = i == 4 ? 1 : FAR_S; // or while it looks for remedies
		assert_int_equal(pthread_create(&thread, NULL, stop_soon, &stopping), 0);
		assert_int_equal(placement_find(&out, &many.wanted, NULL), STATUS_OK);
		const double over_s = processor_s(pthread_self());
		pthread_join(thread, NULL);
		print_message("stopped after %.0f ms: %.1f ms more, a gap of %.1f %%\n", after_s[i] * 1e3,
			      (over_s - stopping.stopped_s) * 1e3, out.gap * 100);
		assert_true(out.feasible);
		assert_int_equal(out.proof, PROOF_BOUND);
		assert_true(out.gap > 0 && out.gap < 1);
		assert_true(over_s - stopping.stopped_s < 0.5);
	}
}

// Reasons and remedies are within the time, too.
static void in_time(void **unused)
{
	(void)unused;
	static struct placement out;
	make_many();
	for (int objective = PLACE_LATENCY; objective <= PLACE_THROUGHPUT; objective++) {
		const double begun_s = processor_s(pthread_self());
		many.wanted.objective = (enum placement_objective)objective;
		many.wanted.timeout_s = 0.1;
		assert_int_equal(placement_find(&out, &many.wanted, NULL), STATUS_OK);
		const double took_s = processor_s(pthread_self()) - begun_s;
		print_message("asked for 100 ms: %.0f ms of a processor; %.0f ms of search\n", took_s * 1e3,
			      out.search_ms);
		assert_true(out.feasible);
		assert_true(took_s < 0.6);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_good_as_everything),
		cmocka_unit_test(more_is_never_worse),
		cmocka_unit_test(limits_and_time),
		cmocka_unit_test(whole_placements),
		cmocka_unit_test(a_stop_is_no_proof),
		cmocka_unit_test(stopped),
		cmocka_unit_test(in_time),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
