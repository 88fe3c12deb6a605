/* Minute averages: server/store/history.c and reader.c through store.h, and pruning by itself. */
#include "common/base/limits.h"
#include "server/store/history.h"
#include "server/store/sqlite/database.h"
#include "server/store/store.h"
#include "tests/server/store/support.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

enum { MINUTE_MS = 60000, HOUR_MS = 60 * MINUTE_MS };

static const double units[STORE_COLUMNS] = {0.1, 1024, 1024, 0.1, 0.1, 0.1, 1,   1,    0.1, 1000, 1000, 0.0001,
					    0.1, 1024, 0.1,  0.1, 0.1, 1,   0.1, 1024, 0.1, 0.1,  0.1,  1};

static struct answer {
	int count;
	enum status status;
	size_t rows;
	int64_t step_ms, at_ms[LIMIT_HISTORY_ROWS + 2];
	double values[LIMIT_HISTORY_ROWS + 2][STORE_COLUMNS];
} answer;

static void answered(void *context, enum status status, const struct store_history *history)
{
	(void)context;
	answer.count++;
	answer.status = status;
	answer.rows = status ? 0 : history->rows;
	if (status)
		return;
	answer.step_ms = history->step_ms;
	memcpy(answer.at_ms, history->at_ms, history->rows * sizeof *history->at_ms);
	memcpy(answer.values, history->values, history->rows * sizeof *history->values);
}

static void ask(struct support *support, struct store *store, const char *device_id, int64_t from_ms, int64_t to_ms,
		int64_t step_ms)
{
	int before = answer.count;
	assert_int_equal(store_read_history(store, device_id, from_ms, to_ms, step_ms, answered, NULL), STATUS_OK);
	support_run_until(support->loop, &answer.count, before + 1);
}

// Until what was added is there: adding tells nobody.
static void ask_until(struct support *support, struct store *store, const char *device_id, int64_t from_ms,
		      int64_t to_ms, int64_t step_ms, size_t rows)
{
	int64_t until = clock_steady_ms() + SUPPORT_PATIENCE_MS;
	do {
		ask(support, store, device_id, from_ms, to_ms, step_ms);
	} while ((answer.status || answer.rows < rows) && clock_steady_ms() < until);
}

static struct store *open_store(struct support *support)
{
	struct store *store = NULL;
	struct error error = {.status = STATUS_OK};
	if (store_create(&store, &(struct store_params){.loop = support->loop, .directory = support->directory},
			 &error))
		fail_msg("%s", error.message);
	return store;
}

static int64_t this_hour_ms(void)
{
	int64_t now_ms = clock_wall_ms();
	return now_ms - now_ms % HOUR_MS;
}

// A reading that is absent now and then, or for whole steps, or always.
static double reading(int device, int minute, int column)
{
	if (column >= STORE_READINGS) { // the extremes lie a tenth below and above, and the first hour has none
		const int of = store_extremes[(column - STORE_READINGS) % STORE_EXTREMES];
		const bool least = column < STORE_READINGS + STORE_EXTREMES;
		return minute < 60 ? (double)NAN : reading(device, minute, of) * (least ? 0.9 : 1.1);
	}
	if (column == 5 || (column == 8 && minute / 30 % 2) || (minute * 7 + column) % 11 == 0)
		return NAN;
	static const double size[STORE_READINGS] = {100, 8e10, 8e10, 700, 90, 95, 2000, 2600, 100, 6e10, 6e10, 1};
	return size[column] * ((minute * 131 + column * 17 + device * 3) % 1000) / 1000;
}

enum { DEVICES = 3, MINUTES = 500 };

