/* See inside.h: one server has a database. The one that writes holds an advisory lock, on the connection that it writes
 * by: so whatever is written was written under the lock, and a connection that is lost loses the lock with it. Each
 * server that takes it leaves its id. One that finds another's id, after it was cut off, writes no more: what it has in
 * memory is no longer what is stored. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/store/postgres/inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRIES = 20, PAUSE_US = 100000 };
#define LOCK "1702391656, 1" // "exog" and 1

static bool is_true(struct postgres *db, const char *sql)
{
	struct pg_result *result = postgres_query(db, sql);
	const bool yes = result && db->pq->PQntuples(result) == 1 && !strcmp(db->pq->PQgetvalue(result, 0, 0), "t");
	if (result)
		db->pq->PQclear(result);
	return yes;
}

static bool take(struct postgres *db)
{
	return is_true(db, "SELECT pg_try_advisory_lock(" LOCK ")");
}

static enum status told_who(struct postgres *db, struct error *error)
{
	char who[256] = "another exogpu server";
	struct pg_result *result = postgres_query(db, "SELECT host, process, since FROM exogpu.holder");
	if (result && db->pq->PQntuples(result) == 1)
		snprintf(who, sizeof who, "the exogpu server on %.100s (process %.20s), since %.40s",
			 db->pq->PQgetvalue(result, 0, 0), db->pq->PQgetvalue(result, 0, 1),
			 db->pq->PQgetvalue(result, 0, 2));
	if (result)
		db->pq->PQclear(result);
	error_set(error, STATUS_CONFLICT, "%s is in use by %s", db->name, who);
	error_hint(error, "one server has a database: stop that one first; if it has crashed or was cut off, the "
			  "database lets go of it within a minute");
	return STATUS_CONFLICT;
}

enum status postgres_hold(struct postgres *db, struct error *error)
{
	bool held = take(db);
	for (int i = 0; !held && i < TRIES && postgres_alive(db);
	     i++) { // a server that has just ended may still be there
		usleep(PAUSE_US);
		held = take(db);
	}
	if (!held)
		return postgres_alive(db) ? told_who(db, error) : postgres_fault(db, error);
	db->held = true;
	return STATUS_OK;
}

// Our own connection of before may still be there, on the database's side.
static void end_own(struct postgres *db)
{
	char sql[256];
	snprintf(sql, sizeof sql,
		 "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'exogpu server %s' "
		 "AND datname = current_database() AND pid != pg_backend_pid()",
		 db->id);
	struct pg_result *result = postgres_query(db, sql);
	if (result)
		db->pq->PQclear(result);
}

static bool still_ours(struct postgres *db)
{
	char sql[128];
	snprintf(sql, sizeof sql, "SELECT id = '%s' FROM exogpu.holder", db->id);
	return is_true(db, sql);
}

bool postgres_stored(struct postgres *db, bool *known)
{
	struct pg_result *result = postgres_query(db, "SELECT change FROM exogpu.holder");
	*known = result && db->pq->PQntuples(result) == 1;
	const bool stored = *known && strtoll(db->pq->PQgetvalue(result, 0, 0), NULL, 10) == db->change;
	if (result)
		db->pq->PQclear(result);
	return stored;
}

// How a commit ended that was not answered, and that was reported as refused. False: that cannot be said yet.
static bool settle_doubt(struct postgres *db)
{
	bool known;
	db->lost = postgres_stored(db, &known) || db->lost;
	db->doubtful = !known;
	if (known && db->lost)
		log_error("store",
			  "a change whose commit %s did not answer, and that was refused, is stored after all: nothing "
			  "more is stored until this server is started again",
			  db->name);
	return known;
}

void postgres_let_go(struct postgres *db)
{
	if (db->held && postgres_alive(db))
		is_true(db, "SELECT pg_advisory_unlock(" LOCK ")");
}

enum status postgres_refuse_if_shared(struct postgres *db, struct error *error)
{
	if (!is_true(db, "SELECT to_regclass('exogpu_cluster.leader') IS NOT NULL"))
		return STATUS_OK;
	error_set(error, STATUS_CONFLICT, "%s is that of several servers", db->name);
	error_hint(error, "start this one with --cluster-key FILE, the key of the others");
	return STATUS_CONFLICT;
}

// The lock is another server's to take, once its turn has begun.
static bool in_turn(struct postgres *db)
{
	char sql[192];
	snprintf(sql, sizeof sql, "SELECT " POSTGRES_IN_TURN " = 1", (long long)db->turn);
	db->lost = db->lost || (!is_true(db, sql) && !strcmp(db->sqlstate, POSTGRES_TURN_OVER));
	return !db->lost;
}

// A database that knows less than was acknowledged: a standby that had not got all, or a copy of before.
static bool went_back(struct postgres *db)
{
	char sql[128];
	snprintf(sql, sizeof sql, "SELECT change < %lld FROM exogpu.holder", (long long)db->stored);
	return is_true(db, sql);
}

bool postgres_hold_again(struct postgres *db)
{
	if (db->turn && !in_turn(db))
		return false;
	bool held = take(db);
	for (int i = 0; !held && i < TRIES && postgres_alive(db); i++) {
		end_own(db);
		usleep(PAUSE_US);
		held = take(db);
	}
	if (held && !still_ours(db) && postgres_alive(db)) {
		db->lost = true;
		log_error("store",
			  "another exogpu server has written to %s: nothing more is stored until this one is "
			  "started again",
			  db->name);
	}
	if (held && !db->lost && went_back(db)) {
		db->lost = true;
		log_error("store",
			  "%s lacks changes that were acknowledged, as a standby does that was promoted before it had "
			  "all of them: nothing more is stored until this server is started again",
			  db->name);
	}
	if (held && db->doubtful && !db->asking && !settle_doubt(db))
		held = false;
	if (!held && postgres_alive(db)) {
		struct error error = {.status = STATUS_OK};
		told_who(db, &error);
		postgres_fail(db, "", error.message);
		db->pq->PQfinish(db->conn);
		db->conn = NULL;
	}
	return held;
}

enum status postgres_sign_in(struct postgres *db, struct error *error)
{
	char sql[512], host[64] = "", at[CLOCK_TEXT_BYTES];
	gethostname(host, sizeof host - 1);
	for (char *c = host; *c; c++) // a name that somebody else has given
		if (*c == '\'' || *c == '\\' || *c < ' ')
			*c = '?';
	snprintf(sql, sizeof sql,
		 "DELETE FROM exogpu.holder; INSERT INTO exogpu.holder (id, host, process, since, change) VALUES "
		 "('%s', '%s', "
		 "%lld, '%s', 0)",
		 db->id, host, (long long)getpid(), clock_format(clock_wall_ms(), at));
	struct pg_result *result = postgres_query(db, sql);
	if (!result)
		return postgres_fault(db, error);
	db->pq->PQclear(result);
	return STATUS_OK;
}
