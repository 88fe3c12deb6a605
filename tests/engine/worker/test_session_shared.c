/* What a session's worker answers to a server that takes bodies from shared memory: on the CPU, whose memory is sent as
 * it is, and on a Vulkan device, from which it comes in pieces; and what it does when there is no room. */
#include "common/net/shared.h"
#include "tests/engine/worker/worker_test.h"

#include <stdalign.h>

enum { MIB = 1024 * 1024, SIZE = 5 * MIB + 7, MOST = 16 * MIB, FILL = 90 };

static char vulkan_key[257]; // "" where there is no Vulkan device

// The total that stands before an answer, and the descriptor that came with it: -1 if none did.
static uint32_t receive_total(int fd, int *passed)
{
	uint32_t total = 0; // the tests run on little-endian machines, like the program
	alignas(struct cmsghdr) uint8_t room[CMSG_SPACE(sizeof *passed)];
	struct iovec part = {&total, sizeof total};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
	assert_int_equal(recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL), sizeof total);
	struct cmsghdr *one = CMSG_FIRSTHDR(&message);
	*passed = -1;
	if (one && one->cmsg_level == SOL_SOCKET && one->cmsg_type == SCM_RIGHTS)
		memcpy(passed, CMSG_DATA(one), sizeof *passed);
	return total;
}

// Read `bytes` that are all FILL. Returns the frame that they lie in, the memory in *shared; NULL: they came as a body.
static struct net_frame *read_shared(struct worker *worker, struct net_shared **shared, size_t bytes)
{
	struct message message;
	struct error error = {0};
	int passed;
	struct net_frame *frame = NULL;
	post(worker, worker->server, "memory.read", NULL, 0, "'handle':1,'offset':1,'bytes':%zu,'shared':true", bytes);
	uint32_t total = receive_total(worker->server, &passed);
	uint8_t *text = malloc(total);
	assert_non_null(text);
	assert_true(receive_bytes(worker->server, text, total));
	assert_int_equal(message_decode(&message, text, total, NULL), STATUS_OK);
	contract_check_result(contract, contract_find(contract, "memory.read"), message.result, &error);
	assert_string_equal(error.message, "");
	assert_int_equal(json_get_integer(message.result, "bytes", -1), bytes);
	const int64_t at = json_get_integer(message.result, "at", -1);
	assert_int_equal(message.body_bytes, at < 0 ? bytes : 0);
	assert_int_equal(passed >= 0, at >= 0 && !*shared); // with the first of them
	if (passed >= 0)
		assert_int_equal(net_shared_open(shared, passed, NULL), STATUS_OK);
	if (at >= 0)
		assert_non_null(frame = net_shared_frame(*shared, (uint64_t)at, bytes));
	const uint8_t *data = frame ? net_frame_data(frame) : message.body;
	for (size_t i = 0; i < bytes; i++)
		if (data[i] != FILL)
			fail_msg("byte %zu of %zu is %d", i, bytes, data[i]);
	message_finish(&message);
	free(text);
	return frame;
}

static void reads_of(const char *backend, const char *key)
{
	struct worker worker;
	struct net_shared *shared = NULL;
	struct net_frame *held[2], *frame;
	worker_open(&worker, NULL, backend, key);
	SERVER_CALL(&worker, "memory.allocate", STATUS_OK, "'device':0,'handle':1,'bytes':%d", MOST + 1);
	SERVER_CALL(&worker, "memory.fill", STATUS_OK, "'handle':1,'offset':0,'bytes':%d,'value':%d", MOST + 1, FILL);
	assert_null(frame = read_shared(&worker, &shared, 0));
	for (int i = 0; i < 20; i++) { // more than there is room for, but each is let go
		assert_non_null(frame = read_shared(&worker, &shared, i ? SIZE : 1));
		net_frame_unref(&frame);
	}
	for (int i = 0; i < 2; i++)
		assert_non_null(held[i] = read_shared(&worker, &shared, MOST));
	assert_null(read_shared(&worker, &shared, SIZE)); // full: by the socket
	net_frame_unref(&held[0]);
	assert_non_null(frame = read_shared(&worker, &shared, SIZE));
	SERVER_CALL(&worker, "memory.read", STATUS_INVALID_PARAMS, "'handle':1,'offset':%d,'bytes':2,'shared':true",
		    MOST);
	SERVER_CALL(&worker, "memory.fill", STATUS_OK, "'handle':1,'offset':0,'bytes':%d,'value':1", MOST);
	assert_int_equal(net_frame_data(frame)[SIZE - 1], FILL); // what was read is not changed by what comes after
	net_frame_unref(&frame);
	net_frame_unref(&held[1]);
	net_shared_destroy(&shared);
	assert_int_equal(worker_end(&worker, NULL, 0), 0);
}

static void on_the_processor(void **state)
{
	(void)state;
	reads_of("cpu", "cpu");
}

static void in_pieces(void **state)
{
	(void)state;
	if (!vulkan_key[0])
		skip();
	reads_of("vulkan", vulkan_key);
}

static int find_devices(void **state)
{
	struct worker worker;
	struct answer answer;
	if (load_contract(state))
		return 1;
	worker_start(&worker, NULL);
	int id = post(&worker, worker.node, "worker.enumerate", NULL, 0, "'backend':'vulkan'");
	expect(worker.node, &answer, id, "worker.enumerate", STATUS_OK);
	const struct json *device = json_first(json_get(answer.message.result, "devices"));
	snprintf(vulkan_key, sizeof(vulkan_key), "%s", json_get_string(device, "hardware_key", ""));
	answer_finish(&answer);
	worker_end(&worker, NULL, 0);
	if (!vulkan_key[0])
		print_message("skipped: no Vulkan device here, not even llvmpipe (apt-get install "
			      "mesa-vulkan-drivers)\n");
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(on_the_processor),
		cmocka_unit_test(in_pieces),
	};
	return cmocka_run_group_tests_name("worker/session_shared", tests, find_devices, drop_contract);
}
