/* See shared.h. The first blocks are taken first: they are in a cache still. */
#include "common/net/shared.h"

#include "common/net/frame.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 // Linux 5.1, newer than some headers
#endif

enum {
	BLOCKS = 64, // a word has a bit for each
	BLOCK_BYTES = LIMIT_SHARED_BYTES / BLOCKS,
	BLOCKS_BYTES = LIMIT_SHARED_BYTES,
	ALL_BYTES = NET_SHARED_ALL_BYTES,
	LANE_BYTES = (ALL_BYTES - BLOCKS_BYTES) / 2,
	NOTE_WORDS = 5,
	SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_FUTURE_WRITE,
};

// The layout in shared memory. The other end may change all of it at any time.
struct lane {
	_Atomic uint32_t count, waits;
	alignas(64) _Atomic uint64_t notes[NET_SHARED_NOTES][NOTE_WORDS];
};
static_assert(sizeof(struct lane) <= LANE_BYTES, "a lane has its page");
static_assert(NET_SHARED_NOTES >= BLOCKS, "each has a block");
static_assert(sizeof(struct net_shared_note) == NOTE_WORDS * sizeof(uint64_t), "a note is its words");

struct net_shared {
	unsigned references;   // the owner's and its frames'
	uint64_t busy;         // a bit for each block that a frame has
	uint8_t *memory;       // (ALL_BYTES)
	struct lane *in, *out; // in it
	uint32_t got, put;     // notes, of `in` and `out`
};

// The bits of `count` blocks from `first` on.
static uint64_t bits_of(unsigned first, unsigned count)
{
	return (count == BLOCKS ? UINT64_MAX : (1ull << count) - 1) << first;
}

static unsigned blocks_of(size_t bytes)
{
	return (unsigned)((bytes + BLOCK_BYTES - 1) / BLOCK_BYTES);
}

static enum status map(struct net_shared **out, int fd, bool worker, struct error *error)
{
	struct net_shared *shared = malloc(sizeof *shared);
	void *memory = shared ? mmap(NULL, ALL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0)
			      : MAP_FAILED;
	if (memory == MAP_FAILED) {
		free(shared);
		return error_errno(error, STATUS_UNAVAILABLE, errno, "mapping shared memory");
	}
	struct lane *to_worker = (struct lane *)((uint8_t *)memory + BLOCKS_BYTES);
	struct lane *to_server = (struct lane *)((uint8_t *)memory + BLOCKS_BYTES + LANE_BYTES);
	*shared = (struct net_shared){.references = 1,
				      .memory = memory,
				      .in = worker ? to_worker : to_server,
				      .out = worker ? to_server : to_worker};
	*out = shared;
	return STATUS_OK;
}

// The pages are there before they are mapped. Both ends are woken by the first note: they cannot know when to look.
enum status net_shared_create(struct net_shared **out, int *fd, struct error *error)
{
	*out = NULL;
	*fd = memfd_create("exogpu", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "making shared memory");
	enum status status = STATUS_OK;
	if (ftruncate(*fd, ALL_BYTES) || fallocate(*fd, 0, 0, ALL_BYTES))
		status = error_errno(error, STATUS_UNAVAILABLE, errno, "finding shared memory");
	if (!status)
		status = map(out, *fd, true, error);
	if (status) {
		close(*fd);
		*fd = -1;
		return status;
	}
	atomic_store(&(*out)->in->waits, 1);
	atomic_store(&(*out)->out->waits, 1);
	return STATUS_OK;
}

uint8_t *net_shared_at(struct net_shared *shared, uint64_t at, size_t bytes)
{
	return at <= BLOCKS_BYTES && bytes <= BLOCKS_BYTES - at ? shared->memory + at : NULL;
}

struct net_shared *net_shared_ref(struct net_shared *shared)
{
	shared->references++;
	return shared;
}

// Checks that the memory has its required size and no hole.
static bool is_whole(int fd)
{
	struct stat file;
	return !fstat(fd, &file) && file.st_size == ALL_BYTES && lseek(fd, 0, SEEK_HOLE) == ALL_BYTES;
}

