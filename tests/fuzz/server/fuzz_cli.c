/* Fuzz target: what a server answers to the command line, from the message to what stands on the terminal.
 *
 * The first byte chooses the command, the second how it is asked (below). Then a line is a message of the server:
 *
 *     {…}, […], …    the result of the oldest call that waits        -{…}        an error instead
 *     *{…}           the same result, for all calls that follow      =NUMBER {…} a result with so many MiB of body
 *     !METHOD {…}    a notification                                  @…          a text frame as it is
 *     %…             a binary frame as it is                         ~           nothing, until the call's time is over
 *
 * What the command reads by HTTP is the rest. At the end of the input the connection ends. Sockets and files are not
 * there: this file stands for them. Whatever comes, the command ends, gives everything back, and no control character
 * of the server's reaches the terminal. `audit list` is asked twice, so that the second compares with what the first
 * remembers. Of `bench device` only the beginning is reached; `mcp` prints for a program. */
#include "common/base/log.h"
#include "common/files/private_file.h"
#include "common/net/ws/ws.h"
#include "server/cli/cli.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { REPEATS = 400, TURNS = 100, BODY_MIB = 1, WORDS = 12, FILES = 4, LINE_BYTES = 64 * 1024 };

static const char *const commands[] = {
	"devices",
	"devices drain gpu",
	"devices return gpu",
	"nodes",
	"nodes approve n 123456",
	"nodes refuse n",
	"nodes remove n",
	"topology",
	"ticket create",
	"ticket list",
	"ticket revoke t",
	"token create --name n --scopes infer",
	"token list",
	"token revoke t",
	"alloc gpu 4MiB --label x",
	"alloc list",
	"alloc free a",
	"model add hf:a/b/c.gguf",
	"model add hf:a/b/c.gguf --no-wait",
	"model upload /proc/self/fd/FILE",
	"model list",
	"model remove m",
	"model search m",
	"model catalog",
	"model browse /m",
	"place m",
	"place m --preview --device gpu",
	"instances",
	"move i",
	"stop i",
	"run m hello",
	"bench device gpu",
	"audit list",
	"audit list --limit 3000 --follow",
	"audit verify --url http://127.0.0.1:1",
	"alerts",
	"alerts ack a",
	"alerts rules",
	"alerts rule r --threshold 3",
	"alerts channels",
	"alerts channels add webhook https://a.example/",
	"alerts channels test c",
	"alerts channels remove c",
	"history gpu",
	"health",
	"log --follow",
	"forecast gpu",
	"usage --by device",
	"usage --by token --step 1h",
	"lend",
	"lend list",
	"lend revoke l",
	"open --print",
	"devices --url http://127.0.0.1:1",
};
enum { COMMANDS = sizeof commands / sizeof *commands };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);
enum status __wrap_net_loop_create(struct net_loop **out, struct error *error);
void __wrap_net_loop_destroy(struct net_loop **loop);
void __wrap_net_loop_run(struct net_loop *loop);
void __wrap_net_loop_stop(struct net_loop *loop);
void __wrap_net_timer_start(struct net_loop *loop, struct net_timer *timer, int64_t delay_ms, void (*fn)(void *arg),
			    void *arg);
void __wrap_net_timer_stop(struct net_loop *loop, struct net_timer *timer);
enum status __wrap_net_watch_create(struct net_watch **out, struct net_loop *loop, int fd,
				    const struct net_watch_events *events, void *arg, struct error *error);
void __wrap_net_watch_destroy(struct net_watch **watch);
enum status __wrap_net_dial(struct net_loop *loop, const struct net_dial_params *params, struct error *error);
enum status __wrap_net_conn_send_text(struct net_conn *conn, const char *text, size_t length);
enum status __wrap_net_conn_send(struct net_conn *conn, struct net_frame *frame, uint64_t key);
void __wrap_net_conn_close(struct net_conn *conn, int code, const char *reason);
enum status __wrap_private_file_read(const char *path, struct buffer *out, struct error *error);
enum status __wrap_private_file_write(const struct private_file *file, struct error *error);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length);
ssize_t __wrap_send(int fd, const void *bytes, size_t length, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t length, int flags);
int __wrap_isatty(int fd);
int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left);
int __wrap_sigprocmask(int how, const sigset_t *set, sigset_t *before);

