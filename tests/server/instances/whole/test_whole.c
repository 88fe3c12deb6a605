/* A whole cluster under random faults, on a virtual clock: the server's real parts, from the connections of nodes and
 * workers to the disk, against simulated nodes, workers and clients. Workers die and fail to load, nodes are cut off
 * and end, connections break, devices drain and vanish, the server stops and is killed; then the faults stop.
 *
 *   virtual.h   the clock, timers, threads and commits
 *   world.h     what there is
 *   wire.h      connections
 *   workers.h   workers: loading, the ring, tokens
 *   nodes.h     nodes
 *   serving.h   the server: starts, stops, is killed
 *   clients.h   who has models loaded, and asks them
 *   planted.h   faults that are planted in the server
 *   checks.h    what must hold at any time
 *   disk.h      what must be on disk after a kill
 *
 * The seed of a failure is printed. Arguments: the first seed, and how many (1); EXOGPU_TRACE=1 tells what happens. */
#include "tests/server/instances/whole/disk.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
// clang-format on

enum { SEEDS = 6, PLANTED_SEEDS = 40, FAULT_MS = 5000, KILL_MS = 10000 };

// ---- faults ----

static struct sim_worker *some_worker(void)
{
	const unsigned first = world.worker_count ? (unsigned)draw(world.worker_count) : 0;
	for (unsigned i = 0; i < world.worker_count; i++) {
		struct sim_worker *one = &world.workers[(first + i) % world.worker_count];
		if (!one->dead)
			return one;
	}
	return NULL;
}

static void uncut(void *arg)
{
	node_uncut(arg);
}

static void start_node(void *arg)
{
	node_starts(arg);
}

static void return_device(void *arg)
{
	struct sim_device *device = arg;
	struct sim_node *node = &world.nodes[device->node];
	if (!device->absent)
		return;
	device->absent = false;
	if (node->registered)
		tell_devices(node);
}

static void drained(void *context, enum status status, const struct cluster_device *device, const struct error *error)
{
	(void)context, (void)status, (void)device, (void)error;
}

static void drain_device(unsigned number, bool drain)
{
	struct error error = {0};
	struct cluster_device *device = server.there
						? cluster_find_device(server.cluster, world.devices[number].device_id)
						: NULL;
	if (device && device->draining != drain)
		cluster_drain_device(
			server.cluster, device,
			&(struct cluster_drain_params){.drain = drain, .by = &audit_server, .done = drained}, &error);
}

static void start_server(void *arg)
{
	(void)arg;
	if (server.there)
		return;
	disk_check();
	server_starts();
}

static void end_server(bool killed)
{
	if (!server.there)
		return;
	if (killed)
		server_killed();
	else
		server_stopped();
	clients_lose_server();
	virtual_after(draw_ms(50, draw(3) ? 2000 : 20000), start_server, NULL);
}

static void fault(void)
{
	struct sim_worker *worker = some_worker();
	struct sim_node *node = &world.nodes[draw(NODES)];
	struct sim_device *device = &world.devices[draw(DEVICES)];
	switch (draw(14)) {
	case 0:
	case 1:
	case 2:
		if (worker)
			worker_dies(worker, "it was killed");
		break;
	case 3:
	case 4:
		if (!node->cut && !node->down) {
			node_cut(node);
			virtual_after(draw_ms(10, draw(2) ? 6000 : 25000), uncut, node);
		}
		break;
	case 5: // its control connection breaks
		if (node->uplink && !node->cut)
			node_loses_server(node, 1006);
		break;
	case 6: // the line of a worker breaks
		if (worker && worker->conn && !world.nodes[worker->node].cut) {
			struct net_conn *conn = worker->conn;
			post_letter(conn, true, NULL, 0, 1006);
			node_closed(conn, 1006);
		}
		break;
	case 7:
		if (worker)
			hop_breaks(draw(2) ? worker->hop_in : worker->hop_out);
		break;
	case 8:
		if (!node->down && !draw(2)) {
			node_ends(node);
			virtual_after(draw_ms(500, 20000), start_node, node);
		}
		break;
	case 9:
		drain_device((unsigned)draw(DEVICES), draw(2));
		break;
	case 10:
		device->absent = !device->absent;
		if (world.nodes[device->node].registered)
			tell_devices(&world.nodes[device->node]);
		virtual_after(draw_ms(500, 15000), return_device, device);
		break;
	case 11:
		if (draw(2))
			world.kill_ms = virtual.now_ms + KILL_MS;
		else if (!draw(3))
			end_server(false);
		break;
	case 12:
		if (server.there && some_instance())
			instances_move(server.instances, some_instance()->instance_id, NULL, NULL);
		break;
	case 13:
		if (server.there && some_instance() && !draw(3))
			unwant_instance(some_instance());
		break;
	}
}

