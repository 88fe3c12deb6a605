/* See engine/include/exogpu/exogpu_client.h: memory. What is large goes in pieces, some of them under way at a time. */
#include "bindings/c/inside.h"
#include "common/base/list.h"
#include "common/net/ws/ws.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_BYTES = 1 << 20, WINDOW = CLIENT_WINDOW - EXOGPU_CLIENT_LAUNCHES };

// ---- buffers ----

enum status exogpu_client_buffer_create(struct exogpu_client *client, struct exogpu_client_buffer **out,
					const char *device_id, uint64_t bytes, struct error *error)
{
	struct json *params = NULL, *answer = NULL;
	struct quiet quiet;
	if (!client || !out || !device_id || !bytes || bytes > INT64_MAX)
		return error_set(error, STATUS_INVALID_PARAMS,
				 "client, out and device_id must not be NULL, nor bytes 0 or more than 2^63 - 1");
	struct exogpu_client_buffer *buffer = calloc(1, sizeof(*buffer));
	*out = NULL;
	if (!buffer)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	*buffer = (struct exogpu_client_buffer){.client = client, .bytes = bytes};
	params = json_new_object();
	json_set_string(params, "device_id", device_id);
	json_set_integer(params, "bytes", (int64_t)bytes);
	inside_begin(client, &quiet);
	enum status status = inside_ask(client, &(struct inside_call){.method = "memory.allocate", .params = params},
					&answer, error);
	if (!status)
		status = inside_read_id(answer, "allocation_id", buffer->id, error);
	if (!status)
		LIST_PUSH(&client->buffers, buffer, link);
	inside_end(client, &quiet);
	json_destroy(&answer);
	if (status)
		free(buffer);
	else
		*out = buffer;
	return status;
}

void exogpu_client_buffer_destroy(struct exogpu_client_buffer **pointer)
{
	struct exogpu_client_buffer *buffer = pointer ? *pointer : NULL;
	struct quiet quiet;
	if (!buffer)
		return;
	*pointer = NULL;
	struct exogpu_client *client = buffer->client;
	inside_begin(client, &quiet);
	if (client->client) {
		struct json *params = json_new_object();
		json_set_string(params, "allocation_id", buffer->id);
		inside_ask(client, &(struct inside_call){.method = "memory.free", .params = params}, NULL, NULL);
	}
	LIST_REMOVE(buffer, link);
	inside_end(client, &quiet);
	free(buffer);
}

uint64_t exogpu_client_buffer_bytes(const struct exogpu_client_buffer *buffer)
{
	return buffer ? buffer->bytes : 0;
}

const char *exogpu_client_buffer_id(const struct exogpu_client_buffer *buffer)
{
	return buffer ? buffer->id : "";
}

static enum status check_range(const struct exogpu_client_buffer *buffer, uint64_t offset, uint64_t bytes,
			       struct error *error)
{
	if (!buffer)
		return error_set(error, STATUS_INVALID_PARAMS, "the buffer must not be NULL");
	if (offset <= buffer->bytes && bytes <= buffer->bytes - offset)
		return STATUS_OK;
	return error_set(error, STATUS_INVALID_PARAMS, "%llu bytes at %llu are outside a buffer of %llu",
			 (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)buffer->bytes);
}

// ---- write and read ----

struct piece {
	int64_t id;
	uint64_t at;
	size_t bytes;
	struct net_frame *frame; // of a write
	struct buffer body;      // of a read
};

struct transfer {
	struct exogpu_client_buffer *buffer;
	uint64_t offset, bytes, begun;
	const uint8_t *from; // of a write; NULL: it is a read
	uint8_t *to;
	struct piece pieces[WINDOW]; // (count), from `first` on
	unsigned first, count;
};

static enum status begin_piece(struct transfer *transfer, struct error *error)
{
	struct piece *piece = &transfer->pieces[(transfer->first + transfer->count) % WINDOW];
	uint64_t left = transfer->bytes - transfer->begun;
	*piece = (struct piece){.at = transfer->begun, .bytes = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES};
	buffer_init(&piece->body, piece->bytes + 1);
	if (transfer->from && !(piece->frame = net_frame_alloc(piece->bytes)))
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	struct json *params = json_new_object();
	json_set_string(params, "allocation_id", transfer->buffer->id);
	json_set_integer(params, "offset", (int64_t)(transfer->offset + piece->at));
	if (transfer->from)
		memcpy(net_frame_data(piece->frame), transfer->from + piece->at, piece->bytes);
	else
		json_set_integer(params, "bytes", (int64_t)piece->bytes);
	enum status status = client_send(
		transfer->buffer->client->client,
		&(struct client_call){.method = transfer->from ? "memory.write" : "memory.read",
				      .params = params,
				      .body = piece->frame,
				      .body_to = transfer->from ? NULL : &piece->body},
		&piece->id, error);
	if (status) {
		net_frame_unref(&piece->frame);
		return status;
	}
	transfer->begun += piece->bytes;
	transfer->count++;
	return STATUS_OK;
}