static struct {
	const char *at, *end; // what has not come yet
	const char *repeated; // (repeated_bytes) the line that goes on; NULL without one
	size_t repeated_bytes;
	int repeats;
	uint8_t how;
	// The connection; conn is any address, nobody looks into it.
	const struct net_handler *handler;
	void *user;
	bool dialled, opened, closing, closed;
	int64_t asked, answered; // calls
	int turns;               // since the end of the input
	void (*late)(void *arg);
	void *late_arg;
	struct {
		char path[4200];
		struct buffer text;
	} files[FILES];
	size_t file_count;
} world;
static char conn_byte, loop_byte, *frame;
static struct net_conn *const the_conn = (void *)&conn_byte;
static struct net_loop *const the_loop = (void *)&loop_byte;
static int file_fd;

static void require(bool condition)
{
	if (!condition)
		abort();
}

// ---- the loop ----

enum status __wrap_net_loop_create(struct net_loop **out, struct error *error)
{
	(void)error;
	*out = the_loop;
	return STATUS_OK;
}

void __wrap_net_loop_destroy(struct net_loop **loop)
{
	if (*loop && world.dialled && !world.closed) {
		world.closed = true;
		world.handler->closed(world.user, world.opened ? the_conn : NULL, 1006);
	}
	*loop = NULL;
}

void __wrap_net_loop_stop(struct net_loop *loop)
{
	(void)loop;
}

void __wrap_net_timer_start(struct net_loop *loop, struct net_timer *timer, int64_t delay_ms, void (*fn)(void *arg),
			    void *arg)
{
	(void)loop, (void)delay_ms;
	timer->running = true;
	world.late = fn;
	world.late_arg = arg;
}

void __wrap_net_timer_stop(struct net_loop *loop, struct net_timer *timer)
{
	(void)loop;
	timer->running = false;
	world.late = NULL;
}

enum status __wrap_net_watch_create(struct net_watch **out, struct net_loop *loop, int fd,
				    const struct net_watch_events *events, void *arg, struct error *error)
{
	(void)loop, (void)events, (void)arg, (void)error;
	*out = (void *)&loop_byte;
	return close(fd) ? STATUS_UNAVAILABLE : STATUS_OK;
}

void __wrap_net_watch_destroy(struct net_watch **watch)
{
	*watch = NULL;
}

int __wrap_sigprocmask(int how, const sigset_t *set, sigset_t *before)
{
	(void)how, (void)set;
	if (before)
		sigemptyset(before);
	return 0;
}

// ---- the connection ----

enum status __wrap_net_dial(struct net_loop *loop, const struct net_dial_params *params, struct error *error)
{
	(void)loop, (void)error;
	world.handler = params->handler;
	world.user = params->user;
	world.dialled = true;
	world.opened = world.closing = world.closed = false;
	world.asked = world.answered = 0;
	return STATUS_OK;
}

enum status __wrap_net_conn_send_text(struct net_conn *conn, const char *text, size_t length)
{
	require(conn == the_conn && !world.closed && length && text[0] == '{');
	world.asked++;
	return STATUS_OK;
}

enum status __wrap_net_conn_send(struct net_conn *conn, struct net_frame *one, uint64_t key)
{
	require(conn == the_conn && !world.closed && one && !key);
	world.asked++;
	return STATUS_OK;
}

void __wrap_net_conn_close(struct net_conn *conn, int code, const char *reason)
{
	(void)code, (void)reason;
	require(conn == the_conn && !world.closed);
	world.closing = true;
}

static void hang_up(int code)
{
	world.closed = true;
	world.handler->closed(world.user, world.opened ? the_conn : NULL, code);
}

static void deliver(const char *bytes, size_t length, bool binary)
{
	world.handler->message(world.user, the_conn, (const uint8_t *)bytes, length, binary);
}

// A message around what a line says. body_mib < 0: a text frame.
static void tell(const char *before, const char *line, size_t length, const char *after, int64_t body_mib)
{
	const int64_t id = world.answered < world.asked ? ++world.answered : world.asked + 1;
	char *const head = frame + 4;
	int used = snprintf(head, LINE_BYTES, "{\"jsonrpc\":\"2.0\",");
	if (before)
		used += snprintf(head + used, LINE_BYTES, "\"id\":%lld,%s", (long long)id, before);
	memcpy(head + used, line, length);
	used += (int)length;
	used += snprintf(head + used, LINE_BYTES, "%s}", after);
	if (body_mib < 0) {
		deliver(head, (size_t)used, false);
		return;
	}
	for (int i = 0; i < 4; i++)
		frame[i] = (char)((uint32_t)used >> 8 * i);
	deliver(frame, 4 + (size_t)used + (size_t)body_mib * 1024 * 1024, true);
}

