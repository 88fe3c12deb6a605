/* Messages between nodes; see peer.h. peer_open.c opens connections. Receiving: the beginning of a
 * message is decrypted into `stage`, one record at a time; total, header and the beginning of the
 * body are taken from there, and the rest of the body is decrypted directly into its frame. OpenSSL
 * reads no further than the record that it was asked for, so the loop sees what the system still has.
 * A connection reads at most READ_TURN_BYTES a turn, so that a busy one does not starve others.
 * Sending: at once if nothing waits, with lengths, header and the beginning of the body in one
 * record. What the socket does not take waits in a list; small messages that join it are combined and
 * share records. A socket that cannot be written to is shut down, and the loop finds its end. Thread:
 * the loop's. */
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/frame.h"
#include "common/net/peer_inside.h"

#include <errno.h>
#include <openssl/err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	READ_BYTES = 512 * 1024,        // of one call
	READ_TURN_BYTES = 1024 * 1024,  // of one turn of the loop
	WRITE_TURN_BYTES = 1024 * 1024, // too
	GATHER_BYTES = 4096,            // messages up to this share a piece
	KEEP_HEAD_BYTES = 64 * 1024,    // a buffer larger than this is given back after its message
	PREFIX_BYTES = 8,               // total, head length
	KEYS_MS = 3600 * 1000,
};
static const uint64_t KEYS_BYTES = (uint64_t)64 << 30;

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

// ---- the end ----

static void drop_first(struct net_peer *peer)
{
	struct peer_piece *piece = peer->first;
	peer->first = piece->next;
	if (!peer->first)
		peer->last = &peer->first;
	peer->queued -= piece->left;
	peer->pieces--;
	net_frame_unref(&piece->holder);
	free(piece);
}

static void drop_all(struct net_peer *peer)
{
	while (peer->first)
		drop_first(peer);
	peer->pending = 0;
}

static void peer_free(struct net_peer *peer)
{
	SSL_free(peer->ssl);
	buffer_finish(&peer->head);
	net_frame_unref(&peer->body);
	free(peer);
}

void net_peer_destroy(struct net_peer **pointer)
{
	struct net_peer *peer = *pointer;
	if (!peer)
		return;
	*pointer = NULL;
	if (peer->destroyed)
		return;
	peer->destroyed = true;
	net_timer_stop(peer->loop, &peer->patience);
	net_peer_uncount(peer);
	// That it ends is said, where nothing is half sent, so that the other end can tell it from a cut.
	if (peer->state == PEER_OPEN && !peer->broken && !peer->first)
		SSL_shutdown(peer->ssl);
	ERR_clear_error();
	drop_all(peer);
	net_watch_destroy(&peer->watch);
	if (!peer->in_callback)
		peer_free(peer);
}

static void end(struct net_peer *peer)
{
	if (!peer->destroyed)
		peer->handler->closed(peer->user, peer, peer->why[0] ? peer->why : "the connection ended");
	net_peer_destroy(&peer);
}

static void leave(struct net_peer *peer)
{
	peer->in_callback = false;
	if (peer->destroyed)
		peer_free(peer);
}

// The first reason counts.
static void say(struct net_peer *peer, const char *why)
{
	if (!peer->why[0])
		snprintf(peer->why, sizeof peer->why, "%s", why);
}

static void out_of_patience(void *arg)
{
	struct net_peer *peer = arg;
	peer->in_callback = true;
	say(peer, peer->state == PEER_CONNECTING ? "nothing answers there" : "the TLS handshake takes too long");
	end(peer);
	leave(peer);
}

// ---- receiving ----

// The lengths of the next message. False: not to be taken.
static bool begin_message(struct net_peer *peer)
{
	const uint8_t *prefix = peer->stage + peer->stage_first;
	size_t total = read_u32le(prefix), head = read_u32le(prefix + 4);
	if (total < 4 || total > peer->limit || head > total - 4 || head > LIMIT_HEAD_BYTES) {
		say(peer, "the peer sent impossible message lengths");
		return false;
	}
	size_t body = total - 4 - head;
	peer->body = body ? net_frame_alloc(body) : NULL;
	if ((body && !peer->body) || buffer_reserve(&peer->head, head ? head : 1)) {
		say(peer, "out of memory for a message");
		return false;
	}
	peer->stage_first += PREFIX_BYTES;
	peer->head_bytes = head;
	peer->body_filled = 0;
	peer->begun = true;
	return true;
}

