/* SQLite: all SQL of the program is in this folder, and one thread does all writing. state.db
 * holds what must not be lost (inventory, tokens, changes); history.db holds minute averages and
 * may be lost. Both use WAL; state.db is FULL and STRICT with foreign keys. The store thread
 * takes waiting batches, commits several in one transaction, and posts each outcome to the loop:
 * so whatever is answered is on disk. A reader thread answers history queries on its own
 * read-only connection. Thread: call every function on the loop thread; callbacks run there too.
 * Only store_create, store_destroy and the store_load_ calls block; they are for starting and
 * stopping. */
#pragma once
#include "common/journal/entry.h"
#include "common/journal/verify.h"
#include "common/json/json.h"
#include "common/net/loop.h"

#include <stdint.h>

struct store;
struct store_batch;

enum { STORE_HASH_BYTES = 32, STORE_ID_BYTES = 65, STORE_NAME_BYTES = 257 };

// How the audit log is cut into segments, and how long the entries of archived ones are kept. 0: the default of
// common/base/limits.h.
struct store_params {
	struct net_loop *loop;
	const char *directory;
	const char *url; // postgres://…: the tables are there; NULL: where they were before, or else in the directory
	int64_t turn;    // with url: of several servers on it, this one's (turn.h); 0: it is the only one
	// Of several servers: the audit log's key of a segment is about to be used, and is to be known to all; it is
	// used no more. On the store's threads, which wait for it.
	enum status (*share_key)(void *context, uint64_t segment, struct error *error);
	void (*forget_key)(void *context, uint64_t segment);
	void *key_context;
	int64_t audit_segment_entries, audit_segment_bytes, audit_segment_days, audit_keep_days;
	const char *accept_unsigned; // "FIRST-LAST": entries that no head covers, to be signed; NULL: none are
	const struct store_settling
		*settling; // rows to be settled; NULL: the rows that are refused are said in the log
};

// Rows of state.db that the audit log does not have so, taken away for good, with what hangs on them; a signed entry
// for each says who wanted that. None is ever taken as it stands. Nothing is changed where neither `all` is set nor a
// row is named. Errors of store_create then also: STATUS_NOT_FOUND (a subject that is not refused).
struct store_settled {
	const char *subject, *text; // "token 8GhT2kQx1z"; what is wrong with it, to follow that
	bool gone;                  // it was settled
};
struct store_settling {
	const char *const *subjects; // (count) "KIND ID" or "KIND:ID"
	size_t count;
	bool all;                                                    // every row that is refused, or missing
	const char *actor;                                           // "owner:UID"
	void (*row)(void *context, const struct store_settled *row); // each, also of those that are left
	void *context;
};

// Opens or creates the databases in `directory`, checks them (quick_check of state.db; history.db in the background)
// and runs pending migrations in one transaction, after a copy of state.db was put beside it.
// Errors: STATUS_CONFLICT (a newer version's database), STATUS_FORBIDDEN (not writable), STATUS_UNAVAILABLE (damaged,
// with the file's name), all with hints.
// Of the audit log: STATUS_UNAVAILABLE (the key of its newest segment is not in DIRECTORY/audit, or is another one; it
// does not fit its newest signed head; entries stand behind that, and are not those that accept_unsigned names).
enum status store_create(struct store **out, const struct store_params *params, struct error *error);
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

struct store_certificate {
	const char *serial, *node_id;
	const char *sha256, *key_sha256; // hexadecimal; of the certificate's DER, and of its public key's
	int64_t not_before_ms, not_after_ms, revoked_ms;
};
struct store_ticket {
	const char *ticket_id, *made_by;
	uint8_t secret_hash[STORE_HASH_BYTES];
	int64_t uses, used, created_ms, expires_ms, revoked_ms;
};
enum status store_load_certificates(struct store *store,
				    void (*row)(void *context, const struct store_certificate *certificate),
				    void *context, struct error *error);
enum status store_load_tickets(struct store *store, void (*row)(void *context, const struct store_ticket *ticket),
			       void *context, struct error *error);
