/* TLS for dialled connections; see tls.h. All of them share one vhost of libwebsockets with
 * one SSL_CTX. What differs (whom each trusts, what it shows) belongs to the connection and is
 * set when its handshake begins. The chain and the names are verified here, against a store
 * with only what this connection trusts. Sessions are never resumed, so every connection sees
 * its server's certificate. Errors are put into words where they are found. Thread: the
 * loop's. */
#include "common/base/buffer.h"
#include "common/base/list.h"
#include "common/net/tls/tls_lws.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HOST_BYTES = 256, FAULT_BYTES = 512, CHAIN_DEPTH = 8 };

struct net_dialler {
	SSL_CTX *context;
	struct lws_vhost *vhost;
	X509_STORE *system; // the system's authorities, once somebody asked for them
	struct net_dialled *first;
};

enum trust { TRUST_SYSTEM, TRUST_CERTIFICATE, TRUST_SHA256, TRUST_ANY };

struct net_dialled {
	struct net_dialled *next, **at; // in the dialler's list
	struct net_dialler *dialler;
	struct lws *const *wsi;
	SSL *ssl; // ours too, once the handshake began
	enum trust trust;
	X509 *authority; // TRUST_CERTIFICATE
	uint8_t wanted_sha256[NET_SHA256_BYTES];
	char *server_uri; // NULL: host is what counts
	char host[HOST_BYTES];
	struct net_credentials shown;
	bool done;     // the handshake
	bool distrust; // its certificate was seen and is not taken
	// What came of it.
	char *authority_pem; // NULL until it was verified
	uint8_t authority_sha256[NET_SHA256_BYTES];
	char fault[FAULT_BYTES];
};

static void time_text(const ASN1_TIME *time, char *out, size_t room)
{
	struct tm broken;
	if (ASN1_TIME_to_tm(time, &broken) != 1 || !strftime(out, room, "%Y-%m-%d %H:%M UTC", &broken))
		snprintf(out, room, "a time that cannot be read");
}

static void explain_chain(struct net_dialled *dialled, X509_STORE_CTX *verified)
{
	static const char *const not_from[] = {
		[TRUST_SYSTEM] = "is from no authority that this system trusts",
		[TRUST_CERTIFICATE] = "is not from this cluster's authority",
		[TRUST_SHA256] = "is not from the authority that was asked for",
		[TRUST_ANY] = "is not from the authority that it sends along",
	};
	char when[40];
	int fault = X509_STORE_CTX_get_error(verified), depth = X509_STORE_CTX_get_error_depth(verified);
	X509 *certificate = X509_STORE_CTX_get_current_cert(verified);
	const char *whose = depth ? "the certificate of an authority behind the server's" : "the server's certificate";
	switch (fault) {
	case X509_V_ERR_CERT_HAS_EXPIRED:
		time_text(X509_get0_notAfter(certificate), when, sizeof when);
		snprintf(dialled->fault, sizeof dialled->fault, "%s expired on %s", whose, when);
		break;
	case X509_V_ERR_CERT_NOT_YET_VALID:
		time_text(X509_get0_notBefore(certificate), when, sizeof when);
		snprintf(dialled->fault, sizeof dialled->fault, "%s is valid from %s on: is a clock wrong?", whose,
			 when);
		break;
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
	case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
	case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
	case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
	case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
	case X509_V_ERR_CERT_SIGNATURE_FAILURE:
		snprintf(dialled->fault, sizeof dialled->fault, "the server's certificate %s",
			 not_from[dialled->trust]);
		break;
	case X509_V_ERR_INVALID_PURPOSE:
		snprintf(dialled->fault, sizeof dialled->fault, "%s is not one for servers", whose);
		break;
	default: // OpenSSL has about a hundred
		snprintf(dialled->fault, sizeof dialled->fault, "%s does not verify: %s", whose,
			 X509_verify_cert_error_string(fault));
	}
}

static bool fault(struct net_dialled *dialled, const char *text)
{
	snprintf(dialled->fault, sizeof dialled->fault, "%s", text);
	return false;
}

// Whose certificate is to be the root, of those that the server sends. NULL: it does not send it.
static X509 *find_authority(const struct net_dialled *dialled, STACK_OF(X509) * sent)
{
	uint8_t sha256[NET_SHA256_BYTES];
	for (int i = sk_X509_num(sent) - 1; i >= 0; i--) {
		X509 *certificate = sk_X509_value(sent, i);
		if (X509_check_ca(certificate) != 1 || !net_certificate_sha256(certificate, sha256))
			continue;
		if (dialled->trust == TRUST_ANY ? X509_self_signed(certificate, 1) == 1
						: !memcmp(sha256, dialled->wanted_sha256, sizeof sha256))
			return certificate;
	}
	return NULL;
}

