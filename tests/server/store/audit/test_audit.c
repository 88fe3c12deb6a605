/* The audit log in the store: numbered, signed, rolled back with its change, cut into segments, read back. */
#include "common/base/log.h"
#include "tests/server/store/audit/audit_support.h"
#include "tests/server/store/sql_support.h"

enum { PATIENCE = 20000 };

static void tick(void *argument)
{
	++*(int *)argument;
}

// Until the database says so.
static void wait_until(struct audit_case *test, const char *sql, int64_t wanted)
{
	for (int turn = 0; turn < PATIENCE; turn++) {
		int ticks = 0;
		struct net_timer timer = {0};
		if (ask_sql(test->support, sql) == wanted)
			return;
		net_timer_start(test->support->loop, &timer, 2, tick, &ticks);
		support_run_until(test->support->loop, &ticks, 1);
	}
	fail_msg("%s is %lld, not %lld", sql, (long long)ask_sql(test->support, sql), (long long)wanted);
}

static void check_head(struct audit_case *test, uint64_t size)
{
	struct store_audit_head head;
	struct checkpoint parsed;
	struct error error = {.status = STATUS_OK};
	store_read_audit_head(test->store, &head);
	assert_int_equal(head.checkpoint.size, size);
	assert_int_equal(checkpoint_parse(&parsed, head.note, &error), STATUS_OK);
	assert_int_equal(parsed.size, size);
	assert_true(note_check(head.note, &head.key, NULL));
}

static void entries_are_numbered_and_signed(void **state)
{
	struct audit_case test = {.failed = 0};
	audit_open(&test, state);
	check_head(&test, 0);
	audit_expect_whole(test.support->directory, 0);
	audit_fill(&test, 0, 600, 1);
	audit_fill(&test, 600, 300, 7);
	assert_int_equal(test.told, 900);
	assert_int_equal(test.wrong, 0);
	check_head(&test, 900);
	audit_expect_whole(test.support->directory, 900);
	assert_int_equal(ask_sql(test.support, "SELECT count(*) FROM audit_checkpoints"), 1);
	audit_close(&test);
	audit_open(&test, state); // and goes on after a restart
	check_head(&test, 900);
	audit_fill(&test, 900, 1, 1);
	check_head(&test, 901);
	assert_int_equal(test.told, 901);
	audit_expect_whole(test.support->directory, 901);
	audit_close(&test);
}

// A batch that is refused leaves no entry, number or hash, though others of its commit stay.
static void a_refused_batch_leaves_nothing(void **state)
{
	struct audit_case test = {.failed = 0};
	audit_open(&test, state);
	int wanted = 0;
	for (int i = 0; i < 400; i++) {
		struct store_batch *batch;
		const struct store_device device = {
			.device_id = "dev", .node_id = "nobody", .hardware_key = "k", .record = "{}"};
		assert_int_equal(store_batch_create(&batch), STATUS_OK);
		assert_int_equal(audit_put_one(batch, (uint64_t)i), STATUS_OK);
		assert_int_equal(audit_put_one(batch, (uint64_t)i), STATUS_OK);
		if (i % 3 == 0) // its node is not there: a foreign key refuses it
			assert_int_equal(store_put_device(batch, &device), STATUS_OK);
		assert_int_equal(store_commit(test.store, &batch, audit_batch_done, &test), STATUS_OK);
		wanted++;
	}
	support_run_until(test.support->loop, &test.done, wanted);
	const uint64_t refused = (400 + 2) / 3;
	assert_int_equal(test.failed, refused);
	assert_int_equal(test.told, 2 * (400 - refused));
	assert_int_equal(test.wrong, 0);
	audit_expect_whole(test.support->directory, 2 * (400 - refused));
	audit_close(&test);
}

static void an_entry_that_is_too_large_is_refused(void **state)
{
	struct audit_case test = {.failed = 0};
	struct store_batch *batch;
	char *large = malloc(ENTRY_TEXT_BYTES + 2);
	assert_non_null(large);
	memset(large, 'x', ENTRY_TEXT_BYTES + 1);
	large[ENTRY_TEXT_BYTES + 1] = 0;
	audit_open(&test, state);
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	const struct journal_entry entry = {.count = 1, .action = "a.b", .detail = large};
	assert_int_equal(store_put_audit(batch, &entry), STATUS_LIMIT_EXCEEDED);
	assert_int_equal(store_commit(test.store, &batch, audit_batch_done, &test), STATUS_LIMIT_EXCEEDED);
	audit_fill(&test, 0, 1, 1);
	audit_expect_whole(test.support->directory, 1);
	audit_close(&test);
	free(large);
}

