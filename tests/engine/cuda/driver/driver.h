/* Between the two files of the library that stands for the CUDA driver. */
#pragma once
#include "tests/engine/cuda/strike.h"

extern struct strikes strikes; // ours, whatever else is loaded
// Note what the caller did that it may not.
void strike_wrong(const char *text, ...) __attribute__((format(printf, 1, 2)));

// The functions of the stand-in.
void standin_fill(struct cuda *driver);
// All work that is enqueued will never be done.
void standin_drop(void);
