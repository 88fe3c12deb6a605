/* Requests of MCP over HTTP that are admitted, before their token is looked at. Only loopback addresses are listened
 * at, since tokens come in the clear. Against pages of other sites: Host has to be an address or name of loopback, and
 * Origin, where there is one, the same place. Pure. Thread: any. */
#pragma once
#include "common/net/ws/ws.h"

// Errors: STATUS_NOT_FOUND, STATUS_FORBIDDEN, STATUS_INVALID_REQUEST (a revision that is not spoken).
enum status mcp_admit(const struct net_request *asked, struct error *error);
