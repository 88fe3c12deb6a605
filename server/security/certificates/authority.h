/* The cluster's own certificate authority, and the certificates that it issues.
 *
 * Everything is EC P-256, in DATA/tls: authority.pem and .key (10 years), server.pem and .key (90 days, renewed by
 * itself at two thirds of its life or when the machine's names and addresses change). A server's certificate carries
 * the URI exogpu:server:<cluster_id>, a node's exogpu:node:<node_id>; nodes and the command line check those, browsers
 * the names. An operator's own certificate (--tls-cert, --tls-key) is shown to browsers instead and is read again when
 * its files change; nodes ask for the cluster's by name (NET_TLS_CLUSTER_NAME). Node certificates last 30 days; the
 * store knows each by its serial number, and one that was revoked is refused from the same turn on. Keys are files of
 * mode 0600 and never leave them; none is ever logged. Thread: the loop's. */
#pragma once
#include "common/net/tls/tls.h"
#include "server/security/audit.h"

struct authority;

struct authority_params {
	struct net_loop *loop;
	struct store *store;
	struct audit *audit;
	const char *directory; // the data directory
	const char *cluster_id, *cluster_name;
	const char *cert_file, *key_file; // the operator's own; NULL: none. Must outlive it, as all texts here
	const char *names;                // more DNS names and addresses for the server's certificate, with a comma
					  // between; may be NULL
	int64_t (*now_ms)(void);          // the wall clock, for tests; NULL: clock_wall_ms
};
// Makes what is missing. Errors: STATUS_FORBIDDEN, STATUS_UNAVAILABLE (files that cannot be read or do not fit each
// other), with hints.
enum status authority_create(struct authority **out, const struct authority_params *params, struct error *error);
void authority_destroy(struct authority **authority);
// The same for a server that waits for its turn: loop, directory, names and files of `params` count. It takes the
// authority that is there, makes a server's certificate that is kept in memory, and stores and logs nothing; it is for
// authority_show, authority_pem and authority_reachable_name alone.
enum status authority_stand_by(struct authority **out, const struct authority_params *params, struct error *error);
// Show the certificates to who connects, from now on and again whenever they change; `tls` is made with authority_pem
// and must outlive the authority. Errors: STATUS_UNAVAILABLE (the authority has expired), those of net_tls_show.
enum status authority_show(struct authority *authority, struct net_tls *tls, struct error *error);

const char *authority_pem(const struct authority *authority);
const uint8_t *authority_sha256(const struct authority *authority);   // (32) of its DER
const char *authority_fingerprint(const struct authority *authority); // the same for a person: SHA256:AA:BB:…
const char *authority_server_uri(const struct authority *authority);
// The name or address that others are likely to reach this machine by: one that was given, one of the operator's
// certificate, or the address that its traffic leaves from; "" if there is none.
const char *authority_reachable_name(const struct authority *authority);
// Whether a request's Host may be this name: the machine's, those of the certificate, or --tls-cert's.
bool authority_knows_name(const struct authority *authority, const char *name);

// Sign a node's request (PEM, PKCS #10, EC P-256, at most LIMIT_CSR_BYTES): only its public key is taken from it. The
// row goes into `batch`, which the caller commits, and says with authority_settle what came of it; the certificate is
// valid from then on. *pem: freed by the caller. Errors: STATUS_INVALID_PARAMS (no such request, or its signature is
// wrong), STATUS_UNAVAILABLE.
enum status authority_issue(struct authority *authority, const char *node_id, const char *request_pem,
			    struct store_batch *batch, char **pem, struct error *error);
// The node's other certificates end when this one is valid: their rows go into the same batch.
void authority_replace(struct authority *authority, const char *node_id, const char *pem, struct store_batch *batch);
// The batch with the certificate `pem` is on disk, or will never be: then all is as it was before.
void authority_settle(struct authority *authority, const char *pem, bool stored);
// Whether a node has a certificate that is not about to end.
bool authority_stands(const struct authority *authority, const char *node_id);
// Whether a node's certificate, which the handshake has verified, is still good: known here, this node's, not revoked.
bool authority_accepts(const struct authority *authority, const struct net_certificate *certificate,
		       char node_id[STORE_ID_BYTES]);
// What a node that asks for a certificate has already: none that is good; one; one for this very key (SHA-256 of its
// SubjectPublicKeyInfo's DER, (32)).
enum authority_standing { AUTHORITY_STRANGER, AUTHORITY_KNOWN, AUTHORITY_SAME_KEY };
enum authority_standing authority_standing(const struct authority *authority, const char *node_id,
					   const uint8_t *key_sha256);
// Revoke all of a node's certificates: in memory now, and in `batch`.
void authority_revoke_node(struct authority *authority, const char *node_id, struct store_batch *batch);
// Each certificate that is in use, and when it ends. node_id: NULL where it is no node's.
struct authority_end {
	const char *kind, *serial, *subject, *node_id; // kind: as in Certificate of schema/api.json
	int64_t not_after_ms;
};
void authority_each_end(const struct authority *authority, void (*each)(void *context, const struct authority_end *end),
			void *context);
// All that there are, for certificate.list: an array of Certificate of schema/api.json.
struct json *authority_list(const struct authority *authority);
