/* See journal.h. */
#include "server/store/audit/journal.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "server/store/audit/journal_keys.h"
#include "server/store/batch.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { SHED_TILES = 8, CLOCK_SLACK_MS = 3600000, UNSAID_BYTES = 64 * 1024 * 1024 };

static const char put_node_sql[] = "INSERT INTO audit_nodes (level, place, hash) VALUES (?1, ?2, ?3) "
				   "ON CONFLICT (level, place) DO UPDATE SET hash = excluded.hash";
static const char put_checkpoint_sql[] =
	"INSERT INTO audit_checkpoints (size, note, segment_bytes, cosigned) VALUES (?1, ?2, ?3, 0) "
	"ON CONFLICT (size) DO UPDATE SET note = excluded.note, segment_bytes = excluded.segment_bytes";
// The head before this one, unless it is the last of its segment or witnesses have signed it.
static const char drop_checkpoint_sql[] = "DELETE FROM audit_checkpoints WHERE size = ?1 AND cosigned = 0";

bool journal_row(struct db_statement *row, struct journal_entry *entry)
{
	bool whole = true;
	int column = 4;
	*entry = (struct journal_entry){
		.seq = (uint64_t)db_integer(row, 0),
		.at_us = db_integer(row, 1),
		.duration_us = db_integer(row, 2),
		.count = (uint64_t)db_integer(row, 3),
	};
#define X(name) \
	entry->name = db_text(row, column); \
	whole = whole && entry->name && strlen(entry->name) == db_length(row, column); \
	column++;
	ENTRY_TEXT_LIST(X)
#undef X
	entry->bound = db_text(row, column);
	whole = whole && (!entry->bound || strlen(entry->bound) == db_length(row, column));
	entry->bound_before = (uint64_t)db_integer(row, column + 1);
	return whole;
}

// ---- growing ----

bool journal_grew(const struct journal *journal)
{
	return journal->open.tree.size != journal->done.tree.size;
}

struct journal_state journal_mark(struct journal *journal)
{
	journal->open.mark = bound_mark(journal->bound);
	return journal->open;
}

void journal_undo(struct journal *journal, const struct journal_state *before)
{
	bound_undo(journal->bound, before->mark);
	buffer_clear(&journal->unsaid);
	journal->said = 0;
	journal->open = *before;
}

void journal_begin(struct journal *journal)
{
	journal_undo(journal, &journal->done);
}

void journal_committed(struct journal *journal)
{
	bound_keep(journal->bound);
	journal->open.mark = 0;
	journal->done = journal->open;
	journal->signed_size = journal->open.tree.size;
}

static void put_node(void *context, const struct tree_node *node)
{
	struct journal *journal = context;
	if (node->level < AUDIT_TILE_LEVEL || journal->fault)
		return;
	db_bind_integer(journal->put_node, 1, node->level);
	db_bind_integer(journal->put_node, 2, (int64_t)node->index);
	db_bind_bytes(journal->put_node, 3, node->hash.bytes, TREE_HASH_BYTES);
	journal->fault = db_execute(journal->put_node, journal->fault_error);
}

static enum status append(struct journal *journal, const struct tree_hash *leaf, struct error *error)
{
	journal->fault = STATUS_OK;
	journal->fault_error = error;
	tree_append(&journal->open.tree, leaf, put_node, journal);
	journal->fault_error = NULL;
	return journal->fault;
}

static enum status encode(struct journal *journal, const struct journal_entry *entry, struct tree_hash *leaf,
			  struct error *error)
{
	buffer_clear(&journal->bytes);
	enum status status = entry_encode(entry, &journal->bytes);
	if (status)
		return error_set(error, status, "an entry of the audit log is too large");
	tree_hash_leaf(journal->bytes.data, journal->bytes.length, leaf);
	return STATUS_OK;
}

enum status journal_add(struct journal *journal, struct journal_entry *entry, struct tree_hash *leaf,
			struct error *error)
{
	entry->seq = journal->open.tree.size;
	entry->bound_before = journal->open.newest_bound;
	enum status status = encode(journal, entry, leaf, error);
	if (!status)
		status = append(journal, leaf, error);
	if (status)
		return status;
	if (entry->bound && entry->bound[0])
		journal->open.newest_bound = entry->seq;
	journal->open.bytes += (int64_t)journal->bytes.length;
	if (entry->at_us > journal->open.newest_us)
		journal->open.newest_us = entry->at_us;
	return STATUS_OK;
}

