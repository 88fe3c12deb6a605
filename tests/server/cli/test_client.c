/* Calls to a server that answers, refuses, breaks off or talks nonsense: a child process with a loop of its own. It
 * follows a script, or serves a few methods: write tells the sum of the body, read gives a body, hold is answered after
 * the call that comes next, never is not, notify brings a notification before its answer. */
#include "common/net/ws/ws.h"
#include "common/wire/message.h"
#include "server/cli/client.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

// What the child answers to a message that holds `request`, in this order; NULL ends.
struct exchange {
	const char *request, *answer; // answer NULL: close with `code`
	int code;
};

static const struct exchange *script, methods[1];

static bool on_upgrade(void *context, const struct net_request *request, void **user, struct net_response *response)
{
	(void)context, (void)request;
	*user = NULL;
	if (script)
		return true;
	response->status = 403;
	response->content_type = "text/plain";
	response->body = (const uint8_t *)"no\n";
	response->body_bytes = 3;
	return false;
}

static void on_opened(void *user, struct net_conn *conn)
{
	(void)user;
	net_conn_trust(conn);
}

static void answer(struct net_conn *conn, const struct json *id, const char *key, int64_t value, size_t body_bytes)
{
	static uint8_t body[1 << 20];
	struct json *result = json_new_object();
	struct buffer head, bytes;
	json_set_integer(result, key, value);
	memset(body, (int)(body_bytes & 0xff), body_bytes);
	buffer_init(&head, LIMIT_HEAD_BYTES);
	buffer_init(&bytes, sizeof body + LIMIT_HEAD_BYTES);
	message_print_result(&head, id, result);
	message_encode(&bytes, buffer_text(&head), head.length, body, body_bytes);
	struct net_frame *frame = net_frame_create(bytes.data, bytes.length, false);
	net_conn_send(conn, frame, 0);
	net_frame_unref(&frame);
	buffer_finish(&head);
	buffer_finish(&bytes);
}

static void serve_method(struct net_conn *conn, const struct message *message)
{
	static const char notice[] = "{\"jsonrpc\":\"2.0\",\"method\":\"news\",\"params\":{\"number\":7}}";
	static struct json *held;
	int64_t sum = 0;
	for (size_t i = 0; i < message->body_bytes; i++)
		sum += message->body[i];
	if (!strcmp(message->method, "never"))
		return;
	if (!strcmp(message->method, "hold")) {
		held = json_copy(message->id);
		return;
	}
	if (!strcmp(message->method, "notify"))
		net_conn_send_text(conn, notice, sizeof notice - 1);
	answer(conn, message->id, "sum", sum, (size_t)json_get_integer(message->params, "bytes", 0));
	if (held)
		answer(conn, held, "held", 1, 0);
	json_destroy(&held);
}

static void on_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	char text[4096];
	struct message message = {0};
	(void)user;
	if (script == methods) {
		if (!(binary ? message_decode(&message, bytes, length, NULL)
			     : message_decode_text(&message, (const char *)bytes, length, NULL)))
			serve_method(conn, &message);
		message_finish(&message);
		return;
	}
	snprintf(text, sizeof text, "%.*s", (int)length, (const char *)bytes);
	for (const struct exchange *one = script; one->request; one++) {
		if (!strstr(text, one->request))
			continue;
		if (one->answer)
			net_conn_send_text(conn, one->answer, strlen(one->answer));
		else
			net_conn_close(conn, one->code, "as told");
	}
}

static void on_closed(void *user, struct net_conn *conn, int code)
{
	(void)user, (void)conn, (void)code;
}

static void serve(const char *socket_path, int ready)
{
	static const struct net_handler handler = {
		.upgrade = on_upgrade, .opened = on_opened, .message = on_message, .closed = on_closed};
	static const char *const subprotocols[] = {"exogpu.v1", NULL};
	static const struct net_header headers[] = {{0}};
	struct net_loop *loop;
	struct net_listener *listener;
	struct net_listener_params params = {.socket_path = socket_path,
					     .ping_s = 20,
					     .silence_s = 30,
					     .subprotocols = subprotocols,
					     .headers = headers,
					     .handler = &handler};
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!net_loop_create(&loop, NULL) && !net_listener_create(&listener, loop, &params, NULL)) {
		write(ready, "r", 1) == 1 ? net_loop_run(loop) : (void)0;
	}
	_exit(1);
}

struct server {
	pid_t child;
	char directory[32];
	struct target target;
};

