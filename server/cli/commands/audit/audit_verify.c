/* `exogpu audit verify`: reads the whole log from the files, without a server, and says whether it is what was written.
 *
 * What is compared beside the log itself: the head that this user saw last (pins.h), files of witnesses, and the first
 * key as it was kept somewhere else. The exit status is the verdict. */
#include "common/base/clock.h"
#include "common/files/paths.h"
#include "common/files/private_file.h"
#include "common/journal/archive.h"
#include "common/text/base64.h"
#include "server/cli/commands/audit/audit.h"
#include "server/cli/format.h"
#include "server/store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct verification {
	const struct cli_arguments *arguments;
	struct journal_verifier *verifier;
	char directory[4096], place[4200];
	struct pin pin;
	bool pinned, has_head;
	struct pin_head head; // the newest, as it stands in the database
	char note[NOTE_BYTES];
	int64_t began_ns;
};

const char *audit_verdict_text(enum journal_verdict verdict)
{
	switch (verdict) {
	case JOURNAL_HOLDS:
		return "it holds";
	case JOURNAL_MODIFIED:
		return "it was changed";
	case JOURNAL_TRUNCATED:
		return "it was cut";
	case JOURNAL_FORKED:
		return "it is not the log that others have seen";
	case JOURNAL_BAD_SIGNATURE:
		return "a signature is missing or wrong";
	case JOURNAL_WRONG_KEY:
		return "a key signed what it could not have";
	case JOURNAL_ARCHIVE_MISSING:
		return "an archive is missing";
	case JOURNAL_UNSIGNED_TAIL:
		return "all holds, but no signed head covers the newest entries, as the server leaves none";
	}
	return "it is not known";
}

// ---- what others remember ----

static enum status remember_file(struct verification *verification, const char *path, struct error *error)
{
	struct buffer note;
	char piece[4096];
	ssize_t length = 0;
	buffer_init(&note, NOTE_BYTES);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	enum status status = fd < 0 ? error_errno(error, STATUS_INVALID_PARAMS, errno, "cannot read %.200s", path)
				    : STATUS_OK;
	while (!status && (length = read(fd, piece, sizeof(piece))) > 0)
		status = buffer_append(&note, piece, (size_t)length);
	if (fd >= 0)
		close(fd);
	if (!status && (length < 0 || strlen(buffer_text(&note)) != note.length))
		status = STATUS_INVALID_PARAMS;
	if (!status)
		status = journal_remember(verification->verifier, buffer_text(&note), path, error);
	buffer_finish(&note);
	if (status) // unless more is known
		error_set(error, status, "%.200s is not a signed head", path);
	if (status)
		error_hint(error, "a witness is a file that holds a signed head (a checkpoint) of this log");
	return status;
}

static enum status remember_witnesses(struct verification *verification, struct error *error)
{
	enum status status = STATUS_OK;
	for (size_t i = 0; i < FLAGS_MANY && verification->arguments->witness[i] && !status; i++)
		status = remember_file(verification, verification->arguments->witness[i], error);
	return status;
}

static void compare_pin(struct verification *verification, const struct note_key *first_key)
{
	const struct pin *pin = &verification->pin;
	struct error error = {.status = STATUS_OK};
	if (pin->place_origin[0] && strcmp(pin->place_origin, first_key->name) != 0)
		journal_report_finding(verification->verifier, JOURNAL_FORKED, 0,
				       "the log that you saw here before was %s; if this one was started on purpose, "
				       "remove %.120s",
				       pin->place_origin, pin->place_path);
	if (!pin->there)
		return;
	if (memcmp(pin->first_key.public_key, first_key->public_key, NOTE_KEY_BYTES) != 0)
		journal_report_finding(verification->verifier, JOURNAL_WRONG_KEY, 0,
				       "the log's first key is not the one that you saw before");
	journal_remember(verification->verifier, pin->note, "the head that you saw last", &error);
}

static void begin(void *context, const struct store_audit_head *head)
{
	struct verification *verification = context;
	struct error error = {.status = STATUS_OK};
	if (pin_load(&verification->pin, head->first_key.name, verification->place, &error)) {
		fprintf(stderr, "exogpu: no head is remembered: %s\n", error.message);
		return;
	}
	verification->pinned = true;
	compare_pin(verification, &head->first_key);
	verification->has_head = head->note[0] && snprintf(verification->note, sizeof(verification->note), "%s",
							   head->note) < (int)sizeof(verification->note);
	verification->head = (struct pin_head){
		.note = verification->note, .key = head->key, .first_key = head->first_key};
}

