/* See alerts.h. */
#include "server/alerts/alerts.h"

#include "common/base/clock.h"
#include "common/base/keyed_hash.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/wire/said.h"
#include "server/alerts/decide.h"
#include "server/security/random_id.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	COUNTS_MOST = 64, // kinds with their severities; there are fewer
	BUCKETS = 1024,
	LINES_PER_MIN = 20, // in the log: nodes could fill it, since their readings raise and clear alerts
};

struct entry {
	struct entry *next, *same; // same: the next that has not been cleared, of its bucket
	struct alerts *alerts;
	struct json *json; // Alert of schema/api.json
	char node_id[STORE_ID_BYTES];
	int64_t raised_ms, cleared_ms, clearing_ms;
	bool stored;      // it is on disk, and was told
	bool clearing;    // that is on its way to the disk
	unsigned holders; // changes of it that are on their way: it is not dropped
};

struct alerts {
	struct alerts_params params;
	struct entry *first, **end;      // oldest first
	struct entry *standing[BUCKETS]; // that were not cleared, by the hash of their subjects
	size_t count;
	struct alerts_count counts[COUNTS_MOST];
	size_t count_count;
	int64_t minute_ms; // steady clock: when the minute began that `lines` were written in
	unsigned lines, left_out;
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
	said_set(json, "message", alert->message);
	said_set(json, "hint", alert->hint);
	json_set_number(json, "value", alert->value);
	json_set_number(json, "threshold", alert->threshold);
	set_time(json, "raised_at", alert->raised_ms);
	set_time(json, "cleared_at", alert->cleared_ms);
	set_time(json, "acknowledged_at", alert->acknowledged_ms);
	json_set_string(json, "acknowledged_by", alert->acknowledged_by[0] ? alert->acknowledged_by : NULL);
	return json;
}

static const char *member(const struct entry *one, const char *name)
{
	return json_get_string(one->json, name, "");
}

static const char *subject(const struct entry *one, const char *name)
{
	return json_get_string(json_get(one->json, "subject"), name, "");
}

// The row of an alert as it is; its texts belong to the alert.
static struct store_alert row_of(const struct entry *one)
{
	return (struct store_alert){.alert_id = member(one, "alert_id"),
				    .kind = member(one, "kind"),
				    .severity = member(one, "severity"),
				    .subject_type = subject(one, "type"),
				    .subject_id = subject(one, "id"),
				    .subject_name = subject(one, "name"),
				    .message = member(one, "message"),
				    .hint = member(one, "hint"),
				    .acknowledged_by = "",
				    .node_id = one->node_id,
				    .value = json_get_number(one->json, "value", NAN),
				    .threshold = json_get_number(one->json, "threshold", NAN),
				    .raised_ms = one->raised_ms};
}

// ---- the list ----

static size_t bucket_of(const char *subject_id)
{
	return keyed_hash(subject_id, strlen(subject_id)) % BUCKETS;
}

// It does not stand any more: `find` does not find it.
static void take_out(struct entry *one)
{
	struct entry **at = &one->alerts->standing[bucket_of(subject(one, "id"))];
	while (*at && *at != one)
		at = &(*at)->same;
	if (*at)
		*at = one->same;
}

static struct entry *find(const struct alerts *alerts, const char *kind, const char *subject_id)
{
	struct entry *one = alerts->standing[bucket_of(subject_id)];
	while (one && (strcmp(member(one, "kind"), kind) != 0 || strcmp(subject(one, "id"), subject_id) != 0))
		one = one->same;
	return one;
}

static struct entry *find_id(const struct alerts *alerts, const char *alert_id)
{
	struct entry *one = alerts->first;
	while (one && (!one->stored || strcmp(member(one, "alert_id"), alert_id) != 0))
		one = one->next;
	return one;
}

static void drop(struct entry *one)
{
	struct entry **at = &one->alerts->first;
	while (*at != one)
		at = &(*at)->next;
	*at = one->next;
	if (!one->next)
		one->alerts->end = at;
	take_out(one);
	one->alerts->count--;
	json_destroy(&one->json);
	free(one);
}

static bool is_audit(const struct entry *one)
{
	return !strncmp(member(one, "kind"), "audit_", 6);
}

