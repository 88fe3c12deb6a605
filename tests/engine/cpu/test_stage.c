/* The stages of the CPU back end pass the suite of all stages, at every level of vector instructions that this
 * processor has: each in a run of its own; with an argument, at that one. */
#include "engine/cpu/level.h"
#include "tests/engine/conformance/stage.h"

#include <stdlib.h>
#include <string.h>

// Those of vectors are compiled without sanitizers' checks, which would find nothing there.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const bool plain_only = true;
#else
static const bool plain_only = false;
#endif

int main(int count, char **words)
{
	const struct cpu_level *level;
	int failed = 0;
	for (size_t i = 0; (level = cpu_level_get(i)); i++) {
		if (count > 1 ? strcmp(words[1], level->name) != 0 : plain_only && i)
			continue;
		printf("level %s\n", level->name);
		fflush(stdout);
		setenv("EXOGPU_CPU_LEVEL", level->name, 1);
		failed += stage_conformance_run("cpu");
	}
	return failed;
}
