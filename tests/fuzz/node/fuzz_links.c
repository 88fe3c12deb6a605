/* Fuzz target: what is said of links between nodes: node.links at the server, from one of three nodes, and node.peers
 * at a node; and what passes there of model files: model.piece, and who has what (model.fetch's peers).
 *
 * Each line is a message; its first byte says whom it is for: `0` to `2`: that node tells the server; `p`: a node tells
 * the other; anything else: the server tells the node. What is kept stays bounded and can be told again, in the form of
 * the contract. Nobody is dialled: the loop does not run. */
#include "common/base/log.h"
#include "common/wire/contract.h"
#include "common/wire/message.h"
#include "engine/node/links/links_inside.h"
#include "engine/node/models/models_peers.h"
#include "server/cluster/topology/topology.h"
#include "tests/fuzz/node/certificates.h"

#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES = 64, NODES = 3, INPUT_BYTES = 65536 };

static struct {
	struct net_loop *loop;
	struct contract *contract, *api;
	struct store *store;
	struct audit *audit;
	struct events *events;
	struct cluster *cluster;
	struct topology *topology;
	struct links *links;
	struct made authority, ours;
	struct cluster_link nodes[NODES];
	unsigned registered;
} world;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *id_of(int i)
{
	static const char *const ids[NODES] = {"nod_0", "nod_1", "nod_2"};
	return ids[i];
}

static void tell_node(struct cluster_link *link, const char *method, struct json *params)
{
	(void)link;
	require(!contract_check_params(world.contract, contract_find(world.contract, method), params, NULL));
	json_destroy(&params);
}

static void tell_server(void *arg, struct json *params)
{
	(void)arg;
	require(!contract_check_params(world.contract, contract_find(world.contract, "node.links"), params, NULL));
	json_destroy(&params);
}

static void give(void *arg, struct link_request *request)
{
	struct error error = {0};
	(void)arg;
	require(request->bytes && request->bytes <= LIMIT_LINK_READ_BYTES && request->offset < (uint64_t)1 << 53);
	require(strlen(request->model_id) < sizeof request->model_id);
	error_set(&error, STATUS_NOT_FOUND, "it is not here");
	link_request_answer(&request, NULL, &error);
}

static void on_registered(void *context, enum status status, const struct error *error)
{
	(void)context, (void)error;
	require(!status);
	world.registered++;
	net_loop_stop(world.loop);
}

static void register_node(int i)
{
	static const char form[] =
		"{\"node_id\":\"%s\",\"name\":\"%s\",\"os\":null,\"kernel\":null,\"arch\":null,\"cpu_model\":null,"
		"\"cpu_cores\":null,\"cpu_threads\":null,\"memory_bytes\":null,\"backends\":[],\"libraries\":[],"
		"\"capabilities\":[],\"version\":\"0.1.0\",\"host_name\":\"here\",\"link_port\":%d,"
		"\"addresses\":[\"10.0.0.%d\"]}";
	char text[1024];
	struct json *record = NULL;
	int length = snprintf(text, sizeof text, form, id_of(i), id_of(i), 7000 + i, i + 1);
	world.nodes[i] = (struct cluster_link){.tell = tell_node};
	snprintf(world.nodes[i].actor.peer, sizeof world.nodes[i].actor.peer, i ? "192.0.2.%d" : "unix", i);
	require(json_parse(&record, text, (size_t)length, NULL) == STATUS_OK);
	require(cluster_register_node(world.cluster, record, i == 0, &world.nodes[i], on_registered, NULL, NULL) ==
		STATUS_OK);
	json_destroy(&record);
}

static char directory[] = "/tmp/exogpu-fuzz-XXXXXX"; // of the store; goes with the process

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
	(void)info, (void)kind, (void)where;
	return remove(path);
}

