/* See ledger.h. */
#include "server/store/audit/ledger.h"

#include "common/journal/archive.h"
#include "server/store/audit/journal.h"
#include "server/store/audit/ledger_bound.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PASSES = 3 };

struct feed {
	const struct ledger *ledger;
	struct journal_verifier *verifier;
	struct db_statement *segments, *rows, *checkpoints;
	bool checkpoint_there; // the row that `checkpoints` stands on
	struct archive_name *archives;
	size_t archive_count;
	struct tree tree;        // of the database's own leaves
	struct audit_tree *kept; // and what it keeps of the tree
	uint64_t size;           // entries read so far
	uint64_t told;           // those before it were told to the ledger's listener
	uint64_t wrong_nodes, first_wrong;
	struct note_key key; // of the segment before
	bool key_known;
	struct buffer bytes;
	struct ledger_bound bound;
};

struct segment { // a row, copied
	uint64_t number, first, end;
	bool last, archived;
	struct note_key key;
	bool key_good;
	char certificate[NOTE_BYTES];
	struct tree before;
};

static enum status fault(struct feed *feed, struct error *error)
{
	if (!db_damaged(feed->ledger->db))
		return db_fault(feed->ledger->db, error);
	journal_report_finding(feed->verifier, JOURNAL_MODIFIED, feed->size, "the database is damaged: %.160s",
			       db_trouble(feed->ledger->db));
	return STATUS_OK;
}

static bool stopped(const struct feed *feed)
{
	return feed->ledger->stop && atomic_load(feed->ledger->stop);
}

// ---- the hashes that proofs are made from ----

static void compare_node(void *context, const struct tree_node *node)
{
	struct feed *feed = context;
	if (node->level < AUDIT_TILE_LEVEL)
		return;
	const struct tree_source source = audit_tree_source(feed->kept);
	struct tree_node kept = {.level = node->level, .index = node->index};
	if (source.fetch(source.context, &kept) && !memcmp(&kept.hash, &node->hash, sizeof kept.hash))
		return;
	if (!feed->wrong_nodes++)
		feed->first_wrong = node->index << node->level;
}

// The leaf that the database keeps of entry `seq`. False: none.
static bool kept_leaf(struct feed *feed, uint64_t seq, struct tree_hash *leaf)
{
	const size_t at = (size_t)(seq & (AUDIT_TILE - 1));
	if (!feed->kept->count || feed->kept->place != seq >> AUDIT_TILE_LEVEL || at >= feed->kept->count)
		audit_tree_load_tile(feed->kept, seq >> AUDIT_TILE_LEVEL);
	if (at >= feed->kept->count)
		return false;
	*leaf = feed->kept->tile[at];
	return true;
}

static void add_leaf(struct feed *feed, const struct tree_hash *leaf)
{
	if (feed->tree.size == feed->size)
		tree_append(&feed->tree, leaf, compare_node, feed);
	feed->size++;
}

// ---- checkpoints ----

static enum status next_checkpoint(struct feed *feed, struct error *error)
{
	enum db_code code = db_step(feed->checkpoints);
	feed->checkpoint_there = code == DB_ROW;
	return code == DB_ROW || code == DB_DONE ? STATUS_OK : fault(feed, error);
}

// Feeds the checkpoints of the first `size` entries, or of fewer.
static enum status feed_checkpoints(struct feed *feed, uint64_t size, struct error *error)
{
	enum status status = STATUS_OK;
	while (!status && feed->checkpoint_there && (uint64_t)db_integer(feed->checkpoints, 0) <= size) {
		const char *note = db_text(feed->checkpoints, 1);
		journal_verify_checkpoint(feed->verifier, note ? note : "");
		status = next_checkpoint(feed, error);
	}
	return status;
}

// ---- entries ----

