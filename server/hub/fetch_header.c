/* See fetch_header.h. */
#include "server/hub/fetch_header.h"

#include "common/base/limits.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HOST_BYTES_MOST = 253 }; // of a name, as DNS has them

void fetch_headers_init(struct fetch_headers *headers)
{
	*headers = (struct fetch_headers){.linked_bytes = -1,
					  .length = -1,
					  .first = -1,
					  .last = -1,
					  .total = -1,
					  .retry_after_s = -1,
					  .date_s = -1,
					  .retry_date_s = -1};
}

// A number of decimal digits; *end is what follows. -1: none, or beyond what a file may have.
static int64_t take_number(const char *text, const char **end)
{
	char *after;
	*end = text;
	if (*text < '0' || *text > '9')
		return -1;
	errno = 0;
	long long value = strtoll(text, &after, 10);
	*end = after;
	return errno ? -1 : value;
}

static int64_t whole_number(const char *text)
{
	const char *end;
	int64_t value = take_number(text, &end);
	return *end ? -1 : value;
}

// "bytes 0-99/1000", "bytes 0-99/*", "bytes */1000"
static void take_range(struct fetch_headers *headers, const char *text)
{
	const char *at;
	int64_t first = -1, last = -1;
	if (strncasecmp(text, "bytes ", 6) != 0)
		return;
	text += 6;
	if (*text == '*') {
		at = text + 1;
	} else {
		first = take_number(text, &at);
		if (first < 0 || *at != '-')
			return;
		last = take_number(at + 1, &at);
		if (last < first)
			return;
	}
	if (*at != '/')
		return;
	int64_t total = strcmp(at + 1, "*") ? whole_number(at + 1) : -1;
	if ((total < 0 && strcmp(at + 1, "*") != 0) || (total >= 0 && last >= total))
		return;
	headers->first = first;
	headers->last = last;
	headers->total = total;
}

static void take_sha256(struct fetch_headers *headers, const char *text)
{
	size_t length = strlen(text);
	if (length >= 2 && *text == '"') {
		text++;
		length -= 2;
	}
	if (length != 64 || strspn(text, "0123456789abcdefABCDEF") != 64)
		return;
	for (size_t i = 0; i < 64; i++)
		headers->linked_sha256[i] = (char)(text[i] >= 'A' && text[i] <= 'F' ? text[i] + 32 : text[i]);
	headers->linked_sha256[64] = 0;
}

static int64_t take_date(const char *text)
{
	time_t at = curl_getdate(text, NULL);
	return at < 0 ? -1 : (int64_t)at;
}

// Checks that a text only has characters that may be sent back unchanged.
static bool is_visible(const char *text)
{
	for (; *text; text++)
		if (*text <= 0x20 || *text >= 0x7f)
			return false;
	return true;
}

static void take_field(struct fetch_headers *headers, const char *name, const char *value)
{
	if (!strcasecmp(name, "location") && is_visible(value) && strlen(value) < sizeof headers->location) {
		snprintf(headers->location, sizeof headers->location, "%s", value);
	} else if (!strcasecmp(name, "etag") && *value == '"' && is_visible(value) &&
		   strlen(value) < sizeof headers->etag) {
		snprintf(headers->etag, sizeof headers->etag, "%s", value);
	} else if (!strcasecmp(name, "x-linked-etag")) {
		take_sha256(headers, value);
	} else if (!strcasecmp(name, "x-linked-size")) {
		headers->linked_bytes = whole_number(value);
	} else if (!strcasecmp(name, "content-length")) {
		headers->length = whole_number(value);
	} else if (!strcasecmp(name, "content-range")) {
		take_range(headers, value);
	} else if (!strcasecmp(name, "content-encoding")) {
		headers->encoded = strcasecmp(value, "identity") != 0;
	} else if (!strcasecmp(name, "date")) {
		headers->date_s = take_date(value);
	} else if (!strcasecmp(name, "retry-after")) {
		headers->retry_after_s = whole_number(value);
		headers->retry_date_s = headers->retry_after_s < 0 ? take_date(value) : -1;
	}
}

void fetch_headers_take(struct fetch_headers *headers, const char *line, size_t length)
{
	char text[FETCH_URL_BYTES + 64];
	headers->bytes += length;
	while (length && (line[length - 1] == '\r' || line[length - 1] == '\n' || line[length - 1] == ' '))
		length--;
	if (headers->bytes > LIMIT_FETCH_HEADER_BYTES) {
		headers->excessive = true;
		return;
	}
	if (length >= sizeof text || memchr(line, 0, length))
		return; // none that we look at is so long
	memcpy(text, line, length);
	text[length] = 0;
	if (!strncasecmp(text, "HTTP/", 5)) {
		const char *end, *space = strchr(text, ' ');
		const size_t bytes = headers->bytes;
		fetch_headers_init(headers);
		headers->bytes = bytes;
		headers->status = space ? (long)take_number(space + 1, &end) : 0;
		return;
	}
	char *colon = strchr(text, ':');
	if (!colon)
		return;
	*colon = 0;
	take_field(headers, text, colon + 1 + strspn(colon + 1, " \t"));
}

