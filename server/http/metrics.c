/* See metrics.h. A reading that a device does not give is left out, as Prometheus has it. */
#include "server/http/metrics.h"

#include "common/base/process.h"
#include "server/cluster/heat.h"
#include "server/traces/traces.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static void head(struct buffer *out, const char *name, const char *type, const char *help)
{
	buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void one(struct buffer *out, const char *name, const char *type, const char *help, double value)
{
	head(out, name, type, help);
	buffer_printf(out, "%s %.17g\n", name, value);
}

// A label's value with backslash, quote and newline escaped.
static void label(struct buffer *out, const char *name, const char *value)
{
	buffer_printf(out, "%s=\"", name);
	for (; *value; value++) {
		if (*value == '\\' || *value == '"')
			buffer_append_byte(out, '\\');
		buffer_append_byte(out, *value == '\n' ? ' ' : (uint8_t)*value);
	}
	buffer_append_byte(out, '"');
}

static const struct reading {
	const char *field, *metric, *help;
	double scale;
} readings[] = {
	{"utilization_percent", "exogpu_device_utilization_ratio",
	 "Share of the last interval in which the device worked.", 0.01},
	{"memory_used_bytes", "exogpu_device_memory_used_bytes", "Memory in use.", 1},
	{"memory_total_bytes", "exogpu_device_memory_bytes", "Memory in total.", 1},
	{"power_watts", "exogpu_device_power_watts", "Power drawn.", 1},
	{"power_limit_watts", "exogpu_device_power_limit_watts", "Power that it may draw.", 1},
	{"temperature_celsius", "exogpu_device_temperature_celsius", "Temperature.", 1},
	{"memory_temperature_celsius", "exogpu_device_memory_temperature_celsius", "Temperature of the memory.", 1},
	{"slowdown_celsius", "exogpu_device_slowdown_celsius", "Temperature at which it slows down.", 1},
	{"memory_slowdown_celsius", "exogpu_device_memory_slowdown_celsius",
	 "Temperature of the memory at which it slows down.", 1},
	{"ecc_errors", "exogpu_device_ecc_errors", "Uncorrected memory errors.", 1},
	{"clock_mhz", "exogpu_device_clock_hertz", "Clock.", 1e6},
	{"memory_clock_mhz", "exogpu_device_memory_clock_hertz", "Clock of the memory.", 1e6},
	{"fan_percent", "exogpu_device_fan_ratio", "Fan speed as a share of its maximum.", 0.01},
	{"pcie_rx_bytes_per_s", "exogpu_device_pcie_receive_bytes_per_second", "Bytes received over PCIe.", 1},
	{"pcie_tx_bytes_per_s", "exogpu_device_pcie_transmit_bytes_per_second", "Bytes sent over PCIe.", 1},
	{"availability_score", "exogpu_device_availability_score", "0.6 free memory + 0.4 idle time.", 1},
};

struct printing {
	struct buffer *out;
	const struct reading *reading;
};

static void device_labels(struct buffer *out, const struct cluster_device *device)
{
	label(out, "device", cluster_device_id(device));
	buffer_append_byte(out, ',');
	label(out, "node", cluster_device_node_id(device));
	buffer_append_byte(out, ',');
	label(out, "name", cluster_device_name(device));
}

static void print_reading(void *context, const struct cluster_device *device, const struct json *telemetry)
{
	const struct printing *printing = context;
	const struct json *value = json_get(telemetry, printing->reading->field);
	if (json_type(value) != JSON_NUMBER || !strcmp(cluster_device_state(device, &(const char *){NULL}), "offline"))
		return;
	buffer_printf(printing->out, "%s{", printing->reading->metric);
	device_labels(printing->out, device);
	buffer_printf(printing->out, "} %.17g\n", json_number(value, 0) * printing->reading->scale);
}

static const struct heat_figure {
	const char *metric, *help;
	size_t offset; // of a double in struct cluster_heat
} heat_figures[] = {
	{"exogpu_device_forecast_seconds_to_limit",
	 "Until it slows itself down for heat, at the present power. +Inf: not within an hour.",
	 offsetof(struct cluster_heat, throttles_in_s)},
	{"exogpu_device_sustainable_watts", "Power that holds it 5 °C under its limit for ever.",
	 offsetof(struct cluster_heat, sustainable_watts)},
	{"exogpu_device_ambient_celsius", "Ambient temperature, as its forecast has learnt it.",
	 offsetof(struct cluster_heat, ambient)},
	{"exogpu_device_forecast_error_celsius", "Mean error of its forecasts a minute ahead.",
	 offsetof(struct cluster_heat, error)},
};

struct printing_heat {
	struct buffer *out;
	const struct heat_figure *figure;
};

static void print_heat(void *context, const struct cluster_device *device, const struct json *telemetry)
{
	double value;
	struct cluster_heat heat;
	const struct printing_heat *printing = context;
	(void)telemetry;
	cluster_read_heat(device, HEAT_CORE, (double)NAN, &heat);
	memcpy(&value, (const char *)&heat + printing->figure->offset, sizeof value);
	if (isnan(value))
		return;
	buffer_printf(printing->out, "%s{", printing->figure->metric);
	device_labels(printing->out, device);
	if (isinf(value))
		buffer_append_text(printing->out, "} +Inf\n");
	else
		buffer_printf(printing->out, "} %.17g\n", value);
}

static void print_heats(const struct cluster *cluster, struct buffer *out)
{
	for (size_t i = 0; i < sizeof heat_figures / sizeof *heat_figures; i++) {
		struct printing_heat printing = {.out = out, .figure = &heat_figures[i]};
		head(out, heat_figures[i].metric, "gauge", heat_figures[i].help);
		cluster_each_device(cluster, print_heat, &printing);
	}
}

static void print_state(void *context, const struct cluster_device *device, const struct json *telemetry)
{
	const char *reason;
	struct buffer *out = context;
	(void)telemetry;
	buffer_append_text(out, "exogpu_device_info{");
	device_labels(out, device);
	buffer_append_byte(out, ',');
	label(out, "state", cluster_device_state(device, &reason));
	buffer_append_text(out, "} 1\n");
}

static void print_held(void *context, const struct cluster_device *device, uint64_t bytes)
{
	struct buffer *out = context;
	buffer_append_text(out, "exogpu_allocated_bytes{");
	device_labels(out, device);
	buffer_printf(out, "} %llu\n", (unsigned long long)bytes);
}

static void print_checks(const struct cluster *cluster, struct buffer *out)
{
	static const char *const outcomes[CLUSTER_CHECK_OUTCOMES] = {[CLUSTER_CHECK_PASSED] = "passed",
								     [CLUSTER_CHECK_FAILED] = "failed",
								     [CLUSTER_CHECK_GIVEN_UP] = "given_up",
								     [CLUSTER_CHECK_NOT_BEGUN] = "not_begun"};
	head(out, "exogpu_spot_checks_total", "counter", "Requests for which a browser's results were to be compared.");
	for (int i = 0; i < CLUSTER_CHECK_OUTCOMES; i++)
		buffer_printf(out, "exogpu_spot_checks_total{outcome=\"%s\"} %llu\n", outcomes[i],
			      (unsigned long long)cluster_checks_count(cluster, (enum cluster_check_outcome)i));
}

static void print_tenants(const struct tenancy *tenants, struct buffer *out)
{
	struct tenancy_stats stats;
	tenancy_read_stats(tenants, &stats);
	head(out, "exogpu_allocated_bytes", "gauge", "Memory that sessions hold on each device that was ever used.");
	tenancy_each_device(tenants, print_held, out);
	one(out, "exogpu_allocations", "gauge", "Allocations of all sessions.", (double)stats.allocations);
	one(out, "exogpu_workers", "gauge", "Workers of sessions.", (double)stats.workers);
	head(out, "exogpu_transfer_bytes_total", "counter", "Bytes that memory calls have moved through the server.");
	const struct {
		const char *direction;
		uint64_t bytes;
	} moved[] = {{"write", stats.written_bytes}, {"read", stats.read_bytes}, {"relay", stats.relayed_bytes}};
	for (size_t i = 0; i < sizeof moved / sizeof *moved; i++)
		buffer_printf(out, "exogpu_transfer_bytes_total{direction=\"%s\"} %llu\n", moved[i].direction,
			      (unsigned long long)moved[i].bytes);
}

static const struct link_figure {
	const char *metric, *help;
	size_t offset; // of a double in struct topology_figures
	double scale;
} link_figures[] = {
	{"exogpu_link_rtt_seconds", "Round-trip time of a link.", offsetof(struct topology_figures, rtt_ms), 1e-3},
	{"exogpu_link_jitter_seconds", "How much round trips differ.", offsetof(struct topology_figures, jitter_ms),
	 1e-3},
	{"exogpu_link_loss_ratio", "Segments sent again, of those sent.",
	 offsetof(struct topology_figures, loss_percent), 1e-2},
	{"exogpu_link_throughput_bytes_per_second", "What the link gave in the newest burst.",
	 offsetof(struct topology_figures, throughput_bytes_per_s), 1},
};

struct printing_link {
	struct buffer *out;
	const struct link_figure *figure;
};

static void print_link(struct buffer *out, const char *metric, const struct topology_figures *link, double value)
{
	buffer_printf(out, "%s{", metric);
	label(out, "from", link->from_node_id);
	buffer_append_byte(out, ',');
	label(out, "to", link->to_node_id);
	buffer_append_byte(out, ',');
	label(out, "class", link->link_class);
	buffer_printf(out, "} %.17g\n", value);
}

static void print_link_figure(void *context, const struct topology_figures *link)
{
	double value;
	const struct printing_link *printing = context;
	memcpy(&value, (const char *)link + printing->figure->offset, sizeof value);
	if (link->up && value >= 0)
		print_link(printing->out, printing->figure->metric, link, value * printing->figure->scale);
}

static void print_link_up(void *context, const struct topology_figures *link)
{
	print_link(context, "exogpu_link_up", link, link->up);
}

static void print_link_degraded(void *context, const struct topology_figures *link)
{
	print_link(context, "exogpu_link_degraded", link, link->degraded);
}

static void print_links(const struct topology *topology, struct buffer *out)
{
	head(out, "exogpu_link_up", "gauge", "Each direction of a link that is measured now.");
	topology_each(topology, print_link_up, out);
	head(out, "exogpu_link_degraded", "gauge", "Whether it is worse than its class should be.");
	topology_each(topology, print_link_degraded, out);
	for (size_t i = 0; i < sizeof link_figures / sizeof *link_figures; i++) {
		struct printing_link printing = {.out = out, .figure = &link_figures[i]};
		head(out, link_figures[i].metric, "gauge", link_figures[i].help);
		topology_each(topology, print_link_figure, &printing);
	}
}

static void print_alert_labels(struct buffer *out, const char *metric, const struct alerts_count *count)
{
	buffer_printf(out, "%s{", metric);
	label(out, "kind", count->kind);
	buffer_append_byte(out, ',');
	label(out, "severity", count->severity);
	buffer_append_text(out, "} ");
}

static void print_alerts_standing(void *context, const struct alerts_count *count)
{
	print_alert_labels(context, "exogpu_alerts", count);
	buffer_printf(context, "%u\n", count->stand);
}

static void print_alerts_raised(void *context, const struct alerts_count *count)
{
	print_alert_labels(context, "exogpu_alerts_raised_total", count);
	buffer_printf(context, "%llu\n", (unsigned long long)count->raised);
}

static void print_alerts_cleared(void *context, const struct alerts_count *count)
{
	print_alert_labels(context, "exogpu_alerts_cleared_total", count);
	buffer_printf(context, "%llu\n", (unsigned long long)count->cleared);
}

struct printing_usage {
	struct buffer *out;
	const char *metric, *of, *kind, *value; // kind="value", besides the subject; NULL: nothing besides
	double (*count)(const struct store_counts *counts);
};

static void print_total(void *context, const struct book_sum *total)
{
	const struct printing_usage *printing = context;
	const double count = printing->count(&total->counts);
	if (isnan(count)) // not reported
		return;
	buffer_printf(printing->out, "%s{", printing->metric);
	label(printing->out, printing->of, total->id);
	buffer_append_byte(printing->out, ',');
	label(printing->out, "name", total->name);
	if (printing->kind) {
		buffer_append_byte(printing->out, ',');
		label(printing->out, printing->kind, printing->value);
	}
	buffer_printf(printing->out, "} %.17g\n", count);
}

static double requests_of(const struct store_counts *counts)
{
	return (double)counts->requests;
}

static double computed_of(const struct store_counts *counts)
{
	return (double)(counts->prompt_tokens - counts->cached_tokens);
}

static double cached_of(const struct store_counts *counts)
{
	return (double)counts->cached_tokens;
}

static double completion_of(const struct store_counts *counts)
{
	return (double)counts->completion_tokens;
}

static double proposed_of(const struct store_counts *counts)
{
	return (double)counts->proposed_tokens;
}

static double accepted_of(const struct store_counts *counts)
{
	return (double)counts->accepted_tokens;
}

static double drafted_of(const struct store_counts *counts)
{
	return (double)counts->drafted_tokens;
}

static double draft_accepted_of(const struct store_counts *counts)
{
	return (double)counts->draft_accepted_tokens;
}

static double energy_of(const struct store_counts *counts)
{
	return counts->energy_source == STORE_ENERGY_NONE ? NAN : counts->energy_joules;
}

static double idle_of(const struct store_counts *counts)
{
	return counts->energy_source == STORE_ENERGY_NONE ? NAN : counts->idle_joules;
}

static double seconds_of(const struct store_counts *counts)
{
	return counts->device_s;
}

static void print_foreseen(const struct usage *usage, struct buffer *out)
{
	static const struct {
		const char *name, *what;
		double (*count)(const struct store_counts *counts);
	} metrics[] = {
		{"exogpu_proposed_tokens_total", "Tokens that were foreseen, and computed.", proposed_of},
		{"exogpu_accepted_tokens_total", "Of these, the tokens that were then chosen.", accepted_of},
		{"exogpu_drafted_tokens_total", "Of the proposed tokens, those of a draft model.", drafted_of},
		{"exogpu_draft_accepted_tokens_total", "Of these, the tokens that were then chosen.",
		 draft_accepted_of},
	};
	for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
		struct printing_usage printing = {
			.out = out, .metric = metrics[i].name, .of = "model", .count = metrics[i].count};
		head(out, printing.metric, "counter", metrics[i].what);
		usage_totals(usage, BOOK_MODEL, print_total, &printing);
	}
}