static void next_fault(void *arg)
{
	(void)arg;
	if (!world.faults)
		return;
	fault();
	virtual_after(draw_ms(1, draw(3) ? FAULT_MS : FAULT_MS / 10), next_fault, NULL);
}

static void want_more(void *arg)
{
	(void)arg;
	if (server.there && wanted_count() < WANTED)
		want_instance((unsigned)draw(MODELS));
	virtual_after(draw_ms(1000, 20000), want_more, NULL);
}

static void faults_stop(void)
{
	world.faults = false;
	world.kill_ms = 0;
	TRACE("faults stop");
	start_server(NULL);
	for (unsigned i = 0; i < NODES; i++) {
		node_uncut(&world.nodes[i]);
		node_starts(&world.nodes[i]);
	}
	for (unsigned i = 0; i < DEVICES; i++) {
		return_device(&world.devices[i]);
		drain_device(i, false);
	}
}

// ---- a run ----

static void world_make(uint64_t seed, enum planted planted)
{
	static const unsigned first[NODES + 1] = {0, 2, 3, 4};
	memset(&world, 0, sizeof world);
	world.seed = seed;
	world.planted = planted;
	world.faults = true;
	world.evicts = seed % 2 == 0;
	told_count = 0;
	memset(told, 0, sizeof told);
	for (unsigned i = 0; i < NODES; i++) {
		struct sim_node *node = &world.nodes[i];
		*node = (struct sim_node){
			.number = i, .first_device = first[i], .device_count = first[i + 1] - first[i], .away_ms = -1};
		snprintf(node->node_id, sizeof node->node_id, "nod_%u", i);
		snprintf(node->name, sizeof node->name, "machine-%c", 'a' + (int)i);
		for (unsigned j = first[i]; j < first[i + 1]; j++) {
			world.devices[j].node = i;
			snprintf(world.devices[j].device_id, sizeof world.devices[j].device_id, "dev_%u", j);
			snprintf(world.devices[j].name, sizeof world.devices[j].name, "card-%u", j);
		}
	}
}

static void run_until(int64_t until_ms)
{
	while (!world.broken && virtual_step(until_ms)) {
		check_all();
		if (world.kill_ms && (world.entry_ms == virtual.now_ms || virtual.now_ms >= world.kill_ms)) {
			world.kill_ms = 0;
			end_server(true);
		}
	}
}

static void run(uint64_t seed, enum planted planted)
{
	world_make(seed, planted);
	snprintf(server.directory, sizeof server.directory, "%s/server", library.directory);
	virtual_begin(server.loop, seed);
	server_starts();
	for (unsigned i = 0; i < NODES; i++)
		dial_later(&world.nodes[i], draw_ms(1, 1000));
	virtual_after(3000, want_more, NULL);
	for (unsigned i = 0; i < REQUESTS; i++)
		virtual_after(draw_ms(5000, 15000), ask_again, &world.requests[i]);
	virtual_after(15000, next_fault, NULL);
	run_until(START_MS + FAULTS_MS);
	if (!world.broken)
		faults_stop();
	run_until(START_MS + FAULTS_MS + QUIET_MS);
	if (!world.broken)
		check_end();
	if (server.there)
		server_killed();
	for (unsigned i = 0; i < NODES; i++)
		node_ends(&world.nodes[i]);
	conns_free();
	virtual_end();
	directory_remove(server.directory);
}

static uint64_t first_seed = 1, seed_count = SEEDS;

