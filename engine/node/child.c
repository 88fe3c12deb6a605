/* See child.h. An answer is delivered as soon as it is there; the process then has CHILD_END_MS to end. Its end is seen
 * by a pidfd, or where the kernel has none by looking every CHILD_POLL_MS. */
#include "engine/node/child.h"

#include "common/base/limits.h"
#include "common/base/log.h"
#include "common/wire/message.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	WORKER_SOCKET = 3, // where engine/worker/worker.h expects it
	CHILD_END_MS = 2000,
	CHILD_POLL_MS = 20,
	CHILD_STOP_MS = 500,
};

struct children {
	struct net_loop *loop;
	const struct contract *contract;
	struct child *list;
	size_t count;
};

struct child {
	struct child *next, **at;
	struct children *children;
	struct child_call call;
	pid_t pid; // 0: not spawned
	struct net_watch *socket, *stderr_pipe, *end;
	int socket_fd, stderr_fd; // owned by the watches
	struct net_timer deadline, poll;
	struct buffer in, printed;
	bool answered, killed;
	struct error error; // of a call that failed
};

static void release(struct child *child)
{
	struct net_loop *loop = child->children->loop;
	*child->at = child->next;
	if (child->next)
		child->next->at = child->at;
	child->children->count--;
	net_timer_stop(loop, &child->deadline);
	net_timer_stop(loop, &child->poll);
	net_watch_destroy(&child->socket);
	net_watch_destroy(&child->stderr_pipe);
	net_watch_destroy(&child->end);
	json_destroy(&child->call.params);
	buffer_finish(&child->in);
	buffer_finish(&child->printed);
	free(child);
}

static void kill_child(struct child *child)
{
	child->killed = true;
	if (child->pid)
		kill(child->pid, SIGKILL);
}

// Tell the caller, once.
static void deliver(struct child *child, enum status status, const struct json *result)
{
	if (child->answered)
		return;
	child->answered = true;
	if (status)
		error_set(&child->error, status, "%s", status_text(status));
	struct child_outcome outcome = {.status = status, .result = result, .error = &child->error};
	child->call.done(child->call.arg, &outcome);
}

static void end_late(void *arg)
{
	kill_child(arg);
}

// The last line that the worker printed, without control characters; "" if it printed nothing.
static const char *last_line(struct child *child, char *line, size_t size)
{
	const char *text = buffer_text(&child->printed);
	size_t length = child->printed.length, begin;
	while (length && isspace((unsigned char)text[length - 1]))
		length--;
	for (begin = length; begin && text[begin - 1] != '\n';)
		begin--;
	snprintf(line, size, "%.*s", (int)(length - begin), text + begin);
	for (char *at = line; *at; at++)
		*at = (unsigned char)*at < 32 ? '?' : *at;
	return line;
}

// Read what is there, keeping the last of it: the end is what tells why it died. False once the pipe is closed.
static bool keep_printed(struct child *child, int fd)
{
	uint8_t bytes[1024];
	ssize_t got;
	while ((got = read(fd, bytes, sizeof(bytes))) > 0 || (got < 0 && errno == EINTR)) {
		size_t more = got > 0 ? (size_t)got : 0, room = LIMIT_WORKER_STDERR_BYTES - child->printed.length;
		if (more > room)
			buffer_consume(&child->printed, more - room);
		buffer_append(&child->printed, bytes, more);
	}
	return got < 0;
}

static void printed_readable(void *arg, int fd)
{
	struct child *child = arg;
	if (!keep_printed(child, fd))
		net_watch_destroy(&child->stderr_pipe); // else it would be readable for ever
}

static void fail_garbage(struct child *child, const struct error *fault)
{
	error_set(&child->error, STATUS_INTERNAL, "the worker's answer breaks the protocol: %s", fault->message);
	deliver(child, STATUS_INTERNAL, NULL);
	kill_child(child);
}

static void take_answer(struct child *child, const uint8_t *frame, size_t length)
{
	struct message message = {0};
	struct error fault = {0};
	const struct contract_method *method = contract_find(child->children->contract, child->call.method);
	enum status status = message_decode(&message, frame, length, &fault);
	if (!status && message.kind == MESSAGE_RESULT)
		status = contract_check_result(child->children->contract, method, message.result, &fault);
	else if (!status && message.kind != MESSAGE_ERROR)
		status = error_set(&fault, STATUS_INVALID_REQUEST, "it is no answer");
	if (status) {
		fail_garbage(child, &fault);
	} else if (message.kind == MESSAGE_ERROR) {
		message_read_error(&message, &child->error);
		deliver(child, child->error.status ? child->error.status : STATUS_INTERNAL, NULL);
	} else {
		deliver(child, STATUS_OK, message.result);
	}
	message_finish(&message);
	net_timer_start(child->children->loop, &child->deadline, CHILD_END_MS, end_late, child);
}

