/* The identity of a node towards a server on another machine, in DATA/node/tls:
 *
 *   node.pem       its certificate and the key, in one file, so that a new pair replaces the old one at once
 *   authority.pem  the certificate of the cluster's authority, the only one that is trusted
 *   server         two lines: HOST:PORT of the server, and the URI in the server's certificate
 *   servers        where servers are that take turns with that one, HOST:PORT a line; none: there is no other
 *   node.key       the key of a pending request: made once, so that a repeated request has the same key
 *
 * A node on the server's own machine has joined no server: what it shows to other nodes is in DATA/node/tls-own, and
 * server contains "unix" instead of HOST:PORT. A node with the first three files has joined. All files have mode 0600
 * and are replaced as a whole. Reading and writing block on the disk; they happen when a node joins, and every few
 * weeks when it renews its certificate. Thread: its owner's. */
#pragma once
#include "common/net/tls/tls.h"

enum { CREDENTIALS_ADDRESS_BYTES = 300, CREDENTIALS_PATH_BYTES = 4096, CREDENTIALS_SERVERS = 16 };

struct credentials {
	char folder[CREDENTIALS_PATH_BYTES];
	bool joined;
	char address[CREDENTIALS_ADDRESS_BYTES], server_uri[NET_CERTIFICATE_URI_BYTES];
	char servers[CREDENTIALS_SERVERS][CREDENTIALS_ADDRESS_BYTES];
	size_t server_count;
	char *chain_pem, *key_pem, *authority_pem;
	uint8_t authority_sha256[NET_SHA256_BYTES];
	int64_t not_before_ms, not_after_ms; // of its certificate
};

// Read the folder, which need not exist; damaged files count as absent and are logged. *credentials must be finished in
// every case. Errors: STATUS_FORBIDDEN, STATUS_UNAVAILABLE (cannot be read), STATUS_INVALID_PARAMS (the path is too
// long); with hints.
enum status credentials_load(struct credentials *credentials, const char *folder, struct error *error);
void credentials_finish(struct credentials *credentials);

// A request for a server's signature.
struct credentials_request {
	char *key_pem, *pem; // pem: PKCS #10
	uint8_t *spki;       // (spki_bytes), the public key: SubjectPublicKeyInfo, DER
	size_t spki_bytes;
};
// Make a request with the key of a pending request, or with a new one. keep: the key is on disk when this returns.
// Errors: STATUS_UNAVAILABLE.
enum status credentials_ask(const struct credentials *credentials, bool keep, struct credentials_request *request,
			    struct error *error);
void credentials_request_finish(struct credentials_request *request);

// A grant as in schema/node.json.
struct credentials_grant {
	const char *certificate, *authority, *server_uri;
	const char *address, *node_id;
	// (32): the authority that was met, which the grant's must be. NULL: any, of a server on this machine.
	const uint8_t *authority_sha256;
	const char *key_pem; // of the request
};
// Check the grant (the certificate is for this key, node and authority) and keep it, on disk first. A failure changes
// nothing. Errors: STATUS_INVALID_PARAMS (it does not answer the request), STATUS_UNAVAILABLE; with hints.
enum status credentials_take(struct credentials *credentials, const struct credentials_grant *grant,
			     struct error *error);
// The server has a new address. Errors: those of private_file_write.
enum status credentials_move(struct credentials *credentials, const char *address, struct error *error);
// The servers that take turns, (count) addresses without line breaks; what is too many or too long is left out. Nothing
// is written where they are the same. Errors: those of private_file_write.
enum status credentials_keep_servers(struct credentials *credentials, const char *const *addresses, size_t count,
				     struct error *error);
// The cluster has removed this node: its certificate is set aside as node.pem.removed.
void credentials_drop(struct credentials *credentials);
