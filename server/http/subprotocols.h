/* The subprotocols of WebSockets that a server speaks. */
#pragma once
#include <stddef.h>

#define CLIENT_SUBPROTOCOL "exogpu.v1"
#define NODE_SUBPROTOCOL "exogpu.node.v1"
#define WORKER_SUBPROTOCOL "exogpu.worker.v1"
#define MODEL_SUBPROTOCOL "exogpu.model.v1"
#define TAB_SUBPROTOCOL "exogpu.tab.v1"

static const char *const http_subprotocols[] = {CLIENT_SUBPROTOCOL, NODE_SUBPROTOCOL, WORKER_SUBPROTOCOL,
						MODEL_SUBPROTOCOL,  TAB_SUBPROTOCOL,  NULL};
