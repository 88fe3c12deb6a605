/* See size_text.h. The number of decimals depends on the unit, so that all sizes have a similar precision. */
#include "common/text/size_text.h"

#include <stddef.h>
#include <stdio.h>

char *size_text(uint64_t bytes, char text[SIZE_TEXT_BYTES])
{
	static const struct {
		double size;
		const char *name;
	} units[] = {{0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}, {1, "B"}};
	size_t i = 0;
	while (units[i].size > 1 && (double)bytes < units[i].size * 0.9995) // 1023.9 MiB would be 1024 of them
		i++;
	const double value = (double)bytes / units[i].size;
	const int decimals = i == 0 ? 2 : units[i].size > 1 && value < 9.95 ? 1 : 0;
	snprintf(text, SIZE_TEXT_BYTES, "%.*f %s", decimals, value, units[i].name);
	return text;
}
