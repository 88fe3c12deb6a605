/* See home.h. */
#include "engine/node/home.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/files/paths.h"
#include "common/text/ticket_text.h"
#include "engine/node/record.h"
#include "engine/node/uplink/find.h"
#include "engine/node/uplink/join.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct meeting {
	struct home *home;
	struct home_meeting params;
};

// Whether the data directory is a server's: its own node uses the same folder.
static bool is_server_directory(const struct node_options *options)
{
	static const char *const marks[] = {PATHS_SOCKET_NAME, "state.db"};
	char path[sizeof(options->directory) + 32];
	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", options->directory, marks[i]);
		if (!access(path, F_OK))
			return true;
	}
	return false;
}

enum status home_choose(struct home *home, struct error *error)
{
	const struct node_options *options = home->options;
	char folder[sizeof(options->data) + 8];
	snprintf(folder, sizeof(folder), "%s/tls", options->data);
	enum status status = credentials_load(&home->credentials, folder, error);
	if (status)
		return status;
	if (options->local && home->credentials.joined) {
		error_set(error, STATUS_UNAVAILABLE, "%.150s belongs to a node that has joined the server at %.100s",
			  options->data, home->credentials.address);
		error_hint(error, "give the server, or that node, another --data");
		return STATUS_UNAVAILABLE;
	}
	const char *address = home->credentials.address; // also if this server has removed the node
	const bool nothing_said = !options->host[0] && !address[0] && !options->ticket && !options->find;
	const bool server_directory = is_server_directory(options);
	if (options->local || (nothing_said && server_directory))
		return STATUS_OK;
	if (server_directory) {
		error_set(error, STATUS_UNAVAILABLE, "%.150s is the folder of a server, whose own node uses it",
			  options->directory);
		error_hint(error, "give this node a folder of its own: --data DIR");
		return STATUS_UNAVAILABLE;
	}
	if (options->host[0]) {
		text_copy(home->host, sizeof(home->host), options->host);
		home->port = options->port;
		return STATUS_OK;
	}
	if (address[0] && (home->credentials.joined || options->ticket))
		return node_address_parse(address, home->host, &home->port, error);
	if (address[0] && !options->find) {
		error_hint(
			error,
			"exogpu node --join HOST:PORT --ticket TICKET, or --join auto for any that announces itself");
		return error_set(error, STATUS_FORBIDDEN, "this node is no longer in the cluster at %.100s", address);
	}
	home->find = true;
	return join_check(options->ticket, options->accept_code, error); // before a search that would be in vain
}

void home_load_own(struct home *home)
{
	struct error error = {0};
	char folder[sizeof(home->options->data) + 16];
	snprintf(folder, sizeof(folder), "%s/tls-own", home->options->data);
	credentials_finish(&home->credentials);
	if (credentials_load(&home->credentials, folder, &error))
		log_warning("node", "the certificate for links to other nodes is not read: %s", error.message);
}

static struct json *build_first_record(void *arg)
{
	const struct meeting *meeting = arg;
	return record_build(&(struct record_params){.node_id = meeting->params.node_id,
						    .name = meeting->home->options->name,
						    .backends = json_new_array(),
						    .libraries = json_new_array()});
}

static enum status search(struct meeting *meeting, struct error *error)
{
	struct home *home = meeting->home;
	struct ticket_parts ticket;
	struct find_place found;
	const char *text = home->options->ticket;
	enum status status = text ? ticket_text_parse(text, &ticket, error) : STATUS_OK;
	const struct find_params params = {.loop = meeting->params.loop,
					   .authority_sha256 = text ? ticket.authority_sha256 : NULL,
					   .stopping = meeting->params.stopping};
	if (!status)
		status = find_run(&params, &found, error);
	if (status)
		return status;
	text_copy(home->host, sizeof(home->host), found.host);
	home->port = found.port;
	return STATUS_OK;
}

// A node goes back to the server that it has joined already; a ticket is for the first time.
static enum status join_server(struct meeting *meeting, bool *away, struct error *error)
{
	struct home *home = meeting->home;
	struct credentials *credentials = &home->credentials;
	struct ticket_parts ticket;
	char at[CLOCK_TEXT_BYTES];
	const char *text = home->options->ticket;
	enum status status = text ? ticket_text_parse(text, &ticket, error) : STATUS_OK;
	if (status)
		return status;
	if (text && credentials->joined &&
	    memcmp(ticket.authority_sha256, credentials->authority_sha256, sizeof(ticket.authority_sha256)) != 0) {
		error_set(error, STATUS_CONFLICT,
			  "this ticket is of another cluster than the one that this node has "
			  "joined, at %.100s",
			  credentials->address);
		error_hint(error, "to leave that one move %.150s away, or give this node another --data",
			   credentials->folder);
		return STATUS_CONFLICT;
	}
	if (credentials->joined && credentials->not_after_ms > clock_wall_ms()) {
		if (text)
			log_info("node", "this node has joined already: the ticket is not needed");
		return STATUS_OK;
	}
	if (credentials->joined)
		log_warning("node", "this node's certificate expired at %s: it must join again",
			    clock_format(credentials->not_after_ms, at));
	const struct join_params params = {.loop = meeting->params.loop,
					   .contract = meeting->params.contract,
					   .credentials = credentials,
					   .node_id = meeting->params.node_id,
					   .host = home->host,
					   .port = home->port,
					   .ticket = text,
					   .accept_code = home->options->accept_code,
					   .record = build_first_record,
					   .arg = meeting,
					   .stopping = meeting->params.stopping,
					   .away = home->find ? away : NULL};
	return join_run(&params, error);
}

enum status home_meet(struct home *home, const struct home_meeting *params, struct error *error)
{
	struct meeting meeting = {.home = home, .params = *params};
	enum status status = STATUS_OK;
	bool away = true;
	while (!status && away) { // again only when the server that was found is not there any more
		away = false;
		if (home->find)
			status = search(&meeting, error);
		if (!status)
			status = join_server(&meeting, &away, error);
		if (away)
			status = STATUS_OK;
	}
	return status;
}
