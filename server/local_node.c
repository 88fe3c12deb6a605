/* See local_node.h. A node that dies is started again after a pause that doubles from 0.2 s to 30 s and begins anew
 * once it has run for a minute: soon when it was killed, never a busy loop when it cannot start. */
#include "server/local_node.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/base/process.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FIRST_PAUSE_MS = 200, LONGEST_PAUSE_MS = 30000, SETTLED_MS = 60000, STOP_MS = 1000 };

struct local_node {
	struct local_node_params params;
	char binary[4096], join[LIMIT_SOCKET_PATH_BYTES + 8], data[4096];
	pid_t pid;               // 0: not running
	struct net_watch *watch; // its pidfd
	struct net_timer timer;  // until the next start, or until it is killed
	int64_t started_ms, pause_ms;
	bool stopping;
	void (*ended)(void *context);
	void *context;
};

static void start(void *arg);

static void describe_end(int status, char *text, size_t size)
{
	if (WIFSIGNALED(status))
		snprintf(text, size, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		snprintf(text, size, "ended with exit status %d", WEXITSTATUS(status));
}

static void ended(void *arg, int fd)
{
	struct local_node *node = arg;
	int status = 0;
	char text[96];
	(void)fd;
	if (!node->pid || waitpid(node->pid, &status, WNOHANG) == 0)
		return;
	node->pid = 0;
	net_watch_destroy(&node->watch);
	net_timer_stop(node->params.loop, &node->timer);
	if (node->stopping) {
		if (node->ended)
			node->ended(node->context);
		return;
	}
	if (clock_steady_ms() - node->started_ms > SETTLED_MS)
		node->pause_ms = FIRST_PAUSE_MS;
	describe_end(status, text, sizeof text);
	log_warning("server", "this machine's node %s; it restarts in %.1f s", text, (double)node->pause_ms / 1000);
	net_timer_start(node->params.loop, &node->timer, node->pause_ms, start, node);
	node->pause_ms = node->pause_ms * 2 < LONGEST_PAUSE_MS ? node->pause_ms * 2 : LONGEST_PAUSE_MS;
}

static const struct net_watch_events events = {.readable = ended};

static int spawn(struct local_node *node)
{
	char parent[16]; // said, since a server that is killed at once is not seen by who asks later
	snprintf(parent, sizeof parent, "%d", (int)getpid());
	char *argv[] = {(char *)"exogpu",
			(char *)"node",
			(char *)"--join",
			node->join,
			(char *)"--data",
			node->data,
			(char *)"--log-level",
			(char *)node->params.log_level,
			(char *)"--parent",
			parent,
			NULL};
	extern char **environ;
	posix_spawnattr_t attributes;
	sigset_t none, all;
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	int failure = posix_spawn(&node->pid, node->binary, NULL, &attributes, argv, environ);
	posix_spawnattr_destroy(&attributes);
	if (failure)
		node->pid = 0;
	return failure;
}

static void start(void *arg)
{
	struct local_node *node = arg;
	struct error error = {0};
	int failure = spawn(node);
	node->started_ms = clock_steady_ms();
	int pidfd = failure ? -1 : (int)syscall(SYS_pidfd_open, node->pid, 0);
	if (!failure && pidfd >= 0 && !net_watch_create(&node->watch, node->params.loop, pidfd, &events, node, &error))
		return;
	if (pidfd >= 0)
		close(pidfd);
	if (node->pid) { // it runs, but nobody would see it end
		kill(node->pid, SIGKILL);
		waitpid(node->pid, NULL, 0);
		node->pid = 0;
	}
	log_error("server", "this machine's node cannot be started: %s", failure ? strerror(failure) : strerror(errno));
	net_timer_start(node->params.loop, &node->timer, LONGEST_PAUSE_MS, start, node);
}

enum status local_node_create(struct local_node **out, const struct local_node_params *params, struct error *error)
{
	struct local_node *node = calloc(1, sizeof(*node));
	*out = NULL;
	if (!node)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	node->params = *params;
	node->pause_ms = FIRST_PAUSE_MS;
	snprintf(node->join, sizeof node->join, "unix:%s", params->socket_path);
	snprintf(node->data, sizeof node->data, "%s", params->data);
	enum status status = process_binary(node->binary, sizeof node->binary, error);
	if (status) {
		free(node);
		return status;
	}
	start(node);
	*out = node;
	return STATUS_OK;
}

static void kill_late(void *arg)
{
	struct local_node *node = arg;
	if (node->pid)
		kill(node->pid, SIGKILL);
}

void local_node_stop(struct local_node *node, void (*done)(void *context), void *context)
{
	node->stopping = true;
	node->ended = done;
	node->context = context;
	net_timer_stop(node->params.loop, &node->timer);
	if (!node->pid) {
		done(context);
		return;
	}
	kill(node->pid, SIGTERM);
	net_timer_start(node->params.loop, &node->timer, STOP_MS, kill_late, node);
}

void local_node_destroy(struct local_node **pointer)
{
	struct local_node *node = *pointer;
	if (!node)
		return;
	*pointer = NULL;
	net_timer_stop(node->params.loop, &node->timer);
	if (node->pid) {
		kill(node->pid, SIGKILL);
		waitpid(node->pid, NULL, 0);
	}
	net_watch_destroy(&node->watch);
	free(node);
}
