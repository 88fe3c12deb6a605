/* TLS for the other files of common/net: the settings of a listener's and a dialler's SSL_CTX, and the data of a
 * dialled connection. Not for others. Thread: the loop's. */
#pragma once
#include "common/net/loop_lws.h"
#include "common/net/tls/certificate.h"

// AES first where the processor has it, as all that the program is made for do; else a client that lacks it says so.
#define NET_TLS_SUITES "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
#define NET_TLS_GROUPS "X25519:P-256:P-384"

// The context of a listener's connections. Owned and freed by tls. NULL: out of memory, or too many.
SSL_CTX *net_tls_context(struct net_tls *tls);

// Shared by all connections of a loop that dial by TLS; made with the first of them.
struct net_dialler;
void net_dialler_destroy(struct net_dialler **dialler); // after libwebsockets' context

// One connection that dials by TLS: whom it trusts, and the outcome.
struct net_dialled;
struct net_dialled_params {
	struct net_loop *loop;
	const struct net_dial_tls *tls;
	const char *host;
	struct lws *const *wsi; // where the connection will stand
};
// Errors: STATUS_INVALID_PARAMS (unreadable, or trust without an authority), STATUS_OUT_OF_MEMORY.
enum status net_dialled_create(struct net_dialled **out, const struct net_dialled_params *params, struct error *error);
void net_dialled_destroy(struct net_dialled **dialled);
struct lws_vhost *net_dialled_vhost(const struct net_dialled *dialled);
// The authority, once the handshake is done; NULL before.
const char *net_dialled_authority(const struct net_dialled *dialled, const uint8_t **sha256);
// The error, for a person; "" (NET_FAILURE_ABSENT) if TLS gave none.
const char *net_dialled_fault(const struct net_dialled *dialled, enum net_failure *failure);
