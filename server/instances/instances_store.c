/* Instances in state.db: the wanted instances outlive the server.
 *
 * A row is there before instance.create is answered, changes with each placement, and goes when the instance is deleted
 * or has failed; a stop of the server leaves it. A server that starts creates a paused instance from every row, with
 * its layers missing on their devices. If workers are stored and found again, it adopts them (instances_adopt.c); else
 * it is placed when its devices are back (recover_restored).
 *
 * Changes that cannot be stored are stored again (instances_rows.c).
 *
 * Messages of an older placement's parts must never be taken for those of a new one, so epochs only grow. Changes are
 * stored without waiting, and a crash may lose the last ones: a start goes EPOCHS_OF_A_START on from what it finds, and
 * stores that before anything is placed. The time of its last use is stored when the server stops; after a kill an
 * instance counts as used when it is ready.
 *
 * An evicted instance keeps its row: unloaded, with the instance for which it was unloaded, until that one is ready
 * (evict.c). If that one is no longer wanted, the server treats it like any other at its start. Thread: the loop's.
 *  */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/instances/instances_inside.h"

#include <stdlib.h>
#include <string.h>

enum { EPOCHS_OF_A_START = 1024, TEXT_BYTES = 256 * 1024 };

static const char create_method[] = "instance.create";

// ---- rows ----

static void push_stage(struct json *stages, const char *device_id, uint32_t first_layer, uint32_t layer_count)
{
	struct json *stage = json_new_object();
	json_set_string(stage, "device_id", device_id);
	json_set_integer(stage, "first_layer", first_layer);
	json_set_integer(stage, "layer_count", layer_count);
	json_push(stages, stage);
}

// An instance with requests counts as used now.
static int64_t idle_ms(const struct instance *instance)
{
	const int64_t ms = instance->gave_way_to[0] ? instances_now(instance->all) - instance->used_ms
						    : evict_idle_ms(instance);
	return ms > 0 ? ms : 0;
}

static struct json *last_json(const struct instance *instance)
{
	struct json *json = json_new_object(), *stages = json_new_array();
	const struct recovery *recovery = &instance->recovery;
	for (unsigned i = 0; i < instance->stage_count; i++)
		push_stage(stages, cluster_device_id(instance->stages[i].device), instance->stages[i].first_layer,
			   instance->stages[i].layer_count);
	for (unsigned i = 0; i < recovery->missing_count && !instance->stage_count; i++)
		push_stage(stages, recovery->missing[i].device_id, recovery->missing[i].first_layer,
			   recovery->missing[i].layer_count);
	json_set(json, "stages", stages);
	json_set_string(json, "format", format_info(instance->format)->name);
	json_set_string(json, "strategy", instance->strategy);
	json_set_integer(json, "context_tokens", instance->context_tokens);
	json_set_integer(json, "sequences", instance->sequences);
	json_set_bool(json, "chat", instance->chat);
	json_set_string(json, "chat_template", instance->chat_template);
	json_set_string(json, "gave_way", recovery->gave_way);
	heat_store(instance, json);
	if (instance->gave_way_to[0]) {
		json_set_string(json, "gave_way_to", instance->gave_way_to);
		json_set_integer(json, "gave_way_ms", instance->gave_way_ms);
	}
	if ((instance->all->ending || instance->gave_way_to[0]) && instance->used_ms)
		json_set_integer(json, "used_ms", clock_wall_ms() - idle_ms(instance));
	return json;
}

// `left`: as instance_left_json; NULL: as it is stored.
static enum status put(struct store_batch *batch, const struct instance *instance, const char *left,
		       enum status (*how)(struct store_batch *, const struct store_instance *))
{
	struct buffer wanted, last;
	struct json *json = last_json(instance);
	buffer_init(&wanted, TEXT_BYTES);
	buffer_init(&last, TEXT_BYTES);
	enum status status = json_print(instance->wanted, &wanted);
	if (!status)
		status = json_print(json, &last);
	if (!status)
		status = how(batch, &(struct store_instance){.instance_id = instance->instance_id,
							     .model_id = instance->model_id,
							     .model_name = instance->model_name,
							     .wanted = buffer_text(&wanted),
							     .last = buffer_text(&last),
							     .workers = left,
							     .epoch = (int64_t)instance->epoch,
							     .recoveries = instance->recoveries,
							     .moves = instance->moves,
							     .created_ms = instance->created_ms});
	json_destroy(&json);
	buffer_finish(&last);
	buffer_finish(&wanted);
	return status;
}

