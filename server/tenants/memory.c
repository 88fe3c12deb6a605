/* memory.*: an allocation's name becomes a handle of its worker, a range is checked against the size that the server
 * knows, and the body goes on as it came. See inside.h. */
#include "common/base/clock.h"
#include "common/wire/said.h"
#include "server/tenants/inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status no_memory(struct error *error)
{
	return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
}

static enum status check_range(const struct item *item, uint64_t offset, uint64_t bytes, struct error *error)
{
	if (offset <= item->bytes && bytes <= item->bytes - offset)
		return STATUS_OK;
	error_set(error, STATUS_INVALID_PARAMS,
		  "offset %" PRIu64 " and %" PRIu64 " bytes reach beyond %s, which has %" PRIu64 " bytes", offset,
		  bytes, item->id, item->bytes);
	error_hint(error, "offset + bytes may be %" PRIu64 " at most", item->bytes);
	return STATUS_INVALID_PARAMS;
}

static uint64_t number(const struct json *params, const char *name)
{
	return (uint64_t)json_get_integer(params, name, 0); // the contract says that it is a Count
}

static struct json *bytes_json(uint64_t bytes)
{
	struct json *result = json_new_object();
	json_set_integer(result, "bytes", (int64_t)bytes);
	return result;
}

// ---- memory.allocate ----

static void allocated(struct worker_call *call, enum status status, const struct json *result, struct net_frame *body,
		      const struct error *error)
{
	struct item *item = call->item;
	struct json *answer = NULL;
	(void)result, (void)body;
	if (!status)
		status = item_publish(item);
	if (status) {
		item_destroy(&item);
	} else {
		answer = json_new_object();
		json_set_string(answer, "allocation_id", item->id);
		json_set_string(answer, "device_id", cluster_device_id(item_device(item)));
		json_set_integer(answer, "bytes", (int64_t)item->bytes);
	}
	call_answer(call, status, answer, error);
}

enum status tenant_allocate(const struct tenant_call *client, struct error *error)
{
	struct worker *worker;
	struct item *item = NULL;
	const struct cluster_device *device;
	unsigned place;
	struct tenant *tenant = client->tenant;
	uint64_t bytes = number(client->params, "bytes");
	enum status status = tenant_find_device(tenant->tenants, json_get_string(client->params, "device_id", ""),
						&device, error);
	if (!status) {
		about_device(client, device, bytes);
		status = item_check_room(tenant, device, bytes, error);
	}
	if (!status)
		status = worker_for(&worker, &place, tenant, device, error);
	if (status)
		return status;
	struct worker_call *call = worker_call_create(client, allocated);
	const struct item_params wanted = {.worker = worker,
					   .kind = ITEM_ALLOCATION,
					   .device = place,
					   .bytes = bytes,
					   .label = json_get_string(client->params, "label", NULL)};
	status = call ? item_create(&item, &wanted, error) : no_memory(error);
	if (!status) {
		struct json *params = bytes_json(bytes);
		json_set_integer(params, "device", place);
		json_set_integer(params, "handle", item->handle);
		const uint64_t awaited = awaited_bytes(worker, place);
		if (awaited) // workers of a build before do not know it
			json_set_integer(params, "awaited_bytes", (int64_t)awaited);
		call->item = item;
		call->device = place;
		status = worker_send(
			worker, call,
			&(struct worker_send_params){.method = "memory.allocate", .params = params, .waits = true},
			error);
	}
	if (status) {
		item_destroy(&item);
		worker_call_destroy(&call);
	}
	return status;
}

// ---- memory.write, memory.read, memory.fill: one range ----

static void ranged(struct worker_call *call, enum status status, const struct json *result, struct net_frame *body,
		   const struct error *error)
{
	struct tenancy_stats *stats = call->context;
	(void)result;
	if (!status && call->body_bytes)
		stats->read_bytes += call->bytes;
	call->client.done(call->client.context, status, status ? NULL : bytes_json(call->bytes),
			  call->body_bytes ? body : NULL, error);
}

struct range_call {
	const char *method;
	uint64_t bytes;
	bool reads, fills;
};

