/* Connections between nodes: two ends of ours in one loop, over 127.0.0.1, and strangers at one of them: bare sockets,
 * and OpenSSL with certificates that must not be taken. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/net/peer.h"
#include "tests/common/net/certificates.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WAIT_MS = 60000, SMALL = 1000, ECHOES = 2000 };

struct end {
	struct fixture *fixture;
	struct net_peer *peer;
	struct net_certificate certificate;
	size_t opened, messages, drained, closed, wrong;
	size_t head_bytes, body_bytes; // of the last message
	char why[300];
	bool echo, drop, trusts;
};

struct fixture {
	struct net_loop *loop;
	struct made authority, foreign, node;
	struct net_peer_tls *tls;
	struct net_peer_listener *listener;
	struct end here, there; // there: that was accepted, the latest
	size_t accepted;
	bool refuse;
	struct net_peer *crowd[LIMIT_PEERS_NOT_OPEN + 1]; // (accepted), where they are kept
	bool keeps;
	bool (*enough)(struct fixture *fixture);
	struct net_timer look;
	int64_t until_ms;
	bool seen;
	// A thread that is somebody else.
	pthread_t thread;
	void (*script)(struct fixture *fixture);
	int fd, result;
	const struct made *shows;
	char heard[256];
};

// ---- the loop ----

static void on_look(void *arg)
{
	struct fixture *fixture = arg;
	fixture->seen = fixture->enough && fixture->enough(fixture);
	if (fixture->seen || clock_steady_ms() > fixture->until_ms)
		net_loop_stop(fixture->loop);
	else
		net_timer_start(fixture->loop, &fixture->look, 1, on_look, fixture);
}

static void run(struct fixture *fixture, bool (*enough)(struct fixture *fixture), int64_t ms)
{
	fixture->enough = enough;
	fixture->until_ms = clock_steady_ms() + ms;
	net_timer_start(fixture->loop, &fixture->look, 0, on_look, fixture);
	net_loop_run(fixture->loop);
}

static void wait_until(struct fixture *fixture, bool (*enough)(struct fixture *fixture))
{
	run(fixture, enough, WAIT_MS);
	assert_true(fixture->seen);
}

// ---- the ends ----

static void on_opened(void *user, struct net_peer *peer, const struct net_certificate *certificate)
{
	struct end *end = user;
	end->opened++;
	end->certificate = *certificate;
	if (end->trusts)
		net_peer_trust(peer);
}

// A head tells its message's number; a body is that number's lowest byte.
static void on_message(void *user, struct net_peer *peer, const uint8_t *head, size_t head_bytes,
		       struct net_frame *body)
{
	struct end *end = user;
	char text[32] = "";
	if (end->drop) {
		net_peer_destroy(&end->peer);
		return;
	}
	memcpy(text, head, head_bytes < sizeof text ? head_bytes : sizeof text - 1);
	end->head_bytes = head_bytes;
	end->body_bytes = body ? net_frame_bytes(body) : 0;
	end->wrong += strtoul(text, NULL, 10) != end->messages;
	for (size_t i = 0; i < end->body_bytes; i += 997)
		end->wrong += net_frame_data(body)[i] != (uint8_t)end->messages;
	end->messages++;
	if (end->echo)
		assert_int_equal(net_peer_send(peer, head, head_bytes, body, body ? net_frame_data(body) : NULL,
					       end->body_bytes),
				 STATUS_OK);
}

static void on_drained(void *user, struct net_peer *peer)
{
	(void)peer;
	((struct end *)user)->drained++;
}

static void on_closed(void *user, struct net_peer *peer, const char *why)
{
	struct end *end = user;
	(void)peer;
	end->closed++;
	end->peer = NULL;
	snprintf(end->why, sizeof end->why, "%s", why);
}

static const struct net_peer_handler handler = {
	.opened = on_opened, .message = on_message, .drained = on_drained, .closed = on_closed};

static void *on_accepted(void *context, struct net_peer *peer)
{
	struct fixture *fixture = context;
	fixture->accepted++;
	if (fixture->refuse)
		return NULL;
	if (fixture->keeps) {
		assert_true(fixture->accepted <= LIMIT_PEERS_NOT_OPEN);
		fixture->crowd[fixture->accepted - 1] = peer;
		return &fixture->there;
	}
	net_peer_destroy(&fixture->there.peer);
	fixture->there.peer = peer;
	return &fixture->there;
}

static void show(struct fixture *fixture, const struct made *made)
{
	struct error error = {0};
	if (net_peer_tls_show(fixture->tls, made->pem, made->key_pem, &error))
		fail_msg("%s", error.message);
}

static void dial(struct fixture *fixture, const char *address, int port)
{
	const struct net_peer_dial_params params = {
		.tls = fixture->tls, .address = address, .port = port, .handler = &handler, .user = &fixture->here};
	assert_int_equal(net_peer_dial(&fixture->here.peer, fixture->loop, &params, NULL), STATUS_OK);
}

static int begin(void **state)
{
	struct fixture *fixture = calloc(1, sizeof *fixture);
	struct error error = {0};
	signal(SIGPIPE, SIG_IGN);
	*state = fixture;
	fixture->here = fixture->there = (struct end){.fixture = fixture, .trusts = true};
	fixture->fd = -1;
	assert_int_equal(net_loop_create(&fixture->loop, NULL), STATUS_OK);
	fixture->authority = make_authority("this cluster");
	fixture->foreign = make_authority("another cluster");
	fixture->node = make_signed(&fixture->authority, "URI:exogpu:node:n1", "clientAuth,serverAuth");
	assert_int_equal(net_peer_tls_create(&fixture->tls, fixture->authority.pem, &error), STATUS_OK);
	show(fixture, &fixture->node);
	const struct net_peer_listen_params params = {.tls = fixture->tls,
						      .address = "127.0.0.1",
						      .handler = &handler,
						      .accepted = on_accepted,
						      .context = fixture};
	if (net_peer_listen(&fixture->listener, fixture->loop, &params, &error))
		fail_msg("%s", error.message);
	return 0;
}

static int finish(void **state)
{
	struct fixture *fixture = *state;
	net_peer_destroy(&fixture->here.peer);
	net_peer_destroy(&fixture->there.peer);
	net_peer_listener_destroy(&fixture->listener);
	net_peer_tls_destroy(&fixture->tls);
	net_loop_destroy(&fixture->loop);
	made_finish(&fixture->authority);
	made_finish(&fixture->foreign);
	made_finish(&fixture->node);
	if (fixture->fd >= 0)
		close(fixture->fd);
	free(fixture);
	return 0;
}

static bool both_open(struct fixture *fixture)
{
	return fixture->here.opened && fixture->there.opened;
}

static bool here_closed(struct fixture *fixture)
{
	return fixture->here.closed;
}

static bool there_closed(struct fixture *fixture)
{
	return fixture->there.closed;
}

static void open_both(struct fixture *fixture)
{
	dial(fixture, "127.0.0.1", net_peer_listener_port(fixture->listener));
	wait_until(fixture, both_open);
}

static enum status send_number(struct net_peer *peer, size_t number, size_t body_bytes)
{
	char head[32];
	snprintf(head, sizeof head, "%zu", number);
	uint8_t *body = malloc(body_bytes + 1);
	memset(body, (uint8_t)number, body_bytes);
	enum status status = net_peer_send(peer, head, strlen(head), NULL, body, body_bytes);
	free(body);
	return status;
}

// ---- messages ----

static bool small_echoed(struct fixture *fixture)
{
	return fixture->here.messages == SMALL;
}

static void small_ones(void **state)
{
	struct fixture *fixture = *state;
	struct net_peer_path path;
	open_both(fixture);
	assert_string_equal(fixture->here.certificate.uri, "exogpu:node:n1");
	assert_string_equal(fixture->there.certificate.uri, "exogpu:node:n1");
	net_peer_path(fixture->here.peer, &path);
	assert_string_equal(path.local, "127.0.0.1");
	assert_string_equal(path.remote, "127.0.0.1");
	fixture->there.echo = true;
	for (size_t i = 0; i < SMALL; i++) {
		assert_int_equal(send_number(fixture->here.peer, i, i % 50), STATUS_OK);
		if (i % 100 == 50)
			net_peer_update_keys(i % 200 == 50 ? fixture->here.peer : fixture->there.peer);
	}
	wait_until(fixture, small_echoed);
	assert_int_equal(fixture->there.wrong + fixture->here.wrong, 0);
	assert_true(net_peer_silence_ms(fixture->here.peer) < WAIT_MS);
	net_peer_destroy(&fixture->here.peer);
	wait_until(fixture, there_closed);
	assert_string_equal(fixture->there.why, "the peer closed the connection");
}

static bool four_echoed(struct fixture *fixture)
{
	return fixture->here.messages == 4;
}

static void large_ones(void **state)
{
	struct fixture *fixture = *state;
	open_both(fixture);
	fixture->there.echo = true;
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(send_number(fixture->here.peer, i, (size_t)LIMIT_BODY_BYTES - i), STATUS_OK);
	assert_true(net_peer_queued(fixture->here.peer) > LIMIT_STREAM_FULL_BYTES);
	assert_int_equal(send_number(fixture->here.peer, 4, LIMIT_BODY_BYTES),
			 STATUS_LIMIT_EXCEEDED); // the queue is full
	wait_until(fixture, four_echoed);
	assert_int_equal(fixture->here.wrong + fixture->there.wrong, 0);
	assert_int_equal(fixture->here.body_bytes, LIMIT_BODY_BYTES - 3);
	assert_int_equal(fixture->here.drained, 1);
	assert_int_equal(net_peer_queued(fixture->here.peer), 0);
	uint8_t *much = calloc(1, LIMIT_WORKER_MESSAGE_BYTES);
	assert_int_equal(net_peer_send(fixture->here.peer, "4", 1, NULL, much, LIMIT_WORKER_MESSAGE_BYTES - 4),
			 STATUS_LIMIT_EXCEEDED);
	assert_int_equal(net_peer_send(fixture->here.peer, much, LIMIT_HEAD_BYTES + 1, NULL, NULL, 0),
			 STATUS_LIMIT_EXCEEDED);
	memset(much, ' ', LIMIT_HEAD_BYTES);
	much[LIMIT_HEAD_BYTES - 1] = '4';
	fixture->there.echo = false;
	assert_int_equal(net_peer_send(fixture->here.peer, much, LIMIT_HEAD_BYTES, NULL, NULL, 0), STATUS_OK);
	run(fixture, NULL, 200);
	assert_int_equal(fixture->there.messages, 5);
	assert_int_equal(fixture->there.head_bytes, LIMIT_HEAD_BYTES);
	free(much);
}

// Before it is trusted, a peer may say little.
static void strangers_say_little(void **state)
{
	struct fixture *fixture = *state;
	fixture->there.trusts = false;
	open_both(fixture);
	assert_int_equal(send_number(fixture->here.peer, 0, 1000), STATUS_OK);
	run(fixture, NULL, 50);
	assert_int_equal(fixture->there.messages, 1);
	assert_int_equal(send_number(fixture->here.peer, 1, LIMIT_LOGIN_BYTES), STATUS_OK);
	wait_until(fixture, there_closed);
	assert_non_null(strstr(fixture->there.why, "impossible message lengths"));
	assert_int_equal(fixture->there.messages, 1);
	wait_until(fixture, here_closed);
}

// One that is destroyed while it hands a message out.
static void destroyed_in_a_callback(void **state)
{
	struct fixture *fixture = *state;
	open_both(fixture);
	fixture->there.drop = true;
	for (size_t i = 0; i < 10; i++)
		assert_int_equal(send_number(fixture->here.peer, i, 20000), STATUS_OK);
	wait_until(fixture, here_closed);
	assert_int_equal(fixture->there.closed, 0);
}

// ---- who is taken ----

static void refuses_to_open(struct fixture *fixture, const char *words)
{
	fixture->here.closed = fixture->there.closed = fixture->there.opened = 0;
	dial(fixture, "127.0.0.1", net_peer_listener_port(fixture->listener));
	wait_until(fixture, here_closed);
	if (!strstr(fixture->here.why, words))
		fail_msg("\"%s\" says nothing of \"%s\"", fixture->here.why, words);
	run(fixture, NULL, 20);
	assert_int_equal(fixture->there.opened, 0);
}

static void certificates(void **state)
{
	struct fixture *fixture = *state;
	const char *uri = "URI:exogpu:node:n1";
	struct made bad[] = {
		make_certificate(&(struct making){
			.name = "self", .sans = uri, .usage = "clientAuth,serverAuth", .from_s = -60, .to_s = 600}),
		make_signed(&fixture->foreign, uri, "clientAuth,serverAuth"),
		make_certificate(&(struct making){.issuer = &fixture->authority,
						  .name = "expired",
						  .sans = uri,
						  .usage = "clientAuth,serverAuth",
						  .from_s = -600,
						  .to_s = -60}),
		make_signed(&fixture->authority, uri, "clientAuth"),
		make_signed(&fixture->authority, "URI:exogpu:server:c1", "codeSigning"),
	};
	const char *faults[] = {"self-signed", "self-signed", "expired", "purpose", "purpose"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		show(fixture, &bad[i]);
		refuses_to_open(fixture, faults[i]);
		made_finish(&bad[i]);
	}
	assert_int_equal(fixture->here.opened, 0);
	show(fixture, &fixture->node);
	open_both(fixture);
	// And what cannot be shown, or trusted, is said so at once; what was there stays.
	struct error error = {0};
	struct net_peer_tls *tls = NULL;
	assert_int_equal(net_peer_tls_show(fixture->tls, fixture->node.pem, fixture->foreign.key_pem, &error),
			 STATUS_INVALID_PARAMS);
	assert_int_equal(net_peer_tls_create(&tls, fixture->node.pem, &error), STATUS_INVALID_PARAMS);
	assert_int_equal(net_peer_tls_create(&tls, "nothing", &error), STATUS_INVALID_PARAMS);
	assert_null(tls);
}

static void addresses(void **state)
{
	struct fixture *fixture = *state;
	struct error error = {0};
	struct net_peer_dial_params params = {
		.tls = fixture->tls, .address = "localhost", .port = 1, .handler = &handler, .user = &fixture->here};
	assert_int_equal(net_peer_dial(&fixture->here.peer, fixture->loop, &params, &error), STATUS_INVALID_PARAMS);
	assert_null(fixture->here.peer);
	int port = net_peer_listener_port(fixture->listener);
	net_peer_listener_destroy(&fixture->listener);
	dial(fixture, "127.0.0.1", port);
	wait_until(fixture, here_closed);
	assert_string_equal(fixture->here.why, "nothing listens there");
	// All addresses of the machine, of both kinds where it has both.
	const struct net_peer_listen_params all = {
		.tls = fixture->tls, .handler = &handler, .accepted = on_accepted, .context = fixture};
	assert_int_equal(net_peer_listen(&fixture->listener, fixture->loop, &all, &error), STATUS_OK);
	open_both(fixture);
	struct net_peer_path path;
	net_peer_path(fixture->there.peer, &path);
	assert_string_equal(path.remote, "127.0.0.1");
	// One that is refused before its handshake.
	fixture->refuse = true;
	net_peer_destroy(&fixture->here.peer);
	fixture->here.closed = 0;
	dial(fixture, "127.0.0.1", net_peer_listener_port(fixture->listener));
	wait_until(fixture, here_closed);
	assert_int_equal(fixture->here.opened, 1);
}

// ---- strangers ----

static int connect_to(struct fixture *fixture)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				      .sin_port = htons((uint16_t)net_peer_listener_port(fixture->listener))};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address)) {
		close(fd);
		return -1;
	}
	return fd;
}

static void *on_thread(void *arg)
{
	struct fixture *fixture = arg;
	fixture->script(fixture);
	return NULL;
}

// Run the script on a thread, and the loop until `enough`.
static void meet(struct fixture *fixture, void (*script)(struct fixture *fixture),
		 bool (*enough)(struct fixture *fixture))
{
	fixture->script = script;
	assert_int_equal(pthread_create(&fixture->thread, NULL, on_thread, fixture), 0);
	wait_until(fixture, enough);
	pthread_join(fixture->thread, NULL);
}

static void say_http(struct fixture *fixture)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost: here\r\n\r\n";
	fixture->fd = connect_to(fixture);
	fixture->result = (int)send(fixture->fd, text, sizeof text - 1, MSG_NOSIGNAL);
}

static void plain_text(void **state)
{
	struct fixture *fixture = *state;
	meet(fixture, say_http, there_closed);
	assert_int_equal(fixture->there.opened, 0);
	assert_non_null(strstr(fixture->there.why, "no TLS with it"));
}

static void say_nothing(struct fixture *fixture)
{
	fixture->fd = connect_to(fixture);
}

static void silence(void **state)
{
	struct fixture *fixture = *state;
	meet(fixture, say_nothing, there_closed);
	assert_string_equal(fixture->there.why, "the TLS handshake takes too long");
}

// Speak TLS with OpenSSL, as told, and send `heard` if it comes to that. result: what came of the handshake.
static void speak(struct fixture *fixture, int version)
{
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	SSL_CTX_set_max_proto_version(context, version);
	if (fixture->shows) {
		BIO *bio = BIO_new_mem_buf(fixture->shows->key_pem, -1);
		EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL);
		SSL_CTX_use_certificate(context, fixture->shows->certificate);
		SSL_CTX_use_PrivateKey(context, key);
		EVP_PKEY_free(key);
		BIO_free(bio);
	}
	SSL *ssl = SSL_new(context);
	int fd = connect_to(fixture);
	SSL_set_fd(ssl, fd);
	fixture->result = SSL_connect(ssl);
	if (fixture->result == 1 && fixture->heard[0])
		SSL_write(ssl, fixture->heard, 12);
	char answer[64];
	if (fixture->result == 1 && !fixture->heard[0] && SSL_read(ssl, answer, sizeof answer) <= 0)
		fixture->result = -1; // of TLS 1.3, a client hears of its refusal only now
	SSL_free(ssl);
	SSL_CTX_free(context);
	close(fd); // in the middle of what it said
	ERR_clear_error();
}

static void speak_1_3(struct fixture *fixture)
{
	speak(fixture, TLS1_3_VERSION);
}

static void speak_1_2(struct fixture *fixture)
{
	speak(fixture, TLS1_2_VERSION);
}

static void other_clients(void **state)
{
	struct fixture *fixture = *state;
	meet(fixture, speak_1_3, there_closed); // shows no certificate
	assert_int_equal(fixture->there.opened, 0);
	assert_int_not_equal(fixture->result, 1);
	assert_non_null(strstr(fixture->there.why, "peer did not return a certificate"));
	fixture->shows = &fixture->node;
	fixture->there.closed = 0;
	meet(fixture, speak_1_2, there_closed);
	assert_int_equal(fixture->there.opened, 0);
	assert_int_not_equal(fixture->result, 1);
	// Cut off in the middle of a message, and lengths that cannot be.
	memcpy(fixture->heard, "\x20\0\0\0\x04\0\0\0half", 12);
	fixture->there.closed = 0;
	meet(fixture, speak_1_3, there_closed);
	assert_int_equal(fixture->there.opened, 1);
	assert_int_equal(fixture->there.messages, 0);
	assert_true(strstr(fixture->there.why, "cut off") || strstr(fixture->there.why, "reset"));
	memcpy(fixture->heard, "\x20\0\0\0\x1d\0\0\0half", 12);
	fixture->there.closed = 0;
	meet(fixture, speak_1_3, there_closed);
	assert_non_null(strstr(fixture->there.why, "impossible message lengths"));
	memcpy(fixture->heard, "\xff\xff\xff\xff\x04\0\0\0half", 12);
	fixture->there.closed = 0;
	meet(fixture, speak_1_3, there_closed);
	assert_non_null(strstr(fixture->there.why, "impossible message lengths"));
}

// More strangers than handshakes may be under way: those beyond are turned away, and room comes back.
static void crowd(void **state)
{
	struct fixture *fixture = *state;
	int fds[LIMIT_PEERS_NOT_OPEN + 8];
	const size_t count = sizeof fds / sizeof *fds;
	fixture->keeps = true;
	for (size_t i = 0; i < count; i++) {
		fds[i] = connect_to(fixture);
		assert_true(fds[i] >= 0);
		if (i % 8 == 7) // the system keeps few that were not accepted
			run(fixture, NULL, 20);
	}
	assert_int_equal(fixture->accepted, LIMIT_PEERS_NOT_OPEN);
	for (size_t i = LIMIT_PEERS_NOT_OPEN; i < count; i++)
		assert_int_equal(recv(fds[i], &(char){0}, 1, 0), 0);
	for (size_t i = 0; i < LIMIT_PEERS_NOT_OPEN; i++)
		net_peer_destroy(&fixture->crowd[i]);
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
	fixture->keeps = false;
	open_both(fixture);
}

// ---- how fast: printed, not judged ----

static void on_pong(void *user, struct net_peer *peer, const uint8_t *head, size_t head_bytes, struct net_frame *body)
{
	struct end *end = user;
	char text[32];
	(void)peer, (void)head, (void)head_bytes;
	if (++end->messages >= ECHOES) {
		net_loop_stop(end->fixture->loop);
		return;
	}
	snprintf(text, sizeof text, "%zu", end->messages);
	net_peer_send(end->peer, text, strlen(text), body, net_frame_data(body), net_frame_bytes(body));
}

static void how_fast(void **state)
{
	static const struct net_peer_handler bounce = {
		.opened = on_opened, .message = on_pong, .drained = on_drained, .closed = on_closed};
	struct fixture *fixture = *state;
	const struct net_peer_dial_params params = {.tls = fixture->tls,
						    .address = "127.0.0.1",
						    .port = net_peer_listener_port(fixture->listener),
						    .handler = &bounce,
						    .user = &fixture->here};
	assert_int_equal(net_peer_dial(&fixture->here.peer, fixture->loop, &params, NULL), STATUS_OK);
	wait_until(fixture, both_open);
	fixture->there.echo = true;
	net_timer_start(fixture->loop, &fixture->look, WAIT_MS, on_look, fixture);
	const int64_t began_ns = clock_steady_ns();
	assert_int_equal(send_number(fixture->here.peer, 0, 8192), STATUS_OK);
	net_loop_run(fixture->loop);
	net_timer_stop(fixture->loop, &fixture->look);
	assert_int_equal(fixture->here.messages, ECHOES);
	print_message("8 KiB there and back: %.1f us, both ends on one thread\n",
		      (double)(clock_steady_ns() - began_ns) / 1e3 / ECHOES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(small_ones, begin, finish),
		cmocka_unit_test_setup_teardown(large_ones, begin, finish),
		cmocka_unit_test_setup_teardown(strangers_say_little, begin, finish),
		cmocka_unit_test_setup_teardown(destroyed_in_a_callback, begin, finish),
		cmocka_unit_test_setup_teardown(certificates, begin, finish),
		cmocka_unit_test_setup_teardown(addresses, begin, finish),
		cmocka_unit_test_setup_teardown(plain_text, begin, finish),
		cmocka_unit_test_setup_teardown(silence, begin, finish),
		cmocka_unit_test_setup_teardown(other_clients, begin, finish),
		cmocka_unit_test_setup_teardown(crowd, begin, finish),
		cmocka_unit_test_setup_teardown(how_fast, begin, finish),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
