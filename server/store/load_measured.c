/* Reads from state.db, at the start, what was measured and what is told of it: links, layers, alerts, usage, channels.
 */
#include "server/store/load.h"

#include <math.h>

static double measured(struct db_statement *row, int column)
{
	return db_type(row, column) == DB_NULL ? -1 : db_real(row, column);
}

static void link_row(struct db_statement *row, const struct load *load)
{
	const struct store_link link = {
		.from_node_id = db_text(row, 0),
		.to_node_id = db_text(row, 1),
		.class_name = db_text(row, 2),
		.interface = db_text(row, 3),
		.address = db_text(row, 4),
		.interface_bits_per_s = measured(row, 5),
		.rtt_ms = measured(row, 6),
		.jitter_ms = measured(row, 7),
		.loss_percent = measured(row, 8),
		.throughput_bytes_per_s = measured(row, 9),
		.throughput_ms = db_integer(row, 10),
		.measured_ms = db_integer(row, 11),
		.degraded = db_text(row, 12),
	};
	load->call.link(load->context, &link);
}

enum status store_load_links(struct store *store, void (*row)(void *context, const struct store_link *link),
			     void *context, struct error *error)
{
	const struct load load = {
		.sql = "SELECT from_node_id, to_node_id, class, interface, address, interface_bits_per_s, rtt_ms, "
		       "jitter_ms, loss_percent, throughput_bytes_per_s, throughput_ms, measured_ms, degraded FROM "
		       "links",
		.row = link_row,
		.call.link = row,
		.context = context,
	};
	return load_rows(store, &load, error);
}

static void layer_time_row(struct db_statement *row, const struct load *load)
{
	struct store_layer_time time = {
		.device_id = db_text(row, 0),
		.format = db_text(row, 1),
		.layer_bytes = db_integer(row, 2),
		.layer_s = db_real(row, 3),
		.output_bytes = db_integer(row, 4),
		.output_s = measured(row, 5),
		.prompt_s = measured(row, 6),
		.measured_ms = db_integer(row, 7 + STORE_BATCHES),
		.spread = measured(row, 8 + STORE_BATCHES),
	};
	for (int i = 0; i < STORE_BATCHES; i++)
		time.batch[i] = measured(row, 7 + i);
	load->call.layer_time(load->context, &time);
}

enum status store_load_layer_times(struct store *store, void (*row)(void *context, const struct store_layer_time *time),
				   void *context, struct error *error)
{
	const struct load load = {
		.sql = "SELECT device_id, format, layer_bytes, layer_s, output_bytes, output_s, prompt_s, "
		       "batch_2, batch_4, batch_8, batch_16, batch_32, batch_64, batch_128, measured_ms, "
		       "spread FROM layer_times ORDER BY measured_ms",
		.row = layer_time_row,
		.call.layer_time = row,
		.context = context,
	};
	return load_rows(store, &load, error);
}

static void alert_row(struct db_statement *row, const struct load *load)
{
	const struct store_alert alert = {
		.alert_id = db_text(row, 0),
		.kind = db_text(row, 1),
		.severity = db_text(row, 2),
		.subject_type = db_text(row, 3),
		.subject_id = db_text(row, 4),
		.subject_name = db_text(row, 5),
		.message = db_text(row, 6),
		.hint = db_text(row, 7),
		.raised_ms = db_integer(row, 8),
		.acknowledged_ms = db_integer(row, 9),
		.acknowledged_by = db_text(row, 10),
		.cleared_ms = db_integer(row, 11),
		.node_id = db_text(row, 14),
		.value = db_type(row, 12) == DB_NULL ? NAN : db_real(row, 12),
		.threshold = db_type(row, 13) == DB_NULL ? NAN : db_real(row, 13),
	};
	load->call.alert(load->context, &alert);
}

enum status store_load_alerts(struct store *store, void (*row)(void *context, const struct store_alert *alert),
			      void *context, struct error *error)
{
	const struct load load = {
		.sql = "SELECT alert_id, kind, severity, subject_type, subject_id, subject_name, message, hint, "
		       "raised_ms, acknowledged_ms, acknowledged_by, cleared_ms, value, threshold, node_id FROM alerts "
		       "ORDER BY "
		       "raised_ms",
		.row = alert_row,
		.call.alert = row,
		.context = context,
	};
	return load_rows(store, &load, error);
}

