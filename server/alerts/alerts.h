/* Alerts: things that a person should look at. Each is raised once and cleared once, as a row of state.db and an
 * event, and at most one of a kind and subject stands. Most are raised by rules (decide.h, watch.h). The code that
 * finds something by itself, such as a witness in conflict, raises the alert in the same transaction as its change. The
 * event follows the commit. The newest LIMIT_ALERTS are kept as history, here and on disk. Thread: the loop's. */
#pragma once
#include "server/alerts/channels.h"
#include "server/cluster/events.h"
#include "server/security/audit.h"
#include "server/store/store.h"

#define ALERT_AUDIT_FORKED "audit_forked" // subject: the node that holds another audit log

struct alerts;
struct alerts_params {
	struct store *store;
	struct events *events;
	struct audit *audit;
	struct channels *channels; // where each is sent to
};
// With those that the store keeps. Errors: the store's.
enum status alerts_create(struct alerts **out, const struct alerts_params *params, struct error *error);
// Before the events and the store are.
void alerts_destroy(struct alerts **alerts);

struct alert {
	const char *kind, *severity; // severity: info, warning or critical
	const char *subject_type, *subject_id, *subject_name;
	const char *message, *hint;      // for a person
	const double *value, *threshold; // of the rule that raises it; NULL: none does
	const char *node_id;             // that the subject is or belongs to; NULL: none
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
// Newest first, `limit` at most, all or those that stand. before: the id of one; those before it. "": from the newest.
struct json *alerts_list(const struct alerts *alerts, bool all, const char *before, int64_t limit);

// Somebody has seen the alert. `done` gets the alert once that and its audit entry are on disk; it belongs to the
// alerts. One that is acknowledged already is given as it is, and `done` is called before this returns. Errors, and
// then `done` is not called: STATUS_NOT_FOUND, with a hint; the store's.
typedef void alerts_done(void *context, enum status status, const struct json *alert, const struct error *error);
enum status alerts_acknowledge(struct alerts *alerts, const char *alert_id, const struct audit_actor *by,
			       alerts_done *done, void *context, struct error *error);

// For /metrics: how many stand, and how many were raised and cleared since the server started, by kind and severity.
struct alerts_count {
	char kind[32], severity[16];
	unsigned stand;
	uint64_t raised, cleared;
};
void alerts_each_count(const struct alerts *alerts, void (*each)(void *context, const struct alerts_count *count),
		       void *context);
// Calls `each` for every alert that stands.
void alerts_each_standing(const struct alerts *alerts,
			  void (*each)(void *context, const char *kind, const char *subject_type,
				       const char *subject_id),
			  void *context);
