/* The ring of an instance's parts: hops from each to the next, and the check that they fit together. See parts.h.
 *
 * Both ends of a hop are asked at once; each answers when the other is there. A direct link that does not carry it is
 * replaced by the way through the server, once. */
#include "common/base/log.h"
#include "server/cluster/topology/topology.h"
#include "server/instances/parts/parts_inside.h"
#include "server/instances/parts/parts_spot.h"
#include "server/security/random_id.h"

#include <math.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

static const char *const way_names[] = {[WAY_LOCAL] = "local", [WAY_LINK] = "link", [WAY_SERVER] = "server"};

static struct part *next_of(const struct part *part)
{
	struct parts *parts = part->parts;
	return &parts->part[(part->index + 1) % parts->count];
}

const char *parts_via(const struct parts *parts, unsigned part)
{
	return way_names[parts->part[part].way];
}

unsigned parts_unconnected(const struct parts *parts)
{
	unsigned part = 0;
	while (part + 1 < parts->count && parts->part[part].ends == 2)
		part++;
	return part;
}

// ---- checking ----

static struct instance_reference *reference_of(const struct instance *instance)
{
	struct instances *all = instance->all;
	for (size_t i = 0; i < all->reference_count && i < LIMIT_INSTANCES; i++) {
		struct instance_reference *one = &all->references[i];
		if (!strcmp(one->model_id, instance->model_id) && one->format == instance->held_format &&
		    one->context_tokens == instance->context_tokens)
			return one;
	}
	return NULL;
}

// The same, of a new one if there is none. NULL: out of memory.
static struct trials *known_of(const struct instance *instance)
{
	struct instances *all = instance->all;
	struct instance_reference *one = reference_of(instance);
	if (one)
		return one->trials;
	struct trials *made = trials_create();
	if (!made)
		return NULL;
	one = &all->references[all->reference_count++ % LIMIT_INSTANCES];
	trials_destroy(&one->trials);
	*one = (struct instance_reference){
		.format = instance->held_format, .context_tokens = instance->context_tokens, .trials = made};
	snprintf(one->model_id, sizeof one->model_id, "%s", instance->model_id);
	return made;
}

// A device, as it was verified: FNV-1a of both.
static uint64_t key_of(const struct cluster_device *device)
{
	const char *verified = json_get_string(json_get(cluster_device_record(device), "verification"), "at", "");
	const char *texts[] = {cluster_device_id(device), verified};
	uint64_t hash = 0xcbf29ce484222325u;
	for (int i = 0; i < 2; i++)
		for (const char *at = texts[i]; *at; at++)
			hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
	return hash;
}

static unsigned list_devices(const struct instance *instance, struct trial_device *devices)
{
	unsigned count = 0;
	for (unsigned i = 0; i < instance->stage_count; i++) {
		const uint64_t key = key_of(instance->stages[i].device);
		bool known = false;
		for (unsigned k = 0; k < count; k++)
			known = known || devices[k].key == key;
		if (known)
			continue;
		devices[count].key = key;
		gather_name(instance->all, instance->stages[i].device, devices[count++].name);
	}
	return count;
}

// The first part that has this device; the last part if there is none in particular.
static unsigned part_with(const struct parts *parts, const struct trial_device *device)
{
	for (unsigned i = 0; device && i < parts->count; i++)
		for (unsigned k = 0; k < parts->part[i].stage_count; k++)
			if (key_of(parts->instance->stages[parts->part[i].first_stage + k].device) == device->key)
				return i;
	return parts->count - 1;
}

static void fail_differing(struct parts *parts, const struct trial *start, const struct trial_verdict *verdict)
{
	const struct trial_device *suspect = verdict->suspect < 0 ? NULL : &start->devices[verdict->suspect];
	const bool alone = suspect && !verdict->other_count;
	struct error fault = {0};
	char others[2 * TRIAL_NAME_BYTES] = "";
	for (unsigned i = 0; i < verdict->other_count && i < TRIAL_SUSPECTS; i++) {
		const size_t length = strlen(others);
		snprintf(others + length, sizeof others - length, "%s%.90s", i ? ", " : "", verdict->others[i]);
	}
	error_set(&fault, STATUS_INTERNAL,
		  "the reference token leads to token %u with a logit of %.4g, where it %s token %u with %.4g%s%s",
		  start->token, start->logit, alone ? "otherwise leads to" : "first led to", verdict->token,
		  verdict->logit, others[0] ? "; or it was wrong then, on " : "", others);
	if (!alone)
		error_hint(&fault, "a start on other devices shows which of them is wrong");
	parts_fail_at(parts, part_with(parts, suspect),
		      suspect ? "it computes something else" : "the parts do not work together", &fault);
}

// What the token led to must be what it led to in other starts. False: it is not, and they have failed.
static bool compare(struct parts *parts, const struct json *result)
{
	struct trials *known = known_of(parts->instance);
	struct trial_device devices[PLACEMENT_STAGES];
	struct trial_verdict verdict;
	const struct trial start = {.devices = devices,
				    .device_count = list_devices(parts->instance, devices),
				    .token = (uint32_t)json_get_integer(result, "token", 0),
				    .logit = json_get_number(result, "logit", 0),
				    .spread = json_get_number(result, "spread", 0),
				    .expected_logit = json_get_number(result, "expected_logit", NAN)};
	if (!known)
		return true;
	trials_judge(known, &start, &verdict);
	if (!verdict.agrees)
		fail_differing(parts, &start, &verdict);
	return verdict.agrees;
}

