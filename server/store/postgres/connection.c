/* See inside.h: connections, and what their failures mean. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/store/postgres/address.h"
#include "server/store/postgres/inside.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MS = 20000, RETRY_MS = 1000, LEAST_SERVER = 150000, PENDING_MOST = 256 };

void postgres_fail(struct postgres *db, const char *sqlstate, const char *trouble)
{
	snprintf(db->sqlstate, sizeof db->sqlstate, "%s", sqlstate);
	snprintf(db->trouble, sizeof db->trouble, "%s", trouble);
	db->trouble[strcspn(db->trouble, "\n")] = 0;
	db->damaged = db->damaged || !strcmp(db->sqlstate, "XX001") || !strcmp(db->sqlstate, "XX002");
}

bool postgres_alive(struct postgres *db)
{
	return db->conn && db->pq->PQstatus(db->conn) == PQ_CONNECTION_OK;
}

static void hang_up(struct postgres *db)
{
	if (db->conn)
		db->pq->PQfinish(db->conn);
	db->conn = NULL;
}

// ---- faults ----

static bool is_class(const struct postgres *db, const char *class)
{
	return !strncmp(db->sqlstate, class, strlen(class));
}

enum status postgres_fault(struct postgres *db, struct error *error)
{
	static const struct {
		const char *class; // of SQLSTATE: the beginning of the code
		enum status status;
		const char *what, *hint;
	} faults[] = {
		{"23", STATUS_CONFLICT, "refused by", NULL},
		{"53100", STATUS_UNAVAILABLE, "no space left to write",
		 "free some space on the database's disk and try again; nothing that was stored is lost"},
		{"53", STATUS_UNAVAILABLE, "not enough memory or connections in",
		 "see the database's log, and try again; nothing that was stored is lost"},
		{"25006", STATUS_UNAVAILABLE, "nothing can be written to",
		 "the database is read-only, as a standby is; name the primary, or promote this one"},
		{"42501", STATUS_FORBIDDEN, "not allowed in",
		 "the user needs the right to create schemas there: GRANT CREATE ON DATABASE … TO …"},
		{"28", STATUS_FORBIDDEN, "no entry to",
		 "check the user and pg_hba.conf; the password comes from the file that PGPASSFILE names, or from the "
		 "service file"},
		{"3D", STATUS_NOT_FOUND, "there is no", "make the database: createdb"},
		{POSTGRES_TURN_OVER, STATUS_UNAVAILABLE, "another server leads, by",
		 "this one has been replaced: ask the server that leads"},
		{"22021", STATUS_INVALID_PARAMS, "a text is no UTF-8, says", NULL},
		{"22", STATUS_LIMIT_EXCEEDED, "a value is too large for", NULL},
		{"54", STATUS_LIMIT_EXCEEDED, "a value is too large for", NULL},
		{"42", STATUS_INTERNAL, "cannot use the tables of",
		 "the tables of that database are not those that exogpu made: another program has changed them; put "
		 "back a copy"},
		{"XX000", STATUS_INTERNAL, "a fault inside", NULL},
		{"XX", STATUS_UNAVAILABLE, "damage is reported by",
		 "stop the server, look after the database's disk, and put back a copy"},
		{"40", STATUS_UNAVAILABLE, "another program holds rows of", "close it and try again"},
		{"55", STATUS_UNAVAILABLE, "another program holds rows of", "close it and try again"},
		{"57014", STATUS_UNAVAILABLE, "a query took too long in", NULL},
		{"08", STATUS_UNAVAILABLE, "the connection was lost to", NULL},
		{"57P", STATUS_UNAVAILABLE, "the connection was ended by", NULL},
		{"", STATUS_UNAVAILABLE, "cannot reach",
		 "what runs goes on, and changes are taken again as soon as the database answers"},
	};
	size_t i = 0;
	while (!is_class(db, faults[i].class))
		i++;
	if (db->sqlstate[0] && !faults[i].class[0]) // it was reached, and says something else
		return error_set(error, STATUS_INTERNAL, "%s: %.300s", db->name, db->trouble);
	enum status status = error_set(error, faults[i].status, "%s %s: %.300s", faults[i].what, db->name, db->trouble);
	if (faults[i].hint)
		error_hint(error, "%s", faults[i].hint);
	return status;
}

// ---- answers ----

static struct pg_result *broken(struct postgres *db, struct pg_result *result, const char *why)
{
	if (result)
		db->pq->PQclear(result);
	postgres_fail(db, "", why);
	hang_up(db);
	db->pending = 0;
	return NULL;
}

// Until there is a result to be taken. False: the connection is gone, or does not answer.
static bool wait_for_answer(struct postgres *db, int64_t until_ms)
{
	while (db->pq->PQisBusy(db->conn)) {
		const int left = db->pq->PQflush(db->conn);
		const int64_t now_ms = clock_steady_ms();
		struct pollfd socket = {.fd = db->pq->PQsocket(db->conn),
					.events = left > 0 ? POLLIN | POLLOUT : POLLIN};
		if (left < 0 || now_ms >= until_ms ||
		    (poll(&socket, 1, (int)(until_ms - now_ms)) < 0 && errno != EINTR))
			return false;
		if ((socket.revents & (POLLIN | POLLHUP | POLLERR)) && !db->pq->PQconsumeInput(db->conn))
			return false;
	}
	return true;
}

// A database that stands still is not asked again at once: whoever waits has waited long enough.
static const char *why_no_answer(struct postgres *db, int64_t until_ms)
{
	if (clock_steady_ms() < until_ms)
		return db->pq->PQerrorMessage(db->conn);
	db->retry_ms = clock_steady_ms() + RETRY_MS;
	return "it does not answer";
}

struct pg_result *postgres_await(struct postgres *db, bool sent)
{
	const int64_t until_ms = clock_steady_ms() + ANSWER_MS;
	struct pg_result *last = NULL, *next;
	bool failed = false;
	if (!sent)
		return broken(db, NULL, db->pq->PQerrorMessage(db->conn));
	for (;;) {
		if (!wait_for_answer(db, until_ms)) {
			return broken(db, last, why_no_answer(db, until_ms));
		}
		next = db->pq->PQgetResult(db->conn);
		if (!next)
			break;
		if (failed) { // the first failure is the one that tells
			db->pq->PQclear(next);
			continue;
		}
		if (last)
			db->pq->PQclear(last);
		last = next;
		const int status = db->pq->PQresultStatus(last);
		failed = status != PQ_COMMAND_OK && status != PQ_TUPLES_OK;
	}
	if (last && !failed)
		return last;
	const char *code = last ? db->pq->PQresultErrorField(last, PQ_SQLSTATE) : NULL;
	const char *text = last ? db->pq->PQresultErrorField(last, PQ_MESSAGE) : NULL;
	if (!postgres_alive(db) || !code)
		return broken(db, last, text ? text : db->pq->PQerrorMessage(db->conn));
	postgres_fail(db, code, text ? text : "");
	db->pq->PQclear(last);
	return NULL;
}

// ---- answers that come together ----

bool postgres_pipeline(struct postgres *db)
{
	if (db->pending >= PENDING_MOST && !postgres_settle(db))
		return false;
	return postgres_alive(db) && (db->pending || db->pq->PQenterPipelineMode(db->conn));
}

bool postgres_queue(struct postgres *db, bool sent)
{
	db->pending++;
	if (!sent)
		broken(db, NULL, db->pq->PQerrorMessage(db->conn));
	return sent;
}

bool postgres_settle(struct postgres *db)
{
	const int64_t until_ms = clock_steady_ms() + ANSWER_MS;
	bool good = true, synced = false;
	if (!db->pending)
		return true;
	db->pending = 0;
	if (!postgres_alive(db) || !db->pq->PQpipelineSync(db->conn))
		return broken(db, NULL, db->conn ? db->pq->PQerrorMessage(db->conn) : db->trouble) != NULL;
	while (!synced) {
		if (!wait_for_answer(db, until_ms))
			return broken(db, NULL, why_no_answer(db, until_ms)) != NULL;
		struct pg_result *result = db->pq->PQgetResult(db->conn);
		if (!postgres_alive(db))
			return broken(db, result, db->pq->PQerrorMessage(db->conn)) != NULL;
		if (!result) // what divides the answers
			continue;
		const int status = db->pq->PQresultStatus(result);
		synced = status == PQ_PIPELINE_SYNC;
		if (status == PQ_FATAL_ERROR && good) {
			const char *code = db->pq->PQresultErrorField(result, PQ_SQLSTATE);
			const char *text = db->pq->PQresultErrorField(result, PQ_MESSAGE);
			postgres_fail(db, code ? code : "XX000", text ? text : "");
			good = false;
		}
		if (status == PQ_COMMAND_OK)
			snprintf(db->command, sizeof db->command, "%s", db->pq->PQcmdStatus(result));
		db->pq->PQclear(result);
	}
	db->pq->PQexitPipelineMode(db->conn);
	return good;
}

struct pg_result *postgres_query(struct postgres *db, const char *sql)
{
	if (!db->conn || !postgres_settle(db))
		return NULL;
	return postgres_await(db, db->pq->PQsendQuery(db->conn, sql));
}

// ---- connecting ----

static void tell_notice(void *context, const char *text)
{
	(void)context;
	log_debug("store", "PostgreSQL: %.*s", (int)strcspn(text, "\n"), text);
}

static bool set_up(struct postgres *db)
{
	char sql[640];
	// The database, too, is to notice within a quarter of a minute that this server is gone, for the lock's sake.
	snprintf(sql, sizeof sql,
		 "SET search_path = %s, pg_temp; SET client_min_messages = warning; SET statement_timeout = 0; "
		 "SET idle_in_transaction_session_timeout = 0; SET lock_timeout = '10s'; SET tcp_keepalives_idle = 10; "
		 "SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; SET tcp_user_timeout = 15000; "
		 "SET default_transaction_read_only = %s; SET synchronous_commit = %s",
		 postgres_schema(db->part), db->writes ? "off" : "on", db->part == DB_HISTORY ? "off" : "on");
	struct pg_result *result = postgres_query(db, sql);
	if (result)
		db->pq->PQclear(result);
	return result != NULL;
}

static enum status check_server(struct postgres *db, struct error *error)
{
	const char *encoding = db->pq->PQparameterStatus(db->conn, "server_encoding");
	if (db->pq->PQserverVersion(db->conn) < LEAST_SERVER) {
		error_set(error, STATUS_CONFLICT, "%s is PostgreSQL %d", db->name,
			  db->pq->PQserverVersion(db->conn) / 10000);
		error_hint(error, "a store needs version 15 or newer");
		return STATUS_CONFLICT;
	}
	if (!encoding || strcmp(encoding, "UTF8") != 0) {
		error_set(error, STATUS_CONFLICT, "%s has the encoding %s", db->name, encoding ? encoding : "?");
		error_hint(error, "make a database with UTF-8: createdb --encoding UTF8 --template template0");
		return STATUS_CONFLICT;
	}
	return STATUS_OK;
}

enum status postgres_connect(struct postgres *db, struct error *error)
{
	struct address address;
	char application[64];
	hang_up(db);
	snprintf(application, sizeof application, "exogpu %s %s", db->writes ? "server" : "reader", db->id);
	enum status status = address_parse(&address, db->pq, db->url, application, error);
	if (status)
		return status;
	db->conn = db->pq->PQconnectdbParams(address.keywords, address.values, 0);
	address_finish(&address, db->pq);
	db->generation++;
	db->begun = db->marked = false;
	db->pending = 0;
	if (db->conn && db->pq->PQhost(db->conn))
		snprintf(db->name, sizeof db->name, "PostgreSQL (%.120s, database %.80s)", db->pq->PQhost(db->conn),
			 db->pq->PQdb(db->conn) ? db->pq->PQdb(db->conn) : "");
	if (!postgres_alive(db)) {
		postgres_fail(db, "", db->conn ? db->pq->PQerrorMessage(db->conn) : "no memory");
		hang_up(db);
		return postgres_fault(db, error);
	}
	db->pq->PQsetNoticeProcessor(db->conn, tell_notice, NULL);
	db->pq->PQsetnonblocking(db->conn, 1);
	status = check_server(db, error);
	if (!status && !set_up(db))
		status = postgres_fault(db, error);
	if (status)
		hang_up(db);
	return status;
}

bool postgres_revive(struct postgres *db)
{
	struct error error = {.status = STATUS_OK};
	if (postgres_alive(db))
		return true;
	if (clock_steady_ms() < db->retry_ms)
		return false;
	if (!postgres_connect(db, &error) && (!db->held || postgres_hold_again(db)))
		return true;
	db->retry_ms = clock_steady_ms() + RETRY_MS;
	return false;
}
