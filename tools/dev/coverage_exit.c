/* Linked into the coverage build only (./dev coverage): a process that leaves with _exit, as workers do, writes its
 * counts of lines first. The linker sends calls of _exit here (--wrap=_exit). */
#include <stdnoreturn.h>

void __gcov_dump(void);
noreturn void __real__exit(int status);
noreturn void __wrap__exit(int status);

noreturn void __wrap__exit(int status)
{
	__gcov_dump();
	__real__exit(status);
}
