/* Several servers that take turns, as nodes and clients are told of them. Thread: any. */
#pragma once
#include "common/json/json.h"
#include "server/store/turn.h"

struct json *servers_json(const struct turn *turn); // an array of addresses, as in https://HOST:PORT/
