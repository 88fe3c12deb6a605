/* Allocations and modules: room, names, ends. See inside.h.
 *
 * The table by id has chains; ids are ours and random, so no client chooses where they fall. News gathers here for up
 * to TELL_MS before it becomes an inventory event; what came and went in between is never told. */
#include "common/base/clock.h"
#include "common/base/reserve.h"
#include "server/security/random_id.h"
#include "server/tenants/inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TELL_MS = 100, TELL_AT_ONCE = 1024 };

static struct item **slot_of(const struct tenancy *tenants, const char *id)
{
	uint32_t hash = 2166136261; // FNV-1a
	for (const char *at = id; *at; at++)
		hash = (hash ^ (uint8_t)*at) * 16777619;
	return (struct item **)&tenants->table[hash % ITEM_SLOTS];
}

const struct cluster_device *item_device(const struct item *item)
{
	return item->worker->devices[item->device].device;
}

// ---- what a call is about ----

void about_device(const struct tenant_call *call, const struct cluster_device *device, uint64_t bytes)
{
	struct tenant_about *about = call->about;
	const char *device_id = cluster_device_id(device), *node_id = cluster_device_node_id(device);
	memcpy(about->device_id, device_id, strlen(device_id) + 1);
	memcpy(about->node_id, node_id, strlen(node_id) + 1);
	about->bytes = bytes;
}

void about_item(const struct tenant_call *call, const struct item *item, uint64_t bytes)
{
	about_device(call, item_device(item), bytes);
}

// ---- room ----

static struct holding *holding_of(struct tenancy *tenants, const struct cluster_device *device)
{
	struct holding *holding = tenants->holdings;
	while (holding && holding->device != device)
		holding = holding->next;
	if (holding)
		return holding;
	holding = calloc(1, sizeof(*holding));
	if (!holding)
		return NULL;
	*holding = (struct holding){.next = tenants->holdings, .device = device};
	tenants->holdings = holding;
	return holding;
}

static const char *pool_of(const struct cluster_device *device)
{
	return json_get_string(cluster_device_record(device), "memory_pool", "");
}

// Whether its memory is the machine's own.
static bool is_host(const struct cluster_device *device)
{
	return !strcmp(pool_of(device), "host");
}

// Whether the two have one memory.
static bool share(const struct cluster_device *one, const struct cluster_device *other)
{
	return one == other || (pool_of(one)[0] && !strcmp(pool_of(one), pool_of(other)) &&
				!strcmp(cluster_device_node_id(one), cluster_device_node_id(other)));
}

uint64_t held_bytes(const struct tenancy *tenants, const struct cluster_device *device)
{
	uint64_t bytes = 0;
	for (const struct holding *one = tenants->holdings; one; one = one->next)
		bytes += share(one->device, device) ? one->bytes : 0;
	return bytes;
}

uint64_t awaited_bytes(const struct worker *worker, unsigned place)
{
	const struct cluster_device *device = worker->devices[place].device;
	uint64_t bytes = 0;
	if (!is_host(device)) // of other memory drivers promise none twice
		return 0;
	for (const struct holding *one = worker->tenants->holdings; one; one = one->next)
		bytes += share(one->device, device) ? one->awaited : 0;
	for (unsigned i = 0; i < worker->device_count; i++) // its own it does one after the other
		bytes -= share(worker->devices[i].device, device) ? worker->devices[i].awaited : 0;
	return bytes;
}

// Of the machine's own memory some is left to everything else there.
static uint64_t lent_bytes(const struct cluster_device *device)
{
	const int64_t has = json_get_integer(cluster_device_record(device), "memory_bytes", 0);
	if (has <= 0)
		return UINT64_MAX;
	return (uint64_t)has - (is_host(device) ? reserve_bytes((uint64_t)has) : 0);
}

