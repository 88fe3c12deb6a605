/* See host.h. */
#include "server/http/host.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

// NAME, NAME:PORT, [ADDRESS] or [ADDRESS]:PORT, without the port into name[256]. False: none of these.
static bool read_host(const char *host, char name[256])
{
	const bool brackets = host[0] == '[';
	const char *from = host + brackets, *end = from + strcspn(from, brackets ? "]" : ":"), *port = end;
	if (brackets && *port++ != ']')
		return false;
	if (*port && (*port != ':' || strspn(port + 1, "0123456789") != strlen(port + 1)))
		return false;
	snprintf(name, 256, "%.*s", (int)(end - from), from);
	return name[0] != 0;
}

bool host_allowed(const struct authority *authority, const struct net_request *request)
{
	char name[256];
	unsigned char address[16];
	if (request->local)
		return true;
	if (!read_host(request->host, name))
		return false;
	return inet_pton(request->host[0] == '[' ? AF_INET6 : AF_INET, name, address) == 1 ||
	       !strcasecmp(name, "localhost") || (request->tls && authority && authority_knows_name(authority, name));
}
