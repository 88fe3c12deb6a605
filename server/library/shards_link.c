/* The connection on which a node reads model files: it serves model.read only.
 * See shards.h. A few pieces are read at once. While that many are in flight, or
 * the node does not take what was read, the connection is not read
 * (back-pressure). */
#include "common/base/limits.h"
#include "common/net/ws/parts.h"
#include "common/wire/rpc.h"
#include "server/library/shards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct piece {
	struct piece *next;
	struct shards_link *link;
	struct shards_read *read;
	struct json *id;
	bool digest; // and no bytes
};

struct shards_link {
	struct shards *shards;
	struct net_conn *conn; // NULL before it is open
	struct rpc rpc;
	char node_id[STORE_ID_BYTES];
	struct piece *pieces;
	unsigned piece_count;
	bool held;
};

static bool full(const struct shards_link *link)
{
	return link->piece_count >= LIMIT_SHARD_READS || net_conn_queued_bytes(link->conn) > LIMIT_STREAM_FULL_BYTES;
}

static void hold(struct shards_link *link)
{
	const bool hold = full(link);
	if (hold && !link->held)
		net_conn_pause(link->conn);
	else if (!hold && link->held)
		net_conn_resume(link->conn);
	link->held = hold;
}

static void piece_free(struct piece *piece)
{
	struct piece **at = &piece->link->pieces;
	while (*at != piece)
		at = &(*at)->next;
	*at = piece->next;
	piece->link->piece_count--;
	shards_read_cancel(&piece->read);
	json_destroy(&piece->id);
	free(piece);
}

static void read_done(void *context, const struct error *error, struct net_frame *frame, const char *sha256)
{
	struct piece *piece = context;
	struct shards_link *link = piece->link;
	struct json *result = error ? NULL : json_new_object();
	piece->read = NULL;
	if (result)
		json_set_string(result, "sha256", sha256);
	if (error || piece->digest)
		rpc_answer(&link->rpc, "model.read", piece->id, result, error);
	else
		rpc_answer_body(&link->rpc, "model.read", piece->id, result,
				&(struct rpc_body){.bytes = net_frame_data(frame),
						   .length = net_frame_bytes(frame),
						   .holder = frame});
	piece_free(piece);
	hold(link);
}

static enum status read_piece(void *arg, const struct message *message, struct error *error)
{
	struct shards_link *link = arg;
	if (!message->id)
		return STATUS_OK; // nobody waits for it
	struct piece *piece = calloc(1, sizeof(*piece));
	if (!piece)
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	*piece = (struct piece){.next = link->pieces,
				.link = link,
				.id = json_copy(message->id),
				.digest = json_get_bool(message->params, "digest", false)};
	link->pieces = piece;
	link->piece_count++;
	const struct shards_read_params params = {.node_id = link->node_id,
						  .model_id = json_get_string(message->params, "model_id", ""),
						  .key = json_get_string(message->params, "key", ""),
						  .offset = (uint64_t)json_get_integer(message->params, "offset", 0),
						  .bytes = (size_t)json_get_integer(message->params, "bytes", 0),
						  .done = read_done,
						  .context = piece};
	const enum status status = shards_read_start(&piece->read, link->shards, &params, error);
	if (status)
		piece_free(piece);
	return status ? status : STATUS_PENDING;
}

static const struct rpc_method methods[] = {{"model.read", read_piece}};

static enum status send_message(void *arg, const struct buffer *head, const struct rpc_body *body)
{
	const struct shards_link *link = arg;
	if (!link->conn)
		return STATUS_UNAVAILABLE;
	if (!body)
		return net_conn_send_text(link->conn, buffer_text(head), head->length);
	return net_conn_send_parts(link->conn, &(struct net_parts){.head = head->data,
								   .head_bytes = head->length,
								   .body = body->bytes,
								   .body_bytes = body->length,
								   .holder = body->holder});
}

struct shards_link *shards_link_create(struct shards *shards, const char *node_id)
{
	struct shards_link *link = calloc(1, sizeof(*link));
	if (!link)
		return NULL;
	link->shards = shards;
	snprintf(link->node_id, sizeof link->node_id, "%s", node_id);
	rpc_init(&link->rpc, &(struct rpc_params){.contract = shards_contract(shards),
						  .serves = "node-to-server",
						  .peer = "the node",
						  .methods = methods,
						  .method_count = sizeof methods / sizeof *methods,
						  .answers_faults = true,
						  .send = send_message,
						  .arg = link});
	return link;
}

void shards_link_opened(void *user, struct net_conn *conn)
{
	struct shards_link *link = user;
	link->conn = conn;
	net_conn_trust(conn); // it came with a certificate of this cluster's, or is this machine's owner's
}

void shards_link_message(void *user, struct net_conn *conn, const uint8_t *bytes, size_t length, bool binary)
{
	struct shards_link *link = user;
	struct error error = {0};
	(void)conn;
	rpc_receive(&link->rpc, bytes, length, binary, &error); // what is wrong with a call is its answer
	hold(link);
}

void shards_link_drained(void *user, struct net_conn *conn)
{
	(void)conn;
	hold(user);
}

void shards_link_closed(void *user, struct net_conn *conn, int code)
{
	struct shards_link *link = user;
	(void)conn, (void)code;
	while (link->pieces)
		piece_free(link->pieces);
	rpc_close(&link->rpc, NULL);
	free(link);
}
