/* Text in which each byte is marked as the template's own or as from outside. See inside.h.
 *
 * A part of a text shares its bytes; joining texts copies them. Positions are bytes unless "character" is said. */
#include "common/text/unicode.h"
#include "engine/jinja/inside.h"

#include <string.h>

enum { BYTES_PER_STEP = 16, FIRST_BYTES = 64 };

struct text text_of(const char *own)
{
	return (struct text){.bytes = own, .length = (uint32_t)strlen(own)};
}

struct text text_part(struct text text, size_t from, size_t to)
{
	text.bytes += from;
	text.origins = text.origins ? text.origins + from : NULL;
	text.length = (uint32_t)(to - from);
	return text;
}

bool text_is(struct text text, const char *what)
{
	return text.length == strlen(what) && !memcmp(text.bytes, what, text.length);
}

bool text_equal(struct text a, struct text b)
{
	return a.length == b.length && (!a.length || !memcmp(a.bytes, b.bytes, a.length));
}

int text_compare(struct text a, struct text b)
{
	const size_t both = a.length < b.length ? a.length : b.length;
	const int order = both ? memcmp(a.bytes, b.bytes, both) : 0;
	return order ? (order < 0 ? -1 : 1) : (a.length > b.length) - (a.length < b.length);
}

size_t text_find(struct work *work, struct text text, struct text what, size_t from)
{
	work_spend(work, 1 + (text.length - from) / BYTES_PER_STEP);
	if (!what.length)
		return from;
	const char *found = memmem(text.bytes + from, text.length - from, what.bytes, what.length);
	return found ? (size_t)(found - text.bytes) : SIZE_MAX;
}

unsigned text_step(struct text text, size_t at)
{
	unsigned bytes = 1;
	while (at + bytes < text.length && ((uint8_t)text.bytes[at + bytes] & 0xC0) == 0x80)
		bytes++;
	return bytes;
}

size_t text_count(struct text text)
{
	size_t count = 0;
	for (size_t i = 0; i < text.length; i++)
		count += ((uint8_t)text.bytes[i] & 0xC0) != 0x80;
	return count;
}

size_t text_place(struct text text, size_t character)
{
	size_t at = 0;
	while (character-- && at < text.length)
		at += text_step(text, at);
	return at;
}

uint8_t text_origin(struct text text, size_t at)
{
	return text.origins ? text.origins[at] : text.origin;
}

// By Python's rules: the separators of ASCII are white space, too.
bool is_space(uint32_t character)
{
	return (character >= 0x1C && character <= 0x1F) || unicode_class(character) == CHARACTER_SPACE;
}

static bool is_cut(struct text one, const struct text *characters)
{
	unsigned bytes;
	if (!characters)
		return is_space(utf8_first(one.bytes, &bytes));
	for (size_t at = 0; at < characters->length; at += text_step(*characters, at))
		if (text_equal(text_part(*characters, at, at + text_step(*characters, at)), one))
			return true;
	return false;
}

struct text text_trim(struct text text, enum trim trim, const struct text *characters)
{
	while (trim & TRIM_LEFT && text.length) {
		const unsigned step = text_step(text, 0);
		if (!is_cut(text_part(text, 0, step), characters))
			break;
		text = text_part(text, step, text.length);
	}
	while (trim & TRIM_RIGHT && text.length) {
		size_t last = text.length - 1;
		while (last && ((uint8_t)text.bytes[last] & 0xC0) == 0x80)
			last--;
		if (!is_cut(text_part(text, last, text.length), characters))
			break;
		text = text_part(text, 0, last);
	}
	return text;
}

static void reserve(struct builder *builder, size_t more)
{
	if (more > LIMIT_JINJA_TEXT_BYTES - builder->length)
		work_fail(builder->work, STATUS_LIMIT_EXCEEDED, "it makes a text of more than %d bytes",
			  LIMIT_JINJA_TEXT_BYTES);
	if (builder->capacity - builder->length >= more)
		return;
	size_t capacity = builder->capacity * 2 > FIRST_BYTES ? builder->capacity * 2 : FIRST_BYTES;
	if (capacity < builder->length + more)
		capacity = builder->length + more;
	char *bytes = work_take_list(builder->work, capacity, 2);
	if (builder->length) {
		memcpy(bytes, builder->bytes, builder->length);
		memcpy(bytes + capacity, builder->origins, builder->length);
	}
	builder->bytes = bytes;
	builder->origins = (uint8_t *)bytes + capacity;
	builder->capacity = capacity;
}

void builder_bytes(struct builder *builder, const char *bytes, size_t length, uint8_t origin)
{
	if (!length)
		return;
	work_spend(builder->work, length / BYTES_PER_STEP);
	reserve(builder, length);
	memcpy(builder->bytes + builder->length, bytes, length);
	memset(builder->origins + builder->length, origin, length);
	builder->length += length;
	*(origin == ORIGIN_OWN ? &builder->own : &builder->foreign) = true;
}

void builder_text(struct builder *builder, struct text text)
{
	if (text.origin != ORIGIN_MIXED) {
		builder_bytes(builder, text.bytes, text.length, text.origin);
		return;
	}
	if (!text.length)
		return;
	work_spend(builder->work, text.length / BYTES_PER_STEP);
	reserve(builder, text.length);
	memcpy(builder->bytes + builder->length, text.bytes, text.length);
	memcpy(builder->origins + builder->length, text.origins, text.length);
	builder->length += text.length;
	builder->own = builder->foreign = true;
}

void builder_own(struct builder *builder, const char *text)
{
	builder_bytes(builder, text, strlen(text), ORIGIN_OWN);
}

void builder_character(struct builder *builder, uint32_t character, uint8_t origin)
{
	uint8_t bytes[4];
	const unsigned length = utf8_write(character, bytes);
	builder_bytes(builder, (const char *)bytes, length, origin);
}

struct text builder_end(struct builder *builder)
{
	struct text text = {.bytes = builder->bytes ? builder->bytes : "", .length = (uint32_t)builder->length};
	if (builder->foreign)
		text.origin = builder->own ? ORIGIN_MIXED : ORIGIN_FOREIGN;
	text.origins = text.origin == ORIGIN_MIXED ? builder->origins : NULL;
	return text;
}
