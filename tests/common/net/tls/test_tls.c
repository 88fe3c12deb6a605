/* TLS between our own two ends, and what OpenSSL sees of it: who is trusted and who is not, and what they are told;
 * what is shown to whom; which sessions are resumed. */
#include "tests/common/net/tls/tls_ends.h"

static void both_ways(void **state)
{
	struct fixture *fixture = *state;
	struct net_dial_tls tls = of_the_cluster(fixture);
	const uint8_t *sha256 = NULL;
	uint8_t wanted[NET_SHA256_BYTES];
	unsigned length = sizeof wanted;
	tls.chain_pem = fixture->node.pem;
	tls.key_pem = fixture->node.key_pem;
	assert_true(dial_to(fixture, "127.0.0.1", &tls, true));
	assert_true(fixture->request.tls);
	assert_string_equal(fixture->request.certificate.uri, NODE_URI);
	X509_digest(fixture->node.certificate, EVP_sha256(), wanted, &length);
	assert_memory_equal(fixture->request.certificate.sha256, wanted, sizeof wanted);
	assert_true(fixture->request.certificate.not_after_ms > clock_wall_ms() + 3000 * 1000);
	assert_true(fixture->request.certificate.not_after_ms < clock_wall_ms() + 4000 * 1000);
	char serial[NET_SERIAL_BYTES];
	snprintf(serial, sizeof serial, "%lx", ASN1_INTEGER_get(X509_get0_serialNumber(fixture->node.certificate)));
	assert_string_equal(fixture->request.certificate.serial, serial);
	X509_digest(fixture->authority.certificate, EVP_sha256(), wanted, &length);
	assert_string_equal(net_conn_authority(fixture->at_client, &sha256), fixture->authority.pem);
	assert_memory_equal(sha256, wanted, sizeof wanted);
	assert_null(net_conn_authority(fixture->at_server, &sha256));
	assert_null(sha256);
	assert_int_equal(net_conn_send_text(fixture->at_client, "hello", 5), STATUS_OK);
	wait_for(fixture, &fixture->answers, 1);
	assert_string_equal(fixture->heard, "hello");
	net_conn_close(fixture->at_server, 4401, "not you");
	wait_for(fixture, &fixture->client_closed, 1);
	wait_for(fixture, &fixture->server_closed, 1);
	assert_int_equal(fixture->client_code, 4401);
	tls.chain_pem = tls.key_pem = NULL; // none is needed
	assert_true(dial_to(fixture, "127.0.0.1", &tls, true));
	assert_true(fixture->request.tls);
	assert_string_equal(fixture->request.certificate.uri, "");
	net_conn_close(fixture->at_client, 4410, "enough");
	wait_for(fixture, &fixture->client_closed, 2);
	wait_for(fixture, &fixture->server_closed, 2);
	assert_int_equal(fixture->server_code, 4410);
}

// What a node shows that is not from the authority, or no longer, or for something else, ends the handshake.
static void clients_refused(void **state)
{
	struct fixture *fixture = *state;
	struct net_dial_tls tls = of_the_cluster(fixture);
	const struct made *authority = &fixture->authority;
	struct made bad[] = {
		make_certificate(&(struct making){
			.name = "self", .sans = "URI:" NODE_URI, .usage = "clientAuth", .from_s = -60, .to_s = 600}),
		make_signed(&fixture->foreign, "URI:" NODE_URI, "clientAuth"),
		make_certificate(&(struct making){.issuer = authority,
						  .name = "expired",
						  .sans = "URI:" NODE_URI,
						  .usage = "clientAuth",
						  .from_s = -600,
						  .to_s = -60}),
		make_certificate(&(struct making){.issuer = authority,
						  .name = "early",
						  .sans = "URI:" NODE_URI,
						  .usage = "clientAuth",
						  .from_s = 600,
						  .to_s = 900}),
		make_signed(authority, "URI:" NODE_URI, "serverAuth"),
	};
	const char *faults[] = {"another authority", "another authority", "has expired", "refuses", "refuses"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		tls.chain_pem = bad[i].pem;
		tls.key_pem = bad[i].key_pem;
		assert_false(dial(fixture, &tls));
		assert_fault(fixture, faults[i]);
		made_finish(&bad[i]);
	}
	assert_int_equal(fixture->asked, 0);
	tls.chain_pem = fixture->node.pem;
	tls.key_pem = fixture->node.key_pem;
	assert_true(dial(fixture, &tls));
}

