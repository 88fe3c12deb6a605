/* Which names find which entry. */
#include "engine/device/datasheet.h"

// cmocka.h needs these before it.
// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on

#include <string.h>

static void names_find_their_entry(void **state)
{
	static const struct {
		const char *device, *entry;
	} cases[] = {
		{"NVIDIA H200", "H200"},
		{"NVIDIA L40S", "L40S"},
		{"NVIDIA L4", "L4"},
		{"NVIDIA GeForce RTX 4090", "RTX 4090"},
		{"AMD Radeon RX 7900 XTX (RADV NAVI31)", "RX 7900 XTX"},
		{"AMD Radeon RX 7900 XT (RADV NAVI31)", "RX 7900 XT"},
		{"NVIDIA L400", NULL},
		{"llvmpipe (LLVM 15.0.6, 256 bits)", NULL},
		{"", NULL},
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const struct datasheet *found = datasheet_find(cases[i].device);
		if (!found != !cases[i].entry || (found && strcmp(found->name, cases[i].entry) != 0))
			fail_msg("%s finds %s, not %s", cases[i].device, found ? found->name : "nothing",
				 cases[i].entry ? cases[i].entry : "nothing");
		if (found && (found->memory_bytes_per_s < 1e11 || found->f32_flops_per_s < 1e12))
			fail_msg("%s: figures in the wrong unit", found->name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(names_find_their_entry)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
