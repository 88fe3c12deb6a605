/* Numeric addresses as sockets take them. Pure. */
#pragma once
#include <sys/socket.h>

// An IPv4 or IPv6 address in text, and a port. Returns the length of *out; 0: it is no address.
socklen_t net_socket_address(const char *text, int port, struct sockaddr_storage *out);