// ---- segments ----

static void expect_rotated(struct audit_case *test, uint64_t entries, int segments)
{
	wait_until(test, "SELECT count(*) FROM audit_segments WHERE archive = ''", 1);
	wait_until(test, "SELECT count(*) FROM audit WHERE seq < (SELECT max(first) FROM audit_segments)", 0);
	assert_int_equal(ask_sql(test->support, "SELECT count(*) FROM audit_segments"), segments);
	assert_int_equal(audit_count_files(test->support, "key-*"), 1);
	assert_int_equal(audit_count_files(test->support, "*.exoaudit"), segments - 1);
	audit_expect_whole(test->support->directory, entries);
}

static void segments_end_by_entries(void **state)
{
	struct audit_case test = {.params.audit_segment_entries = 300};
	audit_open(&test, state);
	audit_fill_slowly(&test, 0, 1000, 50); // a segment more for each 300, with an entry of its own
	expect_rotated(&test, 1003, 4);
	assert_int_equal(test.told, 1003);
	assert_int_equal(test.wrong, 0);
	audit_close(&test);
	audit_open(&test, state);
	expect_rotated(&test, 1003, 4);
	audit_fill_slowly(&test, 1000, 400, 50);
	expect_rotated(&test, 1405 - 1, 5);
	audit_close(&test);
}

static void segments_end_by_bytes_and_age(void **state)
{
	struct audit_case test = {.params.audit_segment_bytes = 20000};
	audit_open(&test, state);
	audit_fill(&test, 0, 300, 1);
	wait_until(&test, "SELECT count(*) > 1 FROM audit_segments", 1);
	audit_close(&test);
	run_sql(test.support, "UPDATE audit_segments SET began_ms = began_ms - 3 * 86400000");
	int64_t before = ask_sql(test.support, "SELECT count(*) FROM audit_segments");
	test.params = (struct store_params){.audit_segment_days = 2};
	audit_open(&test, state);
	audit_fill(&test, 300, 1, 1);
	wait_until(&test, "SELECT count(*) FROM audit_segments", before + 1);
	wait_until(&test, "SELECT count(*) FROM audit_segments WHERE archive = ''", 1);
	audit_close(&test);
}

static void a_segment_ends_when_it_is_told_to(void **state)
{
	struct audit_case test = {.failed = 0};
	audit_open(&test, state);
	assert_int_equal(store_rotate_audit(test.store, audit_answered, &test), STATUS_OK);
	support_run_until(test.support->loop, &test.answered, 1);
	assert_int_equal(test.status, STATUS_CONFLICT); // nothing in it
	audit_fill(&test, 0, 10, 1);
	assert_int_equal(store_rotate_audit(test.store, audit_answered, &test), STATUS_OK);
	support_run_until(test.support->loop, &test.answered, 2);
	assert_int_equal(test.status, STATUS_OK);
	assert_int_equal(json_get_integer(test.answer, "segment", 0), 1);
	assert_int_equal(json_get_integer(test.answer, "first", 0), 10);
	expect_rotated(&test, 11, 2);
	audit_close(&test);
}

// Pruned, once each, and the log tells it: an archive keeps those entries alone that tell of prunings before.
static void expect_pruned(struct audit_case *test, unsigned segments)
{
	struct audit_check check;
	wait_until(test, "SELECT count(*) FROM audit_segments WHERE pruned_ms != 0", segments);
	wait_until(test, "SELECT count(*) FROM audit_segments WHERE archive = ''", 1);
	wait_until(test, "SELECT count(*) FROM audit WHERE seq < (SELECT max(first) FROM audit_segments)", 0);
	assert_int_equal(audit_count_files(test->support, "*.exoaudit"), segments);
	assert_int_equal(audit_count_files(test->support, "unfinished-*"), 0);
	const struct journal_report *report = audit_check(&check, test->support->directory, NULL, NULL);
	assert_non_null(report);
	audit_print(report);
	assert_int_equal(journal_verdict_of(report), JOURNAL_HOLDS);
	assert_int_equal(report->bare, 0);
	uint64_t old = (uint64_t)ask_sql(test->support, "SELECT max(first) FROM audit_segments");
	print_message("%" PRIu64 " of %" PRIu64 " entries by their hashes\n", report->pruned, report->entries);
	assert_in_range(report->pruned, old - segments, old);
	journal_verifier_destroy(&check.verifier);
}

