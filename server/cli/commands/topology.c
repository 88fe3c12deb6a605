/* `exogpu topology`: how far apart the machines are: the whole in a few lines, then every link with both its ways. */
#include "server/cli/commands/commands.h"
#include "server/cli/format.h"
#include "server/cli/table.h"

#include <stdio.h>
#include <string.h>

static const struct table_column columns[] = {
	{.title = "FROM", .narrowest = 8},
	{.title = "TO", .narrowest = 8},
	{.title = "CLASS"},
	{.title = "STATE"},
	{.title = "ROUND TRIP", .right = true},
	{.title = "JITTER", .right = true, .leave_out = 2},
	{.title = "LOSS", .right = true, .leave_out = 3},
	{.title = "THERE", .right = true},
	{.title = "BACK", .right = true},
	{.title = "AGE", .right = true, .leave_out = 1},
};

static const struct table_column pair_columns[] = {
	{.title = "NODE", .narrowest = 6, .leave_out = 2},
	{.title = "FROM", .narrowest = 12},
	{.title = "TO", .narrowest = 12},
	{.title = "CLASS", .leave_out = 3},
	{.title = "THERE", .right = true},
	{.title = "BACK", .right = true},
	{.title = "AGE", .right = true, .leave_out = 1},
};

enum { REASONS = 4 }; // printed at most

static const char *class_words(const char *class)
{
	static const char *const words[][2] = {{"process", "process"},   {"peer", "peer-to-peer"},
					       {"rdma", "RDMA"},         {"thunderbolt", "Thunderbolt"},
					       {"ethernet", "Ethernet"}, {"wifi", "Wi-Fi"},
					       {"cellular", "mobile"}};
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (!strcmp(words[i][0], class))
			return words[i][1];
	return class;
}

static const struct json *other_way(const struct json *links, const struct json *link)
{
	const char *from = json_get_string(link, "from_node_id", ""), *to = json_get_string(link, "to_node_id", "");
	for (const struct json *one = json_first(links); one; one = json_next(one))
		if (!strcmp(json_get_string(one, "from_node_id", ""), to) &&
		    !strcmp(json_get_string(one, "to_node_id", ""), from))
			return one;
	return NULL;
}

static void add_number(struct table *table, const struct json *link, const char *name, const char *format)
{
	const double value = json_get_number(link, name, -1);
	char text[FORMAT_BYTES] = "";
	if (value >= 0 && !strcmp(format, "%"))
		snprintf(text, sizeof text, "%.2g %%", value);
	else if (value >= 0)
		snprintf(text, sizeof text, value < 10 ? "%.2f ms" : "%.0f ms", value);
	table_add(table, TONE_PLAIN, "%s", text);
}

static void add_rate(struct table *table, const struct json *pair, const char *name)
{
	char text[FORMAT_BYTES];
	table_add(table, TONE_PLAIN, "%s", format_rate(json_get_number(pair, name, -1), "B/s", text));
}

// Networks are sold in bits.
static const char *link_rate(const struct json *link, const char *name, char text[FORMAT_BYTES])
{
	return format_rate(8 * json_get_number(link, name, -1), "bit/s", text);
}

static const char *round_trip(double ms, char text[FORMAT_BYTES])
{
	snprintf(text, FORMAT_BYTES, ms < 999.5 ? "%.3g ms" : "%.0f ms", ms);
	return text;
}

// How a link stands: down, or worse than it should be, if one of its ways is.
static void add_state(struct table *table, const struct json *link, const struct json *back)
{
	const char *state = json_get_string(link, "state", "");
	const bool down = !strcmp(state, "down") || (back && !strcmp(json_get_string(back, "state", ""), "down"));
	const bool degraded = json_get_bool(link, "degraded", false) || json_get_bool(back, "degraded", false);
	if (down)
		table_add(table, TONE_BAD, "down");
	else if (!strcmp(state, "up"))
		table_add(table, degraded ? TONE_ATTENTION : TONE_GOOD, degraded ? "degraded" : "up");
	else
		table_add(table, TONE_FAINT, "%s", state);
}

// Of the oldest figure of the row, in ms: throughput is measured less often than the rest, and not while a model uses
// the link. back: may be NULL.
static int64_t age_of(const struct json *link, const struct json *back)
{
	int64_t oldest = command_age_ms(link, "measured_at");
	const int64_t rates[] = {command_age_ms(link, "throughput_at"),
				 back ? command_age_ms(back, "throughput_at") : -1};
	for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
		oldest = rates[i] > oldest ? rates[i] : oldest;
	return oldest;
}

