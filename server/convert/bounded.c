/* See bounded.h. */
#include "server/convert/bounded.h"

#include "common/base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 4097 };

// Never less than there are: each value has a comma, a colon or a bracket before it, or is the whole.
static bool has_more_values(const char *text, size_t length, size_t most)
{
	size_t values = 1;
	bool quoted = false;
	for (size_t i = 0; i < length; i++) {
		if (quoted && text[i] == '\\')
			i++;
		else if (text[i] == '"')
			quoted = !quoted;
		else if (!quoted)
			values += text[i] == ',' || text[i] == '[' || text[i] == '{';
	}
	return values > most;
}

enum status bounded_parse(struct json **out, const char *text, size_t length, size_t values, struct error *error)
{
	struct error why = {0};
	*out = NULL;
	if (has_more_values(text, length, values))
		return error_set(error, STATUS_LIMIT_EXCEEDED, "JSON of more than %zu values", values);
	enum status status = json_parse(out, text, length, &why);
	if (status == STATUS_PARSE_ERROR)
		return error_set(error, STATUS_INVALID_PARAMS, "it is not JSON: %.200s", why.message);
	return status ? error_set(error, status, "%s", why.message) : STATUS_OK;
}

enum status bounded_read(int fd, uint8_t *bytes, size_t length, uint64_t at, struct error *error)
{
	while (length) {
		const ssize_t got = pread(fd, bytes, length, (off_t)at);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return error_errno(error, STATUS_UNAVAILABLE, errno, "a file of the model cannot be read");
		if (!got)
			return error_set(error, STATUS_UNAVAILABLE, "a file of the model has become shorter");
		bytes += got;
		length -= (size_t)got;
		at += (uint64_t)got;
	}
	return STATUS_OK;
}

enum status bounded_open(const char *directory, const char *name, int *fd, uint64_t *bytes, struct error *error)
{
	char path[PATH_BYTES];
	struct stat found;
	const int length = snprintf(path, sizeof path, "%s/%s", directory, name);
	*fd = -1;
	if (length < 0 || (size_t)length >= sizeof path)
		return error_set(error, STATUS_INVALID_PARAMS, "the path of %.100s is too long", name);
	// Without waiting: it may be a pipe.
	*fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (*fd < 0 && errno == ENOENT)
		return STATUS_NOT_FOUND;
	if (*fd < 0 || fstat(*fd, &found)) {
		error_errno(error, STATUS_UNAVAILABLE, errno, "%.300s cannot be read", path);
		error_hint(error, "the server's user must be able to read all files of the directory");
	} else if (!S_ISREG(found.st_mode)) {
		error_set(error, STATUS_INVALID_PARAMS, "%.300s is not a file", path);
	} else {
		*bytes = (uint64_t)found.st_size;
		return STATUS_OK;
	}
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	return error ? error->status : STATUS_UNAVAILABLE;
}

enum status bounded_text(const char *directory, const char *name, struct buffer *out, struct error *error)
{
	int fd;
	uint64_t bytes = 0;
	enum status status = bounded_open(directory, name, &fd, &bytes, error);
	if (status)
		return status == STATUS_NOT_FOUND ? STATUS_OK : status;
	if (bytes > out->maximum)
		status = error_set(error, STATUS_LIMIT_EXCEEDED, "%s has %llu bytes; the most is %zu", name,
				   (unsigned long long)bytes, out->maximum);
	else if (buffer_reserve(out, (size_t)bytes))
		status = error_set(error, STATUS_OUT_OF_MEMORY, "no memory to read %s", name);
	uint8_t piece[65536];
	for (uint64_t at = 0; at < bytes && !status;) {
		const size_t step = bytes - at < sizeof piece ? (size_t)(bytes - at) : sizeof piece;
		status = bounded_read(fd, piece, step, at, error);
		if (!status)
			status = buffer_append(out, piece, step);
		at += step;
	}
	close(fd);
	return status;
}

enum status bounded_json(const char *directory, const char *name, size_t most, size_t values, struct json **out,
			 struct error *error)
{
	struct buffer text;
	struct error why = {0};
	*out = NULL;
	buffer_init(&text, most);
	enum status status = bounded_text(directory, name, &text, &why);
	if (!status && text.length)
		status = bounded_parse(out, buffer_text(&text), text.length, values, &why);
	if (!status && text.length && json_type(*out) != JSON_OBJECT)
		status = error_set(&why, STATUS_INVALID_PARAMS, "it is not a JSON object");
	buffer_finish(&text);
	if (status) {
		json_destroy(out);
		error_set(error, status, "%s: %s", name, why.message[0] ? why.message : status_text(status));
		if (why.hint[0])
			error_hint(error, "%s", why.hint);
	}
	return status;
}
