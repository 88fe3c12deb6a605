/* Tickets let an unknown node join without asking a person. Their text is exojoin_<id
 * 10>_<secret 43>_<authority 43>_<crc32 6> in base62. Its holder may join, and recognises the
 * right server by the SHA-256 of the cluster's authority. A ticket has a number of uses and an
 * expiry (an hour by default, 30 days at most). Only a hash of the secret is stored. Thread: the
 * loop's. */
#pragma once
#include "server/security/audit.h"

struct tickets;

enum { TICKET_TEXT_BYTES = 120, TICKET_ID_BYTES = 11 };

struct ticket {
	char ticket_id[TICKET_ID_BYTES], made_by[AUDIT_ACTOR_BYTES];
	uint8_t secret_hash[STORE_HASH_BYTES];
	int64_t uses, used, created_ms, expires_ms, revoked_ms;
	unsigned taking; // uses whose batch is under way
	bool unsaved;    // revoked, but the disk did not take that: may be revoked again
};

// Loads those that are not over for more than a day. authority_sha256: (32), copied.
enum status tickets_create(struct tickets **out, struct store *store, struct audit *audit,
			   const uint8_t *authority_sha256, struct error *error);
void tickets_destroy(struct tickets **tickets);

struct ticket_params {
	int64_t expires_in_s, uses; // 0: an hour; one
	const struct audit_actor *by;
};
typedef void ticket_done(void *context, enum status status, const struct ticket *ticket, const struct error *error);
// Errors at once: STATUS_INVALID_PARAMS, STATUS_LIMIT_EXCEEDED (LIMIT_TICKETS).
enum status tickets_make(struct tickets *tickets, const struct ticket_params *params, char text[TICKET_TEXT_BYTES],
			 ticket_done *done, void *context, struct error *error);
// Take one use of the ticket with this text: counted in memory now, and in `batch`, with the join that it is for.
// Errors: STATUS_UNAUTHENTICATED, which tells no outsider whether a ticket exists; used up, expired or revoked is said
// to who has the secret.
enum status tickets_use(struct tickets *tickets, const char *text, struct store_batch *batch, struct ticket **ticket,
			struct error *error);
void tickets_used(struct tickets *tickets, struct ticket *ticket);  // the batch is on disk
void tickets_unuse(struct tickets *tickets, struct ticket *ticket); // the batch failed
enum status tickets_revoke(struct tickets *tickets, const char *ticket_id, const struct audit_actor *by,
			   ticket_done *done, void *context, struct error *error);
const struct ticket *tickets_at(const struct tickets *tickets, size_t index); // newest first; NULL past the last