static void print_usage(const struct usage *usage, struct buffer *out)
{
	const struct printing_usage seconds = {
		.out = out, .metric = "exogpu_device_seconds_total", .of = "device", .count = seconds_of};
	struct printing_usage printing = {
		.out = out, .metric = "exogpu_requests_total", .of = "model", .count = requests_of};
	const struct {
		const char *kind;
		double (*count)(const struct store_counts *counts);
	} tokens[] = {{"prompt", computed_of}, {"cached", cached_of}, {"completion", completion_of}};
	head(out, printing.metric, "counter", "Requests to each model that have ended.");
	usage_totals(usage, BOOK_MODEL, print_total, &printing);
	printing.metric = "exogpu_tokens_total";
	printing.kind = "kind";
	head(out, printing.metric, "counter", "Tokens of these: of prompts, computed or cached, and generated.");
	for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
		printing.value = tokens[i].kind;
		printing.count = tokens[i].count;
		usage_totals(usage, BOOK_MODEL, print_total, &printing);
	}
	print_foreseen(usage, out);
	head(out, seconds.metric, "counter", "Time that each device has computed for requests.");
	usage_totals(usage, BOOK_DEVICE, print_total, (void *)&seconds);
	printing = (struct printing_usage){
		.out = out, .metric = "exogpu_energy_joules_total", .of = "device", .kind = "use"};
	head(out, printing.metric, "counter", "Energy that each device has drawn: above idle, and when idle.");
	for (int idle = 0; idle < 2; idle++) {
		printing.value = idle ? "idle" : "work";
		printing.count = idle ? idle_of : energy_of;
		usage_totals(usage, BOOK_DEVICE, print_total, &printing);
	}
}

