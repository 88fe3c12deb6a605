/* The only place that sets the state of an instance (the lint's rule `states` holds that), and the clock of all of
 * them. Which state may follow which is the table of states.c. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/instances/instances_inside.h"

#include <stdio.h>

int64_t instances_now(const struct instances *all)
{
	return all->params.now_ms ? all->params.now_ms(all->params.now_context) : clock_steady_ms();
}

// The row as the instance is now, or its removal, with the entry in the same transaction if there is one.
static void store(struct instance *instance, const struct instance_change *change)
{
	switch (change->row) {
	case INSTANCE_ROW_STAYS:
		return;
	case INSTANCE_ROW_WRITTEN:
		if (change->entry)
			instance_keep_told(instance, change->entry);
		else
			instance_keep(instance);
		return;
	case INSTANCE_ROW_REMOVED:
		if (change->entry)
			instance_forget_told(instance, change->entry);
		else
			instance_forget(instance);
		return;
	}
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
	if (change->reason)
		snprintf(instance->state_reason, sizeof instance->state_reason, "%s", change->reason);
	store(instance, change);
	return true;
}
