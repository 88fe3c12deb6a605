/* See watch.h. What a round sees of each kind of subject is a function below; a message is made for each, though few
 * are needed, because that takes less than a microsecond. */
#include "server/alerts/watch.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "server/alerts/engine.h"

#include <math.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

enum { MESSAGE_BYTES = 640, HINT_BYTES = 320, DAY_MS = 86400000, LASTING_DAYS = 14, COSTS_MOST = 256 };

// A node with links that are worse than their class; those of a pair of nodes count for one of the two. Of several the
// one by which a model loses most. The texts are the topology's, for this round.
struct bad_links {
	const char *node_id, *to_name, *reason;
	struct instances_over over;
};

struct watch {
	struct watch_params params;
	struct engine *engine;
	struct net_timer timer;
	int64_t now_ms, wall_ms; // of this round: steady, and the wall clock
	bool verified, intact;   // the audit log was verified since the start, and was as it should be
	char verdict[64];
	bool forked; // a witness is in conflict
	bool full;   // the log says that alerts are left out
	struct bad_links bad_links[LIMIT_NODES];
	size_t bad_link_count;     // of this round
	unsigned costs;            // of links, that were asked for in this round
	bool setting[ALERT_RULES]; // a change of the rule is being stored
};

// ---- raising and clearing ----

static void act(void *context, const struct alert_rule *rule, const char *subject_id, const struct engine_seen *seen,
		enum alert_turn turn)
{
	struct watch *watch = context;
	struct store_batch *batch = NULL;
	enum status status = store_batch_create(&batch);
	if (!status && turn == ALERT_RAISES) {
		const struct alert alert = {.kind = rule->kind,
					    .severity = rule->severity,
					    .subject_type = rule->subject_type,
					    .subject_id = subject_id,
					    .subject_name = seen->subject_name,
					    .message = seen->message,
					    .hint = seen->hint,
					    .node_id = seen->node_id,
					    .value = &seen->sample.value,
					    .threshold = &rule->threshold};
		status = alerts_raise(watch->params.alerts, &alert, &batch);
	} else if (!status) {
		status = alerts_clear(watch->params.alerts, rule->kind, subject_id, &batch);
	}
	if (status) // the next round finds that it is not so, and tries again
		log_warning("alerts", "the alert %s of %s could not be %s: %s", rule->kind, subject_id,
			    turn == ALERT_RAISES ? "raised" : "cleared", status_word(status));
}

// ---- what a round sees ----

struct look {
	struct watch *watch;
	struct engine_seen seen;
	char message[MESSAGE_BYTES], hint[HINT_BYTES];
};

// One figure of the subject that `look` is about: NaN is not known. at_ms: when it was read.
static void see(struct look *look, enum alert_rule_number rule, double value, int64_t at_ms)
{
	look->seen.rule = rule;
	look->seen.message = look->message;
	look->seen.hint = look->hint;
	look->seen.sample = (struct alert_sample){.at_ms = at_ms, .known = !isnan(value), .value = value};
	engine_see(look->watch->engine, &look->seen);
}

static void see_libraries(struct look *look, const struct cluster_node_figures *node)
{
	const struct json *bad = NULL;
	for (const struct json *one = json_first(node->libraries); one && !bad; one = json_next(one)) {
		const char *state = json_get_string(one, "state", "");
		if (!strcmp(state, "too_old") || !strcmp(state, "broken"))
			bad = one;
	}
	const bool old = !strcmp(json_get_string(bad, "state", ""), "too_old");
	snprintf(look->message, sizeof look->message, "%.64s on %.64s %s: %.160s", json_get_string(bad, "name", ""),
		 node->name, old ? "is too old" : "does not work",
		 json_get_string(bad, "reason", "no reason is known"));
	snprintf(look->hint, sizeof look->hint, "%.300s",
		 json_get_string(bad, "hint", "install the driver again, then restart the node"));
	see(look, ALERT_RULE_DRIVER_UNUSABLE, node->online ? bad != NULL : NAN, look->watch->now_ms);
}

