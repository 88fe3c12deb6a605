/* See alerts.h. */
#include "server/cluster/alerts.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "server/security/random_id.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct standing {
	struct standing *next;
	struct alerts *alerts;
	struct json *json; // Alert of schema/api.json
	int64_t raised_ms, clearing_ms;
	bool stored;   // it is on disk, and was told
	bool clearing; // that is on its way to the disk
};

struct alerts {
	struct alerts_params params;
	struct standing *first;
};

// ---- the shape ----

static void set_time(struct json *json, const char *name, int64_t ms)
{
	char text[CLOCK_TEXT_BYTES];
	json_set_string(json, name, ms ? clock_format(ms, text) : NULL);
}

static struct json *alert_json(const struct store_alert *alert)
{
	struct json *json = json_new_object(), *subject = json_new_object();
	json_set_string(subject, "type", alert->subject_type);
	json_set_string(subject, "id", alert->subject_id);
	json_set_string(subject, "name", alert->subject_name);
	json_set_string(json, "alert_id", alert->alert_id);
	json_set_string(json, "kind", alert->kind);
	json_set_string(json, "severity", alert->severity);
	json_set(json, "subject", subject);
	json_set_string(json, "message", alert->message);
	json_set_string(json, "hint", alert->hint);
	set_time(json, "raised_at", alert->raised_ms);
	set_time(json, "cleared_at", alert->cleared_ms);
	set_time(json, "acknowledged_at", alert->acknowledged_ms);
	json_set_string(json, "acknowledged_by", alert->acknowledged_by[0] ? alert->acknowledged_by : NULL);
	return json;
}

static const char *member(const struct standing *one, const char *name)
{
	return json_get_string(one->json, name, "");
}

static const char *subject(const struct standing *one, const char *name)
{
	return json_get_string(json_get(one->json, "subject"), name, "");
}

// ---- the list ----

static struct standing *find(const struct alerts *alerts, const char *kind, const char *subject_id)
{
	struct standing *one = alerts->first;
	while (one && (strcmp(member(one, "kind"), kind) != 0 || strcmp(subject(one, "id"), subject_id) != 0))
		one = one->next;
	return one;
}

static struct standing *add(struct alerts *alerts, const struct store_alert *alert)
{
	struct standing *one = calloc(1, sizeof(*one)), **end = &alerts->first;
	if (!one)
		return NULL;
	*one = (struct standing){.alerts = alerts, .json = alert_json(alert), .raised_ms = alert->raised_ms};
	while (*end)
		end = &(*end)->next;
	*end = one;
	return one;
}

static void drop(struct standing *one)
{
	struct standing **at = &one->alerts->first;
	while (*at != one)
		at = &(*at)->next;
	*at = one->next;
	json_destroy(&one->json);
	free(one);
}

static void tell(const struct standing *one)
{
	struct json *data = json_new_object();
	json_set(data, "alert", json_copy(one->json));
	events_publish(one->alerts->params.events, TOPIC_ALERTS, 0, data);
}

static void load(void *context, const struct store_alert *alert)
{
	struct standing *one = add(context, alert);
	if (one)
		one->stored = true;
}

enum status alerts_create(struct alerts **out, const struct alerts_params *params, struct error *error)
{
	struct alerts *alerts = calloc(1, sizeof(*alerts));
	*out = alerts;
	if (!alerts)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for alerts");
	alerts->params = *params;
	return store_load_alerts(params->store, load, alerts, error);
}

void alerts_destroy(struct alerts **pointer)
{
	struct alerts *alerts = *pointer;
	if (!alerts)
		return;
	*pointer = NULL;
	while (alerts->first)
		drop(alerts->first);
	free(alerts);
}

bool alerts_stands(const struct alerts *alerts, const char *kind, const char *subject_id)
{
	return find(alerts, kind, subject_id) != NULL;
}

struct json *alerts_json(const struct alerts *alerts)
{
	struct json *array = json_new_array();
	for (const struct standing *one = alerts->first; one; one = one->next)
		if (one->stored)
			json_push(array, json_copy(one->json));
	return array;
}

// ---- changes ----

static void raised(void *context, enum status status, const struct error *error)
{
	struct standing *one = context;
	if (status) {
		log_warning("alerts",
			    "an alert could not be stored, and is raised again when its reason is seen again: %s",
			    error->message);
		drop(one);
		return;
	}
	one->stored = true;
	log_error("alerts", "%s; %s", member(one, "message"), member(one, "hint"));
	tell(one);
}

enum status alerts_raise(struct alerts *alerts, const struct alert *alert, struct store_batch **batch)
{
	char id[32];
	const struct store_alert row = {.alert_id = id,
					.kind = alert->kind,
					.severity = alert->severity,
					.subject_type = alert->subject_type,
					.subject_id = alert->subject_id,
					.subject_name = alert->subject_name,
					.message = alert->message,
					.hint = alert->hint,
					.acknowledged_by = "",
					.raised_ms = clock_wall_ms()};
	if (find(alerts, alert->kind, alert->subject_id))
		return store_commit(alerts->params.store, batch, NULL, NULL);
	enum status status = random_id("alert_", id, sizeof(id));
	if (!status)
		status = store_put_alert(*batch, &row);
	struct standing *one = status ? NULL : add(alerts, &row);
	if (!one) {
		store_batch_destroy(batch);
		return status ? status : STATUS_OUT_OF_MEMORY;
	}
	status = store_commit(alerts->params.store, batch, raised, one);
	if (status)
		drop(one);
	return status;
}

static void cleared(void *context, enum status status, const struct error *error)
{
	struct standing *one = context;
	one->clearing = false;
	if (status) {
		log_warning("alerts", "an alert stands although its reason is gone: %s", error->message);
		return;
	}
	set_time(one->json, "cleared_at", one->clearing_ms);
	log_info("alerts", "resolved: %s", member(one, "message"));
	tell(one);
	drop(one);
}

static enum status clear(struct standing *one, struct store_batch **batch)
{
	one->clearing_ms = clock_wall_ms();
	const struct store_alert row = {.alert_id = member(one, "alert_id"),
					.kind = member(one, "kind"),
					.severity = member(one, "severity"),
					.subject_type = subject(one, "type"),
					.subject_id = subject(one, "id"),
					.subject_name = subject(one, "name"),
					.message = member(one, "message"),
					.hint = member(one, "hint"),
					.acknowledged_by = "",
					.raised_ms = one->raised_ms,
					.cleared_ms = one->clearing_ms};
	enum status status = store_put_alert(*batch, &row);
	if (status) {
		store_batch_destroy(batch);
		return status;
	}
	one->clearing = true;
	status = store_commit(one->alerts->params.store, batch, cleared, one);
	one->clearing = !status;
	return status;
}

enum status alerts_clear(struct alerts *alerts, const char *kind, const char *subject_id, struct store_batch **batch)
{
	struct standing *one = find(alerts, kind, subject_id);
	if (!one || one->clearing || !one->stored)
		return store_commit(alerts->params.store, batch, NULL, NULL);
	return clear(one, batch);
}

void alerts_clear_gone(struct alerts *alerts, const char *kind, bool (*there)(void *context, const char *subject_id),
		       void *context)
{
	struct store_batch *batch = NULL;
	for (struct standing *next, *one = alerts->first; one; one = next) {
		next = one->next;
		if (one->stored && !one->clearing && !strcmp(member(one, "kind"), kind) &&
		    !there(context, subject(one, "id")) && !store_batch_create(&batch))
			clear(one, &batch);
	}
}
