/* See client.h. Answers that nobody waits for yet are kept, at most CLIENT_WINDOW of them: as many as calls are under
 * way. They are not held to the contract: a server of another version may know more. */
#include "server/cli/client.h"

#include "common/base/bytes.h"
#include "common/base/log.h"
#include "common/net/ws/ws.h"
#include "common/wire/rpc.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { KEEP_MS = 20 };

struct answer {
	struct client *client; // NULL: a free place
	bool here;             // false: under way
	struct json *result;
	struct error error;
	size_t body_bytes; // that came with it
	struct buffer *body_to;
};

struct client {
	const struct target *target;
	struct net_loop *loop;
	struct net_conn *conn; // NULL before it opened and after it closed
	struct net_timer deadline;
	bool opened, late;
	char fault[300];     // why it did not open, as far as the connection itself knows
	struct error broken; // why there is no connection any more; status 0 while there is
	struct rpc rpc;
	struct answer answers[CLIENT_WINDOW]; // the id of a call is its place + 1
	const uint8_t *body;                  // (body_bytes) of the message that is being taken
	size_t body_bytes;
	bool (*notice)(void *context, const char *method, const struct json *params);
	void *context;
	bool leave; // what client_stay waits for has come
	struct net_watch *signals;
	sigset_t before;       // the signals that were blocked before those were caught
	struct sigaction pipe; // what SIGPIPE did before the loop's library switched it off
};

// Whoever waits looks again.
static void wake(struct client *client)
{
	if (client->loop) // NULL while it is being taken down
		net_loop_stop(client->loop);
}

static void answer_finish(struct answer *answer)
{
	json_destroy(&answer->result);
	*answer = (struct answer){0};
}

static struct answer *find_free(struct client *client)
{
	for (size_t i = 0; i < CLIENT_WINDOW; i++)
		if (!client->answers[i].client)
			return &client->answers[i];
	return NULL;
}

static void on_opened(void *user, struct net_conn *conn)
{
	struct client *client = user;
	client->conn = conn;
	client->opened = true;
	wake(client);
}

// What cannot be understood ends the connection: nothing that comes after it could be trusted.
static void break_off(struct client *client)
{
	error_hint(&client->broken, "is %s an exogpu server of this version?", client->target->name);
	client->broken.status = STATUS_UNAVAILABLE;
	if (client->conn)
		net_conn_close(client->conn, 1002, "not a message");
	wake(client);
}

static void answered(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct answer *answer = context;
	answer->here = true;
	if (status) {
		answer->error = *error;
	} else {
		answer->result = json_copy(result);
		answer->body_bytes = answer->client->body_bytes;
		if (answer->body_to && answer->body_bytes &&
		    buffer_append(answer->body_to, answer->client->body, answer->body_bytes))
			error_set(&answer->error, STATUS_LIMIT_EXCEEDED, "an answer of %zu bytes is too long",
				  answer->body_bytes);
		if (!answer->result)
			error_set(&answer->error, STATUS_OUT_OF_MEMORY, "out of memory");
	}
	wake(answer->client);
}

static void take_message(struct client *client, struct json *head)
{
	struct message message;
	struct error error = {0};
	if (message_take(&message, head, &client->broken)) {
		break_off(client);
	} else if (message.kind == MESSAGE_RESULT || message.kind == MESSAGE_ERROR) {
		rpc_take(&client->rpc, &message, &error); // what nobody waits for is passed over
	} else if (client->notice && !client->notice(client->context, message.method, message.params)) {
		client->leave = true;
		wake(client);
	}
	message_finish(&message);
}

// Not message_decode: that bounds what a peer may ask of a server, and an answer may be longer than a question.
static void on_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct client *client = user;
	struct json *head = NULL;
	size_t head_bytes = length;
	(void)conn;
	if (client->broken.status)
		return;
	client->body_bytes = 0;
	if (binary) {
		head_bytes = length < 4 ? SIZE_MAX : read_u32le(bytes);
		if (length < 4 || head_bytes > length - 4) {
			error_set(&client->broken, STATUS_UNAVAILABLE, "the server sent a frame that is no message");
			break_off(client);
			return;
		}
		bytes += 4;
		client->body = bytes + head_bytes;
		client->body_bytes = length - 4 - head_bytes;
	}
	if (json_parse(&head, (const char *)bytes, head_bytes, &client->broken))
		break_off(client);
	else
		take_message(client, head);
}

