/* Who a node is to a server on another machine, in DATA/node/tls:
 *
 *   node.pem       its certificate and the key of that, in one file, so that a new pair takes the old one's place at
 * once authority.pem  the certificate of the cluster's authority: whom it trusts, and nobody else server         two
 * lines: HOST:PORT of the server, and the URI that the server's certificate carries node.key       the key of a request
 * that is under way: made once, so that asking again is asking as the same
 *
 * A node of the server's own machine has joined nobody: what it shows to other nodes is in DATA/node/tls-own, and
 * server says "unix" instead of HOST:PORT. A node that has the first three has joined. All are of mode 0600 and
 * replaced as a whole. Reading and writing wait for the disk; they happen when a node joins, and once in some weeks
 * when it renews its certificate. Thread: its owner's. */
#pragma once
#include "common/net/tls/tls.h"

enum { CREDENTIALS_ADDRESS_BYTES = 300, CREDENTIALS_PATH_BYTES = 4096 };

struct credentials {
	char folder[CREDENTIALS_PATH_BYTES];
	bool joined;
	char address[CREDENTIALS_ADDRESS_BYTES], server_uri[NET_CERTIFICATE_URI_BYTES];
	char *chain_pem, *key_pem, *authority_pem;
	uint8_t authority_sha256[NET_SHA256_BYTES];
	int64_t not_before_ms, not_after_ms; // of its certificate
};

// Read the folder, which need not be there; what is damaged counts as absent, with a word in the log. *credentials is
// to be finished in every case. Errors: STATUS_FORBIDDEN, STATUS_UNAVAILABLE (cannot be read), STATUS_INVALID_PARAMS
// (the path is too long); with hints.
enum status credentials_load(struct credentials *credentials, const char *folder, struct error *error);
void credentials_finish(struct credentials *credentials);

// What a server is asked to sign.
struct credentials_request {
	char *key_pem, *pem; // pem: PKCS #10
	uint8_t *spki;       // (spki_bytes), the public key: SubjectPublicKeyInfo, DER
	size_t spki_bytes;
};
// With the key that a request under way has, or a new one. keep: the key is on disk when this returns.
// Errors: STATUS_UNAVAILABLE.
enum status credentials_ask(const struct credentials *credentials, bool keep, struct credentials_request *request,
			    struct error *error);
void credentials_request_finish(struct credentials_request *request);

// Of schema/node.json.
struct credentials_grant {
	const char *certificate, *authority, *server_uri;
	const char *address, *node_id;
	// (32): the authority that was met, which the grant's must be. NULL: any, of a server on this machine.
	const uint8_t *authority_sha256;
	const char *key_pem; // of the request
};
// Check what was granted (the certificate is of this key, node and authority) and keep it, on disk first. A failure
// changes nothing. Errors: STATUS_INVALID_PARAMS (it is not what was asked for), STATUS_UNAVAILABLE; with hints.
enum status credentials_take(struct credentials *credentials, const struct credentials_grant *grant,
			     struct error *error);
// The server is found at another address now. Errors: those of private_file_write.
enum status credentials_move(struct credentials *credentials, const char *address, struct error *error);
// The cluster has removed this node: its certificate is set aside as node.pem.removed.
void credentials_drop(struct credentials *credentials);
