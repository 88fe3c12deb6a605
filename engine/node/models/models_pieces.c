/* Requests, checks and writes the missing pieces of a fetch; see models.h.
 *
 * A piece that no other node has is one call of model.read. For a piece that another node has, model.read first asks
 * for the digest alone; then that node is asked (models_peers.h), and its bytes are written if they have the server's
 * digest. If any of this fails, the piece is requested once more, from the server. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/net/ws/parts.h"
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

static void told(void *context, enum status status, const struct json *result, const struct error *error);

static void ask(struct piece *piece, bool digest)
{
	struct fetch *fetch = piece->fetch;
	struct json *params = json_new_object();
	piece->state = PIECE_ASKED;
	piece->digest = digest;
	json_set_string(params, "model_id", fetch->model->id);
	json_set_string(params, "key", fetch->key);
	json_set_integer(params, "offset", (int64_t)piece->at.offset);
	json_set_integer(params, "bytes", (int64_t)piece->at.bytes);
	if (digest)
		json_set_bool(params, "digest", true);
	const enum status status = rpc_call(
		&fetch->rpc,
		&(struct rpc_ask){.method = "model.read", .params = params, .done = told, .context = piece});
	if (status)
		fail(fetch, status, "the server cannot be reached for the model");
}

void node_models_ask_more(struct fetch *fetch)
{
	bool waits = false;
	for (int i = 0; i < MODEL_PIECES_AT_ONCE && !fetch->over; i++) {
		struct piece *piece = &fetch->pieces[i];
		if (!piece->state && fetch->next_gap < fetch->wanted.gap_count) {
			*piece = (struct piece){.fetch = fetch, .at = fetch->wanted.gaps[fetch->next_gap++]};
			ask(piece, model_peers_have(fetch->peers, &piece->at));
		}
		waits = waits || piece->state;
	}
	if (!waits && !fetch->over)
		node_models_finish(fetch);
}

static void write_piece(struct piece *piece, struct net_frame *bytes, bool from_peer)
{
	struct fetch *fetch = piece->fetch;
	struct disk_job *job = malloc(sizeof(*job));
	if (!job) {
		fail(fetch, STATUS_OUT_OF_MEMORY, "no memory to write a piece of the model");
		return;
	}
	*job = (struct disk_job){.kind = JOB_PUT,
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

// Check an answer and its body. Errors: STATUS_INVALID_REQUEST.
static enum status read_answer(struct piece *piece, const struct json *result, struct error *error)
{
	const size_t came = piece->fetch->parts->body_bytes;
	const uint64_t bytes = piece->digest ? 0 : piece->at.bytes;
	if (came == bytes && read_sha256(piece->sha256, json_get_string(result, "sha256", "")))
		return STATUS_OK;
	return error_set(error, STATUS_INVALID_REQUEST,
			 "the server sent %zu bytes of the model where %" PRIu64
			 " were asked for, or no SHA-256 of them",
			 came, bytes);
}

static void answered(struct piece *piece, struct net_frame *bytes)
{
	piece->peer = (struct model_peer_piece){.at = piece->at, .done = peer_answered, .context = piece};
	if (!piece->digest)
		write_piece(piece, bytes, false);
	else if (!model_peers_ask(piece->fetch->peers, &piece->peer))
		ask(piece, false);
}

static void told(void *context, enum status status, const struct json *result, const struct error *error)
{
	struct piece *piece = context;
	struct fetch *fetch = piece->fetch;
	struct error fault = {0};
	if (status || read_answer(piece, result, &fault)) {
		node_models_fail(fetch, status ? error : &fault);
		return;
	}
	piece->state = PIECE_ANSWERED;
	answered(piece, fetch->parts->holder);
}

void node_models_take_answer(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct fetch *fetch = user;
	struct net_parts parts = {.head = bytes, .head_bytes = length};
	struct error error = {0};
	if (fetch->over)
		return;
	enum status status = binary ? net_conn_take_parts(conn, bytes, length, &parts) : STATUS_OK;
	fetch->parts = &parts;
	if (!status && rpc_receive(&fetch->rpc, parts.head, parts.head_bytes, false, &error) != RPC_ANSWERED)
		status = STATUS_INVALID_REQUEST;
	fetch->parts = NULL;
	if (status) {
		error_set(&error, status, "the received part of the model cannot be used: %s", status_text(status));
		node_models_fail(fetch, &error);
	}
	net_frame_unref(&parts.holder);
}

static enum status send_message(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	const struct fetch *fetch = arg;
	(void)body; // none has one
	return net_conn_send_parts(fetch->conn, &(struct net_parts){.head = head->data, .head_bytes = head->length});
}

void node_models_calls_init(struct fetch *fetch)
{
	rpc_init(&fetch->rpc, &(struct rpc_params){.contract = fetch->all->params.contract,
						   .serves = "server-to-node",
						   .peer = "the server",
						   .most_calls = MODEL_PIECES_AT_ONCE,
						   .breach_ends = true,
						   .send = send_message,
						   .arg = fetch});
}

// ---- the end of a piece ----

void node_models_piece_written(struct fetch *fetch, const struct disk_job *job)
{
	struct piece *piece = fetch->pieces;
	while (piece < fetch->pieces + MODEL_PIECES_AT_ONCE &&
	       !(piece->state == PIECE_ANSWERED && piece->at.offset == job->piece.at.offset))
		piece++;
	if (job->from_peer && job->error.status == STATUS_INVALID_REQUEST) {
		model_peers_wrong(fetch->peers, piece->peer.source, &piece->at);
		if (!fetch->over)
			ask(piece, false);
		return;
	}
	piece->state = PIECE_FREE;
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
