/* Processor time and memory of this machine, read once a round for the node and its CPU
 * device. Memory is what this process can have: the machine's by /proc/meminfo, or a
 * smaller limit of a control group (version 1 or 2, its own or a parent's). Thread: the
 * sampler's. */
#pragma once
#include "common/base/status.h"

#include <stdint.h>

struct host_sample { // memory in bytes, -1: not known
	bool cpu_known;
	double cpu_percent; // busy share of all processors since the last sample
	int64_t memory_total, memory_available, swap_total, swap_used;
};

struct host_reader;

// Errors: STATUS_OUT_OF_MEMORY. Files that are not there are readings that are not there.
enum status host_reader_create(struct host_reader **out, const char *proc_root, const char *sysfs_root,
			       struct error *error);
void host_reader_destroy(struct host_reader **host);
void host_reader_read(struct host_reader *host, struct host_sample *sample);
