/* See certificate.h. */
#include "server/security/certificates/certificate.h"

#include <arpa/inet.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { SERIAL_BYTES = 16, SUBJECT_CHARACTERS = 64 };

static enum status failed(struct error *error)
{
	ERR_clear_error();
	error_set(error, STATUS_UNAVAILABLE, "a certificate could not be made");
	error_hint(error, "is the machine out of memory, or without random numbers?");
	return STATUS_UNAVAILABLE;
}

enum status certificate_make_key(EVP_PKEY **key, struct error *error)
{
	*key = EVP_EC_gen("P-256");
	return *key ? STATUS_OK : failed(error);
}

static bool set_serial(X509 *certificate)
{
	unsigned char bytes[SERIAL_BYTES];
	if (RAND_bytes(bytes, sizeof(bytes)) != 1)
		return false;
	bytes[0] = (unsigned char)((bytes[0] & 0x3f) | 0x40); // positive, and always as long
	BIGNUM *number = BN_bin2bn(bytes, sizeof(bytes), NULL);
	bool done = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));
	BN_free(number);
	return done;
}

// The organization tells a person who looks through a list of authorities where this one comes from.
static bool set_subject(X509 *certificate, const struct certificate_params *params)
{
	const bool authority = params->kind == CERTIFICATE_AUTHORITY;
	const unsigned char *organization = (const unsigned char *)(authority ? "exogpu authority" : "exogpu");
	X509_NAME *name = X509_get_subject_name(certificate);
	char subject[SUBJECT_CHARACTERS + 1];
	snprintf(subject, sizeof(subject), "%s", params->subject);
	if (X509_NAME_add_entry_by_txt(name, "O", MBSTRING_ASC, organization, -1, -1, 0) != 1)
		return false;
	// A host's name need not be UTF-8.
	return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (unsigned char *)subject, -1, -1, 0) == 1 ||
	       X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (unsigned char *)subject, -1, -1, 0) == 1;
}

static bool push_name(GENERAL_NAMES *names, int type, const void *bytes, size_t length)
{
	GENERAL_NAME *name = GENERAL_NAME_new();
	ASN1_STRING *value = type == GEN_IPADD ? ASN1_OCTET_STRING_new() : ASN1_IA5STRING_new();
	if (!name || !value || ASN1_STRING_set(value, bytes, (int)length) != 1) {
		ASN1_STRING_free(value);
		GENERAL_NAME_free(name);
		return false;
	}
	GENERAL_NAME_set0_value(name, type, value);
	if (sk_GENERAL_NAME_push(names, name) > 0)
		return true;
	GENERAL_NAME_free(name);
	return false;
}

static bool set_names(X509 *certificate, const struct certificate_params *params)
{
	GENERAL_NAMES *names = GENERAL_NAMES_new();
	bool done = names && push_name(names, GEN_URI, params->uri, strlen(params->uri));
	for (size_t i = 0; done && i < params->name_count; i++) {
		const char *name = params->names[i];
		unsigned char address[16];
		if (inet_pton(AF_INET, name, address) == 1)
			done = push_name(names, GEN_IPADD, address, 4);
		else if (inet_pton(AF_INET6, name, address) == 1)
			done = push_name(names, GEN_IPADD, address, 16);
		else
			done = push_name(names, GEN_DNS, name, strlen(name));
	}
	done = done && X509_add1_ext_i2d(certificate, NID_subject_alt_name, names, 0, X509V3_ADD_APPEND) == 1;
	GENERAL_NAMES_free(names);
	return done;
}

static bool add_extension(X509 *certificate, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX context;
	X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
	X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
	bool done = extension && X509_add_ext(certificate, extension, -1) == 1;
	X509_EXTENSION_free(extension);
	return done;
}

// A server's cannot be shown by a client. A node's can be shown by both: nodes also talk to each other.
static bool set_usage(X509 *certificate, X509 *issuer, enum certificate_kind kind)
{
	const bool authority = kind == CERTIFICATE_AUTHORITY;
	const char *extended = kind == CERTIFICATE_NODE ? "clientAuth,serverAuth" : "serverAuth";
	return add_extension(certificate, issuer, NID_basic_constraints,
			     authority ? "critical,CA:TRUE,pathlen:0" : "critical,CA:FALSE") &&
	       add_extension(certificate, issuer, NID_key_usage,
			     authority ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature") &&
	       (authority || add_extension(certificate, issuer, NID_ext_key_usage, extended)) &&
	       add_extension(certificate, issuer, NID_subject_key_identifier, "hash") &&
	       (authority || add_extension(certificate, issuer, NID_authority_key_identifier, "keyid:always"));
}

static bool set_times(X509 *certificate, const struct certificate_params *params)
{
	return ASN1_TIME_set(X509_getm_notBefore(certificate), (time_t)(params->not_before_ms / 1000)) &&
	       ASN1_TIME_set(X509_getm_notAfter(certificate), (time_t)(params->not_after_ms / 1000));
}

enum status certificate_make(X509 **out, const struct certificate_params *params, struct error *error)
{
	X509 *certificate = X509_new();
	X509 *issuer = params->issuer ? params->issuer : certificate;
	bool done = certificate && X509_set_version(certificate, X509_VERSION_3) == 1 && set_serial(certificate) &&
		    set_subject(certificate, params) && set_times(certificate, params) &&
		    X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) == 1 &&
		    X509_set_pubkey(certificate, params->key) == 1 && set_usage(certificate, issuer, params->kind) &&
		    set_names(certificate, params) && X509_sign(certificate, params->issuer_key, EVP_sha256()) > 0;
	if (!done) {
		X509_free(certificate);
		certificate = NULL;
	}
	*out = certificate;
	return done ? STATUS_OK : failed(error);
}

