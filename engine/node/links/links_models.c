/* See links_models.h. A cancelled request is still answered, and its answer is dropped. */
#include "engine/node/links/links_models.h"

#include "common/base/clock.h"
#include "engine/node/links/links_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct link_read {
	struct links *links;
	size_t bytes;
	void (*done)(void *context, struct net_frame *bytes, const struct error *error); // NULL: it is cancelled
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

static void read_answered(struct link *link, const struct link_answer *answer)
{
	struct link_read read = *(struct link_read *)answer->context;
	struct error error = {0};
	free(answer->context);
	if (!read.done)
		return;
	link->links->reads--;
	if (answer->error)
		error = *answer->error;
	else if (!answer->body || net_frame_bytes(answer->body) != read.bytes)
		error_set(&error, STATUS_INVALID_REQUEST, "it sent a wrong number of bytes");
	read.done(read.context, error.status ? NULL : answer->body, error.status ? &error : NULL);
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
	*read = (struct link_read){
		.links = links, .bytes = params->bytes, .done = params->done, .context = params->context};
	struct json *piece = json_new_object();
	json_set_string(piece, "model_id", params->model_id);
	json_set_integer(piece, "offset", (int64_t)params->offset);
	json_set_integer(piece, "bytes", (int64_t)params->bytes);
	const enum status status = link_call(link, &(struct link_call){.method = "model.piece",
								       .params = piece,
								       .patience_ms = LIMIT_LINK_READ_MS,
								       .answered = read_answered,
								       .context = read});
	if (status) {
		free(read);
		return status;
	}
	links->reads++;
	*out = read;
	return STATUS_OK;
}

void link_read_cancel(struct link_read **pointer)
{
	struct link_read *read = *pointer;
	*pointer = NULL;
	if (!read)
		return;
	read->links->reads--;
	read->done = NULL;
}

// ---- giving ----

static void answer(struct link *link, const struct link_request *request, struct net_frame *bytes)
{
	struct error error = {0};
	const struct rpc_body body = {
		.bytes = net_frame_data(bytes), .length = net_frame_bytes(bytes), .holder = bytes};
	const enum status status = rpc_answer_body(&link->conn->rpc, "model.piece", request->id, json_new_object(),
						   &body);
	if (status)
		link_answer(link, "model.piece", request->id, NULL,
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
		if (link && error)
			link_answer(link, "model.piece", request->id, NULL, error);
		else if (link && link->conn)
			answer(link, request, bytes);
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

enum status link_serve_piece(void *conn, const struct message *message, struct error *refusal)
{
	struct error error = {0};
	struct link *link = ((struct link_conn *)conn)->link;
	struct links *links = link->links;
	unsigned count = 0;
	(void)refusal;
	if (!message->id)
		return STATUS_OK;
	for (const struct link_request *one = links->requests; one; one = one->next)
		count++;
	const bool full = count >= LIMIT_LINK_READS || (link->conn && !link->measures.bursting &&
							net_peer_queued(link->conn->peer) > LIMIT_STREAM_FULL_BYTES);
	struct link_request *request = links->params.read_model && !full && quiet(links) ? request_create(link, message)
											 : NULL;
	if (request) {
		links->params.read_model(links->params.arg, request);
		return STATUS_PENDING;
	}
	error_set(&error, STATUS_UNAVAILABLE, "this node is too busy to serve parts of models");
	link_answer(link, message->method, message->id, NULL, &error);
	return STATUS_PENDING;
}

bool links_models_busy(const struct links *links)
{
	return links->reads || links->requests;
}

void links_models_finish(struct links *links)
{
	links->fenced = true; // a callee must not ask for more
	for (struct link_request *request = links->requests; request; request = request->next)
		request->links = NULL;
	links->requests = NULL;
}
