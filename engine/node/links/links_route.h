/* The interface of a route: its name, its class (LinkClass of schema/api.json), its nominal rate. Read from the system
 * at each call. Thread: any. */
#pragma once

enum { LINK_INTERFACE_BYTES = 16, LINK_CLASS_BYTES = 16 };

struct link_route {
	char interface[LINK_INTERFACE_BYTES]; // "": not found
	const char *class;                    // static; "unknown" if it cannot be told
	double bits_per_s;                    // < 0: the system does not say
};

// The interface that has this address of our own. root: "" or, for tests, where sys/class/net is.
void link_route_read(struct link_route *route, const char *local_address, const char *root);