static void old_archives_keep_only_hashes(void **state)
{
	struct audit_case test = {.params = {.audit_segment_entries = 300, .audit_keep_days = -1}};
	char command[SUPPORT_PATH_BYTES + 128];
	audit_open(&test, state);
	for (uint64_t segment = 0; segment < 3; segment++) { // each tells in its own of the one before
		audit_fill_slowly(&test, segment * 350, 350, 50);
		expect_pruned(&test, (unsigned)segment + 1);
	}
	assert_int_equal(test.wrong, 0);
	audit_close(&test);
	audit_open(&test, state);
	expect_pruned(&test, 3);
	audit_close(&test);
	// The archive that keeps the entry which tells of the first one's pruning is needed for it.
	struct audit_check check;
	snprintf(command, sizeof command, "rm \"$(ls '%s'/audit/audit-[1-9]*.exoaudit | head -1)\"",
		 test.support->directory);
	assert_int_equal(system(command), 0);
	const struct journal_report *report = audit_check(&check, test.support->directory, NULL, NULL);
	assert_non_null(report);
	assert_int_equal(journal_verdict_of(report), JOURNAL_ARCHIVE_MISSING);
	assert_int_equal(report->finding_count, 2);
	assert_int_equal(report->findings[0].seq, 0);
	journal_verifier_destroy(&check.verifier);
}

// An archive that was changed stays as it is, so that it is found; those behind it are pruned.
static void a_changed_archive_is_not_pruned(void **state)
{
	struct audit_case test = {.params = {.audit_segment_entries = 100}};
	char command[SUPPORT_PATH_BYTES + 256];
	audit_open(&test, state);
	audit_fill_slowly(&test, 0, 320, 20);
	wait_until(&test, "SELECT count(*) FROM audit WHERE seq < (SELECT max(first) FROM audit_segments)", 0);
	audit_close(&test);
	snprintf(command, sizeof command,
		 "cd '%s'/audit && printf X | dd of=\"$(ls audit-0-*)\" bs=1 seek=2000 conv=notrunc 2>/dev/null",
		 test.support->directory);
	assert_int_equal(system(command), 0);
	test.params.audit_keep_days = -1;
	audit_open(&test, state);
	wait_until(&test, "SELECT count(*) FROM audit_segments WHERE pruned_ms != 0", 2);
	assert_int_equal(ask_sql(test.support, "SELECT pruned_ms FROM audit_segments WHERE number = 0"), 0);
	audit_close(&test);
	struct audit_check check;
	const struct journal_report *report = audit_check(&check, test.support->directory, NULL, NULL);
	assert_non_null(report);
	assert_int_equal(journal_verdict_of(report), JOURNAL_MODIFIED);
	assert_int_equal(report->bare, 0);
	journal_verifier_destroy(&check.verifier);
}

// ---- proofs ----

struct roots { // of every size, as the listener computes them for itself
	struct audit_case test;
	struct tree tree;
	struct tree_hash of[4096];
};

static void follow(void *context, const struct journal_entry *entry)
{
	struct roots *roots = context;
	struct buffer bytes;
	struct tree_hash leaf;
	buffer_init(&bytes, ENTRY_BYTES);
	assert_int_equal(entry_encode(entry, &bytes), STATUS_OK);
	tree_hash_leaf(bytes.data, bytes.length, &leaf);
	tree_append(&roots->tree, &leaf, NULL, NULL);
	tree_root(&roots->tree, &roots->of[roots->tree.size]);
	buffer_finish(&bytes);
	audit_heard(&roots->test, entry);
}

