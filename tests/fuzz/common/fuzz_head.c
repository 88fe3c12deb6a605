/* Fuzz target: what a stranger's connection sends a listener: the heads of requests, bodies, an upgrade to a WebSocket
 * and what follows it, with everything behind a real socket.
 *
 * The first byte says where the rest is cut in two; the second part is sent once the first was read. Each handler is
 * called in the order of net_handler, and only for a head that, looked at here in another way, has lines that end with
 * CR LF, none that goes on another, and no control character anywhere; its texts are what a request may hold, every
 * POST ends, and the connection does, too, once the client has hung up. */
#include "common/base/log.h"
#include "common/net/ws/ws.h"
#include "server/traces/traceparent.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PATIENCE_MS = 60000, POST_BYTES = 256, MOST_INPUT = 16384 };

static struct {
	struct net_loop *loop;
	struct net_listener *listener;
	char socket_path[64];
	const uint8_t *all; // (all_bytes): both parts
	size_t all_bytes;
	size_t head_at; // where in them the head of the next request begins; SIZE_MAX: behind chunks, nobody knows
	const uint8_t *second; // (second_bytes): not sent yet
	size_t second_bytes;
	int fd;
	struct net_watch *client;
	struct net_timer patience, soon;
	unsigned posts, sockets, opened; // that are under way
	bool late;
} world;

static void require(bool condition)
{
	if (!condition)
		abort();
}

// ---- the server ----

static bool is_control(uint8_t byte)
{
	return (byte < ' ' && byte != '\t') || byte == 0x7f;
}

// The head that a handler is asked about. Moves on to what follows it and `body` bytes.
static void check_head(size_t body)
{
	if (world.head_at == SIZE_MAX)
		return;
	const uint8_t *at = world.all + world.head_at, *end = world.all + world.all_bytes;
	if (end - at >= 2 && at[0] == '\r') // one empty line may come first
		at += 2;
	for (bool begins = true, empty = false; !empty; begins = true) {
		for (empty = true; at < end && *at != '\r'; at++, begins = empty = false)
			require(!is_control(*at) && !(begins && (*at == ' ' || *at == '\t')));
		require(end - at >= 2 && at[1] == '\n');
		at += 2;
	}
	world.head_at = body == SIZE_MAX ? SIZE_MAX : (size_t)(at - world.all) + body;
}

// What is taken for one can be told again, in the form that version 00 has.
static void check_traceparent(const char *text)
{
	struct traceparent parent;
	char again[64];
	if (!traceparent_parse(text, &parent))
		return;
	require(strlen(parent.trace_id) == 32 && strlen(parent.span_id) == 16);
	snprintf(again, sizeof again, "-%s-%s-", parent.trace_id, parent.span_id);
	require(!strncmp(text + 2, again, strlen(again)));
}

static void check_request(const struct net_request *request)
{
	const char *const texts[] = {request->path,          request->host,          request->origin,
				     request->authorization, request->if_none_match, request->subprotocol,
				     request->traceparent};
	require(request->local && request->peer_uid == getuid() && !request->tls && !request->certificate.uri[0]);
	require(!strcmp(request->peer, "local"));
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		for (const char *at = texts[i]; *at; at++)
			require(!is_control((uint8_t)*at) || !strcmp(texts[i], NET_TOO_LONG));
	check_traceparent(request->traceparent);
}

static void on_http(void *context, const struct net_request *request, struct net_response *response)
{
	static const uint8_t body[] = "hello";
	(void)context;
	check_request(request);
	check_head(0);
	response->status = 200;
	response->body = body;
	response->body_bytes = sizeof body - 1;
}

static bool on_options(void *context, const struct net_request *request, struct net_response *response)
{
	(void)context;
	check_request(request);
	check_head(0);
	response->status = 204;
	return true;
}

static bool on_post(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	check_request(request);
	check_head(request->body_bytes ? request->body_bytes : SIZE_MAX);
	if (request->body_bytes != NET_NO_LENGTH && request->body_bytes > POST_BYTES) {
		response->status = 413;
		return false;
	}
	if (request->path[1] == 'n')
		return false; // nothing is taken
	world.posts++;
	*user = context;
	return true;
}

static void answer(struct net_exchange *exchange, int status)
{
	struct net_response response = {.status = status, .body = (const uint8_t *)"{}", .body_bytes = 2};
	net_exchange_answer(exchange, &response);
}

