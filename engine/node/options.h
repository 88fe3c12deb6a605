/* The command line of `exogpu node`. */
#pragma once
#include "common/base/log.h"
#include "engine/device/info.h"

struct node_options {
	char socket_path[4096]; // of the server
	char data[4096];        // the node's own folder in the data directory
	char name[65];
	bool enabled[BACKEND_COUNT];
	enum log_level log_level;
	bool help; // the usage was asked for, and printed
};

// Errors: STATUS_INVALID_PARAMS with a hint.
enum status node_options_parse(struct node_options *options, int argc, char **argv, struct error *error);
