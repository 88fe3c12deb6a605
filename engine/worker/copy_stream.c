/* See copy_stream.h. */
#include "engine/worker/copy_stream.h"

#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/wire/message.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { HEAD_BYTES = 512, LENGTHS_BYTES = 8 };

static bool wait_ready(int fd, short events, int patience_ms)
{
	struct pollfd one = {.fd = fd, .events = events};
	int ready;
	do
		ready = poll(&one, 1, patience_ms);
	while (ready < 0 && errno == EINTR);
	return ready > 0;
}

bool copy_stream_unused(int fd, int64_t opened_ns)
{
	struct pollfd one = {.fd = fd};
	return clock_steady_ns() - opened_ns >= COPY_SILENCE_MS * 1000000ll || poll(&one, 1, 0) > 0;
}

bool copy_stream_receive(int fd, void *to, size_t length)
{
	for (size_t done = 0; done < length;) {
		ssize_t got = recv(fd, (uint8_t *)to + done, length - done, MSG_DONTWAIT);
		if (got > 0)
			done += (size_t)got;
		else if (!got || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
			return false;
		else if (!wait_ready(fd, POLLIN, COPY_SILENCE_MS))
			return false;
	}
	return true;
}

static bool send_all(int fd, struct iovec parts[2])
{
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	while (parts[0].iov_len + parts[1].iov_len) {
		ssize_t sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
			if (!wait_ready(fd, POLLOUT, COPY_SENDER_SILENCE_MS))
				return false;
			continue;
		}
		if (sent < 0)
			return false;
		for (int i = 0; i < 2; i++) {
			size_t done = (size_t)sent < parts[i].iov_len ? (size_t)sent : parts[i].iov_len;
			parts[i].iov_base = (uint8_t *)parts[i].iov_base + done;
			parts[i].iov_len -= done;
			sent -= (ssize_t)done;
		}
	}
	return true;
}

bool copy_stream_send(int fd, uint64_t offset, const void *bytes, size_t length)
{
	uint8_t head[HEAD_BYTES];
	int head_bytes = snprintf((char *)head + LENGTHS_BYTES, sizeof(head) - LENGTHS_BYTES,
				  "{\"jsonrpc\":\"2.0\",\"method\":\"copy.data\",\"params\":{\"offset\":%llu}}",
				  (unsigned long long)offset);
	put_u32le(head, 4 + (size_t)head_bytes + length);
	put_u32le(head + 4, (size_t)head_bytes);
	return send_all(fd, (struct iovec[2]){{head, LENGTHS_BYTES + (size_t)head_bytes}, {(void *)bytes, length}});
}

void copy_stream_await_end(int fd)
{
	uint8_t byte;
	ssize_t got = 1;
	while (got > 0 && wait_ready(fd, POLLIN, COPY_SENDER_SILENCE_MS)) {
		got = recv(fd, &byte, 1, MSG_DONTWAIT);
		if (got < 0 && (errno == EINTR || errno == EAGAIN))
			got = 1;
	}
}

uint64_t copy_stream_head(int fd, const struct contract *contract, uint64_t offset)
{
	uint8_t lengths[LENGTHS_BYTES], head[HEAD_BYTES];
	struct message message;
	if (!copy_stream_receive(fd, lengths, sizeof(lengths)))
		return 0;
	uint64_t total = read_u32le(lengths), head_bytes = read_u32le(lengths + 4);
	if (head_bytes > sizeof(head) || total < 4 + head_bytes || total - 4 - head_bytes > COPY_PIECE_BYTES ||
	    !copy_stream_receive(fd, head, head_bytes))
		return 0;
	bool fits = !message_decode_text(&message, (const char *)head, head_bytes, NULL) &&
		    message.kind == MESSAGE_NOTIFICATION && !strcmp(message.method, "copy.data") &&
		    !contract_check_params(contract, contract_find(contract, "copy.data"), message.params, NULL) &&
		    json_get_integer(message.params, "offset", -1) == (int64_t)offset;
	message_finish(&message);
	return fits ? total - 4 - head_bytes : 0;
}
