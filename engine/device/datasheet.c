/* See datasheet.h. The figures are those of the makers' product pages and data sheets, as of November 2026. */
#include "engine/device/datasheet.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

static const struct datasheet datasheets[] = {
	{"H200", 4.8e12, 67e12},
	{"H100 80GB HBM3", 3.35e12, 67e12},
	{"H100 PCIe", 2.0e12, 51e12},
	{"A100-SXM4-80GB", 2.039e12, 19.5e12},
	{"A100-SXM4-40GB", 1.555e12, 19.5e12},
	{"A100 80GB PCIe", 1.935e12, 19.5e12},
	{"L40S", 0.864e12, 91.6e12},
	{"L4", 0.300e12, 30.3e12},
	{"A10", 0.600e12, 31.2e12},
	{"RTX 4090", 1.008e12, 82.6e12},
	{"RTX 4080", 0.7168e12, 48.7e12},
	{"RTX 3090", 0.936e12, 35.6e12},
	{"RX 7900 XTX", 0.960e12, 61.4e12},
	{"RX 7900 XT", 0.800e12, 51.6e12},
};

// Whether `text` contains `name` as whole words: "L4" is not in "L40S".
static int stands_in(const char *text, const char *name)
{
	size_t length = strlen(name);
	for (const char *at = strstr(text, name); at; at = strstr(at + 1, name))
		if ((at == text || !isalnum((unsigned char)at[-1])) && !isalnum((unsigned char)at[length]))
			return 1;
	return 0;
}

const struct datasheet *datasheet_find(const char *device_name)
{
	const struct datasheet *best = NULL;
	for (size_t i = 0; i < sizeof(datasheets) / sizeof(datasheets[0]); i++)
		if (stands_in(device_name, datasheets[i].name) &&
		    (!best || strlen(datasheets[i].name) > strlen(best->name)))
			best = &datasheets[i];
	return best;
}
