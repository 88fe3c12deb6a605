/* OpenAI's /v1/responses, as a wording of what is inside (server/http/infer/inside.h). Thread: the loop's; what reads a
 * body, any that has the answer. */
#pragma once
#include "server/http/infer/inside.h"

// ---- read.c: parameters ----
enum status responses_read(struct reading *reading); // of the wording

// ---- input.c: what was said so far ----
enum status responses_read_input(struct reading *reading, const struct json *value);
// A thought as clients send it back without reading it: `encrypted_content`. NULL: out of memory. The caller frees it.
char *responses_enclose(const struct buffer *thought);

// ---- tools.c ----
enum status responses_read_tools(struct reading *reading, const struct json *value);
enum status responses_read_tool_choice(struct reading *reading, const struct json *value);

// ---- answer.c: items and events ----
// The object of the answer; `output` is taken.
struct json *responses_object(const struct answer *answer, const char *status, struct json *output);
// An event with its number, to be sent.
struct json *responses_event(struct answer *answer, const char *type);
// End the open item of text or thought, if there is one: status is completed or incomplete.
void responses_close_item(struct answer *answer, const char *status);
void responses_begin(struct answer *answer);
void responses_tell(struct answer *answer);
void responses_end(struct answer *answer, const struct ending *ending);