static void note_link(void *context, const struct topology_figures *found)
{
	struct watch *watch = context;
	size_t i = 0;
	if (!found->degraded || !found->up)
		return;
	// Of a pair, both directions are mostly bad together: they are told with the node whose id comes first.
	const bool swapped = strcmp(found->to_node_id, found->from_node_id) < 0 &&
			     strcmp(found->to_node_id, "server") != 0;
	const char *node_id = swapped ? found->to_node_id : found->from_node_id,
		   *to_id = swapped ? found->from_node_id : found->to_node_id;
	while (i < watch->bad_link_count && strcmp(watch->bad_links[i].node_id, node_id) != 0)
		i++;
	if (i == LIMIT_NODES)
		return;
	struct bad_links *bad = &watch->bad_links[i];
	struct bad_links link = {.node_id = node_id,
				 .to_name = swapped ? found->from_name : found->to_name,
				 .reason = found->degraded_reason};
	if (watch->costs++ < COSTS_MOST)
		instances_over_link(watch->params.instances, node_id, to_id, &link.over);
	if (i == watch->bad_link_count)
		watch->bad_link_count++;
	else if (!link.over.count || (bad->over.count && link.over.late_s <= bad->over.late_s))
		return;
	*bad = link;
}

// The end of the message: the cost of the link to the models on it; "" if none uses it.
static void say_cost(const struct instances_over *over, char *text, size_t size)
{
	const double least_ms = 0.01;
	char models[32] = "", cost[256];
	text[0] = 0;
	if (!over->count)
		return;
	const double late_ms = over->late_s * 1000;
	if (over->count > 1)
		snprintf(models, sizeof models, "%u models use it", over->count);
	if (late_ms < least_ms)
		snprintf(cost, sizeof cost, "a token of %.64s takes less than 0.01 ms longer by that",
			 over->model_name);
	else if (over->rate > 0)
		snprintf(cost, sizeof cost,
			 "a token of %.64s takes about %.3g ms longer by that: %.3g tokens a second for one request in "
			 "place of %.3g",
			 over->model_name, late_ms, over->rate, over->rate_as_class);
	else
		snprintf(cost, sizeof cost, "a token of %.64s takes about %.3g ms longer by that", over->model_name,
			 late_ms);
	snprintf(text, size, "; %s%s%s", models, models[0] ? "; " : "", cost);
}

static void see_links(struct look *look, const struct cluster_node_figures *node)
{
	const struct watch *watch = look->watch;
	size_t i = 0;
	while (i < watch->bad_link_count && strcmp(watch->bad_links[i].node_id, node->node_id) != 0)
		i++;
	const bool is_bad = i < watch->bad_link_count;
	char link[320], cost[320];
	if (is_bad) {
		snprintf(link, sizeof link, "the link between %.64s and %.64s is degraded: %.140s", node->name,
			 watch->bad_links[i].to_name, watch->bad_links[i].reason);
		say_cost(&watch->bad_links[i].over, cost, sizeof cost);
		snprintf(look->message, sizeof look->message, "%.310s%.320s", link, cost);
	}
	snprintf(look->hint, sizeof look->hint,
		 "look at its cable, its Wi-Fi or the switch between them; exogpu topology shows what each link gives");
	see(look, ALERT_RULE_LINK_DEGRADED, node->online ? is_bad : NAN, watch->now_ms);
}

static void see_node(void *context, const struct cluster_node_figures *node)
{
	struct look look = {
		.watch = context,
		.seen = {.subject_id = node->node_id, .subject_name = node->name, .node_id = node->node_id}};
	const int64_t now_ms = look.watch->now_ms;
	snprintf(look.message, sizeof look.message, "node %.64s is offline%s%.160s", node->name,
		 node->reason ? ": " : "", node->reason ? node->reason : "");
	snprintf(look.hint, sizeof look.hint,
		 "it reconnects by itself once it runs; exogpu nodes remove %.64s if it is gone for good",
		 node->node_id);
	see(&look, ALERT_RULE_NODE_OFFLINE, !node->online && !node->left, now_ms);
	snprintf(look.message, sizeof look.message, "node %.64s runs exogpu %.64s, the server %s", node->name,
		 node->version, EXOGPU_VERSION);
	snprintf(look.hint, sizeof look.hint, "install the same version on both");
	see(&look, ALERT_RULE_VERSION_DIFFERS, node->online ? strcmp(node->version, EXOGPU_VERSION) != 0 : NAN, now_ms);
	see_libraries(&look, node);
	see_links(&look, node);
	snprintf(look.message, sizeof look.message, "the memory of node %.64s is nearly full: %.0f %% is in use",
		 node->name, node->memory_percent);
	snprintf(look.hint, sizeof look.hint, "stop a model (exogpu stop) or another program there");
	see(&look, ALERT_RULE_NODE_MEMORY, node->online ? node->memory_percent : NAN, node->reading_ms);
}

