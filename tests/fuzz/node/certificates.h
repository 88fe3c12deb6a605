/* Certificates for fuzz targets: an authority, and what it signs. A fault ends the program. */
#pragma once
#include "common/base/buffer.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>

struct made {
	X509 *certificate;
	EVP_PKEY *key;
	char *pem, *key_pem;
};

static void require(bool condition)
{
	if (!condition)
		abort();
}

static char *text_of(BIO *bio)
{
	char *bytes, *text;
	long length = BIO_get_mem_data(bio, &bytes);
	require((text = buffer_copy_text(bytes, (size_t)length)) != NULL);
	BIO_free(bio);
	return text;
}

static void extend(X509 *certificate, X509 *issuer, int which, const char *value)
{
	X509V3_CTX context;
	X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
	X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, which, value);
	require(extension && X509_add_ext(certificate, extension, -1) == 1);
	X509_EXTENSION_free(extension);
}

static struct made make(const struct made *issuer, const char *uri)
{
	struct made made = {.certificate = X509_new(), .key = EVP_EC_gen("P-256")};
	X509 *by = issuer ? issuer->certificate : made.certificate;
	X509_set_version(made.certificate, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(made.certificate), issuer ? 2 : 1);
	X509_gmtime_adj(X509_getm_notBefore(made.certificate), -60);
	X509_gmtime_adj(X509_getm_notAfter(made.certificate), 365L * 24 * 3600);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(made.certificate), "CN", MBSTRING_ASC,
				   (const uint8_t *)(issuer ? "node" : "authority"), -1, -1, 0);
	X509_set_issuer_name(made.certificate, X509_get_subject_name(by));
	X509_set_pubkey(made.certificate, made.key);
	extend(made.certificate, by, NID_basic_constraints, issuer ? "critical,CA:FALSE" : "critical,CA:TRUE");
	if (uri)
		extend(made.certificate, by, NID_subject_alt_name, uri);
	require(X509_sign(made.certificate, issuer ? issuer->key : made.key, EVP_sha256()) > 0);
	BIO *bio = BIO_new(BIO_s_mem());
	require(PEM_write_bio_X509(bio, made.certificate) == 1);
	made.pem = text_of(bio);
	bio = BIO_new(BIO_s_mem());
	require(PEM_write_bio_PrivateKey(bio, made.key, NULL, NULL, 0, NULL, NULL) == 1);
	made.key_pem = text_of(bio);
	return made;
}
