/* See discovery.h. Verdicts also depend on the cluster, so everything heard is judged again every few seconds, and
 * published if anything but its times has changed. */
#include "server/cluster/discovery.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/mdns/announce.h"
#include "common/net/mdns/browse.h"
#include "common/wire/said.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	LOOK_MS = 3000,
	SOON_MS = 200,
	EVENT_KEY = 0x6865, // the newest of these events is the one that counts
	TOLD_BYTES = 1024 * 1024,
	WHY_BYTES = 400,
};

struct discovery {
	struct discovery_params params;
	struct net_browser *browser; // NULL: it does not listen
	struct net_announcer *announcer;
	int port, gpus; // as announced
	struct net_timer look;
	struct buffer told; // the last event's list, without times
};

// ---- what became of one ----

struct verdict {
	const char *word;
	char why[WHY_BYTES];
};

__attribute__((format(printf, 3, 4))) static void is(struct verdict *verdict, const char *word, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	verdict->word = word;
	vsnprintf(verdict->why, sizeof verdict->why, format, list);
	va_end(list);
}

static void judge_server(const struct discovery *discovery, const struct heard_service *service,
			 struct verdict *verdict)
{
	const struct net_presence *presence = &service->presence;
	char own[PRESENCE_FINGERPRINT_BYTES];
	net_presence_fingerprint(discovery->params.authority_sha256, own);
	if (strcmp(presence->cluster_id, discovery->params.cluster_id) != 0)
		is(verdict, "other_cluster", "the server of another cluster, %s", presence->cluster_id);
	else if (strcmp(presence->fingerprint, own) != 0)
		is(verdict, "other_cluster",
		   "it claims to be this cluster but has another authority (%s): do not let a node join it",
		   presence->fingerprint);
	else if (discovery->port && service->port != discovery->port)
		is(verdict, "other_cluster",
		   "another server with this cluster's authority, at port %d: two servers must not run on copies of "
		   "one data directory",
		   service->port);
	else
		is(verdict, "self", "this server");
}

static void judge_node(const struct discovery *discovery, const struct net_presence *presence, struct verdict *verdict)
{
	const struct discovery_params *params = &discovery->params;
	const bool ours = !strcmp(presence->cluster_id, params->cluster_id);
	struct json *node = cluster_describe_node(params->cluster, presence->id);
	const char *state = json_get_string(node, "state", "");
	if (params->waits(params->context, presence->id))
		is(verdict, "waiting", "it has asked to join: compare its six digits, then let it in");
	else if (node && ours && !strcmp(state, "online"))
		is(verdict, "member", "a node of this cluster");
	else if (node && ours)
		is(verdict, "member",
		   "a node of this cluster, without a connection: its program runs and is heard, so something "
		   "blocks this server's port");
	else if (node && presence->cluster_id[0])
		is(verdict, "other_cluster", "a node of this id is known here, but it has joined another cluster, %s",
		   presence->cluster_id);
	else if (node)
		is(verdict, "not_joined",
		   "a node of this id is known here, but it has lost its certificate: let it "
		   "join again, with exogpu node --join and this server's address");
	else if (ours)
		is(verdict, "not_joined", "it was a node of this cluster, and has been removed; it may join again");
	else if (presence->cluster_id[0])
		is(verdict, "other_cluster", "a node of another cluster, %s", presence->cluster_id);
	else
		is(verdict, "not_joined",
		   "it is in no cluster and has not asked this one: it may hear several servers, or not reach this "
		   "one; there: exogpu node --join, with this server's address");
	json_destroy(&node);
}

// A node that is here or may come, of another version than this server.
static void add_version(const struct net_presence *presence, struct verdict *verdict)
{
	const size_t used = strlen(verdict->why);
	if (presence->version[0] && strcmp(presence->version, EXOGPU_VERSION) != 0 &&
	    strcmp(verdict->word, "other_cluster") != 0)
		snprintf(verdict->why + used, sizeof verdict->why - used,
			 "; it is of version %s, this server of %s: models are not split over both, so install the "
			 "same on both",
			 presence->version, EXOGPU_VERSION);
}

static void judge(const struct discovery *discovery, const struct heard_service *service, struct verdict *verdict)
{
	const char *fault = net_presence_fault(&service->presence);
	const bool server = !strcmp(service->presence.role, "server");
	if (fault)
		is(verdict, "damaged", "%s", fault);
	else if (server && (!service->port || !service->address_count))
		is(verdict, "damaged", "it does not give its address");
	else if (server)
		judge_server(discovery, service, verdict);
	else {
		judge_node(discovery, &service->presence, verdict);
		add_version(&service->presence, verdict);
	}
}

// ---- as JSON ----

// Array of Heard of schema/api.json, the oldest first; without their times unless `timed`.
static struct json *list_heard(const struct discovery *discovery, bool timed)
{
	struct json *list = json_new_array();
	const struct heard_service *all[LIMIT_HEARD];
	const size_t count = discovery->browser ? net_browser_list(discovery->browser, all) : 0;
	for (size_t i = 0; i < count; i++) {
		struct verdict verdict;
		struct json *one = net_browser_describe(discovery->browser, all[i], timed);
		judge(discovery, all[i], &verdict);
		json_set_string(one, "verdict", verdict.word);
		said_set(one, "why", verdict.why);
		json_push(list, one);
	}
	return list;
}

