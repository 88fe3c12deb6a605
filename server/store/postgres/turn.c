/* See server/store/turn.h. The tables are in a schema of their own, which no copy of a store takes along. */
#include "server/store/turn.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/longer.h"
#include "server/store/postgres/answer.h"

#include <inttypes.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STAMP_MS = 1000, LOOK_MS = 250, TELL_MS = 2000, UNHELD_MS = 750, AGAIN_MS = 10000, NAME_BYTES = 65, TRIES = 5 };
enum { LONG_MS = 1000000000 };                              // no time that is told is longer
static const char address_too[] = ":/[]", host_too[] = "_"; // beside letters, digits, dots and hyphens

// Who holds the lock of holder.c in this database.
#define HOLDERS \
	"pg_locks WHERE locktype = 'advisory' AND classid = 1702391656 AND objid = 1 AND granted AND database = " \
	"(SELECT oid FROM pg_database WHERE datname = current_database())"

static const char tables[] =
	"CREATE SCHEMA IF NOT EXISTS exogpu_cluster; REVOKE ALL ON SCHEMA exogpu_cluster FROM PUBLIC; "
	"CREATE TABLE IF NOT EXISTS exogpu_cluster.leader (only_one BOOLEAN PRIMARY KEY CHECK (only_one), number "
	"BIGINT NOT NULL, host TEXT NOT NULL, address TEXT NOT NULL, since TIMESTAMPTZ NOT NULL, stamp TIMESTAMPTZ NOT "
	"NULL); "
	"INSERT INTO exogpu_cluster.leader VALUES (true, 0, '', '', 'epoch', 'epoch') ON CONFLICT DO NOTHING; "
	"CREATE TABLE IF NOT EXISTS exogpu_cluster.servers (address TEXT PRIMARY KEY, stamp TIMESTAMPTZ NOT NULL); "
	"ALTER TABLE exogpu_cluster.servers ADD COLUMN IF NOT EXISTS host TEXT NOT NULL DEFAULT '', ADD COLUMN IF NOT "
	"EXISTS since TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(), ADD COLUMN IF NOT EXISTS behind_ms BIGINT NOT "
	"NULL DEFAULT 0; "
	"CREATE TABLE IF NOT EXISTS exogpu_cluster.secrets (name TEXT PRIMARY KEY, bytes BYTEA NOT NULL)";

struct turn {
	struct turn_params params;
	struct postgres *db; // the thread's, once it runs
	char host[TURN_HOST_BYTES];
	int64_t seen_number, seen_stamp; // the thread's, as the next three
	int64_t unchanged_ms, unheld_ms; // steady: since when the two are as they are; nobody holds the lock
	int64_t again_ms;                // steady: when the database was last reached again; 0: it was always there
	int64_t told_ms;                 // steady: when the address was told last
	int64_t behind_ms;               // the most since then: how old its knowledge of who leads had become
	char told[TURN_ADDRESS_BYTES];   // the address that was told last

	pthread_t thread;
	bool started;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	// Under lock.
	bool stop;
	int64_t number; // of this server's turn; 0: it follows
	int64_t looked_ms;
	char address[TURN_ADDRESS_BYTES]; // this server's
	bool tell_now;
	int64_t since_ms;      // steady: leads, or follows
	struct turn_view view; // looked_ms is not kept here
};

// Whether it is an address or a name of a host, so that it ends no quotes in SQL; `more`: characters that it may have
// too.
static bool is_plain(const char *text, const char *more, size_t room)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
	for (const char *c = text; *c; c++)
		if (!strchr(plain, *c) && !strchr(more, *c))
			return false;
	return strlen(text) < room;
}

// Text that another server wrote, which may be anything: "" if it is not plain.
static bool read_plain(char *out, size_t room, const char *text, const char *more)
{
	const bool plain = is_plain(text, more, room);
	snprintf(out, room, "%s", plain ? text : "");
	return plain && text[0];
}

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
	return value < low ? low : value > high ? high : value;
}