static void fill(struct store *store, int64_t begin_ms)
{
	static const char *const ids[DEVICES] = {"device-0", "device-1", "device-2"};
	for (int minute = 0; minute < MINUTES; minute++) {
		struct store_minute rows[DEVICES];
		for (int device = 0; device < DEVICES; device++) {
			rows[device] = (struct store_minute){.series = ids[device],
							     .minute_ms = begin_ms + (int64_t)minute * MINUTE_MS};
			for (int column = 0; column < STORE_COLUMNS; column++)
				rows[device].values[column] = reading(device, minute, column);
		}
		store_add_minutes(store, rows, DEVICES);
	}
}

// The average, the least or the most of one column of one step, straight from the readings.
static double expected(int device, int64_t begin_ms, int64_t at_ms, int64_t step_ms, int column)
{
	double sum = 0, extreme = NAN;
	int count = 0, readings = 0;
	const bool least = column < STORE_READINGS + STORE_EXTREMES;
	const int of = column < STORE_READINGS ? column : store_extremes[(column - STORE_READINGS) % STORE_EXTREMES];
	for (int minute = 0; minute < MINUTES; minute++) {
		int64_t minute_ms = begin_ms + (int64_t)minute * MINUTE_MS;
		double value = reading(device, minute, column);
		if (minute_ms >= at_ms && minute_ms < at_ms + step_ms && !isnan(value)) {
			sum += value;
			count++;
			extreme = isnan(extreme) || (least ? value < extreme : value > extreme) ? value : extreme;
		}
		readings += minute_ms >= at_ms && minute_ms < at_ms + step_ms && !isnan(reading(device, minute, of));
	}
	if (column >= STORE_READINGS)
		return count == readings ? extreme : (double)NAN;
	return count ? sum / count : (double)NAN;
}

static void averages_match_a_naive_computation(void **state)
{
	struct support *support = *state;
	struct store *store = open_store(support);
	int64_t begin_ms = this_hour_ms() - 9 * HOUR_MS;
	fill(store, begin_ms);
	ask_until(support, store, "device-2", begin_ms, begin_ms + 9 * HOUR_MS, MINUTE_MS, MINUTES);
	static const int64_t steps[] = {MINUTE_MS, 5 * MINUTE_MS, 30 * MINUTE_MS, HOUR_MS};
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
		for (int device = 0; device < DEVICES; device++) {
			char id[32];
			snprintf(id, sizeof id, "device-%d", device);
			ask(support, store, id, begin_ms, begin_ms + 9 * HOUR_MS, steps[i]);
			assert_int_equal(answer.status, STATUS_OK);
			assert_int_equal(answer.step_ms, steps[i]);
			assert_int_equal(answer.rows, (MINUTES * MINUTE_MS + steps[i] - 1) / steps[i]);
			for (size_t row = 0; row < answer.rows; row++) {
				assert_int_equal(answer.at_ms[row], begin_ms + (int64_t)row * steps[i]);
				for (int column = 0; column < STORE_COLUMNS; column++) {
					double is = answer.values[row][column];
					double wanted = expected(device, begin_ms, answer.at_ms[row], steps[i], column);
					if (isnan(is) != isnan(wanted) ||
					    fabs(is - wanted) > units[column] / 2 * 1.0001)
						fail_msg("device %d row %zu %s: %f is not %f", device, row,
							 store_column_names[column], is, wanted);
				}
			}
		}
	store_destroy(&store);
}

