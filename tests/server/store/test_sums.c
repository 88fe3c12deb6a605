/* The sums in the pages of state.db (server/store/sqlite/sums.h): a page that is not as it was written is found when it
 * is read, and nothing else is; files of before get them; copies that other programs make are as good as the file. And
 * what a changed bit does, anywhere in a file in which every table has rows: it is found, or every answer is what it
 * was. */
#include "common/base/log.h"
#include "server/store/sqlite/database.h"
#include "server/store/sqlite/sums.h"
#include "tests/server/store/audit/audit_support.h"

#include <fcntl.h>

enum { ROWS = 40, EVERY = 3001 };

static void put(bool good)
{
	assert_true(good);
}

// Rows in every table that an answer comes from.
static void fill_all(struct audit_case *test)
{
	for (int i = 0; i < ROWS; i++) {
		struct store_batch *batch;
		char id[32], device[32], node[32], text[200];
		snprintf(id, sizeof id, "one%06d", i);
		snprintf(device, sizeof device, "dev_%d", i);
		snprintf(node, sizeof node, "nod_%d", i % 4);
		snprintf(text, sizeof text, "{\"what\":\"the record of %d\",\"of\":[1,2,3,%d]}", i, i * i);
		const struct store_node n = {.node_id = node, .name = "a node", .record = text};
		const struct store_device d = {
			.device_id = device, .node_id = node, .hardware_key = id, .record = text};
		const struct store_token t = {.token_id = id, .name = text, .scopes = 3, .created_ms = 10 + i};
		const struct store_change c = {
			.at_ms = i, .kind = "node", .level = "info", .node_id = node, .name = id, .summary = text};
		put(!store_batch_create(&batch));
		put(!store_put_setting(batch, id, text));
		put(!store_put_node(batch, &n));
		put(!store_put_device(batch, &d));
		put(!store_put_token(batch, &t));
		put(!store_put_change(batch, &c));
		put(!audit_put_one(batch, (uint64_t)i));
		const int wanted = test->done + 1;
		put(!store_commit(test->store, &batch, audit_batch_done, test));
		support_run_until(test->support->loop, &test->done, wanted);
	}
	assert_int_equal(test->failed, 0);
}

// ---- what a start reads, as one run of bytes ----

struct content {
	struct buffer bytes;
	unsigned rows;
};

static void add_text(struct content *content, const char *text)
{
	put(!buffer_append(&content->bytes, text ? text : "(null)", text ? strlen(text) + 1 : 7));
}

static void add_number(struct content *content, int64_t number)
{
	put(!buffer_append(&content->bytes, &number, sizeof number));
}

static void node_row(void *context, const struct store_node *node)
{
	struct content *content = context;
	add_text(content, node->node_id), add_text(content, node->name), add_text(content, node->record);
	add_number(content, node->first_seen_ms), add_number(content, node->last_seen_ms);
	content->rows++;
}

static void device_row(void *context, const struct store_device *device)
{
	struct content *content = context;
	add_text(content, device->device_id), add_text(content, device->node_id);
	add_text(content, device->hardware_key), add_text(content, device->record);
	add_number(content, device->draining), add_number(content, device->first_seen_ms);
	add_number(content, device->last_seen_ms);
	content->rows++;
}

static void token_row(void *context, const struct store_token *token)
{
	struct content *content = context;
	add_text(content, token->token_id), add_text(content, token->name), add_text(content, token->parent_id);
	put(!buffer_append(&content->bytes, token->secret_hash, sizeof token->secret_hash));
	put(!buffer_append(&content->bytes, &token->calls_per_s, sizeof token->calls_per_s));
	add_number(content, token->scopes), add_number(content, token->max_sessions);
	add_number(content, token->memory_limit_bytes), add_number(content, token->created_ms);
	add_number(content, token->expires_ms), add_number(content, token->last_used_ms);
	add_number(content, token->revoked_ms);
	content->rows++;
}

static void change_row(void *context, const struct store_change *change)
{
	struct content *content = context;
	add_text(content, change->kind), add_text(content, change->level), add_text(content, change->node_id);
	add_text(content, change->device_id), add_text(content, change->name), add_text(content, change->summary);
	add_number(content, change->at_ms);
	content->rows++;
}

struct reading {
	enum status status;
	uint64_t wrong;
	struct content content;
};

