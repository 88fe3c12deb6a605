/* What a node remembers in DATA/node/registry.json: its identity and the devices that it has seen.
 * Devices are recognised by their hardware key, so ids, history and measurements survive restarts;
 * verification is repeated. The file is replaced as a whole (temporary file, fsync, rename, fsync of the
 * folder), so a crash leaves the old one or the new one. A file that does not parse is set aside,
 * neither deleted nor fatal. Thread: reading before the loop runs; writing blocks (fsync), so not on the
 * loop. */
#pragma once
#include "engine/device/table.h"

// Read PATH into a new table; without a file the node gets a new id and an empty table.
// Errors: STATUS_UNAVAILABLE (cannot be read), STATUS_OUT_OF_MEMORY.
enum status registry_load(struct device_table **out, const char *path, struct error *error);
// The registry as text.
enum status registry_print(const struct device_table *table, struct buffer *out);
// Write the text. Errors: STATUS_UNAVAILABLE with what failed and a hint.
enum status registry_write(const char *path, const void *bytes, size_t length, struct error *error);
