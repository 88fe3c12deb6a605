/* See model_progress.h. The server is asked for its events after the id is known, and answers with the state as it is
 * then: so nothing that happens in between is missed. */
#include "server/cli/commands/model/model_progress.h"

#include "server/cli/commands/commands.h"
#include "server/cli/format.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { BAR_CELLS = 24, LINE_PERCENT = 10 };

struct watch {
	char model_id[80];
	struct json *model; // the newest
	bool removed;
	struct model_progress shown;
	char reason[200]; // said last
};

static bool ended(const struct watch *watch)
{
	return watch->removed || strcmp(json_get_string(watch->model, "state", ""), "downloading") != 0;
}

static int percent_of(const struct json *progress)
{
	const int64_t done = json_get_integer(progress, "done_bytes", 0);
	const int64_t total = json_get_integer(progress, "total_bytes", 0);
	return total > 0 ? (int)((double)done / (double)total * 100) : -1;
}

static void print_figures(const struct json *progress, char *line, size_t size)
{
	char memory[FORMAT_BYTES], rate[FORMAT_BYTES];
	const int64_t done = json_get_integer(progress, "done_bytes", 0);
	const int64_t total = json_get_integer(progress, "total_bytes", -1);
	const double speed = json_get_number(progress, "bytes_per_s", -1);
	const char *step = json_get_string(progress, "step", "");
	if (done > 0 || total > 0)
		snprintf(line, size, "%s  %s", step, format_memory_of(done, total, memory));
	else
		snprintf(line, size, "%s", step);
	size_t used = strlen(line);
	if (speed > 0)
		snprintf(line + used, size - used, "  %s", format_rate(speed, "B/s", rate));
	used = strlen(line);
	if (speed > 0 && total > done)
		snprintf(line + used, size - used, "  %s left",
			 format_age((int64_t)((double)(total - done) / speed * 1000), memory));
	used = strlen(line);
	if (json_get_integer(progress, "retries", 0))
		snprintf(line + used, size - used, "  (tried %lld times)",
			 (long long)json_get_integer(progress, "retries", 0) + 1);
}

static void show_bar(struct model_progress *shown, const struct json *progress)
{
	char line[400], bar[BAR_CELLS + 1];
	struct winsize window;
	const int percent = percent_of(progress);
	const int width = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) || !window.ws_col ? 80 : window.ws_col;
	const int filled = percent < 0 ? 0 : percent > 100 ? BAR_CELLS : percent * BAR_CELLS / 100;
	memset(bar, '#', (size_t)filled);
	memset(bar + filled, '.', (size_t)(BAR_CELLS - filled));
	bar[BAR_CELLS] = 0;
	int used = percent < 0 ? 0 : snprintf(line, sizeof line, "[%s] %3d %%  ", bar, percent);
	print_figures(progress, line + used, sizeof line - (size_t)used);
	text_clean(line);
	fprintf(stderr, "\r%.*s\033[K", (int)text_cut(line, (size_t)width - 1), line);
	shown->shown = true;
}

static void show_line(struct model_progress *shown, const struct json *progress)
{
	char line[400];
	const int percent = percent_of(progress);
	const char *step = json_get_string(progress, "step", "");
	if (!strcmp(step, shown->step) && percent / LINE_PERCENT == shown->percent / LINE_PERCENT)
		return;
	snprintf(shown->step, sizeof shown->step, "%s", step);
	shown->percent = percent;
	print_figures(progress, line, sizeof line);
	command_print_text(stderr, "", line);
}

void model_progress_init(struct model_progress *shown)
{
	*shown = (struct model_progress){.terminal = isatty(STDERR_FILENO), .percent = -1};
}

void model_progress_show(struct model_progress *shown, const struct json *progress)
{
	if (shown->terminal)
		show_bar(shown, progress);
	else
		show_line(shown, progress);
}

void model_progress_clear(struct model_progress *shown)
{
	if (shown->shown)
		fprintf(stderr, "\r\033[K");
	shown->shown = false;
}

static void show(struct watch *watch)
{
	const struct json *progress = json_get(watch->model, "progress");
	const char *reason = json_get_string(watch->model, "state_reason", "");
	if (ended(watch))
		return;
	if (reason[0] && strncmp(reason, watch->reason, sizeof watch->reason - 1) != 0) {
		model_progress_clear(&watch->shown);
		command_print_text(stderr, "", reason);
		snprintf(watch->reason, sizeof watch->reason, "%s", reason);
	}
	model_progress_show(&watch->shown, progress);
}

