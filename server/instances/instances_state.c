/* The only place that sets the state of an instance (the lint's rule `states` holds that), and the clock of all of
 * them. Which state may follow which is the table of states.c. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/instances/instances_inside.h"

#include <stdio.h>
#include <stdlib.h>

int64_t instances_now(const struct instances *all)
{
	return all->params.now_ms ? all->params.now_ms(all->params.now_context) : clock_steady_ms();
}

void instance_give_news(const struct instance *instance, struct instance_news *news, bool tell)
{
	for (struct instance_news *next; news; news = next) {
		next = news->next;
		if (tell)
			cluster_note_model(instance->all->params.cluster,
					   &(struct cluster_news){.node_id = news->node_id,
								  .model = instance->model_name,
								  .kind = news->kind,
								  .level = news->level,
								  .summary = news->summary});
		free(news);
	}
}

// Told after all changes that are under way are on disk; at once where there are none.
static void tell_after(struct instance *instance, const struct instance_news *news)
{
	struct instance_shown *last = instance->shown;
	struct instance_news *kept = malloc(sizeof *kept), **end;
	if (!kept) {
		log_warning("models", "out of memory: nobody is told that %s %s", instance->model_name, news->summary);
		return;
	}
	*kept = *news;
	snprintf(kept->node_id, sizeof kept->node_id, "%s", cluster_device_node_id(instance->stages[0].device));
	while (last && last->next)
		last = last->next;
	if (!last) {
		instance_give_news(instance, kept, true);
		return;
	}
	for (end = &last->news; *end; end = &(*end)->next)
		;
	*end = kept;
}

// News about a model for the Overview.
static void tell(struct instance *instance, enum instance_state from)
{
	struct instance_news news = {.level = "info"};
	switch (instance->state) {
	case INSTANCE_STARTING:
	case INSTANCE_LOADING:
		return;
	case INSTANCE_RUNNING:
		news.kind = "model.loaded";
		news.summary = from == INSTANCE_PAUSED ? "answers again" : "is loaded";
		break;
	case INSTANCE_PAUSED:
		news.kind = "model.paused";
		news.level = "attention";
		news.summary = "is paused";
		break;
	case INSTANCE_STOPPING:
		if (from == INSTANCE_FAILED) // it was not loaded any more, and this is published
			return;
		news.kind = "model.unloaded";
		news.summary = "is unloaded";
		break;
	case INSTANCE_FAILED:
		news.kind = "model.failed";
		news.level = "error";
		news.summary = "has failed";
		break;
	}
	if (instance->stage_count && !instance->all->ending) // loaded models come back with the next server
		tell_after(instance, &news);
}

bool instance_change(struct instance *instance, const struct instance_change *change)
{
	const enum instance_state from = instance->state;
	if (!instance_state_may(from, change->to)) {
		log_error("models", "instance %s of %s cannot be %s: it is %s. Please report this",
			  instance->instance_id, instance->model_name, instance_state_name(change->to),
			  instance_state_name(from));
		return false;
	}
	if (change->entry)
		instance_changes(instance); // it is shown as it was until the entry is on disk
	instance->state = change->to;
	instance->state_ms = clock_wall_ms();
	if (change->reason)
		snprintf(instance->state_reason, sizeof instance->state_reason, "%s", change->reason);
	if (change->row == INSTANCE_ROW_WRITTEN)
		instance_keep(instance, change->entry);
	else if (change->row == INSTANCE_ROW_REMOVED)
		instance_forget(instance, change->entry);
	tell(instance, from);
	return true;
}
