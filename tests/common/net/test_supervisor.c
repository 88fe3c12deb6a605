/* Notifications to a service manager: none without one, else readiness, watchdog and stop; and its variables are not
 * passed to other processes. */
#include "common/net/supervisor.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000 };

struct fixture {
	struct net_loop *loop;
	struct supervisor supervisor;
	int manager; // the socket that the manager reads
	char folder[64], path[80];
	struct net_watch *watch;
	int alive; // signs of life
};

static int set_up(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	assert_non_null(fixture);
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(fixture->folder, sizeof fixture->folder, "/tmp/exogpu-supervisor-XXXXXX");
	assert_non_null(mkdtemp(fixture->folder));
	snprintf(fixture->path, sizeof fixture->path, "%s/notify", fixture->folder);
	snprintf(address.sun_path, sizeof address.sun_path, "%s", fixture->path);
	fixture->manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(fixture->manager, (struct sockaddr *)&address, sizeof address), 0);
	assert_int_equal(net_loop_create(&fixture->loop, NULL), STATUS_OK);
	*state = fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;
	supervisor_finish(&fixture->supervisor);
	net_watch_destroy(&fixture->watch);
	net_loop_destroy(&fixture->loop);
	if (fixture->manager >= 0)
		close(fixture->manager);
	unlink(fixture->path);
	rmdir(fixture->folder);
	free(fixture);
	return 0;
}

static const char *hear(const struct fixture *fixture, char *text, size_t size)
{
	ssize_t length = recv(fixture->manager, text, size - 1, 0);
	text[length < 0 ? 0 : length] = 0;
	return text;
}

static void nobody(void **state)
{
	struct fixture *fixture = *state;
	char text[64];
	setenv("WATCHDOG_USEC", "1000", 1);
	supervisor_init(&fixture->supervisor, fixture->loop);
	supervisor_ready(&fixture->supervisor);
	supervisor_stopping(&fixture->supervisor);
	assert_int_equal(fixture->supervisor.fd, -1);
	assert_false(fixture->supervisor.timer.running);
	assert_string_equal(hear(fixture, text, sizeof text), "");
}

static void readable(void *arg, int fd)
{
	struct fixture *fixture = arg;
	char text[64];
	(void)fd;
	assert_string_equal(hear(fixture, text, sizeof text), "WATCHDOG=1");
	if (++fixture->alive == 3)
		net_loop_stop(fixture->loop);
}

static void late(void *arg)
{
	net_loop_stop(((struct fixture *)arg)->loop);
}

static void told(void **state)
{
	static const struct net_watch_events events = {.readable = readable};
	struct fixture *fixture = *state;
	struct net_timer end = {0};
	char text[64], pid[24];
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	setenv("NOTIFY_SOCKET", fixture->path, 1);
	setenv("WATCHDOG_USEC", "20000", 1);
	setenv("WATCHDOG_PID", pid, 1);
	supervisor_init(&fixture->supervisor, fixture->loop);
	assert_null(getenv("NOTIFY_SOCKET"));
	assert_null(getenv("WATCHDOG_USEC"));
	assert_null(getenv("WATCHDOG_PID"));
	supervisor_ready(&fixture->supervisor);
	assert_string_equal(hear(fixture, text, sizeof text), "READY=1");
	int manager = fixture->manager;
	fixture->manager = dup(manager); // the watch takes one
	assert_int_equal(net_watch_create(&fixture->watch, fixture->loop, manager, &events, fixture, NULL), STATUS_OK);
	net_timer_start(fixture->loop, &end, PATIENCE_MS, late, fixture);
	net_loop_run(fixture->loop);
	net_timer_stop(fixture->loop, &end);
	assert_int_equal(fixture->alive, 3);
	net_timer_stop(fixture->loop, &fixture->supervisor.timer);
	while (*hear(fixture, text, sizeof text))
		assert_string_equal(text, "WATCHDOG=1");
	supervisor_stopping(&fixture->supervisor);
	assert_string_equal(hear(fixture, text, sizeof text), "STOPPING=1");
}

static void watchdog_of_another(void **state)
{
	struct fixture *fixture = *state;
	char text[64];
	setenv("NOTIFY_SOCKET", fixture->path, 1);
	setenv("WATCHDOG_USEC", "20000", 1);
	setenv("WATCHDOG_PID", "1", 1);
	supervisor_init(&fixture->supervisor, fixture->loop);
	supervisor_ready(&fixture->supervisor);
	assert_string_equal(hear(fixture, text, sizeof text), "READY=1");
	assert_false(fixture->supervisor.timer.running);
}

// A manager that is not there, and one that left: the process goes on.
static void deaf(void **state)
{
	struct fixture *fixture = *state;
	setenv("NOTIFY_SOCKET", "relative/path", 1);
	supervisor_init(&fixture->supervisor, fixture->loop);
	assert_int_equal(fixture->supervisor.fd, -1);
	supervisor_ready(&fixture->supervisor);
	setenv("NOTIFY_SOCKET", fixture->path, 1);
	supervisor_init(&fixture->supervisor, fixture->loop);
	assert_true(fixture->supervisor.fd >= 0);
	close(fixture->manager);
	fixture->manager = -1;
	supervisor_ready(&fixture->supervisor);
	supervisor_stopping(&fixture->supervisor);
}

// An abstract address, as some managers give it.
static void abstract_address(void **state)
{
	struct fixture *fixture = *state;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char name[96], text[64];
	int length = snprintf(name, sizeof name, "@exogpu-supervisor-%d", (int)getpid());
	memcpy(address.sun_path + 1, name + 1, (size_t)length - 1);
	int manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length);
	assert_int_equal(bind(manager, (struct sockaddr *)&address, size), 0);
	setenv("NOTIFY_SOCKET", name, 1);
	supervisor_init(&fixture->supervisor, fixture->loop);
	supervisor_ready(&fixture->supervisor);
	close(fixture->manager);
	fixture->manager = manager;
	assert_string_equal(hear(fixture, text, sizeof text), "READY=1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(nobody, set_up, tear_down),
		cmocka_unit_test_setup_teardown(told, set_up, tear_down),
		cmocka_unit_test_setup_teardown(watchdog_of_another, set_up, tear_down),
		cmocka_unit_test_setup_teardown(deaf, set_up, tear_down),
		cmocka_unit_test_setup_teardown(abstract_address, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
