/* See join.h. This node calls join.request and join.reveal; after a broken connection it starts again. */
#include "engine/node/uplink/join.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/longer.h"
#include "common/net/tls/pairing.h"
#include "common/net/ws/ws.h"
#include "common/text/ticket_text.h"
#include "common/wire/rpc.h"
#include "engine/node/uplink/addresses.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	PROTOCOL = 1,
	PAUSE_FIRST_MS = 2000, // each attempt shows a new code: not many, and slowly
	PAUSE_LAST_MS = 30000,
	NOTICE_MS = 30000,
	AWAY_MS = 30000,
	CLOSE_DONE = 1000,
	CLOSE_WRONG = 1002,
};

struct join {
	struct join_params params;
	struct ticket_parts ticket;
	char address[CREDENTIALS_ADDRESS_BYTES]; // HOST:PORT
	struct credentials_request request;
	struct net_conn *conn; // NULL: not connected
	struct rpc rpc;        // of this connection
	struct net_timer again, notice;
	int64_t began_ms;             // steady clock
	int64_t pause_ms, waiting_ms; // waiting_ms: steady clock, since when it waits for a person; 0: it does not
	uint8_t authority_sha256[NET_SHA256_BYTES], nonce[PAIRING_NONCE_BYTES];
	char code[PAIRING_CODE_BYTES];
	struct net_watch *terminal; // where the person answers; NULL: no person is asked
	int terminal_flags;         // its own, from before it was watched
	bool agreed;                // that the digits are the same
	struct json *grant;         // that has come; it waits for that word
	enum net_failure failure;   // of the last attempt
	char fault[256];            // of it, too
	bool unreachable_said, ended;
	enum status status;
	struct error error;
};

static void dial(void *arg);

// ---- the end ----

static void end(struct join *join, enum status status)
{
	if (join->ended)
		return;
	join->ended = true;
	join->status = status;
	if (join->conn)
		net_conn_close(join->conn, CLOSE_DONE, "");
	net_loop_stop(join->params.loop);
}

// Failed for good: *error says why.
static void fail(struct join *join, const struct error *error)
{
	if (!join->ended)
		join->error = *error;
	end(join, error->status);
}

static void take_grant(struct join *join)
{
	struct error error = {0};
	const struct credentials_grant grant = {.certificate = json_get_string(join->grant, "certificate", ""),
						.authority = json_get_string(join->grant, "authority", ""),
						.server_uri = json_get_string(join->grant, "server_uri", ""),
						.address = join->address,
						.node_id = join->params.node_id,
						.authority_sha256 = join->authority_sha256,
						.key_pem = join->request.key_pem};
	if (credentials_take(join->params.credentials, &grant, &error)) {
		fail(join, &error);
		return;
	}
	log_info("node", "joined the cluster at %s", join->address);
	end(join, STATUS_OK);
}

// ---- six digits ----

static void print_large(const char *code)
{
	static const char rows[3][10][4] = {
		{" _ ", "   ", " _ ", " _ ", "   ", " _ ", " _ ", " _ ", " _ ", " _ "},
		{"| |", "  |", " _|", " _|", "|_|", "|_ ", "|_ ", "  |", "|_|", "|_|"},
		{"|_|", "  |", "|_ ", " _|", "  |", " _|", "|_|", "  |", "|_|", " _|"},
	};
	fprintf(stderr, "\n");
	for (int row = 0; row < 3; row++) {
		fprintf(stderr, "    ");
		for (int i = 0; i < 6; i++)
			fprintf(stderr, "%s%s", rows[row][code[i] - '0'], i == 2 ? "     " : "  ");
		fprintf(stderr, "\n");
	}
	fprintf(stderr, "\n    %.3s %.3s\n\n", code, code + 3);
}

// A watched terminal is non-blocking, and it is shared with the log, and with the shell after this node ends: restore
// it.
static void leave_terminal(struct join *join)
{
	if (join->terminal)
		fcntl(STDIN_FILENO, F_SETFL, join->terminal_flags);
	net_watch_destroy(&join->terminal);
}

static void answered_here(void *arg, int fd)
{
	struct join *join = arg;
	struct error error = {0};
	char line[64];
	ssize_t length = read(fd, line, sizeof line - 1);
	line[length > 0 ? length : 0] = 0;
	leave_terminal(join);
	if (line[0] != 'y' && line[0] != 'Y') {
		error_set(&error, STATUS_FORBIDDEN, "the digits are not the same: this node has not joined");
		error_hint(&error, "the connection may be intercepted; turn this node away at the dashboard "
				   "and join with a ticket");
		fail(join, &error);
		return;
	}
	join->agreed = true;
	if (join->grant)
		take_grant(join);
	else
		fprintf(stderr, "Now let this node in at the dashboard, or with: exogpu nodes approve %s\n",
			join->params.node_id);
}