static void check_proof(struct roots *roots, uint64_t from, uint64_t to)
{
	struct tree_proof proof = {.count = 0};
	struct audit_case *test = &roots->test;
	int wanted = test->answered + 1;
	assert_int_equal(store_prove_audit(test->store, from, to, audit_answered, test), STATUS_OK);
	support_run_until(test->support->loop, &test->answered, wanted);
	assert_int_equal(test->status, STATUS_OK);
	const struct json *hash = json_first(json_get(test->answer, "proof"));
	for (; hash; hash = json_next(hash)) {
		const char *text = json_string(hash, "");
		assert_true(base64_decode(text, strlen(text), proof.hashes[proof.count++].bytes, TREE_HASH_BYTES));
	}
	if (!tree_check_consistency(from, &roots->of[from], to, &roots->of[to], &proof))
		fail_msg("the proof from %" PRIu64 " to %" PRIu64 " does not hold", from, to);
}

// From every size, while entries are here, and after they were archived.
static void every_size_can_be_proved(void **state)
{
	static struct roots roots;
	struct audit_case *test = &roots.test;
	roots.tree = (struct tree){.size = 0};
	*test = (struct audit_case){.params.audit_segment_entries = 700};
	audit_open(test, state);
	store_listen_audit(test->store, follow, &roots);
	tree_root(&roots.tree, &roots.of[0]);
	audit_fill(test, 0, 600, 25);
	for (uint64_t from = 0; from <= 600; from++)
		check_proof(&roots, from, 600);
	audit_fill_slowly(test, 600, 900, 25);
	expect_rotated(test, 1502, 3);
	for (uint64_t from = 0; from <= 1502; from++)
		check_proof(&roots, from, 1502);
	for (uint64_t to = 1; to < 1502; to += 13)
		check_proof(&roots, to / 3, to);
	check_proof(&roots, 10, 1500);
	assert_int_equal(json_count(json_get(test->answer, "segments")), 2);
	check_proof(&roots, 700, 1500);
	assert_int_equal(json_count(json_get(test->answer, "segments")), 2);
	check_proof(&roots, 701, 1500);
	assert_int_equal(json_count(json_get(test->answer, "segments")), 1);
	audit_close(test);
}

// ---- cosigned heads ----

static void a_cosigned_head_stays(void **state)
{
	struct audit_case test = {.params.audit_segment_entries = 100};
	struct note_signer witness;
	audit_open(&test, state);
	assert_int_equal(note_key_make(&witness, NOTE_COSIGNATURE, "exogpu-witness-nod_1"), STATUS_OK);
	for (uint64_t i = 0; i < 4; i++) {
		struct store_audit_head head;
		struct store_batch *batch;
		struct buffer note;
		audit_fill(&test, i * 30, 30, 10);
		store_read_audit_head(test.store, &head);
		buffer_init(&note, NOTE_BYTES);
		assert_int_equal(buffer_append_text(&note, head.note), STATUS_OK);
		assert_int_equal(note_sign(&note, &witness, 1700000000), STATUS_OK);
		audit_fill(&test, i * 30 + 1000, 1, 1); // meanwhile the head goes on
		assert_int_equal(store_batch_create(&batch), STATUS_OK);
		assert_int_equal(store_put_cosigned(batch, head.checkpoint.size, buffer_text(&note)), STATUS_OK);
		int wanted = test.done + 1;
		assert_int_equal(store_commit(test.store, &batch, audit_batch_done, &test), STATUS_OK);
		support_run_until(test.support->loop, &test.done, wanted);
		assert_int_equal(ask_sql(test.support, "SELECT max(size) FROM audit_checkpoints WHERE cosigned = 1"),
				 head.checkpoint.size);
		buffer_finish(&note);
	}
	wait_until(&test, "SELECT count(*) FROM audit_segments WHERE archive = ''", 1);
	audit_expect_whole(test.support->directory, 125);
	int64_t heads = ask_sql(test.support, "SELECT count(*) FROM audit_checkpoints");
	assert_in_range(heads, 2, 3); // the newest, the first segment's last, and the cosigned one if it is neither
	assert_int_equal(test.failed, 0);
	audit_close(&test);
}

// ---- reading ----

static unsigned list(struct audit_case *test, const struct store_audit_filter *filter)
{
	int wanted = test->answered + 1;
	assert_int_equal(store_list_audit(test->store, filter, audit_answered, test), STATUS_OK);
	support_run_until(test->support->loop, &test->answered, wanted);
	assert_int_equal(test->status, STATUS_OK);
	return (unsigned)json_count(json_get(test->answer, "entries"));
}

