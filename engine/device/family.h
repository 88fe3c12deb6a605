/* Names of makers and architecture families, from hardware
 * ids. An unknown id has no name: NULL, never a guess. Thread:
 * any. */
#pragma once
#include <stdint.h>

// The maker by its PCI or Khronos vendor id; NULL if it is not in the list.
const char *family_vendor(uint32_t vendor_id);
// The family by vendor and device id; NULL if it is not known.
const char *family_by_id(uint32_t vendor_id, uint32_t device_id);
// NVIDIA's generation by compute capability; NULL if it is not known.
const char *family_by_capability(int major, int minor);
