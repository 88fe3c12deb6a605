/* See driver.h: opening, and transactions. */
#include "server/store/postgres/driver.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/store/postgres/address.h"
#include "server/store/postgres/statement.h"

#include <openssl/rand.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DOUBT_MS = 10000, DOUBT_PAUSE_US = 200000, SIZE_MS = 60000 };

static const struct db_driver driver;
static atomic_llong sizes[2]; // bytes of a part, as its writer has read them last

static struct postgres *of(struct db *db)
{
	return (struct postgres *)db;
}

static bool ran(struct postgres *db, struct pg_result *result)
{
	if (result)
		db->pq->PQclear(result);
	return result != NULL;
}

// ---- faults ----

static enum status fault(struct db *db, struct error *error)
{
	return postgres_fault(of(db), error);
}

static const char *trouble(struct db *db)
{
	return of(db)->trouble;
}

// Damaged tables are for the database's administrator: nothing is put aside here.
static bool damaged(struct db *db)
{
	const char *state = of(db)->sqlstate;
	return of(db)->part == DB_STATE && (!strcmp(state, "XX001") || !strcmp(state, "XX002"));
}

static void doubt(struct db *db)
{
	postgres_fail(of(db), "XX002", "rows are not in their order");
}

static void report(struct db *db, struct db_report *out)
{
	*out = (struct db_report){.damaged = of(db)->damaged};
}

static void freeze(struct db *db)
{
	of(db)->lost = true;
}

static enum status check_current(struct db *db, struct error *error)
{
	return postgres_check_version(of(db), error);
}

// ---- beside the work ----

static void read_size(struct postgres *db)
{
	char sql[192];
	snprintf(sql, sizeof sql,
		 "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c WHERE relkind = 'r' "
		 "AND relnamespace = '%s'::regnamespace",
		 postgres_schema(db->part));
	struct pg_result *result = postgres_query(db, sql);
	if (result && db->pq->PQntuples(result) == 1)
		atomic_store(&sizes[db->part], strtoll(db->pq->PQgetvalue(result, 0, 0), NULL, 10));
	ran(db, result);
}

// PostgreSQL looks after its own files; how large they are is read once a minute when something has changed.
static void tidy(struct db *base, bool idle)
{
	struct postgres *db = of(base);
	const int64_t now_ms = clock_steady_ms();
	if (!idle || db->begun)
		return;
	if (now_ms >= db->size_ms && postgres_alive(db)) {
		read_size(db);
		db->size_ms = now_ms + SIZE_MS;
	}
	base->untidy = false;
}

static void set_deadline(struct db *base, int64_t until_ns)
{
	char sql[64];
	const int64_t left_ms = (until_ns - clock_steady_ns()) / 1000000;
	snprintf(sql, sizeof sql, "SET statement_timeout = %lld",
		 until_ns ? (long long)(left_ms > 0 ? left_ms : 1) : 0);
	if (postgres_alive(of(base)))
		ran(of(base), postgres_query(of(base), sql));
}

// ---- transactions ----

static enum status run(struct db *base, const char *sql, struct error *error)
{
	struct postgres *db = of(base);
	if (db->begun ? !postgres_alive(db) : !postgres_revive(db))
		return postgres_fault(db, error);
	return ran(db, postgres_query(db, sql)) ? STATUS_OK : postgres_fault(db, error);
}

static enum status refuse_if_lost(struct postgres *db, struct error *error)
{
	if (!db->lost)
		return STATUS_OK;
	error_set(error, STATUS_UNAVAILABLE, "%s holds what this server does not know of", db->name);
	error_hint(error, "start this server again; until then it stores nothing, and what runs goes on");
	return STATUS_UNAVAILABLE;
}

static bool queue(struct postgres *db, const char *sql)
{
	return postgres_pipeline(db) &&
	       postgres_queue(db, db->pq->PQsendQueryParams(db->conn, sql, 0, NULL, NULL, NULL, NULL, 0));
}

