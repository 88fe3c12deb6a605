/* Large messages over WebSocket: whole and intact both ways, in fragments with pings answered between them, held back,
 * bounded; all of it by a Unix socket and again by TLS. The other end is our own client, or a thread that speaks the
 * bytes of RFC 6455 itself. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/net/frame.h"
#include "tests/common/net/certificates.h"

#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { SLOW_BYTES = 8, SLOW_NS = 1000000 };
enum { LARGE_BYTES = LIMIT_BODY_BYTES, HALF_BYTES = LIMIT_SEND_QUEUE_BYTES / 2 - 1000 };

struct fixture {
	struct net_loop *loop;
	struct net_listener *listener;
	struct net_tls *tls; // NULL: a Unix socket
	struct made authority;
	struct net_conn *server, *client;
	struct net_timer timer, again;
	char folder[40], path[64];
	const uint8_t *pattern; // (LARGE_BYTES + 64)
	// What happened at the server's end, and at our own client's.
	size_t messages, framed, drained, closed, answers;
	int close_code, client_code;
	size_t dials, dial_at; // dial_at: the answer at which another is dialled
	size_t wanted;         // messages at which the loop is stopped
	bool echo, bad;        // bad: a message was not the pattern
	bool slow;             // messages of SLOW_BYTES take SLOW_NS
	bool elsewhere;        // what is sent lies in two places, the larger of them only to be read
	size_t let_go;         // such frames that are not held any more
	size_t lent;           // that there were
	// The thread, and what it saw.
	pthread_t thread;
	bool running, stopped_sending;
	size_t got_messages, got_fragments, largest, pongs, pongs_inside;
	int got_close;
	char note[64];
	void (*script)(struct fixture *fixture, int fd);
};

static void count(struct fixture *fixture, const uint8_t *bytes, size_t length)
{
	fixture->messages++;
	if (length > LARGE_BYTES || memcmp(bytes, fixture->pattern, length) != 0)
		fixture->bad = true;
	if (fixture->messages == fixture->wanted)
		net_loop_stop(fixture->loop);
}

static bool on_upgrade(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	(void)request, (void)response;
	*user = context;
	return true;
}

static void on_opened(void *user, struct net_conn *conn)
{
	struct fixture *fixture = user;
	fixture->server = conn;
	net_conn_trust(conn);
	net_loop_stop(fixture->loop);
}

static void on_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct fixture *fixture = user;
	struct net_frame *frame = net_conn_message_frame(conn);
	if (frame && (net_frame_data(frame) != bytes || net_frame_bytes(frame) != length))
		fixture->bad = true;
	fixture->framed += frame != NULL;
	if (fixture->echo && frame)
		net_conn_send(conn, frame, 0);
	else if (fixture->echo)
		net_conn_send_text(conn, (const char *)bytes, length);
	const int64_t until_ns = fixture->slow && length == SLOW_BYTES ? clock_steady_ns() + SLOW_NS : 0;
	while (clock_steady_ns() < until_ns)
		;
	if (!binary && length == 4 && !memcmp(bytes, "stop", 4))
		net_loop_stop(fixture->loop);
	else
		count(fixture, bytes, length);
}

static void on_drained(void *user, struct net_conn *conn)
{
	struct fixture *fixture = user;
	(void)conn;
	fixture->drained++;
}

static void on_closed(void *user, struct net_conn *conn, int code)
{
	struct fixture *fixture = user;
	(void)conn;
	fixture->closed++;
	fixture->close_code = code;
	fixture->server = NULL;
	if (fixture->loop) // not while it is destroyed
		net_loop_stop(fixture->loop);
}

static void on_http(void *context, const struct net_request *request, struct net_response *response)
{
	(void)context, (void)request;
	response->status = 404;
}

static void client_opened(void *user, struct net_conn *conn)
{
	struct fixture *fixture = user;
	fixture->client = conn;
	fixture->dials++;
}

static enum status dial_impatient(struct fixture *fixture, bool speaks_first);

static void client_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct fixture *fixture = user;
	(void)conn, (void)binary;
	if (fixture->dial_at == ++fixture->answers)
		assert_int_equal(dial_impatient(fixture, false), STATUS_OK);
	if (length > LARGE_BYTES || memcmp(bytes, fixture->pattern, length) != 0)
		fixture->bad = true;
	if (fixture->answers == fixture->wanted)
		net_loop_stop(fixture->loop);
}

static void client_closed(void *user, struct net_conn *conn, int code)
{
	struct fixture *fixture = user;
	(void)conn;
	fixture->client_code = code;
	fixture->client = NULL;
	if (fixture->loop)
		net_loop_stop(fixture->loop);
}

static const struct net_handler handler = {.http = on_http,
					   .upgrade = on_upgrade,
					   .opened = on_opened,
					   .message = on_message,
					   .drained = on_drained,
					   .closed = on_closed};
static const struct net_handler client_handler = {
	.opened = client_opened, .message = client_message, .closed = client_closed};

static enum status dial_with(struct fixture *fixture, bool speaks_first, int ping_s, int silence_s)
{
	struct net_dial_tls tls = {.authority_pem = fixture->authority.pem};
	struct net_dial_params dial = {.socket_path = fixture->tls ? NULL : fixture->path,
				       .host = "127.0.0.1",
				       .port = net_listener_port(fixture->listener),
				       .tls = fixture->tls ? &tls : NULL,
				       .path = "/",
				       .subprotocol = "test",
				       .ping_s = ping_s,
				       .silence_s = silence_s,
				       .speaks_first = speaks_first,
				       .handler = &client_handler,
				       .user = fixture};
	return net_dial(fixture->loop, &dial, NULL);
}

static enum status dial_impatient(struct fixture *fixture, bool speaks_first)
{
	return dial_with(fixture, speaks_first, 1, 3);
}

static const char *const protocols[] = {"test", NULL};
static const struct net_header headers[] = {{NULL, NULL}};

static void listen_by_tls(struct fixture *fixture, struct net_listener_params *params)
{
	fixture->authority = make_authority("the cluster");
	struct made server = make_signed(&fixture->authority, "IP:127.0.0.1", "serverAuth");
	assert_int_equal(net_tls_create(&fixture->tls, fixture->loop, fixture->authority.pem, NULL), STATUS_OK);
	assert_int_equal(net_tls_show(fixture->tls, NET_TLS_PUBLIC, server.pem, server.key_pem, NULL), STATUS_OK);
	made_finish(&server);
	params->socket_path = NULL;
	params->address = "127.0.0.1";
	params->tls = fixture->tls;
}

// `impatient`: one that is silent for three seconds is closed, which a slow machine may well be.
static int set_up_by(void **state, bool tls, bool impatient)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	uint8_t *pattern = malloc(LARGE_BYTES + 64);
	assert_non_null(fixture);
	assert_non_null(pattern);
	for (size_t i = 0; i < LARGE_BYTES + 64; i++)
		pattern[i] = (uint8_t)(i * 2654435761u >> 13);
	fixture->pattern = pattern;
	snprintf(fixture->folder, sizeof fixture->folder, "/tmp/exogpu-ws-XXXXXX");
	assert_non_null(mkdtemp(fixture->folder));
	snprintf(fixture->path, sizeof fixture->path, "%s/socket", fixture->folder);
	assert_int_equal(net_loop_create(&fixture->loop, NULL), STATUS_OK);
	struct net_listener_params params = {.socket_path = fixture->path,
					     .ping_s = impatient ? 1 : 20,
					     .silence_s = impatient ? 3 : 60,
					     .subprotocols = protocols,
					     .headers = headers,
					     .handler = &handler,
					     .context = fixture};
	if (tls)
		listen_by_tls(fixture, &params);
	assert_int_equal(net_listener_create(&fixture->listener, fixture->loop, &params, NULL), STATUS_OK);
	*state = fixture;
	return 0;
}

static int set_up(void **state)
{
	return set_up_by(state, false, false);
}

static int set_up_tls(void **state)
{
	return set_up_by(state, true, false);
}

static int set_up_impatient(void **state)
{
	return set_up_by(state, false, true);
}

static int set_up_impatient_tls(void **state)
{
	return set_up_by(state, true, true);
}

static int set_up_elsewhere(void **state)
{
	set_up_by(state, false, false);
	((struct fixture *)*state)->elsewhere = true;
	return 0;
}

static int set_up_elsewhere_tls(void **state)
{
	set_up_by(state, true, false);
	((struct fixture *)*state)->elsewhere = true;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;
	net_listener_destroy(&fixture->listener);
	net_tls_destroy(&fixture->tls);
	net_loop_destroy(&fixture->loop);
	assert_int_equal(fixture->let_go, fixture->lent);
	made_finish(&fixture->authority);
	if (fixture->running)
		pthread_join(fixture->thread, NULL);
	rmdir(fixture->folder);
	free((void *)fixture->pattern);
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

static void let_go(void *owner, const uint8_t *bytes, size_t length)
{
	(void)bytes, (void)length;
	((struct fixture *)owner)->let_go++;
}

static struct net_frame *pattern_frame(struct fixture *fixture, size_t length)
{
	struct net_frame *frame;
	if (fixture->elsewhere && length > 1) {
		const size_t first = length / 3; // of it; the rest is twice as long
		struct net_frame *rest = net_frame_create_outside(
			&(struct net_frame_outside){.bytes = fixture->pattern + first,
						    .length = length - first,
						    .release = let_go,
						    .owner = fixture});
		assert_non_null(rest);
		fixture->lent++;
		frame = net_frame_chain(fixture->pattern, first, rest);
		net_frame_unref(&rest);
	} else {
		frame = net_frame_create(fixture->pattern, length, false);
	}
	assert_non_null(frame);
	return frame;
}

// The other end, byte by byte.
static _Thread_local SSL *secured; // NULL: plain

static void read_all(struct fixture *fixture, int fd, void *out, size_t length)
{
	for (uint8_t *at = out; length;) {
		ssize_t got = secured ? SSL_read(secured, at, length < 1 << 20 ? (int)length : 1 << 20)
				      : recv(fd, at, length, 0);
		if (got <= 0) {
			fixture->got_close = -1;
			memset(at, 0, length);
			return;
		}
		at += got;
		length -= (size_t)got;
	}
}

static void write_all(int fd, const void *bytes, size_t length)
{
	for (const uint8_t *at = bytes; length;) {
		ssize_t sent = secured ? SSL_write(secured, at, length < 1 << 20 ? (int)length : 1 << 20)
				       : send(fd, at, length, MSG_NOSIGNAL);
		if (sent <= 0)
			return;
		at += sent;
		length -= (size_t)sent;
	}
}

static void write_frame(int fd, uint8_t first, const uint8_t *payload, size_t length)
{
	const uint8_t mask[4] = {0x12, 0x34, 0x56, 0x78};
	uint8_t *frame = malloc(length + 14);
	size_t head = 0;
	if (!frame)
		return;
	frame[head++] = first;
	if (length < 126) {
		frame[head++] = (uint8_t)(0x80 | length);
	} else {
		frame[head++] = 0x80 | 127;
		for (int i = 0; i < 8; i++)
			frame[head++] = (uint8_t)((uint64_t)length >> (56 - 8 * i));
	}
	memcpy(frame + head, mask, 4);
	head += 4;
	for (size_t i = 0; i < length; i++)
		frame[head + i] = payload[i] ^ mask[i & 3];
	write_all(fd, frame, head + length);
	free(frame);
}

// One frame. Returns its first byte; its payload is compared with the pattern from `at` on.
static uint8_t read_frame(struct fixture *fixture, int fd, size_t at, size_t *length)
{
	uint8_t head[10], *payload;
	read_all(fixture, fd, head, 2);
	*length = head[1] & 0x7f;
	size_t more = *length == 126 ? 2 : *length == 127 ? 8 : 0;
	if (more) {
		read_all(fixture, fd, head + 2, more);
		*length = 0;
		for (size_t i = 0; i < more; i++)
			*length = *length << 8 | head[2 + i];
	}
	if (*length > LARGE_BYTES || !(payload = malloc(*length + 1))) {
		fixture->bad = true;
		*length = 0;
		return 0;
	}
	read_all(fixture, fd, payload, *length);
	if ((head[0] & 0x0f) == 8 && *length >= 2)
		fixture->got_close = payload[0] << 8 | payload[1];
	else if ((head[0] & 0x0f) <= 2 &&
		 (at + *length > LARGE_BYTES || memcmp(payload, fixture->pattern + at, *length) != 0))
		fixture->bad = true;
	free(payload);
	return head[0];
}

// One message, and what control frames lie inside it.
static void read_message(struct fixture *fixture, int fd, bool ping)
{
	size_t at = 0, length, fragments = 0;
	while (!fixture->got_close) {
		uint8_t first = read_frame(fixture, fd, at, &length);
		if ((first & 0x0f) == 10) {
			fixture->pongs++;
			fixture->pongs_inside += fragments > 0;
		}
		if ((first & 0x0f) > 2)
			continue;
		if (((first & 0x0f) == 0) != (fragments > 0)) // text or binary first, then continuations
			fixture->bad = true;
		fragments++;
		fixture->largest = length > fixture->largest ? length : fixture->largest;
		at += length;
		if (ping && fragments == 3)
			write_frame(fd, 0x89, (const uint8_t *)"hi", 2);
		if (first & 0x80)
			break;
	}
	fixture->got_messages++;
	fixture->got_fragments += fragments;
}

static int connect_unix(const struct fixture *fixture)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof address.sun_path, "%s", fixture->path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return connect(fd, (struct sockaddr *)&address, sizeof address) < 0 ? -1 : fd;
}

static int connect_tls(const struct fixture *fixture)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_port = htons((uint16_t)net_listener_port(fixture->listener)),
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), room = 128 * 1024;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
	if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
		return -1;
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	secured = SSL_new(context);
	SSL_CTX_free(context);
	SSL_set_fd(secured, fd);
	return SSL_connect(secured) == 1 ? fd : -1;
}

static void *play(void *arg)
{
	struct fixture *fixture = arg;
	int fd = fixture->tls ? connect_tls(fixture) : connect_unix(fixture);
	char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
			 "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
			 "Sec-WebSocket-Protocol: test\r\n\r\n";
	if (fd < 0)
		return NULL;
	write_all(fd, request, sizeof request - 1);
	char end[4] = "";
	while (memcmp(end, "\r\n\r\n", 4) != 0 && !fixture->got_close) {
		memmove(end, end + 1, 3);
		read_all(fixture, fd, end + 3, 1);
	}
	fixture->script(fixture, fd);
	SSL_free(secured);
	close(fd);
	return NULL;
}

static void connect_thread(struct fixture *fixture, void (*script)(struct fixture *fixture, int fd))
{
	fixture->script = script;
	fixture->running = true;
	assert_int_equal(pthread_create(&fixture->thread, NULL, play, fixture), 0);
	run_ms(fixture, 60000);
	assert_non_null(fixture->server);
}

static void join_thread(struct fixture *fixture)
{
	pthread_join(fixture->thread, NULL);
	fixture->running = false;
}

static void both_ways(struct fixture *fixture, bool speaks_first)
{
	const size_t sizes[] = {
		1,       20000,      NET_FRAGMENT_BYTES, NET_FRAGMENT_MOST_BYTES, NET_FRAGMENT_MOST_BYTES + 1,
		3000000, LARGE_BYTES};
	const size_t count_of = sizeof sizes / sizeof *sizes;
	fixture->echo = true;
	assert_int_equal(dial_with(fixture, speaks_first, 20, 60), STATUS_OK);
	run_ms(fixture, 60000);
	while (!fixture->client)
		run_ms(fixture, 10);
	for (size_t i = 0; i < count_of; i++) {
		struct net_frame *frame = pattern_frame(fixture, sizes[i]);
		fixture->wanted = i + 1;
		assert_int_equal(net_conn_send(fixture->client, frame, 0), STATUS_OK);
		net_frame_unref(&frame);
		while (fixture->answers < i + 1 && !fixture->closed)
			run_ms(fixture, 60000);
		assert_int_equal(fixture->closed, 0);
	}
	assert_false(fixture->bad);
	assert_int_equal(fixture->messages, count_of);
	assert_int_equal(fixture->answers, count_of);
	assert_true(fixture->framed >= 4); // those that came in more than one piece
	assert_int_equal(fixture->drained, 2);
	assert_int_equal(net_conn_queued_bytes(fixture->server), 0);
	net_conn_close(fixture->server, 4410, "enough");
	while (!fixture->closed || fixture->client)
		run_ms(fixture, 60000);
	assert_int_equal(fixture->client_code, 4410);
}

static void large_ones_both_ways(void **state)
{
	both_ways(*state, false);
}

// The same where the client, too, is read past libwebsockets.
static void client_speaks_first(void **state)
{
	both_ways(*state, true);
}

static void read_three(struct fixture *fixture, int fd)
{
	for (int i = 0; i < 3; i++)
		read_message(fixture, fd, i == 1);
	write_frame(fd, 0x81, (const uint8_t *)"stop", 4);
}

static void pings_between_fragments(void **state)
{
	struct fixture *fixture = *state;
	connect_thread(fixture, read_three);
	const size_t sizes[] = {100, LARGE_BYTES, 100};
	for (int i = 0; i < 3; i += 2) { // the large one is between, when there is room for it
		struct net_frame *frame = pattern_frame(fixture, sizes[i]);
		assert_int_equal(net_conn_send(fixture->server, frame, 0), STATUS_OK);
		net_frame_unref(&frame);
		if (i)
			break;
		frame = pattern_frame(fixture, sizes[1]);
		assert_int_equal(net_conn_send(fixture->server, frame, 0), STATUS_OK);
		net_frame_unref(&frame);
		while (net_conn_queued_bytes(fixture->server) > LIMIT_SEND_QUEUE_BYTES / 2)
			run_ms(fixture, 1);
	}
	run_ms(fixture, 60000);
	join_thread(fixture);
	assert_false(fixture->bad);
	assert_int_equal(fixture->got_close, 0);
	assert_int_equal(fixture->got_messages, 3);
	assert_int_equal(fixture->got_fragments, 2 + LARGE_BYTES / NET_FRAGMENT_BYTES);
	assert_int_equal(fixture->largest, NET_FRAGMENT_BYTES);
	assert_int_equal(fixture->pongs_inside, 1);
}

static void read_keyed(struct fixture *fixture, int fd)
{
	while (!__atomic_load_n(&fixture->stopped_sending, __ATOMIC_ACQUIRE))
		usleep(1000);
	for (int i = 0; i < 3; i++)
		read_message(fixture, fd, false);
	write_frame(fd, 0x81, (const uint8_t *)"stop", 4);
}

// What is half sent is not replaced by its successor; what only waits is.
static void keys_and_fragments(void **state)
{
	struct fixture *fixture = *state;
	connect_thread(fixture, read_keyed);
	struct net_frame *large = pattern_frame(fixture, HALF_BYTES), *small = pattern_frame(fixture, 200);
	assert_int_equal(net_conn_send(fixture->server, large, 7), STATUS_OK);
	assert_true(net_conn_queued_bytes(fixture->server) < HALF_BYTES); // begun
	assert_int_equal(net_conn_send(fixture->server, small, 7), STATUS_OK);
	assert_int_equal(net_conn_send(fixture->server, small, 7), STATUS_OK);
	assert_int_equal(net_conn_send(fixture->server, small, 0), STATUS_OK);
	net_frame_unref(&large);
	net_frame_unref(&small);
	__atomic_store_n(&fixture->stopped_sending, true, __ATOMIC_RELEASE);
	run_ms(fixture, 60000);
	join_thread(fixture);
	assert_false(fixture->bad);
	assert_int_equal(fixture->got_messages, 3);
}

static void read_late(struct fixture *fixture, int fd)
{
	while (!__atomic_load_n(&fixture->stopped_sending, __ATOMIC_ACQUIRE))
		usleep(1000);
	read_message(fixture, fd, false);
}

// One that does not read is closed only past the limit, and what it gets until then is well formed.
static void too_slow(void **state)
{
	struct fixture *fixture = *state;
	connect_thread(fixture, read_late);
	struct net_frame *large = net_frame_create(fixture->pattern, LARGE_BYTES, true);
	struct net_frame *half = net_frame_create(fixture->pattern, HALF_BYTES, true);
	struct net_frame *bulk = pattern_frame(fixture, LARGE_BYTES);
	assert_int_equal(net_conn_send(fixture->server, half, 0), STATUS_OK);
	run_ms(fixture, 20);
	for (int i = 0; i < 3; i++) // which was asked for
		assert_int_equal(net_conn_send(fixture->server, bulk, 0), STATUS_OK);
	net_frame_unref(&bulk);
	assert_int_equal(net_conn_send(fixture->server, half, 0), STATUS_OK);
	run_ms(fixture, 20);
	assert_int_equal(fixture->closed, 0);
	assert_int_equal(net_conn_send(fixture->server, large, 0), STATUS_LIMIT_EXCEEDED);
	assert_int_equal(net_conn_send(fixture->server, half, 0), STATUS_UNAVAILABLE);
	net_frame_unref(&large);
	net_frame_unref(&half);
	__atomic_store_n(&fixture->stopped_sending, true, __ATOMIC_RELEASE);
	while (!fixture->closed)
		run_ms(fixture, 60000);
	join_thread(fixture);
	assert_int_equal(fixture->close_code, 4408);
	assert_int_equal(fixture->got_close, 4408);
	assert_false(fixture->bad);
	assert_int_equal(fixture->drained, 0);
}

static void ping_and_read_late(struct fixture *fixture, int fd)
{
	while (!__atomic_load_n(&fixture->stopped_sending, __ATOMIC_ACQUIRE))
		usleep(1000);
	write_frame(fd, 0x89, (const uint8_t *)"hi", 2);
	usleep(200000); // it is read while nothing can be sent
	for (int i = 0; i < 3; i++)
		read_message(fixture, fd, false);
	write_frame(fd, 0x81, (const uint8_t *)"stop", 4);
}

// A ping is answered when there is room for it, and costs nobody the connection.
static void ping_while_the_socket_is_full(void **state)
{
	struct fixture *fixture = *state;
	connect_thread(fixture, ping_and_read_late);
	struct net_frame *bulk = pattern_frame(fixture, LARGE_BYTES), *small = pattern_frame(fixture, 100);
	assert_int_equal(net_conn_send(fixture->server, bulk, 0), STATUS_OK);
	assert_int_equal(net_conn_send(fixture->server, bulk, 0), STATUS_OK);
	assert_int_equal(net_conn_send(fixture->server, small, 0), STATUS_OK);
	net_frame_unref(&bulk);
	net_frame_unref(&small);
	run_ms(fixture, 100);
	__atomic_store_n(&fixture->stopped_sending, true, __ATOMIC_RELEASE);
	run_ms(fixture, 60000);
	join_thread(fixture);
	assert_int_equal(fixture->got_close, 0);
	assert_int_equal(fixture->got_messages, 3);
	assert_int_equal(fixture->pongs, 1);
	assert_false(fixture->bad);
}

static void write_ten(struct fixture *fixture, int fd)
{
	for (int i = 0; i < 10; i++)
		write_frame(fd, 0x82, fixture->pattern, 1000000);
	size_t length;
	read_frame(fixture, fd, 0, &length); // until it is closed
	while (!fixture->got_close)
		read_frame(fixture, fd, 0, &length);
}

// Held back for longer than a silent peer would be borne.
static void held_back(void **state)
{
	struct fixture *fixture = *state;
	connect_thread(fixture, write_ten);
	net_conn_pause(fixture->server);
	net_conn_pause(fixture->server);
	run_ms(fixture, 4500);
	assert_int_equal(fixture->closed, 0);
	assert_true(fixture->messages <= 1);
	net_conn_resume(fixture->server);
	run_ms(fixture, 100);
	assert_true(fixture->messages <= 1);
	fixture->wanted = 10;
	net_conn_resume(fixture->server);
	run_ms(fixture, 60000);
	assert_int_equal(fixture->messages, 10);
	assert_int_equal(fixture->framed, 10);
	assert_false(fixture->bad);
	net_conn_pause(fixture->server); // one that is closed while it is held back
	net_conn_close(fixture->server, 1000, "done");
	while (!fixture->closed)
		run_ms(fixture, 60000);
	join_thread(fixture);
	assert_int_equal(fixture->got_close, 1000);
}

static void write_many(struct fixture *fixture, int fd)
{
	size_t length;
	for (int i = 0; i < 500; i++)
		write_frame(fd, 0x82, fixture->pattern, SLOW_BYTES);
	write_frame(fd, 0x89, (const uint8_t *)"hi", 2);
	while (!fixture->got_close)
		read_frame(fixture, fd, 0, &length);
}

// Several messages that came at once; at the first the reader dials somebody else.
static void dialled_at_a_message(void **state)
{
	struct fixture *fixture = *state;
	assert_int_equal(dial_impatient(fixture, false), STATUS_OK);
	while (!fixture->client || !fixture->server)
		run_ms(fixture, 100);
	fixture->dial_at = 1;
	fixture->wanted = 3;
	for (int i = 0; i < 3; i++) {
		struct net_frame *frame = pattern_frame(fixture, 3000);
		assert_int_equal(net_conn_send(fixture->server, frame, 0), STATUS_OK);
		net_frame_unref(&frame);
	}
	run_ms(fixture, 60000);
	while (fixture->dials < 2 || fixture->answers < 3)
		run_ms(fixture, 100);
	assert_int_equal(fixture->answers, 3);
	assert_false(fixture->bad);
	assert_int_equal(fixture->closed, 0);
}

// The loop ends before anybody is met: who had dialled is told nothing, and nothing is left behind.
static void dialling_at_the_end(void **state)
{
	struct fixture *fixture = *state;
	assert_int_equal(dial_impatient(fixture, true), STATUS_OK);
	run_ms(fixture, 0);
	assert_int_equal(dial_impatient(fixture, true), STATUS_OK);
}

static sem_t told_closed;
static atomic_bool heard_the_end;

static void speak_and_wait_for_the_end(struct fixture *fixture, int fd)
{
	char byte = (char)0x81;
	(void)fixture;
	sem_wait(&told_closed);
	write_all(fd, &byte, 1);
	while (read(fd, &byte, 1) > 0)
		;
	atomic_store(&heard_the_end, true);
}

// Whoever speaks on a connection whose handler was told that it is closed hears its end. The loop does not turn for
// ever for bytes that nobody reads.
static void closed_ones_end_when_the_peer_speaks(void **state)
{
	struct fixture *fixture = *state;
	sem_init(&told_closed, 0, 0);
	connect_thread(fixture, speak_and_wait_for_the_end);
	net_close_all(fixture->loop, 1001);
	assert_int_equal(fixture->closed, 1);
	sem_post(&told_closed);
	for (int turn = 0; turn < 3000 && !atomic_load(&heard_the_end); turn++)
		run_ms(fixture, 10);
	assert_true(atomic_load(&heard_the_end));
	join_thread(fixture);
	sem_destroy(&told_closed);
}

// Neither end gives up the other because that one is held back by its own work, and answers no pings.
static void held_back_beyond_the_others_patience(void **state)
{
	struct fixture *fixture = *state;
	assert_int_equal(dial_impatient(fixture, true), STATUS_OK);
	while (!fixture->client || !fixture->server)
		run_ms(fixture, 100);
	struct net_conn *held = fixture->tls ? fixture->client : fixture->server;
	net_conn_pause(held);
	run_ms(fixture, 4500);
	assert_int_equal(fixture->closed, 0);
	assert_non_null(fixture->client);
	net_conn_resume(held);
	assert_int_equal(net_conn_send_text(fixture->client, "stop", 4), STATUS_OK);
	run_ms(fixture, 60000);
	net_conn_close(fixture->server, 1000, "done");
	while (!fixture->closed || fixture->client)
		run_ms(fixture, 60000);
}

// Who sends many messages that take long is served a few at a time: who sends one does not wait for all of them.
static void busy_ones_let_others_pass(void **state)
{
	struct fixture *fixture = *state;
	connect_thread(fixture, write_many);
	struct net_conn *busy = fixture->server;
	net_conn_pause(busy);
	assert_int_equal(dial_impatient(fixture, true), STATUS_OK);
	while (!fixture->client || fixture->server == busy)
		run_ms(fixture, 100);
	run_ms(fixture, 500); // for the others to be on their way; the fewer are, the easier it is
	fixture->slow = true;
	assert_int_equal(net_conn_send_text(fixture->client, "stop", 4), STATUS_OK);
	net_conn_resume(busy);
	net_loop_run(fixture->loop);
	printf("%zu of 500 were served before another's\n", fixture->messages);
	assert_true(fixture->messages < 100);
	fixture->wanted = 500;
	net_loop_run(fixture->loop);
	assert_int_equal(fixture->messages, 500);
	assert_false(fixture->bad);
	net_conn_close(busy, 1000, "done");
	while (!fixture->closed)
		run_ms(fixture, 60000);
	join_thread(fixture);
	assert_int_equal(fixture->got_close, 1000);
}

static void write_in_fragments(struct fixture *fixture, int fd)
{
	const uint8_t *pattern = fixture->pattern;
	write_frame(fd, 0x02, pattern, 300000);
	write_frame(fd, 0x89, (const uint8_t *)"hi", 2);
	write_frame(fd, 0x00, pattern + 300000, 5);
	write_frame(fd, 0x80, pattern + 300005, 300000);
	write_frame(fd, 0x02, pattern, 40000); // its end is empty
	write_frame(fd, 0x80, pattern, 0);
	write_frame(fd, 0x02, pattern, 0); // its beginning is
	write_frame(fd, 0x80, pattern, 40000);
	write_frame(fd, 0x02, pattern, LARGE_BYTES); // too much in all
	write_frame(fd, 0x00, pattern, LARGE_BYTES);
	size_t length;
	while (!fixture->got_close)
		read_frame(fixture, fd, 0, &length);
}

static void fragments_of_the_peer(void **state)
{
	struct fixture *fixture = *state;
	connect_thread(fixture, write_in_fragments);
	while (!fixture->closed)
		run_ms(fixture, 60000);
	join_thread(fixture);
	assert_int_equal(fixture->messages, 3);
	assert_false(fixture->bad);
	assert_int_equal(fixture->close_code, 1009);
}

static void frames(void **state)
{
	struct fixture *fixture = *state;
	struct net_frame *frame = net_frame_alloc(100000);
	assert_non_null(frame);
	memcpy(net_frame_data(frame), fixture->pattern + NET_FRAME_ROOM, 100000);
	assert_int_equal(net_frame_prepend(frame, fixture->pattern + 24, NET_FRAME_ROOM - 24), STATUS_OK);
	assert_int_equal(net_frame_prepend(frame, fixture->pattern, 25), STATUS_LIMIT_EXCEEDED);
	assert_int_equal(net_frame_prepend(frame, fixture->pattern, 24), STATUS_OK);
	assert_int_equal(net_frame_bytes(frame), 100000 + NET_FRAME_ROOM);
	assert_memory_equal(net_frame_data(frame), fixture->pattern, 100000 + NET_FRAME_ROOM);
	uint8_t *was = net_frame_data(frame) + NET_FRAME_ROOM;
	struct net_frame *second = net_frame_ref(frame);
	net_frame_unref(&frame);
	assert_null(frame);
	assert_memory_equal(net_frame_data(second), fixture->pattern, 1000);
	net_frame_unref(&second);
	frame = net_frame_alloc(99000); // the same memory again
	assert_ptr_equal(net_frame_data(frame), was);
	second = net_frame_alloc(99000);
	assert_ptr_not_equal(net_frame_data(second), was);
	net_frame_unref(&frame);
	net_frame_unref(&second);
	net_frame_unref(&second);
	struct net_frame *many[40];
	for (size_t i = 0; i < 40; i++)
		assert_non_null(many[i] = net_frame_alloc(LARGE_BYTES / 16));
	for (size_t i = 0; i < 40; i++)
		net_frame_unref(&many[i]);
	frame = net_frame_create("x", 1, true);
	assert_int_equal(net_frame_prepend(frame, "yy", 2), STATUS_LIMIT_EXCEEDED);
	net_frame_unref(&frame);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(large_ones_both_ways, set_up, tear_down),
		cmocka_unit_test_setup_teardown(client_speaks_first, set_up, tear_down),
		cmocka_unit_test_setup_teardown(pings_between_fragments, set_up, tear_down),
		cmocka_unit_test_setup_teardown(keys_and_fragments, set_up, tear_down),
		cmocka_unit_test_setup_teardown(too_slow, set_up, tear_down),
		cmocka_unit_test_setup_teardown(ping_while_the_socket_is_full, set_up, tear_down),
		cmocka_unit_test_setup_teardown(held_back, set_up_impatient, tear_down),
		cmocka_unit_test_setup_teardown(held_back_beyond_the_others_patience, set_up_impatient, tear_down),
		cmocka_unit_test_setup_teardown(busy_ones_let_others_pass, set_up, tear_down),
		cmocka_unit_test_setup_teardown(dialled_at_a_message, set_up, tear_down),
		cmocka_unit_test_setup_teardown(dialling_at_the_end, set_up, tear_down),
		cmocka_unit_test_setup_teardown(closed_ones_end_when_the_peer_speaks, set_up, tear_down),
		cmocka_unit_test_setup_teardown(fragments_of_the_peer, set_up, tear_down),
		cmocka_unit_test_setup_teardown(frames, set_up, tear_down),
		cmocka_unit_test_setup_teardown(large_ones_both_ways, set_up_elsewhere, tear_down),
		cmocka_unit_test_setup_teardown(pings_between_fragments, set_up_elsewhere, tear_down),
		cmocka_unit_test_setup_teardown(keys_and_fragments, set_up_elsewhere, tear_down),
		cmocka_unit_test_setup_teardown(large_ones_both_ways, set_up_elsewhere_tls, tear_down),
		cmocka_unit_test_setup_teardown(pings_between_fragments, set_up_elsewhere_tls, tear_down),
		cmocka_unit_test_setup_teardown(keys_and_fragments, set_up_elsewhere_tls, tear_down),
		cmocka_unit_test_setup_teardown(large_ones_both_ways, set_up_tls, tear_down),
		cmocka_unit_test_setup_teardown(client_speaks_first, set_up_tls, tear_down),
		cmocka_unit_test_setup_teardown(pings_between_fragments, set_up_tls, tear_down),
		cmocka_unit_test_setup_teardown(keys_and_fragments, set_up_tls, tear_down),
		cmocka_unit_test_setup_teardown(too_slow, set_up_tls, tear_down),
		cmocka_unit_test_setup_teardown(ping_while_the_socket_is_full, set_up_tls, tear_down),
		cmocka_unit_test_setup_teardown(held_back, set_up_impatient_tls, tear_down),
		cmocka_unit_test_setup_teardown(held_back_beyond_the_others_patience, set_up_impatient_tls, tear_down),
		cmocka_unit_test_setup_teardown(busy_ones_let_others_pass, set_up_tls, tear_down),
		cmocka_unit_test_setup_teardown(dialled_at_a_message, set_up_tls, tear_down),
		cmocka_unit_test_setup_teardown(dialling_at_the_end, set_up_tls, tear_down),
		cmocka_unit_test_setup_teardown(fragments_of_the_peer, set_up_tls, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