// Read what is there. False once the other end is closed.
static bool read_socket(struct child *child, int fd)
{
	uint8_t bytes[16384];
	for (;;) {
		ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
		if (child->answered)
			continue; // one call, one answer
		const uint8_t *frame;
		size_t frame_bytes, used = 0;
		struct error fault = {0};
		enum status status = buffer_append(&child->in, bytes, (size_t)got);
		if (!status)
			status = message_next(&child->in, &frame, &frame_bytes, &used);
		if (status) {
			error_set(&fault, status, "a message of no possible length");
			fail_garbage(child, &fault);
		} else if (used) {
			take_answer(child, frame, frame_bytes);
		}
	}
}

static void socket_readable(void *arg, int fd)
{
	struct child *child = arg;
	if (!read_socket(child, fd))
		net_watch_destroy(&child->socket); // its end says the rest
}

static void describe_end(struct child *child, int wait_status)
{
	char line[200];
	last_line(child, line, sizeof(line));
	const char *dash = line[0] ? ": " : "";
	if (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL && child->killed)
		error_set(&child->error, STATUS_TIMEOUT, "the worker was killed");
	else if (WIFSIGNALED(wait_status))
		error_set(&child->error, STATUS_UNAVAILABLE, "the worker crashed: signal %d (%s)%s%s",
			  WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)), dash, line);
	else
		error_set(&child->error, STATUS_UNAVAILABLE,
			  "the worker ended with exit status %d without an answer%s%s", WEXITSTATUS(wait_status), dash,
			  line);
}

// True once the process is gone and the child with it.
static bool reap(struct child *child)
{
	int wait_status = 0;
	pid_t pid = waitpid(child->pid, &wait_status, WNOHANG);
	if (pid == 0 || (pid < 0 && errno == EINTR))
		return false;
	// What it sent and printed before its end may not have been seen yet.
	if (child->socket)
		read_socket(child, child->socket_fd);
	if (child->stderr_pipe)
		keep_printed(child, child->stderr_fd);
	if (!child->answered) {
		describe_end(child, wait_status);
		deliver(child, child->error.status, NULL);
	}
	release(child);
	return true;
}

static void process_ended(void *arg, int fd)
{
	(void)fd;
	reap(arg);
}

static void poll_process(void *arg)
{
	struct child *child = arg;
	if (!reap(child))
		net_timer_start(child->children->loop, &child->poll, CHILD_POLL_MS, poll_process, child);
}

static void deadline_passed(void *arg)
{
	struct child *child = arg;
	char line[200];
	last_line(child, line, sizeof(line));
	error_set(&child->error, STATUS_TIMEOUT, "no answer within %g s%s%s", (double)child->call.deadline_ms / 1000,
		  line[0] ? "; it printed last: " : "", line);
	kill_child(child);
	deliver(child, STATUS_TIMEOUT, NULL);
}

// The worker's end of the socket on 3, its standard error in the pipe, nothing else open.
static int spawn(struct child *child, int socket, int pipe_end)
{
	extern char **environ;
	char parent[16];
	char *argv[] = {(char *)"exogpu", (char *)"worker", (char *)"--parent", parent, NULL};
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attributes;
	sigset_t none, all;
	snprintf(parent, sizeof(parent), "%d", (int)getpid());
	sigemptyset(&none);
	sigfillset(&all);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attributes);
	// In this order: the pipe's descriptor may be 3. Neither is 0, 1 or 2: node_main sees to that.
	posix_spawn_file_actions_adddup2(&files, pipe_end, STDERR_FILENO);
	posix_spawn_file_actions_adddup2(&files, socket, WORKER_SOCKET);
	posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addclosefrom_np(&files, WORKER_SOCKET + 1);
	// A group of its own: a Ctrl-C at the terminal is the node's business, not a crash of its workers.
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
	posix_spawnattr_setsigmask(&attributes, &none);
	posix_spawnattr_setsigdefault(&attributes, &all);
	int failure = posix_spawn(&child->pid, "/proc/self/exe", &files, &attributes, argv, environ);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attributes);
	if (failure)
		child->pid = 0;
	return failure;
}

static const struct net_watch_events socket_events = {.readable = socket_readable};
static const struct net_watch_events pipe_events = {.readable = printed_readable};
static const struct net_watch_events end_events = {.readable = process_ended};

static enum status watch(struct child *child, struct net_watch **out, int *fd, const struct net_watch_events *events)
{
	enum status status = net_watch_create(out, child->children->loop, *fd, events, child, &child->error);
	if (!status)
		*fd = -1; // the watch has it now
	return status;
}

