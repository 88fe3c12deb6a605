/* The connection on which a node reads model files: model.read, and nothing else. See shards.h.
 *
 * A few pieces are read at once; while as many are under way, or what was read waits for the node to take it, the
 * connection is not read. */
#include "common/base/limits.h"
#include "common/net/parts.h"
#include "common/wire/message.h"
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

static void answer(struct shards_link *link, const struct json *id, const struct error *error)
{
	struct buffer text;
	buffer_init(&text, LIMIT_HEAD_BYTES);
	if (!message_print_error(&text, id, error))
		net_conn_send_text(link->conn, buffer_text(&text), text.length);
	buffer_finish(&text);
}

static void read_done(void *context, const struct error *error, struct net_frame *frame, const char *sha256)
{
	struct buffer text;
	struct piece *piece = context;
	struct shards_link *link = piece->link;
	piece->read = NULL;
	buffer_init(&text, LIMIT_HEAD_BYTES);
	if (error) {
		answer(link, piece->id, error);
	} else {
		struct json *result = json_new_object();
		json_set_string(result, "sha256", sha256);
		enum status status = message_print_result(&text, piece->id, result);
		if (!status && piece->digest)
			net_conn_send_text(link->conn, buffer_text(&text), text.length);
		else if (!status)
			net_conn_send_parts(link->conn, &(struct net_parts){.head = text.data,
									    .head_bytes = text.length,
									    .body = net_frame_data(frame),
									    .body_bytes = net_frame_bytes(frame),
									    .holder = frame});
	}
	buffer_finish(&text);
	piece_free(piece);
	hold(link);
}

static enum status start(struct shards_link *link, const struct message *message, struct error *error)
{
	const struct contract *contract = shards_contract(link->shards);
	const struct contract_method *method = contract_find(contract, "model.read");
	if (message->kind != MESSAGE_REQUEST || strcmp(message->method, method->name) != 0)
		return error_set(error, STATUS_METHOD_NOT_FOUND, "here model.read is served, and nothing else");
	enum status status = contract_check_params(contract, method, message->params, error);
	if (status)
		return status;
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
	status = shards_read_start(&piece->read, link->shards, &params, error);
	if (status)
		piece_free(piece);
	return status;
}

struct shards_link *shards_link_create(struct shards *shards, const char *node_id)
{
	struct shards_link *link = calloc(1, sizeof(*link));
	if (!link)
		return NULL;
	link->shards = shards;
	snprintf(link->node_id, sizeof link->node_id, "%s", node_id);
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
	struct message message;
	struct error error = {0};
	struct shards_link *link = user;
	(void)conn;
	enum status status = binary ? message_decode(&message, bytes, length, &error)
				    : message_decode_text(&message, (const char *)bytes, length, &error);
	if (!status)
		status = start(link, &message, &error);
	if (status)
		answer(link, message.id, &error);
	message_finish(&message);
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
	free(link);
}