static void ends_and_gaps_are_cut_where_they_are(void **state)
{
	struct support *support = *state;
	struct store *store = open_store(support);
	int64_t begin_ms = this_hour_ms() - 9 * HOUR_MS;
	fill(store, begin_ms);
	ask_until(support, store, "device-2", begin_ms, begin_ms + 9 * HOUR_MS, MINUTE_MS, MINUTES);
	// [from, to): the minute that `from` lies in, not the one that begins at `to`.
	ask(support, store, "device-0", begin_ms + 10 * MINUTE_MS + 1, begin_ms + 12 * MINUTE_MS, MINUTE_MS);
	assert_int_equal(answer.rows, 2);
	assert_int_equal(answer.at_ms[0], begin_ms + 10 * MINUTE_MS);
	ask(support, store, "device-0", begin_ms - 5 * HOUR_MS, begin_ms, MINUTE_MS);
	assert_int_equal(answer.rows, 0);
	ask(support, store, "device-0", begin_ms, begin_ms, MINUTE_MS);
	assert_int_equal(answer.rows, 0);
	ask(support, store, "never seen", begin_ms, begin_ms + HOUR_MS, MINUTE_MS);
	assert_int_equal(answer.status, STATUS_OK);
	assert_int_equal(answer.rows, 0);
	// A step that begins before `from` holds only what lies behind it; steps lie at whole multiples since 1970.
	ask(support, store, "device-0", begin_ms + 20 * MINUTE_MS, begin_ms + 40 * MINUTE_MS, 30 * MINUTE_MS);
	assert_int_equal(answer.rows, 2);
	assert_int_equal(answer.at_ms[0], begin_ms);
	assert_int_equal(answer.at_ms[1], begin_ms + 30 * MINUTE_MS);
	store_destroy(&store);
}

static void queries_out_of_bounds_are_refused(void **state)
{
	struct support *support = *state;
	struct store *store = open_store(support);
	char long_id[STORE_ID_BYTES + 1];
	memset(long_id, 'x', sizeof long_id - 1);
	long_id[sizeof long_id - 1] = 0;
	const int64_t most = (int64_t)LIMIT_HISTORY_ROWS * MINUTE_MS;
	assert_int_equal(store_read_history(store, "d", 0, HOUR_MS, 0, answered, NULL), STATUS_INVALID_PARAMS);
	assert_int_equal(store_read_history(store, "d", 0, HOUR_MS, 61000, answered, NULL), STATUS_INVALID_PARAMS);
	assert_int_equal(store_read_history(store, "d", HOUR_MS, 0, MINUTE_MS, answered, NULL), STATUS_INVALID_PARAMS);
	assert_int_equal(store_read_history(store, "d", -1, 0, MINUTE_MS, answered, NULL), STATUS_INVALID_PARAMS);
	assert_int_equal(store_read_history(store, long_id, 0, 1, MINUTE_MS, answered, NULL), STATUS_INVALID_PARAMS);
	assert_int_equal(store_read_history(store, "d", 0, most + MINUTE_MS, MINUTE_MS, answered, NULL),
			 STATUS_LIMIT_EXCEEDED);
	ask(support, store, "d", 0, most, MINUTE_MS);
	assert_int_equal(answer.status, STATUS_OK);
	store_destroy(&store);
}

static void old_minutes_are_deleted_in_slices(void **state)
{
	struct support *support = *state;
	struct history_writer writer;
	struct error error = {.status = STATUS_OK};
	bool damaged = false;
	enum { OLD = 1200, NEW = 100 };
	static struct store_minute minutes[OLD + NEW + 1];
	assert_int_equal(history_writer_init(&writer, support->directory, NULL, 0, &error), STATUS_OK);
	for (int i = 0; i < OLD + NEW; i++)
		minutes[i] = (struct store_minute){
			.series = "stays", .minute_ms = (int64_t)(i + 1) * MINUTE_MS, .values = {1}};
	minutes[OLD + NEW] = (struct store_minute){.series = "goes", .minute_ms = MINUTE_MS, .values = {1}};
	assert_int_equal(history_add(&writer, minutes, OLD + NEW + 1, &damaged, &error), STATUS_OK);
	struct db_statement *count = NULL, *devices = NULL;
	assert_int_equal(db_prepare(writer.db, "SELECT count(*) FROM minutes", &count, &error), STATUS_OK);
	assert_int_equal(db_prepare(writer.db, "SELECT count(*) FROM devices", &devices, &error), STATUS_OK);
	int left = OLD + NEW + 1, slices = 0;
	while (left > NEW && slices < 20) {
		int before = left;
		assert_int_equal(history_prune(&writer, OLD + 1, &damaged, &error), STATUS_OK);
		slices++;
		assert_int_equal(db_step(count), DB_ROW);
		left = (int)db_integer(count, 0);
		db_reset(count);
		assert_true(before - left <= 1000); // a short transaction each
	}
	assert_int_equal(left, NEW);
	assert_int_equal(history_prune(&writer, OLD + 1, &damaged, &error), STATUS_OK); // nothing to do
	assert_int_equal(db_step(devices), DB_ROW);
	assert_int_equal(db_integer(devices, 0), 1); // a device without minutes is forgotten
	db_finalize(count);
	db_finalize(devices);
	assert_false(damaged);
	history_writer_finish(&writer);
}

