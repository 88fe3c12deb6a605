/* Alerts: things that a person should look at. Each is raised once and cleared once, as a row of state.db and an
 * event. The code that finds the reason raises the alert in the same transaction as the change; the event
 * follows the commit. There is at most one alert of a kind and subject. Today there is one kind. Thread: the
 * loop's. */
#pragma once
#include "server/cluster/events.h"
#include "server/store/store.h"

#define ALERT_AUDIT_FORKED "audit_forked" // subject: the node that holds another audit log

struct alerts;
struct alerts_params {
	struct store *store;
	struct events *events;
};
// With those that stand in the store. Errors: the store's.
enum status alerts_create(struct alerts **out, const struct alerts_params *params, struct error *error);
// Before the events and the store are.
void alerts_destroy(struct alerts **alerts);

struct alert {
	const char *kind, *severity; // severity: info, warning or critical
	const char *subject_type, *subject_id, *subject_name;
	const char *message, *hint; // for a person
};
// Commit the batch (taken), and with it the alert, unless one of its kind and subject stands already.
enum status alerts_raise(struct alerts *alerts, const struct alert *alert, struct store_batch **batch);
// Commit the batch (taken), and with it that the alert does not stand any more, if it does.
enum status alerts_clear(struct alerts *alerts, const char *kind, const char *subject_id, struct store_batch **batch);
bool alerts_stands(const struct alerts *alerts, const char *kind, const char *subject_id);
// Clear those of a kind whose subject is not there any more.
void alerts_clear_gone(struct alerts *alerts, const char *kind, bool (*there)(void *context, const char *subject_id),
		       void *context);
// The alerts that stand, oldest first: an array of Alert of schema/api.json.
struct json *alerts_json(const struct alerts *alerts);