// The head was verified with the log.
static void keep_head(struct verification *verification)
{
	struct error error = {.status = STATUS_OK};
	if (verification->pinned && verification->has_head &&
	    note_check(verification->head.note, &verification->head.key, NULL) &&
	    pin_save(&verification->pin, &verification->head, &error))
		fprintf(stderr, "exogpu: this head is not remembered: %s\n", error.message);
}

// ---- reading ----

static enum status read_archives(struct verification *verification, struct error *error)
{
	struct archive_name *names = NULL;
	size_t count = 0;
	enum status status = archive_list(verification->arguments->archives, &names, &count, error);
	if (!status && !count)
		status = error_set(error, STATUS_NOT_FOUND, "there are no archives in %.200s",
				   verification->arguments->archives);
	journal_verify_part(verification->verifier);
	for (size_t i = 0; i < count && !status; i++)
		status = archive_verify(names[i].path, verification->verifier, NULL, NULL, error);
	free(names);
	return status;
}

// Without --data, --archives alone: archives by themselves.
static enum status read_log(struct verification *verification, struct error *error)
{
	const struct cli_arguments *arguments = verification->arguments;
	char real[PATH_MAX];
	if (arguments->archives && !arguments->data)
		return read_archives(verification, error);
	enum status status = paths_data_directory(arguments->data, verification->directory,
						  sizeof(verification->directory), error);
	if (status)
		return status;
	snprintf(verification->place, sizeof(verification->place), "%.4095s",
		 realpath(verification->directory, real) ? real : verification->directory);
	return store_audit_offline(&(struct store_offline_params){.directory = verification->directory,
								  .archives = arguments->archives,
								  .verifier = verification->verifier,
								  .begin = begin,
								  .context = verification},
				   error);
}

// ---- saying it ----

static void print_findings(const struct journal_report *report)
{
	size_t count = report->finding_count < JOURNAL_FINDINGS ? report->finding_count : JOURNAL_FINDINGS;
	for (size_t i = 0; i < count; i++) {
		char line[400];
		snprintf(line, sizeof(line), "%d  entry %" PRIu64 ": %s", (int)report->findings[i].verdict,
			 report->findings[i].seq, report->findings[i].text);
		command_print_text(stdout, "  ", line);
	}
	if (report->finding_count > count)
		printf("  and %zu more\n", report->finding_count - count);
}

static void print_report(const struct verification *verification, const struct journal_report *report)
{
	char key[NOTE_KEY_TEXT_BYTES], root[BASE64_TEXT_BYTES(TREE_HASH_BYTES)];
	struct buffer limits;
	note_key_print(&report->first_key, key);
	base64_encode(report->root.bytes, TREE_HASH_BYTES, root);
	printf("The audit log %s: %s.\n\n", report->origin, audit_verdict_text(journal_verdict_of(report)));
	print_findings(report);
	if (report->finding_count)
		printf("\n");
	printf("  entries    %" PRIu64 ", of which %" PRIu64 " are kept only as hashes\n", report->entries,
	       report->pruned);
	printf("  signed     %" PRIu64 "%s%s\n", report->signed_entries,
	       report->last_checkpoint_at[0] ? ", the newest of " : "", report->last_checkpoint_at);
	printf("  segments   %" PRIu64 "\n", report->segments);
	printf("  root       %s\n", root);
	printf("  first key  %s\n", key);
	if (!report->first_key_given)
		printf("             trusted without proof; compare it with a copy that is kept elsewhere: "
		       "--key\n");
	if (verification->pinned && verification->pin.there)
		printf("  you saw    %" PRIu64 " entries before\n", verification->pin.checkpoint.size);
	buffer_init(&limits, NOTE_BYTES);
	journal_limits_print(report, &limits);
	printf("\n%s\n", buffer_text(&limits));
	buffer_finish(&limits);
}

static int conclude(struct verification *verification, struct error *error)
{
	const struct journal_report *report = journal_verify_end(verification->verifier);
	enum journal_verdict verdict = journal_verdict_of(report);
	int result = (int)verdict;
	if (!verdict || verdict == JOURNAL_UNSIGNED_TAIL)
		keep_head(verification);
	if (verification->arguments->json) {
		struct json *json = store_audit_report_json(report);
		json_set_number(json, "took_ms", (double)(clock_steady_ns() - verification->began_ns) / 1e6);
		if (command_print_json(json, error))
			result = 1;
		json_destroy(&json);
	} else {
		print_report(verification, report);
	}
	if (result)
		error_set(error, STATUS_CONFLICT, "the audit log: %s", audit_verdict_text(verdict));
	return result;
}

static const char *witness_text(const char *state)
{
	static const struct {
		const char *state, *text;
	} texts[] = {
		{"agrees", "agrees"},
		{"conflicts", "holds another log"},
		{"ahead", "holds more than this log, which was cut or restored from an older copy"},
		{"none", "holds no head yet"},
		{"silent", "did not answer in time"},
		{"offline", "is offline"},
		{"unusable", "gave no usable answer"},
	};
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (!strcmp(texts[i].state, state))
			return texts[i].text;
	return "could not be compared";
}

