/* The calls between a test and the stand-in for the CUDA driver (driver/struck.c).
 *
 * The test loads that library before anything asks for the driver: it bears the driver's name (libcuda.so.1 as its
 * soname), so that is what the back end finds, without a change. */
#pragma once
#include "engine/cuda/loader.h"

struct strikes {
	long countdown; // calls until one fails; < 0: none does
	CUresult result;
	bool sticky;            // from then on everything fails, as after an illegal address
	const char *struck;     // the call that failed
	bool lost;              // a sticky one has failed
	const char *after_loss; // work that was asked for all the same
	char wrong[240];        // what the caller did that it may not, or left behind; the first of it
	bool real;              // the driver behind is NVIDIA's; else the stand-in (driver/standin.c), which
				// computes nothing
	int capability;         // of the stand-in's devices, 80 or 90; for the test to set
	const char *name;       // each call of this function fails with `result`; NULL: none does. For the test to set
	long named;             // how many have
	// Of the stand-in:
	bool computes;                           // the kernel that verifies
	bool hangs;                              // nothing that is enqueued is ever done; for the test to set
	long asked, turns;                       // how often a stream was asked, and another one than the time before
	uint64_t copied_bytes[2], copied_sum[2]; // by streams from the host's memory to each device; sum of the bytes
};

// How fast the stand-in's copies are by its clock.
#define STANDIN_PEER_BYTES_PER_NS 400.0
#define STANDIN_STAGED_BYTES_PER_NS 16.0
#define STANDIN_MEMORY_BYTES_PER_NS 2000.0
#define STANDIN_HOST_BYTES_PER_NS 50.0

// In the environment of a program: the library stands for the driver there from the beginning, without a test to open
// it, with two devices of this capability (90).
#define STANDIN_ALONE "CUDA_STANDIN"

#define STRIKE_EXPORT __attribute__((visibility("default")))
// driver: the file of NVIDIA's library, or NULL for the stand-in. NULL if it lacks a function of loader.h.
STRIKE_EXPORT struct strikes *strike_open(const char *driver);
// From now on: call number `countdown` fails with `result`.
STRIKE_EXPORT void strike_begin(long countdown, CUresult result, bool sticky);
// No call fails any more. What is left counts as wrong, and is destroyed.
STRIKE_EXPORT void strike_end(void);