static int64_t first_listed(const struct audit_case *test)
{
	return json_get_integer(json_first(json_get(test->answer, "entries")), "seq", -1);
}

static void entries_are_found(void **state)
{
	struct audit_case test = {.failed = 0};
	audit_open(&test, state);
	audit_fill(&test, 0, 280, 10);
#define FILTER(...) (&(struct store_audit_filter){.after = -1, .limit = 1000, __VA_ARGS__})
	assert_int_equal(list(&test, &(struct store_audit_filter){.after = -1}), 100);
	assert_int_equal(first_listed(&test), 279);
	assert_true(json_get_bool(test.answer, "more", false));
	assert_int_equal(list(&test, FILTER(.from_ms = 0)), 280);
	assert_false(json_get_bool(test.answer, "more", true));
	assert_int_equal(list(&test, FILTER(.before = 10)), 10);
	assert_int_equal(first_listed(&test), 9);
	assert_int_equal(list(&test, &(struct store_audit_filter){.after = 100, .limit = 5}), 5);
	assert_int_equal(first_listed(&test), 101);
	assert_true(json_get_bool(test.answer, "more", false));
	assert_int_equal(list(&test, FILTER(.actor = "owner:0")), 40);
	assert_int_equal(list(&test, FILTER(.device_id = "dev_1")), 280 / 12 * 3 + 1);
	assert_int_equal(list(&test, FILTER(.device_id = "")), 70);
	assert_int_equal(list(&test, FILTER(.action = "token.create")), 70);
	assert_int_equal(list(&test, FILTER(.action = "memory.")), 210);
	assert_int_equal(list(&test, FILTER(.action = "memory")), 0);
	assert_int_equal(list(&test, FILTER(.outcome = "failed")), 28);
	assert_int_equal(list(&test, FILTER(.outcome = "ok")), 252);
	assert_int_equal(list(&test, FILTER(.text = "ALLOC_27")), 11); // 27, 270 to 279
	assert_int_equal(list(&test, FILTER(.text = "100%")), 0);
	assert_int_equal(list(&test, FILTER(.text = "'; DROP TABLE audit; --")), 0);
	assert_int_equal(list(&test, FILTER(.from_ms = 1700000000010, .to_ms = 1700000000020)), 10);
	assert_int_equal(list(&test, FILTER(.actor = "owner:0", .action = "token.", .outcome = "failed")), 2);
#undef FILTER
	assert_int_equal(list(&test, &(struct store_audit_filter){.after = 0, .limit = 1}), 1);
	const struct json *entry = json_first(json_get(test.answer, "entries"));
	assert_string_equal(json_get_string(entry, "target", ""), "alloc_1");
	assert_int_equal(json_get_integer(json_get(entry, "detail"), "bytes", 0), 4096);
	audit_close(&test);
}

// An answer stays below what a message may hold, whatever the entries have in them.
static void large_entries_come_in_parts(void **state)
{
	struct audit_case test = {.failed = 0};
	struct store_batch *batch;
	char text[4001];
	audit_open(&test, state);
	memset(text, 'y', sizeof text - 1);
	text[sizeof text - 1] = 0;
	const struct journal_entry entry = {.count = 1, .action = "a.b", .target = text, .actor = text, .peer = text};
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	for (int i = 0; i < 200; i++)
		assert_int_equal(store_put_audit(batch, &entry), STATUS_OK);
	assert_int_equal(store_commit(test.store, &batch, audit_batch_done, &test), STATUS_OK);
	support_run_until(test.support->loop, &test.done, 1);
	unsigned total = 0, parts = 0;
	for (int64_t after = 0; total < 199; parts++) {
		total += list(&test, &(struct store_audit_filter){.after = after, .limit = 1000});
		after = total;
	}
	print_message("199 entries of 12 KB in %u parts\n", parts);
	assert_true(parts > 4);
	assert_false(json_get_bool(test.answer, "more", true));
	audit_close(&test);
}

