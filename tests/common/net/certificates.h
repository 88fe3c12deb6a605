/* Certificates that a test makes for itself: an authority, and what it signs, all EC P-256 and in memory. What fails
 * here ends the test. */
#pragma once
// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct made {
	X509 *certificate;
	EVP_PKEY *key;
	char *pem, *key_pem; // with_issuer: pem has the issuer's too
};

struct making {
	const struct made *issuer;       // NULL: signs itself
	const char *name, *sans, *usage; // sans and usage as in OpenSSL's configuration; NULL: none
	long from_s, to_s;               // counted from now
	bool authority, with_issuer;
	bool weak; // RSA of 1024 bits instead of EC P-256
};

static inline char *made_text(BIO *bio)
{
	char *bytes;
	long length = BIO_get_mem_data(bio, &bytes);
	char *text = buffer_copy_text(bytes, (size_t)length);
	assert_non_null(text);
	BIO_free(bio);
	return text;
}

static inline void made_extend(X509 *certificate, const struct made *issuer, int which, const char *value)
{
	X509V3_CTX context;
	X509V3_set_ctx(&context, issuer ? issuer->certificate : certificate, certificate, NULL, NULL, 0);
	X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, which, value);
	assert_non_null(extension);
	assert_int_equal(X509_add_ext(certificate, extension, -1), 1);
	X509_EXTENSION_free(extension);
}

static inline struct made make_certificate(const struct making *making)
{
	static long serial = 0x1f00;
	struct made made = {.certificate = X509_new(), .key = making->weak ? EVP_RSA_gen(1024) : EVP_EC_gen("P-256")};
	X509 *certificate = made.certificate;
	assert_non_null(certificate);
	assert_non_null(made.key);
	X509_NAME *subject = X509_get_subject_name(certificate);
	assert_int_equal(X509_set_version(certificate, 2), 1);
	assert_int_equal(ASN1_INTEGER_set(X509_get_serialNumber(certificate), ++serial), 1);
	assert_non_null(X509_gmtime_adj(X509_getm_notBefore(certificate), making->from_s));
	assert_non_null(X509_gmtime_adj(X509_getm_notAfter(certificate), making->to_s));
	assert_int_equal(
		X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const uint8_t *)making->name, -1, -1, 0), 1);
	assert_int_equal(X509_set_issuer_name(certificate, making->issuer
								   ? X509_get_subject_name(making->issuer->certificate)
								   : subject),
			 1);
	assert_int_equal(X509_set_pubkey(certificate, made.key), 1);
	made_extend(certificate, making->issuer, NID_basic_constraints,
		    making->authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
	made_extend(certificate, making->issuer, NID_key_usage,
		    making->authority ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature");
	if (making->sans)
		made_extend(certificate, making->issuer, NID_subject_alt_name, making->sans);
	if (making->usage)
		made_extend(certificate, making->issuer, NID_ext_key_usage, making->usage);
	assert_true(X509_sign(certificate, making->issuer ? making->issuer->key : made.key, EVP_sha256()) > 0);
	BIO *bio = BIO_new(BIO_s_mem());
	assert_int_equal(PEM_write_bio_X509(bio, certificate), 1);
	if (making->with_issuer)
		assert_int_equal(PEM_write_bio_X509(bio, making->issuer->certificate), 1);
	made.pem = made_text(bio);
	bio = BIO_new(BIO_s_mem());
	assert_int_equal(PEM_write_bio_PrivateKey(bio, made.key, NULL, NULL, 0, NULL, NULL), 1);
	made.key_pem = made_text(bio);
	return made;
}

static inline struct made make_authority(const char *name)
{
	return make_certificate(&(struct making){.name = name, .authority = true, .from_s = -3600, .to_s = 3600});
}

// Of an authority, for an hour.
static inline struct made make_signed(const struct made *issuer, const char *sans, const char *usage)
{
	return make_certificate(&(struct making){.issuer = issuer,
						 .name = "somebody",
						 .sans = sans,
						 .usage = usage,
						 .from_s = -3600,
						 .to_s = 3600,
						 .with_issuer = true});
}

static inline void made_finish(struct made *made)
{
	X509_free(made->certificate);
	EVP_PKEY_free(made->key);
	free(made->pem);
	free(made->key_pem);
	*made = (struct made){0};
}
