/* Links over a real store and cluster: what a placement finds, how every class is judged, what is bounded, and what a
 * new start knows. What goes over connections is tests/api/topology.test.mjs. */
#include "common/base/limits.h"
#include "server/cluster/topology/topology_inside.h"
#include "tests/server/store/support.h"

struct world {
	struct support *support;
	struct store *store;
	struct audit *audit;
	struct contract *contract;
	struct events *events;
	struct cluster *cluster;
	struct topology *topology;
};

static struct {
	struct cluster_link link;
	char node_id[STORE_ID_BYTES];
	struct json *peers; // the newest that it was told
	int told;
} ends[140]; // of connections, one a node

static struct {
	int count;
	enum status status;
} done;

static void on_done(void *context, enum status status, const struct error *error)
{
	(void)context, (void)error;
	done.count++;
	done.status = status;
}

static void tell_end(struct cluster_link *link, const char *method, struct json *params)
{
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
		if (&ends[i].link == link) {
			assert_string_equal(method, "node.peers");
			json_destroy(&ends[i].peers);
			ends[i].peers = params;
			ends[i].told++;
			return;
		}
	fail_msg("an unknown connection was told %s", method);
}

static void open_world(struct world *world, struct support *support)
{
	struct error error = {0};
	*world = (struct world){.support = support};
	const struct store_params store = {.loop = support->loop, .directory = support->directory};
	if (store_create(&world->store, &store, &error))
		fail_msg("%s", error.message);
	const struct audit_params audit = {.loop = support->loop, .store = world->store};
	if (audit_create(&world->audit, &audit, &error) || contract_create(&world->contract, CONTRACT_API, &error) ||
	    events_create(&world->events, world->contract, NULL, NULL))
		fail_msg("%s", error.message);
	const struct cluster_params cluster = {
		.loop = support->loop, .store = world->store, .audit = world->audit, .events = world->events};
	if (cluster_create(&world->cluster, &cluster, &error))
		fail_msg("%s", error.message);
	const struct topology_params topology = {
		.loop = support->loop, .store = world->store, .events = world->events, .cluster = world->cluster};
	if (topology_create(&world->topology, &topology, &error))
		fail_msg("%s", error.message);
}

static void close_world(struct world *world)
{
	topology_destroy(&world->topology);
	cluster_destroy(&world->cluster);
	audit_destroy(&world->audit);
	store_destroy(&world->store);
	events_destroy(&world->events);
	contract_destroy(&world->contract);
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
		json_destroy(&ends[i].peers);
	memset(ends, 0, sizeof ends);
}

static const char *id_of(int i)
{
	static char ids[4][STORE_ID_BYTES];
	static unsigned turn;
	char *id = ids[turn++ % 4];
	snprintf(id, STORE_ID_BYTES, "nod_%d", i);
	return id;
}

// Register nodes 0 to count - 1; the first is the server's own machine's.
static void bring(struct world *world, int count)
{
	const int before = done.count;
	for (int i = 0; i < count; i++) {
		struct error error = {0};
		struct json *record = json_new_object(), *addresses = json_new_array();
		ends[i].link = (struct cluster_link){.tell = tell_end};
		snprintf(ends[i].link.actor.peer, sizeof ends[i].link.actor.peer, i ? "192.0.2.%d" : "unix", i);
		json_push(addresses, json_new_string("10.0.0.1"));
		json_push(addresses, json_new_string(i ? "fe80::7" : "::1"));
		json_set_string(record, "node_id", id_of(i));
		json_set_string(record, "name", id_of(i) + 4);
		static const char *const unknown[] = {"os",        "kernel",      "arch",        "cpu_model",
						      "cpu_cores", "cpu_threads", "memory_bytes"};
		static const char *const none[] = {"backends", "libraries", "capabilities"};
		for (size_t j = 0; j < sizeof unknown / sizeof *unknown; j++)
			json_set_null(record, unknown[j]);
		for (size_t j = 0; j < sizeof none / sizeof *none; j++)
			json_set(record, none[j], json_new_array());
		json_set_string(record, "version", "0.1.0");
		json_set_string(record, "host_name", i < 2 ? "here" : id_of(i));
		json_set_integer(record, "link_port", i == 3 ? 0 : 7000 + i);
		json_set(record, "addresses", addresses);
		if (cluster_register_node(world->cluster, record, i == 0, &ends[i].link, on_done, NULL, &error))
			fail_msg("%s", error.message);
		json_destroy(&record);
	}
	support_run_until(world->support->loop, &done.count, before + count);
	assert_int_equal(done.status, STATUS_OK);
}

