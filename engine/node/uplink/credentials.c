/* See credentials.h. */
#include "engine/node/uplink/credentials.h"

#include "common/base/buffer.h"
#include "common/base/log.h"
#include "common/files/private_file.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 64 * 1024, PATH_BYTES = CREDENTIALS_PATH_BYTES + 32 };

static char *path_of(const struct credentials *credentials, const char *name, char path[PATH_BYTES])
{
	snprintf(path, PATH_BYTES, "%s/%s", credentials->folder, name);
	return path;
}

// ---- PEM ----

// Instead of OpenSSL's own, which asks on the terminal.
static int no_password(char *password, int size, int writing, void *context)
{
	(void)password, (void)size, (void)writing, (void)context;
	return -1;
}

static EVP_PKEY *read_key(const char *pem)
{
	BIO *bio = BIO_new_mem_buf(pem, -1);
	EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_password, NULL) : NULL;
	BIO_free(bio);
	ERR_clear_error();
	return key;
}

static X509 *read_certificate(const char *pem)
{
	BIO *bio = BIO_new_mem_buf(pem, -1);
	X509 *certificate = bio ? PEM_read_bio_X509(bio, NULL, no_password, NULL) : NULL;
	BIO_free(bio);
	ERR_clear_error();
	return certificate;
}

// The contents of a memory BIO as a text. Frees the BIO.
static char *take_text(BIO *bio, bool written)
{
	char *bytes = NULL, *text = NULL;
	long length = written ? BIO_get_mem_data(bio, &bytes) : 0;
	if (length > 0)
		text = buffer_copy_text(bytes, (size_t)length);
	BIO_free(bio);
	ERR_clear_error();
	return text;
}

static char *print_key(EVP_PKEY *key)
{
	BIO *bio = BIO_new(BIO_s_secmem());
	return take_text(bio, bio && PEM_write_bio_PKCS8PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL));
}

static void wipe(char **text)
{
	if (*text)
		OPENSSL_cleanse(*text, strlen(*text));
	free(*text);
	*text = NULL;
}

static int64_t time_ms(const ASN1_TIME *time)
{
	struct tm parts;
	return ASN1_TIME_to_tm(time, &parts) == 1 ? (int64_t)timegm(&parts) * 1000 : 0;
}

// Whether one of its URIs is this one.
static bool has_uri(X509 *certificate, const char *uri)
{
	bool found = false;
	GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
	for (int i = 0; names && i < sk_GENERAL_NAME_num(names); i++) {
		int type;
		const ASN1_STRING *value = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names, i), &type);
		found |= type == GEN_URI && (size_t)ASN1_STRING_length(value) == strlen(uri) &&
			 !memcmp(ASN1_STRING_get0_data(value), uri, strlen(uri));
	}
	GENERAL_NAMES_free(names);
	ERR_clear_error();
	return found;
}

// ---- reading ----

// NULL without a message if there is no such file.
static char *read_file(const struct credentials *credentials, const char *name, struct error *error)
{
	char path[PATH_BYTES];
	struct buffer text;
	buffer_init(&text, FILE_BYTES_MAX);
	enum status status = private_file_read(path_of(credentials, name, path), &text, error);
	char *copy = status ? NULL : strdup(buffer_text(&text));
	if (text.data)
		OPENSSL_cleanse(text.data, text.length);
	buffer_finish(&text);
	if (!status && !copy)
		error_set(error, STATUS_OUT_OF_MEMORY, "no memory for %.200s", path);
	return copy;
}

static bool read_server(struct credentials *credentials, const char *text)
{
	size_t first = strcspn(text, "\n");
	const char *second = text[first] ? text + first + 1 : "";
	size_t length = strcspn(second, "\n");
	if (!first || first >= sizeof credentials->address || !length || length >= sizeof credentials->server_uri ||
	    second[length] != '\n') // cut short
		return false;
	snprintf(credentials->address, sizeof credentials->address, "%.*s", (int)first, text);
	snprintf(credentials->server_uri, sizeof credentials->server_uri, "%.*s", (int)length, second);
	return true;
}

static void read_servers(struct credentials *credentials, const char *text)
{
	credentials->server_count = 0;
	while (*text && credentials->server_count < CREDENTIALS_SERVERS) {
		const size_t length = strcspn(text, "\n");
		if (length && length < CREDENTIALS_ADDRESS_BYTES)
			snprintf(credentials->servers[credentials->server_count++], CREDENTIALS_ADDRESS_BYTES, "%.*s",
				 (int)length, text);
		text += length + (text[length] == '\n');
	}
}

// Whether key, certificate and authority belong together; the times of the certificate, and the authority's digest.
static bool fit(struct credentials *credentials)
{
	EVP_PKEY *key = read_key(credentials->key_pem);
	X509 *certificate = read_certificate(credentials->chain_pem);
	X509 *authority = read_certificate(credentials->authority_pem);
	bool fits = key && certificate && authority && X509_check_private_key(certificate, key) == 1 &&
		    X509_verify(certificate, X509_get0_pubkey(authority)) == 1 &&
		    X509_digest(authority, EVP_sha256(), credentials->authority_sha256, NULL) == 1;
	if (fits) {
		credentials->not_before_ms = time_ms(X509_get0_notBefore(certificate));
		credentials->not_after_ms = time_ms(X509_get0_notAfter(certificate));
	}
	X509_free(authority);
	X509_free(certificate);
	EVP_PKEY_free(key);
	ERR_clear_error();
	return fits;
}

