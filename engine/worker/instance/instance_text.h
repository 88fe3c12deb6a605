/* Text of an answer on its way out: stop strings are looked for, and what may be the beginning of one waits.
 *
 * Where an answer ends does not depend on how its text is cut into tokens: it ends with the first byte by which a stop
 * string is complete, and of what is handed out that string, and what follows, is no part. Pieces are whole UTF-8.
 * Thread: its owner's. */
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
// Append to `out` what can be handed out now. A NUL, which no message can hold, becomes U+FFFD. Once text->found is set
// nothing more comes. Errors: those of buffer_append.
enum status instance_text_add(struct instance_text *text, const void *bytes, size_t length, struct buffer *out);
// The answer has ended: what waited, too.
enum status instance_text_end(struct instance_text *text, struct buffer *out);