static X509_STORE *system_store(struct net_dialler *dialler)
{
	if (dialler->system)
		return dialler->system;
	dialler->system = X509_STORE_new();
	if (dialler->system && X509_STORE_set_default_paths(dialler->system) != 1)
		ERR_clear_error(); // none on this system: nothing verifies
	return dialler->system;
}

// Returns a reference. NULL: the fault is told.
static X509_STORE *store_for(struct net_dialled *dialled, STACK_OF(X509) * sent)
{
	X509 *root = dialled->authority;
	X509_STORE *store = dialled->trust == TRUST_SYSTEM ? system_store(dialled->dialler) : X509_STORE_new();
	if (!store || (dialled->trust == TRUST_SYSTEM && X509_STORE_up_ref(store) != 1)) {
		fault(dialled, "out of memory");
		return NULL;
	}
	if (dialled->trust == TRUST_SYSTEM)
		return store;
	if (dialled->trust != TRUST_CERTIFICATE)
		root = find_authority(dialled, sent);
	if (root && X509_STORE_add_cert(store, root) == 1)
		return store;
	fault(dialled, dialled->trust == TRUST_ANY
			       ? "the server does not send its authority's certificate along"
			       : "the server's certificate is not from the authority that was asked for");
	X509_STORE_free(store);
	return NULL;
}

// The root of the verified chain is what net_conn_authority tells.
static bool keep_authority(struct net_dialled *dialled, X509_STORE_CTX *verified)
{
	STACK_OF(X509) *chain = X509_STORE_CTX_get0_chain(verified);
	X509 *root = sk_X509_value(chain, sk_X509_num(chain) - 1);
	BIO *bio = BIO_new(BIO_s_mem());
	char *bytes = NULL;
	long length = bio && root && PEM_write_bio_X509(bio, root) == 1 ? BIO_get_mem_data(bio, &bytes) : 0;
	free(dialled->authority_pem);
	dialled->authority_pem = length > 0 ? buffer_copy_text(bytes, (size_t)length) : NULL;
	BIO_free(bio);
	return dialled->authority_pem && net_certificate_sha256(root, dialled->authority_sha256);
}

static bool is_for_us(struct net_dialled *dialled, X509 *leaf)
{
	char names[160];
	if (dialled->server_uri ? net_certificate_has_uri(leaf, dialled->server_uri)
				: net_certificate_is_for(leaf, dialled->host))
		return true;
	net_certificate_names(leaf, names, sizeof names);
	snprintf(dialled->fault, sizeof dialled->fault, "the server's certificate is not for %s; it is for: %s",
		 dialled->server_uri ? dialled->server_uri : dialled->host, names);
	return false;
}

static bool verify_chain(struct net_dialled *dialled, X509 *leaf, STACK_OF(X509) * sent)
{
	X509_STORE *store = leaf ? store_for(dialled, sent) : NULL;
	X509_STORE_CTX *verifying = store ? X509_STORE_CTX_new() : NULL;
	bool good = verifying && X509_STORE_CTX_init(verifying, store, leaf, sent) == 1 &&
		    X509_STORE_CTX_set_default(verifying, "ssl_server") == 1;
	if (!good && store)
		fault(dialled, "out of memory");
	if (good) {
		X509_VERIFY_PARAM_set_depth(X509_STORE_CTX_get0_param(verifying), CHAIN_DEPTH);
		good = X509_verify_cert(verifying) == 1;
		if (!good)
			explain_chain(dialled, verifying);
	}
	if (good)
		good = is_for_us(dialled, leaf) &&
		       (keep_authority(dialled, verifying) || fault(dialled, "out of memory"));
	X509_STORE_CTX_free(verifying);
	X509_STORE_free(store);
	return good;
}

// In place of OpenSSL's verification, and of what libwebsockets would make of it.
static int on_verify(X509_STORE_CTX *asked, void *arg)
{
	(void)arg;
	SSL *ssl = X509_STORE_CTX_get_ex_data(asked, SSL_get_ex_data_X509_STORE_CTX_idx());
	struct net_dialled *dialled = ssl ? SSL_get_app_data(ssl) : NULL;
	bool good = dialled &&
		    verify_chain(dialled, X509_STORE_CTX_get0_cert(asked), X509_STORE_CTX_get0_untrusted(asked));
	if (dialled)
		dialled->distrust = !good;
	X509_STORE_CTX_set_error(asked, good ? X509_V_OK : X509_V_ERR_APPLICATION_VERIFICATION);
	return good;
}

