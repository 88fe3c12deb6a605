/* The Model Context Protocol without its transport: what the tools are, and what is answered. mcp.c speaks it over
 * standard input and output, mcp_http.c over HTTP. Pure but for mcp_listen. Thread: any. */
#pragma once
#include "common/json/json.h"
#include "server/cli/target.h"

#include <stdint.h>

struct mcp;

// Errors: STATUS_OUT_OF_MEMORY; then too *out is to be destroyed.
enum status mcp_create(struct mcp **out, struct error *error);
void mcp_destroy(struct mcp **mcp);
// The method of the contract that a tools/call with these params is for. Errors: STATUS_INVALID_PARAMS (no such tool).
enum status mcp_find(const struct mcp *mcp, const struct json *params, const char **method, struct error *error);
// How long a call may take: what names its time on the server (timeout_ms) may take so much longer.
int64_t mcp_patience_ms(const struct json *arguments);
// What a call of a tool answers: the result as text and as it is, or why there is none.
struct json *mcp_called(const struct json *result, const struct error *error);
// Every request but tools/call. Errors: STATUS_METHOD_NOT_FOUND.
enum status mcp_answer(const struct mcp *mcp, const char *method, const struct json *params, struct json **result,
		       struct error *error);
// The message that answers: with `result` (taken), or where it is NULL with the error.
struct json *mcp_message(const struct json *id, struct json *result, const struct error *error);

// Where to listen.
struct mcp_place {
	char address[64];
	int port;
};
// Read ADDRESS:PORT, [ADDRESS]:PORT or PORT. Errors: STATUS_INVALID_PARAMS (not that, or no loopback address).
enum status mcp_place_read(struct mcp_place *place, const char *text, struct error *error);
// Listen until the process ends. Errors: those of net_listener_create.
enum status mcp_listen(const struct mcp *mcp, const struct target *target, const struct mcp_place *place,
		       struct error *error);