static void see_device(void *context, const struct cluster_device_figures *device)
{
	struct look look = {
		.watch = context,
		.seen = {.subject_id = device->device_id, .subject_name = device->title, .node_id = device->node_id}};
	const int64_t now_ms = look.watch->now_ms;
	const bool here = device->node_online && device->present;
	snprintf(look.message, sizeof look.message, "%s is lost: its node no longer finds it", device->title);
	snprintf(look.hint, sizeof look.hint,
		 "look at the kernel's log of that machine; a restart of the machine often brings it back");
	see(&look, ALERT_RULE_DEVICE_LOST, device->node_online ? !device->present : NAN, now_ms);
	snprintf(look.message, sizeof look.message, "the memory of %s is nearly full: %.0f %% is in use", device->title,
		 device->memory_percent);
	snprintf(look.hint, sizeof look.hint, "its page shows the processes that hold it");
	// A processor's memory is its node's: one trouble is one alert.
	see(&look, ALERT_RULE_DEVICE_MEMORY, here && !device->processor ? device->memory_percent : NAN,
	    device->reading_ms);
	snprintf(look.message, sizeof look.message, "%s is throttled: heat makes it slower", device->title);
	snprintf(look.hint, sizeof look.hint, "check its fans and the air around it, or give it less work");
	see(&look, ALERT_RULE_THROTTLED, here ? device->throttled : NAN, device->reading_ms);
	if (device->memory_throttles)
		snprintf(look.message, sizeof look.message,
			 "the memory of %s reaches its limit within a minute if it goes on as now", device->title);
	else
		snprintf(look.message, sizeof look.message, "%s will be throttled within a minute if it goes on as now",
			 device->title);
	snprintf(look.hint, sizeof look.hint,
		 "give it less work; exogpu forecast %.64s says how much power it can draw for ever",
		 device->device_id);
	see(&look, ALERT_RULE_THROTTLES_SOON, here ? device->throttles_soon : NAN, device->reading_ms);
	snprintf(look.message, sizeof look.message, "%s has %.0f new uncorrected memory errors", device->title,
		 device->ecc_errors);
	snprintf(look.hint, sizeof look.hint,
		 "results since then may be wrong; drain it (exogpu devices drain %.64s) and reset or replace it",
		 device->device_id);
	see(&look, ALERT_RULE_ECC_ERRORS, here ? device->ecc_errors : NAN, now_ms);
	snprintf(look.message, sizeof look.message, "%.100s gets no more layers: %.190s", device->title,
		 device->wrong_why);
	snprintf(look.hint, sizeof look.hint,
		 "remove its node, or have it verified again (device.verify) if the other device was wrong");
	see(&look, ALERT_RULE_COMPUTES_WRONG, device->wrong, now_ms);
	snprintf(look.message, sizeof look.message, "workers on %s have ended by themselves %.0f times in 10 minutes",
		 device->title, device->ends);
	snprintf(look.hint, sizeof look.hint, "exogpu log says why they ended");
	see(&look, ALERT_RULE_WORKER_FAILING, here ? device->ends : NAN, now_ms);
}

static void see_balance(void *context, const struct instances_balance *model)
{
	struct look look = {.watch = context,
			    .seen = {.subject_id = model->instance_id, .subject_name = model->model_name}};
	const int which = (int)strcspn(model->why, ";"); // what would help is the hint's
	snprintf(look.message, sizeof look.message, "%.64s would make %.0f %% more tokens at another place: %.*s",
		 model->model_name, model->gain_percent, which < 180 ? which : 180, model->why);
	snprintf(look.hint, sizeof look.hint,
		 "exogpu move %.64s places it anew, in a moment in which its requests wait", model->instance_id);
	see(&look, ALERT_RULE_SHARDS_UNBALANCED, model->gain_percent, look.watch->now_ms);
}

static double days_left(const struct watch *watch, int64_t end_ms)
{
	return (double)(end_ms - watch->wall_ms) / DAY_MS;
}

static void say_days(char *text, size_t size, double days)
{
	if (days <= 0)
		snprintf(text, size, "has expired");
	else if (days < 2)
		snprintf(text, size, "expires in %.0f h", ceil(days * 24));
	else
		snprintf(text, size, "expires in %.0f days", floor(days));
}

