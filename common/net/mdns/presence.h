/* What exogpu says of itself on the local networks, as texts of a DNS-SD service: made here, and read here when it
 * comes from elsewhere.
 *
 *   txtvers   1
 *   id        of who says it: a node's id; a server's is its cluster's
 *   cluster   the cluster's id; not of a node that has not joined one
 *   ver       of the program
 *   role      server, node
 *   gpus      how many; not before that is known
 *   fp        the first 8 bytes of the SHA-256 of the cluster's authority, in hexadecimal; absent without a cluster
 *
 * Together well under DNSSD_TXT_BYTES, and nothing secret. Nothing of it is proven: it says where to knock, and the
 * certificate there says who it is. Pure. Thread: any. */
#pragma once
#include "common/net/mdns/dnssd.h"

#define NET_PRESENCE_TYPE "_exo-gpu._tcp"

enum { PRESENCE_ID_BYTES = 65, PRESENCE_TEXTS = 7, PRESENCE_TEXT_BYTES = 80, PRESENCE_FINGERPRINT_BYTES = 17 };

struct net_presence {
	char role[17], id[PRESENCE_ID_BYTES], cluster_id[PRESENCE_ID_BYTES], version[PRESENCE_ID_BYTES];
	char fingerprint[PRESENCE_FINGERPRINT_BYTES];
	int gpus;           // -1: not said
	unsigned said;      // of one that is read: which keys came; the first of each counts
	bool damaged, next; // a value that cannot be one; made for another txtvers
};

// The first bytes of a SHA-256, as `fp` has them.
void net_presence_fingerprint(const uint8_t sha256[32], char out[PRESENCE_FINGERPRINT_BYTES]);

// The service of one that is announced. `name` is what a person calls it; a name too long is cut between letters.
struct net_presence_service {
	char instance[DNSSD_LABEL_BYTES + 1], host[DNSSD_LABEL_BYTES + 1];
	char texts[PRESENCE_TEXTS][PRESENCE_TEXT_BYTES];
	struct dnssd_service service; // points into the others
};
void net_presence_print(const struct net_presence *presence, const char *name, int port,
			struct net_presence_service *out);

void net_presence_begin(struct net_presence *presence);
// The next text of a service that was heard, "key=value"; other keys are passed over.
void net_presence_read(struct net_presence *presence, const uint8_t *text, size_t length);
// The fault of an announcement, as a sentence; NULL: none.
const char *net_presence_fault(const struct net_presence *presence);
