/* See level.h. */
#include "engine/cpu/level.h"

#include <stdio.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

// Tiles of bf16: the processor has them and Linux lets this process use them, which has to be asked for.
static bool has_amx(void)
{
	enum { REQUEST = 0x1023, TILE_DATA = 18, LEAF = 7, BF16 = 1 << 22, TILE = 1 << 24 };
	unsigned a, b, c, d;
	return __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) && (d & BF16) && (d & TILE) &&
	       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
	       __builtin_cpu_supports("avx512vnni") && !syscall(SYS_arch_prctl, REQUEST, TILE_DATA);
}
#endif

enum { LEVELS = 4 };

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
	if (count == 3 && has_amx())
		levels[count++] = &cpu_level_amx;
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
