/* The dashboard's files, from the binary. Names carry a hash of their content, so all but the page itself may be kept
 * by a browser for ever. There is no path handling: an address is one of the list or it is not. Thread: the loop's. */
#pragma once
#include "common/net/ws/ws.h"

struct assets;

// Errors: STATUS_INTERNAL (the list in the binary does not parse). A binary without a dashboard is no error.
enum status assets_create(struct assets **out, struct error *error);
void assets_destroy(struct assets **assets);
// False if there is no such file.
bool assets_serve(const struct assets *assets, const struct net_request *request, struct net_response *response);