static void tell_notice(const char *line, size_t length)
{
	char method[80];
	const char *blank = memchr(line, ' ', length);
	const size_t name = blank ? (size_t)(blank - line) : length;
	snprintf(method, sizeof method, "\"method\":\"%.*s\",\"params\":", (int)(name < 40 ? name : 40), line);
	char text[LINE_BYTES + sizeof method];
	const int used = snprintf(text, sizeof text, "%s%.*s", method, (int)(blank ? length - name - 1 : 2),
				  blank ? blank + 1 : "{}");
	tell(NULL, text, (size_t)used, "", -1);
}

static void take_line(const char *line, size_t length)
{
	switch (length ? line[0] : 0) {
	case '-':
		tell("\"error\":", line + 1, length - 1, "", -1);
		break;
	case '*':
		world.repeated = line + 1;
		world.repeated_bytes = length - 1;
		world.repeats = REPEATS;
		break;
	case '=':
		if (length > 2)
			tell("\"result\":", line + 2, length - 2, "", line[1] == '0' ? 0 : BODY_MIB);
		break;
	case '!':
		tell_notice(line + 1, length - 1);
		break;
	case '@':
	case '%':
		deliver(line + 1, length - 1, line[0] == '%');
		break;
	case '~':
		if (world.late)
			world.late(world.late_arg);
		break;
	default:
		tell("\"result\":", line, length, "", -1);
	}
}

static void next_line(void)
{
	const char *line = world.at, *end = memchr(line, '\n', (size_t)(world.end - line));
	const size_t length = (size_t)((end ? end : world.end) - line);
	world.at = end ? end + 1 : world.end;
	take_line(line, length < LINE_BYTES ? length : LINE_BYTES);
}

// A turn: one thing happens. A command that goes on waiting after all has ended would wait for ever.
void __wrap_net_loop_run(struct net_loop *loop)
{
	static const int codes[] = {1006, 1001, 1009, 4401, 4410, 4429, 1000, 4408};
	require(loop == the_loop && world.dialled);
	if (world.closed) {
		require(++world.turns < TURNS);
	} else if (!world.opened && world.at < world.end && *world.at == '#') { // refused
		world.at = world.end;
		world.handler->failed(world.user, NET_FAILURE_OTHER, "no \033[31mauthority");
		hang_up(1006);
	} else if (!world.opened) {
		world.opened = true;
		world.handler->opened(world.user, the_conn);
	} else if (world.closing) {
		hang_up(1006);
	} else if (world.repeats && world.answered < world.asked) {
		world.repeats--;
		tell("\"result\":", world.repeated, world.repeated_bytes, "", BODY_MIB);
	} else if (world.at < world.end) {
		next_line();
	} else {
		hang_up(codes[world.how >> 3 & 7]);
	}
}

// ---- the system ----

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length)
{
	(void)fd, (void)address, (void)length;
	return 0;
}

ssize_t __wrap_send(int fd, const void *bytes, size_t length, int flags)
{
	(void)fd, (void)bytes, (void)flags;
	return (ssize_t)length;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t length, int flags)
{
	(void)fd, (void)flags;
	const size_t left = (size_t)(world.end - world.at), now = left < length ? left : length;
	require(now || ++world.turns < TURNS);
	memcpy(bytes, world.at, now);
	world.at += now;
	return (ssize_t)now;
}

int __wrap_isatty(int fd)
{
	return fd >= 0 && fd <= 2;
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	static const unsigned short widths[] = {0, 20, 80, 200};
	va_list args;
	va_start(args, request);
	struct winsize *size = va_arg(args, struct winsize *);
	va_end(args);
	require(fd >= 0 && fd <= 2 && request == TIOCGWINSZ);
	*size = (struct winsize){.ws_col = widths[world.how >> 1 & 3]};
	return 0;
}

int __wrap_mkdir(const char *path, mode_t mode)
{
	(void)path, (void)mode;
	return 0;
}

int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left)
{
	(void)wanted, (void)left;
	return 0;
}

