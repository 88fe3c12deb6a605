/* The threads of moving prefixes: between the group of a move and its socket. See prefix.h. */
#include "common/base/bytes.h"
#include "engine/worker/copy_stream.h"
#include "engine/worker/prefix/prefix.h"

#include <string.h>
#include <sys/socket.h>

enum { HEADER_NUMBERS = 4 };

// A channel's bytes, without regard to how they are divided into messages.
struct stream {
	struct prefix_move *move;
	uint64_t at;   // bytes of earlier messages
	uint64_t left; // of the message that is being received
};

static void note_bytes(const struct stream *stream)
{
	pthread_mutex_lock(&stream->move->instance->prefixes.lock);
	stream->move->bytes = stream->at - stream->left;
	pthread_mutex_unlock(&stream->move->instance->prefixes.lock);
}

static bool send_bytes(struct stream *stream, const uint8_t *bytes, size_t length)
{
	while (length) {
		const size_t piece = length < COPY_PIECE_BYTES ? length : COPY_PIECE_BYTES;
		if (!copy_stream_send(stream->move->fd, stream->at, bytes, piece))
			return false;
		stream->at += piece;
		bytes += piece;
		length -= piece;
	}
	note_bytes(stream);
	return true;
}

static bool receive_bytes(struct stream *stream, uint8_t *bytes, size_t length)
{
	while (length) {
		if (!stream->left)
			stream->at += stream->left = copy_stream_head(stream->move->fd,
								      stream->move->instance->contract, stream->at);
		const size_t piece = length < stream->left ? length : (size_t)stream->left;
		if (!piece || !copy_stream_receive(stream->move->fd, bytes, piece))
			return false;
		stream->left -= piece;
		bytes += piece;
		length -= piece;
	}
	note_bytes(stream);
	return true;
}

// Wait until it is this thread's turn. False: the move is to end.
static bool wait_turn(struct prefix_move *move)
{
	struct prefixes *all = &move->instance->prefixes;
	pthread_mutex_lock(&all->lock);
	while (move->turn != TURN_THREAD && !move->stopped)
		pthread_cond_wait(&move->changed, &all->lock);
	const bool goes_on = !move->stopped;
	pthread_mutex_unlock(&all->lock);
	return goes_on;
}

static void give_turn(struct prefix_move *move, uint32_t group_count, bool bare)
{
	struct prefixes *all = &move->instance->prefixes;
	pthread_mutex_lock(&all->lock);
	move->group_count = group_count;
	move->group_bare = bare;
	move->turn = TURN_DRIVER;
	pthread_mutex_unlock(&all->lock);
	instance_wake(move->instance);
}

static size_t group_bytes(const struct prefix_move *move, uint32_t count, bool bare)
{
	const struct instance *instance = move->instance;
	const size_t pages = bare ? 0 : prefix_layer_count(instance) * (size_t)prefix_page_bytes(instance);
	return count * (STAGE_PAGE_TOKENS * sizeof(uint32_t) + pages);
}

static bool send_count(struct stream *stream, uint32_t count)
{
	uint8_t number[4];
	put_u32le(number, count);
	return send_bytes(stream, number, sizeof number);
}

static void make_header(const struct instance *instance, uint8_t header[4 * HEADER_NUMBERS])
{
	put_u32le(header, PREFIX_VERSION);
	put_u32le(header + 4, prefix_layer_count(instance));
	put_u32le(header + 8, (uint32_t)prefix_page_bytes(instance));
	put_u32le(header + 12, 0);
}

static void give_all(struct stream *stream)
{
	struct prefix_move *move = stream->move;
	uint8_t header[4 * HEADER_NUMBERS];
	make_header(move->instance, header);
	if (!send_bytes(stream, header, sizeof header))
		return;
	while (wait_turn(move)) {
		const uint32_t count = move->group_count;
		const bool bare = move->group_bare;
		if (!send_count(stream, bare ? count | PREFIX_BARE : count))
			return;
		if (!count) {
			copy_stream_await_end(move->fd);
			return;
		}
		if (!send_bytes(stream, move->group, group_bytes(move, count, bare)))
			return;
		give_turn(move, 0, false);
	}
}

static void take_all(struct stream *stream)
{
	struct prefix_move *move = stream->move;
	uint8_t header[4 * HEADER_NUMBERS], own[4 * HEADER_NUMBERS], number[4];
	make_header(move->instance, own);
	if (!receive_bytes(stream, header, sizeof header) || memcmp(header, own, sizeof own) != 0)
		return;
	while (wait_turn(move) && receive_bytes(stream, number, sizeof number)) {
		const bool bare = read_u32le(number) & PREFIX_BARE;
		const uint32_t count = (uint32_t)read_u32le(number) & ~PREFIX_BARE;
		if (!count || count > move->group_most ||
		    !receive_bytes(stream, move->group, group_bytes(move, count, bare)))
			return;
		give_turn(move, count, bare);
	}
}

static void *prefix_main(void *context)
{
	struct prefix_move *move = context;
	struct stream stream = {.move = move};
	if (move->gives)
		give_all(&stream);
	else
		take_all(&stream);
	shutdown(move->fd, SHUT_RDWR); // the other end need not wait for the driver
	pthread_mutex_lock(&move->instance->prefixes.lock);
	move->over = true;
	pthread_mutex_unlock(&move->instance->prefixes.lock);
	instance_wake(move->instance);
	return NULL;
}

bool prefix_start(struct prefix_move *move)
{
	move->turn = move->gives ? TURN_DRIVER : TURN_THREAD;
	return !pthread_create(&move->thread, NULL, prefix_main, move);
}