struct reading {
	const char *to, *class_name;
	double rtt_ms, bytes_per_s; // < 0: not measured
	bool down;
};

static struct json *record_of(const struct reading *reading)
{
	char at[CLOCK_TEXT_BYTES];
	struct json *json = json_new_object();
	json_set_string(json, "peer_id", reading->to);
	json_set_string(json, "state", reading->down ? "down" : "up");
	json_set_string(json, "class", reading->class_name);
	if (reading->rtt_ms >= 0)
		json_set_number(json, "rtt_ms", reading->rtt_ms);
	if (reading->bytes_per_s >= 0)
		json_set_number(json, "throughput_bytes_per_s", reading->bytes_per_s);
	if (!strcmp(reading->to, "server") && reading->bytes_per_s >= 0) // which measures nothing itself
		json_set_number(json, "throughput_back_bytes_per_s", 0.75 * reading->bytes_per_s);
	json_set_string(json, "measured_at", clock_format(clock_wall_ms(), at));
	return json;
}

static void report(struct world *world, int from, const struct reading *reading)
{
	struct json *params = json_new_object(), *links = json_new_array();
	json_push(links, record_of(reading));
	json_set(params, "links", links);
	topology_report(world->topology, id_of(from), params);
	json_destroy(&params);
}

static struct topology_link *link_of(struct world *world, int from, int to)
{
	struct topology_link *link = topology_link(cluster_find_node(world->cluster, id_of(from)),
						   to < 0 ? NULL : cluster_find_node(world->cluster, id_of(to)));
	assert_non_null(link);
	return link;
}

static struct topology_reading find(struct world *world, int from, int to)
{
	struct topology_reading reading;
	topology_find(world->topology, id_of(from), id_of(to), &reading);
	return reading;
}

static void expect_near(const char *what, double is, double wanted)
{
	if (is < wanted - 1e-9 || is > wanted + 1e-9)
		fail_msg("%s is %g, not %g", what, is, wanted);
}

static void a_placement_finds_the_shortest_way(void **state)
{
	struct world world;
	open_world(&world, *state);
	bring(&world, 3);
	struct topology_reading way = find(&world, 1, 1);
	assert_true(way.known && way.direct);
	expect_near("a node to itself", way.rtt_ms, 0);
	way = find(&world, 1, 2);
	assert_false(way.known || way.direct); // nothing is invented
	expect_near("not known", way.rtt_ms, -1);
	topology_find(world.topology, "nod_1", "nod_nobody", &way);
	assert_false(way.known);

	report(&world, 1, &(struct reading){"server", "ethernet", 3, 2e8, false});
	expect_near("to the server", find(&world, 1, 0).throughput_bytes_per_s, 2e8);
	way = find(&world, 0, 1); // the server's own machine is no way off
	assert_true(way.known && !way.direct);
	assert_string_equal(way.link_class, "relay");
	expect_near("by way of the server", way.rtt_ms, 3);
	expect_near("its rate", way.throughput_bytes_per_s, 1.5e8);
	report(&world, 2, &(struct reading){"server", "wifi", 20, 4e7, false});
	way = find(&world, 2, 1);
	expect_near("both ways to the server", way.rtt_ms, 23);
	expect_near("the lesser rate", way.throughput_bytes_per_s, 4e7);

	report(&world, 1, &(struct reading){"nod_2", "wifi", 7, 3e7, false});
	way = find(&world, 1, 2);
	assert_true(way.known && way.direct && !way.degraded);
	assert_string_equal(way.link_class, "wifi");
	expect_near("direct", way.rtt_ms, 7);
	assert_false(find(&world, 2, 1).direct); // that direction is not told of
	report(&world, 1, &(struct reading){"nod_2", "wifi", 7, 3e7, true});
	assert_false(find(&world, 1, 2).direct); // down
	report(&world, 1, &(struct reading){"nod_2", "wifi", 7, 3e7, false});
	assert_true(find(&world, 1, 2).direct);
	link_of(&world, 1, 2)->heard_ms -= 21000; // its node says nothing of it any more
	assert_false(find(&world, 1, 2).direct);
	report(&world, 1, &(struct reading){"nod_2", "wifi", 7, 3e7, false});
	cluster_lose_node(world.cluster, id_of(2), &ends[2].link, "its connection broke");
	assert_false(find(&world, 1, 2).known);
	close_world(&world);
}