static void usage_row(struct db_statement *row, const struct load *load)
{
	const struct store_usage usage = {
		.step_s = db_integer(row, 0),
		.at_s = db_integer(row, 1),
		.token_id = db_text(row, 2),
		.model_id = db_text(row, 3),
		.device_id = db_text(row, 4),
		.token_name = db_text(row, 5),
		.model_name = db_text(row, 6),
		.device_name = db_text(row, 7),
		.counts = {.requests = db_integer(row, 8),
			   .prompt_tokens = db_integer(row, 9),
			   .cached_tokens = db_integer(row, 10),
			   .completion_tokens = db_integer(row, 11),
			   .device_s = db_real(row, 12),
			   .energy_joules = db_real(row, 13),
			   .idle_joules = db_real(row, 14),
			   .energy_source = (enum store_energy_source)db_integer(row, 15)},
	};
	load->call.usage(load->context, &usage);
}

enum status store_load_usage(struct store *store, void (*row)(void *context, const struct store_usage *usage),
			     void *context, struct error *error)
{
	const struct load load = {
		.sql = "SELECT step_s, at_s, token_id, model_id, device_id, token_name, model_name, device_name, "
		       "requests, prompt_tokens, cached_tokens, completion_tokens, device_s, energy_joules, "
		       "idle_joules, energy_source FROM usage ORDER BY step_s, at_s",
		.row = usage_row,
		.call.usage = row,
		.context = context,
	};
	return load_rows(store, &load, error);
}

static void channel_row(struct db_statement *row, const struct load *load)
{
	const struct store_channel channel = {
		.channel_id = db_text(row, 0),
		.kind = db_text(row, 1),
		.url = db_text(row, 2),
		.severities = db_integer(row, 3),
		.quiet_from = db_integer(row, 4),
		.quiet_to = db_integer(row, 5),
		.secret = db_text(row, 6),
		.added_ms = db_integer(row, 7),
		.added_by = db_text(row, 8),
		.last_ms = db_integer(row, 9),
		.last_result = db_text(row, 10),
	};
	load->call.channel(load->context, &channel);
}

enum status store_load_channels(struct store *store, void (*row)(void *context, const struct store_channel *channel),
				void *context, struct error *error)
{
	const struct load load = {
		.sql = "SELECT channel_id, kind, url, severities, quiet_from, quiet_to, secret, added_ms, added_by, "
		       "last_ms, last_result FROM alert_channels ORDER BY added_ms, rowid",
		.binds = true,
		.kind = BOUND_CHANNEL,
		.row = channel_row,
		.call.channel = row,
		.context = context,
	};
	return load_rows(store, &load, error);
}

static void delivery_row(struct db_statement *row, const struct load *load)
{
	const struct store_delivery delivery = {
		.delivery_id = db_text(row, 0),
		.channel_id = db_text(row, 1),
		.alert_id = db_text(row, 2),
		.severity = db_text(row, 3),
		.body = db_text(row, 4),
		.created_ms = db_integer(row, 5),
	};
	load->call.delivery(load->context, &delivery);
}

enum status store_load_deliveries(struct store *store,
				  void (*row)(void *context, const struct store_delivery *delivery), void *context,
				  struct error *error)
{
	const struct load load = {
		.sql = "SELECT delivery_id, channel_id, alert_id, severity, body, created_ms FROM alert_deliveries "
		       "ORDER BY rowid",
		.row = delivery_row,
		.call.delivery = row,
		.context = context,
	};
	return load_rows(store, &load, error);
}

static void conversation_row(struct db_statement *row, const struct load *load)
{
	const struct store_conversation conversation = {
		.token_id = db_text(row, 0),
		.conversation_id = db_text(row, 1),
		.version = db_integer(row, 2),
		.updated_ms = db_integer(row, 3),
		.body = db_bytes(row, 4),
		.body_bytes = db_length(row, 4),
	};
	load->call.conversation(load->context, &conversation);
}

enum status store_load_conversations(struct store *store,
				     void (*row)(void *context, const struct store_conversation *conversation),
				     void *context, struct error *error)
{
	const struct load load = {
		.sql = "SELECT token_id, conversation_id, version, updated_ms, body FROM conversations",
		.row = conversation_row,
		.call.conversation = row,
		.context = context,
	};
	return load_rows(store, &load, error);
}
