/* A data directory as it stands after a month: DEVICES devices on nodes of eight, and DAYS days of minute averages.
 *
 *   make_history DIR [DEVICES [DAYS]]        1,000 devices and 30 days unless said: 43 million rows, about a minute
 *   make_history DIR --minutes DEVICES N     instead: N minutes in the order in which a server writes them, timed
 *   make_history DIR --query                 instead: time the query of 30 days of one device at steps of 30 minutes
 *   make_history DIR --start                 instead: time the opening of both databases, and the stop after it
 *   make_history DIR --commits SECONDS       instead: time one-row changes of 300 bytes, one and many under way
 *
 * Written with the store's own code, so the files are those that a server writes and opens. For the benchmark of the
 * start and for the figures of docs/performance.md. One thread beside the store's own. */
#include "common/base/clock.h"
#include "server/store/history.h"
#include "server/store/sqlite/database.h"
#include "server/store/store.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { MINUTE_MS = 60000, DAY_MINUTES = 24 * 60, DEVICES_PER_NODE = 8, DEVICES_MAX = 4096, UNDER_WAY = 512 };

static int fail(const struct error *error)
{
	fprintf(stderr, "%s%s%s\n", error->message, error->hint[0] ? "; " : "", error->hint);
	return 1;
}

static void name_device(char id[STORE_ID_BYTES], int device)
{
	snprintf(id, STORE_ID_BYTES, "bench-device-%04d", device);
}

static enum status put_node(struct store_batch *batch, int node, int64_t now_ms)
{
	char id[STORE_ID_BYTES], record[1024];
	snprintf(id, sizeof id, "bench-node-%04d", node);
	snprintf(record, sizeof record,
		 "{\"node_id\":\"%s\",\"name\":\"%s\",\"host_name\":\"%s\",\"os\":\"Debian GNU/Linux "
		 "12\",\"kernel\":\"6.1\","
		 "\"arch\":\"x86_64\",\"cpu_model\":null,\"cpu_cores\":8,\"cpu_threads\":16,\"link_port\":0,"
		 "\"memory_bytes\":"
		 "68719476736,"
		 "\"version\":\"0.1.0\",\"addresses\":[],\"backends\":[],\"libraries\":[],\"capabilities\":[]}",
		 id, id, id);
	return store_put_node(
		batch,
		&(struct store_node){
			.node_id = id, .name = id, .record = record, .first_seen_ms = now_ms, .last_seen_ms = now_ms});
}

static enum status put_device(struct store_batch *batch, int device, int64_t now_ms)
{
	char id[STORE_ID_BYTES], node[STORE_ID_BYTES], key[STORE_ID_BYTES], record[2048];
	name_device(id, device);
	snprintf(node, sizeof node, "bench-node-%04d", device / DEVICES_PER_NODE);
	snprintf(key, sizeof key, "uuid:%032d", device);
	snprintf(record, sizeof record,
		 "{\"device_id\":\"%s\",\"hardware_key\":\"%s\",\"name\":\"Bench %d\",\"vendor\":\"Bench\","
		 "\"model\":\"Bench\",\"family\":null,\"backend\":\"vulkan\",\"apis\":[],\"kind\":\"discrete\","
		 "\"removable\":false,\"low_power\":false,\"unified_memory\":false,\"memory_pool\":\"%s\","
		 "\"memory_bytes\":85899345920,\"memory_budget_bytes\":null,\"largest_buffer_bytes\":null,\"memory_"
		 "bandwidth_bytes_per_s\":null,"
		 "\"compute_units\":null,\"api_version\":null,\"driver_version\":null,\"formats\":[],\"features\":[],"
		 "\"peers\":[],\"uuid\":null,\"pci_address\":null,\"support\":\"full\",\"support_reason\":null,"
		 "\"verification\":{\"state\":\"pending\",\"at\":null,\"duration_ms\":null,\"error\":null},\"present\":"
		 "true}",
		 id, key, device, key);
	return store_put_device(batch, &(struct store_device){.device_id = id,
							      .node_id = node,
							      .hardware_key = key,
							      .record = record,
							      .first_seen_ms = now_ms,
							      .last_seen_ms = now_ms});
}

