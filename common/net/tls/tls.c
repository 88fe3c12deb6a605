/* TLS for listeners; see tls.h. This file creates the SSL_CTX of each listener;
 * socket.c runs the handshakes. The identity is looked up for each handshake, so
 * replacing it is an assignment. OpenSSL's own verdict on a client's certificate
 * counts. Only clients keep sessions, in tickets; a client that showed a
 * certificate shows it again each time. No early data, and HTTP/1.1 only. Thread:
 * the loop's. */
#include "common/base/log.h"
#include "common/net/tls/tls_lws.h"

#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
	LISTENERS_MOST = 16,
	CHAIN_DEPTH = 3,
	TICKET_KEY_BYTES = 80, // as OpenSSL 3 has them
	TICKET_KEY_MS = 24 * 3600 * 1000,
};

struct net_tls {
	struct net_loop *loop;
	X509 *authority;
	struct net_credentials shown[NET_TLS_IDENTITIES];
	SSL_CTX *contexts[LISTENERS_MOST]; // (context_count)
	size_t context_count;
	struct net_timer new_ticket_keys;
};

static bool replace_ticket_keys(SSL_CTX *context)
{
	unsigned char keys[TICKET_KEY_BYTES];
	bool done = SSL_CTX_get_tlsext_ticket_keys(context, NULL, 0) == TICKET_KEY_BYTES &&
		    RAND_bytes(keys, sizeof keys) == 1 &&
		    SSL_CTX_set_tlsext_ticket_keys(context, keys, sizeof keys) == 1;
	OPENSSL_cleanse(keys, sizeof keys);
	return done;
}

void net_tls_replace_ticket_keys(struct net_tls *tls)
{
	for (size_t i = 0; i < tls->context_count; i++)
		if (!replace_ticket_keys(tls->contexts[i]))
			log_error("net", "the keys of session tickets could not be replaced");
}

static void on_day(void *arg)
{
	struct net_tls *tls = arg;
	net_tls_replace_ticket_keys(tls);
	net_timer_start(tls->loop, &tls->new_ticket_keys, TICKET_KEY_MS, on_day, tls);
}

enum status net_tls_create(struct net_tls **out, struct net_loop *loop, const char *authority_pem, struct error *error)
{
	enum status status = STATUS_OK;
	struct net_tls *tls = calloc(1, sizeof(*tls));
	*out = NULL;
	if (!tls)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	tls->loop = loop;
	tls->authority = net_certificate_read(authority_pem);
	if (!tls->authority || X509_check_ca(tls->authority) != 1)
		status = error_set(error, STATUS_INVALID_PARAMS, "this is not the certificate (PEM) of an authority");
	if (status) {
		X509_free(tls->authority);
		free(tls);
		return status;
	}
	net_timer_start(loop, &tls->new_ticket_keys, TICKET_KEY_MS, on_day, tls);
	*out = tls;
	return STATUS_OK;
}

// Connections may still be in their handshake, and ask for what is shown: they find nothing.
void net_tls_destroy(struct net_tls **pointer)
{
	struct net_tls *tls = *pointer;
	if (!tls)
		return;
	*pointer = NULL;
	net_timer_stop(tls->loop, &tls->new_ticket_keys);
	for (int i = 0; i < NET_TLS_IDENTITIES; i++)
		net_credentials_finish(&tls->shown[i]);
	const bool used = tls->context_count;
	while (tls->context_count)
		SSL_CTX_free(tls->contexts[--tls->context_count]); // connections have references of their own
	X509_free(tls->authority);
	tls->authority = NULL;
	if (used)
		net_loop_keep(tls->loop, tls);
	else
		free(tls);
}

enum status net_tls_show(struct net_tls *tls, enum net_tls_identity identity, const char *chain_pem,
			 const char *key_pem, struct error *error)
{
	struct net_credentials fresh;
	enum status status = net_credentials_read(&fresh, chain_pem, key_pem, error);
	if (status)
		return status;
	net_credentials_finish(&tls->shown[identity]);
	tls->shown[identity] = fresh;
	return STATUS_OK;
}

// A client that does not ask for the cluster's identity gets the public one. If there is only one, all get it.
static int choose_identity(SSL *ssl, void *arg)
{
	const struct net_tls *tls = arg;
	const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
	bool cluster = name && !strcmp(name, NET_TLS_CLUSTER_NAME);
	const struct net_credentials *wanted = &tls->shown[cluster ? NET_TLS_CLUSTER : NET_TLS_PUBLIC],
				     *other = &tls->shown[cluster ? NET_TLS_PUBLIC : NET_TLS_CLUSTER];
	return net_credentials_use(wanted->leaf ? wanted : other, ssl);
}

