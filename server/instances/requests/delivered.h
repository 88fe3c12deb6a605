/* What a request's client has got: tokens and bytes of text, so that the request can go on behind them with another
 * worker. Thread: the owner's. */
#pragma once
#include "common/json/json.h"

// All 0: nothing.
struct delivered {
	uint32_t *tokens; // (count)
	size_t count, capacity;
	uint64_t text_bytes; // of what was generated
	uint64_t echo_bytes; // of the prompt told back, which comes before any token
	uint64_t skip_bytes; // of an echo that is told once more
	size_t echo_choices; // of the prompt's tokens that were told, before any token
	size_t skip_choices; // of these, that are told once more
};

// Take in the parameters of generate.delta, which the client gets. False: there is no memory for them.
bool delivered_keep(struct delivered *delivered, const struct json *params);
// After a start elsewhere the prompt is told once more: what the client has had of it, its text and its choices, which
// come before any token, is left out. NULL: there is nothing to leave out. The result is to be destroyed.
struct json *delivered_rest(struct delivered *delivered, const struct json *params);
// Have `call`, the parameters of generate.start, go on where the client has got to.
void delivered_resume(struct delivered *delivered, struct json *call);
void delivered_finish(struct delivered *delivered);
