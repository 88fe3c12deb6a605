/* Measures a store in PostgreSQL beside one in SQLite; prints a table in Markdown.
 *
 *   bench_store DIR DIR [SECONDS [ROUNDS]]   a directory for each; the second one's file `store` says where its tables
 * are
 *
 * A change is one row of 200 bytes that is replaced and one entry of the audit log, as making a token is. The last line
 * is what the database takes for one durable change of one row by itself, a round trip with a commit in it. Rounds take
 * turns, and figures are medians. One thread beside the stores' own. */
#include "server/store/store.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/store/db.h"
#include "server/store/place.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MOST = 15, MANY = 512, SIDES = 2, KINDS = 3 };

struct load {
	struct store *store;
	struct net_loop *loop;
	struct net_timer timer;
	bool ending;
	unsigned under_way;
	uint64_t number, done;
};

static char value[201];

static int fail(const struct error *error)
{
	fprintf(stderr, "%s%s%s\n", error->message, error->hint[0] ? "; " : "", error->hint);
	exit(1);
}

static void done(void *context, enum status status, const struct error *error);

static void send_one(struct load *load)
{
	struct store_batch *batch;
	char key[32], target[32];
	snprintf(key, sizeof key, "bench/%d", (int)(load->number % 1000));
	snprintf(target, sizeof target, "alloc_%016" PRIx64, load->number);
	const struct journal_entry entry = {.count = 1,
					    .actor = "token:Fx3IwHhrX8",
					    .actor_name = "somebody's token",
					    .peer = "192.0.2.17",
					    .action = "memory.allocate",
					    .target = target,
					    .outcome = "ok",
					    .detail = "{\"bytes\":1073741824}"};
	if (store_batch_create(&batch) || store_put_setting(batch, key, value) || store_put_audit(batch, &entry) ||
	    store_commit(load->store, &batch, done, load)) {
		fprintf(stderr, "the store takes no more\n");
		exit(1);
	}
	load->number++;
	load->under_way++;
}

static void done(void *context, enum status status, const struct error *error)
{
	struct load *load = context;
	if (status)
		fail(error);
	load->done++;
	load->under_way--;
	if (!load->ending)
		send_one(load);
	else if (!load->under_way)
		net_loop_stop(load->loop);
}

static void end(void *context)
{
	((struct load *)context)->ending = true;
}

// Changes a second, with so many under way.
static double round_of(struct store *store, struct net_loop *loop, unsigned under_way, double seconds)
{
	struct load load = {.store = store, .loop = loop, .number = (uint64_t)clock_steady_ns()};
	const int64_t begun = clock_steady_ns();
	for (unsigned i = 0; i < under_way; i++)
		send_one(&load);
	net_timer_start(loop, &load.timer, (int64_t)(seconds * 1000), end, &load);
	net_loop_run(loop);
	return (double)load.done / ((double)(clock_steady_ns() - begun) * 1e-9);
}

// The database alone: a row of its own, changed and committed by one statement.
static double alone(struct db *db, double seconds)
{
	struct error error = {.status = STATUS_OK};
	struct db_statement *put = NULL;
	const int64_t begun = clock_steady_ns();
	uint64_t count = 0;
	if (db_prepare(db, "UPDATE bench SET value = ?1", &put, &error))
		fail(&error);
	for (; (double)(clock_steady_ns() - begun) * 1e-9 < seconds; count++) {
		db_bind_text(put, 1, value);
		if (db_execute(put, &error))
			fail(&error);
	}
	db_finalize(put);
	return (double)count / ((double)(clock_steady_ns() - begun) * 1e-9);
}

static struct db *open_alone(const char *directory)
{
	char url[PLACE_BYTES];
	struct db *db = NULL;
	struct error error = {.status = STATUS_OK};
	if (place_read(directory, url, &error) || !url[0] ||
	    db_open(&db, &(struct db_params){.directory = directory, .url = url, .offline = true}, &error) ||
	    db_run(db, "SET default_transaction_read_only = off", &error) ||
	    db_run(db, "CREATE TABLE bench (value TEXT NOT NULL); INSERT INTO bench VALUES ('')", &error))
		fail(&error);
	return db;
}

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *figures, int count)
{
	qsort(figures, (size_t)count, sizeof *figures, compare);
	return figures[count / 2];
}

int main(int argc, char **argv)
{
	static double many[SIDES][ROUNDS_MOST], one[SIDES][ROUNDS_MOST], bare[ROUNDS_MOST];
	static const char *const names[SIDES] = {"SQLite", "PostgreSQL"};
	struct store *stores[SIDES] = {NULL};
	struct net_loop *loop;
	struct error error = {.status = STATUS_OK};
	const double seconds = argc > 3 ? strtod(argv[3], NULL) : 3;
	int rounds = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 5;
	rounds = rounds < 1 ? 1 : rounds > ROUNDS_MOST ? ROUNDS_MOST : rounds;
	log_set_level(LOG_WARNING);
	if (argc < 3) {
		fprintf(stderr, "usage: bench_store DIR DIR [SECONDS [ROUNDS]]\n");
		return 2;
	}
	memset(value, 'v', sizeof value - 1);
	if (net_loop_create(&loop, &error))
		fail(&error);
	for (int side = 0; side < SIDES; side++)
		if (store_create(&stores[side], &(struct store_params){.loop = loop, .directory = argv[1 + side]},
				 &error))
			fail(&error);
	struct db *db = open_alone(argv[2]);
	for (int round = 0; round < rounds; round++) {
		for (int side = 0; side < SIDES; side++) {
			many[side][round] = round_of(stores[side], loop, MANY, seconds);
			one[side][round] = round_of(stores[side], loop, 1, seconds);
		}
		bare[round] = alone(db, seconds);
	}
	db_close(&db);
	for (int side = 0; side < SIDES; side++)
		store_destroy(&stores[side]);
	net_loop_destroy(&loop);
	printf("\n### Durable audited changes, medians of %d rounds of %.1f s\n\n", rounds, seconds);
	printf("| | %d under way, a second | one at a time, µs |\n|---|---|---|\n", MANY);
	for (int side = 0; side < SIDES; side++)
		printf("| %s | %.0f | %.0f |\n", names[side], median(many[side], rounds),
		       1e6 / median(one[side], rounds));
	printf("| PostgreSQL, one row by itself | | %.0f |\n", 1e6 / median(bare, rounds));
	return 0;
}
