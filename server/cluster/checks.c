/* Spot checks of browsers' results, as the cluster knows them: how many requests are checked, what came of it, and
 * which browsers get no more layers. The checks are server/instances/parts/parts_spot.c's.
 *
 * A browser whose check fails has failed its verification, with all devices that it reports, until an admin has one of
 * them verified again: what it says of its own verification counts no more. Stored, so that a restart of the server
 * forgets nothing. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/wire/said.h"
#include "server/cluster/state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = STORE_ID_BYTES + 32 };
static const char percent_key[] = "lend_check_percent";
static const double usual_percent = 1;

static void print_key(const char *node_id, char key[KEY_BYTES])
{
	snprintf(key, KEY_BYTES, "check_failed.%s", node_id);
}

// ---- the share of requests that are checked ----

void cluster_load_checks(struct cluster *cluster)
{
	char *end;
	const char *text = store_load_setting(cluster->params.store, percent_key);
	const double percent = text ? strtod(text, &end) : usual_percent;
	cluster->check_percent = percent >= 0 && percent <= 100 ? percent : usual_percent;
}

double cluster_check_percent(const struct cluster *cluster)
{
	return cluster->check_percent;
}

struct percent_change {
	struct cluster *cluster;
	double percent;
	void (*done)(void *context, enum status status, const struct error *error);
	void *context;
};

static void percent_stored(void *context, enum status status, const struct error *error)
{
	struct percent_change *change = context;
	if (!status)
		change->cluster->check_percent = change->percent;
	change->done(change->context, status, error);
	free(change);
}

enum status cluster_set_check_percent(struct cluster *cluster, double percent, const struct audit_actor *by,
				      void (*done)(void *context, enum status status, const struct error *error),
				      void *context, struct error *error)
{
	char text[32], detail[64];
	struct store_batch *batch = NULL;
	struct percent_change *change = calloc(1, sizeof *change);
	enum status status = change ? store_batch_create(&batch) : STATUS_OUT_OF_MEMORY;
	snprintf(text, sizeof text, "%.6g", percent);
	snprintf(detail, sizeof detail, "{\"check_percent\":%.6g}", percent);
	if (!status) {
		*change = (struct percent_change){
			.cluster = cluster, .percent = percent, .done = done, .context = context};
		status = store_put_setting(batch, percent_key, text);
	}
	if (!status)
		status = audit_put(cluster->params.audit, batch,
				   &(struct audit_event){.by = by, .action = "lend.policy_set", .detail = detail});
	if (!status)
		status = store_commit(cluster->params.store, &batch, percent_stored, change);
	else if (batch)
		store_batch_destroy(&batch);
	if (!status)
		return STATUS_OK;
	free(change);
	return error_set(error, status, "the share of checked requests cannot be changed now");
}

// ---- browsers that computed wrong ----

void cluster_load_failed_check(struct cluster *cluster, struct cluster_node *node)
{
	char key[KEY_BYTES];
	print_key(node->node_id, key);
	const char *text = store_load_setting(cluster->params.store, key);
	snprintf(node->checks.wrong, sizeof node->checks.wrong, "%s", text ? text : "");
}

void cluster_judge_record(const struct cluster_node *node, struct json *record)
{
	struct json *verification = (struct json *)json_get(record, "verification");
	if (!node->checks.wrong[0] || !verification)
		return;
	json_set_string(verification, "state", "failed");
	json_set_string(verification, "error", node->checks.wrong);
}

// Records of the node's devices from now on, in the store and for everybody. False: they could not be stored.
static bool store_judged(struct cluster *cluster, struct cluster_node *node, const struct cluster_device *device,
			 const struct change *change)
{
	char key[KEY_BYTES];
	struct buffer text;
	struct store_batch *batch = NULL;
	struct json *detail = json_new_object();
	const int64_t at_ms = clock_wall_ms();
	buffer_init(&text, LIMIT_AUDIT_DETAIL_BYTES);
	json_set_string(detail, "reason", node->checks.wrong);
	json_print(detail, &text);
	json_destroy(&detail);
	print_key(node->node_id, key);
	enum status status = store_batch_create(&batch);
	if (!status)
		status = store_put_setting(batch, key, node->checks.wrong);
	if (!status)
		status = cluster_store_change(batch, node, device, change, at_ms);
	if (!status)
		status = audit_put(cluster->params.audit, batch,
				   &(struct audit_event){.by = &audit_server,
							 .action = change->kind,
							 .target = device->device_id,
							 .node_id = node->node_id,
							 .device_id = device->device_id,
							 .detail = text.failed ? NULL : buffer_text(&text)});
	if (!status)
		status = store_commit(cluster->params.store, &batch, NULL, NULL);
	else if (batch)
		store_batch_destroy(&batch);
	buffer_finish(&text);
	return !status;
}

static void distrust(struct cluster *cluster, struct cluster_node *node, const struct cluster_device *of,
		     const char *why)
{
	struct change change = {.kind = "device.failed", .level = "error", .keep = true};
	snprintf(node->checks.wrong, sizeof node->checks.wrong, "%s", why);
	snprintf(change.summary, sizeof change.summary, "%.250s", why);
	for (size_t i = 0; i < cluster->device_count; i++)
		if (cluster->devices[i]->node == node)
			cluster_judge_record(node, cluster->devices[i]->record);
	if (!store_judged(cluster, node, of, &change))
		log_error("cluster", "that node %s failed a spot check could not be stored", node->node_id);
	for (size_t i = 0; i < cluster->device_count; i++)
		if (cluster->devices[i]->node == node)
			cluster_push_change(cluster, node, cluster->devices[i], &change, clock_wall_ms());
}

void cluster_trust_again(struct cluster *cluster, struct cluster_node *node)
{
	char key[KEY_BYTES];
	struct store_batch *batch = NULL;
	if (!node->checks.wrong[0])
		return;
	node->checks.wrong[0] = 0;
	print_key(node->node_id, key);
	enum status status = store_batch_create(&batch);
	if (!status)
		status = store_put_setting(batch, key, "");
	if (!status)
		status = store_commit(cluster->params.store, &batch, NULL, NULL);
	else if (batch)
		store_batch_destroy(&batch);
	if (status)
		log_error("cluster", "that node %s is verified again could not be stored", node->node_id);
}

// ---- what came of checks ----

void cluster_note_check(struct cluster *cluster, const struct cluster_device *of, const struct cluster_check *check)
{
	struct cluster_device *device = cluster_find_device(cluster, cluster_device_id(of));
	struct change change = {.kind = "device.changed", .level = "info"};
	if (!device || device != of) // it is gone
		return;
	struct node_checks *checks = &device->node->checks;
	checks->counts[check->outcome]++;
	cluster->check_counts[check->outcome]++;
	checks->at_ms = clock_wall_ms();
	checks->last = check->outcome;
	if (check->outcome != CLUSTER_CHECK_NOT_BEGUN && check->error > checks->largest)
		checks->largest = check->error;
	snprintf(checks->why, sizeof checks->why, "%s", check->why ? check->why : "");
	if (check->outcome == CLUSTER_CHECK_FAILED) {
		distrust(cluster, device->node, device, check->why);
		return;
	}
	snprintf(change.summary, sizeof change.summary, "a spot check is over");
	cluster_push_change(cluster, device->node, device, &change, checks->at_ms);
}

static const char *const outcome_names[CLUSTER_CHECK_OUTCOMES] = {
	[CLUSTER_CHECK_PASSED] = "passed",
	[CLUSTER_CHECK_FAILED] = "failed",
	[CLUSTER_CHECK_GIVEN_UP] = "given_up",
	[CLUSTER_CHECK_NOT_BEGUN] = "not_begun",
};

struct json *cluster_checks_json(const struct cluster_node *node)
{
	char at[CLOCK_TEXT_BYTES];
	const struct node_checks *checks = &node->checks;
	struct json *json = json_new_object();
	for (int i = 0; i < CLUSTER_CHECK_OUTCOMES; i++)
		json_set_integer(json, outcome_names[i], (int64_t)checks->counts[i]);
	if (checks->at_ms) {
		json_set_string(json, "last", outcome_names[checks->last]);
		json_set_string(json, "at", clock_format(checks->at_ms, at));
	} else {
		json_set_null(json, "last");
		json_set_null(json, "at");
	}
	if (checks->counts[CLUSTER_CHECK_PASSED] + checks->counts[CLUSTER_CHECK_FAILED] && isfinite(checks->largest))
		json_set_number(json, "largest_error", checks->largest);
	else
		json_set_null(json, "largest_error");
	said_set(json, "reason", checks->why[0] ? checks->why : NULL);
	return json;
}

uint64_t cluster_checks_count(const struct cluster *cluster, enum cluster_check_outcome outcome)
{
	return cluster->check_counts[outcome];
}
