/* An OpenSSL BIO that keeps what is written to it while a frame is being built. Thread: the loop's. */
#include "common/net/tls/records.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { GATHERED_BYTES = 5 * (SSL3_RT_MAX_PLAIN_LENGTH + 256) }; // 64 KiB with a head before them; the cache's size, too

struct net_records {
	int fd;
	bool gathers;
	uint8_t *left; // (left_bytes), of which left_at are sent; NULL: nothing is left
	size_t left_bytes, left_at;
};

// The loop's thread alone sends, one frame after another.
static uint8_t gathered[GATHERED_BYTES];
static size_t gathered_bytes;

// Returns how much the socket took, 0 if it is full, -1 if it is broken.
static ssize_t take(int fd, const uint8_t *bytes, size_t length)
{
	ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
	return sent >= 0 ? sent : errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

int net_records_flush(struct net_records *records)
{
	while (records->left) {
		ssize_t sent = take(records->fd, records->left + records->left_at,
				    records->left_bytes - records->left_at);
		if (sent <= 0)
			return (int)sent;
		records->left_at += (size_t)sent;
		if (records->left_at < records->left_bytes)
			continue;
		free(records->left);
		records->left = NULL;
	}
	return 1;
}

bool net_records_left(const struct net_records *records)
{
	return records->left;
}

void net_records_gather(struct net_records *records)
{
	records->gathers = true;
	gathered_bytes = 0;
}

int net_records_send(struct net_records *records)
{
	const size_t length = gathered_bytes;
	records->gathers = false;
	gathered_bytes = 0;
	if (!length)
		return records->left ? 0 : 1;
	ssize_t sent = records->left ? 0 : take(records->fd, gathered, length);
	if (sent < 0 || (size_t)sent == length)
		return sent < 0 ? -1 : 1;
	const size_t rest = length - (size_t)sent;
	if (!(records->left = malloc(rest)))
		return -1;
	memcpy(records->left, gathered + sent, rest);
	records->left_bytes = rest;
	records->left_at = 0;
	return 0;
}

// ---- the BIO ----

static int refuse(BIO *bio, int result)
{
	if (!result)
		BIO_set_retry_write(bio);
	return -1;
}

static int write_bytes(BIO *bio, const char *bytes, int length)
{
	struct net_records *records = BIO_get_data(bio);
	int result = 1;
	BIO_clear_retry_flags(bio);
	if (records->gathers) {
		if ((size_t)length > sizeof gathered - gathered_bytes) {
			result = net_records_send(records);
			records->gathers = true;
		}
		if (result <= 0 || (size_t)length > sizeof gathered)
			return refuse(bio, result <= 0 ? result : -1);
		memcpy(gathered + gathered_bytes, bytes, (size_t)length);
		gathered_bytes += (size_t)length;
		return length;
	}
	if ((result = net_records_flush(records)) <= 0)
		return refuse(bio, result);
	ssize_t sent = take(records->fd, (const uint8_t *)bytes, (size_t)length);
	return sent > 0 ? (int)sent : refuse(bio, (int)sent);
}

static long control(BIO *bio, int command, long number, void *pointer)
{
	struct net_records *records = BIO_get_data(bio);
	(void)number;
	switch (command) {
	case BIO_CTRL_FLUSH: // nothing is kept that is not sent by whoever gathers, or once the socket takes it
	case BIO_CTRL_DUP:
		return 1;
	case BIO_C_GET_FD:
		if (pointer)
			*(int *)pointer = records->fd;
		return records->fd;
	case BIO_CTRL_WPENDING:
		return records->left ? (long)(records->left_bytes - records->left_at) : 0;
	}
	return 0;
}

static int destroy(BIO *bio)
{
	struct net_records *records = BIO_get_data(bio);
	if (records)
		free(records->left);
	free(records);
	return 1;
}

static BIO_METHOD *method(void)
{
	static BIO_METHOD *made; // as long as the process
	if (made)
		return made;
	BIO_METHOD *new = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK | BIO_TYPE_DESCRIPTOR, "records");
	if (!new || !BIO_meth_set_write(new, write_bytes) || !BIO_meth_set_ctrl(new, control) ||
	    !BIO_meth_set_destroy(new, destroy))
		BIO_meth_free(new);
	else
		made = new;
	return made;
}

struct net_records *net_records_create(SSL *ssl, int fd)
{
	BIO *bio = method() ? BIO_new(method()) : NULL;
	struct net_records *records = bio ? calloc(1, sizeof *records) : NULL;
	if (!records) {
		BIO_free(bio);
		return NULL;
	}
	records->fd = fd;
	BIO_set_data(bio, records);
	BIO_set_init(bio, 1);
	SSL_set0_wbio(ssl, bio); // the one that it reads from stays
	return records;
}
