/* See certificate.h. Names come from subjectAltName only, never from the subject; a name that contains a zero byte
 * does not count. */
#include "common/net/tls/certificate.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { CHAIN_MOST = 8, ADDRESS_BYTES = 64 };

// A key with a password is not asked for on the terminal.
static int no_password(char *out, int room, int writing, void *arg)
{
	(void)out, (void)room, (void)writing, (void)arg;
	return -1;
}

static X509 *next_certificate(BIO *bio)
{
	return PEM_read_bio_X509(bio, NULL, no_password, NULL);
}

X509 *net_certificate_read(const char *pem)
{
	BIO *bio = BIO_new_mem_buf(pem, -1);
	X509 *certificate = bio ? next_certificate(bio) : NULL;
	BIO_free(bio);
	ERR_clear_error();
	return certificate;
}

static enum status read_chain(struct net_credentials *out, const char *pem, struct error *error)
{
	enum status status = STATUS_OK;
	X509 *certificate = NULL;
	BIO *bio = BIO_new_mem_buf(pem, -1);
	out->chain = sk_X509_new_null();
	out->leaf = bio ? next_certificate(bio) : NULL;
	if (!bio || !out->chain)
		status = error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	else if (!out->leaf)
		status = error_set(error, STATUS_INVALID_PARAMS, "there is no certificate (PEM) in this text");
	while (!status && (certificate = next_certificate(bio))) {
		if (sk_X509_num(out->chain) < CHAIN_MOST && sk_X509_push(out->chain, certificate) > 0)
			continue;
		X509_free(certificate);
		status = error_set(error, STATUS_INVALID_PARAMS, "more than %d certificates in a chain", CHAIN_MOST);
	}
	BIO_free(bio);
	return status;
}

// Whether OpenSSL would show them: not with a key that is too short, for one.
static enum status try_out(const struct net_credentials *credentials, struct error *error)
{
	SSL_CTX *context = SSL_CTX_new(TLS_method());
	if (!context)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	bool good = SSL_CTX_use_cert_and_key(context, credentials->leaf, credentials->key, credentials->chain, 1) == 1;
	const char *reason = good ? NULL : ERR_reason_error_string(ERR_peek_last_error());
	SSL_CTX_free(context);
	return good ? STATUS_OK
		    : error_set(error, STATUS_INVALID_PARAMS, "the certificate cannot be used for TLS: %s",
				reason ? reason : "OpenSSL gives no reason");
}

enum status net_credentials_read(struct net_credentials *out, const char *chain_pem, const char *key_pem,
				 struct error *error)
{
	*out = (struct net_credentials){0};
	BIO *bio = BIO_new_mem_buf(key_pem, -1);
	enum status status = bio ? read_chain(out, chain_pem, error)
				 : error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	if (status)
		goto done;
	out->key = PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL);
	if (!out->key)
		status = error_set(error, STATUS_INVALID_PARAMS,
				   "there is no key (PEM, without a password) in this text");
	else if (X509_check_private_key(out->leaf, out->key) != 1)
		status = error_set(error, STATUS_INVALID_PARAMS, "the key does not belong to the certificate");
	else
		status = try_out(out, error);
done:
	BIO_free(bio);
	ERR_clear_error();
	if (status)
		net_credentials_finish(out);
	return status;
}

void net_credentials_finish(struct net_credentials *credentials)
{
	X509_free(credentials->leaf);
	sk_X509_pop_free(credentials->chain, X509_free);
	EVP_PKEY_free(credentials->key);
	*credentials = (struct net_credentials){0};
}

bool net_credentials_use(const struct net_credentials *credentials, SSL *ssl)
{
	return credentials->leaf &&
	       SSL_use_cert_and_key(ssl, credentials->leaf, credentials->key, credentials->chain, 1) == 1;
}

bool net_certificate_sha256(X509 *certificate, uint8_t out[NET_SHA256_BYTES])
{
	unsigned length = 0;
	return X509_digest(certificate, EVP_sha256(), out, &length) == 1 && length == NET_SHA256_BYTES;
}