static enum status put_checkpoint(struct journal *journal, struct error *error)
{
	const uint64_t size = journal->open.tree.size;
	db_bind_integer(journal->put_checkpoint, 1, (int64_t)size);
	db_bind_text(journal->put_checkpoint, 2, buffer_text(&journal->note));
	db_bind_integer(journal->put_checkpoint, 3, journal->open.bytes);
	enum status status = db_execute(journal->put_checkpoint, error);

	if (!status && journal->signed_size != size && (journal->signed_size != journal->first || !journal->segment)) {
		db_bind_integer(journal->drop_checkpoint, 1, (int64_t)journal->signed_size);
		status = db_execute(journal->drop_checkpoint, error);
	}
	return status;
}

static enum status sign(struct journal *journal, struct error *error)
{
	struct journal_head *head = &journal->head;
	*head = (struct journal_head){
		.checkpoint.size = journal->open.tree.size,
		.key = journal->signer.key,
		.first_key = journal->first_key,
		.segment = journal->segment,
	};
	memcpy(head->checkpoint.origin, journal->first_key.name, sizeof head->checkpoint.origin);
	tree_root(&journal->open.tree, &head->checkpoint.root);
	buffer_clear(&journal->note);
	enum status status = checkpoint_print(&head->checkpoint, &journal->note);
	if (!status)
		status = note_sign(&journal->note, &journal->signer, 0);
	if (!status && journal->note.length >= sizeof head->note)
		status = STATUS_LIMIT_EXCEEDED;
	if (status)
		return error_set(error, status, "the audit log's head cannot be signed: %s", status_text(status));
	memcpy(head->note, journal->note.data, journal->note.length + 1);
	return STATUS_OK;
}

enum status journal_seal(struct journal *journal, struct error *error)
{
	if (!journal_grew(journal))
		return STATUS_OK;
	enum status status = sign(journal, error);
	return status ? status : put_checkpoint(journal, error);
}

// ---- the next segment ----

enum status journal_prepare_next(struct journal *journal, struct journal_next *next, struct error *error)
{
	struct succession succession = {
		.number = journal->segment + 1,
		.first = journal->done.tree.size,
	};
	*next = (struct journal_next){
		.number = succession.number, .first = succession.first, .began_ms = clock_wall_ms()};
	buffer_init(&next->certificate, NOTE_BYTES);
	next->signer = journal->spare;
	enum status status = journal_key_make(journal->directory, journal->first_key.name, next->number, &next->signer,
					      error);
	if (status)
		return status;
	memcpy(succession.origin, journal->first_key.name, sizeof succession.origin);
	succession.key = next->signer.key;
	tree_root(&journal->done.tree, &succession.root);
	status = succession_print(&succession, &next->certificate);
	if (!status)
		status = note_sign(&next->certificate, &journal->signer, 0);
	if (status)
		error_set(error, status, "the audit log's next key cannot be certified: %s", status_text(status));
	return status;
}

static void swap(struct journal *journal, struct journal_next *next)
{
	const struct note_signer signer = journal->signer;
	const uint64_t number = journal->segment, first = journal->first;
	const int64_t began_ms = journal->began_ms;
	journal->signer = next->signer;
	journal->segment = next->number;
	journal->first = next->first;
	journal->began_ms = next->began_ms;
	next->signer = signer;
	next->number = number;
	next->first = first;
	next->began_ms = began_ms;
}

static enum status put_segment(struct journal *journal, const char *certificate, struct error *error)
{
	struct db_statement *statement = NULL;
	char key[NOTE_KEY_TEXT_BYTES];
	note_key_print(&journal->signer.key, key);
	enum status status = db_prepare(
		journal->db,
		"INSERT INTO audit_segments (number, first, key, certificate, began_ms, archive, "
		"pruned_ms) VALUES (?1, ?2, ?3, ?4, ?5, '', 0)",
		&statement, error);
	if (status)
		return status;
	db_bind_integer(statement, 1, (int64_t)journal->segment);
	db_bind_integer(statement, 2, (int64_t)journal->first);
	db_bind_text(statement, 3, key);
	db_bind_text(statement, 4, certificate);
	db_bind_integer(statement, 5, journal->began_ms);
	status = db_execute(statement, error);
	db_finalize(statement);
	return status;
}

enum status journal_put_next(struct journal *journal, struct journal_next *next, struct error *error)
{
	swap(journal, next);
	journal->open.bytes = 0;
	return put_segment(journal, buffer_text(&next->certificate), error);
}

static void finish_next(struct journal_next *next)
{
	note_signer_finish(&next->signer);
	buffer_finish(&next->certificate);
}

void journal_take_next(struct journal *journal, struct journal_next *next)
{
	journal_key_destroy(journal->directory, next->number);
	finish_next(next);
	note_signer_finish(&journal->spare);
}