enum status held_change(struct tenancy *tenants, const struct cluster_device *device, uint64_t change)
{
	struct holding *holding = holding_of(tenants, device);
	if (!holding)
		return STATUS_OUT_OF_MEMORY;
	holding->bytes += change;
	return STATUS_OK;
}

static uint64_t left(uint64_t all, uint64_t used)
{
	return used < all ? all - used : 0;
}

// Of the token and those that it was made with, the one that has the least left; NULL: none has a limit.
static const struct token *tightest(const struct token *token, uint64_t *has_left)
{
	const struct token *found = NULL;
	*has_left = UINT64_MAX;
	for (const struct token *one = token; one; one = one->parent) {
		uint64_t one_left = one->memory_limit_bytes ? left((uint64_t)one->memory_limit_bytes, one->family_bytes)
							    : UINT64_MAX;
		if (one_left < *has_left) {
			*has_left = one_left;
			found = one;
		}
	}
	return found;
}

enum status item_check_room(const struct tenant *tenant, const struct cluster_device *device, uint64_t bytes,
			    struct error *error)
{
	const struct tenancy *tenants = tenant->tenants;
	const struct limits *limits = tenants->params.limits;
	const int64_t most = limits_get(limits, LIMIT_ALLOCATIONS_ID);
	const int64_t most_of_session = limits_get(limits, LIMIT_ALLOCATIONS_OF_SESSION_ID);
	uint64_t token_left;
	char title[CLUSTER_TITLE_BYTES];
	const struct token *token = tightest(tenant->token, &token_left);
	const uint64_t lent = lent_bytes(device), device_left = left(lent, held_bytes(tenants, device));
	if ((int64_t)tenants->stats.allocations >= most)
		error_set(error, STATUS_LIMIT_EXCEEDED, "the server has its %" PRId64 " allocations", most);
	else if (tenant->allocations >= most_of_session)
		error_set(error, STATUS_LIMIT_EXCEEDED, "this session has its %" PRId64 " allocations",
			  most_of_session);
	else if (bytes > token_left)
		error_set(error, STATUS_LIMIT_EXCEEDED,
			  "%" PRIu64 " bytes were asked for; of %s memory_limit_bytes %" PRId64 ", %" PRIu64
			  " are left",
			  bytes, token == tenant->token ? "this token's" : "an earlier token's",
			  token->memory_limit_bytes, token_left);
	else if (bytes > device_left)
		error_set(error, STATUS_LIMIT_EXCEEDED,
			  "%" PRIu64 " bytes were asked for; of the %" PRIu64 " bytes that %s lends, %" PRIu64
			  " are not held already",
			  bytes, lent, cluster_device_title(tenants->params.cluster, device, title), device_left);
	else
		return STATUS_OK;
	error_hint(error, "free what is not needed (memory.list shows it), or use another device");
	return STATUS_LIMIT_EXCEEDED;
}

static void await(const struct item *item, bool more)
{
	const uint64_t change = more ? item->bytes : -item->bytes;
	holding_of(item->worker->tenants, item_device(item))->awaited += change; // there is one, as below
	item->worker->devices[item->device].awaited += change;
}

static void count(const struct item *item, bool more)
{
	struct tenant *tenant = item->worker->tenant;
	struct tenancy *tenants = item->worker->tenants;
	if (item->kind != ITEM_ALLOCATION) {
		tenant->modules += more ? 1 : -1u;
		return;
	}
	uint64_t change = more ? item->bytes : -item->bytes;
	held_change(tenants, item_device(item), change); // there is one, since before the item was made
	if (more)
		await(item, true);
	else if (!item->id[0]) // it was never answered
		await(item, false);
	if (tenant->token)
		tenant->token->memory_bytes += change;
	for (struct token *token = tenant->token; token; token = token->parent)
		token->family_bytes += change;
	tenant->allocations += more ? 1 : -1u;
	tenants->stats.allocations += more ? 1 : (size_t)-1;
}