static void add_link(struct table *table, const struct json *nodes, const struct json *link, const struct json *back)
{
	char text[FORMAT_BYTES], node[COMMAND_NODE_LABEL_BYTES];
	table_add(table, TONE_PLAIN, "%s", command_node_label(nodes, json_get_string(link, "from_node_id", ""), node));
	table_add(table, TONE_PLAIN, "%s", command_node_label(nodes, json_get_string(link, "to_node_id", ""), node));
	table_add(table, TONE_PLAIN, "%s", class_words(json_get_string(link, "class", "")));
	add_state(table, link, back);
	add_number(table, link, "rtt_ms", "ms");
	add_number(table, link, "jitter_ms", "ms");
	add_number(table, link, "loss_percent", "%");
	table_add(table, TONE_PLAIN, "%s", link_rate(link, "throughput_bytes_per_s", text));
	// The server measures none itself.
	table_add(table, TONE_PLAIN, "%s",
		  back ? link_rate(back, "throughput_bytes_per_s", text)
		       : link_rate(link, "throughput_back_bytes_per_s", text));
	table_add(table, TONE_PLAIN, "%s", format_age(age_of(link, back), text));
}

static void print_summary(const struct json *summary)
{
	char memory[FORMAT_BYTES], rate[FORMAT_BYTES], ms[FORMAT_BYTES], line[640];
	const int64_t nodes = json_get_integer(summary, "nodes", 0), devices = json_get_integer(summary, "devices", 0);
	const int64_t pairs = json_get_integer(summary, "pairs", 0),
		      degraded = json_get_integer(summary, "degraded", 0);
	const double rtt = json_get_number(summary, "mean_rtt_ms", -1);
	const double diameter = json_get_number(summary, "diameter_ms", -1);
	printf("%lld node%s with %lld device%s, %s", (long long)nodes, nodes == 1 ? "" : "s", (long long)devices,
	       devices == 1 ? "" : "s", format_memory(json_get_integer(summary, "memory_bytes", -1), memory));
	if (pairs)
		printf("; %lld of %lld pair%s of nodes linked directly",
		       (long long)json_get_integer(summary, "direct_pairs", 0), (long long)pairs,
		       pairs == 1 ? "" : "s");
	if (degraded)
		printf("; %lld direction%s degraded", (long long)degraded, degraded == 1 ? "" : "s");
	printf("\n");
	const int64_t direct = json_get_integer(summary, "peer_to_peer_pairs", 0);
	if (direct)
		printf("%lld pair%s of devices of one machine cop%s to each other directly\n", (long long)direct,
		       direct == 1 ? "" : "s", direct == 1 ? "ies" : "y");
	if (rtt >= 0)
		printf("on average a round trip takes %s and a link carries %s\n", round_trip(rtt, ms),
		       link_rate(summary, "mean_throughput_bytes_per_s", rate));
	if (diameter >= 0)
		printf("between the two nodes that are farthest apart a round trip takes %s\n",
		       round_trip(diameter, ms));
	const char *text = json_get_string(json_get(summary, "bottleneck"), "text", "");
	if (text[0]) {
		snprintf(line, sizeof line, "%s", text);
		command_print_text(stdout, "bottleneck: ", line);
	}
	printf("\n");
}

// "NVIDIA H200 dev_1f03": those of one machine often have one name.
static void add_device(struct table *table, const struct json *devices, const char *device_id)
{
	const struct json *device = command_find(devices, "device_id", device_id, NULL);
	table_add(table, TONE_PLAIN, "%s %s", json_get_string(device, "name", ""), device_id);
}

static void add_pair(struct table *table, const struct json *snapshot, const struct json *device,
		     const struct json *there, const struct json *back)
{
	char text[FORMAT_BYTES], node[COMMAND_NODE_LABEL_BYTES];
	const struct json *devices = json_get(snapshot, "devices");
	const bool staged = !strcmp(json_get_string(there, "class", ""), "staged") ||
			    !strcmp(json_get_string(back, "class", ""), "staged");
	table_add(table, TONE_PLAIN, "%s",
		  command_node_label(json_get(snapshot, "nodes"), json_get_string(device, "node_id", ""), node));
	add_device(table, devices, json_get_string(device, "device_id", ""));
	add_device(table, devices, json_get_string(there, "device_id", ""));
	table_add(table, staged ? TONE_ATTENTION : TONE_PLAIN, staged ? "by the host" : "direct");
	add_rate(table, there, "bytes_per_s");
	add_rate(table, back, "bytes_per_s");
	table_add(table, TONE_PLAIN, "%s", format_age(command_age_ms(there, "measured_at"), text));
}

// Why a direction has no figure, each reason once.
static void print_unmeasured(const struct json *devices)
{
	struct json *told = json_new_object();
	for (const struct json *one = json_first(devices); one; one = json_next(one))
		for (const struct json *peer = json_first(json_get(one, "peers")); peer; peer = json_next(peer)) {
			const char *reason = json_get_string(peer, "reason", "");
			if (!reason[0] || json_get(told, reason) || json_count(told) == REASONS)
				continue;
			json_set_bool(told, reason, true);
			command_print_text(stdout, "not measured: ", reason);
		}
	json_destroy(&told);
}

