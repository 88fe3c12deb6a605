/* SQLite: all SQL of the program stands in this folder, and all writing is done by one thread.
 *
 * state.db holds what must not be lost (inventory, tokens, changes); history.db holds minute averages and may be thrown
 * away. Both are WAL; state.db is FULL and STRICT with foreign keys on. The store thread takes waiting batches, commits
 * several of them in one transaction, and posts each batch's outcome to the loop: what is answered is on disk. A reader
 * thread answers history queries on its own read-only connection.
 * Thread: every function here is called on the loop thread; callbacks run there too. Nothing here blocks but
 * store_create, store_destroy and the store_load_ calls, which are for starting and stopping. */
#pragma once
#include "common/json/json.h"
#include "common/net/loop.h"

#include <stdint.h>

struct store;
struct store_batch;

enum { STORE_HASH_BYTES = 32, STORE_ID_BYTES = 65, STORE_NAME_BYTES = 257 };

// Opens or creates the databases in `directory`, checks them (quick_check of state.db; history.db in the background)
// and runs pending migrations in one transaction, after a copy of state.db was put beside it.
// Errors: STATUS_CONFLICT (a newer version's database), STATUS_FORBIDDEN (not writable), STATUS_UNAVAILABLE (damaged,
// with the file's name), all with hints.
enum status store_create(struct store **out, struct net_loop *loop, const char *directory, struct error *error);
// Commits what waits, then closes. Callbacks of what was committed here are dropped.
void store_destroy(struct store **store);

// A value of the table of settings (cluster_id, cluster_name). NULL if there is none; valid until the next call.
const char *store_load_setting(struct store *store, const char *key);

struct store_node {
	const char *node_id, *name;
	const char *record; // JSON: NodeRecord of schema/node.json
	int64_t first_seen_ms, last_seen_ms;
};
struct store_device {
	const char *device_id, *node_id, *hardware_key;
	const char *record; // JSON: ReportedDevice of schema/node.json
	bool draining;
	int64_t first_seen_ms, last_seen_ms;
};
struct store_token {
	const char *token_id, *name, *parent_id;                  // parent_id: NULL for the first
	uint32_t scopes;                                          // bits, security/tokens.h
	uint8_t secret_hash[STORE_HASH_BYTES];                    // SHA-256
	double calls_per_s;                                       // 0: no limit
	int64_t max_sessions, memory_limit_bytes;                 // 0: no limit
	int64_t created_ms, expires_ms, last_used_ms, revoked_ms; // 0: never
};
struct store_change { // what happened to the inventory, for a person
	int64_t at_ms;
	const char *kind, *level, *node_id, *device_id, *name, *summary; // device_id may be NULL
};
// Each row in turn; pointers are valid during the call. Changes come newest first, `limit` at most.
enum status store_load_nodes(struct store *store, void (*row)(void *context, const struct store_node *node),
			     void *context, struct error *error);
enum status store_load_devices(struct store *store, void (*row)(void *context, const struct store_device *device),
			       void *context, struct error *error);
enum status store_load_tokens(struct store *store, void (*row)(void *context, const struct store_token *token),
			      void *context, struct error *error);
enum status store_load_changes(struct store *store, int limit,
			       void (*row)(void *context, const struct store_change *change), void *context,
			       struct error *error);

// A batch is one transaction or none of it. The put and set calls copy. Kept rows of changes: the last 10,000.
enum status store_batch_create(struct store_batch **out);
void store_batch_destroy(struct store_batch **batch);
enum status store_put_setting(struct store_batch *batch, const char *key, const char *value);
enum status store_put_node(struct store_batch *batch, const struct store_node *node);
enum status store_put_device(struct store_batch *batch, const struct store_device *device);
enum status store_put_token(struct store_batch *batch,
			    const struct store_token *token);                    // insert or replace by token_id
enum status store_remove_token(struct store_batch *batch, const char *token_id); // none made with it may be left
enum status store_put_change(struct store_batch *batch, const struct store_change *change);
// Takes the batch (also on failure). `done` (may be NULL) is called once on the loop thread, after the commit.
// Errors: STATUS_LIMIT_EXCEEDED (LIMIT_STORE_QUEUE waiting); the commit's own come through `done`: STATUS_UNAVAILABLE
// when the disk is full or failing, with a hint, and then nothing of the batch is stored.
enum status store_commit(struct store *store, struct store_batch **batch,
			 void (*done)(void *context, enum status status, const struct error *error), void *context);
// The same, but waits for the outcome. For starting up only.
enum status store_commit_wait(struct store *store, struct store_batch **batch, struct error *error);

// History: minute averages of a device's readings. NaN is "not reported".
enum { STORE_COLUMNS = 12 };
extern const char *const store_column_names[STORE_COLUMNS]; // utilization_percent, memory_used_bytes, power_watts, …
struct store_minute {
	const char *device_id;
	int64_t minute_ms; // start of the minute
	double values[STORE_COLUMNS];
};
// Add averages; fire and forget, dropped with a log line when the disk cannot take them. Older than 30 days goes.
void store_add_minutes(struct store *store, const struct store_minute *minutes, size_t count);

struct store_history {
	size_t rows;
	int64_t step_ms;
	int64_t *at_ms;                  // (rows), start of each step
	double (*values)[STORE_COLUMNS]; // (rows, STORE_COLUMNS), NaN: nothing reported in that step
};
// Averages of [from_ms, to_ms) in steps of step_ms (a multiple of a minute), only steps that hold something. Answered
// by the reader thread through `done` on the loop thread; the history belongs to the callback's caller.
enum status store_read_history(struct store *store, const char *device_id, int64_t from_ms, int64_t to_ms,
			       int64_t step_ms,
			       void (*done)(void *context, enum status status, const struct store_history *history),
			       void *context);

// Figures for /metrics.
struct store_stats {
	uint64_t commits, batches, commit_failures;
	double commit_seconds;
	int64_t state_bytes, history_bytes;
};
void store_read_stats(struct store *store, struct store_stats *stats);
