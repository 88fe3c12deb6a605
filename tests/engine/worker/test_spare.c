/* A worker that waits for its session: what it does before, at, and after worker.bind, over the sockets that the node
 * and the server would have. */
#include "tests/engine/worker/worker_test.h"

#include <stdalign.h>
#include <sys/uio.h>

enum { LIMIT_BYTES = 1024 * 1024 };

#define NODE_CALL(worker, method, status, ...) CALL_STATUS(worker, (worker)->node, method, status, __VA_ARGS__)

// worker.bind, with the other end of the server's socket beside it.
static int bind_to(struct worker *worker, int stream)
{
	alignas(struct cmsghdr) uint8_t room[CMSG_SPACE(sizeof(stream))] = {0};
	struct buffer head, out;
	buffer_init(&head, LIMIT_HEAD_BYTES);
	buffer_init(&out, LIMIT_WORKER_MESSAGE_BYTES);
	buffer_printf(
		&head,
		"{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"worker.bind\",\"params\":{\"memory_limit_bytes\":%d}}",
		++worker->id, LIMIT_BYTES);
	assert_int_equal(message_encode_stream(&out, buffer_text(&head), head.length, NULL, 0), STATUS_OK);
	struct iovec part = {.iov_base = out.data, .iov_len = out.length};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
	struct cmsghdr *one = CMSG_FIRSTHDR(&message);
	*one = (struct cmsghdr){
		.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(stream))};
	memcpy(CMSG_DATA(one), &stream, sizeof(stream));
	assert_int_equal(sendmsg(worker->node, &message, MSG_NOSIGNAL), (ssize_t)out.length);
	buffer_finish(&head);
	buffer_finish(&out);
	return worker->id;
}

// In place of the stream that the worker was started with, which a spare leaves alone.
static int make_stream(struct worker *worker)
{
	struct timeval patience = {.tv_sec = 60};
	int pair[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	close(worker->server);
	worker->server = pair[0];
	return pair[1];
}

static void a_spare_has_one_session(void **state)
{
	struct worker worker;
	struct answer answer;
	char byte;
	(void)state;
	worker_start(&worker, NULL);
	NODE_CALL(&worker, "worker.open", STATUS_OK, "'backend':'cpu','cache_directory':null,'spare':true");
	NODE_CALL(&worker, "worker.warm", STATUS_NOT_FOUND, "'hardware_key':'none'");
	NODE_CALL(&worker, "worker.warm", STATUS_OK, "'hardware_key':'cpu'");
	NODE_CALL(&worker, "worker.warm", STATUS_OK, "'hardware_key':'cpu'");
	NODE_CALL(&worker, "worker.warm", STATUS_CONFLICT, "'hardware_key':'none'");
	NODE_CALL(&worker, "worker.ping", STATUS_OK, "%s", "");
	NODE_CALL(&worker, "memory.free", STATUS_METHOD_NOT_FOUND, "'handle':1");
	NODE_CALL(&worker, "worker.bind", STATUS_INVALID_REQUEST, "%s", ""); // without a stream
	// What comes by the descriptor that others get theirs by is nobody's.
	post(&worker, worker.server, "memory.allocate", NULL, 0, "'device':0,'handle':1,'bytes':4096");
	NODE_CALL(&worker, "worker.ping", STATUS_OK, "%s", "");
	assert_int_equal(recv(worker.server, &byte, 1, MSG_DONTWAIT), -1);

	const int stream = make_stream(&worker);
	int id = bind_to(&worker, stream);
	close(stream);
	expect(worker.node, &answer, id, "worker.bind", STATUS_OK);
	answer_finish(&answer);
	NODE_CALL(&worker, "worker.warm", STATUS_CONFLICT, "'hardware_key':'cpu'");
	NODE_CALL(&worker, "worker.bind", STATUS_CONFLICT, "%s", "");
	int others[2];
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, others), 0);
	id = bind_to(&worker, others[1]); // a second session is refused, and its stream closed
	close(others[1]);
	expect(worker.node, &answer, id, "worker.bind", STATUS_CONFLICT);
	answer_finish(&answer);
	NODE_CALL(&worker, "worker.device", STATUS_OK, "'device':3,'hardware_key':'cpu'");
	NODE_CALL(&worker, "worker.device", STATUS_OK, "'device':4,'hardware_key':'cpu'");
	// The limits are the session's.
	SERVER_CALL(&worker, "memory.allocate", STATUS_LIMIT_EXCEEDED, "'device':3,'handle':1,'bytes':%d",
		    LIMIT_BYTES + 1);
	SERVER_CALL(&worker, "memory.allocate", STATUS_OK, "'device':3,'handle':1,'bytes':%d", LIMIT_BYTES);
	SERVER_CALL(&worker, "memory.fill", STATUS_OK, "'handle':1,'offset':0,'bytes':%d,'value':7", LIMIT_BYTES);
	close(others[0]);
	assert_int_equal(worker_end(&worker, NULL, 0), 0);
}

// It ends with the node's socket, before and after it has a session.
static void a_spare_ends_with_its_node(void **state)
{
	struct worker worker;
	(void)state;
	worker_start(&worker, NULL);
	NODE_CALL(&worker, "worker.open", STATUS_OK, "'backend':'cpu','cache_directory':null,'spare':true");
	NODE_CALL(&worker, "worker.warm", STATUS_OK, "'hardware_key':'cpu'");
	assert_int_equal(worker_end(&worker, NULL, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_spare_has_one_session),
		cmocka_unit_test(a_spare_ends_with_its_node),
	};
	return cmocka_run_group_tests_name("worker/spare", tests, load_contract, drop_contract);
}