static void forget(struct credentials *credentials)
{
	wipe(&credentials->key_pem);
	free(credentials->chain_pem);
	free(credentials->authority_pem);
	credentials->chain_pem = credentials->authority_pem = NULL;
	credentials->joined = false;
}

enum status credentials_load(struct credentials *credentials, const char *folder, struct error *error)
{
	struct error fault = {0};
	*credentials = (struct credentials){0};
	if (strlen(folder) >= sizeof credentials->folder)
		return error_set(error, STATUS_INVALID_PARAMS, "the node's folder has too long a path");
	snprintf(credentials->folder, sizeof credentials->folder, "%s", folder);
	char *server = read_file(credentials, "server", &fault);
	char *pair = read_file(credentials, "node.pem", &fault);
	credentials->authority_pem = read_file(credentials, "authority.pem", &fault);
	bool complete = server && pair && credentials->authority_pem;
	if (complete && (!(credentials->chain_pem = strdup(pair)) || !(credentials->key_pem = strdup(pair))))
		error_set(&fault, STATUS_OUT_OF_MEMORY, "no memory for the node's certificate");
	bool known = server && read_server(credentials, server);
	if (complete && !fault.message[0]) {
		credentials->joined = known && fit(credentials);
		if (!credentials->joined)
			log_warning("node", "the files in %s do not belong together: this node must join again",
				    folder);
	}
	struct error none = {0}; // the one that it was last is enough
	char *servers = read_file(credentials, "servers", &none);
	read_servers(credentials, servers ? servers : "");
	free(servers);
	free(server);
	wipe(&pair);
	if (!credentials->joined)
		forget(credentials);
	if (fault.message[0])
		*error = fault;
	return fault.message[0] ? fault.status : STATUS_OK;
}

void credentials_finish(struct credentials *credentials)
{
	forget(credentials);
	*credentials = (struct credentials){0};
}

// ---- asking ----

static enum status write_file(const struct credentials *credentials, const char *name, const char *text,
			      struct error *error)
{
	char path[PATH_BYTES];
	if (mkdir(credentials->folder, 0700) && errno != EEXIST) {
		error_hint(error, "make its parent writable for this user, or give another --data");
		return error_errno(error, STATUS_UNAVAILABLE, errno, "%.200s cannot be made", credentials->folder);
	}
	return private_file_write(
		&(struct private_file){
			.path = path_of(credentials, name, path), .bytes = text, .length = strlen(text), .sync = true},
		error);
}

static char *sign_request(EVP_PKEY *key)
{
	X509_REQ *request = X509_REQ_new();
	BIO *bio = BIO_new(BIO_s_mem());
	bool made = request && bio && X509_REQ_set_version(request, X509_REQ_VERSION_1) == 1 &&
		    X509_REQ_set_pubkey(request, key) == 1 && X509_REQ_sign(request, key, EVP_sha256()) > 0 &&
		    PEM_write_bio_X509_REQ(bio, request) == 1;
	X509_REQ_free(request);
	return take_text(bio, made);
}

enum status credentials_ask(const struct credentials *credentials, bool keep, struct credentials_request *request,
			    struct error *error)
{
	struct error fault = {0};
	*request = (struct credentials_request){0};
	request->key_pem = keep ? read_file(credentials, "node.key", &fault) : NULL;
	bool kept = request->key_pem != NULL;
	EVP_PKEY *key = kept ? read_key(request->key_pem) : NULL;
	if (!key) { // none yet, or malformed
		wipe(&request->key_pem);
		kept = false;
		key = EVP_EC_gen("P-256");
		request->key_pem = key ? print_key(key) : NULL;
	}
	request->pem = key ? sign_request(key) : NULL;
	unsigned char *spki = NULL;
	int bytes = key ? i2d_PUBKEY(key, &spki) : 0;
	EVP_PKEY_free(key);
	ERR_clear_error();
	request->spki = spki;
	request->spki_bytes = bytes > 0 ? (size_t)bytes : 0;
	enum status status = STATUS_OK;
	if (!request->key_pem || !request->pem || bytes <= 0)
		status = error_set(error, STATUS_UNAVAILABLE, "no key can be made for this node");
	else if (keep && !kept)
		status = write_file(credentials, "node.key", request->key_pem, error);
	if (status)
		credentials_request_finish(request);
	return status;
}

void credentials_request_finish(struct credentials_request *request)
{
	wipe(&request->key_pem);
	free(request->pem);
	OPENSSL_free(request->spki);
	*request = (struct credentials_request){0};
}

// ---- taking ----

