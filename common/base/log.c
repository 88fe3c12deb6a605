/* See log.h. */
#include "common/base/log.h"

#include "common/base/clock.h"
#include "common/base/limits.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {
	[LOG_ERROR] = "error", [LOG_WARNING] = "warning", [LOG_INFO] = "info", [LOG_DEBUG] = "debug"};
static atomic_int threshold = LOG_INFO;
static pthread_mutex_t listener_lock = PTHREAD_MUTEX_INITIALIZER;
static void (*listener)(void *context, enum log_level level, const char *area, const char *text); // under listener_lock
static void *listener_context;                                                                    // under listener_lock

enum status log_level_parse(const char *name, enum log_level *level)
{
	for (int i = 0; i <= LOG_DEBUG; i++)
		if (!strcmp(name, names[i])) {
			*level = (enum log_level)i;
			return STATUS_OK;
		}
	return STATUS_INVALID_PARAMS;
}

const char *log_level_name(enum log_level level)
{
	return names[level];
}

void log_set_level(enum log_level level)
{
	atomic_store(&threshold, (int)level);
}

bool log_enabled(enum log_level level)
{
	return (int)level <= atomic_load_explicit(&threshold, memory_order_relaxed);
}

void log_listen(void (*line)(void *context, enum log_level level, const char *area, const char *text), void *context)
{
	pthread_mutex_lock(&listener_lock);
	listener = line;
	listener_context = context;
	pthread_mutex_unlock(&listener_lock);
}

void log_plain(char *text)
{
	for (size_t i = 0; text[i]; i++) { // a line that a peer's text could break in two is not a line
		const unsigned char byte = (unsigned char)text[i], next = (unsigned char)text[i + 1];
		if (byte < 32 || byte == 127)
			text[i] = '?';
		else if (byte == 0xC2 && next >= 0x80 && next < 0xA0) // U+0080 to 9F, which terminals obey too
			text[i] = text[i + 1] = '?';
	}
}

void log_write(enum log_level level, const char *area, const char *format, ...)
{
	if (!log_enabled(level))
		return;
	char line[LIMIT_LOG_LINE_BYTES], time[CLOCK_TEXT_BYTES];
	int head = snprintf(line, sizeof line, "%s %-7s %s: ", clock_format(clock_wall_ms(), time), names[level], area);
	va_list args;
	va_start(args, format);
	int body = vsnprintf(line + head, sizeof line - (size_t)head - 1, format, args);
	va_end(args);
	if (body < 0)
		return;
	size_t length = strlen(line);
	log_plain(line);
	pthread_mutex_lock(&listener_lock);
	if (listener)
		listener(listener_context, level, area, line + head);
	pthread_mutex_unlock(&listener_lock);
	line[length] = '\n';
	if (write(STDERR_FILENO, line, length + 1) < 0)
		return; // nowhere to say so
}
