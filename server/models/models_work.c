/* See models_inside.h: what becomes of a model that is being added. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/models/models_inside.h"

#include <stdio.h>
#include <string.h>

enum { TELL_NS = 250000000 }; // progress at most so often

static void outcome_stored(struct model_change *change, enum status status, const struct error *error)
{
	struct model *model = change->model;
	const unsigned holds = model->record.holds;
	model->working = false;
	if (status) { // it is taken up again at the next start
		model->record.state = MODEL_FAILED;
		snprintf(model->record.state_reason, sizeof model->record.state_reason, "%.200s", error->message);
	} else {
		model->record = change->becomes;
		model->record.holds = holds;
		model->modified_ns = change->modified_ns;
	}
	if (model->record.state == MODEL_READY)
		log_info("models", "%s is ready", model->record.name);
	else
		log_warning("models", "%s: %s", model->record.name, model->record.state_reason);
	models_publish(change->models, model);
}

static void print_outcome(const struct model_record *record, struct buffer *detail)
{
	struct json *json = json_new_object();
	if (record->state == MODEL_READY) {
		json_set_string(json, "sha256", record->sha256[0] ? record->sha256 : NULL);
		json_set_integer(json, "bytes", (int64_t)record->file_bytes);
	} else {
		json_set_string(json, "reason", record->state_reason);
	}
	json_set_string(json, "source", record->source);
	json_print(json, detail);
	json_destroy(&json);
}

// Ready or failed, as change->becomes says.
static void settle(struct models *models, struct model_change *change, enum status outcome)
{
	struct buffer detail;
	struct error error = {0};
	struct model *model = change->model;
	change->apply = outcome_stored;
	buffer_init(&detail, ENTRY_TEXT_BYTES);
	print_outcome(&change->becomes, &detail);
	const struct audit_event event = {.action = outcome ? "model.failed" : "model.ready",
					  .target = model->record.model_id,
					  .outcome = outcome,
					  .detail = buffer_text(&detail)};
	if (model_change_commit(&change, &event, &error)) {
		model->working = false;
		model->record.state = MODEL_FAILED;
		snprintf(model->record.state_reason, sizeof model->record.state_reason, "%.200s", error.message);
		models_publish(models, model);
	}
	buffer_finish(&detail);
}

static void fail(struct models *models, struct model *model, const struct error *why)
{
	struct model_change *change = model_change_create(models, model);
	if (!change)
		return; // it is taken up again at the next start
	struct model_record *becomes = &change->becomes;
	becomes->state = MODEL_FAILED;
	snprintf(becomes->state_reason, sizeof becomes->state_reason, "%s%s%s", why->message, why->hint[0] ? "; " : "",
		 why->hint);
	settle(models, change, why->status ? why->status : STATUS_INTERNAL);
}

void models_work_read(void *context, const struct reading_result *result)
{
	struct models *models = context;
	struct model *model = models_by_id(models, result->model_id);
	if (!model || model->removing || model->record.state != MODEL_ADDING)
		return;
	if (result->status) {
		fail(models, model, &result->error);
		return;
	}
	struct model_change *change = model_change_create(models, model);
	if (!change)
		return;
	struct model_record *becomes = &change->becomes;
	becomes->state = MODEL_READY;
	becomes->state_reason[0] = 0;
	becomes->file_bytes = result->bytes;
	becomes->shape = result->shape;
	becomes->sizes = result->sizes;
	snprintf(becomes->sha256, sizeof becomes->sha256, "%s", result->sha256);
	snprintf(becomes->chat_template, sizeof becomes->chat_template, "%s", result->chat_template);
	change->modified_ns = result->modified_ns;
	settle(models, change, STATUS_OK);
}

void models_work_progress(void *context, const char *model_id, uint64_t done_bytes, uint64_t total_bytes)
{
	struct models *models = context;
	struct model *model = models_by_id(models, model_id);
	if (!model || model->record.state != MODEL_ADDING)
		return;
	model->step = STEP_VERIFYING;
	model->done_bytes = done_bytes;
	model->total_bytes = total_bytes;
	if (clock_steady_ns() - model->told_ns < TELL_NS)
		return;
	model->told_ns = clock_steady_ns();
	models_publish(models, model);
}

void model_work_start(struct models *models, struct model *model, const char *access_token)
{
	struct error error = {0};
	(void)access_token;
	model->working = true;
	model->step = STEP_VERIFYING;
	const struct reading_request request = {.model_id = model->record.model_id, .path = model->record.path};
	if (reading_ask(models->reading, &request, &error))
		fail(models, model, &error);
}

void model_work_stop(struct models *models, struct model *model, bool delete_file)
{
	model->working = false;
	reading_forget(models->reading, model->record.model_id, delete_file ? model->record.path : NULL);
}
