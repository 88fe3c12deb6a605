/* See stage_pace.h. */
#include "engine/stage_pace.h"

#ifdef NDEBUG

void stage_pace(int64_t began_ns, uint32_t rows, double share)
{
	(void)began_ns, (void)rows, (void)share;
}

#else

#include "common/base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

// Milliseconds of a step; 0 without a table.
static double table_ms(const char *table, double rows)
{
	double before_rows = 0, before_ms = 0;
	char *end = NULL;
	while (table && *table) {
		const double at_rows = strtod(table, &end);
		const double at_ms = *end == ':' ? strtod(end + 1, &end) : 0;
		if (!(at_rows > before_rows) || !(at_ms > 0))
			return 0;
		if (rows <= at_rows)
			return before_rows > 0 ? before_ms + (at_ms - before_ms) * (rows - before_rows) /
								     (at_rows - before_rows)
					       : at_ms;
		before_rows = at_rows;
		before_ms = at_ms;
		table = *end == ',' ? end + 1 : end;
	}
	return before_rows > 0 ? before_ms * rows / before_rows : 0;
}

void stage_pace(int64_t began_ns, uint32_t rows, double share)
{
	const double ms = table_ms(getenv("EXOGPU_TEST_PACE"), rows) * share;
	const int64_t until_ns = began_ns + (int64_t)(ms * 1e6);
	const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
				       .tv_nsec = (long)(until_ns % 1000000000)};
	if (!(ms > 0) || clock_steady_ns() >= until_ns)
		return;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

#endif
