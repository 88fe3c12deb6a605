/* The processor and memory of this machine, from /proc, /sys and the
 * kernel's hwcaps. The CPU back end uses it for its one device, and the
 * node for its record. Reads small files, computes nothing. Thread:
 * any. */
#pragma once
#include "engine/device/info.h"

struct host_cpu {
	char vendor[INFO_WORD_BYTES], model[INFO_NAME_BYTES], family[INFO_WORD_BYTES]; // "" where not told
	char features[1024];      // vector extensions and matrix units, words separated by a space
	int64_t cores, threads;   // of the machine; -1: not told
	int64_t usable_threads;   // that this process may run at once, at least 1
	int64_t last_level_bytes; // the largest cache; -1: not told
	int64_t memory_bytes;     // as host_memory_read says
	int64_t available_bytes;
};

void host_cpu_read(struct host_cpu *host);

// The machine's memory, or a control group's limit if that is less, and what can be had of it now without swapping;
// -1: not told.
void host_memory_read(int64_t *total_bytes, int64_t *available_bytes);

// Read a small text file: at most size - 1 bytes, terminated, the last newline cut. False if it cannot be read.
bool host_read_file(const char *path, char *text, size_t size);