static void show_for(struct fixture *fixture, const struct made *issuer, const char *names, const char *usage)
{
	struct made made = make_signed(issuer, names, usage);
	show(fixture, NET_TLS_CLUSTER, &made);
	made_finish(&made);
}

static void servers_refused(void **state)
{
	struct fixture *fixture = *state;
	struct net_dial_tls tls = of_the_cluster(fixture);
	const char *tail = "exogpu:server:c1x";
	tls.server_uri = "exogpu:server:c2";
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "not for exogpu:server:c2; it is for: exogpu:server:c1, box.example, 127.0.0.1");
	tls.server_uri = tail;
	assert_false(dial(fixture, &tls));
	tls.server_uri = "exogpu:server:c";
	assert_false(dial(fixture, &tls));
	tls.server_uri = "exogpu:server:";
	assert_true(dial(fixture, &tls));
	show_for(fixture, &fixture->foreign, SERVER_NAMES, "serverAuth");
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "not from this cluster's authority");
	assert_int_equal(fixture->failure, NET_FAILURE_CERTIFICATE);
	show_for(fixture, &fixture->authority, SERVER_NAMES, "clientAuth");
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "not one for servers");
	show_for(fixture, &fixture->authority, "URI:" NODE_URI, "serverAuth");
	assert_false(dial(fixture, &tls));
	show_for(fixture, &fixture->authority, "URI:exogpu:server:,URI:exogpu:servant:c1", "serverAuth");
	assert_false(dial(fixture, &tls));
	struct made expired = make_certificate(&(struct making){.issuer = &fixture->authority,
								.name = "expired",
								.sans = SERVER_NAMES,
								.usage = "serverAuth",
								.from_s = -7200,
								.to_s = -3600});
	show(fixture, NET_TLS_CLUSTER, &expired);
	made_finish(&expired);
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "expired on 20");
	assert_int_equal(fixture->asked, 1);
}

static void four_kinds_of_trust(void **state)
{
	struct fixture *fixture = *state;
	uint8_t sha256[NET_SHA256_BYTES];
	unsigned length = sizeof sha256;
	X509_digest(fixture->authority.certificate, EVP_sha256(), sha256, &length);
	struct net_dial_tls tls = {.authority_sha256 = sha256, .server_uri = SERVER_URI};
	assert_true(dial(fixture, &tls));
	sha256[31] ^= 1;
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "not from the authority that was asked for");
	X509_digest(fixture->server.certificate, EVP_sha256(), sha256, &length); // the server's own is no authority
	assert_false(dial(fixture, &tls));
	tls = (struct net_dial_tls){.any_authority = true, .server_uri = "exogpu:server:"};
	assert_true(dial_to(fixture, "127.0.0.1", &tls, true));
	assert_string_equal(net_conn_authority(fixture->at_client, NULL), fixture->authority.pem);
	net_conn_close(fixture->at_client, 1000, "");
	wait_for(fixture, &fixture->server_closed, 2);
	wait_for(fixture, &fixture->client_closed, 4);
	tls = (struct net_dial_tls){0};
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "no authority that this system trusts");
	// One that is its own authority, but not made to be one.
	struct made own = make_certificate(&(struct making){
		.name = "own", .sans = SERVER_NAMES, .usage = "serverAuth", .from_s = -60, .to_s = 600});
	show(fixture, NET_TLS_CLUSTER, &own);
	X509_digest(own.certificate, EVP_sha256(), sha256, &length);
	tls = (struct net_dial_tls){.authority_sha256 = sha256, .server_uri = SERVER_URI};
	assert_false(dial(fixture, &tls));
	tls = (struct net_dial_tls){.any_authority = true, .server_uri = SERVER_URI};
	assert_false(dial(fixture, &tls));
	made_finish(&own);
	// One that does not send its authority along.
	struct made alone = make_certificate(&(struct making){.issuer = &fixture->authority,
							      .name = "alone",
							      .sans = SERVER_NAMES,
							      .usage = "serverAuth",
							      .from_s = -60,
							      .to_s = 600});
	show(fixture, NET_TLS_CLUSTER, &alone);
	made_finish(&alone);
	tls = (struct net_dial_tls){.any_authority = true, .server_uri = SERVER_URI};
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "does not send its authority");
	tls = of_the_cluster(fixture);
	assert_true(dial(fixture, &tls));
}