// libwebsockets has made the SSL of a connection that it knows by its own name for it.
static void begin(struct net_dialler *dialler, SSL *ssl)
{
	struct net_dialled *dialled = dialler->first;
	while (dialled && (dialled->ssl || !*dialled->wsi || lws_get_ssl(*dialled->wsi) != ssl))
		dialled = dialled->next;
	if (!dialled || SSL_up_ref(ssl) != 1)
		return; // it is nobody's: on_verify refuses it
	dialled->ssl = ssl;
	SSL_set_app_data(ssl, dialled);
	SSL_set_session(ssl, NULL);
	const char *name = dialled->server_uri             ? NET_TLS_CLUSTER_NAME
			   : net_is_address(dialled->host) ? NULL
							   : dialled->host;
	SSL_set_tlsext_host_name(ssl, name);
	if (dialled->shown.leaf && !net_credentials_use(&dialled->shown, ssl))
		fault(dialled, "our own certificate cannot be shown");
}

static void explain_alert(struct net_dialled *dialled, int alert)
{
	switch (alert) {
	case SSL_AD_CLOSE_NOTIFY:
		break;
	case SSL_AD_PROTOCOL_VERSION:
		fault(dialled, "the server does not speak TLS 1.3");
		break;
	case SSL_AD_CERTIFICATE_EXPIRED:
		fault(dialled, "the server says that our certificate has expired");
		break;
	case SSL_AD_UNKNOWN_CA:
		fault(dialled, "the server says that our certificate is from another authority");
		break;
	default: // a byte from outside
		snprintf(dialled->fault, sizeof dialled->fault, "the server refuses the TLS handshake: %s",
			 SSL_alert_desc_string_long(alert));
	}
}

static void explain_failure(struct net_dialled *dialled)
{
	switch (ERR_GET_REASON(ERR_peek_last_error())) {
	case SSL_R_WRONG_VERSION_NUMBER:
	case SSL_R_PACKET_LENGTH_TOO_LONG:
	case SSL_R_RECORD_LENGTH_MISMATCH:
		fault(dialled, "what listens there does not speak TLS: is it plain HTTP?");
		break;
	case SSL_R_UNSUPPORTED_PROTOCOL:
		fault(dialled, "the server does not speak TLS 1.3");
		break;
	}
}

static void on_handshake_event(const SSL *ssl, int where, int result)
{
	struct net_dialler *dialler = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
	struct net_dialled *dialled = SSL_get_app_data(ssl);
	if (where == SSL_CB_HANDSHAKE_START && !dialled)
		begin(dialler, (SSL *)ssl);
	else if (!dialled || dialled->fault[0])
		return; // the first one counts
	else if (where == SSL_CB_READ_ALERT)
		explain_alert(dialled, result & 0xff);
	else if (where == SSL_CB_HANDSHAKE_DONE)
		dialled->done = true;
	else if (where == SSL_CB_CONNECT_EXIT && result <= 0)
		explain_failure(dialled);
}

static enum status dialler_create(struct net_dialler **out, struct net_loop *loop, struct error *error)
{
	static const struct lws_protocols protocols[] = {
		{.name = "client", .callback = net_ws_callback, .rx_buffer_size = 65536}, {0}};
	enum status status = STATUS_OK;
	*out = NULL;
	struct net_dialler *dialler = calloc(1, sizeof(*dialler));
	SSL_CTX *context = dialler ? SSL_CTX_new(TLS_client_method()) : NULL;
	if (!context || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
	    SSL_CTX_set_ciphersuites(context, NET_TLS_SUITES) != 1 ||
	    SSL_CTX_set1_groups_list(context, NET_TLS_GROUPS) != 1) {
		SSL_CTX_free(context);
		free(dialler);
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	}
	dialler->context = context;
	SSL_CTX_set_app_data(context, dialler);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_cert_verify_callback(context, on_verify, NULL);
	SSL_CTX_set_info_callback(context, on_handshake_event);
	SSL_CTX_set_mode(context, SSL_MODE_NO_AUTO_CHAIN);
	struct lws_context_creation_info info = {
		.port = CONTEXT_PORT_NO_LISTEN,
		.options = LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT,
		.vhost_name = "dial",
		.http_proxy_address = NET_NO_PROXY,
		.protocols = protocols,
		.provided_client_ssl_ctx = context,
		.alpn = "http/1.1",
	};
	dialler->vhost = lws_create_vhost(net_loop_context(loop), &info);
	if (!dialler->vhost) {
		status = error_set(error, STATUS_INTERNAL, "libwebsockets makes no vhost");
		net_dialler_destroy(&dialler);
	}
	*out = dialler;
	return status;
}

