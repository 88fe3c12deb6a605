/* Renews the keys of long or busy TLS connections with TLS 1.3's KeyUpdate, ours and (on our request) the peer's:
 * after an hour or 64 GiB, checked as bytes pass. Thread: the loop's. */
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/net/ws/conn.h"

#include <openssl/err.h>

enum { KEYS_MS = 3600 * 1000 };
static const uint64_t KEYS_BYTES = (uint64_t)64 << 30;

// Not while something waits: a record of it may be half written, and that is finished first. Ours goes out before the
// next byte of ours, asking for theirs.
static void update_keys(struct net_conn *conn)
{
	SSL *ssl = conn->ssl;
	if (net_blocked(conn)) {
		conn->keys_due = true;
		net_carrier_want_write(conn);
		return;
	}
	conn->keys_due = false;
	conn->keys_ms = clock_steady_ms();
	conn->keys_bytes = BIO_number_read(SSL_get_rbio(ssl)) + BIO_number_written(SSL_get_wbio(ssl));
	if (SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED) != 1 || SSL_do_handshake(ssl) != 1)
		log_debug("net", "new keys wait for a connection's next byte");
	ERR_clear_error();
}

enum status net_conn_update_keys(struct net_conn *conn)
{
	if (!conn->opened || conn->closed || !conn->ssl)
		return STATUS_UNAVAILABLE;
	update_keys(conn);
	return STATUS_OK;
}

// Something was sent or came: after an hour or 64 GiB the keys are changed.
void net_mind_keys(struct net_conn *conn)
{
	SSL *ssl = conn->ssl;
	if (!ssl || conn->closing)
		return;
	if (conn->keys_due) {
		update_keys(conn);
		return;
	}
	uint64_t bytes = BIO_number_read(SSL_get_rbio(ssl)) + BIO_number_written(SSL_get_wbio(ssl));
	if (bytes - conn->keys_bytes > KEYS_BYTES || clock_steady_ms() - conn->keys_ms > KEYS_MS)
		update_keys(conn);
}