static enum status run_range(const struct tenant_call *client, const struct range_call *range, struct error *error)
{
	struct item *item;
	const struct json *given = client->params;
	uint64_t offset = number(given, "offset"), at = 0;
	enum status status = item_find(&item, client->tenant, ITEM_ALLOCATION,
				       json_get_string(given, "allocation_id", ""), error);
	if (!status) {
		about_item(client, item, range->bytes);
		status = check_range(item, offset, range->bytes, error);
	}
	if (status)
		return status;
	struct worker_call *call = worker_call_create(client, ranged);
	if (!call)
		return no_memory(error);
	struct message_number numbers[4] = {{"handle", item->handle}, {"offset", (int64_t)offset}};
	size_t count = 2;
	if (range->reads || client->body)
		call->place = sharing_place(item->worker, (size_t)range->bytes, &at);
	const bool placed = call->place && client->body; // no body goes by the stream
	if (placed)
		memcpy(net_frame_data(call->place), client->body, client->body_bytes);
	if (range->reads || range->fills || placed)
		numbers[count++] = (struct message_number){"bytes", (int64_t)range->bytes};
	if (call->place)
		numbers[count++] = (struct message_number){"at", (int64_t)at};
	if (range->fills)
		numbers[count++] = (struct message_number){"value", json_get_integer(given, "value", 0)};
	call->counts = true;
	call->bytes = range->bytes;
	call->body_bytes = range->reads ? (size_t)range->bytes : 0;
	call->context = &client->tenant->tenants->stats;
	const struct net_shared_note read = {.handle = item->handle, .offset = offset, .bytes = range->bytes, .at = at};
	if (range->reads && sharing_ask(item->worker, call, &read)) {
		worker_hold(item->worker, client->conn);
		return STATUS_OK;
	}
	const struct worker_send_params send = {.method = range->method,
						.numbers = numbers,
						.number_count = count,
						.holder = placed ? NULL : client->holder,
						.body = placed ? NULL : client->body,
						.body_bytes = placed ? 0 : client->body_bytes};
	status = worker_send(item->worker, call, &send, error);
	if (status)
		worker_call_destroy(&call);
	else
		worker_hold(item->worker, client->conn);
	return status;
}

enum status tenant_write(const struct tenant_call *client, struct error *error)
{
	const struct range_call range = {.method = "memory.write", .bytes = client->body_bytes};
	enum status status = run_range(client, &range, error);
	if (!status)
		client->tenant->tenants->stats.written_bytes += client->body_bytes;
	return status;
}

enum status tenant_read(const struct tenant_call *client, struct error *error)
{
	const struct range_call range = {
		.method = "memory.read", .bytes = number(client->params, "bytes"), .reads = true};
	return run_range(client, &range, error);
}

enum status tenant_fill(const struct tenant_call *client, struct error *error)
{
	const struct range_call range = {
		.method = "memory.fill", .bytes = number(client->params, "bytes"), .fills = true};
	return run_range(client, &range, error);
}

// ---- memory.copy ----

static void copied(struct worker_call *call, enum status status, const struct json *result, struct net_frame *body,
		   const struct error *error)
{
	struct json *answer = NULL;
	(void)body;
	if (!status) {
		const char *path = json_get_string(result, "path", "");
		answer = bytes_json(call->bytes);
		json_set_string(answer, "path", path);
		if (call->from && call->bytes)
			cluster_copied(call->context, cluster_device_id(call->from), cluster_device_id(call->to),
				       !strcmp(path, "peer"));
	}
	call_answer(call, status, answer, error);
}

void copy_tell(const struct tenant_call *client, uint64_t done, uint64_t total)
{
	if (!client->id)
		return;
	struct json *params = json_new_object();
	json_set(params, "id", json_copy(client->id));
	json_set_integer(params, "done_bytes", (int64_t)done);
	json_set_integer(params, "total_bytes", (int64_t)total);
	tenant_notify(client->tenant, client->conn, "session.progress", params);
}

void copy_moved(struct worker_call *call, const struct json *params)
{
	const int64_t now_ms = clock_steady_ms();
	const uint64_t done = (uint64_t)json_get_integer(params, "done_bytes", 0);
	if (done > call->bytes || now_ms - call->told_ms < LIMIT_COPY_TELL_MS)
		return;
	call->told_ms = now_ms;
	copy_tell(&call->client, done, call->bytes);
}

