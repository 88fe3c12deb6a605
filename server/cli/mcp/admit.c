/* See admit.h, and mcp.h for the place to listen at. */
#include "server/cli/mcp/admit.h"

#include "server/cli/mcp/mcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_loopback(const char *address)
{
	uint8_t bytes[16];
	if (inet_pton(AF_INET, address, bytes) == 1)
		return bytes[0] == 127;
	return inet_pton(AF_INET6, address, bytes) == 1 && !memcmp(bytes, &in6addr_loopback, sizeof bytes);
}

// A name that a page has bound to this address is none of these.
static bool host_allowed(const char *host)
{
	char name[64];
	const bool brackets = host[0] == '[';
	const size_t length = strcspn(host + brackets, brackets ? "]" : ":");
	if (!length || length >= sizeof name)
		return false;
	snprintf(name, sizeof name, "%.*s", (int)length, host + brackets);
	return is_loopback(name) || !strcasecmp(name, "localhost");
}

static bool origin_allowed(const struct net_request *request)
{
	char own[300];
	snprintf(own, sizeof own, "http://%s", request->host);
	return !request->origin[0] || !strcasecmp(request->origin, own);
}

enum status mcp_admit(const struct net_request *asked, struct error *error)
{
	if (strcmp(asked->path, "/mcp") != 0)
		return error_set(error, STATUS_NOT_FOUND, "MCP is at /mcp");
	if (!host_allowed(asked->host))
		return error_set(error, STATUS_FORBIDDEN, "Host is no address of this machine's loopback");
	if (!origin_allowed(asked))
		return error_set(error, STATUS_FORBIDDEN, "a page of another origin may not use this");
	if (asked->mcp_version[0] && !mcp_speaks(asked->mcp_version))
		return error_set(error, STATUS_INVALID_REQUEST,
				 "MCP-Protocol-Version names no revision that is spoken here");
	return STATUS_OK;
}

enum status mcp_place_read(struct mcp_place *place, const char *text, struct error *error)
{
	const char *colon = strrchr(text, ':'), *digits = colon ? colon + 1 : text;
	const bool brackets = text[0] == '[' && colon && colon > text + 1 && colon[-1] == ']';
	const size_t length = !colon ? 0 : (size_t)(colon - text) - 2 * brackets;
	*place = (struct mcp_place){.address = "127.0.0.1"};
	const size_t count = strlen(digits);
	const long port = count && count <= 5 && strspn(digits, "0123456789") == count ? strtol(digits, NULL, 10) : -1;
	if (port < 0 || port > 65535 || length >= sizeof place->address || (colon && !length))
		return error_set(error, STATUS_INVALID_PARAMS, "--listen is ADDRESS:PORT or PORT, not %.64s", text);
	place->port = (int)port;
	if (colon)
		snprintf(place->address, sizeof place->address, "%.*s", (int)length, text + brackets);
	if (is_loopback(place->address))
		return STATUS_OK;
	error_set(error, STATUS_INVALID_PARAMS, "%s is no loopback address", place->address);
	error_hint(error, "tokens come in the clear: let a proxy that speaks TLS stand before it");
	return STATUS_INVALID_PARAMS;
}