struct store_lend { // an address by which browser tabs join
	const char *lend_id, *name, *made_by;
	uint8_t secret_hash[STORE_HASH_BYTES];
	int64_t uses, used, created_ms, expires_ms, revoked_ms;
};
struct store_tab { // a browser tab that has joined with one
	const char *node_id, *lend_id;
	uint8_t secret_hash[STORE_HASH_BYTES];
	int64_t joined_ms;
};
enum status store_load_lends(struct store *store, void (*row)(void *context, const struct store_lend *lend),
			     void *context, struct error *error); // oldest first
enum status store_load_tabs(struct store *store, void (*row)(void *context, const struct store_tab *tab), void *context,
			    struct error *error); // oldest first

struct store_model {
	const char *model_id, *name, *source, *request, *path;
	const char *state, *state_reason, *sha256; // downloading, ready or failed; "" where there is none
	const char *architecture;                  // JSON; "" if it is not known
	int64_t added_ms, file_bytes, modified_ns;
};
enum status store_load_models(struct store *store, void (*row)(void *context, const struct store_model *model),
			      void *context, struct error *error); // oldest first

struct store_instance { // one that is wanted
	const char *instance_id, *model_id, *model_name;
	const char *wanted, *last; // JSON: what instance.create takes; how it was placed last
	const char *workers;       // JSON: what is there to be found again; "" nothing; NULL in a change: as it was
	int64_t epoch, recoveries, moves, created_ms;
};
enum status store_load_instances(struct store *store, void (*row)(void *context, const struct store_instance *instance),
				 void *context, struct error *error); // oldest first

struct store_link { // one direction of a link between nodes, as it was measured last
	const char *from_node_id, *to_node_id, *class_name, *interface, *address;
	double interface_bits_per_s, rtt_ms, jitter_ms, loss_percent, throughput_bytes_per_s; // < 0: not measured
	int64_t throughput_ms, measured_ms;
	const char *degraded; // why, or ""
};
enum status store_load_links(struct store *store, void (*row)(void *context, const struct store_link *link),
			     void *context, struct error *error);

struct store_alert {
	const char *alert_id, *kind, *severity, *subject_type, *subject_id, *subject_name, *message, *hint;
	const char *acknowledged_by;                    // "": nobody
	const char *node_id;                            // that it is about; "": none
	double value, threshold;                        // NaN: there is none
	int64_t raised_ms, cleared_ms, acknowledged_ms; // 0: it was not
};
enum status store_load_alerts(struct store *store, void (*row)(void *context, const struct store_alert *alert),
			      void *context, struct error *error); // all that are kept, oldest first

// Where the joules of a device come from: its own counter, or its power times the time between readings.
enum store_energy_source { STORE_ENERGY_NONE, STORE_ENERGY_INTEGRATED, STORE_ENERGY_COUNTER };
struct store_counts {
	int64_t requests, prompt_tokens, cached_tokens, completion_tokens; // prompt_tokens: cached ones too
	// They count foreseen tokens, and those that a draft model foresaw. They are not stored: totals since the
	// start.
	int64_t proposed_tokens, accepted_tokens, drafted_tokens, draft_accepted_tokens;
	double device_s, energy_joules, idle_joules;
	enum store_energy_source energy_source;
};
struct store_usage { // what requests used in the step_s seconds from at_s on; migrations/state has the meaning of ""
	int64_t step_s, at_s; // since 1970 UTC
	const char *token_id, *model_id, *device_id, *token_name, *model_name, *device_name;
	struct store_counts counts;
};
enum status store_load_usage(struct store *store, void (*row)(void *context, const struct store_usage *usage),
			     void *context, struct error *error);              // by step_s, then oldest first
