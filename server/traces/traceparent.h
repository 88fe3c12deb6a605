/* The header `traceparent` of W3C Trace Context: which trace a request belongs to, and which span of it sent the
 * request. Parsed strictly: whatever is not exactly of that form counts as absent. Pure. Thread: any. */
#pragma once
#include <stdbool.h>

enum { TRACE_ID_BYTES = 33, SPAN_ID_BYTES = 17 }; // as hexadecimal text, with its 0

struct traceparent {
	char trace_id[TRACE_ID_BYTES], span_id[SPAN_ID_BYTES];
	bool sampled; // whoever sent the request records the trace
};
// False: it is none, and *out is not changed. Of a version after 00 the fields that 00 has are read, as the standard
// asks.
bool traceparent_parse(const char *text, struct traceparent *out);
