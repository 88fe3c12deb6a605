/* Addresses by which browser tabs join as nodes, and the tabs that have joined.
 *
 * A browser can show no certificate of ours, so a tab joins with a token: exolend_<id 10>_<secret 43>_<crc32 6> in
 * base62, in the fragment of the address that lend.create gives. A token has a number of uses and an expiry (an hour
 * by default, 30 days at most). When a tab joins, the server chooses its node_id and a secret of its own, by which it
 * is known when it comes back. Of both secrets only the SHA-256 is stored. Revoking an address also ends the tabs that
 * joined with it. Thread: the loop's. */
#pragma once
#include "server/security/audit.h"

struct lends;

enum { LEND_ID_DIGITS = 10, LEND_ID_BYTES, LEND_TEXT_BYTES = 72, TAB_SECRET_BYTES = 44 }; // with their 0

struct lend {
	char lend_id[LEND_ID_BYTES], name[STORE_NAME_BYTES], made_by[AUDIT_ACTOR_BYTES];
	uint8_t secret_hash[STORE_HASH_BYTES];
	int64_t uses, used, created_ms, expires_ms, revoked_ms;
	unsigned taking; // uses whose batch is under way
	unsigned tabs;   // that have joined with it
	bool unsaved;    // revoked, but the disk did not take that: may be revoked again
};
struct tab {
	char node_id[STORE_ID_BYTES], lend_id[LEND_ID_BYTES];
	uint8_t secret_hash[STORE_HASH_BYTES];
	int64_t joined_ms;
};

// Loads all. Tabs whose address is revoked or not there are forgotten.
enum status lends_create(struct lends **out, struct store *store, struct audit *audit, struct error *error);
void lends_destroy(struct lends **lends);

struct lend_params {
	const char *name;
	int64_t expires_in_s, uses; // 0: an hour; one
	const struct audit_actor *by;
};
typedef void lend_done(void *context, enum status status, const struct lend *lend, const struct error *error);
// Errors at once: STATUS_INVALID_PARAMS, STATUS_LIMIT_EXCEEDED (LIMIT_LENDS).
enum status lends_make(struct lends *lends, const struct lend_params *params, char text[LEND_TEXT_BYTES],
		       lend_done *done, void *context, struct error *error);

// A tab joins with the token of an address. On STATUS_OK `tab` has its new id and secret, which may be told once `done`
// was called with STATUS_OK. Errors at once: STATUS_UNAUTHENTICATED, which tells no outsider whether an address exists;
// used up, expired or revoked is said to who has the token. STATUS_LIMIT_EXCEEDED (LIMIT_TABS).
struct lends_joining {
	const char *token, *peer; // peer: the tab's network address
	void (*done)(void *context, enum status status, const struct error *error);
	void *context;
};
struct lends_joined {
	char node_id[STORE_ID_BYTES], secret[TAB_SECRET_BYTES];
};
enum status lends_join(struct lends *lends, const struct lends_joining *joining, struct lends_joined *tab,
		       struct error *error);
// Whether this is the secret of that tab. Errors: STATUS_UNAUTHENTICATED.
enum status lends_hello(const struct lends *lends, const char *node_id, const char *secret, struct error *error);
bool lends_know_tab(const struct lends *lends, const char *node_id); // whether a tab of this id has joined
// The node is removed: if it is a tab, its secret is good for nothing from now on, and its row goes with `batch`.
void lends_forget_tab(struct lends *lends, const char *node_id, struct store_batch *batch);

// Revoke an address, and forget the tabs that joined with it: in memory now, on disk before `done`. `each` is called at
// once for each of them, so that its connections can be closed. Errors: STATUS_NOT_FOUND, STATUS_CONFLICT (it is
// revoked).
struct lend_revocation {
	const char *lend_id;
	const struct audit_actor *by;
	void (*each)(void *context, const char *node_id);
	lend_done *done;
	void *context;
};
enum status lends_revoke(struct lends *lends, const struct lend_revocation *revocation, struct error *error);

const struct lend *lends_at(const struct lends *lends, size_t index);    // newest first; NULL past the last
const struct tab *lends_tab_at(const struct lends *lends, size_t index); // oldest first; NULL past the last