// Also after an error: the answers of what was sent still come, into memory that is piece's.
static enum status end_piece(struct transfer *transfer, struct error *error)
{
	struct piece *piece = &transfer->pieces[transfer->first];
	enum status status = inside_wait(transfer->buffer->client, piece->id, NULL, error);
	if (!status && !transfer->from && piece->body.length != piece->bytes)
		status = error_set(error, STATUS_INTERNAL, "an answer of %zu bytes where %zu are expected",
				   piece->body.length, piece->bytes);
	if (!status && !transfer->from)
		memcpy(transfer->to + piece->at, piece->body.data, piece->bytes);
	net_frame_unref(&piece->frame);
	buffer_finish(&piece->body);
	transfer->first = (transfer->first + 1) % WINDOW;
	transfer->count--;
	return status;
}

static enum status move(struct transfer *transfer, struct error *error)
{
	struct exogpu_client *client = transfer->buffer->client;
	struct quiet quiet;
	inside_begin(client, &quiet);
	enum status status = inside_usable(client, error);
	while (!status && (transfer->begun < transfer->bytes || transfer->count)) {
		if (transfer->begun < transfer->bytes && transfer->count < WINDOW)
			status = begin_piece(transfer, error);
		else
			status = end_piece(transfer, error);
	}
	while (transfer->count)
		end_piece(transfer, NULL);
	inside_end(client, &quiet);
	return status;
}

enum status exogpu_client_write(struct exogpu_client_buffer *to, uint64_t offset, const void *from, uint64_t bytes,
				struct error *error)
{
	enum status status = check_range(to, offset, bytes, error);
	if (!status && bytes && !from)
		status = error_set(error, STATUS_INVALID_PARAMS, "what is written must not be NULL");
	if (status || !bytes)
		return status;
	return move(&(struct transfer){.buffer = to, .offset = offset, .bytes = bytes, .from = from}, error);
}

enum status exogpu_client_read(void *to, struct exogpu_client_buffer *from, uint64_t offset, uint64_t bytes,
			       struct error *error)
{
	enum status status = check_range(from, offset, bytes, error);
	if (!status && bytes && !to)
		status = error_set(error, STATUS_INVALID_PARAMS, "where it is read to must not be NULL");
	if (status || !bytes)
		return status;
	return move(&(struct transfer){.buffer = from, .offset = offset, .bytes = bytes, .to = to}, error);
}

// ---- copy and fill ----

static enum status ask(struct exogpu_client *client, const char *method, struct json *params, struct error *error)
{
	struct quiet quiet;
	inside_begin(client, &quiet);
	enum status status = inside_ask(client, &(struct inside_call){.method = method, .params = params}, NULL, error);
	inside_end(client, &quiet);
	return status;
}

enum status exogpu_client_copy(const struct exogpu_client_copy *copy, struct error *error)
{
	if (!copy)
		return error_set(error, STATUS_INVALID_PARAMS, "copy must not be NULL");
	enum status status = check_range(copy->from, copy->from_offset, copy->bytes, error);
	if (!status)
		status = check_range(copy->to, copy->to_offset, copy->bytes, error);
	if (!status && copy->from->client != copy->to->client)
		status = error_set(error, STATUS_INVALID_PARAMS, "the buffers belong to two clients");
	if (status || !copy->bytes)
		return status;
	struct json *params = json_new_object();
	json_set_string(params, "from", copy->from->id);
	json_set_integer(params, "from_offset", (int64_t)copy->from_offset);
	json_set_string(params, "to", copy->to->id);
	json_set_integer(params, "to_offset", (int64_t)copy->to_offset);
	json_set_integer(params, "bytes", (int64_t)copy->bytes);
	return ask(copy->from->client, "memory.copy", params, error);
}

enum status exogpu_client_fill(struct exogpu_client_buffer *buffer, uint64_t offset, uint64_t bytes, uint8_t value,
			       struct error *error)
{
	enum status status = check_range(buffer, offset, bytes, error);
	if (status || !bytes)
		return status;
	struct json *params = json_new_object();
	json_set_string(params, "allocation_id", buffer->id);
	json_set_integer(params, "offset", (int64_t)offset);
	json_set_integer(params, "bytes", (int64_t)bytes);
	json_set_integer(params, "value", value);
	return ask(buffer->client, "memory.fill", params, error);
}
