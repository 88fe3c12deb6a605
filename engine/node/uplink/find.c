/* See find.h. */
#include "engine/node/uplink/find.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/mdns/browse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	SETTLE_MS = 2000, // others may answer, too, before one is taken
	HELP_MS = 30000,  // without a server
	HELP_AGAIN_MS = 300000,
	SAID = 64, // services that the log told of
	ADDRESSES = LIMIT_HEARD_ADDRESSES,
};

static const char uri_prefix[] = "exogpu:server:";

struct addresses {
	char text[ADDRESSES][NET_BROWSE_ADDRESS_BYTES];
	size_t count;
};

static void list_addresses(const struct net_browser *browser, const struct heard_service *service,
			   struct addresses *out)
{
	out->count = net_browser_addresses(browser, service, out->text, ADDRESSES);
}

static void print_address(const char *address, int port, char *out, size_t size)
{
	snprintf(out, size, strchr(address, ':') ? "[%s]:%d" : "%s:%d", address, port);
}

// ---- the first server ----

struct find {
	struct find_params params;
	struct net_browser *browser;
	struct net_timer settle, look, help;
	char fingerprint[PRESENCE_FINGERPRINT_BYTES]; // of the ticket; "": any
	char said[SAID][DNSSD_LABEL_BYTES + 1];
	size_t said_count;
	bool ended, quiet_said; // quiet_said: why there is no multicast
	struct find_place *found;
	enum status status;
	struct error *error;
};

// Why a service is not the server that is looked for, as a sentence; NULL: it is.
static const char *fault_of(const struct find *find, const struct heard_service *service)
{
	const struct net_presence *presence = &service->presence;
	const char *fault = net_presence_fault(presence);
	if (fault)
		return fault;
	if (strcmp(presence->role, "server") != 0)
		return "not a server";
	if (find->fingerprint[0] && strcmp(presence->fingerprint, find->fingerprint) != 0)
		return "another cluster than the ticket's";
	if (!service->port)
		return "it does not give its port";
	return service->address_count ? NULL : "it does not give its address";
}

static bool is_said(struct find *find, const char *name)
{
	for (size_t i = 0; i < find->said_count; i++)
		if (!strcmp(find->said[i], name))
			return true;
	if (find->said_count < SAID)
		snprintf(find->said[find->said_count++], sizeof find->said[0], "%s", name);
	return find->said_count == SAID; // the rest is not told: somebody makes them up
}

static void say(struct find *find, const struct heard_service *service)
{
	const struct net_presence *presence = &service->presence;
	const char *fault = fault_of(find, service);
	struct addresses addresses;
	char address[300] = "an unknown address";
	if ((!presence->said || !service->address_count) && clock_steady_ms() - service->first_ms < SETTLE_MS)
		return; // the rest may follow
	if ((!net_presence_fault(presence) && !strcmp(presence->role, "node")) || is_said(find, service->name))
		return;
	list_addresses(find->browser, service, &addresses);
	if (addresses.count)
		print_address(addresses.text[0], service->port, address, sizeof address);
	log_info("node", "heard \"%s\" at %s on %s, %s %s, cluster %s, fingerprint %s%s%s", service->name, address,
		 net_browser_interface(find->browser, service->places[0].interface),
		 presence->role[0] ? presence->role : "?", presence->version,
		 presence->cluster_id[0] ? presence->cluster_id : "none",
		 presence->fingerprint[0] ? presence->fingerprint : "none", fault ? ": " : "", fault ? fault : "");
}

static void end(struct find *find, enum status status)
{
	find->ended = true;
	find->status = status;
	net_loop_stop(find->params.loop);
}

static bool same_cluster(const struct heard_service *a, const struct heard_service *b)
{
	return !strcmp(a->presence.cluster_id, b->presence.cluster_id) &&
	       !strcmp(a->presence.fingerprint, b->presence.fingerprint);
}

// The service to take: of one cluster, the one heard first. *several: they are of more than one.
static const struct heard_service *choose(const struct find *find, bool *several)
{
	const struct heard *heard = net_browser_heard(find->browser);
	const struct heard_service *chosen = NULL;
	*several = false;
	for (size_t i = 0; i < heard->count; i++) {
		const struct heard_service *one = &heard->services[i];
		if (fault_of(find, one))
			continue;
		*several |= chosen && !same_cluster(chosen, one);
		if (!chosen || one->first_ms < chosen->first_ms)
			chosen = one;
	}
	return chosen;
}

static void settle(void *arg)
{
	struct find *find = arg;
	struct addresses addresses;
	bool several;
	const struct heard_service *chosen = choose(find, &several);
	if (find->ended || !chosen)
		return;
	list_addresses(find->browser, chosen, &addresses);
	if (several) {
		error_set(find->error, STATUS_INVALID_PARAMS,
			  "servers of several clusters are announced here, and no option says which one to join");
		error_hint(find->error, "choose: exogpu node --join HOST:PORT, with an address of those above; exogpu "
					"discover lists them");
		end(find, STATUS_INVALID_PARAMS);
		return;
	}
	snprintf(find->found->host, sizeof find->found->host, "%s", addresses.text[0]);
	find->found->port = chosen->port;
	end(find, STATUS_OK);
}