static enum status make_inventory(const char *directory, int devices, struct error *error)
{
	struct net_loop *loop = NULL;
	struct store *store = NULL;
	struct store_batch *batch = NULL;
	int64_t now_ms = clock_wall_ms();
	enum status status = net_loop_create(&loop, error);
	if (!status)
		status = store_create(&store, &(struct store_params){.loop = loop, .directory = directory}, error);
	if (!status)
		status = store_batch_create(&batch);
	for (int node = 0; node * DEVICES_PER_NODE < devices && !status; node++)
		status = put_node(batch, node, now_ms);
	for (int device = 0; device < devices && !status; device++)
		status = put_device(batch, device, now_ms);
	if (!status)
		status = store_commit_wait(store, &batch, error);
	store_destroy(&store);
	net_loop_destroy(&loop);
	return status;
}

// Readings as of a device that works by day: no two minutes alike, and two columns that its hardware does not tell.
static void fill_minute(struct store_minute *minute, const char *id, int device, int64_t at)
{
	double load = 0.5 + 0.5 * sin((double)(at % DAY_MINUTES) / DAY_MINUTES * 2 * M_PI + device);
	double noise = (double)((uint64_t)at * 2654435761u % 997) / 997;
	*minute = (struct store_minute){
		.series = id,
		.minute_ms = at * MINUTE_MS,
		.values = {100 * load * noise, 8e10 * load + 1e9 * noise, 85899345920, 80 + 600 * load + 20 * noise,
			   35 + 40 * load + noise, (double)NAN, 345 + 1600 * load + 9 * noise, 2619, (double)NAN,
			   3e9 * load * noise, 1e9 * load * noise, 1 - 0.9 * load * noise},
	};
}

static enum status copy_device(sqlite3 *db, int devices, struct error *error)
{
	sqlite3_stmt *name = NULL, *copy = NULL;
	enum status status = database_run(db, "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF", error);
	if (!status)
		status = database_prepare(db, "INSERT INTO devices (device_id) VALUES (?1)", &name, error);
	if (!status)
		status = database_prepare(db,
					  "INSERT INTO minutes SELECT last_insert_rowid(), minute, utilization, "
					  "memory_used, memory_total, power, temperature, memory_temperature, clock, "
					  "memory_clock, fan, pcie_rx, pcie_tx, availability FROM minutes "
					  "WHERE device = 1 ORDER BY minute",
					  &copy, error);
	for (int device = 1; device < devices && !status; device++) {
		char id[STORE_ID_BYTES];
		name_device(id, device);
		sqlite3_bind_text(name, 1, id, -1, SQLITE_STATIC);
		int code = sqlite3_step(name);
		sqlite3_reset(name);
		if (code == SQLITE_DONE)
			code = sqlite3_step(copy);
		sqlite3_reset(copy);
		if (code != SQLITE_DONE)
			status = database_fault(db, code, error);
	}
	sqlite3_finalize(name);
	sqlite3_finalize(copy);
	return status ? status : database_run(db, "PRAGMA journal_mode = WAL", error);
}

static enum status make_minutes(const char *directory, int devices, int days, struct error *error)
{
	struct history_writer writer;
	bool damaged = false;
	const int64_t now = clock_wall_ms() / MINUTE_MS;
	const int rows = days * DAY_MINUTES;
	struct store_minute *minutes = calloc((size_t)rows, sizeof *minutes);
	enum status status = minutes ? history_writer_init(&writer, directory, NULL, 0, error) : STATUS_OUT_OF_MEMORY;
	if (status) {
		free(minutes);
		return error_set(error, status, "no memory");
	}
	// The first device by the store's own code; the others are copies of it, a device at a time: each row goes
	// behind the last, and nothing need survive a crash of this program.
	char id[STORE_ID_BYTES];
	name_device(id, 0);
	for (int i = 0; i < rows; i++)
		fill_minute(&minutes[i], id, 0, now - rows + i);
	status = history_add(&writer, minutes, (size_t)rows, &damaged, error);
	history_writer_finish(&writer);
	free(minutes);
	char path[4096];
	sqlite3 *db = NULL;
	snprintf(path, sizeof path, "%s/history.db", directory);
	if (!status)
		status = database_open(&db, &(struct database_params){.path = path}, error);
	if (!status)
		status = copy_device(db, devices, error);
	database_close(&db);
	return status;
}