enum status instance_keep_new(const struct instance *instance,
			      void (*done)(void *context, enum status status, const struct error *error), void *context)
{
	struct store_batch *batch = NULL;
	enum status status = store_batch_create(&batch);
	if (!status)
		status = put(batch, instance, "", store_put_instance);
	if (!status)
		return store_commit(instance->all->params.store, &batch, done, context);
	store_batch_destroy(&batch);
	return status;
}

enum status instance_put_row(struct store_batch *batch, const struct instance *instance)
{
	struct buffer text;
	struct json *left = instance_left_json(instance);
	buffer_init(&text, TEXT_BYTES);
	enum status status = left ? json_print(left, &text) : STATUS_OK;
	if (!status)
		status = put(batch, instance, buffer_text(&text), store_change_instance);
	json_destroy(&left);
	buffer_finish(&text);
	return status;
}

static enum status put_removed(struct store_batch *batch, const struct instance *instance)
{
	return store_remove_instance(batch, instance->instance_id);
}

// ---- changes with their entry ----

void instance_changes(struct instance *instance)
{
	struct instance_shown **last = &instance->shown;
	if (instance->shown_count > instance->unsaved) // changes that are not being stored yet
		return;
	while (*last)
		last = &(*last)->next;
	*last = calloc(1, sizeof **last);
	if (!*last)
		return; // it is shown sooner than it is on disk
	(*last)->json = instance_json_now(instance);
	instance->shown_count++;
}

void instance_show_next(struct instance *instance, unsigned left, bool tell)
{
	while (instance->shown_count > left) {
		struct instance_shown *shown = instance->shown;
		instance->shown = shown->next;
		instance->shown_count--;
		instance_give_news(instance, shown->news, tell);
		json_destroy(&shown->json);
		free(shown);
	}
}

// The row and the entry are on disk, or cannot be; STATUS_PENDING: the server has ended, and all instances with it.
static void told(void *context, enum status status)
{
	struct instance *instance = context;
	instance->unsaved--;
	if (status && status != STATUS_PENDING)
		instance_row_stale(instance->all, instance->instance_id);
	instance_show_next(instance, instance->unsaved, status != STATUS_PENDING);
	if (status == STATUS_PENDING)
		instance->removed = false;
	if (instance->unsaved) {
		if (!instance->gone && !instance->removed)
			instance_publish_shown(instance);
		return;
	}
	if (instance->removed)
		instance_publish_removed(instance);
	if (instance->gone) {
		instance_free(instance);
		return;
	}
	if (instance->state == INSTANCE_FAILED)
		generations_fail(instance, &instance->failed_with);
	instance_publish(instance);
}

static void commit(struct instance *instance, enum status (*change)(struct store_batch *, const struct instance *),
		   const struct audit_tally *entry)
{
	struct store_batch *batch = NULL;
	enum status status = store_batch_create(&batch);
	if (!status)
		status = change(batch, instance);
	if (entry) { // what has failed fails the batch
		instance_changes(instance);
		instance->unsaved++;
		audit_commit(instance->all->params.audit, &batch, entry, told, instance);
		return;
	}
	if (status)
		store_batch_destroy(&batch);
	instance_row_commit(instance->all, instance->instance_id, &batch);
}

void instance_keep(struct instance *instance, const struct audit_tally *entry)
{
	commit(instance, instance_put_row, entry);
}

void instance_forget(struct instance *instance, const struct audit_tally *entry)
{
	commit(instance, put_removed, entry);
}

// ---- at the start ----

struct restoring {
	struct instances *all;
	struct store_batch *batch;
	struct instance **last;
};

static const char *strategy_named(const char *name)
{
	static const char *const names[] = {"pipeline", "tensor", "hybrid"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strcmp(names[i], name))
			return names[i];
	return "auto";
}

static void read_used(struct instance *instance, int64_t used_ms)
{
	const int64_t ago_ms = clock_wall_ms() - used_ms,
		      at_ms = instances_now(instance->all) - (ago_ms > 0 ? ago_ms : 0);
	instance->used_ms = at_ms ? at_ms : 1;
}

