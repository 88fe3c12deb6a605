// Channels of alerts: signatures against published ones, when to try again, quiet hours, and what a message says.
#include "server/alerts/channel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

static const char *sign(const char *secret, const struct channel_signed *what)
{
	static char signature[CHANNEL_SIGNATURE_BYTES];
	assert_int_equal(channel_sign(secret, what, signature), STATUS_OK);
	return signature;
}

// The example of Svix, who wrote the specification (docs.svix.com/receiving/verifying-payloads/how-manual).
static void test_signature(void **state)
{
	(void)state;
	const struct channel_signed published = {
		.delivery_id = "msg_p5jXN8AQM9LWM0D4loKWxJek", .body = "{\"test\": 2432232314}", .at_s = 1614265330};
	assert_string_equal(sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", &published),
			    "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
	// A secret that is plain text is its own key: openssl dgst -sha256 -hmac sixteen-letters1 -binary | base64
	const struct channel_signed plain = {.delivery_id = "dlv_1", .body = "{}", .at_s = 1700000000};
	assert_string_equal(sign("sixteen-letters1", &plain), "v1,SKcetPjTmk3DhgGFAflNarHKoXeAEENbDjiwHlpAhwU=");
}

static void test_secrets(void **state)
{
	(void)state;
	struct error error;
	char made[CHANNEL_MADE_BYTES], other[CHANNEL_MADE_BYTES];
	assert_int_equal(channel_make_secret(made), STATUS_OK);
	assert_int_equal(channel_make_secret(other), STATUS_OK);
	assert_string_not_equal(made, other);
	assert_int_equal(channel_check_secret(CHANNEL_WEBHOOK, made, &error), STATUS_OK);
	static const struct {
		enum channel_kind kind;
		const char *secret;
		bool good;
	} cases[] = {
		{CHANNEL_WEBHOOK, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", true},
		{CHANNEL_WEBHOOK, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", false}, // no Base64
		{CHANNEL_WEBHOOK, "whsec_c2hvcnQ=", false},                        // too short
		{CHANNEL_WEBHOOK, "whsec_", false},
		{CHANNEL_WEBHOOK, "sixteen-letters1", true},
		{CHANNEL_WEBHOOK, "fifteen-letters", false},
		{CHANNEL_WEBHOOK, "sixteen letters1", false},
		{CHANNEL_WEBHOOK, "sixteen-letters\n1", false},
		{CHANNEL_NTFY, "tk_AgQdq7mVBoFD37zQVN29RhuMzNIz2", true},
		{CHANNEL_NTFY, "tk_\r\nHost: other", false},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const enum status status = channel_check_secret(cases[i].kind, cases[i].secret, &error);
		if ((status == STATUS_OK) != cases[i].good)
			fail_msg("%s: %s", cases[i].secret, status_word(status));
		if (status)
			assert_null(strstr(error.message, cases[i].secret));
	}
}

static void test_back_off(void **state)
{
	(void)state;
	static const int64_t seconds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900};
	for (unsigned i = 0; i < sizeof seconds / sizeof *seconds; i++)
		assert_int_equal(channel_wait_ms(i + 1, 0), seconds[i] * 1000);
	assert_int_equal(channel_wait_ms(4000000000u, 0), 900000);
	assert_int_equal(channel_wait_ms(1, 30), 30000); // what the receiver asks for
	assert_int_equal(channel_wait_ms(8, 30), 128000);
	assert_int_equal(channel_wait_ms(1, 1000000), 900000);
	static const long final[] = {400, 410, 413, 422}, other[] = {0, 302, 401, 403, 404, 408, 425, 429, 500, 503};
	for (size_t i = 0; i < sizeof final / sizeof *final; i++)
		assert_true(channel_refuses(final[i]));
	for (size_t i = 0; i < sizeof other / sizeof *other; i++)
		assert_false(channel_refuses(other[i]));
}

static void test_quiet_hours(void **state)
{
	(void)state;
	const struct channel_quiet none = {-1, -1}, night = {22 * 60, 7 * 60}, noon = {12 * 60, 13 * 60 + 30};
	unsigned held = 0;
	for (int minute = 0; minute < 1440; minute++) {
		const bool at_night = minute >= 22 * 60 || minute < 7 * 60;
		assert_false(channel_holds(&none, channel_severity("warning"), minute));
		assert_int_equal(channel_holds(&night, channel_severity("warning"), minute), at_night);
		assert_int_equal(channel_holds(&night, channel_severity("info"), minute), at_night);
		assert_false(channel_holds(&night, channel_severity("critical"), minute));
		held += channel_holds(&noon, channel_severity("warning"), minute);
	}
	assert_int_equal(held, 90);
	assert_int_equal(channel_read_minute("00:00"), 0);
	assert_int_equal(channel_read_minute("23:59"), 1439);
	static const char *const wrong[] = {"", "7:00", "07:60", "24:00", "07-00", "07:0a", "007:0", "07:000", "-1:00"};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_int_equal(channel_read_minute(wrong[i]), -1);
}

static void test_urls(void **state)
{
	(void)state;
	static const struct {
		const char *url, *masked, *topic;
	} cases[] = {
		{"https://hooks.example.com/T0/secret?a=b", "https://hooks.example.com/\u2026", NULL},
		{"https://hooks.example.com/", "https://hooks.example.com/", NULL},
		{"https://hooks.example.com:8443?key=1", "https://hooks.example.com:8443/\u2026", NULL},
		{"https://ntfy.sh/my-Topic_1", "https://ntfy.sh/\u2026", "my-Topic_1"},
		{"https://ntfy.sh/a/b", "https://ntfy.sh/\u2026", NULL},
		{"https://ntfy.sh/topic?auth=x", "https://ntfy.sh/\u2026", NULL},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char masked[CHANNEL_URL_BYTES];
		const char *topic = channel_topic(cases[i].url);
		channel_mask_url(cases[i].url, masked, sizeof masked);
		assert_string_equal(masked, cases[i].masked);
		assert_string_equal(topic ? topic : "none", cases[i].topic ? cases[i].topic : "none");
	}
}

static void check_body(const struct channel_message *message, const char *expected)
{
	char *body = channel_body(message);
	assert_non_null(body);
	assert_string_equal(body, expected);
	free(body);
}

static void test_bodies(void **state)
{
	(void)state;
	struct json *alert = json_new_object();
	json_set_string(alert, "alert_id", "alert_1");
	json_set_string(alert, "severity", "critical");
	json_set_string(alert, "message", "node one is offline");
	json_set_string(alert, "hint", "start it");
	struct channel_message message = {.kind = CHANNEL_WEBHOOK,
					  .delivery_id = "dlv_1",
					  .type = "alert.raised",
					  .at_ms = 1700000000000,
					  .cluster_id = "clu_1",
					  .cluster_name = "home",
					  .alert = alert};
	check_body(&message, "{\"type\":\"alert.raised\",\"timestamp\":\"2023-11-14T22:13:20.000Z\",\"id\":\"dlv_1\","
			     "\"data\":{\"cluster\":{\"id\":\"clu_1\",\"name\":\"home\"},\"alert\":{\"alert_id\":"
			     "\"alert_1\",\"severity\":\"critical\",\"message\":\"node one is offline\",\"hint\":"
			     "\"start it\"}}}");
	message.kind = CHANNEL_NTFY;
	message.topic = "topic";
	check_body(&message, "{\"topic\":\"topic\",\"title\":\"home: critical\",\"message\":\"node one is "
			     "offline\\nstart it\",\"priority\":5,\"tags\":[\"warning\"]}");
	message.type = "alert.cleared";
	check_body(&message, "{\"topic\":\"topic\",\"title\":\"home: resolved\",\"message\":\"node one is offline\","
			     "\"priority\":3,\"tags\":[\"white_check_mark\"]}");
	message.type = "alert.test";
	message.alert = NULL;
	check_body(&message, "{\"topic\":\"topic\",\"title\":\"home: this is a test\",\"message\":\"Alerts of exogpu "
			     "arrive here.\",\"priority\":3,\"tags\":[\"test_tube\"]}");
	message.kind = CHANNEL_WEBHOOK;
	check_body(&message, "{\"type\":\"alert.test\",\"timestamp\":\"2023-11-14T22:13:20.000Z\",\"id\":\"dlv_1\","
			     "\"data\":{\"cluster\":{\"id\":\"clu_1\",\"name\":\"home\"},\"alert\":null}}");
	json_destroy(&alert);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_signature),   cmocka_unit_test(test_secrets), cmocka_unit_test(test_back_off),
		cmocka_unit_test(test_quiet_hours), cmocka_unit_test(test_urls),    cmocka_unit_test(test_bodies),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