static enum status send_call(struct child *child)
{
	struct buffer head, out;
	struct json *id = json_new_integer(1);
	buffer_init(&head, LIMIT_HEAD_BYTES);
	buffer_init(&out, LIMIT_WORKER_MESSAGE_BYTES);
	enum status status = message_print_call(&head, id, child->call.method, child->call.params);
	child->call.params = NULL;
	if (!status)
		status = message_encode_stream(&out, (const char *)head.data, head.length, NULL, 0);
	// A call is a few hundred bytes: it fits into an empty socket, or the socket is no use.
	if (!status && send(child->socket_fd, out.data, out.length, MSG_NOSIGNAL) != (ssize_t)out.length)
		status = error_errno(&child->error, STATUS_UNAVAILABLE, errno, "calling the worker");
	json_destroy(&id);
	buffer_finish(&head);
	buffer_finish(&out);
	return status;
}

static enum status start(struct child *child)
{
	int sockets[2] = {-1, -1}, pipes[2] = {-1, -1}, pidfd = -1, failure;
	struct net_loop *loop = child->children->loop;
	enum status status = STATUS_OK;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) || pipe2(pipes, O_CLOEXEC)) {
		status = error_errno(&child->error, STATUS_UNAVAILABLE, errno, "a worker's socket");
		goto done;
	}
	failure = spawn(child, sockets[1], pipes[1]);
	if (failure) {
		status = error_errno(&child->error, STATUS_UNAVAILABLE, failure, "starting a worker");
		goto done;
	}
	child->socket_fd = sockets[0];
	child->stderr_fd = pipes[0];
	pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0);
	status = watch(child, &child->socket, &sockets[0], &socket_events);
	if (!status)
		status = watch(child, &child->stderr_pipe, &pipes[0], &pipe_events);
	if (!status && pidfd >= 0)
		status = watch(child, &child->end, &pidfd, &end_events);
	if (!status)
		status = send_call(child);
	if (!child->end)
		net_timer_start(loop, &child->poll, CHILD_POLL_MS, poll_process, child);
	net_timer_start(loop, &child->deadline, child->call.deadline_ms, deadline_passed, child);
done:
	for (int i = 0; i < 2; i++) {
		if (sockets[i] >= 0)
			close(sockets[i]);
		if (pipes[i] >= 0)
			close(pipes[i]);
	}
	if (pidfd >= 0)
		close(pidfd);
	return status;
}

// A call that could not even be made fails from the loop, like any other.
static void fail_start(void *arg)
{
	struct child *child = arg;
	deliver(child, child->error.status ? child->error.status : STATUS_UNAVAILABLE, NULL);
	if (!child->pid)
		release(child);
}

enum status children_create(struct children **out, struct net_loop *loop, const struct contract *contract)
{
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return STATUS_OUT_OF_MEMORY;
	(*out)->loop = loop;
	(*out)->contract = contract;
	return STATUS_OK;
}

void children_destroy(struct children **children)
{
	if (!*children)
		return;
	int waited_ms = 0;
	for (struct child *child = (*children)->list; child; child = child->next) {
		if (!child->answered && child->call.drop)
			child->call.drop(child->call.arg);
		child->answered = true;
		kill_child(child);
	}
	for (struct child *child = (*children)->list, *next; child; child = next) {
		next = child->next;
		// A process that a driver holds in the kernel ends when the driver lets go; init reaps it then.
		while (child->pid && waitpid(child->pid, NULL, WNOHANG) == 0 && waited_ms++ < CHILD_STOP_MS)
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		release(child);
	}
	free(*children);
	*children = NULL;
}

void children_call(struct children *children, const struct child_call *call)
{
	struct child *child = calloc(1, sizeof(*child));
	if (!child) { // nothing to remember the call by: the only failure that is reported at once
		struct error error = {0};
		struct json *params = call->params;
		json_destroy(&params);
		error_set(&error, STATUS_OUT_OF_MEMORY, "no memory for a worker");
		call->done(call->arg, &(struct child_outcome){.status = STATUS_OUT_OF_MEMORY, .error = &error});
		return;
	}
	*child = (struct child){.children = children, .call = *call, .next = children->list, .at = &children->list};
	if (child->next)
		child->next->at = &child->next;
	children->list = child;
	children->count++;
	buffer_init(&child->in, LIMIT_WORKER_MESSAGE_BYTES);
	buffer_init(&child->printed, LIMIT_WORKER_STDERR_BYTES);
	if (start(child)) {
		net_timer_stop(children->loop, &child->deadline);
		if (child->pid)
			kill_child(child);
		net_timer_start(children->loop, &child->deadline, 0, fail_start, child);
	}
}

size_t children_count(const struct children *children)
{
	return children->count;
}