// The text of a name, or NULL if it has none or one that cannot be right.
static const char *text_of(const GENERAL_NAME *name, int type)
{
	if (name->type != type)
		return NULL;
	const ASN1_IA5STRING *text = type == GEN_URI ? name->d.uniformResourceIdentifier : name->d.dNSName;
	const char *bytes = (const char *)ASN1_STRING_get0_data(text);
	return bytes && strlen(bytes) == (size_t)ASN1_STRING_length(text) ? bytes : NULL;
}

static GENERAL_NAMES *names_of(X509 *certificate)
{
	return X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
}

static int64_t time_ms(const ASN1_TIME *time)
{
	struct tm broken;
	return ASN1_TIME_to_tm(time, &broken) == 1 ? (int64_t)timegm(&broken) * 1000 : 0;
}

void net_certificate_describe(X509 *certificate, struct net_certificate *out)
{
	*out = (struct net_certificate){0};
	GENERAL_NAMES *names = names_of(certificate);
	for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
		const char *uri = text_of(sk_GENERAL_NAME_value(names, i), GEN_URI);
		if (!uri)
			continue;
		if (strlen(uri) < sizeof out->uri)
			snprintf(out->uri, sizeof out->uri, "%s", uri);
		break;
	}
	GENERAL_NAMES_free(names);
	const ASN1_INTEGER *serial = X509_get0_serialNumber(certificate);
	size_t length = (size_t)ASN1_STRING_length(serial);
	for (size_t i = 0; i < length && 2 * length < sizeof out->serial; i++)
		snprintf(out->serial + 2 * i, 3, "%02x", ASN1_STRING_get0_data(serial)[i]);
	net_certificate_sha256(certificate, out->sha256);
	out->not_after_ms = time_ms(X509_get0_notAfter(certificate));
}

bool net_certificate_has_uri(X509 *certificate, const char *uri)
{
	bool found = false, open = uri[0] && uri[strlen(uri) - 1] == ':';
	GENERAL_NAMES *names = names_of(certificate);
	for (int i = 0; i < sk_GENERAL_NAME_num(names) && !found; i++) {
		const char *has = text_of(sk_GENERAL_NAME_value(names, i), GEN_URI);
		found = has && (open ? !strncmp(has, uri, strlen(uri)) && has[strlen(uri)] : !strcmp(has, uri));
	}
	GENERAL_NAMES_free(names);
	return found;
}

bool net_is_address(const char *host)
{
	struct in6_addr address;
	return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

bool net_certificate_is_for(X509 *certificate, const char *host)
{
	if (net_is_address(host))
		return X509_check_ip_asc(certificate, host, 0) == 1;
	return X509_check_host(certificate, host, 0,
			       X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, NULL) == 1;
}

static bool address_text(const GENERAL_NAME *name, char out[ADDRESS_BYTES])
{
	if (name->type != GEN_IPADD)
		return false;
	const ASN1_OCTET_STRING *bytes = name->d.iPAddress;
	int family = ASN1_STRING_length(bytes) == 4 ? AF_INET : AF_INET6;
	return (family == AF_INET || ASN1_STRING_length(bytes) == 16) &&
	       inet_ntop(family, ASN1_STRING_get0_data(bytes), out, ADDRESS_BYTES);
}

// It may be anybody's: what is not plain text is shown as question marks.
static void make_plain(char *text)
{
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			*text = '?';
}

void net_certificate_names(X509 *certificate, char *out, size_t room)
{
	GENERAL_NAMES *names = names_of(certificate);
	size_t used = 0;
	snprintf(out, room, "nobody");
	for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
		const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
		char address[ADDRESS_BYTES];
		const char *text = name->type == GEN_URI || name->type == GEN_DNS ? text_of(name, name->type)
				   : address_text(name, address)                  ? address
										  : NULL;
		if (!text || used + strlen(text) + 3 > room)
			continue;
		used += (size_t)snprintf(out + used, room - used, "%s%s", used ? ", " : "", text);
	}
	GENERAL_NAMES_free(names);
	make_plain(out);
}
