/* See client.h. */
#include "server/cli/client.h"

#include "common/base/log.h"
#include "common/net/ws.h"
#include "common/wire/message.h"

#include <signal.h>
#include <string.h>

enum { LOGIN_ID = 1, CALL_ID = 2 };

struct client {
	const struct target *target;
	const char *method;
	struct json *params, *result;
	struct net_loop *loop;
	struct net_timer deadline;
	struct error *error;
	enum status status;
	bool done;
};

static void finish(struct client *client, enum status status)
{
	if (client->done)
		return;
	client->done = true;
	client->status = status;
	net_loop_stop(client->loop);
}

static void send_call(struct client *client, struct net_conn *conn, int number, const char *method, struct json *params)
{
	struct buffer text;
	struct json *id = json_new_integer(number);
	buffer_init(&text, LIMIT_HEAD_BYTES);
	enum status status = message_print_call(&text, id, method, params);
	if (!status)
		status = net_conn_send_text(conn, buffer_text(&text), text.length);
	if (status)
		finish(client, error_set(client->error, status, "the call could not be sent: %s", status_text(status)));
	json_destroy(&id);
	buffer_finish(&text);
}

static void send_request(struct client *client, struct net_conn *conn)
{
	struct json *params = client->params;
	client->params = NULL;
	send_call(client, conn, CALL_ID, client->method, params);
}

static void on_opened(void *user, struct net_conn *conn)
{
	struct client *client = user;
	if (!client->target->token[0]) {
		send_request(client, conn);
		return;
	}
	struct json *login = json_new_object();
	json_set_string(login, "token", client->target->token);
	send_call(client, conn, LOGIN_ID, "auth.login", login);
}

// Not message_decode: that bounds what a peer may ask of a server, and an answer may be longer than a question.
static void on_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct client *client = user;
	struct json *head = NULL;
	if (client->done || binary)
		return;
	enum status status = json_parse(&head, (const char *)bytes, length, client->error);
	int64_t id = json_get_integer(head, "id", 0);
	const struct json *result = json_get(head, "result");
	if (status) {
		error_hint(client->error, "is %s an exogpu server of this version?", client->target->name);
		finish(client, STATUS_UNAVAILABLE);
	} else if (json_type(json_get(head, "error")) == JSON_OBJECT) {
		struct message message = {.kind = MESSAGE_ERROR, .error = json_get(head, "error")};
		message_read_error(&message, client->error);
		finish(client, client->error->status ? client->error->status : STATUS_INTERNAL);
	} else if (id == LOGIN_ID && result) {
		send_request(client, conn);
	} else if (id == CALL_ID && result) {
		client->result = json_copy(result);
		finish(client,
		       client->result ? STATUS_OK : error_set(client->error, STATUS_OUT_OF_MEMORY, "out of memory"));
	}
	json_destroy(&head);
}

static void on_closed(void *user, struct net_conn *conn, int code)
{
	struct client *client = user;
	if (client->done)
		return;
	if (!conn)
		target_explain(client->target, client->error);
	else if (code == 1001)
		error_set(client->error, STATUS_UNAVAILABLE, "the server at %s is shutting down", client->target->name);
	else if (code == 1009)
		error_set(client->error, STATUS_LIMIT_EXCEEDED, "a message was too big for this connection");
	else if (code == 4401 || code == 4410)
		error_set(client->error, STATUS_UNAUTHENTICATED,
			  "the server ended the connection: not logged in, or no longer");
	else if (code == 4429)
		error_set(client->error, STATUS_RATE_LIMITED,
			  "the server ended the connection: too many calls or sessions");
	else
		error_set(client->error, STATUS_UNAVAILABLE, "the connection to %s broke before the answer came",
			  client->target->name);
	error_hint(client->error, "try again; if it stays so, look at the server's log");
	finish(client, client->error->status);
}

static void on_late(void *arg)
{
	struct client *client = arg;
	error_set(client->error, STATUS_TIMEOUT, "no answer from %s within %d s", client->target->name,
		  CLIENT_TIMEOUT_MS / 1000);
	error_hint(client->error, "it may be overloaded or stopped: look at its log");
	finish(client, STATUS_TIMEOUT);
}

enum status client_call(const struct target *target, const char *method, struct json *params, struct json **result,
			struct error *error)
{
	static const struct net_handler handler = {.opened = on_opened, .message = on_message, .closed = on_closed};
	struct error ignored = {0};
	struct client client = {
		.target = target, .method = method, .params = params, .error = error ? error : &ignored};
	bool by_socket = target->socket_path[0];
	struct net_dial_params dial = {
		.socket_path = by_socket ? target->socket_path : NULL,
		.host = by_socket ? NULL : target->host,
		.port = target->port,
		.path = "/ws",
		.subprotocol = "exogpu.v1",
		.ping_s = LIMIT_CLIENT_PING_S,
		.silence_s = LIMIT_CLIENT_SILENCE_S,
		.handler = &handler,
		.user = &client,
	};
	log_set_level(LOG_ERROR);
	client.status = net_loop_create(&client.loop, client.error);
	if (client.status)
		goto out;
	net_timer_start(client.loop, &client.deadline, CLIENT_TIMEOUT_MS, on_late, &client);
	enum status status = net_dial(client.loop, &dial, client.error);
	if (status)
		finish(&client, status);
	net_loop_run(client.loop); // comes back at once if the dialling failed at once
out:
	client.done = true;
	if (client.loop)
		net_timer_stop(client.loop, &client.deadline);
	net_loop_destroy(&client.loop);
	// The loop's library switched it off; into a pipe that ended, this program is to end as any.
	signal(SIGPIPE, SIG_DFL);
	json_destroy(&client.params);
	*result = client.result;
	return client.status;
}
