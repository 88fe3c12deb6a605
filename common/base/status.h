/* The result type of the whole program, and the error text for a person. Every function that can
 * fail returns enum status; STATUS_OK is 0. One list gives each code, its stable word on the
 * wire (`reason`), its default text, and its HTTP and JSON-RPC codes. Where an error is
 * detected, a struct error is filled once: what went wrong and what to do about it. Callers
 * further out pass it on and do not overwrite it. Thread: any; a struct error belongs to its
 * caller. */
#pragma once
#include <stdarg.h>
#include <stdbool.h>

// clang-format off
//        enum suffix      word on the wire    text                                    HTTP   JSON-RPC
#define STATUS_LIST(X)                                                                              \
	X(OK,               "ok",               "done",                                  200,   0)      \
	X(PENDING,          "pending",          "under way; the answer comes later",     202,   0)      \
	X(PARSE_ERROR,      "parse_error",      "not a JSON-RPC message",                400,   -32700) \
	X(INVALID_REQUEST,  "invalid_request",  "not a valid request",                   400,   -32600) \
	X(METHOD_NOT_FOUND, "method_not_found", "no such method",                        404,   -32601) \
	X(INVALID_PARAMS,   "invalid_params",   "parameters do not fit the contract",    400,   -32602) \
	X(INTERNAL,         "internal",         "a fault of the program's own",          500,   -32603) \
	X(UNAUTHENTICATED,  "unauthenticated",  "not logged in",                         401,   -32001) \
	X(FORBIDDEN,        "forbidden",        "a scope is missing",                    403,   -32003) \
	X(NOT_FOUND,        "not_found",        "no such thing",                         404,   -32004) \
	X(OUT_OF_MEMORY,    "out_of_memory",    "not enough memory",                     507,   -32005) \
	X(LIMIT_EXCEEDED,   "limit_exceeded",   "over a limit",                          413,   -32006) \
	X(TIMEOUT,          "timeout",          "not done in time",                      504,   -32008) \
	X(CONFLICT,         "conflict",         "not possible in this state",            409,   -32009) \
	X(DEVICE_LOST,      "device_lost",      "the device is lost",                    410,   -32010) \
	X(RATE_LIMITED,     "rate_limited",     "too many calls",                        429,   -32029) \
	X(UNAVAILABLE,      "unavailable",      "not possible now",                      503,   -32053)

enum status {
#define X(name, word, text, http, rpc) STATUS_##name,
	STATUS_LIST(X)
#undef X
	STATUS_COUNT
};
// clang-format on

// The stable word, the text, the HTTP status and the JSON-RPC code of a status. Never NULL.
__attribute__((visibility("default"))) const char *status_word(enum status status); // libexogpu's users have these two
__attribute__((visibility("default"))) const char *status_text(enum status status);
int status_http(enum status status);
int status_rpc_code(enum status status);
// The status of a JSON-RPC error code; STATUS_INTERNAL for one that is not in the list.
enum status status_from_rpc_code(int code);

// An error: what went wrong and what to do about it. message[0] is 0 while nothing went wrong.
struct error {
	enum status status;
	char message[384];
	char hint[256]; // empty if there is nothing to advise
};

// Fill *error (may be NULL) unless it is filled already; returns `status`, so that a caller can `return` it.
enum status error_set(struct error *error, enum status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
// Say what to do about it. Only the first hint stays.
void error_hint(struct error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));
// Like error_set, with the text of errno value `number` at the end.
enum status error_errno(struct error *error, enum status status, int number, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
