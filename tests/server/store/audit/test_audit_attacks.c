/* Attacks on the audit log by somebody who can write all of the data directory, in a real one: three segments, two of
 * them archived, and a head that a person saw ten entries ago. Each is tried without the private key, and with it where
 * that can help, and verified without and with what was seen. What must be found is asserted; EXOGPU_TABLE=1 prints the
 * table of docs/reliability.md. */
#include "common/base/log.h"
#include "common/journal/archive.h"
#include "tests/server/store/audit/audit_support.h"

#include <sqlite3.h>

enum { SEGMENT = 40 };

struct scene {
	char directory[160], old[200]; // old: a copy from before the pin
	sqlite3 *db;
	char pin[2048];
	struct note_key first_key;
	uint64_t size;
};

static void shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *format, ...)
{
	char command[1024];
	va_list args;
	va_start(args, format);
	vsnprintf(command, sizeof command, format, args);
	va_end(args);
	assert_int_equal(system(command), 0);
}

static void sql(struct scene *scene, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void sql(struct scene *scene, const char *format, ...)
{
	char text[1024], *message = NULL;
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (sqlite3_exec(scene->db, text, NULL, NULL, &message) != SQLITE_OK)
		fail_msg("%s: %s", text, message);
}

static uint64_t number(struct scene *scene, const char *text)
{
	sqlite3_stmt *row;
	assert_int_equal(sqlite3_prepare_v2(scene->db, text, -1, &row, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(row), SQLITE_ROW);
	uint64_t value = (uint64_t)sqlite3_column_int64(row, 0);
	sqlite3_finalize(row);
	return value;
}

static void open_scene(struct scene *scene)
{
	char path[256];
	snprintf(path, sizeof path, "%s/state.db", scene->directory);
	assert_int_equal(sqlite3_open(path, &scene->db), SQLITE_OK);
	sql(scene, "DROP TRIGGER IF EXISTS audit_stays");
}

// ---- what the attacker has written ----

// Every leaf again from its row, and the tree over all; what the database keeps of archived ones stays.
static void rehash(struct scene *scene, struct tree *tree)
{
	sqlite3_stmt *rows, *put;
	struct buffer bytes;
	struct tree_hash leaf;
	*tree = (struct tree){.size = 0};
	assert_int_equal(
		sqlite3_prepare_v2(scene->db, "SELECT hashes FROM audit_leaves ORDER BY place", -1, &rows, NULL),
		SQLITE_OK);
	uint64_t first = number(scene, "SELECT min(seq) FROM audit");
	while (sqlite3_step(rows) == SQLITE_ROW)
		for (int at = 0; at < sqlite3_column_bytes(rows, 0) && tree->size < first; at += TREE_HASH_BYTES) {
			memcpy(&leaf, (const char *)sqlite3_column_blob(rows, 0) + at, sizeof leaf);
			tree_append(tree, &leaf, NULL, NULL);
		}
	sqlite3_finalize(rows);
	buffer_init(&bytes, ENTRY_BYTES);
	assert_int_equal(
		sqlite3_prepare_v2(scene->db,
				   "SELECT seq, at_us, duration_us, count, actor, actor_name, session_id, peer, "
				   "action, target, node_id, device_id, outcome, detail, bound, bound_before FROM "
				   "audit ORDER BY seq",
				   -1, &rows, NULL),
		SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(scene->db, "UPDATE audit SET leaf = ?2 WHERE seq = ?1", -1, &put, NULL),
			 SQLITE_OK);
	while (sqlite3_step(rows) == SQLITE_ROW) {
		struct journal_entry entry = {.seq = (uint64_t)sqlite3_column_int64(rows, 0),
					      .at_us = sqlite3_column_int64(rows, 1),
					      .duration_us = sqlite3_column_int64(rows, 2),
					      .count = (uint64_t)sqlite3_column_int64(rows, 3)};
		int column = 4;
#define X(name) entry.name = (const char *)sqlite3_column_text(rows, column++);
		ENTRY_TEXT_LIST(X)
#undef X
		entry.bound = (const char *)sqlite3_column_text(rows, column);
		entry.bound_before = (uint64_t)sqlite3_column_int64(rows, column + 1);
		buffer_clear(&bytes);
		assert_int_equal(entry_encode(&entry, &bytes), STATUS_OK);
		tree_hash_leaf(bytes.data, bytes.length, &leaf);
		tree_append(tree, &leaf, NULL, NULL);
		sqlite3_bind_int64(put, 1, (int64_t)entry.seq);
		sqlite3_bind_blob(put, 2, leaf.bytes, TREE_HASH_BYTES, SQLITE_STATIC);
		assert_int_equal(sqlite3_step(put), SQLITE_DONE);
		sqlite3_reset(put);
	}
	sqlite3_finalize(rows);
	sqlite3_finalize(put);
	buffer_finish(&bytes);
}

static void read_signer(struct scene *scene, struct note_signer *signer)
{
	char path[256];
	uint8_t bytes[NOTE_KEY_BYTES];
	sqlite3_stmt *row;
	struct note_key key;
	snprintf(path, sizeof path, "%s/audit/key-%" PRIu64, scene->directory,
		 number(scene, "SELECT max(number) FROM audit_segments"));
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	assert_int_equal(fread(bytes, 1, sizeof bytes, file), sizeof bytes);
	fclose(file);
	assert_int_equal(sqlite3_prepare_v2(scene->db, "SELECT key FROM audit_segments ORDER BY number DESC LIMIT 1",
					    -1, &row, NULL),
			 SQLITE_OK);
	assert_int_equal(sqlite3_step(row), SQLITE_ROW);
	assert_int_equal(note_key_parse(&key, (const char *)sqlite3_column_text(row, 0)), STATUS_OK);
	sqlite3_finalize(row);
	assert_int_equal(note_key_load(signer, NOTE_ED25519, key.name, bytes), STATUS_OK);
}

// A head of the tree, signed with the newest key, in the place of those of that size and larger.
static void sign(struct scene *scene, const struct tree *tree)
{
	struct note_signer signer;
	struct buffer note;
	struct checkpoint head = {.size = tree->size};
	sqlite3_stmt *put;
	read_signer(scene, &signer);
	memcpy(head.origin, signer.key.name, sizeof head.origin);
	tree_root(tree, &head.root);
	buffer_init(&note, NOTE_BYTES);
	assert_int_equal(checkpoint_print(&head, &note), STATUS_OK);
	assert_int_equal(note_sign(&note, &signer, 0), STATUS_OK);
	sql(scene, "DELETE FROM audit_checkpoints WHERE size >= %" PRIu64, tree->size);
	assert_int_equal(
		sqlite3_prepare_v2(scene->db, "INSERT INTO audit_checkpoints VALUES (?1, ?2, 0, 0)", -1, &put, NULL),
		SQLITE_OK);
	sqlite3_bind_int64(put, 1, (int64_t)tree->size);
	sqlite3_bind_text(put, 2, buffer_text(&note), -1, SQLITE_STATIC);
	assert_int_equal(sqlite3_step(put), SQLITE_DONE);
	sqlite3_finalize(put);
	buffer_finish(&note);
	note_signer_finish(&signer);
}

static void resign(struct scene *scene)
{
	struct tree tree;
	rehash(scene, &tree);
	sql(scene, "DELETE FROM audit_checkpoints WHERE size > (SELECT max(first) FROM audit_segments)");
	sign(scene, &tree);
}

// ---- the attacks ----

static void edit(struct scene *scene)
{
	sql(scene, "UPDATE audit SET actor = 'token:innocent' WHERE seq = %" PRIu64, scene->size - 15);
}

static void swap(struct scene *scene)
{
	const uint64_t a = scene->size - 14, b = scene->size - 13;
	sql(scene,
	    "UPDATE audit SET seq = -1 WHERE seq = %" PRIu64 "; UPDATE audit SET seq = %" PRIu64 " WHERE seq = %" PRIu64
	    "; UPDATE audit SET seq = %" PRIu64 " WHERE seq = -1",
	    a, a, b, b);
}

static void cut_tail(struct scene *scene)
{
	sql(scene, "DELETE FROM audit WHERE seq >= %" PRIu64, scene->size - 12);
}

// Everything that the database has of the log, and the archives, but the first key.
static void cut_all(struct scene *scene)
{
	sql(scene,
	    "DELETE FROM audit; DELETE FROM audit_checkpoints; DELETE FROM audit_leaves; DELETE FROM audit_nodes; "
	    "DELETE FROM audit_segments WHERE number > 0");
	shell("rm -f '%s'/audit/*.exoaudit", scene->directory);
}

static void replace_log(struct scene *scene) // by one of its own
{
	struct support support = {.loop = NULL};
	struct audit_case test = {.support = &support};
	struct error error = {.status = STATUS_OK};
	sqlite3_close(scene->db);
	shell("rm -rf '%s'/*", scene->directory);
	snprintf(support.directory, sizeof support.directory, "%s", scene->directory);
	assert_int_equal(net_loop_create(&support.loop, &error), STATUS_OK);
	assert_int_equal(audit_try_open(&test, &error), STATUS_OK);
	audit_fill(&test, 0, 130, 1);
	audit_close(&test);
	net_loop_destroy(&support.loop);
	open_scene(scene);
}

static void old_backup(struct scene *scene)
{
	sqlite3_close(scene->db);
	shell("rm -rf '%s'/* && cp -a '%s'/. '%s'", scene->directory, scene->old, scene->directory);
	open_scene(scene);
}

static void fork_log(struct scene *scene) // an old backup that goes on in another way, further than the true one
{
	struct support support = {.loop = NULL};
	struct audit_case test = {.support = &support};
	struct error error = {.status = STATUS_OK};
	sqlite3_close(scene->db);
	shell("rm -rf '%s'/* && cp -a '%s'/. '%s'", scene->directory, scene->old, scene->directory);
	snprintf(support.directory, sizeof support.directory, "%s", scene->directory);
	assert_int_equal(net_loop_create(&support.loop, &error), STATUS_OK);
	assert_int_equal(audit_try_open(&test, &error), STATUS_OK);
	audit_fill(&test, 5000, 60, 1);
	audit_close(&test);
	net_loop_destroy(&support.loop);
	open_scene(scene);
}

// The last archived segment comes back into the database, changed, under heads of the newest key.
static void older_under_newer_key(struct scene *scene)
{
	char path[4300];
	struct archive_name *names;
	size_t count;
	struct tree tree;
	sql(scene, "INSERT INTO audit SELECT seq - (SELECT max(first) FROM audit_segments) + (SELECT first FROM "
		   "audit_segments WHERE number = (SELECT max(number) - 1 FROM audit_segments)), at_us, duration_us, "
		   "count, actor, actor_name, session_id, peer, action, target, node_id, device_id, outcome, detail, "
		   "bound, bound_before, leaf "
		   "FROM audit WHERE 0");
	assert_int_equal(
		archive_list((snprintf(path, sizeof path, "%s/audit", scene->directory), path), &names, &count, NULL),
		STATUS_OK);
	const struct archive_name *last = &names[count - 1];
	for (uint64_t seq = last->first; seq <= last->last; seq++)
		sql(scene,
		    "INSERT INTO audit SELECT %" PRIu64 ", at_us, duration_us, count, 'token:innocent', actor_name, "
		    "session_id, peer, action, target, node_id, "
		    "device_id, outcome, detail, leaf, bound, bound_before FROM audit WHERE seq = %" PRIu64,
		    seq, scene->size - 1);
	sql(scene, "UPDATE audit_segments SET archive = '' WHERE first = %" PRIu64, last->first);
	shell("rm '%s'", last->path);
	rehash(scene, &tree);
	sqlite3_stmt *rows;
	struct tree part = {.size = 0};
	struct tree_hash leaf;
	assert_int_equal(
		sqlite3_prepare_v2(scene->db, "SELECT hashes FROM audit_leaves WHERE place = 0", -1, &rows, NULL),
		SQLITE_OK);
	assert_int_equal(sqlite3_step(rows), SQLITE_ROW);
	for (uint64_t seq = 0; seq < last->first; seq++) {
		memcpy(&leaf, (const char *)sqlite3_column_blob(rows, 0) + seq * TREE_HASH_BYTES, sizeof leaf);
		tree_append(&part, &leaf, NULL, NULL);
	}
	sqlite3_finalize(rows);
	sql(scene, "UPDATE audit_leaves SET hashes = substr(hashes, 1, %" PRIu64 ")", last->first * TREE_HASH_BYTES);
	assert_int_equal(sqlite3_prepare_v2(scene->db, "SELECT seq, leaf FROM audit WHERE seq < ?1 ORDER BY seq", -1,
					    &rows, NULL),
			 SQLITE_OK);
	sqlite3_bind_int64(rows, 1, (int64_t)last->last + 1);
	while (sqlite3_step(rows) == SQLITE_ROW) {
		memcpy(&leaf, sqlite3_column_blob(rows, 1), sizeof leaf);
		tree_append(&part, &leaf, NULL, NULL);
	}
	sqlite3_finalize(rows);
	sql(scene, "DELETE FROM audit_checkpoints WHERE size > %" PRIu64, last->first);
	sign(scene, &part);
	sign(scene, &tree);
	free(names);
}

static void drop_archive(struct scene *scene)
{
	shell("rm \"$(ls '%s'/audit/*.exoaudit | head -1)\"", scene->directory);
}

// The first archive is written anew with the hashes of its entries alone, and everything else of it as it is.
static void copy_leaf(void *context, const struct journal_entry *entry)
{
	struct archive_writer *writer = context;
	struct buffer bytes;
	struct tree_hash leaf;
	struct error error = {.status = STATUS_OK};
	buffer_init(&bytes, ENTRY_BYTES);
	assert_int_equal(entry_encode(entry, &bytes), STATUS_OK);
	tree_hash_leaf(bytes.data, bytes.length, &leaf);
	assert_int_equal(archive_write_leaf(writer, &leaf, &error), STATUS_OK);
	buffer_finish(&bytes);
}

static void empty_archive(struct scene *scene)
{
	char path[256];
	sqlite3_stmt *row;
	struct archive_name *names;
	struct archive_writer *writer = NULL;
	struct journal_verifier *verifier = NULL;
	struct journal_segment segment = {.number = 0};
	struct tree before = {.size = 0};
	struct error error = {.status = STATUS_OK};
	size_t count;
	snprintf(path, sizeof path, "%s/audit", scene->directory);
	assert_int_equal(archive_list(path, &names, &count, &error), STATUS_OK);
	assert_int_equal(
		sqlite3_prepare_v2(scene->db,
				   "SELECT key, (SELECT note FROM audit_checkpoints WHERE size = (SELECT first "
				   "FROM audit_segments WHERE number = 1)) FROM audit_segments WHERE number = 0",
				   -1, &row, NULL),
		SQLITE_OK);
	assert_int_equal(sqlite3_step(row), SQLITE_ROW);
	assert_int_equal(note_key_parse(&segment.key, (const char *)sqlite3_column_text(row, 0)), STATUS_OK);
	assert_int_equal(archive_writer_create(&writer,
					       &(struct archive_writer_params){
						       .directory = path, .segment = &segment, .before = &before},
					       &error),
			 STATUS_OK);
	assert_int_equal(journal_verifier_create(&verifier, NULL, NULL), STATUS_OK);
	assert_int_equal(archive_verify(names[0].path, verifier, copy_leaf, writer, &error), STATUS_OK);
	assert_int_equal(archive_write_checkpoint(writer, (const char *)sqlite3_column_text(row, 1), &error),
			 STATUS_OK);
	assert_int_equal(archive_writer_finish(&writer, NULL, 0, &error), STATUS_OK);
	sqlite3_finalize(row);
	journal_verifier_destroy(&verifier);
	free(names);
}

// An entry behind the newest head, with all that a row of the server's own has, and the right hash.
static void append_row(struct scene *scene)
{
	struct tree tree;
	sql(scene,
	    "INSERT INTO audit SELECT %" PRIu64 ", at_us, duration_us, count, 'owner:0', actor_name, session_id, peer, "
	    "'token.create', 'forged', node_id, device_id, 'ok', detail, leaf, bound, bound_before FROM audit WHERE "
	    "seq = %" PRIu64,
	    scene->size, scene->size - 1);
	rehash(scene, &tree);
	assert_int_equal(tree.size, scene->size + 1);
}

static void insert(struct scene *scene)
{
	const uint64_t at = scene->size - 14;
	sql(scene,
	    "UPDATE audit SET seq = -seq - 1 WHERE seq >= %" PRIu64 "; UPDATE audit SET seq = -seq WHERE seq < 0", at);
	sql(scene,
	    "INSERT INTO audit SELECT %" PRIu64
	    ", at_us, duration_us, count, 'token:innocent', actor_name, session_id, "
	    "peer, action, target, node_id, device_id, outcome, detail, leaf, bound, bound_before FROM audit WHERE seq "
	    "= %" PRIu64,
	    at, at - 1);
}

static void drop_checkpoints(struct scene *scene)
{
	sql(scene, "DELETE FROM audit_checkpoints");
}

static void drop_newest_checkpoint(struct scene *scene)
{
	sql(scene, "DELETE FROM audit_checkpoints WHERE size > (SELECT max(first) FROM audit_segments)");
}

static const struct attack {
	const char *name;
	void (*act)(struct scene *scene);
	bool sign;         // hash and sign all anew with the current key afterwards
	int without, with; // verdicts expected
} attacks[] = {
	{"an entry is edited", edit, false, 10, 10},
	{"the same, everything recomputed and signed with the current key", edit, true, 0, 12},
	{"two entries are swapped", swap, false, 10, 10},
	{"the same, recomputed and signed", swap, true, 0, 12},
	{"an entry is put in between", insert, false, 10, 10},
	{"the same, recomputed and signed", insert, true, 0, 12},
	{"the tail is cut", cut_tail, false, 11, 11},
	{"the same, and signed", cut_tail, true, 0, 11},
	{"all is cut", cut_all, false, 13, 11},
	{"another log in its place", replace_log, false, 0, 12},
	{"an old backup in its place", old_backup, false, 0, 11},
	{"an old backup that went on differently", fork_log, false, 0, 12},
	{"an older segment rewritten and signed with a newer key", older_under_newer_key, false, 10, 10},
	{"an archive is dropped", drop_archive, false, 15, 15},
	{"an archive's entries are removed, their hashes left", empty_archive, false, 10, 10},
	{"an entry is put behind the newest head", append_row, false, 16, 16},
	{"the same, recomputed and signed", append_row, true, 0, 0},
	{"all heads are deleted", drop_checkpoints, false, 13, 13},
	{"the newest head is deleted", drop_newest_checkpoint, false, 13, 13},
};

static void make_scene(struct scene *scene, struct support *support)
{
	struct audit_case test = {.support = support, .params.audit_segment_entries = SEGMENT};
	struct error error = {.status = STATUS_OK};
	struct store_audit_head head;
	assert_int_equal(audit_try_open(&test, &error), STATUS_OK);
	audit_fill_slowly(&test, 0, 100, 1);
	for (int look = 0; look < 10000 && audit_count_files(support, "*.exoaudit") < 2; look++)
		usleep(1000);
	audit_close(&test);
	snprintf(scene->directory, sizeof scene->directory, "%.120s", support->directory);
	snprintf(scene->old, sizeof scene->old, "%.120s.old", support->directory);
	shell("rm -rf '%s' && cp -a '%s' '%s'", scene->old, scene->directory, scene->old);
	assert_int_equal(audit_try_open(&test, &error), STATUS_OK);
	audit_fill_slowly(&test, 100, 5, 1);
	store_read_audit_head(test.store, &head);
	snprintf(scene->pin, sizeof scene->pin, "%s", head.note);
	scene->first_key = head.first_key;
	audit_fill_slowly(&test, 105, 10, 1);
	store_read_audit_head(test.store, &head);
	scene->size = head.checkpoint.size;
	audit_close(&test);
	audit_expect_whole(scene->directory, scene->size);
}

static int verdict(struct scene *scene, const char *pin, const struct note_key *first_key)
{
	struct audit_check check;
	const struct journal_report *report = audit_check(&check, scene->directory, pin, first_key);
	int found = report ? (int)journal_verdict_of(report) : -1;
	if (report && found && !getenv("EXOGPU_TABLE"))
		audit_print(report);
	if (!report)
		print_message("  %s\n", check.error.message);
	journal_verifier_destroy(&check.verifier);
	return found;
}

// A server neither starts on it nor signs it.
static void expect_no_start(struct scene *scene)
{
	struct support support = {.loop = NULL};
	struct audit_case test = {.support = &support};
	struct error error = {.status = STATUS_OK};
	snprintf(support.directory, sizeof support.directory, "%s", scene->directory);
	assert_int_equal(net_loop_create(&support.loop, &error), STATUS_OK);
	assert_int_equal(audit_try_open(&test, &error), STATUS_UNAVAILABLE);
	print_message("a start says: %s; %s\n", error.message, error.hint);
	net_loop_destroy(&support.loop);
	assert_int_equal(verdict(scene, NULL, NULL), JOURNAL_UNSIGNED_TAIL);
}

static void every_attack_is_found_with_a_witness(void **state)
{
	struct support *support = *state;
	struct scene scene = {.db = NULL};
	const bool table = getenv("EXOGPU_TABLE") != NULL;
	char whole[200];
	int wrong = 0;
	make_scene(&scene, support);
	snprintf(whole, sizeof whole, "%s.whole", scene.directory);
	shell("rm -rf '%s' && cp -a '%s' '%s'", whole, scene.directory, whole);
	if (table)
		print_message("| attack | alone | with a head that somebody saw |\n|---|---|---|\n");
	for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
		const struct attack *attack = &attacks[i];
		shell("rm -rf '%s' && cp -a '%s' '%s'", scene.directory, whole, scene.directory);
		open_scene(&scene);
		attack->act(&scene);
		if (attack->sign)
			resign(&scene);
		sqlite3_close(scene.db);
		int without = verdict(&scene, NULL, NULL), with = verdict(&scene, scene.pin, NULL);
		char alone[16];
		snprintf(alone, sizeof alone, "%d", without);
		if (table)
			print_message(with ? "| %s | %s | %d |\n" : "| %s | %s | not found |\n", attack->name,
				      without ? alone : "not found", with);
		else
			print_message("%s: %d alone, %d with a witness\n", attack->name, without, with);
		if (attack->act == replace_log) // its first key gives it away, to whoever kept the true one
			assert_int_equal(verdict(&scene, NULL, &scene.first_key), JOURNAL_WRONG_KEY);
		// What the key signs behind the head that was seen is the log's own, for all that anybody can tell.
		wrong += without != attack->without || with != attack->with || (!with && attack->act != append_row);
		if (attack->act == append_row && !attack->sign)
			expect_no_start(&scene);
	}
	shell("rm -rf '%s' '%s'", whole, scene.old);
	assert_int_equal(wrong, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(every_attack_is_found_with_a_witness, support_setup, support_teardown),
	};
	log_set_level(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
