/* Where a PostgreSQL is: postgres://USER@HOST:PORT/DATABASE?OPTION=VALUE, as libpq reads it. What comes from outside of
 * it (the service file, a password file, PG variables of the environment) libpq takes itself. Thread: any. Inside
 * server/store/postgres only. */
#pragma once
#include "server/store/postgres/libpq.h"

#include <stdbool.h>

bool address_is_postgres(const char *url); // or else it is a directory
// The parameters of a connection, for PQconnectdbParams: what the URL says, and what is so for all: the server's
// certificate is verified, unless every host is loopback's (a Unix socket has none), and dead peers are noticed.
// `application` is what the database calls the connection. Errors: STATUS_INVALID_PARAMS, with a hint: it has a
// password, or asks for less than verify-full, or cannot be read.
struct address {
	const char *keywords[64], *values[64]; // end with NULL
	size_t count;
	struct pq_option *options; // owns what the URL said
};
enum status address_parse(struct address *address, const struct libpq *pq, const char *url, const char *application,
			  struct error *error);
void address_finish(struct address *address, const struct libpq *pq);
