/* See decide.h. */
#include "server/alerts/decide.h"

#include <math.h>
#include <string.h>

enum { SAMPLES_LEAST = 2, GAP_MS = 60000 };

// clang-format off
const struct alert_rule alert_default_rules[ALERT_RULES] = {
	[ALERT_RULE_NODE_OFFLINE] =
		{"node_offline", "node_offline", "node", "critical", "", 1, 0, 60, false, true},
	[ALERT_RULE_VERSION_DIFFERS] =
		{"version_differs", "version_differs", "node", "info", "", 1, 0, 600, false, true},
	[ALERT_RULE_DRIVER_UNUSABLE] =
		{"driver_unusable", "driver_unusable", "node", "warning", "", 1, 0, 60, false, true},
	[ALERT_RULE_NODE_MEMORY] =
		{"memory_full.node", "memory_full", "node", "warning", "percent", 95, 90, 60, false, true},
	[ALERT_RULE_LINK_DEGRADED] =
		{"link_degraded", "link_degraded", "node", "warning", "", 1, 0, 60, false, true},
	[ALERT_RULE_DEVICE_LOST] =
		{"device_lost", "device_lost", "device", "critical", "", 1, 0, 30, false, true},
	[ALERT_RULE_DEVICE_MEMORY] =
		{"memory_full.device", "memory_full", "device", "warning", "percent", 99, 97, 60, false, true},
	[ALERT_RULE_THROTTLED] =
		{"throttled", "throttled", "device", "warning", "", 1, 0, 30, false, true},
	[ALERT_RULE_THROTTLES_SOON] =
		{"throttles_soon", "throttles_soon", "device", "warning", "", 1, 0, 0, false, true},
	[ALERT_RULE_ECC_ERRORS] =
		{"ecc_errors", "ecc_errors", "device", "critical", "errors", 1, 0, 0, false, true},
	[ALERT_RULE_COMPUTES_WRONG] =
		{"computes_wrong", "computes_wrong", "device", "critical", "", 1, 0, 0, false, true},
	[ALERT_RULE_WORKER_FAILING] =
		{"worker_failing", "worker_failing", "device", "warning", "ends", 3, 0, 0, false, true},
	[ALERT_RULE_SHARDS_UNBALANCED] =
		{"shards_unbalanced", "shards_unbalanced", "instance", "warning", "percent", 25, 10, 60, false, true},
	[ALERT_RULE_DISK_FULL] =
		{"disk_full", "disk_full", "server", "critical", "percent", 95, 90, 60, false, true},
	[ALERT_RULE_HISTORY_UNWRITTEN] =
		{"history_unwritten", "history_unwritten", "server", "warning", "", 1, 0, 60, false, true},
	[ALERT_RULE_AUDIT_FAILED] =
		{"audit_failed", "audit_failed", "server", "critical", "", 1, 0, 0, false, true},
	[ALERT_RULE_SERVER_LOST] =
		{"server_lost", "server_lost", "server", "warning", "", 1, 0, 60, false, true},
	[ALERT_RULE_SERVER_LAGS] =
		{"server_lags", "server_lags", "server", "warning", "seconds", 4, 3, 60, false, true},
	[ALERT_RULE_CERTIFICATE_EXPIRING] =
		{"certificate_expiring", "certificate_expiring", "certificate", "warning", "days", 7, 8, 60, true,
		 true},
	[ALERT_RULE_TOKEN_EXPIRING] =
		{"token_expiring", "token_expiring", "token", "warning", "days", 7, 8, 60, true, true},
};
// clang-format on

enum alert_rule_number alert_rule_find(const char *rule_id)
{
	int number = 0;
	while (number < ALERT_RULES && strcmp(alert_default_rules[number].rule_id, rule_id) != 0)
		number++;
	return (enum alert_rule_number)number;
}

enum status alert_rule_check(const struct alert_rule *rule, struct error *error)
{
	const bool apart = rule->below ? rule->clear_threshold > rule->threshold
				       : rule->clear_threshold < rule->threshold;
	if (!isfinite(rule->threshold) || !isfinite(rule->clear_threshold) || !apart) {
		error_set(error, STATUS_INVALID_PARAMS, "clear_threshold (%g) must be %s threshold (%g)",
			  rule->clear_threshold, rule->below ? "over" : "under", rule->threshold);
		error_hint(error, "between the two an alert stays as it is, so that it does not come and go");
		return STATUS_INVALID_PARAMS;
	}
	if (rule->for_s < 0 || rule->for_s > ALERT_FOR_MOST_S)
		return error_set(error, STATUS_INVALID_PARAMS, "for_s must be from 0 to %d", ALERT_FOR_MOST_S);
	return STATUS_OK;
}

// Whether this figure calls for the alert to be raised, or, where it stands, to be cleared.
static bool calls_for_change(const struct alert_rule *rule, bool stands, double value)
{
	if (stands)
		return rule->below ? value >= rule->clear_threshold : value <= rule->clear_threshold;
	return rule->below ? value <= rule->threshold : value >= rule->threshold;
}

static enum alert_turn turn(struct alert_state *state)
{
	state->stands = !state->stands;
	state->samples = 0;
	return state->stands ? ALERT_RAISES : ALERT_CLEARS;
}

enum alert_turn alert_decide(const struct alert_rule *rule, struct alert_state *state,
			     const struct alert_sample *sample)
{
	if (!rule->enabled) {
		state->samples = 0;
		return state->stands ? turn(state) : ALERT_STAYS;
	}
	if (sample->known && sample->at_ms == state->newest_ms)
		return ALERT_STAYS;
	if (!sample->known || (state->newest_ms && sample->at_ms - state->newest_ms >= GAP_MS))
		state->samples = 0;
	state->newest_ms = sample->at_ms;
	if (!sample->known || !calls_for_change(rule, state->stands, sample->value)) {
		state->samples = 0;
		return ALERT_STAYS;
	}
	if (!state->samples++)
		state->since_ms = sample->at_ms;
	if (state->samples < SAMPLES_LEAST || sample->at_ms - state->since_ms < rule->for_s * 1000)
		return ALERT_STAYS;
	return turn(state);
}
