/* Certificates: what is made, what is read of hostile ones, and how they are told to a person. */
#include "server/security/certificates/certificate.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

static const int64_t noon_ms = 1795262400000; // 2026-11-21T12:00:00Z

static X509 *make(const char *subject, const char (*names)[256], size_t count)
{
	X509 *certificate;
	EVP_PKEY *key;
	struct error error = {0};
	assert_int_equal(certificate_make_key(&key, &error), STATUS_OK);
	const struct certificate_params params = {.kind = CERTIFICATE_SERVER,
						  .issuer_key = key,
						  .key = key,
						  .subject = subject,
						  .uri = CERTIFICATE_SERVER_URI "clu_1",
						  .names = names,
						  .name_count = count,
						  .not_before_ms = noon_ms,
						  .not_after_ms = noon_ms + 1000};
	if (certificate_make(&certificate, &params, &error))
		fail_msg("%s", error.message);
	assert_int_equal(X509_verify(certificate, key), 1);
	EVP_PKEY_free(key);
	return certificate;
}

struct list {
	int count;
	char text[2048];
};

static void add_name(void *context, const char *name)
{
	struct list *list = context;
	size_t used = strlen(list->text);
	snprintf(list->text + used, sizeof(list->text) - used, "%s;", name);
	list->count++;
}

static void what_is_made_is_read(void **state)
{
	static const char names[][256] = {"gpu.example", "10.1.2.3", "fd00::5", "localhost"};
	struct certificate_facts facts, again;
	struct list list = {0};
	struct buffer pem;
	X509 *parsed;
	char uri[64], small[8];
	(void)state;
	X509 *certificate = make("polaris", names, 4);
	certificate_describe(certificate, &facts);
	assert_string_equal(facts.subject, "CN=polaris,O=exogpu");
	assert_int_equal(facts.not_before_ms, noon_ms);
	assert_int_equal(facts.not_after_ms, noon_ms + 1000);
	assert_int_equal(strlen(facts.serial), 32);
	certificate_each_name(certificate, add_name, &list);
	assert_string_equal(list.text, "gpu.example;10.1.2.3;fd00::5;localhost;");
	certificate_uri(certificate, uri, sizeof(uri));
	assert_string_equal(uri, "exogpu:server:clu_1");
	certificate_uri(certificate, small, sizeof(small)); // one that does not fit is none
	assert_string_equal(small, "");

	buffer_init(&pem, 8192);
	assert_int_equal(certificate_print(certificate, &pem), STATUS_OK);
	assert_int_equal(certificate_parse(&parsed, buffer_text(&pem), pem.length, NULL), STATUS_OK);
	certificate_describe(parsed, &again);
	assert_string_equal(again.sha256, facts.sha256);
	X509 *other = make("polaris", names, 4);
	certificate_describe(other, &again);
	assert_string_not_equal(again.serial, facts.serial);
	X509_free(other);
	X509_free(parsed);
	X509_free(certificate);
	buffer_finish(&pem);
	assert_int_equal(ERR_peek_error(), 0);
}

static void any_host_name_can_be_a_subject(void **state)
{
	static const char *const subjects[] = {
		"", "a, O=b + c=\"d\"\n", "\xff\xfe not utf-8", "größe",
		"0123456789012345678901234567890123456789012345678901234567890123456789"};
	struct certificate_facts facts;
	(void)state;
	for (size_t i = 1; i < sizeof(subjects) / sizeof(subjects[0]); i++) {
		X509 *certificate = make(subjects[i], NULL, 0);
		certificate_describe(certificate, &facts);
		for (const char *at = facts.subject; *at; at++)
			if (*at < ' ' || *at > '~')
				fail_msg("subject %zu: \"%s\"", i, facts.subject);
		assert_non_null(strstr(facts.subject, "O=exogpu"));
		X509_free(certificate);
	}
}

// What others' authorities may have signed.
static void names_that_are_none_are_passed_over(void **state)
{
	static const struct {
		int type;
		const char *bytes;
		int length;
	} strange[] = {
		{GEN_DNS, "good.example\0.evil.example", 26},
		{GEN_DNS, "", 0},
		{GEN_DNS, "two words", 9},
		{GEN_DNS, "line\nend", 8},
		{GEN_DNS, "\xc3\xa9.example", 10},
		{GEN_IPADD, "\1\2\3", 3},
		{GEN_IPADD, "\1\2\3\4\5", 5},
		{GEN_IPADD, "", 0},
		{GEN_URI, "exogpu:server:clu_1\0x", 21},
		{GEN_EMAIL, "a@b.example", 11},
		{GEN_DNS, "*.good.example", 14},
	};
	struct list list = {0};
	char uri[64];
	(void)state;
	EVP_PKEY *key;
	assert_int_equal(certificate_make_key(&key, NULL), STATUS_OK);
	X509 *certificate = X509_new();
	GENERAL_NAMES *names = GENERAL_NAMES_new();
	for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
		GENERAL_NAME *name = GENERAL_NAME_new();
		ASN1_STRING *value = strange[i].type == GEN_IPADD ? ASN1_OCTET_STRING_new() : ASN1_IA5STRING_new();
		ASN1_STRING_set(value, strange[i].bytes, strange[i].length);
		GENERAL_NAME_set0_value(name, strange[i].type, value);
		sk_GENERAL_NAME_push(names, name);
	}
	assert_int_equal(X509_add1_ext_i2d(certificate, NID_subject_alt_name, names, 0, X509V3_ADD_APPEND), 1);
	X509_set_pubkey(certificate, key);
	X509_sign(certificate, key, EVP_sha256());
	certificate_each_name(certificate, add_name, &list);
	assert_string_equal(list.text, "*.good.example;");
	certificate_uri(certificate, uri, sizeof(uri));
	assert_string_equal(uri, "");
	GENERAL_NAMES_free(names);
	X509_free(certificate);
	EVP_PKEY_free(key);
}

static void a_fingerprint_reads_as_browsers_show_it(void **state)
{
	uint8_t digest[32];
	char text[CERTIFICATE_FINGERPRINT_BYTES];
	(void)state;
	for (int i = 0; i < 32; i++)
		digest[i] = (uint8_t)(i * 8 + 7);
	assert_string_equal(certificate_fingerprint(digest, text),
			    "SHA256:07:0F:17:1F:27:2F:37:3F:47:4F:57:5F:67:6F:77:7F:"
			    "87:8F:97:9F:A7:AF:B7:BF:C7:CF:D7:DF:E7:EF:F7:FF");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_made_is_read),
		cmocka_unit_test(any_host_name_can_be_a_subject),
		cmocka_unit_test(names_that_are_none_are_passed_over),
		cmocka_unit_test(a_fingerprint_reads_as_browsers_show_it),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
