/* The command line of `exogpu node`. */
#pragma once
#include "common/base/log.h"
#include "engine/device/info.h"

struct node_options {
	char socket_path[4096]; // of a server on this machine
	bool local;             // --join named that socket: the server that started this node
	char host[256];         // of a server on another machine; "" if --join did not say
	int port;
	bool find;          // --join auto: a server that announces itself, also where this machine has one
	bool silent;        // --no-announce
	const char *ticket; // NULL: none
	bool accept_code;
	char directory[4096]; // the data directory, which may be a server's
	char data[4096];      // the node's own folder in it
	char name[65];
	bool enabled[BACKEND_COUNT];
	int spares;       // as in engine/node/workers/spares.h
	int64_t for_ms;   // after which it ends; 0: it is not known
	int64_t drain_ms; // how long it drains before that, and when it is told to stop; 0: not at all
	enum log_level log_level;
	int parent; // --parent; 0: none was said
	bool help;  // the usage was asked for, and printed
};

enum { NODE_DRAIN_MS = 60000 }; // where --drain says nothing

// HOST:PORT, [ADDRESS]:PORT or a URL; without a port that of `exogpu serve`. Errors: STATUS_INVALID_PARAMS with a hint.
enum { NODE_DEFAULT_PORT = 52415 };
enum status node_address_parse(const char *text, char host[256], int *port, struct error *error);

// Errors: STATUS_INVALID_PARAMS with a hint.
enum status node_options_parse(struct node_options *options, int argc, char **argv, struct error *error);