static enum status take_text(BIO *bio, bool written, struct buffer *pem)
{
	char *text = NULL;
	long length = written ? BIO_get_mem_data(bio, &text) : 0;
	enum status status = length > 0 ? buffer_append(pem, text, (size_t)length) : STATUS_UNAVAILABLE;
	if (length > 0)
		OPENSSL_cleanse(text, (size_t)length);
	BIO_free(bio);
	ERR_clear_error();
	return status;
}

enum status certificate_print(X509 *certificate, struct buffer *pem)
{
	BIO *bio = BIO_new(BIO_s_mem());
	return take_text(bio, bio && PEM_write_bio_X509(bio, certificate), pem);
}

enum status certificate_print_key(EVP_PKEY *key, struct buffer *pem)
{
	BIO *bio = BIO_new(BIO_s_secmem());
	return take_text(bio, bio && PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL), pem);
}

// Instead of OpenSSL's own, which asks on the terminal.
static int no_password(char *password, int size, int writing, void *asked)
{
	(void)password, (void)size, (void)writing;
	if (asked)
		*(bool *)asked = true;
	return -1;
}

enum status certificate_parse(X509 **out, const char *pem, size_t length, struct error *error)
{
	BIO *bio = length <= INT_MAX ? BIO_new_mem_buf(pem, (int)length) : NULL;
	*out = bio ? PEM_read_bio_X509(bio, NULL, no_password, NULL) : NULL;
	BIO_free(bio);
	ERR_clear_error();
	return *out ? STATUS_OK : error_set(error, STATUS_INVALID_PARAMS, "there is no certificate in it");
}

enum status certificate_parse_key(EVP_PKEY **out, const char *pem, size_t length, struct error *error)
{
	bool encrypted = false;
	BIO *bio = length <= INT_MAX ? BIO_new_mem_buf(pem, (int)length) : NULL;
	*out = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_password, &encrypted) : NULL;
	BIO_free(bio);
	ERR_clear_error();
	if (*out)
		return STATUS_OK;
	error_set(error, STATUS_INVALID_PARAMS,
		  encrypted ? "the key in it is encrypted" : "there is no private key in it");
	if (encrypted)
		error_hint(error, "take the password off: openssl pkey -in FILE -out NEW, with NEW for its owner only");
	return STATUS_INVALID_PARAMS;
}

// By its name: parameters of its own could be those of a weak curve.
static bool is_p256(EVP_PKEY *key)
{
	char group[32] = "";
	size_t length;
	int explicit_parameters = 1;
	return EVP_PKEY_is_a(key, "EC") &&
	       EVP_PKEY_get_utf8_string_param(key, OSSL_PKEY_PARAM_GROUP_NAME, group, sizeof(group), &length) == 1 &&
	       !strcmp(group, SN_X9_62_prime256v1) &&
	       EVP_PKEY_get_int_param(key, OSSL_PKEY_PARAM_EC_DECODED_FROM_EXPLICIT_PARAMS, &explicit_parameters) ==
		       1 &&
	       !explicit_parameters;
}

enum status certificate_parse_request(EVP_PKEY **out, const char *pem, size_t length, struct error *error)
{
	enum status status = STATUS_OK;
	*out = NULL;
	BIO *bio = length <= INT_MAX ? BIO_new_mem_buf(pem, (int)length) : NULL;
	X509_REQ *request = bio ? PEM_read_bio_X509_REQ(bio, NULL, no_password, NULL) : NULL;
	EVP_PKEY *key = request ? X509_REQ_get0_pubkey(request) : NULL;
	if (!request)
		status = error_set(error, STATUS_INVALID_PARAMS, "this is no request for a certificate");
	else if (!key || !is_p256(key))
		status = error_set(error, STATUS_INVALID_PARAMS, "the request's key is not of EC P-256");
	else if (X509_REQ_verify(request, key) != 1)
		status = error_set(error, STATUS_INVALID_PARAMS, "the request is not signed by its own key");
	else if (EVP_PKEY_up_ref(key) == 1)
		*out = key;
	else
		status = STATUS_UNAVAILABLE;
	X509_REQ_free(request);
	BIO_free(bio);
	ERR_clear_error();
	return status;
}

