/* Streams: messages in any pieces, bodies of any size, hostile lengths, peers that do not read, that go, that are put
 * off; and the socket that workers dial. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/net/stream.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct fixture {
	struct net_loop *loop;
	struct net_stream *stream, *other; // `other`: the second end, where both are streams
	int peer;                          // the second end, where it is bare
	struct net_timer timer, poll;
	size_t messages, body_bytes, drained, closed;
	size_t stop_after; // messages
	char why[128], heads[256];
	uint32_t sum;       // of the bodies
	bool destroy_early; // in the first message
	const uint8_t *script;
	size_t script_bytes, script_at, script_step;
	struct net_stream_listener *listener;
	bool refuse;
};

static uint32_t sum_of(const uint8_t *bytes, size_t length, uint32_t sum)
{
	for (size_t i = 0; i < length; i++)
		sum = sum * 31 + bytes[i];
	return sum;
}

static void on_message(void *user, struct net_stream *stream, const uint8_t *head, size_t head_bytes,
		       struct net_frame *body)
{
	struct fixture *fixture = user;
	fixture->messages++;
	size_t used = strlen(fixture->heads);
	if (used + head_bytes + 2 < sizeof fixture->heads)
		snprintf(fixture->heads + used, sizeof fixture->heads - used, "%.*s;", (int)head_bytes,
			 (const char *)head);
	if (body) {
		fixture->body_bytes += net_frame_bytes(body);
		fixture->sum = sum_of(net_frame_data(body), net_frame_bytes(body), fixture->sum);
	}
	if (fixture->destroy_early)
		net_stream_destroy(stream == fixture->stream ? &fixture->stream : &fixture->other);
	if (fixture->messages == fixture->stop_after)
		net_loop_stop(fixture->loop);
}

static void on_drained(void *user, struct net_stream *stream)
{
	(void)stream;
	struct fixture *fixture = user;
	fixture->drained++;
}

static void on_closed(void *user, struct net_stream *stream, const char *why)
{
	struct fixture *fixture = user;
	fixture->closed++;
	snprintf(fixture->why, sizeof fixture->why, "%s", why);
	struct net_stream **mine = stream == fixture->other ? &fixture->other : &fixture->stream;
	if (fixture->destroy_early)
		net_stream_destroy(mine); // allowed, and nothing more is to happen
	*mine = NULL;
	net_loop_stop(fixture->loop);
}

static const struct net_stream_handler handler = {.message = on_message, .drained = on_drained, .closed = on_closed};

static int set_up(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	int pair[2];
	assert_non_null(fixture);
	assert_int_equal(net_loop_create(&fixture->loop, NULL), STATUS_OK);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(net_stream_create(&fixture->stream, fixture->loop, pair[0], &handler, fixture, NULL),
			 STATUS_OK);
	fixture->peer = pair[1];
	assert_int_equal(fcntl(fixture->peer, F_SETFL, O_NONBLOCK), 0);
	*state = fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;
	net_stream_destroy(&fixture->stream);
	net_stream_destroy(&fixture->other);
	net_stream_listener_destroy(&fixture->listener);
	net_timer_stop(fixture->loop, &fixture->timer);
	net_timer_stop(fixture->loop, &fixture->poll);
	net_loop_destroy(&fixture->loop);
	if (fixture->peer >= 0)
		close(fixture->peer);
	free(fixture);
	return 0;
}

// Make the second end a stream too.
static void take_peer(struct fixture *fixture)
{
	assert_int_equal(net_stream_create(&fixture->other, fixture->loop, fixture->peer, &handler, fixture, NULL),
			 STATUS_OK);
	fixture->peer = -1;
}

static void stop(void *arg)
{
	net_loop_stop(((struct fixture *)arg)->loop);
}

static void run_ms(struct fixture *fixture, int64_t ms)
{
	net_timer_start(fixture->loop, &fixture->timer, ms, stop, fixture);
	net_loop_run(fixture->loop);
	net_timer_stop(fixture->loop, &fixture->timer);
}

static void run_to(struct fixture *fixture, size_t messages)
{
	fixture->stop_after = messages;
	if (fixture->messages < messages)
		run_ms(fixture, 60000);
	assert_int_equal(fixture->messages, messages);
}

// The bytes of a message with `body_bytes` of a pattern.
static size_t put_message(uint8_t *at, const char *head, const uint8_t *body, size_t body_bytes)
{
	size_t head_bytes = strlen(head), total = 4 + head_bytes + body_bytes;
	for (int i = 0; i < 4; i++) {
		at[i] = (uint8_t)(total >> 8 * i);
		at[4 + i] = (uint8_t)(head_bytes >> 8 * i);
	}
	memcpy(at + 8, head, head_bytes);
	if (body_bytes)
		memcpy(at + 8 + head_bytes, body, body_bytes);
	return 8 + head_bytes + body_bytes;
}

static uint8_t *pattern(size_t length)
{
	uint8_t *bytes = malloc(length ? length : 1);
	assert_non_null(bytes);
	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(i * 2654435761u >> 13);
	return bytes;
}

// Play the peer: the script, some bytes at a time.
static void play(void *arg)
{
	struct fixture *fixture = arg;
	size_t left = fixture->script_bytes - fixture->script_at;
	ssize_t sent = send(fixture->peer, fixture->script + fixture->script_at,
			    left < fixture->script_step ? left : fixture->script_step, MSG_NOSIGNAL);
	if (sent > 0)
		fixture->script_at += (size_t)sent;
	if (fixture->script_at < fixture->script_bytes)
		net_timer_start(fixture->loop, &fixture->poll, 0, play, fixture);
}

static void in_any_pieces(void **state)
{
	struct fixture *fixture = *state;
	uint8_t bytes[256], *body = pattern(100);
	size_t length = put_message(bytes, "first", NULL, 0);
	length += put_message(bytes + length, "second", body, 100);
	length += put_message(bytes + length, "", NULL, 0);
	length += put_message(bytes + length, "last", body, 1);
	for (size_t step = 1; step <= length; step += step < 20 ? 1 : 37) {
		memset(fixture->heads, 0, sizeof fixture->heads);
		fixture->messages = fixture->body_bytes = fixture->sum = 0;
		fixture->script = bytes;
		fixture->script_bytes = length;
		fixture->script_at = 0;
		fixture->script_step = step;
		play(fixture);
		run_to(fixture, 4);
		assert_string_equal(fixture->heads, "first;second;;last;");
		assert_int_equal(fixture->body_bytes, 101);
		assert_int_equal(fixture->sum, sum_of(body, 1, sum_of(body, 100, 0)));
	}
	free(body);
}

static void bodies_of_any_size(void **state)
{
	struct fixture *fixture = *state;
	const size_t sizes[] = {1, 4095, 16383, 16384, 16385, 65536, 524288, 524289, 1048577, LIMIT_BODY_BYTES};
	uint8_t *body = pattern(LIMIT_BODY_BYTES);
	take_peer(fixture);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct net_frame *holder = i % 2 ? net_frame_create(body, sizes[i], false) : NULL;
		fixture->sum = 0;
		fixture->messages = fixture->body_bytes = 0;
		assert_int_equal(net_stream_send(fixture->stream, "x", 1, holder,
						 holder ? net_frame_data(holder) : body, sizes[i]),
				 STATUS_OK);
		net_frame_unref(&holder);
		run_to(fixture, 1);
		assert_int_equal(fixture->body_bytes, sizes[i]);
		assert_int_equal(fixture->sum, sum_of(body, sizes[i], 0));
	}
	// Both ways at once, small ones among large ones, in their order.
	memset(fixture->heads, 0, sizeof fixture->heads);
	fixture->messages = fixture->body_bytes = 0;
	for (int i = 0; i < 4; i++) {
		assert_int_equal(net_stream_send(fixture->stream, "a", 1, NULL, body, 3000000), STATUS_OK);
		assert_int_equal(net_stream_send(fixture->stream, "b", 1, NULL, NULL, 0), STATUS_OK);
	}
	run_to(fixture, 8);
	assert_string_equal(fixture->heads, "a;b;a;b;a;b;a;b;");
	assert_int_equal(fixture->body_bytes, 12000000);
	assert_int_equal(fixture->drained, 2); // 16 MiB, of the sizes above, and these
	assert_int_equal(net_stream_queued(fixture->stream), 0);
	free(body);
}

static void hostile_lengths(void **state)
{
	const uint32_t cases[][2] = {{0, 0},
				     {3, 0},
				     {5, 2},
				     {100, 97},
				     {UINT32_MAX, 1},
				     {LIMIT_WORKER_MESSAGE_BYTES + 1, 1},
				     {LIMIT_HEAD_BYTES + 5, LIMIT_HEAD_BYTES + 1},
				     {LIMIT_BODY_BYTES + 5, 0},
				     {100, UINT32_MAX}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct fixture *fixture = *state;
		uint8_t bytes[8];
		for (int j = 0; j < 4; j++) {
			bytes[j] = (uint8_t)(cases[i][0] >> 8 * j);
			bytes[4 + j] = (uint8_t)(cases[i][1] >> 8 * j);
		}
		assert_int_equal(send(fixture->peer, bytes, sizeof bytes, 0), sizeof bytes);
		run_ms(fixture, 60000);
		assert_int_equal(fixture->closed, 1);
		assert_int_equal(fixture->messages, 0);
		assert_string_equal(fixture->why, "the peer sent impossible message lengths");
		tear_down(state);
		set_up(state);
	}
}

static void the_peer_goes(void **state)
{
	struct fixture *fixture = *state;
	uint8_t bytes[64];
	size_t length = put_message(bytes, "farewell", NULL, 0);
	// With a message on its way to it: what it said before is heard first.
	uint8_t *body = pattern(LIMIT_BODY_BYTES);
	assert_int_equal(net_stream_send(fixture->stream, "x", 1, NULL, body, LIMIT_BODY_BYTES), STATUS_OK);
	assert_true(net_stream_queued(fixture->stream) > 0);
	assert_int_equal(send(fixture->peer, bytes, length, 0), length);
	close(fixture->peer);
	fixture->peer = -1;
	assert_int_equal(net_stream_send(fixture->stream, "y", 1, NULL, NULL, 0), STATUS_OK);
	run_ms(fixture, 60000);
	assert_int_equal(fixture->closed, 1);
	assert_string_equal(fixture->heads, "farewell;");
	assert_true(strlen(fixture->why) > 0);
	assert_int_equal(fixture->drained, 0);
	free(body);
}

static void a_peer_that_does_not_read(void **state)
{
	struct fixture *fixture = *state;
	uint8_t *body = pattern(LIMIT_BODY_BYTES);
	struct net_frame *holder = net_frame_create(body, LIMIT_BODY_BYTES, false);
	assert_non_null(holder);
	size_t sent = 0;
	enum status status;
	while (!(status = net_stream_send(fixture->stream, "x", 1, holder, net_frame_data(holder), LIMIT_BODY_BYTES)))
		sent++;
	assert_int_equal(status, STATUS_LIMIT_EXCEEDED);
	assert_true(sent >= 3 && sent <= 6);
	size_t queued = net_stream_queued(fixture->stream);
	assert_true(queued <= LIMIT_STREAM_QUEUE_BYTES);
	assert_int_equal(net_stream_send(fixture->stream, "x", 1, holder, body, LIMIT_BODY_BYTES),
			 STATUS_LIMIT_EXCEEDED);
	assert_int_equal(net_stream_queued(fixture->stream), queued); // nothing of it was sent
	// Small ones are bounded by their number.
	size_t small = 0;
	while (!net_stream_send(fixture->stream, "x", 1, NULL, NULL, 0))
		small++;
	assert_true(small > 100 && small <= LIMIT_STREAM_QUEUE_PIECES);
	net_frame_unref(&holder);
	take_peer(fixture);
	run_to(fixture, sent + small);
	run_ms(fixture, 1);
	assert_int_equal(fixture->body_bytes, sent * LIMIT_BODY_BYTES);
	assert_int_equal(fixture->drained, 1);
	// Destroyed with a queue: the peer is told nothing but the end.
	assert_int_equal(net_stream_send(fixture->stream, "x", 1, NULL, body, LIMIT_BODY_BYTES), STATUS_OK);
	net_stream_destroy(&fixture->stream);
	assert_null(fixture->stream);
	run_ms(fixture, 60000);
	assert_int_equal(fixture->closed, 1);
	assert_string_equal(fixture->why, "the peer closed the stream");
	free(body);
}

static void put_off(void **state)
{
	struct fixture *fixture = *state;
	uint8_t *body = pattern(LIMIT_BODY_BYTES);
	take_peer(fixture);
	net_stream_pause(fixture->other);
	net_stream_pause(fixture->other);
	for (int i = 0; i < 2; i++)
		assert_int_equal(net_stream_send(fixture->stream, "x", 1, NULL, body, LIMIT_BODY_BYTES), STATUS_OK);
	run_ms(fixture, 20);
	assert_int_equal(fixture->messages, 0);
	size_t queued = net_stream_queued(fixture->stream);
	assert_true(queued > LIMIT_BODY_BYTES); // the socket alone took something
	net_stream_resume(fixture->other);
	run_ms(fixture, 20);
	assert_int_equal(net_stream_queued(fixture->stream), queued);
	// A peer that goes meanwhile is noticed when reading goes on; until then it does not keep the loop busy.
	net_stream_resume(fixture->other);
	run_to(fixture, 2);
	net_stream_pause(fixture->other);
	net_stream_destroy(&fixture->stream);
	run_ms(fixture, 20);
	assert_int_equal(fixture->closed, 0);
	net_stream_resume(fixture->other);
	run_ms(fixture, 60000);
	assert_int_equal(fixture->closed, 1);
	free(body);
}

static void destroyed_in_its_callbacks(void **state)
{
	struct fixture *fixture = *state;
	uint8_t bytes[64];
	size_t length = put_message(bytes, "one", NULL, 0);
	length += put_message(bytes + length, "two", NULL, 0);
	fixture->destroy_early = true;
	assert_int_equal(send(fixture->peer, bytes, length, 0), length);
	run_ms(fixture, 20);
	assert_string_equal(fixture->heads, "one;");
	assert_int_equal(fixture->closed, 0);
	assert_null(fixture->stream);
	tear_down(state);
	set_up(state);
	fixture = *state;
	fixture->destroy_early = true;
	close(fixture->peer);
	fixture->peer = -1;
	run_ms(fixture, 60000);
	assert_int_equal(fixture->closed, 1);
}

static void limits_of_a_message(void **state)
{
	struct fixture *fixture = *state;
	uint8_t byte = 0;
	assert_int_equal(net_stream_send(fixture->stream, "x", LIMIT_HEAD_BYTES + 1, NULL, NULL, 0),
			 STATUS_LIMIT_EXCEEDED);
	assert_int_equal(net_stream_send(fixture->stream, "x", 1, NULL, &byte, LIMIT_BODY_BYTES + 1),
			 STATUS_LIMIT_EXCEEDED);
	uint8_t bytes[64];
	assert_int_equal(recv(fixture->peer, bytes, sizeof bytes, 0), -1);
	assert_int_equal(errno, EAGAIN);
	// The largest head.
	uint8_t *head = malloc(LIMIT_HEAD_BYTES);
	assert_non_null(head);
	memset(head, ' ', LIMIT_HEAD_BYTES);
	take_peer(fixture);
	assert_int_equal(net_stream_send(fixture->stream, head, LIMIT_HEAD_BYTES, NULL, NULL, 0), STATUS_OK);
	run_to(fixture, 1);
	free(head);
	int file = open("/dev/null", O_RDONLY | O_CLOEXEC); // of no kind that can be watched
	struct net_stream *none;
	struct error error = {0};
	assert_int_equal(net_stream_create(&none, fixture->loop, file, &handler, fixture, &error), STATUS_UNAVAILABLE);
	assert_null(none);
	assert_int_equal(close(file), 0); // the caller's still
}

static void *on_accepted(void *context, struct net_stream *stream)
{
	struct fixture *fixture = context;
	net_loop_stop(fixture->loop);
	if (fixture->refuse)
		return NULL;
	fixture->other = stream;
	return fixture;
}

static int dial(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
	return fd;
}

static void the_socket_of_workers(void **state)
{
	struct fixture *fixture = *state;
	char folder[] = "/tmp/exogpu-stream-XXXXXX", path[64], longer[200];
	uint8_t bytes[64];
	struct stat file;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/" NET_STREAM_SOCKET, folder);
	struct net_stream_listener_params params = {
		.socket_path = path, .handler = &handler, .accepted = on_accepted, .context = fixture};
	// A dead server's socket is replaced.
	assert_int_equal(net_stream_listen(&fixture->listener, fixture->loop, &params, NULL), STATUS_OK);
	net_stream_listener_destroy(&fixture->listener);
	int left = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	close(left);
	assert_int_equal(net_stream_listen(&fixture->listener, fixture->loop, &params, NULL), STATUS_OK);
	assert_int_equal(stat(path, &file), 0);
	assert_true(S_ISSOCK(file.st_mode));
	assert_int_equal(file.st_mode & 0777, 0600);

	fixture->refuse = true;
	int fd = dial(path);
	run_ms(fixture, 60000);
	assert_int_equal(recv(fd, bytes, sizeof bytes, 0), 0); // hung up
	close(fd);
	fixture->refuse = false;
	fd = dial(path);
	run_ms(fixture, 60000);
	size_t length = put_message(bytes, "hello", NULL, 0);
	assert_int_equal(send(fd, bytes, length, 0), length);
	net_stream_listener_destroy(&fixture->listener); // open streams stay
	assert_int_equal(stat(path, &file), -1);
	run_to(fixture, 1);
	assert_string_equal(fixture->heads, "hello;");
	close(fd);
	assert_int_equal(rmdir(folder), 0);

	struct error error = {0};
	memset(longer, 'x', sizeof longer - 1);
	longer[0] = '/';
	longer[sizeof longer - 1] = 0;
	params.socket_path = longer;
	assert_int_equal(net_stream_listen(&fixture->listener, fixture->loop, &params, &error), STATUS_INVALID_PARAMS);
	assert_true(strlen(error.hint) > 0);
	params.socket_path = "/nowhere/at/all.sock";
	assert_int_not_equal(net_stream_listen(&fixture->listener, fixture->loop, &params, NULL), STATUS_OK);
	assert_null(fixture->listener);
}

static int count_open(void)
{
	int count = 0;
	for (int fd = 0; fd < 256; fd++)
		count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

// A message with `count` copies of a descriptor beside its bytes.
static void send_beside(struct fixture *fixture, const char *head, size_t count)
{
	enum { MOST = 8 };
	uint8_t bytes[64];
	union {
		struct cmsghdr align;
		uint8_t bytes[CMSG_SPACE(MOST * sizeof(int))];
	} beside = {.bytes = {0}};
	struct iovec part = {bytes, put_message(bytes, head, NULL, 0)};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = beside.bytes,
				 .msg_controllen = CMSG_SPACE(count * sizeof(int))};
	struct cmsghdr *one = CMSG_FIRSTHDR(&message);
	assert_true(count <= MOST);
	*one = (struct cmsghdr){
		.cmsg_len = CMSG_LEN(count * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
	for (size_t i = 0; i < count; i++)
		memcpy(CMSG_DATA(one) + i * sizeof(int), &(int){STDERR_FILENO}, sizeof(int));
	assert_int_equal(sendmsg(fixture->peer, &message, MSG_NOSIGNAL), (ssize_t)part.iov_len);
}

static void one_descriptor_is_kept(void **state)
{
	struct fixture *fixture = *state;
	const int before = count_open();
	for (size_t count = 1; count <= 5; count++) {
		fixture->messages = 0;
		send_beside(fixture, "with", count);
		send_beside(fixture, "again", count);
		run_to(fixture, 2);
		assert_int_equal(count_open(), before + 1);
		int fd = net_stream_take_fd(fixture->stream);
		assert_true(fd >= 0);
		close(fd);
		assert_int_equal(net_stream_take_fd(fixture->stream), -1);
	}
	assert_int_equal(count_open(), before);
}

// Of two streams that are read in one turn of the loop, the second waits for a few messages of the first, not for all.
static void slow_message(void *user, struct net_stream *stream, const uint8_t *head, size_t head_bytes,
			 struct net_frame *body)
{
	const int64_t until_ns = clock_steady_ns() + 20000;
	while (clock_steady_ns() < until_ns)
		; // as long as an answer takes
	on_message(user, stream, head, head_bytes, body);
}

static void late_message(void *user, struct net_stream *stream, const uint8_t *head, size_t head_bytes,
			 struct net_frame *body)
{
	struct fixture *fixture = user;
	(void)stream, (void)head, (void)head_bytes, (void)body;
	fixture->body_bytes = fixture->messages; // so many before this
	net_loop_stop(fixture->loop);
}

static void small_messages_by_turns(void **state)
{
	enum { MESSAGES = 256 };
	struct fixture *fixture = *state;
	static const struct net_stream_handler slow = {.message = slow_message, .closed = on_closed},
					       late = {.message = late_message, .closed = on_closed};
	uint8_t text[MESSAGES * 64];
	int busy[2], quiet[2];
	size_t bytes = 0, one = 0;
	for (int i = 0; i < MESSAGES; i++)
		bytes += one = put_message(text + bytes, "an answer that is as long as most are, and no longer", NULL,
					   0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, busy), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, quiet), 0);
	net_stream_destroy(&fixture->stream);
	assert_int_equal(net_stream_create(&fixture->stream, fixture->loop, busy[0], &slow, fixture, NULL), STATUS_OK);
	assert_int_equal(net_stream_create(&fixture->other, fixture->loop, quiet[0], &late, fixture, NULL), STATUS_OK);
	assert_int_equal(send(busy[1], text, bytes, 0), bytes);
	assert_int_equal(send(quiet[1], text, one, 0), one);
	net_loop_run(fixture->loop);
	print_message("%zu of %d messages came before another stream's\n", fixture->body_bytes, MESSAGES);
	assert_true(fixture->body_bytes < MESSAGES / 4);
	close(busy[1]);
	close(quiet[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(in_any_pieces, set_up, tear_down),
		cmocka_unit_test_setup_teardown(bodies_of_any_size, set_up, tear_down),
		cmocka_unit_test_setup_teardown(hostile_lengths, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_peer_goes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_peer_that_does_not_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(put_off, set_up, tear_down),
		cmocka_unit_test_setup_teardown(destroyed_in_its_callbacks, set_up, tear_down),
		cmocka_unit_test_setup_teardown(limits_of_a_message, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_socket_of_workers, set_up, tear_down),
		cmocka_unit_test_setup_teardown(one_descriptor_is_kept, set_up, tear_down),
		cmocka_unit_test_setup_teardown(small_messages_by_turns, set_up, tear_down),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
