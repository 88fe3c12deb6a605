/* Limits that the operator may set, and the addresses of connections.
 * common/base/limits.h has every limit; those in LIMIT_CONFIGURABLE_LIST can be set with
 * `serve --limit name=value`. An address is an IPv4 address or an IPv6 /64. A failed
 * login delays the answers to that address's next failed ones. It never bans, and a valid
 * token never waits, because a shared address must not lock others out. Thread: the
 * loop's. */
#pragma once
#include "common/base/limits.h"
#include "common/json/json.h"
#include "common/net/http/places.h"

#include <stdio.h>

// The names of limits in C: LIMIT_TOKENS_ID is that of LIMIT_TOKENS.
enum limit_id {
#define X(name, word, value) name##_ID,
	LIMIT_LIST(X)
#undef X
		LIMIT_IDS
};

// The current values: the table's, or the operator's.
struct limit_values {
	int64_t values[LIMIT_IDS];
};
void limit_values_init(struct limit_values *values);
// "name=value", or several with a comma between. Errors: STATUS_INVALID_PARAMS: unknown, with the nearest name; out of
// its range, with the range.
enum status limit_values_set(struct limit_values *values, const char *settings, struct error *error);
void limit_values_print(FILE *out); // for `serve --help`: those that can be set, with default, range and reason

struct limits;

enum status limits_create(struct limits **out, const struct limit_values *values, struct error *error);
void limits_destroy(struct limits **limits);
int64_t limits_get(const struct limits *limits, enum limit_id limit);
struct json *limits_json(const struct limits *limits); // {name: value} of all, for server.info

// One more connection from this address (numeric; anything else is not counted), and one that is gone. False: it has
// its connections_of_address.
bool limits_connect(struct limits *limits, const char *peer);
void limits_disconnect(struct limits *limits, const char *peer);
// One of them speaks WebSocket and has not logged in; and one that did, or is gone. When the places of all of these
// (connections_not_logged_in) or of its address (not_logged_in_of_address) are taken, one that has had its for longest
// loses it (common/net/http/places.h): its `evicted` is called, and closes it. Embedded in its owner; zero before first
// use.
struct limits_waiter {
	struct place place;
	void (*evicted)(struct limits_waiter *waiter);
};
// Errors: STATUS_RATE_LIMITED, with a hint: those who have places are held.
enum status limits_wait(struct limits *limits, struct limits_waiter *waiter, const char *peer, struct error *error);
void limits_wait_over(struct limits *limits, struct limits_waiter *waiter);
void limits_wait_held(struct limits_waiter *waiter, bool held); // it is not evicted
// A log-in from this address failed. Returns how long its answer must wait, in ms: 0 until several have.
int64_t limits_login_failed(struct limits *limits, const char *peer);
// The address as it is counted: "192.0.2.7", "2001:db8:1:2::/64"; what is none as it is.
enum { LIMITS_ADDRESS_BYTES = 64 };
void limits_address(const char *peer, char text[LIMITS_ADDRESS_BYTES]);
