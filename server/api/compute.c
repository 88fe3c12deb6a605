/* compute.*: modules and launches. Thread: the loop's. */
#include "server/api/call.h"

const struct api_handler compute_handlers[] = {
	{"compute.load", .owned = tenant_load, .entry = true},
	{"compute.launch", .owned = tenant_launch},
	{"compute.run", .owned = tenant_run},
	{"compute.unload", .owned = tenant_unload, .entry = true},
	{0},
};