static int64_t time_ms(const ASN1_TIME *time)
{
	struct tm parts;
	return ASN1_TIME_to_tm(time, &parts) == 1 ? (int64_t)timegm(&parts) * 1000 : 0;
}

// `size` holds what fits of it.
static void print_hex(const unsigned char *bytes, size_t length, char *text, size_t size)
{
	text[0] = 0;
	for (size_t i = 0; i < length && 2 * i + 2 < size; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

static bool digest_key(X509 *certificate, uint8_t digest[32])
{
	unsigned char *spki = NULL;
	int length = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &spki);
	bool done = length > 0 && EVP_Digest(spki, (size_t)length, digest, NULL, EVP_sha256(), NULL) == 1;
	OPENSSL_free(spki);
	return done;
}

void certificate_describe(X509 *certificate, struct certificate_facts *facts)
{
	const ASN1_INTEGER *serial = X509_get0_serialNumber(certificate);
	unsigned length = 0;
	uint8_t key_digest[32];
	char *subject = NULL;
	BIO *bio = BIO_new(BIO_s_mem());
	*facts = (struct certificate_facts){.not_before_ms = time_ms(X509_get0_notBefore(certificate)),
					    .not_after_ms = time_ms(X509_get0_notAfter(certificate))};
	X509_digest(certificate, EVP_sha256(), facts->digest, &length);
	print_hex(facts->digest, sizeof(facts->digest), facts->sha256, sizeof(facts->sha256));
	if (digest_key(certificate, key_digest))
		print_hex(key_digest, sizeof(key_digest), facts->key_sha256, sizeof(facts->key_sha256));
	print_hex(ASN1_STRING_get0_data(serial), (size_t)ASN1_STRING_length(serial), facts->serial,
		  sizeof(facts->serial));
	if (bio && X509_NAME_print_ex(bio, X509_get_subject_name(certificate), 0, XN_FLAG_RFC2253) >= 0) {
		long bytes = BIO_get_mem_data(bio, &subject);
		snprintf(facts->subject, sizeof(facts->subject), "%.*s", (int)bytes, bytes > 0 ? subject : "");
	}
	BIO_free(bio);
	ERR_clear_error();
}

static bool is_text(const ASN1_STRING *value, size_t size)
{
	int length = ASN1_STRING_length(value);
	const unsigned char *bytes = ASN1_STRING_get0_data(value);
	for (int i = 0; i < length; i++)
		if (bytes[i] <= ' ' || bytes[i] > '~')
			return false;
	return length > 0 && (size_t)length < size;
}

void certificate_each_name(X509 *certificate, void (*name)(void *context, const char *name), void *context)
{
	GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
	for (int i = 0; names && i < sk_GENERAL_NAME_num(names); i++) {
		int type;
		char text[256];
		const ASN1_STRING *value = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names, i), &type);
		const unsigned char *bytes = type == GEN_DNS || type == GEN_IPADD ? ASN1_STRING_get0_data(value) : NULL;
		int length = bytes ? ASN1_STRING_length(value) : 0;
		if (type == GEN_DNS && is_text(value, sizeof(text)))
			snprintf(text, sizeof(text), "%.*s", length, (const char *)bytes);
		else if (type != GEN_IPADD || (length != 4 && length != 16) ||
			 !inet_ntop(length == 4 ? AF_INET : AF_INET6, bytes, text, sizeof(text)))
			continue;
		name(context, text);
	}
	GENERAL_NAMES_free(names);
	ERR_clear_error();
}

void certificate_uri(X509 *certificate, char *uri, size_t size)
{
	GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
	uri[0] = 0;
	for (int i = 0; names && i < sk_GENERAL_NAME_num(names) && !uri[0]; i++) {
		int type;
		const ASN1_STRING *value = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names, i), &type);
		if (type == GEN_URI && is_text(value, size))
			snprintf(uri, size, "%.*s", ASN1_STRING_length(value),
				 (const char *)ASN1_STRING_get0_data(value));
	}
	GENERAL_NAMES_free(names);
	ERR_clear_error();
}

char *certificate_fingerprint(const uint8_t digest[32], char text[CERTIFICATE_FINGERPRINT_BYTES])
{
	snprintf(text, CERTIFICATE_FINGERPRINT_BYTES, "SHA256:");
	for (size_t i = 0; i < 32; i++)
		snprintf(text + 7 + 3 * i, 4, i < 31 ? "%02X:" : "%02X", digest[i]);
	return text;
}
