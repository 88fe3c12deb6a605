/* A model file in memory that may become shorter while it is read.
 *
 * What is read of a mapped file beyond its end, or from a disk that fails, is a signal (SIGBUS) that would end the
 * process without a word to whoever waits. While a mapping is guarded, zeros take the place of what is gone, and it is
 * remembered that they do: whoever read asks mapping_cut() before he trusts what he has. Other such signals end the
 * process as ever. One mapping at a time in a process; those beyond are not guarded.
 * Thread: any may read what is guarded; guarding and asking are the owner's. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void mapping_guard(const uint8_t *start, size_t length);
void mapping_release(const uint8_t *start);
// Whether something of it could not be read.
bool mapping_cut(const uint8_t *start);
