/* See span.h. */
#include "server/traces/span.h"

#include <stdio.h>

const char spans_tail[] = "]}]}]}";

static struct json *any_string(const char *text)
{
	struct json *value = json_new_object();
	json_set_string(value, "stringValue", text);
	return value;
}

static void add(struct json *attributes, const char *key, struct json *value)
{
	struct json *one = json_new_object();
	json_set_string(one, "key", key);
	json_set(one, "value", value);
	json_push(attributes, one);
}

void span_set_string(struct json *attributes, const char *key, const char *text)
{
	if (text)
		add(attributes, key, any_string(text));
}

static void set_decimal(struct json *object, const char *name, int64_t value)
{
	char text[24];
	snprintf(text, sizeof text, "%lld", (long long)value);
	json_set_string(object, name, text);
}

void span_set_integer(struct json *attributes, const char *key, int64_t number)
{
	struct json *value = json_new_object();
	set_decimal(value, "intValue", number);
	add(attributes, key, value);
}

void span_set_list(struct json *attributes, const char *key, struct json *values)
{
	struct json *value = json_new_object(), *array = json_new_object(), *list = json_new_array();
	for (const struct json *one = json_first(values); one; one = json_next(one)) {
		struct json *number = json_type(one) == JSON_NUMBER ? json_new_object() : NULL;
		if (number)
			json_set_number(number, "doubleValue", json_number(one, 0));
		json_push(list, number ? number : any_string(json_string(one, "")));
	}
	json_destroy(&values);
	json_set(array, "values", list);
	json_set(value, "arrayValue", array);
	add(attributes, key, value);
}

enum status span_print(const struct span *span, struct buffer *out)
{
	struct json *json = json_new_object();
	json_set_string(json, "traceId", span->trace_id);
	json_set_string(json, "spanId", span->span_id);
	if (span->parent_id[0])
		json_set_string(json, "parentSpanId", span->parent_id);
	json_set_string(json, "name", span->name);
	json_set_integer(json, "kind", span->kind);
	set_decimal(json, "startTimeUnixNano", span->begin_ns);
	set_decimal(json, "endTimeUnixNano", span->end_ns);
	if (span->attributes)
		json_set_reference(json, "attributes", span->attributes);
	if (span->failed) {
		struct json *status = json_new_object();
		json_set_integer(status, "code", 2); // STATUS_CODE_ERROR
		json_set(json, "status", status);
	}
	const enum status status = json_print(json, out);
	json_destroy(&json);
	return status;
}

enum status spans_print_head(const struct span_source *source, struct buffer *out)
{
	struct json *attributes = json_new_array();
	span_set_string(attributes, "service.name", source->service);
	span_set_string(attributes, "service.version", EXOGPU_VERSION);
	span_set_string(attributes, "service.instance.id", source->instance_id);
	buffer_append_text(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":");
	json_print(attributes, out);
	json_destroy(&attributes);
	buffer_append_text(out, "},\"scopeSpans\":[{\"scope\":{\"name\":\"exogpu\",\"version\":\"" EXOGPU_VERSION
				"\"},\"spans\":[");
	return out->failed ? STATUS_OUT_OF_MEMORY : STATUS_OK;
}