// A child that follows `exchanges` (NULL: it refuses the upgrade; `methods`: see above).
static void start(struct server *server, const struct exchange *exchanges)
{
	char byte;
	int ready[2];
	*server = (struct server){.directory = "/tmp/exogpu-client-XXXXXX", .target.name = "the test"};
	assert_non_null(mkdtemp(server->directory));
	snprintf(server->target.socket_path, sizeof server->target.socket_path, "%s/exogpu.sock", server->directory);
	assert_int_equal(pipe(ready), 0);
	script = exchanges;
	server->child = fork();
	assert_true(server->child >= 0);
	if (!server->child)
		serve(server->target.socket_path, ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
}

static void stop(struct server *server)
{
	kill(server->child, SIGKILL);
	waitpid(server->child, NULL, 0);
	unlink(server->target.socket_path);
	rmdir(server->directory);
}

// Call "some.method".
static enum status call(const struct exchange *exchanges, const char *token, struct json **result, struct error *error)
{
	struct server server;
	struct json *params = json_new_object();
	json_set_integer(params, "answer", 42);
	*error = (struct error){0};
	start(&server, exchanges);
	snprintf(server.target.token, sizeof server.target.token, "%s", token ? token : "");
	enum status status = client_call(&server.target, "some.method", params, result, error);
	stop(&server);
	return status;
}

static void an_answer_comes_back(void **state)
{
	static const struct exchange exchanges[] = {
		{"\"some.method\"", "{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{}}", 0},
		{"\"answer\":42", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"ok\":true}}", 0},
		{0}};
	struct json *result;
	struct error error;
	(void)state;
	assert_int_equal(call(exchanges, NULL, &result, &error), STATUS_OK);
	assert_true(json_get_bool(result, "ok", false));
	json_destroy(&result);
}

static void a_token_logs_in_first(void **state)
{
	static const struct exchange exchanges[] = {
		{"\"auth.login\",\"params\":{\"token\":\"exo_1\"}",
		 "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"name\":\"n\"}}", 0},
		{"\"some.method\"", "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":[]}", 0},
		{0}};
	struct json *result;
	struct error error;
	(void)state;
	assert_int_equal(call(exchanges, "exo_1", &result, &error), STATUS_OK);
	assert_int_equal(json_type(result), JSON_ARRAY);
	json_destroy(&result);
}

static void a_refusal_comes_in_the_servers_words(void **state)
{
	static const struct exchange exchanges[] = {{"\"auth.login\"",
						     "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32001,"
						     "\"message\":\"expired\",\"data\":{\"reason\":"
						     "\"unauthenticated\",\"hint\":\"make another\"}}}",
						     0},
						    {0}};
	struct json *result;
	struct error error;
	(void)state;
	assert_int_equal(call(exchanges, "exo_1", &result, &error), STATUS_UNAUTHENTICATED);
	assert_string_equal(error.message, "expired");
	assert_string_equal(error.hint, "make another");
	assert_null(result);
}

static void whatever_breaks_is_told(void **state)
{
	static const struct {
		struct exchange exchanges[2];
		enum status status;
		const char *says;
	} cases[] = {
		{{{"some.method", NULL, 1001}}, STATUS_UNAVAILABLE, "shutting down"},
		{{{"some.method", NULL, 4410}}, STATUS_UNAUTHENTICATED, "not logged in"},
		{{{"some.method", NULL, 4429}}, STATUS_RATE_LIMITED, "too many"},
		{{{"some.method", NULL, 4408}}, STATUS_UNAVAILABLE, "broke"},
		{{{"some.method", "<html>", 0}}, STATUS_UNAVAILABLE, ""},
		{{{"some.method", "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"m\"}}",
		   0}},
		 STATUS_PARSE_ERROR,
		 "m"},
		{{{"some.method", "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":0}}", 0}}, STATUS_INTERNAL, ""},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct json *result;
		struct error error;
		enum status status = call(cases[i].exchanges, NULL, &result, &error);
		if (status != cases[i].status || !strstr(error.message, cases[i].says) || !error.message[0])
			fail_msg("case %zu: status %d, not %d: %s", i, status, cases[i].status, error.message);
		assert_null(result);
	}
}

static void a_refused_upgrade_is_told(void **state)
{
	struct json *result;
	struct error error;
	(void)state;
	assert_int_equal(call(NULL, NULL, &result, &error), STATUS_UNAVAILABLE);
	assert_non_null(strstr(error.message, "did not take the connection"));
	assert_true(error.hint[0]);
}

static void nobody_there_is_told(void **state)
{
	static const struct target targets[] = {
		{.socket_path = "/tmp/exogpu-client-there-is-no-such.sock", .name = "x"},
		{.host = "127.0.0.1", .port = 1, .token = "exo_1", .name = "127.0.0.1:1"},
		{.host = "no-such-host.invalid", .port = 1, .token = "exo_1", .name = "no-such-host.invalid:1"},
	};
	(void)state;
	for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
		struct json *result;
		struct error error = {0};
		assert_int_equal(client_call(&targets[i], "some.method", NULL, &result, &error), STATUS_UNAVAILABLE);
		assert_true(error.message[0]);
		assert_null(result);
	}
}

static int64_t send_one(struct client *client, const char *method, int64_t bytes)
{
	int64_t id = 0;
	struct error error = {0};
	struct json *params = json_new_object();
	json_set_integer(params, "bytes", bytes);
	if (client_send(client, &(struct client_call){.method = method, .params = params}, &id, &error))
		fail_msg("%s: %s", method, error.message);
	return id;
}

static void answers_come_in_any_order_with_their_bodies(void **state)
{
	struct server server;
	struct client *client;
	struct json *result;
	struct error error = {0};
	(void)state;
	start(&server, methods);
	assert_int_equal(client_open(&client, &server.target, &error), STATUS_OK);
	int64_t held = send_one(client, "hold", 0), read = send_one(client, "read", 1000);
	assert_int_equal(client_wait(client, &(struct client_wait){.id = held, .result = &result}, &error), STATUS_OK);
	assert_int_equal(json_get_integer(result, "held", 0), 1);
	json_destroy(&result);
	assert_int_equal(client_wait(client, &(struct client_wait){.id = read, .body_bytes = 1000}, &error), STATUS_OK);
	// Each answer is had once, and a body of another length is no answer.
	assert_int_equal(client_wait(client, &(struct client_wait){.id = read}, NULL), STATUS_INTERNAL);
	read = send_one(client, "read", 1000);
	assert_int_equal(client_wait(client, &(struct client_wait){.id = read, .body_bytes = 999}, NULL),
			 STATUS_INTERNAL);
	client_close(&client);
	stop(&server);
}

static void bodies_go_out_in_a_window(void **state)
{
	enum { BODY_BYTES = 900000 };
	struct net_frame *body = net_frame_alloc(BODY_BYTES);
	struct server server;
	struct client *client;
	struct error error = {0};
	int64_t ids[4], sum = 0;
	(void)state;
	assert_non_null(body);
	for (size_t i = 0; i < BODY_BYTES; i++)
		sum += net_frame_data(body)[i] = (uint8_t)(i * 7);
	start(&server, methods);
	assert_int_equal(client_open(&client, &server.target, &error), STATUS_OK);
	for (int round = 0; round < 5; round++) {
		struct client_call call = {.method = "write", .body = body};
		for (int i = 0; i < 4; i++)
			if (client_send(client, &call, &ids[i], &error))
				fail_msg("%s", error.message);
		for (int i = 3; i >= 0; i--) {
			struct json *result;
			if (client_wait(client, &(struct client_wait){.id = ids[i], .result = &result}, &error))
				fail_msg("%s", error.message);
			assert_int_equal(json_get_integer(result, "sum", -1), sum);
			json_destroy(&result);
		}
	}
	client_close(&client);
	net_frame_unref(&body);
	stop(&server);
}

static void too_many_calls_and_late_answers_are_told(void **state)
{
	struct server server;
	struct client *client;
	struct error error = {0};
	int64_t id = 0;
	(void)state;
	start(&server, methods);
	assert_int_equal(client_open(&client, &server.target, &error), STATUS_OK);
	for (int i = 0; i < CLIENT_WINDOW; i++)
		id = send_one(client, "never", 0);
	assert_int_equal(client_send(client, &(struct client_call){.method = "read"}, &id, &error),
			 STATUS_LIMIT_EXCEEDED);
	error = (struct error){0};
	assert_int_equal(client_wait(client, &(struct client_wait){.id = id, .timeout_ms = 50}, &error),
			 STATUS_TIMEOUT);
	assert_true(error.message[0] && error.hint[0]);
	client_close(&client);
	stop(&server);
}

static int noticed;

static bool on_notice(void *context, const char *method, const struct json *params)
{
	noticed += !strcmp(method, "news") && json_get_integer(params, "number", 0) == 7;
	if (context)
		raise(SIGTERM);
	return context != NULL;
}

static void staying_ends_with_a_notice_a_signal_or_the_connection(void **state)
{
	struct server server;
	struct client *client;
	struct error error = {0};
	(void)state;
	start(&server, methods);
	assert_int_equal(client_open(&client, &server.target, &error), STATUS_OK);
	send_one(client, "notify", 0);
	assert_int_equal(client_stay(client, on_notice, NULL, &error), STATUS_OK);
	assert_int_equal(noticed, 1);
	send_one(client, "notify", 0);
	assert_int_equal(client_stay(client, on_notice, &server, &error), STATUS_OK);
	assert_int_equal(noticed, 2);
	kill(server.child, SIGKILL);
	assert_int_equal(client_stay(client, on_notice, NULL, &error), STATUS_UNAVAILABLE);
	assert_true(error.message[0]);
	client_close(&client);
	stop(&server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_comes_back),
		cmocka_unit_test(a_token_logs_in_first),
		cmocka_unit_test(a_refusal_comes_in_the_servers_words),
		cmocka_unit_test(whatever_breaks_is_told),
		cmocka_unit_test(a_refused_upgrade_is_told),
		cmocka_unit_test(nobody_there_is_told),
		cmocka_unit_test(answers_come_in_any_order_with_their_bodies),
		cmocka_unit_test(bodies_go_out_in_a_window),
		cmocka_unit_test(too_many_calls_and_late_answers_are_told),
		cmocka_unit_test(staying_ends_with_a_notice_a_signal_or_the_connection),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