struct json *discovery_json(const struct discovery *discovery)
{
	char why[NET_MULTICAST_WHY_BYTES] = "this server listens on its own machine only and does not search the "
					    "network; exogpu serve --lan opens it to the network";
	struct json *json = json_new_object();
	const bool listening = discovery->browser && net_browser_works(discovery->browser, why);
	json_set(json, "heard", list_heard(discovery, true));
	json_set_bool(json, "listening", listening);
	said_set(json, "reason", why[0] ? why : NULL);
	return json;
}

// ---- changes ----

static void tell(struct discovery *discovery)
{
	struct buffer now;
	struct json *list = list_heard(discovery, false);
	buffer_init(&now, TOLD_BYTES);
	const bool printed = !json_print(list, &now);
	json_destroy(&list);
	const bool same = printed && now.length == discovery->told.length &&
			  (!now.length || !memcmp(now.data, discovery->told.data, now.length));
	if (!printed || same) {
		buffer_finish(&now);
		return;
	}
	buffer_finish(&discovery->told);
	discovery->told = now;
	struct json *event = json_new_object();
	json_set(event, "links", json_new_array());
	json_set(event, "removed", json_new_array());
	json_set(event, "heard", list_heard(discovery, true));
	json_set(event, "servers", json_new_null());
	events_publish(discovery->params.events, TOPIC_TOPOLOGY, EVENT_KEY, event);
}

static void count_gpu(void *context, const struct cluster_device *device, const struct json *telemetry)
{
	int *count = context;
	const char *reason, *kind = json_get_string(cluster_device_record(device), "kind", "cpu");
	const char *state = cluster_device_state(device, &reason);
	(void)telemetry;
	*count += strcmp(kind, "cpu") != 0 && strcmp(state, "offline") != 0 && strcmp(state, "unsupported") != 0;
}

static void print_own(const struct discovery *discovery, struct net_presence_service *out)
{
	const struct discovery_params *params = &discovery->params;
	struct net_presence presence;
	net_presence_begin(&presence);
	snprintf(presence.role, sizeof presence.role, "server");
	snprintf(presence.id, sizeof presence.id, "%s", params->cluster_id);
	snprintf(presence.cluster_id, sizeof presence.cluster_id, "%s", params->cluster_id);
	snprintf(presence.version, sizeof presence.version, "%s", EXOGPU_VERSION);
	presence.gpus = discovery->gpus;
	net_presence_fingerprint(params->authority_sha256, presence.fingerprint);
	net_presence_print(&presence, params->cluster_name, discovery->port, out);
}

static int count_gpus(const struct discovery *discovery)
{
	int count = 0;
	cluster_each_device(discovery->params.cluster, count_gpu, &count);
	return count;
}

static void look(void *arg)
{
	struct discovery *discovery = arg;
	struct net_presence_service printed;
	struct error error = {0};
	const int gpus = count_gpus(discovery);
	net_timer_start(discovery->params.loop, &discovery->look, LOOK_MS, look, discovery);
	tell(discovery);
	if (!discovery->announcer || gpus == discovery->gpus)
		return;
	discovery->gpus = gpus;
	print_own(discovery, &printed);
	if (net_announcer_update(discovery->announcer, &printed.service, &error))
		log_warning("server", "announcements cannot be updated: %s", error.message);
}

enum status discovery_create(struct discovery **out, const struct discovery_params *params, struct error *error)
{
	struct discovery *discovery = calloc(1, sizeof(*discovery));
	char why[NET_MULTICAST_WHY_BYTES];
	*out = NULL;
	if (!discovery)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	discovery->params = *params;
	buffer_init(&discovery->told, TOLD_BYTES);
	enum status status = STATUS_OK;
	if (params->listening)
		status = net_browser_create(&discovery->browser, params->loop, NET_PRESENCE_TYPE, NULL, NULL, error);
	if (status) {
		discovery_destroy(&discovery);
		return status;
	}
	if (discovery->browser && !net_browser_works(discovery->browser, why))
		log_warning("server", "other machines cannot be discovered here: %s", why);
	if (params->listening)
		net_timer_start(params->loop, &discovery->look, SOON_MS, look, discovery);
	*out = discovery;
	return STATUS_OK;
}

enum status discovery_announce(struct discovery *discovery, int port, struct error *error)
{
	struct net_presence_service printed;
	discovery->port = port;
	discovery->gpus = count_gpus(discovery);
	print_own(discovery, &printed);
	return net_announcer_create(&discovery->announcer, discovery->params.loop, &printed.service, error);
}

void discovery_destroy(struct discovery **pointer)
{
	struct discovery *discovery = *pointer;
	if (!discovery)
		return;
	*pointer = NULL;
	net_timer_stop(discovery->params.loop, &discovery->look);
	net_announcer_destroy(&discovery->announcer);
	net_browser_destroy(&discovery->browser);
	buffer_finish(&discovery->told);
	free(discovery);
}
