/* Memory that a worker shares: what is put there arrives, blocks come back when the last frame is let go, and memory
 * that could end who reads it, because its size or its pages are not certain, is refused. */
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
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum { MIB = 1024 * 1024, ALL = LIMIT_SHARED_BYTES, BLOCK = ALL / 64, WHOLE = NET_SHARED_ALL_BYTES };

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
		struct net_frame *frame = net_shared_take(ends->server, sizes[i], &at);
		assert_non_null(frame);
		assert_int_equal(at, 0); // the first blocks again: what was sent is free
		assert_int_equal(net_frame_bytes(frame), sizes[i]);
		assert_true(net_shared_in_use(ends->server));
		memset(net_shared_at(ends->worker, at, sizes[i]), (int)i + 1, sizes[i]);
		assert_int_equal(net_frame_data(frame)[0], i + 1);
		assert_int_equal(net_frame_data(frame)[sizes[i] - 1], i + 1);
		assert_int_equal(net_frame_prepend(frame, "x", 1), STATUS_LIMIT_EXCEEDED); // there is no room
		memset(net_frame_data(frame), 100, sizes[i]);                              // and the other way
		assert_int_equal(net_shared_at(ends->worker, at, sizes[i])[sizes[i] - 1], 100);
		net_frame_unref(&frame);
		assert_false(net_shared_in_use(ends->server));
	}
}

static void full_until_it_is_sent(void **state)
{
	struct ends *ends = *state;
	struct net_frame *frames[ALL / MIB], *last;
	uint64_t at;
	assert_null(net_shared_take(ends->server, 0, &at));
	assert_null(net_shared_take(ends->server, ALL + 1, &at));
	for (unsigned i = 0; i < ALL / MIB; i++) {
		assert_non_null(frames[i] = net_shared_take(ends->server, MIB, &at));
		assert_int_equal(at, i * MIB);
	}
	assert_null(net_shared_take(ends->server, 1, &at));
	struct net_frame *second = net_frame_ref(frames[5]);
	net_frame_unref(&frames[5]);
	assert_null(net_shared_take(ends->server, 1, &at)); // somebody holds it still
	struct net_frame *chain = net_frame_chain("head", 4, second);
	assert_int_equal(net_frame_bytes(chain), MIB + 4);
	assert_null(net_frame_chain("head", 4, chain));
	net_frame_unref(&second);
	assert_null(net_shared_take(ends->server, 1, &at));
	net_frame_unref(&chain);
	assert_null(net_shared_take(ends->server, MIB + 1, &at)); // it does not fit in between
	assert_non_null(last = net_shared_take(ends->server, MIB, &at));
	assert_int_equal(at, 5 * MIB);
	net_shared_destroy(&ends->server); // the frames keep the memory
	for (unsigned i = 0; i < ALL / MIB; i++) {
		if (frames[i])
			assert_int_equal(net_frame_data(frames[i])[MIB - 1], 0);
		net_frame_unref(&frames[i]);
	}
	net_frame_unref(&last);
}

static void places_are_checked(void **state)
{
	struct ends *ends = *state;
	static const struct {
		uint64_t at;
		size_t bytes;
	} wrong[] = {{0, ALL + 1},    {ALL, 1},        {ALL - BLOCK, BLOCK + 1},
		     {1ull << 63, 1}, {UINT64_MAX, 1}, {BLOCK, SIZE_MAX}};
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_null(net_shared_at(ends->worker, wrong[i].at, wrong[i].bytes));
	net_shared_at(ends->worker, ALL - BLOCK, BLOCK)[BLOCK - 1] = 1;
}

static struct net_shared_note note_of(uint64_t call)
{
	return (struct net_shared_note){
		.call = call, .handle = call + 1, .offset = 1ull << 40 | call, .bytes = call * 3, .at = ~call};
}

static void put(struct net_shared *shared, uint64_t call, bool wakes)
{
	const struct net_shared_note note = note_of(call);
	assert_int_equal(net_shared_put(shared, &note), wakes);
}

static void got(struct net_shared *shared, uint64_t call)
{
	const struct net_shared_note wanted = note_of(call);
	struct net_shared_note note;
	assert_true(net_shared_get(shared, &note));
	assert_memory_equal(&note, &wanted, sizeof note);
}

// In order, each way by itself, and who is about to sleep is woken once.
static void notes_pass(void **state)
{
	struct ends *ends = *state;
	struct net_shared_note note;
	put(ends->server, 0, true); // neither looks before it knows of the first
	put(ends->worker, 0, true);
	got(ends->worker, 0);
	got(ends->server, 0);
	assert_false(net_shared_get(ends->worker, &note));
	put(ends->server, 1, false); // it looks before it sleeps
	assert_false(net_shared_wait(ends->worker));
	assert_false(net_shared_get(ends->server, &note)); // it is not its own
	got(ends->worker, 1);
	assert_false(net_shared_get(ends->worker, &note));
	assert_true(net_shared_wait(ends->worker));
	put(ends->server, 2, true);
	put(ends->server, 3, false); // it wakes already
	put(ends->worker, 7, false);
	got(ends->worker, 2);
	got(ends->worker, 3);
	got(ends->server, 7);
	assert_true(net_shared_wait(ends->worker));
	assert_false(net_shared_get(ends->worker, &note)); // it is awake again
	put(ends->server, 4, false);
	got(ends->worker, 4);
	for (uint64_t call = 0; call < 1000; call++) { // as many under way as there are blocks
		put(ends->server, call, false);
		if (call >= 63)
			got(ends->worker, call - 63);
	}
}

