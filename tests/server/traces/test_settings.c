// Where traces go: the option and the variables, and headers that a collector wants.
#include "server/traces/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

static const char *const variables[] = {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
					"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_SERVICE_NAME"};

static int forget(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
		unsetenv(variables[i]);
	return 0;
}

static void expect_url(const char *otlp, const char *url)
{
	struct error error = {0};
	struct traces_settings settings;
	assert_int_equal(traces_settings_read(&settings, otlp, &error), STATUS_OK);
	assert_string_equal(settings.url, url);
	traces_settings_finish(&settings);
}

static void test_which(void **state)
{
	(void)state;
	expect_url(NULL, "");
	setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "", 1);
	expect_url(NULL, "");
	setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://one:4318//", 1);
	expect_url(NULL, "http://one:4318/v1/traces");
	setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://two/as/it/is/", 1);
	expect_url(NULL, "https://two/as/it/is/");
	expect_url("https://three/base", "https://three/base/v1/traces");
}

static void test_bad_urls(void **state)
{
	static const char *const urls[] = {"collector:4318",    "ftp://secret",        "http://",
					   "http:///secret",    "http://secret:70000", "http://[::1",
					   "http://secret/?a",  "http://secret/#a",    "http://a@secret",
					   "http://secret/a b", "http://secret/\n"};
	(void)state;
	for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
		struct error error = {0};
		struct traces_settings settings;
		if (traces_settings_read(&settings, urls[i], &error) != STATUS_INVALID_PARAMS)
			fail_msg("\"%s\" counts as an address", urls[i]);
		assert_null(strstr(error.message, "secret"));
		assert_non_null(strstr(error.message, "--otlp"));
	}
}

// A path may be what a collector knows its customers by.
static void test_origin(void **state)
{
	struct error error = {0};
	struct traces_settings settings;
	(void)state;
	assert_int_equal(traces_settings_read(&settings, "https://Host/secret", &error), STATUS_OK);
	assert_string_equal(settings.origin, "https://host:443");
	traces_settings_finish(&settings);
}

static void test_headers(void **state)
{
	struct error error = {0};
	struct traces_settings settings;
	(void)state;
	setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20YQ==, x-b = c%2Cd ,,", 1);
	assert_int_equal(traces_settings_read(&settings, "http://one", &error), STATUS_OK);
	assert_int_equal(settings.field_count, 2);
	assert_string_equal(settings.fields[0], "authorization: Basic YQ==");
	assert_string_equal(settings.fields[1], "x-b: c,d");
	assert_string_equal(settings.service, "exogpu");
	assert_null(getenv("OTEL_EXPORTER_OTLP_HEADERS"));
	traces_settings_finish(&settings);
}

static void test_bad_headers(void **state)
{
	static const char *const texts[] = {"secret",
					    "=secret",
					    "a b=secret",
					    "a:=secret",
					    "a=secret%0d%0ab",
					    "a=secret%",
					    "a=secret%2",
					    "a=secret%zz",
					    "a=secret\n",
					    "a=secret\xc3\xa9",
					    "a=secret%00",
					    "a=secret%7f",
					    "a=",
					    "a= ,b=secret",
					    "Content-Type=secret",
					    "transfer-encoding=secret",
					    "a=1,b=2,c=3,d=4,e=5,f=6,g=7,h=8,i=secret"};
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct error error = {0};
		struct traces_settings settings = {0};
		if (traces_settings_headers(&settings, texts[i], &error) != STATUS_INVALID_PARAMS)
			fail_msg("\"%s\" counts as headers", texts[i]);
		assert_null(strstr(error.message, "secret"));
		assert_non_null(strstr(error.message, "OTEL_EXPORTER_OTLP_HEADERS"));
		traces_settings_finish(&settings);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_which, forget),       cmocka_unit_test_setup(test_bad_urls, forget),
		cmocka_unit_test_setup(test_origin, forget),      cmocka_unit_test_setup(test_headers, forget),
		cmocka_unit_test_setup(test_bad_headers, forget),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
