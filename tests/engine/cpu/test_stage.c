/* The stages of the CPU back end pass the suite of all stages, at every level of vector instructions that this
 * processor has: each in a run of its own; with an argument, at that one. */
#include "engine/cpu/level.h"
#include "tests/engine/conformance/stage.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// Without an argument every level, with "plain" the plainest, with "vectors" all the others, or the level of that name.
static bool is_asked(size_t i, const struct cpu_level *level, const char *what)
{
	if (!what)
		return true;
	return !strcmp(what, "plain") ? !i : !strcmp(what, "vectors") ? i > 0 : !strcmp(what, level->name);
}

int main(int count, char **words)
{
	const struct cpu_level *level;
	int failed = 0;
	for (size_t i = 0; (level = cpu_level_get(i)); i++) {
		if (!is_asked(i, level, count > 1 ? words[1] : NULL))
			continue;
		printf("level %s\n", level->name);
		fflush(stdout);
		setenv("EXOGPU_CPU_LEVEL", level->name, 1);
		failed += stage_conformance_run("cpu");
	}
	return failed;
}
