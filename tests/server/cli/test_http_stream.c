/* Answers by HTTP of a server that is hostile or broken: a thread that says what a test gives it and then keeps the
 * connection until the client closes it. So a client that would wait for ever makes the test hang. */
#include "server/cli/http_stream.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct server {
	int listener;
	const char *says, *again; // again: said over and over, NULL: nothing more
	pthread_t thread;
	struct target target;
};

static void *serve(void *arg)
{
	struct server *server = arg;
	char bytes[4096];
	const int fd = accept(server->listener, NULL, NULL);
	ssize_t said = send(fd, server->says, strlen(server->says), MSG_NOSIGNAL);
	while (server->again && said >= 0)
		said = send(fd, server->again, strlen(server->again), MSG_NOSIGNAL);
	while (recv(fd, bytes, sizeof bytes, 0) > 0)
		;
	close(fd);
	return NULL;
}

static void start(struct server *server)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	server->target.port = 0;
	server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(server->listener, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(listen(server->listener, 1), 0);
	assert_int_equal(getsockname(server->listener, (struct sockaddr *)&address, &length), 0);
	server->target.port = ntohs(address.sin_port);
	snprintf(server->target.host, sizeof server->target.host, "127.0.0.1");
	snprintf(server->target.name, sizeof server->target.name, "the test");
	assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
}

// What is read of an answer, its lines with a | behind each.
static enum status ask(struct server *server, char *text, size_t size, struct error *error)
{
	struct http_stream *stream = NULL;
	struct buffer body, line;
	bool any = true;
	size_t used = 0;
	*error = (struct error){0};
	text[0] = 0;
	start(server);
	buffer_init(&body, 16);
	buffer_init(&line, 4096);
	buffer_append_text(&body, "{}");
	enum status status = http_stream_post(&stream, &server->target, "/v1/completions", &body, error);
	while (!status && !(status = http_stream_line(stream, &line, &any, error)) && any)
		used += (size_t)snprintf(text + used, size - used, "%s|", buffer_text(&line));
	http_stream_close(&stream);
	pthread_join(server->thread, NULL);
	close(server->listener);
	buffer_finish(&body);
	buffer_finish(&line);
	assert_int_equal(!status, !error->message[0]);
	return status;
}

#define OK_HEAD "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

static void chunks_are_read(void **state)
{
	struct server server = {.says = OK_HEAD "4\r\na\nbc\r\n2;x=y\r\nd\n\r\n0\r\n\r\n"};
	struct error error;
	char text[100];
	(void)state;
	assert_int_equal(ask(&server, text, sizeof text, &error), STATUS_OK);
	assert_string_equal(text, "a|bcd|");
}

// Before, each of these kept the command for as long as the server wanted.
static void an_answer_without_end_ends(void **state)
{
	static const struct {
		const char *says, *again;
	} cases[] = {
		{"HTTP/1.1 200 OK\r\n", "a: b\r\n"},
		{"HTTP/1.1 200 OK\r\na: ", "bbbbbbbb"},
		{"", "HTTP/1.1 "},
		{OK_HEAD, "\r\n"},
		{OK_HEAD "4", "4444"},
		{OK_HEAD "1\r\na\r\n", "\r\n"},
	};
	struct error error;
	char text[100];
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct server server = {.says = cases[i].says, .again = cases[i].again};
		print_message("case %zu\n", i);
		assert_int_equal(ask(&server, text, sizeof text, &error), STATUS_UNAVAILABLE);
		assert_non_null(strstr(error.message, "the connection to the test broke"));
	}
}

// Its end would be missed: it read as a chunk without bytes.
static void what_is_no_chunk_is_told(void **state)
{
	struct server server = {.says = OK_HEAD "1\r\na\r\nxyz\r\n"};
	struct error error;
	char text[100];
	(void)state;
	assert_int_equal(ask(&server, text, sizeof text, &error), STATUS_UNAVAILABLE);
}

static void a_handshake_that_is_not_answered_ends(void **state)
{
	struct server server = {.says = "", .target = {.tls = true, .patience_ms = 20}};
	struct error error;
	char text[100];
	(void)state;
	assert_int_equal(ask(&server, text, sizeof text, &error), STATUS_TIMEOUT);
	assert_non_null(strstr(error.message, "no answer from the test"));
	assert_true(error.hint[0] != 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chunks_are_read),
		cmocka_unit_test(an_answer_without_end_ends),
		cmocka_unit_test(what_is_no_chunk_is_told),
		cmocka_unit_test(a_handshake_that_is_not_answered_ends),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