static void see_certificate(void *context, const struct authority_end *end)
{
	char when[64];
	struct look look = {.watch = context,
			    .seen = {.subject_id = end->serial, .subject_name = end->subject, .node_id = end->node_id}};
	const double days = days_left(look.watch, end->not_after_ms);
	say_days(when, sizeof when, days);
	snprintf(look.message, sizeof look.message, "the certificate of %s %.120s %s",
		 end->node_id                ? "node"
		 : !strcmp(end->kind, "own") ? "the operator,"
					     : "the",
		 end->node_id || !strcmp(end->kind, "own") ? end->subject : end->kind, when);
	snprintf(look.hint, sizeof look.hint, "%s",
		 end->node_id ? "the node renews it by itself while it is connected: start it, or remove it"
		 : !strcmp(end->kind, "own")
			 ? "put the next one in the place of the file that --tls-cert names; it is read again by itself"
			 : "exogpu log says why it was not renewed");
	see(&look, ALERT_RULE_CERTIFICATE_EXPIRING, days, look.watch->now_ms);
}

// Tokens that were made for less than LASTING_DAYS are meant to end.
static void see_token(struct watch *watch, const struct token *token)
{
	char when[64];
	struct look look = {.watch = watch, .seen = {.subject_id = token->token_id, .subject_name = token->token_id}};
	if (!token->expires_ms || token->revoked_ms || token->expires_ms <= watch->wall_ms ||
	    token->expires_ms - token->created_ms < (int64_t)LASTING_DAYS * DAY_MS)
		return;
	const double days = days_left(watch, token->expires_ms);
	say_days(when, sizeof when, days);
	snprintf(look.message, sizeof look.message, "token %s %s", token->token_id, when);
	snprintf(look.hint, sizeof look.hint,
		 "exogpu token list says whose it is; make its successor with exogpu token create");
	see(&look, ALERT_RULE_TOKEN_EXPIRING, days, watch->now_ms);
}

static double disk_percent(const char *directory)
{
	struct statvfs disk;
	if (statvfs(directory, &disk) || !disk.f_blocks)
		return NAN;
	const double used = (double)(disk.f_blocks - disk.f_bfree), usable = used + (double)disk.f_bavail;
	return usable > 0 ? 100 * used / usable : NAN;
}

static void see_server(struct watch *watch)
{
	struct store_stats stats;
	struct look look = {
		.watch = watch,
		.seen = {.subject_id = watch->params.cluster_id, .subject_name = watch->params.cluster_name}};
	const double used = disk_percent(watch->params.directory);
	store_read_stats(watch->params.store, &stats);
	snprintf(look.message, sizeof look.message, "the disk of the data directory is nearly full: %.0f %% is in use",
		 used);
	snprintf(look.hint, sizeof look.hint,
		 "remove a model (exogpu model remove) or other files: without room the "
		 "server refuses every change");
	see(&look, ALERT_RULE_DISK_FULL, used, watch->now_ms);
	snprintf(look.message, sizeof look.message, "the history of readings cannot be written");
	snprintf(look.hint, sizeof look.hint, "exogpu log says why; nothing but the history is affected");
	see(&look, ALERT_RULE_HISTORY_UNWRITTEN, stats.history_failing, watch->now_ms);
	snprintf(look.message, sizeof look.message, "the audit log did not pass its verification: %.64s",
		 watch->verdict);
	snprintf(look.hint, sizeof look.hint, "exogpu audit verify lists what is wrong");
	// A conflict with a witness fails a verification, too, and has its own alert.
	see(&look, ALERT_RULE_AUDIT_FAILED, watch->verified && !watch->forked ? !watch->intact : NAN, watch->now_ms);
}

// The list of servers is the database's: it counts only while the database answers.
static void see_servers(struct watch *watch)
{
	struct turn_view view;
	turn_look(watch->params.turn, &view);
	for (size_t i = 0; i < view.count; i++) {
		uint8_t hash[SHA256_DIGEST_LENGTH];
		char id[32] = "srv_";
		const struct turn_server *server = &view.servers[i];
		const bool silent = server->silent_ms >= TURN_SILENT_MS;
		const double told = view.looked_ms < TURN_SILENT_MS ? silent : NAN;
		SHA256((const uint8_t *)server->address, strlen(server->address), hash);
		for (size_t j = 0; j < 10; j++)
			snprintf(id + 4 + 2 * j, 3, "%02x", hash[j]);
		struct look look = {.watch = watch, .seen = {.subject_id = id, .subject_name = server->address}};
		snprintf(look.message, sizeof look.message, "the server at %.180s does not answer any more",
			 server->address);
		snprintf(look.hint, sizeof look.hint,
			 "start it again there; one that is gone for good is forgotten after a day");
		see(&look, ALERT_RULE_SERVER_LOST, told, watch->now_ms);
		snprintf(look.message, sizeof look.message,
			 "the server at %.180s is %.1f s behind: it would notice late that it is to lead",
			 server->address, (double)server->behind_ms / 1000);
		snprintf(look.hint, sizeof look.hint,
			 "look at its way to the database, and at what else its machine does");
		see(&look, ALERT_RULE_SERVER_LAGS, told == 0 ? (double)server->behind_ms / 1000 : NAN, watch->now_ms);
	}
}

