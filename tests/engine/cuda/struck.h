/* The library that stands for the CUDA driver, as a test loads it: before anything asks for the driver. */
#pragma once
#include "tests/engine/cuda/strike.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static struct strikes *strikes;
static struct { // the functions of strike.h
	struct strikes *(*open)(const char *driver);
	void (*begin)(long countdown, CUresult result, bool sticky);
	void (*end)(void);
} strike;

// driver: as of strike_open. `strikes` is NULL then where that gives NULL.
static inline void strike_load(const char *driver)
{
	void *library = dlopen(CUDA_STRUCK, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	*(void **)&strike.open = dlsym(library, "strike_open");
	*(void **)&strike.begin = dlsym(library, "strike_begin");
	*(void **)&strike.end = dlsym(library, "strike_end");
	strikes = strike.open(driver);
}
