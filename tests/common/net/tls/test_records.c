/* The records of a frame of TLS: they leave together, in order, and before whatever is written behind them. */
#include "common/base/buffer.h"
#include "common/net/tls/records.h"
#include "tests/common/net/certificates.h"

#include <sys/socket.h>
#include <unistd.h>

enum { RECORD = 16384, MOST = 1 << 20 };

// A server whose socket is fds[0], and the client that reads what the test takes from fds[1].
struct ends {
	SSL_CTX *contexts[2];
	SSL *server, *client;
	struct net_records *records;
	int fds[2];
	uint8_t sent[MOST], got[MOST];
	size_t sent_bytes, got_bytes;
};

static void pass(SSL *from, SSL *to)
{
	char *bytes;
	long length = BIO_get_mem_data(SSL_get_wbio(from), &bytes);
	if (length > 0)
		assert_int_equal(BIO_write(SSL_get_rbio(to), bytes, (int)length), length);
	(void)BIO_reset(SSL_get_wbio(from));
}

static struct ends *begin(int kind)
{
	struct ends *ends = calloc(1, sizeof *ends);
	struct made made = make_certificate(&(struct making){.name = "box", .to_s = 3600, .authority = true});
	assert_non_null(ends);
	assert_int_equal(socketpair(AF_UNIX, kind, 0, ends->fds), 0);
	ends->contexts[0] = SSL_CTX_new(TLS_server_method());
	ends->contexts[1] = SSL_CTX_new(TLS_client_method());
	assert_int_equal(SSL_CTX_use_certificate(ends->contexts[0], made.certificate), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey(ends->contexts[0], made.key), 1);
	SSL_CTX_set_num_tickets(ends->contexts[0], 0);
	made_finish(&made);
	ends->server = SSL_new(ends->contexts[0]);
	ends->client = SSL_new(ends->contexts[1]);
	SSL_set_mode(ends->server, SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	SSL_set_accept_state(ends->server);
	SSL_set_connect_state(ends->client);
	SSL_set_bio(ends->server, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
	SSL_set_bio(ends->client, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
	for (int i = 0; i < 4; i++) {
		SSL_do_handshake(ends->client);
		pass(ends->client, ends->server);
		SSL_do_handshake(ends->server);
		pass(ends->server, ends->client);
	}
	assert_true(SSL_is_init_finished(ends->server) && SSL_is_init_finished(ends->client));
	ends->records = net_records_create(ends->server, ends->fds[0]);
	assert_non_null(ends->records);
	return ends;
}

static void finish(struct ends *ends)
{
	SSL_free(ends->server);
	SSL_free(ends->client);
	for (int i = 0; i < 2; i++) {
		SSL_CTX_free(ends->contexts[i]);
		close(ends->fds[i]);
	}
	free(ends);
}

// One more record of so many bytes, no two alike. Returns whether it was taken; if not it is to be written again.
static bool put(struct ends *ends, size_t length)
{
	size_t written;
	uint8_t *bytes = ends->sent + ends->sent_bytes;
	assert_true(ends->sent_bytes + length <= MOST);
	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)((ends->sent_bytes + i) * 2654435761u >> 13);
	if (SSL_write_ex(ends->server, bytes, length, &written) != 1) {
		assert_int_equal(SSL_get_error(ends->server, 0), SSL_ERROR_WANT_WRITE);
		return false;
	}
	assert_int_equal(written, length);
	ends->sent_bytes += length;
	return true;
}

// What one call finds in the socket goes to the client. Returns how much that was; 0: nothing.
static size_t take(struct ends *ends)
{
	static uint8_t bytes[MOST];
	size_t got;
	ssize_t length = recv(ends->fds[1], bytes, sizeof bytes, MSG_DONTWAIT);
	if (length <= 0)
		return 0;
	assert_int_equal(BIO_write(SSL_get_rbio(ends->client), bytes, (int)length), length);
	while (SSL_read_ex(ends->client, ends->got + ends->got_bytes, MOST - ends->got_bytes, &got) == 1)
		ends->got_bytes += got;
	assert_int_equal(SSL_get_error(ends->client, 0), SSL_ERROR_WANT_READ);
	return (size_t)length;
}

static void assert_all_came(const struct ends *ends)
{
	assert_int_equal(ends->got_bytes, ends->sent_bytes);
	assert_memory_equal(ends->got, ends->sent, ends->sent_bytes);
}

// A socket of messages: each call that sends is one.
static void one_call_for_all(void **state)
{
	struct ends *ends = begin(SOCK_SEQPACKET);
	(void)state;
	net_records_gather(ends->records);
	for (int i = 0; i < 4; i++)
		assert_true(put(ends, RECORD));
	assert_true(put(ends, 100));
	assert_int_equal(take(ends), 0);
	assert_int_equal(net_records_send(ends->records), 1);
	assert_false(net_records_left(ends->records));
	assert_in_range(take(ends), ends->sent_bytes, ends->sent_bytes + 5 * 64);
	assert_int_equal(take(ends), 0);
	assert_all_came(ends);
	assert_true(put(ends, 100)); // by itself, at once
	assert_in_range(take(ends), 100, 164);
	assert_int_equal(net_records_send(ends->records), 1); // nothing was kept
	assert_int_equal(take(ends), 0);
	assert_all_came(ends);
	finish(ends);
}

static void more_than_is_kept(void **state)
{
	struct ends *ends = begin(SOCK_SEQPACKET);
	unsigned calls = 0;
	(void)state;
	net_records_gather(ends->records);
	for (int i = 0; i < 9; i++)
		assert_true(put(ends, RECORD));
	assert_int_equal(net_records_send(ends->records), 1);
	while (take(ends))
		calls++;
	assert_in_range(calls, 2, 3);
	assert_all_came(ends);
	finish(ends);
}

// The socket takes a part: the rest goes before what others write, who wait until it is gone.
static void full(void **state)
{
	struct ends *ends = begin(SOCK_STREAM);
	int small = 4096;
	(void)state;
	assert_int_equal(setsockopt(ends->fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
	for (int round = 0; round < 3; round++) {
		net_records_gather(ends->records);
		for (int i = 0; i < 4; i++)
			assert_true(put(ends, RECORD));
		assert_int_equal(net_records_send(ends->records), 0);
		assert_true(net_records_left(ends->records));
		assert_int_equal(net_records_flush(ends->records), 0);
		bool taken = put(ends, 1000);
		assert_false(taken);
		while (take(ends) || !taken || net_records_left(ends->records)) {
			if (net_records_flush(ends->records) == 1 && !taken)
				taken = put(ends, 1000);
			assert_int_not_equal(net_records_flush(ends->records), -1);
		}
		assert_all_came(ends);
	}
	finish(ends);
}

// More than is kept at once, while the socket takes little: what is not taken is written again, by who writes next.
static void full_in_between(void **state)
{
	struct ends *ends = begin(SOCK_STREAM);
	int small = 4096, refused = 0;
	(void)state;
	assert_int_equal(setsockopt(ends->fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
	net_records_gather(ends->records);
	while (put(ends, RECORD))
		assert_true(ends->sent_bytes < MOST / 2);
	assert_int_equal(net_records_send(ends->records), 0);
	while (!put(ends, RECORD)) {
		refused++;
		take(ends);
	}
	assert_true(refused);
	while (take(ends))
		;
	assert_all_came(ends);
	finish(ends);
}

static void broken(void **state)
{
	struct ends *ends = begin(SOCK_STREAM);
	int small = 4096;
	size_t written;
	(void)state;
	assert_int_equal(setsockopt(ends->fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
	for (int i = 0; i < 2; i++) { // what is left when it breaks is freed with it
		net_records_gather(ends->records);
		assert_true(put(ends, RECORD));
		assert_int_equal(net_records_send(ends->records), i ? -1 : 0);
		shutdown(ends->fds[1], SHUT_RDWR);
		if (!i) {
			assert_int_equal(net_records_flush(ends->records), -1);
			assert_int_equal(SSL_write_ex(ends->server, "x", 1, &written), 0);
			assert_int_not_equal(SSL_get_error(ends->server, 0), SSL_ERROR_WANT_WRITE);
			finish(ends);
			ends = begin(SOCK_STREAM);
			shutdown(ends->fds[1], SHUT_RDWR);
		}
	}
	finish(ends);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_call_for_all),
		cmocka_unit_test(more_than_is_kept),
		cmocka_unit_test(full),
		cmocka_unit_test(full_in_between),
		cmocka_unit_test(broken),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