static void names_and_addresses(void **state)
{
	struct fixture *fixture = *state;
	struct net_dial_tls tls = {.authority_pem = fixture->authority.pem};
	assert_true(dial(fixture, &tls));
	assert_false(dial_to(fixture, "localhost", &tls, false));
	assert_fault(fixture, "not for localhost");
	show_for(fixture, &fixture->authority, "DNS:localhost,IP:127.0.0.2", "serverAuth");
	assert_true(dial_to(fixture, "localhost", &tls, false));
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "it is for: localhost, 127.0.0.2");
	show_for(fixture, &fixture->authority, NULL, "serverAuth"); // a subject is no name
	assert_false(dial_to(fixture, "somebody", &tls, false));
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "it is for: nobody");
}

static void wrong_params(void **state)
{
	struct fixture *fixture = *state;
	struct error error = {0};
	struct net_dial_tls bad[] = {
		{.authority_pem = "not PEM"},
		{.server_uri = SERVER_URI}, // under whose authority?
		{.authority_pem = fixture->authority.pem,
		 .chain_pem = fixture->node.pem,
		 .key_pem = fixture->server.key_pem},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct net_dial_params params = {.host = "127.0.0.1",
						 .port = 1,
						 .path = "/",
						 .tls = &bad[i],
						 .handler = &client_handler,
						 .user = fixture};
		assert_int_equal(net_dial(fixture->loop, &params, &error), STATUS_INVALID_PARAMS);
	}
	assert_int_equal(fixture->client_closed, 0);
	struct net_tls *tls = NULL;
	assert_int_equal(net_tls_create(&tls, fixture->loop, fixture->node.pem, NULL), STATUS_INVALID_PARAMS);
	assert_int_equal(net_tls_create(&tls, fixture->loop, "", NULL), STATUS_INVALID_PARAMS);
	assert_null(tls);
	assert_int_equal(net_tls_show(fixture->tls, NET_TLS_PUBLIC, fixture->node.pem, fixture->server.key_pem, NULL),
			 STATUS_INVALID_PARAMS);
	assert_int_equal(net_tls_show(fixture->tls, NET_TLS_PUBLIC, "", fixture->server.key_pem, NULL),
			 STATUS_INVALID_PARAMS);
	assert_int_equal(net_tls_show(fixture->tls, NET_TLS_PUBLIC, fixture->server.pem, "", NULL),
			 STATUS_INVALID_PARAMS);
	struct made weak = make_certificate(&(struct making){
		.name = "weak", .sans = SERVER_NAMES, .usage = "serverAuth", .from_s = -60, .to_s = 600, .weak = true});
	error = (struct error){0};
	assert_int_equal(net_tls_show(fixture->tls, NET_TLS_PUBLIC, weak.pem, weak.key_pem, &error),
			 STATUS_INVALID_PARAMS);
	assert_non_null(strstr(error.message, "too small"));
	made_finish(&weak);
}

// Sessions.

static int keep_session(SSL *ssl, SSL_SESSION *session)
{
	SSL_SESSION **kept = SSL_get_app_data(ssl);
	SSL_SESSION_free(*kept);
	*kept = session;
	return 1;
}

// Connect, ask for something, and keep the session that is offered. Returns whether the last one was resumed.
static bool resume(const struct fixture *fixture, SSL_CTX *context, SSL_SESSION **session)
{
	static const char request[] = "GET / HTTP/1.1\r\nHost: box\r\nConnection: close\r\n\r\n";
	char rest[64];
	SSL *ssl = raw_tls(fixture, context);
	SSL_set_app_data(ssl, session);
	if (*session)
		SSL_set_session(ssl, *session);
	SSL_connect(ssl);
	SSL_write(ssl, request, sizeof request - 1);
	while (SSL_read(ssl, rest, sizeof rest) > 0)
		;
	bool resumed = SSL_session_reused(ssl);
	SSL_shutdown(ssl);
	raw_finish(&ssl);
	return resumed;
}

