/* Channels: how memory.copy moves bytes from one worker of a session to another. See session.h.
 *
 *     memory.send    -> thread of the channel: [driver reads a piece] -> socket -> node, link, node
 *     memory.receive -> thread of the channel: socket -> [driver writes a piece]
 *
 * The node gives a worker its end (worker.channel), which waits for its one call. That call runs on a thread of its
 * own, so the other worker never delays the driver or the reader, and two workers may send to each other. Only the
 * driver touches memory: a piece is an ordinary call in its queue, after the earlier calls, and freeing the allocation
 * ends the copy. When the thread is done the call itself is queued, to be answered. Received bytes are hostile input:
 * anything but the next bytes of the range ends the channel. The receiver closes the channel when it has everything, or
 * has waited too long; the sender waits for that. */
#include "common/base/clock.h"
#include "engine/worker/copy_stream.h"
#include "engine/worker/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	PIECE_BYTES = COPY_PIECE_BYTES,
	PIECES = 4,
	CALL_MS = 60000, // for a piece
	TELL_NS = 250 * 1000 * 1000,
};

struct channel_piece {
	struct channel *channel;
	uint8_t *bytes;
	uint64_t length;
	bool asked, done;   // (L)
	struct error error; // (L)
};

struct channel {
	struct channel *next; // (L)
	struct session *session;
	char id[65];
	bool sends;
	int64_t opened_ns;
	int fd;            // closed with the lock held
	struct call *call; // (L) NULL: it has not come
	uint32_t handle;
	uint64_t offset, total;
	uint8_t *memory; // (PIECES * PIECE_BYTES)
	struct channel_piece pieces[PIECES];
	// the driver's
	uint64_t written;
	int64_t told_ns;
};

// ---- pieces ----

static struct channel_piece *piece_at(struct channel *channel, uint64_t at)
{
	return &channel->pieces[at / PIECE_BYTES % PIECES];
}

// Have the driver fill or write a piece, whose bytes lie at `at` of the range. Errors: STATUS_OUT_OF_MEMORY.
static enum status ask(struct channel *channel, struct channel_piece *piece, uint64_t at, uint64_t length,
		       struct error *error)
{
	struct call *call = calloc(1, sizeof(*call));
	if (!call)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a call");
	*call = (struct call){.kind = CALL_PIECE,
			      .piece = NO_PIECE,
			      .limit_ns = CALL_MS * 1000000ll,
			      .handle = channel->handle,
			      .to_offset = channel->offset + at,
			      .bytes = length,
			      .channel_piece = piece};
	piece->length = length;
	piece->done = false;
	piece->asked = true;
	calls_put(channel->session, call);
	return STATUS_OK;
}

// Wait for the driver, if it has been asked for this piece. Errors: its.
static enum status wait_for(struct channel_piece *piece, struct error *error)
{
	struct session *session = piece->channel->session;
	pthread_mutex_lock(&session->lock);
	while (piece->asked && !piece->done)
		pthread_cond_wait(&session->piece_done, &session->lock);
	enum status status = piece->asked ? piece->error.status : STATUS_OK;
	if (status && !error->status)
		*error = piece->error;
	piece->asked = false;
	pthread_mutex_unlock(&session->lock);
	return status;
}

// Wait until the driver has finished the pieces of the channel.
static void wait_for_all(struct channel *channel, struct error *error)
{
	for (int i = 0; i < PIECES; i++)
		wait_for(&channel->pieces[i], error);
}

static void tell(struct channel *channel)
{
	int64_t now_ns = clock_steady_ns();
	if (now_ns - channel->told_ns < TELL_NS)
		return;
	struct json *params = json_new_object();
	json_set_string(params, "channel", channel->id);
	json_set_integer(params, "done_bytes", (int64_t)channel->written);
	if (answer_notice(channel->session, "memory.moved", params))
		channel->told_ns = now_ns;
}

