/* See audit_listing.h: archived entries. Anybody may have written an
 * archive. So an entry is listed only if its bytes match the hash of its
 * leaf in the database; otherwise, or if the archive is missing, the page
 * has a gap. Only a verification proves that the database's hashes are the
 * signed ones. */
#include "common/base/clock.h"
#include "common/journal/archive_index.h"
#include "server/store/audit/audit_listing.h"
#include "server/store/inside.h"

#include <stdio.h>
#include <string.h>

enum {
	TELL_MS = 100, // so long, at least, it is looked for what tells of a page's prunings
};

struct archived { // a segment
	int64_t number, first, end, pruned_by;
	int64_t leaves; // entries that its archive keeps by their hashes alone
};

static bool adjoins(const struct audit_page *page, const struct audit_gap *gap, const struct audit_gap *more)
{
	return gap->reason == more->reason && (gap->reason == GAP_MISSING || gap->segment == more->segment) &&
	       (page->oldest_first ? gap->last + 1 == more->first : more->last + 1 == gap->first);
}

static void add_gap(struct audit_page *page, const struct archived *segment, enum audit_gap_reason reason,
		    int64_t first, int64_t last)
{
	const struct audit_gap more = {.first = first,
				       .last = last,
				       .reason = reason,
				       .segment = segment->number,
				       .pruned_by = segment->pruned_by,
				       .leaves = reason == GAP_BARE ? (int64_t)archive_index_leaves(page->desk->index)
								    : 0};
	struct audit_gap *gap = page->gap_count ? &page->gaps[page->gap_count - 1] : NULL;
	if (gap && page->gap_count > page->gaps_before && adjoins(page, gap, &more)) {
		gap->first = gap->first < first ? gap->first : first;
		gap->last = gap->last > last ? gap->last : last;
	} else {
		page->gaps[page->gap_count++] = more;
	}
	page->late = page->late || page->gap_count == sizeof page->gaps / sizeof *page->gaps;
}

static enum status open_archive(struct audit_desk *desk, const struct archived *segment, struct archive_index **slot,
				struct error *error)
{
	const char *directory = desk->store->journal.directory;
	if (archive_index_fits(*slot, directory, (uint64_t)segment->first, (uint64_t)segment->end))
		return STATUS_OK;
	archive_index_destroy(slot);
	return archive_index_create(slot, directory, (uint64_t)segment->first, (uint64_t)segment->end,
				    &desk->store->reader_stop, error);
}

// The leaf that the database keeps. False: none.
static bool is_leaf(struct audit_desk *desk, int64_t seq, const struct archive_part *part)
{
	struct audit_tree *tree = &desk->tree;
	struct tree_hash leaf;
	const uint64_t place = (uint64_t)seq >> AUDIT_TILE_LEVEL;
	const size_t at = (size_t)seq & (AUDIT_TILE - 1);
	if (!tree->count || tree->place != place)
		audit_tree_load_tile(tree, place);
	if (part->kind == ARCHIVE_LEAF)
		memcpy(leaf.bytes, part->bytes, sizeof leaf.bytes);
	else
		tree_hash_leaf(part->bytes, part->length, &leaf);
	return at < tree->count && !memcmp(&tree->tile[at], &leaf, sizeof leaf);
}

// Lists one entry, or the gap in its place. False: the page is full.
static bool take_part(struct audit_page *page, const struct archived *segment, int64_t seq,
		      const struct archive_part *part)
{
	char texts[ENTRY_BYTES];
	struct journal_entry entry;
	bool good = part && is_leaf(page->desk, seq, part);
	if (good && part->kind == ARCHIVE_ENTRY) {
		good = !entry_decode(&entry, part->bytes, part->length, texts) && entry.seq == (uint64_t)seq;
		if (good && !audit_page_offer(page, &entry))
			return false;
	} else if (good) {
		add_gap(page, segment, GAP_BARE, seq, seq);
	}
	if (!good)
		add_gap(page, segment, GAP_DAMAGED, seq, seq);
	page->at = page->oldest_first ? seq + 1 : seq;
	return !audit_page_over(page);
}