static void verification_answers_beside_the_work(void **state)
{
	struct audit_case test = {.params.audit_segment_entries = 300};
	audit_open(&test, state);
	audit_fill_slowly(&test, 0, 700, 50);
	assert_int_equal(store_verify_audit(test.store, NULL, 0, audit_answered, &test), STATUS_OK);
	assert_int_equal(store_verify_audit(test.store, NULL, 0, audit_answered, &test), STATUS_CONFLICT);
	audit_fill(&test, 700, 500, 1);
	support_run_until(test.support->loop, &test.answered, 1);
	assert_int_equal(test.status, STATUS_OK);
	assert_string_equal(json_get_string(test.answer, "verdict", ""), "holds");
	assert_true(json_get_bool(test.answer, "ok", false));
	assert_int_equal(json_get_integer(test.answer, "finding_count", -1), 0);
	assert_true(json_get_integer(test.answer, "entries", 0) >= 701);
	assert_true(strlen(json_get_string(test.answer, "limits", "")) > 20);
	assert_non_null(json_get(test.answer, "limits_said"));
	assert_int_equal(store_verify_audit(test.store, NULL, 0, audit_answered, &test),
			 STATUS_OK); // and can be asked again
	support_run_until(test.support->loop, &test.answered, 2);
	assert_int_equal(test.status, STATUS_OK);
	audit_close(&test);
}

// ---- what does not fit is refused ----

static void expect_refused(struct audit_case *test, const char *hint)
{
	struct error error = {.status = STATUS_OK};
	enum status status = audit_try_open(test, &error);
	print_message("  %s; %s\n", error.message, error.hint);
	assert_int_equal(status, STATUS_UNAVAILABLE);
	assert_null(test->store);
	assert_non_null(strstr(error.hint, hint));
}

static void a_key_that_does_not_fit_is_refused(void **state)
{
	struct audit_case test = {.failed = 0};
	char key[SUPPORT_PATH_BYTES + 64], away[SUPPORT_PATH_BYTES + 64];
	audit_open(&test, state);
	audit_fill(&test, 0, 5, 1);
	audit_close(&test);
	support_path(test.support, "audit/key-0", key);
	support_path(test.support, "away", away);
	assert_int_equal(rename(key, away), 0);
	expect_refused(&test, "one backup");
	FILE *file = fopen(key, "w");
	assert_non_null(file);
	fputs("0123456789abcdef0123456789abcdef", file);
	fclose(file);
	expect_refused(&test, "one backup");
	assert_int_equal(rename(away, key), 0);
	audit_open(&test, state);
	audit_expect_whole(test.support->directory, 5);
	audit_close(&test);
}

static void a_log_that_does_not_fit_its_head_is_refused(void **state)
{
	static const char *const attacks[] = {
		"DELETE FROM audit WHERE seq = 19",
		"DELETE FROM audit",
		"DELETE FROM audit_checkpoints",
		"UPDATE audit_checkpoints SET note = replace(note, '20', '21')",
		"UPDATE audit_segments SET key = replace(key, '+', '-')",
		"DELETE FROM audit_segments",
		"DROP TRIGGER audit_stays; UPDATE audit SET leaf = (SELECT leaf FROM audit WHERE seq = 3) WHERE seq = "
		"4",
		"INSERT INTO audit SELECT 22, at_us, duration_us, count, actor, actor_name, session_id, peer, action, "
		"target, node_id, device_id, outcome, detail, leaf, bound, bound_before FROM audit WHERE seq = 3",
	};
	for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
		void *own = NULL;
		struct audit_case test = {.failed = 0};
		assert_int_equal(support_setup(&own), 0);
		audit_open(&test, &own);
		audit_fill(&test, 0, 20, 1);
		audit_close(&test);
		run_sql(test.support, attacks[i]);
		print_message("%s\n", attacks[i]);
		expect_refused(&test, "backup");
		assert_int_equal(support_teardown(&own), 0);
	}
	(void)state;
}

// ---- entries behind the newest head, which no commit leaves ----

static void expect_tail_refused(struct audit_case *test, const char *accepted, const char *range)
{
	struct error error = {.status = STATUS_OK};
	test->params.accept_unsigned = accepted;
	assert_int_equal(audit_try_open(test, &error), STATUS_UNAVAILABLE);
	if (!strstr(error.message, range) || !strstr(error.hint, "--accept-unsigned"))
		fail_msg("%s; %s", error.message, error.hint);
}