static void deliver(struct net_peer *peer)
{
	struct net_frame *body = peer->body;
	peer->body = NULL;
	peer->begun = false;
	peer->handler->message(peer->user, peer, peer->head.data, peer->head_bytes, body);
	net_frame_unref(&body);
	if (peer->head.capacity > KEEP_HEAD_BYTES)
		buffer_finish(&peer->head);
	buffer_clear(&peer->head);
}

// Take what is in the stage. False: the connection has ended, peer->why says why, or is destroyed.
static bool take_stage(struct net_peer *peer)
{
	for (;;) {
		if (!peer->begun) {
			if (peer->stage_end - peer->stage_first < PREFIX_BYTES)
				break;
			if (!begin_message(peer))
				return false;
		}
		const uint8_t *bytes = peer->stage + peer->stage_first;
		size_t here = peer->stage_end - peer->stage_first,
		       head = least(here, peer->head_bytes - peer->head.length);
		if (buffer_append(&peer->head, bytes, head)) {
			say(peer, "out of memory for a message");
			return false;
		}
		peer->stage_first += head;
		size_t lacking = peer->body ? peer->body->length - peer->body_filled : 0,
		       body = least(here - head, lacking);
		if (body) {
			memcpy(net_frame_data(peer->body) + peer->body_filled, bytes + head, body);
			peer->body_filled += body;
			peer->stage_first += body;
		}
		if (peer->head.length < peer->head_bytes || body < lacking)
			break;
		deliver(peer);
		if (peer->destroyed)
			return false;
	}
	if (peer->stage_first) {
		memmove(peer->stage, peer->stage + peer->stage_first, peer->stage_end - peer->stage_first);
		peer->stage_end -= peer->stage_first;
		peer->stage_first = 0;
	}
	return true;
}

// Reads one record, directly into the body if only that is missing. Returns the result of SSL_read.
static int receive(struct net_peer *peer)
{
	bool direct = peer->begun && peer->body && peer->head.length == peer->head_bytes;
	uint8_t *to = direct ? net_frame_data(peer->body) + peer->body_filled : peer->stage + peer->stage_end;
	size_t room = direct ? least(peer->body->length - peer->body_filled, READ_BYTES)
			     : sizeof peer->stage - peer->stage_end;
	int got = SSL_read(peer->ssl, to, (int)room);
	if (got > 0)
		*(direct ? &peer->body_filled : &peer->stage_end) += (size_t)got;
	return got;
}

static void explain_read(struct net_peer *peer, int error)
{
	unsigned long reason = ERR_peek_last_error();
	const char *text = reason ? ERR_reason_error_string(reason) : NULL;
	if (error == SSL_ERROR_ZERO_RETURN)
		say(peer, "the peer closed the connection");
	else if (error == SSL_ERROR_SYSCALL && errno)
		say(peer, strerror(errno));
	else if (!reason || ERR_GET_REASON(reason) == SSL_R_UNEXPECTED_EOF_WHILE_READING)
		say(peer, "the connection was cut off");
	else if (ERR_GET_REASON(reason) >
		 SSL_AD_REASON_OFFSET) // an alert; after the handshake it is of our certificate
		snprintf(peer->why, sizeof peer->why, "the other end refuses this connection: %s",
			 SSL_alert_desc_string_long(ERR_GET_REASON(reason) - SSL_AD_REASON_OFFSET));
	else
		say(peer, text ? text : "TLS failed");
}

// False: the connection has ended.
static bool read_turn(struct net_peer *peer)
{
	// What OpenSSL holds decrypted no event tells of: it is read in any case.
	for (size_t taken = 0; taken < READ_TURN_BYTES || SSL_pending(peer->ssl);) {
		ERR_clear_error();
		errno = 0;
		int got = receive(peer);
		if (got <= 0) {
			int error = SSL_get_error(peer->ssl, got);
			if (error == SSL_ERROR_WANT_READ)
				return true;
			if (error == SSL_ERROR_WANT_WRITE) {
				net_watch_want_write(peer->watch);
				return true;
			}
			explain_read(peer, error);
			peer->broken = true;
			return false;
		}
		peer->heard_ms = clock_steady_ms();
		taken += (size_t)got;
		// A body that was received whole is seen by take_stage, with nothing in the stage.
		if (!take_stage(peer))
			return false;
	}
	return true;
}

// ---- sending ----

// The socket is of no use any more. Reading finds its end, in a turn of its own.
static void break_off(struct net_peer *peer)
{
	peer->broken = true;
	drop_all(peer);
	shutdown(peer->fd, SHUT_RDWR);
}

static void mind_keys(struct net_peer *peer)
{
	uint64_t bytes = BIO_number_read(SSL_get_rbio(peer->ssl)) + BIO_number_written(SSL_get_wbio(peer->ssl));
	if (bytes - peer->keys_bytes > KEYS_BYTES || clock_steady_ms() - peer->keys_ms > KEYS_MS)
		net_peer_update_keys(peer);
}

