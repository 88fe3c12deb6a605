/* Shared by the tests of the audit log: a store with entries, and the log verified as the command line does it. */
#pragma once
#include "common/text/base64.h"
#include "server/store/store.h"
#include "tests/server/store/support.h"

#include <inttypes.h>

struct audit_case {
	struct support *support;
	struct store_params params;
	struct store *store;
	int done;             // batches
	unsigned failed;      // of them
	uint64_t told, wrong; // entries that the listener heard of; those out of order
	int answered;
	enum status status; // of the last answer
	struct json *answer;
};

static inline void audit_heard(void *context, const struct journal_entry *entry)
{
	struct audit_case *test = context;
	if (entry->seq != test->told)
		test->wrong++;
	test->told++;
}

static inline void audit_batch_done(void *context, enum status status, const struct error *error)
{
	struct audit_case *test = context;
	(void)error;
	test->failed += status != STATUS_OK;
	test->done++;
}

static inline void audit_answered(void *context, enum status status, struct json *result, const struct error *error)
{
	struct audit_case *test = context;
	json_destroy(&test->answer);
	test->answer = result;
	test->status = status;
	if (status)
		print_message("answer: %s\n", error->message);
	test->answered++;
}

static inline enum status audit_try_open(struct audit_case *test, struct error *error)
{
	test->params.loop = test->support->loop;
	test->params.directory = test->support->directory;
	enum status status = store_create(&test->store, &test->params, error);
	if (!status)
		store_listen_audit(test->store, audit_heard, test);
	return status;
}

static inline void audit_open(struct audit_case *test, void **state)
{
	struct error error = {.status = STATUS_OK};
	test->support = *state;
	if (audit_try_open(test, &error))
		fail_msg("%s; %s", error.message, error.hint);
}

static inline void audit_close(struct audit_case *test)
{
	json_destroy(&test->answer);
	store_destroy(&test->store);
}

// Texts that differ from entry to entry, with what needs care in them.
static inline enum status audit_put_one(struct store_batch *batch, uint64_t number)
{
	char target[32], detail[64], device[16];
	snprintf(target, sizeof target, "alloc_%" PRIu64, number);
	snprintf(detail, sizeof detail, "{\"bytes\":%" PRIu64 ",\"why\":\"\xc3\xa4 \\\" %%\"}", number * 4096);
	snprintf(device, sizeof device, "dev_%" PRIu64, number % 3);
	const struct journal_entry entry = {
		.at_us = 1700000000000000 + (int64_t)number * 1000,
		.duration_us = number % 2 ? (int64_t)number : 0,
		.count = 1 + number % 5,
		.actor = number % 7 ? "token:one" : "owner:0",
		.actor_name = "\xe6\xb5\x8b",
		.session_id = "ses_1",
		.peer = "127.0.0.1",
		.action = number % 4 ? "memory.allocate" : "token.create",
		.target = target,
		.node_id = "nod_1",
		.device_id = number % 4 ? device : "",
		.outcome = number % 10 ? "ok" : "out_of_memory",
		.detail = detail,
	};
	return store_put_audit(batch, &entry);
}

// Commit `count` entries, `each` to a batch, and wait for them.
static inline void audit_fill(struct audit_case *test, uint64_t from, uint64_t count, uint64_t each)
{
	int wanted = test->done;
	for (uint64_t number = from; number < from + count;) {
		struct store_batch *batch;
		assert_int_equal(store_batch_create(&batch), STATUS_OK);
		for (uint64_t i = 0; i < each && number < from + count; i++, number++)
			assert_int_equal(audit_put_one(batch, number), STATUS_OK);
		assert_int_equal(store_commit(test->store, &batch, audit_batch_done, test), STATUS_OK);
		wanted++;
		if (wanted % 512 == 0)
			support_run_until(test->support->loop, &test->done, wanted);
	}
	support_run_until(test->support->loop, &test->done, wanted);
}

// The same, a commit for each batch.
static inline void audit_fill_slowly(struct audit_case *test, uint64_t from, uint64_t count, uint64_t each)
{
	for (uint64_t number = from; number < from + count; number += each)
		audit_fill(test, number, from + count - number < each ? from + count - number : each, each);
}

// A report of the directory's log; NULL with *status if it cannot be read. `remembered` may be NULL.
struct audit_check {
	struct journal_verifier *verifier;
	enum status status;
	struct error error;
};

static inline const struct journal_report *audit_check(struct audit_check *check, const char *directory,
						       const char *remembered, const struct note_key *first_key)
{
	check->error = (struct error){.status = STATUS_OK};
	assert_int_equal(journal_verifier_create(&check->verifier, NULL, first_key), STATUS_OK);
	if (remembered)
		assert_int_equal(journal_remember(check->verifier, remembered, "a witness", &check->error), STATUS_OK);
	check->status = store_audit_offline(
		&(struct store_offline_params){.directory = directory, .verifier = check->verifier}, &check->error);
	return check->status ? NULL : journal_verify_end(check->verifier);
}

static inline void audit_print(const struct journal_report *report)
{
	for (size_t i = 0; i < report->finding_count && i < JOURNAL_FINDINGS; i++)
		print_message("  %d at %" PRIu64 ": %s\n", (int)report->findings[i].verdict, report->findings[i].seq,
			      report->findings[i].text);
}

// It holds, and has this many entries.
static inline void audit_expect_whole(const char *directory, uint64_t entries)
{
	struct audit_check check;
	const struct journal_report *report = audit_check(&check, directory, NULL, NULL);
	if (!report)
		fail_msg("%s", check.error.message);
	if (journal_verdict_of(report)) {
		audit_print(report);
		fail_msg("verdict %d of %" PRIu64 " entries", (int)journal_verdict_of(report), report->entries);
	}
	if (report->entries != entries)
		fail_msg("%" PRIu64 " entries, %" PRIu64 " expected", report->entries, entries);
	journal_verifier_destroy(&check.verifier);
}

static inline int audit_count_files(const struct support *support, const char *pattern)
{
	char command[SUPPORT_PATH_BYTES + 128], line[32] = "";
	snprintf(command, sizeof command, "ls '%s'/audit/%s 2>/dev/null | wc -l", support->directory, pattern);
	FILE *list = popen(command, "r");
	if (!list || !fgets(line, sizeof line, list))
		line[0] = 0;
	if (list)
		pclose(list);
	return (int)strtol(line, NULL, 10);
}
