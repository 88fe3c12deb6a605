/* See announce.h. The name of the host is the cluster's own, so that it is nobody else's: a system's responder may
 * speak for the machine's name at the same time. */
#include "server/announce.h"

#include <stdio.h>
#include <string.h>

enum { CLUSTER_DIGITS = 8 };

// A name for a person, cut where a letter of several bytes begins, so that the whole fits a label.
static void name_instance(char *out, size_t size, const char *name, const char *digits)
{
	size_t room = size - 1 - strlen(digits) - 3, length = strlen(name);
	if (length > room)
		for (length = room; length && ((unsigned char)name[length] & 0xc0) == 0x80;)
			length--;
	snprintf(out, size, "%.*s (%s)", (int)length, name, digits);
}

enum status announce_create(struct net_announcer **out, struct net_loop *loop, const struct announce_params *params,
			    struct error *error)
{
	char instance[DNSSD_LABEL_BYTES + 1], host[32], id[48], cluster[24], version[40], fingerprint[24] = "fp=";
	const char *digits = strrchr(params->cluster_id, '_');
	char short_id[CLUSTER_DIGITS + 1];
	snprintf(short_id, sizeof short_id, "%s", digits ? digits + 1 : params->cluster_id);
	name_instance(instance, sizeof instance, params->cluster_name, short_id);
	snprintf(host, sizeof host, "exogpu-%s", short_id);
	snprintf(id, sizeof id, "id=%.40s", params->cluster_id);
	snprintf(cluster, sizeof cluster, "cluster=%s", short_id);
	snprintf(version, sizeof version, "ver=%.30s", EXOGPU_VERSION);
	for (size_t i = 0; i < 8; i++)
		snprintf(fingerprint + 3 + 2 * i, 3, "%02x", params->authority_sha256[i]);
	const struct dnssd_service service = {
		.type = "_exo-gpu._tcp",
		.instance = instance,
		.host = host,
		.port = (uint16_t)params->port,
		.txt = {"txtvers=1", id, cluster, version, "role=server", fingerprint},
	};
	return net_announcer_create(out, loop, &service, error);
}
