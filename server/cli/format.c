/* See format.h. Units as on the dashboard: memory in powers of 1024, decimals by unit, so that widths do not jump. */
#include "server/cli/format.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct unit {
	double size;
	const char *name;
	int decimals;
};

static const struct unit *memory_unit(int64_t bytes)
{
	static const struct unit units[] = {
		{0x1p40, "TiB", 2}, {0x1p30, "GiB", 1}, {0x1p20, "MiB", 0}, {0x1p10, "KiB", 0}, {1, "B", 0}};
	size_t i = bytes < 10 * (INT64_C(1) << 40) ? 1 : 0; // up to 10 TiB, GiB is the more readable
	while (units[i].size > 1 && (double)bytes < units[i].size)
		i++;
	return &units[i];
}

char *format_memory(int64_t bytes, char text[FORMAT_BYTES])
{
	const struct unit *unit = memory_unit(bytes);
	if (bytes < 0)
		snprintf(text, FORMAT_BYTES, "-");
	else
		snprintf(text, FORMAT_BYTES, "%.*f %s", unit->decimals, (double)bytes / unit->size, unit->name);
	return text;
}

char *format_memory_of(int64_t used, int64_t total, char text[FORMAT_BYTES])
{
	char whole[FORMAT_BYTES];
	const struct unit *unit = memory_unit(total);
	format_memory(total, whole);
	if (total < 0)
		format_memory(used, text);
	else if (used < 0)
		snprintf(text, FORMAT_BYTES, "- / %.40s", whole);
	else
		snprintf(text, FORMAT_BYTES, "%.*f / %.24s", unit->decimals, (double)used / unit->size, whole);
	return text;
}

char *format_quantity(double value, const char *unit, char text[FORMAT_BYTES])
{
	if (value >= 0 && value < 1e15)
		snprintf(text, FORMAT_BYTES, "%.0f %.16s", value, unit);
	else
		snprintf(text, FORMAT_BYTES, "-");
	return text;
}

char *format_age(int64_t ms, char text[FORMAT_BYTES])
{
	int64_t seconds = ms / 1000;
	if (ms < 0)
		snprintf(text, FORMAT_BYTES, "-");
	else if (seconds < 60)
		snprintf(text, FORMAT_BYTES, "%d s", (int)seconds);
	else if (seconds < 3600)
		snprintf(text, FORMAT_BYTES, "%d min", (int)(seconds / 60));
	else if (seconds < 48 * 3600)
		snprintf(text, FORMAT_BYTES, "%d h", (int)(seconds / 3600));
	else
		snprintf(text, FORMAT_BYTES, "%lld d", (long long)(seconds / 86400));
	return text;
}

char *format_time(int64_t wall_ms, char text[FORMAT_BYTES])
{
	struct tm local;
	time_t seconds = (time_t)(wall_ms / 1000);
	if (wall_ms < 0 || !localtime_r(&seconds, &local) || !strftime(text, FORMAT_BYTES, "%Y-%m-%d %H:%M", &local))
		snprintf(text, FORMAT_BYTES, "-");
	return text;
}

char *format_time_s(int64_t wall_ms, char text[FORMAT_BYTES])
{
	const size_t length = strlen(format_time(wall_ms, text));
	if (length > 1) // zones are whole minutes off
		snprintf(text + length, FORMAT_BYTES - length, ":%02d", (int)(wall_ms / 1000 % 60));
	return text;
}

static bool continues(char byte) // the second or a later byte of a code point
{
	return ((unsigned char)byte & 0xC0) == 0x80;
}

enum status parse_size(const char *text, int64_t *bytes, struct error *error)
{
	static const struct {
		const char *unit;
		double bytes;
	} units[] = {
		{"", 1},         {"B", 1},      {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
		{"TiB", 0x1p40}, {"K", 0x1p10}, {"M", 0x1p20},   {"G", 0x1p30},   {"T", 0x1p40},
		{"kB", 1e3},     {"MB", 1e6},   {"GB", 1e9},     {"TB", 1e12},
	};
	char *end;
	double number = strtod(text, &end), size = -1;
	end += strspn(end, " ");
	for (size_t i = 0; i < sizeof units / sizeof *units; i++)
		if (!strcasecmp(end, units[i].unit))
			size = number * units[i].bytes;
	// The first character: strtod also takes "inf", "0x10", "-1" and blanks.
	if (text[0] < '0' || text[0] > '9' || strpbrk(text, "xX") || !(size >= 1 && size <= 0x1p53)) {
		error_set(error, STATUS_INVALID_PARAMS, "\"%.40s\" is not a size", text);
		error_hint(error, "for example 512MiB, 4GiB, 1.5GB or 4096");
		return STATUS_INVALID_PARAMS;
	}
	*bytes = (int64_t)size;
	return STATUS_OK;
}

// With the largest of `prefixes`, of powers of 1000, before the unit.
static char *scaled(double value, const char *prefixes, const char *unit, char text[FORMAT_BYTES])
{
	size_t step = 0;
	if (!(value >= 0)) {
		snprintf(text, FORMAT_BYTES, "-");
		return text;
	}
	for (; value >= 999.5 && prefixes[step + 1]; step++)
		value /= 1000;
	snprintf(text, FORMAT_BYTES, "%.*f %.*s%s",
		 value < 9.995   ? 2
		 : value < 99.95 ? 1
				 : 0,
		 value, step ? 1 : 0, prefixes + step, unit);
	return text;
}

char *format_rate(double value, const char *unit, char text[FORMAT_BYTES])
{
	return scaled(value, " kMGTP", unit, text);
}

char *format_count(double count, char text[FORMAT_BYTES])
{
	if (count >= 0 && count < 1000)
		snprintf(text, FORMAT_BYTES, "%.0f", count);
	else
		scaled(count, " kMBT", "", text);
	return text;
}

size_t text_width(const char *text)
{
	size_t width = 0;
	for (; *text; text++)
		width += !continues(*text);
	return width;
}

size_t text_cut(const char *text, size_t width)
{
	size_t at = 0;
	for (; text[at]; at++)
		if (!continues(text[at]) && !width--)
			break;
	return at;
}

void text_clean(char *text)
{
	char *to = text;
	for (const char *from = text; *from; from++) {
		unsigned char byte = (unsigned char)*from;
		bool late = byte == 0xC2 && (unsigned char)from[1] >= 0x80 &&
			    (unsigned char)from[1] < 0xA0; // U+0080 to 9F
		*to++ = byte < 0x20 || byte == 0x7F || late ? '?' : *from;
		from += late;
	}
	*to = 0;
}
