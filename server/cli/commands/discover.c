/* `exogpu discover`: who announces itself as exogpu on the networks of this machine. It listens itself and so needs no
 * server; one that runs here, or was named, is asked what became of each. Thread: the process's only one. */
#include "common/net/loop.h"
#include "common/net/mdns/browse.h"
#include "server/cli/commands/commands.h"
#include "server/cli/format.h"

#include <stdlib.h>
#include <string.h>

enum { LISTEN_S = 5, LISTEN_MOST_S = 3600 };

static const struct table_column columns[] = {
	{.title = "NAME", .narrowest = 12},
	{.title = "ROLE"},
	{.title = "ADDRESS"},
	{.title = "ON"},
	{.title = "VERSION", .leave_out = 2},
	{.title = "CLUSTER", .leave_out = 3},
	{.title = "FINGERPRINT", .leave_out = 1},
	{.title = "VERDICT"},
};

static void stop(void *arg)
{
	net_loop_stop(arg);
}

// ---- what became of one ----

// What can be said without a server: nothing of it has been compared with anything.
static const char *explain(const struct heard_service *service)
{
	const struct net_presence *presence = &service->presence;
	const char *fault = net_presence_fault(presence);
	if (fault)
		return fault;
	if (!strcmp(presence->role, "server"))
		return service->port && service->address_count
			       ? "a server; exogpu node --join ADDRESS joins it, at the address above"
			       : "it does not give its address";
	return presence->cluster_id[0] ? "a node that has joined this cluster" : "a node that has not joined a cluster";
}

// `told`: the answer of discovery.list, or NULL.
static void judge(struct json *one, const struct heard_service *service, const struct json *told)
{
	const struct json *same = command_find(json_get(told, "heard"), "name", json_get_string(one, "name", ""), NULL);
	const bool damaged = net_presence_fault(&service->presence);
	if (same)
		json_set_string(one, "verdict", json_get_string(same, "verdict", ""));
	else
		json_set(one, "verdict", damaged ? json_new_string("damaged") : json_new_null());
	json_set_string(one, "why", same ? json_get_string(same, "why", "") : explain(service));
}

// Where no server can be asked that is no fault: it need not run.
static struct json *ask_server(const struct cli_arguments *arguments)
{
	struct json *answer = NULL;
	struct error error = {0};
	struct cli_arguments quiet = *arguments;
	quiet.json = false;
	command_call(&quiet, "discovery.list", NULL, &answer, &error);
	return answer;
}

// ---- printing ----

static void add_list(struct table *table, const struct json *list)
{
	char text[256] = "";
	for (const struct json *one = json_first(list); one; one = json_next(one)) {
		size_t used = strlen(text);
		snprintf(text + used, sizeof text - used, "%s%s", used ? ", " : "", json_string(one, ""));
	}
	table_add(table, TONE_PLAIN, "%s", text);
}

static void add_row(struct table *table, const struct json *one)
{
	const char *verdict = json_get_string(one, "verdict", ""),
		   *fingerprint = json_get_string(one, "fingerprint", "");
	const char *address = json_string(json_first(json_get(one, "addresses")), "");
	const long long port = json_get_integer(one, "port", 0);
	const bool good = !strcmp(verdict, "self") || !strcmp(verdict, "member");
	table_add(table, TONE_PLAIN, "%s", json_get_string(one, "name", ""));
	table_add(table, TONE_PLAIN, "%s", json_get_string(one, "role", ""));
	if (port && address[0])
		table_add(table, TONE_PLAIN, strchr(address, ':') ? "[%s]:%lld" : "%s:%lld", address, port);
	else
		table_add(table, TONE_PLAIN, "%s", address);
	add_list(table, json_get(one, "interfaces"));
	table_add(table, TONE_PLAIN, "%s", json_get_string(one, "version", ""));
	table_add(table, TONE_PLAIN, "%s", json_get_string(one, "cluster_id", ""));
	table_add(table, TONE_PLAIN, "%s", fingerprint);
	table_add(table, good ? TONE_GOOD : verdict[0] ? TONE_ATTENTION : TONE_PLAIN, "%s", verdict);
}

