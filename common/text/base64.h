/* Base64 with padding, in canonical form only (RFC 4648, section 4).
 * The decoder refuses any text that the encoder would not produce:
 * spaces, missing padding, non-zero bits after the end. Pure. Thread:
 * any. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BASE64_TEXT_BYTES(length) (((length) + 2) / 3 * 4 + 1) // of the text, with its 0

// text: BASE64_TEXT_BYTES(length).
void base64_encode(const void *bytes, size_t length, char *text);
// The first `text_length` characters must be exactly `length` bytes. False, and bytes undefined, if they are not.
bool base64_decode(const char *text, size_t text_length, void *bytes, size_t length);
