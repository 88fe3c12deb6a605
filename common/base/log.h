/* The log: one line for each event, to standard error and to registered listeners. A line is `time level
 * area: text`. It never contains a secret, a token or a session's own text. Thread: any; a line is
 * written with one write(). The callback of log_listen runs on the thread that logs; it must not log or
 * block. */
#pragma once
#include "common/base/status.h"

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

// The level by its name (error, warning, info, debug). Errors: STATUS_INVALID_PARAMS.
enum status log_level_parse(const char *name, enum log_level *level);
const char *log_level_name(enum log_level level);
void log_set_level(enum log_level level);
bool log_enabled(enum log_level level);
// Called with every line that is enabled; NULL to end, and then it is not called any more.
void log_listen(void (*line)(void *context, enum log_level level, const char *area, const char *text), void *context);

// Control characters, of which another's text may hold some, become '?', in place.
void log_plain(char *text);

// `area` is the part of the program: "server", "node", "store". Control characters in the text become '?'.
void log_write(enum log_level level, const char *area, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define log_error(area, ...) log_write(LOG_ERROR, area, __VA_ARGS__)
#define log_warning(area, ...) log_write(LOG_WARNING, area, __VA_ARGS__)
#define log_info(area, ...) log_write(LOG_INFO, area, __VA_ARGS__)
#define log_debug(area, ...) (log_enabled(LOG_DEBUG) ? log_write(LOG_DEBUG, area, __VA_ARGS__) : (void)0)
