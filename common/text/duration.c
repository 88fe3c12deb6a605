/* See duration.h. */
#include "common/text/duration.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

enum { MAXIMUM_DAYS = 3650 };

enum status parse_duration(const char *text, int64_t *seconds, struct error *error)
{
	static const struct {
		char letter;
		int64_t seconds;
	} units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 7 * 86400}};
	char *end;
	errno = 0;
	long long number = strtoll(text, &end, 10);
	bool digits = text[0] >= '0' && text[0] <= '9' && !errno;
	for (size_t i = 0; digits && i < sizeof units / sizeof *units; i++) {
		if (*end != units[i].letter || end[1])
			continue;
		if (number < 1 || number > MAXIMUM_DAYS * INT64_C(86400) / units[i].seconds)
			return error_set(error, STATUS_INVALID_PARAMS, "%.40s is not between 1s and %dd", text,
					 MAXIMUM_DAYS);
		*seconds = number * units[i].seconds;
		return STATUS_OK;
	}
	error_set(error, STATUS_INVALID_PARAMS, "\"%.40s\" is not a duration", text);
	error_hint(error, "a whole number and s, m, h, d or w: 90m, 24h, 30d");
	return STATUS_INVALID_PARAMS;
}