static void on_posted(void *user, struct net_exchange *exchange, const uint8_t *body, size_t length)
{
	volatile uint8_t sum = 0;
	require(user == &world && length <= LIMIT_POST_BYTES);
	for (size_t i = 0; i < length; i++)
		sum = (uint8_t)(sum + body[i]);
	if (!(length % 3)) {
		answer(exchange, 200);
		return;
	}
	const struct net_response response = {.status = 200};
	net_exchange_begin(exchange, &response);
	net_exchange_send(exchange, "data: {}\n\n", 10);
	net_exchange_end(exchange);
}

static void on_misread(void *user, struct net_exchange *exchange, const struct error *error)
{
	require(user == &world && error->message[0]);
	answer(exchange, 400);
}

static void on_over(void *user)
{
	require(user == &world && world.posts-- > 0);
}

static bool on_upgrade(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	check_request(request);
	check_head(SIZE_MAX);
	if (request->path[1] == 'n') {
		response->status = 403;
		return false;
	}
	world.sockets++;
	*user = context;
	return true;
}

static void on_opened(void *user, struct net_conn *conn)
{
	require(user == &world && conn && world.opened < world.sockets);
	world.opened++;
}

static void on_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	(void)binary;
	require(user == &world && world.opened && length <= LIMIT_LOGIN_BYTES);
	net_conn_send_text(conn, length ? "taken" : "", length ? 5 : 0);
	require(!length || bytes);
}

static void on_closed(void *user, struct net_conn *conn, int code)
{
	(void)code;
	require(user == &world && world.sockets-- > 0);
	world.opened -= conn && world.opened;
}

static const struct net_handler handler = {.http = on_http,
					   .options = on_options,
					   .post = on_post,
					   .posted = on_posted,
					   .misread = on_misread,
					   .over = on_over,
					   .upgrade = on_upgrade,
					   .opened = on_opened,
					   .message = on_message,
					   .closed = on_closed};

// ---- the client ----

static void hung_up(void)
{
	net_watch_destroy(&world.client); // and with it the socket
	net_loop_stop(world.loop);
}

static void client_readable(void *arg, int fd)
{
	char bytes[4096];
	(void)arg;
	ssize_t got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
	if (!got || (got < 0 && errno != EAGAIN && errno != EINTR))
		hung_up();
}

static void say(const uint8_t *bytes, size_t length)
{
	ssize_t sent = send(world.fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
	(void)sent; // who is gone hears no more
}

static void say_second(void *arg)
{
	(void)arg;
	if (!world.client)
		return;
	say(world.second, world.second_bytes);
	shutdown(world.fd, SHUT_WR);
}

static void is_late(void *arg)
{
	(void)arg;
	world.late = true;
	net_loop_stop(world.loop);
}

static void remove_socket(void)
{
	unlink(world.socket_path);
}

static void begin_once(void)
{
	static const char *const protocols[] = {"exogpu.v1", NULL};
	if (world.loop)
		return;
	signal(SIGPIPE, SIG_IGN);
	log_set_level(LOG_ERROR);
	snprintf(world.socket_path, sizeof world.socket_path, "/dev/shm/exogpu-fuzz-%d.sock", (int)getpid());
	require(!net_loop_create(&world.loop, NULL) && !atexit(remove_socket));
	const struct net_listener_params params = {.socket_path = world.socket_path,
						   .ping_s = 10,
						   .silence_s = 30,
						   .subprotocols = protocols,
						   .handler = &handler,
						   .context = &world};
	require(!net_listener_create(&world.listener, world.loop, &params, NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct net_watch_events events = {.readable = client_readable};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (size < 2 || size > MOST_INPUT)
		return 0;
	begin_once();
	const size_t cut = (size - 1) * data[0] / 256;
	memcpy(address.sun_path, world.socket_path, strlen(world.socket_path) + 1);
	world.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	require(world.fd >= 0 && !connect(world.fd, (const struct sockaddr *)&address, sizeof address));
	require(!net_watch_create(&world.client, world.loop, world.fd, &events, NULL, NULL));
	world.all = data + 1;
	world.all_bytes = size - 1;
	world.head_at = 0;
	world.second = data + 1 + cut;
	world.second_bytes = size - 1 - cut;
	world.late = false;
	if (cut)
		say(data + 1, cut);
	net_timer_start(world.loop, &world.soon, 0, say_second, NULL);
	net_timer_start(world.loop, &world.patience, PATIENCE_MS, is_late, NULL);
	while (!world.late && (world.client || world.posts || world.sockets))
		net_loop_run(world.loop);
	net_timer_stop(world.loop, &world.patience);
	net_timer_stop(world.loop, &world.soon);
	require(!world.late);
	return 0;
}
