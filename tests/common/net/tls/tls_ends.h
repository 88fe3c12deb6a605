/* Both ends of TLS for its tests: a listener of the cluster and one that dials it, in one loop, and a thread that
 * speaks to it with OpenSSL or a bare socket. */
#pragma once
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/net/ws/ws.h"
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
	int port, refusal; // to dial, 0: the listener's; HTTP status of upgrades, 0: they are taken
	// What happened.
	struct net_conn *at_server, *at_client;
	struct net_request request;
	size_t asked, opened, messages, answers, server_closed, client_closed, http;
	int server_code, client_code;
	enum net_failure failure;
	char fault[512], heard[64];
	struct net_frame *greeting; // what the server sends at once; NULL: nothing
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

static inline void happened(struct fixture *fixture)
{
	if (fixture->loop)
		net_loop_stop(fixture->loop);
}

static inline void on_http(void *context, const struct net_request *request, struct net_response *response)
{
	struct fixture *fixture = context;
	fixture->request = *request;
	fixture->http++;
	response->status = 404;
	happened(fixture);
}

static inline bool on_upgrade(void *context, const struct net_request *request, void **user,
			      struct net_response *response)
{
	struct fixture *fixture = context;
	fixture->asked++;
	fixture->request = *request;
	*user = fixture;
	response->status = fixture->refusal;
	return !fixture->refusal;
}

static inline void on_opened(void *user, struct net_conn *conn)
{
	struct fixture *fixture = user;
	fixture->opened++;
	fixture->at_server = conn;
	net_conn_trust(conn);
	if (fixture->greeting)
		net_conn_send(conn, fixture->greeting, 0);
	happened(fixture);
}

static inline void on_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct fixture *fixture = user;
	(void)binary;
	fixture->messages++;
	net_conn_send_text(conn, (const char *)bytes, length);
}

static inline void on_closed(void *user, struct net_conn *conn, int code)
{
	struct fixture *fixture = user;
	(void)conn;
	fixture->server_closed++;
	fixture->server_code = code;
	fixture->at_server = NULL;
	happened(fixture);
}

static inline void client_opened(void *user, struct net_conn *conn)
{
	struct fixture *fixture = user;
	fixture->at_client = conn;
	happened(fixture);
}

static inline void client_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct fixture *fixture = user;
	(void)conn, (void)binary;
	fixture->answers++;
	if (fixture->wanted)
		fixture->bad += length != LARGE_BYTES || memcmp(bytes, fixture->wanted, length) != 0;
	snprintf(fixture->heard, sizeof fixture->heard, "%.*s", length < 60 ? (int)length : 60, (const char *)bytes);
	happened(fixture);
}

static inline void client_failed(void *user, enum net_failure failure, const char *fault)
{
	struct fixture *fixture = user;
	fixture->failure = failure;
	snprintf(fixture->fault, sizeof fixture->fault, "%s", fault);
}

static inline void client_closed(void *user, struct net_conn *conn, int code)
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

static inline void show(struct fixture *fixture, enum net_tls_identity identity, const struct made *made)
{
	struct error error = {0};
	enum status status = net_tls_show(fixture->tls, identity, made->pem, made->key_pem, &error);
	if (status)
		fail_msg("net_tls_show: %s", error.message);
}

// A busy machine has not done with a handshake, or thousands before it, after the five seconds that a listener waits.
static inline int set_up(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	assert_non_null(fixture);
	assert_int_equal(setenv("EXOGPU_TEST_ARRIVAL_MS", "60000", 1), 0);
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

static inline int tear_down(void **state)
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

static inline void stop(void *arg)
{
	net_loop_stop(((struct fixture *)arg)->loop);
}

static inline void run_ms(struct fixture *fixture, int64_t ms)
{
	net_timer_start(fixture->loop, &fixture->timer, ms, stop, fixture);
	net_loop_run(fixture->loop);
	net_timer_stop(fixture->loop, &fixture->timer);
}

// Run until `*count` is `wanted`, a minute at most.
static inline void wait_for(struct fixture *fixture, const size_t *count, size_t wanted)
{
	int64_t until_ms = clock_steady_ms() + WAIT_MS;
	while (*count < wanted && clock_steady_ms() < until_ms)
		run_ms(fixture, 1000);
	assert_int_equal(*count, wanted);
}

// Dial, and wait for what comes of it. Returns whether it opened; both ends are closed again unless `stay`.
static inline bool dial_to(struct fixture *fixture, const char *host, const struct net_dial_tls *tls, bool stay)
{
	struct net_dial_params params = {.host = host,
					 .port = fixture->port ? fixture->port : net_listener_port(fixture->listener),
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

static inline bool dial(struct fixture *fixture, const struct net_dial_tls *tls)
{
	return dial_to(fixture, "127.0.0.1", tls, false);
}

static inline struct net_dial_tls of_the_cluster(const struct fixture *fixture)
{
	return (struct net_dial_tls){.authority_pem = fixture->authority.pem, .server_uri = SERVER_URI};
}

static inline void assert_fault(const struct fixture *fixture, const char *part)
{
	if (!strstr(fixture->fault, part))
		fail_msg("the fault is \"%s\", wanted: %s", fixture->fault, part);
}

// The other end in a thread, with blocking sockets.

static inline int raw_connect(const struct fixture *fixture)
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

static inline void raw_send(int fd, const void *bytes, size_t length)
{
	if (send(fd, bytes, length, MSG_NOSIGNAL) < 0)
		return; // it is closed: what is read next says so
}

// All that comes until the end, as much as fits. Returns false if no end came.
static inline bool raw_read_all(int fd, char *out, size_t room)
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

static inline void *play(void *arg)
{
	struct fixture *fixture = arg;
	fixture->script(fixture);
	net_loop_post(fixture->loop, stop, fixture);
	return NULL;
}

// Run the loop until the script is through.
static inline void perform(struct fixture *fixture, void (*script)(struct fixture *fixture))
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

static inline SSL_CTX *raw_context(int most)
{
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	SSL_CTX_set_max_proto_version(context, most);
	return context;
}

static inline SSL *raw_tls(const struct fixture *fixture, SSL_CTX *context)
{
	SSL *ssl = SSL_new(context);
	int fd = raw_connect(fixture);
	SSL_set_fd(ssl, fd);
	SSL_set_tlsext_host_name(ssl, NET_TLS_CLUSTER_NAME);
	return ssl;
}

static inline void raw_finish(SSL **ssl)
{
	close(SSL_get_fd(*ssl));
	SSL_free(*ssl);
	*ssl = NULL;
}

static inline void raw_upgrade(SSL *ssl)
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
