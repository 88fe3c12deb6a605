/* POST /api/pull: a model of the Ollama library is added, and how far it is told until it is there. A client that goes
 * away ends the telling, not the download. */
#include "common/net/loop.h"
#include "server/http/infer/ollama/ollama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_MS = 500 };

struct ollama_pull {
	struct answer *answer; // NULL: its client is gone
	const struct infer_params *params;
	bool adding; // models_add will call
	struct net_timer timer;
	char model_id[MODEL_ID_BYTES];
	char told[64];      // the status of the last line
	int64_t done_bytes; // of that line
};

static void tell(struct ollama_pull *pull, const char *status, const struct json *progress)
{
	struct json *json = json_new_object();
	const int64_t done_bytes = json_get_integer(progress, "done_bytes", 0);
	if (!pull->answer->streams || (!strcmp(status, pull->told) && done_bytes == pull->done_bytes)) {
		json_destroy(&json);
		return;
	}
	snprintf(pull->told, sizeof pull->told, "%s", status);
	pull->done_bytes = done_bytes;
	json_set_string(json, "status", status);
	if (progress) {
		json_set_string(json, "digest", pull->model_id); // by which clients know lines of one download
		json_set(json, "total", json_copy(json_get(progress, "total_bytes")));
		json_set_integer(json, "completed", done_bytes);
	}
	answer_event(pull->answer, json);
}

static void end(struct ollama_pull *pull, const struct error *error)
{
	struct answer *answer = pull->answer;
	if (error) {
		answer_fail(answer, error, NULL);
		return;
	}
	struct json *json = json_new_object();
	json_set_string(json, "status", "success");
	if (!answer->begun) {
		answer_json(answer, json);
		return;
	}
	answer_event(answer, json);
	answer_end(answer);
}

static void look(void *context)
{
	struct ollama_pull *pull = context;
	struct error error = {0};
	const struct infer_params *params = pull->params;
	const struct model_record *model = models_find(params->models, pull->model_id);
	if (!model) {
		error_set(&error, STATUS_CONFLICT, "the model was removed");
		end(pull, &error);
		return;
	}
	if (model->state == MODEL_READY) {
		end(pull, NULL);
		return;
	}
	if (model->state != MODEL_DOWNLOADING) {
		error_set(&error, STATUS_UNAVAILABLE, "%.500s", model->state_reason);
		end(pull, &error);
		return;
	}
	struct json *record = models_record_json(params->models, model);
	const struct json *progress = json_get(record, "progress");
	const char *step = json_get_string(progress, "step", "waiting");
	const bool known = json_type(json_get(progress, "total_bytes")) == JSON_NUMBER;
	if (!strcmp(step, "verifying"))
		tell(pull, "verifying sha256 digest", NULL);
	else if (!strcmp(step, "downloading") && known)
		tell(pull, "pulling model", progress);
	else
		tell(pull, "pulling manifest", NULL);
	json_destroy(&record);
	net_timer_start(params->loop, &pull->timer, LOOK_MS, look, pull);
}

static void added(void *context, enum status status, const struct model_record *model, const struct error *error)
{
	struct ollama_pull *pull = context;
	pull->adding = false;
	if (!pull->answer) {
		free(pull);
		return;
	}
	if (status) {
		end(pull, error);
		return;
	}
	snprintf(pull->model_id, sizeof pull->model_id, "%s", model->model_id);
	if (pull->answer->streams)
		answer_begin_events(pull->answer);
	look(pull);
}

enum status ollama_pull_start(struct answer *answer, const struct infer_params *params, struct error *error)
{
	char source[MODEL_NAME_BYTES + 8];
	const struct model_record *there = NULL;
	struct ollama_pull *pull = calloc(1, sizeof *pull);
	if (!pull)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	snprintf(source, sizeof source, "ollama:%s", answer->model);
	*pull = (struct ollama_pull){.answer = answer, .params = params, .adding = true, .done_bytes = -1};
	answer->pull = pull;
	const struct models_add add = {.source = source, .by = &answer->caller.actor, .done = added, .context = pull};
	const enum status status = models_add(params->models, &add, &there, error);
	if (status == STATUS_PENDING)
		return STATUS_OK;
	if (!status) {
		added(pull, STATUS_OK, there, NULL);
		return STATUS_OK;
	}
	pull->adding = false;
	return status;
}

void ollama_pull_leave(struct answer *answer)
{
	struct ollama_pull *pull = answer->pull;
	if (!pull)
		return;
	answer->pull = NULL;
	pull->answer = NULL;
	net_timer_stop(pull->params->loop, &pull->timer);
	if (!pull->adding)
		free(pull);
}
