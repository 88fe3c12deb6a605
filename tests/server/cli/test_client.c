/* One call against a server that answers, refuses, breaks off or talks nonsense: a child process with a loop of its
 * own. */
#include "common/net/ws.h"
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

static const struct exchange *script;

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

static void on_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	char text[4096];
	(void)user, (void)binary;
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

// Call "some.method" of a child that follows `exchanges` (NULL: it refuses the upgrade).
static enum status call(const struct exchange *exchanges, const char *token, struct json **result, struct error *error)
{
	char directory[] = "/tmp/exogpu-client-XXXXXX", byte;
	int ready[2];
	struct target target = {.name = "the test"};
	struct json *params = json_new_object();
	json_set_integer(params, "answer", 42);
	*error = (struct error){0};
	snprintf(target.token, sizeof target.token, "%s", token ? token : "");
	assert_non_null(mkdtemp(directory));
	snprintf(target.socket_path, sizeof target.socket_path, "%s/exogpu.sock", directory);
	assert_int_equal(pipe(ready), 0);
	script = exchanges;
	pid_t child = fork();
	assert_true(child >= 0);
	if (!child)
		serve(target.socket_path, ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	enum status status = client_call(&target, "some.method", params, result, error);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(ready[0]);
	close(ready[1]);
	unlink(target.socket_path);
	rmdir(directory);
	return status;
}

static void an_answer_comes_back(void **state)
{
	static const struct exchange exchanges[] = {
		{"\"some.method\"", "{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{}}", 0},
		{"\"answer\":42", "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"ok\":true}}", 0},
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
		{{{"some.method", "{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":0}}", 0}}, STATUS_INTERNAL, ""},
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_comes_back),
		cmocka_unit_test(a_token_logs_in_first),
		cmocka_unit_test(a_refusal_comes_in_the_servers_words),
		cmocka_unit_test(whatever_breaks_is_told),
		cmocka_unit_test(a_refused_upgrade_is_told),
		cmocka_unit_test(nobody_there_is_told),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