static struct buffer *find_file(const char *path)
{
	for (size_t i = 0; i < world.file_count; i++)
		if (!strcmp(world.files[i].path, path))
			return &world.files[i].text;
	return NULL;
}

enum status __wrap_private_file_read(const char *path, struct buffer *out, struct error *error)
{
	const struct buffer *text = find_file(path);
	(void)error;
	return text ? buffer_append(out, text->data, text->length) : STATUS_NOT_FOUND;
}

enum status __wrap_private_file_write(const struct private_file *file, struct error *error)
{
	struct buffer *text = find_file(file->path);
	if (!text && world.file_count == FILES)
		return error_set(error, STATUS_UNAVAILABLE, "no room");
	if (!text) {
		snprintf(world.files[world.file_count].path, sizeof world.files[0].path, "%s", file->path);
		text = &world.files[world.file_count++].text;
		buffer_init(text, 1024 * 1024);
	}
	buffer_clear(text);
	return buffer_append(text, file->bytes, file->length);
}

// ---- the terminal ----

// The length of a sequence that the program itself writes; 0: it is none.
static size_t own_sequence(const char *at)
{
	static const char *const own[] = {"\033[K",   "\033[0m",  "\033[2m",    "\033[31m",
					  "\033[32m", "\033[33m", "\033[97;40m"};
	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		if (!strncmp(at, own[i], strlen(own[i])))
			return strlen(own[i]);
	return 0;
}

static void check_terminal(const char *text, size_t length)
{
	require(strlen(text) == length);
	while (*text) {
		const unsigned char byte = (unsigned char)*text, next = (unsigned char)text[1];
		const size_t own = own_sequence(text);
		require(own || byte >= 32 || byte == '\n' || byte == '\r' || byte == '\t');
		require(byte != 127 && !(byte == 0xC2 && next >= 0x80 && next < 0xA0));
		text += own ? own : 1;
	}
}

// Some words of a command, and its options.
static int split(char *line, char **words)
{
	int count = 1;
	words[0] = (char *)"exogpu";
	while (line && count < WORDS - 2) {
		words[count++] = line;
		line = strchr(line, ' ');
		if (line)
			*line++ = 0;
	}
	if (world.how & 1)
		words[count++] = (char *)"--json";
	words[count] = NULL;
	return count;
}

static void run(const char *command)
{
	char line[160], *words[WORDS], *texts[2] = {NULL, NULL};
	size_t lengths[2];
	FILE *const out = stdout, *const fault = stderr;
	const char *file = strstr(command, "FILE");
	snprintf(line, sizeof line, "%.*s", (int)(file ? file - command : 159), command);
	if (file)
		snprintf(line + strlen(line), 20, "%d", file_fd);
	const int count = split(line, words);
	world.turns = 0;
	world.dialled = false;
	stdout = open_memstream(&texts[0], &lengths[0]);
	stderr = open_memstream(&texts[1], &lengths[1]);
	const int result = cli_main(count, words);
	fclose(stdout);
	fclose(stderr);
	stdout = out, stderr = fault;
	require(result >= 0 && (!result || lengths[1]));
	for (int i = 0; i < 2; i++)
		check_terminal(texts[i], lengths[i]);
	free(texts[0]);
	free(texts[1]);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	static const char contents[100] = "GGUF";
	log_set_level(LOG_ERROR);
	setenv("EXOGPU_TOKEN", "exo_token", 1);
	setenv("EXOGPU_DATA", "/nowhere", 1);
	setenv("XDG_STATE_HOME", "/nowhere/state", 1);
	setenv("TERM", "xterm", 1);
	unsetenv("EXOGPU_URL");
	frame = calloc(1, 4 * LINE_BYTES + BODY_MIB * 1024 * 1024);
	file_fd = memfd_create("model.gguf", MFD_CLOEXEC);
	require(frame && file_fd >= 0 && write(file_fd, contents, sizeof contents) == sizeof contents);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2)
		return 0;
	const char *command = commands[(uint8_t)(data[0] - '0') % COMMANDS];
	world.at = (const char *)data + 2;
	world.end = (const char *)data + size;
	world.how = data[1];
	world.repeats = 0;
	run(command);
	if (!strcmp(command, "audit list") && world.at < world.end)
		run(command);
	while (world.file_count)
		buffer_finish(&world.files[--world.file_count].text);
	return 0;
}