// Both kinds lie in one file: what a link and a device of the same name have is kept apart, and pruned.
static void links_have_minutes_of_their_own(void **state)
{
	struct support *support = *state;
	struct store *store = open_store(support);
	const int64_t begin_ms = this_hour_ms() - 2 * HOUR_MS;
	const struct store_minute minutes[] = {
		{.kind = STORE_OF_LINK,
		 .series = "a b",
		 .minute_ms = begin_ms,
		 .values = {1.25, 0.125, 0.5, 1e9, 2000}},
		{.kind = STORE_OF_LINK,
		 .series = "a b",
		 .minute_ms = begin_ms + MINUTE_MS,
		 .values = {2.25, (double)NAN, 0, (double)NAN, 0}},
		{.kind = STORE_OF_LINK, .series = "b a", .minute_ms = begin_ms, .values = {7}},
		{.series = "a b", .minute_ms = begin_ms, .values = {50}},
	};
	store_add_minutes(store, minutes, sizeof minutes / sizeof *minutes);
	ask_until(support, store, "a b", begin_ms, begin_ms + HOUR_MS, MINUTE_MS, 1);
	assert_true(answer.values[0][0] == 50);
	int before = answer.count;
	assert_int_equal(store_read_link_history(store, "a b", begin_ms, begin_ms + HOUR_MS, HOUR_MS, answered, NULL),
			 STATUS_OK);
	support_run_until(support->loop, &answer.count, before + 1);
	assert_int_equal(answer.rows, 1);
	static const double wanted[STORE_LINK_COLUMNS] = {1.75, 0.125, 0.25, 1e9, 1000};
	for (int i = 0; i < STORE_LINK_COLUMNS; i++)
		if (fabs(answer.values[0][i] - wanted[i]) > 1e-9)
			fail_msg("%s is %g, not %g", store_link_names[i], answer.values[0][i], wanted[i]);
	assert_true(isnan(answer.values[0][STORE_LINK_COLUMNS]));
	char long_series[STORE_SERIES_BYTES + 1];
	memset(long_series, 'x', sizeof long_series - 1);
	long_series[sizeof long_series - 1] = 0;
	assert_int_equal(store_read_link_history(store, long_series, 0, 1, MINUTE_MS, answered, NULL),
			 STATUS_INVALID_PARAMS);
	store_destroy(&store);
}

static void old_minutes_of_links_are_deleted_too(void **state)
{
	struct support *support = *state;
	struct history_writer writer;
	struct error error = {.status = STATUS_OK};
	bool damaged = false;
	int64_t left = -1;
	struct db_statement *count = NULL;
	static struct store_minute minutes[100];
	assert_int_equal(history_writer_init(&writer, support->directory, NULL, 0, &error), STATUS_OK);
	for (int i = 0; i < 100; i++)
		minutes[i] = (struct store_minute){.kind = i % 2 ? STORE_OF_LINK : STORE_OF_DEVICE,
						   .series = "a b",
						   .minute_ms = (int64_t)(i + 1) * MINUTE_MS,
						   .values = {1}};
	assert_int_equal(history_add(&writer, minutes, 100, &damaged, &error), STATUS_OK);
	for (int slice = 0; slice < 6; slice++)
		assert_int_equal(history_prune(&writer, 61, &damaged, &error), STATUS_OK);
	static const char *const sql[] = {"SELECT count(*) FROM link_minutes", "SELECT count(*) FROM minutes"};
	for (int i = 0; i < 2; i++) {
		assert_int_equal(db_prepare(writer.db, sql[i], &count, &error), STATUS_OK);
		assert_int_equal(db_step(count), DB_ROW);
		left = db_integer(count, 0);
		db_finalize(count);
		if (left != 20)
			fail_msg("%s: %d, not 20", sql[i], (int)left);
	}
	history_writer_finish(&writer);
}

