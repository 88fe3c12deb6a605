/* See family.h. The ranges come from the makers' open drivers and the PCI id list; an id outside them has no name.
 * Arm's device id is the GPU_ID register, whose upper four bits are the architecture's major version; Qualcomm's
 * begins with the series. */
#include "engine/device/family.h"

#include <stddef.h>

enum {
	VENDOR_AMD = 0x1002,
	VENDOR_IMAGINATION = 0x1010,
	VENDOR_APPLE = 0x106b,
	VENDOR_NVIDIA = 0x10de,
	VENDOR_ARM = 0x13b5,
	VENDOR_SAMSUNG = 0x144d,
	VENDOR_BROADCOM = 0x14e4,
	VENDOR_GOOGLE = 0x1ae0,
	VENDOR_QUALCOMM = 0x5143,
	VENDOR_INTEL = 0x8086,
	VENDOR_MESA = 0x10005,
};

static const struct {
	uint32_t id;
	const char *name;
} vendors[] = {
	{VENDOR_AMD, "AMD"},           {VENDOR_IMAGINATION, "Imagination"},
	{VENDOR_APPLE, "Apple"},       {VENDOR_NVIDIA, "NVIDIA"},
	{VENDOR_ARM, "Arm"},           {VENDOR_SAMSUNG, "Samsung"},
	{VENDOR_BROADCOM, "Broadcom"}, {VENDOR_GOOGLE, "Google"},
	{VENDOR_QUALCOMM, "Qualcomm"}, {VENDOR_INTEL, "Intel"},
	{VENDOR_MESA, "Mesa"},
};

