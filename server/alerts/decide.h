/* When an alert is raised and when it is cleared: the rules, and the decision about each subject of a rule.
 *
 * A rule compares one figure of a subject with a threshold. The alert is raised once the figure has been past the
 * threshold in every sample for `for_s`, and in two samples at least. It is cleared once the figure has been past the
 * other threshold, which leaves room between the two, in the same way. A sample without a figure, or a pause of a
 * minute and more between two samples, begins the count anew: what is not known neither raises an alert nor clears one.
 *
 * Pure: the time is given, nothing is stored, nothing is told. Thread: any. */
#pragma once
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum alert_rule_number {
	ALERT_RULE_NODE_OFFLINE,
	ALERT_RULE_VERSION_DIFFERS,
	ALERT_RULE_DRIVER_UNUSABLE,
	ALERT_RULE_NODE_MEMORY,
	ALERT_RULE_LINK_DEGRADED,
	ALERT_RULE_DEVICE_LOST,
	ALERT_RULE_DEVICE_MEMORY,
	ALERT_RULE_THROTTLED,
	ALERT_RULE_THROTTLES_SOON,
	ALERT_RULE_ECC_ERRORS,
	ALERT_RULE_COMPUTES_WRONG,
	ALERT_RULE_WORKER_FAILING,
	ALERT_RULE_SHARDS_UNBALANCED,
	ALERT_RULE_DISK_FULL,
	ALERT_RULE_HISTORY_UNWRITTEN,
	ALERT_RULE_AUDIT_FAILED,
	ALERT_RULE_SERVER_LOST,
	ALERT_RULE_SERVER_LAGS,
	ALERT_RULE_CERTIFICATE_EXPIRING,
	ALERT_RULE_TOKEN_EXPIRING,
	ALERT_RULES,
};

struct alert_rule {
	const char *rule_id, *kind, *subject_type, *severity; // severity: info, warning or critical
	const char *unit; // of the figure: percent, days, errors, ends, seconds; "": it is 1 or 0
	double threshold, clear_threshold;
	int64_t for_s;
	bool below; // raised at the threshold and below it, cleared at clear_threshold and above; else the other way
	bool enabled;
};
// The rules as they come, by enum alert_rule_number: (ALERT_RULES).
extern const struct alert_rule alert_default_rules[ALERT_RULES];
// The number of a rule's id; ALERT_RULES if there is none.
enum alert_rule_number alert_rule_find(const char *rule_id);
// Whether thresholds and time can be those of a rule. Errors: STATUS_INVALID_PARAMS, with a hint.
enum { ALERT_FOR_MOST_S = 86400 };
enum status alert_rule_check(const struct alert_rule *rule, struct error *error);

// The state of one subject of one rule. Zero: nothing is known yet.
struct alert_state {
	bool stands;
	unsigned samples;            // one after the other that call for the change
	int64_t since_ms, newest_ms; // the first of these; the newest sample of any kind. 0: none
};
struct alert_sample {
	int64_t at_ms; // steady, when the figure was read, over 0. One with the time of the one before is not counted
		       // again
	bool known;
	double value;
};
enum alert_turn { ALERT_STAYS, ALERT_RAISES, ALERT_CLEARS };
// Take the next sample. `state` is as the result says after it.
enum alert_turn alert_decide(const struct alert_rule *rule, struct alert_state *state,
			     const struct alert_sample *sample);
