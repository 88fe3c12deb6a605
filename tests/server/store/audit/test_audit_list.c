/* The list of the audit log goes on through archives: every entry that matches once, in order, whatever size a page has
 * and whatever stops it; and what cannot be shown is told as a gap. */
#include "server/store/audit/journal.h"
#include "tests/server/store/audit/audit_support.h"
#include "tests/server/store/sql_support.h"

enum { MOST = 4096, PATIENCE_MS = 600 * 1000 };

static void wait_sql(const struct support *support, const char *sql, int64_t wanted)
{
	for (int i = 0; i < 3000 && ask_sql(support, sql) != wanted; i++)
		usleep(10000);
	assert_int_equal(ask_sql(support, sql), wanted);
}

static void shell(const struct support *support, const char *words)
{
	char command[SUPPORT_PATH_BYTES + 512];
	snprintf(command, sizeof command, "cd '%s/audit' && %s", support->directory, words);
	assert_int_equal(system(command), 0);
}

// Entries in archives, and none of these left in the database.
static void open_archived(struct audit_case *test, void **state, uint64_t entries)
{
	test->params.audit_segment_entries = 300;
	audit_open(test, state);
	audit_fill_slowly(test, 0, entries, 50);
	wait_sql(test->support, "SELECT count(*) FROM audit_segments WHERE archive = ''", 1);
	wait_sql(test->support, "SELECT count(*) FROM audit WHERE seq < (SELECT max(first) FROM audit_segments)", 0);
	assert_true(ask_sql(test->support, "SELECT count(*) FROM audit_segments") > 3);
}

// ---- what should be listed ----

struct expected {
	struct audit_case test;
	const struct store_audit_filter *filter;
	int64_t seqs[MOST];
	size_t count, all;
};

static bool matches(const struct store_audit_filter *filter, const struct journal_entry *entry)
{
	if (filter->action && filter->action[strlen(filter->action) - 1] == '.'
		    ? strncmp(entry->action, filter->action, strlen(filter->action)) != 0
		    : filter->action && strcmp(entry->action, filter->action) != 0)
		return false;
	if (filter->outcome && (!strcmp(filter->outcome, "failed") ? !strcmp(entry->outcome, "ok")
								   : strcmp(filter->outcome, entry->outcome) != 0))
		return false;
	if (filter->text && !strstr(entry->target, "alloc_7")) // the texts that are asked for here
		return false;
	return (!filter->actor || !strcmp(entry->actor, filter->actor)) &&
	       (!filter->device_id || !strcmp(entry->device_id, filter->device_id)) &&
	       entry->at_us >= filter->from_ms * 1000 && (!filter->to_ms || entry->at_us < filter->to_ms * 1000) &&
	       (!filter->before || entry->seq < (uint64_t)filter->before) &&
	       (filter->after < 0 || entry->seq > (uint64_t)filter->after);
}

static void expect_entry(void *context, const struct journal_entry *entry)
{
	struct expected *expected = context;
	assert_true(expected->count < MOST);
	expected->all++;
	if (matches(expected->filter, entry))
		expected->seqs[expected->count++] = (int64_t)entry->seq;
}

static void find_expected(struct expected *expected, const char *directory, const struct store_audit_filter *filter)
{
	struct journal_verifier *verifier;
	struct error error = {.status = STATUS_OK};
	*expected = (struct expected){.filter = filter};
	assert_int_equal(journal_verifier_create(&verifier, NULL, NULL), STATUS_OK);
	assert_int_equal(store_audit_offline(&(struct store_offline_params){.directory = directory,
									    .verifier = verifier,
									    .entry = expect_entry,
									    .context = expected},
					     &error),
			 STATUS_OK);
	assert_int_equal(journal_verdict_of(journal_verify_end(verifier)), JOURNAL_HOLDS);
	journal_verifier_destroy(&verifier);
}

static const struct json *ask_page(struct audit_case *test, const struct store_audit_filter *filter)
{
	const int wanted = test->answered + 1;
	assert_int_equal(store_list_audit(test->store, filter, audit_answered, test), STATUS_OK);
	support_run_until(test->support->loop, &test->answered, wanted);
	assert_int_equal(test->status, STATUS_OK);
	return test->answer;
}

