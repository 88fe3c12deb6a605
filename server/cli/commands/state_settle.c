/* `exogpu state settle`: rows of state.db that the audit log does not have so are listed, or taken away. Offline: it
 * takes the data directory's lock, as a server does. */
#include "common/base/log.h"
#include "common/files/paths.h"
#include "server/cli/commands/commands.h"
#include "server/data_directory.h"
#include "server/store/store.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct listing {
	struct json *rows;
	size_t gone, left;
};

static void take_row(void *context, const struct store_settled *row)
{
	struct listing *listing = context;
	struct json *json = json_new_object();
	char name[256];
	snprintf(name, sizeof(name), "%s", row->subject);
	name[strcspn(name, " ")] = ':';
	json_set_string(json, "row", name);
	json_set_string(json, "text", row->text);
	json_set_bool(json, "settled", row->gone);
	json_push(listing->rows, json);
	listing->gone += row->gone;
	listing->left += !row->gone;
}

static int print(const struct listing *listing, bool as_json, struct error *error)
{
	if (as_json) {
		struct json *answer = json_new_object();
		json_set(answer, "rows", json_copy(listing->rows));
		int result = command_print_json(answer, error) ? 1 : 0;
		json_destroy(&answer);
		return result;
	}
	for (const struct json *one = json_first(listing->rows); one; one = json_next(one)) {
		char line[512];
		snprintf(line, sizeof(line), "%s  %.200s%s", json_get_string(one, "row", ""),
			 json_get_string(one, "text", ""), json_get_bool(one, "settled", false) ? ": gone" : "");
		command_print_text(stdout, "", line);
	}
	if (!listing->gone && !listing->left)
		printf("Every row of state.db matches the audit log.\n");
	else if (!listing->gone)
		printf("\nNothing was changed. Find out who writes to the data directory before you settle these: "
		       "--row "
		       "KIND:ID, or --all.\n");
	return 0;
}

// Files that another user makes here, the server could not read.
static enum status check_owner(const char *directory, struct error *error)
{
	struct stat stat_of;
	if (stat(directory, &stat_of)) {
		error_set(error, STATUS_NOT_FOUND, "there is no data directory at %.200s", directory);
		error_hint(error, "name it with --data");
		return STATUS_NOT_FOUND;
	}
	if (stat_of.st_uid == geteuid())
		return STATUS_OK;
	error_set(error, STATUS_FORBIDDEN, "%.200s belongs to user %u, and you are user %u", directory,
		  (unsigned)stat_of.st_uid, (unsigned)geteuid());
	error_hint(error, "run this as the user that the server runs as");
	return STATUS_FORBIDDEN;
}

static int settle(const struct cli_arguments *arguments, const char *directory, struct listing *listing,
		  struct error *error)
{
	char actor[32];
	struct store *store = NULL;
	struct net_loop *loop = NULL;
	size_t count = 0;
	while (count < FLAGS_MANY && arguments->row[count])
		count++;
	snprintf(actor, sizeof(actor), "owner:%u", (unsigned)geteuid());
	const struct store_settling settling = {.subjects = arguments->row,
						.count = count,
						.all = arguments->all,
						.actor = actor,
						.row = take_row,
						.context = listing};
	enum status status = net_loop_create(&loop, error);
	if (!status)
		status = store_create(
			&store, &(struct store_params){.loop = loop, .directory = directory, .settling = &settling},
			error);
	store_destroy(&store);
	net_loop_destroy(&loop);
	return status ? status == STATUS_NOT_FOUND ? 2 : 1 : 0;
}

static int run(const struct cli_arguments *arguments, struct error *error)
{
	char directory[4096], state[4200], place[4200];
	struct listing listing = {.rows = NULL};
	int lock = -1;
	if (arguments->url) {
		error_set(error, STATUS_INVALID_PARAMS, "state settle works on the files of a data directory");
		error_hint(error, "run it where the server's data directory is, with the server stopped");
		return 2;
	}
	if (arguments->all && arguments->row[0]) {
		error_set(error, STATUS_INVALID_PARAMS, "either --all, or --row");
		return 2;
	}
	if (paths_data_directory(arguments->data, directory, sizeof(directory), error) ||
	    paths_join(directory, "state.db", state, sizeof(state), error) ||
	    paths_join(directory, "store", place, sizeof(place), error))
		return 2;
	if (check_owner(directory, error))
		return 1;
	if (access(state, F_OK) && access(place, F_OK)) { // the other one says in which database they are
		error_set(error, STATUS_NOT_FOUND, "there is no %.300s", state);
		error_hint(error, "name the data directory with --data");
		return 1;
	}
	if (data_directory_open(directory, &lock, error))
		return 1;
	log_set_level(LOG_ERROR);
	listing.rows = json_new_array();
	int result = settle(arguments, directory, &listing, error);
	if (!result)
		result = print(&listing, arguments->json, error);
	json_destroy(&listing.rows);
	close(lock);
	return result;
}

static const struct flag flags[] = {
	{"row", "KIND:ID...", "settle this row; may be repeated", offsetof(struct cli_arguments, row)},
	{"all", NULL, "settle every row that is refused, or missing", offsetof(struct cli_arguments, all)},
	{0},
};

const struct cli_command state_settle_command = {
	.name = "state settle",
	.summary = "list rows of state.db that do not match the audit log, or remove them",
	.more = "With the server stopped. Without --row and --all nothing is changed. A settled row is removed, "
		"with what\n"
		"depends on it (tokens made with it, a node's devices and certificates, a model's instances), by a "
		"signed\n"
		"entry of the audit log; a row is never accepted as it is. If you have a backup, restore it instead.\n",
	.flags = flags,
	.run = run,
};