struct store_channel {                                                         // where alerts are sent to
	const char *channel_id, *kind, *url, *secret, *added_by, *last_result; // kind: webhook or ntfy
	int64_t severities, quiet_from, quiet_to, added_ms, last_ms; // migrations/state/0018_alert_channels.sql
};
struct store_delivery { // of an alert to a channel, not done yet
	const char *delivery_id, *channel_id, *alert_id, *severity, *body;
	int64_t created_ms;
};
enum status store_load_channels(struct store *store, void (*row)(void *context, const struct store_channel *channel),
				void *context, struct error *error); // oldest first
enum status store_load_deliveries(struct store *store,
				  void (*row)(void *context, const struct store_delivery *delivery), void *context,
				  struct error *error); // in the order in which they were put

struct store_conversation { // that a person keeps here; body: encrypted by server/conversations, empty: deleted
	const char *token_id, *conversation_id;
	int64_t version, updated_ms;
	const uint8_t *body; // (body_bytes)
	size_t body_bytes;
};
enum status store_load_conversations(struct store *store,
				     void (*row)(void *context, const struct store_conversation *conversation),
				     void *context, struct error *error);

enum { STORE_BATCHES = 7 };
struct store_layer_time { // how long a layer took on a device, by its format and size
	const char *device_id, *format;
	int64_t layer_bytes, output_bytes;
	double layer_s, output_s, prompt_s; // output_s, prompt_s < 0: not measured
	double batch[STORE_BATCHES];        // of 2, 4, 8, 16, 32, 64, 128 rows: times one row's; < 0: not measured
	double spread;                      // how many times the least of the runs their mean was; < 0: not known
	int64_t measured_ms;
};
enum status store_load_layer_times(struct store *store, void (*row)(void *context, const struct store_layer_time *time),
				   void *context, struct error *error); // oldest first

// A batch is one transaction or none of it. The put and set calls copy. Kept rows of changes: the last 10,000.
enum status store_batch_create(struct store_batch **out);
void store_batch_destroy(struct store_batch **batch);
enum status store_put_setting(struct store_batch *batch, const char *key, const char *value);
enum status store_put_node(struct store_batch *batch, const struct store_node *node);
enum status store_put_device(struct store_batch *batch, const struct store_device *device);
// Insert or replace by token_id. The conversations of one that is revoked go.
enum status store_put_token(struct store_batch *batch, const struct store_token *token);
// And its conversations. None made with it may be left.
enum status store_remove_token(struct store_batch *batch, const char *token_id);
enum status store_put_conversation(struct store_batch *batch, const struct store_conversation *conversation);
enum status store_remove_conversation(struct store_batch *batch, const char *token_id, const char *conversation_id);
enum status store_put_change(struct store_batch *batch, const struct store_change *change);
// A new one, or, of one that is there, that it was cleared or acknowledged. Neither is ever taken back.
enum status store_put_alert(struct store_batch *batch, const struct store_alert *alert);
enum status store_put_usage(struct store_batch *batch, const struct store_usage *usage);
enum status store_trim_usage(struct store_batch *batch, int64_t step_s, int64_t before_s); // what is older goes
enum status store_put_channel(struct store_batch *batch, const struct store_channel *channel);
// Store how its last delivery ended; a channel that is gone stays gone.
enum status store_put_channel_result(struct store_batch *batch, const struct store_channel *channel);
enum status store_remove_channel(struct store_batch *batch, const char *channel_id); // and what was to be delivered
// Nothing is put if the channel is gone.
enum status store_put_delivery(struct store_batch *batch, const struct store_delivery *delivery);
enum status store_remove_delivery(struct store_batch *batch, const char *delivery_id);
enum status store_put_certificate(struct store_batch *batch, const struct store_certificate *certificate);
enum status store_remove_certificate(struct store_batch *batch, const char *serial);
enum status store_put_ticket(struct store_batch *batch, const struct store_ticket *ticket);
enum status store_remove_ticket(struct store_batch *batch, const char *ticket_id);
enum status store_put_lend(struct store_batch *batch, const struct store_lend *lend);
enum status store_remove_lend(struct store_batch *batch, const char *lend_id);
enum status store_put_tab(struct store_batch *batch, const struct store_tab *tab);
enum status store_remove_tab(struct store_batch *batch, const char *node_id);
enum status store_put_model(struct store_batch *batch, const struct store_model *model);
enum status store_remove_model(struct store_batch *batch, const char *model_id);
enum status store_put_instance(struct store_batch *batch, const struct store_instance *instance); // a new one
// wanted, last, workers, epoch, recoveries and moves of one that is there; of one that is not, nothing.
enum status store_change_instance(struct store_batch *batch, const struct store_instance *instance);
enum status store_remove_instance(struct store_batch *batch, const char *instance_id);
enum status store_put_link(struct store_batch *batch, const struct store_link *link);
enum status store_put_layer_time(struct store_batch *batch, const struct store_layer_time *time);
enum status store_remove_node(struct store_batch *batch,
			      const char *node_id); // and its devices, links and times of layers