// The entries of a block that are in [first, end). index NULL: its archive cannot be read.
static enum status take_block(struct audit_page *page, const struct archived *segment, struct archive_index *index,
			      int64_t first, int64_t end, struct error *error)
{
	static const struct archive_part none;
	struct archive_part parts[ARCHIVE_BLOCK] = {none};
	uint64_t from = 0;
	size_t count = 0;
	if (archive_index_read(index, (uint64_t)first / ARCHIVE_BLOCK, parts, &from, &count, error))
		count = 0; // it changes under our hands, or its disk fails: what cannot be read is a gap
	const int64_t step = page->oldest_first ? 1 : -1;
	for (int64_t seq = page->oldest_first ? first : end - 1; seq >= first && seq < end; seq += step) {
		const uint64_t at = (uint64_t)seq - from;
		if (!take_part(page, segment, seq, at < count ? &parts[at] : NULL))
			break;
	}
	if (atomic_load(&page->desk->store->reader_stop))
		return error_set(error, STATUS_UNAVAILABLE, "the server stops");
	page->late = page->late || clock_steady_ns() >= page->until_ns;
	return STATUS_OK;
}

// The entries of a segment that are in [first, end), block after block.
static enum status take_segment(struct audit_page *page, const struct archived *segment, int64_t first, int64_t end,
				struct error *error)
{
	struct error why = {.status = STATUS_OK};
	enum status status = open_archive(page->desk, segment, &page->desk->index, &why);
	if (status == STATUS_OUT_OF_MEMORY || atomic_load(&page->desk->store->reader_stop))
		return error_set(error, status ? status : STATUS_UNAVAILABLE, "%s",
				 status ? why.message : "the server stops");
	if (status) {
		add_gap(page, segment, status == STATUS_NOT_FOUND ? GAP_MISSING : GAP_DAMAGED, first, end - 1);
		page->at = page->oldest_first ? end : first;
		return STATUS_OK;
	}
	while (!status && first < end && !audit_page_over(page)) {
		const int64_t place = (page->oldest_first ? first : end - 1) / ARCHIVE_BLOCK;
		const int64_t begin = place * ARCHIVE_BLOCK, stop = begin + ARCHIVE_BLOCK;
		const int64_t from = begin > first ? begin : first, to = stop < end ? stop : end;
		status = take_block(page, segment, page->desk->index, from, to, error);
		if (page->oldest_first)
			first = to;
		else
			end = from;
	}
	return status;
}

enum status audit_page_archived(struct audit_page *page, int64_t end, struct error *error)
{
	static const char newest_first[] =
		"SELECT s.number, s.first, n.first, s.pruned_by FROM audit_segments s JOIN audit_segments "
		"n "
		"ON n.number = s.number + 1 WHERE s.first < ?1 AND n.first > ?2 AND s.first >= 0 AND n.first > s.first "
		"ORDER BY s.number DESC";
	static const char oldest_first[] =
		"SELECT s.number, s.first, n.first, s.pruned_by FROM audit_segments s JOIN audit_segments "
		"n "
		"ON n.number = s.number + 1 WHERE s.first < ?1 AND n.first > ?2 AND s.first >= 0 AND n.first > s.first "
		"ORDER BY s.number";
	struct db_statement *rows = NULL;
	enum db_code code = DB_DONE;
	enum status status = db_prepare(page->desk->db, page->oldest_first ? oldest_first : newest_first, &rows, error);
	if (status)
		return status;
	db_bind_integer(rows, 1, end);
	db_bind_integer(rows, 2, page->first);
	while (!status && !audit_page_over(page) && (code = db_step(rows)) == DB_ROW) {
		const struct archived segment = {.number = db_integer(rows, 0),
						 .first = db_integer(rows, 1),
						 .end = db_integer(rows, 2),
						 .pruned_by = db_type(rows, 3) == DB_NULL ? -1 : db_integer(rows, 3)};
		const int64_t from = segment.first > page->first ? segment.first : page->first;
		const int64_t to = segment.end < end ? segment.end : end;
		status = take_segment(page, &segment, from, to, error);
	}
	if (!status && code != DB_DONE && code != DB_ROW)
		status = db_fault(page->desk->db, error);
	db_finalize(rows);
	return status;
}

// ---- what tells of a pruning ----

// Whether the entry is a pruning of these entries, and of as many: what is gone beyond that somebody else removed.
static bool tells(const struct journal_entry *entry, const struct archived *pruned)
{
	struct pruning pruning;
	return pruning_parse(&pruning, entry) && (int64_t)pruning.first == pruned->first &&
	       (int64_t)pruning.last == pruned->end - 1 && pruning.removed >= (uint64_t)pruned->leaves;
}

static bool segment_of(struct db *db, const char *where, int64_t value, struct archived *segment)
{
	char sql[256];
	struct db_statement *row = NULL;
	snprintf(sql, sizeof sql,
		 "SELECT s.first, n.first FROM audit_segments s JOIN audit_segments n ON n.number = s.number + 1 WHERE "
		 "%s AND s.first >= 0 AND n.first > s.first",
		 where);
	bool found = !db_prepare(db, sql, &row, NULL);
	if (found) {
		db_bind_integer(row, 1, value);
		found = db_step(row) == DB_ROW;
	}
	if (found)
		*segment = (struct archived){.first = db_integer(row, 0), .end = db_integer(row, 1)};
	db_finalize(row);
	return found;
}