// ---- following ----

static void read_servers(struct turn *turn)
{
	static const char sql[] =
		"SELECT every.address, every.host, (every.address = leader.address AND leader.stamp > 'epoch')::int, "
		"(extract(epoch FROM clock_timestamp() - every.since) * 1000)::bigint, (extract(epoch FROM "
		"clock_timestamp() - every.stamp) * 1000)::bigint, behind_ms FROM exogpu_cluster.leader, (SELECT * "
		"FROM "
		"exogpu_cluster.servers WHERE stamp > clock_timestamp() - interval '1 day' AND isfinite(stamp) AND "
		"isfinite(since) AND octet_length(address) BETWEEN 1 AND 299 AND octet_length(host) < 64 ORDER BY "
		"stamp DESC LIMIT 16) AS every ORDER BY every.address";
	struct answer answer;
	if (!answer_get(turn->db, sql, &answer))
		return;
	const int64_t now_ms = clock_wall_ms();
	pthread_mutex_lock(&turn->lock);
	turn->view.count = 0;
	turn->view.servers_read++;
	for (int i = 0; i < answer_rows(&answer) && turn->view.count < TURN_SERVERS; i++) {
		struct turn_server *server = &turn->view.servers[turn->view.count];
		if (!read_plain(server->address, sizeof server->address, answer_text(&answer, i, 0), address_too))
			continue;
		read_plain(server->host, sizeof server->host, answer_text(&answer, i, 1), host_too);
		server->leads = answer_number(&answer, i, 2) != 0;
		server->since_ms = now_ms - clamp(answer_number(&answer, i, 3), 0, now_ms);
		server->silent_ms = clamp(answer_number(&answer, i, 4), 0, LONG_MS);
		server->behind_ms = clamp(answer_number(&answer, i, 5), 0, LONG_MS);
		turn->view.count++;
	}
	pthread_mutex_unlock(&turn->lock);
	answer_done(&answer);
}

// Goodbye: whoever is not there any more by its own will is not lost.
static void leave(struct turn *turn)
{
	char sql[TURN_ADDRESS_BYTES + 128];
	snprintf(sql, sizeof sql, "DELETE FROM exogpu_cluster.servers WHERE address = '%s'", turn->told);
	if (turn->told[0] && answer_run(turn->db, sql))
		turn->told[0] = 0;
}

// Where this server is and how it stands, and where the others are.
static void tell(struct turn *turn)
{
	char sql[2 * TURN_ADDRESS_BYTES + 512], address[TURN_ADDRESS_BYTES];
	const int64_t now_ms = clock_steady_ms();
	pthread_mutex_lock(&turn->lock);
	memcpy(address, turn->address, sizeof address);
	const int64_t since_ms = now_ms - turn->since_ms;
	const bool due = turn->tell_now || now_ms - turn->told_ms >= TELL_MS;
	turn->tell_now = false;
	pthread_mutex_unlock(&turn->lock);
	if (!due)
		return;
	if (strcmp(turn->told, address) != 0)
		leave(turn);
	snprintf(sql, sizeof sql,
		 "INSERT INTO exogpu_cluster.servers (address, stamp, host, since, behind_ms) VALUES ('%s', "
		 "clock_timestamp(), '%s', clock_timestamp() - %" PRId64 " * interval '1 ms', %" PRId64
		 ") ON CONFLICT (address) DO UPDATE SET stamp = excluded.stamp, host = excluded.host, since = "
		 "excluded.since, behind_ms = excluded.behind_ms",
		 address, turn->host, since_ms, turn->behind_ms);
	if (address[0] && !answer_run(turn->db, sql))
		return;
	memcpy(turn->told, address, sizeof turn->told);
	turn->told_ms = now_ms;
	turn->behind_ms = 0;
	read_servers(turn);
}

