/* Sends all TLS records of a frame with one system call: OpenSSL's output is gathered and sent at the end.
 * It replaces the BIO of the socket that OpenSSL writes to. Others that write through it, such as
 * libwebsockets, write to the socket as before, after what is left of the gathered bytes. Thread: the
 * loop's. */
#pragma once
#include <openssl/ssl.h>
#include <stdbool.h>

struct net_records; // the BIO's, which frees it with `ssl`

// What `ssl`, whose handshake is over, writes to `fd` goes through it. NULL: there is no memory, and all is as it was.
struct net_records *net_records_create(SSL *ssl, int fd);

// Starts gathering. Nothing gathered earlier may be left.
void net_records_gather(struct net_records *records);

// Sends what was gathered. Returns 1: all sent, 0: some is left (net_records_flush), -1: the socket is broken.
int net_records_send(struct net_records *records);

// Sends the rest, once the socket can be written to. Returns as net_records_send does.
int net_records_flush(struct net_records *records);
bool net_records_left(const struct net_records *records);
