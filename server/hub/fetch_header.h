/* Parses the headers of a file server's answer, with bounds, and checks the address that a redirect names. Pure.
 * Thread: any. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct sockaddr;

enum { FETCH_URL_BYTES = 4097, FETCH_ETAG_BYTES = 257, FETCH_ORIGIN_BYTES = 320 };

// The headers of one answer; zero before its first line. Absent values are "", false or -1.
struct fetch_headers {
	long status;
	size_t bytes;   // of all lines so far
	bool excessive; // more than LIMIT_FETCH_HEADER_BYTES, or a line that cannot be
	bool encoded;   // compressed: not the bytes of the file
	char location[FETCH_URL_BYTES];
	char etag[FETCH_ETAG_BYTES];  // strong ones alone, quotes included
	char linked_sha256[65];       // X-Linked-Etag, where it is one
	int64_t linked_bytes;         // X-Linked-Size
	int64_t length;               // Content-Length
	int64_t first, last, total;   // Content-Range; total -1: not said
	int64_t retry_after_s;        // a number of seconds; a date is read against Date
	int64_t date_s, retry_date_s; // since 1970
};
void fetch_headers_init(struct fetch_headers *headers);
// Take in one line as it came, its end included. A status line starts a new answer.
void fetch_headers_take(struct fetch_headers *headers, const char *line, size_t length);
// How long to wait before asking again, if the server says: at most LIMIT_FETCH_WAIT_S.
int64_t fetch_headers_wait_s(const struct fetch_headers *headers);

// scheme://host:port of a URL, lower case, with its port; false if it has none that we use.
bool fetch_origin(const char *url, char origin[FETCH_ORIGIN_BYTES]);
// The host alone.
bool fetch_host(const char *url, char host[FETCH_ORIGIN_BYTES]);
// Resolves `location` against `base`. False: not an allowed target, or too long.
bool fetch_resolve(const char *base, const char *location, char url[FETCH_URL_BYTES]);
// An address that is no part of the public Internet: loopback, private, link-local, shared, multicast, reserved; also
// inside one of IPv6 that stands for one of IPv4.
bool fetch_is_private(const struct sockaddr *address);
