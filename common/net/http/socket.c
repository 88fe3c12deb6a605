/* The socket of an accepted connection: its bytes, plain or TLS, and which file receives them. A TLS
 * record is read whole, so that nothing stays inside OpenSSL, where no poll would see it. Bytes that the
 * socket does not take are kept and sent first. A handshake continues only in its turn
 * (NET_LINE_HANDSHAKE); otherwise many clients could send the expensive rest of their handshakes at once.
 * Thread: the loop's. */
#include "common/net/http/arrival.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LEAVING_BYTES = 65536, RECORD_BYTES = 16384 };

int net_arrival_fd(const struct net_arrival *arrival)
{
	return net_watch_fd(arrival->watch);
}

// ---- what is sent ----

// Returns how much was written, 0 if the socket is full, -1 if it is broken.
static ssize_t write_some(struct net_arrival *arrival, const uint8_t *bytes, size_t length)
{
	size_t written = 0;
	if (!arrival->ssl) {
		ssize_t sent = send(net_arrival_fd(arrival), bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
		return sent >= 0 ? sent : errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
	}
	ERR_clear_error();
	if (SSL_write_ex(arrival->ssl, bytes, length < RECORD_BYTES ? length : (size_t)RECORD_BYTES, &written) == 1)
		return (ssize_t)written;
	const int error = SSL_get_error(arrival->ssl, 0);
	return error == SSL_ERROR_WANT_WRITE || error == SSL_ERROR_WANT_READ ? 0 : -1;
}

static int keep(struct net_arrival *arrival, const uint8_t *bytes, size_t length)
{
	const size_t left = arrival->kept_bytes - arrival->kept_at;
	uint8_t *kept = malloc(left + length);
	if (!kept) {
		net_arrival_end(arrival);
		return -1;
	}
	if (left)
		memcpy(kept, arrival->kept + arrival->kept_at, left);
	memcpy(kept + left, bytes, length);
	free(arrival->kept);
	arrival->kept = kept;
	arrival->kept_bytes = left + length;
	arrival->kept_at = 0;
	net_arrival_want_write(arrival);
	return 0;
}

int net_arrival_send(struct net_arrival *arrival, const void *data, size_t length)
{
	const uint8_t *bytes = data;
	size_t done = 0;
	ssize_t now = arrival->kept ? 0 : 1;
	if (arrival->ending)
		return -1;
	while (done < length && now > 0) {
		now = write_some(arrival, bytes + done, length - done);
		done += now > 0 ? (size_t)now : 0;
	}
	if (now < 0) {
		net_arrival_end(arrival);
		return -1;
	}
	return done < length ? keep(arrival, bytes + done, length - done) : 0;
}

bool net_arrival_keeps(const struct net_arrival *arrival)
{
	return arrival->kept;
}

void net_arrival_want_write(struct net_arrival *arrival)
{
	if (!arrival->ending)
		net_watch_want_write(arrival->watch);
}

// Returns 1 if nothing is left, 0 if something is, -1 if the socket is broken.
static int flush(struct net_arrival *arrival)
{
	while (arrival->kept) {
		ssize_t sent = write_some(arrival, arrival->kept + arrival->kept_at,
					  arrival->kept_bytes - arrival->kept_at);
		if (sent <= 0)
			return (int)sent;
		if (arrival->guest.stage == DOOR_TAKING)
			net_arrival_progress(arrival, (size_t)sent);
		arrival->kept_at += (size_t)sent;
		if (arrival->kept_at < arrival->kept_bytes)
			continue;
		free(arrival->kept);
		arrival->kept = NULL;
		arrival->kept_bytes = arrival->kept_at = 0;
	}
	return 1;
}

// ---- what comes ----

ssize_t net_arrival_read(struct net_arrival *arrival, uint8_t *to, size_t room)
{
	size_t got = 0;
	if (!arrival->ssl) {
		ssize_t plain = recv(net_arrival_fd(arrival), to, room, MSG_DONTWAIT);
		if (plain < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
			return 0;
		return plain > 0 ? plain : -1;
	}
	ERR_clear_error();
	if (SSL_read_ex(arrival->ssl, to, room, &got) == 1)
		return (ssize_t)got;
	const int error = SSL_get_error(arrival->ssl, 0);
	return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? 0 : -1;
}

// ---- its end ----

static void say_goodbye(struct net_arrival *arrival)
{
	if (arrival->ssl && SSL_is_init_finished(arrival->ssl)) {
		ERR_clear_error();
		SSL_shutdown(arrival->ssl);
	}
	shutdown(net_arrival_fd(arrival), SHUT_WR);
	if (arrival->ended)
		net_arrival_end(arrival);
	else
		net_watch_want_read(arrival->watch, true);
}

void net_arrival_leave(struct net_arrival *arrival)
{
	if (arrival->ending || arrival->state == ARRIVAL_LEAVING)
		return;
	arrival->state = ARRIVAL_LEAVING;
	net_arrival_stage(arrival, DOOR_LEAVING);
	if (!arrival->kept)
		say_goodbye(arrival);
}

// Drops all bytes, TLS or plain, that a leaving connection still sends.
static void drop_bytes(struct net_arrival *arrival, int fd)
{
	static uint8_t dropped[LEAVING_BYTES]; // the loop's thread alone reads
	ssize_t got = recv(fd, dropped, sizeof dropped, MSG_DONTWAIT);
	if (!got || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
		arrival->ended = true;
		if (arrival->kept)
			net_watch_want_read(arrival->watch, false);
		else
			net_arrival_end(arrival);
	}
}

void net_arrival_close(struct net_arrival *arrival)
{
	SSL_free(arrival->ssl);
	net_watch_destroy(&arrival->watch);
	free(arrival->kept);
	free(arrival->head);
	buffer_finish(&arrival->behind);
}

void net_arrival_bear(struct net_arrival *arrival)
{
	const unsigned none = 0;
	if (!arrival->listener->socket_path[0])
		setsockopt(net_arrival_fd(arrival), IPPROTO_TCP, TCP_USER_TIMEOUT, &none, sizeof none);
}

// ---- the handshake of TLS ----

static void shake_hands(struct net_arrival *arrival)
{
	arrival->state = ARRIVAL_HANDSHAKE;
	ERR_clear_error();
	const int result = SSL_do_handshake(arrival->ssl);
	const int error = result == 1 ? SSL_ERROR_NONE : SSL_get_error(arrival->ssl, result);
	if (result == 1) {
		arrival->state = ARRIVAL_HTTP;
		net_arrival_stage(arrival, DOOR_HEAD);
	} else if (error == SSL_ERROR_WANT_WRITE) {
		net_arrival_want_write(arrival);
	} else if (error != SSL_ERROR_WANT_READ) {
		net_arrival_leave(arrival); // with the alert that OpenSSL has sent
	}
	ERR_clear_error();
}

void net_arrival_serve(struct net_arrival *arrival)
{
	SSL_CTX *context = arrival->listener->context;
	if (!context) {
		arrival->state = ARRIVAL_HTTP; // its time for the head runs since it came
		return;
	}
	arrival->ssl = SSL_new(context);
	if (!arrival->ssl || SSL_set_fd(arrival->ssl, net_arrival_fd(arrival)) != 1) {
		net_arrival_end(arrival);
		return;
	}
	SSL_set_accept_state(arrival->ssl);
	shake_hands(arrival);
}

// ---- events ----

static void on_readable(void *arg, int fd)
{
	struct net_arrival *arrival = arg;
	if (arrival->ending)
		return;
	switch (arrival->state) {
	case ARRIVAL_SILENT:
	case ARRIVAL_IN_LINE:
		net_arrival_first_bytes(arrival, fd);
		break;
	case ARRIVAL_HANDSHAKE:
		arrival->state = ARRIVAL_SPEAKS;
		net_watch_again(arrival->watch, NET_LINE_HANDSHAKE);
		break;
	case ARRIVAL_SPEAKS:
		shake_hands(arrival);
		break;
	case ARRIVAL_HTTP:
		net_http_readable(arrival);
		break;
	case ARRIVAL_WEBSOCKET:
		net_conn_readable(arrival->session, fd);
		break;
	case ARRIVAL_PASSED:
		net_passed_readable(arrival->session);
		break;
	case ARRIVAL_LEAVING:
		drop_bytes(arrival, fd);
		break;
	}
}

static void on_writable(void *arg, int fd)
{
	struct net_arrival *arrival = arg;
	(void)fd;
	if (arrival->ending)
		return;
	if (arrival->state == ARRIVAL_HANDSHAKE) {
		shake_hands(arrival);
		return;
	}
	const int sent = flush(arrival);
	if (sent < 0)
		net_arrival_end(arrival);
	else if (!sent)
		net_arrival_want_write(arrival);
	else if (arrival->state == ARRIVAL_HTTP)
		net_http_writable(arrival);
	else if (arrival->state == ARRIVAL_WEBSOCKET && net_conn_writable(arrival->session))
		net_arrival_finish(arrival);
	else if (arrival->state == ARRIVAL_PASSED)
		net_passed_writable(arrival->session);
	else if (arrival->state == ARRIVAL_LEAVING)
		say_goodbye(arrival);
}

static void on_hung_up(void *arg, int fd)
{
	(void)fd;
	net_arrival_end(arg);
}

const struct net_watch_events net_arrival_events = {
	.readable = on_readable, .writable = on_writable, .hung_up = on_hung_up};