static void classes_are_judged_by_what_they_should_do(void **state)
{
	static const struct {
		struct reading reading;
		bool bad;
	} cases[] = {
		{{"nod_2", "ethernet", 9.9, 1.1e8, false}, false}, // a gigabit wire
		{{"nod_2", "ethernet", 10.1, 1.1e8, false}, true},
		{{"nod_2", "ethernet", 1, 1.17e7, false}, true}, // a hundred megabit
		{{"nod_2", "rdma", 0.01, 1e10, false}, false},
		{{"nod_2", "rdma", 0.01, 5e7, false}, true},
		{{"nod_2", "thunderbolt", 11, 1e9, false}, true},
		{{"nod_2", "wifi", 49, 1.3e7, false}, false},
		{{"nod_2", "wifi", 51, 1.3e7, false}, true},
		{{"nod_2", "wifi", 5, 5e6, false}, true},
		{{"nod_2", "cellular", 199, 1e5, false}, false}, // slow is what it is
		{{"nod_2", "cellular", 201, 1e8, false}, true},
		{{"nod_2", "loopback", 11, 1e6, false}, false},
		{{"nod_2", "virtual", 11, 1e9, false}, true},
		{{"nod_2", "process", 11, -1, false}, false}, // a busy machine is no bad link
		{{"nod_2", "peer", 1, 1e6, false}, false},
		{{"nod_2", "relay", 5000, 1, false}, false},
		{{"nod_2", "unknown", 5000, 1, false}, false},
		{{"nod_2", "of another version", 5000, 1, false}, false},
		{{"nod_2", "ethernet", -1, -1, false}, false}, // not measured
	};
	struct world world;
	open_world(&world, *state);
	bring(&world, 3);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		report(&world, 1, &cases[i].reading);
		struct topology_link *link = link_of(&world, 1, 2);
		const bool bad = link->bad > 0;
		if (bad != cases[i].bad)
			fail_msg("%s with %g ms and %g B/s is %s", cases[i].reading.class_name, cases[i].reading.rtt_ms,
				 cases[i].reading.bytes_per_s, bad ? "bad" : "good");
		link->bad = link->good = 0;
		link->counted_ms = 0;
	}
	close_world(&world);
}