void journal_drop_next(struct journal *journal, struct journal_next *next)
{
	if (journal->segment == next->number + 1 && journal->first == journal->done.tree.size)
		swap(journal, next);
	journal->spare = next->signer;
	finish_next(next);
}

// ---- rows that were archived ----

static enum status shed_tile(struct journal *journal, uint64_t place, uint64_t end, struct error *error)
{
	struct db_statement *statement = NULL;
	const uint64_t begin = place << AUDIT_TILE_LEVEL;
	audit_tree_load_tile(&journal->source, place);
	size_t count = end - begin < AUDIT_TILE ? (size_t)(end - begin) : AUDIT_TILE;
	if (journal->source.count < count)
		return error_set(error, STATUS_UNAVAILABLE, "entries of the audit log from %" PRIu64 " on are missing",
				 begin + journal->source.count);
	enum status status = db_prepare(journal->db,
					"INSERT INTO audit_leaves (place, hashes) VALUES (?1, ?2) "
					"ON CONFLICT (place) DO UPDATE SET hashes = excluded.hashes",
					&statement, error);
	if (status)
		return status;
	db_bind_integer(statement, 1, (int64_t)place);
	db_bind_bytes(statement, 2, journal->source.tile, count * TREE_HASH_BYTES);
	status = db_execute(statement, error);
	db_finalize(statement);
	return status;
}

static enum status shed_rows(struct journal *journal, uint64_t first, uint64_t end, struct error *error)
{
	char sql[128];
	const uint64_t from = first >> AUDIT_TILE_LEVEL, last = (end - 1) >> AUDIT_TILE_LEVEL;
	enum status status = STATUS_OK;
	for (uint64_t place = from; place <= last && !status; place++)
		status = shed_tile(journal, place, end, error);
	snprintf(sql, sizeof sql, "DELETE FROM audit WHERE seq >= %" PRIu64 " AND seq < %" PRIu64, first, end);
	return status ? status : db_run(journal->db, sql, error);
}

enum status journal_shed(struct journal *journal, uint64_t first, uint64_t end, bool *left, struct error *error)
{
	uint64_t stop = ((first >> AUDIT_TILE_LEVEL) + SHED_TILES) << AUDIT_TILE_LEVEL;
	*left = stop < end;
	enum status status = db_begin(journal->db, DB_WRITE, error);
	if (!status)
		status = shed_rows(journal, first, stop < end ? stop : end, error);
	if (!status)
		status = db_commit(journal->db, error);
	if (status)
		db_rollback(journal->db);
	audit_tree_forget(&journal->source);
	return status;
}

// ---- opening ----

static enum status unfit(struct error *error, const char *why)
{
	error_set(error, STATUS_UNAVAILABLE, "the audit log %s", why);
	error_hint(error, "see exogpu audit verify; restore the whole data directory, state.db and audit/, from one "
			  "backup, or move both away to begin anew");
	return STATUS_UNAVAILABLE;
}

static enum status query(struct journal *journal, const char *sql, struct db_statement **row, struct error *error)
{
	enum status status = db_prepare(journal->db, sql, row, error);
	if (status)
		return status;
	enum db_code code = db_step(*row);
	if (code == DB_ROW)
		return STATUS_OK;
	db_finalize(*row);
	*row = NULL;
	return code == DB_DONE ? STATUS_NOT_FOUND : db_fault(journal->db, error);
}

// The log begins with the transaction that also takes the rows that stand there, and its key has another name until
// then: a server that is killed in between finds no log and no key of one, and begins again.
static enum status begin_log(struct journal *journal, struct error *error)
{
	char origin[NOTE_NAME_BYTES];
	struct db_statement *row = NULL;
	enum status status = query(journal, "SELECT 1 FROM audit LIMIT 1", &row, error);
	db_finalize(row);
	if (status != STATUS_NOT_FOUND)
		return status ? status : unfit(error, "has entries, but not the list of its keys");
	// A folder with keys has had a log, whose rows are bound to it: whoever removed it from state.db makes none
	// good.
	journal->unbound = !journal_keys_found(journal->directory);
	journal->fresh = true;
	status = journal_origin_make(origin, error);
	if (!status)
		status = journal_first_key_make(journal->directory, origin, &journal->signer, error);
	journal->first_key = journal->signer.key;
	journal->began_ms = clock_wall_ms();
	return status;
}

enum status journal_put_first(struct journal *journal, struct error *error)
{
	enum status status = put_segment(journal, "", error);
	if (!status)
		status = sign(journal, error);
	return status ? status : put_checkpoint(journal, error);
}

