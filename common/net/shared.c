/* See shared.h. The first blocks are taken first: they are in a cache still, and what was never used takes no memory.
 */
#include "common/net/shared.h"

#include "common/net/frame.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum {
	PAGE_BYTES = 4096,
	BLOCKS = 64, // a word has a bit for each
	BLOCK_BYTES = LIMIT_SHARED_BYTES / BLOCKS,
	DATA_BYTES = LIMIT_SHARED_BYTES,
	ALL_BYTES = PAGE_BYTES + DATA_BYTES,
	SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL,
};

struct net_shared {
	unsigned references; // the owner's and its frames'
	uint8_t *memory;     // (ALL_BYTES)
};

static _Atomic uint64_t *busy_of(struct net_shared *shared)
{
	return (_Atomic uint64_t *)(void *)shared->memory;
}

// The bits of `count` blocks from `first` on.
static uint64_t bits_of(unsigned first, unsigned count)
{
	return (count == BLOCKS ? UINT64_MAX : (1ull << count) - 1) << first;
}

static unsigned blocks_of(size_t bytes)
{
	return (unsigned)((bytes + BLOCK_BYTES - 1) / BLOCK_BYTES);
}

static enum status map(struct net_shared **out, int fd, struct error *error)
{
	struct net_shared *shared = malloc(sizeof *shared);
	void *memory = shared ? mmap(NULL, ALL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
	if (memory == MAP_FAILED) {
		free(shared);
		return error_errno(error, STATUS_UNAVAILABLE, errno, "mapping shared memory");
	}
	*shared = (struct net_shared){.references = 1, .memory = memory};
	*out = shared;
	return STATUS_OK;
}

enum status net_shared_create(struct net_shared **out, int *fd, struct error *error)
{
	*out = NULL;
	*fd = memfd_create("exogpu", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "making shared memory");
	enum status status = ftruncate(*fd, ALL_BYTES) || fcntl(*fd, F_ADD_SEALS, SEALS)
				     ? error_errno(error, STATUS_UNAVAILABLE, errno, "sealing shared memory")
				     : map(out, *fd, error);
	if (status) {
		close(*fd);
		*fd = -1;
	}
	return status;
}

uint8_t *net_shared_take(struct net_shared *shared, size_t bytes, uint64_t *at)
{
	const unsigned count = blocks_of(bytes);
	const uint64_t busy = atomic_load_explicit(busy_of(shared), memory_order_acquire);
	if (!bytes || bytes > DATA_BYTES)
		return NULL;
	for (unsigned first = 0; first + count <= BLOCKS; first++) {
		const uint64_t bits = bits_of(first, count);
		if (busy & bits)
			continue;
		atomic_fetch_or_explicit(busy_of(shared), bits, memory_order_relaxed);
		*at = (uint64_t)first * BLOCK_BYTES;
		return shared->memory + PAGE_BYTES + *at;
	}
	return NULL;
}

// What could end the server if it were read, memory whose size changes or that the system may fail to find, is not
// taken. Seals are asked for first: what has them is no file that somebody else answers for.
enum status net_shared_open(struct net_shared **out, int fd, struct error *error)
{
	struct stat file;
	struct statfs system;
	*out = NULL;
	const int seals = fcntl(fd, F_GET_SEALS);
	bool fits = seals >= 0 && (seals & SEALS) == SEALS && !fstat(fd, &file) && file.st_size == ALL_BYTES &&
		    !fstatfs(fd, &system) && system.f_type == TMPFS_MAGIC;
	enum status status = fits ? map(out, fd, error)
				  : error_set(error, STATUS_INVALID_PARAMS, "this is no memory that a worker shares");
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
	const unsigned first = (unsigned)((size_t)(bytes - shared->memory - PAGE_BYTES) / BLOCK_BYTES);
	atomic_fetch_and_explicit(busy_of(shared), ~bits_of(first, blocks_of(length)), memory_order_release);
	unref(shared);
}

struct net_frame *net_shared_frame(struct net_shared *shared, uint64_t at, size_t bytes)
{
	if (!bytes || at > DATA_BYTES || bytes > DATA_BYTES - at || at % BLOCK_BYTES)
		return NULL;
	struct net_frame *frame = net_frame_create_outside(&(struct net_frame_outside){
		.bytes = shared->memory + PAGE_BYTES + at, .length = bytes, .release = sent, .owner = shared});
	if (frame)
		shared->references++;
	return frame;
}

void net_shared_destroy(struct net_shared **shared)
{
	if (*shared)
		unref(*shared);
	*shared = NULL;
}
