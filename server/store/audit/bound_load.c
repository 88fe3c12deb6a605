/* See bound.h and journal.h: what the log binds, as it grows and at a start. A start must not trust
 * the database's rows, nor believe that an entry is the newest about its row. So it follows
 * `bound_before` from the newest entry back; each entry is hashed and its leaf proved to be in the
 * signed tree. A tile of 256 leaves is proved once, because a proof for one of its leaves includes all
 * the others. */
#include "server/store/batch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// ---- as it grows ----

enum status journal_bind(struct journal *journal, const char *subject, const struct tree_hash *digest,
			 struct error *error)
{
	bool changed = false;
	enum status status = bound_set(journal->bound, subject, digest, journal->open.tree.size, &changed);
	if (!status && changed)
		status = bound_print(&journal->unsaid, subject, digest);
	return status ? error_set(error, status, "no memory to bind a row of state.db to the audit log") : STATUS_OK;
}

static void say_again(void *context, const char *subject, const struct tree_hash *digest, uint64_t seq)
{
	(void)seq;
	bound_print(context, subject, digest); // what fails here shows in the buffer
}

enum status journal_restate(struct journal *journal, bool adopt, size_t *adopted, struct error *error)
{
	enum status status = STATUS_OK;
	if (adopt)
		status = bound_adopt(journal->bound, journal->db, journal->open.tree.size, adopted, error);
	if (!status) {
		bound_each(journal->bound, say_again, &journal->unsaid);
		if (journal->unsaid.failed)
			status = error_set(error, STATUS_OUT_OF_MEMORY,
					   "no memory to begin a segment of the audit log");
	}
	return status;
}

bool journal_has_bound(const struct journal *journal)
{
	return journal->said < journal->unsaid.length;
}

char *journal_take_bound(struct journal *journal, const struct journal_entry *entry)
{
	const char *text = buffer_text(&journal->unsaid) + journal->said;
	size_t room = ENTRY_BYTES - AUDIT_OVERHEAD, length = 0;
#define X(name) room -= entry->name && strlen(entry->name) < room ? strlen(entry->name) : 0;
	ENTRY_TEXT_LIST(X)
#undef X
	if (room > ENTRY_TEXT_BYTES)
		room = ENTRY_TEXT_BYTES;
	while (journal_has_bound(journal) && strncmp(entry->action, "audit.", 6) != 0) {
		const size_t line = strcspn(text + length, "\n") + 1;
		if (!text[length] || length + line > room)
			break;
		length += line;
	}
	journal->said += length;
	return strndup(text, length);
}

// ---- at the start ----

struct walk {
	struct journal *journal;
	struct tree_hash root;
	uint64_t proved; // the tile that is in memory; UINT64_MAX: none
	struct db_statement *row;
};

static enum status changed(struct error *error, uint64_t seq)
{
	error_set(error, STATUS_UNAVAILABLE, "entry %" PRIu64 " of the audit log is not the one that was signed", seq);
	error_hint(error, "see exogpu audit verify; restore the whole data directory, state.db and audit/, from one "
			  "backup");
	return STATUS_UNAVAILABLE;
}

static bool in_tree(struct walk *walk, uint64_t seq, const struct tree_hash *leaf)
{
	struct audit_tree *kept = &walk->journal->source;
	const uint64_t place = seq >> AUDIT_TILE_LEVEL, size = walk->journal->done.tree.size;
	const size_t at = (size_t)(seq & (AUDIT_TILE - 1));
	if (walk->proved == place && kept->place == place && at < kept->count)
		return !memcmp(&kept->tile[at], leaf, sizeof *leaf);
	struct tree_proof proof;
	const struct tree_source source = audit_tree_source(kept);
	audit_tree_load_tile(kept, place);
	walk->proved = UINT64_MAX;
	if (at >= kept->count || memcmp(&kept->tile[at], leaf, sizeof *leaf) != 0 ||
	    tree_prove_inclusion(&source, seq, size, &proof, NULL) ||
	    !tree_check_inclusion(leaf, seq, size, &walk->root, &proof))
		return false;
	walk->proved = kept->place == place && kept->count ? place : UINT64_MAX;
	return true;
}

