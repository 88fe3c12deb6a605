/* See fault.h. */
#include "engine/worker/fault.h"

#ifdef NDEBUG

bool fault_injected(const char *what, enum backend_kind backend)
{
	(void)what, (void)backend;
	return false;
}

void fault_strike(const char *when, enum backend_kind backend)
{
	(void)when, (void)backend;
}

void fault_cut(enum backend_kind backend, int model_fd)
{
	(void)backend, (void)model_fd;
}

#else

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool fault_injected(const char *what, enum backend_kind backend)
{
	const char *list = getenv("EXOGPU_FAULT");
	char word[64];
	int length = snprintf(word, sizeof(word), "%s:%s", what, backend_kind_name(backend));
	while (list && *list) {
		size_t item = strcspn(list, ",");
		if (item == (size_t)length && !strncmp(list, word, item))
			return true;
		list += item + (list[item] == ',');
	}
	return false;
}

void fault_cut(enum backend_kind backend, int model_fd)
{
	struct stat info;
	if (!fault_injected("open-cut", backend) || fstat(model_fd, &info))
		return;
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), at = ((size_t)info.st_size / page + 1) * page;
	const volatile char *bytes = mmap(NULL, at + page, PROT_READ, MAP_SHARED, model_fd, 0);
	(void)bytes[at];
}

static void touch_nothing(void)
{
	const volatile char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	(void)*page;
}

void fault_strike(const char *when, enum backend_kind backend)
{
	char what[64];
	snprintf(what, sizeof(what), "%s-crash", when);
	if (fault_injected(what, backend)) {
		fprintf(stderr, "EXOGPU_FAULT: crashing in %s of %s\n", when, backend_kind_name(backend));
		signal(SIGSEGV, SIG_DFL); // a sanitizer's handler would end it in another way
		touch_nothing();          // process 1 of a namespace gets no signal that it raises itself
	}
	snprintf(what, sizeof(what), "%s-hang", when);
	while (fault_injected(what, backend))
		pause();
}

#endif
