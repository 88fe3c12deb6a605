/* Facts of the operating system about this process and its children. Thread: any. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>

// Resident memory in pages; 0 if the system does not tell.
size_t process_resident_pages(void);
// The path of the running binary into path[size]. Errors: STATUS_UNAVAILABLE.
enum status process_binary(char *path, size_t size, struct error *error);
// No core of this process and those that it starts is written to a file or handed to a program: it could hold a token
// or a tenant's bytes. Errors: STATUS_UNAVAILABLE.
enum status process_leave_no_core(struct error *error);
// The same, and in release builds no other process of its user may look into this one. Errors: STATUS_UNAVAILABLE.
enum status process_keep_secrets(struct error *error);
