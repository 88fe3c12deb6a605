/* What keeps devices from their limits: the policy of each, and what its guard (server/thermal/guard.h) decides about
 * the work on it. A policy that somebody has set is a setting of state.db. Thread: the loop's. */
#include "common/base/buffer.h"
#include "common/base/clock.h"
#include "server/cluster/state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	ACTIONS = 4,
	ACTIONS_BYTES = 48,
	STALE_MS = 30000,
	STEP_PERCENT = 5,
	GUARD_MS = 500,
	KEY_BYTES = STORE_ID_BYTES + 32
};

static void print_key(const char *device_id, char key[KEY_BYTES])
{
	snprintf(key, KEY_BYTES, "thermal_policy.%s", device_id);
}

struct thermal_policy cluster_heat_policy(const struct cluster_device *device)
{
	// Phones and laptops have little to lose heat with.
	const bool low_power = json_get_bool(device->record, "low_power", false);
	if (device->heat_policy_set)
		return device->heat_policy;
	return (struct thermal_policy){.margin = low_power ? 10 : 5,
				       .resume = 10,
				       .limit = true,
				       .step_down = true,
				       .move = true,
				       .pause = true};
}

struct action {
	const char *name;
	bool taken;
};

// In the order in which they are taken.
static void list_actions(const struct thermal_policy *policy, struct action each[ACTIONS])
{
	each[0] = (struct action){"limit", policy->limit};
	each[1] = (struct action){"step_down", policy->step_down};
	each[2] = (struct action){"move", policy->move};
	each[3] = (struct action){"pause", policy->pause};
}

static const char *say_actions(const struct thermal_policy *policy, char text[ACTIONS_BYTES])
{
	struct action each[ACTIONS];
	list_actions(policy, each);
	text[0] = 0;
	for (size_t i = 0; i < ACTIONS; i++)
		if (each[i].taken)
			snprintf(text + strlen(text), ACTIONS_BYTES - strlen(text), "%s%s", text[0] ? ", " : "",
				 each[i].name);
	return text[0] ? text : "none";
}

static bool has_action(const struct json *actions, const char *name)
{
	for (const struct json *one = json_first(actions); one; one = json_next(one))
		if (!strcmp(json_string(one, ""), name))
			return true;
	return false;
}

// The changes of `json` that are there.
static void take_changes(struct thermal_policy *policy, const struct json *json)
{
	const struct json *actions = json_get(json, "actions");
	policy->margin = json_get_number(json, "margin_celsius", policy->margin);
	policy->resume = json_get_number(json, "resume_celsius", policy->resume);
	if (json_type(actions) != JSON_ARRAY)
		return;
	policy->limit = has_action(actions, "limit");
	policy->step_down = has_action(actions, "step_down");
	policy->move = has_action(actions, "move");
	policy->pause = has_action(actions, "pause");
}

static struct json *policy_json(const struct thermal_policy *policy)
{
	struct json *json = json_new_object(), *actions = json_new_array();
	struct action each[ACTIONS];
	list_actions(policy, each);
	for (size_t i = 0; i < ACTIONS; i++)
		if (each[i].taken)
			json_push(actions, json_new_string(each[i].name));
	json_set_number(json, "margin_celsius", policy->margin);
	json_set_number(json, "resume_celsius", policy->resume);
	json_set(json, "actions", actions);
	return json;
}

struct json *cluster_heat_policy_json(const struct cluster_device *device)
{
	const struct thermal_policy policy = cluster_heat_policy(device);
	struct json *json = policy_json(&policy);
	json_set_string(json, "device_id", device->device_id);
	return json;
}

void cluster_load_heat_policy(struct cluster *cluster, struct cluster_device *device)
{
	char key[KEY_BYTES];
	struct error error = {0};
	struct json *json = NULL;
	print_key(device->device_id, key);
	const char *text = store_load_setting(cluster->params.store, key);
	if (!text || json_parse(&json, text, strlen(text), &error))
		return;
	device->heat_policy = cluster_heat_policy(device);
	take_changes(&device->heat_policy, json);
	device->heat_policy_set = true;
	json_destroy(&json);
}

struct setting {
	struct cluster *cluster;
	char device_id[STORE_ID_BYTES];
	struct thermal_policy policy;
	cluster_device_done *done;
	void *context;
};

static void policy_stored(void *context, enum status status, const struct error *error)
{
	struct setting *setting = context;
	struct cluster_device *device = cluster_find_device(setting->cluster, setting->device_id);
	if (!status && device) {
		device->heat_policy = setting->policy;
		device->heat_policy_set = true;
	}
	setting->done(setting->context, status, device, error);
	free(setting);
}

