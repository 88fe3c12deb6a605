/* See app.c, which says what there is and in which order. Here stands what each part is given of the others. */
#include "common/base/clock.h"
#include "server/app_inside.h"
#include "server/conversations/conversations.h"

#include <math.h>
#include <openssl/crypto.h>
#include <string.h>

// The loop tells nodes when somebody begins to watch, and when the last one leaves.
static void watched_changed(void *context, bool watched)
{
	struct app *app = context;
	app->watched = watched;
	if (app->nodes)
		node_links_watch(app->nodes, app->watched || app->hurries);
}

// The same while a request waits for the joules that it used.
static void hurry(void *context, bool wanted)
{
	struct app *app = context;
	app->hurries = wanted;
	if (app->nodes)
		node_links_watch(app->nodes, app->watched || app->hurries);
}

static enum status create_authority(struct app *app, struct error *error)
{
	struct authority_params params = {.loop = app->loop,
					  .store = app->store,
					  .audit = app->audit,
					  .directory = app->options.data,
					  .cluster_id = app->identity.cluster_id,
					  .cluster_name = app->identity.cluster_name,
					  .cert_file = app->options.tls_cert,
					  .key_file = app->options.tls_key,
					  .names = app->options.tls_names};
	enum status status = authority_create(&app->authority, &params, error);
	if (!status && app->options.tls)
		status = net_tls_create(&app->tls, app->loop, authority_pem(app->authority), error);
	if (!status && app->tls)
		status = authority_show(app->authority, app->tls, error);
	return status;
}

static void publish_entry(void *context, struct json *entry)
{
	struct app *app = context;
	if (app->events)
		events_publish(app->events, TOPIC_AUDIT, 0, entry);
	else
		json_destroy(&entry);
}

// The start, for the audit log: where the server listens, under which name, with which limits of the operator's.
static void print_start(const struct app *app, struct buffer *detail)
{
	struct json *json = json_new_object();
	json_set_string(json, "version", EXOGPU_VERSION);
	json_set_string(json, "name", app->identity.cluster_name);
	json_set_string(json, "address", app->options.address);
	json_set_bool(json, "tls", app->options.tls);
	if (app->options.limit_settings)
		json_set_string(json, "limits", app->options.limit_settings);
	json_print(json, detail);
	json_destroy(&json);
}

// The first entry waits for the disk: a server that cannot write its log does not start.
static enum status create_audit(struct app *app, struct error *error)
{
	struct store_batch *batch = NULL;
	const struct audit_params params = {
		.loop = app->loop, .store = app->store, .publish = publish_entry, .context = app};
	struct buffer detail;
	buffer_init(&detail, ENTRY_TEXT_BYTES);
	print_start(app, &detail);
	const struct audit_event event = {
		.action = "server.start", .target = app->identity.cluster_id, .detail = buffer_text(&detail)};
	enum status status = limits_create(&app->limits, &app->options.limits, error);
	if (!status)
		status = audit_create(&app->audit, &params, error);
	if (!status && (store_batch_create(&batch) || audit_put(app->audit, batch, &event))) {
		store_batch_destroy(&batch);
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory for an entry of the audit log");
	}
	if (!status)
		status = store_commit_wait(app->store, &batch, error);
	buffer_finish(&detail);
	return status;
}

static enum status create_alerts(struct app *app, struct error *error)
{
	const struct channels_params channels = {.loop = app->loop,
						 .store = app->store,
						 .audit = app->audit,
						 .hosts = app->options.alert_hosts,
						 .cluster_id = app->identity.cluster_id,
						 .cluster_name = app->identity.cluster_name};
	enum status status = channels_create(&app->channels, &channels, error);
	const struct alerts_params alerts = {app->store, app->events, app->audit, app->channels};
	return status ? status : alerts_create(&app->alerts, &alerts, error);
}

static enum status create_traces(struct app *app, struct error *error)
{
	const struct traces_params params = {
		.loop = app->loop, .settings = &app->options.traces, .instance_id = app->identity.cluster_id};
	const enum status status = traces_create(&app->traces, &params, error);
	if (!status && app->traces)
		log_info("traces", "traces of requests are sent to %s", app->options.traces.origin);
	return status;
}

static enum status create_conversations(struct app *app, struct error *error)
{
	const struct conversations_params params = {.loop = app->loop,
						    .store = app->store,
						    .tokens = app->tokens,
						    .limits = app->limits,
						    .directory = app->options.data,
						    .shared = app->turn != NULL};
	return conversations_create(&app->conversations, &params, error);
}

