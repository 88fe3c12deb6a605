/* What an answer to a chat has said so far: thoughts, text, and calls of tools. Filled from what a model generates
 * (engine/dialogue), and taken out by whoever tells it in an API's words, whole or as it comes. Thread: its owner's. */
#pragma once
#include "common/json/json.h"
#include "engine/dialogue/parser.h"

struct said_call {
	char id[10]; // nine letters and digits, as Mistral's templates want them
	char name[DIALOGUE_NAME_BYTES + 1];
	struct buffer arguments; // that have not been told yet
	bool told;               // that it is there
};

struct said {
	struct dialogue *dialogue; // NULL: all is text
	struct buffer *text;       // that has not been told yet; the caller's
	struct buffer thoughts;    // the same
	struct said_call *calls;   // (count)
	size_t count;
	size_t told;  // calls that have been told whole
	size_t whole; // calls that are, or were cut off with the answer; others are broken
	bool open;    // the last call has neither ended nor broken: arguments are its own
	bool streams; // calls are told before they are whole
	enum status trouble;
};

void said_init(struct said *said, struct buffer *text, bool streams);
void said_finish(struct said *said);
// How the model writes is known: `syntax` of generate.delta. `tools` must outlive it; NULL: none. Errors:
// STATUS_OUT_OF_MEMORY.
enum status said_begin(struct said *said, const struct json *syntax, const struct json *tools);
// It says more. Errors: STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
enum status said_more(struct said *said, const char *text);
// Nothing more; `cut`: the answer was cut off. A call that was cut off before its first argument is dropped.
enum status said_end(struct said *said, bool cut);
// The arguments of a call as an object; the caller destroys it. NULL: they are none.
struct json *said_call_input(const struct said_call *call);
bool said_blank(const struct buffer *text);  // nothing but blanks, as between a thought and a call
bool said_anything(const struct said *said); // that has not been told