// Read what is valid: it only decides which instance is evicted first.
static void read_last(struct instance *instance, const struct json *last)
{
	const int64_t used_ms = json_get_integer(last, "used_ms", 0);
	struct recovery *recovery = &instance->recovery;
	const struct json *stage = json_first(json_get(last, "stages"));
	instance->format = format_parse(json_get_string(last, "format", ""));
	if (instance->format == FORMAT_UNKNOWN)
		instance->format = instance->model ? instance->model->sizes.main_format : FORMAT_F16;
	instance->strategy = strategy_named(json_get_string(last, "strategy", ""));
	instance->context_tokens = (uint32_t)json_get_integer(last, "context_tokens", 0);
	instance->sequences = (uint32_t)json_get_integer(last, "sequences", 0);
	instance->chat = json_get_bool(last, "chat", false);
	snprintf(instance->chat_template, sizeof instance->chat_template, "%s",
		 json_get_string(last, "chat_template", ""));
	snprintf(recovery->gave_way, sizeof recovery->gave_way, "%s", json_get_string(last, "gave_way", ""));
	snprintf(instance->gave_way_to, sizeof instance->gave_way_to, "%s", json_get_string(last, "gave_way_to", ""));
	instance->gave_way_ms = json_get_integer(last, "gave_way_ms", 0);
	heat_restore(instance, last);
	if (used_ms > 0)
		read_used(instance, used_ms);
	for (; stage && recovery->missing_count < PLACEMENT_STAGES; stage = json_next(stage)) {
		struct instance_missing *missing = &recovery->missing[recovery->missing_count];
		missing->first_layer = (uint32_t)json_get_integer(stage, "first_layer", 0);
		missing->layer_count = (uint32_t)json_get_integer(stage, "layer_count", 0);
		snprintf(missing->device_id, sizeof missing->device_id, "%s", json_get_string(stage, "device_id", ""));
		recovery->missing_count += missing->device_id[0] != 0;
	}
}

// The row was written by this program, or by another version: the contract decides what is accepted.
static enum status read_wanted(struct instance *instance, const char *text, struct error *error)
{
	const struct contract *contract = instance->all->params.api_contract;
	enum status status = json_parse(&instance->wanted, text, strlen(text), error);
	if (!status)
		status = contract_check_params(contract, contract_find(contract, create_method), instance->wanted,
					       error);
	if (!status && strcmp(json_get_string(instance->wanted, "model_id", ""), instance->model_id) != 0)
		status = error_set(error, STATUS_PARSE_ERROR, "it names two models");
	return status;
}

static void restore_row(void *context, const struct store_instance *row)
{
	struct restoring *restoring = context;
	struct instances *all = restoring->all;
	struct error error = {0};
	struct json *last = NULL;
	struct instance *instance = all->count < LIMIT_INSTANCES ? calloc(1, sizeof *instance) : NULL;
	if (!instance) {
		log_error("models", "instance %s of %s is left out: no room for it", row->instance_id, row->model_name);
		return;
	}
	*instance = (struct instance){.all = all,
				      .created_ms = row->created_ms,
				      .state_ms = clock_wall_ms(),
				      .load_ms = -1,
				      .tokens_per_s = -1,
				      .epoch = (uint64_t)row->epoch + EPOCHS_OF_A_START,
				      .recoveries = (unsigned)row->recoveries,
				      .moves = (unsigned)row->moves};
	snprintf(instance->instance_id, sizeof instance->instance_id, "%s", row->instance_id);
	snprintf(instance->model_id, sizeof instance->model_id, "%s", row->model_id);
	snprintf(instance->model_name, sizeof instance->model_name, "%s", row->model_name);
	json_parse(&last, row->last, strlen(row->last), NULL); // NULL if it is malformed
	read_last(instance, last);
	json_destroy(&last);
	json_parse(&instance->left, row->workers, strlen(row->workers), NULL); // the same
	enum status status = read_wanted(instance, row->wanted, &error);
	if (!status)
		status = put(restoring->batch, instance, NULL, store_change_instance);
	if (status) { // the row stays until somebody has seen this
		char why[INSTANCE_REASON_BYTES];
		snprintf(why, sizeof why,
			 "it cannot be restored: its record was written by another version of exogpu than "
			 "%s (%.120s); stop it, and place the model again",
			 EXOGPU_VERSION, error.message[0] ? error.message : status_text(status));
		instance_change(instance, &(struct instance_change){.to = INSTANCE_FAILED, .reason = why});
		log_warning("models", "instance %s of %s: %s", instance->instance_id, instance->model_name,
			    instance->state_reason);
	}
	*restoring->last = instance;
	restoring->last = &instance->next;
	all->count++;
}

enum status instances_restore(struct instances *instances, struct error *error)
{
	struct restoring restoring = {.all = instances, .last = &instances->first};
	enum status status = store_batch_create(&restoring.batch);
	if (status)
		return error_set(error, status, "out of memory");
	status = store_load_instances(instances->params.store, restore_row, &restoring, error);
	if (!status && instances->count)
		status = store_commit_wait(instances->params.store, &restoring.batch, error);
	store_batch_destroy(&restoring.batch);
	if (!status)
		evict_restore(instances);
	for (struct instance *one = instances->first; one && !status; one = one->next)
		if (one->state != INSTANCE_FAILED)
			recover_restored(one, CAUSE_RESTART, "the server was restarted");
	return status;
}
