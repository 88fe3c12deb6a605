/* Faults that tests inject into a worker, so that what must survive them is seen to survive them.
 *
 * EXOGPU_FAULT is a list of WHAT:BACKEND separated by commas, WHAT being enumerate-crash, enumerate-hang, verify-crash,
 * verify-hang, verify-corrupt, peers-crash, peers-hang, open-crash, open-hang, launch-hang, launch-lost, step-crash,
 * step-hang, step-lost (a model instance's, with a request), step-wrong (of a part, in every step), peer-refused (of
 * cuda only: engine/cuda/loader.c), pieces (which transfers of a session go by, even where they could be in place),
 * import (with pieces: a processor copies to shared memory as a GPU does), look (for notes, however few processors
 * there are), open-cut (a model's file is read beyond its end), escape, or listed (a driver that has not been seen at
 * work is held to the list of what is allowed, and so shows what it calls). A release build (NDEBUG) has none of this:
 * fault_injected is always false there. */
#pragma once
#include "engine/device/info.h"

bool fault_injected(const char *what, enum backend_kind backend);
// Crash (SIGSEGV) or hang if the list says so. `when` is "enumerate", "verify", "peers", "open", "launch" or
// "step".
void fault_strike(const char *when, enum backend_kind backend);
// "open-cut": what a model's file does that was cut off while it was in use.
void fault_cut(enum backend_kind backend, int model_fd);
// "escape": try what the sandbox is to prevent (escape.c), and print a line for each attempt to standard error:
// `escape: WHAT: ` and "allowed" or the errno's text. `cache_directory` may be NULL.
void fault_escape(enum backend_kind backend, const char *cache_directory);
