/* See announce.h. */
#include "engine/node/uplink/announce.h"

#include "common/base/log.h"
#include "common/net/mdns/presence.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct node_announcer {
	struct net_announcer *announcer;
	struct net_presence said; // last
	int port;
};

// Present, verified, and not the processor.
static int count_gpus(const struct device_table *table)
{
	int count = 0;
	for (size_t i = 0; i < table->count; i++) {
		const struct device_record *record = table->records[i];
		const struct device_api *api = &record->apis[device_record_backend(record)];
		count += device_record_present(record) && api->info.kind != DEVICE_CPU &&
			 api->verification.state == VERIFICATION_PASSED;
	}
	return count;
}

static void describe(struct net_presence *presence, const struct node_announce *announce)
{
	const struct credentials *credentials = announce->credentials;
	const char *cluster = strrchr(credentials->server_uri, ':'); // exogpu:server:CLUSTER
	net_presence_begin(presence);
	snprintf(presence->role, sizeof presence->role, "node");
	snprintf(presence->id, sizeof presence->id, "%s", announce->node_id);
	snprintf(presence->version, sizeof presence->version, "%s", EXOGPU_VERSION);
	presence->gpus = announce->devices ? count_gpus(announce->devices) : -1;
	if (!credentials->joined || !cluster)
		return;
	snprintf(presence->cluster_id, sizeof presence->cluster_id, "%.64s", cluster + 1);
	net_presence_fingerprint(credentials->authority_sha256, presence->fingerprint);
}

static void print(const struct net_presence *presence, const struct node_announce *announce,
		  struct net_presence_service *out)
{
	char host[65] = "";
	if (gethostname(host, sizeof host - 1) || !host[0])
		snprintf(host, sizeof host, "unnamed");
	net_presence_print(presence, announce->name && announce->name[0] ? announce->name : host, announce->port, out);
}

enum status node_announcer_create(struct node_announcer **out, struct net_loop *loop,
				  const struct node_announce *announce, struct error *error)
{
	struct net_presence_service printed;
	struct node_announcer *announcer = calloc(1, sizeof(*announcer));
	*out = NULL;
	if (!announcer)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	describe(&announcer->said, announce);
	announcer->port = announce->port;
	print(&announcer->said, announce, &printed);
	enum status status = net_announcer_create(&announcer->announcer, loop, &printed.service, error);
	if (status)
		free(announcer);
	else
		*out = announcer;
	return status;
}

void node_announcer_destroy(struct node_announcer **announcer)
{
	if (!*announcer)
		return;
	net_announcer_destroy(&(*announcer)->announcer);
	free(*announcer);
	*announcer = NULL;
}

void node_announcer_update(struct node_announcer *announcer, const struct node_announce *announce)
{
	struct net_presence presence;
	struct net_presence_service printed;
	struct error error = {0};
	describe(&presence, announce);
	if (announcer->port == announce->port && !memcmp(&presence, &announcer->said, sizeof presence))
		return;
	announcer->said = presence;
	announcer->port = announce->port;
	print(&presence, announce, &printed);
	if (net_announcer_update(announcer->announcer, &printed.service, &error))
		log_warning("node", "this node's announcement cannot be updated: %s", error.message);
}