static void on_failed(void *user, enum net_failure failure, const char *fault)
{
	struct client *client = user;
	(void)failure;
	snprintf(client->fault, sizeof client->fault, "%s", fault);
}

static void on_closed(void *user, struct net_conn *conn, int code)
{
	struct client *client = user;
	struct error *error = &client->broken;
	client->conn = NULL;
	wake(client);
	if (error->status)
		return;
	if (!conn)
		target_explain(client->target, client->fault, error);
	else if (code == 1001)
		error_set(error, STATUS_UNAVAILABLE, "the server at %s is shutting down or restarting",
			  client->target->name);
	else if (code == 1009)
		error_set(error, STATUS_LIMIT_EXCEEDED, "a message was too big for this connection");
	else if (code == 4401 || code == 4410)
		error_set(error, STATUS_UNAUTHENTICATED,
			  "the server ended the connection: not logged in, or no longer");
	else if (code == 4429)
		error_set(error, STATUS_RATE_LIMITED, "the server ended the connection: too many calls or sessions");
	else
		error_set(error, STATUS_UNAVAILABLE, "the connection to %s broke before the answer arrived",
			  client->target->name);
	error_hint(error, "try again; if that does not help, look at the server's log");
}

static void on_late(void *arg)
{
	struct client *client = arg;
	client->late = true;
	wake(client);
}

static enum status fail(const struct client *client, struct error *error)
{
	if (error && !error->message[0])
		*error = client->broken;
	return client->broken.status;
}

static enum status fail_late(const struct client *client, int64_t timeout_ms, struct error *error)
{
	error_set(error, STATUS_TIMEOUT, "no answer from %s within %lld s", client->target->name,
		  (long long)timeout_ms / 1000);
	error_hint(error, "it may be overloaded or stopped: look at its log");
	return STATUS_TIMEOUT;
}

static void start_clock(struct client *client, int64_t timeout_ms)
{
	client->late = false;
	net_timer_start(client->loop, &client->deadline, timeout_ms, on_late, client);
}

enum status client_wait(struct client *client, const struct client_wait *wait, struct error *error)
{
	int64_t timeout_ms = wait->timeout_ms ? wait->timeout_ms : CLIENT_TIMEOUT_MS;
	struct answer *answer = wait->id > 0 && wait->id <= CLIENT_WINDOW ? &client->answers[wait->id - 1] : NULL;
	enum status status = STATUS_OK;
	if (wait->result)
		*wait->result = NULL;
	if (!answer || !answer->client)
		return error_set(error, STATUS_INTERNAL, "no call %lld is under way", (long long)wait->id);
	start_clock(client, timeout_ms);
	while (!answer->here && !client->broken.status && !client->late)
		net_loop_run(client->loop);
	net_timer_stop(client->loop, &client->deadline);
	if (answer->here && answer->error.status) {
		status = answer->error.status;
		if (error && !error->message[0])
			*error = answer->error;
	} else if (answer->here) {
		if (wait->body_bytes && answer->body_bytes != wait->body_bytes)
			status = error_set(error, STATUS_INTERNAL, "an answer of %zu bytes where %zu are expected",
					   answer->body_bytes, wait->body_bytes);
		if (!status && wait->result) {
			*wait->result = answer->result;
			answer->result = NULL;
		}
	} else {
		status = client->broken.status ? fail(client, error) : fail_late(client, timeout_ms, error);
		if (wait->late)
			*wait->late = !client->broken.status;
	}
	if (answer->here || client->broken.status)
		answer_finish(answer);
	return status;
}

