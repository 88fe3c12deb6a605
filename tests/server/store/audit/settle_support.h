/* Shared by the tests of bound rows that are refused: settled as `exogpu audit settle` does it. */
#pragma once
#include "tests/server/store/audit/bound_support.h"

struct settled {
	size_t gone, left;
};

static inline void count_settled(void *context, const struct store_settled *row)
{
	struct settled *settled = context;
	settled->gone += row->gone;
	settled->left += !row->gone;
}

// One row, or all that are refused; both NULL and false: nothing.
static inline enum status settle(struct audit_case *test, const char *subject, bool all, struct settled *settled)
{
	struct error error = {.status = STATUS_OK};
	const struct store_settling settling = {.subjects = &subject,
						.count = subject != NULL,
						.all = all,
						.actor = "owner:7",
						.row = count_settled,
						.context = settled};
	*settled = (struct settled){.gone = 0};
	test->params.settling = &settling;
	enum status status = audit_try_open(test, &error);
	if (status)
		print_message("%s\n", error.message);
	audit_close(test);
	test->params.settling = NULL;
	return status;
}

struct telling {
	const char *subject; // NULL: any
	uint64_t count;
};

static inline void count_entry(void *context, const struct journal_entry *entry)
{
	struct telling *telling = context;
	if (!strcmp(entry->action, "state.settle") && !strcmp(entry->actor, "owner:7") &&
	    (!telling->subject || !strcmp(telling->subject, entry->target)))
		telling->count += entry->count;
}

// Rows that entries tell as settled, in archives too.
static inline uint64_t count_entries(const struct support *support, const char *subject)
{
	struct telling telling = {.subject = subject};
	struct journal_verifier *verifier;
	assert_int_equal(journal_verifier_create(&verifier, NULL, NULL), STATUS_OK);
	assert_int_equal(store_audit_offline(&(struct store_offline_params){.directory = support->directory,
									    .verifier = verifier,
									    .entry = count_entry,
									    .context = &telling},
					     &(struct error){.status = STATUS_OK}),
			 STATUS_OK);
	journal_verifier_destroy(&verifier);
	return telling.count;
}

// The way out: what is refused is gone, what held stays, the log holds, and no copy of before starts any more.
static inline void expect_settled(struct audit_case *test, void **own, const char *subject, const char *refused)
{
	struct settled settled;
	struct loaded loaded;
	struct error error = {.status = STATUS_OK};
	copy_state(test->support, "state.db", "tampered.db");
	assert_int_equal(settle(test, NULL, false, &settled), STATUS_OK);
	assert_int_equal(settled.gone, 0);
	assert_true(settled.left > 0);
	expect_found(test->support, subject); // only looked at
	assert_int_equal(settle(test, "token nosuchrow", false, &settled), STATUS_NOT_FOUND);
	assert_int_equal(settle(test, subject, false, &settled), STATUS_OK);
	assert_true(settled.gone > 0);
	assert_int_equal(count_entries(test->support, subject), 1);
	assert_int_equal(settle(test, NULL, true, &settled), STATUS_OK); // what is left, if anything
	assert_int_equal(settled.left, 0);
	expect_found(test->support, NULL);
	audit_open(test, own);
	load(test, &loaded);
	assert_false(refused[0] && has(&loaded, refused));
	audit_close(test);
	copy_state(test->support, "state.db", "settled.db");
	copy_state(test->support, "tampered.db", "state.db");
	assert_int_equal(audit_try_open(test, &error), STATUS_UNAVAILABLE);
	copy_state(test->support, "settled.db", "state.db");
}
