/* Where traces are sent to: `--otlp`, else the environment variables of OpenTelemetry that docs/traces.md lists. An
 * error names the option or the variable, never its value, which may be a secret. Thread: before any other. */
#pragma once
#include "common/base/status.h"
#include "server/hub/fetch_header.h"

#include <stddef.h>

enum { TRACES_URL_BYTES = 1100, TRACES_FIELDS = 8, TRACES_FIELD_BYTES = 4096, TRACES_SERVICE_BYTES = 128 };

struct traces_settings {
	char url[TRACES_URL_BYTES];      // to post to; "": no traces are made
	char origin[FETCH_ORIGIN_BYTES]; // of that; for the log, since a path may be a secret
	char service[TRACES_SERVICE_BYTES];
	char *fields[TRACES_FIELDS]; // (field_count) "Name: value" of each message; owned
	size_t field_count;
};
// `otlp`: of the command line; NULL: not given. The headers are taken out of the environment, so that no process that
// is started later has them. Errors: STATUS_INVALID_PARAMS with a hint; STATUS_OUT_OF_MEMORY.
enum status traces_settings_read(struct traces_settings *settings, const char *otlp, struct error *error);
void traces_settings_finish(struct traces_settings *settings);
// "name=value,name=value", values percent-encoded, into the fields. Errors: STATUS_INVALID_PARAMS with a hint,
// STATUS_OUT_OF_MEMORY.
enum status traces_settings_headers(struct traces_settings *settings, const char *text, struct error *error);