enum status app_create_state(struct app *app, struct error *error)
{
	char token[TOKEN_TEXT_BYTES];
	const int64_t *limits = app->options.limits.values;
	struct store_params store = {.loop = app->loop,
				     .directory = app->options.data,
				     .url = app->options.store,
				     .turn = app->turn ? turn_number(app->turn) : 0,
				     .share_key = app->turn ? secrets_share_key : NULL,
				     .forget_key = app->turn ? secrets_forget_key : NULL,
				     .key_context = app->secrets,
				     .accept_unsigned = app->options.accept_unsigned,
				     .audit_segment_entries = limits[LIMIT_AUDIT_SEGMENT_ENTRIES_ID],
				     .audit_segment_bytes = limits[LIMIT_AUDIT_SEGMENT_BYTES_ID],
				     .audit_segment_days = limits[LIMIT_AUDIT_SEGMENT_DAYS_ID],
				     .audit_keep_days = limits[LIMIT_AUDIT_KEEP_DAYS_ID]};
	enum status status = store_create(&app->store, &store, error);
	if (!status)
		status = identity_load(&app->identity, app->store, app->options.name, error);
	if (!status)
		status = create_audit(app, error);
	if (!status)
		status = contract_create(&app->api_contract, CONTRACT_API, error);
	if (!status)
		status = contract_create(&app->node_contract, CONTRACT_NODE, error);
	if (!status)
		status = tokens_create(&app->tokens, app->store, app->audit, error);
	if (!status)
		status = tokens_ensure_admin_file(app->tokens, app->token_path, token, error);
	OPENSSL_cleanse(token, sizeof token);
	if (!status)
		status = create_authority(app, error);
	if (!status)
		status = events_create(&app->events, app->api_contract, watched_changed, app);
	if (!status)
		status = create_alerts(app, error);
	if (!status)
		status = create_traces(app, error);
	if (!status)
		status = usage_create(&app->usage, &(struct usage_params){app->loop, app->store}, error);
	if (!status)
		status = create_conversations(app, error);
	if (!status && app->secrets)
		status = secrets_share(app->secrets, error);
	if (!status)
		status = log_lines_create(&app->log_lines, app->events);
	return status;
}

static bool works(void *context, const struct cluster_device *device)
{
	const struct app *app = context;
	return tenancy_works_on(app->tenants, device) || instances_work_on(app->instances, device);
}

enum { IN_USE_PERCENT = 5 };

static void device_read(void *context, const struct cluster_device *device, const struct json *telemetry)
{
	const struct app *app = context;
	const char *source = json_get_string(telemetry, "energy_source", "");
	usage_read(app->usage,
		   &(struct energy_reading){.device_id = cluster_device_id(device),
					    .device_name = cluster_device_name(device),
					    .now_ms = clock_steady_ms(),
					    .joules = json_get_number(telemetry, "energy_joules", NAN),
					    .source = !strcmp(source, "counter")      ? STORE_ENERGY_COUNTER
						      : !strcmp(source, "integrated") ? STORE_ENERGY_INTEGRATED
										      : STORE_ENERGY_NONE,
					    .computes = instances_compute_on(app->instances, device),
					    .in_use = json_get_number(telemetry, "utilization_percent", 0) >=
						      IN_USE_PERCENT});
}

// Nodes, links, models, sessions and instances.
enum status app_create_cluster(struct app *app, struct error *error)
{
	const struct cluster_params cluster = {
		.loop = app->loop, .store = app->store, .audit = app->audit, .events = app->events};
	enum status status = cluster_create(&app->cluster, &cluster, error);
	if (!status) {
		struct topology_params params = {.loop = app->loop,
						 .store = app->store,
						 .events = app->events,
						 .cluster = app->cluster,
						 .address = app->options.tls ? app->options.address : NULL};
		status = topology_create(&app->topology, &params, error);
	}
	if (!status) {
		struct models_params params = {.loop = app->loop,
					       .store = app->store,
					       .audit = app->audit,
					       .events = app->events,
					       .directory = app->options.data,
					       .directories = app->options.model_dirs,
					       .hub_url = app->options.hub_url,
					       .ollama_url = app->options.ollama_url};
		status = models_create(&app->models, &params, error);
	}
	if (!status)
		status = catalog_create(&app->catalog, app->options.catalog, error);
	if (!status) {
		struct tenancy_params params = {.loop = app->loop,
						.contract = app->node_contract,
						.cluster = app->cluster,
						.topology = app->topology,
						.events = app->events,
						.audit = app->audit,
						.limits = app->limits,
						.directory = app->options.data};
		status = tenancy_create(&app->tenants, &params, error);
	}
	if (!status) {
		struct instances_params params = {.loop = app->loop,
						  .contract = app->node_contract,
						  .api_contract = app->api_contract,
						  .topology = app->topology,
						  .cluster = app->cluster,
						  .tenants = app->tenants,
						  .models = app->models,
						  .store = app->store,
						  .events = app->events,
						  .audit = app->audit,
						  .usage = app->usage,
						  .placement_timeout_s = app->options.placement_timeout_s,
						  .headroom = app->options.headroom,
						  .give_way_ms = (int64_t)(app->options.give_way_s * 1000),
						  .pause_ms = app->options.limits.values[LIMIT_PAUSE_MS_ID],
						  .line_tokens = app->options.limits.values[LIMIT_LINE_TOKENS_ID],
						  .tokens_per_minute = app->options.tokens_per_minute,
						  .take_better = app->options.take_better,
						  .speculate = app->options.speculate};
		status = instances_create(&app->instances, &params, error);
		models_watch_room(app->models, instances_look_room, app->instances);
		cluster_ask_work(app->cluster, works, app);
		cluster_listen_readings(app->cluster, device_read, app);
		usage_listen(app->usage, hurry, app);
	}
	return status;
}