static void what_a_slow_link_costs_is_beyond_its_class(void **state)
{
	struct world world;
	open_world(&world, *state);
	bring(&world, 3);
	const struct topology *topology = world.topology;
	expect_near("no link", topology_late_s(topology, "nod_1", "nod_2", false, 4000), 0);
	expect_near("nobody", topology_late_s(topology, "nod_1", "nod_nobody", false, 4000), 0);
	report(&world, 1, &(struct reading){"nod_2", "ethernet", 9, 1.1e8, false});
	expect_near("a good one", topology_late_s(topology, "nod_1", "nod_2", false, 4000), 0);
	report(&world, 1, &(struct reading){"nod_2", "ethernet", 30, 1.1e8, false});
	expect_near("half of 20 ms", topology_late_s(topology, "nod_1", "nod_2", false, 4000), 0.01);
	report(&world, 1, &(struct reading){"nod_2", "ethernet", 30, 4e5, false}); // the least is 0.8 Gbit/s
	expect_near("and its rate", topology_late_s(topology, "nod_1", "nod_2", false, 4000), 0.01 + 0.01 - 4e-5);
	report(&world, 1, &(struct reading){"nod_2", "ethernet", -1, -1, false});
	expect_near("not measured", topology_late_s(topology, "nod_1", "nod_2", false, 4000), 0);
	report(&world, 1, &(struct reading){"nod_2", "ethernet", 30, 4e5, true});
	expect_near("down", topology_late_s(topology, "nod_1", "nod_2", false, 4000), 0);
	report(&world, 2, &(struct reading){"server", "wifi", 60, 1e6, false}); // back at three quarters of it
	expect_near("to the server", topology_late_s(topology, "nod_2", "server", false, 3000), 0.005 + 3e-3 - 3e-4);
	expect_near("from it", topology_late_s(topology, "nod_2", "server", true, 3000), 0.005 + 4e-3 - 3e-4);
	close_world(&world);
}

// One end on a wire, the other on Wi-Fi: the way between them is no wire, in either direction.
static void the_worse_end_is_what_a_way_is(void **state)
{
	const struct reading wired = {"nod_2", "ethernet", 30, 2e7, false},
			     wireless = {"nod_1", "wifi", 30, 2e7, false};
	struct world world;
	open_world(&world, *state);
	bring(&world, 3);
	report(&world, 1, &wired);
	assert_int_equal(link_of(&world, 1, 2)->bad, 1); // nothing else is known yet
	report(&world, 2, &wireless);
	for (int i = 0; i < 8; i++) {
		link_of(&world, 1, 2)->counted_ms = link_of(&world, 2, 1)->counted_ms = 0;
		report(&world, 1, &wired);
		report(&world, 2, &wireless);
	}
	assert_true(link_of(&world, 1, 2)->bad == 0 && !link_of(&world, 1, 2)->degraded);
	assert_true(link_of(&world, 2, 1)->bad == 0 && !link_of(&world, 2, 1)->degraded);
	assert_string_equal(find(&world, 1, 2).link_class, "wifi");
	assert_string_equal(find(&world, 2, 1).link_class, "wifi");
	link_of(&world, 1, 2)->counted_ms = 0;
	report(&world, 1, &(struct reading){"nod_2", "ethernet", 60, 2e7, false});
	assert_int_equal(link_of(&world, 1, 2)->bad, 1); // for Wi-Fi, too
	report(&world, 2, &(struct reading){"nod_1", "unknown", 30, 2e7, false});
	assert_string_equal(find(&world, 2, 1).link_class, "ethernet"); // one end knows
	close_world(&world);
}

static void one_report_is_told_as_one_change(void **state)
{
	struct world world;
	open_world(&world, *state);
	bring(&world, 8);
	for (int round = 0; round < 3; round++) {
		struct json *params = json_new_object(), *links = json_new_array();
		for (int to = 1; to < 8; to++) {
			const struct reading bad = {id_of(to), "ethernet", 40, -1, false};
			if (round)
				link_of(&world, 0, to)->counted_ms = 0; // a second has passed
			json_push(links, record_of(&bad));
		}
		json_set(params, "links", links);
		topology_report(world.topology, id_of(0), params);
		json_destroy(&params);
	}
	int told = 0;
	for (size_t i = 0; i < world.cluster->recent_count; i++)
		if (!strcmp(json_get_string(world.cluster->recent[i], "kind", ""), "link.degraded")) {
			assert_string_equal(json_get_string(world.cluster->recent[i], "summary", ""),
					    "its links to 1 and 6 others are slower than they should be: a round trip "
					    "takes 40 ms; over Ethernet it should take less than 10");
			told++;
		}
	assert_int_equal(told, 1);
	struct json *summary = topology_summary_json(world.topology);
	assert_int_equal(json_get_integer(summary, "degraded", -1), 7);
	assert_int_equal(json_get_integer(summary, "pairs", -1), 28);
	assert_int_equal(json_get_integer(summary, "direct_pairs", -1), 7);
	json_destroy(&summary);
	close_world(&world);
}