static bool stands(void *context, const char *kind, const char *subject_id)
{
	const struct watch *watch = context;
	return alerts_stands(watch->params.alerts, kind, subject_id);
}

static void note_standing(void *context, const char *kind, const char *subject_type, const char *subject_id)
{
	struct watch *watch = context;
	watch->forked |= !strcmp(kind, ALERT_AUDIT_FORKED);
	for (int rule = 0; rule < ALERT_RULES; rule++)
		if (!strcmp(alert_default_rules[rule].kind, kind) &&
		    !strcmp(alert_default_rules[rule].subject_type, subject_type))
			engine_stands(watch->engine, (enum alert_rule_number)rule, subject_id);
}

static void look(void *arg)
{
	const struct token *token;
	struct watch *watch = arg;
	watch->now_ms = clock_steady_ms();
	watch->wall_ms = clock_wall_ms();
	engine_begin(watch->engine);
	engine_sync(watch->engine, stands, watch);
	watch->forked = false;
	alerts_each_standing(watch->params.alerts, note_standing, watch);
	engine_begin(watch->engine);
	watch->bad_link_count = 0;
	watch->costs = 0;
	topology_each(watch->params.topology, note_link, watch);
	cluster_each_node_figures(watch->params.cluster, see_node, watch);
	cluster_each_device_figures(watch->params.cluster, see_device, watch);
	instances_each_balance(watch->params.instances, see_balance, watch);
	authority_each_end(watch->params.authority, see_certificate, watch);
	for (size_t i = 0; (token = tokens_at(watch->params.tokens, i)); i++)
		see_token(watch, token);
	see_server(watch);
	if (watch->params.turn)
		see_servers(watch);
	engine_end(watch->engine);
	if (engine_full(watch->engine) && !watch->full) {
		watch->full = true;
		log_warning("alerts",
			    "so many alerts stand that further ones are not raised (%d, or %d of one rule and node)",
			    ENGINE_STAND, ENGINE_STAND_NODE);
	}
	net_timer_start(watch->params.loop, &watch->timer, WATCH_LOOK_MS, look, watch);
}

// ---- rules ----

static void print_key(enum alert_rule_number number, char key[64])
{
	snprintf(key, 64, "alert_rule.%s", alert_default_rules[number].rule_id);
}

// The changes of `changes` that are there.
static void take_changes(struct alert_rule *rule, const struct json *changes)
{
	rule->enabled = json_get_bool(changes, "enabled", rule->enabled);
	rule->threshold = json_get_number(changes, "threshold", rule->threshold);
	rule->clear_threshold = json_get_number(changes, "clear_threshold", rule->clear_threshold);
	rule->for_s = json_get_integer(changes, "for_s", rule->for_s);
}

static void load_rules(struct watch *watch)
{
	char key[64];
	struct error error;
	for (int i = 0; i < ALERT_RULES; i++) {
		struct json *changes = NULL;
		struct alert_rule rule = alert_default_rules[i];
		print_key((enum alert_rule_number)i, key);
		const char *text = store_load_setting(watch->params.store, key);
		if (!text)
			continue;
		if (json_parse(&changes, text, strlen(text), &error)) {
			log_warning("alerts", "the rule %s is as it comes, because its setting cannot be read",
				    rule.rule_id);
			continue;
		}
		take_changes(&rule, changes);
		json_destroy(&changes);
		if (alert_rule_check(&rule, &error))
			log_warning("alerts", "the rule %s is as it comes: %s", rule.rule_id, error.message);
		else
			engine_set_rule(watch->engine, (enum alert_rule_number)i, &rule);
	}
}

static struct json *editable_json(const struct alert_rule *rule)
{
	struct json *json = json_new_object();
	json_set_number(json, "threshold", rule->threshold);
	json_set_number(json, "clear_threshold", rule->clear_threshold);
	json_set_integer(json, "for_s", rule->for_s);
	json_set_bool(json, "enabled", rule->enabled);
	return json;
}

