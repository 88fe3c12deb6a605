/* `exogpu audit export`: the log's entries as lines of JSON or CSV, archived ones too, verified on the way. */
#include "common/base/clock.h"
#include "common/files/paths.h"
#include "server/cli/commands/audit/audit.h"
#include "server/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

struct export
{
	FILE *out;
	bool csv;
	int64_t from_us, to_us; // 0: open
	uint64_t count;
	struct buffer line;
};

static void print_cell(FILE *out, const char *text)
{
	// A spreadsheet takes what begins like a formula for one.
	const char *guard = text[0] && strchr("=+-@\t\r", text[0]) ? "'" : "";
	fprintf(out, "\"%s", guard);
	for (; *text; text++) {
		if (*text == '"')
			fputc('"', out);
		fputc(*text, out);
	}
	fputs("\",", out);
}

// "KIND ID SHA-256; KIND ID -": the rows that the entry binds.
static void print_bound(FILE *out, const char *bound)
{
	fputc('"', out);
	for (size_t line; *bound; bound += line) {
		line = strcspn(bound, "\n");
		for (size_t i = 0; i < line; i++) {
			if (bound[i] == '"')
				fputc('"', out);
			fputc(bound[i], out);
		}
		line += bound[line] == '\n';
		if (bound[line])
			fputs("; ", out);
	}
	fputs("\"\n", out);
}

static void print_csv(struct export *export, const struct journal_entry *entry)
{
	char at[CLOCK_TEXT_BYTES];
	fprintf(export->out, "%" PRIu64 ",%s,%" PRId64 ".%03d,%" PRIu64 ",", entry->seq,
		clock_format(entry->at_us / 1000, at), entry->duration_us / 1000, (int)(entry->duration_us % 1000),
		entry->count);
#define X(name) print_cell(export->out, entry->name);
	ENTRY_TEXT_LIST(X)
#undef X
	print_bound(export->out, entry->bound ? entry->bound : "");
}

static void print_entry(void *context, const struct journal_entry *entry)
{
	struct export *export = context;
	if ((export->from_us && entry->at_us < export->from_us) || (export->to_us && entry->at_us >= export->to_us))
		return;
	export->count++;
	if (export->csv) {
		print_csv(export, entry);
		return;
	}
	struct json *json = store_audit_json(entry);
	buffer_clear(&export->line);
	if (!json_print(json, &export->line))
		fprintf(export->out, "%s\n", buffer_text(&export->line));
	json_destroy(&json);
}

static enum status export_log(const struct cli_arguments *arguments, struct export *export, int *verdict,
			      struct error *error)
{
	char directory[4096];
	struct journal_verifier *verifier = NULL;
	enum status status = paths_data_directory(arguments->data, directory, sizeof(directory), error);
	if (!status && journal_verifier_create(&verifier, NULL, NULL))
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory to verify with");
	if (!status && export->csv) {
		fputs("seq,at,duration_ms,count", export->out);
#define X(name) fputs("," #name, export->out);
		ENTRY_TEXT_LIST(X)
#undef X
		fputs(",bound\n", export->out);
	}
	if (!status)
		status = store_audit_offline(&(struct store_offline_params){.directory = directory,
									    .archives = arguments->archives,
									    .verifier = verifier,
									    .entry = print_entry,
									    .context = export},
					     error);
	if (!status)
		*verdict = (int)journal_verdict_of(journal_verify_end(verifier));
	journal_verifier_destroy(&verifier);
	return status;
}

static int run(const struct cli_arguments *arguments, struct error *error)
{
	struct export export = {.out = stdout};
	const char *format = arguments->format ? arguments->format : "jsonl";
	int64_t from_ms, to_ms;
	int verdict = 0;
	if (audit_time("from", arguments->from, &from_ms, error) || audit_time("to", arguments->to, &to_ms, error))
		return 2;
	if (strcmp(format, "jsonl") != 0 && strcmp(format, "csv") != 0) {
		error_set(error, STATUS_INVALID_PARAMS, "--format takes jsonl or csv");
		return 2;
	}
	if (arguments->url) {
		error_set(error, STATUS_INVALID_PARAMS, "audit export reads the files of a data directory");
		error_hint(error, "run it where the server's data directory is; audit list --json asks a server");
		return 2;
	}
	export.csv = !strcmp(format, "csv");
	export.from_us = from_ms * 1000;
	export.to_us = to_ms * 1000;
	if (arguments->operand) {
		int fd = open(arguments->operand, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
		export.out = fd < 0 ? NULL : fdopen(fd, "w");
		if (!export.out) {
			error_errno(error, STATUS_UNAVAILABLE, errno, "cannot write %.200s", arguments->operand);
			return 1;
		}
	}
	buffer_init(&export.line, 8 * ENTRY_BYTES);
	int result = export_log(arguments, &export, &verdict, error) ? 1 : 0;
	buffer_finish(&export.line);
	int failed = fflush(export.out) ? errno : 0;
	if (export.out != stdout && fclose(export.out) && !failed)
		failed = errno;
	if (!result && failed) {
		error_errno(error, STATUS_UNAVAILABLE, failed, "the export could not be written");
		result = 1;
	}
	if (!result)
		fprintf(stderr, "%" PRIu64 " entries\n", export.count);
	if (!result && verdict) {
		error_set(error, STATUS_CONFLICT, "the export cannot be trusted: %s",
			  audit_verdict_text((enum journal_verdict)verdict));
		error_hint(error, "see: exogpu audit verify");
		result = verdict;
	}
	return result;
}

static const struct flag flags[] = {
	{"from", "TIME", "only from this time on: 2026-11-21, 2026-11-21T08:00:00Z, or 24h",
	 offsetof(struct cli_arguments, from)},
	{"to", "TIME", "only before this time", offsetof(struct cli_arguments, to)},
	{"format", "FORMAT", "jsonl (default) or csv", offsetof(struct cli_arguments, format)},
	{"archives", "DIR", "where the archives are (default DIR/audit)", offsetof(struct cli_arguments, archives)},
	{0},
};

const struct cli_command audit_export_command = {
	.name = "audit export",
	.operand = "[FILE]",
	.summary = "write the audit log's entries to a file or standard output",
	.more = "Reads the files of the data directory, archives too, and verifies them on the way; if the log does "
		"not\n"
		"hold the exit status is that of audit verify. A server that runs on it is not disturbed.\n",
	.flags = flags,
	.run = run,
};