// All pages, and how many there were.
static size_t list_all(struct audit_case *test, struct store_audit_filter filter, int64_t *seqs, size_t *count)
{
	size_t pages = 0;
	*count = 0;
	for (bool more = true; more; pages++) {
		const struct json *page = ask_page(test, &filter);
		assert_int_equal(json_count(json_get(page, "gaps")), 0);
		for (const struct json *one = json_first(json_get(page, "entries")); one; one = json_next(one)) {
			assert_true(*count < MOST);
			seqs[(*count)++] = json_get_integer(one, "seq", -1);
		}
		more = json_get_bool(page, "more", false);
		assert_true(more == (json_type(json_get(page, "next")) == JSON_NUMBER));
		if (filter.after >= 0)
			filter.after = json_get_integer(page, "next", -1);
		else
			filter.before = json_get_integer(page, "next", -1);
		assert_true(pages < 2 * MOST);
	}
	return pages;
}

static void every_filter_and_every_page_size(void **state)
{
	static struct expected expected;
	static int64_t listed[MOST];
	struct audit_case test = {.failed = 0};
	open_archived(&test, state, 1700);
	const struct store_audit_filter filters[] = {
		{.after = -1},
		{.after = -1, .action = "memory."},
		{.after = -1, .action = "audit.rotate"},
		{.after = -1, .actor = "owner:0"},
		{.after = -1, .device_id = "dev_1"},
		{.after = -1, .outcome = "failed"},
		{.after = -1, .outcome = "ok", .action = "token.create"},
		{.after = -1, .text = "ALLOC_7"},
		{.after = -1, .from_ms = 1700000000100, .to_ms = 1700000000900},
		{.after = -1, .before = 301},
		{.after = -1, .before = 1},
		{.after = 0},
		{.after = 511, .action = "memory.allocate"},
		{.after = 299, .before = 905},
		{.after = -1, .action = "no.such"},
	};
	const int limits[] = {1000, 100, 7};
	for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
		find_expected(&expected, test.support->directory, &filters[i]);
		for (size_t j = 0; j < 2 * sizeof limits / sizeof *limits; j++) {
			struct store_audit_filter filter = filters[i];
			size_t count;
			filter.limit = limits[j / 2];
			filter.spend_ms = j % 2 ? -1 : PATIENCE_MS; // a page ends after a block; or when it is full
			const size_t pages = list_all(&test, filter, listed, &count);
			if (count != expected.count)
				fail_msg("filter %zu, %d a page: %zu entries, %zu expected", i, filter.limit, count,
					 expected.count);
			for (size_t at = 0; at < count; at++)
				assert_int_equal(listed[at],
						 expected.seqs[filter.after >= 0 ? at : expected.count - 1 - at]);
			if (filter.spend_ms > 0 && count) // `more` is true only where more is
				assert_int_equal(pages, (count + (size_t)filter.limit - 1) / (size_t)filter.limit);
		}
		print_message("filter %zu: %zu of %zu entries\n", i, expected.count, expected.all);
	}
	audit_close(&test);
}

// An entry comes out of an archive as it went in, with what it binds.
static void an_archived_entry_is_whole(void **state)
{
	struct audit_case test = {.params.audit_segment_entries = 300};
	struct store_batch *batch;
	struct store_token token = {.token_id = "tokenaaaaa", .name = "a", .scopes = 2, .created_ms = 5};
	audit_open(&test, state);
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	store_put_token(batch, &token);
	assert_int_equal(audit_put_one(batch, 20), STATUS_OK);
	assert_int_equal(store_commit_wait(test.store, &batch, &(struct error){.status = STATUS_OK}), STATUS_OK);
	const struct store_audit_filter filter = {.after = -1, .before = 1, .limit = 5};
	struct json *before = json_copy(json_get(ask_page(&test, &filter), "entries"));
	assert_int_equal(json_count(before), 1);
	assert_int_equal(json_count(json_get(json_first(before), "bound")), 1);
	audit_fill_slowly(&test, 100, 400, 50);
	wait_sql(test.support, "SELECT count(*) FROM audit WHERE seq = 0", 0);
	assert_true(json_equal(before, json_get(ask_page(&test, &filter), "entries")));
	json_destroy(&before);
	audit_close(&test);
}

// Nothing twice and nothing left out while rows move into archives.
static void while_segments_end(void **state)
{
	enum { ROUNDS = 40, EACH = 50 };
	static int64_t listed[MOST];
	struct audit_case test = {.params.audit_segment_entries = 100};
	size_t count;
	audit_open(&test, state);
	for (uint64_t round = 0; round < ROUNDS; round++) {
		audit_fill(&test, round * EACH, EACH, EACH);
		list_all(&test, (struct store_audit_filter){.after = -1, .limit = 90, .spend_ms = -1}, listed, &count);
		assert_true(count >= (round + 1) * EACH);
		for (size_t i = 0; i < count; i++)
			assert_int_equal(listed[i], (int64_t)(count - 1 - i));
		list_all(&test, (struct store_audit_filter){.after = 0, .limit = 90}, listed, &count);
		for (size_t i = 0; i < count; i++)
			assert_int_equal(listed[i], (int64_t)i + 1);
	}
	audit_close(&test);
}