enum status journal_take_first(struct journal *journal, struct error *error)
{
	char key[NOTE_KEY_TEXT_BYTES];
	enum status status = journal_first_key_name(journal->directory, error);
	journal->fresh = status != STATUS_OK;
	note_key_print(&journal->first_key, key);
	if (!status)
		log_info("audit", "a new audit log begins; keep its first key somewhere else: %s", key);
	return status;
}

// The newest segment, and the first one's key.
static enum status load_segment(struct journal *journal, struct note_key *key, struct error *error)
{
	struct db_statement *row = NULL;
	enum status status = query(journal, "SELECT key FROM audit_segments WHERE number = 0", &row, error);
	if (status)
		return status == STATUS_NOT_FOUND ? unfit(error, "lacks its first segment's key") : status;
	const char *text = db_text(row, 0);
	status = note_key_parse(&journal->first_key, text ? text : "");
	db_finalize(row);
	if (status)
		return unfit(error, "has a first key that is none");
	status = query(journal, "SELECT number, first, began_ms, key FROM audit_segments ORDER BY number DESC LIMIT 1",
		       &row, error);
	if (status)
		return status;
	journal->segment = (uint64_t)db_integer(row, 0);
	journal->first = (uint64_t)db_integer(row, 1);
	journal->began_ms = db_integer(row, 2);
	text = db_text(row, 3);
	status = note_key_parse(key, text ? text : "");
	db_finalize(row);
	return status ? unfit(error, "has a newest key that is none") : STATUS_OK;
}

// The tree at the newest checkpoint, which must fit it.
static enum status load_tree(struct journal *journal, struct error *error)
{
	struct db_statement *row = NULL;
	struct checkpoint head;
	struct tree_hash root;
	enum status status = query(journal,
				   "SELECT size, note, segment_bytes FROM audit_checkpoints ORDER BY size DESC LIMIT 1",
				   &row, error);
	if (status)
		return status == STATUS_NOT_FOUND ? unfit(error, "lacks its signed head") : status;
	const char *note = db_text(row, 1);
	struct error parsed = {.status = STATUS_OK};
	bool good = note && !checkpoint_parse(&head, note, &parsed) && !strcmp(head.origin, journal->first_key.name) &&
		    head.size == (uint64_t)db_integer(row, 0) && note_check(note, &journal->signer.key, NULL) &&
		    (head.size > journal->first || !journal->segment);
	journal->done.bytes = db_integer(row, 2);
	if (good) {
		journal->head = (struct journal_head){.checkpoint = head,
						      .key = journal->signer.key,
						      .first_key = journal->first_key,
						      .segment = journal->segment};
		good = (size_t)snprintf(journal->head.note, sizeof journal->head.note, "%s", note) <
		       sizeof journal->head.note;
	}
	db_finalize(row);
	if (!good)
		return unfit(error, "has a newest head that its key did not sign");
	status = audit_tree_at(&journal->source, head.size, &journal->done.tree, error);
	if (status)
		return unfit(error, "has lost entries that its head was signed with");
	tree_root(&journal->done.tree, &root);
	if (memcmp(&root, &head.root, sizeof root) != 0)
		return unfit(error, "does not fit its signed head: it was changed");
	journal->signed_size = head.size;
	journal->open = journal->done;
	return STATUS_OK;
}

// Entries behind the newest head. A commit signs the head of what it adds, so no crash of ours leaves any: somebody has
// written to the database, or has taken a head away. Signing them would make them true.
static enum status find_tail(struct journal *journal, const char *accepted, struct error *error)
{
	struct db_statement *row = NULL;
	char range[48], sql[128];
	snprintf(sql, sizeof sql, "SELECT min(seq), max(seq) FROM audit WHERE seq >= %" PRIu64,
		 journal->done.tree.size);
	enum status status = query(journal, sql, &row, error);
	if (status)
		return status;
	bool none = db_type(row, 0) == DB_NULL;
	snprintf(range, sizeof range, "%lld-%lld", (long long)db_integer(row, 0), (long long)db_integer(row, 1));
	db_finalize(row);
	if (none)
		return STATUS_OK;
	journal->tail = accepted && !strcmp(accepted, range);
	if (journal->tail)
		return STATUS_OK;
	error_set(error, STATUS_UNAVAILABLE,
		  "the audit log has entries that no head of it covers: %s. The server signs what it adds in the same "
		  "transaction, so no crash leaves this: somebody wrote to state.db, or took its newest head away",
		  range);
	error_hint(error,
		   "see exogpu audit verify, and exogpu audit export for what they say; put the whole data directory "
		   "back from one backup, or start once with --accept-unsigned %s to sign them as they are",
		   range);
	return STATUS_UNAVAILABLE;
}