// An entry of the audit log. Its seq is given when it is committed; at_us 0: now.
enum status store_put_audit(struct store_batch *batch, const struct journal_entry *entry);
// Takes the batch (also on failure). `done` (may be NULL) is called once on the loop thread, after the commit.
// Errors: STATUS_LIMIT_EXCEEDED (LIMIT_STORE_QUEUE waiting); the commit's own come through `done`: STATUS_UNAVAILABLE
// when the disk is full or failing, with a hint, and then nothing of the batch is stored.
enum status store_commit(struct store *store, struct store_batch **batch,
			 void (*done)(void *context, enum status status, const struct error *error), void *context);
// The same, but waits for the outcome. For starting up only.
enum status store_commit_wait(struct store *store, struct store_batch **batch, struct error *error);

// The audit log. Every commit that adds to it also signs its new head, so what is answered is signed. Entries are
// numbered, hashed and signed by the store thread; the key stands in DIRECTORY/audit/key-<segment>, and archives in
// DIRECTORY/audit/.
//
// Told of every entry that was committed, in their order, each before the `done` of its batch. One listener.
void store_listen_audit(struct store *store, void (*entry)(void *context, const struct journal_entry *entry),
			void *context);
// The head that was committed last: its note is valid until the next turn of the loop.
struct store_audit_head {
	struct checkpoint checkpoint;
	const char *note;
	struct note_key key, first_key; // of its segment, and of the first
	uint64_t segment;
};
void store_read_audit_head(struct store *store, struct store_audit_head *head);
// The newest entries before `before` (0: from the end), or the oldest after `after` (-1: not asked), of those that
// match, as JSON: {entries, more, next, gaps} of audit.list in schema/api.json. Archives are read, too, for half a
// second at most; `next` goes on where that ended. Answered by a reader thread through `done`; result is taken by it.
struct store_audit_filter {
	int64_t after, before; // seq
	int limit;
	const char *actor, *action, *device_id, *outcome,
		*text;          // NULL: any; action: exact, or "noun." for all of a noun
	int64_t from_ms, to_ms; // 0: open
	int64_t spend_ms;       // to look through archives; 0: as said above, less than 0: for one block of entries
};
typedef void store_audit_done(void *context, enum status status, struct json *result, const struct error *error);
enum status store_list_audit(struct store *store, const struct store_audit_filter *filter, store_audit_done *done,
			     void *context);
// Verify all of it, database and archives, beside the work: {ok, verdict, entries, signed, segments, origin, root,
// first_key, findings: [{verdict, code, seq, text}], limits}. One at a time: STATUS_CONFLICT.
// The heads that witnesses hold are compared; `memories` of the answer has the enum journal_memory_state of each.
struct store_audit_memory {
	const char *note;           // a signed head, as it came from the witness
	const char *node_id, *name; // of the witness
};
enum status store_verify_audit(struct store *store, const struct store_audit_memory *memories, size_t count,
			       store_audit_done *done, void *context);
