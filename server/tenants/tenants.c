/* Tenants as a whole, and their connections. See tenants.h. */
#include "server/tenants/tenants.h"

#include "common/base/clock.h"
#include "common/base/list.h"
#include "common/base/log.h"
#include "common/wire/message.h"
#include "server/tenants/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A node, or one of its devices, is gone. A worker that has the device open has a driver in it that may never answer
// again, so it ends whole, with what it held on others.
static void lost(void *context, const char *node_id, const char *device_id, const char *why)
{
	struct tenancy *tenants = context;
	bool local = false;
	const bool tab = cluster_is_tab(tenants->params.cluster, node_id); // what a page had is gone with it
	cluster_has_node(tenants->params.cluster, node_id, &local);
	for (struct tenant *tenant = tenants->tenants, *after; tenant; tenant = after) {
		after = tenant->next; // an instance's goes with its worker
		for (struct worker *worker = tenant->workers, *next; worker; worker = next) {
			bool uses = !device_id && !strcmp(worker->node_id, node_id);
			next = worker->next;
			for (unsigned i = 0; device_id && i < worker->device_count; i++)
				uses |= !strcmp(cluster_device_id(worker->devices[i].device), device_id);
			if (uses && worker->instance && !device_id && !local && !tab)
				worker_away(worker, why);
			else if (uses)
				worker_lose(worker, why);
		}
	}
}

static bool names(const struct json *list, const char *id)
{
	for (const struct json *one = json_first(list); one; one = json_next(one))
		if (!strcmp(json_string(one, ""), id))
			return true;
	return false;
}

void tenancy_node_back(struct tenancy *tenants, const char *node_id, const struct json *workers)
{
	for (struct tenant *tenant = tenants->tenants, *after; tenant; tenant = after) {
		after = tenant->next; // an instance's goes with its worker
		struct worker *worker = tenant->workers;
		if (worker && worker->instance && !strcmp(worker->node_id, node_id) &&
		    !names(workers, worker->worker_id))
			worker_lose(worker, "its node came back without it");
	}
	for (const struct json *one = json_first(workers); one; one = json_next(one)) {
		const struct worker *worker = worker_by_id(tenants, json_string(one, ""));
		if (!worker || strcmp(worker->node_id, node_id) != 0)
			worker_tell_closed(tenants, node_id, json_string(one, ""), true);
	}
}

enum status tenancy_create(struct tenancy **out, const struct tenancy_params *params, struct error *error)
{
	struct tenancy *tenants = calloc(1, sizeof(*tenants));
	*out = tenants;
	if (!tenants)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	tenants->params = *params;
	buffer_init(&tenants->text, LIMIT_HEAD_BYTES);
	enum status status = mask_begin(tenants);
	if (status)
		error_set(error, status, "the system gives no random numbers");
	else
		status = stream_unix_listen(tenants, error);
	if (status)
		tenancy_destroy(out);
	else
		cluster_listen(params->cluster, lost, tenants);
	return status;
}

void tenancy_destroy(struct tenancy **pointer)
{
	struct tenancy *tenants = *pointer;
	if (!tenants)
		return;
	*pointer = NULL;
	cluster_listen(tenants->params.cluster, NULL, NULL);
	net_timer_stop(tenants->params.loop, &tenants->tell);
	workers_forget_closings(tenants);
	streams_destroy(tenants);
	for (struct holding *holding = tenants->holdings, *next; holding; holding = next) {
		next = holding->next;
		free(holding);
	}
	json_destroy(&tenants->freed);
	buffer_finish(&tenants->text);
	free(tenants);
}

enum status tenant_create(struct tenant **out, struct tenancy *tenants, const char *session_id, struct token *token)
{
	struct tenant *tenant = calloc(1, sizeof(*tenant));
	*out = tenant;
	if (!tenant)
		return STATUS_OUT_OF_MEMORY;
	*tenant = (struct tenant){.tenants = tenants, .token = token};
	snprintf(tenant->session_id, sizeof tenant->session_id, "%s", session_id);
	LIST_PUSH(&tenants->tenants, tenant, link);
	return STATUS_OK;
}

void tenant_end(struct tenant *tenant, const char *why)
{
	compilations_end(tenant, why);
	while (tenant->workers)
		worker_lose(tenant->workers, why);
}

void tenant_destroy(struct tenant **pointer)
{
	struct tenant *tenant = *pointer;
	if (!tenant)
		return;
	*pointer = NULL;
	tenant->over = true;
	while (tenant->conns)
		tenant_leave(tenant->conns);
	tenant_end(tenant, "the session is over");
	LIST_REMOVE(tenant, link);
	free(tenant->lost);
	free(tenant);
}

void tenancy_undo(struct tenancy *tenants, const char *id)
{
	struct error error = {0};
	struct item *item = item_find_any(tenants, id);
	if (!item)
		return;
	enum status status = item->kind == ITEM_ALLOCATION ? allocation_drop(item, NULL, &error)
							   : module_drop(item, NULL, &error);
	if (status)
		log_warning("tenants", "%s stays although nothing tells of it: %s", id, error.message);
	else
		item_hide(item);
}

// ---- connections ----

void tenant_join(struct tenant *tenant, struct tenant_conn *conn, struct net_conn *net)
{
	tenant_leave(conn);
	*conn = (struct tenant_conn){.next = tenant->conns, .tenant = tenant, .conn = net};
	tenant->conns = conn;
}

