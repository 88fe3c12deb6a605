// A span in OTLP's JSON, and the message around it.
#include "server/traces/span.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
// cmocka.h needs those above it.
#include <cmocka.h>

static void expect(const struct span *span, const char *text)
{
	struct buffer out;
	buffer_init(&out, 4096);
	assert_int_equal(span_print(span, &out), STATUS_OK);
	assert_string_equal(buffer_text(&out), text);
	buffer_finish(&out);
}

static void test_span(void **state)
{
	struct json *attributes = json_new_array(), *ids = json_new_array(), *times = json_new_array();
	const struct span least = {.trace_id = "0af7651916cd43dd8448eb211c80319c",
				   .span_id = "b7ad6b7169203331",
				   .name = "queue",
				   .kind = SPAN_INTERNAL,
				   .begin_ns = 1700000000000000001,
				   .end_ns = 1700000000000000002};
	struct span most = least;
	(void)state;
	expect(&least, "{\"traceId\":\"0af7651916cd43dd8448eb211c80319c\",\"spanId\":\"b7ad6b7169203331\","
		       "\"name\":\"queue\",\"kind\":1,\"startTimeUnixNano\":\"1700000000000000001\","
		       "\"endTimeUnixNano\":\"1700000000000000002\"}");
	span_set_string(attributes, "text", "a \"quote\" and \xff");
	span_set_string(attributes, "absent", NULL);
	span_set_integer(attributes, "number", 9007199254740993);
	json_push(ids, json_new_string("dev_1"));
	json_push(times, json_new_number(0.5));
	span_set_list(attributes, "ids", ids);
	span_set_list(attributes, "times", times);
	span_set_list(attributes, "empty", json_new_array());
	snprintf(most.parent_id, sizeof most.parent_id, "00f067aa0ba902b7");
	most.kind = SPAN_SERVER;
	most.attributes = attributes;
	most.failed = true;
	expect(&most,
	       "{\"traceId\":\"0af7651916cd43dd8448eb211c80319c\",\"spanId\":\"b7ad6b7169203331\","
	       "\"parentSpanId\":\"00f067aa0ba902b7\",\"name\":\"queue\",\"kind\":2,"
	       "\"startTimeUnixNano\":\"1700000000000000001\",\"endTimeUnixNano\":\"1700000000000000002\","
	       "\"attributes\":[{\"key\":\"text\",\"value\":{\"stringValue\":\"a \\\"quote\\\" and \xef\xbf\xbd\"}},"
	       "{\"key\":\"number\",\"value\":{\"intValue\":\"9007199254740993\"}},"
	       "{\"key\":\"ids\",\"value\":{\"arrayValue\":{\"values\":[{\"stringValue\":\"dev_1\"}]}}},"
	       "{\"key\":\"times\",\"value\":{\"arrayValue\":{\"values\":[{\"doubleValue\":0.5}]}}},"
	       "{\"key\":\"empty\",\"value\":{\"arrayValue\":{\"values\":[]}}}],\"status\":{\"code\":2}}");
	json_destroy(&attributes);
}

static void test_message(void **state)
{
	struct buffer out;
	struct json *json;
	struct error error = {0};
	(void)state;
	buffer_init(&out, 4096);
	assert_int_equal(spans_print_head(&(struct span_source){"a \"service\"", "clu_1"}, &out), STATUS_OK);
	buffer_append_text(&out, "{\"name\":\"x\"}");
	buffer_append_text(&out, spans_tail);
	assert_int_equal(json_parse(&json, buffer_text(&out), out.length, &error), STATUS_OK);
	const struct json *source = json_first(json_get(json, "resourceSpans"));
	const struct json *scope = json_first(json_get(source, "scopeSpans"));
	const struct json *named = json_first(json_get(json_get(source, "resource"), "attributes"));
	assert_string_equal(json_get_string(named, "key", ""), "service.name");
	assert_string_equal(json_get_string(json_get(named, "value"), "stringValue", ""), "a \"service\"");
	assert_string_equal(json_get_string(json_get(scope, "scope"), "name", ""), "exogpu");
	assert_string_equal(json_get_string(json_first(json_get(scope, "spans")), "name", ""), "x");
	json_destroy(&json);
	buffer_finish(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_span), cmocka_unit_test(test_message)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
