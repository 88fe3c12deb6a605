/* Where and when the server is dialled: where it was last, and after some time in vain in turn where its cluster is
 * announced; with pauses that double. See uplink.h. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/longer.h"
#include "engine/node/options.h"
#include "engine/node/uplink/addresses.h"
#include "engine/node/uplink/uplink_inside.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
	REDIAL_LOCAL_LAST_MS = 500, // for a server on this machine, where a failed try costs little
	REDIAL_LAST_MS = 2000,
	REDIAL_TURNS_LAST_MS = 400, // where one of several servers takes over
	REDIAL_FAR_LAST_MS = 15000,
	REDIAL_WRONG_MS = 60000,
	REDIAL_TWICE_MS = 10000, // while another one has this node's place
	PATIENCE_MS = 30000,
	ELSEWHERE_MS = 8000, // without the server, before it is looked for elsewhere
	NOTICE_MS = 30000,
};

bool uplink_out_of_patience(const struct uplink *uplink, int64_t now_ms)
{
	return !uplink_remote(uplink) && now_ms - uplink->lost_at_ms >= PATIENCE_MS &&
	       (uplink->met || getppid() != uplink->parent);
}

// Log from time to time that there is no server, or why the one there is not accepted.
static void say_alone(struct uplink *uplink, int64_t now_ms, bool wrong)
{
	if (now_ms < uplink->notice_ms || (uplink->met && !uplink_remote(uplink)))
		return;
	uplink->notice_ms = now_ms + NOTICE_MS;
	const bool absent = uplink_remote(uplink) && uplink->failure == NET_FAILURE_ABSENT;
	const char *unknown = absent ? addresses_unknown(uplink->host) : NULL;
	if (!uplink_remote(uplink))
		log_info("node", "no server answers at unix:%s yet; trying again", uplink->socket_path);
	else if (wrong)
		log_error("node", "what answers at %s is not taken for the server of this node: %s; trying again",
			  uplink->address, uplink->fault);
	else if (uplink->failure == NET_FAILURE_PASSING)
		log_warning("node", "a server is there at %s, but %s: trying again", uplink->address, uplink->fault);
	else if (unknown)
		log_warning("node", "the name %s is not known here (%s): trying again; or join by the server's address",
			    uplink->host, unknown);
	else
		log_info("node", "no server answers at %s; trying again", uplink->address);
}

void uplink_redial(struct uplink *uplink, int64_t now_ms)
{
	const bool wrong = uplink->failure == NET_FAILURE_CERTIFICATE || uplink->failure == NET_FAILURE_OTHER;
	// A false announcement of the server at another address must not make the node wait longer for the true one.
	const bool home = uplink->params.port == uplink->home.port && !strcmp(uplink->host, uplink->home.host);
	// Workers of model instances wait for it so long (tenants.h), and what answers may be its beginning or its end.
	const bool awaited = uplink->met && now_ms - uplink->lost_at_ms < LIMIT_AWAY_MS;
	const bool turns = uplink_remote(uplink) && uplink->params.credentials->server_count > 1;
	const int64_t last_ms = !uplink_remote(uplink) ? REDIAL_LOCAL_LAST_MS
				: awaited && turns     ? REDIAL_TURNS_LAST_MS
				: awaited              ? REDIAL_LAST_MS
				: wrong && home        ? REDIAL_WRONG_MS
						       : REDIAL_FAR_LAST_MS;
	say_alone(uplink, now_ms, wrong);
	net_timer_start(uplink->params.loop, &uplink->redial, uplink->redial_ms, uplink_dial_next, uplink);
	uplink->redial_ms = 2 * uplink->redial_ms < last_ms ? 2 * uplink->redial_ms : last_ms;
}

// There are two of this node. Which one is meant to be the server cannot know: the one that it hears stays, and the
// other waits until that one is gone.
void uplink_wait_for_place(struct uplink *uplink)
{
	uplink->redial_ms = REDIAL_TWICE_MS;
	log_error("node",
		  "another process has this node's certificate and is connected to the server at %s, which tells from "
		  "where in its log: two machines have the same folder; give each its own --data and let it join; "
		  "trying again in %d s",
		  uplink->address, REDIAL_TWICE_MS / 1000);
}

void uplink_remember_address(struct uplink *uplink)
{
	struct error error = {0};
	finder_destroy(&uplink->finder);
	snprintf(uplink->home.host, sizeof uplink->home.host, "%s", uplink->host);
	uplink->home.port = uplink->params.port;
	if (strcmp(uplink->address, uplink->params.credentials->address) != 0 &&
	    credentials_move(uplink->params.credentials, uplink->address, &error))
		log_warning("node", "the server's new address is not kept: %s", error.message);
}

void uplink_take_servers(struct uplink *uplink, const struct json *servers)
{
	const char *addresses[CREDENTIALS_SERVERS];
	struct error error = {0};
	size_t count = 0;
	for (const struct json *one = json_first(servers); one && count < CREDENTIALS_SERVERS; one = json_next(one))
		addresses[count++] = json_string(one, "");
	if (credentials_keep_servers(uplink->params.credentials, addresses, count, &error))
		log_warning("node", "the addresses of the servers are not kept: %s", error.message);
}

enum status uplink_dial(struct uplink *uplink, struct net_dial_params *params, struct error *error)
{
	if (!uplink_remote(uplink)) {
		params->socket_path = uplink->socket_path;
		return net_dial(uplink->params.loop, params, error);
	}
	const struct credentials *credentials = uplink->params.credentials;
	const struct net_dial_tls tls = {.authority_pem = credentials->authority_pem,
					 .server_uri = credentials->server_uri,
					 .chain_pem = credentials->chain_pem,
					 .key_pem = credentials->key_pem};
	params->host = uplink->host;
	params->port = uplink->params.port;
	params->tls = &tls;
	return net_dial(uplink->params.loop, params, error);
}

static void go_to(struct uplink *uplink, const struct find_place *place)
{
	_Static_assert(sizeof uplink->host == sizeof place->host, "one has room for the other");
	memcpy(uplink->host, place->host, sizeof uplink->host);
	uplink->params.port = place->port;
	snprintf(uplink->address, sizeof uplink->address, strchr(place->host, ':') ? "[%s]:%d" : "%s:%d", place->host,
		 place->port);
}

// The next of several servers that take turns. False: it is the turn of the one that it was last, whose place among
// them is passed over.
static bool next_server(struct uplink *uplink, struct find_place *place)
{
	const struct credentials *credentials = uplink->params.credentials;
	struct error error = {0};
	for (size_t at; (at = uplink->dialled++ % (credentials->server_count + 1));)
		if (!node_address_parse(credentials->servers[at - 1], place->host, &place->port, &error) &&
		    (place->port != uplink->home.port || strcmp(place->host, uplink->home.host) != 0))
			return true;
	return false;
}

// Where to dial next: where the server was, and after some time in vain in turn where it is announced.
static void choose_place(struct uplink *uplink)
{
	struct error error = {0};
	struct find_place other;
	if (next_server(uplink, &other)) {
		go_to(uplink, &other);
		return;
	}
	go_to(uplink, &uplink->home);
	if (clock_steady_ms() - uplink->lost_at_ms < ELSEWHERE_MS)
		return;
	if (!uplink->finder &&
	    finder_create(&uplink->finder, uplink->params.loop, uplink->params.credentials->server_uri,
			  uplink->params.credentials->authority_sha256, &error))
		log_warning("node", "the server is not looked for elsewhere: %s", error.message);
	const bool away = uplink->finder && uplink->turn++ % 2 &&
			  finder_elsewhere(uplink->finder, &uplink->home, (uplink->turn - 1) / 2, &other);
	go_to(uplink, away ? &other : &uplink->home);
	if (away)
		log_info("node", "the server's cluster is announced at %s: trying there", uplink->address);
}

void uplink_dial_next(void *arg)
{
	struct uplink *uplink = arg;
	struct error error = {0};
	if (uplink_remote(uplink))
		choose_place(uplink);
	if (uplink_remote(uplink) && uplink->params.credentials->not_after_ms <= clock_wall_ms()) {
		uplink_end(uplink, STATUS_UNAUTHENTICATED,
			   "its certificate has expired: it was away from its server for too long");
		return;
	}
	uplink->failure = NET_FAILURE_ABSENT;
	struct net_dial_params params = {
		.path = "/node",
		.subprotocol = "exogpu.node.v1",
		.ping_s = LIMIT_NODE_PING_S,
		.silence_s = longer_node_silence_s(),
		.handler = &uplink_handler,
		.user = uplink,
	};
	if (uplink_dial(uplink, &params, &error)) {
		log_debug("node", "dialling the server: %s", error.message);
		uplink_closed(uplink, NULL, 1006);
	}
}
