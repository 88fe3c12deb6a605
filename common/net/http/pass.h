/* Passes connections on to another server: that of a follower to the server that leads.
 *
 *     client  --- TLS --->  this server  --- TLS --->  the server that leads
 *
 * A connection belongs to this file from the head of its first request on (net_handler.pass). That head is sent on with
 * one more header, NET_PASSED_HEADER, in which this server says for which address it speaks, with a MAC under a key
 * that both servers have. What follows are bytes, to and fro: at most PASS_BYTES wait in each direction, and whoever
 * does not take them holds the other end back. The server that leads judges the requests and their pace, and counts the
 * connection for the address of the client (net_listener_params.passed_key). Where it cannot be reached the request is
 * answered here. Thread: the loop's. */
#pragma once
#include "common/net/ws/ws.h"

#define NET_PASSED_HEADER "exogpu-passed-on"

struct net_pass;
struct net_pass_params {
	struct net_loop *loop;
	const char *authority_pem; // that the certificate of the other server must come from; NULL: it is plain HTTP
	const char *server_uri;    // that its certificate must carry; one that ends with a colon: begin with
	const uint8_t *key;        // (NET_PASS_KEY_BYTES)
	// The answer where nobody is reached; response->owned is initialised.
	void (*absent)(void *context, struct net_response *response);
	void *context;
};
// All of `params` is copied. Errors: STATUS_INVALID_PARAMS (no certificate), STATUS_OUT_OF_MEMORY.
enum status net_pass_create(struct net_pass **out, const struct net_pass_params *params, struct error *error);
// From now on to this address (numeric) and port; NULL: to nobody. Connections that stand to another one are ended.
void net_pass_to(struct net_pass *pass, const char *address, int port);
bool net_pass_can(const struct net_pass *pass); // it has an address
void net_pass_destroy(struct net_pass **pass);  // ends its connections
