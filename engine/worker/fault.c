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

#else

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

void fault_strike(const char *when, enum backend_kind backend)
{
	char what[64];
	snprintf(what, sizeof(what), "%s-crash", when);
	if (fault_injected(what, backend)) {
		fprintf(stderr, "EXOGPU_FAULT: crashing in %s of %s\n", when, backend_kind_name(backend));
		signal(SIGSEGV, SIG_DFL); // a sanitizer's handler would end it in another way
		raise(SIGSEGV);
	}
	snprintf(what, sizeof(what), "%s-hang", when);
	while (fault_injected(what, backend))
		pause();
}

#endif
