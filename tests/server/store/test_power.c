/* The power is cut at each step of a life that begins with an empty directory: first start, tokens and audited changes,
 * the end of a segment, its archive and the old key's destruction, a stop and another start
 * (tests/server/store/disk.h).
 *
 * Whatever of the steps not synced is found, and in whatever order: the store opens, the log verifies, what was
 * acknowledged is there, and changes are taken. */
#include "common/base/log.h"
#include "common/files/private_file.h"
#include "tests/server/store/audit/audit_support.h"
#include "tests/server/store/disk.h"

enum { BATCHES = 12, EACH = 3, SEGMENT = 13, EVERY = 61, LOOKS = 5000 };

static const unsigned lucks[] = {0, 4, 8, 12, 16}; // of 16: how many writes that were not synced reach the disk

static void token_id(uint64_t number, char id[32])
{
	snprintf(id, 32, "token%05" PRIu64, number);
}

static enum status fill(struct store_batch **batch, uint64_t number)
{
	char key[32], id[32];
	snprintf(key, sizeof key, "batch/%" PRIu64, number);
	token_id(number, id);
	const struct store_token token = {.token_id = id, .name = "made", .scopes = 1, .created_ms = 1};
	enum status status = store_batch_create(batch);
	if (!status)
		status = store_put_setting(*batch, key, "there");
	if (!status)
		status = store_put_token(*batch, &token);
	for (uint64_t i = 0; i < EACH && !status; i++)
		status = audit_put_one(*batch, number * EACH + i);
	return status;
}

struct life {
	struct audit_case test;
	uint64_t number;
};

static void acknowledged(void *context, enum status status, const struct error *error)
{
	struct life *life = context;
	if (status)
		fail_msg("%s", error->message);
	disk_say((int64_t)life->number);
	life->test.done++;
}

static void commit(struct life *life, uint64_t number)
{
	struct store_batch *batch;
	life->number = number;
	assert_int_equal(fill(&batch, number), STATUS_OK);
	const int wanted = life->test.done + 1;
	assert_int_equal(store_commit(life->test.store, &batch, acknowledged, life), STATUS_OK);
	support_run_until(life->test.support->loop, &life->test.done, wanted);
}

static void wait_for(const struct support *support, const char *pattern, int count)
{
	for (int look = 0; look < LOOKS && audit_count_files(support, pattern) < count; look++)
		usleep(2000);
	if (audit_count_files(support, pattern) < count)
		fail_msg("no %s", pattern);
}

static void live(void **state)
{
	struct life life = {.test = {.support = *state, .params.audit_segment_entries = SEGMENT}};
	disk_record(life.test.support->directory);
	audit_open(&life.test, state);
	for (uint64_t number = 0; number < BATCHES / 2; number++)
		commit(&life, number);
	wait_for(life.test.support, "*.exoaudit", 1);
	audit_close(&life.test);
	life.test.told = 0;
	audit_open(&life.test, state);
	for (uint64_t number = BATCHES / 2; number < BATCHES; number++)
		commit(&life, number);
	wait_for(life.test.support, "*.exoaudit", 2);
	audit_close(&life.test);
	disk_stop();
}

struct seen {
	bool tokens[BATCHES];
};

static void see_token(void *context, const struct store_token *token)
{
	struct seen *seen = context;
	uint64_t number;
	if (sscanf(token->token_id, "token%" SCNu64, &number) == 1 && number < BATCHES)
		seen->tokens[number] = true;
}

static void verify(const char *directory, const char *what)
{
	struct audit_check check;
	const struct journal_report *report = audit_check(&check, directory, NULL, NULL);
	if (!report || journal_verdict_of(report)) {
		if (report)
			audit_print(report);
		fail_msg("%s: verdict %d: %s", what, report ? (int)journal_verdict_of(report) : -1,
			 check.error.message);
	}
	journal_verifier_destroy(&check.verifier);
}