// A file that was set aside counts once, without its -wal and -shm.
static int files_like(const char *directory, const char *prefix)
{
	DIR *dir = opendir(directory);
	assert_non_null(dir);
	int count = 0;
	for (const struct dirent *entry; (entry = readdir(dir));)
		count += !strncmp(entry->d_name, prefix, strlen(prefix)) && !strstr(entry->d_name, "-wal") &&
			 !strstr(entry->d_name, "-shm");
	closedir(dir);
	return count;
}

static void add_one(struct store *store, const char *device_id, int64_t at_ms)
{
	const struct store_minute minute = {.series = device_id, .minute_ms = at_ms, .values = {50}};
	store_add_minutes(store, &minute, 1);
}

static void a_file_that_cannot_be_used_is_set_aside(void **state)
{
	SUPPORT_SQLITE_ONLY();
	struct support *support = *state;
	char path[SUPPORT_PATH_BYTES + 64];
	int64_t at_ms = this_hour_ms() - HOUR_MS;
	support_path(support, "history.db", path);
	for (int turn = 0; turn < 3; turn++) {
		int fd = open(path, O_RDWR | O_CREAT, 0600);
		static const char junk[200] = "this is no database";
		struct error error = {.status = STATUS_OK};
		sqlite3 *db = NULL;
		if (turn < 2) // not a database at all; a damaged header
			assert_true(pwrite(fd, junk, sizeof junk, 0) == sizeof junk);
		close(fd);
		if (turn == 2) { // of a newer version
			assert_int_equal(database_open(&db, &(struct database_params){.path = path}, &error),
					 STATUS_OK);
			assert_int_equal(database_run(db, "PRAGMA user_version = 77", &error), STATUS_OK);
			database_close(&db);
		}
		struct store *store = open_store(support);
		assert_int_equal(files_like(support->directory, "history.db.damaged-"), turn + 1);
		add_one(store, "device-0", at_ms);
		ask_until(support, store, "device-0", at_ms, at_ms + HOUR_MS, MINUTE_MS, 1);
		assert_int_equal(answer.rows, 1);
		store_destroy(&store);
		usleep(2000); // the name holds the time in milliseconds
	}
}

// A full disk is no reason to throw a month of readings away.
static void a_full_disk_sets_nothing_aside(void **state)
{
	struct support *support = *state;
	int64_t begin_ms = this_hour_ms() - 9 * HOUR_MS;
	struct store *store = open_store(support);
	struct error error = {.status = STATUS_OK};
	struct rlimit limit;
	fill(store, begin_ms);
	store_destroy(&store);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	const struct rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	enum status status = store_create(
		&store, &(struct store_params){.loop = support->loop, .directory = support->directory}, &error);
	store_destroy(&store);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	if (status)
		assert_int_equal(status, STATUS_UNAVAILABLE);
	assert_int_equal(files_like(support->directory, "history.db.damaged-"), 0);
	store = open_store(support);
	ask(support, store, "device-0", begin_ms, begin_ms + 9 * HOUR_MS, MINUTE_MS);
	assert_int_equal(answer.rows, MINUTES);
	store_destroy(&store);
}

