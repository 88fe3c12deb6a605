/* Searches the text of an answer for stop strings; text that may be the beginning of one is held.
 *
 * Where an answer ends does not depend on how its text is cut into tokens: it ends at the byte that completes the first
 * stop string. The string itself, and the text after it, are not handed out. Pieces are whole UTF-8. Thread: its
 * owner's. */
#pragma once
#include "common/base/buffer.h"
#include "common/base/limits.h"
#include "common/json/json.h"

struct instance_text {
	char *stops[LIMIT_STOP_STRINGS]; // (stop_count), owned
	size_t lengths[LIMIT_STOP_STRINGS];
	unsigned stop_count;
	struct buffer held; // no stop string in it; its end may be the beginning of one
	const char *found;  // the stop string that ended it, or NULL
};

// `stops`: an array of strings, or NULL. Errors: STATUS_OUT_OF_MEMORY. To be finished in every case.
enum status instance_text_init(struct instance_text *text, const struct json *stops);
void instance_text_finish(struct instance_text *text);
// Append to `out` the text that can be handed out now. A NUL, which no message can contain, becomes U+FFFD. Once
// text->found is set nothing more is appended. Errors: those of buffer_append.
enum status instance_text_add(struct instance_text *text, const void *bytes, size_t length, struct buffer *out);
// The answer has ended: what waited, too.
enum status instance_text_end(struct instance_text *text, struct buffer *out);