static const struct net_watch_events terminal_events = {.readable = answered_here};

static void show_code(struct join *join)
{
	struct error error = {0};
	if (join->params.accept_code) {
		log_info("node", "the server's dashboard must show %.3s %.3s for this node (%s): let it in only then",
			 join->code, join->code + 3, join->params.node_id);
		join->agreed = true;
		return;
	}
	print_large(join->code);
	fprintf(stderr, "Does the dashboard (or: exogpu nodes, where the server runs) show the same six digits for\n"
			"this node? [y/N] ");
	fflush(stderr);
	int fd = dup(STDIN_FILENO);
	join->terminal_flags = fcntl(STDIN_FILENO, F_GETFL);
	if (fd < 0 || join->terminal_flags < 0 ||
	    net_watch_create(&join->terminal, join->params.loop, fd, &terminal_events, join, &error)) {
		error_set(&error, STATUS_UNAVAILABLE, "the terminal cannot be read");
		if (fd >= 0)
			close(fd);
		fail(join, &error);
	}
}

static void still_waiting(void *arg)
{
	struct join *join = arg;
	int64_t now_ms = clock_steady_ms();
	log_info("node", "waiting to be let in, for %lld s until now and %d s at most",
		 (long long)(now_ms - join->waiting_ms) / 1000, LIMIT_JOIN_MS / 1000);
	net_timer_start(join->params.loop, &join->notice, NOTICE_MS, still_waiting, join);
}

// ---- messages ----

static enum status send_message(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	struct join *join = arg;
	(void)body; // none has one
	return join->conn ? net_conn_send_text(join->conn, buffer_text(head), head->length) : STATUS_UNAVAILABLE;
}

static void ask(struct join *join, const char *method, struct json *params, rpc_done *done)
{
	if (rpc_call(&join->rpc,
		     &(struct rpc_ask){.method = method, .params = params, .done = done, .context = join})) {
		struct error error = {0};
		error_set(&error, STATUS_INTERNAL, "%s could not be sent", method);
		fail(join, &error);
	}
}

// Little is said to a stranger, in little space: what the node has to offer follows when it has joined.
static struct json *small_record(struct join *join)
{
	static const char *const later[] = {"addresses", "backends", "libraries", "capabilities"};
	struct json *record = join->params.record(join->params.arg);
	for (size_t i = 0; i < sizeof later / sizeof *later; i++)
		json_set(record, later[i], json_new_array());
	return record;
}

static void refused(struct join *join, const struct error *error)
{
	if (error->status == STATUS_RATE_LIMITED || error->status == STATUS_UNAVAILABLE) {
		log_warning("node", "the server cannot take this node now: %s; trying again", error->message);
		join->pause_ms = PAUSE_LAST_MS;
		net_conn_close(join->conn, CLOSE_DONE, "");
		return;
	}
	struct error said = {0};
	error_set(&said, error->status, "the server does not let this node in: %s", error->message);
	error_hint(&said, "%s", error->hint);
	fail(join, &said);
}

static void revealed(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct join *join = context;
	(void)result;
	if (status) {
		refused(join, error);
		return;
	}
	join->waiting_ms = clock_steady_ms();
	net_timer_start(join->params.loop, &join->notice, NOTICE_MS, still_waiting, join);
	show_code(join);
}

static void requested(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct join *join = context;
	uint8_t server_nonce[PAIRING_NONCE_BYTES];
	char nonce[PAIRING_HEX_BYTES];
	const struct json *grant = json_get(result, "grant");
	if (status) {
		refused(join, error);
		return;
	}
	if (grant && join->params.ticket) {
		join->grant = json_copy(grant);
		take_grant(join);
		return;
	}
	if (grant || join->params.ticket || !pairing_read(json_get_string(result, "nonce", ""), server_nonce)) {
		net_conn_close(join->conn, CLOSE_WRONG, "not what was asked for");
		return;
	}
	pairing_code(&(struct pairing){.authority_sha256 = join->authority_sha256,
				       .key = join->request.spki,
				       .key_bytes = join->request.spki_bytes,
				       .node_nonce = join->nonce,
				       .server_nonce = server_nonce},
		     join->code);
	struct json *params = json_new_object();
	pairing_print(join->nonce, nonce);
	json_set_string(params, "nonce", nonce);
	ask(join, "join.reveal", params, revealed);
}

