/* State and functions that the parser's files share. See parser.h. */
#pragma once
#include "common/base/limits.h"
#include "engine/dialogue/parser.h"
#include "engine/dialogue/scan.h"

#include <string.h>

enum dialogue_state {
	DIALOGUE_IN_TEXT,
	DIALOGUE_IN_THOUGHT,
	DIALOGUE_IN_HEADER,    // of harmony, up to <|message|>
	DIALOGUE_IN_BETWEEN,   // behind the mark of a section, or behind a call
	DIALOGUE_IN_NAME,      // behind the mark of a call
	DIALOGUE_IN_OBJECT,    // a JSON call
	DIALOGUE_IN_ARGUMENTS, // a JSON object that is the arguments
	DIALOGUE_IN_PAIRS,
	DIALOGUE_IN_CODE,
	DIALOGUE_IN_TAIL, // behind the arguments, before the mark of the call's end
};

enum member { MEMBER_OTHER, MEMBER_NAME, MEMBER_ARGUMENTS };

struct dialogue {
	struct dialogue_params params;
	enum dialogue_state state;
	struct buffer held; // text received and not yet consumed, from `at` on
	size_t at;
	size_t searched;    // from `at` on: where no end of a value, or of a code, begins
	size_t dropped;     // bytes that were taken out of `held`
	struct buffer raw;  // text of the current call, from its mark on
	bool spoke;         // text that is more than blanks has been told
	bool after_thought; // and none since a thought's end: blanks are left out
	bool thought_spoke; // the same of a thought
	bool listed;        // inside [ ] of calls
	unsigned calls, marked, begun;
	size_t place; // dialogue_place.behind counts from here, of all that has come
	enum status trouble;
	// The current call.
	char name[DIALOGUE_NAME_BYTES + 1]; // "": not known yet
	bool announced;
	struct scan scan;
	enum member member;
	size_t key_from, value_from;                         // in `raw`
	size_t arguments_from, arguments_to, arguments_told; // the same; 0: not known yet
	unsigned pairs;
};

enum match { MATCH_NO, MATCH_PART, MATCH_YES };

// ---- parser.c ----

void dialogue_tell(struct dialogue *dialogue, enum dialogue_kind kind, const char *text, size_t length);
size_t dialogue_left(const struct dialogue *dialogue); // bytes that are not taken
const char *dialogue_rest(const struct dialogue *dialogue);
void dialogue_take(struct dialogue *dialogue, size_t length); // into `raw`
void dialogue_skip_blanks(struct dialogue *dialogue);         // the same
enum match dialogue_match(const struct dialogue *dialogue, const char *mark);
// Take it if it is there.
enum match dialogue_take_mark(struct dialogue *dialogue, const char *mark);
void dialogue_note_place(struct dialogue *dialogue);
void dialogue_revert(struct dialogue *dialogue); // everything taken for a call becomes plain text

// ---- parser_call.c, parser_value.c ----

void dialogue_begin_call(struct dialogue *dialogue); // behind its mark, or before it where it is bare
// Each consumes as much of the held text as it can. False: it needs more text.
bool dialogue_in_header(struct dialogue *dialogue);
bool dialogue_in_between(struct dialogue *dialogue);
bool dialogue_in_name(struct dialogue *dialogue);
bool dialogue_in_object(struct dialogue *dialogue);
bool dialogue_in_arguments(struct dialogue *dialogue);
bool dialogue_in_tail(struct dialogue *dialogue);
bool dialogue_in_pairs(struct dialogue *dialogue);
bool dialogue_in_code(struct dialogue *dialogue);
void dialogue_announce(struct dialogue *dialogue);
void dialogue_end_call(struct dialogue *dialogue);
// The tool of this name; NULL: none is.
const struct json *dialogue_tool(const struct dialogue *dialogue, const char *name);
