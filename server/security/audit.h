/* The audit log, as the rest of the server uses it: who did what, from where, with what result.
 *
 * What changes state.db carries its entry in its own batch: one transaction, both or neither (audit_put; audit_commit
 * where it has happened and cannot be refused any more). What changes nothing there (allocations, modules,
 * verification) is answered after its entry is on disk (audit_write), and undone if it cannot be. What nobody waits for
 * is written at once (audit_tell). What happens thousands of times a second (launches, transfers, refusals) is counted
 * and written once per session, thing and 10 s (audit_count); while the log cannot be written, nothing of that kind
 * starts (audit_check). Failed log-ins are counted by address in the same way. Which action is written in which of
 * these ways, the table in audit_actions.h says, and each call is held against it.
 * The newest entries go out as events of the topic `audit`. Thread: the loop's. */
#pragma once
#include "common/base/clock.h"
#include "server/store/store.h"

struct audit;

struct audit_params {
	struct net_loop *loop;
	struct store *store;
	// Told of every entry that is on disk, in order; may be NULL. The JSON is taken: AuditEntry of schema/api.json.
	void (*publish)(void *context, struct json *entry);
	void *context;
};
enum status audit_create(struct audit **out, const struct audit_params *params, struct error *error);
// Writes what is counted and not written yet. Before the store goes.
void audit_destroy(struct audit **audit);

enum { AUDIT_ACTOR_BYTES = 80 };

// The actor. Filled once for each connection; the texts belong to it.
struct audit_actor {
	char actor[AUDIT_ACTOR_BYTES]; // token:ID, owner:UID, node:ID, server, nobody
	char name[STORE_NAME_BYTES], session_id[STORE_ID_BYTES], peer[64];
};
extern const struct audit_actor audit_server; // the server itself

struct audit_event {
	const struct audit_actor *by; // NULL: the server
	const char *action, *target, *node_id, *device_id;
	enum status outcome;
	const char *detail; // JSON, may be NULL
	int64_t began_ns;   // steady; 0: no duration
};
// Put the entry into a change's own batch. A failure fails the batch.
enum status audit_put(struct audit *audit, struct store_batch *batch, const struct audit_event *event);
// A batch of its own. `done` (may be NULL: nobody waits) is called once it is on disk. Errors, and then `done` is not
// called: STATUS_UNAVAILABLE, STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY, with a hint.
enum status audit_write(struct audit *audit, const struct audit_event *event,
			void (*done)(void *context, enum status status, const struct error *error), void *context,
			struct error *error);
// STATUS_OK while the log can be written. STATUS_UNAVAILABLE, with a hint, from the first entry that could not be until
// one could: it is tried every second.
enum status audit_check(const struct audit *audit, struct error *error);
// Count something that happens often: one entry for all with the same actor, session, action, target, device and
// outcome in 10 s, with count and, in detail, the sum of `bytes`. By: must have a session for launches and transfers.
struct audit_tally {
	const struct audit_actor *by;
	const char *action, *target, *node_id, *device_id; // target: a kernel's name; "" for transfers
	enum status outcome;
	uint64_t bytes;
	int64_t duration_us; // summed
	const char *detail;  // JSON, in place of the bytes; may be NULL. One with a detail is an entry of its own
};
void audit_count(struct audit *audit, const struct audit_tally *tally);
// Write it now, as an entry of its own. Nobody waits for it; where it cannot be written it is kept, and told as soon as
// that can be.
void audit_tell(struct audit *audit, const struct audit_tally *tally);
// The batch of a change that has happened, with its entry, in one transaction. Takes the batch. `done` (may be NULL) is
// called once in any case, perhaps before this returns: once both are on disk, or, with the store's error, once it is
// known that they are not; then the entry alone is kept as audit_tell keeps it. STATUS_PENDING: the log is closed
// first.
void audit_commit(struct audit *audit, struct store_batch **batch, const struct audit_tally *tally,
		  void (*done)(void *context, enum status status), void *context);
// Write what is counted of a session now: at its end, and for what nobody waits for. While the log cannot be written it
// is kept like the rest.
void audit_flush(struct audit *audit, const char *session_id);
// An entry as AuditEntry of schema/api.json.
struct json *audit_entry_json(const struct journal_entry *entry);
