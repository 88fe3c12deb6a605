/* The prompt of a request, computed by another instance of its model than the one that answers ("prefill elsewhere").
 *
 *     asking      both instances count the prompt's tokens and those that they have already (generate.start, counts)
 *     connecting  a channel between the two workers, past the server
 *     moving      generate.start with `give` to the one, prefix.take to the other
 *
 * decide/phases.h decides whether it pays. The request itself is sent when the keys and values have come, or as soon as
 * anything goes wrong: then the instance that answers computes what is missing. So a device that leaves in this phase
 * costs time and no token. Thread: the loop's. */
#pragma once
#include "server/instances/requests/requests_inside.h"

struct prefill;

// Begin, before the request is sent the first time. True: it is under way, for this request or for another one of the
// same prompt, and generation_send_now is called later.
// False: the request is to be sent now.
bool prefill_begin(struct generation *generation);
// Forget it, because the request ends or its instance has lost its worker. Another one that waits for the same prompt
// has it then. Accepts NULL, leaves NULL behind.
void prefill_drop(struct prefill **prefill);
// Where the prompt of a request was computed, for its client; NULL: by the instance that answered.
struct json *prefill_json(const struct generation *generation);
// Of the tokens that its worker had when it began, those that had not been computed for this request.
int64_t prefill_cached(const struct generation *generation, int64_t cached_tokens);
