/* Rows of state.db that could not be written when their instances changed: a full disk, or a database that does not
 * answer. They are written again, as the instances are then, until that works: a server that starts would otherwise
 * find what is no longer true. Thread: the loop's. */
#include "common/base/list.h"
#include "common/base/log.h"
#include "server/instances/instances_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_AGAIN_MS = 2000 };

// A row that is being written, or is to be.
struct instance_row_write {
	struct instance_row_write *next, **link;
	struct instances *all;
	char instance_id[INSTANCE_ID_BYTES];
	bool stale; // it is not being written
};

static void write_again(void *arg);

static void later(struct instance_row_write *row)
{
	struct instances *all = row->all;
	row->stale = true;
	if (!all->ending)
		net_timer_start(all->params.loop, &all->rows_again, ROWS_AGAIN_MS, write_again, all);
}

static void written(void *context, enum status status, const struct error *error)
{
	struct instance_row_write *row = context;
	if (status) {
		log_warning("models", "the state of instance %s could not be stored: %s", row->instance_id,
			    error ? error->message : status_text(status));
		later(row);
		return;
	}
	LIST_REMOVE(row, link);
	free(row);
}

static struct instance_row_write *row_create(struct instances *all, const char *instance_id)
{
	struct instance_row_write *row = calloc(1, sizeof *row);
	if (!row)
		return NULL;
	row->all = all;
	snprintf(row->instance_id, sizeof row->instance_id, "%s", instance_id);
	LIST_PUSH(&all->rows, row, link);
	return row;
}

void instance_row_commit(struct instances *all, const char *instance_id, struct store_batch **batch)
{
	struct instance_row_write *row = *batch ? row_create(all, instance_id) : NULL;
	enum status status = row ? store_commit(all->params.store, batch, written, row) : STATUS_OUT_OF_MEMORY;
	store_batch_destroy(batch);
	if (row && status)
		written(row, status, NULL);
	else if (status)
		log_warning("models", "the state of instance %s could not be stored: %s", instance_id,
			    status_text(status));
}

void instance_row_stale(struct instances *all, const char *instance_id)
{
	struct instance_row_write *row = row_create(all, instance_id);
	if (row)
		later(row);
}

// The instance of this id among these and those that were unloaded for them. NULL: it has failed or is gone, and so has
// no row.
static const struct instance *with_row(const struct instance *first, const char *instance_id)
{
	const struct instance *found = NULL;
	for (const struct instance *one = first; one && !found; one = one->next)
		if (!strcmp(one->instance_id, instance_id))
			return one->state == INSTANCE_FAILED ? NULL : one;
		else
			found = with_row(one->displaced, instance_id);
	return found;
}

static void write_again(void *arg)
{
	struct instances *all = arg;
	for (struct instance_row_write *row = all->rows, *next; row; row = next) {
		struct store_batch *batch = NULL;
		next = row->next;
		if (!row->stale)
			continue;
		const struct instance *instance = with_row(all->first, row->instance_id);
		enum status status = store_batch_create(&batch);
		if (!status && instance)
			status = instance_put_row(batch, instance);
		else if (!status)
			status = store_remove_instance(batch, row->instance_id);
		row->stale = false;
		if (!status)
			status = store_commit(all->params.store, &batch, written, row);
		store_batch_destroy(&batch);
		if (status)
			later(row);
	}
}

void instance_rows_destroy(struct instances *all)
{
	net_timer_stop(all->params.loop, &all->rows_again);
	while (all->rows) {
		struct instance_row_write *row = all->rows;
		LIST_REMOVE(row, link);
		free(row);
	}
}
