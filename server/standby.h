/* A server that follows: it waits for its turn (server/store/turn.h), says so at /healthz, and passes every other
 * connection on to the server that leads (common/net/http/pass.h): the dashboard, the command line, /v1 and browsers
 * that lend find it here, too. Nodes are refused, with the leader's address: they connect to it themselves, and a link
 * of theirs does not depend on a second server. Thread: the loop's. */
#pragma once
#include "common/net/ws/ws.h"
#include "server/security/certificates/authority.h"
#include "server/store/turn.h"

struct standby;
struct standby_params {
	struct net_loop *loop;
	struct turn *turn;
	const char *directory, *socket_path, *address; // as in struct http_params
	int port;
	bool tls; // by the authority in `directory`, where there is one already
	const char *tls_cert, *tls_key, *tls_names;
	const uint8_t *pass_key; // (NET_PASS_KEY_BYTES); read during the call
};
// Errors: those of net_listener_create and of the certificates.
enum status standby_create(struct standby **out, const struct standby_params *params, struct error *error);
int standby_port(const struct standby *standby); // where it listens; 0: nowhere
const char *standby_url(const struct standby *standby);
// Listens no more; who is still connected is told to connect again. standby_destroy follows before the loop's end.
void standby_end(struct standby *standby);
void standby_destroy(struct standby **standby);