// What could end the server if it were touched, memory whose size changes or that the system may fail to find, is not
// taken. It is mapped before it is sealed, since nobody can map it to write after, and looked at once more then, when
// it cannot change any more. Seals are asked for first: what knows them is no file that somebody else answers for.
enum status net_shared_open(struct net_shared **out, int fd, struct error *error)
{
	struct statfs system;
	*out = NULL;
	const int seals = fcntl(fd, F_GET_SEALS);
	bool fits = seals >= 0 && !(seals & (F_SEAL_SEAL | F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) &&
		    !fstatfs(fd, &system) && system.f_type == TMPFS_MAGIC && is_whole(fd);
	enum status status = fits ? map(out, fd, false, error) : STATUS_INVALID_PARAMS;
	if (!status && (fcntl(fd, F_ADD_SEALS, SEALS) || !is_whole(fd)))
		status = STATUS_INVALID_PARAMS;
	if (status == STATUS_INVALID_PARAMS) {
		net_shared_destroy(out);
		error_set(error, status, "this is no memory that a worker shares");
	}
	close(fd);
	return status;
}

static void unref(struct net_shared *shared)
{
	if (--shared->references)
		return;
	munmap(shared->memory, ALL_BYTES);
	free(shared);
}

static void sent(void *owner, const uint8_t *bytes, size_t length)
{
	struct net_shared *shared = owner;
	shared->busy &= ~bits_of((unsigned)((size_t)(bytes - shared->memory) / BLOCK_BYTES), blocks_of(length));
	unref(shared);
}

struct net_frame *net_shared_take(struct net_shared *shared, size_t bytes, uint64_t *at)
{
	if (!bytes || bytes > BLOCKS_BYTES)
		return NULL;
	const unsigned count = blocks_of(bytes);
	unsigned first = 0;
	while (first + count <= BLOCKS && shared->busy & bits_of(first, count))
		first++;
	if (first + count > BLOCKS)
		return NULL;
	*at = (uint64_t)first * BLOCK_BYTES;
	struct net_frame *frame = net_frame_create_outside(&(struct net_frame_outside){
		.bytes = shared->memory + *at, .length = bytes, .release = sent, .owner = shared});
	if (!frame)
		return NULL;
	shared->busy |= bits_of(first, count);
	shared->references++;
	return frame;
}

bool net_shared_in_use(const struct net_shared *shared)
{
	return shared->busy;
}

bool net_shared_put(struct net_shared *shared, const struct net_shared_note *note)
{
	struct lane *lane = shared->out;
	uint64_t words[NOTE_WORDS];
	memcpy(words, note, sizeof words);
	for (int i = 0; i < NOTE_WORDS; i++)
		atomic_store_explicit(&lane->notes[shared->put % NET_SHARED_NOTES][i], words[i], memory_order_relaxed);
	atomic_store(&lane->count, ++shared->put); // either this is seen by net_shared_wait, or `waits` is seen here
	return atomic_load(&lane->waits) && atomic_exchange(&lane->waits, 0);
}

bool net_shared_get(struct net_shared *shared, struct net_shared_note *note)
{
	struct lane *lane = shared->in;
	uint64_t words[NOTE_WORDS];
	if (atomic_load_explicit(&lane->waits, memory_order_relaxed))
		atomic_store_explicit(&lane->waits, 0, memory_order_relaxed);
	if (atomic_load_explicit(&lane->count, memory_order_acquire) == shared->got)
		return false;
	for (int i = 0; i < NOTE_WORDS; i++)
		words[i] = atomic_load_explicit(&lane->notes[shared->got % NET_SHARED_NOTES][i], memory_order_relaxed);
	memcpy(note, words, sizeof words);
	shared->got++;
	return true;
}

bool net_shared_noted(const struct net_shared *shared)
{
	return atomic_load_explicit(&shared->in->count, memory_order_relaxed) != shared->got;
}

bool net_shared_wait(struct net_shared *shared)
{
	struct lane *lane = shared->in;
	atomic_store(&lane->waits, 1);
	return atomic_load(&lane->count) == shared->got;
}

void net_shared_destroy(struct net_shared **shared)
{
	if (*shared)
		unref(*shared);
	*shared = NULL;
}