enum status journal_take_tail(struct journal *journal, struct error *error)
{
	struct db_statement *rows = NULL;
	struct journal_entry entry;
	struct tree_hash leaf;
	enum db_code code = DB_DONE;
	enum status status = db_prepare(
		journal->db, "SELECT " JOURNAL_COLUMNS ", leaf FROM audit WHERE seq >= ?1 ORDER BY seq", &rows, error);
	if (!status)
		db_bind_integer(rows, 1, (int64_t)journal->done.tree.size);
	while (!status && (code = db_step(rows)) == DB_ROW) {
		bool whole = journal_row(rows, &entry) && entry.seq == journal->open.tree.size;
		if (whole)
			status = journal_add(journal, &entry, &leaf, error);
		if (!status && (!whole || db_length(rows, JOURNAL_LEAF_COLUMN) != TREE_HASH_BYTES ||
				memcmp(db_bytes(rows, JOURNAL_LEAF_COLUMN), &leaf, sizeof leaf) != 0))
			status = unfit(error, "has entries behind its signed head that are not whole");
		if (!status && entry.bound && entry.bound[0]) // nobody's word makes rows good that no key has signed
			status = unfit(error,
				       "has entries behind its signed head that would make rows of state.db good");
	}
	if (!status && code != DB_DONE)
		status = db_fault(journal->db, error);
	db_finalize(rows);
	return status;
}

static enum status load(struct journal *journal, const char *accepted, struct error *error)
{
	struct note_key key;
	struct db_statement *row = NULL;
	enum status status = load_segment(journal, &key, error);
	if (!status)
		status = journal_key_load(journal->directory, &key, journal->segment, &journal->signer, error);
	if (!status)
		status = load_tree(journal, error);
	if (!status)
		status = journal_load_bound(journal, error);
	if (!status)
		status = find_tail(journal, accepted, error);
	if (status)
		return status;
	journal_keys_sweep(journal->directory, journal->segment);
	status = query(journal, "SELECT at_us FROM audit ORDER BY seq DESC LIMIT 1", &row, error);
	if (status)
		return status == STATUS_NOT_FOUND ? STATUS_OK : status;
	journal->done.newest_us = journal->open.newest_us = db_integer(row, 0);
	db_finalize(row);
	int64_t ahead_ms = journal->done.newest_us / 1000 - clock_wall_ms();
	if (ahead_ms > CLOCK_SLACK_MS)
		log_warning("audit", "the clock is %lld min behind the newest entry of the audit log",
			    (long long)(ahead_ms / 60000));
	return STATUS_OK;
}

enum status journal_open(struct journal *journal, struct db *db, const struct journal_params *params,
			 struct error *error)
{
	struct db_statement *row = NULL;
	*journal = (struct journal){.db = db, .open.newest_bound = ENTRY_NONE, .done.newest_bound = ENTRY_NONE};
	buffer_init(&journal->unsaid, UNSAID_BYTES);
	if (bound_create(&journal->bound))
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the audit log");
	buffer_init(&journal->bytes, ENTRY_BYTES);
	buffer_init(&journal->note, NOTE_BYTES);
	snprintf(journal->directory, sizeof journal->directory, "%s/" JOURNAL_FOLDER, params->directory);
	enum status status = journal_folder_make(journal->directory, error);
	if (!status)
		status = audit_tree_init(&journal->source, db, error);
	if (!status)
		status = db_prepare(db, put_node_sql, &journal->put_node, error);
	if (!status)
		status = db_prepare(db, put_checkpoint_sql, &journal->put_checkpoint, error);
	if (!status)
		status = db_prepare(db, drop_checkpoint_sql, &journal->drop_checkpoint, error);
	if (status)
		return status;
	status = query(journal, "SELECT 1 FROM audit_segments LIMIT 1", &row, error);
	db_finalize(row);
	if (status)
		return status == STATUS_NOT_FOUND ? begin_log(journal, error) : status;
	return load(journal, params->accept_unsigned, error);
}

void journal_close(struct journal *journal)
{
	audit_tree_finish(&journal->source);
	db_finalize(journal->put_node);
	db_finalize(journal->put_checkpoint);
	db_finalize(journal->drop_checkpoint);
	journal->put_node = journal->put_checkpoint = journal->drop_checkpoint = NULL;
	buffer_finish(&journal->bytes);
	buffer_finish(&journal->note);
	buffer_finish(&journal->unsaid);
	bound_destroy(&journal->bound);
	note_signer_finish(&journal->signer);
	note_signer_finish(&journal->spare);
}
