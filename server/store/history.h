/* history.db: minute averages, which may be lost. Two connections, each used by its own
 * thread only: the writer's (add, prune) and the reader's (read, check). A damaged file,
 * or one of a newer version, is set aside and a new one started. Inside server/store
 * only. */
#pragma once
#include "server/store/db.h"
#include "server/store/store.h"

enum { HISTORY_DAYS = 30 };
enum history_write {
	HISTORY_FIND,
	HISTORY_NAME,
	HISTORY_ADD,
	HISTORY_NEXT,
	HISTORY_PRUNE,
	HISTORY_FORGET,
	HISTORY_WRITES
};
enum history_read { HISTORY_LOOK_UP, HISTORY_READ, HISTORY_FOLLOWING, HISTORY_WALK, HISTORY_READS };

struct history_writer {
	char directory[4096];
	const char *url; // NULL: SQLite, in the directory
	int64_t turn;    // as in struct db_params
	struct db *db;
	struct db_statement *statements[STORE_KINDS][HISTORY_WRITES];
	enum store_kind prune_kind; // what is pruned next
	int64_t pruned_to;          // the last series of it that was; the next slice goes on behind it
};
// Opens, creates or replaces DIRECTORY/history.db. A file that is sound but cannot be
// opened, for want of space or rights, stays where it is. Errors: as db_open.
enum status history_writer_init(struct history_writer *writer, const char *directory, const char *url, int64_t turn,
				struct error *error);
void history_writer_finish(struct history_writer *writer);
// Rename the file to history.db.damaged-TIME and begin anew; says so in the log.
enum status history_writer_replace(struct history_writer *writer, const char *why, struct error *error);
// Add averages in one transaction. Errors: db_fault's; *damaged says whether the file must be replaced.
enum status history_add(struct history_writer *writer, const struct store_minute *minutes, size_t count, bool *damaged,
			struct error *error);
// Delete up to a slice of what is older than `oldest_minute`, of a few series, in one short transaction.
enum status history_prune(struct history_writer *writer, int64_t oldest_minute, bool *damaged, struct error *error);

struct history_reader {
	struct db *db;
	struct db_statement *statements[STORE_KINDS][HISTORY_READS];
	enum store_kind check_kind; // what history_check walks
	int64_t checked_to;         // the last series of it that it has walked
};
// Opens DIRECTORY/history.db. Errors: as db_open.
enum status history_reader_init(struct history_reader *reader, const char *directory, const char *url,
				struct error *error);
void history_reader_finish(struct history_reader *reader);

struct history_query {
	enum store_kind kind;
	const char *series;
	int64_t from_ms, to_ms, step_ms;
};
// Fills *history, which history_finish frees. Errors: db_fault's, STATUS_OUT_OF_MEMORY.
enum status history_read(struct history_reader *reader, const struct history_query *query,
			 struct store_history *history, bool *damaged, struct error *error);
void history_finish(struct store_history *history);
// Walk all rows of the next series, some milliseconds' work; *done once there is no other. SQLite's own quick_check
// walks the whole file in one step that can neither be cut short nor serve a query meanwhile. Errors: as history_read.
enum status history_check(struct history_reader *reader, bool *done, bool *damaged, struct error *error);
