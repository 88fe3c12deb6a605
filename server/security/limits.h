/* Limits that the operator may set, and the addresses that connections come from.
 *
 * common/base/limits.h has every bound; those in LIMIT_CONFIGURABLE_LIST can be set with `serve --limit name=value`. An
 * address is an IPv4 address or an IPv6 /64. A failed log-in makes that address wait longer for the answer to its next
 * ones (delay, never a ban: a shared address must not lock its others out). Thread: the loop's. */
#pragma once
#include "common/base/limits.h"
#include "common/json/json.h"
#include "common/net/loop.h"

struct limits;

enum status limits_create(struct limits **out, struct net_loop *loop, struct error *error);
void limits_destroy(struct limits **limits);
// "name=value". Errors: STATUS_INVALID_PARAMS: unknown, with the nearest name; out of its range, with the range.
enum status limits_set(struct limits *limits, const char *setting, struct error *error);
int64_t limits_get(const struct limits *limits, int limit); // LIMIT_… of LIMIT_LIST
// {name: value} of all, for server.info.
struct json *limits_json(const struct limits *limits);
void limits_print(const struct limits *limits); // for `serve --help`: name, value, reason

// One more connection from this address (numeric; "" for the Unix socket, which is not counted).
// Errors: STATUS_RATE_LIMITED (connections_of_address, or not_logged_in ones), with a hint.
enum status limits_connect(struct limits *limits, const char *peer, bool logged_in, struct error *error);
void limits_logged_in(struct limits *limits, const char *peer); // it is no longer one that has not
void limits_disconnect(struct limits *limits, const char *peer, bool logged_in);
// How long the answer to a log-in from this address must wait now, in ms: 0 until several failed.
int64_t limits_login_delay(struct limits *limits, const char *peer);
void limits_login_failed(struct limits *limits, const char *peer);
