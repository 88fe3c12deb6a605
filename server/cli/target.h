/* Which server a client command asks, and with what right.
 *
 * An address that was named with --url is the one; it and --data exclude each other. Else it is the server that holds
 * the data directory, by its Unix socket, where the owner of the directory needs no token; else, unless the directory
 * was named with --data, the one in EXOGPU_URL. An address needs the token in
 * EXOGPU_TOKEN. Thread: any, while nobody changes the environment. */
#pragma once
#include "common/base/limits.h"
#include "common/base/status.h"

struct target {
	char socket_path[LIMIT_SOCKET_PATH_BYTES + 1]; // "": host and port
	char host[256];                                // a name or a numeric address, without brackets
	int port;
	char token[136]; // without the white space around it; "" by the socket
	char name[300];  // for messages
};

// `data` and `url` are what --data and --url said, or NULL. Errors, with hints: STATUS_INVALID_PARAMS (a bad address
// or token, both --data and --url),
// STATUS_UNAUTHENTICATED (no token), STATUS_UNAVAILABLE (no server there), STATUS_FORBIDDEN (not your server).
enum status target_find(struct target *target, const char *data, const char *url, struct error *error);
// Read [http://|ws://]HOST[:PORT][/] into host, port and name. `origin` ("--url", "EXOGPU_URL") is for the message.
// Errors: STATUS_INVALID_PARAMS.
enum status target_parse_url(struct target *target, const char *url, const char *origin, struct error *error);
// Why nothing could be opened at this target: tries a plain connection, 2 s at most, and fills *error with what came of
// it and what to do.
void target_explain(const struct target *target, struct error *error);
