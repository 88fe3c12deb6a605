/* An addition of a model, followed to its end. Thread: the process's only one. */
#pragma once
#include "server/cli/client.h"

// The last line that was shown of a progress (ModelProgress of the schema).
struct model_progress {
	bool terminal, shown;
	char step[16]; // where it is not a terminal
	int percent;
};
void model_progress_init(struct model_progress *shown);
// Show it, to standard error: a bar on a terminal, else a line now and then.
void model_progress_show(struct model_progress *shown, const struct json *progress);
void model_progress_clear(struct model_progress *shown);

// Show how far it is, to standard error: a bar on a terminal, else lines. *model (what model.add answered) is replaced
// by what becomes of it; *left: Ctrl-C came first. Errors: what it failed of, with its own status unknown as
// STATUS_UNAVAILABLE; those of the connection.
enum status model_progress_follow(struct client *client, struct json **model, bool *left, struct error *error);
// Print the outcome to standard output.
void model_progress_print(const struct json *model, bool left);
// What a model's file is in, by its own name, and how that is held where it is another format; returns `out`.
const char *model_format_text(const struct json *architecture, char *out, size_t size);
