/* The callbacks of a node's connection to its server (struct uplink_params) for a test without a node: no record, no
 * devices, no notifications. Thread: the loop's. */
#pragma once
#include "common/base/status.h"
#include "common/json/json.h"

static inline struct json *no_record(void *arg)
{
	(void)arg;
	return json_new_object();
}

static inline bool all_found(void *arg)
{
	(void)arg;
	return true;
}

static inline struct json *no_devices(void *arg)
{
	(void)arg;
	return json_new_array();
}

static inline void not_told(void *arg, bool is)
{
	(void)arg, (void)is;
}

static inline void not_gone(void *arg, enum status status, const char *why)
{
	(void)arg, (void)status, (void)why;
}