// The caller is told of each once, whatever is read again.
static void tell(void *context, const struct journal_entry *entry)
{
	struct feed *feed = context;
	ledger_bound_entry(&feed->bound, entry);
	if (!feed->ledger->entry || entry->seq < feed->told)
		return;
	feed->told = entry->seq + 1;
	feed->ledger->entry(feed->ledger->context, entry);
}

static void feed_row(struct feed *feed, uint64_t seq)
{
	struct journal_entry entry;
	struct tree_hash leaf;
	const void *stored = db_bytes(feed->rows, JOURNAL_LEAF_COLUMN);
	bool whole = stored && db_length(feed->rows, JOURNAL_LEAF_COLUMN) == TREE_HASH_BYTES;
	if (whole)
		memcpy(&leaf, stored, sizeof leaf);
	buffer_clear(&feed->bytes);
	if (!journal_row(feed->rows, &entry) || entry_encode(&entry, &feed->bytes) || !whole) {
		if (whole) // no bytes are an entry's: that is said there
			journal_verify_entry(feed->verifier, seq, (const uint8_t *)"", 0, &leaf);
		else
			journal_report_finding(feed->verifier, JOURNAL_MODIFIED, seq,
					       "entry %" PRIu64 " is not readable", seq);
		return;
	}
	journal_verify_entry(feed->verifier, seq, feed->bytes.data, feed->bytes.length, &leaf);
	add_leaf(feed, &leaf);
	tell(feed, &entry);
}

// Feed a segment whose entries are here. An entry behind a gap is fed with its own number: the verifier finds the gap.
static enum status feed_rows(struct feed *feed, const struct segment *segment, struct error *error)
{
	enum db_code code = DB_DONE;
	enum status status = STATUS_OK;
	db_bind_integer(feed->rows, 1, (int64_t)segment->first);
	db_bind_integer(feed->rows, 2, segment->last ? INT64_MAX : (int64_t)segment->end);
	while (!status && (code = db_step(feed->rows)) == DB_ROW) {
		uint64_t seq = (uint64_t)db_integer(feed->rows, 0);
		feed_row(feed, seq);
		status = feed_checkpoints(feed, seq + 1, error);
		if (!status && stopped(feed))
			status = error_set(error, STATUS_UNAVAILABLE, "the server stops");
	}
	if (!status && code != DB_DONE)
		status = fault(feed, error);
	db_reset(feed->rows);
	if (!status && !segment->last && feed->size < segment->end && segment->end > segment->first)
		feed->size = segment->end; // the verifier missed them; the next segment has its own numbers
	return status;
}

// An entry that is archived, and still here: only while its row has not been taken away yet, and as it was.
static enum status feed_leftovers(struct feed *feed, const struct segment *segment, struct error *error)
{
	enum db_code code = DB_DONE;
	struct journal_entry entry;
	struct tree_hash leaf, kept;
	db_bind_integer(feed->rows, 1, (int64_t)segment->first);
	db_bind_integer(feed->rows, 2, (int64_t)segment->end);
	while ((code = db_step(feed->rows)) == DB_ROW) {
		buffer_clear(&feed->bytes);
		bool same = journal_row(feed->rows, &entry) && !entry_encode(&entry, &feed->bytes) &&
			    kept_leaf(feed, entry.seq, &kept);
		if (same) {
			tree_hash_leaf(feed->bytes.data, feed->bytes.length, &leaf);
			same = !memcmp(&leaf, &kept, sizeof leaf);
		}
		if (!same)
			journal_report_finding(feed->verifier, JOURNAL_MODIFIED, entry.seq,
					       "entry %" PRIu64 " of the database is not the one in the archive",
					       entry.seq);
	}
	db_reset(feed->rows);
	return code == DB_DONE ? STATUS_OK : fault(feed, error);
}

