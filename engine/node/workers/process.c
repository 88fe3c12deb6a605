/* See process.h. */
#include "engine/node/workers/process.h"

#include "common/base/limits.h"
#include "engine/node/workers/spawn.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESS_POLL_MS = 20, PROCESS_END_MS = 1000 };

// Read what is there, keeping the end of it, which tells why the process died. False once the pipe is closed.
static bool keep_printed(struct process *process)
{
	uint8_t bytes[1024];
	ssize_t got;
	while ((got = read(process->stderr_fd, bytes, sizeof(bytes))) > 0 || (got < 0 && errno == EINTR)) {
		size_t more = got > 0 ? (size_t)got : 0, room = LIMIT_WORKER_STDERR_BYTES - process->printed.length;
		if (more > room)
			buffer_consume(&process->printed, more - room);
		buffer_append(&process->printed, bytes, more);
	}
	return got < 0;
}

static void printed_readable(void *arg, int fd)
{
	struct process *process = arg;
	(void)fd;
	if (!keep_printed(process))
		net_watch_destroy(&process->stderr_pipe); // else it would be readable for ever
}

const char *process_last_line(const struct process *process, char *line, size_t size)
{
	const char *text = buffer_text(&process->printed);
	size_t length = process->printed.length, begin;
	while (length && isspace((unsigned char)text[length - 1]))
		length--;
	for (begin = length; begin && text[begin - 1] != '\n';)
		begin--;
	snprintf(line, size, "%.*s", (int)(length - begin), text + begin);
	for (char *at = line; *at; at++)
		*at = (unsigned char)*at < 32 ? '?' : *at;
	return line;
}

void process_describe(const struct process *process, int wait_status, char *text, size_t size)
{
	char line[200];
	process_last_line(process, line, sizeof(line));
	const char *dash = line[0] ? ": " : "";
	if (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL && process->killed)
		snprintf(text, size, "the worker was killed");
	else if (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL)
		snprintf(text, size, "the worker was killed from outside: signal 9 (Killed)%s%s", dash, line);
	else if (WIFSIGNALED(wait_status))
		snprintf(text, size, "the worker crashed: signal %d (%s)%s%s", WTERMSIG(wait_status),
			 strsignal(WTERMSIG(wait_status)), dash, line);
	else
		snprintf(text, size, "the worker ended with exit status %d%s%s", WEXITSTATUS(wait_status), dash, line);
}

// True once the process is gone; it may be freed then.
static bool reap(struct process *process)
{
	int wait_status = 0;
	pid_t pid = waitpid(process->pid, &wait_status, WNOHANG);
	if (pid == 0 || (pid < 0 && errno == EINTR))
		return false;
	process->pid = 0;
	if (process->stderr_pipe)
		keep_printed(process); // text printed before its end may not have been read yet
	net_watch_destroy(&process->pidfd);
	net_timer_stop(process->loop, &process->poll);
	process->ended(process->arg, wait_status);
	return true;
}

static void pidfd_readable(void *arg, int fd)
{
	(void)fd;
	reap(arg);
}

static void poll_process(void *arg)
{
	struct process *process = arg;
	if (!reap(process))
		net_timer_start(process->loop, &process->poll, PROCESS_POLL_MS, poll_process, process);
}

static const struct net_watch_events pipe_events = {.readable = printed_readable};
static const struct net_watch_events pidfd_events = {.readable = pidfd_readable};

enum status process_start(struct process *process, const struct process_params *params, struct error *error)
{
	int pipes[2] = {-1, -1}, pidfd = -1, failure = 0;
	*process = (struct process){.loop = params->loop, .ended = params->ended, .arg = params->arg};
	buffer_init(&process->printed, LIMIT_WORKER_STDERR_BYTES);
	if (pipe2(pipes, O_CLOEXEC))
		return error_errno(error, STATUS_UNAVAILABLE, errno, "a worker's pipe");
	const struct spawn spawn = {.errors = pipes[1],
				    .given = {params->socket, params->stream, params->model, params->ring_in,
					      params->ring_out, params->draft},
				    .alone = params->alone};
	failure = spawn_worker(&spawn, &process->pid);
	close(pipes[1]);
	if (failure) {
		close(pipes[0]);
		return error_errno(error, STATUS_UNAVAILABLE, failure, "starting a worker");
	}
	process->stderr_fd = pipes[0];
	enum status status = net_watch_create(&process->stderr_pipe, params->loop, pipes[0], &pipe_events, process,
					      error);
	if (status)
		close(pipes[0]);
	pidfd = (int)syscall(SYS_pidfd_open, process->pid, 0);
	if (pidfd >= 0 && net_watch_create(&process->pidfd, params->loop, pidfd, &pidfd_events, process, NULL))
		close(pidfd);
	if (!process->pidfd)
		net_timer_start(params->loop, &process->poll, PROCESS_POLL_MS, poll_process, process);
	if (status)
		process_finish(process, &(int){100});
	return status;
}

void process_kill(struct process *process)
{
	process->killed = true;
	if (process->pid)
		kill(process->pid, SIGKILL);
}

static void kill_late(void *arg)
{
	process_kill(arg);
}

// Without a pidfd the timer looks for the end.
void process_expect_end(struct process *process)
{
	if (!process->pidfd)
		process_kill(process);
	else if (!process->ending)
		net_timer_start(process->loop, &process->poll, PROCESS_END_MS, kill_late, process);
	process->ending = true;
}

void process_finish(struct process *process, int *patience_ms)
{
	process_kill(process);
	// A process that a driver holds in the kernel ends when the driver lets go; init reaps it then.
	while (process->pid && waitpid(process->pid, NULL, WNOHANG) == 0 && (*patience_ms)-- > 0)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	process->pid = 0;
	if (process->loop)
		net_timer_stop(process->loop, &process->poll);
	net_watch_destroy(&process->stderr_pipe);
	net_watch_destroy(&process->pidfd);
	buffer_finish(&process->printed);
}
