/* Time: a steady clock for measuring, and the wall clock for showing
 * to people. Wall times are int64_t milliseconds since 1970 UTC inside
 * the program, and RFC 3339 UTC with milliseconds outside. Thread:
 * any. */
#pragma once
#include "common/base/status.h"

#include <stdint.h>

enum { CLOCK_TEXT_BYTES = 25 }; // "2026-11-20T14:31:52.000Z" and its 0

int64_t clock_steady_ms(void);
int64_t clock_steady_ns(void);
int64_t clock_wall_ms(void);
int64_t clock_wall_ns(void); // for the few who must say more than milliseconds
// RFC 3339 into text[CLOCK_TEXT_BYTES]; returns text. Years 1970 to 9999, clamped.
char *clock_format(int64_t wall_ms, char text[CLOCK_TEXT_BYTES]);
// Parse RFC 3339 with an offset of Z or ±hh:mm and any number of fraction digits (those past milliseconds are cut).
// Errors: STATUS_INVALID_PARAMS.
enum status clock_parse(const char *text, int64_t *wall_ms);
