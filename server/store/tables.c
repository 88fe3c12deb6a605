/* See tables.h. The numbers of changes are given anew, in their order. */
#include "server/store/tables.h"

const struct store_table store_tables[STORE_TABLES] = {
	{"settings", "key, value", 2, NULL},
	{"nodes", "node_id, name, record, first_seen_ms, last_seen_ms", 5, "rowid"},
	{"devices", "device_id, node_id, hardware_key, record, draining, first_seen_ms, last_seen_ms", 7, "rowid"},
	{"tokens",
	 "token_id, parent_id, name, scopes, secret_hash, calls_per_s, max_sessions, created_ms, expires_ms, "
	 "last_used_ms, revoked_ms, memory_limit_bytes",
	 12, "rowid"},
	{"conversations", "token_id, conversation_id, version, updated_ms, body", 5, NULL},
	{"changes", "at_ms, kind, level, node_id, device_id, name, summary", 7, "change_id"},
	{"audit",
	 "seq, at_us, duration_us, count, actor, actor_name, session_id, peer, action, target, node_id, device_id, "
	 "outcome, detail, leaf, bound, bound_before",
	 17, NULL},
	{"audit_nodes", "level, place, hash", 3, NULL},
	{"audit_leaves", "place, hashes", 2, NULL},
	{"audit_segments", "number, first, key, certificate, began_ms, archive, pruned_ms, pruned_by", 8, NULL},
	{"audit_checkpoints", "size, note, segment_bytes, cosigned", 4, NULL},
	{"certificates", "serial, node_id, sha256, key_sha256, not_before_ms, not_after_ms, revoked_ms", 7, "rowid"},
	{"tickets", "ticket_id, secret_hash, made_by, uses, used, created_ms, expires_ms, revoked_ms", 8, "rowid"},
	{"models",
	 "model_id, name, source, request, path, state, state_reason, added_ms, file_bytes, modified_ns, sha256, "
	 "architecture",
	 12, "rowid"},
	{"links",
	 "from_node_id, to_node_id, class, interface, address, interface_bits_per_s, rtt_ms, jitter_ms, loss_percent, "
	 "throughput_bytes_per_s, throughput_ms, measured_ms, degraded",
	 13, NULL},
	{"layer_times",
	 "device_id, format, layer_bytes, layer_s, output_bytes, output_s, measured_ms, batch_2, batch_4, batch_8, "
	 "batch_16, batch_32, prompt_s, spread, batch_64, batch_128",
	 16, NULL},
	{"instances", "instance_id, model_id, model_name, wanted, last, epoch, recoveries, moves, created_ms, workers",
	 10, "rowid"},
	{"alerts",
	 "alert_id, kind, severity, subject_type, subject_id, subject_name, message, hint, raised_ms, cleared_ms, "
	 "acknowledged_ms, acknowledged_by, value, threshold, node_id",
	 15, NULL},
	{"usage",
	 "step_s, at_s, token_id, model_id, device_id, token_name, model_name, device_name, requests, prompt_tokens, "
	 "cached_tokens, completion_tokens, device_s, energy_joules, idle_joules, energy_source",
	 16, NULL},
	{"alert_channels",
	 "channel_id, kind, url, secret, severities, quiet_from, quiet_to, added_ms, added_by, last_ms, last_result",
	 11, "rowid"},
	{"alert_deliveries", "delivery_id, channel_id, alert_id, severity, body, created_ms", 6, "rowid"},
	{"lends", "lend_id, secret_hash, name, made_by, uses, used, created_ms, expires_ms, revoked_ms", 9, "rowid"},
	{"tabs", "node_id, lend_id, secret_hash, joined_ms", 4, "rowid"},
};

const struct store_series store_series[STORE_KINDS] = {
	[STORE_OF_DEVICE] = {"devices",
			     "device_id",
			     "device",
			     {"minutes",
			      "device, minute, utilization, memory_used, memory_total, power, temperature, "
			      "memory_temperature, clock, memory_clock, fan, pcie_rx, pcie_tx, availability, "
			      "utilization_min, memory_used_min, power_min, temperature_min, memory_temperature_min, "
			      "clock_min, utilization_max, memory_used_max, power_max, temperature_max, "
			      "memory_temperature_max, clock_max",
			      26, NULL}},
	[STORE_OF_LINK] = {"links",
			   "series",
			   "link",
			   {"link_minutes", "link, minute, rtt, jitter, loss, throughput, sent", 7, NULL}},
};
