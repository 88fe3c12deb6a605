/* The tokens and bytes of text that a request's client has received, so that another worker can continue after them.
 * Thread: the owner's. */
#pragma once
#include "common/json/json.h"

// All 0: nothing.
struct delivered {
	uint32_t *tokens; // (count)
	size_t count, capacity;
	uint64_t text_bytes; // of the generated text
	uint64_t echo_bytes; // of the prompt told back, which comes before any token
	uint64_t skip_bytes; // of an echo that is sent again
	size_t echo_choices; // of the prompt's tokens that were told, before any token
	size_t skip_choices; // of the prompt's choices, which are sent again
};

// Take in the parameters of generate.delta, which the client gets. False: there is no memory for them.
bool delivered_keep(struct delivered *delivered, const struct json *params);
// After a start on another worker the prompt is reported again: remove the text and choices that the client already
// has, which come before any token. NULL: nothing new is left. The caller destroys the result.
struct json *delivered_rest(struct delivered *delivered, const struct json *params);
// Have `call`, the parameters of generate.start, go on where the client has got to.
void delivered_resume(struct delivered *delivered, struct json *call);
void delivered_finish(struct delivered *delivered);