static void a_cluster_that_is_too_large_is_bounded(void **state)
{
	enum { NODES = 140 };
	struct world world;
	open_world(&world, *state);
	bring(&world, NODES);
	for (int from = 0; from < NODES; from++) {
		struct json *params = json_new_object(), *links = json_new_array();
		for (int to = 0; to < NODES; to++) {
			const struct reading reading = {id_of(to), "ethernet", 1, 1e9, false};
			json_push(links, record_of(&reading)); // of itself too, which is passed over
		}
		json_set(params, "links", links);
		topology_report(world.topology, id_of(from), params);
		json_destroy(&params);
	}
	assert_true(NODES * (NODES - 1) > LIMIT_CLUSTER_LINKS);
	assert_int_equal(world.topology->link_count, LIMIT_CLUSTER_LINKS);
	struct json *links = topology_links_json(world.topology);
	assert_int_equal(json_count(links), LIMIT_CLUSTER_LINKS);
	json_destroy(&links);
	size_t left = LIMIT_CLUSTER_LINKS;
	for (int event = 0; event < LIMIT_CLUSTER_LINKS / LIMIT_LINKS_TOLD; event++) {
		topology_push(world.topology);
		left = 0;
		for (size_t i = 0; i < world.topology->node_count; i++)
			for (size_t j = 0; j < world.topology->nodes[i]->count; j++)
				left += !world.topology->nodes[i]->links[j].told_ms;
		const size_t told = LIMIT_CLUSTER_LINKS - left, most = (size_t)(event + 1) * LIMIT_LINKS_TOLD;
		if (told != most)
			fail_msg("%zu links were told in %d events, not %zu", told, event + 1, most);
	}
	assert_int_equal(left, 0);
	topology_node_removed(world.topology, id_of(7)); // there is room again
	assert_true(world.topology->link_count < LIMIT_CLUSTER_LINKS);
	close_world(&world);
}

static const struct json *peer_of(int to, int peer)
{
	for (const struct json *one = json_first(json_get(ends[to].peers, "peers")); one; one = json_next(one))
		if (!strcmp(json_get_string(one, "node_id", ""), id_of(peer)))
			return one;
	return NULL;
}

static void expect_addresses(int to, int peer, const char *wanted)
{
	struct buffer text;
	buffer_init(&text, LIMIT_HEAD_BYTES);
	json_print(json_get(peer_of(to, peer), "addresses"), &text);
	assert_string_equal(buffer_text(&text), wanted);
	buffer_finish(&text);
}

static void nodes_are_told_of_each_other(void **state)
{
	struct world world;
	open_world(&world, *state);
	bring(&world, 5);
	support_run_until(world.support->loop, &ends[4].told, 1);
	assert_int_equal(ends[3].told, 0); // takes no links
	assert_int_equal(json_count(json_get(ends[4].peers, "peers")), 3);
	assert_null(peer_of(4, 3));
	expect_addresses(4, 1, "[\"192.0.2.1\",\"10.0.0.1\"]");
	expect_addresses(4, 0, "[\"10.0.0.1\"]");
	expect_addresses(1, 0, "[\"10.0.0.1\",\"::1\",\"127.0.0.1\"]"); // of one machine
	assert_int_equal(json_get_integer(peer_of(4, 1), "port", 0), 7001);
	const int before = ends[4].told;
	cluster_lose_node(world.cluster, id_of(2), &ends[2].link, "its connection broke");
	support_run_until(world.support->loop, &ends[4].told, before + 1);
	assert_int_equal(json_count(json_get(ends[4].peers, "peers")), 2);
	close_world(&world);
}