static void changed(void *arg)
{
	struct find *find = arg;
	const struct heard *heard = net_browser_heard(find->browser);
	bool several;
	for (size_t i = 0; i < heard->count; i++)
		say(find, &heard->services[i]);
	if (choose(find, &several) && !find->settle.running)
		net_timer_start(find->params.loop, &find->settle, SETTLE_MS, settle, find);
}

static void say_quiet(struct find *find)
{
	char why[NET_MULTICAST_WHY_BYTES];
	const bool works = net_browser_works(find->browser, why);
	if (!works && !find->quiet_said)
		log_warning("node", "discovery does not work here: %s", why);
	find->quiet_said = !works;
}

// Incomplete announcements may be complete now, and the network may have come or gone.
static void look(void *arg)
{
	struct find *find = arg;
	say_quiet(find);
	changed(find);
	net_timer_start(find->params.loop, &find->look, SETTLE_MS, look, find);
}

static void help(void *arg)
{
	struct find *find = arg;
	log_warning(
		"node",
		"no server%s is announced on the networks of this machine. Start it there with: exogpu serve "
		"--lan. If it runs: "
		"exogpu node --join HOST:PORT needs no announcement. They do not pass from one network into another, "
		"out of a container, through some VPNs and wireless access points, or a firewall that closes 5353/udp. "
		"Listening on",
		find->fingerprint[0] ? " of this ticket's cluster" : "");
	net_timer_start(find->params.loop, &find->help, HELP_AGAIN_MS, help, find);
}

enum status find_run(const struct find_params *params, struct find_place *found, struct error *error)
{
	struct find find = {.params = *params, .found = found, .error = error};
	if (params->authority_sha256)
		net_presence_fingerprint(params->authority_sha256, find.fingerprint);
	enum status status = net_browser_create(&find.browser, params->loop, NET_PRESENCE_TYPE, changed, &find, error);
	if (status)
		return status;
	const size_t count = net_browser_interfaces(find.browser);
	log_info("node", "looking for a server on the local networks (%zu interface%s)", count, count == 1 ? "" : "s");
	look(&find);
	net_timer_start(params->loop, &find.help, HELP_MS, help, &find);
	net_loop_run(params->loop);
	net_timer_stop(params->loop, &find.settle);
	net_timer_stop(params->loop, &find.look);
	net_timer_stop(params->loop, &find.help);
	net_browser_destroy(&find.browser);
	return find.ended ? find.status : STATUS_CONFLICT; // *stopping
}

// ---- the server that this node has joined ----

struct finder {
	struct net_browser *browser;
	char cluster_id[PRESENCE_ID_BYTES], fingerprint[PRESENCE_FINGERPRINT_BYTES];
};

enum status finder_create(struct finder **out, struct net_loop *loop, const char *server_uri,
			  const uint8_t *authority_sha256, struct error *error)
{
	struct finder *finder = calloc(1, sizeof(*finder));
	*out = NULL;
	if (!finder)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	if (!strncmp(server_uri, uri_prefix, sizeof uri_prefix - 1))
		snprintf(finder->cluster_id, sizeof finder->cluster_id, "%s", server_uri + sizeof uri_prefix - 1);
	net_presence_fingerprint(authority_sha256, finder->fingerprint);
	enum status status = net_browser_create(&finder->browser, loop, NET_PRESENCE_TYPE, NULL, NULL, error);
	if (status)
		free(finder);
	else
		*out = finder;
	return status;
}

void finder_destroy(struct finder **finder)
{
	if (!*finder)
		return;
	net_browser_destroy(&(*finder)->browser);
	free(*finder);
	*finder = NULL;
}

static bool is_ours(const struct finder *finder, const struct heard_service *service)
{
	const struct net_presence *presence = &service->presence;
	return !net_presence_fault(presence) && !strcmp(presence->role, "server") && service->port &&
	       !strcmp(presence->cluster_id, finder->cluster_id) && !strcmp(presence->fingerprint, finder->fingerprint);
}

bool finder_elsewhere(const struct finder *finder, const struct find_place *known, unsigned turn,
		      struct find_place *out)
{
	const struct heard *heard = net_browser_heard(finder->browser);
	struct addresses addresses;
	unsigned count = 0;
	for (int round = 0; round < 2; round++) { // how many there are, then the one whose turn it is
		unsigned at = 0;
		for (size_t i = 0; i < heard->count; i++) {
			const struct heard_service *one = &heard->services[i];
			if (!is_ours(finder, one))
				continue;
			list_addresses(finder->browser, one, &addresses);
			for (size_t k = 0; k < addresses.count; k++) {
				if (one->port == known->port && !strcmp(addresses.text[k], known->host))
					continue;
				if (round && at++ == turn % count) {
					snprintf(out->host, sizeof out->host, "%s", addresses.text[k]);
					out->port = one->port;
					return true;
				}
				count += !round;
			}
		}
		if (!count)
			return false;
	}
	return false;
}
