/* How long placements take to be found, for the tables of docs/placement.md.
 *
 *   solver [SECONDS]       2 to 64 devices, 16 to 126 layers, of which the model fills about half the memory
 *   solver tables FIRST COUNT SECONDS
 *                          random clusters by their numbers, each with its costs and what the search finds in SECONDS,
 *                          as a line of JSON, for tests/bench/cpsat.py
 *
 * Equal: machines of eight GPUs each that are all the same, on one network. Unlike: machines of one to four devices,
 * unlike in everything, with unlike links between them. A cell has the time to the first answer, and then the time to
 * the proof, or what a better one could still bring when SECONDS (5) are over. Then, of few devices and layers, the
 * search beside looking at every chain and every split: how many there are, how long each took, and how much longer a
 * token takes than by the best of all. Prints Markdown. That the answers are the same on random clusters
 * tests/server/placement/test_placement_search.c checks. */
#include "server/placement/placement_inside.h"
#include "tests/server/placement/exhaustive.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, KINDS = 4 };
static const char *const kinds[KINDS] = {"equal, latency", "equal, throughput", "unlike, latency",
					 "unlike, throughput"};
#define GIB (1024ull * 1024 * 1024)

static uint64_t state;
static double between(double least, double most)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return least + (most - least) * (double)(state % 1000001) / 1000000;
}

struct cluster {
	struct model_shape shape;
	struct model_sizes sizes;
	struct placement_device devices[MOST];
	struct placement_link links[PLACEMENT_NODES * PLACEMENT_NODES];
	struct placement_wanted wanted;
};

static void make_links(struct cluster *cluster, bool equal)
{
	for (unsigned i = 0; i < PLACEMENT_NODES * PLACEMENT_NODES; i++)
		cluster->links[i] = (struct placement_link){
			.known = true,
			.direct = true,
			.link_class = "ethernet",
			.round_trip_s = equal ? 0.2e-3 : exp(between(log(1e-4), log(2e-2))),
			.bytes_per_s = equal ? 1e9 : exp(between(log(1e7), log(2e9)))};
}

static void make(struct cluster *cluster, unsigned count, uint32_t layers, bool equal)
{
	uint64_t all = 0;
	unsigned left = 0, node = 0;
	state = 88172645463325252u + count * 1000 + layers;
	memset(cluster, 0, sizeof *cluster);
	for (unsigned i = 0; i < count; i++) {
		if (!left) {
			node += i > 0;
			left = equal ? 8 : 1 + (unsigned)between(0, 3.99);
		}
		left--;
		const uint64_t bytes = equal ? 24 * GIB : (uint64_t)between(4, 80) * GIB;
		cluster->devices[i] = (struct placement_device){.device_id = "d",
								.name = "d",
								.node_id = "n",
								.node = node,
								.pool = "",
								.backend = equal || between(0, 1) < 0.8 ? PLACE_CUDA
													: PLACE_CPU,
								.memory_bytes = bytes,
								.free_bytes = bytes,
								.free_known = true,
								.bandwidth = equal ? 9e11 : between(5e10, 3e12),
								.heat_room = -1};
		all += bytes;
	}
	make_links(cluster, equal);
	cluster->shape = (struct model_shape){.family = FAMILY_LLAMA,
					      .layers = layers,
					      .embedding = 8192,
					      .feed_forward = 28672,
					      .heads = 64,
					      .kv_heads = 8,
					      .head_size = 128,
					      .vocabulary = 128256,
					      .context = 8192,
					      .rope_size = 128};
	cluster->sizes = (struct model_sizes){.embedding_bytes = GIB / 2,
					      .output_bytes = GIB / 2,
					      .layers_bytes = all / 2,
					      .layer_bytes = all / 2 / layers,
					      .main_format = FORMAT_Q4_0};
	cluster->sizes.format_bytes[FORMAT_Q4_0] = all / 2;
	cluster->wanted = (struct placement_wanted){.shape = &cluster->shape,
						    .sizes = &cluster->sizes,
						    .devices = cluster->devices,
						    .device_count = count,
						    .node_count = node + 1,
						    .links = cluster->links,
						    .context_tokens = 4096,
						    .sequences = 8};
}

