/* The sockets of the ring, and the thread that serves them. See ring.h.
 *
 * The driver writes a message to the socket as far as it fits; the thread sends the rest, and the messages after it.
 * `lock` guards both queues. */
#include "engine/worker/instance/ring.h"

#include "common/wire/message.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 256 * 1024 };

// A message on its way out.
struct outgoing {
	struct outgoing *next;
	struct buffer bytes;
	size_t sent;
};

struct ring {
	struct ring_part part; // (L)
	const struct contract *contract;
	int in_fd, out_fd, wake_fd;
	void (*came)(void *context);
	void *context;
	pthread_t thread;
	bool started;

	pthread_mutex_t lock;
	struct ring_message *first, *last; // (L) that have come
	unsigned come_count;               // (L)
	size_t come_bytes;                 // (L)
	struct outgoing *out, *last_out;   // (L)
	unsigned out_count;                // (L)
	bool out_ended, ending;            // (L)

	// The thread's.
	struct buffer in;
	bool in_ended;
};

static void wake(struct ring *ring)
{
	uint64_t one = 1;
	while (write(ring->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

// ---- out ----

static void drop_first(struct ring *ring)
{
	struct outgoing *one = ring->out;
	ring->out = one->next;
	if (!ring->out)
		ring->last_out = NULL;
	ring->out_count--;
	buffer_finish(&one->bytes);
	free(one);
}

// Send as much as the socket takes. The lock is held.
static void send_some(struct ring *ring)
{
	while (ring->out && !ring->out_ended) {
		struct outgoing *one = ring->out;
		ssize_t wrote = send(ring->out_fd, one->bytes.data + one->sent, one->bytes.length - one->sent,
				     MSG_NOSIGNAL | MSG_DONTWAIT);
		if (wrote < 0 && errno == EINTR)
			continue;
		if (wrote < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		ring->out_ended = wrote < 0;
		one->sent += wrote > 0 ? (size_t)wrote : 0;
		if (one->sent == one->bytes.length)
			drop_first(ring);
	}
	while (ring->out && ring->out_ended)
		drop_first(ring);
}

enum status ring_send(struct ring *ring, struct buffer *message, struct error *error)
{
	struct outgoing *one = calloc(1, sizeof(*one));
	if (!one) {
		buffer_finish(message);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a message to the next part");
	}
	one->bytes = *message;
	buffer_init(message, message->maximum);
	pthread_mutex_lock(&ring->lock);
	bool full = ring->out_count >= LIMIT_RING_MESSAGES;
	if (!full) {
		*(ring->last_out ? &ring->last_out->next : &ring->out) = one;
		ring->last_out = one;
		ring->out_count++;
		if (ring->out == one)
			send_some(ring);
	}
	bool waits = ring->out != NULL;
	pthread_mutex_unlock(&ring->lock);
	if (full) {
		buffer_finish(&one->bytes);
		free(one);
		return error_set(error, STATUS_LIMIT_EXCEEDED, "%d messages wait for the next part",
				 LIMIT_RING_MESSAGES);
	}
	if (waits)
		wake(ring);
	return STATUS_OK;
}

void ring_forget(struct ring *ring)
{
	pthread_mutex_lock(&ring->lock);
	struct outgoing *begun = ring->out && ring->out->sent ? ring->out : NULL;
	struct outgoing *rest = begun ? begun->next : ring->out;
	if (begun)
		begun->next = NULL;
	ring->out = ring->last_out = begun;
	ring->out_count = begun != NULL;
	pthread_mutex_unlock(&ring->lock);
	while (rest) {
		struct outgoing *one = rest;
		rest = one->next;
		buffer_finish(&one->bytes);
		free(one);
	}
}

// ---- in ----

struct ring_message *ring_take(struct ring *ring)
{
	pthread_mutex_lock(&ring->lock);
	struct ring_message *message = ring->first;
	bool full = ring->come_count >= LIMIT_RING_MESSAGES || ring->come_bytes >= LIMIT_RING_BYTES;
	if (message) {
		ring->first = message->next;
		if (!ring->first)
			ring->last = NULL;
		ring->come_count--;
		ring->come_bytes -= message->frame_bytes;
	}
	pthread_mutex_unlock(&ring->lock);
	if (full)
		wake(ring);
	return message;
}

static void put(struct ring *ring, struct ring_message *message)
{
	pthread_mutex_lock(&ring->lock);
	*(ring->last ? &ring->last->next : &ring->first) = message;
	ring->last = message;
	ring->come_count++;
	ring->come_bytes += message->frame_bytes;
	pthread_mutex_unlock(&ring->lock);
	ring->came(ring->context);
}

// The messages that have come whole. What is no message is the last that is taken.
static void take_messages(struct ring *ring)
{
	const uint8_t *frame = NULL;
	size_t length = 0, used = 1;
	while (used && !ring->in_ended) {
		enum status status = message_next(&ring->in, &frame, &length, &used);
		if (!status && !used)
			return;
		pthread_mutex_lock(&ring->lock);
		const struct ring_part part = ring->part;
		pthread_mutex_unlock(&ring->lock);
		struct ring_message *message = ring_read(&part, ring->contract, frame, status ? 0 : length);
		if (message) {
			ring->in_ended = message->said == RING_BROKEN;
			put(ring, message);
		}
		ring->in_ended |= !message;
		buffer_consume(&ring->in, used);
	}
}

static void receive(struct ring *ring)
{
	size_t left = message_left(&ring->in), bytes = left > READ_BYTES ? left : READ_BYTES;
	if (buffer_reserve(&ring->in, bytes)) {
		ring->in_ended = true;
		return;
	}
	ssize_t got = recv(ring->in_fd, ring->in.data + ring->in.length, bytes, MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	ring->in_ended = got <= 0;
	if (got <= 0)
		return;
	ring->in.length += (size_t)got;
	ring->in.data[ring->in.length] = 0;
	take_messages(ring);
}

void ring_set_part(struct ring *ring, const struct ring_part *part)
{
	pthread_mutex_lock(&ring->lock);
	ring->part = *part;
	pthread_mutex_unlock(&ring->lock);
}

// ---- the thread ----

static void *serve(void *context)
{
	struct ring *ring = context;
	for (;;) {
		uint64_t times;
		pthread_mutex_lock(&ring->lock);
		send_some(ring);
		bool room = ring->come_count < LIMIT_RING_MESSAGES && ring->come_bytes < LIMIT_RING_BYTES;
		bool waits = ring->out != NULL, ending = ring->ending;
		pthread_mutex_unlock(&ring->lock);
		if (ending)
			return NULL;
		struct pollfd fds[3] = {{.fd = ring->wake_fd, .events = POLLIN},
					{.fd = room && !ring->in_ended ? ring->in_fd : -1, .events = POLLIN},
					{.fd = waits ? ring->out_fd : -1, .events = POLLOUT}};
		if (poll(fds, 3, -1) < 0)
			continue;
		while (fds[0].revents & POLLIN && read(ring->wake_fd, &times, sizeof(times)) < 0 && errno == EINTR)
			;
		if (fds[1].revents)
			receive(ring);
	}
}

enum status ring_create(struct ring **out, const struct ring_params *params, struct error *error)
{
	struct ring *ring = *out = calloc(1, sizeof(*ring));
	if (!ring)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a ring");
	ring->part = *params->part;
	ring->contract = params->contract;
	ring->in_fd = params->in_fd;
	ring->out_fd = params->out_fd;
	ring->came = params->came;
	ring->context = params->context;
	pthread_mutex_init(&ring->lock, NULL);
	buffer_init(&ring->in, 2 * (size_t)LIMIT_WORKER_MESSAGE_BYTES);
	ring->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int code = ring->wake_fd < 0 ? errno : pthread_create(&ring->thread, NULL, serve, ring);
	ring->started = !code;
	if (!code)
		return STATUS_OK;
	ring_destroy(out);
	return error_errno(error, STATUS_INTERNAL, code, "starting the ring's thread");
}

void ring_destroy(struct ring **ring_pointer)
{
	struct ring *ring = *ring_pointer;
	struct ring_message *message;
	if (!ring)
		return;
	pthread_mutex_lock(&ring->lock);
	ring->ending = true;
	pthread_mutex_unlock(&ring->lock);
	if (ring->started) {
		wake(ring);
		pthread_join(ring->thread, NULL);
	}
	while ((message = ring_take(ring)))
		ring_message_destroy(&message);
	while (ring->out)
		drop_first(ring);
	if (ring->wake_fd >= 0)
		close(ring->wake_fd);
	buffer_finish(&ring->in);
	pthread_mutex_destroy(&ring->lock);
	free(ring);
	*ring_pointer = NULL;
}