// The whole entries of 20 to 319 lose their head: refused at the start, whatever else was accepted, until the owner
// accepts exactly these; then the log tells that.
static void a_tail_is_refused_until_it_is_accepted(void **state)
{
	struct audit_case test = {.failed = 0};
	struct audit_check check;
	char note[2048], sql[sizeof note + 64];
	audit_open(&test, state);
	audit_fill(&test, 0, 20, 1);
	ask_text(test.support, "SELECT note FROM audit_checkpoints", note, sizeof note);
	assert_null(strchr(note, '\''));
	audit_fill(&test, 20, 300, 1);
	audit_close(&test);
	snprintf(sql, sizeof sql, "UPDATE audit_checkpoints SET size = 20, note = '%s'", note);
	run_sql(test.support, sql);
	static const char *const wrong[] = {NULL, "", "20-318", "19-319", "20-320", "020-319"};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		expect_tail_refused(&test, wrong[i], "20-319");
	const struct journal_report *report = audit_check(&check, test.support->directory, NULL, NULL);
	assert_non_null(report);
	assert_int_equal(journal_verdict_of(report), JOURNAL_UNSIGNED_TAIL);
	journal_verifier_destroy(&check.verifier);
	test.params.accept_unsigned = "20-319";
	audit_open(&test, state);
	audit_expect_whole(test.support->directory, 321);
	assert_int_equal(ask_sql(test.support, "SELECT seq FROM audit WHERE action = 'audit.accept' AND actor = "
					       "'server' AND target = 'entries 20-319'"),
			 320);
	audit_fill(&test, 320, 5, 1);
	audit_close(&test);
	audit_open(&test, state); // the same once more accepts nothing
	audit_expect_whole(test.support->directory, 326);
	audit_close(&test);
}

// Rows that somebody wrote, with right hashes or without: each is refused, and one that is no entry cannot be accepted.
static void a_written_row_is_refused(void **state)
{
	static const struct {
		const char *sql, *range;
	} cases[] = {
		{"INSERT INTO audit SELECT 20, at_us, duration_us, count, actor, actor_name, session_id, peer, action, "
		 "target, node_id, device_id, outcome, detail, leaf, bound, bound_before FROM audit WHERE seq = 19",
		 "20-20"},
		{"INSERT INTO audit SELECT 25, at_us, duration_us, count, actor, actor_name, session_id, peer, action, "
		 "target, node_id, device_id, outcome, detail, leaf, bound, bound_before FROM audit WHERE seq = 19",
		 "25-25"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		void *own = NULL;
		struct audit_case test = {.failed = 0};
		struct error error = {.status = STATUS_OK};
		assert_int_equal(support_setup(&own), 0);
		audit_open(&test, &own);
		audit_fill(&test, 0, 20, 1);
		audit_close(&test);
		run_sql(test.support, cases[i].sql);
		expect_tail_refused(&test, NULL, cases[i].range);
		test.params.accept_unsigned = cases[i].range;
		assert_int_equal(audit_try_open(&test, &error), STATUS_UNAVAILABLE);
		assert_non_null(strstr(error.message, "not whole"));
		assert_int_equal(ask_sql(test.support, "SELECT max(size) FROM audit_checkpoints"), 20);
		assert_int_equal(support_teardown(&own), 0);
	}
}

// Heads, rows of leaves and nodes are what proofs are made of: a change of theirs is a finding, too.
static void hashes_for_proofs_are_verified(void **state)
{
	static const char *const attacks[] = {
		"UPDATE audit_nodes SET hash = zeroblob(32) WHERE level = 8 AND place = 1",
		"DELETE FROM audit_nodes WHERE level = 9",
		"UPDATE audit_leaves SET hashes = zeroblob(length(hashes)) WHERE place = 0",
		"DELETE FROM audit_leaves WHERE place = 1",
		"UPDATE audit_segments SET key = (SELECT key FROM audit_segments WHERE number = 1) WHERE number = 0",
		"INSERT INTO audit SELECT 5, at_us, duration_us, count, actor, actor_name, session_id, peer, action, "
		"target, node_id, device_id, outcome, detail, leaf, bound, bound_before FROM audit ORDER BY seq LIMIT "
		"1",
		"INSERT INTO audit SELECT -5, at_us, duration_us, count, actor, actor_name, session_id, peer, action, "
		"target, node_id, device_id, outcome, detail, leaf, bound, bound_before FROM audit ORDER BY seq LIMIT "
		"1",
	};
	for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
		void *own = NULL;
		struct audit_check check;
		struct audit_case test = {.params.audit_segment_entries = 600};
		assert_int_equal(support_setup(&own), 0);
		audit_open(&test, &own);
		audit_fill_slowly(&test, 0, 1000, 50);
		expect_rotated(&test, 1001, 2);
		audit_close(&test);
		run_sql(test.support, attacks[i]);
		const struct journal_report *report = audit_check(&check, test.support->directory, NULL, NULL);
		assert_non_null(report);
		print_message("%s\n", attacks[i]);
		audit_print(report);
		assert_true(journal_verdict_of(report) != JOURNAL_HOLDS);
		journal_verifier_destroy(&check.verifier);
		assert_int_equal(support_teardown(&own), 0);
	}
	(void)state;
}

