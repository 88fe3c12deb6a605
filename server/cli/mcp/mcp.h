/* The Model Context Protocol without its transport: what the tools are, and what is answered. mcp.c speaks it over
 * standard input and output, http.c over HTTP. Pure but for mcp_listen. Thread: any. */
#pragma once
#include "common/json/json.h"
#include "server/cli/target.h"

#include <stdint.h>

struct mcp;

// Errors: STATUS_OUT_OF_MEMORY; then too *out is to be destroyed.
enum status mcp_create(struct mcp **out, struct error *error);
void mcp_destroy(struct mcp **mcp);
// The method of the contract by which a request is answered, and its params (may be NULL; inside `message`);
// *asked->method is NULL where mcp_answer knows the answer. Errors: STATUS_INVALID_PARAMS (no such tool).
struct mcp_asked {
	const char *method;
	const struct json *params;
};
enum status mcp_find(const struct mcp *mcp, const struct json *message, struct mcp_asked *asked, struct error *error);
// What that method's result (NULL: the error) is for the request: the message that answers it.
struct json *mcp_reply(const struct json *message, const struct json *result, const struct error *error);
// How long a call may take: what names its time on the server (timeout_ms) may take so much longer.
int64_t mcp_patience_ms(const struct json *arguments);
// Every other request. `streams`: what changes is told by a stream of events. Errors: STATUS_METHOD_NOT_FOUND.
enum status mcp_answer(const struct mcp *mcp, const struct json *message, bool streams, struct json **result,
		       struct error *error);
// Whether a revision of the protocol is spoken here.
bool mcp_speaks(const char *revision);
// The message that answers: with `result` (taken), or where it is NULL with the error.
struct json *mcp_message(const struct json *id, struct json *result, const struct error *error);

// The resources are the devices of a cluster.snapshot. What resources/list and resources/read answer; NULL: there is
// no such device.
struct json *mcp_resources(const struct json *snapshot);
struct json *mcp_resource(const struct json *snapshot, const char *uri);

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
