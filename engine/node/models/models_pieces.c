/* The pieces that a fetch lacks: asked for, taken, written; see models.h.
 *
 * A piece that no other node has is one call of model.read. One that another has is, first, a model.read for the digest
 * alone; then that node is asked (models_peers.h); what it gives is written if it has the server's digest. Whatever
 * goes wrong with that, the piece is asked for once more, from the server. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/net/parts.h"
#include "common/wire/message.h"
#include "engine/node/models/models_inside.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void fail(struct fetch *fetch, enum status status, const char *message)
{
	struct error error = {0};
	error_set(&error, status, "%s", message);
	node_models_fail(fetch, &error);
}

static void ask(struct piece *piece, bool digest)
{
	struct buffer head;
	struct fetch *fetch = piece->fetch;
	struct json *params = json_new_object();
	piece->id = ++fetch->last_id;
	piece->digest = digest;
	struct json *id = json_new_integer(piece->id);
	buffer_init(&head, LIMIT_HEAD_BYTES);
	json_set_string(params, "model_id", fetch->model->id);
	json_set_string(params, "key", fetch->key);
	json_set_integer(params, "offset", (int64_t)piece->at.offset);
	json_set_integer(params, "bytes", (int64_t)piece->at.bytes);
	if (digest)
		json_set_bool(params, "digest", true);
	enum status status = message_print_call(&head, id, "model.read", params);
	if (!status)
		status = net_conn_send_parts(fetch->conn,
					     &(struct net_parts){.head = head.data, .head_bytes = head.length});
	json_destroy(&id);
	buffer_finish(&head);
	if (status)
		fail(fetch, status, "the server cannot be reached for the model");
}

void node_models_ask_more(struct fetch *fetch)
{
	bool waits = false;
	for (int i = 0; i < MODEL_PIECES_AT_ONCE && !fetch->over; i++) {
		struct piece *piece = &fetch->pieces[i];
		if (!piece->id && fetch->next_gap < fetch->wanted.gap_count) {
			*piece = (struct piece){.fetch = fetch, .at = fetch->wanted.gaps[fetch->next_gap++]};
			ask(piece, model_peers_have(fetch->peers, &piece->at));
		}
		waits = waits || piece->id;
	}
	if (!waits && !fetch->over)
		node_models_finish(fetch);
}

static void write_piece(struct piece *piece, struct net_frame *bytes, bool from_peer)
{
	struct fetch *fetch = piece->fetch;
	struct job *job = malloc(sizeof(*job));
	if (!job) {
		fail(fetch, STATUS_OUT_OF_MEMORY, "no memory to write a piece of the model");
		return;
	}
	*job = (struct job){.kind = JOB_PUT,
			    .model = fetch->model,
			    .fetch = fetch,
			    .piece = {.at = piece->at, .checked = true},
			    .bytes = net_frame_ref(bytes),
			    .from_peer = from_peer};
	memcpy(job->piece.sha256, piece->sha256, sizeof(piece->sha256));
	node_models_put_job(fetch->all, job);
}

static void peer_answered(void *context, struct net_frame *bytes)
{
	struct piece *piece = context;
	if (bytes)
		write_piece(piece, bytes, true);
	else
		ask(piece, false);
}

// ---- what the server answers ----

static bool read_sha256(uint8_t *sha256, const char *text)
{
	static const char digits[] = "0123456789abcdef";
	for (int i = 0; i < MODEL_SHA256_BYTES; i++) {
		const char *high = text[2 * i] ? strchr(digits, text[2 * i]) : NULL,
			   *low = high && text[2 * i + 1] ? strchr(digits, text[2 * i + 1]) : NULL;
		if (!low)
			return false;
		sha256[i] = (uint8_t)((high - digits) << 4 | (low - digits));
	}
	return !text[2 * MODEL_SHA256_BYTES];
}

// The piece that an answer is of, with its digest. Errors: STATUS_INVALID_REQUEST, and what the server says.
static enum status read_answer(struct fetch *fetch, const struct message *message, const struct net_parts *parts,
			       struct piece **out, struct error *error)
{
	const struct contract *contract = fetch->all->params.contract;
	struct piece *piece = fetch->pieces;
	int64_t id = 0;
	if (!message->id || json_integer(message->id, &id) || id <= 0)
		return error_set(error, STATUS_INVALID_REQUEST, "the server sent what nobody asked for");
	if (message->kind == MESSAGE_ERROR) {
		message_read_error(message, error);
		return error->status;
	}
	while (piece < fetch->pieces + MODEL_PIECES_AT_ONCE && piece->id != id)
		piece++;
	if (piece == fetch->pieces + MODEL_PIECES_AT_ONCE || message->kind != MESSAGE_RESULT)
		return error_set(error, STATUS_INVALID_REQUEST, "the server sent what nobody asked for");
	enum status status = contract_check_result(contract, contract_find(contract, "model.read"), message->result,
						   error);
	if (status)
		return status;
	const uint64_t bytes = piece->digest ? 0 : piece->at.bytes;
	if (parts->body_bytes != bytes || !read_sha256(piece->sha256, json_get_string(message->result, "sha256", "")))
		return error_set(error, STATUS_INVALID_REQUEST,
				 "the server sent %zu bytes of the model where %" PRIu64
				 " were asked for, or no SHA-256 of them",
				 parts->body_bytes, bytes);
	piece->id = -id; // its place is free again when it is written
	*out = piece;
	return STATUS_OK;
}

static void answered(struct piece *piece, struct net_frame *bytes)
{
	piece->peer = (struct model_peer_piece){.at = piece->at, .done = peer_answered, .context = piece};
	if (!piece->digest)
		write_piece(piece, bytes, false);
	else if (!model_peers_ask(piece->fetch->peers, &piece->peer))
		ask(piece, false);
}

void node_models_take_answer(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct fetch *fetch = user;
	struct net_parts parts = {.head = bytes, .head_bytes = length};
	struct message message = {0};
	struct error error = {0};
	struct piece *piece = NULL;
	if (fetch->over)
		return;
	enum status status = binary ? net_conn_take_parts(conn, bytes, length, &parts) : STATUS_OK;
	if (!status)
		status = message_decode_text(&message, (const char *)parts.head, parts.head_bytes, &error);
	if (!status)
		status = read_answer(fetch, &message, &parts, &piece, &error);
	if (!status) {
		answered(piece, parts.holder);
	} else {
		error_set(&error, status, "the received part of the model cannot be used: %s", status_text(status));
		node_models_fail(fetch, &error);
	}
	message_finish(&message);
	net_frame_unref(&parts.holder);
}

// ---- the end of a piece ----

void node_models_piece_written(struct fetch *fetch, const struct job *job)
{
	struct piece *piece = fetch->pieces;
	while (piece < fetch->pieces + MODEL_PIECES_AT_ONCE &&
	       !(piece->id < 0 && piece->at.offset == job->piece.at.offset))
		piece++;
	if (job->from_peer && job->error.status == STATUS_INVALID_REQUEST) {
		model_peers_wrong(fetch->peers, piece->peer.source, &piece->at);
		if (!fetch->over)
			ask(piece, false);
		return;
	}
	piece->id = 0;
	if (job->error.status) {
		node_models_fail(fetch, &job->error);
		return;
	}
	fetch->fetched += job->piece.at.bytes;
	fetch->peer_bytes += job->from_peer ? job->piece.at.bytes : 0;
	fetch->moved_ms = clock_steady_ms();
	if (!fetch->over)
		node_models_ask_more(fetch);
}

void node_models_cancel_pieces(struct fetch *fetch)
{
	for (int i = 0; i < MODEL_PIECES_AT_ONCE; i++)
		model_peers_cancel(&fetch->pieces[i].peer);
}