int64_t fetch_headers_wait_s(const struct fetch_headers *headers)
{
	int64_t wait = headers->retry_after_s;
	if (wait < 0 && headers->retry_date_s >= 0 && headers->date_s >= 0)
		wait = headers->retry_date_s - headers->date_s;
	return wait < 0 ? 0 : wait > LIMIT_FETCH_WAIT_S ? LIMIT_FETCH_WAIT_S : wait;
}

// ---- where it is ----

struct parts {
	char *scheme, *host, *port;
};

static bool take_parts(CURLU *url, struct parts *parts)
{
	*parts = (struct parts){0};
	return !curl_url_get(url, CURLUPART_SCHEME, &parts->scheme, 0) &&
	       !curl_url_get(url, CURLUPART_HOST, &parts->host, 0) &&
	       !curl_url_get(url, CURLUPART_PORT, &parts->port, CURLU_DEFAULT_PORT) &&
	       (!strcasecmp(parts->scheme, "http") || !strcasecmp(parts->scheme, "https"));
}

static void parts_finish(struct parts *parts)
{
	curl_free(parts->scheme);
	curl_free(parts->host);
	curl_free(parts->port);
}

static bool print_origin(const char *text, char origin[FETCH_ORIGIN_BYTES], bool host_only)
{
	struct parts parts = {0};
	CURLU *url = curl_url();
	int length = -1;
	if (url && !curl_url_set(url, CURLUPART_URL, text, 0) && take_parts(url, &parts))
		length = host_only ? snprintf(origin, FETCH_ORIGIN_BYTES, "%s", parts.host)
				   : snprintf(origin, FETCH_ORIGIN_BYTES, "%s://%s:%s", parts.scheme, parts.host,
					      parts.port);
	bool good = length > 0 && length < FETCH_ORIGIN_BYTES;
	for (char *at = origin; good && *at; at++)
		*at = (char)(*at >= 'A' && *at <= 'Z' ? *at + 32 : *at);
	parts_finish(&parts);
	curl_url_cleanup(url);
	if (!good)
		*origin = 0;
	return good;
}

bool fetch_origin(const char *url, char origin[FETCH_ORIGIN_BYTES])
{
	return print_origin(url, origin, false);
}

bool fetch_host(const char *url, char host[FETCH_ORIGIN_BYTES])
{
	return print_origin(url, host, true);
}

bool fetch_resolve(const char *base, const char *location, char out[FETCH_URL_BYTES])
{
	char *whole = NULL, *user = NULL;
	struct parts parts = {0};
	CURLU *url = curl_url();
	bool good = url && *location && !curl_url_set(url, CURLUPART_URL, base, 0) &&
		    !curl_url_set(url, CURLUPART_URL, location, 0) && take_parts(url, &parts) &&
		    strlen(parts.host) <= HOST_BYTES_MOST &&
		    curl_url_get(url, CURLUPART_USER, &user, 0) == CURLUE_NO_USER &&
		    !curl_url_get(url, CURLUPART_URL, &whole, 0) && strlen(whole) < FETCH_URL_BYTES &&
		    is_visible(whole);
	snprintf(out, FETCH_URL_BYTES, "%s", good ? whole : "");
	out[strcspn(out, "#")] = 0;
	curl_free(user);
	curl_free(whole);
	parts_finish(&parts);
	curl_url_cleanup(url);
	return good;
}

static bool private_ipv4(uint32_t address) // in the host's order
{
	static const struct {
		uint32_t network, bits;
	} ranges[] = {
		{0x00000000, 8},  // this network
		{0x0a000000, 8},  // private
		{0x64400000, 10}, // shared
		{0x7f000000, 8},  // loopback
		{0xa9fe0000, 16}, // link-local
		{0xac100000, 12}, // private
		{0xc0000000, 24}, // protocols
		{0xc0000200, 24}, // documentation
		{0xc0a80000, 16}, // private
		{0xc6120000, 15}, // benchmarks
		{0xc6336400, 24}, // documentation
		{0xcb007100, 24}, // documentation
		{0xe0000000, 3},  // multicast, and reserved
	};
	for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
		if (!((address ^ ranges[i].network) >> (32 - ranges[i].bits)))
			return true;
	return false;
}

static uint32_t four(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

// Public is 2000::/3 alone, and there not what stands for IPv4 (6to4, Teredo: not used any more).
static bool private_ipv6(const uint8_t bytes[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}, nat64[12] = {0x00, 0x64, 0xff, 0x9b};
	if (!memcmp(bytes, mapped, sizeof mapped) || !memcmp(bytes, nat64, sizeof nat64))
		return private_ipv4(four(bytes + 12));
	if ((bytes[0] & 0xe0) != 0x20)
		return true;
	const uint32_t prefix = four(bytes);
	return prefix >> 16 == 0x2002 || prefix == 0x20010000 || prefix == 0x20010db8;
}

bool fetch_is_private(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET) {
		struct sockaddr_in in;
		memcpy(&in, address, sizeof in);
		return private_ipv4(ntohl(in.sin_addr.s_addr));
	}
	if (address->sa_family == AF_INET6) {
		struct sockaddr_in6 in;
		memcpy(&in, address, sizeof in);
		return private_ipv6(in.sin6_addr.s6_addr);
	}
	return true;
}