static void checked(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct parts *parts;
	unsigned which;
	if (!parts_ask_answered(context, &parts, &which) || parts->failed || status == STATUS_DEVICE_LOST)
		return;
	if (status)
		parts_fail_at(parts, which, "the parts do not work together", error);
	if (status || !compare(parts, result))
		return;
	log_info("models", "instance %s: a reference token went around its %u parts in %.1f ms",
		 parts->instance->instance_id, parts->count, json_get_number(result, "round_ms", 0));
	parts_set_ready(parts);
}

// What steps of 1, 2, 4, 8 and 16 rows take of all parts together, as far as all parts have told. NULL: one told none.
static struct json *row_times(const struct parts *parts)
{
	struct json *list = NULL;
	for (unsigned i = 0; i < PART_ROW_TIMES; i++) {
		double sum = 0;
		for (unsigned k = 0; k < parts->count; k++) {
			if (!(parts->part[k].row_s[i] > 0))
				return list;
			sum += parts->part[k].row_s[i];
		}
		list = list ? list : json_new_array();
		json_push(list, json_new_number(sum));
	}
	return list;
}

// With what a row of a prompt, and steps of few rows, take of all parts together, if all parts have told.
static struct json *check_params(const struct parts *parts)
{
	struct json *params = json_new_object();
	const struct instance_reference *known = reference_of(parts->instance);
	struct json *times = row_times(parts);
	uint32_t expected;
	double row_s = 0;
	bool told = true;
	for (unsigned i = 0; i < parts->count; i++) {
		row_s += parts->part[i].prompt_row_s;
		told = told && parts->part[i].prompt_row_s > 0;
	}
	if (told)
		json_set_number(params, "prompt_row_s", row_s);
	if (times)
		json_set(params, "row_s", times);
	if (known && trials_expected(known->trials, &expected))
		json_set_integer(params, "expected_token", expected);
	return params;
}

