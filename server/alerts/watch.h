/* Looks at the cluster every WATCH_LOOK_MS, gives what it sees to the rules (engine.h), and raises and clears their
 * alerts. One trouble is one alert: what depends on a node that is offline is not known, and raises nothing itself.
 * Keeps the rules that a person has changed as settings of state.db. Thread: the loop's. */
#pragma once
#include "server/alerts/alerts.h"
#include "server/alerts/decide.h"
#include "server/cluster/cluster.h"
#include "server/cluster/topology/topology.h"
#include "server/instances/instances.h"
#include "server/security/certificates/authority.h"
#include "server/security/tokens/tokens.h"
#include "server/store/turn.h"

enum { WATCH_LOOK_MS = 2000 };

struct watch;
struct watch_params {
	struct net_loop *loop;
	struct store *store;
	struct audit *audit;
	struct alerts *alerts;
	struct cluster *cluster;
	const struct topology *topology;
	const struct instances *instances;
	struct tokens *tokens;
	struct authority *authority;
	const struct turn *turn;               // NULL: there are no other servers
	const char *directory;                 // the data directory
	const char *cluster_id, *cluster_name; // the server, as a subject
};
enum status watch_create(struct watch **out, const struct watch_params *params, struct error *error);
void watch_destroy(struct watch **watch);

// The audit log was verified, and this was found (verdict: a word).
void watch_verified(struct watch *watch, bool ok, const char *verdict);

// The rules: an array of AlertRule of schema/api.json.
struct json *watch_rules_json(const struct watch *watch);
struct json *watch_rule_json(const struct watch *watch, enum alert_rule_number number);
// Change a rule: those of `changes` (enabled, threshold, clear_threshold, for_s) that are there. `done` is called once
// it is on disk, with its audit entry. Errors, and then `done` is not called: STATUS_NOT_FOUND, STATUS_INVALID_PARAMS,
// STATUS_CONFLICT (a change of it is on its way), the store's.
typedef void watch_done(void *context, enum status status, enum alert_rule_number number, const struct error *error);
enum status watch_set_rule(struct watch *watch, const struct json *changes, const struct audit_actor *by,
			   watch_done *done, void *context, struct error *error);
