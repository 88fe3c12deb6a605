/* Which server a client command asks, and with what right.
 *
 * An address that was named with --url is the one; it and --data exclude each other. Else it is the server that holds
 * the data directory, by its Unix socket, where the owner of the directory needs no token; else, unless the directory
 * was named with --data, the one in EXOGPU_URL. An address needs the token in EXOGPU_TOKEN, and with https:// somebody
 * to vouch for it (trust.h). Thread: any, while nobody changes the environment. */
#pragma once
#include "common/base/limits.h"
#include "server/cli/trust.h"

struct target {
	char socket_path[LIMIT_SOCKET_PATH_BYTES + 1]; // "": host and port
	char host[256];                                // a name or a numeric address, without brackets
	int port;
	bool tls;
	struct trust trust; // of an address with tls
	char token[136];    // without the white space around it; "" by the socket
	char name[300];     // for messages
	bool guest;      // in a program of somebody else's: SIGPIPE stays as that has it, and is blocked by who calls
	int patience_ms; // of an HTTP request, to connect and for the TLS handshake; 0: CLIENT_TIMEOUT_MS
};

// The options of the command line; NULL: not given.
struct target_wanted {
	const char *data, *url, *ca;
	bool anonymous; // no token is needed
};
// Errors, with hints: STATUS_INVALID_PARAMS (a bad address, token or authority, both --data and --url),
// STATUS_UNAUTHENTICATED (no token), STATUS_UNAVAILABLE (no server there), STATUS_FORBIDDEN (not your server).
enum status target_find(struct target *target, const struct target_wanted *wanted, struct error *error);
// Read [http://|ws://|https://|wss://]HOST[:PORT][/] into host, port, tls and name. `origin` ("--url", "EXOGPU_URL") is
// for the message. Errors: STATUS_INVALID_PARAMS.
enum status target_parse_url(struct target *target, const char *url, const char *origin, struct error *error);
// Why nothing could be opened at this target: tries a plain connection, 2 s at most, and fills *error with what came of
// it and what to do. `fault`: what the attempt said, as struct net_handler's `failed` has it.
void target_explain(const struct target *target, const char *fault, struct error *error);
