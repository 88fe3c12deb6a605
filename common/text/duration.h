/* A span of time as people write it. Pure; thread: any. */
#pragma once
#include "common/base/status.h"

#include <stdint.h>

// "90s", "90m", "24h", "30d", "2w" as seconds, at least 1 and at most 10 years. Errors: STATUS_INVALID_PARAMS.
enum status parse_duration(const char *text, int64_t *seconds, struct error *error);
