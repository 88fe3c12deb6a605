/* See supervisor.h. The watchdog is notified twice as often as the service manager requires. */
#include "common/net/supervisor.h"

#include "common/base/log.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void tell(const struct supervisor *supervisor, const char *text)
{
	if (supervisor->fd >= 0 && send(supervisor->fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		log_warning("supervisor", "the service manager could not be told %s: %s", text, strerror(errno));
}

static void sign_of_life(void *arg)
{
	struct supervisor *supervisor = arg;
	tell(supervisor, "WATCHDOG=1");
	net_timer_start(supervisor->loop, &supervisor->timer, supervisor->pause_ms, sign_of_life, supervisor);
}

// A path, or @NAME for an abstract address. -1 with errno.
static int connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length = strlen(path);
	if ((path[0] != '/' && path[0] != '@') || length >= sizeof address.sun_path) {
		errno = EINVAL;
		return -1;
	}
	memcpy(address.sun_path, path, length);
	if (path[0] == '@')
		address.sun_path[0] = 0;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, size) < 0) {
		int number = errno;
		close(fd);
		errno = number;
		return -1;
	}
	return fd;
}

static int64_t positive(const char *name)
{
	const char *text = getenv(name);
	char *end = NULL;
	long long value = text ? strtoll(text, &end, 10) : 0;
	return text && end != text && !*end && value > 0 ? value : 0;
}

void supervisor_init(struct supervisor *supervisor, struct net_loop *loop)
{
	const char *path = getenv("NOTIFY_SOCKET");
	*supervisor = (struct supervisor){.loop = loop, .fd = -1};
	if (path && *path) {
		supervisor->fd = connect_to(path);
		if (supervisor->fd < 0)
			log_error("supervisor", "the service manager cannot be told anything: %s", strerror(errno));
		else if (!getenv("WATCHDOG_PID") || positive("WATCHDOG_PID") == getpid())
			supervisor->pause_ms = positive("WATCHDOG_USEC") / 2000;
	}
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
}

void supervisor_finish(struct supervisor *supervisor)
{
	if (!supervisor->loop)
		return;
	net_timer_stop(supervisor->loop, &supervisor->timer);
	if (supervisor->fd >= 0)
		close(supervisor->fd);
	*supervisor = (struct supervisor){.fd = -1};
}

void supervisor_ready(struct supervisor *supervisor)
{
	tell(supervisor, "READY=1");
	if (supervisor->pause_ms)
		sign_of_life(supervisor);
}

void supervisor_stopping(struct supervisor *supervisor)
{
	tell(supervisor, "STOPPING=1");
}
