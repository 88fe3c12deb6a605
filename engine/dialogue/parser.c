/* Plain text, thoughts, and the marks between them. See parser.h. */
#include "engine/dialogue/parser_inside.h"

#include <stdlib.h>

enum {
	BLANKS = 256, // that wait for a mark, at most
	MARKS = 8,
};

enum status dialogue_create(struct dialogue **out, const struct dialogue_params *params)
{
	struct dialogue *dialogue = *out = calloc(1, sizeof(*dialogue));
	if (!dialogue)
		return STATUS_OUT_OF_MEMORY;
	dialogue->params = *params;
	dialogue->state = params->opened && params->thoughts ? DIALOGUE_IN_THOUGHT : DIALOGUE_IN_TEXT;
	buffer_init(&dialogue->held, DIALOGUE_BYTES);
	buffer_init(&dialogue->raw, DIALOGUE_BYTES);
	return STATUS_OK;
}

void dialogue_destroy(struct dialogue **dialogue)
{
	if (!*dialogue)
		return;
	buffer_finish(&(*dialogue)->held);
	buffer_finish(&(*dialogue)->raw);
	free(*dialogue);
	*dialogue = NULL;
}

// ---- what all states need ----

void dialogue_tell(struct dialogue *dialogue, enum dialogue_kind kind, const char *text, size_t length)
{
	const struct dialogue_event event = {.kind = kind, .text = text, .length = length};
	if (dialogue->params.event)
		dialogue->params.event(dialogue->params.context, &event);
}

size_t dialogue_left(const struct dialogue *dialogue)
{
	return dialogue->held.length - dialogue->at;
}

const char *dialogue_rest(const struct dialogue *dialogue)
{
	return buffer_text(&dialogue->held) + dialogue->at;
}