void channel_move(struct session *session, struct call *call)
{
	struct channel_piece *piece = call->channel_piece;
	struct channel *channel = piece->channel;
	struct memory_slot *slot = memory_find(session, call->handle);
	enum status status = STATUS_OK;
	if (!slot)
		status = error_set(&call->error, STATUS_NOT_FOUND, "handle: there is no allocation %u here",
				   call->handle);
	else
		status = memory_check_range(slot, call->to_offset, call->bytes, &call->error);
	if (!status) {
		driver_drain(session, slot->device);
		watch_enter(session, call);
		status = channel->sends
				 ? exogpu_read(piece->bytes, slot->buffer, call->to_offset, call->bytes, &call->error)
				 : exogpu_write(slot->buffer, call->to_offset, piece->bytes, call->bytes, &call->error);
		driver_told(session, call, status);
		// The call is done: the time until the server reads the answer does not count.
		pthread_mutex_lock(&session->lock);
		call->deadline_ns = 0;
		pthread_mutex_unlock(&session->lock);
		watch_return(session);
	}
	if (!status && !channel->sends) {
		channel->written += call->bytes;
		tell(channel);
	}
	pthread_mutex_lock(&session->lock);
	piece->error = call->error;
	piece->done = true;
	pthread_cond_broadcast(&session->piece_done);
	pthread_mutex_unlock(&session->lock);
	calls_remove(session, call);
}

// ---- the socket ----

// The bytes of the next message, whose body continues at `at`. 0: the message is wrong, or none comes. Each but the
// last is a whole piece: so it lies where its place in the range says.
static uint64_t receive_head(const struct channel *channel, uint64_t at)
{
	const uint64_t bytes = copy_stream_head(channel->fd, channel->session->contract, at);
	const uint64_t left = channel->total - at;
	return bytes == (left < PIECE_BYTES ? left : PIECE_BYTES) ? bytes : 0;
}

// ---- the two calls ----

// How many bytes went.
static uint64_t send_range(struct channel *channel, struct error *error)
{
	uint64_t asked = 0, sent = 0;
	while (!error->status && sent < channel->total) {
		while (!error->status && asked < channel->total && asked - sent < PIECES * (uint64_t)PIECE_BYTES) {
			uint64_t left = channel->total - asked, length = left < PIECE_BYTES ? left : PIECE_BYTES;
			if (!ask(channel, piece_at(channel, asked), asked, length, error))
				asked += length;
		}
		struct channel_piece *piece = piece_at(channel, sent);
		if (error->status || wait_for(piece, error) ||
		    !copy_stream_send(channel->fd, sent, piece->bytes, piece->length))
			break;
		sent += piece->length;
	}
	if (sent == channel->total)
		copy_stream_await_end(channel->fd);
	return sent;
}

// How many bytes were written.
static uint64_t receive_range(struct channel *channel, struct error *error)
{
	uint64_t received = 0;
	while (received < channel->total) {
		struct channel_piece *piece = piece_at(channel, received);
		uint64_t bytes = receive_head(channel, received);
		if (!bytes || wait_for(piece, error) || !copy_stream_receive(channel->fd, piece->bytes, bytes) ||
		    ask(channel, piece, received, bytes, error))
			break;
		received += bytes;
	}
	return received;
}

static void channel_destroy(struct channel *channel)
{
	if (channel->fd >= 0)
		close(channel->fd);
	free(channel->memory);
	free(channel);
}

// Remove the channel from the list. The lock is held.
static void leave(struct channel *channel)
{
	struct channel **at = &channel->session->channels;
	while (*at != channel)
		at = &(*at)->next;
	*at = channel->next;
	channel->session->channel_count--;
}

static void *channel_main(void *arg)
{
	struct channel *channel = arg;
	struct session *session = channel->session;
	struct call *call = channel->call;
	struct error error = {0};
	uint64_t moved = channel->sends ? send_range(channel, &error) : receive_range(channel, &error);
	wait_for_all(channel, &error);
	call->error = error;
	call->total_bytes = moved;
	call->quiet = true;
	pthread_mutex_lock(&session->lock);
	leave(channel);
	pthread_mutex_unlock(&session->lock);
	channel_destroy(channel);
	calls_put(session, call);
	// The last that this thread does with the session.
	pthread_mutex_lock(&session->lock);
	session->channel_threads--;
	pthread_cond_broadcast(&session->piece_done);
	pthread_mutex_unlock(&session->lock);
	return NULL;
}

