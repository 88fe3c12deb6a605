/* Faults that tests inject into a worker, to show that exogpu survives them.
 *
 * EXOGPU_FAULT is a list of WHAT:BACKEND separated by commas. WHAT is one of
 *
 *     enumerate-crash, enumerate-hang, verify-crash, verify-hang, verify-corrupt, peers-crash, peers-hang, open-crash,
 *     open-hang, launch-hang, launch-lost
 *     step-crash, step-hang, step-lost   of a model instance, with a request
 *     step-wrong     of a part, in every step
 *     peer-refused   for cuda only: engine/cuda/loader.c
 *     pieces         transfers of a session that could be in place go by pieces, too
 *     import         with pieces: a processor copies to shared memory, as a GPU does
 *     look           look for doorbells even on a machine with few processors
 *     open-cut       a model's file is read beyond its end
 *     escape         try to leave the sandbox: confine/escape.c
 *     listed         hold a driver that was not observed to the list of allowed calls, to see what it calls
 *
 * A release build (NDEBUG) has none of this: fault_injected is always false there. */
#pragma once
#include "engine/device/info.h"

bool fault_injected(const char *what, enum backend_kind backend);
// Crash (SIGSEGV) or hang if the list contains it. `when` is "enumerate", "verify", "peers", "open", "launch" or
// "step".
void fault_strike(const char *when, enum backend_kind backend);
// "open-cut": what a model's file does that was cut off while it was in use.
void fault_cut(enum backend_kind backend, int model_fd);
// "escape": try what the sandbox is to prevent (escape.c), and print a line for each attempt to standard error:
// `escape: WHAT: ` and "allowed" or the errno's text. `cache_directory` may be NULL.
void fault_escape(enum backend_kind backend, const char *cache_directory);
