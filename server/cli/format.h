/* Numbers, times and texts as people read and write them at a terminal. Pure, but for the time zone. Thread: any. */
#pragma once
#include "common/text/duration.h"

#include <stddef.h>
#include <stdint.h>

enum { FORMAT_BYTES = 48 }; // room for any of the texts below, with its 0

// All return `text`. What is not known is negative, and becomes "-".
char *format_memory(int64_t bytes, char text[FORMAT_BYTES]);                    // "20.3 GiB"
char *format_memory_of(int64_t used, int64_t total, char text[FORMAT_BYTES]);   // "20.3 / 24.0 GiB", "- / 24.0 GiB"
char *format_quantity(double value, const char *unit, char text[FORMAT_BYTES]); // "54 °C"
char *format_age(int64_t ms, char text[FORMAT_BYTES]);                          // "48 s", "3 min", "5 h", "12 d"
// A wall time in the reader's own time zone: "2026-11-21 14:03".
char *format_time(int64_t wall_ms, char text[FORMAT_BYTES]);
char *format_time_s(int64_t wall_ms, char text[FORMAT_BYTES]); // "2026-11-21 14:03:59"

// "4GiB", "512 MiB", "1.5GB", "4096" as bytes, at least 1: KiB, MiB, GiB and TiB (or K, M, G, T) are powers of 1024,
// kB, MB, GB and TB powers of 1000. Errors: STATUS_INVALID_PARAMS.
enum status parse_size(const char *text, int64_t *bytes, struct error *error);
// A rate in its largest unit, of powers of 1000: format_rate(4.43e12, "B/s") is "4.43 TB/s". "-" for a negative one.
char *format_rate(double value, const char *unit, char text[FORMAT_BYTES]);

// A large number of things: "1.10 B", "560 M", "12.3 k", "512".
char *format_count(double count, char text[FORMAT_BYTES]);

// How many columns a text takes: its code points.
size_t text_width(const char *text);
// The bytes of its first `width` code points.
size_t text_cut(const char *text, size_t width);
// Replace control characters by '?', so that a name from elsewhere cannot steer the terminal.
void text_clean(char *text);