static enum status decided(void *arg, const struct message *message, struct error *refusal)
{
	struct join *join = arg;
	struct error error = {0};
	const struct json *grant = json_get(message->params, "grant");
	(void)refusal;
	if (!json_get_bool(message->params, "approved", false)) {
		const char *reason = json_get_string(message->params, "reason", "");
		error_set(&error, STATUS_FORBIDDEN, "this node was not let in: %s",
			  reason[0] ? reason : "no reason given");
		error_hint(&error, "ask again, or join with a ticket: exogpu ticket create, where the server runs");
		fail(join, &error);
	} else if (!grant || !join->waiting_ms || join->grant) {
		net_conn_close(join->conn, CLOSE_WRONG, "not what was asked for");
	} else {
		join->grant = json_copy(grant);
		net_timer_stop(join->params.loop, &join->notice);
		if (join->agreed)
			take_grant(join);
		else
			fprintf(stderr,
				"\nThe server has let this node in. Are the digits above the same there? [y/N] ");
	}
	return STATUS_OK;
}

static const struct rpc_method methods[] = {{"join.decided", decided}};

// ---- the connection ----

static void opened(void *user, struct net_conn *conn)
{
	struct join *join = user;
	struct error error = {0};
	const uint8_t *sha256 = NULL;
	char commitment[PAIRING_HEX_BYTES];
	uint8_t digest[NET_SHA256_BYTES];
	join->conn = conn;
	rpc_init(&join->rpc, &(struct rpc_params){.contract = join->params.contract,
						  .serves = "server-to-node",
						  .peer = "the server",
						  .methods = methods,
						  .method_count = sizeof methods / sizeof *methods,
						  .most_calls = 1,
						  .send = send_message,
						  .arg = join});
	net_conn_trust(conn); // it is as large as a grant at most, and checked against the contract
	if (!net_conn_authority(conn, &sha256) || !sha256 || pairing_nonce(join->nonce)) {
		error_set(&error, STATUS_UNAVAILABLE,
			  "the server's authority is not known, or the system gives no "
			  "random bytes");
		fail(join, &error);
		return;
	}
	memcpy(join->authority_sha256, sha256, sizeof join->authority_sha256);
	struct json *params = json_new_object();
	json_set_integer(params, "protocol", PROTOCOL);
	json_set(params, "node", small_record(join));
	json_set_string(params, "request", join->request.pem);
	if (join->params.ticket) {
		json_set_string(params, "ticket", join->params.ticket);
	} else {
		pairing_commit(join->nonce, digest);
		pairing_print(digest, commitment);
		json_set_string(params, "commitment", commitment);
	}
	ask(join, "join.request", params, requested);
}

static void received(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct join *join = user;
	struct error error = {0};
	if (join->ended)
		return;
	const enum rpc_heard heard = rpc_receive(&join->rpc, bytes, length, binary, &error);
	if (heard != RPC_SERVED && heard != RPC_ANSWERED && join->conn)
		net_conn_close(conn, CLOSE_WRONG, "not what was asked for");
}

static void failed(void *user, enum net_failure failure, const char *fault)
{
	struct join *join = user;
	join->failure = failure;
	snprintf(join->fault, sizeof join->fault, "%s", fault);
}

// Another certificate, or something that is not such a server, is not going to change.
static void cannot_join(struct join *join)
{
	struct error error = {0};
	error_set(&error, STATUS_FORBIDDEN, "%s cannot be joined: %s", join->address, join->fault);
	if (join->failure == NET_FAILURE_CERTIFICATE && join->params.ticket)
		error_hint(&error, "the ticket is for another server, or the connection is intercepted; make a ticket "
				   "there: exogpu "
				   "ticket create");
	else
		error_hint(&error, "is it an exogpu server that listens to other machines (exogpu serve --lan)?");
	fail(join, &error);
}

// There was no answer, or one that may be better next time: log it once in a while.
static void say_in_vain(struct join *join)
{
	const bool absent = join->failure == NET_FAILURE_ABSENT;
	const char *unknown = absent && !join->unreachable_said ? addresses_unknown(join->params.host) : NULL;
	if (join->failure == NET_FAILURE_PASSING)
		log_warning("node", "a server is there at %s, but %s: trying again in %lld s", join->address,
			    join->fault, (long long)join->pause_ms / 1000);
	else if (unknown)
		log_warning("node", "the name %s is not known here (%s): trying again; or give the server's address",
			    join->params.host, unknown);
	else if (!join->unreachable_said)
		log_info("node", "no server answers at %s yet: waiting for it%s", join->address,
			 join->params.away ? "; it is announced, so it runs: does a firewall there close this port?"
					   : "");
	join->unreachable_said = absent;
}

