/* The list in status.h as tables, and the functions that fill a struct error. */
#include "common/base/status.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *word, *text;
	int http, rpc;
} statuses[STATUS_COUNT] = {
#define X(name, word, text, http, rpc) [STATUS_##name] = {word, text, http, rpc},
	STATUS_LIST(X)
#undef X
};

static enum status known(enum status status)
{
	return (unsigned)status < STATUS_COUNT ? status : STATUS_INTERNAL;
}

const char *status_word(enum status status)
{
	return statuses[known(status)].word;
}

const char *status_text(enum status status)
{
	return statuses[known(status)].text;
}

int status_http(enum status status)
{
	return statuses[known(status)].http;
}

int status_rpc_code(enum status status)
{
	return statuses[known(status)].rpc;
}

enum status status_from_rpc_code(int code)
{
	for (int i = 0; i < STATUS_COUNT; i++)
		if (statuses[i].rpc == code && code)
			return (enum status)i;
	return STATUS_INTERNAL;
}

enum status error_set(struct error *error, enum status status, const char *format, ...)
{
	if (error && !error->message[0]) {
		va_list args;
		va_start(args, format);
		vsnprintf(error->message, sizeof error->message, format, args);
		va_end(args);
		error->status = status;
	}
	return status;
}

void error_hint(struct error *error, const char *format, ...)
{
	if (error && !error->hint[0]) {
		va_list args;
		va_start(args, format);
		vsnprintf(error->hint, sizeof error->hint, format, args);
		va_end(args);
	}
}

enum status error_errno(struct error *error, enum status status, int number, const char *format, ...)
{
	if (error && !error->message[0]) {
		va_list args;
		va_start(args, format);
		vsnprintf(error->message, sizeof error->message, format, args);
		va_end(args);
		size_t used = strlen(error->message);
		snprintf(error->message + used, sizeof error->message - used, ": %s", strerror(number));
		error->status = status;
	}
	return status;
}