static void check(struct parts *parts)
{
	struct error error = {0};
	struct parts_ask *ask = parts_ask_create(parts, parts->count - 1, &parts->checks);
	parts->step = PARTS_CHECKING;
	parts->instance->held_percent = 0; // its worker is free from then on
	parts_limit_step(parts);
	if (!ask)
		error_set(&error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	else if (!instance_worker_call(parts->part[parts->count - 1].worker, "instance.check", check_params(parts),
				       checked, ask, &error))
		return;
	if (ask)
		parts_ask_answered(ask, &(struct parts *){NULL}, &(unsigned){0});
	parts_fail_at(parts, parts->count - 1, "the parts cannot be checked", &error);
}

// ---- connecting ----

static void connect_hop(struct part *part, enum hop_way way);

static void relay_ended(void *context)
{
	struct part *part = context;
	part->hop = NULL; // the nodes tell of it: hop.ended
}

static void unconnected(struct part *part, const struct error *error)
{
	char what[GATHER_NAME_BYTES + 64], name[GATHER_NAME_BYTES];
	const struct part *next = next_of(part);
	const struct instance *instance = part->parts->instance;
	snprintf(what, sizeof what, "it could not be connected to part %u on %s", next->index + 1,
		 gather_name(instance->all, instance->stages[next->first_stage].device, name));
	parts_fail_at(part->parts, part->index, what, error);
}

static void answered(void *context, enum status status, const struct json *result, const struct error *error)
{
	unsigned which;
	struct parts *parts;
	(void)result;
	if (!parts_ask_answered(context, &parts, &which) || parts->failed)
		return;
	struct part *part = &parts->part[which];
	if (status && part->way == WAY_LINK) {
		log_info("models", "instance %s: no direct link from %s to %s carries a hop (%s): through the server",
			 parts->instance->instance_id, part->node_id, next_of(part)->node_id, error->message);
		connect_hop(part, WAY_SERVER);
		return;
	}
	if (status) {
		unconnected(part, error);
		return;
	}
	part->ends++;
	for (unsigned i = 0; i < parts->count; i++)
		if (parts->part[i].ends < 2)
			return;
	check(parts);
}

static enum status ask_end(struct part *part, const char *end, const char *key, struct error *error)
{
	struct parts *parts = part->parts;
	const bool out = !strcmp(end, "out");
	const struct part *at = out ? part : next_of(part), *other = out ? next_of(part) : part;
	struct parts_ask *ask = at->worker ? parts_ask_create(parts, part->index, &part->attempt) : NULL;
	if (!ask)
		return error_set(error, STATUS_UNAVAILABLE, "its worker is gone");
	struct json *params = json_new_object();
	json_set_string(params, "worker_id", instance_worker_id(at->worker));
	json_set_string(params, "end", end);
	json_set_string(params, "hop_id", part->hop_id);
	json_set_string(params, "key", key);
	json_set_string(params, "via", way_names[part->way]);
	if (part->way == WAY_LINK)
		json_set_string(params, "peer_id", other->node_id);
	enum status status = cluster_ask(parts->instance->all->params.cluster, at->node_id, "hop.connect", params,
					 answered, ask);
	if (!status)
		return STATUS_OK;
	parts_ask_answered(ask, &(struct parts *){NULL}, &(unsigned){0});
	return error_set(error, status, "the node of the other end cannot be asked now");
}

static void connect_hop(struct part *part, enum hop_way way)
{
	struct error error = {0};
	struct parts *parts = part->parts;
	char key[PARTS_KEY_BYTES];
	for (unsigned i = 0; i < parts->count; i++)
		parts_spot_end(&parts->part[i]);
	hop_relay_destroy(&part->hop);
	part->way = way;
	part->ends = 0;
	part->attempt++;
	parts->checks++;                            // a running check may end because of this
	for (unsigned i = 0; i < parts->count; i++) // what is on its way may be lost
		if (parts->part[i].hop)
			hop_relay_recount(parts->part[i].hop);
	enum status status = random_id("hop_", part->hop_id, sizeof part->hop_id);
	if (!status)
		status = parts_make_key(key);
	if (status)
		error_set(&error, status, "the system gives no random numbers");
	const struct hop_params params = {.hop_id = part->hop_id,
					  .key = key,
					  .out_node_id = part->node_id,
					  .in_node_id = next_of(part)->node_id,
					  .ended = relay_ended,
					  .context = part};
	if (!status && way == WAY_SERVER)
		status = hop_relay_create(&part->hop, parts->instance->all->params.tenants, &params, &error);
	if (!status)
		status = ask_end(part, "in", key, &error);
	if (!status)
		status = ask_end(part, "out", key, &error);
	OPENSSL_cleanse(key, sizeof key);
	if (status)
		unconnected(part, &error);
}

static enum hop_way way_of(const struct part *part)
{
	struct topology_reading reading;
	const struct part *next = next_of(part);
	if (!strcmp(part->node_id, next->node_id))
		return WAY_LOCAL;
	if (part->tab || next->tab)
		return WAY_SERVER;
	topology_find(part->parts->instance->all->params.topology, part->node_id, next->node_id, &reading);
	return reading.direct ? WAY_LINK : WAY_SERVER;
}

void parts_connect(struct parts *parts)
{
	parts->step = PARTS_CONNECTING;
	parts->broken = 0;
	if (!parts->failed) // a pending report that the parts are ready is no longer true
		net_timer_stop(parts->loop, &parts->tell);
	parts_limit_step(parts);
	for (unsigned i = 0; i < parts->count; i++) // before any is asked, or the first answers would seem to be all
		parts->part[i].ends = 0;
	for (unsigned i = 0; i < parts->count && !parts->failed; i++)
		connect_hop(&parts->part[i], way_of(&parts->part[i]));
	parts_tab_watch(parts);
}

void parts_disconnect(struct parts *parts)
{
	net_timer_stop(parts->loop, &parts->watch);
	parts->checks++; // what the ends still say, and the last part, is of no interest
	for (unsigned i = 0; i < parts->count; i++) {
		parts_spot_end(&parts->part[i]);
		hop_relay_destroy(&parts->part[i].hop);
		parts->part[i].attempt++;
	}
}

void parts_mend(struct parts *parts)
{
	if (parts->adopting)
		parts_adopt(parts);
	else if (parts->count > 1)
		parts_connect(parts);
	else
		parts_set_ready(parts);
}

// It broke before all were connected and checked: a few times, within the same limit.
static void connect_again(struct part *part, const char *why)
{
	struct error error = {0};
	struct parts *parts = part->parts;
	parts->step = PARTS_CONNECTING;
	if (++parts->broken <= SILENCE_BROKEN_MOST) {
		connect_hop(part, part->way == WAY_LINK ? WAY_SERVER : part->way);
		return;
	}
	error_set(&error, STATUS_UNAVAILABLE, "%s", why);
	parts_fail_at(parts, part->index, "its connection to the next part keeps breaking", &error);
}

bool parts_hop_ended(struct parts *parts, const char *node_id, const struct json *params)
{
	const char *hop_id = json_get_string(params, "hop_id", "");
	for (unsigned i = 0; parts && i < parts->count; i++) {
		struct part *part = &parts->part[i];
		if (strcmp(part->hop_id, hop_id) != 0 ||
		    (strcmp(part->node_id, node_id) != 0 && strcmp(next_of(part)->node_id, node_id) != 0))
			continue;
		if (parts->failed)
			return true;
		log_info("models", "instance %s: the connection from part %u to the next is broken: %s",
			 parts->instance->instance_id, i + 1, json_get_string(params, "message", ""));
		if (parts->step == PARTS_READY)
			instance_parts_broken(parts->instance);
		else if (parts->step == PARTS_CONNECTING || parts->step == PARTS_CHECKING)
			connect_again(part, json_get_string(params, "message", ""));
		return true;
	}
	return false;
}