static void take(struct watch *watch, const struct json *models)
{
	const struct json *model = command_find(models, "model_id", watch->model_id, NULL);
	if (!model)
		return;
	json_destroy(&watch->model);
	watch->model = json_copy(model);
	show(watch);
}

static bool on_notice(void *context, const char *method, const struct json *params)
{
	struct watch *watch = context;
	const struct json *data = json_get(params, "data"), *removed = json_get(data, "removed_models");
	if (strcmp(method, "event") != 0)
		return true;
	take(watch, json_get(data, "models"));
	for (const struct json *one = json_first(removed); one; one = json_next(one))
		watch->removed |= !strcmp(json_string(one, ""), watch->model_id);
	return !ended(watch);
}

static enum status subscribe(struct client *client, struct watch *watch, struct error *error)
{
	struct json *params = json_new_object(), *topics = json_new_array(), *answer = NULL;
	json_push(topics, json_new_string("placement"));
	json_set(params, "topics", topics);
	enum status status = client_ask(client, &(struct client_call){.method = "events.subscribe", .params = params},
					&answer, error);
	if (!status && !ended(watch))
		take(watch, json_get(json_get(answer, "snapshot"), "models"));
	json_destroy(&answer);
	return status;
}

enum status model_progress_follow(struct client *client, struct json **model, bool *left, struct error *error)
{
	struct watch watch = {.model = *model};
	enum status status = STATUS_OK;
	model_progress_init(&watch.shown);
	snprintf(watch.model_id, sizeof watch.model_id, "%s", json_get_string(*model, "model_id", ""));
	if (!ended(&watch)) {
		client_listen(client, on_notice, &watch);
		status = client_catch(client, error);
		if (!status)
			status = subscribe(client, &watch, error);
		if (!status && !ended(&watch))
			status = client_stay(client, on_notice, &watch, error);
		client_listen(client, NULL, NULL);
	}
	model_progress_clear(&watch.shown);
	*model = watch.model;
	*left = !status && !ended(&watch);
	if (!status && watch.removed)
		status = error_set(error, STATUS_CONFLICT, "the model was removed while it was being added");
	else if (!status && !strcmp(json_get_string(watch.model, "state", ""), "failed"))
		status = error_set(error, STATUS_UNAVAILABLE, "%s", json_get_string(watch.model, "state_reason", ""));
	return status;
}

const char *model_format_text(const struct json *architecture, char *out, size_t size)
{
	const char *held = json_get_string(architecture, "format", ""),
		   *own = json_get_string(architecture, "file_format", held);
	snprintf(out, size, strcmp(own, held) != 0 ? "%s, held as %s" : "%s", own, held);
	return out;
}

// What follows the family of a model that generates no text.
static const char *task_text(const struct json *architecture)
{
	const char *task = json_get_string(architecture, "task", "");
	return !strcmp(task, "embedding") ? " for embeddings" : !strcmp(task, "rerank") ? " for ranking" : "";
}

void model_progress_print(const struct json *model, bool left)
{
	char line[600], held[48], size[FORMAT_BYTES], count[FORMAT_BYTES];
	const char *name = json_get_string(model, "name", ""), *id = json_get_string(model, "model_id", "");
	const struct json *architecture = json_get(model, "architecture");
	if (!strcmp(json_get_string(model, "state", ""), "ready"))
		snprintf(line, sizeof line, "%s is ready: %s%s, %s parameters, %s, %s (%s)", name,
			 json_get_string(architecture, "family", ""), task_text(architecture),
			 format_count((double)json_get_integer(architecture, "parameters", 0), count),
			 model_format_text(architecture, held, sizeof held),
			 format_memory(json_get_integer(model, "file_bytes", -1), size), id);
	else if (left)
		snprintf(line, sizeof line,
			 "%s is still being added; exogpu model list shows the progress, exogpu "
			 "model remove %s cancels it",
			 name, id);
	else
		snprintf(line, sizeof line, "%s is being added (%s)", name, id);
	command_print_text(stdout, "", line);
}