static enum status send_message(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	struct client *client = arg;
	struct buffer start;
	if (!client->conn)
		return STATUS_UNAVAILABLE;
	if (!body)
		return net_conn_send_text(client->conn, buffer_text(head), head->length);
	if (body->length > LIMIT_BODY_BYTES)
		return STATUS_LIMIT_EXCEEDED;
	buffer_init(&start, LIMIT_HEAD_BYTES + 4);
	enum status status = buffer_append_u32le(&start, (uint32_t)head->length);
	if (!status)
		status = buffer_append(&start, head->data, head->length);
	struct net_frame *frame = status ? NULL : net_frame_chain(start.data, start.length, body->holder);
	status = frame ? net_conn_send(client->conn, frame, 0) : STATUS_OUT_OF_MEMORY;
	net_frame_unref(&frame);
	buffer_finish(&start);
	return status;
}

enum status client_send(struct client *client, const struct client_call *call, int64_t *id, struct error *error)
{
	struct answer *answer = find_free(client);
	struct json *params = call->params;
	enum status status = STATUS_OK;
	if (!answer)
		status = error_set(error, STATUS_LIMIT_EXCEEDED, "%d calls are in flight", CLIENT_WINDOW);
	else if (!client->conn)
		status = fail(client, error);
	if (status) {
		json_destroy(&params);
		return status;
	}
	const struct rpc_body body = {.length = call->body ? net_frame_bytes(call->body) : 0, .holder = call->body};
	*answer = (struct answer){.client = client, .body_to = call->body_to};
	*id = answer - client->answers + 1;
	status = rpc_call(&client->rpc, &(struct rpc_ask){.method = call->method,
							  .params = params,
							  .done = answered,
							  .context = answer,
							  .body = call->body ? &body : NULL});
	if (!status)
		return STATUS_OK;
	answer_finish(answer);
	return error_set(error, status, "the call could not be sent: %s", status_text(status));
}

void client_keep(struct client *client)
{
	start_clock(client, KEEP_MS);
	while (!client->late && !client->broken.status)
		net_loop_run(client->loop);
	net_timer_stop(client->loop, &client->deadline);
}

enum status client_ask(struct client *client, const struct client_call *call, struct json **result, struct error *error)
{
	struct client_wait wait = {.result = result};
	*result = NULL;
	enum status status = client_send(client, call, &wait.id, error);
	return status ? status : client_wait(client, &wait, error);
}

enum status client_dial(struct net_loop *loop, const struct target *target, const struct net_handler *handler,
			void *user, struct error *error)
{
	const struct trust *trust = &target->trust;
	const struct net_dial_tls tls = {
		.authority_pem = trust->authority_pem[0] ? trust->authority_pem : NULL,
		.authority_sha256 = trust->pinned ? trust->authority_sha256 : NULL,
		.server_uri = trust->server_uri[0] ? trust->server_uri : NULL,
	};
	const bool by_socket = target->socket_path[0];
	const struct net_dial_params params = {
		.socket_path = by_socket ? target->socket_path : NULL,
		.host = by_socket ? NULL : target->host,
		.port = target->port,
		.path = "/ws",
		.subprotocol = "exogpu.v1",
		.tls = target->tls ? &tls : NULL,
		.ping_s = LIMIT_CLIENT_PING_S,
		.silence_s = LIMIT_CLIENT_SILENCE_S,
		.speaks_first = true, // the server answers
		.handler = handler,
		.user = user,
	};
	return net_dial(loop, &params, error);
}

static enum status dial(struct client *client, struct error *error)
{
	static const struct net_handler handler = {
		.opened = on_opened, .message = on_message, .failed = on_failed, .closed = on_closed};
	start_clock(client, CLIENT_TIMEOUT_MS);
	enum status status = client_dial(client->loop, client->target, &handler, client, error);
	while (!status && !client->opened && !client->broken.status && !client->late)
		net_loop_run(client->loop);
	net_timer_stop(client->loop, &client->deadline);
	if (status || client->opened)
		return status;
	return client->broken.status ? fail(client, error) : fail_late(client, CLIENT_TIMEOUT_MS, error);
}

