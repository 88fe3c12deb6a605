/* The server of the simulation: its real parts, made as server/app_parts.c makes them, without doors, and with a
 * library that is filled in: small files, whose layers are said to be large. It stops, is killed and starts again. */
#pragma once
#include "common/base/keyed_hash.h"
#include "tests/server/instances/whole/nodes.h"
#include "tests/tools/model_file.h"

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

void __wrap_joins_set_cut(struct joins *joins, void (*cut)(void *context, const char *node_id, const char *reason),
			  void *context);
void __wrap_witnesses_node_came(struct witnesses *witnesses, const char *node_id);

// Who may join is decided elsewhere: these nodes have.
void __wrap_joins_set_cut(struct joins *joins, void (*cut)(void *context, const char *node_id, const char *reason),
			  void *context)
{
	(void)joins, (void)cut, (void)context;
}

void __wrap_witnesses_node_came(struct witnesses *witnesses, const char *node_id)
{
	(void)witnesses, (void)node_id;
}

// ---- models ----

static struct {
	char directory[64], paths[MODELS][96];
	struct stat files[MODELS];
} library;

static void library_make(void)
{
	snprintf(library.directory, sizeof library.directory, "%s/exogpu-whole-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	if (!mkdtemp(library.directory))
		abort();
	for (unsigned i = 0; i < MODELS; i++) {
		struct model_file file = model_file_small();
		file.layers = model_layers[i];
		snprintf(library.paths[i], sizeof library.paths[i], "%s/m_%u.gguf", library.directory, i);
		if (!model_file_save(&file, library.paths[i]) || stat(library.paths[i], &library.files[i]))
			abort();
	}
}

static struct model *model_create(unsigned number)
{
	struct model *model = calloc(1, sizeof *model);
	struct model_record *record = &model->record;
	const struct stat *file = &library.files[number];
	const unsigned layers = model_layers[number];
	if (!model)
		abort();
	model->saved = true;
	model->bytes_per_s = -1;
	model->modified_ns = (int64_t)file->st_mtim.tv_sec * 1000000000 + file->st_mtim.tv_nsec;
	snprintf(record->model_id, sizeof record->model_id, "mod_%u", number);
	snprintf(record->name, sizeof record->name, "model-%u", number);
	snprintf(record->source, sizeof record->source, "%s", library.paths[number]);
	snprintf(record->path, sizeof record->path, "%s", library.paths[number]);
	snprintf(record->file_format, sizeof record->file_format, "Q4_0");
	sampling_say_nothing(&record->sampling);
	record->state = MODEL_READY;
	record->added_ms = 1;
	record->file_bytes = (uint64_t)file->st_size;
	record->shape = (struct model_shape){.family = FAMILY_LLAMA,
					     .layers = layers,
					     .embedding = 4096,
					     .feed_forward = 14336,
					     .heads = 32,
					     .kv_heads = 8,
					     .head_size = 128,
					     .vocabulary = 32000,
					     .context = 1024,
					     .rope_size = 128};
	record->sizes = (struct model_sizes){.parameters = 1000000000,
					     .embedding_bytes = ENDS_BYTES,
					     .output_bytes = ENDS_BYTES,
					     .layer_bytes = LAYER_BYTES,
					     .layers_bytes = LAYER_BYTES * layers,
					     .main_format = FORMAT_Q4_0};
	record->sizes.format_bytes[FORMAT_Q4_0] = LAYER_BYTES * layers + 2 * ENDS_BYTES;
	return model;
}

static void models_make(void)
{
	server.models = calloc(1, sizeof *server.models);
	if (!server.models)
		abort();
	server.models->params = (struct models_params){
		.loop = server.loop, .store = server.store, .events = server.events};
	for (unsigned i = 0; i < MODELS; i++)
		server.models->all[server.models->count++] = model_create(i);
}

static void models_drop_all(void)
{
	for (size_t i = 0; i < server.models->count; i++) {
		if (server.models->all[i]->record.holds)
			broken("models are let go with their instances", "%s is held",
			       server.models->all[i]->record.name);
		free(server.models->all[i]);
	}
	free(server.models);
	server.models = NULL;
}

// ---- starting ----

static bool server_works_on(void *context, const struct cluster_device *device)
{
	(void)context;
	return tenancy_works_on(server.tenants, device) || instances_work_on(server.instances, device);
}

static void server_starts(void)
{
	struct error error = {0};
	virtual.disk_gone = false;
	server.placing = 0;
	must(store_create(&server.store, &(struct store_params){.loop = server.loop, .directory = server.directory},
			  &error),
	     "store_create", &error);
	must(audit_create(&server.audit, &(struct audit_params){.loop = server.loop, .store = server.store}, &error),
	     "audit_create", &error);
	must(events_create(&server.events, server.api_contract, NULL, NULL), "events_create", NULL);
	must(usage_create(&server.usage, &(struct usage_params){server.loop, server.store}, &error), "usage_create",
	     &error);
	const struct cluster_params cluster = {
		.loop = server.loop, .store = server.store, .audit = server.audit, .events = server.events};
	must(cluster_create(&server.cluster, &cluster, &error), "cluster_create", &error);
	const struct topology_params topology = {
		.loop = server.loop, .store = server.store, .events = server.events, .cluster = server.cluster};
	must(topology_create(&server.topology, &topology, &error), "topology_create", &error);
	models_make();
	const struct tenancy_params tenants = {.loop = server.loop,
					       .contract = server.node_contract,
					       .cluster = server.cluster,
					       .topology = server.topology,
					       .events = server.events,
					       .audit = server.audit,
					       .directory = server.directory};
	must(tenancy_create(&server.tenants, &tenants, &error), "tenancy_create", &error);
	const struct instances_params instances = {.loop = server.loop,
						   .contract = server.node_contract,
						   .api_contract = server.api_contract,
						   .topology = server.topology,
						   .cluster = server.cluster,
						   .tenants = server.tenants,
						   .models = server.models,
						   .store = server.store,
						   .events = server.events,
						   .audit = server.audit,
						   .usage = server.usage,
						   .placement_timeout_s = 5,
						   .headroom = -1,
						   .give_way_ms = world.evicts ? 5000 : -1,
						   .pause_ms = LIMIT_PAUSE_MS,
						   .line_tokens = 1000000};
	must(instances_create(&server.instances, &instances, &error), "instances_create", &error);
	cluster_ask_work(server.cluster, server_works_on, NULL);
	const struct node_links_params links = {.loop = server.loop,
						.contract = server.node_contract,
						.cluster = server.cluster,
						.audit = server.audit,
						.events = server.events,
						.topology = server.topology,
						.tenants = server.tenants,
						.instances = server.instances};
	must(node_links_create(&server.links, &links), "node_links_create", NULL);
	server.there = true;
	TRACE("the server starts");
}

// ---- ending ----

static void server_destroy(void)
{
	server.there = false;
	node_links_destroy(&server.links);
	instances_destroy(&server.instances);
	tenancy_destroy(&server.tenants);
	wire_forget();
	models_drop_all();
	topology_destroy(&server.topology);
	cluster_destroy(&server.cluster);
	usage_destroy(&server.usage);
	events_destroy(&server.events);
	audit_destroy(&server.audit);
	while (virtual.commit_count) // what was handed over last; whoever would be told is gone
		run_commit(false);
	store_destroy(&server.store);
}

// Everything stops in the middle: nothing of it reaches a node or the disk any more, but commits that are under way
// may.
static void server_killed(void)
{
	TRACE("the server is killed");
	world.kills++;
	server.there = false;
	wire_dies();
	kill_commits(draw(virtual.commit_count + 1));
	server_destroy();
}

// As app.c stops: instances first, whose workers stay where the next server can adopt them.
static void server_stopped(void)
{
	TRACE("the server stops");
	world.stops++;
	instances_shut_down(server.instances);
	node_links_shut_down(server.links);
	const int64_t until_ms = virtual.now_ms + 200;
	const unsigned long kills = world.kills;
	while (world.kills == kills && virtual_step(until_ms))
		continue;
	if (world.kills != kills) // while it was stopping
		return;
	while (virtual.commit_count)
		run_commit(true);
	server_destroy();
	wire_dies();
}

// ---- the process ----

static int remove_path(const char *path, const struct stat *status, int kind, struct FTW *ftw)
{
	(void)status, (void)kind, (void)ftw;
	return remove(path);
}

static void directory_remove(const char *directory)
{
	nftw(directory, remove_path, 16, FTW_DEPTH | FTW_PHYS);
}

static void process_begins(void)
{
	struct error error = {0};
	virtual_begin(NULL, 0);
	keyed_hash("", 0); // whose key is drawn once for each process: it is to be the same in all
	virtual_end();
	library_make();
	must(net_loop_create(&server.loop, &error), "net_loop_create", &error);
	must(contract_create(&server.node_contract, CONTRACT_NODE, &error), "the contract", &error);
	must(contract_create(&server.api_contract, CONTRACT_API, &error), "the contract", &error);
}

static void process_ends(void)
{
	contract_destroy(&server.node_contract);
	contract_destroy(&server.api_contract);
	net_loop_destroy(&server.loop);
	directory_remove(library.directory);
}