static void test_invariants(void **context)
{
	uint64_t steps = 0, tokens = 0, ended = 0, failed = 0, loads = 0, adoptions = 0, kills = 0, stops = 0;
	(void)context;
	for (uint64_t seed = first_seed; seed - first_seed < seed_count; seed++) {
		run(seed, PLANTED_NOTHING);
		if (world.broken)
			fail_msg("seed %llu: broken: %s: %s", (unsigned long long)seed, world.broken, world.detail);
		TRACE("seed %llu: %llu steps", (unsigned long long)seed, (unsigned long long)virtual.steps);
		steps += virtual.steps;
		tokens += world.tokens;
		ended += world.requests_ended;
		failed += world.requests_failed;
		loads += world.loads;
		adoptions += world.adoptions;
		kills += world.kills;
		stops += world.stops;
	}
	print_message("%llu seeds: %llu steps, %llu tokens; %llu requests ended well, %llu not; %llu loads, %llu "
		      "adoptions, %llu kills and %llu stops of the server, %llu commits\n",
		      (unsigned long long)seed_count, (unsigned long long)steps, (unsigned long long)tokens,
		      (unsigned long long)ended, (unsigned long long)failed, (unsigned long long)loads,
		      (unsigned long long)adoptions, (unsigned long long)kills, (unsigned long long)stops,
		      (unsigned long long)virtual.commits_done);
	assert_true(seed_count < SEEDS || (tokens && ended && loads && adoptions && kills && stops));
}

// Each check finds a fault that is planted in the server.
static void test_planted(void **context)
{
	static const struct {
		enum planted fault;
		const char *found_by[2]; // any of these
	} all[] = {
		{PLANTED_REPEATS, {"no token is lost or repeated"}},
		{PLANTED_WRONG_TOKENS, {"a request goes on where it was"}},
		{PLANTED_FORGETS_END, {"requests are told in time"}},
		{PLANTED_WRONG_PART, {"requests go to the part that generates"}},
		{PLANTED_WRONG_PARAMS, {"both ends understand each other"}},
		{PLANTED_NO_CLOSE, {"no worker is left behind", "no memory has two owners"}},
		{PLANTED_OVERCOMMITS, {"no memory has two owners"}},
		{PLANTED_LAYERS_TWICE, {"no layer has two owners"}},
		{PLANTED_EPOCHS_AGAIN, {"epochs only grow"}},
		{PLANTED_LOSS_FORGOTTEN, {"what runs has its workers"}},
		{PLANTED_HELD, {"models are let go with their instances"}},
		{PLANTED_NO_SEARCH,
		 {"no device is idle for longer than the rules say", "each instance goes on once faults stop"}},
		{PLANTED_SLEEP, {"no device is idle but by a rule that ends"}},
		{PLANTED_LIE, {"every reason is true"}},
		{PLANTED_STALE, {"every reason is true"}},
		{PLANTED_CIRCLES, {"the server finds no fault in itself"}},
		{PLANTED_FAILS_EARLY, {"it fails only after dying often"}},
		{PLANTED_TWO_BATCHES, {"row and entry are one"}},
		{PLANTED_TOLD_EARLY, {"what is told is on disk"}},
	};
	(void)context;
	assert_int_equal(sizeof all / sizeof *all, PLANTED_COUNT - 1);
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		bool found = false;
		uint64_t seed = 0;
		while (!found && seed < PLANTED_SEEDS) {
			run(++seed, all[i].fault);
			found = world.broken && (!strcmp(world.broken, all[i].found_by[0]) ||
						 (all[i].found_by[1] && !strcmp(world.broken, all[i].found_by[1])));
		}
		if (!found)
			fail_msg("the fault planted as number %zu is not found by \"%s\"; the last said: %s", i + 1,
				 all[i].found_by[0], world.broken ? world.broken : "nothing");
		print_message("\"%s\" is broken by a planted fault: seed %llu, %s\n", world.broken,
			      (unsigned long long)seed, world.detail);
	}
}

int main(int count, char **words)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_invariants), cmocka_unit_test(test_planted)};
	const struct CMUnitTest seeds[] = {cmocka_unit_test(test_invariants)};
	trace_on = getenv("EXOGPU_TRACE") != NULL;
	if (count > 1) {
		first_seed = strtoull(words[1], NULL, 10);
		seed_count = count > 2 ? strtoull(words[2], NULL, 10) : 1;
	}
	process_begins();
	const int failures = count > 1 ? cmocka_run_group_tests(seeds, NULL, NULL)
				       : cmocka_run_group_tests(tests, NULL, NULL);
	process_ends();
	return failures;
}
