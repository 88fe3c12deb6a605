/* See traceparent.h. */
#include "server/traces/traceparent.h"

#include <stddef.h>
#include <string.h>

enum { VERSION_AT = 0, TRACE_AT = 3, SPAN_AT = 36, FLAGS_AT = 53, LENGTH = 55 };

static int digit(char byte)
{
	return byte >= '0' && byte <= '9' ? byte - '0' : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

// `count` hexadecimal digits in lower case. *zero: all are 0.
static bool is_hex(const char *text, size_t count, bool *zero)
{
	*zero = true;
	for (size_t i = 0; i < count; i++) {
		if (digit(text[i]) < 0)
			return false;
		*zero &= text[i] == '0';
	}
	return true;
}

bool traceparent_parse(const char *text, struct traceparent *out)
{
	bool first, no_trace, no_span, unused;
	const size_t length = strlen(text);
	if (length < LENGTH || text[TRACE_AT - 1] != '-' || text[SPAN_AT - 1] != '-' || text[FLAGS_AT - 1] != '-')
		return false;
	if (!is_hex(text + VERSION_AT, 2, &first) || !is_hex(text + TRACE_AT, 32, &no_trace) ||
	    !is_hex(text + SPAN_AT, 16, &no_span) || !is_hex(text + FLAGS_AT, 2, &unused))
		return false;
	if (!strncmp(text, "ff", 2) || no_trace || no_span)
		return false;
	if (length > LENGTH && (first || text[LENGTH] != '-'))
		return false;
	memcpy(out->trace_id, text + TRACE_AT, 32);
	out->trace_id[32] = 0;
	memcpy(out->span_id, text + SPAN_AT, 16);
	out->span_id[16] = 0;
	out->sampled = digit(text[FLAGS_AT + 1]) & 1;
	return true;
}