static void print_witnesses(const struct json *witnesses)
{
	if (!json_count(witnesses))
		printf("No node has been asked what it holds: none has witnessed since the server was started.\n");
	for (const struct json *one = json_first(witnesses); one; one = json_next(one)) {
		char line[700];
		const char *reason = json_get_string(one, "reason", NULL);
		int64_t size = json_get_integer(one, "size", -1);
		int length = snprintf(line, sizeof(line), "witness %.128s  %s", json_get_string(one, "name", ""),
				      witness_text(json_get_string(one, "state", "")));
		if (size >= 0)
			length += snprintf(line + length, sizeof(line) - (size_t)length, ", %" PRId64 " entries", size);
		if (reason)
			snprintf(line + length, sizeof(line) - (size_t)length, ": %.384s", reason);
		command_print_text(stdout, "  ", line);
	}
}

// The server's own word, and its head beside the one that was seen last.
static int ask_server(const struct cli_arguments *arguments, struct error *error)
{
	struct target target;
	struct client *client = NULL;
	struct json *answer = NULL;
	enum { VERIFY_MS = 600000 };
	int result = command_open(arguments, &target, &client, error);
	if (result)
		return result;
	struct client_wait wait = {.timeout_ms = VERIFY_MS, .result = &answer};
	result = client_send(client, &(struct client_call){.method = "audit.verify"}, &wait.id, error) ||
				 client_wait(client, &wait, error)
			 ? 1
			 : 0;
	if (!result && arguments->json) {
		result = command_print_json(answer, error) ? 1 : 0;
	} else if (!result) {
		command_say(stdout, "The server says of its audit log %s: %s.", json_get_string(answer, "origin", ""),
			    json_get_string(answer, "verdict", ""));
		for (const struct json *one = json_first(json_get(answer, "findings")); one; one = json_next(one))
			command_print_text(stdout, "  ", json_get_string(one, "text", ""));
		print_witnesses(json_get(answer, "witnesses"));
		command_print_text(stdout, "", json_get_string(answer, "limits", ""));
	}
	if (!result && (result = (int)json_get_integer(answer, "code", 1)))
		error_set(error, STATUS_CONFLICT, "the audit log: %s", json_get_string(answer, "verdict", ""));
	if (!result)
		result = audit_compare_pin(client, &target, error);
	json_destroy(&answer);
	client_close(&client);
	return result;
}

static int run(const struct cli_arguments *arguments, struct error *error)
{
	struct note_key key;
	struct verification *verification = NULL;
	if (arguments->url && !arguments->archives)
		return ask_server(arguments, error);
	if (arguments->key && note_key_parse(&key, arguments->key)) {
		error_set(error, STATUS_INVALID_PARAMS, "--key is not a key of an audit log");
		error_hint(error,
			   "it looks like exogpu-audit-…+8 hexadecimal digits+Base64, as the first start printed it");
		return 2;
	}
	verification = calloc(1, sizeof(*verification));
	if (!verification || journal_verifier_create(&verification->verifier, NULL, arguments->key ? &key : NULL)) {
		free(verification);
		error_set(error, STATUS_OUT_OF_MEMORY, "no memory to verify with");
		return 1;
	}
	verification->arguments = arguments;
	verification->began_ns = clock_steady_ns();
	int result = remember_witnesses(verification, error) ? 2 : 0;
	if (!result)
		result = read_log(verification, error) ? 1 : conclude(verification, error);
	journal_verifier_destroy(&verification->verifier);
	free(verification);
	return result;
}

static const struct flag flags[] = {
	{"archives", "DIR", "where the archives are (default DIR/audit); without --data: archives by themselves",
	 offsetof(struct cli_arguments, archives)},
	{"witness", "FILE...", "a head that somebody else kept; may be repeated",
	 offsetof(struct cli_arguments, witness)},
	{"key", "VKEY", "the log's first key, kept elsewhere", offsetof(struct cli_arguments, key)},
	{0},
};

const struct cli_command audit_verify_command = {
	.name = "audit verify",
	.summary = "check that the audit log is complete and unchanged",
	.more = "Reads the files of the data directory; no server is needed or trusted. With --url the server says.\n"
		"Exit status: 0 all holds, 10 changed, 11 cut, 12 another log than others have seen, 13 a signature "
		"is\n"
		"missing or wrong, 14 a key signed what it could not have, 15 an archive is missing, 16 all holds but "
		"the\n"
		"newest entries, which no signed head covers; 1 it could not be read, 2 bad usage.\n",
	.flags = flags,
	.run = run,
};