// The cleared alert that goes next: the oldest of the node that has the most, and one about the audit log only if there
// is no other. NULL: all stand, or are being changed.
static struct entry *next_to_go(struct alerts *alerts)
{
	unsigned of_node[BUCKETS] = {0}; // by the hash of the node's id
	struct entry *found = NULL, *of_audit = NULL;
	for (const struct entry *one = alerts->first; one; one = one->next)
		if (one->cleared_ms && !one->holders && !is_audit(one))
			of_node[bucket_of(one->node_id)]++;
	for (struct entry *one = alerts->first; one; one = one->next) {
		if (!one->cleared_ms || one->holders)
			continue;
		if (is_audit(one))
			of_audit = of_audit ? of_audit : one;
		else if (!found || of_node[bucket_of(one->node_id)] > of_node[bucket_of(found->node_id)])
			found = one;
	}
	return found ? found : of_audit;
}

// The store does the same (BATCH_TRIM_ALERTS). A node raises and clears alerts as it likes, so it must not take away
// those of others, nor those about the audit log.
static void trim(struct alerts *alerts)
{
	struct entry *one;
	while (alerts->count > LIMIT_ALERTS && (one = next_to_go(alerts)))
		drop(one);
}

static struct entry *add(struct alerts *alerts, const struct store_alert *alert)
{
	struct entry *one = calloc(1, sizeof(*one));
	if (!one)
		return NULL;
	*one = (struct entry){.alerts = alerts,
			      .json = alert_json(alert),
			      .raised_ms = alert->raised_ms,
			      .cleared_ms = alert->cleared_ms};
	snprintf(one->node_id, sizeof one->node_id, "%s", alert->node_id);
	*alerts->end = one;
	alerts->end = &one->next;
	if (!one->cleared_ms) {
		struct entry **bucket = &alerts->standing[bucket_of(subject(one, "id"))];
		one->same = *bucket;
		*bucket = one;
	}
	alerts->count++;
	trim(alerts);
	return one;
}

// The figures of a kind and severity; NULL if there is no room for one more.
static struct alerts_count *count_of(struct alerts *alerts, const char *kind, const char *severity)
{
	for (size_t i = 0; i < alerts->count_count; i++)
		if (!strcmp(alerts->counts[i].kind, kind) && !strcmp(alerts->counts[i].severity, severity))
			return &alerts->counts[i];
	if (alerts->count_count == COUNTS_MOST)
		return NULL;
	struct alerts_count *count = &alerts->counts[alerts->count_count++];
	snprintf(count->kind, sizeof count->kind, "%s", kind);
	snprintf(count->severity, sizeof count->severity, "%s", severity);
	return count;
}

static void count_change(struct entry *one, bool is_raised)
{
	struct alerts_count *count = count_of(one->alerts, member(one, "kind"), member(one, "severity"));
	if (!count)
		return;
	count->raised += is_raised;
	count->cleared += !is_raised;
}

static void tell(const struct entry *one)
{
	struct json *data = json_new_object();
	json_set(data, "alert", json_copy(one->json));
	events_publish(one->alerts->params.events, TOPIC_ALERTS, 0, data);
}

static void load(void *context, const struct store_alert *alert)
{
	struct entry *one = add(context, alert);
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
	alerts->end = &alerts->first;
	// Prometheus wants counters that begin at 0.
	count_of(alerts, ALERT_AUDIT_FORKED, "critical");
	for (int i = 0; i < ALERT_RULES; i++)
		count_of(alerts, alert_default_rules[i].kind, alert_default_rules[i].severity);
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
	for (const struct entry *one = alerts->first; one; one = one->next)
		if (one->stored && !one->cleared_ms)
			json_push(array, json_copy(one->json));
	return array;
}

struct json *alerts_list(const struct alerts *alerts, bool all, const char *before, int64_t limit)
{
	const struct entry **list = calloc(alerts->count + 1, sizeof(*list));
	struct json *array = json_new_array();
	size_t count = 0;
	bool found = !before[0]; // one that is no longer kept was among the oldest: nothing is behind it
	for (const struct entry *one = alerts->first; one && list; one = one->next) {
		found = found || !strcmp(member(one, "alert_id"), before);
		if (before[0] && found)
			break;
		if (one->stored && (all || !one->cleared_ms))
			list[count++] = one;
	}
	for (; found && count && limit > 0; limit--)
		json_push(array, json_copy(list[--count]->json));
	free(list);
	return array;
}