enum status item_create(struct item **out, const struct item_params *params, struct error *error)
{
	struct worker *worker = params->worker;
	struct item *item = calloc(1, sizeof(*item));
	*out = NULL;
	if (!item || (params->label && !(item->label = strdup(params->label))) ||
	    !holding_of(worker->tenants, worker->devices[params->device].device)) {
		if (item)
			free(item->label);
		free(item);
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	}
	item->worker = worker;
	item->kind = params->kind;
	item->device = params->device;
	item->bytes = params->bytes;
	item->handle = ++worker->next_handle;
	item->serial = ++worker->tenants->next_serial;
	item->created_ms = clock_wall_ms();
	item->link = worker->last_item;
	*worker->last_item = item;
	worker->last_item = &item->next;
	count(item, true);
	*out = item;
	return STATUS_OK;
}

// ---- news ----

static void tell(void *arg)
{
	tenancy_flush_events(arg);
}

static void tell_soon(struct tenancy *tenants)
{
	size_t gathered = tenants->fresh_count + json_count(tenants->freed);
	if (gathered >= TELL_AT_ONCE)
		tenancy_flush_events(tenants);
	else if (!tenants->tell.running)
		net_timer_start(tenants->params.loop, &tenants->tell, TELL_MS, tell, tenants);
}

static struct json *item_json(const struct item *item, bool label)
{
	char at[CLOCK_TEXT_BYTES];
	const struct tenant *tenant = item->worker->tenant;
	struct json *json = json_new_object();
	json_set_string(json, "allocation_id", item->id);
	json_set_string(json, "device_id", cluster_device_id(item_device(item)));
	json_set_string(json, "session_id", tenant->session_id);
	json_set_string(json, "token_id", tenant->token ? tenant->token->token_id : NULL);
	json_set_string(json, "holder", tenant->token ? tenant->token->name : "the machine's owner");
	json_set_integer(json, "bytes", (int64_t)item->bytes);
	json_set_string(json, "label", label ? item->label : NULL);
	json_set_string(json, "created_at", clock_format(item->created_ms, at));
	return json;
}

void tenancy_flush_events(struct tenancy *tenants)
{
	net_timer_stop(tenants->params.loop, &tenants->tell);
	if (!tenants->fresh && !tenants->freed)
		return;
	struct json *event = json_new_object(), *list = json_new_array();
	while (tenants->fresh) {
		struct item *item = tenants->fresh;
		tenants->fresh = item->fresh_next;
		item->fresh = false;
		json_push(list, item_json(item, false));
	}
	tenants->fresh_count = 0;
	json_set_null(event, "change");
	json_set_null(event, "node");
	json_set_null(event, "device");
	json_set(event, "allocations", list);
	json_set(event, "freed", tenants->freed ? tenants->freed : json_new_array());
	json_set_bool(event, "discovering", cluster_discovering(tenants->params.cluster));
	tenants->freed = NULL;
	events_publish_seen(tenants->params.events, TOPIC_INVENTORY, 0, event, &tenants->view);
}

// ---- names ----

enum status item_publish(struct item *item)
{
	struct tenancy *tenants = item->worker->tenants;
	if (random_id(item->kind == ITEM_ALLOCATION ? "alloc_" : "mod_", item->id, sizeof item->id))
		return STATUS_UNAVAILABLE;
	struct item **slot = slot_of(tenants, item->id);
	item->chain = *slot;
	*slot = item;
	item->ready = true;
	if (item->kind != ITEM_ALLOCATION)
		return STATUS_OK;
	await(item, false);
	item->fresh = true;
	item->fresh_next = tenants->fresh;
	tenants->fresh = item;
	tenants->fresh_count++;
	tell_soon(tenants);
	return STATUS_OK;
}

