/* See mapping.h. The handler calls mmap and sigaction alone, which are plain system calls. */
#include "engine/model/mapping.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

static uint8_t *_Atomic guarded; // NULL: none
static size_t guarded_bytes;
static uintptr_t page_bytes;
static atomic_bool cut;
static struct sigaction before;

static void on_bus(int number, siginfo_t *info, void *context)
{
	uint8_t *start = atomic_load(&guarded), *at = info->si_addr;
	(void)number, (void)context;
	if (start && at >= start && at < start + guarded_bytes) {
		at -= (uintptr_t)at % page_bytes;
		size_t left = (size_t)(start + guarded_bytes - at);
		if (mmap(at, left, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == at) {
			atomic_store(&cut, true);
			return; // and reads again
		}
	}
	sigaction(SIGBUS, &before, NULL); // comes again, and is somebody else's
}

void mapping_guard(const uint8_t *start, size_t length)
{
	struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	if (atomic_load(&guarded))
		return;
	page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
	guarded_bytes = length;
	atomic_store(&cut, false);
	sigemptyset(&action.sa_mask);
	atomic_store(&guarded, (uint8_t *)(uintptr_t)start);
	if (sigaction(SIGBUS, &action, &before))
		atomic_store(&guarded, NULL);
}

void mapping_release(const uint8_t *start)
{
	if (!start || atomic_load(&guarded) != start)
		return;
	sigaction(SIGBUS, &before, NULL);
	atomic_store(&guarded, NULL);
}

bool mapping_cut(const uint8_t *start)
{
	return start && atomic_load(&guarded) == start && atomic_load(&cut);
}
