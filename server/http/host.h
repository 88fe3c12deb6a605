/* Which names a request's Host may have. Pure. */
#pragma once
#include "common/net/ws/ws.h"
#include "server/security/certificates/authority.h"

// A page that rebinds its own name to this machine's address comes here with that name, so names must be this server's;
// an address cannot be rebound. Off loopback a foreign page fails at the certificate already. On a
// listener without TLS localhost is the only name taken: others can be claimed by neighbours, by multicast DNS. The
// port does not matter: it may have been forwarded.
// authority: NULL without TLS.
bool host_allowed(const struct authority *authority, const struct net_request *request);
