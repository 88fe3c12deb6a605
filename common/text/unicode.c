/* See unicode.h. Composition goes as Unicode Standard Annex 15 says: characters are taken apart as far as they can be,
 * marks behind each are put in order, and what composes is composed again. It is done one run at a time, a run being a
 * character that no mark can move over and what follows it up to the next; two neighbouring runs may compose. */
#include "common/text/unicode.h"

#include "common/text/unicode_table.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum character unicode_class(uint32_t character)
{
	size_t low = 0, high = COUNT(class_ranges);
	while (high - low > 1) { // the last range that begins at or before the character
		size_t middle = (low + high) / 2;
		if (class_ranges[middle] >> 3 <= character)
			low = middle;
		else
			high = middle;
	}
	return (enum character)(class_ranges[low] & 7);
}

const char *unicode_version(void)
{
	return UNICODE_TABLE_VERSION;
}

// ---- UTF-8 ----

unsigned utf8_begins(const uint8_t *bytes, size_t length)
{
	uint8_t first = bytes[0];
	if (first < 0x80)
		return 1;
	if (first < 0xC2 || first > 0xF4)
		return 0;
	unsigned whole = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
	// The range of the second byte excludes overlong forms, surrogates, and values beyond the last character.
	uint8_t least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
	uint8_t most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
	if (length > 1 && (bytes[1] < least || bytes[1] > most))
		return 0;
	for (unsigned i = 2; i < whole && i < length; i++)
		if (bytes[i] < 0x80 || bytes[i] > 0xBF)
			return 0;
	return whole;
}

size_t utf8_good(const char *text, size_t length)
{
	size_t at = 0;
	while (at < length) {
		unsigned step = utf8_begins((const uint8_t *)text + at, length - at);
		if (!step || step > length - at)
			return at;
		at += step;
	}
	return at;
}

uint32_t utf8_first(const char *text, unsigned *bytes)
{
	const uint8_t *at = (const uint8_t *)text;
	if (at[0] < 0x80) {
		*bytes = 1;
		return at[0];
	}
	if (at[0] < 0xE0) {
		*bytes = 2;
		return (at[0] & 0x1Fu) << 6 | (at[1] & 0x3Fu);
	}
	if (at[0] < 0xF0) {
		*bytes = 3;
		return (at[0] & 0x0Fu) << 12 | (at[1] & 0x3Fu) << 6 | (at[2] & 0x3Fu);
	}
	*bytes = 4;
	return (at[0] & 0x07u) << 18 | (at[1] & 0x3Fu) << 12 | (at[2] & 0x3Fu) << 6 | (at[3] & 0x3Fu);
}

unsigned utf8_write(uint32_t character, uint8_t bytes[4])
{
	if (character < 0x80) {
		bytes[0] = (uint8_t)character;
		return 1;
	}
	unsigned length = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
	static const uint8_t lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
	for (unsigned i = length - 1; i > 0; i--) {
		bytes[i] = (uint8_t)(0x80 | (character & 0x3F));
		character >>= 6;
	}
	bytes[0] = (uint8_t)(lead[length] | character);
	return length;
}

// ---- composition ----

enum {
	HANGUL = 0xAC00,
	HANGUL_COUNT = 11172,
	HANGUL_LEAD = 0x1100,
	HANGUL_LEADS = 19,
	HANGUL_VOWEL = 0x1161,
	HANGUL_VOWELS = 21,
	HANGUL_TAIL = 0x11A7,
	HANGUL_TAILS = 28,         // counts the syllable without a tail
	FIRST_OF_INTEREST = 0x300, // no character before this is changed by, or changes, another
};

// Order << 56 | place << 24 | character: sorting these is stable.
#define MARK(order, place, character) ((uint64_t)(order) << 56 | (uint64_t)(place) << 24 | (character))
#define MARK_ORDER(mark) ((mark) >> 56)
#define MARK_CHARACTER(mark) ((uint32_t)(mark)&0xFFFFFF)

struct composer {
	uint64_t *run; // (count): a starter, if there was one yet, and the marks behind it
	size_t count, capacity;
	struct buffer *out;
};

static uint32_t mark_order(uint32_t character)
{
	size_t low = 0, high = COUNT(mark_orders);
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (mark_orders[middle][1] < character)
			low = middle + 1;
		else
			high = middle;
	}
	return low < COUNT(mark_orders) && mark_orders[low][0] <= character ? mark_orders[low][2] : 0;
}

// The character that the two compose to; 0 if they do not compose.
static uint32_t compose(uint32_t first, uint32_t second)
{
	if (first - HANGUL_LEAD < HANGUL_LEADS && second - HANGUL_VOWEL < HANGUL_VOWELS)
		return HANGUL + ((first - HANGUL_LEAD) * HANGUL_VOWELS + second - HANGUL_VOWEL) * HANGUL_TAILS;
	if (first - HANGUL < HANGUL_COUNT && (first - HANGUL) % HANGUL_TAILS == 0 &&
	    second - HANGUL_TAIL - 1 < HANGUL_TAILS - 1)
		return first + second - HANGUL_TAIL;
	size_t low = 0, high = COUNT(compositions);
	while (low < high) {
		size_t middle = (low + high) / 2;
		const uint32_t *entry = compositions[middle];
		if (entry[0] == first && entry[1] == second)
			return entry[2];
		if (entry[0] < first || (entry[0] == first && entry[1] < second))
			low = middle + 1;
		else
			high = middle;
	}
	return 0;
}