// The entry's row, which stands until the next one is read.
static enum status read_entry(struct walk *walk, uint64_t seq, struct journal_entry *entry, struct error *error)
{
	struct journal *journal = walk->journal;
	struct tree_hash leaf;
	db_reset(walk->row);
	db_bind_integer(walk->row, 1, (int64_t)seq);
	enum db_code code = db_step(walk->row);
	if (code != DB_ROW && code != DB_DONE)
		return db_fault(journal->db, error);
	buffer_clear(&journal->bytes);
	if (code == DB_DONE || !journal_row(walk->row, entry) || entry_encode(entry, &journal->bytes))
		return changed(error, seq);
	tree_hash_leaf(journal->bytes.data, journal->bytes.length, &leaf);
	return in_tree(walk, seq, &leaf) ? STATUS_OK : changed(error, seq);
}

struct older { // an entry's lines; those of newer entries hold
	struct bound *bound, *own;
	uint64_t seq;
};

static enum status take_line(void *context, const char *subject, const struct tree_hash *digest)
{
	const struct older *older = context;
	if (bound_told(older->bound, subject) && !bound_told(older->own, subject))
		return STATUS_OK;
	enum status status = bound_set(older->own, subject, digest, older->seq, NULL);
	return status ? status : bound_set(older->bound, subject, digest, older->seq, NULL);
}

static enum status take_entry(struct walk *walk, const struct journal_entry *entry, struct error *error)
{
	struct older older = {.bound = walk->journal->bound, .seq = entry->seq};
	enum status status = bound_create(&older.own);
	if (!status)
		status = bound_read(entry->bound, take_line, &older);
	bound_destroy(&older.own);
	if (status == STATUS_INVALID_PARAMS)
		return changed(error, entry->seq);
	return status ? error_set(error, status, "no memory for the audit log") : STATUS_OK;
}

static enum status walk_back(struct walk *walk, struct error *error)
{
	struct journal *journal = walk->journal;
	struct journal_entry entry;
	uint64_t seq = journal->done.tree.size - 1;
	enum status status = read_entry(walk, seq, &entry, error);
	if (status)
		return status;
	journal->unbound = !entry.bound;
	if (journal->unbound)
		return STATUS_OK;
	if (!entry.bound[0])
		seq = entry.bound_before;
	journal->done.newest_bound = journal->open.newest_bound = seq;
	while (!status && seq != ENTRY_NONE && seq >= journal->first) {
		status = read_entry(walk, seq, &entry, error);
		if (!status && (!entry.bound || !entry.bound[0] ||
				(entry.bound_before != ENTRY_NONE && entry.bound_before >= seq)))
			status = changed(error, seq);
		if (!status)
			status = take_entry(walk, &entry, error);
		if (!status)
			seq = entry.bound_before;
	}
	return status;
}

// When the segment ends does not depend on these; so they are counted as they stand.
static enum status count_restated(struct journal *journal, struct error *error)
{
	struct db_statement *rows = NULL;
	enum status status = db_prepare(journal->db, "SELECT action FROM audit WHERE seq > ?1 ORDER BY seq", &rows,
					error);
	if (status)
		return status;
	db_bind_integer(rows, 1, (int64_t)journal->first);
	journal->restated = 0;
	while (db_step(rows) == DB_ROW && db_text(rows, 0) && !strncmp(db_text(rows, 0), "state.", 6))
		journal->restated++;
	db_finalize(rows);
	return STATUS_OK;
}

enum status journal_load_bound(struct journal *journal, struct error *error)
{
	struct walk walk = {.journal = journal, .proved = UINT64_MAX};
	if (!journal->done.tree.size)
		return STATUS_OK;
	tree_root(&journal->done.tree, &walk.root);
	enum status status = db_prepare(journal->db, "SELECT " JOURNAL_COLUMNS " FROM audit WHERE seq = ?1", &walk.row,
					error);
	if (!status)
		status = walk_back(&walk, error);
	bound_keep(journal->bound); // not before: marks of rows that are gone hide what older entries say of them
	db_finalize(walk.row);
	audit_tree_forget(&journal->source);
	return status ? status : count_restated(journal, error);
}