static void the_last_readings_are_there_after_a_start(void **state)
{
	struct world world;
	open_world(&world, *state);
	bring(&world, 3);
	for (int i = 0; i < 3; i++) {
		report(&world, 1, &(struct reading){"nod_2", "wifi", 60, 3e7, false});
		link_of(&world, 1, 2)->counted_ms = 0;
	}
	report(&world, 2, &(struct reading){"server", "ethernet", 0.5, -1, false});
	const int64_t measured_ms = link_of(&world, 1, 2)->measured_ms;
	close_world(&world);
	open_world(&world, *state);
	const struct topology_link *link = link_of(&world, 1, 2);
	char reason[TOPOLOGY_REASON_BYTES];
	assert_int_equal(topology_state(cluster_find_node(world.cluster, id_of(1))->ways, link, reason), LINK_STALE);
	assert_string_equal(reason, "1 is offline");
	expect_near("its round trip", link->values[LINK_RTT_MS], 60);
	expect_near("its rate", link->values[LINK_THROUGHPUT], 3e7);
	assert_true(link->degraded);
	assert_true(link->measured_ms == measured_ms);
	expect_near("what was not measured", link_of(&world, 2, -1)->values[LINK_THROUGHPUT], -1);
	bring(&world, 3);
	assert_false(find(&world, 1, 2).direct); // not used before it is told anew
	close_world(&world);
}

// ---- devices of one machine ----

static struct json *gpu(const char *name, const char *peer)
{
	static const char passed[] = "{\"state\":\"passed\",\"at\":null,\"duration_ms\":1,\"error\":null}";
	char text[1200];
	struct json *json = NULL;
	struct error error = {0};
	const int length = snprintf(
		text, sizeof text,
		"{\"device_id\":\"dev_%s\",\"hardware_key\":\"uuid:%s\",\"peers\":[\"uuid:%s\"],\"name\":\"%s\","
		"\"vendor\":\"\",\"model\":\"\",\"family\":null,\"backend\":\"cuda\",\"apis\":[],\"kind\":\"discrete\","
		"\"removable\":false,\"low_power\":false,\"unified_memory\":false,\"memory_pool\":\"uuid:%s\","
		"\"memory_bytes\":1,\"memory_budget_bytes\":null,\"largest_buffer_bytes\":null,"
		"\"memory_bandwidth_bytes_per_s\":null,\"compute_units\":null,\"api_version\":null,"
		"\"driver_version\":null,\"formats\":[],\"features\":[],\"uuid\":null,\"pci_address\":null,"
		"\"support\":\"full\",\"support_reason\":null,\"present\":true,\"verification\":%s}",
		name, name, peer, name, name, passed);
	if (json_parse(&json, text, (size_t)length, &error))
		fail_msg("%s", error.message);
	return json;
}

// dev_a and dev_b of the first node, peers of each other, with what it tells of copies from a to b; NULL: nothing.
static void report_pair(struct world *world, const char *speeds)
{
	struct json *devices = json_new_array(), *told = NULL;
	struct error error = {0};
	const int before = done.count;
	json_push(devices, gpu("a", "b"));
	json_push(devices, gpu("b", "a"));
	if (speeds && json_parse(&told, speeds, strlen(speeds), &error))
		fail_msg("%s: %s", speeds, error.message);
	struct json *joined = cluster_join_speeds(devices, told);
	if (cluster_report_devices(world->cluster, id_of(0), joined, on_done, NULL, &error))
		fail_msg("%s", error.message);
	json_destroy(&joined);
	json_destroy(&devices);
	json_destroy(&told);
	support_run_until(world->support->loop, &done.count, before + 1);
	assert_int_equal(done.status, STATUS_OK);
}