static void remove_directory(void)
{
	nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void begin_once(void)
{
	static struct credentials credentials = {.joined = true}; // outlives the links
	if (world.loop)
		return;
	log_set_level(LOG_ERROR);
	require(mkdtemp(directory) && !atexit(remove_directory) && net_loop_create(&world.loop, NULL) == STATUS_OK);
	require(!contract_create(&world.contract, CONTRACT_NODE, NULL) &&
		!contract_create(&world.api, CONTRACT_API, NULL));
	const struct store_params store = {.loop = world.loop, .directory = directory};
	require(store_create(&world.store, &store, NULL) == STATUS_OK);
	const struct audit_params audit = {.loop = world.loop, .store = world.store};
	require(!audit_create(&world.audit, &audit, NULL) && !events_create(&world.events, world.api, NULL, NULL));
	const struct cluster_params cluster = {
		.loop = world.loop, .store = world.store, .audit = world.audit, .events = world.events};
	require(cluster_create(&world.cluster, &cluster, NULL) == STATUS_OK);
	const struct topology_params topology = {
		.loop = world.loop, .store = world.store, .events = world.events, .cluster = world.cluster};
	require(topology_create(&world.topology, &topology, NULL) == STATUS_OK);
	for (int i = 0; i < NODES; i++)
		register_node(i);
	while (world.registered < NODES)
		net_loop_run(world.loop);
	world.authority = make(NULL, NULL);
	world.ours = make(&world.authority, "URI:exogpu:node:nod_1");
	credentials.chain_pem = world.ours.pem;
	credentials.key_pem = world.ours.key_pem;
	credentials.authority_pem = world.authority.pem;
	const struct links_params links = {.loop = world.loop,
					   .contract = world.contract,
					   .credentials = &credentials,
					   .node_id = "nod_1",
					   .tell = tell_server,
					   .read_model = give};
	require(links_create(&world.links, &links, NULL) == STATUS_OK);
}

static void check_told(void)
{
	struct buffer text;
	struct json *links = topology_links_json(world.topology), *summary = topology_summary_json(world.topology),
		    *again = NULL;
	require(links && summary && json_count(links) <= NODES * NODES);
	buffer_init(&text, LIMIT_BODY_BYTES);
	require(!json_print(links, &text) && !json_parse(&again, buffer_text(&text), text.length, NULL));
	json_destroy(&again);
	buffer_clear(&text);
	require(!json_print(summary, &text) && !json_parse(&again, buffer_text(&text), text.length, NULL));
	json_destroy(&again);
	json_destroy(&links);
	json_destroy(&summary);
	buffer_finish(&text);
	for (int i = 0; i < NODES * NODES; i++) {
		struct topology_reading one;
		topology_find(world.topology, id_of(i / NODES), id_of(i % NODES), &one);
		require(one.link_class && !isnan(one.rtt_ms) && !isnan(one.throughput_bytes_per_s));
		require(i / NODES != i % NODES || (one.known && one.rtt_ms == 0));
	}
}

static void tell_other(const struct message *message)
{
	struct link_conn conn = {.links = world.links, .link = links_find(world.links, id_of(0))};
	struct error error = {0};
	if (conn.link && message->method && !strcmp(message->method, "model.piece") &&
	    !contract_check_params(world.contract, contract_find(world.contract, "model.piece"), message->params, NULL))
		link_serve_piece(&conn, message, &error);
}

// None of them has a link that is up: nobody can be asked, whatever is said of them.
static void hear_holders(const struct json *params)
{
	struct model_peer_piece piece = {.at = {.offset = 1, .bytes = 4096}};
	struct model_peers *peers = model_peers_create(world.links, "mdl_1", json_get(params, "peers"));
	model_peers_have(peers, &piece.at);
	require(!peers || !model_peers_ask(peers, &piece));
	model_peers_destroy(&peers);
}

static void hear(const char *line, size_t length)
{
	struct message message;
	const bool at_server = line[0] >= '0' && line[0] < '0' + NODES;
	const char *wanted = at_server ? "node.links" : "node.peers";
	enum status status = message_decode_text(&message, line + 1, length - 1, NULL);
	if (!status && message.kind == MESSAGE_NOTIFICATION && !strcmp(message.method, wanted) &&
	    !contract_check_params(world.contract, contract_find(world.contract, wanted), message.params, NULL)) {
		if (at_server)
			topology_report(world.topology, id_of(line[0] - '0'), message.params);
		else
			links_set_peers(world.links, message.params);
	} else if (!status && line[0] == 'p') {
		tell_other(&message);
	} else if (!status && message.kind == MESSAGE_REQUEST && !strcmp(message.method, "model.fetch") &&
		   !contract_check_params(world.contract, contract_find(world.contract, "model.fetch"), message.params,
					  NULL)) {
		hear_holders(message.params);
	}
	message_finish(&message);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct json *none = json_new_object();
	if (size > INPUT_BYTES)
		size = INPUT_BYTES;
	begin_once();
	for (size_t at = 0, lines = 0; at < size && lines < LINES; lines++) {
		const uint8_t *end = memchr(data + at, '\n', size - at);
		const size_t length = end ? (size_t)(end - data) - at : size - at;
		if (length)
			hear((const char *)data + at, length);
		at += length + 1;
	}
	check_told();
	json_set(none, "peers", json_new_array());
	links_set_peers(world.links, none);
	json_destroy(&none);
	net_loop_run_posts(world.loop);
	return 0;
}