static enum status copy_inside(const struct relay_params *copy, struct error *error)
{
	struct worker *worker = copy->from->worker;
	struct worker_call *call = worker_call_create(copy->call, copied);
	if (!call)
		return no_memory(error);
	struct json *params = bytes_json(copy->bytes);
	json_set_integer(params, "from", copy->from->handle);
	json_set_integer(params, "from_offset", (int64_t)copy->from_offset);
	json_set_integer(params, "to", copy->to->handle);
	json_set_integer(params, "to_offset", (int64_t)copy->to_offset);
	call->counts = true;
	call->bytes = copy->bytes;
	call->told_ms = clock_steady_ms();
	if (copy->from->device != copy->to->device) {
		call->from = item_device(copy->from);
		call->to = item_device(copy->to);
		call->context = worker->tenants->params.cluster;
	}
	enum status status = worker_send(
		worker, call, &(struct worker_send_params){.method = "memory.copy", .params = params}, error);
	if (status)
		worker_call_destroy(&call);
	else
		worker_hold(worker, copy->call->conn);
	return status;
}

enum status tenant_copy(const struct tenant_call *client, struct error *error)
{
	struct item *from, *to = NULL;
	const struct json *given = client->params;
	const uint64_t bytes = number(given, "bytes");
	const uint64_t from_offset = number(given, "from_offset"), to_offset = number(given, "to_offset");
	enum status status = item_find(&from, client->tenant, ITEM_ALLOCATION, json_get_string(given, "from", ""),
				       error);
	if (!status)
		status = item_find(&to, client->tenant, ITEM_ALLOCATION, json_get_string(given, "to", ""), error);
	if (!status) {
		about_item(client, to, bytes);
		status = check_range(from, from_offset, bytes, error);
	}
	if (!status)
		status = check_range(to, to_offset, bytes, error);
	if (!status && from == to && bytes && from_offset < to_offset + bytes && to_offset < from_offset + bytes) {
		error_set(error, STATUS_INVALID_PARAMS, "the two ranges of %s overlap", from->id);
		error_hint(error, "copy by way of another allocation");
		status = STATUS_INVALID_PARAMS;
	}
	if (status)
		return status;
	const struct relay_params copy = {.call = client,
					  .from = from,
					  .to = to,
					  .from_offset = from_offset,
					  .to_offset = to_offset,
					  .bytes = bytes};
	return from->worker == to->worker ? copy_inside(&copy, error) : relay_start(&copy, error);
}

// ---- memory.free ----

static void freed(struct worker_call *call, enum status status, const struct json *result, struct net_frame *body,
		  const struct error *error)
{
	struct json *answer = NULL;
	(void)result, (void)body;
	if (!status) {
		answer = bytes_json(call->item->bytes);
		json_set_string(answer, "allocation_id", call->item->id);
	}
	item_destroy(&call->item);
	call_answer(call, status, answer, error);
}

// Somebody else's, freed by an admin: its owner is told.
static void tell_owner(struct item *item)
{
	struct json *params = json_new_object(), *allocations = json_new_array();
	json_push(allocations, json_new_string(item->id));
	json_set_string(params, "device_id", cluster_device_id(item_device(item)));
	said_set(params, "message", "an admin freed it");
	json_set(params, "allocations", allocations);
	json_set(params, "modules", json_new_array());
	tenant_notify(item->worker->tenant, NULL, "session.device_lost", params);
}

enum status allocation_drop(struct item *item, const struct tenant_call *client, struct error *error)
{
	struct worker_call *call = worker_call_create(client, freed);
	if (!call)
		return no_memory(error);
	struct json *params = json_new_object();
	json_set_integer(params, "handle", item->handle);
	call->item = item;
	enum status status = worker_send(
		item->worker, call, &(struct worker_send_params){.method = "memory.free", .params = params}, error);
	if (status)
		worker_call_destroy(&call);
	return status;
}

enum status tenant_free(const struct tenant_call *client, struct error *error)
{
	const char *id = json_get_string(client->params, "allocation_id", "");
	struct item *item = client->admin ? item_find_any(client->tenant->tenants, id) : NULL;
	enum status status = STATUS_OK;
	if (!item || item->kind != ITEM_ALLOCATION)
		status = item_find(&item, client->tenant, ITEM_ALLOCATION, id, error);
	if (status == STATUS_NOT_FOUND && client->admin) { // who frees anybody's
		*error = (struct error){0};
		error_set(error, status, "no session has an allocation %.64s", id);
		error_hint(error, "memory.list shows those there are");
	}
	if (status)
		return status;
	about_item(client, item, item->bytes);
	status = allocation_drop(item, client, error);
	if (status)
		return status;
	if (item->worker->tenant == client->tenant) {
		item_hide(item);
	} else {
		snprintf(client->about->taken_from, sizeof client->about->taken_from, "%s",
			 item->worker->tenant->session_id);
		item_lose(item);
		tell_owner(item);
	}
	return STATUS_OK;
}