void alerts_each_count(const struct alerts *alerts, void (*each)(void *context, const struct alerts_count *count),
		       void *context)
{
	for (size_t i = 0; i < alerts->count_count; i++) {
		struct alerts_count count = alerts->counts[i];
		for (const struct entry *one = alerts->first; one; one = one->next)
			count.stand += one->stored && !one->cleared_ms && !strcmp(member(one, "kind"), count.kind) &&
				       !strcmp(member(one, "severity"), count.severity);
		each(context, &count);
	}
}

void alerts_each_standing(const struct alerts *alerts,
			  void (*each)(void *context, const char *kind, const char *subject_type,
				       const char *subject_id),
			  void *context)
{
	for (const struct entry *one = alerts->first; one; one = one->next)
		if (one->stored && !one->cleared_ms && !one->clearing)
			each(context, member(one, "kind"), subject(one, "type"), subject(one, "id"));
}

// ---- changes ----

// A line in the log, as long as this minute has few. Those about the audit log are always written.
static void write_line(const struct entry *one, enum log_level level, const char *before, const char *after)
{
	struct alerts *alerts = one->alerts;
	const int64_t now_ms = clock_steady_ms();
	if (now_ms - alerts->minute_ms >= 60000) {
		if (alerts->left_out)
			log_warning("alerts", "%u lines about alerts were left out; exogpu alerts --all has them",
				    alerts->left_out);
		alerts->minute_ms = now_ms;
		alerts->lines = alerts->left_out = 0;
	}
	if (!is_audit(one) && ++alerts->lines > LINES_PER_MIN)
		alerts->left_out++;
	else
		log_write(level, "alerts", "%s%s%s", before, member(one, "message"), after);
}

static void raised(void *context, enum status status, const struct error *error)
{
	struct entry *one = context;
	channels_settle(one->alerts->params.channels, member(one, "alert_id"), !status);
	if (status) {
		log_warning("alerts",
			    "an alert could not be stored, and is raised again when its reason is seen again: %s",
			    error->message);
		drop(one);
		return;
	}
	one->stored = true;
	count_change(one, true);
	const char *severity = member(one, "severity");
	const enum log_level level = !strcmp(severity, "critical") ? LOG_ERROR
				     : !strcmp(severity, "info")   ? LOG_INFO
								   : LOG_WARNING;
	char after[512];
	snprintf(after, sizeof(after), "; %s", member(one, "hint"));
	write_line(one, level, "", after);
	tell(one);
}

// Commit a change of an alert (taken), with what its channels are told of it.
static enum status commit_told(struct entry *one, const char *type, const struct json *alert,
			       struct store_batch **batch,
			       void (*done)(void *context, enum status status, const struct error *error))
{
	struct channels *channels = one->alerts->params.channels;
	enum status status = channels_put(channels, *batch, type, alert);
	if (status)
		store_batch_destroy(batch);
	else
		status = store_commit(one->alerts->params.store, batch, done, one);
	if (status)
		channels_settle(channels, member(one, "alert_id"), false);
	return status;
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
					.node_id = alert->node_id ? alert->node_id : "",
					.value = alert->value ? *alert->value : NAN,
					.threshold = alert->threshold ? *alert->threshold : NAN,
					.raised_ms = clock_wall_ms()};
	if (find(alerts, alert->kind, alert->subject_id))
		return store_commit(alerts->params.store, batch, NULL, NULL);
	enum status status = random_id("alert_", id, sizeof(id));
	if (!status)
		status = store_put_alert(*batch, &row);
	struct entry *one = status ? NULL : add(alerts, &row);
	if (!one) {
		store_batch_destroy(batch);
		return status ? status : STATUS_OUT_OF_MEMORY;
	}
	status = commit_told(one, "alert.raised", one->json, batch, raised);
	if (status)
		drop(one);
	return status;
}

static void cleared(void *context, enum status status, const struct error *error)
{
	struct entry *one = context;
	channels_settle(one->alerts->params.channels, member(one, "alert_id"), !status);
	one->clearing = false;
	if (status) {
		log_warning("alerts", "an alert stands although its reason is gone: %s", error->message);
		return;
	}
	one->cleared_ms = one->clearing_ms;
	take_out(one);
	set_time(one->json, "cleared_at", one->cleared_ms);
	count_change(one, false);
	write_line(one, LOG_INFO, "resolved: ", "");
	tell(one);
	trim(one->alerts);
}

