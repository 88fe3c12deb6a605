/* `exogpu store copy`: the tables of a store, from a data directory into a PostgreSQL or back. Offline: it takes the
 * directory's lock and the database's, as a server does. */
#include "common/base/log.h"
#include "common/files/paths.h"
#include "server/cli/commands/commands.h"
#include "server/data_directory.h"
#include "server/store/copy.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static bool is_url(const char *place)
{
	return strstr(place, "://") != NULL;
}

static int print(const struct store_copied *copied, const struct cli_arguments *arguments, struct error *error)
{
	if (arguments->json) {
		struct json *answer = json_new_object();
		json_set_integer(answer, "rows", copied->rows);
		json_set_integer(answer, "minutes", copied->minutes);
		json_set_integer(answer, "entries", (int64_t)copied->entries);
		int result = command_print_json(answer, error) ? 1 : 0;
		json_destroy(&answer);
		return result;
	}
	printf("Copied %" PRId64 " rows and %" PRId64 " minute averages. The audit log of %" PRIu64
	       " entries verifies there, and ends with the same signed head.\n",
	       copied->rows, copied->minutes, copied->entries);
	if (is_url(arguments->to))
		printf("Start the server with --store and that URL from now on; what is in the directory stays as it "
		       "was.\n");
	return 0;
}

static int run(const struct cli_arguments *arguments, struct error *error)
{
	char data[4096];
	struct store_copied copied;
	int lock = -1;
	if (arguments->url) {
		error_set(error, STATUS_INVALID_PARAMS, "store copy works where the server's data directory is");
		error_hint(error, "run it there, with the server stopped");
		return 2;
	}
	if (!arguments->from || !arguments->to) {
		error_set(error, STATUS_INVALID_PARAMS, "store copy needs --from and --to");
		error_hint(error, "one is a data directory, the other one postgres://USER@HOST/DATABASE");
		return 2;
	}
	const char *directory = is_url(arguments->from) ? arguments->to : arguments->from;
	if (paths_data_directory(arguments->data ? arguments->data : directory, data, sizeof(data), error))
		return 2;
	if (data_directory_open(directory, &lock, error))
		return 1;
	log_set_level(LOG_WARNING);
	const struct store_copy_params params = {.from = arguments->from, .to = arguments->to, .data = data};
	enum status status = store_copy(&params, &copied, error);
	close(lock);
	if (status)
		return status == STATUS_INVALID_PARAMS || status == STATUS_NOT_FOUND ? 2 : 1;
	return print(&copied, arguments, error);
}

static const struct flag flags[] = {
	{"from", "PLACE", "where the tables are: a data directory, or postgres://USER@HOST/DATABASE",
	 offsetof(struct cli_arguments, from)},
	{"to", "PLACE", "where they are to be: the other one of these, without anything in it",
	 offsetof(struct cli_arguments, to)},
	{0},
};

const struct cli_command store_copy_command = {
	.name = "store copy",
	.summary = "copy the server's tables into a PostgreSQL, or back into files",
	.more = "With the server stopped. Nothing is changed at the source, and a target that holds something is "
		"refused. The\n"
		"audit log is verified on arrival, with the archives in audit/ of --data, which is the directory of "
		"the two\n"
		"where it is not given. The keys and archives of the log stay in the data directory in both cases.\n",
	.flags = flags,
	.run = run,
};