struct json *watch_rule_json(const struct watch *watch, enum alert_rule_number number)
{
	const struct alert_rule *rule = engine_rule(watch->engine, number);
	struct json *json = editable_json(rule);
	json_set_string(json, "rule_id", rule->rule_id);
	json_set_string(json, "kind", rule->kind);
	json_set_string(json, "subject_type", rule->subject_type);
	json_set_string(json, "severity", rule->severity);
	json_set_string(json, "unit", rule->unit[0] ? rule->unit : NULL);
	json_set_bool(json, "below", rule->below);
	return json;
}

struct json *watch_rules_json(const struct watch *watch)
{
	struct json *array = json_new_array();
	for (int i = 0; i < ALERT_RULES; i++)
		json_push(array, watch_rule_json(watch, (enum alert_rule_number)i));
	return array;
}

struct setting {
	struct watch *watch;
	enum alert_rule_number number;
	struct alert_rule rule;
	watch_done *done;
	void *context;
};

static void rule_set(void *context, enum status status, const struct error *error)
{
	struct setting *setting = context;
	setting->watch->setting[setting->number] = false;
	if (!status)
		engine_set_rule(setting->watch->engine, setting->number, &setting->rule);
	setting->done(setting->context, status, setting->number, error);
	free(setting);
}

static enum status put_rule(const struct setting *setting, const struct audit_actor *by, struct store_batch *batch)
{
	char key[64];
	struct buffer text;
	struct json *json = editable_json(&setting->rule);
	struct audit_event event = {.by = by, .action = "alert.rule_set", .target = setting->rule.rule_id};
	buffer_init(&text, 1024);
	enum status status = json_print(json, &text);
	json_destroy(&json);
	print_key(setting->number, key);
	event.detail = buffer_text(&text);
	if (!status)
		status = store_put_setting(batch, key, buffer_text(&text));
	if (!status)
		status = audit_put(setting->watch->params.audit, batch, &event);
	buffer_finish(&text);
	return status;
}

enum status watch_set_rule(struct watch *watch, const struct json *changes, const struct audit_actor *by,
			   watch_done *done, void *context, struct error *error)
{
	struct store_batch *batch = NULL;
	const char *rule_id = json_get_string(changes, "rule_id", "");
	const enum alert_rule_number number = alert_rule_find(rule_id);
	if (number == ALERT_RULES) {
		error_set(error, STATUS_NOT_FOUND, "there is no rule %.64s", rule_id);
		error_hint(error, "alert.rules lists them; exogpu alerts rules does so, too");
		return STATUS_NOT_FOUND;
	}
	struct alert_rule rule = *engine_rule(watch->engine, number);
	take_changes(&rule, changes);
	enum status status = alert_rule_check(&rule, error);
	if (status)
		return status;
	if (watch->setting[number])
		return error_set(error, STATUS_CONFLICT, "another change of this rule is being stored");
	struct setting *setting = calloc(1, sizeof(*setting));
	if (!setting || store_batch_create(&batch)) {
		free(setting);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory to change a rule");
	}
	*setting = (struct setting){watch, number, rule, done, context};
	status = put_rule(setting, by, batch);
	if (status)
		store_batch_destroy(&batch);
	else
		status = store_commit(watch->params.store, &batch, rule_set, setting);
	if (status) {
		free(setting);
		return error_set(error, status, "the rule cannot be changed now");
	}
	watch->setting[number] = true;
	return STATUS_OK;
}

// ---- life ----

enum status watch_create(struct watch **out, const struct watch_params *params, struct error *error)
{
	struct watch *watch = calloc(1, sizeof(*watch));
	*out = watch;
	if (!watch || engine_create(&watch->engine, act, watch))
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the rules of alerts");
	watch->params = *params;
	load_rules(watch);
	net_timer_start(params->loop, &watch->timer, WATCH_LOOK_MS, look, watch);
	return STATUS_OK;
}

void watch_destroy(struct watch **pointer)
{
	struct watch *watch = *pointer;
	if (!watch)
		return;
	*pointer = NULL;
	net_timer_stop(watch->params.loop, &watch->timer);
	engine_destroy(&watch->engine);
	free(watch);
}

void watch_verified(struct watch *watch, bool ok, const char *verdict)
{
	watch->verified = true;
	watch->intact = ok;
	snprintf(watch->verdict, sizeof watch->verdict, "%s", verdict);
}