// ---- gaps ----

// Every entry of [0, end) is listed, or in exactly one gap, in both directions; how many are in gaps of this reason.
static int64_t count_gaps(struct audit_case *test, const char *reason, int64_t *told_by)
{
	const int64_t end = ask_sql(test->support, "SELECT max(seq) + 1 FROM audit");
	int64_t found = 0;
	for (int direction = 0; direction < 2; direction++) {
		struct store_audit_filter filter = {.after = direction ? 0 : -1, .limit = 130, .spend_ms = -1};
		static unsigned seen[MOST];
		memset(seen, 0, sizeof seen);
		seen[0] = direction ? 1 : 0; // it is not asked for
		found = 0;
		for (bool more = true; more;) {
			const struct json *page = ask_page(test, &filter);
			for (const struct json *one = json_first(json_get(page, "entries")); one; one = json_next(one))
				seen[json_get_integer(one, "seq", -1)]++;
			for (const struct json *one = json_first(json_get(page, "gaps")); one; one = json_next(one)) {
				int64_t first = json_get_integer(one, "first", -1);
				const int64_t last = json_get_integer(one, "last", -1);
				assert_in_range(last, first, end - 1);
				assert_string_equal(json_get_string(one, "reason", ""), reason);
				if (told_by)
					*told_by = json_get_integer(one, "told_by", -1);
				for (found += last - first + 1; first <= last; first++)
					seen[first]++;
			}
			more = json_get_bool(page, "more", false);
			*(direction ? &filter.after : &filter.before) = json_get_integer(page, "next", -1);
		}
		for (int64_t seq = 0; seq < end; seq++)
			if (seen[seq] != 1)
				fail_msg("entry %lld was told %u times", (long long)seq, seen[seq]);
	}
	return found;
}

static void a_missing_archive(void **state)
{
	struct audit_case test = {.failed = 0};
	open_archived(&test, state, 1700);
	shell(test.support, "rm audit-0-*");
	const int64_t first = ask_sql(test.support, "SELECT first FROM audit_segments WHERE number = 1");
	assert_int_equal(count_gaps(&test, "missing", NULL), first - 1); // the first is not asked for by `after`
	shell(test.support, "rm *.exoaudit");
	const int64_t here = ask_sql(test.support, "SELECT min(seq) FROM audit");
	assert_int_equal(count_gaps(&test, "missing", NULL), here - 1);
	audit_close(&test);
}

// Cut, edited, of another segment, a folder, a pipe, nothing: what still is what the log has is listed, and no more.
static void archives_that_somebody_wrote(void **state)
{
	static const struct {
		const char *words;
		int64_t least, most; // entries that are lost
	} attacks[] = {
		{"printf X | dd of=\"$(ls audit-0-*)\" bs=1 seek=9000 conv=notrunc 2>/dev/null", 1, 299},
		{"truncate -s 20000 \"$(ls audit-0-*)\"", 100, 299},
		{"truncate -s 10 \"$(ls audit-0-*)\"", 299, 320},
		{"f=$(ls audit-0-*); : > $f", 299, 320},
		{"f=$(ls audit-0-*); rm $f; mkdir $f", 299, 320},
		{"f=$(ls audit-0-*); rm $f; mkfifo $f", 299, 320},
		{"f=$(ls audit-0-*); rm $f; ln -s /dev/zero $f", 299, 320},
		{"cat \"$(ls audit-3*)\" > \"$(ls audit-0-*)\"", 299, 320},
		{"f=$(ls audit-0-*); head -c 300000 /dev/urandom > $f", 299, 320},
		// A record of 4 GiB, a kind that there is not; the file's own sum is nobody's business here.
		{"f=$(ls audit-0-*); printf '\\001\\377\\377\\377\\377' | dd of=$f bs=1 seek=2000 conv=notrunc "
		 "2>/dev/null",
		 1, 320},
		// More checkpoints than an archive has: what is behind them is not looked for.
		{"python3 -c \"import sys,struct; b=open(sys.argv[1],'rb').read(); "
		 "n=16+struct.unpack('<I',b[12:16])[0]; "
		 "open(sys.argv[1],'wb').write(b[:n]+b'\\x03\\1\\0\\0\\0-'*20+b[n:])\" \"$(ls audit-0-*)\"",
		 299, 320},
	};
	struct audit_case test = {.failed = 0};
	open_archived(&test, state, 1700);
	shell(test.support, "cp \"$(ls audit-0-*)\" ../kept");
	for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
		print_message("%s\n", attacks[i].words);
		shell(test.support, attacks[i].words);
		assert_in_range(count_gaps(&test, "damaged", NULL), attacks[i].least, attacks[i].most);
		shell(test.support, "f=$(ls -d audit-0-*); rm -r $f; cp ../kept $f");
		assert_int_equal(count_gaps(&test, "", NULL), 0);
	}
	audit_close(&test);
}

