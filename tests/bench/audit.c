/* Measures the cost of the audit log; prints tables in Markdown.
 *
 *   bench_audit mutations DIR [SECONDS [ROUNDS]]   durable audited changes a second beside SQLite's own limit
 *   bench_audit verify DIR [ENTRIES]               time to verify a log of so many entries, here and archived
 *
 * A mutation is one row of 200 bytes that is replaced and one entry of the log, as making a token is. SQLite's limit is
 * the same two rows, with the same settings and the same number to a commit, written by a loop that does
 * nothing else: no queue, no hash, no signature, no answer. Rounds of what is compared take turns, and the figure is
 * the median; the same disk, DIR. CPU time, of all threads, says what a machine that others use as well does not. One
 * thread beside the store's own. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/journal/archive.h"
#include "server/store/sqlite/database.h"
#include "server/store/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

enum { ROUNDS_MOST = 15, KINDS = 5, MANY = 512, GROUP = 256, FILL_BATCH = 4000, CHECKPOINT_PAGES = 1000 };

static int fail(const struct error *error)
{
	fprintf(stderr, "%s%s%s\n", error->message, error->hint[0] ? "; " : "", error->hint);
	exit(1);
}

static double cpu_seconds(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

struct figure { // of one round
	double a_second, cpu_us;
};

static struct figure figure_of(uint64_t count, int64_t begun_ns, double cpu_s)
{
	return (struct figure){.a_second = (double)count / ((double)(clock_steady_ns() - begun_ns) * 1e-9),
			       .cpu_us = (cpu_seconds() - cpu_s) * 1e6 / (double)count};
}

static enum status put_entry(struct store_batch *batch, uint64_t number)
{
	char target[32], device[16];
	snprintf(target, sizeof target, "alloc_%016" PRIx64, number);
	snprintf(device, sizeof device, "dev_%08d", (int)(number % 8));
	const struct journal_entry entry = {
		.duration_us = 1234,
		.count = 1,
		.actor = "token:Fx3IwHhrX8",
		.actor_name = "somebody's token",
		.session_id = "ses_961c444ba5600317",
		.peer = "192.0.2.17",
		.action = "memory.allocate",
		.target = target,
		.node_id = "nod_4289b57328795cbf",
		.device_id = device,
		.outcome = "ok",
		.detail = "{\"bytes\":1073741824}",
	};
	return store_put_audit(batch, &entry);
}

// ---- the store ----

struct load {
	struct store *store;
	struct net_loop *loop;
	struct net_timer timer;
	bool audited, ending;
	unsigned under_way;
	uint64_t number, done;
};

static char value[201];

static void done(void *context, enum status status, const struct error *error);

static void send_one(struct load *load)
{
	struct store_batch *batch;
	char key[32];
	snprintf(key, sizeof key, "bench/%d", (int)(load->number % 1000));
	if (store_batch_create(&batch) || store_put_setting(batch, key, value) ||
	    (load->audited && put_entry(batch, load->number)) || store_commit(load->store, &batch, done, load)) {
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

static struct figure store_round(struct store *store, struct net_loop *loop, unsigned under_way, bool audited,
				 double seconds)
{
	struct load load = {.store = store, .loop = loop, .audited = audited, .number = (uint64_t)clock_steady_ns()};
	int64_t begun = clock_steady_ns();
	double cpu = cpu_seconds();
	for (unsigned i = 0; i < under_way; i++)
		send_one(&load);
	net_timer_start(loop, &load.timer, (int64_t)(seconds * 1000), end, &load);
	net_loop_run(loop);
	return figure_of(load.done, begun, cpu);
}

// ---- SQLite alone ----

struct plain {
	sqlite3 *db;
	sqlite3_stmt *begin, *commit, *put, *entry;
	int64_t seq;
	int pages;
};

static int note_pages(void *context, sqlite3 *db, const char *name, int pages)
{
	(void)db, (void)name;
	*(int *)context = pages;
	return SQLITE_OK;
}

static void plain_open(struct plain *plain, const char *directory)
{
	char path[4200];
	struct error error = {.status = STATUS_OK};
	snprintf(path, sizeof path, "%s/plain.db", directory);
	static const char schema[] =
		"CREATE TABLE settings (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT;"
		"CREATE TABLE audit (seq INTEGER PRIMARY KEY, at_us INTEGER NOT NULL, duration_us INTEGER NOT NULL, "
		"count "
		"INTEGER NOT NULL, actor TEXT NOT NULL, actor_name TEXT NOT NULL, session_id TEXT NOT NULL, peer TEXT "
		"NOT "
		"NULL, action TEXT NOT NULL, target TEXT NOT NULL, node_id TEXT NOT NULL, device_id TEXT NOT NULL, "
		"outcome "
		"TEXT NOT NULL, detail TEXT NOT NULL, leaf BLOB NOT NULL) STRICT";
	if (database_open(&plain->db, &(struct database_params){.path = path, .durable = true}, &error) ||
	    database_run(plain->db, schema, &error) ||
	    database_prepare(plain->db, "BEGIN IMMEDIATE", &plain->begin, &error) ||
	    database_prepare(plain->db, "COMMIT", &plain->commit, &error) ||
	    database_prepare(plain->db,
			     "INSERT INTO settings VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = "
			     "excluded.value",
			     &plain->put, &error) ||
	    database_prepare(
		    plain->db,
		    "INSERT INTO audit VALUES (?1, ?2, 1234, 1, 'token:Fx3IwHhrX8', 'somebody''s token', "
		    "'ses_961c444ba5600317', '192.0.2.17', 'memory.allocate', ?3, 'nod_4289b57328795cbf', ?4, 'ok', "
		    "'{\"bytes\":1073741824}', zeroblob(32))",
		    &plain->entry, &error))
		fail(&error);
	sqlite3_wal_hook(plain->db, note_pages, &plain->pages);
}

static void step(struct plain *plain, sqlite3_stmt *statement)
{
	struct error error = {.status = STATUS_OK};
	int code = sqlite3_step(statement);
	if (code != SQLITE_DONE) {
		database_fault(plain->db, code, &error);
		fail(&error);
	}
	sqlite3_reset(statement);
}

static struct figure plain_round(struct plain *plain, unsigned group, double seconds)
{
	int64_t begun = clock_steady_ns(), until = begun + (int64_t)(seconds * 1e9);
	uint64_t count = 0;
	double cpu = cpu_seconds();
	while (clock_steady_ns() < until) {
		step(plain, plain->begin);
		for (unsigned i = 0; i < group; i++, count++) {
			char key[32], target[32], device[16];
			snprintf(key, sizeof key, "bench/%d", (int)(plain->seq % 1000));
			snprintf(target, sizeof target, "alloc_%016" PRIx64, (uint64_t)plain->seq);
			snprintf(device, sizeof device, "dev_%08d", (int)(plain->seq % 8));
			sqlite3_bind_text(plain->put, 1, key, -1, SQLITE_STATIC);
			sqlite3_bind_text(plain->put, 2, value, -1, SQLITE_STATIC);
			step(plain, plain->put);
			sqlite3_bind_int64(plain->entry, 1, plain->seq++);
			sqlite3_bind_int64(plain->entry, 2, clock_wall_ms() * 1000);
			sqlite3_bind_text(plain->entry, 3, target, -1, SQLITE_STATIC);
			sqlite3_bind_text(plain->entry, 4, device, -1, SQLITE_STATIC);
			step(plain, plain->entry);
		}
		step(plain, plain->commit);
		if (plain->pages >= CHECKPOINT_PAGES)
			database_checkpoint(plain->db, &plain->pages, false);
	}
	return figure_of(count, begun, cpu);
}

static void plain_close(struct plain *plain)
{
	sqlite3_finalize(plain->begin);
	sqlite3_finalize(plain->commit);
	sqlite3_finalize(plain->put);
	sqlite3_finalize(plain->entry);
	database_close(&plain->db);
}

// ---- the tables ----

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static struct figure median(const struct figure *figures, int count)
{
	double rates[ROUNDS_MOST], costs[ROUNDS_MOST];
	for (int i = 0; i < count; i++) {
		rates[i] = figures[i].a_second;
		costs[i] = figures[i].cpu_us;
	}
	qsort(rates, (size_t)count, sizeof *rates, compare);
	qsort(costs, (size_t)count, sizeof *costs, compare);
	return (struct figure){rates[count / 2], costs[count / 2]};
}

static void bench_mutations(const char *directory, double seconds, int rounds)
{
	static struct figure figures[KINDS][ROUNDS_MOST];
	static const char *const names[KINDS] = {
		"audited changes, 512 under way",    "SQLite's limit, 256 to a commit",
		"the same changes without an entry", "audited changes, one at a time",
		"SQLite's limit, one to a commit",
	};
	struct net_loop *loop;
	struct store *store;
	struct plain plain = {.seq = 0};
	struct error error = {.status = STATUS_OK};
	const struct store_params params = {.directory = directory};
	memset(value, 'v', sizeof value - 1);
	if (net_loop_create(&loop, &error) ||
	    store_create(&store, &(struct store_params){.loop = loop, .directory = params.directory}, &error))
		fail(&error);
	plain_open(&plain, directory);
	for (int round = 0; round < rounds; round++) {
		figures[0][round] = store_round(store, loop, MANY, true, seconds);
		figures[1][round] = plain_round(&plain, GROUP, seconds);
		figures[2][round] = store_round(store, loop, MANY, false, seconds);
		figures[3][round] = store_round(store, loop, 1, true, seconds);
		figures[4][round] = plain_round(&plain, 1, seconds);
	}
	store_destroy(&store);
	net_loop_destroy(&loop);
	plain_close(&plain);
	struct figure all[KINDS];
	for (int kind = 0; kind < KINDS; kind++)
		all[kind] = median(figures[kind], rounds);
	printf("\n### Durable audited changes, medians of %d rounds of %.1f s\n\n", rounds, seconds);
	printf("| | a second | of SQLite's limit | CPU µs each |\n|---|---|---|---|\n");
	for (int kind = 0; kind < KINDS; kind++)
		printf("| %s | %.0f | %.0f %% | %.0f |\n", names[kind], all[kind].a_second,
		       100 * all[kind].a_second / all[kind < 3 ? 1 : 4].a_second, all[kind].cpu_us);
}

static double verify(const char *directory, uint64_t *entries, int *verdict, double *cpu_s)
{
	double cpu = cpu_seconds();
	struct journal_verifier *verifier;
	struct error error = {.status = STATUS_OK};
	int64_t begun = clock_steady_ns();
	if (journal_verifier_create(&verifier, NULL, NULL) ||
	    store_audit_offline(&(struct store_offline_params){.directory = directory, .verifier = verifier}, &error))
		fail(&error);
	const struct journal_report *report = journal_verify_end(verifier);
	*entries = report->entries;
	*verdict = (int)journal_verdict_of(report);
	double seconds = (double)(clock_steady_ns() - begun) * 1e-9;
	*cpu_s = cpu_seconds() - cpu;
	journal_verifier_destroy(&verifier);
	return seconds;
}

static void fill(const char *directory, uint64_t count)
{
	struct net_loop *loop;
	struct store *store;
	struct error error = {.status = STATUS_OK};
	const struct store_params params = {.audit_segment_entries = INT64_MAX, .audit_segment_bytes = INT64_MAX};
	if (net_loop_create(&loop, &error) ||
	    store_create(&store,
			 &(struct store_params){.loop = loop,
						.directory = directory,
						.audit_segment_entries = params.audit_segment_entries,
						.audit_segment_bytes = params.audit_segment_bytes},
			 &error))
		fail(&error);
	for (uint64_t number = 0; number < count;) {
		struct store_batch *batch;
		enum status status = store_batch_create(&batch);
		for (int i = 0; i < FILL_BATCH && number < count && !status; i++)
			status = put_entry(batch, number++);
		if (status || store_commit_wait(store, &batch, &error))
			fail(&error);
	}
	store_destroy(&store);
	net_loop_destroy(&loop);
}

static void rotated(void *context, enum status status, struct json *result, const struct error *error)
{
	json_destroy(&result);
	if (status)
		fail(error);
	net_loop_stop(context);
}

static double file_bytes(const char *path)
{
	struct stat file;
	return stat(path, &file) ? 0 : (double)file.st_size;
}

// End the segment, and wait until its archive stands: how long that took, beside whatever else the store does.
static double archive(const char *directory, double *bytes)
{
	struct net_loop *loop;
	struct store *store;
	struct error error = {.status = STATUS_OK};
	struct archive_name *names = NULL;
	size_t count = 0;
	char folder[4200];
	snprintf(folder, sizeof folder, "%s/audit", directory);
	const struct store_params params = {.directory = directory};
	if (net_loop_create(&loop, &error) ||
	    store_create(&store, &(struct store_params){.loop = loop, .directory = params.directory}, &error))
		fail(&error);
	int64_t begun = clock_steady_ns();
	if (store_rotate_audit(store, rotated, loop))
		fail(&error);
	net_loop_run(loop);
	while (!count) {
		const struct timespec pause = {.tv_nsec = 10000000};
		nanosleep(&pause, NULL);
		free(names);
		names = NULL;
		if (archive_list(folder, &names, &count, &error))
			fail(&error);
	}
	double seconds = (double)(clock_steady_ns() - begun) * 1e-9;
	*bytes = file_bytes(names[0].path);
	free(names);
	store_destroy(&store);
	net_loop_destroy(&loop);
	return seconds;
}

static void bench_verify(const char *directory, uint64_t count)
{
	char path[4200];
	uint64_t entries;
	int verdict;
	double bytes, cpu;
	fill(directory, count);
	snprintf(path, sizeof path, "%s/state.db", directory);
	double size = file_bytes(path);
	printf("\n### A log of %" PRIu64 " entries\n\n| | |\n|---|---|\n", count);
	double seconds = verify(directory, &entries, &verdict, &cpu);
	printf("| verified in the database | %.2f s, CPU %.2f s, verdict %d |\n", seconds, cpu, verdict);
	printf("| bytes an entry in the database | %.0f |\n", size / (double)count);
	seconds = archive(directory, &bytes);
	printf("| segment ended and archived, synced and verified | %.2f s |\n", seconds);
	printf("| bytes an entry in the archive | %.0f |\n", bytes / (double)count);
	seconds = verify(directory, &entries, &verdict, &cpu);
	printf("| verified in the archive | %.2f s, CPU %.2f s, verdict %d |\n", seconds, cpu, verdict);
}

int main(int argc, char **argv)
{
	log_set_level(LOG_WARNING);
	if (argc > 2 && !strcmp(argv[1], "mutations")) {
		int rounds = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 5;
		bench_mutations(argv[2], argc > 3 ? strtod(argv[3], NULL) : 3,
				rounds > ROUNDS_MOST ? ROUNDS_MOST
				: rounds < 1         ? 1
						     : rounds);
	} else if (argc > 2 && !strcmp(argv[1], "verify")) {
		bench_verify(argv[2], argc > 3 ? strtoull(argv[3], NULL, 10) : 1000000);
	} else {
		fprintf(stderr, "usage: bench_audit mutations DIR [SECONDS [ROUNDS]] | verify DIR [ENTRIES]\n");
		return 2;
	}
	return 0;
}