static const struct {
	uint32_t vendor, first, last;
	const char *name;
} families[] = {
	{VENDOR_AMD, 0x1114, 0x1114, "RDNA 3.5"},
	{VENDOR_AMD, 0x13c0, 0x13c0, "RDNA 2"},
	{VENDOR_AMD, 0x1435, 0x1435, "RDNA 2"},
	{VENDOR_AMD, 0x1506, 0x1506, "RDNA 2"},
	{VENDOR_AMD, 0x150e, 0x150e, "RDNA 3.5"},
	{VENDOR_AMD, 0x1586, 0x1586, "RDNA 3.5"},
	{VENDOR_AMD, 0x15bf, 0x15c8, "RDNA 3"},
	{VENDOR_AMD, 0x15d8, 0x15dd, "GCN 5"},
	{VENDOR_AMD, 0x15e7, 0x15e7, "GCN 5"},
	{VENDOR_AMD, 0x1636, 0x1638, "GCN 5"},
	{VENDOR_AMD, 0x163f, 0x163f, "RDNA 2"},
	{VENDOR_AMD, 0x164c, 0x164c, "GCN 5"},
	{VENDOR_AMD, 0x164d, 0x164e, "RDNA 2"},
	{VENDOR_AMD, 0x1681, 0x1681, "RDNA 2"},
	{VENDOR_AMD, 0x1900, 0x1901, "RDNA 3"},
	{VENDOR_AMD, 0x66a0, 0x66af, "GCN 5"},
	{VENDOR_AMD, 0x6860, 0x687f, "GCN 5"},
	{VENDOR_AMD, 0x69a0, 0x69af, "GCN 5"},
	{VENDOR_AMD, 0x7310, 0x731f, "RDNA"},
	{VENDOR_AMD, 0x7340, 0x734f, "RDNA"},
	{VENDOR_AMD, 0x7360, 0x7362, "RDNA"},
	{VENDOR_AMD, 0x7388, 0x738e, "CDNA"},
	{VENDOR_AMD, 0x73a0, 0x73ff, "RDNA 2"},
	{VENDOR_AMD, 0x7408, 0x7410, "CDNA 2"},
	{VENDOR_AMD, 0x7420, 0x743f, "RDNA 2"},
	{VENDOR_AMD, 0x7448, 0x745f, "RDNA 3"},
	{VENDOR_AMD, 0x7460, 0x749f, "RDNA 3"},
	{VENDOR_AMD, 0x74a0, 0x74bf, "CDNA 3"},
	{VENDOR_AMD, 0x7550, 0x755f, "RDNA 4"},
	{VENDOR_AMD, 0x7590, 0x759f, "RDNA 4"},
	{VENDOR_AMD, 0x75a0, 0x75bf, "CDNA 4"},

	{VENDOR_INTEL, 0x0bd0, 0x0bdf, "Xe-HPC"},
	{VENDOR_INTEL, 0x1900, 0x193f, "Gen9"},
	{VENDOR_INTEL, 0x3e90, 0x3eaf, "Gen9.5"},
	{VENDOR_INTEL, 0x4680, 0x46ff, "Xe-LP"},
	{VENDOR_INTEL, 0x4905, 0x4909, "Xe-LP"},
	{VENDOR_INTEL, 0x4c80, 0x4c9f, "Xe-LP"},
	{VENDOR_INTEL, 0x5690, 0x56c2, "Xe-HPG"},
	{VENDOR_INTEL, 0x5900, 0x593f, "Gen9.5"},
	{VENDOR_INTEL, 0x6420, 0x6420, "Xe2"},
	{VENDOR_INTEL, 0x64a0, 0x64b0, "Xe2"},
	{VENDOR_INTEL, 0x7d40, 0x7d67, "Xe-LPG"},
	{VENDOR_INTEL, 0x7dd1, 0x7dd5, "Xe-LPG"},
	{VENDOR_INTEL, 0x8a50, 0x8a5f, "Gen11"},
	{VENDOR_INTEL, 0x9a40, 0x9aff, "Xe-LP"},
	{VENDOR_INTEL, 0x9b21, 0x9bf6, "Gen9.5"},
	{VENDOR_INTEL, 0xa720, 0xa7ff, "Xe-LP"},
	{VENDOR_INTEL, 0xb080, 0xb0bf, "Xe3"},
	{VENDOR_INTEL, 0xe200, 0xe2ff, "Xe2"},

	{VENDOR_NVIDIA, 0x15f0, 0x15ff, "Pascal"},
	{VENDOR_NVIDIA, 0x1b00, 0x1d7f, "Pascal"},
	{VENDOR_NVIDIA, 0x1d80, 0x1dff, "Volta"},
	{VENDOR_NVIDIA, 0x1e00, 0x1fff, "Turing"},
	{VENDOR_NVIDIA, 0x2080, 0x20ff, "Ampere"},
	{VENDOR_NVIDIA, 0x2180, 0x21ff, "Turing"},
	{VENDOR_NVIDIA, 0x2200, 0x22ff, "Ampere"},
	{VENDOR_NVIDIA, 0x2300, 0x23ff, "Hopper"},
	{VENDOR_NVIDIA, 0x2400, 0x25ff, "Ampere"},
	{VENDOR_NVIDIA, 0x2680, 0x28ff, "Ada Lovelace"},
	{VENDOR_NVIDIA, 0x2900, 0x29ff, "Blackwell"},
	{VENDOR_NVIDIA, 0x2b80, 0x2dff, "Blackwell"},
	{VENDOR_NVIDIA, 0x2f00, 0x2fff, "Blackwell"},

	{VENDOR_ARM, 0x60000000, 0x7fffffff, "Bifrost"},
	{VENDOR_ARM, 0x90000000, 0xbfffffff, "Valhall"},
	{VENDOR_ARM, 0xc0000000, 0xdfffffff, "Arm 5th generation"},

	{VENDOR_QUALCOMM, 0x05000000, 0x05ffffff, "Adreno 500"},
	{VENDOR_QUALCOMM, 0x06000000, 0x06ffffff, "Adreno 600"},
	{VENDOR_QUALCOMM, 0x07000000, 0x07ffffff, "Adreno 700"},
	{VENDOR_QUALCOMM, 0x43000000, 0x43ffffff, "Adreno 700"},
	{VENDOR_QUALCOMM, 0x44000000, 0x44ffffff, "Adreno 800"},
};

static const struct {
	int major, first_minor, last_minor;
	const char *name;
} capabilities[] = {
	{5, 0, 3, "Maxwell"},    {6, 0, 2, "Pascal"},       {7, 0, 3, "Volta"},  {7, 5, 5, "Turing"},
	{8, 0, 8, "Ampere"},     {8, 9, 9, "Ada Lovelace"}, {9, 0, 0, "Hopper"}, {10, 0, 9, "Blackwell"},
	{11, 0, 9, "Blackwell"}, {12, 0, 9, "Blackwell"},
};

const char *family_vendor(uint32_t vendor_id)
{
	for (size_t i = 0; i < sizeof(vendors) / sizeof(vendors[0]); i++)
		if (vendors[i].id == vendor_id)
			return vendors[i].name;
	return NULL;
}

const char *family_by_id(uint32_t vendor_id, uint32_t device_id)
{
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
		if (families[i].vendor == vendor_id && device_id >= families[i].first && device_id <= families[i].last)
			return families[i].name;
	return NULL;
}

const char *family_by_capability(int major, int minor)
{
	for (size_t i = 0; i < sizeof(capabilities) / sizeof(capabilities[0]); i++)
		if (capabilities[i].major == major && minor >= capabilities[i].first_minor &&
		    minor <= capabilities[i].last_minor)
			return capabilities[i].name;
	return NULL;
}
