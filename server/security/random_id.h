/* Random names that nobody can guess and that were never used before. Thread: any. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>

// `prefix` and 16 random hexadecimal digits into out[size]; size >= strlen(prefix) + 17.
// Errors: STATUS_UNAVAILABLE (the system gives no random numbers).
enum status random_id(const char *prefix, char *out, size_t size);