enum status app_create_joins(struct app *app, struct error *error)
{
	struct joins_params params = {.loop = app->loop,
				      .store = app->store,
				      .contract = app->node_contract,
				      .cluster = app->cluster,
				      .authority = app->authority,
				      .audit = app->audit,
				      .limits = app->limits};
	enum status status = tickets_create(&app->tickets, app->store, app->audit, authority_sha256(app->authority),
					    error);
	if (!status)
		status = lends_create(&app->lends, app->store, app->audit, error);
	params.tickets = app->tickets;
	params.lends = app->lends;
	return status ? status : joins_create(&app->joins, &params, error);
}

static bool waits(void *context, const char *node_id)
{
	return joins_waits(context, node_id);
}

enum status app_create_discovery(struct app *app, struct error *error)
{
	const struct discovery_params params = {.loop = app->loop,
						.events = app->events,
						.cluster = app->cluster,
						.cluster_id = app->identity.cluster_id,
						.cluster_name = app->identity.cluster_name,
						.authority_sha256 = authority_sha256(app->authority),
						.listening = app->options.tls,
						.waits = waits,
						.context = app->joins};
	return discovery_create(&app->discovery, &params, error);
}

enum status app_create_doors(struct app *app, struct error *error)
{
	struct api_params api = {.loop = app->loop,
				 .contract = app->api_contract,
				 .load_on_demand = app->options.load_on_demand,
				 .store = app->store,
				 .tokens = app->tokens,
				 .audit = app->audit,
				 .limits = app->limits,
				 .events = app->events,
				 .log_lines = app->log_lines,
				 .cluster = app->cluster,
				 .topology = app->topology,
				 .models = app->models,
				 .catalog = app->catalog,
				 .instances = app->instances,
				 .tenants = app->tenants,
				 .joins = app->joins,
				 .tickets = app->tickets,
				 .lends = app->lends,
				 .discovery = app->discovery,
				 .witnesses = app->witnesses,
				 .alerts = app->alerts,
				 .watch = app->watch,
				 .usage = app->usage,
				 .conversations = app->conversations,
				 .channels = app->channels,
				 .authority = app->authority,
				 .turn = app->turn,
				 .tls = app->options.tls,
				 .name = app->identity.cluster_name,
				 .cluster_id = app->identity.cluster_id,
				 .schema_sha256 = app->identity.schema_sha256,
				 .started_ms = app->started_ms};
	struct node_links_params nodes = {.loop = app->loop,
					  .contract = app->node_contract,
					  .cluster = app->cluster,
					  .audit = app->audit,
					  .events = app->events,
					  .log_lines = app->log_lines,
					  .topology = app->topology,
					  .tenants = app->tenants,
					  .instances = app->instances,
					  .joins = app->joins,
					  .witnesses = app->witnesses,
					  .turn = app->turn,
					  .address = app->options.tls ? app->options.address : NULL};
	uint8_t passed_key[NET_PASS_KEY_BYTES];
	enum status status = app->secrets ? secrets_pass_key(app->secrets, passed_key, error) : STATUS_OK;
	if (!status)
		status = api_create(&app->api, &api, error);
	if (!status)
		status = node_links_create(&app->nodes, &nodes);
	struct http_params http = {.loop = app->loop,
				   .api = app->api,
				   .nodes = app->nodes,
				   .joins = app->joins,
				   .lends = app->lends,
				   .contract = app->node_contract,
				   .tokens = app->tokens,
				   .events = app->events,
				   .cluster = app->cluster,
				   .topology = app->topology,
				   .alerts = app->alerts,
				   .usage = app->usage,
				   .channels = app->channels,
				   .tenants = app->tenants,
				   .models = app->models,
				   .instances = app->instances,
				   .audit = app->audit,
				   .traces = app->traces,
				   .store = app->store,
				   .limits = app->limits,
				   .authority = app->authority,
				   .turn = app->turn,
				   .passed_key = app->secrets ? passed_key : NULL,
				   .tls = app->tls,
				   .cors_origins = app->options.cors_origins,
				   .load_on_demand = app->options.load_on_demand,
				   .address = app->options.address,
				   .port = app->options.port,
				   .socket_path = app->socket_path,
				   .ollama_token = app->options.ollama_token,
				   .ollama_address = app->options.ollama_address,
				   .ollama_port = app->options.ollama_port,
				   .started_ms = app->started_ms};
	if (!status)
		status = http_create(&app->http, &http, error);
	OPENSSL_cleanse(passed_key, sizeof passed_key);
	if (!status)
		api_set_url(app->api, http_url(app->http));
	return status;
}
