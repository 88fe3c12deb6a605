/* See level.h. */
#include "engine/cpu/level.h"

#include <stdio.h>
#include <string.h>

enum { LEVELS = 3 };

const struct cpu_level *cpu_level_get(size_t index)
{
	const struct cpu_level *levels[LEVELS + 1] = {&cpu_level_scalar};
	size_t count = 1;
#if defined(__x86_64__)
	// The compiler's own check, which also asks whether the system saves these registers.
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		levels[count++] = &cpu_level_avx2;
	if (count == 2 && __builtin_cpu_supports("avx512f"))
		levels[count++] = &cpu_level_avx512;
#elif defined(__aarch64__)
	levels[count++] = &cpu_level_neon;
#endif
	return index < count ? levels[index] : NULL;
}

enum status cpu_level_choose(const struct cpu_level **out, const char *name, struct error *error)
{
	const struct cpu_level *level, *chosen = NULL;
	char names[64] = "";
	for (size_t i = 0; (level = cpu_level_get(i)); i++) {
		size_t used = strlen(names);
		if (!name || !strcmp(name, level->name))
			chosen = level;
		snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "", level->name);
	}
	*out = chosen;
	if (chosen)
		return STATUS_OK;
	error_set(error, STATUS_INVALID_PARAMS, "EXOGPU_CPU_LEVEL is %.32s; this processor has %s", name, names);
	error_hint(error, "leave it unset for the best");
	return STATUS_INVALID_PARAMS;
}