// In sentences, as the dashboard numbers them: by PCI address, where it is known.
static void devices_of_one_name_are_numbered(void **state)
{
	static const struct {
		const char *name, *alike, *pci_address, *title;
	} cases[] = {
		{"a", "H200", "0000:1b:00.0", "H200 \u00b7 2"},
		{"b", "H200", "0000:0a:00.0", "H200 \u00b7 1"},
		{"c", "H200", NULL, "H200 \u00b7 0"},
		{"d", "B200", "0000:01:00.0", "B200"},
	};
	enum { DEVICES = sizeof cases / sizeof *cases };
	struct world world;
	struct error error = {0};
	open_world(&world, *state);
	bring(&world, 2);
	for (int node = 0; node < 2; node++) { // the other machine has one
		struct json *devices = json_new_array();
		const int before = done.count;
		for (size_t i = 0; i < (node ? 1 : DEVICES); i++) {
			struct json *device = gpu(node ? "z" : cases[i].name, "none");
			json_set_string(device, "name", cases[i].alike);
			json_set_string(device, "pci_address", cases[i].pci_address);
			json_push(devices, device);
		}
		if (cluster_report_devices(world.cluster, id_of(node), devices, on_done, NULL, &error))
			fail_msg("%s", error.message);
		json_destroy(&devices);
		support_run_until(world.support->loop, &done.count, before + 1);
		assert_int_equal(done.status, STATUS_OK);
	}
	for (size_t i = 0; i <= DEVICES; i++) {
		char title[CLUSTER_TITLE_BYTES], id[16];
		snprintf(id, sizeof id, "dev_%s", i < DEVICES ? cases[i].name : "z");
		cluster_device_title(world.cluster, cluster_find_device(world.cluster, id), title);
		assert_string_equal(title, i < DEVICES ? cases[i].title : "H200");
	}
	close_world(&world);
}

static struct json *peer_told(struct world *world, const char *from_id)
{
	struct json *peers = cluster_peers_json(world->cluster, cluster_find_device(world->cluster, from_id));
	assert_int_equal(json_count(peers), 1);
	struct json *peer = json_copy(json_first(peers));
	json_destroy(&peers);
	return peer;
}

// From a to b: the class, the figure (0: none) and why there is none.
static void expect_pair(struct world *world, const char *class, double bytes_per_s, const char *reason)
{
	struct json *peer = peer_told(world, "dev_a");
	assert_string_equal(json_get_string(peer, "device_id", ""), "dev_b");
	assert_string_equal(json_get_string(peer, "class", ""), class);
	const double told = json_get_number(peer, "bytes_per_s", 0);
	if (told < bytes_per_s || told > bytes_per_s)
		fail_msg("%g is told, not %g", told, bytes_per_s);
	assert_int_equal(json_type(json_get(peer, "bytes_per_s")), bytes_per_s > 0 ? JSON_NUMBER : JSON_NULL);
	assert_int_equal(json_type(json_get(peer, "measured_at")), bytes_per_s > 0 ? JSON_STRING : JSON_NULL);
	assert_string_equal(json_get_string(peer, "reason", ""), reason);
	json_destroy(&peer);
}

#define SPEED(figure, direct, at) \
	"[{\"device_id\":\"dev_a\",\"peers\":[{\"hardware_key\":\"uuid:b\",\"bytes_per_s\":" figure \
	",\"direct\":" direct ",\"measured_at\":" at ",\"reason\":\"it broke\"}]}]"
#define NOON "\"2026-11-20T12:00:00.000Z\""

