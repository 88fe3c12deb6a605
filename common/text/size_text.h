/* Formats sizes of memory and files for sentences. Pure. Thread: any. */
#pragma once
#include <stdint.h>

enum { SIZE_TEXT_BYTES = 24 };

// In the largest unit of powers of 1024 of which there is one, up to GiB: "20.35 GiB", "512 MiB", "1.5 KiB", "12 B".
// Returns text.
char *size_text(uint64_t bytes, char text[SIZE_TEXT_BYTES]);

// The same, of a text that lasts as long as the block that it is said in.
#define SIZE_TEXT(bytes) size_text(bytes, (char[SIZE_TEXT_BYTES]){0})
