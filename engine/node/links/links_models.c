/* See links_models.h. What was asked for is found again by the number in the id of the call; what comes without is
 * passed over: it may be the answer to what was cancelled. */
#include "engine/node/links/links_models.h"

#include "common/base/clock.h"
#include "engine/node/links/links_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct link_read {
	struct link_read *next;
	struct links *links;
	struct link *link;
	int64_t number, asked_ms;
	size_t bytes;
	void (*done)(void *context, struct net_frame *bytes, const struct error *error);
	void *context;
};

// A generation has the links for itself.
static bool quiet(const struct links *links)
{
	return links_hops_quiet(links) && !links->fenced;
}

bool links_up(struct links *links, const char *peer_id)
{
	const struct link *link = links_find(links, peer_id);
	return link && link->conn;
}

// ---- asking ----

static void take_out(struct link_read *read)
{
	struct link_read **at = &read->links->reads;
	while (*at != read)
		at = &(*at)->next;
	*at = read->next;
}

static void end(struct link_read *read, struct net_frame *bytes, const struct error *error)
{
	take_out(read);
	read->done(read->context, bytes, error);
	free(read);
}

static void end_with(struct link_read *read, enum status status, const char *why)
{
	struct error error = {0};
	error_set(&error, status, "%s", why);
	end(read, NULL, &error);
}

static bool asks_too_much(struct links *links)
{
	const int64_t second = clock_steady_ms() / 1000;
	if (second != links->read_second) {
		links->read_second = second;
		links->reads_of_second = 0;
	}
	return ++links->reads_of_second > LIMIT_LINK_READS_PER_S;
}

enum status link_read_start(struct link_read **out, struct links *links, const struct link_read_params *params)
{
	struct link *link = links_find(links, params->peer_id);
	*out = NULL;
	if (!link || !link->conn)
		return STATUS_NOT_FOUND;
	if (!quiet(links))
		return STATUS_UNAVAILABLE;
	if (asks_too_much(links))
		return STATUS_LIMIT_EXCEEDED;
	struct link_read *read = malloc(sizeof(*read));
	if (!read)
		return STATUS_OUT_OF_MEMORY;
	*read = (struct link_read){.next = links->reads,
				   .links = links,
				   .link = link,
				   .number = ++links->read_number,
				   .asked_ms = clock_steady_ms(),
				   .bytes = params->bytes,
				   .done = params->done,
				   .context = params->context};
	links->reads = *out = read;
	struct json *call = json_new_object();
	json_set_string(call, "model_id", params->model_id);
	json_set_integer(call, "offset", (int64_t)params->offset);
	json_set_integer(call, "bytes", (int64_t)params->bytes);
	link_call(link, read->number * LINK_CALL_KINDS + LINK_CALL_READ, "model.piece", call);
	return STATUS_OK;
}

void link_read_cancel(struct link_read **pointer)
{
	struct link_read *read = *pointer;
	*pointer = NULL;
	if (!read)
		return;
	take_out(read);
	free(read);
}

void link_models_answered(struct link *link, int64_t number, const struct message *message, struct net_frame *body)
{
	struct error error = {0};
	const struct contract *contract = link->links->params.contract;
	struct link_read *read = link->links->reads;
	while (read && (read->link != link || read->number != number))
		read = read->next;
	if (!read)
		return;
	if (message->kind == MESSAGE_ERROR) {
		message_read_error(message, &error);
		end(read, NULL, &error);
	} else if (contract_check_result(contract, contract_find(contract, "model.piece"), message->result, &error)) {
		end(read, NULL, &error);
	} else if (!body || net_frame_bytes(body) != read->bytes) {
		end_with(read, STATUS_INVALID_REQUEST, "it sent another number of bytes than it was asked for");
	} else {
		end(read, body, NULL);
	}
}

