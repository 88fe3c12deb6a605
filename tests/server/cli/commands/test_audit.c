/* `exogpu audit verify` and export on files alone: a data directory whose log has archives, archives by themselves,
 * witnesses' files, the first key; and the exit status of each. */
#include "common/base/log.h"
#include "tests/server/store/audit/audit_support.h"

#include <sys/wait.h>

struct scene {
	struct audit_case test;
	char head[SUPPORT_PATH_BYTES + 64], state[SUPPORT_PATH_BYTES + 64];
	char first_key[NOTE_KEY_TEXT_BYTES];
	uint64_t entries;
};

// The command's exit status, and what it printed.
static int run(const struct scene *scene, char *output, size_t size, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
static int run(const struct scene *scene, char *output, size_t size, const char *format, ...)
{
	char words[1024], command[2048];
	size_t length = 0;
	va_list args;
	va_start(args, format);
	vsnprintf(words, sizeof words, format, args);
	va_end(args);
	snprintf(command, sizeof command, "XDG_STATE_HOME='%s' '%s' audit %s 2>&1", scene->state, EXOGPU_BINARY, words);
	FILE *pipe = popen(command, "r");
	assert_non_null(pipe);
	length = fread(output, 1, size - 1, pipe);
	output[length] = 0;
	while (fread(command, 1, sizeof command, pipe) > 0)
		;
	int result = pclose(pipe);
	assert_true(WIFEXITED(result));
	return WEXITSTATUS(result);
}

#define expect(code, text, ...) \
	do { \
		char output[8192]; \
		int got = run(scene, output, sizeof output, __VA_ARGS__); \
		if (got != (code) || !strstr(output, text)) \
			fail_msg("status %d, expected %d with \"%s\": %s", got, code, text, output); \
	} while (0)

static void save_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

// Two archived segments and a third; the head of some entries before the end is in a witness's file.
static void make_scene(struct scene *scene, void **state)
{
	struct store_audit_head head;
	*scene = (struct scene){.test.params.audit_segment_entries = 50};
	audit_open(&scene->test, state);
	audit_fill_slowly(&scene->test, 0, 120, 5);
	for (int look = 0; look < 10000 && audit_count_files(scene->test.support, "*.exoaudit") < 2; look++)
		usleep(1000);
	store_read_audit_head(scene->test.store, &head);
	note_key_print(&head.first_key, scene->first_key);
	support_path(scene->test.support, "witnessed", scene->head);
	support_path(scene->test.support, "state", scene->state);
	save_text(scene->head, head.note);
	audit_fill_slowly(&scene->test, 120, 10, 5);
	store_read_audit_head(scene->test.store, &head);
	scene->entries = head.checkpoint.size;
	audit_close(&scene->test);
}

static void a_data_directory_is_verified(void **state)
{
	struct scene own, *scene = &own;
	make_scene(scene, state);
	const char *data = scene->test.support->directory;
	char entries[64];
	snprintf(entries, sizeof entries, "\"entries\":%" PRIu64, scene->entries);
	expect(0, "it holds", "verify --data '%s'", data);
	expect(0, entries, "verify --data '%s' --json", data);
	expect(0, "\"segments\":3", "verify --data '%s' --json", data);
	expect(0, "it holds", "verify --data '%s' --witness '%s' --key '%s'", data, scene->head, scene->first_key);
	expect(0, "\"code\":0", "verify --data '%s' --witness '%s' --witness '%s' --json", data, scene->head,
	       scene->head);
	expect(2, "not a signed head", "verify --data '%s' --witness '%s/state.db'", data, data);
}

static void archives_are_verified_alone(void **state)
{
	struct scene own, *scene = &own;
	char away[SUPPORT_PATH_BYTES + 64], command[1024];
	make_scene(scene, state);
	const char *data = scene->test.support->directory;
	support_path(scene->test.support, "away", away);
	snprintf(command, sizeof command, "mkdir '%s' && mv '%s'/audit/*.exoaudit '%s'", away, data, away);
	assert_int_equal(system(command), 0);
	expect(0, "it holds", "verify --archives '%s'", away);
	expect(0, "\"segments\":2", "verify --archives '%s' --json --key '%s'", away, scene->first_key);
	expect(15, "archive", "verify --data '%s'", data); // which they have left
	expect(0, "it holds", "verify --data '%s' --archives '%s'", data, away);
	snprintf(command, sizeof command,
		 "f=$(ls '%s'/*.exoaudit | tail -1); printf x | dd of=\"$f\" bs=1 seek=700 conv=notrunc "
		 "2>/dev/null",
		 away);
	assert_int_equal(system(command), 0);
	expect(10, "changed", "verify --archives '%s'", away);
	expect(1, "archives", "verify --archives '%s/nowhere'", away);
}

static void what_is_missing_is_told_by_its_status(void **state)
{
	struct scene own, *scene = &own;
	struct support *other = NULL;
	char command[1024];
	make_scene(scene, state);
	const char *data = scene->test.support->directory;
	snprintf(command, sizeof command, "rm \"$(ls '%s'/audit/*.exoaudit | head -1)\"", data);
	assert_int_equal(system(command), 0);
	expect(15, "an archive is missing", "verify --data '%s'", data);
	expect(15, "\"verdict\":\"archive_missing\"", "verify --data '%s' --json", data);
	// A log that somebody has seen elsewhere is not this one.
	void *own_state = NULL;
	assert_int_equal(support_setup(&own_state), 0);
	other = own_state;
	struct audit_case test = {.failed = 0};
	audit_open(&test, &own_state);
	audit_fill(&test, 0, 200, 10);
	audit_close(&test);
	expect(12, "another one", "verify --data '%s' --witness '%s'", other->directory, scene->head);
	expect(14, "another key", "verify --data '%s' --key '%s'", other->directory, scene->first_key);
	assert_int_equal(support_teardown(&own_state), 0);
}

static void the_export_has_archived_entries_too(void **state)
{
	struct scene own, *scene = &own;
	char file[SUPPORT_PATH_BYTES + 64], command[1024], line[64] = "";
	make_scene(scene, state);
	const char *data = scene->test.support->directory;
	support_path(scene->test.support, "export", file);
	snprintf(command, sizeof command, "%" PRIu64 " entries", scene->entries);
	expect(0, command, "export --data '%s' '%s'", data, file);
	snprintf(command, sizeof command, "wc -l < '%s'; stat -c %%a '%s'", file, file);
	FILE *count = popen(command, "r");
	assert_non_null(count);
	assert_non_null(fgets(line, sizeof line, count));
	assert_int_equal(strtoull(line, NULL, 10), scene->entries);
	assert_non_null(fgets(line, sizeof line, count));
	assert_string_equal(line, "600\n");
	pclose(count);
	expect(0, "seq,at,duration_ms", "export --data '%s' --format csv", data);
	snprintf(command, sizeof command, "rm \"$(ls '%s'/audit/*.exoaudit | head -1)\"", data);
	assert_int_equal(system(command), 0);
	expect(15, "cannot be trusted", "export --data '%s' '%s'", data, file);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_data_directory_is_verified),
		TEST(archives_are_verified_alone),
		TEST(what_is_missing_is_told_by_its_status),
		TEST(the_export_has_archived_entries_too),
	};
	log_set_level(LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