static double megabytes(const char *directory)
{
	char path[4096];
	struct stat file;
	snprintf(path, sizeof path, "%s/history.db", directory);
	return stat(path, &file) ? 0 : (double)file.st_size / 1e6;
}

// As a server does: one transaction a minute, of all devices.
static int time_minutes(const char *directory, int devices, int count, struct error *error)
{
	struct history_writer writer;
	static struct store_minute minutes[DEVICES_MAX];
	static char ids[DEVICES_MAX][STORE_ID_BYTES];
	bool damaged = false;
	int64_t now = clock_wall_ms() / MINUTE_MS;
	enum status status = history_writer_init(&writer, directory, NULL, 0, error);
	int64_t begun = clock_steady_ms();
	for (int device = 0; device < devices; device++)
		name_device(ids[device], device);
	for (int i = 0; i < count && !status; i++) {
		for (int device = 0; device < devices; device++)
			fill_minute(&minutes[device], ids[device], device, now - count + i);
		status = history_add(&writer, minutes, (size_t)devices, &damaged, error);
		db_tidy(writer.db, false);
	}
	int64_t took = clock_steady_ms() - begun;
	db_tidy(writer.db, true);
	history_writer_finish(&writer);
	if (status)
		return fail(error);
	printf("%d minutes of %d devices: %.2f ms a minute, %.1f bytes a row in the file\n", count, devices,
	       (double)took / count, megabytes(directory) * 1e6 / ((double)count * devices));
	return 0;
}

static int time_query(const char *directory, struct error *error)
{
	struct history_reader reader;
	struct store_history history;
	bool damaged = false;
	char id[STORE_ID_BYTES];
	int64_t now_ms = clock_wall_ms();
	if (history_reader_init(&reader, directory, NULL, error))
		return fail(error);
	for (int i = 0; i < 6; i++) { // a device each, and the last one twice
		name_device(id, i < 5 ? i * 3 : 12);
		const struct history_query query = {.series = id,
						    .from_ms = now_ms - (int64_t)HISTORY_DAYS * DAY_MINUTES * MINUTE_MS,
						    .to_ms = now_ms,
						    .step_ms = 30 * MINUTE_MS};
		int64_t begun = clock_steady_ns();
		if (history_read(&reader, &query, &history, &damaged, error))
			return fail(error);
		printf("%s: %zu steps of 30 minutes in %.1f ms\n", id, history.rows,
		       (double)(clock_steady_ns() - begun) / 1e6);
		history_finish(&history);
	}
	history_reader_finish(&reader);
	return 0;
}

// Stopping comes while the check of history.db is under way, and must not wait for its end.
static int time_start(const char *directory, struct error *error)
{
	for (int i = 0; i < 5; i++) {
		struct net_loop *loop;
		struct store *store;
		if (net_loop_create(&loop, error))
			return fail(error);
		int64_t begun = clock_steady_ns();
		if (store_create(&store, &(struct store_params){.loop = loop, .directory = directory}, error))
			return fail(error);
		int64_t opened = clock_steady_ns();
		nanosleep(&(struct timespec){.tv_nsec = 200 * 1000000}, NULL);
		int64_t stopping = clock_steady_ns();
		store_destroy(&store);
		printf("opened in %.1f ms, closed in %.1f ms\n", (double)(opened - begun) / 1e6,
		       (double)(clock_steady_ns() - stopping) / 1e6);
		net_loop_destroy(&loop);
	}
	return 0;
}

