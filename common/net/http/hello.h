/* Tells how much of a client's first TLS message has arrived, so that it is parsed only when complete. Pure. */
#pragma once
#include <stddef.h>
#include <stdint.h>

// Of `bytes`, from the connection's beginning, how many there must be for the next look; 0: the message is whole, or
// what is there is none, which is for OpenSSL to refuse. Layouts: RFC 8446, sections 4 and 5.1.
size_t net_hello_wants(const uint8_t *bytes, size_t length);