static void wait_pruned(struct audit_case *test, int64_t segments)
{
	wait_sql(test->support, "SELECT count(*) FROM audit_segments WHERE pruned_ms != 0", segments);
	wait_sql(test->support, "SELECT count(*) FROM audit_segments WHERE archive = ''", 1);
	wait_sql(test->support, "SELECT count(*) FROM audit WHERE seq < (SELECT max(first) FROM audit_segments)", 0);
}

static void expect_gap(struct audit_case *test, const struct store_audit_filter *filter, const char *reason,
		       int64_t told_by)
{
	const struct json *gap = json_first(json_get(ask_page(test, filter), "gaps"));
	assert_string_equal(json_get_string(gap, "reason", ""), reason);
	assert_int_equal(json_get_integer(gap, "told_by", -1), told_by);
	if (told_by < 0)
		assert_int_equal(json_type(json_get(gap, "told_by")), JSON_NULL);
}

// The entry that tells it is named, be it here or in an archive; hashes that nothing tells of are told as such.
static void a_pruned_range(void **state)
{
	struct audit_case test = {.params = {.audit_segment_entries = 300, .audit_keep_days = -1}};
	int64_t told_by = -1;
	char sql[256];
	audit_open(&test, state);
	audit_fill_slowly(&test, 0, 350, 50);
	wait_pruned(&test, 1);
	assert_in_range(count_gaps(&test, "pruned", &told_by), 290, 400);
	snprintf(sql, sizeof sql, "SELECT count(*) FROM audit WHERE seq = %lld AND action = 'audit.prune'",
		 (long long)told_by);
	assert_int_equal(ask_sql(test.support, sql), 1);
	audit_fill_slowly(&test, 350, 700, 50);
	wait_pruned(&test, 3);
	const struct store_audit_filter filter = {.after = -1, .before = 50, .limit = 5};
	const struct json *gap = json_first(json_get(ask_page(&test, &filter), "gaps"));
	assert_string_equal(json_get_string(gap, "reason", ""), "pruned");
	assert_int_equal(json_get_integer(gap, "told_by", -1), told_by); // now in an archive, and kept there
	assert_int_equal(json_get_integer(gap, "last", -1), 49);
	assert_false(json_get_bool(test.answer, "more", true));
	count_gaps(&test, "pruned", NULL);
	// Another entry is said to tell it, or none: that is looked at.
	static const char *const said[] = {"2", "NULL"};
	for (size_t i = 0; i < 2; i++) {
		snprintf(sql, sizeof sql, "UPDATE audit_segments SET pruned_by = %s WHERE number = 0", said[i]);
		ask_sql(test.support, sql);
		expect_gap(&test, &filter, "removed", -1);
	}
	// An entry tells it only if it tells of as many.
	ask_sql(test.support, "DROP TRIGGER audit_stays");
	const int64_t last = ask_sql(test.support, "SELECT max(seq) FROM audit");
	const int64_t end = ask_sql(test.support, "SELECT first FROM audit_segments WHERE number = 1");
	for (int64_t removed = 1; removed <= end; removed += end - 1) {
		snprintf(sql, sizeof sql,
			 "UPDATE audit SET action = 'audit.prune', actor = 'server', outcome = 'ok', target = '%lld of "
			 "the entries 0 to %lld' WHERE seq = %lld",
			 (long long)removed, (long long)end - 1, (long long)last);
		ask_sql(test.support, sql);
		expect_gap(&test, &filter, removed == end ? "pruned" : "removed", removed == end ? last : -1);
	}
	audit_close(&test);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)
		TEST(every_filter_and_every_page_size),
		TEST(an_archived_entry_is_whole),
		TEST(while_segments_end),
		TEST(a_missing_archive),
		TEST(archives_that_somebody_wrote),
		TEST(a_pruned_range),
	};
	return cmocka_run_group_tests_name("the audit log's list", tests, NULL, NULL);
}
