/* See limits.h. Addresses stand in a table of fixed size, by a hash that nobody outside can foresee. One without
 * connections is kept for what it did until its place is needed. */
#include "server/security/limits.h"

#include "common/base/clock.h"
#include "common/base/nearest.h"

#include <arpa/inet.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	SLOTS = 4096,    // of the hash
	LOOK = 64,       // places that are looked at for one to give up
	DELAY_MS = 250,  // of the first answer that waits; each one waits twice as long as the one before
	DOUBLINGS = 16,  // more than any limit lets happen
	PREFIX_BYTES = 8 // of an IPv6 address: what one customer is given, or more
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

struct place {
	uint64_t bits;
	bool ipv6;
};

struct address {
	struct address *next; // in its slot, or among the free ones
	struct place place;
	unsigned open, not_logged_in, failures;
	int64_t failed_ms; // when the last one did
};

struct limits {
	struct limit_values values;
	uint64_t seed;
	struct address *slots[SLOTS], *free;
	struct address *all; // (LIMIT_ADDRESSES)
	size_t hand;         // where the next one to give up is looked for
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
	if (limits)
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

// False: it is no address, and not counted.
static bool parse(const char *peer, struct place *place)
{
	uint8_t bytes[16];
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
	size_t length = 4, at = 0;
	*place = (struct place){0};
	if (inet_pton(AF_INET, peer, bytes) != 1) {
		char text[INET6_ADDRSTRLEN];
		snprintf(text, sizeof text, "%.*s", (int)strcspn(peer, "%"), peer); // without its interface
		if (inet_pton(AF_INET6, text, bytes) != 1)
			return false;
		if (!memcmp(bytes, mapped, sizeof mapped)) { // an IPv4 address on a socket for both
			at = sizeof mapped;
		} else {
			place->ipv6 = true;
			length = PREFIX_BYTES;
		}
	}
	for (size_t i = 0; i < length; i++)
		place->bits = place->bits << 8 | bytes[at + i];
	return true;
}

void limits_address(const char *peer, char text[LIMITS_ADDRESS_BYTES])
{
	struct place place;
	uint8_t bytes[16] = {0};
	char printed[INET6_ADDRSTRLEN];
	if (!parse(peer, &place)) {
		snprintf(text, LIMITS_ADDRESS_BYTES, "%s", peer);
		return;
	}
	size_t length = place.ipv6 ? PREFIX_BYTES : 4;
	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(place.bits >> 8 * (length - 1 - i));
	if (!inet_ntop(place.ipv6 ? AF_INET6 : AF_INET, bytes, printed, sizeof printed))
		printed[0] = 0;
	snprintf(text, LIMITS_ADDRESS_BYTES, place.ipv6 ? "%s/64" : "%s", printed);
}

static struct address **slot_of(struct limits *limits, const struct place *place)
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
		if (!one->open && !one->not_logged_in && (!best || one->failed_ms < best->failed_ms))
			best = one;
	}
	if (best)
		forget(limits, best);
}

// NULL: it is no address, or all places are taken by ones with connections.
static struct address *find(struct limits *limits, const char *peer)
{
	struct place place;
	if (!parse(peer, &place))
		return NULL;
	struct address **slot = slot_of(limits, &place), *address = *slot;
	while (address && (address->place.bits != place.bits || address->place.ipv6 != place.ipv6))
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

enum status limits_wait(struct limits *limits, const char *peer, struct error *error)
{
	struct address *address = find(limits, peer);
	if (!address)
		return STATUS_OK;
	if (address->not_logged_in >= limits_get(limits, LIMIT_NOT_LOGGED_IN_OF_ADDRESS_ID)) {
		error_set(error, STATUS_RATE_LIMITED, "%u connections of this address have not logged in yet",
			  address->not_logged_in);
		error_hint(error, "try again in a few seconds, or send Authorization: Bearer TOKEN on the upgrade");
		return STATUS_RATE_LIMITED;
	}
	address->not_logged_in++;
	return STATUS_OK;
}

void limits_wait_over(struct limits *limits, const char *peer)
{
	struct address *address = find(limits, peer);
	if (address && address->not_logged_in)
		address->not_logged_in--;
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
