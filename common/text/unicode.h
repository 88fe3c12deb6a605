/* Unicode for the pre-tokenizers: reading UTF-8, classes of characters, and NFC.
 *
 * The data is unicode_table.h, which tools/dev/unicode.mjs writes; docs/notes/unicode.md says why no library is used.
 * Characters that were added to Unicode later have the class CHARACTER_OTHER. Thread: any; pure functions. */
#pragma once
#include "common/base/buffer.h"

#include <stdbool.h>

// White space as Unicode has it (U+0085 is, U+FEFF is not), before any other class.
enum character {
	CHARACTER_OTHER,
	CHARACTER_UPPER,  // Lu, Lt
	CHARACTER_LOWER,  // Ll
	CHARACTER_LETTER, // Lm, Lo
	CHARACTER_MARK,
	CHARACTER_NUMBER,
	CHARACTER_SPACE,
	CHARACTER_SYMBOL // P, S
};
enum character unicode_class(uint32_t character);
// The version of Unicode that the table is of.
const char *unicode_version(void);

// How many bytes the character has that begins here, if these bytes (at least one) can be it or its beginning; 0 if
// not.
unsigned utf8_begins(const uint8_t *bytes, size_t length);
// The length of the longest beginning that is whole, well-formed UTF-8.
size_t utf8_good(const char *text, size_t length);
// The first character of well-formed text that is not empty; *bytes is set to its length.
uint32_t utf8_first(const char *text, unsigned *bytes);
// Bytes of the character; fewer than 0x110000, no surrogate. Returns how many: 1 to 4.
unsigned utf8_write(uint32_t character, uint8_t bytes[4]);

// The characters that it is taken apart into, as far as can be (NFD of one character); itself, if it cannot. Returns
// how many.
enum { UNICODE_PARTS_MOST = 4 };
unsigned unicode_parts(uint32_t character, uint32_t parts[UNICODE_PARTS_MOST]);

// Append the well-formed text in its composed form (NFC). Errors: those of `out`.
enum status unicode_compose(const char *text, size_t length, struct buffer *out);
