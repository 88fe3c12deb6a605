/* `exogpu model catalog`: the models that are offered for download, and what would become of each here. */
#include "server/cli/commands/commands.h"
#include "server/cli/format.h"

#include <string.h>

static const struct table_column columns[] = {
	{.title = "MODEL", .narrowest = 16},
	{.title = "PARAMETERS", .right = true, .leave_out = 2},
	{.title = "SIZE", .right = true},
	{.title = "LICENCE", .leave_out = 4},
	{.title = "STATE"},
	{.title = "FITS"},
	{.title = "TOKENS/S", .right = true},
	{.title = "LANGUAGES", .narrowest = 12, .leave_out = 5},
	{.title = "SOURCE", .narrowest = 24, .leave_out = 1},
};

static void add_fit(struct table *table, const struct json *entry)
{
	char text[FORMAT_BYTES];
	const char *fits = json_get_string(entry, "fits", "");
	const int64_t missing = json_get_integer(entry, "missing_bytes", -1);
	if (!strcmp(fits, "device"))
		table_add(table, TONE_GOOD, "one device");
	else if (!strcmp(fits, "devices"))
		table_add(table, TONE_ATTENTION, "several devices");
	else if (strcmp(fits, "no") != 0)
		table_add(table, TONE_FAINT, "not known");
	else if (missing > 0)
		table_add(table, TONE_BAD, "no: %s more", format_memory(missing, text));
	else
		table_add(table, TONE_BAD, "no");
}

static void add_row(struct table *table, const struct json *entry)
{
	char text[FORMAT_BYTES];
	const int64_t parameters = json_get_integer(entry, "parameters", 0);
	const double rate = json_get_number(entry, "predicted_tokens_per_s", -1);
	const char *state = json_get_string(entry, "state", "");
	table_add(table, TONE_PLAIN, "%s", json_get_string(entry, "name", ""));
	table_add(table, TONE_PLAIN, "%s", parameters ? format_count((double)parameters, text) : "unverified");
	table_add(table, TONE_PLAIN, "%s", format_memory(json_get_integer(entry, "bytes", -1), text));
	table_add(table, TONE_PLAIN, "%s", json_get_string(entry, "licence", "unverified"));
	table_add(table, !strcmp(state, "loaded") ? TONE_GOOD : TONE_PLAIN, "%s", state);
	add_fit(table, entry);
	if (rate >= 0)
		table_add(table, TONE_PLAIN, "%.*f", rate < 10 ? 1 : 0, rate);
	else
		table_add(table, TONE_FAINT, "-");
	table_add(table, TONE_PLAIN, "%s", json_get_string(entry, "languages", "unverified"));
	table_add(table, TONE_FAINT, "%s", json_get_string(entry, "source", ""));
}

static int run_catalog(const struct cli_arguments *arguments, struct error *error)
{
	const struct command_list list = {.method = "model.catalog",
					  .member = "models",
					  .columns = columns,
					  .column_count = sizeof columns / sizeof *columns,
					  .add = add_row,
					  .nothing = "The catalogue is empty.\n"};
	return command_list(arguments, &list, error);
}

const struct cli_command model_catalog_command = {
	.name = "model catalog",
	.summary = "models to download, and whether they fit here and how fast they would be",
	.more = "Download one with: exogpu model add SOURCE\n"
		"Speeds are predicted for the devices as they are now. What could not be read is unverified;\n"
		"--json says where each value was read.\n",
	.run = run_catalog,
};
