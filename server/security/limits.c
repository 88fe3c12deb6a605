/* See limits.h. Addresses are in a table of fixed size, by a hash that nobody outside can foresee. An address without
 * connections is remembered until its place is needed. */
#include "server/security/limits.h"

#include "common/base/clock.h"
#include "common/net/address.h"
#include "common/text/nearest.h"

#include <openssl/rand.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	SLOTS = 4096,   // of the hash
	LOOK = 64,      // places that are looked at for one to give up
	DELAY_MS = 250, // of the first answer that waits; each one waits twice as long as the one before
	DOUBLINGS = 16, // more than any limit lets happen
};

// ---- the operator's ----

static const struct {
	const char *name;
	int64_t value;
} table[LIMIT_IDS] = {
#define X(id, word, value) [id##_ID] = {word, value},
	LIMIT_LIST(X)
#undef X
};

static const struct configurable {
	enum limit_id id;
	int64_t least, most;
	const char *reason;
} configurable[] = {
#define X(id, least, most, reason) {id##_ID, least, most, reason},
	LIMIT_CONFIGURABLE_LIST(X)
#undef X
};
enum { CONFIGURABLE = sizeof configurable / sizeof *configurable };

void limit_values_init(struct limit_values *values)
{
	for (int i = 0; i < LIMIT_IDS; i++)
		values->values[i] = table[i].value;
}

static enum status set_one(struct limit_values *values, const char *setting, size_t length, struct error *error)
{
	struct nearest nearest;
	char number[24] = "", *end;
	const char *equals = memchr(setting, '=', length);
	size_t name = equals ? (size_t)(equals - setting) : length;
	const struct configurable *found = NULL;
	nearest_start(&nearest, setting, name);
	for (size_t i = 0; i < CONFIGURABLE; i++) {
		const char *known = table[configurable[i].id].name;
		nearest_offer(&nearest, known);
		if (strlen(known) == name && !memcmp(known, setting, name))
			found = &configurable[i];
	}
	if (!found) {
		error_set(error, STATUS_INVALID_PARAMS, "there is no limit %.*s that can be set",
			  name > 60 ? 60 : (int)name, setting);
		if (nearest.best)
			error_hint(error, "did you mean %s?", nearest.best);
		return STATUS_INVALID_PARAMS;
	}
	if (equals && length - name - 1 < sizeof number)
		snprintf(number, sizeof number, "%.*s", (int)(length - name - 1), equals + 1);
	long long value = strtoll(number, &end, 10);
	if (number[0] < '0' || number[0] > '9' || *end || value < found->least || value > found->most)
		return error_set(error, STATUS_INVALID_PARAMS, "%s is a number from %lld to %lld",
				 table[found->id].name, (long long)found->least, (long long)found->most);
	values->values[found->id] = value;
	return STATUS_OK;
}

enum status limit_values_set(struct limit_values *values, const char *settings, struct error *error)
{
	enum status status = STATUS_OK;
	for (const char *at = settings; at && !status;) {
		size_t length = strcspn(at, ",");
		status = set_one(values, at, length, error);
		at = at[length] ? at + length + 1 : NULL;
	}
	return status;
}

void limit_values_print(FILE *out)
{
	for (size_t i = 0; i < CONFIGURABLE; i++)
		fprintf(out, "  %-26s %10lld  %s\n", table[configurable[i].id].name,
			(long long)table[configurable[i].id].value, configurable[i].reason);
}

// ---- addresses ----

struct address {
	struct address *next; // in its slot, or among the free ones
	struct net_address place;
	unsigned open, failures;
	int64_t failed_ms; // when the last one did
};

struct limits {
	struct limit_values values;
	uint64_t seed;
	struct address *slots[SLOTS], *free;
	struct address *all;    // (LIMIT_ADDRESSES)
	size_t hand;            // where the next one to give up is looked for
	struct places *waiting; // to log in
};

enum status limits_create(struct limits **out, const struct limit_values *values, struct error *error)
{
	struct limits *limits = calloc(1, sizeof *limits);
	*out = NULL;
	if (limits)
		limits->all = calloc(LIMIT_ADDRESSES, sizeof *limits->all);
	if (!limits || !limits->all) {
		limits_destroy(&limits);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the table of addresses");
	}
	limits->values = *values;
	const int64_t waiting = limits_get(limits, LIMIT_CONNECTIONS_NOT_LOGGED_IN_ID),
		      of_address = limits_get(limits, LIMIT_NOT_LOGGED_IN_OF_ADDRESS_ID);
	enum status status = places_create(&limits->waiting, (unsigned)waiting, (unsigned)of_address, error);
	if (status) {
		limits_destroy(&limits);
		return status;
	}
	if (RAND_bytes((unsigned char *)&limits->seed, sizeof limits->seed) != 1) {
		limits_destroy(&limits);
		return error_set(error, STATUS_UNAVAILABLE, "the system gives no random bytes");
	}
	for (size_t i = LIMIT_ADDRESSES; i-- > 0;) {
		limits->all[i].next = limits->free;
		limits->free = &limits->all[i];
	}
	*out = limits;
	return STATUS_OK;
}