// Damage that opening does not see: the check in the background does, and the store goes on with a new file meanwhile.
static void spoil(struct support *support)
{
	char path[SUPPORT_PATH_BYTES + 64];
	support_path(support, "history.db", path);
	struct stat file;
	assert_int_equal(stat(path, &file), 0);
	assert_true(file.st_size > 10 * 4096);
	int fd = open(path, O_WRONLY);
	static const uint8_t junk[4096] = {0xff, 0xff, 0xff};
	for (off_t page = 6; page * 4096 < file.st_size; page++)
		assert_true(pwrite(fd, junk, sizeof junk, page * 4096) == sizeof junk);
	close(fd);
}

static void damage_is_found_in_the_background(void **state)
{
	SUPPORT_SQLITE_ONLY();
	struct support *support = *state;
	int64_t begin_ms = this_hour_ms() - 9 * HOUR_MS;
	struct store *store = open_store(support);
	fill(store, begin_ms);
	store_destroy(&store); // everything is in the file itself now
	spoil(support);
	store = open_store(support);
	int64_t until = clock_steady_ms() + SUPPORT_PATIENCE_MS;
	while (!files_like(support->directory, "history.db.damaged-") && clock_steady_ms() < until)
		usleep(1000);
	assert_true(files_like(support->directory, "history.db.damaged-") >= 1);
	add_one(store, "device-0", begin_ms - HOUR_MS); // the old file has nothing there
	ask_until(support, store, "device-0", begin_ms - HOUR_MS, begin_ms, MINUTE_MS, 1);
	assert_int_equal(answer.status, STATUS_OK);
	assert_int_equal(answer.rows, 1);
	store_destroy(&store);
}

// Who still reads the old file while a new one takes its place finds the old one damaged, and not the new one.
static void what_is_found_in_the_old_file_is_not_held_against_the_new_one(void **state)
{
	SUPPORT_SQLITE_ONLY();
	struct support *support = *state;
	int64_t begin_ms = this_hour_ms() - 9 * HOUR_MS;
	struct store *store = open_store(support);
	fill(store, begin_ms);
	store_destroy(&store);
	spoil(support);
	store = open_store(support);
	int64_t until = clock_steady_ms() + SUPPORT_PATIENCE_MS;
	do // some are under way whenever the file is replaced
		ask(support, store, "device-0", begin_ms, begin_ms + 9 * HOUR_MS, MINUTE_MS);
	while (answer.status && clock_steady_ms() < until);
	assert_int_equal(answer.status, STATUS_OK);
	for (int minute = 0; minute < 20; minute++) {
		add_one(store, "device-0", begin_ms + minute * MINUTE_MS);
		ask_until(support, store, "device-0", begin_ms, begin_ms + 9 * HOUR_MS, MINUTE_MS, (size_t)minute + 1);
		assert_int_equal(answer.rows, minute + 1);
	}
	assert_int_equal(files_like(support->directory, "history.db.damaged-"), 1);
	store_destroy(&store);
}

static void stopping_drops_queries_that_wait(void **state)
{
	struct support *support = *state;
	struct store *store = open_store(support);
	int before = answer.count;
	for (int i = 0; i < 20; i++)
		assert_int_equal(store_read_history(store, "device-0", 0, HOUR_MS, MINUTE_MS, answered, NULL),
				 STATUS_OK);
	store_destroy(&store);
	assert_int_equal(answer.count, before);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)
	const struct CMUnitTest tests[] = {
		TEST(averages_match_a_naive_computation),
		TEST(ends_and_gaps_are_cut_where_they_are),
		TEST(queries_out_of_bounds_are_refused),
		TEST(old_minutes_are_deleted_in_slices),
		TEST(links_have_minutes_of_their_own),
		TEST(old_minutes_of_links_are_deleted_too),
		TEST(a_file_that_cannot_be_used_is_set_aside),
		TEST(a_full_disk_sets_nothing_aside),
		TEST(damage_is_found_in_the_background),
		TEST(what_is_found_in_the_old_file_is_not_held_against_the_new_one),
		TEST(stopping_drops_queries_that_wait),
	};
#undef TEST
	return cmocka_run_group_tests(tests, NULL, NULL);
}