static enum status clear(struct entry *one, struct store_batch **batch)
{
	one->clearing_ms = clock_wall_ms();
	struct store_alert row = row_of(one);
	row.cleared_ms = one->clearing_ms;
	enum status status = store_put_alert(*batch, &row);
	if (status) {
		store_batch_destroy(batch);
		return status;
	}
	struct json *json = json_copy(one->json);
	set_time(json, "cleared_at", one->clearing_ms);
	status = commit_told(one, "alert.cleared", json, batch, cleared);
	json_destroy(&json);
	one->clearing = !status;
	return status;
}

enum status alerts_clear(struct alerts *alerts, const char *kind, const char *subject_id, struct store_batch **batch)
{
	struct entry *one = find(alerts, kind, subject_id);
	if (!one || one->clearing || !one->stored)
		return store_commit(alerts->params.store, batch, NULL, NULL);
	return clear(one, batch);
}

void alerts_clear_gone(struct alerts *alerts, const char *kind, bool (*there)(void *context, const char *subject_id),
		       void *context)
{
	struct store_batch *batch = NULL;
	for (struct entry *one = alerts->first; one; one = one->next)
		if (one->stored && !one->clearing && !one->cleared_ms && !strcmp(member(one, "kind"), kind) &&
		    !there(context, subject(one, "id")) && !store_batch_create(&batch))
			clear(one, &batch);
}

// ---- acknowledging ----

struct acknowledging {
	struct entry *one;
	int64_t at_ms;
	char by[STORE_NAME_BYTES];
	alerts_done *done;
	void *context;
};

static void acknowledged(void *context, enum status status, const struct error *error)
{
	struct acknowledging *doing = context;
	struct entry *one = doing->one;
	one->holders--;
	if (!status && !json_get_string(one->json, "acknowledged_by", "")[0]) {
		set_time(one->json, "acknowledged_at", doing->at_ms);
		json_set_string(one->json, "acknowledged_by", doing->by);
		tell(one);
	}
	doing->done(doing->context, status, status ? NULL : one->json, error);
	free(doing);
	trim(one->alerts);
}

// The alert's row and the entry of the audit log, in one batch.
static enum status put_acknowledged(const struct acknowledging *doing, const struct audit_actor *by,
				    struct store_batch **batch)
{
	struct store_alert row = row_of(doing->one);
	const struct audit_event event = {.by = by, .action = "alert.acknowledge", .target = row.alert_id};
	row.acknowledged_ms = doing->at_ms;
	row.acknowledged_by = doing->by;
	row.cleared_ms = doing->one->cleared_ms;
	enum status status = store_batch_create(batch);
	if (!status)
		status = store_put_alert(*batch, &row);
	return status ? status : audit_put(doing->one->alerts->params.audit, *batch, &event);
}

enum status alerts_acknowledge(struct alerts *alerts, const char *alert_id, const struct audit_actor *by,
			       alerts_done *done, void *context, struct error *error)
{
	struct store_batch *batch = NULL;
	struct entry *one = find_id(alerts, alert_id);
	if (!one) {
		error_set(error, STATUS_NOT_FOUND, "there is no alert %.64s", alert_id);
		error_hint(error, "exogpu alerts --all lists those that there are and were");
		return STATUS_NOT_FOUND;
	}
	if (json_get_string(one->json, "acknowledged_by", "")[0]) {
		done(context, STATUS_OK, one->json, NULL);
		return STATUS_OK;
	}
	struct acknowledging *doing = calloc(1, sizeof(*doing));
	if (!doing)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to acknowledge an alert");
	*doing = (struct acknowledging){.one = one, .at_ms = clock_wall_ms(), .done = done, .context = context};
	snprintf(doing->by, sizeof doing->by, "%s", by->name[0] ? by->name : by->actor);
	enum status status = put_acknowledged(doing, by, &batch);
	if (status)
		store_batch_destroy(&batch);
	else
		status = store_commit(alerts->params.store, &batch, acknowledged, doing);
	if (status) {
		free(doing);
		return error_set(error, status, "the alert cannot be acknowledged now");
	}
	one->holders++;
	return STATUS_OK;
}