// ---- what the reader does with them ----

// The lock is held.
static void drop_unused(struct session *session)
{
	for (struct channel *channel = session->channels, *next; channel; channel = next) {
		next = channel->next;
		if (channel->call || !copy_stream_unused(channel->fd, channel->opened_ns))
			continue;
		leave(channel);
		channel_destroy(channel);
	}
}

enum status channel_open(struct session *session, const struct json *params, int fd, struct error *error)
{
	const char *id = json_get_string(params, "channel", "");
	bool known = false;
	struct channel *channel = calloc(1, sizeof(*channel));
	if (!channel)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a channel");
	channel->session = session;
	channel->opened_ns = clock_steady_ns();
	channel->fd = -1;
	channel->sends = !strcmp(json_get_string(params, "end", ""), "out");
	snprintf(channel->id, sizeof(channel->id), "%s", id);
	pthread_mutex_lock(&session->lock);
	drop_unused(session);
	for (const struct channel *one = session->channels; one; one = one->next)
		known |= !strcmp(one->id, channel->id);
	if (known)
		error_set(error, STATUS_CONFLICT, "there is a channel of this id");
	else if (session->channel_count >= LIMIT_WORKER_CHANNELS)
		error_set(error, STATUS_LIMIT_EXCEEDED, "a worker has at most %d channels", LIMIT_WORKER_CHANNELS);
	if (!error->status) {
		channel->fd = fd;
		channel->next = session->channels;
		session->channels = channel;
		session->channel_count++;
	}
	pthread_mutex_unlock(&session->lock);
	if (error->status)
		channel_destroy(channel);
	return error->status;
}

// Start the memory and the thread of a channel; false: one of them cannot be had.
static bool start(struct channel *channel)
{
	pthread_t thread;
	channel->memory = malloc((size_t)PIECES * PIECE_BYTES);
	if (!channel->memory)
		return false;
	for (int i = 0; i < PIECES; i++)
		channel->pieces[i] = (struct channel_piece){.channel = channel,
							    .bytes = channel->memory + (size_t)i * PIECE_BYTES};
	if (pthread_create(&thread, NULL, channel_main, channel))
		return false;
	pthread_detach(thread);
	return true;
}

void channel_call(struct session *session, struct call *call)
{
	const char *id = json_get_string(call->message.params, "channel", "");
	const bool sends = call->kind == CALL_SEND;
	pthread_mutex_lock(&session->lock);
	struct channel *channel = session->channels;
	while (channel && (strcmp(channel->id, id) != 0 || channel->sends != sends || channel->call))
		channel = channel->next;
	if (channel) {
		channel->call = call;
		channel->handle = (uint32_t)call_count(call, "handle");
		channel->offset = call_count(call, "offset");
		channel->total = call_count(call, "bytes");
		channel->told_ns = clock_steady_ns();
		session->channel_threads++;
	}
	pthread_mutex_unlock(&session->lock);
	if (channel && start(channel))
		return;
	if (channel) {
		pthread_mutex_lock(&session->lock);
		leave(channel);
		session->channel_threads--;
		pthread_mutex_unlock(&session->lock);
		channel_destroy(channel);
	}
	call->quiet = true; // nothing has gone, and nothing will: the server does it
	calls_put(session, call);
}

void channels_stop(struct session *session)
{
	pthread_mutex_lock(&session->lock);
	for (struct channel *channel = session->channels; channel; channel = channel->next)
		shutdown(channel->fd, SHUT_RDWR);
	while (session->channel_threads)
		pthread_cond_wait(&session->piece_done, &session->lock);
	while (session->channels) {
		struct channel *channel = session->channels;
		leave(channel);
		channel_destroy(channel);
	}
	pthread_mutex_unlock(&session->lock);
}
