/* A library to preload into a node (LD_PRELOAD): what it dials goes by way of relay.c, which is the wire.
 *
 * EXOGPU_TEST_RELAY is the relay's folder, in which the file `port` says where it listens on 127.0.0.1. A connection to
 * another port than EXOGPU_TEST_RELAY_EXCEPT (the server's) goes there; a file that is named by its own port says to
 * the relay where it wanted to go. IPv4 only: others are refused, so that the node tries the next address. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

// Where the relay listens; 0: nowhere.
static uint16_t relay_port(const char *folder)
{
	char path[4096], text[16] = "";
	snprintf(path, sizeof path, "%s/port", folder);
	FILE *file = fopen(path, "r");
	if (!file)
		return 0;
	const bool read = fgets(text, sizeof text, file);
	fclose(file);
	return read ? (uint16_t)strtol(text, NULL, 10) : 0;
}

int connect(int fd, const struct sockaddr *to, socklen_t length)
{
	int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "connect");
	const char *folder = getenv("EXOGPU_TEST_RELAY"), *except = getenv("EXOGPU_TEST_RELAY_EXCEPT");
	struct sockaddr_in at = {.sin_family = AF_INET};
	char path[4096];
	if (!folder || (to->sa_family != AF_INET && to->sa_family != AF_INET6))
		return real(fd, to, length);
	const struct sockaddr_in *wanted = (const void *)to;
	if (except && ntohs(wanted->sin_port) == strtol(except, NULL, 10)) // at the same place in both families
		return real(fd, to, length);
	socklen_t size = sizeof at;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (to->sa_family != AF_INET || bind(fd, (void *)&at, sizeof at) || getsockname(fd, (void *)&at, &size)) {
		errno = ECONNREFUSED;
		return -1;
	}
	char address[INET_ADDRSTRLEN];
	inet_ntop(AF_INET, &wanted->sin_addr, address, sizeof address);
	snprintf(path, sizeof path, "%s/%d", folder, ntohs(at.sin_port));
	FILE *file = fopen(path, "w");
	if (file) {
		fprintf(file, "%s %d\n", address, ntohs(wanted->sin_port));
		fclose(file);
	}
	at.sin_port = htons(relay_port(folder));
	return real(fd, (void *)&at, sizeof at);
}