// A head that is kept of the middle of an archived segment, since witnesses have signed it.
static void compare_inner_checkpoint(struct feed *feed, const struct segment *segment)
{
	struct checkpoint head;
	struct tree_hash root;
	struct error ignored = {.status = STATUS_OK};
	const char *note = db_text(feed->checkpoints, 1);
	tree_root(&feed->tree, &root);
	if (feed->tree.size != feed->size)
		return; // a finding already
	if (!note || checkpoint_parse(&head, note, &ignored) || head.size != feed->size ||
	    !note_check(note, &segment->key, NULL))
		journal_report_finding(feed->verifier, JOURNAL_BAD_SIGNATURE, feed->size,
				       "the head of %" PRIu64 " entries has no good signature", feed->size);
	else if (memcmp(&root, &head.root, sizeof root) != 0)
		journal_report_finding(feed->verifier, JOURNAL_FORKED, feed->size,
				       "the head of %" PRIu64 " entries was signed for others", feed->size);
}

// The database's own hashes of archived entries.
static enum status feed_kept_leaves(struct feed *feed, const struct segment *segment, struct error *error)
{
	enum status status = STATUS_OK;
	struct tree_hash leaf;
	for (uint64_t seq = segment->first; seq < segment->end && !status && kept_leaf(feed, seq, &leaf); seq++) {
		add_leaf(feed, &leaf);
		while (!status && feed->checkpoint_there && feed->size < segment->end &&
		       (uint64_t)db_integer(feed->checkpoints, 0) == feed->size) {
			compare_inner_checkpoint(feed, segment);
			status = next_checkpoint(feed, error);
		}
	}
	if (feed->size < segment->end) {
		journal_report_finding(feed->verifier, JOURNAL_MODIFIED, feed->size,
				       "the database has lost hashes of archived entries");
		feed->size = segment->end;
	}
	return status;
}

static void feed_segment_row(struct feed *feed, const struct segment *segment)
{
	const bool known = segment->before.size == segment->first;
	journal_verify_segment(feed->verifier, &(struct journal_segment){.number = segment->number,
									 .first = segment->first,
									 .key = segment->key,
									 .certificate = segment->certificate,
									 .before = known ? &segment->before : NULL});
}

static enum status feed_archive(struct feed *feed, const struct segment *segment, struct error *error)
{
	const struct archive_name *found = NULL;
	for (size_t i = 0; i < feed->archive_count && !found; i++)
		if (feed->archives[i].first == segment->first && feed->archives[i].last + 1 == segment->end)
			found = &feed->archives[i];
	enum status status = STATUS_NOT_FOUND;
	if (found)
		status = archive_verify(found->path, feed->verifier, tell, feed, error);
	if (status == STATUS_NOT_FOUND) {
		feed_segment_row(feed, segment);
		journal_verify_gap(feed->verifier, segment->first, segment->end);
		status = STATUS_OK;
	}
	if (!status)
		status = feed_kept_leaves(feed, segment, error);
	if (!status)
		status = feed_leftovers(feed, segment, error);
	if (!status && stopped(feed))
		status = error_set(error, STATUS_UNAVAILABLE, "the server stops");
	return status;
}

// ---- segments ----

// The row that `segments` stands on.
static void read_segment(struct feed *feed, struct segment *segment)
{
	struct error ignored = {.status = STATUS_OK};
	const char *key = db_text(feed->segments, 2);
	const char *certificate = db_text(feed->segments, 3);
	segment->number = (uint64_t)db_integer(feed->segments, 0);
	segment->first = (uint64_t)db_integer(feed->segments, 1);
	segment->archived = db_length(feed->segments, 4) > 0;
	segment->last = db_type(feed->segments, 5) == DB_NULL;
	segment->end = (uint64_t)db_integer(feed->segments, 5);
	segment->key_good = key && !note_key_parse(&segment->key, key);
	snprintf(segment->certificate, sizeof segment->certificate, "%s", certificate ? certificate : "");
	if (audit_tree_at(feed->kept, segment->first, &segment->before, &ignored))
		segment->before.size = UINT64_MAX;
}