static enum status wrong(struct error *error, const char *what)
{
	error_set(error, STATUS_INVALID_PARAMS, "the certificate from the server cannot be used: %s", what);
	error_hint(error,
		   "this is not the server that this node first met, or the server is faulty; nothing was stored");
	return STATUS_INVALID_PARAMS;
}

static enum status check_grant(const struct credentials_grant *grant, struct error *error)
{
	char uri[NET_CERTIFICATE_URI_BYTES];
	uint8_t digest[NET_SHA256_BYTES];
	EVP_PKEY *key = read_key(grant->key_pem);
	X509 *certificate = read_certificate(grant->certificate), *authority = read_certificate(grant->authority);
	snprintf(uri, sizeof uri, "exogpu:node:%s", grant->node_id);
	enum status status = STATUS_OK;
	if (!certificate || !authority || !key)
		status = wrong(error, "it holds no certificate");
	else if (grant->authority_sha256 && (X509_digest(authority, EVP_sha256(), digest, NULL) != 1 ||
					     memcmp(digest, grant->authority_sha256, sizeof digest) != 0))
		status = wrong(error, "its authority is not the one first met");
	else if (X509_verify(certificate, X509_get0_pubkey(authority)) != 1)
		status = wrong(error, "the certificate was not issued by its authority");
	else if (X509_check_private_key(certificate, key) != 1)
		status = wrong(error, "the certificate is for another key");
	else if (!has_uri(certificate, uri))
		status = wrong(error, "the certificate is for another node");
	else if (strncmp(grant->server_uri, "exogpu:server:", 14) != 0 || strchr(grant->server_uri, '\n') ||
		 strlen(grant->server_uri) >= sizeof uri)
		status = wrong(error, "it does not say which server it is");
	X509_free(authority);
	X509_free(certificate);
	EVP_PKEY_free(key);
	ERR_clear_error();
	return status;
}

static enum status write_server(const struct credentials *credentials, const char *address, const char *uri,
				struct error *error)
{
	char text[CREDENTIALS_ADDRESS_BYTES + NET_CERTIFICATE_URI_BYTES + 4];
	snprintf(text, sizeof text, "%s\n%s\n", address, uri);
	return write_file(credentials, "server", text, error);
}

enum status credentials_take(struct credentials *credentials, const struct credentials_grant *grant,
			     struct error *error)
{
	char folder[CREDENTIALS_PATH_BYTES], path[PATH_BYTES];
	struct buffer pair;
	enum status status = check_grant(grant, error);
	if (status)
		return status;
	buffer_init(&pair, FILE_BYTES_MAX);
	buffer_printf(&pair, "%s%s", grant->certificate, grant->key_pem);
	if (pair.failed)
		status = error_set(error, STATUS_INVALID_PARAMS, "the granted certificate is too long");
	if (!status)
		status = write_file(credentials, "authority.pem", grant->authority, error);
	if (!status)
		status = write_server(credentials, grant->address, grant->server_uri, error);
	if (!status) // from here on it has joined
		status = write_file(credentials, "node.pem", buffer_text(&pair), error);
	if (pair.data)
		OPENSSL_cleanse(pair.data, pair.length);
	buffer_finish(&pair);
	if (status)
		return status;
	unlink(path_of(credentials, "node.key", path));
	memcpy(folder, credentials->folder, sizeof folder);
	credentials_finish(credentials);
	status = credentials_load(credentials, folder, error);
	if (!status && !credentials->joined)
		status = error_set(error, STATUS_UNAVAILABLE, "files that were just written to %.200s cannot be read",
				   folder);
	return status;
}

enum status credentials_move(struct credentials *credentials, const char *address, struct error *error)
{
	enum status status = write_server(credentials, address, credentials->server_uri, error);
	if (!status)
		snprintf(credentials->address, sizeof credentials->address, "%s", address);
	return status;
}

enum status credentials_keep_servers(struct credentials *credentials, const char *const *addresses, size_t count,
				     struct error *error)
{
	char text[CREDENTIALS_SERVERS * (CREDENTIALS_ADDRESS_BYTES + 1)] = "";
	size_t length = 0;
	bool same = true;
	for (size_t i = 0, kept = 0; i < count && kept < CREDENTIALS_SERVERS; i++) {
		if (!addresses[i][0] || strlen(addresses[i]) >= CREDENTIALS_ADDRESS_BYTES || strchr(addresses[i], '\n'))
			continue;
		same = same && kept < credentials->server_count && !strcmp(credentials->servers[kept], addresses[i]);
		length += (size_t)snprintf(text + length, sizeof text - length, "%s\n", addresses[i]);
		kept++;
	}
	const size_t before = credentials->server_count;
	read_servers(credentials, text);
	same = same && before == credentials->server_count;
	return same ? STATUS_OK : write_file(credentials, "servers", text, error);
}

void credentials_drop(struct credentials *credentials)
{
	char path[PATH_BYTES], aside[PATH_BYTES];
	if (rename(path_of(credentials, "node.pem", path), path_of(credentials, "node.pem.removed", aside)))
		log_error("node", "%s cannot be set aside: %s", path, strerror(errno));
	forget(credentials);
}