static void print_alerts(const struct alerts *alerts, struct buffer *out)
{
	head(out, "exogpu_alerts", "gauge", "Alerts that stand now.");
	alerts_each_count(alerts, print_alerts_standing, out);
	head(out, "exogpu_alerts_raised_total", "counter", "Alerts that were raised since the server started.");
	alerts_each_count(alerts, print_alerts_raised, out);
	head(out, "exogpu_alerts_cleared_total", "counter", "Alerts that were cleared since the server started.");
	alerts_each_count(alerts, print_alerts_cleared, out);
}

struct channel_metric {
	struct buffer *out;
	const char *name;
	enum { CHANNEL_WAITING, CHANNEL_DELIVERED, CHANNEL_FAILED, CHANNEL_DROPPED } which;
};

static void print_channel(void *context, const struct channels_count *count)
{
	const struct channel_metric *metric = context;
	const uint64_t values[] = {[CHANNEL_WAITING] = count->waiting,
				   [CHANNEL_DELIVERED] = count->delivered,
				   [CHANNEL_FAILED] = count->failed,
				   [CHANNEL_DROPPED] = count->dropped};
	buffer_printf(metric->out, "%s{channel_id=\"%s\",kind=\"%s\"} %llu\n", metric->name, count->channel_id,
		      count->kind, (unsigned long long)values[metric->which]);
}

