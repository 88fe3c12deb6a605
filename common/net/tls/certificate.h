/* OpenSSL certificates and keys: parsed from PEM, described, and matched with the party that they
 * are for. Both ends of TLS use it (tls.c, tls_dial.c). Thread: any; results belong to the
 * caller. */
#pragma once
#include "common/net/tls/tls.h"

#include <openssl/ssl.h>

// The identity of one end: its certificate, intermediate certificates, and its key.
struct net_credentials {
	X509 *leaf; // NULL: nothing is shown
	STACK_OF(X509) * chain;
	EVP_PKEY *key;
};
// Errors: STATUS_INVALID_PARAMS (unreadable, or the key is another's), STATUS_OUT_OF_MEMORY.
enum status net_credentials_read(struct net_credentials *out, const char *chain_pem, const char *key_pem,
				 struct error *error);
void net_credentials_finish(struct net_credentials *credentials);
// Show them in this connection's handshake.
bool net_credentials_use(const struct net_credentials *credentials, SSL *ssl);

// The first certificate in a PEM text. NULL: there is none.
X509 *net_certificate_read(const char *pem);
void net_certificate_describe(X509 *certificate, struct net_certificate *out);
bool net_certificate_sha256(X509 *certificate, uint8_t out[NET_SHA256_BYTES]);
// Whether one of its URIs is this one; one that ends with a colon stands for all that begin so.
bool net_certificate_has_uri(X509 *certificate, const char *uri);
// Whether it is for this name or address.
bool net_certificate_is_for(X509 *certificate, const char *host);
// Whom it is for, in words: names, addresses and URIs, as many as fit.
void net_certificate_names(X509 *certificate, char *out, size_t room);
bool net_is_address(const char *host);