static enum status write_run(struct composer *composer)
{
	for (size_t i = 0; i < composer->count; i++) {
		uint8_t bytes[4];
		unsigned length = utf8_write(MARK_CHARACTER(composer->run[i]), bytes);
		enum status status = buffer_append(composer->out, bytes, length);
		if (status)
			return status;
	}
	composer->count = 0;
	return STATUS_OK;
}

static int by_order(const void *a, const void *b)
{
	const uint64_t *first = a, *second = b;
	return *first < *second ? -1 : *first > *second;
}

// Sort the marks by their order, stably, and compose them with the starter where possible.
static void close_run(struct composer *composer)
{
	uint64_t *run = composer->run;
	size_t count = composer->count, starters = count && !MARK_ORDER(run[0]), kept = 1;
	if (count > starters + 1)
		qsort(run + starters, count - starters, sizeof *run, by_order);
	if (!starters)
		return;
	for (size_t i = 1; i < count; i++) {
		// A mark composes unless one of its own order, or a later one, stands between it and the starter.
		bool blocked = kept > 1 && MARK_ORDER(run[kept - 1]) >= MARK_ORDER(run[i]);
		uint32_t composed = blocked ? 0 : compose(MARK_CHARACTER(run[0]), MARK_CHARACTER(run[i]));
		if (composed)
			run[0] = composed;
		else
			run[kept++] = run[i];
	}
	composer->count = kept;
}

static enum status add_part(struct composer *composer, uint32_t character)
{
	uint32_t order = mark_order(character);
	if (!order) {
		close_run(composer);
		bool follows = composer->count == 1 && !MARK_ORDER(composer->run[0]);
		uint32_t composed = follows ? compose(MARK_CHARACTER(composer->run[0]), character) : 0;
		if (composed) {
			composer->run[0] = composed;
			return STATUS_OK;
		}
		enum status status = write_run(composer);
		if (status)
			return status;
	}
	if (composer->count == composer->capacity) {
		size_t capacity = composer->capacity ? composer->capacity * 2 : 64;
		uint64_t *run = realloc(composer->run, capacity * sizeof *run);
		if (!run)
			return STATUS_OUT_OF_MEMORY;
		composer->run = run;
		composer->capacity = capacity;
	}
	composer->run[composer->count] = MARK(order, composer->count, character);
	composer->count++;
	return STATUS_OK;
}

unsigned unicode_parts(uint32_t character, uint32_t parts[UNICODE_PARTS_MOST])
{
	if (character - HANGUL < HANGUL_COUNT) {
		const uint32_t index = character - HANGUL, tail = index % HANGUL_TAILS;
		parts[0] = HANGUL_LEAD + index / (HANGUL_VOWELS * HANGUL_TAILS);
		parts[1] = HANGUL_VOWEL + index / HANGUL_TAILS % HANGUL_VOWELS;
		parts[2] = HANGUL_TAIL + tail;
		return tail ? 3 : 2;
	}
	size_t low = 0, high = COUNT(decompositions);
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (decompositions[middle].character < character)
			low = middle + 1;
		else
			high = middle;
	}
	parts[0] = character;
	if (low == COUNT(decompositions) || decompositions[low].character != character)
		return 1;
	for (unsigned i = 0; i < decompositions[low].count; i++)
		parts[i] = decomposition_parts[decompositions[low].offset + i];
	return decompositions[low].count;
}

static enum status add_character(struct composer *composer, uint32_t character)
{
	uint32_t parts[UNICODE_PARTS_MOST];
	const unsigned count = unicode_parts(character, parts);
	enum status status = STATUS_OK;
	for (unsigned i = 0; i < count && !status; i++)
		status = add_part(composer, parts[i]);
	return status;
}

enum status unicode_compose(const char *text, size_t length, struct buffer *out)
{
	struct composer composer = {.out = out};
	enum status status = STATUS_OK;
	size_t at = 0;
	while (at < length && !status) {
		unsigned bytes;
		// Text without such characters is copied unchanged, except for its last one, which may compose.
		size_t plain = at;
		while (plain < length && (uint8_t)text[plain] < 0xCC)
			plain++;
		if (plain > at + 4) {
			size_t last = plain - 1;
			while (((uint8_t)text[last] & 0xC0) == 0x80)
				last--;
			close_run(&composer);
			status = write_run(&composer);
			if (!status)
				status = buffer_append(out, text + at, last - at);
			at = last;
			if (status)
				break;
		}
		uint32_t character = utf8_first(text + at, &bytes);
		status = add_character(&composer, character);
		at += bytes;
	}
	if (!status) {
		close_run(&composer);
		status = write_run(&composer);
	}
	free(composer.run);
	return status;
}