static void how_fast_devices_copy_is_told_as_far_as_it_can_be(void **state)
{
	static const char *const cannot_be[] = {
		SPEED("-1", "true", NOON),     SPEED("0", "true", NOON),       SPEED("1e300", "true", NOON),
		SPEED("4e11", "true", "null"), SPEED("4e11", "true", "\"x\""), SPEED("-1e300", "false", NOON),
	};
	struct world world;
	open_world(&world, *state);
	bring(&world, 2);
	report_pair(&world, NULL);
	expect_pair(&world, "peer", 0, "its node is of a build that does not measure it");
	report_pair(&world, "[]");
	expect_pair(&world, "peer", 0, "it is not measured yet");
	report_pair(&world, SPEED("null", "false", "null"));
	expect_pair(&world, "peer", 0, "it broke");
	for (size_t i = 0; i < sizeof cannot_be / sizeof *cannot_be; i++) {
		report_pair(&world, SPEED("3e11", "true", NOON)); // what was believed is not kept, either
		report_pair(&world, cannot_be[i]);
		expect_pair(&world, "peer", 0, "its node reports impossible figures");
	}
	// Of devices that are not the node's, or not there, nothing is taken.
	report_pair(&world, "[{\"device_id\":\"dev_z\",\"peers\":[{\"hardware_key\":\"uuid:b\",\"bytes_per_s\":1,"
			    "\"direct\":true,\"measured_at\":" NOON ",\"reason\":null}]},"
			    "{\"device_id\":\"dev_b\",\"peers\":[{\"hardware_key\":\"uuid:z\",\"bytes_per_s\":1,"
			    "\"direct\":true,\"measured_at\":" NOON ",\"reason\":null}]}]");
	expect_pair(&world, "peer", 0, "it is not measured yet");
	struct cluster_pairs pairs = cluster_peer_pairs(world.cluster);
	assert_int_equal(pairs.count, 1);
	expect_near("nothing is measured", pairs.fastest_bytes_per_s, 0);
	report_pair(&world, SPEED("4e11", "true", NOON));
	expect_pair(&world, "peer", 4e11, "");
	pairs = cluster_peer_pairs(world.cluster);
	expect_near("the slowest", pairs.slowest_bytes_per_s, 4e11);
	expect_near("the fastest", pairs.fastest_bytes_per_s, 4e11);
	close_world(&world);
	open_world(&world, *state); // it is stored
	expect_pair(&world, "peer", 4e11, "");
	close_world(&world);
}

static void the_figure_is_of_the_way_that_copies_go(void **state)
{
	struct world world;
	open_world(&world, *state);
	bring(&world, 2);
	report_pair(&world, SPEED("4e11", "true", NOON));
	cluster_copied(world.cluster, "dev_a", "dev_b", false);
	expect_pair(&world, "staged", 0, "it was measured while copies went directly");
	report_pair(&world, SPEED("2e10", "false", NOON));
	expect_pair(&world, "staged", 2e10, "");
	assert_int_equal(cluster_peer_pairs(world.cluster).count, 0);
	cluster_copied(world.cluster, "dev_a", "dev_b", true);
	expect_pair(&world, "peer", 0, "it was measured while copies went through host memory");
	assert_int_equal(cluster_peer_pairs(world.cluster).count, 1);
	close_world(&world);
	open_world(&world, *state); // no copy has shown anything since: what was measured is what is known
	bring(&world, 2);
	expect_pair(&world, "staged", 2e10, "");
	assert_false(cluster_copies(cluster_find_device(world.cluster, "dev_a"),
				    cluster_find_device(world.cluster, "dev_b")));
	cluster_copied(world.cluster, "dev_a", "dev_b", true);
	expect_pair(&world, "peer", 0, "it was measured while copies went through host memory");
	close_world(&world);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_placement_finds_the_shortest_way),
		TEST(classes_are_judged_by_what_they_should_do),
		TEST(what_a_slow_link_costs_is_beyond_its_class),
		TEST(the_worse_end_is_what_a_way_is),
		TEST(one_report_is_told_as_one_change),
		TEST(a_cluster_that_is_too_large_is_bounded),
		TEST(nodes_are_told_of_each_other),
		TEST(the_last_readings_are_there_after_a_start),
		TEST(devices_of_one_name_are_numbered),
		TEST(how_fast_devices_copy_is_told_as_far_as_it_can_be),
		TEST(the_figure_is_of_the_way_that_copies_go),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