static void closed(void *user, struct net_conn *conn, int code)
{
	struct join *join = user;
	const bool answered = conn != NULL,
		   lasting = join->failure == NET_FAILURE_CERTIFICATE || join->failure == NET_FAILURE_OTHER;
	join->conn = NULL;
	rpc_close(&join->rpc, NULL);
	net_timer_stop(join->params.loop, &join->notice);
	leave_terminal(join);
	json_destroy(&join->grant);
	join->agreed = false;
	join->code[0] = 0;
	if (join->ended)
		return;
	if (!answered && lasting) {
		cannot_join(join);
		return;
	}
	if (join->waiting_ms)
		fprintf(stderr, "\n");
	if (answered)
		log_warning("node", "the server closed the connection before this node had joined (%d): asking again",
			    code);
	else
		say_in_vain(join);
	join->waiting_ms = 0;
	if (answered) {
		join->unreachable_said = false;
		join->began_ms = clock_steady_ms();
	} else if (join->params.away && clock_steady_ms() - join->began_ms >= AWAY_MS) {
		*join->params.away = true;
		end(join, STATUS_TIMEOUT);
		return;
	}
	net_timer_start(join->params.loop, &join->again, join->pause_ms, dial, join);
	join->pause_ms = 2 * join->pause_ms < PAUSE_LAST_MS ? 2 * join->pause_ms : PAUSE_LAST_MS;
}

static const struct net_handler handler = {.opened = opened, .message = received, .failed = failed, .closed = closed};

static void dial(void *arg)
{
	struct join *join = arg;
	struct error error = {0};
	const struct net_dial_tls tls = {.authority_sha256 = join->params.ticket ? join->ticket.authority_sha256 : NULL,
					 .any_authority = !join->params.ticket,
					 .server_uri = "exogpu:server:"};
	struct net_dial_params params = {
		.host = join->params.host,
		.port = join->params.port,
		.path = "/node",
		.subprotocol = "exogpu.node.v1",
		.tls = &tls,
		.ping_s = LIMIT_NODE_PING_S,
		.silence_s = longer_node_silence_s(),
		.handler = &handler,
		.user = join,
	};
	join->failure = NET_FAILURE_ABSENT;
	if (net_dial(join->params.loop, &params, &error))
		closed(join, NULL, 1006);
}

enum status join_check(const char *ticket, bool accept_code, struct error *error)
{
	if (ticket || accept_code || (isatty(STDIN_FILENO) && isatty(STDERR_FILENO)))
		return STATUS_OK;
	error_set(error, STATUS_INVALID_PARAMS,
		  "without a ticket somebody must compare six digits, and there is no terminal here");
	error_hint(error,
		   "join with --ticket; or add --accept-code, and let the node in only if the dashboard shows the "
		   "digits in this log");
	return STATUS_INVALID_PARAMS;
}

enum status join_run(const struct join_params *params, struct error *error)
{
	struct join join = {.params = *params, .pause_ms = PAUSE_FIRST_MS, .began_ms = clock_steady_ms()};
	enum status status = join_check(params->ticket, params->accept_code, error);
	if (!status && params->ticket)
		status = ticket_text_parse(params->ticket, &join.ticket, error);
	if (!status)
		status = credentials_ask(params->credentials, true, &join.request, error);
	if (status)
		return status;
	snprintf(join.address, sizeof join.address, strchr(params->host, ':') ? "[%s]:%d" : "%s:%d", params->host,
		 params->port);
	log_info("node", "asking %s to be let in as node %s", join.address, params->node_id);
	net_timer_start(params->loop, &join.again, 0, dial, &join);
	net_loop_run(params->loop);
	join.ended = true;
	net_close_all(params->loop, CLOSE_DONE); // `closed` is called now, while its argument still exists
	net_timer_stop(params->loop, &join.again);
	net_timer_stop(params->loop, &join.notice);
	leave_terminal(&join);
	json_destroy(&join.grant);
	credentials_request_finish(&join.request);
	if (join.status)
		*error = join.error;
	return !join.status && *params->stopping ? STATUS_CONFLICT : join.status; // also just after it was let in
}
