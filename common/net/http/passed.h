/* The header with which one server passes a connection on to another (pass.h), written and read:
 *
 *     exogpu-passed-on: 1 ADDRESS tls|plain MAC
 *
 * ADDRESS is the client's, and MAC the HMAC-SHA256 of what stands before it, in hexadecimal digits, under the key that
 * the servers of a cluster share. Pure. */
#pragma once
#include "common/base/buffer.h"
#include "common/net/http/head.h"
#include "common/net/http/pass.h"

struct net_passed {
	char peer[64]; // the client's address, numeric
	bool tls;      // it came by TLS
};
// The head of a request with this header, and without any that it had. Errors: STATUS_LIMIT_EXCEEDED,
// STATUS_OUT_OF_MEMORY.
enum status net_passed_print(const struct head *head, const char *peer, bool tls, const uint8_t key[NET_PASS_KEY_BYTES],
			     struct buffer *out);
// Whether a head has the header, as its only one and with a MAC of this key.
bool net_passed_read(const struct head *head, const uint8_t key[NET_PASS_KEY_BYTES], struct net_passed *out);