// The database has answered. Under lock.
static void looked(struct turn *turn)
{
	const int64_t now_ms = clock_steady_ms();
	const int64_t behind_ms = turn->looked_ms ? now_ms - turn->looked_ms + turn->view.stamp_age_ms : 0;
	if (turn->behind_ms < behind_ms)
		turn->behind_ms = behind_ms;
	turn->looked_ms = now_ms;
}

struct seen {
	int64_t number, stamp, age_ms; // stamp: µs since 1970; 0: nobody leads
	bool held;
};

static bool look(struct turn *turn, struct seen *seen)
{
	struct answer answer;
	struct postgres *db = turn->db;
	if (!answer_get(db,
			"SELECT number, (extract(epoch FROM stamp) * 1000000)::bigint, "
			"(extract(epoch FROM clock_timestamp() - stamp) * 1000)::bigint, EXISTS (SELECT FROM " HOLDERS
			")::int, address, host FROM exogpu_cluster.leader",
			&answer))
		return false;
	const bool found = answer_rows(&answer) == 1;
	if (found) {
		*seen = (struct seen){answer_number(&answer, 0, 0), answer_number(&answer, 0, 1),
				      answer_number(&answer, 0, 2), answer_number(&answer, 0, 3) != 0};
		pthread_mutex_lock(&turn->lock);
		looked(turn);
		turn->view.stamp_age_ms = seen->stamp ? seen->age_ms : 0;
		read_plain(turn->view.leader, sizeof turn->view.leader, seen->stamp ? answer_text(&answer, 0, 4) : "",
			   address_too);
		read_plain(turn->view.host, sizeof turn->view.host, seen->stamp ? answer_text(&answer, 0, 5) : "",
			   host_too);
		pthread_mutex_unlock(&turn->lock);
	}
	answer_done(&answer);
	return found;
}

// Whether who leads is gone. It is looked for as long as it may be silent: a database that has been away shows old
// stamps of a leader that is well.
static bool is_over(struct turn *turn, const struct seen *seen)
{
	const int64_t now_ms = clock_steady_ms();
	if (!turn->unchanged_ms || seen->number != turn->seen_number || seen->stamp != turn->seen_stamp)
		turn->unchanged_ms = now_ms;
	if (!turn->unheld_ms || seen->held)
		turn->unheld_ms = now_ms;
	turn->seen_number = seen->number;
	turn->seen_stamp = seen->stamp;
	const int64_t unchanged_ms = now_ms - turn->unchanged_ms;
	const int64_t silent_ms = unchanged_ms < seen->age_ms ? unchanged_ms : seen->age_ms;
	const int64_t stale_ms = longer_in_tests("EXOGPU_TEST_TURN_STALE_MS", TURN_STALE_MS, 60000);
	const bool dead = silent_ms >= TURN_DEAD_MS * stale_ms / TURN_STALE_MS && now_ms - turn->unheld_ms >= UNHELD_MS;
	if (turn->again_ms && now_ms - turn->again_ms < AGAIN_MS) // who leads may not have reached it again yet
		return !seen->stamp;
	return !seen->stamp || silent_ms >= stale_ms || dead;
}

static void end_holder(struct turn *turn)
{
	if (!answer_run(turn->db,
			"SELECT pg_terminate_backend(pid, 5000) FROM " HOLDERS " AND pid != pg_backend_pid()"))
		log_warning("turn", "the connection of who led could not be ended: %s", turn->db->trouble);
}

