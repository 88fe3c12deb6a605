/* All rules over all subjects. A round looks at everything once: engine_begin, engine_see for each subject of each
 * rule, engine_end. What a round changes is told through `act`. A subject that a round did not see is gone, and so is
 * its alert. The clock is the caller's, nothing is stored. A round takes time in proportion to its subjects.
 *
 * A round changes ENGINE_CHANGES alerts at most; the next round does the rest. No alert is raised while ENGINE_STAND
 * stand, or ENGINE_STAND_NODE of its rule and node. Nodes of one hash (of 1,024) share the second bound, and so do the
 * subjects of a rule that are of no node. Thread: its owner's. */
#pragma once
#include "server/alerts/decide.h"

enum { ENGINE_CHANGES = 64, ENGINE_STAND = 1024, ENGINE_STAND_NODE = 64 };

struct engine;

// One subject as a rule sees it now.
struct engine_seen {
	enum alert_rule_number rule;
	const char *subject_id, *subject_name;
	const char *node_id; // that the subject is or belongs to; NULL: none
	struct alert_sample sample;
	const char *message, *hint; // for a person, should the alert be raised now
};
// `seen`: NULL if the subject is gone.
typedef void engine_act(void *context, const struct alert_rule *rule, const char *subject_id,
			const struct engine_seen *seen, enum alert_turn turn);
// Begins with the default rules.
enum status engine_create(struct engine **out, engine_act *act, void *context);
void engine_destroy(struct engine **engine);

const struct alert_rule *engine_rule(const struct engine *engine, enum alert_rule_number number);
// Replace what may be edited: thresholds, time, enabled. It counts from the next round. Checked: alert_rule_check.
void engine_set_rule(struct engine *engine, enum alert_rule_number number, const struct alert_rule *rule);
// The alert stands: it was raised before the start, or could not be cleared. Not from within `act`.
enum status engine_stands(struct engine *engine, enum alert_rule_number number, const char *subject_id);
// Correct those that could not be raised or cleared: `stands` says of each whether it does.
void engine_sync(struct engine *engine, bool (*stands)(void *context, const char *kind, const char *subject_id),
		 void *context);

void engine_begin(struct engine *engine);
void engine_see(struct engine *engine, const struct engine_seen *seen);
void engine_end(struct engine *engine);
// Whether this round left out an alert because of ENGINE_STAND or ENGINE_STAND_NODE.
bool engine_full(const struct engine *engine);