static bool is_blank(char byte)
{
	return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

static void drop(struct dialogue *dialogue, size_t length)
{
	dialogue->at += length;
	dialogue->searched = 0;
}

void dialogue_take(struct dialogue *dialogue, size_t length)
{
	if (buffer_append(&dialogue->raw, dialogue_rest(dialogue), length))
		dialogue->trouble = STATUS_LIMIT_EXCEEDED;
	drop(dialogue, length);
}

void dialogue_skip_blanks(struct dialogue *dialogue)
{
	size_t count = 0;
	const size_t left = dialogue_left(dialogue);
	while (count < left && is_blank(dialogue_rest(dialogue)[count]))
		count++;
	dialogue_take(dialogue, count);
}

static enum match match_at(const char *text, size_t left, const char *mark)
{
	const size_t length = strlen(mark);
	if (left >= length)
		return memcmp(text, mark, length) ? MATCH_NO : MATCH_YES;
	return memcmp(text, mark, left) ? MATCH_NO : MATCH_PART;
}

enum match dialogue_match(const struct dialogue *dialogue, const char *mark)
{
	return match_at(dialogue_rest(dialogue), dialogue_left(dialogue), mark);
}

enum match dialogue_take_mark(struct dialogue *dialogue, const char *mark)
{
	const enum match match = dialogue_match(dialogue, mark);
	if (match == MATCH_YES)
		dialogue_take(dialogue, strlen(mark));
	return match;
}

void dialogue_note_place(struct dialogue *dialogue)
{
	dialogue->place = dialogue->dropped + dialogue->at;
}

void dialogue_revert(struct dialogue *dialogue)
{
	const struct dialogue_event broken = {.kind = DIALOGUE_BROKEN,
					      .text = buffer_text(&dialogue->raw),
					      .length = dialogue->raw.length,
					      .told = dialogue->arguments_told};
	dialogue->state = DIALOGUE_IN_TEXT;
	dialogue->spoke = true;
	dialogue->after_thought = dialogue->listed = false;
	if (!dialogue->announced)
		dialogue_tell(dialogue, DIALOGUE_TEXT, broken.text, broken.length);
	else if (dialogue->params.event)
		dialogue->params.event(dialogue->params.context, &broken);
	dialogue->announced = false;
	buffer_clear(&dialogue->raw);
}

// ---- marks in text ----

struct found {
	const char *mark; // NULL: none
	size_t at;        // where it begins; without one, where the beginning of one may be
};

// The first of these marks in the text that is left. If two begin at the same place, the longer one.
static struct found find(const struct dialogue *dialogue, const char *const *marks, size_t count)
{
	const char *text = dialogue_rest(dialogue);
	const size_t left = dialogue_left(dialogue);
	struct found found = {.at = left};
	for (size_t at = 0; at < left && !found.mark; at++)
		for (size_t i = 0; i < count; i++) {
			if (text[at] != marks[i][0])
				continue;
			const enum match match = match_at(text + at, left - at, marks[i]);
			if (match == MATCH_YES && (!found.mark || strlen(marks[i]) > strlen(found.mark)))
				found = (struct found){marks[i], at};
			else if (match == MATCH_PART && !found.mark && found.at == left)
				found.at = at;
		}
	return found;
}

// How many of the first `length` bytes are left without the blanks at their end.
static size_t without_blanks(const struct dialogue *dialogue, size_t length)
{
	const char *text = dialogue_rest(dialogue);
	size_t end = length;
	while (end && is_blank(text[end - 1]))
		end--;
	return end;
}

// The same, but BLANKS at most wait: what is told does not depend on where the answer was cut.
static size_t without_waiting(const struct dialogue *dialogue, size_t length)
{
	const size_t end = without_blanks(dialogue, length);
	return length - end > BLANKS ? length - BLANKS : end;
}

// Tell so many bytes. Blanks at the beginning of a thought, or behind one, are left out.
static void say(struct dialogue *dialogue, enum dialogue_kind kind, size_t length)
{
	const char *text = dialogue_rest(dialogue);
	const bool thought = kind == DIALOGUE_THOUGHT;
	size_t from = 0;
	if (thought ? !dialogue->thought_spoke : dialogue->after_thought)
		while (from < length && is_blank(text[from]))
			from++;
	size_t solid = from;
	while (solid < length && is_blank(text[solid]))
		solid++;
	if (solid < length && thought)
		dialogue->thought_spoke = true;
	if (solid < length && !thought) {
		dialogue->spoke = true;
		dialogue->after_thought = false;
	}
	if (length > from)
		dialogue_tell(dialogue, kind, text + from, length - from);
	drop(dialogue, length);
}

static bool is_harmony(const struct dialogue *dialogue)
{
	const struct dialogue_params *params = &dialogue->params;
	return (params->calls && params->calls->form == CALL_FORM_HEADER) ||
	       (params->thoughts && !strcmp(params->thoughts->name, "harmony"));
}

static const char *call_mark(const struct dialogue *dialogue)
{
	const struct call_syntax *calls = dialogue->params.calls;
	if (!calls || dialogue->begun >= DIALOGUE_CALLS)
		return NULL;
	return calls->section ? calls->section : calls->begin;
}

static size_t marks_of_text(const struct dialogue *dialogue, const char *marks[MARKS])
{
	static const char *const harmony[] = {"<|channel|>", "<|start|>", "<|end|>", "<|call|>", "<|message|>"};
	size_t count = 0;
	if (is_harmony(dialogue)) {
		memcpy(marks, harmony, sizeof(harmony));
		return sizeof(harmony) / sizeof(*harmony);
	}
	if (dialogue->params.thoughts && !dialogue->spoke && !dialogue->after_thought)
		marks[count++] = dialogue->params.thoughts->begin;
	if (call_mark(dialogue))
		marks[count++] = call_mark(dialogue);
	return count;
}

static void begin_marked(struct dialogue *dialogue, const char *mark)
{
	if (is_harmony(dialogue) && (!strcmp(mark, "<|channel|>") || !strcmp(mark, "<|start|>"))) {
		buffer_clear(&dialogue->raw);
		dialogue_take(dialogue, strlen(mark));
		dialogue->state = DIALOGUE_IN_HEADER;
	} else if (is_harmony(dialogue)) {
		drop(dialogue, strlen(mark));
	} else if (dialogue->params.thoughts && !strcmp(mark, dialogue->params.thoughts->begin)) {
		drop(dialogue, strlen(mark));
		dialogue->state = DIALOGUE_IN_THOUGHT;
	} else {
		dialogue_begin_call(dialogue);
	}
}

static const char recipient_mark[] = " to=functions.";

// The prompt of harmony ends with "<|start|>assistant", so an answer may go on with the recipient of a call.
static enum match match_recipient(const struct dialogue *dialogue)
{
	const bool first = !dialogue->dropped && !dialogue->at && dialogue_left(dialogue);
	return first && is_harmony(dialogue) ? dialogue_match(dialogue, recipient_mark) : MATCH_NO;
}

static bool in_text(struct dialogue *dialogue)
{
	const enum match recipient = match_recipient(dialogue);
	if (recipient == MATCH_YES) {
		buffer_clear(&dialogue->raw);
		dialogue_take(dialogue, sizeof(recipient_mark) - 1);
		dialogue->state = DIALOGUE_IN_HEADER;
	}
	if (recipient != MATCH_NO)
		return recipient == MATCH_YES;
	const char *marks[MARKS];
	const size_t count = marks_of_text(dialogue, marks);
	const struct call_syntax *calls = dialogue->params.calls;
	if (calls && calls->bare && !dialogue->spoke && !dialogue->calls && dialogue_left(dialogue)) {
		size_t blanks = 0;
		while (blanks < dialogue_left(dialogue) && is_blank(dialogue_rest(dialogue)[blanks]))
			blanks++;
		if (blanks < dialogue_left(dialogue) && dialogue_rest(dialogue)[blanks] == '{') {
			if (blanks > BLANKS)
				say(dialogue, DIALOGUE_TEXT, blanks - BLANKS);
			dialogue_begin_call(dialogue);
			return true;
		}
	}
	const struct found found = find(dialogue, marks, count);
	if (found.mark) {
		const bool drops = found.mark == call_mark(dialogue) || !dialogue->spoke;
		const size_t solid = drops ? without_waiting(dialogue, found.at) : found.at;
		const bool spoke = dialogue->spoke;
		say(dialogue, DIALOGUE_TEXT, solid);
		if (dialogue->spoke != spoke)
			return true; // which may be more than stands before a thought
		drop(dialogue, found.at - solid);
		begin_marked(dialogue, found.mark);
		return true;
	}
	// Blanks wait while a mark may follow them.
	say(dialogue, DIALOGUE_TEXT, count ? without_waiting(dialogue, found.at) : found.at);
	return false;
}

static bool in_thought(struct dialogue *dialogue)
{
	const char *const marks[] = {dialogue->params.thoughts->end};
	const struct found found = find(dialogue, marks, 1);
	const size_t end = without_waiting(dialogue, found.at);
	say(dialogue, DIALOGUE_THOUGHT, end);
	if (!found.mark)
		return false;
	drop(dialogue, found.at - end + strlen(found.mark));
	dialogue->state = DIALOGUE_IN_TEXT;
	dialogue->after_thought = true;
	dialogue->thought_spoke = false;
	dialogue_note_place(dialogue);
	return true;
}

// ---- the whole ----

static bool step(struct dialogue *dialogue)
{
	switch (dialogue->state) {
	case DIALOGUE_IN_TEXT:
		return in_text(dialogue);
	case DIALOGUE_IN_THOUGHT:
		return in_thought(dialogue);
	case DIALOGUE_IN_HEADER:
		return dialogue_in_header(dialogue);
	case DIALOGUE_IN_BETWEEN:
		return dialogue_in_between(dialogue);
	case DIALOGUE_IN_NAME:
		return dialogue_in_name(dialogue);
	case DIALOGUE_IN_OBJECT:
		return dialogue_in_object(dialogue);
	case DIALOGUE_IN_ARGUMENTS:
		return dialogue_in_arguments(dialogue);
	case DIALOGUE_IN_PAIRS:
		return dialogue_in_pairs(dialogue);
	case DIALOGUE_IN_CODE:
		return dialogue_in_code(dialogue);
	case DIALOGUE_IN_TAIL:
		return dialogue_in_tail(dialogue);
	}
	return false;
}

enum status dialogue_feed(struct dialogue *dialogue, const char *bytes, size_t length)
{
	enum status status = buffer_append(&dialogue->held, bytes, length);
	while (!status && !dialogue->trouble && dialogue_left(dialogue) && step(dialogue))
		;
	buffer_consume(&dialogue->held, dialogue->at);
	dialogue->dropped += dialogue->at;
	dialogue->at = 0;
	return status ? status : dialogue->trouble;
}

enum status dialogue_end(struct dialogue *dialogue, bool cut)
{
	switch (dialogue->state) {
	case DIALOGUE_IN_TEXT:
		if (dialogue_left(dialogue))
			say(dialogue, DIALOGUE_TEXT, dialogue_left(dialogue));
		break;
	case DIALOGUE_IN_THOUGHT:
		say(dialogue, DIALOGUE_THOUGHT, without_blanks(dialogue, dialogue_left(dialogue)));
		break;
	case DIALOGUE_IN_HEADER:
	case DIALOGUE_IN_BETWEEN:
	case DIALOGUE_IN_TAIL:
		break;
	case DIALOGUE_IN_NAME:
	case DIALOGUE_IN_OBJECT:
	case DIALOGUE_IN_ARGUMENTS:
	case DIALOGUE_IN_PAIRS:
	case DIALOGUE_IN_CODE:
		if (dialogue->announced && cut) {
			dialogue_tell(dialogue, DIALOGUE_CALL_END, "", 0);
			break;
		}
		dialogue_take(dialogue, dialogue_left(dialogue));
		dialogue_revert(dialogue);
		break;
	}
	drop(dialogue, dialogue_left(dialogue));
	return dialogue->trouble;
}

bool dialogue_thinks(const struct dialogue *dialogue)
{
	return dialogue->state == DIALOGUE_IN_THOUGHT;
}

struct dialogue_place dialogue_place(const struct dialogue *dialogue)
{
	return (struct dialogue_place){.calls = dialogue->marked,
				       .arguments = dialogue->begun,
				       .whole = dialogue->calls,
				       .behind = dialogue->dropped + dialogue->held.length - dialogue->place,
				       .name = dialogue->name};
}
