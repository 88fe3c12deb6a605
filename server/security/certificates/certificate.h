/* Certificates and keys: made, signed, parsed and described.
 * Everything made here is EC P-256 with SHA-256 and X.509 version 3.
 * Input comes from the operator's files or from nodes, and its caller
 * bounds it. No files, no state; OpenSSL's error queue is left empty.
 * Thread: any. */
#pragma once
#include "common/base/buffer.h"

#include <openssl/x509.h>

#define CERTIFICATE_SERVER_URI "exogpu:server:"       // and the cluster's id
#define CERTIFICATE_NODE_URI "exogpu:node:"           // and the node's id
#define CERTIFICATE_AUTHORITY_URI "exogpu:authority:" // and the cluster's id

// Errors of all that fail: STATUS_UNAVAILABLE (OpenSSL has no memory or no random numbers), unless another is named.
enum status certificate_make_key(EVP_PKEY **key, struct error *error);

enum certificate_kind { CERTIFICATE_UNKNOWN, CERTIFICATE_AUTHORITY, CERTIFICATE_SERVER, CERTIFICATE_NODE };

struct certificate_params {
	enum certificate_kind kind;
	X509 *issuer;               // NULL: it signs itself
	EVP_PKEY *issuer_key, *key; // of `key` the public half is enough
	const char *subject, *uri;  // subject: 64 characters at most are taken
	const char (*names)[256];   // (name_count) DNS names and numeric addresses
	size_t name_count;
	int64_t not_before_ms, not_after_ms;
};
enum status certificate_make(X509 **out, const struct certificate_params *params, struct error *error);

// Append as PEM.
enum status certificate_print(X509 *certificate, struct buffer *pem);
enum status certificate_print_key(EVP_PKEY *key, struct buffer *pem);

// The first certificate and key of a PEM text. Errors: STATUS_INVALID_PARAMS: there is none, or, of a key, it is
// encrypted; the message says which, without naming the text.
enum status certificate_parse(X509 **out, const char *pem, size_t length, struct error *error);
enum status certificate_parse_key(EVP_PKEY **out, const char *pem, size_t length, struct error *error);
// The public key of a request (PKCS #10, PEM). Nothing else of it is looked at but its own signature. Errors:
// STATUS_INVALID_PARAMS (no request, a signature that is wrong, or not EC P-256).
enum status certificate_parse_request(EVP_PKEY **out, const char *pem, size_t length, struct error *error);

struct certificate_facts {
	char subject[256], serial[48]; // serial: hexadecimal
	uint8_t digest[32];            // SHA-256 of the DER
	char sha256[65];               // the same as text
	char key_sha256[65];           // of its public key: SubjectPublicKeyInfo, DER
	int64_t not_before_ms, not_after_ms;
};
void certificate_describe(X509 *certificate, struct certificate_facts *facts);
// Each DNS name and address (as text) that it is good for.
void certificate_each_name(X509 *certificate, void (*name)(void *context, const char *name), void *context);
// Its first URI into uri[size], "" if it has none.
void certificate_uri(X509 *certificate, char *uri, size_t size);
// SHA256:AA:BB:…, as browsers and openssl(1) show it, into text[CERTIFICATE_FINGERPRINT_BYTES]; returns text.
enum { CERTIFICATE_FINGERPRINT_BYTES = 7 + 32 * 3 };
char *certificate_fingerprint(const uint8_t digest[32], char text[CERTIFICATE_FINGERPRINT_BYTES]);
