/* Readings of AMD and Intel GPUs from the kernel's files, found by PCI address. Thread: the sampler's. */
#pragma once
#include "engine/telemetry/sample.h"

struct sysfs_gpu;

// `pci_address` as 0000:03:00.0. Errors: STATUS_OUT_OF_MEMORY. A card that is not there is noticed when it is read.
enum status sysfs_gpu_create(struct sysfs_gpu **out, const char *sysfs_root, const char *pci_address,
			     struct error *error);
void sysfs_gpu_destroy(struct sysfs_gpu **gpu);
// Read what `round` asks for into `sample`, which holds the previous readings. False while the card is not there.
bool sysfs_gpu_read(struct sysfs_gpu *gpu, enum pace_round round, int64_t now_ns, struct telemetry_sample *sample);