// What somebody finds who starts on that disk. `count`: of batches that were acknowledged before the cut.
static void look_after(struct net_loop *loop, const char *directory, uint64_t count, const char *what)
{
	struct support support = {.loop = loop};
	struct audit_case test = {.support = &support, .params.audit_segment_entries = SEGMENT};
	struct error error = {.status = STATUS_OK};
	struct seen seen = {.tokens = {false}};
	snprintf(support.directory, sizeof support.directory, "%s", directory);
	if (count)
		verify(directory, what);
	if (audit_try_open(&test, &error))
		fail_msg("%s: the next start: %s; %s", what, error.message, error.hint);
	assert_int_equal(store_load_tokens(test.store, see_token, &seen, &error), STATUS_OK);
	for (uint64_t number = 0; number < count; number++) {
		char key[32];
		snprintf(key, sizeof key, "batch/%" PRIu64, number);
		if (!store_load_setting(test.store, key) || !seen.tokens[number])
			fail_msg("%s: batch %" PRIu64 " was acknowledged and is gone", what, number);
	}
	audit_fill(&test, 10000, 1, 1);
	store_destroy(&test.store);
	verify(directory, what);
	if (audit_count_files(&support, "key-*") != 1)
		fail_msg("%s: a key was left behind", what);
}

static void garbage_shm(const char *directory)
{
	char path[PATH_MAX];
	uint8_t bytes[32768];
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)random();
	snprintf(path, sizeof path, "%s/state.db-shm", directory);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0 && write(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes);
	close(fd);
}

static void try_cut(struct net_loop *loop, const struct disk_state *certain, size_t step, uint64_t count, unsigned luck)
{
	char directory[] = "/tmp/exogpu-power-XXXXXX", what[96], command[64];
	struct disk_state found;
	const unsigned seed = (unsigned)step * 31 + luck;
	srandom(seed);
	snprintf(what, sizeof what, "a cut after step %zu of %zu, luck %u", step, disk.count, luck);
	assert_non_null(mkdtemp(directory));
	disk_cut(&found, certain, luck);
	disk_make(&found, directory);
	if (luck % 8)
		garbage_shm(directory);
	look_after(loop, directory, count, what);
	disk_drop(&found);
	snprintf(command, sizeof command, "rm -rf '%s'", directory);
	assert_int_equal(system(command), 0);
}

// EXOGPU_EVERY=1 tries every step; otherwise one in EVERY, other ones each time.
static void a_cut_at_every_step(void **state)
{
	const char *wanted = getenv("EXOGPU_EVERY"), *from = getenv("EXOGPU_FROM");
	const size_t every = wanted ? strtoul(wanted, NULL, 10) : EVERY;
	struct support *support = *state;
	struct disk_state certain = {.name_count = 0};
	unsigned cuts = 0, syncs = 0;
	uint64_t count = 0;
	live(state);
	assert_true(every > 0 && disk.count > 200);
	const size_t first = from ? strtoul(from, NULL, 10) : (size_t)clock_steady_ms() % every;
	for (size_t step = 0; step < disk.count; step++) {
		disk_advance(&certain, step);
		syncs += disk.steps[step].kind == DISK_SYNC || disk.steps[step].kind == DISK_SYNC_FOLDER;
		if (disk.steps[step].kind == DISK_SAID)
			count = (uint64_t)disk.steps[step].at + 1;
		if (step % every != first % every)
			continue;
		for (size_t i = 0; i < sizeof lucks / sizeof *lucks; i++, cuts++)
			try_cut(support->loop, &certain, step, count, lucks[i]);
	}
	assert_int_equal(count, BATCHES);
	print_message("%u cuts at steps of %zu, of which %u are syncs: all opened, verified, and had all of the %d "
		      "changes that were acknowledged by then\n",
		      cuts, disk.count, syncs, BATCHES);
	disk_drop(&certain);
	disk_forget();
}

