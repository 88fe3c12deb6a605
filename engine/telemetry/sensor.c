/* See sensor.h. Every call is a pread from offset 0, which makes sysfs and /proc write the file again. So a reading
 * costs one system call and no path walk. */
#include "engine/telemetry/sensor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LABEL_NUMBERS = 32 }; // hwmon numbers its sensors from 1; no driver comes near this

void sensor_init(struct sensor *sensor)
{
	*sensor = (struct sensor){.fd = -1};
}

void sensor_finish(struct sensor *sensor)
{
	if (sensor->fd >= 0)
		close(sensor->fd);
	sensor_init(sensor);
}

static int __attribute__((format(printf, 1, 0))) open_path(const char *format, va_list arguments)
{
	char path[SENSOR_PATH_BYTES];
	int length = vsnprintf(path, sizeof path, format, arguments);
	if (length < 0 || (size_t)length >= sizeof path)
		return -1;
	return open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
}

bool sensor_open(struct sensor *sensor, const char *format, ...)
{
	va_list arguments;
	sensor_finish(sensor);
	va_start(arguments, format);
	sensor->fd = open_path(format, arguments);
	va_end(arguments);
	return sensor->fd >= 0;
}

bool sensor_is_open(const struct sensor *sensor)
{
	return sensor->fd >= 0;
}

long sensor_read(struct sensor *sensor, char *text, size_t size)
{
	if (sensor->fd < 0 || size == 0)
		return -1;
	size_t length = 0;
	for (;;) {
		ssize_t got = pread(sensor->fd, text + length, size - length, (off_t)length);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0) {
			// Others (EAGAIN, EPERM while a card sleeps, EIO) pass; these two are what a removed device
			// says.
			if (errno == ENODEV || errno == ENXIO)
				sensor->gone = true;
			return -1;
		}
		if (got == 0)
			break;
		length += (size_t)got;
		if (length == size)
			return -1;
	}
	text[length] = 0;
	return (long)length;
}

bool sensor_head(struct sensor *sensor, char *text, size_t size)
{
	ssize_t got = sensor->fd < 0 ? -1 : pread(sensor->fd, text, size - 1, 0);
	text[got > 0 ? got : 0] = 0;
	return got > 0;
}

bool sensor_text(struct sensor *sensor, char *text, size_t size)
{
	if (sensor_read(sensor, text, size) < 0)
		return false;
	size_t length = strcspn(text, "\n");
	while (length > 0 && (text[length - 1] == ' ' || text[length - 1] == '\t' || text[length - 1] == '\r'))
		length--;
	text[length] = 0;
	return length > 0;
}

bool sensor_parse(const char *text, int64_t *value)
{
	char *end;
	errno = 0;
	long long parsed = strtoll(text, &end, strncmp(text, "0x", 2) == 0 ? 16 : 10);
	if (end == text || errno)
		return false;
	while (*end == ' ' || *end == '\t' || *end == '\n' || *end == '\r')
		end++;
	if (*end)
		return false;
	*value = parsed;
	return true;
}

bool sensor_integer(struct sensor *sensor, int64_t *value)
{
	char text[64];
	return sensor_text(sensor, text, sizeof text) && sensor_parse(text, value);
}

bool sensor_number(struct sensor *sensor, double scale, double *value)
{
	int64_t integer;
	if (!sensor_integer(sensor, &integer))
		return false;
	*value = (double)integer * scale;
	return true;
}

bool sensor_once_text(char *text, size_t size, const char *format, ...)
{
	va_list arguments;
	struct sensor sensor;
	sensor_init(&sensor);
	va_start(arguments, format);
	sensor.fd = open_path(format, arguments);
	va_end(arguments);
	bool known = sensor_text(&sensor, text, size);
	sensor_finish(&sensor);
	return known;
}

bool sensor_once_integer(int64_t *value, const char *format, ...)
{
	va_list arguments;
	struct sensor sensor;
	sensor_init(&sensor);
	va_start(arguments, format);
	sensor.fd = open_path(format, arguments);
	va_end(arguments);
	bool known = sensor_integer(&sensor, value);
	sensor_finish(&sensor);
	return known;
}

bool sensor_exists(const char *format, ...)
{
	char path[SENSOR_PATH_BYTES];
	va_list arguments;
	va_start(arguments, format);
	int length = vsnprintf(path, sizeof path, format, arguments);
	va_end(arguments);
	return length >= 0 && (size_t)length < sizeof path && access(path, F_OK) == 0;
}

bool sensor_list(const char *folder, const char *prefix, bool (*each)(void *context, const char *name), void *context)
{
	DIR *dir = opendir(folder);
	if (!dir)
		return false;
	struct dirent *entry;
	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.' || strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
			continue;
		if (!each(context, entry->d_name))
			break;
	}
	closedir(dir);
	return true;
}

int sensor_labelled(const char *folder, const char *kind, const char *label, bool prefix)
{
	char text[64];
	for (int number = 1; number <= LABEL_NUMBERS; number++) {
		if (!sensor_once_text(text, sizeof text, "%s/%s%d_label", folder, kind, number))
			continue;
		if (prefix ? strncmp(text, label, strlen(label)) == 0 : strcmp(text, label) == 0)
			return number;
	}
	return 0;
}

bool rate_per_s(struct rate *rate, uint64_t count, uint64_t wrap, int64_t at_ns, double *per_s)
{
	struct rate before = *rate;
	*rate = (struct rate){.started = true, .count = count, .at_ns = at_ns};
	if (!before.started || at_ns <= before.at_ns)
		return false;
	uint64_t grown;
	if (count >= before.count)
		grown = count - before.count;
	else if (wrap && before.count <= wrap)
		grown = wrap - before.count + count;
	else
		return false;
	*per_s = (double)grown * 1e9 / (double)(at_ns - before.at_ns);
	return true;
}
