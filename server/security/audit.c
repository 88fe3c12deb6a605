/* See audit.h: entries, and whether the log can be written. Counted events are the work of audit_tallies.c. */
#include "common/base/limits.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "server/security/audit_actions.h"
#include "server/security/audit_inside.h"

#include <inttypes.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>

enum { RETRY_MS = 1000 };

const struct audit_actor audit_server = {.actor = "server", .name = "", .session_id = "", .peer = ""};

// ---- whether the log can be written ----

static void trial_done(void *context, enum status status, const struct error *error);

// An entry that says for how long there was none. It is written again and again until it could be.
static void try_again(void *context)
{
	char detail[64];
	struct audit *audit = context;
	snprintf(detail, sizeof detail, "{\"untold\":%" PRIu64 "}", audit->untold);
	const struct audit_event event = {
		.action = "audit.resume", .detail = audit->untold ? detail : NULL, .began_ns = audit->failing_ns};
	if (audit_write(audit, &event, trial_done, audit, NULL))
		net_timer_start(audit->params.loop, &audit->try_again, RETRY_MS, try_again, audit);
}

static void trial_done(void *context, enum status status, const struct error *error)
{
	struct audit *audit = context;
	(void)error;
	if (!status)
		audit->untold = 0;
	else
		net_timer_start(audit->params.loop, &audit->try_again, RETRY_MS, try_again, audit);
}

void audit_failed(struct audit *audit, const struct error *why)
{
	if (audit->failing)
		return;
	audit->failing = true;
	audit->failing_ns = clock_steady_ns();
	audit->fault = (struct error){0};
	error_set(&audit->fault, STATUS_UNAVAILABLE,
		  "the audit log cannot be written, and nothing that it must tell of is done");
	error_hint(&audit->fault, "the server's operator must check the disk; then it continues by itself");
	log_error("audit", "the audit log cannot be written, and nothing that it must tell of is done: %s; %s",
		  why->message, why->hint);
	net_timer_start(audit->params.loop, &audit->try_again, RETRY_MS, try_again, audit);
}

// Something is on disk again, whoever wrote it.
void audit_recovered(struct audit *audit)
{
	if (!audit->failing)
		return;
	audit->failing = false;
	log_info("audit", "the audit log can be written again");
	audit_write_all(audit);
}

enum status audit_check(const struct audit *audit, struct error *error)
{
	if (!audit->failing)
		return STATUS_OK;
	if (error && !error->message[0])
		*error = audit->fault;
	return STATUS_UNAVAILABLE;
}

// ---- entries ----

struct journal_entry audit_entry_of(const struct audit_actor *by)
{
	return (struct journal_entry){
		.count = 1, .actor = by->actor, .actor_name = by->name, .session_id = by->session_id, .peer = by->peer};
}

static enum status put_event(struct store_batch *batch, const struct audit_event *event)
{
	struct journal_entry entry = audit_entry_of(event->by ? event->by : &audit_server);
	if (event->began_ns) {
		int64_t ns = clock_steady_ns() - event->began_ns;
		entry.duration_us = ns > 1000 ? ns / 1000 : 1;
	}
	entry.action = event->action;
	entry.target = event->target;
	entry.node_id = event->node_id;
	entry.device_id = event->device_id;
	entry.outcome = status_word(event->outcome);
	entry.detail = event->detail;
	return store_put_audit(batch, &entry);
}

enum status audit_put(struct audit *audit, struct store_batch *batch, const struct audit_event *event)
{
	(void)audit;
	audit_action_check(AUDIT_USE_PUT, event->action, event->outcome);
	return put_event(batch, event);
}

static void writing_destroy(struct writing **pointer)
{
	struct writing *writing = *pointer;
	*pointer = NULL;
	LIST_REMOVE(writing, link);
	free(writing);
}

static void written(void *context, enum status status, const struct error *error)
{
	struct writing *writing = context, said = *writing;
	writing_destroy(&writing);
	if (status)
		audit_failed(said.audit, error);
	else
		audit_recovered(said.audit);
	if (said.done)
		said.done(said.context, status, error);
}

// Commit a batch that holds nothing but entries.
enum status audit_commit_entries(struct audit *audit, struct store_batch **batch,
				 void (*done)(void *context, enum status status, const struct error *error),
				 void *context, struct error *error)
{
	struct error fault = {0};
	enum status status = store_commit(audit->params.store, batch, done, context);
	if (!status)
		return STATUS_OK;
	error_set(&fault, status, "too many changes wait for the disk");
	error_hint(&fault, "try again in a moment");
	audit_failed(audit, &fault);
	if (error && !error->message[0])
		*error = fault;
	return status;
}

enum status audit_write(struct audit *audit, const struct audit_event *event,
			void (*done)(void *context, enum status status, const struct error *error), void *context,
			struct error *error)
{
	struct store_batch *batch = NULL;
	audit_action_check(AUDIT_USE_WRITE, event->action, event->outcome);
	struct writing *writing = calloc(1, sizeof *writing);
	enum status status = writing ? store_batch_create(&batch) : STATUS_OUT_OF_MEMORY;
	if (status) {
		free(writing);
		return error_set(error, status, "no memory for an entry of the audit log");
	}
	*writing = (struct writing){.audit = audit, .done = done, .context = context};
	LIST_PUSH(&audit->writings, writing, link);
	put_event(batch, event); // what fails here fails the batch
	status = audit_commit_entries(audit, &batch, written, writing, error);
	if (status)
		writing_destroy(&writing);
	return status;
}

static void entry_stored(void *context, const struct journal_entry *entry)
{
	struct audit *audit = context;
	audit_recovered(audit);
	if (audit->params.publish)
		audit->params.publish(audit->params.context, audit_entry_json(entry));
}

struct json *audit_entry_json(const struct journal_entry *entry)
{
	return store_audit_json(entry);
}

// ---- beginning and end ----

enum status audit_create(struct audit **out, const struct audit_params *params, struct error *error)
{
	struct audit *audit = calloc(1, sizeof *audit);
	*out = audit;
	if (!audit)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the audit log");
	audit->params = *params;
	if (RAND_bytes((unsigned char *)&audit->seed, sizeof audit->seed) != 1) {
		free(audit);
		*out = NULL;
		return error_set(error, STATUS_UNAVAILABLE, "the system gives no random bytes");
	}
	store_listen_audit(params->store, entry_stored, audit);
	return STATUS_OK;
}

void audit_destroy(struct audit **pointer)
{
	struct audit *audit = *pointer;
	if (!audit)
		return;
	*pointer = NULL;
	audit_write_everything(audit); // the store commits what waits, and tells nobody
	if (audit->tallies || audit->untold)
		log_error("audit", "what was counted last is not in the audit log, which cannot be written");
	store_listen_audit(audit->params.store, NULL, NULL);
	net_timer_stop(audit->params.loop, &audit->write_soon);
	net_timer_stop(audit->params.loop, &audit->try_again);
	audit_tallies_finish(audit);
	while (audit->writings) {
		struct writing *writing = audit->writings;
		writing_destroy(&writing);
	}
	free(audit);
}
