/* Fuzz target: what is read of a node's request for a certificate, of certificates that an operator gives, and of one
 * that the other end of a connection shows.
 *
 * The first byte says which: r, c and n, the rest is its DER, which is wrapped as PEM here (base64 would keep the
 * fuzzer from what lies inside); R, C, N and K (an operator's key), the rest is the PEM text. A request that is
 * accepted has a key of EC P-256, and a certificate can be made of it that carries just that key. */
#include "common/base/limits.h"
#include "common/net/tls/certificate.h"
#include "server/security/certificates/certificate.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static void issue(EVP_PKEY *key)
{
	static EVP_PKEY *authority_key;
	X509 *certificate;
	if (!authority_key)
		require(!certificate_make_key(&authority_key, NULL));
	const struct certificate_params params = {.kind = CERTIFICATE_NODE,
						  .issuer_key = authority_key,
						  .key = key,
						  .subject = "node",
						  .uri = CERTIFICATE_NODE_URI "node",
						  .not_after_ms = 1000};
	require(!certificate_make(&certificate, &params, NULL));
	require(EVP_PKEY_eq(X509_get0_pubkey(certificate), key) == 1);
	X509_free(certificate);
}

static void read_request(const char *pem, size_t length)
{
	EVP_PKEY *key;
	struct error error = {0};
	enum status status = certificate_parse_request(&key, pem, length, &error);
	require(!status == !error.message[0] && !status == !!key);
	if (!key)
		return;
	require(EVP_PKEY_is_a(key, "EC") && EVP_PKEY_get_bits(key) == 256);
	issue(key);
	EVP_PKEY_free(key);
}

static void read_name(void *context, const char *name)
{
	require(name[0] && strlen(name) < 256);
	for (const char *at = name; *at; at++)
		require(*at > ' ' && *at <= '~');
	++*(unsigned *)context;
}

static void read_certificate(const char *pem, size_t length)
{
	X509 *certificate;
	struct certificate_facts facts;
	char uri[64];
	unsigned names = 0;
	if (certificate_parse(&certificate, pem, length, NULL))
		return;
	certificate_describe(certificate, &facts);
	require(strlen(facts.sha256) == 64 && strlen(facts.serial) < sizeof facts.serial);
	require(strlen(facts.subject) < sizeof facts.subject);
	certificate_each_name(certificate, read_name, &names);
	certificate_uri(certificate, uri, sizeof uri);
	require(strlen(uri) < sizeof uri);
	X509_free(certificate);
}

static void read_shown(const char *pem, size_t length)
{
	struct net_certificate facts;
	uint8_t sha256[NET_SHA256_BYTES];
	char names[64];
	(void)length;
	X509 *certificate = net_certificate_read(pem);
	if (!certificate)
		return;
	net_certificate_describe(certificate, &facts);
	require(memchr(facts.uri, 0, sizeof facts.uri) && memchr(facts.serial, 0, sizeof facts.serial));
	require(net_certificate_sha256(certificate, sha256) && !memcmp(sha256, facts.sha256, sizeof sha256));
	require(!facts.uri[0] || net_certificate_has_uri(certificate, facts.uri));
	net_certificate_has_uri(certificate, CERTIFICATE_NODE_URI);
	net_certificate_is_for(certificate, "192.0.2.1");
	net_certificate_is_for(certificate, "host.example");
	net_certificate_names(certificate, names, sizeof names);
	for (const char *at = names; *at; at++)
		require(*at >= ' ' && *at <= '~');
	X509_free(certificate);
}

static void read_key(const char *pem, size_t length)
{
	EVP_PKEY *key;
	require(!certificate_parse_key(&key, pem, length, NULL) == !!key);
	EVP_PKEY_free(key);
}

static void wrap(const char *kind, const uint8_t *der, size_t size, struct buffer *pem)
{
	unsigned char line[65];
	buffer_printf(pem, "-----BEGIN %s-----\n", kind);
	for (size_t i = 0; i < size; i += 48) {
		EVP_EncodeBlock(line, der + i, size - i < 48 ? (int)(size - i) : 48);
		buffer_printf(pem, "%s\n", (const char *)line);
	}
	buffer_printf(pem, "-----END %s-----\n", kind);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buffer pem;
	if (size < 1 || size > LIMIT_CSR_BYTES)
		return 0;
	const char which = (char)data[0];
	const bool request = which == 'r' || which == 'R';
	buffer_init(&pem, 4 * LIMIT_CSR_BYTES);
	if (which == 'r' || which == 'c' || which == 'n')
		wrap(request ? "CERTIFICATE REQUEST" : "CERTIFICATE", data + 1, size - 1, &pem);
	else
		buffer_append(&pem, data + 1, size - 1);
	(request                        ? read_request
	 : which == 'K'                 ? read_key
	 : which == 'n' || which == 'N' ? read_shown
					: read_certificate)(buffer_text(&pem), pem.length);
	buffer_finish(&pem);
	return 0;
}