static void print_channels(const struct channels *channels, struct buffer *out)
{
	static const struct {
		const char *name, *type, *help;
	} metrics[] = {
		[CHANNEL_WAITING] = {"exogpu_alert_outbox", "gauge",
				     "Messages of alerts that wait for their receiver."},
		[CHANNEL_DELIVERED] = {"exogpu_alert_deliveries_total", "counter",
				       "Messages of alerts that a receiver took since the server started."},
		[CHANNEL_FAILED] = {"exogpu_alert_deliveries_failed_total", "counter",
				    "Attempts to deliver a message of an alert that failed."},
		[CHANNEL_DROPPED] = {"exogpu_alert_deliveries_dropped_total", "counter",
				     "Messages of alerts that were refused, too old or too many."},
	};
	for (int i = CHANNEL_WAITING; i <= CHANNEL_DROPPED; i++) {
		struct channel_metric metric = {.out = out, .name = metrics[i].name};
		metric.which = i;
		head(out, metrics[i].name, metrics[i].type, metrics[i].help);
		channels_each_count(channels, print_channel, &metric);
	}
}

static void print_traces(const struct traces *traces, struct buffer *out)
{
	struct traces_stats stats;
	if (!traces_read_stats(traces, &stats))
		return;
	one(out, "exogpu_trace_spans_waiting", "gauge", "Spans that wait for the collector.", (double)stats.waiting);
	one(out, "exogpu_trace_spans_exported_total", "counter", "Spans that the collector took.",
	    (double)stats.exported);
	one(out, "exogpu_trace_spans_dropped_total", "counter",
	    "Spans that were left out, or that the collector refused.", (double)stats.dropped);
	one(out, "exogpu_trace_spans_rejected_total", "counter",
	    "Spans that the collector rejected of batches that it took.", (double)stats.rejected);
	one(out, "exogpu_trace_exports_failed_total", "counter", "Attempts to send spans that failed.",
	    (double)stats.failures);
}