// The entry `value` is here and tells it; or, with another condition, the newest such entry. -1: none.
static int64_t teller_here(struct db *db, const char *where, int64_t value, const struct archived *pruned)
{
	char sql[384];
	struct db_statement *rows = NULL;
	struct journal_entry entry;
	int64_t seq = -1;
	snprintf(sql, sizeof sql,
		 "SELECT " JOURNAL_COLUMNS " FROM audit WHERE %s AND action = 'audit.prune' ORDER BY seq DESC", where);
	if (db_prepare(db, sql, &rows, NULL))
		return -1;
	db_bind_integer(rows, 1, value);
	while (seq < 0 && db_step(rows) == DB_ROW)
		if (journal_row(rows, &entry) && tells(&entry, pruned))
			seq = (int64_t)entry.seq;
	db_finalize(rows);
	return seq;
}

static bool archived_teller(struct audit_desk *desk, int64_t seq, const struct archived *pruned)
{
	struct error ignored = {.status = STATUS_OK};
	struct archive_part parts[ARCHIVE_BLOCK];
	struct journal_entry entry;
	struct archived segment;
	char texts[ENTRY_BYTES];
	uint64_t from;
	size_t count;
	if (seq < 0 || !segment_of(desk->db, "s.first <= ?1 AND n.first > ?1", seq, &segment) ||
	    open_archive(desk, &segment, &desk->telling, &ignored) ||
	    archive_index_read(desk->telling, (uint64_t)seq / ARCHIVE_BLOCK, parts, &from, &count, &ignored) ||
	    (uint64_t)seq - from >= count)
		return false;
	const struct archive_part *part = &parts[(uint64_t)seq - from];
	return part->kind == ARCHIVE_ENTRY && is_leaf(desk, seq, part) &&
	       !entry_decode(&entry, part->bytes, part->length, texts) && entry.seq == (uint64_t)seq &&
	       tells(&entry, pruned);
}

// The entry that tells what the gap's segment has lost. -1: none was found by `until_ns`. The segment names it; while
// an archive is just being pruned it does not yet, and the entry is here.
static int64_t find_teller(struct audit_page *page, const struct audit_gap *gap, int64_t until_ns)
{
	struct db *db = page->desk->db;
	struct archived pruned;
	if (!segment_of(db, "s.number = ?1", gap->segment, &pruned))
		return -1;
	pruned.leaves = gap->leaves;
	int64_t told_by = gap->pruned_by < 0 ? -1 : teller_here(db, "seq = ?1", gap->pruned_by, &pruned);
	if (told_by < 0 && clock_steady_ns() < until_ns && archived_teller(page->desk, gap->pruned_by, &pruned))
		told_by = gap->pruned_by;
	if (told_by < 0 && clock_steady_ns() < until_ns) {
		db_set_deadline(db, until_ns);
		told_by = teller_here(db, "seq >= ?1", pruned.end, &pruned);
		db_set_deadline(db, 0);
	}
	return told_by;
}

struct json *audit_page_gaps(struct audit_page *page)
{
	static const char *const words[] = {
		[GAP_MISSING] = "missing", [GAP_DAMAGED] = "damaged", [GAP_BARE] = "removed"};
	struct json *gaps = json_new_array();
	const int64_t soon_ns = clock_steady_ns() + TELL_MS * INT64_C(1000000);
	const int64_t until_ns = soon_ns > page->until_ns ? soon_ns : page->until_ns;
	int64_t segment = -1, teller = -1; // that was looked for last: a segment's gaps follow one another
	for (size_t i = 0; i < page->gap_count; i++) {
		const struct audit_gap *gap = &page->gaps[i];
		struct json *json = json_new_object();
		if (gap->reason == GAP_BARE && gap->segment != segment) {
			segment = gap->segment;
			teller = find_teller(page, gap, until_ns);
		}
		const int64_t told_by = gap->reason == GAP_BARE ? teller : -1;
		json_set_integer(json, "first", gap->first);
		json_set_integer(json, "last", gap->last);
		json_set_string(json, "reason", told_by >= 0 ? "pruned" : words[gap->reason]);
		json_set(json, "told_by", told_by >= 0 ? json_new_integer(told_by) : json_new_null());
		json_push(gaps, json);
	}
	return gaps;
}