// This takes one round trip: the state's transactions also leave their number, by which their end can be asked for.
static bool send_begin(struct postgres *db, enum db_access access)
{
	char sql[256], in_turn[160] = "1";
	if (access == DB_READ)
		return ran(db, postgres_query(db, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"));
	if (db->turn)
		snprintf(in_turn, sizeof in_turn, POSTGRES_IN_TURN, (long long)db->turn);
	if (db->part != DB_STATE && db->turn)
		snprintf(sql, sizeof sql, "BEGIN; SELECT %s", in_turn);
	if (db->part != DB_STATE)
		return ran(db, postgres_query(db, db->turn ? sql : "BEGIN"));
	const char *begin = access == DB_WRITE ? "BEGIN; " : "";
	snprintf(sql, sizeof sql, "%sUPDATE exogpu.holder SET change = %lld * %s", begin, (long long)++db->change,
		 in_turn);
	return access == DB_WRITE ? ran(db, postgres_query(db, sql)) : queue(db, "BEGIN") && queue(db, sql);
}

static void forget_failed_begin(struct postgres *db)
{
	postgres_settle(db);
	if (postgres_alive(db) && db->pq->PQtransactionStatus(db->conn) != PQ_IDLE)
		ran(db, postgres_query(db, "ROLLBACK"));
}

static enum status begin(struct db *base, enum db_access access, struct error *error)
{
	struct postgres *db = of(base);
	const bool was_alive = postgres_alive(db);
	if (!postgres_revive(db))
		return postgres_fault(db, error);
	bool begun = send_begin(db, access);
	if (!begun && was_alive && !postgres_alive(db) && postgres_revive(db)) // it was cut off while nothing was done
		begun = send_begin(db, access);
	enum status status = begun ? STATUS_OK : postgres_fault(db, error);
	if (!status && access != DB_READ)
		status = refuse_if_lost(db, error);
	if (status)
		forget_failed_begin(db);
	db->begun = !status;
	db->marked = false;
	return status;
}

// A commit that was not answered: how it ended is asked for, as long as somebody may still wait for the answer.
static bool was_committed(struct postgres *db)
{
	const int64_t until_ms = clock_steady_ms() + DOUBT_MS;
	if (db->part != DB_STATE)
		return false;
	db->doubtful = true;
	do {
		bool known = false, stored = false;
		db->asking = true;
		if (postgres_revive(db))
			stored = postgres_stored(db, &known);
		db->asking = false;
		if (known && !db->lost) {
			db->doubtful = false;
			if (!stored)
				postgres_fail(db, "", "it went away before the change was stored");
			return stored;
		}
		usleep(DOUBT_PAUSE_US);
	} while (clock_steady_ms() < until_ms && !db->lost);
	return false;
}

static enum status commit(struct db *base, struct error *error)
{
	struct postgres *db = of(base);
	if (!postgres_alive(db)) {
		db->begun = false;
		return postgres_fault(db, error);
	}
	db->command[0] = 0;
	const bool answered = queue(db, "COMMIT") && postgres_settle(db);
	const bool stored = answered && !strcmp(db->command, "COMMIT");
	if (answered && !stored)
		postgres_fail(db, "40000", "the transaction had failed");
	db->begun = db->begun && postgres_alive(db) && db->pq->PQtransactionStatus(db->conn) != PQ_IDLE;
	base->untidy = base->untidy || stored;
	if (stored || (!postgres_alive(db) && was_committed(db))) {
		db->stored = db->change;
		return STATUS_OK;
	}
	return postgres_fault(db, error);
}

static bool in_transaction(struct db *base)
{
	struct postgres *db = of(base);
	const int state = postgres_alive(db) ? db->pq->PQtransactionStatus(db->conn) : PQ_IDLE;
	return db->begun && (db->pending || state == PQ_IN_TRANSACTION || state == PQ_IN_ERROR);
}

static void rollback(struct db *base)
{
	struct postgres *db = of(base);
	char sqlstate[sizeof db->sqlstate], words[sizeof db->trouble];
	memcpy(sqlstate, db->sqlstate, sizeof sqlstate); // what it is for stays the last failure
	memcpy(words, db->trouble, sizeof words);
	postgres_settle(db);
	if (in_transaction(base))
		ran(db, postgres_query(db, "ROLLBACK"));
	db->begun = db->marked = false;
	postgres_fail(db, sqlstate, words);
}

static enum status defer_keys(struct db *db, struct error *error)
{
	return run(db, "SET CONSTRAINTS ALL DEFERRED", error);
}

// A mark is forgotten with the next one, or with the transaction.
static enum status mark(struct db *base, struct error *error)
{
	struct postgres *db = of(base);
	if ((db->marked && !queue(db, "RELEASE batch")) || !queue(db, "SAVEPOINT batch"))
		return postgres_fault(db, error);
	db->marked = true;
	return STATUS_OK;
}

static enum status settle(struct db *base, struct error *error)
{
	return postgres_settle(of(base)) ? STATUS_OK : postgres_fault(of(base), error);
}

static void undo(struct db *base)
{
	struct postgres *db = of(base);
	char sqlstate[sizeof db->sqlstate], words[sizeof db->trouble];
	memcpy(sqlstate, db->sqlstate, sizeof sqlstate); // what it is for stays the last failure
	memcpy(words, db->trouble, sizeof words);
	postgres_settle(db); // what was sent behind the failure was left out
	run(base, "ROLLBACK TO batch", NULL);
	if (postgres_alive(db))
		postgres_fail(db, sqlstate, words);
}

static void release(struct db *db)
{
	(void)db;
}

// ---- opening and closing ----

static void close_db(struct db *base)
{
	struct postgres *db = of(base);
	postgres_let_go(db);
	if (db->conn)
		db->pq->PQfinish(db->conn);
	free(db->url);
	free(db);
}

static enum status bring_up(struct postgres *db, struct error *error)
{
	enum status status = db->part == DB_STATE ? postgres_hold(db, error) : STATUS_OK;
	if (!status && !db->turn)
		status = postgres_refuse_if_shared(db, error);
	if (!status)
		status = postgres_migrate(db, error);
	if (!status && db->part == DB_STATE)
		status = postgres_sign_in(db, error);
	return status;
}

bool postgres_is_url(const char *url)
{
	return address_is_postgres(url);
}

enum status postgres_make(struct postgres **out, const char *url, struct error *error)
{
	uint8_t random[(POSTGRES_ID_BYTES - 1) / 2];
	struct postgres *db = calloc(1, sizeof *db);
	*out = db;
	if (!db || !(db->url = strdup(url)) || RAND_bytes(random, sizeof random) != 1) {
		free(db ? db->url : NULL);
		free(db);
		*out = NULL;
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a connection to PostgreSQL");
	}
	db->base.driver = &driver;
	db->base.together = true;
	db->writes = true;
	for (size_t i = 0; i < sizeof random; i++)
		snprintf(db->id + 2 * i, 3, "%02x", random[i]);
	snprintf(db->name, sizeof db->name, "PostgreSQL");
	db->base.name = db->name;
	return libpq_load(&db->pq, error);
}

enum status postgres_open(struct db **out, const struct db_params *params, struct error *error)
{
	struct postgres *db;
	enum status status = postgres_make(&db, params->url, error);
	*out = db ? &db->base : NULL;
	if (!db)
		return status;
	db->part = params->part;
	db->turn = params->turn;
	db->writes = !params->read_only && !params->offline;
	if (!status)
		status = postgres_connect(db, error);
	if (!status && db->writes)
		status = bring_up(db, error);
	else if (!status && params->alone)
		status = postgres_hold(db, error);
	if (status)
		db_close(out);
	else if (db->writes)
		read_size(db);
	return status;
}

int64_t postgres_size(const struct db_params *params)
{
	return atomic_load(&sizes[params->part]);
}

static const struct db_driver driver = {
	.close = close_db,
	.fault = fault,
	.trouble = trouble,
	.damaged = damaged,
	.doubt = doubt,
	.report = report,
	.freeze = freeze,
	.check_current = check_current,
	.tidy = tidy,
	.set_deadline = set_deadline,
	.run = run,
	.begin = begin,
	.commit = commit,
	.rollback = rollback,
	.in_transaction = in_transaction,
	.defer_keys = defer_keys,
	.mark = mark,
	.settle = settle,
	.undo = undo,
	.release = release,
	.prepare = statement_prepare,
	.finalize = statement_finalize,
	.expect_many = statement_expect_many,
	.bind = statement_bind,
	.execute = statement_execute,
	.step = statement_step,
	.reset = statement_reset,
	.type = statement_type,
	.integer = statement_integer,
	.real = statement_real,
	.text = statement_text,
	.bytes = statement_bytes,
	.length = statement_length,
};
