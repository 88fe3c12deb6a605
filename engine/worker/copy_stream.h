/* A channel's bytes (worker.channel), at either end: messages copy.data, in order, each preceded by its length.
 *
 * A message's body has COPY_PIECE_BYTES at most, since the node ends a channel with longer ones. Received bytes are
 * hostile input. Thread: one at a time for each end; these calls wait, so it is a thread of the channel's own. */
#pragma once
#include "common/wire/contract.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	COPY_PIECE_BYTES = 256 * 1024,
	COPY_SILENCE_MS = 60000,         // of the other end, while this one receives
	COPY_SENDER_SILENCE_MS = 600000, // while it sends: the sender is never the first to give up
};

// Whether a channel whose call has not come may be dropped: its other end has closed it, or it was opened (steady) more
// than COPY_SILENCE_MS ago.
bool copy_stream_unused(int fd, int64_t opened_ns);
// Send one message with these bytes, which lie at `offset` of all. False: the channel has ended.
bool copy_stream_send(int fd, uint64_t offset, const void *bytes, size_t length);
// Wait until the receiver closes the channel.
void copy_stream_await_end(int fd);
// Receive the head of the next message, whose body lies at `offset` of all. Returns the bytes of that body, which
// follow; 0: the message is wrong, or none comes.
uint64_t copy_stream_head(int fd, const struct contract *contract, uint64_t offset);
// Receive bytes of a body. False: the channel has ended, or nothing came for COPY_SILENCE_MS.
bool copy_stream_receive(int fd, void *to, size_t length);