void item_hide(struct item *item)
{
	struct tenancy *tenants = item->worker->tenants;
	if (!item->ready)
		return;
	item->ready = false;
	struct item **at = slot_of(tenants, item->id);
	while (*at != item)
		at = &(*at)->chain;
	*at = item->chain;
	if (item->kind != ITEM_ALLOCATION)
		return;
	if (item->fresh) {
		for (at = &tenants->fresh; *at != item; at = &(*at)->fresh_next)
			;
		*at = item->fresh_next;
		tenants->fresh_count--;
		item->fresh = false;
		return;
	}
	if (!tenants->freed)
		tenants->freed = json_new_array();
	struct json *freed = json_new_object();
	const struct token *token = item->worker->tenant->token;
	json_set_string(freed, "id", item->id);
	json_set_string(freed, "token_id", token ? token->token_id : NULL);
	json_push(tenants->freed, freed);
	tell_soon(tenants);
}

void item_lose(struct item *item)
{
	struct tenant *tenant = item->worker->tenant;
	item_hide(item);
	if (!tenant->lost)
		tenant->lost = calloc(LIMIT_LOST_IDS, sizeof(*tenant->lost));
	if (tenant->lost)
		memcpy(tenant->lost[tenant->lost_count++ % LIMIT_LOST_IDS], item->id, TENANT_ID_BYTES);
}

void item_destroy(struct item **pointer)
{
	struct item *item = *pointer;
	if (!item)
		return;
	*pointer = NULL;
	item_hide(item);
	count(item, false);
	*item->link = item->next;
	if (item->next)
		item->next->link = item->link;
	else
		item->worker->last_item = item->link;
	free(item->label);
	free(item);
}

struct item *item_find_any(const struct tenancy *tenants, const char *id)
{
	struct item *item = *slot_of(tenants, id);
	while (item && strcmp(item->id, id) != 0)
		item = item->chain;
	return item;
}

enum status item_find(struct item **out, const struct tenant *tenant, enum item_kind kind, const char *id,
		      struct error *error)
{
	const char *what = kind == ITEM_MODULE ? "module" : "allocation";
	struct item *item = item_find_any(tenant->tenants, id);
	*out = item;
	if (item && item->worker->tenant == tenant && item->kind == kind)
		return STATUS_OK;
	*out = NULL;
	for (size_t i = 0; tenant->lost && i < LIMIT_LOST_IDS && i < tenant->lost_count; i++)
		if (!strcmp(tenant->lost[i], id)) {
			error_set(error, STATUS_DEVICE_LOST, "%s %.64s is lost", what, id);
			error_hint(error, kind == ITEM_MODULE ? "load the module again" : "allocate again");
			return STATUS_DEVICE_LOST;
		}
	error_set(error, STATUS_NOT_FOUND, "this session has no %s %.64s", what, id);
	error_hint(error, kind == ITEM_MODULE ? "compute.load gives one" : "memory.list shows those there are");
	return STATUS_NOT_FOUND;
}

static int by_serial(const void *a, const void *b)
{
	const struct item *const *one = a, *const *other = b;
	return (*one)->serial < (*other)->serial ? -1 : (*one)->serial > (*other)->serial;
}

struct json *tenancy_list(const struct tenancy *tenants, const struct tenancy_list_params *params)
{
	size_t found = 0;
	struct json *list = json_new_array();
	const struct item **items = calloc(tenants->stats.allocations + 1, sizeof(*items));
	if (!items)
		return list;
	for (const struct tenant *tenant = tenants->tenants; tenant; tenant = tenant->next)
		for (const struct worker *worker = tenant->workers; worker; worker = worker->next)
			for (const struct item *item = worker->items; item; item = item->next)
				if (item->ready && item->kind == ITEM_ALLOCATION &&
				    (params->all || tenant->token == params->token))
					items[found++] = item;
	qsort(items, found, sizeof(*items), by_serial);
	for (size_t i = 0; i < found; i++)
		json_push(list, item_json(items[i], params->labels));
	free(items);
	if (params->masks_others)
		mask_others(tenants, list, params->token ? params->token->token_id : "");
	return list;
}