static double resident_bytes(void)
{
	return (double)process_resident_pages() * (double)sysconf(_SC_PAGESIZE);
}

void metrics_print(const struct metrics_sources *sources, struct buffer *out)
{
	struct api_stats api;
	struct events_stats events;
	struct store_stats store;
	buffer_finish(out);
	buffer_init(out, LIMIT_BODY_BYTES);
	api_read_stats(sources->api, &api);
	events_read_stats(sources->events, &events);
	store_read_stats(sources->store, &store);
	head(out, "exogpu_build_info", "gauge", "The version that runs.");
	buffer_append_text(out, "exogpu_build_info{version=\"" EXOGPU_VERSION "\"} 1\n");
	one(out, "process_start_time_seconds", "gauge", "When the server started, Unix time.",
	    (double)sources->started_ms / 1000);
	one(out, "process_resident_memory_bytes", "gauge", "Resident memory of the server.", resident_bytes());
	one(out, "exogpu_connections", "gauge", "Client connections open now.", (double)api.connections);
	one(out, "exogpu_sessions", "gauge", "Sessions open now.", (double)api.sessions);
	one(out, "exogpu_calls_total", "counter", "Calls of clients.", (double)api.calls);
	one(out, "exogpu_calls_failed_total", "counter", "Calls that ended with an error.", (double)api.failed_calls);
	one(out, "exogpu_logins_failed_total", "counter", "Logins that were refused.", (double)api.failed_logins);
	one(out, "exogpu_events_published_total", "counter", "Events, each counted once.", (double)events.published);
	one(out, "exogpu_events_delivered_total", "counter", "Events, counted for each subscriber.",
	    (double)events.delivered);
	one(out, "exogpu_event_subscribers", "gauge", "Connections that subscribe now.", (double)events.subscribers);
	one(out, "exogpu_event_ring_bytes", "gauge", "Events kept for replay.", (double)events.ring_bytes);
	one(out, "exogpu_store_commits_total", "counter", "Transactions of the state database.", (double)store.commits);
	one(out, "exogpu_store_commit_failures_total", "counter", "Transactions that failed.",
	    (double)store.commit_failures);
	one(out, "exogpu_store_wrong_pages", "gauge",
	    "Pages of the state database that were read since the start and are not as they were written.",
	    (double)store.wrong_pages);
	one(out, "exogpu_store_damaged", "gauge",
	    "1 once the state database was found damaged: no change is stored until the next start.", store.damaged);
	one(out, "exogpu_store_commit_seconds_total", "counter", "Time spent in transactions.", store.commit_seconds);
	one(out, "exogpu_store_state_bytes", "gauge", "Size of the state database.", (double)store.state_bytes);
	one(out, "exogpu_store_history_bytes", "gauge", "Size of the history database.", (double)store.history_bytes);
	print_tenants(sources->tenants, out);
	print_checks(sources->cluster, out);
	head(out, "exogpu_device_info", "gauge", "Each device and its state.");
	cluster_each_device(sources->cluster, print_state, out);
	for (size_t i = 0; i < sizeof readings / sizeof *readings; i++) {
		struct printing printing = {.out = out, .reading = &readings[i]};
		head(out, readings[i].metric, "gauge", readings[i].help);
		cluster_each_device(sources->cluster, print_reading, &printing);
	}
	print_heats(sources->cluster, out);
	print_links(sources->topology, out);
	print_alerts(sources->alerts, out);
	print_usage(sources->usage, out);
	print_channels(sources->channels, out);
	print_traces(sources->traces, out);
}
