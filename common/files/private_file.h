/* Files with secrets: keys and tokens. Each file has mode 0600 from the start and is replaced as a whole: written to a
 * temporary file and renamed. A reader sees the old or the new file, never a part. Thread: any; these functions wait
 * for the disk. */
#pragma once
#include "common/base/buffer.h"

// Append the file's bytes, at most what the buffer takes. One that others could read is made private, with a warning
// in the log. Errors: STATUS_NOT_FOUND (there is none, without a message), STATUS_FORBIDDEN (another user's, not to be
// read, or not a plain file), STATUS_LIMIT_EXCEEDED, STATUS_UNAVAILABLE; with hints.
enum status private_file_read(const char *path, struct buffer *out, struct error *error);
// sync: it is on disk when this returns; without, a power cut may leave an empty file, and nobody waits.
// Errors: STATUS_INVALID_PARAMS (the path is too long), STATUS_UNAVAILABLE, with a hint.
struct private_file {
	const char *path;
	const void *bytes; // (length)
	size_t length;
	bool sync;
};
enum status private_file_write(const struct private_file *file, struct error *error);
