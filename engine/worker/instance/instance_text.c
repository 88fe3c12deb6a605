/* See instance_text.h. */
#include "engine/worker/instance/instance_text.h"

#include <stdlib.h>
#include <string.h>

enum { HELD_BYTES = 2 * 1024 * 1024 }; // of one token's text and what waited before it

enum status instance_text_init(struct instance_text *text, const struct json *stops)
{
	*text = (struct instance_text){0};
	buffer_init(&text->held, HELD_BYTES);
	for (const struct json *stop = json_first(stops); stop && text->stop_count < LIMIT_STOP_STRINGS;
	     stop = json_next(stop)) {
		const char *string = json_string(stop, "");
		char *copy = strdup(string);
		if (!copy)
			return STATUS_OUT_OF_MEMORY;
		text->lengths[text->stop_count] = strlen(copy);
		text->stops[text->stop_count++] = copy;
	}
	return STATUS_OK;
}

void instance_text_finish(struct instance_text *text)
{
	for (unsigned i = 0; i < text->stop_count; i++)
		free(text->stops[i]);
	text->stop_count = 0;
	buffer_finish(&text->held);
}

// The longest stop string that ends at byte `end` of the held text; NULL if none does.
static const char *stop_before(const struct instance_text *text, size_t end, size_t *length)
{
	const char *found = NULL;
	*length = 0;
	for (unsigned i = 0; i < text->stop_count; i++) {
		size_t bytes = text->lengths[i];
		if (bytes <= *length || bytes > end ||
		    memcmp(text->held.data + end - bytes, text->stops[i], bytes) != 0)
			continue;
		found = text->stops[i];
		*length = bytes;
	}
	return found;
}

// Whether the held text from `at` on may be the beginning of a stop string.
static bool may_begin(const struct instance_text *text, size_t at)
{
	size_t bytes = text->held.length - at;
	for (unsigned i = 0; i < text->stop_count; i++)
		if (bytes < text->lengths[i] && !memcmp(text->held.data + at, text->stops[i], bytes))
			return true;
	return false;
}

static enum status append(struct buffer *held, const char *bytes, size_t length)
{
	const char *end = bytes + length;
	for (const char *nul; (nul = memchr(bytes, 0, (size_t)(end - bytes))); bytes = nul + 1) {
		buffer_append(held, bytes, (size_t)(nul - bytes));
		buffer_append_text(held, "\xEF\xBF\xBD");
	}
	buffer_append(held, bytes, (size_t)(end - bytes));
	return held->failed ? STATUS_OUT_OF_MEMORY : STATUS_OK;
}

enum status instance_text_add(struct instance_text *text, const void *bytes, size_t length, struct buffer *out)
{
	struct buffer *held = &text->held;
	size_t known = held->length, stop_bytes, at = 0;
	if (text->found || !length)
		return STATUS_OK;
	enum status status = append(held, bytes, length);
	for (size_t end = known + 1; !status && text->stop_count && end <= held->length; end++) {
		text->found = stop_before(text, end, &stop_bytes);
		if (!text->found)
			continue;
		status = buffer_append(out, held->data, end - stop_bytes);
		buffer_clear(held);
		return status;
	}
	while (at < held->length && !may_begin(text, at))
		at++;
	if (!status)
		status = buffer_append(out, held->data, at);
	buffer_consume(held, at);
	return status;
}

enum status instance_text_end(struct instance_text *text, struct buffer *out)
{
	enum status status = buffer_append(out, text->held.data, text->held.length);
	buffer_clear(&text->held);
	return status;
}
