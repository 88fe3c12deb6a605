/* See identity.h. */
#include "engine/device/identity.h"

#include "common/base/sha256.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static void hex(char *to, const uint8_t *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		snprintf(to + 2 * i, 3, "%02x", bytes[i]);
}

void identity_uuid_text(char text[48], const uint8_t uuid[16])
{
	static const uint8_t none[16];
	static const size_t groups[] = {4, 2, 2, 2, 6};
	text[0] = 0;
	if (!memcmp(uuid, none, sizeof(none)))
		return;
	char *to = text;
	for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
		if (i)
			*to++ = '-';
		hex(to, uuid, groups[i]);
		to += 2 * groups[i];
		uuid += groups[i];
	}
}

void identity_gpu(struct device_info *info, bool software, const char *driver_name)
{
	if (software)
		snprintf(info->hardware_key, sizeof(info->hardware_key), "driver:%s", driver_name);
	else if (info->uuid[0])
		snprintf(info->hardware_key, sizeof(info->hardware_key), "uuid:%s", info->uuid);
	else if (info->pci_address[0])
		snprintf(info->hardware_key, sizeof(info->hardware_key), "pci:%s", info->pci_address);
	else
		snprintf(info->hardware_key, sizeof(info->hardware_key), "driver:%s:%d", driver_name, info->index);
}

void identity_cpu(char key[INFO_KEY_BYTES])
{
	text_copy(key, INFO_KEY_BYTES, "cpu");
}

void identity_device_id(char id[IDENTITY_ID_BYTES], const char *node_id, const char *hardware_key)
{
	char text[INFO_KEY_BYTES + 80];
	uint8_t digest[SHA256_BYTES];
	struct sha256 sha;
	int length = snprintf(text, sizeof(text), "%s/%s", node_id, hardware_key);
	sha256_begin(&sha);
	sha256_add(&sha, text, (size_t)length < sizeof(text) ? (size_t)length : sizeof(text) - 1);
	sha256_end(&sha, digest);
	text_copy(id, IDENTITY_ID_BYTES, "dev_");
	hex(id + 4, digest, 8);
}

enum status identity_new_node_id(char id[IDENTITY_ID_BYTES], struct error *error)
{
	uint8_t bytes[8];
	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return error_set(error, STATUS_UNAVAILABLE, "the system provides no random numbers");
	text_copy(id, IDENTITY_ID_BYTES, "node_");
	hex(id + 5, bytes, sizeof(bytes));
	return STATUS_OK;
}

// NVIDIA's UUID is the card's own, whichever API is asked: two that differ are two cards. Other makers' APIs may form
// it each in its own way, and change it with the driver.
bool identity_same(const struct device_info *a, const struct device_info *b)
{
	if (!strcmp(a->hardware_key, b->hardware_key))
		return true;
	if (!a->pci_address[0] || strcmp(a->pci_address, b->pci_address) || strcmp(a->vendor, b->vendor))
		return false;
	if (!strcmp(a->vendor, "NVIDIA") && a->uuid[0] && b->uuid[0])
		return !strcmp(a->uuid, b->uuid);
	return a->backend != b->backend || !strcmp(a->model, b->model);
}