// The loop's library switches SIGPIPE off for the whole process.
static enum status create_loop(struct client *client, struct error *error)
{
	static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&one_at_a_time);
	sigaction(SIGPIPE, NULL, &client->pipe);
	enum status status = net_loop_create(&client->loop, error);
	if (client->target->guest)
		sigaction(SIGPIPE, &client->pipe, NULL);
	pthread_mutex_unlock(&one_at_a_time);
	return status;
}

enum status client_open(struct client **out, const struct target *target, struct error *error)
{
	struct client *client = calloc(1, sizeof(*client));
	*out = NULL;
	if (!client)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	client->target = target;
	rpc_init(&client->rpc, &(struct rpc_params){.peer = "the server",
						    .most_calls = CLIENT_WINDOW,
						    .in_order = true,
						    .send = send_message,
						    .arg = client});
	log_set_level(LOG_ERROR);
	enum status status = create_loop(client, error);
	if (!status)
		status = dial(client, error);
	if (!status && target->token[0]) {
		struct json *login = json_new_object(), *answer = NULL;
		json_set_string(login, "token", target->token);
		status = client_ask(client, &(struct client_call){.method = "auth.login", .params = login}, &answer,
				    error);
		json_destroy(&answer);
	}
	if (status)
		client_close(&client);
	*out = client;
	return status;
}

void client_close(struct client **pointer)
{
	struct client *client = *pointer;
	if (!client)
		return;
	*pointer = NULL;
	if (!client->broken.status)
		client->broken.status = STATUS_UNAVAILABLE; // no longer explained
	if (client->loop)
		net_timer_stop(client->loop, &client->deadline);
	net_watch_destroy(&client->signals);
	net_loop_destroy(&client->loop);
	rpc_close(&client->rpc, NULL);
	for (size_t i = 0; i < CLIENT_WINDOW; i++)
		answer_finish(&client->answers[i]);
	if (!client->target->guest) // into a pipe that ended, this program is to end as any
		sigaction(SIGPIPE, &client->pipe, NULL);
	free(client);
}

static void signalled(void *arg, int fd)
{
	struct client *client = arg;
	struct signalfd_siginfo info;
	while (read(fd, &info, sizeof info) == sizeof info)
		client->leave = true;
	wake(client);
}

enum status client_catch(struct client *client, struct error *error)
{
	static const struct net_watch_events events = {.readable = signalled};
	sigset_t ends;
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGALRM);
	sigprocmask(SIG_BLOCK, &ends, &client->before);
	int fd = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
	enum status status = fd < 0 ? error_errno(error, STATUS_UNAVAILABLE, errno, "signalfd")
				    : net_watch_create(&client->signals, client->loop, fd, &events, client, error);
	if (status && fd >= 0)
		close(fd);
	if (status)
		sigprocmask(SIG_SETMASK, &client->before, NULL);
	return status;
}

void client_listen(struct client *client, bool (*notice)(void *context, const char *method, const struct json *params),
		   void *context)
{
	client->notice = notice;
	client->context = context;
}

enum status client_stay(struct client *client,
			bool (*notice)(void *context, const char *method, const struct json *params), void *context,
			struct error *error)
{
	enum status status = client->signals ? STATUS_OK : client_catch(client, error);
	if (status)
		return status;
	client->notice = notice;
	client->context = context;
	client->leave = false;
	while (!client->leave && !client->broken.status)
		net_loop_run(client->loop);
	client->notice = NULL;
	net_watch_destroy(&client->signals);
	sigprocmask(SIG_SETMASK, &client->before, NULL); // a second Ctrl-C ends whatever is still to be done
	return client->leave ? STATUS_OK : fail(client, error);
}

enum status client_call(const struct target *target, const char *method, struct json *params, struct json **result,
			struct error *error)
{
	struct error ignored = {0};
	struct client *client;
	*result = NULL;
	error = error ? error : &ignored;
	enum status status = client_open(&client, target, error);
	if (status)
		json_destroy(&params);
	else
		status = client_ask(client, &(struct client_call){.method = method, .params = params}, result, error);
	client_close(&client);
	return status;
}