static void read_all(struct net_loop *loop, const char *directory, struct reading *reading)
{
	struct store *store = NULL;
	struct error error = {.status = STATUS_OK};
	struct store_stats stats;
	*reading = (struct reading){.wrong = 0};
	struct content *content = &reading->content;
	buffer_init(&content->bytes, 1 << 20);
	reading->status = store_create(&store, &(struct store_params){.loop = loop, .directory = directory}, &error);
	if (!reading->status)
		reading->status = store_load_nodes(store, node_row, content, &error);
	if (!reading->status)
		reading->status = store_load_devices(store, device_row, content, &error);
	if (!reading->status)
		reading->status = store_load_tokens(store, token_row, content, &error);
	if (!reading->status)
		reading->status = store_load_changes(store, 1000, change_row, content, &error);
	for (int i = 0; i < ROWS && !reading->status; i++) {
		char key[32];
		snprintf(key, sizeof key, "one%06d", i);
		add_text(content, store_load_setting(store, key));
	}
	if (reading->status && (!error.message[0] || !error.hint[0]))
		fail_msg("refused with '%s', '%s'", error.message, error.hint);
	if (store) {
		store_read_stats(store, &stats);
		reading->wrong = stats.wrong_pages;
	}
	store_destroy(&store);
}

static void copy(const char *from, const char *to)
{
	char command[1024];
	snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s' '%s'", to, from, to);
	assert_int_equal(system(command), 0);
}

static void flip(const char *path, uint64_t bit)
{
	uint8_t byte;
	int fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0 && pread(fd, &byte, 1, (off_t)(bit / 8)) == 1);
	byte ^= (uint8_t)(1u << bit % 8);
	assert_true(pwrite(fd, &byte, 1, (off_t)(bit / 8)) == 1);
	close(fd);
}

static bool same(const struct buffer *one, const struct buffer *other)
{
	return one->length == other->length && !memcmp(one->data, other->data, one->length);
}

struct tally {
	unsigned refused, found, harmless;
};

static void try_bit(struct support *support, const char *from, uint64_t bit, const struct reading *whole,
		    struct tally *tally)
{
	struct support trial = {.loop = support->loop};
	struct reading reading;
	char path[SUPPORT_PATH_BYTES + 64];
	support_path(support, "trial", trial.directory);
	copy(from, trial.directory);
	flip(support_path(&trial, "state.db", path), bit);
	read_all(support->loop, trial.directory, &reading);
	if (reading.status)
		tally->refused++;
	else if (reading.wrong)
		tally->found++;
	else if (same(&reading.content.bytes, &whole->content.bytes))
		tally->harmless++;
	else
		fail_msg("bit %" PRIu64 " of page %" PRIu64 " changes an answer, and nobody notices", bit,
			 bit / 8 / SUMS_PAGE + 1);
	buffer_finish(&reading.content.bytes);
}

// EXOGPU_EVERY=1 tries every bit, with EXOGPU_FROM so that several can share the work.
static void a_changed_bit_is_found_or_does_not_matter(void **state)
{
	struct audit_case test = {.failed = 0};
	struct support whole = {.loop = NULL};
	struct tally tally = {0};
	struct reading all;
	struct stat file;
	char path[SUPPORT_PATH_BYTES + 64];
	const char *wanted = getenv("EXOGPU_EVERY"), *from = getenv("EXOGPU_FROM");
	const uint64_t every = wanted ? strtoul(wanted, NULL, 10) : EVERY;
	struct support *support = *state;
	assert_true(every > 0);
	audit_open(&test, state);
	fill_all(&test);
	audit_close(&test);
	support_path(support, "whole", whole.directory);
	char command[1024];
	snprintf(command, sizeof command, "mkdir '%s' && mv '%s/state.db' '%s/audit' '%s'", whole.directory,
		 support->directory, support->directory, whole.directory);
	assert_int_equal(system(command), 0);
	read_all(support->loop, whole.directory, &all);
	assert_int_equal(all.status, STATUS_OK);
	assert_true(all.wrong == 0 && all.content.rows == 4 + 3 * ROWS);
	assert_int_equal(stat(support_path(&whole, "state.db", path), &file), 0);
	uint64_t tried = 0, first = from ? strtoul(from, NULL, 10) : (uint64_t)clock_steady_ms() % every;
	for (uint64_t bit = first; bit < (uint64_t)file.st_size * 8; bit += every, tried++)
		try_bit(support, whole.directory, bit, &all, &tally);
	print_message("%" PRIu64 " of %lld bits: %u refused at the start, %u found, %u do not matter\n", tried,
		      (long long)file.st_size * 8, tally.refused, tally.found, tally.harmless);
	assert_true(tally.refused + tally.found > tried / 2);
	buffer_finish(&all.content.bytes);
}

