/* A model file in memory that may become shorter while it is read.
 *
 * Reading a mapped file beyond its end, or from a disk that fails, raises a signal (SIGBUS) that would end the process
 * without an error message. While a mapping is guarded, zeros replace the missing bytes, and this is remembered: a
 * reader calls mapping_cut() before it trusts the bytes. Other such signals end the process as usual. A process guards
 * one mapping at a time; further ones are not guarded. Thread: any may read; guarding and mapping_cut() are the
 * owner's. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void mapping_guard(const uint8_t *start, size_t length);
void mapping_release(const uint8_t *start);
// Whether something of it could not be read.
bool mapping_cut(const uint8_t *start);