void net_peer_update_keys(struct net_peer *peer)
{
	if (peer->state != PEER_OPEN || peer->broken || peer->pending)
		return; // the next message comes back to it
	peer->keys_ms = clock_steady_ms();
	peer->keys_bytes = BIO_number_read(SSL_get_rbio(peer->ssl)) + BIO_number_written(SSL_get_wbio(peer->ssl));
	if (SSL_key_update(peer->ssl, SSL_KEY_UPDATE_REQUESTED) != 1)
		log_debug("net", "a link's keys are not changed");
	ERR_clear_error();
}

// Send bytes of one record. False: not now, or never more.
static bool write_record(struct net_peer *peer, const uint8_t *bytes, size_t length)
{
	ERR_clear_error();
	if (SSL_write(peer->ssl, bytes, (int)length) > 0) {
		peer->pending = 0;
		return true;
	}
	int error = SSL_get_error(peer->ssl, -1);
	if (error == SSL_ERROR_WANT_WRITE || error == SSL_ERROR_WANT_READ) {
		peer->pending = length;
		return false;
	}
	break_off(peer);
	return false;
}

static void flush(struct net_peer *peer)
{
	size_t written = 0;
	while (peer->first && written < WRITE_TURN_BYTES) {
		struct peer_piece *piece = peer->first;
		size_t length = peer->pending ? peer->pending : least(piece->left, PEER_RECORD_BYTES);
		if (!write_record(peer, piece->at, length))
			break;
		piece->at += length;
		piece->left -= length;
		peer->queued -= length;
		written += length;
		if (!piece->left)
			drop_first(peer);
	}
	if (peer->first) {
		net_watch_want_write(peer->watch);
	} else if (peer->was_full && !peer->broken) {
		peer->was_full = false;
		if (peer->handler->drained)
			peer->handler->drained(peer->user, peer);
	}
}

// Append bytes. `holder` NULL: copied.
static enum status queue(struct net_peer *peer, struct net_frame *holder, const uint8_t *bytes, size_t length)
{
	struct peer_piece *tail = peer->first ? (struct peer_piece *)(void *)peer->last : NULL; // `next` comes first
	if (!length)
		return STATUS_OK;
	if (tail && !holder && length <= tail->room) {
		memcpy((uint8_t *)tail->at + tail->left, bytes, length);
		tail->left += length;
		tail->room -= length;
		peer->queued += length;
		return STATUS_OK;
	}
	size_t room = !holder && length <= GATHER_BYTES ? PEER_RECORD_BYTES - length : 0;
	struct peer_piece *piece = malloc(sizeof(*piece));
	struct net_frame *held = holder ? net_frame_ref(holder) : net_frame_alloc(length + room);
	if (!piece || !held) {
		free(piece);
		net_frame_unref(&held);
		return STATUS_OUT_OF_MEMORY;
	}
	if (!holder)
		memcpy(net_frame_data(held), bytes, length);
	*piece = (struct peer_piece){
		.holder = held, .at = holder ? bytes : net_frame_data(held), .left = length, .room = room};
	*peer->last = piece;
	peer->last = &piece->next;
	peer->queued += length;
	peer->pieces++;
	return STATUS_OK;
}

// The body's bytes from `sent` on, at once as far as the socket takes them. Returns how far that was.
static size_t send_body(struct net_peer *peer, const uint8_t *body, size_t sent, size_t length)
{
	while (sent < length) {
		size_t now = least(length - sent, PEER_RECORD_BYTES);
		if (!write_record(peer, body + sent, now))
			break;
		sent += now;
	}
	return sent;
}