static int on_server_name(SSL *ssl, int *alert, void *arg)
{
	(void)ssl, (void)alert, (void)arg;
	return SSL_TLSEXT_ERR_OK;
}

static SSL_TICKET_RETURN on_ticket(SSL *ssl, SSL_SESSION *session, const unsigned char *name, size_t name_bytes,
				   SSL_TICKET_STATUS status, void *arg)
{
	(void)ssl, (void)name, (void)name_bytes, (void)arg;
	if (status != SSL_TICKET_SUCCESS && status != SSL_TICKET_SUCCESS_RENEW)
		return SSL_TICKET_RETURN_IGNORE_RENEW;
	return SSL_SESSION_get0_peer(session) ? SSL_TICKET_RETURN_IGNORE_RENEW : SSL_TICKET_RETURN_USE_RENEW;
}

// Somebody speaks plain HTTP to a port of TLS. What has come of it is read, or closing would take the answer back.
static void answer_plain_http(int fd)
{
	static const char text[] = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"
				   "content-length: 42\r\nconnection: close\r\n\r\n"
				   "This port speaks HTTPS: use https:// here\n";
	char rest[LIMIT_HTTP_HEADERS_BYTES];
	if (send(fd, text, sizeof text - 1, MSG_NOSIGNAL | MSG_DONTWAIT) > 0 &&
	    recv(fd, rest, sizeof rest, MSG_DONTWAIT) >= 0)
		shutdown(fd, SHUT_WR);
}

static void on_handshake_event(const SSL *ssl, int where, int result)
{
	if (where == SSL_CB_ACCEPT_EXIT && result <= 0 && ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_HTTP_REQUEST)
		answer_plain_http(SSL_get_fd(ssl));
}

static bool trust_authority(SSL_CTX *context, X509 *authority)
{
	X509_STORE *store = X509_STORE_new();
	bool done = store && X509_STORE_add_cert(store, authority) == 1 &&
		    SSL_CTX_set1_verify_cert_store(context, store) == 1 &&
		    SSL_CTX_add_client_CA(context, authority) == 1;
	X509_STORE_free(store);
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL); // one that shows none is let in, with none
	SSL_CTX_set_verify_depth(context, CHAIN_DEPTH);
	return done;
}

// A client that offers only others is served as one that offers none.
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *length, const unsigned char *offered,
			   unsigned offered_bytes, void *arg)
{
	static const unsigned char spoken[] = "\x08http/1.1";
	unsigned char *chosen = NULL;
	(void)ssl, (void)arg;
	if (SSL_select_next_proto(&chosen, length, spoken, sizeof spoken - 1, offered, offered_bytes) !=
	    OPENSSL_NPN_NEGOTIATED)
		return SSL_TLSEXT_ERR_NOACK;
	*out = chosen;
	return SSL_TLSEXT_ERR_OK;
}

static bool complete(struct net_tls *tls, SSL_CTX *context)
{
	static const unsigned char session_context[] = "exogpu";
	SSL_CTX_set_options(context, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
	// One record a read: else one who sends nothing but new keys would hold the thread inside SSL_read for ever.
	SSL_CTX_clear_mode(context, SSL_MODE_AUTO_RETRY);
	SSL_CTX_set_mode(context,
			 SSL_MODE_NO_AUTO_CHAIN | SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_tlsext_servername_callback(context, on_server_name);
	SSL_CTX_set_cert_cb(context, choose_identity, tls);
	SSL_CTX_set_info_callback(context, on_handshake_event);
	if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
	    SSL_CTX_set_ciphersuites(context, NET_TLS_SUITES) != 1 ||
	    SSL_CTX_set1_groups_list(context, NET_TLS_GROUPS) != 1 || SSL_CTX_set_max_early_data(context, 0) != 1 ||
	    SSL_CTX_set_session_id_context(context, session_context, sizeof session_context - 1) != 1 ||
	    SSL_CTX_set_session_ticket_cb(context, NULL, on_ticket, NULL) != 1 ||
	    !trust_authority(context, tls->authority) || !replace_ticket_keys(context))
		return false;
	return true;
}

SSL_CTX *net_tls_context(struct net_tls *tls)
{
	SSL_CTX *context = tls->context_count < LISTENERS_MOST ? SSL_CTX_new(TLS_server_method()) : NULL;
	if (!context || !complete(tls, context)) {
		SSL_CTX_free(context);
		return NULL;
	}
	return tls->contexts[tls->context_count++] = context;
}