// That the key before has certified this one. The verifier says so of what it is fed; of an archived segment that is
// what the archive holds, and the database's own copy, which proofs are made of, must say the same. What the newest key
// was certified by the verifier knows, and a signature is good for one key only: so the chain holds as a whole.
static void check_chain(struct feed *feed, const struct segment *segment)
{
	struct succession succession;
	struct error ignored = {.status = STATUS_OK};
	char key[NOTE_KEY_TEXT_BYTES], certified[NOTE_KEY_TEXT_BYTES];
	bool good = segment->key_good;
	if (good && segment->number) {
		note_key_print(&segment->key, key);
		good = feed->key_known && !succession_parse(&succession, segment->certificate, &ignored) &&
		       succession.number == segment->number && succession.first == segment->first &&
		       note_check(segment->certificate, &feed->key, NULL);
		if (good) {
			note_key_print(&succession.key, certified);
			good = !strcmp(key, certified);
		}
	}
	if (!good)
		journal_report_finding(feed->verifier, JOURNAL_BAD_SIGNATURE, segment->first,
				       "the database's key of segment %" PRIu64 " is not certified by the one before",
				       segment->number);
	feed->key = segment->key;
	feed->key_known = segment->key_good;
}

static enum status feed_segment(struct feed *feed, const struct segment *segment, struct error *error)
{
	enum status status = segment->number ? feed_checkpoints(feed, segment->first, error) : STATUS_OK;
	if (status)
		return status;
	check_chain(feed, segment);
	ledger_bound_segment(&feed->bound, segment->last);
	if (segment->archived && !segment->last && segment->end > segment->first)
		return feed_archive(feed, segment, error);
	feed_segment_row(feed, segment);
	if (!segment->number) // the head of the empty log
		status = feed_checkpoints(feed, segment->first, error);
	return status ? status : feed_rows(feed, segment, error);
}

static enum status feed_segments(struct feed *feed, struct error *error)
{
	enum db_code code = DB_DONE;
	enum status status = STATUS_OK;
	struct segment *segment = malloc(sizeof *segment);
	if (!segment)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to verify with");
	while (!status && (code = db_step(feed->segments)) == DB_ROW) {
		*segment = (struct segment){.number = 0};
		read_segment(feed, segment);
		status = feed_segment(feed, segment, error);
	}
	free(segment);
	if (!status && code != DB_DONE)
		status = fault(feed, error);
	return status;
}

// Entries that no segment has: with a number below the first's.
static enum status feed_strays(struct feed *feed, struct error *error)
{
	struct db_statement *row = NULL;
	enum status status = db_prepare(feed->ledger->db, "SELECT count(*) FROM audit WHERE seq < 0", &row, error);
	if (status)
		return status;
	enum db_code code = db_step(row);
	int64_t count = code == DB_ROW ? db_integer(row, 0) : 0;
	db_finalize(row);
	if (count)
		journal_report_finding(feed->verifier, JOURNAL_MODIFIED, 0,
				       "%lld entries stand before the first of the log", (long long)count);
	return code == DB_ROW ? STATUS_OK : fault(feed, error);
}

static void say_wrong_nodes(const struct feed *feed)
{
	if (feed->wrong_nodes)
		journal_report_finding(feed->verifier, JOURNAL_MODIFIED, feed->first_wrong,
				       "%" PRIu64 " hashes that proofs are made from are not those of the entries",
				       feed->wrong_nodes);
}