// How fast devices of one machine copy to each other, a line for each pair.
static int print_pairs(const struct json *snapshot, struct error *error)
{
	struct table table;
	struct terminal terminal = terminal_of_stdout();
	const struct json *devices = json_get(snapshot, "devices");
	bool any = false;
	table_init(&table, pair_columns, sizeof pair_columns / sizeof *pair_columns);
	for (const struct json *one = json_first(devices); one; one = json_next(one)) {
		const char *id = json_get_string(one, "device_id", "");
		for (const struct json *peer = json_first(json_get(one, "peers")); peer; peer = json_next(peer)) {
			const char *to = json_get_string(peer, "device_id", "");
			const struct json *other = command_find(devices, "device_id", to, NULL);
			const struct json *back = command_find(json_get(other, "peers"), "device_id", id, NULL);
			if (back && strcmp(id, to) > 0)
				continue;
			add_pair(&table, snapshot, one, peer, back);
			any = true;
		}
	}
	const int result = any && table_print(&table, stdout, &terminal, error) ? 1 : 0;
	table_finish(&table);
	if (!result && any) {
		print_unmeasured(devices);
		printf("\n");
	}
	return result;
}

// Devices of one machine whose copies should go directly and do not: the first, and how many more. The pairs' own lines
// say of each that it goes by the host.
static void print_staged(const struct json *snapshot)
{
	size_t count = 0;
	const struct json *devices = json_get(snapshot, "devices");
	for (const struct json *one = json_first(devices); one; one = json_next(one))
		for (const struct json *peer = json_first(json_get(one, "peers")); peer; peer = json_next(peer)) {
			char line[2 * COMMAND_LABEL_BYTES + 64], from[COMMAND_LABEL_BYTES], to[COMMAND_LABEL_BYTES];
			if (strcmp(json_get_string(peer, "class", ""), "staged") != 0 || count++ >= REASONS)
				continue;
			snprintf(line, sizeof line, "%s to %s goes through host memory: the direct copy was refused",
				 command_device_label(snapshot, json_get_string(one, "device_id", ""), from),
				 command_device_label(snapshot, json_get_string(peer, "device_id", ""), to));
			command_print_text(stdout, "", line);
		}
	if (count > REASONS)
		printf("and so do %zu more\n", count - REASONS);
}

static int print_all(const struct json *snapshot, const struct json *summary, struct error *error)
{
	struct table table;
	struct terminal terminal = terminal_of_stdout();
	const struct json *links = json_get(snapshot, "links"), *nodes = json_get(snapshot, "nodes");
	print_summary(summary);
	print_staged(snapshot);
	if (print_pairs(snapshot, error))
		return 1;
	if (!json_count(links)) {
		fprintf(stderr,
			"No link was measured yet. Nodes measure their way to the server once they are connected,\n"
			"and to each other where one can reach the other; exogpu node on another machine brings "
			"one.\n");
		return 0;
	}
	table_init(&table, columns, sizeof columns / sizeof *columns);
	for (const struct json *link = json_first(links); link; link = json_next(link)) {
		const struct json *back = other_way(links, link);
		const bool first = !back || strcmp(json_get_string(link, "from_node_id", ""),
						   json_get_string(link, "to_node_id", "")) < 0;
		if (first)
			add_link(&table, nodes, link, back);
	}
	const int result = table_print(&table, stdout, &terminal, error) ? 1 : 0;
	table_finish(&table);
	for (const struct json *link = json_first(links); link && !result; link = json_next(link)) {
		char line[768], from[COMMAND_NODE_LABEL_BYTES], to[COMMAND_NODE_LABEL_BYTES];
		if (!json_get_bool(link, "degraded", false) || strcmp(json_get_string(link, "state", ""), "up") != 0)
			continue;
		snprintf(line, sizeof line, "%s to %s is degraded: %.400s",
			 command_node_label(nodes, json_get_string(link, "from_node_id", ""), from),
			 command_node_label(nodes, json_get_string(link, "to_node_id", ""), to),
			 json_get_string(link, "degraded_reason", ""));
		command_print_text(stdout, "", line);
	}
	return result;
}

static int run(const struct cli_arguments *arguments, struct error *error)
{
	struct json *snapshot = NULL, *summary = NULL;
	struct cli_arguments quiet = *arguments;
	quiet.json = false;
	int result = command_call(&quiet, "cluster.snapshot", NULL, &snapshot, error);
	if (!result)
		result = command_call(&quiet, "topology.summary", NULL, &summary, error);
	if (!result && arguments->json) {
		struct json *both = json_new_object();
		json_set(both, "summary", summary);
		json_set(both, "links", json_copy(json_get(snapshot, "links")));
		summary = NULL;
		result = command_print_json(both, error) ? 1 : 0;
		json_destroy(&both);
	} else if (!result) {
		result = print_all(snapshot, summary, error);
	}
	json_destroy(&snapshot);
	json_destroy(&summary);
	return result;
}

const struct cli_command topology_command = {
	.name = "topology",
	.summary = "show how far apart the machines are, and which link is the bottleneck",
	.more = "THERE and BACK are a link's throughput in each direction; of two devices of one machine, how fast "
		"copies "
		"between\n"
		"them went when their node measured it. AGE is that of the oldest figure of a row: THERE and BACK are\n"
		"measured twice a minute, and not while a model uses the link. A direction is degraded when it is\n"
		"worse than links of its class should be. With --json: {summary, links} of topology.summary and\n"
		"cluster.snapshot.\n",
	.run = run,
};