// That what is tried here can fail: without the syncs of the log since the change before, the last change is gone.
static void fewer_syncs_would_be_seen(void **state)
{
	struct support *support = *state;
	struct disk_state certain = {.name_count = 0}, found;
	struct store *store = NULL;
	struct error error = {.status = STATUS_OK};
	char directory[] = "/tmp/exogpu-power-XXXXXX", command[64], key[32];
	size_t before = 0, last = 0, left_out = 0;
	int wal = -1; // state.db-wal, where a commit stands first
	live(state);
	for (size_t step = 0; step < disk.count; step++)
		if (disk.steps[step].kind == DISK_SAID) {
			before = last;
			last = step;
		}
	for (size_t step = 0; step <= last; step++) {
		if (disk.steps[step].kind == DISK_LINK && !strcmp(disk.steps[step].path, "state.db-wal"))
			wal = disk.steps[step].file;
		const bool out = step > before && disk.steps[step].kind == DISK_SYNC && disk.steps[step].file == wal;
		left_out += out;
		if (!out)
			disk_advance(&certain, step);
	}
	assert_true(left_out > 0);
	assert_non_null(mkdtemp(directory));
	disk_cut(&found, &certain, 0);
	disk_make(&found, directory);
	assert_int_equal(
		store_create(&store, &(struct store_params){.loop = support->loop, .directory = directory}, &error),
		STATUS_OK);
	snprintf(key, sizeof key, "batch/%d", BATCHES - 1);
	assert_null(store_load_setting(store, key));
	snprintf(key, sizeof key, "batch/%d", BATCHES - 2);
	assert_non_null(store_load_setting(store, key));
	store_destroy(&store);
	disk_drop(&found);
	disk_drop(&certain);
	disk_forget();
	snprintf(command, sizeof command, "rm -rf '%s'", directory);
	assert_int_equal(system(command), 0);
}

// What our own code writes beside the databases goes by private_file_write: keys of the audit log, admin.token, the
// authority's files, certificates. After a cut the file is whole, the old one or the new, and the new one once it
// returned.
static void a_private_file_is_whole(void **state)
{
	enum { VERSIONS = 4, LENGTH = 1500 };
	struct support *support = *state;
	struct disk_state certain = {.name_count = 0}, found;
	char path[SUPPORT_PATH_BYTES + 64], bytes[LENGTH];
	unsigned cuts = 0;
	int written = -1; // the version that was acknowledged last
	support_path(support, "secret", path);
	disk_record(support->directory);
	for (int version = 0; version < VERSIONS; version++) {
		memset(bytes, 'a' + version, sizeof bytes);
		const struct private_file file = {.path = path, .bytes = bytes, .length = sizeof bytes, .sync = true};
		assert_int_equal(private_file_write(&file, NULL), STATUS_OK);
		disk_say(version);
	}
	disk_stop();
	for (size_t step = 0; step < disk.count; step++) {
		disk_advance(&certain, step);
		written = disk.steps[step].kind == DISK_SAID ? (int)disk.steps[step].at : written;
		for (unsigned turn = 0; turn < 100; turn++, cuts++) {
			disk_cut(&found, &certain, lucks[turn % (sizeof lucks / sizeof *lucks)]);
			const int place = disk_find_name(&found, "secret");
			if (place < 0 && written >= 0)
				fail_msg("step %zu: version %d is gone", step, written);
			const int file = place < 0 ? 0 : found.names[place].file;
			const uint8_t *now = found.files[file].bytes;
			for (size_t i = 0; place >= 0 && i < LENGTH; i++)
				if (found.files[file].length != LENGTH || now[i] != now[0] || now[0] < 'a' + written)
					fail_msg("step %zu: not whole, or older than version %d", step, written);
			disk_drop(&found);
		}
	}
	assert_int_equal(written, VERSIONS - 1);
	print_message("%u cuts at %zu steps, each file whole\n", cuts, disk.count);
	disk_drop(&certain);
	disk_forget();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_cut_at_every_step, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(a_private_file_is_whole, support_setup, support_teardown),
		cmocka_unit_test_setup_teardown(fewer_syncs_would_be_seen, support_setup, support_teardown),
	};
	log_set_level(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
