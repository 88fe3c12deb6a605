/* Memory that a worker shares: what is put there arrives, blocks come back when the last frame is let go, descriptors
 * that are no such memory are refused, and what a hostile worker says of it is checked. */
#include "common/base/limits.h"
#include "common/net/shared.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MIB = 1024 * 1024, ALL = LIMIT_SHARED_BYTES, BLOCK = ALL / 64 };

struct ends {
	struct net_shared *worker, *server;
};

static int set_up(void **state)
{
	static struct ends ends;
	int fd;
	ends = (struct ends){0};
	assert_int_equal(net_shared_create(&ends.worker, &fd, NULL), STATUS_OK);
	assert_int_equal(net_shared_open(&ends.server, fd, NULL), STATUS_OK);
	*state = &ends;
	return 0;
}

static int tear_down(void **state)
{
	struct ends *ends = *state;
	net_shared_destroy(&ends->worker);
	net_shared_destroy(&ends->server);
	return 0;
}

static void bytes_arrive(void **state)
{
	struct ends *ends = *state;
	static const size_t sizes[] = {1, 65536, BLOCK, BLOCK + 1, 5 * MIB, ALL};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		uint64_t at = UINT64_MAX;
		uint8_t *to = net_shared_take(ends->worker, sizes[i], &at);
		assert_non_null(to);
		assert_int_equal(at, 0); // the first blocks again: what was sent is free
		memset(to, (int)i + 1, sizes[i]);
		struct net_frame *frame = net_shared_frame(ends->server, at, sizes[i]);
		assert_non_null(frame);
		assert_int_equal(net_frame_bytes(frame), sizes[i]);
		assert_int_equal(net_frame_data(frame)[0], i + 1);
		assert_int_equal(net_frame_data(frame)[sizes[i] - 1], i + 1);
		assert_int_equal(net_frame_prepend(frame, "x", 1), STATUS_LIMIT_EXCEEDED); // it is only read
		net_frame_unref(&frame);
	}
}

static void full_until_it_is_sent(void **state)
{
	struct ends *ends = *state;
	struct net_frame *frames[ALL / MIB];
	uint64_t at;
	assert_null(net_shared_take(ends->worker, 0, &at));
	assert_null(net_shared_take(ends->worker, ALL + 1, &at));
	for (unsigned i = 0; i < ALL / MIB; i++) {
		assert_non_null(net_shared_take(ends->worker, MIB, &at));
		assert_int_equal(at, i * MIB);
		assert_non_null(frames[i] = net_shared_frame(ends->server, at, MIB));
	}
	assert_null(net_shared_take(ends->worker, 1, &at));
	struct net_frame *second = net_frame_ref(frames[5]);
	net_frame_unref(&frames[5]);
	assert_null(net_shared_take(ends->worker, 1, &at)); // somebody holds it still
	struct net_frame *chain = net_frame_chain("head", 4, second);
	assert_int_equal(net_frame_bytes(chain), MIB + 4);
	assert_null(net_frame_chain("head", 4, chain));
	net_frame_unref(&second);
	assert_null(net_shared_take(ends->worker, 1, &at));
	net_frame_unref(&chain);
	assert_null(net_shared_take(ends->worker, MIB + 1, &at)); // it does not fit in between
	assert_non_null(net_shared_take(ends->worker, MIB, &at));
	assert_int_equal(at, 5 * MIB);
	net_shared_destroy(&ends->server); // the frames keep the memory
	for (unsigned i = 0; i < ALL / MIB; i++) {
		if (frames[i])
			assert_int_equal(net_frame_data(frames[i])[MIB - 1], 0);
		net_frame_unref(&frames[i]);
	}
}

static void ranges_are_checked(void **state)
{
	struct ends *ends = *state;
	static const struct {
		uint64_t at;
		size_t bytes;
	} wrong[] = {{0, 0},         {0, ALL + 1},    {ALL, 1},        {ALL - BLOCK, BLOCK + 1}, {1, 1},
		     {BLOCK - 1, 1}, {1ull << 63, 1}, {UINT64_MAX, 1}, {BLOCK, SIZE_MAX}};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_null(net_shared_frame(ends->server, wrong[i].at, wrong[i].bytes));
	struct net_frame *frame = net_shared_frame(ends->server, ALL - BLOCK, BLOCK);
	assert_non_null(frame);
	assert_int_equal(net_frame_data(frame)[BLOCK - 1], 0);
	net_frame_unref(&frame);
}

// It is closed, too.
static void refused(int fd)
{
	struct net_shared *shared = NULL;
	struct error error = {0};
	assert_int_equal(net_shared_open(&shared, fd, &error), STATUS_INVALID_PARAMS);
	assert_null(shared);
	assert_true(error.message[0]);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void other_descriptors(void **state)
{
	(void)state;
	int pipes[2], fd;
	struct net_shared *shared;
	assert_int_equal(pipe(pipes), 0);
	refused(pipes[0]);
	close(pipes[1]);
	refused(open("/dev/zero", O_RDWR));
	refused(memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	assert_int_equal(net_shared_create(&shared, &fd, NULL), STATUS_OK);
	struct stat file;
	assert_int_equal(fstat(fd, &file), 0);
	assert_int_equal(ftruncate(fd, file.st_size - 1), -1); // sealed
	net_shared_destroy(&shared);
	close(fd);
	int open_end = memfd_create("not sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(open_end, file.st_size), 0);
	refused(open_end);
	int half = memfd_create("sealed to half", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate(half, file.st_size / 2), 0);
	assert_int_equal(fcntl(half, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
	refused(half);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(bytes_arrive, set_up, tear_down),
		cmocka_unit_test_setup_teardown(full_until_it_is_sent, set_up, tear_down),
		cmocka_unit_test_setup_teardown(ranges_are_checked, set_up, tear_down),
		cmocka_unit_test(other_descriptors),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
