/* A span as OTLP has it in JSON, and what stands around the spans of a message. Ids are hexadecimal text; times are
 * nanoseconds since 1970 and 64-bit numbers are decimal strings, as OTLP demands. Pure. Thread: any. */
#pragma once
#include "common/json/json.h"
#include "server/traces/traceparent.h"

enum span_kind { SPAN_INTERNAL = 1, SPAN_SERVER = 2 };

struct span {
	char trace_id[TRACE_ID_BYTES], span_id[SPAN_ID_BYTES];
	char parent_id[SPAN_ID_BYTES]; // "": it has none
	const char *name;
	enum span_kind kind;
	int64_t begin_ns, end_ns;      // wall clock
	const struct json *attributes; // of span_attributes_*; NULL: none
	bool failed;
};
// Appends. Errors: those of buffer_append.
enum status span_print(const struct span *span, struct buffer *out);

// A list of attributes is an array; each function adds one. Texts that are NULL are left out.
void span_set_string(struct json *attributes, const char *key, const char *text);
void span_set_integer(struct json *attributes, const char *key, int64_t value);
void span_set_list(struct json *attributes, const char *key, struct json *values); // of strings or numbers; taken

// A message is this head, the spans with commas between them, and the tail.
struct span_source {
	const char *service, *instance_id; // service.name, service.instance.id
};
enum status spans_print_head(const struct span_source *source, struct buffer *out);
extern const char spans_tail[];