// Only one of those that try does.
static bool take(struct turn *turn, const struct seen *seen)
{
	char sql[1024];
	bool answered;
	pthread_mutex_lock(&turn->lock);
	snprintf(sql, sizeof sql,
		 "UPDATE exogpu_cluster.leader SET number = number + 1, host = '%s', address = '%s', since = "
		 "clock_timestamp(), stamp = clock_timestamp() WHERE number = %" PRId64
		 " AND (extract(epoch FROM stamp) * 1000000)::bigint = %" PRId64,
		 turn->host, turn->address, seen->number, seen->stamp);
	pthread_mutex_unlock(&turn->lock);
	if (!answer_changes_one(turn->db, sql, &answered))
		return false;
	end_holder(turn);
	pthread_mutex_lock(&turn->lock);
	turn->number = seen->number + 1;
	turn->view.leads = true;
	turn->view.since_ms = clock_wall_ms();
	turn->since_ms = turn->looked_ms = clock_steady_ms();
	turn->tell_now = true;
	memcpy(turn->view.leader, turn->address, sizeof turn->view.leader);
	memcpy(turn->view.host, turn->host, sizeof turn->view.host);
	turn->view.stamp_age_ms = 0;
	pthread_mutex_unlock(&turn->lock);
	log_info("turn", "this server leads: turn %" PRId64, seen->number + 1);
	return true;
}

static bool follow(struct turn *turn)
{
	struct seen seen;
	if (!look(turn, &seen))
		return false;
	tell(turn);
	return is_over(turn, &seen) && take(turn, &seen);
}

// ---- leading ----

// False: another server has taken over.
static bool stamp(struct turn *turn)
{
	char sql[TURN_ADDRESS_BYTES + 256];
	bool answered;
	pthread_mutex_lock(&turn->lock);
	snprintf(sql, sizeof sql,
		 "SET synchronous_commit = off; UPDATE exogpu_cluster.leader SET stamp = clock_timestamp(), address = "
		 "'%s' WHERE number = %" PRId64,
		 turn->address, turn->number);
	pthread_mutex_unlock(&turn->lock);
	if (answer_changes_one(turn->db, sql, &answered)) {
		pthread_mutex_lock(&turn->lock);
		looked(turn);
		memcpy(turn->view.leader, turn->address, sizeof turn->view.leader);
		pthread_mutex_unlock(&turn->lock);
		tell(turn);
		return true;
	}
	return !answered;
}

static void resign(struct turn *turn)
{
	char sql[256];
	bool answered;
	snprintf(sql, sizeof sql, "UPDATE exogpu_cluster.leader SET stamp = 'epoch' WHERE number = %" PRId64,
		 turn->number);
	if (turn->number && postgres_revive(turn->db) && answer_changes_one(turn->db, sql, &answered))
		log_info("turn", "turn %" PRId64 " is over: another server may lead", turn->number);
}

// ---- the thread ----

static bool wait_for_next(struct turn *turn)
{
	struct timespec time;
	pthread_mutex_lock(&turn->lock);
	const int64_t until_ms = clock_steady_ms() + (turn->number ? STAMP_MS : LOOK_MS);
	time = (struct timespec){.tv_sec = until_ms / 1000, .tv_nsec = (long)(until_ms % 1000) * 1000000};
	while (!turn->stop && clock_steady_ms() < until_ms)
		pthread_cond_timedwait(&turn->wake, &turn->lock, &time);
	const bool go_on = !turn->stop;
	pthread_mutex_unlock(&turn->lock);
	return go_on;
}

static void *turn_main(void *argument)
{
	struct turn *turn = argument;
	bool reached = true;
	while (wait_for_next(turn)) {
		const bool was_there = postgres_alive(turn->db), there = postgres_revive(turn->db);
		if (there && !was_there)
			turn->again_ms = clock_steady_ms();
		if (there != reached)
			log_warning("turn", "%s: %s",
				    there ? "the database answers again" : "the database does not answer",
				    there ? turn->db->name : turn->db->trouble);
		reached = there;
		if (there && turn_leads(turn) && !stamp(turn)) {
			turn->params.lost(turn->params.context);
			break;
		}
		if (there && !turn_leads(turn) && follow(turn))
			turn->params.begun(turn->params.context);
	}
	return NULL;
}

