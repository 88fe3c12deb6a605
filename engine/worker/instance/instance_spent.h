/* What requests have spent, for the server: Spent of schema/node.json. Thread: the driver's. */
#pragma once
#include "engine/worker/instance/instance.h"

// `request`: only that one; NULL: all that have begun to compute.
struct json *instance_spent_json(const struct instance *instance, const struct request *request);