static void cell(struct cluster *cluster, double seconds)
{
	static struct placement out;
	struct error error = {0};
	cluster->wanted.timeout_s = seconds;
	if (placement_find(&out, &cluster->wanted, &error)) {
		printf(" %s |", error.message);
		return;
	}
	if (!out.feasible)
		printf(" none, proven in %.1f ms |", out.search_ms);
	else if (out.proof == PROOF_OPTIMAL)
		printf(" %.1f; proven %.0f ms |", out.first_ms, out.search_ms);
	else
		printf(" %.1f; gap %.1f %% |", out.first_ms, out.gap * 100);
	fflush(stdout);
}

// One question, of all devices: the search, and all there is.
static void compare(struct cluster *cluster, unsigned devices, uint32_t layers, int kind, double seconds)
{
	static struct problem problem;
	struct search_result result;
	uint64_t seen = 0;
	make(cluster, devices, layers, kind < 2);
	cluster->wanted.objective = kind % 2 ? PLACE_THROUGHPUT : PLACE_LATENCY;
	problem_init(&problem, &(struct problem_params){.wanted = &cluster->wanted,
							.sizes = &cluster->sizes,
							.pages = placement_pages(cluster->wanted.context_tokens,
										 cluster->wanted.sequences)});
	const double begun_s = search_clock_s();
	if (search_run(&problem, INFINITY, begun_s + seconds, &result)) {
		printf("out of memory\n");
		return;
	}
	const double searched_s = search_clock_s(), best = exhaustive(&problem, &seen), over_s = search_clock_s();
	printf("| %u | %u | %s | %.1f | %llu | %.0f | ", devices, layers, kinds[kind], (searched_s - begun_s) * 1e3,
	       (unsigned long long)seen, (over_s - searched_s) * 1e3);
	if (!result.best.count || isinf(best))
		printf("%s |\n", !result.best.count && isinf(best) ? "none fits" : "one of them finds none");
	else
		printf("%.4f %% |\n", (result.best.value / best - 1) * 100);
	fflush(stdout);
}

// ---- for another solver ----

/* A cluster of its own for each number. Memory, bandwidth, round trips and rates are drawn from what real devices and
 * networks have, each order of magnitude as often as another: who is chosen depends on ratios. The model fills 30 to
 * 90 % of all memory, so that several devices are needed, and some can be left out. */
static void make_random(struct cluster *cluster, unsigned number)
{
	state = 88172645463325252u + number * 0x9e3779b97f4a7c15u;
	for (int i = 0; i < 8; i++)
		between(0, 1);
	const unsigned devices = 3 + (unsigned)between(0, 5.99);
	const uint32_t layers = 8 + (uint32_t)between(0, 32.99);
	const uint64_t before = state;
	make(cluster, devices, layers, false);
	state = before;
	uint64_t all = 0;
	for (unsigned i = 0; i < devices; i++) {
		struct placement_device *one = &cluster->devices[i];
		one->memory_bytes = one->free_bytes = (uint64_t)(exp(between(log(2), log(80))) * GIB);
		one->bandwidth = exp(between(log(3e10), log(3e12)));
		all += one->free_bytes;
	}
	make_links(cluster, false);
	cluster->sizes.layers_bytes = (uint64_t)(between(0.3, 0.9) * (double)all);
	cluster->sizes.layer_bytes = cluster->sizes.layers_bytes / layers;
	cluster->sizes.format_bytes[FORMAT_Q4_0] = cluster->sizes.layers_bytes;
	cluster->wanted.sequences = 1u << (unsigned)between(0, 4.99);
	cluster->wanted.objective = number % 2 ? PLACE_THROUGHPUT : PLACE_LATENCY;
}