// That the log of `to` entries continues that of `from`: {from, to, proof: [Base64], segments: [{number, first, key,
// certificate}]} with the segments whose keys took over after `from`.
enum status store_prove_audit(struct store *store, uint64_t from, uint64_t to, store_audit_done *done, void *context);
// Keep a head that witnesses have signed, with their lines.
enum status store_put_cosigned(struct store_batch *batch, uint64_t size, const char *note);
// End the segment now, as size and age do by themselves: {segment, first} of the next one, once its key has taken over.
// The entries go to an archive after that. STATUS_CONFLICT: it is empty.
enum status store_rotate_audit(struct store *store, store_audit_done *done, void *context);
// An entry as AuditEntry of schema/api.json, and a report as AuditReport without took_ms. Any thread.
struct json *store_audit_json(const struct journal_entry *entry);
struct json *store_audit_report_json(const struct journal_report *report);
// Offline, for the command line: a data directory's log, read-only. STATUS_NOT_FOUND: there is none.
struct store_offline_params {
	const char *directory;
	const char *archives; // where they are; NULL: DIRECTORY/audit
	struct journal_verifier *verifier;
	// Called before anything is verified, with the newest head of what will be, so that what somebody remembers of
	// this log can be given to the verifier; may be NULL. `note` is "" where there is none that can be read.
	void (*begin)(void *context, const struct store_audit_head *head);
	void (*entry)(void *context, const struct journal_entry *entry); // called for each; may be NULL
	void *context;
};
enum status store_audit_offline(const struct store_offline_params *params, struct error *error);

// History: minute averages of readings, of devices and of links. NaN is "not reported". A device's columns are the
// averages of its readings, then the least in the minute of some of them, then the most of the same.
enum { STORE_READINGS = 12, STORE_EXTREMES = 6, STORE_COLUMNS = STORE_READINGS + 2 * STORE_EXTREMES };
enum { STORE_LINK_COLUMNS = 5, STORE_SERIES_BYTES = 2 * STORE_ID_BYTES };
extern const char *const store_column_names[STORE_COLUMNS]; // utilization_percent, memory_used_bytes, power_watts, …
extern const int store_extremes[STORE_EXTREMES];            // the columns of the readings that these are of
extern const char *const store_link_names[STORE_LINK_COLUMNS]; // rtt_ms, jitter_ms, loss_percent, …
enum store_kind { STORE_OF_DEVICE, STORE_OF_LINK, STORE_KINDS };
struct store_minute {
	const char *series;           // a device's id; of a link its nodes' ids, with a space between
	int64_t minute_ms;            // start of the minute
	double values[STORE_COLUMNS]; // of a link the first STORE_LINK_COLUMNS
	enum store_kind kind;
};
// Add averages; fire and forget, dropped with a log line when the disk cannot take them. Older than 30 days goes.
void store_add_minutes(struct store *store, const struct store_minute *minutes, size_t count);

struct store_history {
	size_t rows;
	int64_t step_ms;
	int64_t *at_ms;                  // (rows), start of each step
	double (*values)[STORE_COLUMNS]; // (rows, STORE_COLUMNS), NaN: nothing reported in that step
};
typedef void store_history_done(void *context, enum status status, const struct store_history *history);
// Averages of [from_ms, to_ms) in steps of step_ms (a multiple of a minute), only steps that hold something. The least
// and the most of a step are NaN if one of its minutes has an average without them, as those of earlier versions.
// Answered by the reader thread through `done` on the loop thread; the history belongs to the callback's caller.
enum status store_read_history(struct store *store, const char *device_id, int64_t from_ms, int64_t to_ms,
			       int64_t step_ms, store_history_done *done, void *context);
enum status store_read_link_history(struct store *store, const char *series, int64_t from_ms, int64_t to_ms,
				    int64_t step_ms, store_history_done *done, void *context);

// Figures for /metrics.
struct store_stats {
	uint64_t commits, batches, commit_failures;
	uint64_t wrong_pages; // of state.db, read since the start and not as they were written
	bool history_failing; // the last minute averages could not be stored
	bool damaged;         // SQLite has found state.db damaged: no change is stored any more
	double commit_seconds;
	int64_t state_bytes, history_bytes;
};
void store_read_stats(struct store *store, struct store_stats *stats);
