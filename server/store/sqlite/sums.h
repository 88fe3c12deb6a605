/* A sum in every page of a database, so that a page that is not as it was written is noticed.
 *
 * SQLite checks what it cannot read, not what it reads: a bit that changed in a name or a number is answered as it is.
 * This VFS stands between SQLite and the system's. In a file that keeps 8 bytes of each page free it puts a sum of page
 * and place there when the page is written, and compares when it is read:
 *
 *   | page, 4,088 bytes as SQLite filled them | sum, 8 bytes, as the machine orders them; all zero: none |
 *
 * A page that differs is counted and given to SQLite nevertheless: what it holds may be right, where another program
 * has changed it, and rows that grant something are bound to the audit log. Whoever opened the database asks for the
 * count. SQLite itself sees zeros in place of a sum, so that pages in the -wal file and copies made from them have
 * none: another program may read and copy the file, `sqlite3 FILE .backup` for one, and its copy is as good. One that
 * writes leaves sums that do not fit, which is told. Of page 1 what a copy changes is left out: format, counters,
 * versions. The -wal file has SQLite's own sums. Thread: any; a file belongs to its connection. Inside server/store
 * only. */
#pragma once
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

enum { SUMS_PAGE = 4096, SUMS_BYTES = 8 };

// The VFS's name, for sqlite3_open_v2. It wraps what is the default at the first call. NULL: no memory; do without.
const char *sums_vfs(void);
// Have a database without content keep room for sums, or one with content after its next VACUUM.
void sums_reserve(sqlite3 *db);

struct sums_report {
	bool kept;             // the file has room for sums
	uint64_t pages, wrong; // that were read with a sum; of them, how many did not fit
	uint32_t first;        // the first of these, counted from 1
	bool damaged;          // sums_mark_damaged
};
// Counts of a connection of this VFS since it was opened; all zero for other connections.
void sums_read(sqlite3 *db, struct sums_report *report);
// SQLite has found that the database is damaged: said with the report from then on. Nothing for another VFS's
// connection.
void sums_mark_damaged(sqlite3 *db);
