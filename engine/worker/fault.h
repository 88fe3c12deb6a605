/* Faults that tests inject into a worker, so that what must survive them is seen to survive them.
 *
 * EXOGPU_FAULT is a list of WHAT:BACKEND separated by commas, WHAT being enumerate-crash, enumerate-hang, verify-crash,
 * verify-hang or verify-corrupt. A release build (NDEBUG) has none of this: fault_injected is always false there. */
#pragma once
#include "engine/device/info.h"

bool fault_injected(const char *what, enum backend_kind backend);
// Crash (SIGSEGV) or hang if the list says so. `when` is "enumerate" or "verify".
void fault_strike(const char *when, enum backend_kind backend);
