/* One connection to PostgreSQL, for the files of server/store/postgres. */
#pragma once
#include "server/store/db.h"
#include "server/store/postgres/libpq.h"

enum { POSTGRES_ID_BYTES = 17, POSTGRES_NAME_BYTES = 256 };

struct postgres {
	struct db base; // first member
	const struct libpq *pq;
	struct pg_conn *conn; // NULL: there is none
	char *url;
	enum db_part part;
	bool writes;
	unsigned generation;            // counts connections: statements of an earlier one are prepared again
	unsigned names;                 // given to statements
	int64_t retry_ms;               // steady: not to be tried again before
	unsigned pending;               // statements that were sent, and not answered yet: postgres_settle
	bool begun, marked;             // in a transaction of ours; with a mark
	char command[24];               // the tag of what was answered last, of those that were sent together
	int64_t change;                 // the number of the transaction, which it leaves in the table holder; 0: none
	int64_t stored;                 // the last of these numbers that is known to be stored; 0: none
	bool doubtful;                  // how `change` ended is not known: its commit was not answered
	bool lost;                      // nothing may be written any more until the next start
	bool held;                      // the lock was taken when it was opened
	int64_t turn;                   // under which it writes (server/store/turn.h); 0: one server has the database
	bool asking;                    // how a commit ended: who asks decides what follows
	bool damaged;                   // found so
	int64_t size_ms;                // steady: when its size is to be read again
	char id[POSTGRES_ID_BYTES];     // this server's, in the database
	char name[POSTGRES_NAME_BYTES]; // for messages
	char sqlstate[6];               // of the last failure; "": there is no connection
	char trouble[512];              // in words
};

// driver.c: that is not connected yet, and will write; db_close ends it.
enum status postgres_make(struct postgres **out, const char *url, struct error *error);
// What PostgreSQL evaluates to 1, or refuses, when the turn is over.
#define POSTGRES_IN_TURN "(1 / (SELECT CASE WHEN number = %lld THEN 1 ELSE 0 END FROM exogpu_cluster.leader))"
#define POSTGRES_TURN_OVER "22012"

// connection.c
enum status postgres_connect(struct postgres *db, struct error *error); // a new one; whatever there was is closed
bool postgres_alive(struct postgres *db);
// A connection that is gone is made again, not more than once a second. False: there is none, and sqlstate and trouble
// say why.
bool postgres_revive(struct postgres *db);
// The last result of what was sent; NULL: it failed, and sqlstate and trouble say how. PQclear frees it.
struct pg_result *postgres_await(struct postgres *db, bool sent);
// Send a statement within a transaction without waiting for its answer; `sent`: libpq has taken it. Many of them are
// answered together. False: it could not be sent, or one before it has failed.
bool postgres_queue(struct postgres *db, bool sent);
bool postgres_pipeline(struct postgres *db); // before each of these
// What was sent has been answered. False: one of them failed, and those after it were left out; sqlstate and trouble
// say how the first one did.
bool postgres_settle(struct postgres *db);
// Run SQL, one statement or several, and get the last one's result, with values as text.
struct pg_result *postgres_query(struct postgres *db, const char *sql);
enum status postgres_fault(struct postgres *db, struct error *error);
void postgres_fail(struct postgres *db, const char *sqlstate, const char *trouble);

// holder.c: the lock by which one server has the database.
// The first time: take it; STATUS_CONFLICT says who has it. After a connection was lost: take it again; false: another
// server has it, or has been here meanwhile.
enum status postgres_hold(struct postgres *db, struct error *error);
bool postgres_hold_again(struct postgres *db);
// A server alone has no business where several take turns, even while nobody leads. STATUS_CONFLICT, with a hint.
enum status postgres_refuse_if_shared(struct postgres *db, struct error *error);
// Whether the transaction `change` is stored; *known is false where the database does not say. Only once the lock is
// held again: so the connection by which it was sent has ended. (Its number in PostgreSQL says nothing after a crash,
// which may give the same number again.)
bool postgres_stored(struct postgres *db, bool *known);
void postgres_let_go(struct postgres *db); // now, and not when the database notices that the connection has ended
enum status postgres_sign_in(struct postgres *db, struct error *error); // tables are there: say who has it

// migrate.c
const char *postgres_schema(enum db_part part);
enum status postgres_migrate(struct postgres *db, struct error *error);
enum status postgres_check_version(struct postgres *db, struct error *error);