static enum status put_policy(const struct setting *setting, const struct audit_actor *by, struct store_batch *batch)
{
	char key[KEY_BYTES], detail[128], actions[ACTIONS_BYTES];
	struct buffer text;
	const struct thermal_policy *policy = &setting->policy;
	struct json *json = policy_json(policy);
	const struct audit_event event = {.by = by,
					  .action = "thermal.policy_set",
					  .target = setting->device_id,
					  .device_id = setting->device_id,
					  .detail = detail};
	snprintf(detail, sizeof detail, "{\"margin_celsius\":%.6g,\"resume_celsius\":%.6g,\"actions\":\"%s\"}",
		 policy->margin, policy->resume, say_actions(policy, actions));
	buffer_init(&text, 1024);
	enum status status = json_print(json, &text);
	json_destroy(&json);
	print_key(setting->device_id, key);
	if (!status)
		status = store_put_setting(batch, key, buffer_text(&text));
	if (!status)
		status = audit_put(setting->cluster->params.audit, batch, &event);
	buffer_finish(&text);
	return status;
}

enum status cluster_set_heat_policy(struct cluster *cluster, const struct cluster_device *device,
				    const struct cluster_heat_change *change, struct error *error)
{
	struct store_batch *batch = NULL;
	struct thermal_policy policy = cluster_heat_policy(device);
	take_changes(&policy, change->changes);
	if ((policy.move || policy.step_down) && !policy.limit && !policy.pause) {
		error_set(error, STATUS_INVALID_PARAMS,
			  "models change their format and are moved away on a device that is held back only");
		error_hint(error, "name limit or pause beside that");
		return STATUS_INVALID_PARAMS;
	}
	struct setting *setting = calloc(1, sizeof *setting);
	if (!setting || store_batch_create(&batch)) {
		free(setting);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to change a policy");
	}
	*setting = (struct setting){
		.cluster = cluster, .policy = policy, .done = change->done, .context = change->context};
	snprintf(setting->device_id, sizeof setting->device_id, "%s", device->device_id);
	enum status status = put_policy(setting, change->by, batch);
	if (status)
		store_batch_destroy(&batch);
	else
		status = store_commit(cluster->params.store, &batch, policy_stored, setting);
	if (!status)
		return STATUS_OK;
	free(setting);
	return error_set(error, status, "the policy cannot be changed now");
}

// ---- the guard ----

const struct thermal_guard *cluster_strict_guard(const struct cluster_device *device)
{
	const struct thermal_guard *guards = device->heat_guards;
	const bool memory = thermal_guard_share(&guards[HEAT_MEMORY]) < thermal_guard_share(&guards[HEAT_CORE]);
	return &guards[memory ? HEAT_MEMORY : HEAT_CORE];
}

unsigned cluster_work_percent(const struct cluster_device *device)
{
	const struct thermal_guard *guard = cluster_strict_guard(device);
	// Once nobody knows how hot it is, it looks after itself.
	if (guard->step == THERMAL_FREE || cluster_heat_age_ms(device) > STALE_MS)
		return 100;
	const int steps = (int)(thermal_guard_share(guard) * 100 / STEP_PERCENT);
	return (unsigned)(steps * STEP_PERCENT);
}

// As far as is known: of a sensor that does not tell its temperature or its limit nothing is.
static bool is_cool(const struct cluster_device *device, const struct thermal_policy *policy)
{
	static const char *const names[HEAT_SENSORS] = {"temperature_celsius", "memory_temperature_celsius"};
	bool cool = true;
	for (int i = 0; i < HEAT_SENSORS; i++) {
		const double most = cluster_heat_limit(device, (enum heat_sensor)i) - policy->margin - policy->resume;
		cool &= !(json_get_number(device->telemetry, names[i], (double)NAN) > most);
	}
	return cool;
}

struct cluster_held cluster_heat_held(const struct cluster_device *device)
{
	const struct thermal_guard *guard = cluster_strict_guard(device);
	const struct thermal_policy policy = cluster_heat_policy(device);
	if (guard->step == THERMAL_FREE || cluster_heat_age_ms(device) > STALE_MS)
		return (struct cluster_held){.cool = is_cool(device, &policy), .held_ms = -1, .share = 1};
	int64_t since_ms = guard->held_ms;
	for (int i = 0; i < HEAT_SENSORS; i++)
		if (device->heat_guards[i].step != THERMAL_FREE && device->heat_guards[i].held_ms < since_ms)
			since_ms = device->heat_guards[i].held_ms;
	// While it heats up it can work for longer than it could for ever; where others heat it, for less. The share of
	// a moment says little: it falls at once and rises slowly.
	return (struct cluster_held){.held = true,
				     .steps = policy.step_down,
				     .moves = policy.move,
				     .held_ms = device->heat_ms - since_ms,
				     .share = fmin(guard->mean, cluster_heat_rate(device))}; // maybe NaN
}