// The other end writes what it likes: nothing outside of the lane is read, and each note is whatever lies there.
static void notes_are_not_believed(void **state)
{
	struct ends *ends = *state;
	struct net_shared_note note;
	uint8_t *lanes = net_shared_at(ends->worker, 0, ALL) + ALL;
	put(ends->worker, 5, true);
	memset(lanes, 0xFF, WHOLE - ALL);
	for (int i = 0; i < 1000; i++) { // the worker says that there are four thousand millions
		assert_true(net_shared_get(ends->server, &note));
		assert_true(note.call == UINT64_MAX && note.at == UINT64_MAX);
	}
	const struct net_shared_note own = note_of(9);
	memset(lanes, 0xFF, WHOLE - ALL);
	assert_true(net_shared_put(ends->server, &own)); // that it sleeps
	assert_false(net_shared_put(ends->server, &own));
	assert_false(net_shared_wait(ends->server));
	const uint32_t back = 1; // and that there were fewer than have been taken out
	memcpy(lanes + (WHOLE - ALL) / 2, &back, sizeof back);
	assert_true(net_shared_get(ends->server, &note));
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

// Of `bytes`, of which `there` have pages, sealed so.
static int made(const char *what, size_t bytes, size_t there, int seals)
{
	print_message("%s\n", what);
	int fd = memfd_create(what, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	memset(memory, 1, there);
	munmap(memory, bytes);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void other_descriptors(void **state)
{
	(void)state;
	int pipes[2];
	struct net_shared *shared;
	assert_int_equal(pipe(pipes), 0);
	refused(pipes[0]);
	close(pipes[1]);
	refused(open("/dev/zero", O_RDWR));
	refused(made("it cannot be sealed any more", WHOLE, WHOLE, F_SEAL_SEAL));
	refused(made("it cannot be written to", WHOLE, WHOLE, F_SEAL_WRITE));
	refused(made("it cannot be mapped to write", WHOLE, WHOLE, F_SEAL_FUTURE_WRITE));
	refused(made("half as long", WHOLE / 2, WHOLE / 2, 0));
	refused(made("twice as long", 2 * WHOLE, 2 * WHOLE, 0));
	refused(made("a page is missing", WHOLE, WHOLE - 4096, 0));
	assert_int_equal(net_shared_open(&shared, made("as it should be", WHOLE, WHOLE, 0), NULL), STATUS_OK);
	net_shared_destroy(&shared);
}

// What could end who touches it does not come to be once the server has it: the size changed, or a page taken out, by
// whatever way. Nor does anybody else come to write there.
static void it_stays_as_it_is(void **state)
{
	(void)state;
	struct net_shared *shared, *server;
	int fd;
	assert_int_equal(net_shared_create(&shared, &fd, NULL), STATUS_OK);
	assert_int_equal(net_shared_open(&server, dup(fd), NULL), STATUS_OK);
	assert_int_equal(ftruncate(fd, WHOLE - 1), -1);
	assert_int_equal(ftruncate(fd, WHOLE + 1), -1);
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	assert_int_equal(madvise(net_shared_at(shared, 0, ALL), ALL, MADV_REMOVE), -1);
	assert_int_equal(lseek(fd, 0, SEEK_HOLE), WHOLE);
	assert_int_equal(pwrite(fd, "x", 1, 0), -1);
	assert_ptr_equal(mmap(NULL, WHOLE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	net_shared_at(shared, 0, ALL)[ALL - 1] = 7; // its maker does
	assert_int_equal(net_shared_at(server, 0, ALL)[ALL - 1], 7);
	net_shared_destroy(&shared);
	net_shared_destroy(&server);
	close(fd);
}

// Where the system finds no memory for it, or no descriptor, that is said, and nobody is ended.
static void there_is_none(void **state)
{
	(void)state;
	struct net_shared *shared;
	struct rlimit before, none;
	int fd;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	signal(SIGXFSZ, SIG_IGN);
	none = (struct rlimit){.rlim_cur = WHOLE / 2, .rlim_max = before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
	struct error error = {0};
	assert_int_equal(net_shared_create(&shared, &fd, &error), STATUS_UNAVAILABLE);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	print_message("%s\n", error.message);
	assert_null(shared);
	assert_int_equal(fd, -1);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	assert_int_equal(net_shared_create(&shared, &fd, NULL), STATUS_UNAVAILABLE);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(bytes_arrive, set_up, tear_down),
		cmocka_unit_test_setup_teardown(full_until_it_is_sent, set_up, tear_down),
		cmocka_unit_test_setup_teardown(places_are_checked, set_up, tear_down),
		cmocka_unit_test_setup_teardown(notes_pass, set_up, tear_down),
		cmocka_unit_test_setup_teardown(notes_are_not_believed, set_up, tear_down),
		cmocka_unit_test(other_descriptors),
		cmocka_unit_test(it_stays_as_it_is),
		cmocka_unit_test(there_is_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
