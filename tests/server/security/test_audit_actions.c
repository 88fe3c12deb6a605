/* The table of actions: what it allows, and that docs/audit.md has it as it is. EXOGPU_WRITE_DOCS=1 writes it there. */
#include "server/security/audit.h"
#include "server/security/audit_actions.h"
#include "tests/server/store/support.h"

#include <stdlib.h>

static const char document[] = TESTS_DIR "/../docs/audit.md";
static const char begins[] = "<!-- actions: made from server/security/audit_actions.c -->\n";
static const char ends[] = "<!-- actions end -->\n";

static char *read_document(void)
{
	FILE *file = fopen(document, "rb");
	char *text = calloc(1, 1 << 20);
	assert_non_null(file);
	assert_non_null(text);
	assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
	fclose(file);
	return text;
}

static void write_document(const char *text, const char *from, const char *to, const char *table)
{
	FILE *file = fopen(document, "wb");
	assert_non_null(file);
	assert_true(fprintf(file, "%.*s%s%s", (int)(from - text), text, table, to) > 0);
	assert_int_equal(fclose(file), 0);
}

static void the_document_has_the_table(void **state)
{
	(void)state;
	struct buffer table;
	buffer_init(&table, 1 << 16);
	assert_int_equal(audit_actions_print(&table), STATUS_OK);
	char *text = read_document(), *from = strstr(text, begins), *to = strstr(text, ends);
	assert_non_null(from);
	assert_true(to > from);
	from += sizeof begins - 1;
	if (getenv("EXOGPU_WRITE_DOCS"))
		write_document(text, from, to, buffer_text(&table));
	else if ((size_t)(to - from) != table.length || memcmp(from, buffer_text(&table), table.length) != 0)
		fail_msg("docs/audit.md has another table of actions than server/security/audit_actions.c: run this "
			 "test with EXOGPU_WRITE_DOCS=1");
	free(text);
	buffer_finish(&table);
}

static void actions_are_named_once_and_in_their_order(void **state)
{
	(void)state;
	size_t count;
	const struct audit_action *actions = audit_actions(&count);
	for (size_t i = 0; i < count; i++) {
		if (audit_action_find(actions[i].name) != &actions[i])
			fail_msg("%s is there twice", actions[i].name);
		if (i && actions[i].when < actions[i - 1].when)
			fail_msg("%s stands too late", actions[i].name);
		assert_true(strlen(actions[i].name) < 48 && actions[i].tells[0]);
	}
}

static void an_entry_is_written_as_the_table_says(void **state)
{
	(void)state;
	static const struct {
		enum audit_use use;
		const char *action;
		enum status outcome;
		bool allowed;
	} cases[] = {
		{AUDIT_USE_PUT, "instance.failed", STATUS_DEVICE_LOST, true},
		{AUDIT_USE_COUNT, "instance.failed", STATUS_DEVICE_LOST, false}, // nobody asked: it is a change
		{AUDIT_USE_TELL, "instance.failed", STATUS_DEVICE_LOST, false},
		{AUDIT_USE_COUNT, "instance.moved", STATUS_OK, false},
		{AUDIT_USE_WRITE, "instance.placed_anew", STATUS_OK, false}, // not in the transaction of the change
		{AUDIT_USE_COUNT, "instance.create", STATUS_OK, false},
		{AUDIT_USE_WRITE, "instance.create", STATUS_OK, true},
		{AUDIT_USE_TELL, "instance.create", STATUS_OUT_OF_MEMORY, true},
		{AUDIT_USE_COUNT, "token.create", STATUS_FORBIDDEN, true},
		{AUDIT_USE_COUNT, "token.create", STATUS_OK, false},
		{AUDIT_USE_WRITE, "token.create", STATUS_OK, false},
		{AUDIT_USE_COUNT, "session.device_lost", STATUS_DEVICE_LOST, false},
		{AUDIT_USE_COUNT, "compute.launch", STATUS_OK, true},
		{AUDIT_USE_PUT, "compute.launch", STATUS_OK, false},
		{AUDIT_USE_COUNT, "memory.free", STATUS_NOT_FOUND, true},
		{AUDIT_USE_TELL, "memory.free", STATUS_OK, true},
		{AUDIT_USE_COUNT, "cluster.snapshot", STATUS_FORBIDDEN, true}, // a method that changes nothing
		{AUDIT_USE_COUNT, "cluster.snapshot", STATUS_OK, false},
		{AUDIT_USE_PUT, "cluster.snapshot", STATUS_FORBIDDEN, false},
		{AUDIT_USE_PUT, "made.up", STATUS_OK, false},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (audit_action_allows(cases[i].use, cases[i].action, cases[i].outcome) != cases[i].allowed)
			fail_msg("%s (%s) by way %d is%s allowed", cases[i].action, status_word(cases[i].outcome),
				 cases[i].use, cases[i].allowed ? " not" : "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_document_has_the_table),
		cmocka_unit_test(actions_are_named_once_and_in_their_order),
		cmocka_unit_test(an_entry_is_written_as_the_table_says),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
