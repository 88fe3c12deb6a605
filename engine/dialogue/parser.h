/* Splits an answer of a model, while it is generated, into thoughts, plain text, and calls of tools with their
 * arguments.
 *
 * The events do not depend on how the answer was cut into pieces, except for the places where texts are cut. Text that
 * may be the beginning of a mark is held back, and so are blanks that may come before a mark. A call is reported when
 * its name is known to be one of the tools and its arguments begin. Its arguments follow as they are generated; what
 * has been reported so far is always the beginning of a JSON object. A call that is malformed before it is reported
 * becomes plain text; one that is malformed later is reported as broken. Bounded by the buffers' maxima; takes time
 * linear in the length. Thread: its owner's. */
#pragma once
#include "common/json/json.h"
#include "engine/dialogue/syntax.h"

enum {
	DIALOGUE_CALLS = 64,               // calls of one answer, broken ones too; later ones are text
	DIALOGUE_BYTES = 16 * 1024 * 1024, // of one call
};

enum dialogue_kind {
	DIALOGUE_TEXT,
	DIALOGUE_THOUGHT,
	DIALOGUE_CALL,      // text: the function's name
	DIALOGUE_ARGUMENTS, // text: a piece of them, of the last call
	DIALOGUE_CALL_END,  // they are whole, or were cut off with the answer
	DIALOGUE_BROKEN,    // the last call is malformed: `text` is everything that was taken for it
};

struct dialogue_event {
	enum dialogue_kind kind;
	const char *text; // (length), not ended by a NUL
	size_t length;
	size_t told; // of a DIALOGUE_BROKEN: how much of its text has been told as name and arguments
};

struct dialogue_params {
	const struct call_syntax *calls;       // NULL: none are looked for
	const struct thought_syntax *thoughts; // NULL: none are looked for
	bool opened;                           // the answer begins inside a thought
	const struct json *tools; // an array of {"function": {"name", "parameters"}}; the caller's, and stays
	void (*event)(void *context, const struct dialogue_event *event);
	void *context;
};

struct dialogue;
enum status dialogue_create(struct dialogue **out, const struct dialogue_params *params);
void dialogue_destroy(struct dialogue **dialogue); // accepts NULL
// The answer goes on. Errors: STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
enum status dialogue_feed(struct dialogue *dialogue, const char *bytes, size_t length);
// The answer is over; `cut`: it was cut off, so a call that is not whole is no broken one.
enum status dialogue_end(struct dialogue *dialogue, bool cut);

bool dialogue_thinks(const struct dialogue *dialogue); // it is inside a thought
// The last place at which a mask may begin, for the code that makes masks.
struct dialogue_place {
	unsigned calls;     // how many marks of calls have been passed
	unsigned arguments; // how many calls' arguments have begun
	unsigned whole;     // how many calls have ended as they should
	size_t behind;      // bytes that have come since the later of these, or since the end of a thought
	const char *name;   // of the call whose arguments began last
};
struct dialogue_place dialogue_place(const struct dialogue *dialogue);