static enum status prepare(struct feed *feed, struct error *error)
{
	struct db *db = feed->ledger->db;
	char sql[512];
	snprintf(sql, sizeof sql, "SELECT %s, leaf FROM audit WHERE seq >= ?1 AND seq < ?2 ORDER BY seq",
		 ledger_columns(db));
	enum status status = db_prepare(
		db,
		"SELECT number, first, key, certificate, archive, (SELECT n.first FROM audit_segments n WHERE n.number "
		"= s.number + 1) FROM audit_segments s ORDER BY number",
		&feed->segments, error);
	if (!status)
		status = db_prepare(db, sql, &feed->rows, error);
	if (!status)
		status = db_prepare(db, "SELECT size, note FROM audit_checkpoints ORDER BY size", &feed->checkpoints,
				    error);
	if (!status)
		status = audit_tree_init(feed->kept, db, error);
	db_expect_many(feed->rows);
	db_expect_many(feed->checkpoints);
	return status;
}

static enum status find_archives(struct feed *feed, struct error *error)
{
	struct error none = {.status = STATUS_OK};
	enum status status = archive_list(feed->ledger->directory, &feed->archives, &feed->archive_count, &none);
	if (status && status != STATUS_NOT_FOUND)
		return error_set(error, status, "%s", none.message);
	return STATUS_OK;
}

// All of it, as it is at one moment.
static enum status feed_once(struct feed *feed, struct error *error)
{
	const struct ledger *ledger = feed->ledger;
	enum status status = db_begin(ledger->db, DB_READ, error);
	if (!status)
		status = prepare(feed, error);
	if (!status && ledger->begun)
		ledger->begun(ledger->begun_context);
	// The first row begins the snapshot: a list of archives made before it may lack one that the snapshot names.
	if (!status)
		status = next_checkpoint(feed, error);
	if (!status)
		status = find_archives(feed, error);
	const bool headless = !status && !feed->checkpoint_there;
	if (!status)
		status = feed_segments(feed, error);
	if (!status)
		status = feed_checkpoints(feed, INT64_MAX, error);
	if (!status)
		status = feed_strays(feed, error);
	if (!status && headless && !feed->size) // an empty log has a signed head as well
		journal_report_finding(feed->verifier, JOURNAL_BAD_SIGNATURE, 0, "there is no signed head");
	if (!status)
		status = ledger_bound_check(&feed->bound, ledger->db, error);
	if (!status)
		say_wrong_nodes(feed);
	db_finalize(feed->segments);
	db_finalize(feed->rows);
	db_finalize(feed->checkpoints);
	db_rollback(ledger->db);
	return status;
}

// Whether the log has grown since.
static bool grew(const struct ledger *ledger, uint64_t size)
{
	struct db_statement *row = NULL;
	bool more = !db_prepare(ledger->db, "SELECT max(size) FROM audit_checkpoints", &row, NULL) &&
		    db_step(row) == DB_ROW && (uint64_t)db_integer(row, 0) > size;
	db_finalize(row);
	return more;
}

enum status ledger_feed(const struct ledger *ledger, struct error *error)
{
	const size_t memories = journal_memories(ledger->verifier);
	enum status status = STATUS_OK;
	uint64_t told = 0;
	bool again = true;
	for (int pass = 0; again && !status && pass < PASSES; pass++) {
		struct feed feed = {.ledger = ledger,
				    .verifier = ledger->verifier,
				    .told = told,
				    .bound.verifier = ledger->verifier};
		if (pass)
			journal_verifier_restart(ledger->verifier, memories);
		buffer_init(&feed.bytes, ENTRY_BYTES);
		feed.kept = calloc(1, sizeof *feed.kept);
		status = feed.kept && !ledger_bound_init(&feed.bound)
				 ? feed_once(&feed, error)
				 : error_set(error, STATUS_OUT_OF_MEMORY, "no memory to verify with");
		if (feed.kept)
			audit_tree_finish(feed.kept);
		free(feed.kept);
		ledger_bound_finish(&feed.bound);
		buffer_finish(&feed.bytes);
		free(feed.archives);
		told = feed.told;
		// A server that runs may have pruned an archive after the moment that is verified, and before its
		// archive was read; what tells of that was committed before.
		again = !status && journal_lacks_leave(ledger->verifier) && grew(ledger, feed.size);
	}
	return status;
}
