/* Emulates a slower device, for tests and benches of how unlike devices share work: in builds with assertions a step
 * ends no sooner than a table says, and all that it computes is real. EXOGPU_TEST_PACE is that table, "ROWS:MS,...":
 * what a step of the whole model with so many rows takes, with ascending rows; linear between them, and per row beyond
 * the last. Without it, and in other builds, nothing waits. Thread: any. */
#pragma once
#include <stdint.h>

// Wait until a step that began at began_ns (steady) has taken its time; `share`: of the model's layers, 0 to 1.
void stage_pace(int64_t began_ns, uint32_t rows, double share);
