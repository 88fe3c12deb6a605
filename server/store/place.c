/* See place.h. */
#include "server/store/place.h"

#include "common/files/private_file.h"
#include "server/store/db.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4224 };

static void path_of(const char *directory, char path[PATH_BYTES])
{
	snprintf(path, PATH_BYTES, "%.4160s/store", directory);
}

enum status place_read(const char *directory, char url[PLACE_BYTES], struct error *error)
{
	char path[PATH_BYTES];
	struct buffer bytes;
	path_of(directory, path);
	url[0] = 0;
	if (access(path, F_OK) && (errno == ENOENT || errno == ENOTDIR))
		return STATUS_OK;
	buffer_init(&bytes, PLACE_BYTES - 1);
	enum status status = private_file_read(path, &bytes, error);
	if (!status) {
		const size_t length = strcspn(buffer_text(&bytes), "\n");
		snprintf(url, PLACE_BYTES, "%.*s", (int)length, buffer_text(&bytes));
		if (!db_is_url(url)) {
			status = error_set(error, STATUS_INVALID_PARAMS, "%s holds no URL of a database", path);
			error_hint(error, "start the server once with --store and the right one");
		}
	}
	buffer_finish(&bytes);
	return status;
}

enum status place_write(const char *directory, const char *url, struct error *error)
{
	char path[PATH_BYTES], text[PLACE_BYTES + 1];
	path_of(directory, path);
	if (!url) {
		if (unlink(path) && errno != ENOENT)
			return error_errno(error, STATUS_UNAVAILABLE, errno, "cannot remove %s", path);
		return STATUS_OK;
	}
	const int length = snprintf(text, sizeof text, "%s\n", url);
	const struct private_file file = {
		.path = path, .bytes = (const uint8_t *)text, .length = (size_t)length, .sync = true};
	return private_file_write(&file, error);
}