static enum status start_thread(struct turn *turn, struct error *error)
{
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	const int number = pthread_create(&turn->thread, NULL, turn_main, turn);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	turn->started = !number;
	return number ? error_errno(error, STATUS_UNAVAILABLE, number, "cannot start a thread") : STATUS_OK;
}

// ---- its beginning and end ----

// Two that make the tables at once: one of them fails, and finds them then.
static enum status make_tables(struct postgres *db, struct error *error)
{
	bool made = answer_run(db, tables);
	for (int i = 0; !made && i < TRIES && postgres_alive(db); i++) {
		answer_run(db, "ROLLBACK");
		usleep(LOOK_MS * 1000);
		made = answer_run(db, tables);
	}
	return made ? STATUS_OK : postgres_fault(db, error);
}

enum status turn_create(struct turn **out, const struct turn_params *params, struct error *error)
{
	pthread_condattr_t steady;
	struct turn *turn = calloc(1, sizeof *turn);
	*out = NULL;
	if (!turn)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a turn");
	turn->params = *params;
	turn->view.since_ms = clock_wall_ms();
	turn->since_ms = clock_steady_ms();
	pthread_mutex_init(&turn->lock, NULL);
	pthread_condattr_init(&steady);
	pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
	pthread_cond_init(&turn->wake, &steady);
	pthread_condattr_destroy(&steady);
	if (gethostname(turn->host, sizeof turn->host - 1) || !is_plain(turn->host, host_too, sizeof turn->host))
		turn->host[0] = 0;
	enum status status = postgres_make(&turn->db, params->url, error);
	if (turn->db)
		turn->params.url = turn->db->url;
	if (!status)
		status = postgres_connect(turn->db, error);
	if (!status)
		status = make_tables(turn->db, error);
	if (!status)
		follow(turn);
	if (!status)
		status = start_thread(turn, error);
	if (status)
		turn_destroy(&turn);
	*out = turn;
	return status;
}

void turn_destroy(struct turn **pointer)
{
	struct turn *turn = *pointer;
	if (!turn)
		return;
	*pointer = NULL;
	if (turn->started) {
		pthread_mutex_lock(&turn->lock);
		turn->stop = true;
		pthread_cond_signal(&turn->wake);
		pthread_mutex_unlock(&turn->lock);
		pthread_join(turn->thread, NULL);
	}
	if (turn->db) {
		struct db *db = &turn->db->base;
		if (postgres_alive(turn->db))
			leave(turn);
		resign(turn);
		db_close(&db);
	}
	pthread_cond_destroy(&turn->wake);
	pthread_mutex_destroy(&turn->lock);
	free(turn);
}

int64_t turn_number(const struct turn *turn)
{
	struct turn *open = (struct turn *)turn; // for its lock
	pthread_mutex_lock(&open->lock);
	const int64_t number = turn->number;
	pthread_mutex_unlock(&open->lock);
	return number;
}

bool turn_leads(const struct turn *turn)
{
	return turn_number(turn) != 0;
}

void turn_set_address(struct turn *turn, const char *address)
{
	if (!is_plain(address, address_too, TURN_ADDRESS_BYTES))
		return;
	pthread_mutex_lock(&turn->lock);
	snprintf(turn->address, sizeof turn->address, "%s", address);
	turn->tell_now = true;
	pthread_mutex_unlock(&turn->lock);
}

void turn_look(const struct turn *turn, struct turn_view *view)
{
	struct turn *open = (struct turn *)turn; // for its lock
	pthread_mutex_lock(&open->lock);
	*view = turn->view;
	view->looked_ms = clock_steady_ms() - turn->looked_ms;
	pthread_mutex_unlock(&open->lock);
}

// ---- secrets ----

static enum status connect(const struct turn *turn, struct postgres **db, struct error *error)
{
	enum status status = postgres_make(db, turn->params.url, error);
	return status ? status : postgres_connect(*db, error);
}

