/* Every single bit of a small audit database, flipped: state.db with 64 entries in two segments, the first of them
 * archived, read by the verifier that the command line has.
 *
 * A flip must be found, or SQLite must refuse the file, or it does not matter: what is read is then, entry by entry and
 * byte by byte, what was written, under the same signed head. A bit in EVERY is tried, EXOGPU_EVERY=1 tries all of
 * them; of pages that hold nothing of the audit log, one in OTHERS of these. */
#include "common/base/log.h"
#include "tests/server/store/audit/audit_support.h"

#include <fcntl.h>
#include <sqlite3.h>

enum { ENTRIES = 64, EVERY = 601, OTHERS = 31, PAGE = 4096 };

struct page_use {
	bool audit;
	char name[32];
};

struct tally {
	unsigned found, refused, harmless;
};

struct content { // of what was read: a hash over all entries
	struct tree tree;
};

static void add_entry(void *context, const struct journal_entry *entry)
{
	struct content *content = context;
	struct buffer bytes;
	struct tree_hash leaf;
	buffer_init(&bytes, ENTRY_BYTES);
	if (!entry_encode(entry, &bytes)) {
		tree_hash_leaf(bytes.data, bytes.length, &leaf);
		tree_append(&content->tree, &leaf, NULL, NULL);
	}
	buffer_finish(&bytes);
}

struct reading {
	enum status status;
	enum journal_verdict verdict;
	uint64_t entries;
	struct tree_hash root, content;
	char origin[NOTE_NAME_BYTES];
};

static void read_log(const char *directory, struct reading *reading)
{
	struct journal_verifier *verifier = NULL;
	struct error error = {.status = STATUS_OK};
	struct content content = {.tree.size = 0};
	*reading = (struct reading){.verdict = JOURNAL_HOLDS};
	assert_int_equal(journal_verifier_create(&verifier, NULL, NULL), STATUS_OK);
	reading->status = store_audit_offline(
		&(struct store_offline_params){
			.directory = directory, .verifier = verifier, .entry = add_entry, .context = &content},
		&error);
	if (!reading->status) {
		const struct journal_report *report = journal_verify_end(verifier);
		reading->verdict = journal_verdict_of(report);
		reading->entries = report->entries;
		reading->root = report->root;
		memcpy(reading->origin, report->origin, sizeof reading->origin);
	}
	tree_root(&content.tree, &reading->content);
	journal_verifier_destroy(&verifier);
}

static void make_log(struct audit_case *test, void **state)
{
	audit_open(test, state);
	audit_fill_slowly(test, 0, 40, 5);
	assert_int_equal(store_rotate_audit(test->store, audit_answered, test), STATUS_OK);
	support_run_until(test->support->loop, &test->answered, 1);
	audit_fill_slowly(test, 40, ENTRIES - 41, 5);
	for (int look = 0; look < 10000 && !audit_count_files(test->support, "*.exoaudit"); look++)
		usleep(1000);
	audit_close(test);
	audit_open(test, state); // what is archived goes from the database
	for (int look = 0; look < 500; look++) {
		audit_fill(test, 0, 0, 1);
		usleep(1000);
	}
	audit_close(test);
}

// Which table a page belongs to, from SQLite's own account of the file.
static size_t map_pages(const char *path, struct page_use *uses, size_t capacity)
{
	sqlite3 *db;
	sqlite3_stmt *rows;
	size_t count = 0;
	assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
	if (sqlite3_prepare_v2(db, "SELECT pageno, name FROM dbstat", -1, &rows, NULL) != SQLITE_OK) {
		sqlite3_close(db);
		return 0;
	}
	while (sqlite3_step(rows) == SQLITE_ROW) {
		size_t page = (size_t)sqlite3_column_int64(rows, 0) - 1;
		const char *name = (const char *)sqlite3_column_text(rows, 1);
		if (page >= capacity)
			continue;
		snprintf(uses[page].name, sizeof uses[page].name, "%s", name);
		uses[page].audit = !strncmp(name, "audit", 5) || !strncmp(name, "sqlite_", 7);
		count = page + 1 > count ? page + 1 : count;
	}
	sqlite3_finalize(rows);
	sqlite3_close(db);
	return count;
}

static void flip(int file, off_t at, unsigned bit)
{
	uint8_t byte;
	assert_int_equal(pread(file, &byte, 1, at), 1);
	byte ^= (uint8_t)(1u << bit);
	assert_int_equal(pwrite(file, &byte, 1, at), 1);
}

static void try_bit(const char *directory, const struct reading *whole, uint64_t bit, struct tally *tally)
{
	struct reading reading;
	read_log(directory, &reading);
	if (reading.status) {
		tally->refused++;
	} else if (reading.verdict != JOURNAL_HOLDS) {
		tally->found++;
	} else if (reading.entries == whole->entries && !strcmp(reading.origin, whole->origin) &&
		   !memcmp(&reading.root, &whole->root, sizeof reading.root) &&
		   !memcmp(&reading.content, &whole->content, sizeof reading.content)) {
		tally->harmless++;
	} else {
		fail_msg("bit %" PRIu64 " changes what is read, and the log holds", bit);
	}
}

static void every_bit_is_found_or_does_not_matter(void **state)
{
	struct audit_case test = {.failed = 0};
	struct page_use uses[512] = {{.audit = false}};
	struct tally audit = {0}, others = {0};
	struct reading whole;
	struct stat file;
	char path[SUPPORT_PATH_BYTES + 64];
	const char *wanted = getenv("EXOGPU_EVERY");
	const unsigned every = wanted ? (unsigned)strtoul(wanted, NULL, 10) : EVERY;
	const char *from = getenv("EXOGPU_FROM"); // so that several can share the work
	make_log(&test, state);
	support_path(test.support, "state.db", path);
	read_log(test.support->directory, &whole);
	assert_int_equal(whole.status, STATUS_OK);
	assert_int_equal(whole.verdict, JOURNAL_HOLDS);
	assert_int_equal(whole.entries, ENTRIES);
	assert_memory_equal(&whole.root, &whole.content, sizeof whole.root);
	size_t pages = map_pages(path, uses, 512);
	assert_int_equal(stat(path, &file), 0);
	if (!pages) // without dbstat all pages count alike
		print_message("this SQLite does not say whose its pages are\n");
	int fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0 && every > 0);
	const uint64_t first = from ? strtoul(from, NULL, 10) : (uint64_t)clock_steady_ms() % every;
	for (uint64_t bit = first; bit < (uint64_t)file.st_size * 8; bit += every) {
		size_t page = (size_t)(bit / 8 / PAGE);
		bool about = !pages || (page < 512 && uses[page].audit);
		if (!about && bit / every % OTHERS)
			continue;
		flip(fd, (off_t)(bit / 8), (unsigned)(bit % 8));
		try_bit(test.support->directory, &whole, bit, about ? &audit : &others);
		flip(fd, (off_t)(bit / 8), (unsigned)(bit % 8));
	}
	close(fd);
	print_message("pages of the audit log and of the schema: %u found, %u refused by SQLite, %u do not matter\n",
		      audit.found, audit.refused, audit.harmless);
	print_message("other pages: %u found, %u refused, %u do not matter\n", others.found, others.refused,
		      others.harmless);
	assert_true(audit.found + audit.refused > 0);
	read_log(test.support->directory, &whole);
	assert_int_equal(whole.verdict, JOURNAL_HOLDS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(every_bit_is_found_or_does_not_matter, support_setup, support_teardown),
	};
	log_set_level(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