static int print_table(const struct json *list, struct error *error)
{
	struct table table;
	struct terminal terminal = terminal_of_stdout();
	char line[512];
	table_init(&table, columns, sizeof columns / sizeof *columns);
	for (const struct json *one = json_first(list); one; one = json_next(one))
		add_row(&table, one);
	int result = table_print(&table, stdout, &terminal, error) ? 1 : 0;
	table_finish(&table);
	for (const struct json *one = json_first(list); one && !result; one = json_next(one)) {
		snprintf(line, sizeof line, "%.63s: %.400s", json_get_string(one, "name", ""),
			 json_get_string(one, "why", ""));
		printf("%s", one == json_first(list) ? "\n" : "");
		command_print_text(stdout, "", line);
	}
	return result;
}

static void say_nothing_heard(size_t interfaces, long long seconds)
{
	fprintf(stderr,
		"Nothing was heard in %lld s, on %zu interface%s. A server announces itself when it was started with\n"
		"exogpu serve --lan, a node always. Announcements do not pass from one network into another, out of a\n"
		"container, through some VPNs and wireless access points, or a firewall that closes 5353/udp.\n"
		"exogpu node --join HOST:PORT needs none.\n",
		seconds, interfaces, interfaces == 1 ? "" : "s");
}

// ---- the command ----

static int report(const struct cli_arguments *arguments, const struct net_browser *browser, long long seconds,
		  struct error *error)
{
	char why[NET_MULTICAST_WHY_BYTES];
	const struct heard_service *all[LIMIT_HEARD];
	const bool listening = net_browser_works(browser, why);
	const size_t count = net_browser_list(browser, all);
	struct json *told = ask_server(arguments), *list = json_new_array();
	int result = 0;
	for (size_t i = 0; i < count; i++) {
		struct json *one = net_browser_describe(browser, all[i], true);
		judge(one, all[i], told);
		json_push(list, one);
	}
	if (arguments->json) {
		struct json *answer = json_new_object();
		json_set(answer, "heard", list);
		json_set_bool(answer, "listening", listening);
		json_set(answer, "reason", why[0] ? json_new_string(why) : json_new_null());
		result = command_print_json(answer, error) ? 1 : 0;
		list = NULL;
		json_destroy(&answer);
	} else if (count) {
		result = print_table(list, error);
	} else if (listening) {
		say_nothing_heard(net_browser_interfaces(browser), seconds);
	}
	if (listening && why[0] && !arguments->json)
		fprintf(stderr, "This machine cannot send discovery queries on one of its networks: %s.\n", why);
	if (!result && !listening && !arguments->json) {
		error_set(error, STATUS_UNAVAILABLE, "discovery does not work here: %s", why);
		error_hint(error, "exogpu node --join HOST:PORT needs no announcement");
		result = 1;
	}
	json_destroy(&list);
	json_destroy(&told);
	return result;
}

static int run(const struct cli_arguments *arguments, struct error *error)
{
	struct net_loop *loop = NULL;
	struct net_browser *browser = NULL;
	struct net_timer timer = {0};
	int64_t seconds = LISTEN_S;
	if (arguments->listen && parse_duration(arguments->listen, &seconds, error))
		return 2;
	if (seconds > LISTEN_MOST_S) {
		error_set(error, STATUS_INVALID_PARAMS, "--for takes an hour at most");
		return 2;
	}
	enum status status = net_loop_create(&loop, error);
	if (!status)
		status = net_browser_create(&browser, loop, NET_PRESENCE_TYPE, NULL, NULL, error);
	int result = status ? 1 : 0;
	if (!status) {
		net_timer_start(loop, &timer, seconds * 1000, stop, loop);
		net_loop_run(loop);
		result = report(arguments, browser, seconds, error);
	}
	net_browser_destroy(&browser);
	net_loop_destroy(&loop);
	return result;
}

static const struct flag flags[] = {
	{"for", "DURATION", "how long to listen (default 5s)", offsetof(struct cli_arguments, listen)},
	{0},
};

const struct cli_command discover_command = {
	.name = "discover",
	.summary = "list who announces itself on this machine's networks",
	.more = "Needs no server. One that runs on the data directory, or is named by --url, is asked what became of\n"
		"each: self, member, waiting, not_joined, other_cluster or damaged. Nothing that is heard is proven.\n"
		"With --json: the result of discovery.list, where no server was asked with a verdict of null.\n",
	.flags = flags,
	.run = run,
};
