/* See models_inside.h: who looks into folders; who searches, and gets an answer also when the server stops first.
 * Whoever asks whether the hubs answer, while somebody else does, gets that answer: all of them together take one
 * search's place. */
#include "common/base/list.h"
#include "server/hub/fetch_search.h"
#include "server/library/models_inside.h"

#include <stdlib.h>
#include <string.h>

struct models_question {
	struct models_question *next, **link; // link NULL: it has been answered
	struct models *models;
	models_found *done;
	void *context;
	bool reaches;                     // only whether the hubs answer is asked
	struct models_question *together; // the others that get the same answer: lines of `next`, without a link
};

static void answer(struct models_question *question, enum status status, struct json *result, const struct error *error)
{
	LIST_REMOVE(question, link);
	question->link = NULL;
	question->models->question_count--;
	for (struct models_question *other; (other = question->together);) {
		question->together = other->next;
		other->done(other->context, status, json_copy(result), error);
		free(other);
	}
	question->done(question->context, status, result, error);
}

static void found(void *context, enum status status, struct json *result, const struct error *error)
{
	struct models_question *question = context;
	if (question->link)
		answer(question, status, result, error);
	else
		json_destroy(&result);
	free(question);
}

static bool is_added(void *owner, const char *source)
{
	const struct models *models = owner;
	for (size_t i = 0; i < models->count; i++)
		if (models->all[i]->saved && !strcmp(models->all[i]->record.source, source))
			return true;
	return false;
}

// The question about the hubs that is being asked; NULL: none is.
static struct models_question *reaching(const struct models *models)
{
	struct models_question *question = models->questions;
	while (question && !question->reaches)
		question = question->next;
	return question;
}

enum status models_search(struct models *models, const char *text, models_found *done, void *context,
			  struct error *error)
{
	struct models_question *same = text ? NULL : reaching(models);
	if (models->stopping)
		return error_set(error, STATUS_UNAVAILABLE, "the server stops");
	if (!same && models->question_count >= LIMIT_SEARCHES) {
		error_set(error, STATUS_RATE_LIMITED, "%d searches are in progress", LIMIT_SEARCHES);
		error_hint(error, "try again in a few seconds");
		return STATUS_RATE_LIMITED;
	}
	struct models_question *question = calloc(1, sizeof *question);
	if (!question)
		return error_set(error, STATUS_UNAVAILABLE, "no memory for a search");
	*question = (struct models_question){.models = models, .done = done, .context = context, .reaches = !text};
	if (same) {
		question->next = same->together;
		same->together = question;
		return STATUS_OK;
	}
	LIST_PUSH(&models->questions, question, link);
	models->question_count++;
	struct search_params params = {
		.text = text, .added = is_added, .owner = models, .done = found, .context = question};
	models_look_room(models, &params.room);
	enum status status = search_start(models->fetcher, &params, error);
	if (status) {
		LIST_REMOVE(question, link);
		models->question_count--;
		free(question);
		return STATUS_UNAVAILABLE;
	}
	return STATUS_OK;
}

void models_end_searches(struct models *models)
{
	struct error error = {0};
	error_set(&error, STATUS_UNAVAILABLE, "the server stops");
	while (models->questions)
		answer(models->questions, STATUS_UNAVAILABLE, NULL, &error);
}

// ---- folders ----

struct browsing {
	struct models *models;
	models_browsed *done;
	void *context;
};

static const struct model_record *added_from(const struct models *models, const char *path)
{
	for (size_t i = 0; i < models->count; i++)
		if (models->all[i]->saved && !strcmp(models->all[i]->record.source, path))
			return &models->all[i]->record;
	return NULL;
}

static void browsed(void *context, struct json *result, const struct error *error)
{
	struct browsing *browsing = context;
	struct json *files = json_new_array();
	for (const struct json *file = json_first(json_get(result, "files")); file; file = json_next(file)) {
		const struct model_record *record = added_from(browsing->models, json_get_string(file, "path", ""));
		struct json *known = json_copy(file);
		json_set_string(known, "model_id", record ? record->model_id : NULL);
		json_push(files, known);
	}
	if (result)
		json_set(result, "files", files);
	else
		json_destroy(&files);
	browsing->done(browsing->context, result, error);
	free(browsing);
}

enum status models_browse(struct models *models, const char *dir, models_browsed *done, void *context,
			  struct error *error)
{
	struct browsing *browsing = models->stopping ? NULL : calloc(1, sizeof *browsing);
	if (!browsing)
		return error_set(error, STATUS_UNAVAILABLE, "the server stops, or has no memory");
	*browsing = (struct browsing){.models = models, .done = done, .context = context};
	const enum status status = browse_ask(models->browse, dir, browsed, browsing, error);
	if (status)
		free(browsing);
	return status;
}