static void run(const char *path, const char *sql) // as another program
{
	sqlite3 *db = NULL;
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
		fail_msg("%s: %s", sql, sqlite3_errmsg(db));
	sqlite3_close(db);
}

static void a_file_of_before_gets_sums(void **state)
{
	struct support *support = *state;
	char path[SUPPORT_PATH_BYTES + 64];
	struct error error = {.status = STATUS_OK};
	struct sums_report report;
	sqlite3 *db = NULL;
	support_path(support, "old.db", path);
	run(path, "PRAGMA journal_mode = WAL; CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT);"
		  "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)"
		  "INSERT INTO t SELECT i, hex(zeroblob(50)) FROM n");
	const struct database_params params = {.path = path, .durable = true};
	assert_int_equal(database_open(&db, &params, &error), STATUS_OK);
	database_add_sums(db);
	database_close(&db);
	assert_int_equal(database_open(&db, &params, &error), STATUS_OK);
	assert_int_equal(database_check(db, &error), STATUS_OK);
	sums_read(db, &report);
	assert_true(report.kept && report.pages > 10 && report.wrong == 0);
	assert_int_equal(database_run(db, "INSERT INTO t VALUES (1000, 'more')", &error), STATUS_OK);
	database_close(&db);
	run(path, "SELECT count(*) FROM t"); // others read it as ever
}

// A copy that another program makes, as docs/deployment.md says, while the -wal file holds the newest pages.
static void a_backup_of_another_program_is_as_good(void **state)
{
	struct audit_case test = {.failed = 0};
	struct support copied = {.loop = NULL};
	struct reading reading;
	char from[SUPPORT_PATH_BYTES + 64], to[SUPPORT_PATH_BYTES + 64], command[1024];
	sqlite3 *source = NULL, *target = NULL;
	audit_open(&test, state);
	fill_all(&test);
	audit_close(&test);
	audit_open(&test, state); // pages with sums are in the file, newer ones without beside it
	audit_fill(&test, 1000, 50, 5);
	support_path(test.support, "copy", copied.directory);
	snprintf(command, sizeof command, "mkdir '%s'", copied.directory);
	assert_int_equal(system(command), 0);
	assert_int_equal(sqlite3_open(support_path(test.support, "state.db", from), &source), SQLITE_OK);
	assert_int_equal(sqlite3_open(support_path(&copied, "state.db", to), &target), SQLITE_OK);
	sqlite3_backup *backup = sqlite3_backup_init(target, "main", source, "main");
	assert_non_null(backup);
	assert_int_equal(sqlite3_backup_step(backup, -1), SQLITE_DONE);
	assert_int_equal(sqlite3_backup_finish(backup), SQLITE_OK);
	sqlite3_close(target);
	sqlite3_close(source);
	audit_close(&test);
	snprintf(command, sizeof command, "cp -r '%s/audit' '%s'", test.support->directory, copied.directory);
	assert_int_equal(system(command), 0);
	for (int turn = 0; turn < 2; turn++) {
		read_all(test.support->loop, copied.directory, &reading);
		assert_int_equal(reading.status, STATUS_OK);
		assert_int_equal(reading.wrong, 0);
		assert_int_equal(reading.content.rows, 4 + 3 * ROWS);
		buffer_finish(&reading.content.bytes);
	}
}

// Another program's edit leaves sums that do not fit: it is told, and the server starts.
static void an_edit_by_another_program_is_told(void **state)
{
	struct audit_case test = {.failed = 0};
	struct reading reading;
	char path[SUPPORT_PATH_BYTES + 64];
	audit_open(&test, state);
	fill_all(&test);
	audit_close(&test);
	run(support_path(test.support, "state.db", path), "UPDATE changes SET summary = 'nothing' WHERE at_ms = 3");
	read_all(test.support->loop, test.support->directory, &reading);
	assert_int_equal(reading.status, STATUS_OK);
	assert_true(reading.wrong > 0);
	buffer_finish(&reading.content.bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_changed_bit_is_found_or_does_not_matter, support_setup,
						support_teardown),
		cmocka_unit_test_setup_teardown(a_file_of_before_gets_sums, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(a_backup_of_another_program_is_as_good, support_setup,
						support_teardown),
		cmocka_unit_test_setup_teardown(an_edit_by_another_program_is_told, support_setup, support_teardown),
	};
	log_set_level(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
