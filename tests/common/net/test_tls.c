/* TLS of listeners and of those that dial: who is let in and who is not, and what they are told. The other end is our
 * own, in the same loop, or a thread with OpenSSL or a bare socket. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/net/ws.h"
#include "tests/common/net/certificates.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define SERVER_URI "exogpu:server:c1"
#define SERVER_NAMES "URI:" SERVER_URI ",DNS:box.example,IP:127.0.0.1"
#define NODE_URI "exogpu:node:n1"

enum { WAIT_MS = 60000, LARGE_BYTES = 3000000 };

struct fixture {
	struct net_loop *loop;
	struct net_tls *tls;
	struct net_listener *listener;
	struct made authority, foreign, server, node;
	struct net_timer timer;
	// What happened.
	struct net_conn *at_server, *at_client;
	struct net_request request;
	size_t asked, opened, messages, answers, server_closed, client_closed, http;
	int server_code, client_code;
	char fault[512], heard[64];
	// The thread.
	pthread_t thread;
	bool running;
	void (*script)(struct fixture *fixture);
	char got[512];
	int results[8];
	bool replaced;
	size_t bad;         // messages that were not what was sent
	const char *wanted; // (LARGE_BYTES), what the client gets back; NULL: anything
};

static void happened(struct fixture *fixture)
{
	if (fixture->loop)
		net_loop_stop(fixture->loop);
}

static void on_http(void *context, const struct net_request *request, struct net_response *response)
{
	struct fixture *fixture = context;
	fixture->request = *request;
	fixture->http++;
	response->status = 404;
	happened(fixture);
}

static bool on_upgrade(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	struct fixture *fixture = context;
	(void)response;
	fixture->asked++;
	fixture->request = *request;
	*user = fixture;
	return true;
}

static void on_opened(void *user, struct net_conn *conn)
{
	struct fixture *fixture = user;
	fixture->opened++;
	fixture->at_server = conn;
	net_conn_trust(conn);
	happened(fixture);
}

static void on_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct fixture *fixture = user;
	(void)binary;
	fixture->messages++;
	net_conn_send_text(conn, (const char *)bytes, length);
}

static void on_closed(void *user, struct net_conn *conn, int code)
{
	struct fixture *fixture = user;
	(void)conn;
	fixture->server_closed++;
	fixture->server_code = code;
	fixture->at_server = NULL;
	happened(fixture);
}

static void client_opened(void *user, struct net_conn *conn)
{
	struct fixture *fixture = user;
	fixture->at_client = conn;
	happened(fixture);
}

static void client_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct fixture *fixture = user;
	(void)conn, (void)binary;
	fixture->answers++;
	if (fixture->wanted)
		fixture->bad += length != LARGE_BYTES || memcmp(bytes, fixture->wanted, length) != 0;
	snprintf(fixture->heard, sizeof fixture->heard, "%.*s", length < 60 ? (int)length : 60, (const char *)bytes);
	happened(fixture);
}

static void client_failed(void *user, const char *fault)
{
	struct fixture *fixture = user;
	snprintf(fixture->fault, sizeof fixture->fault, "%s", fault);
}

static void client_closed(void *user, struct net_conn *conn, int code)
{
	struct fixture *fixture = user;
	(void)conn;
	fixture->client_closed++;
	fixture->client_code = code;
	fixture->at_client = NULL;
	happened(fixture);
}

static const struct net_handler handler = {
	.http = on_http, .upgrade = on_upgrade, .opened = on_opened, .message = on_message, .closed = on_closed};
static const struct net_handler client_handler = {
	.opened = client_opened, .message = client_message, .failed = client_failed, .closed = client_closed};
static const char *const protocols[] = {"test", NULL};
static const struct net_header headers[] = {{NULL, NULL}};

static void show(struct fixture *fixture, enum net_tls_identity identity, const struct made *made)
{
	struct error error = {0};
	enum status status = net_tls_show(fixture->tls, identity, made->pem, made->key_pem, &error);
	if (status)
		fail_msg("net_tls_show: %s", error.message);
}

static int set_up(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	assert_non_null(fixture);
	fixture->authority = make_authority("the cluster");
	fixture->foreign = make_authority("another");
	fixture->server = make_signed(&fixture->authority, SERVER_NAMES, "serverAuth");
	fixture->node = make_signed(&fixture->authority, "URI:" NODE_URI, "clientAuth");
	assert_int_equal(net_loop_create(&fixture->loop, NULL), STATUS_OK);
	assert_int_equal(net_tls_create(&fixture->tls, fixture->loop, fixture->authority.pem, NULL), STATUS_OK);
	show(fixture, NET_TLS_CLUSTER, &fixture->server);
	struct net_listener_params params = {.address = "127.0.0.1",
					     .ping_s = 20,
					     .silence_s = 30,
					     .subprotocols = protocols,
					     .tls = fixture->tls,
					     .headers = headers,
					     .handler = &handler,
					     .context = fixture};
	assert_int_equal(net_listener_create(&fixture->listener, fixture->loop, &params, NULL), STATUS_OK);
	*state = fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;
	struct net_loop *loop = fixture->loop;
	net_listener_destroy(&fixture->listener);
	net_tls_destroy(&fixture->tls);
	fixture->loop = NULL;
	net_loop_destroy(&loop);
	if (fixture->running)
		pthread_join(fixture->thread, NULL);
	made_finish(&fixture->authority);
	made_finish(&fixture->foreign);
	made_finish(&fixture->server);
	made_finish(&fixture->node);
	free(fixture);
	return 0;
}

static void stop(void *arg)
{
	net_loop_stop(((struct fixture *)arg)->loop);
}

static void run_ms(struct fixture *fixture, int64_t ms)
{
	net_timer_start(fixture->loop, &fixture->timer, ms, stop, fixture);
	net_loop_run(fixture->loop);
	net_timer_stop(fixture->loop, &fixture->timer);
}

// Run until `*count` is `wanted`, a minute at most.
static void wait_for(struct fixture *fixture, const size_t *count, size_t wanted)
{
	int64_t until_ms = clock_steady_ms() + WAIT_MS;
	while (*count < wanted && clock_steady_ms() < until_ms)
		run_ms(fixture, 1000);
	assert_int_equal(*count, wanted);
}

// Dial, and wait for what comes of it. Returns whether it opened; both ends are closed again unless `stay`.
static bool dial_to(struct fixture *fixture, const char *host, const struct net_dial_tls *tls, bool stay)
{
	struct net_dial_params params = {.host = host,
					 .port = net_listener_port(fixture->listener),
					 .path = "/",
					 .subprotocol = "test",
					 .tls = tls,
					 .ping_s = 20,
					 .silence_s = 30,
					 .handler = &client_handler,
					 .user = fixture};
	struct error error = {0};
	size_t closed = fixture->client_closed;
	int64_t until_ms = clock_steady_ms() + WAIT_MS;
	fixture->fault[0] = 0;
	assert_null(fixture->at_client);
	if (net_dial(fixture->loop, &params, &error))
		fail_msg("net_dial: %s", error.message);
	while (!fixture->at_client && fixture->client_closed == closed && clock_steady_ms() < until_ms)
		run_ms(fixture, 1000);
	bool open = fixture->at_client != NULL;
	if (!open)
		assert_int_equal(fixture->client_closed, closed + 1);
	if (!open || stay)
		return open;
	size_t server_closed = fixture->server_closed;
	net_conn_close(fixture->at_client, 1000, "");
	wait_for(fixture, &fixture->client_closed, closed + 1);
	wait_for(fixture, &fixture->server_closed, server_closed + 1);
	return true;
}

static bool dial(struct fixture *fixture, const struct net_dial_tls *tls)
{
	return dial_to(fixture, "127.0.0.1", tls, false);
}

static struct net_dial_tls of_the_cluster(const struct fixture *fixture)
{
	return (struct net_dial_tls){.authority_pem = fixture->authority.pem, .server_uri = SERVER_URI};
}

static void assert_fault(const struct fixture *fixture, const char *part)
{
	if (!strstr(fixture->fault, part))
		fail_msg("the fault is \"%s\", wanted: %s", fixture->fault, part);
}

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
	show_for(fixture, &fixture->authority, SERVER_NAMES, "clientAuth");
	assert_false(dial(fixture, &tls));
	assert_fault(fixture, "not one for servers");
	show_for(fixture, &fixture->authority, "URI:" NODE_URI, "serverAuth");
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
}

// The other end in a thread, with blocking sockets.

static int raw_connect(const struct fixture *fixture)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons((uint16_t)net_listener_port(fixture->listener)),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct timeval patience = {.tv_sec = WAIT_MS / 1000};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

static void raw_send(int fd, const void *bytes, size_t length)
{
	if (send(fd, bytes, length, MSG_NOSIGNAL) < 0)
		return; // it is closed: what is read next says so
}

// All that comes until the end, as much as fits. Returns false if no end came.
static bool raw_read_all(int fd, char *out, size_t room)
{
	size_t used = 0;
	ssize_t got;
	do {
		got = recv(fd, out + used, room - 1 - used, 0);
		used += got > 0 ? (size_t)got : 0;
	} while (got > 0 && used < room - 1);
	out[used] = 0;
	return got == 0 || (got < 0 && errno == ECONNRESET);
}

static void *play(void *arg)
{
	struct fixture *fixture = arg;
	fixture->script(fixture);
	net_loop_post(fixture->loop, stop, fixture);
	return NULL;
}

// Run the loop until the script is through.
static void perform(struct fixture *fixture, void (*script)(struct fixture *fixture))
{
	int64_t until_ms = clock_steady_ms() + 2 * WAIT_MS;
	fixture->script = script;
	fixture->running = true;
	assert_int_equal(pthread_create(&fixture->thread, NULL, play, fixture), 0);
	while (pthread_tryjoin_np(fixture->thread, NULL) && clock_steady_ms() < until_ms)
		run_ms(fixture, 1000);
	assert_true(clock_steady_ms() < until_ms);
	fixture->running = false;
}

static SSL_CTX *raw_context(int most)
{
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	SSL_CTX_set_max_proto_version(context, most);
	return context;
}

static void connect_old(struct fixture *fixture)
{
	SSL_CTX *context = raw_context(TLS1_2_VERSION);
	SSL *ssl = SSL_new(context);
	int fd = raw_connect(fixture);
	SSL_set_fd(ssl, fd);
	fixture->results[0] = SSL_connect(ssl);
	fixture->results[1] = ERR_GET_REASON(ERR_peek_error());
	SSL_free(ssl);
	SSL_CTX_free(context);
	close(fd);
}

static void old_versions(void **state)
{
	struct fixture *fixture = *state;
	perform(fixture, connect_old);
	assert_int_not_equal(fixture->results[0], 1);
	assert_int_equal(fixture->results[1], SSL_R_TLSV1_ALERT_PROTOCOL_VERSION);
}

static void speak_plain(struct fixture *fixture)
{
	static const char request[] = "GET / HTTP/1.1\r\nHost: box\r\n\r\n";
	int fd = raw_connect(fixture);
	raw_send(fd, request, sizeof request - 1);
	fixture->results[0] = raw_read_all(fd, fixture->got, sizeof fixture->got);
	close(fd);
}

static void plain_http(void **state)
{
	struct fixture *fixture = *state;
	perform(fixture, speak_plain);
	assert_true(fixture->results[0]);
	if (strncmp(fixture->got, "HTTP/1.1 400 ", 13) != 0 || !strstr(fixture->got, "\r\n\r\nThis port speaks HTTPS"))
		fail_msg("the answer was: %s", fixture->got);
	assert_int_equal(fixture->http, 0);
}

static SSL *raw_tls(const struct fixture *fixture, SSL_CTX *context)
{
	SSL *ssl = SSL_new(context);
	int fd = raw_connect(fixture);
	SSL_set_fd(ssl, fd);
	SSL_set_tlsext_host_name(ssl, NET_TLS_CLUSTER_NAME);
	return ssl;
}

static void raw_finish(SSL **ssl)
{
	close(SSL_get_fd(*ssl));
	SSL_free(*ssl);
	*ssl = NULL;
}

static void raw_upgrade(SSL *ssl)
{
	static const char request[] = "GET / HTTP/1.1\r\nHost: box\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
				      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
				      "Sec-WebSocket-Protocol: test\r\n\r\n";
	char end[4] = "";
	SSL_write(ssl, request, sizeof request - 1);
	while (memcmp(end, "\r\n\r\n", 4) != 0) {
		memmove(end, end + 1, 3);
		if (SSL_read(ssl, end + 3, 1) != 1)
			return;
	}
}

static void send_garbage(struct fixture *fixture)
{
	char rest[256];
	uint8_t garbage[1500];
	for (size_t i = 0; i < sizeof garbage; i++)
		garbage[i] = (uint8_t)(i * 2654435761u >> 11);
	for (int first = 0; first < 256; first += 5) { // before the handshake, also as what begins like one
		int fd = raw_connect(fixture);
		garbage[0] = (uint8_t)first;
		raw_send(fd, garbage, sizeof garbage);
		fixture->results[0] += first != 22 && !raw_read_all(fd, rest, sizeof rest);
		close(fd);
	}
	SSL_CTX *context = raw_context(TLS1_3_VERSION); // in a connection
	SSL *ssl = raw_tls(fixture, context);
	fixture->results[1] = SSL_connect(ssl);
	raw_upgrade(ssl);
	raw_send(SSL_get_fd(ssl), garbage, sizeof garbage);
	fixture->results[0] += !raw_read_all(SSL_get_fd(ssl), rest, sizeof rest);
	raw_finish(&ssl);
	SSL_CTX_free(context);
}

static void garbage(void **state)
{
	struct fixture *fixture = *state;
	struct net_dial_tls tls = of_the_cluster(fixture);
	perform(fixture, send_garbage);
	assert_int_equal(fixture->results[0], 0); // none stayed open
	assert_int_equal(fixture->results[1], 1);
	wait_for(fixture, &fixture->server_closed, 1);
	assert_int_equal(fixture->opened, 1);
	assert_true(dial(fixture, &tls));
}

// One that says nothing, and one that stops in the middle of its first message: both are closed in time, and until then
// keep nobody out.
static void stay_half(struct fixture *fixture)
{
	SSL_CTX *context = raw_context(TLS1_3_VERSION);
	SSL *ssl = SSL_new(context);
	BIO *sent = BIO_new(BIO_s_mem());
	char *hello, rest[64];
	SSL_set_bio(ssl, BIO_new(BIO_s_mem()), sent);
	SSL_connect(ssl);
	size_t length = (size_t)BIO_get_mem_data(sent, &hello);
	int silent = raw_connect(fixture), half = raw_connect(fixture);
	raw_send(half, hello, length / 2);
	net_loop_post(fixture->loop, stop, fixture); // they are there
	fixture->results[0] = raw_read_all(silent, rest, sizeof rest);
	fixture->results[1] = raw_read_all(half, rest, sizeof rest);
	close(silent);
	close(half);
	SSL_free(ssl);
	SSL_CTX_free(context);
}

static void half_handshakes(void **state)
{
	struct fixture *fixture = *state;
	struct net_dial_tls tls = of_the_cluster(fixture);
	fixture->script = stay_half;
	fixture->running = true;
	assert_int_equal(pthread_create(&fixture->thread, NULL, play, fixture), 0);
	run_ms(fixture, WAIT_MS);
	for (int i = 0; i < 5; i++)
		assert_true(dial(fixture, &tls));
	assert_int_not_equal(pthread_tryjoin_np(fixture->thread, NULL), 0); // they still are
	int64_t until_ms = clock_steady_ms() + WAIT_MS;
	while (pthread_tryjoin_np(fixture->thread, NULL) && clock_steady_ms() < until_ms)
		run_ms(fixture, 1000);
	assert_true(clock_steady_ms() < until_ms);
	fixture->running = false;
	assert_true(fixture->results[0]);
	assert_true(fixture->results[1]);
}

static void fail_often(struct fixture *fixture)
{
	for (int i = 0; i < LIMIT_CONNECTIONS + 100; i++) {
		int fd = raw_connect(fixture);
		if (fd < 0)
			fixture->results[0]++;
		if (i % 3)
			raw_send(fd, "x", 1);
		close(fd);
	}
}

// Each place that a failed handshake took is given back.
static void places_given_back(void **state)
{
	struct fixture *fixture = *state;
	struct net_dial_tls tls = of_the_cluster(fixture);
	perform(fixture, fail_often);
	assert_int_equal(fixture->results[0], 0);
	assert_true(dial(fixture, &tls));
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

// Keys.

static void count_key_updates(int ours, int version, int type, const void *bytes, size_t length, SSL *ssl, void *arg)
{
	struct fixture *fixture = arg;
	const uint8_t *message = bytes; // its type, three bytes of length, whether one is asked for in return
	(void)version, (void)ssl;
	if (!ours && type == SSL3_RT_HANDSHAKE && length == 5 && message[0] == SSL3_MT_KEY_UPDATE)
		fixture->results[message[4] ? 0 : 2]++;
}

static void update_server_keys(void *arg)
{
	struct fixture *fixture = arg;
	if (fixture->at_server)
		net_conn_update_keys(fixture->at_server);
}

static void see_new_keys(struct fixture *fixture)
{
	SSL_CTX *context = raw_context(TLS1_3_VERSION);
	SSL *ssl = raw_tls(fixture, context);
	static const uint8_t hello[] = {0x81, 0x82, 0, 0, 0, 0, 'h', 'i'};
	uint8_t answer[4];
	SSL_set_msg_callback(ssl, count_key_updates);
	SSL_set_msg_callback_arg(ssl, fixture);
	SSL_connect(ssl);
	raw_upgrade(ssl);
	for (int i = 0; i < 3; i++) {
		net_loop_post(fixture->loop, update_server_keys, fixture);
		SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED);
		SSL_write(ssl, hello, sizeof hello);
		fixture->results[1] += SSL_read(ssl, answer, sizeof answer) == 4 && !memcmp(answer, "\x81\x02hi", 4);
	}
	raw_finish(&ssl);
	SSL_CTX_free(context);
}

static void new_keys(void **state)
{
	struct fixture *fixture = *state;
	struct net_dial_tls tls = of_the_cluster(fixture);
	perform(fixture, see_new_keys);
	wait_for(fixture, &fixture->server_closed, 1);
	assert_int_equal(fixture->results[1], 3);
	assert_in_range(fixture->results[0], 2, 3); // the server's own; the last may have come too late to be read
	assert_in_range(fixture->results[2], 2, 3); // and its answers to ours
	assert_true(dial_to(fixture, "127.0.0.1", &tls, true));
	char *text = malloc(LARGE_BYTES);
	assert_non_null(text);
	for (size_t i = 0; i < LARGE_BYTES; i++)
		text[i] = (char)('a' + i % 23);
	fixture->wanted = text;
	for (size_t i = 1; i <= 8; i++) { // while much is on its way in both directions
		assert_int_equal(net_conn_send_text(fixture->at_client, text, LARGE_BYTES), STATUS_OK);
		assert_int_equal(net_conn_update_keys(fixture->at_client), STATUS_OK);
		while (fixture->messages < i) {
			run_ms(fixture, 1);
			assert_int_equal(net_conn_update_keys(fixture->at_server), STATUS_OK);
		}
		assert_int_equal(net_conn_update_keys(fixture->at_server), STATUS_OK);
		wait_for(fixture, &fixture->answers, i);
	}
	assert_int_equal(fixture->bad, 0);
	net_conn_close(fixture->at_client, 1000, "");
	wait_for(fixture, &fixture->server_closed, 2);
	wait_for(fixture, &fixture->client_closed, 1);
	free(text);
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
		cmocka_unit_test_setup_teardown(old_versions, set_up, tear_down),
		cmocka_unit_test_setup_teardown(plain_http, set_up, tear_down),
		cmocka_unit_test_setup_teardown(garbage, set_up, tear_down),
		cmocka_unit_test_setup_teardown(half_handshakes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(places_given_back, set_up, tear_down),
		cmocka_unit_test_setup_teardown(sessions, set_up, tear_down),
		cmocka_unit_test_setup_teardown(identities, set_up, tear_down),
		cmocka_unit_test_setup_teardown(new_keys, set_up, tear_down),
		cmocka_unit_test_setup_teardown(nothing_to_show, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