void limits_destroy(struct limits **pointer)
{
	struct limits *limits = *pointer;
	*pointer = NULL;
	if (!limits)
		return;
	places_destroy(&limits->waiting);
	free(limits->all);
	free(limits);
}

int64_t limits_get(const struct limits *limits, enum limit_id limit)
{
	return limits->values.values[limit];
}

struct json *limits_json(const struct limits *limits)
{
	struct json *json = json_new_object();
	for (int i = 0; i < LIMIT_IDS; i++)
		json_set_integer(json, table[i].name, limits->values.values[i]);
	return json;
}

void limits_address(const char *peer, char text[LIMITS_ADDRESS_BYTES])
{
	struct net_address place;
	if (net_address_read(&place, peer))
		net_address_print(&place, text);
	else
		snprintf(text, LIMITS_ADDRESS_BYTES, "%s", peer);
}

static struct address **slot_of(struct limits *limits, const struct net_address *place)
{
	uint64_t hash = (place->bits ^ limits->seed) * 0x9E3779B97F4A7C15u;
	hash ^= hash >> 29;
	hash *= limits->seed | 1;
	return &limits->slots[(hash >> 40) % SLOTS];
}

static void forget(struct limits *limits, struct address *address)
{
	struct address **at = slot_of(limits, &address->place);
	while (*at != address)
		at = &(*at)->next;
	*at = address->next;
	address->next = limits->free;
	limits->free = address;
}

// Make room: of those without connections among the next ones, the one whose failure is the longest ago.
static void give_up_one(struct limits *limits)
{
	struct address *best = NULL;
	for (size_t i = 0; i < LIMIT_ADDRESSES && (i < LOOK || !best); i++) {
		struct address *one = &limits->all[limits->hand++ % LIMIT_ADDRESSES];
		if (!one->open && (!best || one->failed_ms < best->failed_ms))
			best = one;
	}
	if (best)
		forget(limits, best);
}

// NULL: it is no address, or all places are taken by ones with connections.
static struct address *find(struct limits *limits, const char *peer)
{
	struct net_address place;
	if (!net_address_read(&place, peer))
		return NULL;
	struct address **slot = slot_of(limits, &place), *address = *slot;
	while (address && (!net_address_same(&address->place, &place)))
		address = address->next;
	if (address)
		return address;
	if (!limits->free)
		give_up_one(limits);
	address = limits->free;
	if (!address)
		return NULL;
	limits->free = address->next;
	*address = (struct address){.next = *slot, .place = place};
	*slot = address;
	return address;
}

bool limits_connect(struct limits *limits, const char *peer)
{
	struct address *address = find(limits, peer);
	if (!address)
		return true;
	if (address->open >= limits_get(limits, LIMIT_CONNECTIONS_OF_ADDRESS_ID))
		return false;
	address->open++;
	return true;
}

void limits_disconnect(struct limits *limits, const char *peer)
{
	struct address *address = find(limits, peer);
	if (address && address->open)
		address->open--;
}

static struct limits_waiter *waiter_of(struct place *place)
{
	return (struct limits_waiter *)((char *)place - offsetof(struct limits_waiter, place));
}

enum status limits_wait(struct limits *limits, struct limits_waiter *waiter, const char *peer, struct error *error)
{
	struct net_address address;
	struct place *evicted;
	if (!net_address_read(&address, peer))
		return STATUS_OK;
	if (!places_take(limits->waiting, &waiter->place, &address, &evicted)) {
		error_set(error, STATUS_RATE_LIMITED, "%u connections of this address have not logged in yet",
			  places_taken_of(limits->waiting, &address));
		error_hint(error, "try again in a few seconds, or send Authorization: Bearer TOKEN on the upgrade");
		return STATUS_RATE_LIMITED;
	}
	if (evicted)
		waiter_of(evicted)->evicted(waiter_of(evicted));
	return STATUS_OK;
}

void limits_wait_over(struct limits *limits, struct limits_waiter *waiter)
{
	places_leave(limits->waiting, &waiter->place);
}

void limits_wait_held(struct limits_waiter *waiter, bool held)
{
	places_hold(&waiter->place, held);
}

int64_t limits_login_failed(struct limits *limits, const char *peer)
{
	struct address *address = find(limits, peer);
	const int64_t now_ms = clock_steady_ms(), most = limits_get(limits, LIMIT_LOGIN_DELAY_MS_ID);
	if (!address)
		return 0;
	if (now_ms - address->failed_ms > LIMIT_LOGIN_FORGET_MS)
		address->failures = 0;
	address->failures++;
	address->failed_ms = now_ms;
	int64_t late = (int64_t)address->failures - limits_get(limits, LIMIT_LOGIN_FAILURES_ID);
	if (late <= 0)
		return 0;
	int64_t delay = (int64_t)DELAY_MS << (late > DOUBLINGS ? DOUBLINGS : late - 1);
	return delay < most ? delay : most;
}