struct commits {
	struct net_loop *loop;
	struct store *store;
	int64_t until_ms;
	unsigned count;
	int under_way;
};

static void committed(void *context, enum status status, const struct error *error);

static void commit_one(struct commits *commits)
{
	struct store_batch *batch;
	char key[32], value[320]; // a value of its own each time: SQLite writes nothing where nothing changes
	snprintf(key, sizeof key, "bench-%u", commits->count % 1000);
	snprintf(value, sizeof value, "%0300u", commits->count++);
	commits->under_way++;
	if (store_batch_create(&batch) || store_put_setting(batch, key, value) ||
	    store_commit(commits->store, &batch, committed, commits))
		exit(1);
}

static void committed(void *context, enum status status, const struct error *error)
{
	struct commits *commits = context;
	commits->under_way--;
	if (status)
		exit(fail(error));
	if (clock_steady_ms() < commits->until_ms)
		commit_one(commits);
	else if (!commits->under_way)
		net_loop_stop(commits->loop);
}

static int time_commits(const char *directory, int seconds, struct error *error)
{
	for (int under_way = 1; under_way <= UNDER_WAY; under_way *= 8) {
		struct commits commits = {.count = 0};
		struct store_stats stats;
		if (net_loop_create(&commits.loop, error) ||
		    store_create(&commits.store, &(struct store_params){.loop = commits.loop, .directory = directory},
				 error))
			return fail(error);
		int64_t begun = clock_steady_ms();
		commits.until_ms = begun + seconds * 1000;
		for (int i = 0; i < under_way; i++)
			commit_one(&commits);
		net_loop_run(commits.loop);
		double took = (double)(clock_steady_ms() - begun) / 1000;
		store_read_stats(commits.store, &stats);
		printf("%3d under way: %.0f changes/s in %.0f commits/s\n", under_way, commits.count / took,
		       (double)stats.commits / took);
		store_destroy(&commits.store);
		net_loop_destroy(&commits.loop);
	}
	return 0;
}

static int number(const char *text, int least, int most)
{
	char *end;
	errno = 0;
	long value = strtol(text, &end, 10);
	if (errno || *end || end == text || value < least || value > most) {
		fprintf(stderr, "%s is not a number from %d to %d\n", text, least, most);
		exit(2);
	}
	return (int)value;
}

int main(int argc, char **argv)
{
	struct error error = {.status = STATUS_OK};
	if (argc < 2 || argv[1][0] == '-') {
		fprintf(stderr, "usage: make_history DIR [DEVICES [DAYS]] | DIR --minutes DEVICES N | DIR --query | "
				"DIR --start | DIR --commits SECONDS\n");
		return 2;
	}
	if (mkdir(argv[1], 0700) && errno != EEXIST) {
		perror(argv[1]);
		return 1;
	}
	if (argc == 5 && !strcmp(argv[2], "--minutes"))
		return time_minutes(argv[1], number(argv[3], 1, DEVICES_MAX), number(argv[4], 1, 1000000), &error);
	if (argc == 3 && !strcmp(argv[2], "--query"))
		return time_query(argv[1], &error);
	if (argc == 3 && !strcmp(argv[2], "--start"))
		return time_start(argv[1], &error);
	if (argc == 4 && !strcmp(argv[2], "--commits"))
		return time_commits(argv[1], number(argv[3], 1, 600), &error);
	int devices = argc > 2 ? number(argv[2], 1, DEVICES_MAX) : 1000;
	int days = argc > 3 ? number(argv[3], 1, HISTORY_DAYS) : HISTORY_DAYS;
	int64_t begun = clock_steady_ms();
	if (make_inventory(argv[1], devices, &error) || make_minutes(argv[1], devices, days, &error))
		return fail(&error);
	printf("%d devices, %d days: %.0f MB of history, %.1f s\n", devices, days, megabytes(argv[1]),
	       (double)(clock_steady_ms() - begun) / 1000);
	return 0;
}