static void hang_up(struct postgres *db)
{
	struct db *base = &db->base;
	if (db)
		db_close(&base);
}

static bool is_name(const char *name)
{
	return name[0] && is_plain(name, "/", NAME_BYTES);
}

static enum status change(const struct turn *turn, const char *sql, struct error *error)
{
	struct postgres *db = NULL;
	bool answered = true;
	enum status status = connect(turn, &db, error);
	const bool changed = !status && answer_changes_one(db, sql, &answered);
	if (!status && !answered)
		status = postgres_fault(db, error);
	else if (!status && !changed)
		status = error_set(error, STATUS_CONFLICT, "another server leads");
	hang_up(db);
	return status;
}

enum status turn_put_secret(struct turn *turn, const char *name, const uint8_t *bytes, size_t length,
			    struct error *error)
{
	if (!is_name(name) || length > TURN_SECRET_BYTES)
		return error_set(error, STATUS_INVALID_PARAMS, "%.64s is no secret of a cluster", name);
	const size_t room = 2 * length + 512;
	char *sql = malloc(room);
	if (!sql)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a secret");
	int at = snprintf(sql, room, "INSERT INTO exogpu_cluster.secrets SELECT '%s', '\\x", name);
	for (size_t i = 0; i < length; i++)
		at += snprintf(sql + at, 3, "%02x", bytes[i]);
	snprintf(sql + at, room - (size_t)at,
		 "'::bytea WHERE (SELECT number FROM exogpu_cluster.leader) = %" PRId64
		 " ON CONFLICT (name) DO UPDATE SET bytes = excluded.bytes",
		 turn_number(turn));
	const enum status status = change(turn, sql, error);
	free(sql);
	return status;
}

enum status turn_forget_secret(struct turn *turn, const char *name, struct error *error)
{
	char sql[320];
	if (!is_name(name))
		return error_set(error, STATUS_INVALID_PARAMS, "%.64s is no secret of a cluster", name);
	snprintf(
		sql, sizeof sql,
		"DELETE FROM exogpu_cluster.secrets WHERE name = '%s' AND (SELECT number FROM exogpu_cluster.leader) = "
		"%" PRId64,
		name, turn_number(turn));
	return change(turn, sql, error);
}

static int digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// "\x" and two digits a byte.
static enum status read_bytes(const char *text, uint8_t **bytes, size_t *length, struct error *error)
{
	*length = strlen(text) / 2;
	*bytes = NULL;
	if (strncmp(text, "\\x", 2) != 0 || strlen(text) % 2 || *length > TURN_SECRET_BYTES + 1)
		return error_set(error, STATUS_UNAVAILABLE, "a secret of the cluster in the database is none");
	*length -= 1;
	*bytes = malloc(*length + 1);
	if (!*bytes)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a secret");
	for (size_t i = 0; i < *length; i++)
		(*bytes)[i] = (uint8_t)(digit(text[2 + 2 * i]) << 4 | digit(text[3 + 2 * i]));
	return STATUS_OK;
}

enum status turn_each_secret(struct turn *turn,
			     enum status (*each)(void *context, const char *name, const uint8_t *bytes, size_t length,
						 struct error *error),
			     void *context, struct error *error)
{
	struct postgres *db = NULL;
	struct answer answer = {0};
	enum status status = connect(turn, &db, error);
	if (!status && !answer_get(db, "SELECT name, bytes FROM exogpu_cluster.secrets ORDER BY name", &answer))
		status = postgres_fault(db, error);
	for (int i = 0; !status && i < answer_rows(&answer); i++) {
		uint8_t *bytes;
		size_t length;
		status = read_bytes(db->pq->PQgetvalue(answer.result, i, 1), &bytes, &length, error);
		if (!status)
			status = each(context, db->pq->PQgetvalue(answer.result, i, 0), bytes, length, error);
		free(bytes);
	}
	answer_done(&answer);
	hang_up(db);
	return status;
}