// Somebody writes into the log while the server runs: from then on nothing that is audited happens.
static void a_log_that_others_write_to_stops_changes(void **state)
{
	struct audit_case test = {.failed = 0};
	audit_open(&test, state);
	audit_fill(&test, 0, 10, 1);
	run_sql(test.support, "INSERT INTO audit SELECT 10, at_us, duration_us, count, actor, actor_name, session_id, "
			      "peer, action, target, node_id, device_id, outcome, detail, leaf, bound, bound_before "
			      "FROM audit WHERE seq = 3");
	struct store_batch *batch;
	struct error error = {.status = STATUS_OK};
	assert_int_equal(store_batch_create(&batch), STATUS_OK);
	assert_int_equal(store_put_setting(batch, "with it", "there"), STATUS_OK);
	assert_int_equal(audit_put_one(batch, 10), STATUS_OK);
	assert_int_equal(store_commit_wait(test.store, &batch, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.hint, "audit verify"));
	assert_null(store_load_setting(test.store, "with it"));
	run_sql(test.support, "DELETE FROM audit WHERE seq = 10");
	audit_fill(&test, 10, 10, 1);
	assert_int_equal(test.failed, 0);
	audit_expect_whole(test.support->directory, 20);
	audit_close(&test);
}

static void note_line(void *context, enum log_level level, const char *area, const char *text)
{
	*(bool *)context |= level == LOG_WARNING && !strcmp(area, "audit") && strstr(text, "clock");
}

static void a_clock_that_went_back_is_said(void **state)
{
	struct audit_case test = {.failed = 0};
	bool said = false;
	audit_open(&test, state);
	log_listen(note_line, &said);
	for (int hours = 0; hours <= 2; hours += 2) {
		struct store_batch *batch;
		const struct journal_entry entry = {
			.at_us = (clock_wall_ms() + hours * 3600000) * 1000, .count = 1, .action = "a.b"};
		assert_int_equal(store_batch_create(&batch), STATUS_OK);
		assert_int_equal(store_put_audit(batch, &entry), STATUS_OK);
		assert_int_equal(store_commit_wait(test.store, &batch, NULL), STATUS_OK);
		audit_close(&test);
		audit_open(&test, state);
		assert_int_equal(said, hours > 1);
	}
	log_listen(NULL, NULL);
	audit_expect_whole(test.support->directory, 2);
	audit_close(&test);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)
	const struct CMUnitTest tests[] = {
		TEST(entries_are_numbered_and_signed),
		TEST(a_refused_batch_leaves_nothing),
		TEST(an_entry_that_is_too_large_is_refused),
		TEST(segments_end_by_entries),
		TEST(segments_end_by_bytes_and_age),
		TEST(a_segment_ends_when_it_is_told_to),
		TEST(old_archives_keep_only_hashes),
		TEST(a_changed_archive_is_not_pruned),
		TEST(every_size_can_be_proved),
		TEST(a_cosigned_head_stays),
		TEST(entries_are_found),
		TEST(large_entries_come_in_parts),
		TEST(verification_answers_beside_the_work),
		TEST(a_key_that_does_not_fit_is_refused),
		TEST(a_log_that_does_not_fit_its_head_is_refused),
		TEST(a_tail_is_refused_until_it_is_accepted),
		TEST(a_written_row_is_refused),
		TEST(hashes_for_proofs_are_verified),
		TEST(a_log_that_others_write_to_stops_changes),
		TEST(a_clock_that_went_back_is_said),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
