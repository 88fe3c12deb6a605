/* TLS 1.3 for listeners and dialled connections: never an older version, always an ephemeral
 * key exchange. A listener's net_tls has two identities: a public one (browsers, API clients)
 * and the cluster's own (nodes and the command line, which ask for NET_TLS_CLUSTER_NAME).
 * Both may be replaced while it listens; new handshakes use the new ones. A client
 * certificate is requested, with only the cluster's authority named, but never required; one
 * that does not verify ends the handshake. Session tickets are encrypted with keys that
 * change every day. A long connection changes its keys every hour or 64 GiB. Thread: the
 * loop's. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

#define NET_TLS_CLUSTER_NAME "cluster.exogpu.internal"

enum { NET_SHA256_BYTES = 32, NET_CERTIFICATE_URI_BYTES = 160, NET_SERIAL_BYTES = 48 };

// The peer's certificate, after it was verified; uri "" if it showed none.
struct net_certificate {
	char uri[NET_CERTIFICATE_URI_BYTES]; // the first URI of its subjectAltName
	char serial[NET_SERIAL_BYTES];       // hexadecimal
	uint8_t sha256[NET_SHA256_BYTES];    // of its DER
	int64_t not_after_ms;
};

struct net_loop;
struct net_tls;

enum net_tls_identity { NET_TLS_PUBLIC, NET_TLS_CLUSTER, NET_TLS_IDENTITIES };

// authority_pem: whose client certificates are taken. Errors: STATUS_INVALID_PARAMS, STATUS_OUT_OF_MEMORY.
enum status net_tls_create(struct net_tls **out, struct net_loop *loop, const char *authority_pem, struct error *error);
void net_tls_destroy(struct net_tls **tls); // after its listeners, before its loop
// The certificate, those that it stands on (the cluster's with its authority, for those who know only its SHA-256), and
// its key, all PEM. Errors: STATUS_INVALID_PARAMS (unreadable, or
// the key is another's): then what was there stays. Where only one of the two is shown, everybody gets that.
enum status net_tls_show(struct net_tls *tls, enum net_tls_identity identity, const char *chain_pem,
			 const char *key_pem, struct error *error);
// Sessions that were begun are not resumed any more. Done by itself every day.
void net_tls_replace_ticket_keys(struct net_tls *tls);

// Whom a connection that dials trusts, and what it shows. All texts are copied.
struct net_dial_tls {
	// Trust: this authority (PEM), or the authority whose certificate has this SHA-256 and that the server sends
	// along, or, with any_authority, whichever it sends (for a first meeting, see net_conn_authority); without any
	// of them, those of the system.
	const char *authority_pem;
	const uint8_t *authority_sha256; // (32)
	bool any_authority;
	const char *server_uri; // the URI that its certificate must carry; "exogpu:server:" alone: any cluster's.
				// NULL: the host's name or address must be in it
	const char *chain_pem, *key_pem; // shown when asked for; NULL: none
};
