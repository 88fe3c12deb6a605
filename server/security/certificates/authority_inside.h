/* The inside of the authority, for the files server/security/authority*.c:
 *
 *   authority.c         certificates of nodes: issued, known, revoked, listed
 *   authority_keys.c    the authority's pair and the server's, on disk; renewal
 *   authority_own.c     the operator's own certificate, and its files when they change
 *   authority_names.c   what this machine is called
 *   authority_standby.c what a server has that waits for its turn
 *
 * Thread: the loop's. */
#pragma once
#include "common/base/limits.h"
#include "server/security/certificates/authority.h"
#include "server/security/certificates/certificate.h"

enum {
	AUTHORITY_LOOK_MS = 2000,   // the operator's files; one that changed is read when it has stayed so for a look
	AUTHORITY_CHECK_LOOKS = 30, // and after as many, names, ages and the clock
};
#define AUTHORITY_HOUR_MS ((int64_t)3600 * 1000)
#define AUTHORITY_DAY_MS (24 * AUTHORITY_HOUR_MS)

struct names {
	size_t count;
	char list[LIMIT_CERTIFICATE_NAMES][256]; // DNS names in lower case, and addresses
};

// The identity shown to clients. Zero: there is none.
struct identity {
	X509 *certificate;
	struct certificate_facts facts;
	struct buffer chain, key; // PEM
};

// Identifies a version of a file, to detect that it has changed since it was read.
struct stamp {
	int64_t changed_ns, size;
	uint64_t inode;
};

struct node_certificate {
	char serial[48], node_id[STORE_ID_BYTES], sha256[65], key_sha256[65];
	int64_t not_before_ms, not_after_ms, revoked_ms;
	// The certificate whose row is being stored (its text's address; NULL: none): this one, or the one in whose
	// favour this one ends.
	const char *issuing, *ending;
};

struct authority {
	struct authority_params params;
	char directory[4096]; // DATA/tls
	char uri[NET_CERTIFICATE_URI_BYTES], fingerprint[CERTIFICATE_FINGERPRINT_BYTES], reachable[256];
	X509 *certificate;
	EVP_PKEY *key;
	struct certificate_facts facts;
	struct buffer pem;
	struct identity server, next, own; // next: waits for its entry in the audit log to be on disk
	struct names names;
	struct stamp own_read[2], own_seen[2]; // of the certificate's file and the key's
	struct net_tls *tls;
	struct node_certificate *nodes; // (node_count), oldest first
	size_t node_count, node_room;
	struct net_timer timer;
	unsigned looks;
	int64_t warned_ms; // when something was last said that stays true for days
};

int64_t authority_now(const struct authority *authority);
void identity_finish(struct identity *identity);
// When a certificate is to be renewed: at two thirds of its life.
int64_t authority_renewal_ms(int64_t not_before_ms, int64_t not_after_ms);

// Records what happened to a certificate in the audit log: as a separate entry, or in `batch`.
enum { AUTHORITY_DETAIL_BYTES = 200 };
struct told {
	const char *action, *kind, *node_id; // node_id may be NULL
	const struct certificate_facts *facts;
	char detail[AUTHORITY_DETAIL_BYTES]; // filled by authority_event
};
struct audit_event authority_event(struct told *told);
enum status authority_put_entry(const struct authority *authority, struct store_batch *batch, struct told *told);
// Waits until it is on disk. For starting up.
enum status authority_write_entry(const struct authority *authority, struct told *told, struct error *error);

// Load or make the authority's pair; *made tells which. Then the server's.
enum status authority_open_keys(struct authority *authority, bool *made, struct error *error);
enum status authority_open_server(struct authority *authority, struct error *error);
enum status authority_make_server(const struct authority *authority, struct identity *server, struct error *error);
// Renew the server's certificate if it is old or lacks a name of this machine.
void authority_renew(struct authority *authority);

// Read the operator's files. Errors: STATUS_INVALID_PARAMS, naming the file, with a hint.
enum status authority_open_own(struct authority *authority, struct error *error);
void authority_look_at_own(struct authority *authority);

// False if one of those that the operator gave is no name; it is left out.
bool authority_collect_names(const struct authority *authority, struct names *names);
void authority_find_reachable(struct authority *authority);
bool names_hold(const struct names *names, const char *name);
bool names_add(struct names *names, const char *name); // false: it is none

// Give what there is to TLS. Does nothing before authority_show.
enum status authority_present(struct authority *authority, struct error *error);
// The work of every minute; also called by tests.
void authority_check(struct authority *authority);
