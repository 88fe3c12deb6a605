/* The identity of a device: its hardware key and the id made from it.
 *
 * A hardware key is unique on its node and survives restarts and driver upgrades:
 *     uuid:6b5c…      the UUID that the hardware reports (all APIs of one driver report the same)
 *     pci:0000:01:00.0  the bus address, where there is no UUID
 *     driver:llvmpipe a software device: its UUID changes with every release of the driver
 *     cpu             the processor
 * Thread: any. */
#pragma once
#include "engine/device/info.h"

#define IDENTITY_HOST_POOL "host" // the memory pool of everything that computes in host memory

enum { IDENTITY_ID_BYTES = 32 };

// 16 bytes as lower-case hex with dashes; "" for all zeros.
void identity_uuid_text(char text[48], const uint8_t uuid[16]);
// Fill info->hardware_key from uuid, pci_address, or (software) the driver's name; `index` where there is nothing else.
void identity_gpu(struct device_info *info, bool software, const char *driver_name);
void identity_cpu(char key[INFO_KEY_BYTES]);

// "dev_" and the first 16 hex digits of SHA-256(node_id "/" hardware_key).
void identity_device_id(char id[IDENTITY_ID_BYTES], const char *node_id, const char *hardware_key);
// A new random node id: "node_" and 16 hex digits. Errors: STATUS_UNAVAILABLE (no random numbers).
enum status identity_new_node_id(char id[IDENTITY_ID_BYTES], struct error *error);

// Whether two descriptions are of one device: the same key, or the same place on the bus and the same maker where the
// keys come from APIs that make them differently.
bool identity_same(const struct device_info *a, const struct device_info *b);