enum status net_peer_send(struct net_peer *peer, const void *head, size_t head_bytes, struct net_frame *holder,
			  const uint8_t *body, size_t body_bytes)
{
	uint8_t record[PEER_RECORD_BYTES];
	if (head_bytes > LIMIT_HEAD_BYTES || body_bytes > LIMIT_WORKER_MESSAGE_BYTES - 4 - head_bytes)
		return STATUS_LIMIT_EXCEEDED;
	if (peer->broken || peer->destroyed)
		return STATUS_OK; // nobody hears it; `closed` is on its way
	size_t total = PREFIX_BYTES + head_bytes + body_bytes;
	if (peer->first &&
	    (peer->queued + total > LIMIT_STREAM_QUEUE_BYTES || peer->pieces >= LIMIT_STREAM_QUEUE_PIECES))
		return STATUS_LIMIT_EXCEEDED;
	put_u32le(record, 4 + head_bytes + body_bytes);
	put_u32le(record + 4, head_bytes);
	size_t of_head = least(head_bytes, sizeof record - PREFIX_BYTES),
	       of_body = least(body_bytes, sizeof record - PREFIX_BYTES - of_head),
	       first = PREFIX_BYTES + of_head + of_body, sent = of_body;
	memcpy(record + PREFIX_BYTES, head, of_head);
	if (of_body)
		memcpy(record + PREFIX_BYTES + of_head, body, of_body);
	bool wait = peer->first || peer->state != PEER_OPEN;
	if (!wait) {
		mind_keys(peer);
		if (write_record(peer, record, first)) {
			first = 0;
			if (of_head == head_bytes)
				sent = send_body(peer, body, sent, body_bytes);
		}
		if (peer->broken)
			return STATUS_OK;
	}
	enum status status = queue(peer, NULL, record, first);
	if (!status)
		status = queue(peer, NULL, (const uint8_t *)head + of_head, head_bytes - of_head);
	if (!status && body_bytes > sent)
		status = queue(peer, holder, body + sent, body_bytes - sent);
	if (status) {
		break_off(peer); // half a message is worse than none
		return status;
	}
	if (peer->queued > LIMIT_STREAM_FULL_BYTES)
		peer->was_full = true;
	if (peer->first && peer->state == PEER_OPEN)
		net_watch_want_write(peer->watch);
	return STATUS_OK;
}

// ---- events ----

// It connects, or shakes hands. False: the connection has ended.
static bool go_on_opening(struct net_peer *peer)
{
	if (peer->state == PEER_CONNECTING) {
		int fault = 0;
		socklen_t size = sizeof fault;
		if (getsockopt(peer->fd, SOL_SOCKET, SO_ERROR, &fault, &size) || fault) {
			say(peer, fault == ECONNREFUSED ? "nothing listens there" : strerror(fault ? fault : errno));
			return false;
		}
		peer->state = PEER_SHAKING;
	}
	if (!net_peer_shake(peer))
		return false;
	if (peer->state == PEER_OPEN && !peer->destroyed) {
		flush(peer);
		// What came with the last of the handshake is there already.
		return !peer->destroyed && !peer->broken && read_turn(peer);
	}
	return true;
}

static void on_readable(void *arg, int fd)
{
	(void)fd;
	struct net_peer *peer = arg;
	peer->in_callback = true;
	if (!(peer->state == PEER_OPEN ? read_turn(peer) : go_on_opening(peer)))
		end(peer);
	leave(peer);
}

static void on_writable(void *arg, int fd)
{
	(void)fd;
	struct net_peer *peer = arg;
	peer->in_callback = true;
	if (peer->state != PEER_OPEN) {
		if (!go_on_opening(peer))
			end(peer);
	} else if (!peer->broken) {
		flush(peer);
	}
	leave(peer);
}

static const struct net_watch_events peer_events = {.readable = on_readable, .writable = on_writable};

enum status net_peer_create(struct net_peer **out, struct net_loop *loop, int fd, SSL_CTX *context, struct error *error)
{
	*out = NULL;
	struct net_peer *peer = calloc(1, sizeof(*peer));
	SSL *ssl = peer ? SSL_new(context) : NULL;
	if (!ssl || SSL_set_fd(ssl, fd) != 1) {
		SSL_free(ssl);
		free(peer);
		close(fd);
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	}
	peer->loop = loop;
	peer->ssl = ssl;
	peer->fd = fd;
	peer->last = &peer->first;
	peer->limit = LIMIT_LOGIN_BYTES;
	peer->heard_ms = peer->keys_ms = clock_steady_ms();
	buffer_init(&peer->head, LIMIT_HEAD_BYTES + 1);
	enum status status = net_watch_create(&peer->watch, loop, fd, &peer_events, peer, error);
	if (status) {
		close(fd);
		peer_free(peer);
		return status;
	}
	net_timer_start(loop, &peer->patience, LIMIT_LOGIN_MS, out_of_patience, peer);
	*out = peer;
	return STATUS_OK;
}

void net_peer_trust(struct net_peer *peer)
{
	peer->limit = LIMIT_WORKER_MESSAGE_BYTES;
}

size_t net_peer_queued(const struct net_peer *peer)
{
	return peer->queued;
}

void net_peer_tell_drained(struct net_peer *peer)
{
	peer->was_full = peer->was_full || peer->first;
}

int64_t net_peer_silence_ms(const struct net_peer *peer)
{
	return clock_steady_ms() - peer->heard_ms;
}
