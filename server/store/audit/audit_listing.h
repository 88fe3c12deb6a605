/* A page of the audit log's list, built by audit_list.c from rows and by
 * audit_archived.c from archives. Runs on the question thread. Whatever ends a page (it
 * is full, its time is over), `next` says where the following one begins. No entry is
 * listed twice or missed between two pages, even while entries move from the database
 * into an archive. */
#pragma once
#include "server/store/audit/audit_reader.h"
#include "server/store/db.h"

struct audit_page {
	struct audit_desk *desk;
	const struct store_audit_filter *filter;
	struct json *entries;
	bool oldest_first;
	int limit, count;   // of entries
	size_t bytes;       // of their texts
	bool full;          // an entry that matches had no room: the page is over
	bool late;          // its time is over, or it has gaps enough
	int64_t first, end; // seq: what may be listed, the first and what follows the last
	int64_t at;         // what was looked through: from there on, or, where oldest_first, before that
	int64_t last;       // the entry that was listed last
	int64_t until_ns;
	struct audit_gap {
		int64_t first, last;
		enum audit_gap_reason { GAP_MISSING, GAP_DAMAGED, GAP_BARE } reason;
		int64_t segment, pruned_by;
		int64_t leaves; // of the segment's entries, those that its archive keeps by their hashes alone
	} gaps[64];
	size_t gap_count;
	size_t gaps_before; // that stood there when the last entry was listed
};

// Whether the entry is one that was asked for: as the rows' SQL says it.
bool audit_page_matches(const struct audit_page *page, const struct journal_entry *entry);
// The next entry in order that matches. False: the page is over.
bool audit_page_offer(struct audit_page *page, const struct journal_entry *entry);
bool audit_page_over(const struct audit_page *page);
// Entries between page->first and `end`, which are in archives, in the page's order. Errors: db_fault's; the
// stop.
enum status audit_page_archived(struct audit_page *page, int64_t end, struct error *error);
// [{first, last, reason, told_by}], and what tells of prunings looked up: once for a segment, and not longer than a
// tenth of a second beyond the page's own time.
struct json *audit_page_gaps(struct audit_page *page);
