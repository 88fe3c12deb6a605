/* Writes the registry on a thread of its own, because fsync blocks. The latest text wins; a text that waits at the end
 * is still written. Thread: the loop's. */
#pragma once
#include "common/base/buffer.h"

struct saver;

// Errors: STATUS_OUT_OF_MEMORY, STATUS_UNAVAILABLE (no thread).
enum status saver_create(struct saver **out, const char *path, struct error *error);
void saver_destroy(struct saver **saver); // writes what waits, then joins
// `text` is taken and left empty.
void saver_put(struct saver *saver, struct buffer *text);
