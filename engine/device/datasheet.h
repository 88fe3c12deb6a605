/* The best figures in makers' data sheets, for known devices, to compare
 * measurements with. A device is found by the name that its API reports. A
 * device that is not in the table is unknown, never estimated. Plain data.
 * Thread: any. */
#pragma once

struct datasheet {
	const char *name;          // as in the device's name
	double memory_bytes_per_s; // peak
	double f32_flops_per_s;    // peak without tensor cores; a fused multiply-add counts as two
};

// The entry whose name `device_name` contains ("NVIDIA H200" contains "H200"); the longest name if several fit. NULL if
// none does.
const struct datasheet *datasheet_find(const char *device_name);