static void set_full(struct tenant_conn *conn, bool full)
{
	struct tenant *tenant = conn->tenant;
	if (conn->full == full)
		return;
	conn->full = full;
	tenant->full_conns += full ? 1 : -1u;
	for (struct worker *worker = tenant->workers; worker; worker = worker->next)
		stream_hold(worker);
}

bool tenancy_works_on(const struct tenancy *tenants, const struct cluster_device *device)
{
	const int64_t recent_ms = clock_steady_ms() - CLUSTER_WORK_MS;
	for (const struct tenant *tenant = tenants->tenants; tenant; tenant = tenant->next)
		for (const struct worker *worker = tenant->workers; worker; worker = worker->next) {
			const bool busy = worker->rpc.waiting || worker->waiting.count || worker->worked_ms > recent_ms;
			for (unsigned i = 0; busy && !worker->instance && i < worker->device_count; i++)
				if (worker->devices[i].device == device)
					return true;
		}
	return false;
}

void tenant_leave(struct tenant_conn *conn)
{
	struct tenant *tenant = conn->tenant;
	if (!tenant)
		return;
	set_full(conn, false);
	if (conn->waits_for && conn->conn)
		net_conn_resume(conn->conn);
	struct tenant_conn **at = &tenant->conns;
	while (*at != conn)
		at = &(*at)->next;
	*at = conn->next;
	*conn = (struct tenant_conn){0};
}

void tenant_conn_sent(struct tenant_conn *conn)
{
	if (conn->tenant && conn->conn && net_conn_queued_bytes(conn->conn) > LIMIT_STREAM_FULL_BYTES)
		set_full(conn, true);
}

void tenant_conn_drained(struct tenant_conn *conn)
{
	if (conn->tenant)
		set_full(conn, false);
}

void tenant_notify(struct tenant *tenant, struct tenant_conn *only, const char *method, struct json *params)
{
	struct buffer text;
	struct net_frame *frame = NULL;
	buffer_init(&text, LIMIT_BODY_BYTES);
	if (!message_print_call(&text, NULL, method, params))
		frame = net_frame_create(text.data, text.length, true);
	for (struct tenant_conn *conn = tenant->conns, *next; frame && conn; conn = next) {
		next = conn->next;
		if (conn->conn && (!only || conn == only))
			net_conn_send(conn->conn, frame, 0);
	}
	if (frame)
		net_frame_unref(&frame);
	buffer_finish(&text);
}

// ---- devices ----

// Whether verification stands in the way.
static enum status check_verified(const struct json *record, const char *name, struct error *error)
{
	const struct json *verification = json_get(record, "verification");
	const char *state = json_get_string(verification, "state", "");
	if (!strcmp(state, "passed"))
		return STATUS_OK;
	if (!strcmp(state, "pending")) {
		error_set(error, STATUS_UNAVAILABLE, "%s is being verified", name);
		error_hint(error, "try again in a few seconds");
	} else {
		error_set(error, STATUS_UNAVAILABLE, "%s failed verification: %s", name,
			  json_get_string(verification, "error", "no reason given"));
		error_hint(error, "an admin can have it verified again: device.verify");
	}
	return STATUS_UNAVAILABLE;
}

enum status tenant_find_device(const struct tenancy *tenants, const char *device_id, const struct cluster_device **out,
			       struct error *error)
{
	const char *reason;
	const struct cluster_device *device = cluster_find_device(tenants->params.cluster, device_id);
	*out = device;
	if (!device) {
		error_set(error, STATUS_NOT_FOUND, "there is no device %.64s", device_id);
		error_hint(error, "cluster.snapshot lists them");
		return STATUS_NOT_FOUND;
	}
	char title[CLUSTER_TITLE_BYTES];
	const char *name = cluster_device_title(tenants->params.cluster, device, title),
		   *state = cluster_device_state(device, &reason);
	if (!strcmp(state, "offline")) {
		error_set(error, STATUS_UNAVAILABLE, "%s is offline: %s", name, reason ? reason : "no reason given");
		error_hint(error, "bring its machine back, or use another device");
	} else if (!strcmp(state, "unsupported")) {
		error_set(error, STATUS_UNAVAILABLE, "%s is not supported: %s", name,
			  reason ? reason : "no reason given");
		error_hint(error, "use another device");
	} else if (!strcmp(state, "draining")) {
		error_set(error, STATUS_UNAVAILABLE, "%s is draining: it gets no new work", name);
		error_hint(error, "use another device, or ask an admin to return it to service");
	} else if (!strcmp(state, "resting")) {
		error_set(error, STATUS_UNAVAILABLE, "%s rests, and gets no new work: %s", name, reason);
		error_hint(error, "use another device; it takes work again by itself");
	} else {
		return check_verified(cluster_device_record(device), name, error);
	}
	return STATUS_UNAVAILABLE;
}

// ---- figures ----

void tenancy_read_stats(const struct tenancy *tenants, struct tenancy_stats *stats)
{
	*stats = tenants->stats;
}

void tenancy_each_device(const struct tenancy *tenants,
			 void (*each)(void *context, const struct cluster_device *device, uint64_t bytes),
			 void *context)
{
	for (const struct holding *holding = tenants->holdings; holding; holding = holding->next)
		each(context, holding->device, holding->bytes);
}