static void say_step(const struct cluster_device *device, struct change *change)
{
	const struct thermal_policy policy = cluster_heat_policy(device);
	const struct thermal_guard *guard = cluster_strict_guard(device);
	const bool memory = guard == &device->heat_guards[HEAT_MEMORY];
	const double celsius = json_get_number(device->telemetry,
					       memory ? "memory_temperature_celsius" : "temperature_celsius", 0),
		     limit = cluster_heat_limit(device, memory ? HEAT_MEMORY : HEAT_CORE);
	const char *where = memory ? " of its memory" : "";
	const bool hot = celsius >= limit - policy.margin;
	change->level = guard->step == THERMAL_FREE ? "info" : "attention";
	switch (guard->step) {
	case THERMAL_FREE:
		snprintf(change->summary, sizeof change->summary, "works freely again, at %.0f °C", celsius);
		break;
	case THERMAL_LIMITED:
		snprintf(change->summary, sizeof change->summary,
			 "models on it get less time, at %.0f °C%s: %s %.0f °C%s, and slows itself down at %.0f °C",
			 celsius, where, hot ? "it is to stay below" : "it would reach", limit - policy.margin,
			 hot ? "" : " within a minute", limit);
		break;
	case THERMAL_PAUSED:
		snprintf(change->summary, sizeof change->summary,
			 "models on it pause, at %.0f °C%s: it slows itself down at %.0f °C", celsius, where, limit);
		break;
	}
}

// The audit entry's detail of a step, with its reason.
static enum status print_step(enum thermal_step step, const char *reason, struct buffer *text)
{
	struct json *json = json_new_object();
	json_set_string(json, "step", step == THERMAL_FREE ? "free" : step == THERMAL_PAUSED ? "paused" : "limited");
	json_set_string(json, "reason", reason);
	const enum status status = json_print(json, text);
	json_destroy(&json);
	return status;
}

static void tell_step(struct cluster *cluster, struct cluster_device *device)
{
	struct buffer text;
	struct store_batch *batch = NULL;
	struct change change = {.kind = "device.heat", .keep = true};
	const int64_t at_ms = clock_wall_ms();
	say_step(device, &change);
	buffer_init(&text, LIMIT_AUDIT_DETAIL_BYTES);
	enum status status = print_step(cluster_strict_guard(device)->step, change.summary, &text);
	const struct audit_event event = {.action = "device.heat",
					  .target = device->device_id,
					  .node_id = device->node->node_id,
					  .device_id = device->device_id,
					  .detail = buffer_text(&text)};
	if (!status && !store_batch_create(&batch)) {
		status = cluster_store_change(batch, device->node, device, &change, at_ms);
		if (!status)
			status = audit_put(cluster->params.audit, batch, &event);
		if (!status)
			store_commit(cluster->params.store, &batch, NULL, NULL);
		else
			store_batch_destroy(&batch);
	}
	buffer_finish(&text);
	cluster_push_change(cluster, device->node, device, &change, at_ms);
}

// Each step is an entry of the audit log: it is no matter of what a tab tells. Of
// readings that come closer together than any node's the first counts, so that no message acts twice.
static bool is_due(const struct cluster_device *device)
{
	const int64_t since_ms = device->heat_ms - device->guarded_ms;
	return device->heat[HEAT_CORE] && !cluster_of_tab(device->node) &&
	       (!device->guarded_ms || since_ms < 0 || since_ms >= GUARD_MS);
}

void cluster_guard_heat(struct cluster *cluster, struct cluster_device *device)
{
	if (!is_due(device))
		return;
	device->guarded_ms = device->heat_ms;
	const struct thermal_policy policy = cluster_heat_policy(device);
	const enum thermal_step before = cluster_strict_guard(device)->step;
	for (int i = 0; i < HEAT_SENSORS; i++)
		if (device->heat[i])
			thermal_guard_update(&device->heat_guards[i], &policy, device->heat[i],
					     cluster_heat_limit(device, (enum heat_sensor)i), device->heat_ms);
	if (cluster_strict_guard(device)->step != before)
		tell_step(cluster, device);
}