static struct link_read *of_link(const struct links *links, const struct link *link)
{
	struct link_read *read = links->reads;
	while (read && read->link != link)
		read = read->next;
	return read;
}

void link_models_down(struct link *link)
{
	for (struct link_read *read; (read = of_link(link->links, link));) // one that hears this may end others
		end_with(read, STATUS_UNAVAILABLE, "the link to it broke");
}

static struct link_read *late(const struct links *links)
{
	struct link_read *read = links->reads;
	while (read && clock_steady_ms() - read->asked_ms < LIMIT_LINK_READ_MS)
		read = read->next;
	return read;
}

void links_models_second(struct links *links)
{
	for (struct link_read *read; (read = late(links));)
		end_with(read, STATUS_TIMEOUT, "it did not answer in time");
}

// ---- giving ----

static void answer(const struct link_request *request, struct net_frame *bytes)
{
	struct buffer head;
	struct link *link = links_find(request->links, request->peer_id);
	struct error error = {0};
	if (!link || !link->conn)
		return;
	buffer_init(&head, LIMIT_HEAD_BYTES);
	enum status status = message_print_result(&head, request->id, json_new_object());
	if (!status)
		status = net_peer_send(link->conn->peer, buffer_text(&head), head.length, bytes, net_frame_data(bytes),
				       net_frame_bytes(bytes));
	buffer_finish(&head);
	if (status)
		link_answer(link, request->id, NULL,
			    (error_set(&error, STATUS_UNAVAILABLE, "%s", status_text(status)), &error));
}

void link_request_answer(struct link_request **pointer, struct net_frame *bytes, const struct error *error)
{
	struct link_request *request = *pointer;
	struct links *links = request->links;
	*pointer = NULL;
	if (links) {
		struct link *link = links_find(links, request->peer_id);
		struct link_request **at = &links->requests;
		while (*at != request)
			at = &(*at)->next;
		*at = request->next;
		if (!error)
			answer(request, bytes);
		else if (link)
			link_answer(link, request->id, NULL, error);
	}
	json_destroy(&request->id);
	free(request);
}

static struct link_request *request_create(struct link *link, const struct message *message)
{
	struct link_request *request = calloc(1, sizeof(*request));
	if (!request)
		return NULL;
	request->links = link->links;
	request->id = json_copy(message->id);
	snprintf(request->peer_id, sizeof request->peer_id, "%s", link->peer_id);
	snprintf(request->model_id, sizeof request->model_id, "%s", json_get_string(message->params, "model_id", ""));
	request->offset = (uint64_t)json_get_integer(message->params, "offset", 0);
	request->bytes = (size_t)json_get_integer(message->params, "bytes", 0);
	request->next = link->links->requests;
	link->links->requests = request;
	return request;
}

void link_models_serve(struct link *link, const struct message *message)
{
	struct error error = {0};
	struct links *links = link->links;
	unsigned count = 0;
	if (!message->id)
		return;
	for (const struct link_request *one = links->requests; one; one = one->next)
		count++;
	const bool full = count >= LIMIT_LINK_READS || (link->conn && !link->measures.bursting &&
							net_peer_queued(link->conn->peer) > LIMIT_STREAM_FULL_BYTES);
	struct link_request *request = links->params.read_model && !full && quiet(links) ? request_create(link, message)
											 : NULL;
	if (request) {
		links->params.read_model(links->params.arg, request);
		return;
	}
	error_set(&error, STATUS_UNAVAILABLE, "this node has better to do than to give parts of models");
	link_answer(link, message->id, NULL, &error);
}

bool links_models_busy(const struct links *links)
{
	return links->reads || links->requests;
}

void links_models_finish(struct links *links)
{
	links->fenced = true; // who hears of it asks for nothing more
	while (links->reads)
		end_with(links->reads, STATUS_UNAVAILABLE, "the node stops");
	for (struct link_request *request = links->requests; request; request = request->next)
		request->links = NULL;
	links->requests = NULL;
}