void net_dialler_destroy(struct net_dialler **pointer)
{
	struct net_dialler *dialler = *pointer;
	if (!dialler)
		return;
	*pointer = NULL;
	X509_STORE_free(dialler->system);
	SSL_CTX_free(dialler->context);
	free(dialler);
}

static enum status take_trust(struct net_dialled *dialled, const struct net_dialled_params *params, struct error *error)
{
	const struct net_dial_tls *tls = params->tls;
	dialled->trust = tls->authority_pem      ? TRUST_CERTIFICATE
			 : tls->authority_sha256 ? TRUST_SHA256
			 : tls->any_authority    ? TRUST_ANY
						 : TRUST_SYSTEM;
	if (tls->authority_sha256)
		memcpy(dialled->wanted_sha256, tls->authority_sha256, sizeof dialled->wanted_sha256);
	if (tls->authority_pem && !(dialled->authority = net_certificate_read(tls->authority_pem)))
		return error_set(error, STATUS_INVALID_PARAMS, "the authority's certificate (PEM) cannot be read");
	if (strlen(params->host) >= sizeof dialled->host)
		return error_set(error, STATUS_INVALID_PARAMS, "the host's name is too long");
	snprintf(dialled->host, sizeof dialled->host, "%s", params->host);
	if (tls->server_uri && dialled->trust == TRUST_SYSTEM) // any of its authorities could certify any URI
		return error_set(error, STATUS_INVALID_PARAMS,
				 "a server's URI counts only under a cluster's authority");
	if (tls->server_uri && !(dialled->server_uri = strdup(tls->server_uri)))
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	return STATUS_OK;
}

enum status net_dialled_create(struct net_dialled **out, const struct net_dialled_params *params, struct error *error)
{
	struct net_dialler **dialler = net_loop_dialler(params->loop);
	*out = NULL;
	enum status status = *dialler ? STATUS_OK : dialler_create(dialler, params->loop, error);
	if (status)
		return status;
	struct net_dialled *dialled = calloc(1, sizeof(*dialled));
	if (!dialled)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	dialled->dialler = *dialler;
	dialled->wsi = params->wsi;
	LIST_PUSH(&dialled->dialler->first, dialled, at);
	status = take_trust(dialled, params, error);
	if (!status && params->tls->chain_pem)
		status = net_credentials_read(&dialled->shown, params->tls->chain_pem, params->tls->key_pem, error);
	if (status)
		net_dialled_destroy(&dialled);
	*out = dialled;
	return status;
}

void net_dialled_destroy(struct net_dialled **pointer)
{
	struct net_dialled *dialled = *pointer;
	if (!dialled)
		return;
	*pointer = NULL;
	LIST_REMOVE(dialled, at);
	if (dialled->ssl)
		SSL_set_app_data(dialled->ssl, NULL);
	SSL_free(dialled->ssl);
	X509_free(dialled->authority);
	net_credentials_finish(&dialled->shown);
	free(dialled->server_uri);
	free(dialled->authority_pem);
	free(dialled);
}

struct lws_vhost *net_dialled_vhost(const struct net_dialled *dialled)
{
	return dialled->dialler->vhost;
}

const char *net_dialled_authority(const struct net_dialled *dialled, const uint8_t **sha256)
{
	if (sha256)
		*sha256 = dialled->authority_pem ? dialled->authority_sha256 : NULL;
	return dialled->authority_pem;
}

const char *net_dialled_fault(const struct net_dialled *dialled, enum net_failure *failure)
{
	*failure = dialled->distrust ? NET_FAILURE_CERTIFICATE : NET_FAILURE_OTHER;
	if (dialled->fault[0])
		return dialled->fault;
	*failure = dialled->ssl && !dialled->done ? NET_FAILURE_PASSING : NET_FAILURE_ABSENT;
	return *failure == NET_FAILURE_PASSING ? "the TLS handshake broke off" : "";
}
