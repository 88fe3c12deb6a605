/* Base62, the alphabet of tokens and tickets: 0-9, A-Z, a-z, the most significant
 * digit first. A base62 text can be selected with a double click and needs no
 * escaping. A text that a person copies ends with six digits: the CRC-32 (IEEE) of
 * everything before them. So a typing mistake is detected without asking a server.
 * Thread: any. */
#pragma once
#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { BASE62_CRC_DIGITS = 6, BASE62_SHA256_DIGITS = 43 };

// `count` digits from the system's generator, each as likely as any other. Nothing is put behind them.
// Errors: STATUS_UNAVAILABLE (the system has no randomness to give).
enum status base62_random(char *out, size_t count);
// Whether the first `count` bytes are all digits.
bool base62_all(const char *text, size_t count);
// The CRC-32 of length bytes, as digits. Nothing is put behind them.
void base62_crc(const char *text, size_t length, char out[BASE62_CRC_DIGITS]);
// 32 bytes, as a big-endian number, to 43 digits and back. Reading: false if the number has more than 256 bits.
void base62_print256(const uint8_t bytes[32], char out[BASE62_SHA256_DIGITS]);
bool base62_read256(const char *digits, uint8_t bytes[32]);
