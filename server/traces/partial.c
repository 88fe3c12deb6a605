/* See partial.h. Source: opentelemetry.io, OTLP 1.x, "Partial Success". */
#include "server/traces/partial.h"

#include "common/json/json.h"

#include <stdio.h>

bool partial_read(const char *text, size_t length, struct partial *out)
{
	struct json *answer = NULL;
	struct error error = {0};
	*out = (struct partial){0};
	if (!length || json_parse(&answer, text, length, &error))
		return false;
	const struct json *partial = json_get(answer, "partialSuccess");
	const int64_t rejected = json_get_integer(partial, "rejectedSpans", 0);
	out->rejected = rejected > 0 ? (uint64_t)rejected : 0;
	snprintf(out->message, sizeof out->message, "%s", json_get_string(partial, "errorMessage", ""));
	for (char *at = out->message; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 0x7f)
			*at = ' ';
	json_destroy(&answer);
	return out->rejected || out->message[0];
}