static void replace_keys(void *arg)
{
	struct fixture *fixture = arg;
	net_tls_replace_ticket_keys(fixture->tls);
	__atomic_store_n(&fixture->replaced, true, __ATOMIC_RELEASE);
}

static void resume_sessions(struct fixture *fixture)
{
	SSL_CTX *context = raw_context(TLS1_3_VERSION);
	SSL_SESSION *session = NULL;
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
	SSL_CTX_sess_set_new_cb(context, keep_session);
	fixture->results[0] = resume(fixture, context, &session);
	fixture->results[1] = resume(fixture, context, &session);
	fixture->results[2] = session ? (int)SSL_SESSION_get_max_early_data(session) : -1;
	net_loop_post(fixture->loop, replace_keys, fixture);
	while (!__atomic_load_n(&fixture->replaced, __ATOMIC_ACQUIRE))
		usleep(1000);
	fixture->results[3] = resume(fixture, context, &session);
	fixture->results[4] = resume(fixture, context, &session);
	SSL_SESSION_free(session);
	session = NULL;
	SSL_CTX_use_certificate(context, fixture->node.certificate);
	SSL_CTX_use_PrivateKey(context, fixture->node.key);
	fixture->results[5] = resume(fixture, context, &session);
	fixture->results[6] = resume(fixture, context, &session);
	SSL_SESSION_free(session);
	SSL_CTX_free(context);
}

static void sessions(void **state)
{
	struct fixture *fixture = *state;
	perform(fixture, resume_sessions);
	assert_int_equal(fixture->http, 6);
	assert_int_equal(fixture->results[0], 0);
	assert_int_equal(fixture->results[1], 1);
	assert_int_equal(fixture->results[2], 0); // early data
	assert_int_equal(fixture->results[3], 0); // the keys are others
	assert_int_equal(fixture->results[4], 1);
	assert_int_equal(fixture->results[5], 0);
	assert_int_equal(fixture->results[6], 0); // who shows a certificate shows it each time
	assert_string_equal(fixture->request.certificate.uri, NODE_URI);
}

// Identities.

// Which certificate is shown to who asks for this name. Returns its serial number.
static int serial_for(const struct fixture *fixture, const char *name, bool *ours_alone)
{
	SSL_CTX *context = raw_context(TLS1_3_VERSION);
	SSL *ssl = raw_tls(fixture, context);
	SSL_set_tlsext_host_name(ssl, name);
	int serial = -1;
	if (SSL_connect(ssl) == 1) {
		X509 *certificate = SSL_get0_peer_certificate(ssl);
		const STACK_OF(X509_NAME) *asked = SSL_get0_peer_CA_list(ssl);
		serial = (int)ASN1_INTEGER_get(X509_get0_serialNumber(certificate));
		*ours_alone = sk_X509_NAME_num(asked) == 1 &&
			      !X509_NAME_cmp(sk_X509_NAME_value(asked, 0),
					     X509_get_subject_name(fixture->authority.certificate));
	}
	raw_finish(&ssl);
	SSL_CTX_free(context);
	return serial;
}

static void look_at_identities(struct fixture *fixture)
{
	bool ours[3] = {false};
	fixture->results[0] = serial_for(fixture, NET_TLS_CLUSTER_NAME, &ours[0]);
	fixture->results[1] = serial_for(fixture, "box.example", &ours[1]);
	fixture->results[2] = serial_for(fixture, NULL, &ours[2]);
	fixture->results[3] = ours[0] && ours[1] && ours[2];
}

static int serial_of(const struct made *made)
{
	return (int)ASN1_INTEGER_get(X509_get0_serialNumber(made->certificate));
}

