/* Headers of a server that files are fetched from, line by line, and where its redirects lead. */
#include "common/base/limits.h"
#include "server/hub/fetch_header.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct fetch_headers headers;
	char url[FETCH_URL_BYTES], origin[FETCH_ORIGIN_BYTES];
	fetch_headers_init(&headers);
	for (size_t at = 0; at < length;) {
		const uint8_t *end = memchr(bytes + at, '\n', length - at);
		size_t line = end ? (size_t)(end - bytes) - at + 1 : length - at;
		fetch_headers_take(&headers, (const char *)bytes + at, line);
		at += line;
	}
	if (headers.first > headers.last || (headers.total >= 0 && headers.last >= headers.total))
		abort();
	if (strpbrk(headers.etag, "\r\n") || strpbrk(headers.location, "\r\n"))
		abort();
	if (fetch_headers_wait_s(&headers) < 0 || fetch_headers_wait_s(&headers) > LIMIT_FETCH_WAIT_S)
		abort();
	if (fetch_resolve("https://hub.example/a/b", headers.location, url) &&
	    ((strncmp(url, "https://", 8) != 0 && strncmp(url, "http://", 7) != 0) || !fetch_origin(url, origin)))
		abort();
	return 0;
}
