/* The stages of the CPU back end pass the suite of all stages, at every level of vector instructions that this
 * processor has: each in a run of its own. */
#include "engine/cpu/level.h"
#include "tests/engine/conformance/stage.h"

int main(void)
{
	const struct cpu_level *level;
	int failed = 0;
	for (size_t i = 0; (level = cpu_level_get(i)); i++) {
		printf("level %s\n", level->name);
		fflush(stdout);
		setenv("EXOGPU_CPU_LEVEL", level->name, 1);
		failed += stage_conformance_run("cpu");
	}
	return failed;
}
