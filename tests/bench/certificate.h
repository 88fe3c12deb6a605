/* A certificate for a server on loopback, which signs itself and is its own authority: made on the way, for benches. */
#pragma once
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

static char *certificate_pem, *key_pem;

static char *text_of(BIO *bio)
{
	char *bytes;
	long length = BIO_get_mem_data(bio, &bytes);
	char *text = strndup(bytes, (size_t)length);
	BIO_free(bio);
	return text;
}

// One that signs itself: its own authority.
static void make_certificate(void)
{
	X509 *certificate = X509_new();
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509V3_CTX context;
	X509_NAME *name = X509_get_subject_name(certificate);
	X509_set_version(certificate, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
	X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
	X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const uint8_t *)"bench", -1, -1, 0);
	X509_set_issuer_name(certificate, name);
	X509_set_pubkey(certificate, key);
	X509V3_set_ctx(&context, certificate, certificate, NULL, NULL, 0);
	X509_add_ext(certificate, X509V3_EXT_conf_nid(NULL, &context, NID_basic_constraints, "critical,CA:TRUE"), -1);
	X509_add_ext(certificate, X509V3_EXT_conf_nid(NULL, &context, NID_subject_alt_name, "IP:127.0.0.1"), -1);
	if (!X509_sign(certificate, key, EVP_sha256()))
		abort();
	BIO *bio = BIO_new(BIO_s_mem());
	PEM_write_bio_X509(bio, certificate);
	certificate_pem = text_of(bio);
	bio = BIO_new(BIO_s_mem());
	PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL);
	key_pem = text_of(bio);
}
