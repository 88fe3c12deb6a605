/* The node's record (NodeRecord of schema/node.json): the machine that it runs on. What the system does not tell is
 * null. Thread: the loop's; reads small files. */
#pragma once
#include "common/json/json.h"

struct record_params {
	const char *node_id;
	const char *name;                  // "" or NULL: the host's name
	struct json *backends, *libraries; // taken
	int link_port;                     // where it takes direct links; 0: nowhere
};

struct json *record_build(const struct record_params *params);