static void print_device(const struct problem *problem, unsigned i, unsigned lanes)
{
	const struct place_device *one = &problem->devices[i];
	printf("%s{\"group\":%u,\"pool\":%d,\"layer_s\":%.17g,\"output_s\":%.17g,\"room\":[%d,%d,%d,%d],\"batch\":[",
	       i ? "," : "", one->group, one->pool, one->layer_s, one->output_s, one->room[0], one->room[1],
	       one->room[2], one->room[3]);
	for (unsigned k = 1; k <= lanes; k++)
		printf("%s%.17g", k > 1 ? "," : "", cost_batch(one, (double)problem->wanted->sequences / k));
	printf("],\"hops\":[");
	for (unsigned j = 0; j < problem->count;
	     j++) // the time of one row, what each row keeps the link busy, the way back
		printf("%s[%.17g,%.17g,%.17g]", j ? "," : "", i == j ? 0 : cost_hop_s(problem, i, j, 0),
		       i == j ? 0 : cost_hop_busy_s(problem, i, j, 1), cost_close_s(problem, i, j));
	printf("]}");
}

static int print_tables(unsigned first, unsigned count, double seconds)
{
	static struct cluster cluster;
	static struct problem problem;
	for (unsigned number = first; number < first + count; number++) {
		struct search_result result;
		make_random(&cluster, number);
		problem_init(&problem, &(struct problem_params){.wanted = &cluster.wanted,
								.sizes = &cluster.sizes,
								.pages = placement_pages(cluster.wanted.context_tokens,
											 cluster.wanted.sequences)});
		const unsigned lanes = problem.group_count + 1 < cluster.wanted.sequences ? problem.group_count + 1
											  : cluster.wanted.sequences;
		const double begun_s = search_clock_s();
		if (search_run(&problem, INFINITY, begun_s + seconds, &result))
			return 1;
		printf("{\"number\":%u,\"throughput\":%s,\"layers\":%u,\"most\":%u,\"sequences\":%u,\"stage_s\":%.17g,"
		       "\"value\":%.17g,\"bound\":%.17g,\"spilled\":%s,\"proven\":%s,\"ms\":%.3f,\"devices\":[",
		       number, cluster.wanted.objective == PLACE_THROUGHPUT ? "true" : "false", problem.layers,
		       problem.most, cluster.wanted.sequences, cost_stage_s(),
		       result.best.count ? result.best.value : -1, isinf(result.bound) ? -1 : result.bound,
		       result.best.count && result.best.host_layers[0] ? "true" : "false",
		       result.proven ? "true" : "false", (search_clock_s() - begun_s) * 1e3);
		for (unsigned i = 0; i < problem.count; i++)
			print_device(&problem, i, lanes);
		printf("]}\n");
	}
	return 0;
}

int main(int count, char **arguments)
{
	if (count == 5 && !strcmp(arguments[1], "tables"))
		return print_tables((unsigned)strtoul(arguments[2], NULL, 10),
				    (unsigned)strtoul(arguments[3], NULL, 10), strtod(arguments[4], NULL));
	static struct cluster cluster;
	static const unsigned devices[] = {2, 4, 8, 16, 32, 64};
	static const uint32_t layers[] = {16, 32, 80, 126};
	const double seconds = count > 1 ? strtod(arguments[1], NULL) : 5;
	printf("| devices | layers | %s | %s | %s | %s |\n|---|---|---|---|---|---|\n", kinds[0], kinds[1], kinds[2],
	       kinds[3]);
	for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
		for (size_t j = 0; j < sizeof layers / sizeof *layers; j++) {
			printf("| %u | %u |", devices[i], layers[j]);
			for (int kind = 0; kind < KINDS; kind++) {
				make(&cluster, devices[i], layers[j], kind < 2);
				cluster.wanted.objective = kind % 2 ? PLACE_THROUGHPUT : PLACE_LATENCY;
				cell(&cluster, seconds);
			}
			printf("\n");
		}
	printf("\n| devices | layers | | search, ms | splits of all chains | all of them, ms | slower than the best by "
	       "|\n"
	       "|---|---|---|---|---|---|---|\n");
	for (unsigned i = 2; i <= EXHAUSTIVE_DEVICES; i++)
		for (uint32_t j = 8; j <= 16; j *= 2)
			for (int kind = 0; kind < KINDS; kind++)
				compare(&cluster, i, j, kind, seconds);
	return 0;
}