static void identities(void **state)
{
	struct fixture *fixture = *state;
	struct net_dial_tls tls = of_the_cluster(fixture);
	struct made public = make_signed(&fixture->foreign, "DNS:box.example", "serverAuth");
	perform(fixture, look_at_identities); // only the cluster's is there
	for (int i = 0; i < 3; i++)
		assert_int_equal(fixture->results[i], serial_of(&fixture->server));
	assert_true(fixture->results[3]);
	assert_true(dial_to(fixture, "127.0.0.1", &tls, true));
	show(fixture, NET_TLS_PUBLIC, &public);
	perform(fixture, look_at_identities);
	assert_int_equal(fixture->results[0], serial_of(&fixture->server));
	assert_int_equal(fixture->results[1], serial_of(&public));
	assert_int_equal(fixture->results[2], serial_of(&public));
	assert_true(fixture->results[3]);
	made_finish(&fixture->server);
	fixture->server = make_signed(&fixture->authority, SERVER_NAMES, "serverAuth");
	show(fixture, NET_TLS_CLUSTER, &fixture->server);
	perform(fixture, look_at_identities);
	assert_int_equal(fixture->results[0], serial_of(&fixture->server));
	assert_int_equal(fixture->results[1], serial_of(&public));
	assert_int_equal(net_conn_send_text(fixture->at_client, "still here", 10), STATUS_OK);
	wait_for(fixture, &fixture->answers, 1);
	assert_string_equal(fixture->heard, "still here");
	made_finish(&public);
}

static void *end_in_handshake(void *arg)
{
	char bytes[16];
	int fd = accept(*(int *)arg, NULL, NULL);
	for (ssize_t got = 0, now = 1; got < 100 && now > 0; got += now)
		now = read(fd, bytes, sizeof bytes);
	close(fd);
	return NULL;
}

static void assert_not_open(struct fixture *fixture, const char *fault, enum net_failure failure)
{
	const struct net_dial_tls tls = of_the_cluster(fixture);
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, fault);
	assert_int_equal(fixture->failure, failure);
}

// What may pass, and what says nothing about who is there.
static void not_now(void **state)
{
	struct fixture *fixture = *state;
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	pthread_t thread;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	for (fixture->refusal = 429; fixture->refusal; fixture->refusal = fixture->refusal == 429 ? 503 : 0)
		assert_not_open(fixture, "instead of opening a WebSocket", NET_FAILURE_PASSING);
	fixture->refusal = 404;
	assert_not_open(fixture, "the server answered 404", NET_FAILURE_OTHER);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
	assert_int_equal(pthread_create(&thread, NULL, end_in_handshake, &fd), 0);
	fixture->port = ntohs(address.sin_port);
	assert_not_open(fixture, "the TLS handshake broke off", NET_FAILURE_PASSING);
	pthread_join(thread, NULL);
	close(fd);
	assert_not_open(fixture, NET_NOTHING_ANSWERS, NET_FAILURE_ABSENT);
}

// A server that has nothing to show, or no TLS at all.
static void nothing_to_show(void **state)
{
	struct fixture *fixture = *state;
	struct net_dial_tls tls = of_the_cluster(fixture);
	struct net_listener *listener = fixture->listener;
	struct net_tls *empty = NULL;
	struct net_listener_params params = {.address = "127.0.0.1",
					     .subprotocols = protocols,
					     .headers = headers,
					     .handler = &handler,
					     .context = fixture};
	assert_int_equal(net_listener_create(&fixture->listener, fixture->loop, &params, NULL), STATUS_OK);
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "does not speak TLS");
	assert_int_equal(fixture->failure, NET_FAILURE_OTHER);
	net_listener_destroy(&fixture->listener);
	assert_int_equal(net_tls_create(&empty, fixture->loop, fixture->authority.pem, NULL), STATUS_OK);
	params.tls = empty;
	assert_int_equal(net_listener_create(&fixture->listener, fixture->loop, &params, NULL), STATUS_OK);
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "refuses the TLS handshake");
	net_listener_destroy(&fixture->listener);
	net_tls_destroy(&empty);
	fixture->listener = listener;
	assert_true(dial(fixture, &tls));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(both_ways, set_up, tear_down),
		cmocka_unit_test_setup_teardown(clients_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(servers_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(four_kinds_of_trust, set_up, tear_down),
		cmocka_unit_test_setup_teardown(names_and_addresses, set_up, tear_down),
		cmocka_unit_test_setup_teardown(wrong_params, set_up, tear_down),
		cmocka_unit_test_setup_teardown(sessions, set_up, tear_down),
		cmocka_unit_test_setup_teardown(identities, set_up, tear_down),
		cmocka_unit_test_setup_teardown(nothing_to_show, set_up, tear_down),
		cmocka_unit_test_setup_teardown(not_now, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
