/* Calls: from their marks to the end of their arguments. See parser.h. */
#include "engine/dialogue/parser_inside.h"

enum { HEADER_BYTES = 512 };

static const char message_mark[] = "<|message|>", function_mark[] = "to=functions.";

const struct json *dialogue_tool(const struct dialogue *dialogue, const char *name)
{
	for (const struct json *one = json_first(dialogue->params.tools); one; one = json_next(one)) {
		const struct json *function = json_get(one, "function");
		if (!strcmp(json_get_string(function, "name", ""), name))
			return function;
	}
	return NULL;
}

static bool is_name(char byte)
{
	return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
	       byte == '_' || byte == '-' || byte == '.';
}

// Set the call's name. False: no tool has this name.
static bool set_name(struct dialogue *dialogue, const char *text, size_t length)
{
	if (!length || length > DIALOGUE_NAME_BYTES)
		return false;
	memcpy(dialogue->name, text, length);
	dialogue->name[length] = 0;
	return dialogue_tool(dialogue, dialogue->name);
}

// The call is malformed: everything taken for it becomes plain text.
static bool wrong(struct dialogue *dialogue)
{
	dialogue_revert(dialogue);
	return true;
}

static bool go(struct dialogue *dialogue, enum dialogue_state state)
{
	dialogue->state = state;
	return true;
}

// ---- beginnings ----

static void forget_call(struct dialogue *dialogue)
{
	dialogue->name[0] = 0;
	dialogue->announced = false;
	dialogue->member = MEMBER_OTHER;
	dialogue->arguments_from = dialogue->arguments_to = dialogue->arguments_told = 0;
	dialogue->pairs = 0;
	scan_init(&dialogue->scan);
}

// Enter the part of a call that comes after its mark, or that begins a call without a mark.
static bool enter_call(struct dialogue *dialogue)
{
	const enum call_form form = dialogue->params.calls->form;
	forget_call(dialogue);
	return go(dialogue, form == CALL_FORM_JSON   ? DIALOGUE_IN_OBJECT
			    : form == CALL_FORM_CODE ? DIALOGUE_IN_CODE
						     : DIALOGUE_IN_NAME);
}

static void note_mark(struct dialogue *dialogue)
{
	dialogue->marked++;
	dialogue_note_place(dialogue);
}

void dialogue_begin_call(struct dialogue *dialogue)
{
	const struct call_syntax *calls = dialogue->params.calls;
	const char *mark = calls->section ? calls->section : calls->begin;
	buffer_clear(&dialogue->raw);
	forget_call(dialogue);
	if (dialogue_take_mark(dialogue, mark) == MATCH_YES)
		note_mark(dialogue);
	if (calls->section)
		go(dialogue, DIALOGUE_IN_BETWEEN);
	else
		enter_call(dialogue);
}

void dialogue_announce(struct dialogue *dialogue)
{
	if (dialogue->announced)
		return;
	dialogue->announced = true;
	dialogue->begun++;
	dialogue_tell(dialogue, DIALOGUE_CALL, dialogue->name, strlen(dialogue->name));
}

void dialogue_end_call(struct dialogue *dialogue)
{
	dialogue->calls++;
	dialogue->spoke = true;
	dialogue->announced = false; // what breaks from now on is no part of it
	dialogue_tell(dialogue, DIALOGUE_CALL_END, "", 0);
	go(dialogue, DIALOGUE_IN_TAIL);
}

// ---- between calls ----

// Another call of the same section, or the list, or its end.
bool dialogue_in_between(struct dialogue *dialogue)
{
	const struct call_syntax *calls = dialogue->params.calls;
	dialogue_skip_blanks(dialogue);
	if (!dialogue_left(dialogue))
		return false;
	const char next = dialogue_rest(dialogue)[0];
	if (dialogue->listed && next == ']')
		dialogue->listed = false;
	const bool passed = (next == ']' && calls->form == CALL_FORM_LIST && !calls->after_name) ||
			    (next == ',' && dialogue->listed) || (next == ';' && calls->bare);
	if (passed) {
		dialogue_take(dialogue, 1);
		return true;
	}
	if (dialogue->begun >= DIALOGUE_CALLS)
		return go(dialogue, DIALOGUE_IN_TEXT);
	if (next == '{' && (dialogue->listed || (calls->bare && dialogue->calls))) {
		forget_call(dialogue);
		return go(dialogue, DIALOGUE_IN_OBJECT);
	}
	const enum match begins = dialogue_match(dialogue, calls->begin);
	if (begins == MATCH_YES && calls->form != CALL_FORM_HEADER) {
		dialogue_take(dialogue, strlen(calls->begin));
		if (!calls->section)
			note_mark(dialogue);
		return enter_call(dialogue);
	}
	const enum match ends = calls->section_end ? dialogue_take_mark(dialogue, calls->section_end) : MATCH_NO;
	if (ends == MATCH_PART || (begins == MATCH_PART && calls->form != CALL_FORM_HEADER))
		return false;
	const char *opening = calls->section ? calls->section : dialogue->listed ? calls->begin : NULL;
	if (ends == MATCH_NO && opening && !strncmp(buffer_text(&dialogue->raw), opening, strlen(opening)))
		return wrong(dialogue); // a section or a list without a call
	return go(dialogue, DIALOGUE_IN_TEXT);
}

bool dialogue_in_tail(struct dialogue *dialogue)
{
	const char *end = dialogue->params.calls->end;
	dialogue_skip_blanks(dialogue);
	if (!dialogue_left(dialogue))
		return false;
	while (end && *end == '\n') // which has been passed
		end++;
	if (end && dialogue_take_mark(dialogue, end) == MATCH_PART)
		return false;
	buffer_clear(&dialogue->raw);
	return go(dialogue, DIALOGUE_IN_BETWEEN);
}

// ---- names ----

// A mark within the first HEADER_BYTES of the text that is left; NULL: it is not there.
static const char *find_in_header(const struct dialogue *dialogue, const char *mark)
{
	const size_t left = dialogue_left(dialogue);
	return memmem(dialogue_rest(dialogue), left < HEADER_BYTES ? left : HEADER_BYTES, mark, strlen(mark));
}

// <|channel|>analysis<|message|>, <|start|>assistant<|channel|>commentary to=functions.NAME json<|message|> and so on.
bool dialogue_in_header(struct dialogue *dialogue)
{
	const char *end = find_in_header(dialogue, message_mark);
	if (!end && dialogue_left(dialogue) < HEADER_BYTES)
		return false;
	if (!end)
		return wrong(dialogue);
	dialogue_take(dialogue, (size_t)(end - dialogue_rest(dialogue)) + sizeof(message_mark) - 1);
	const char *header = buffer_text(&dialogue->raw), *at = strstr(header, function_mark);
	const char *name = at ? at + sizeof(function_mark) - 1 : NULL;
	size_t length = 0;
	forget_call(dialogue);
	while (name && is_name(name[length]))
		length++;
	if (name && dialogue->params.calls && dialogue->begun < DIALOGUE_CALLS && set_name(dialogue, name, length))
		return go(dialogue, DIALOGUE_IN_ARGUMENTS);
	const bool thinks = dialogue->params.thoughts && strstr(header, "<|channel|>analysis");
	if (name)
		return wrong(dialogue);
	buffer_clear(&dialogue->raw);
	return go(dialogue, thinks ? DIALOGUE_IN_THOUGHT : DIALOGUE_IN_TEXT);
}

// Behind the name: what must stand there, of Mistral also an id, or nothing.
static enum match take_behind_name(struct dialogue *dialogue)
{
	static const char call_id[] = "[CALL_ID]";
	const struct call_syntax *calls = dialogue->params.calls;
	if (!calls->after_name || calls->form == CALL_FORM_PAIRS)
		return calls->after_name ? dialogue_take_mark(dialogue, calls->after_name) : MATCH_YES;
	if (calls->form == CALL_FORM_LIST) {
		const enum match id = dialogue_match(dialogue, call_id);
		if (dialogue_rest(dialogue)[0] == '{')
			return MATCH_YES;
		const char *arguments = id == MATCH_YES ? find_in_header(dialogue, calls->after_name) : NULL;
		if (arguments)
			dialogue_take(dialogue, (size_t)(arguments - dialogue_rest(dialogue)));
		else if (id != MATCH_NO)
			return dialogue_left(dialogue) < HEADER_BYTES ? MATCH_PART : MATCH_NO;
	}
	return dialogue_take_mark(dialogue, calls->after_name);
}

bool dialogue_in_name(struct dialogue *dialogue)
{
	const struct call_syntax *calls = dialogue->params.calls;
	if (!dialogue->name[0]) {
		dialogue_skip_blanks(dialogue);
		if (!dialogue_left(dialogue))
			return false;
		if (calls->form == CALL_FORM_LIST && dialogue_rest(dialogue)[0] == '[') {
			dialogue_take(dialogue, 1);
			dialogue->listed = true;
			return go(dialogue, DIALOGUE_IN_BETWEEN);
		}
		const char *text = dialogue_rest(dialogue);
		const size_t left = dialogue_left(dialogue), mark = calls->before_name ? strlen(calls->before_name) : 0;
		const enum match marked = mark ? dialogue_match(dialogue, calls->before_name) : MATCH_YES;
		size_t end = mark;
		if (marked != MATCH_YES)
			return marked == MATCH_PART ? false : wrong(dialogue);
		while (end < left && is_name(text[end]))
			end++;
		if (end == left && end - mark <= DIALOGUE_NAME_BYTES)
			return false;
		const bool known = set_name(dialogue, text + mark, end - mark);
		dialogue_take(dialogue, end);
		if (!known)
			return wrong(dialogue);
	}
	if (!dialogue_left(dialogue))
		return false;
	const enum match behind = take_behind_name(dialogue);
	if (behind != MATCH_YES)
		return behind == MATCH_PART ? false : wrong(dialogue);
	return go(dialogue, calls->form == CALL_FORM_PAIRS ? DIALOGUE_IN_PAIRS : DIALOGUE_IN_ARGUMENTS);
}

// ---- arguments of JSON ----

static void tell_arguments(struct dialogue *dialogue)
{
	const size_t end = dialogue->arguments_to ? dialogue->arguments_to : dialogue->raw.length;
	if (!dialogue->name[0] || !dialogue->arguments_from)
		return;
	if (!dialogue->announced)
		dialogue->arguments_told = dialogue->arguments_from;
	dialogue_announce(dialogue);
	if (end > dialogue->arguments_told)
		dialogue_tell(dialogue, DIALOGUE_ARGUMENTS, buffer_text(&dialogue->raw) + dialogue->arguments_told,
			      end - dialogue->arguments_told);
	dialogue->arguments_told = end;
}

// A JSON object and nothing else: the arguments.
bool dialogue_in_arguments(struct dialogue *dialogue)
{
	enum scan_verdict verdict = SCAN_MORE;
	if (!dialogue->arguments_from) {
		dialogue_skip_blanks(dialogue);
		if (!dialogue_left(dialogue))
			return false;
		if (dialogue_rest(dialogue)[0] != '{')
			return wrong(dialogue);
		dialogue->arguments_from = dialogue->raw.length;
		dialogue_note_place(dialogue);
	}
	while (verdict == SCAN_MORE && dialogue_left(dialogue)) {
		verdict = scan_byte(&dialogue->scan, (uint8_t)dialogue_rest(dialogue)[0]);
		if (verdict != SCAN_BAD)
			dialogue_take(dialogue, 1);
	}
	tell_arguments(dialogue);
	if (verdict == SCAN_BAD)
		return wrong(dialogue);
	if (verdict == SCAN_DONE)
		dialogue_end_call(dialogue);
	return verdict == SCAN_DONE;
}

static bool is_text(const struct dialogue *dialogue, size_t from, const char *what)
{
	const struct buffer *raw = &dialogue->raw;
	const size_t length = raw->length - 1 - from; // without the quote
	return length == strlen(what) && !memcmp(raw->data + from, what, length);
}

// Note what the event after this byte of a JSON call says: a name, or where its arguments begin and end. False: this is
// not a call.
static bool note_member(struct dialogue *dialogue, char byte)
{
	const struct scan *scan = &dialogue->scan;
	if (scan->at != 1 || scan->event == SCAN_NOTHING)
		return true;
	if (scan->event == SCAN_KEY_BEGIN) {
		dialogue->key_from = dialogue->raw.length;
	} else if (scan->event == SCAN_KEY_END) {
		dialogue->member = is_text(dialogue, dialogue->key_from, "name") ? MEMBER_NAME
				   : is_text(dialogue, dialogue->key_from, "arguments") ||
						   is_text(dialogue, dialogue->key_from, "parameters")
					   ? MEMBER_ARGUMENTS
					   : MEMBER_OTHER;
		return !(dialogue->member == MEMBER_NAME && dialogue->name[0]) &&
		       !(dialogue->member == MEMBER_ARGUMENTS && dialogue->arguments_from);
	} else if (scan->event == SCAN_VALUE_BEGIN) {
		dialogue->value_from = dialogue->raw.length - 1;
		if (dialogue->member == MEMBER_ARGUMENTS && byte == '{') {
			dialogue->arguments_from = dialogue->value_from;
			dialogue_note_place(dialogue);
			dialogue->place--;
		}
		return dialogue->member == MEMBER_NAME        ? byte == '"'
		       : dialogue->member == MEMBER_ARGUMENTS ? byte == '{'
							      : true;
	} else if (dialogue->member == MEMBER_NAME) {
		const bool known = set_name(dialogue, buffer_text(&dialogue->raw) + dialogue->value_from + 1,
					    dialogue->raw.length - dialogue->value_from - 2);
		if (!known)
			dialogue->name[0] = 0;
		return known;
	} else if (dialogue->member == MEMBER_ARGUMENTS) {
		dialogue->arguments_to = dialogue->raw.length;
	}
	return true;
}

// {"name": NAME, "arguments": {...}}, in either order, and whatever else.
bool dialogue_in_object(struct dialogue *dialogue)
{
	enum scan_verdict verdict = SCAN_MORE;
	while (verdict == SCAN_MORE && dialogue_left(dialogue)) {
		const char byte = dialogue_rest(dialogue)[0];
		verdict = scan_byte(&dialogue->scan, (uint8_t)byte);
		if (verdict != SCAN_BAD)
			dialogue_take(dialogue, 1);
		if (verdict != SCAN_BAD && !note_member(dialogue, byte))
			verdict = SCAN_BAD;
	}
	tell_arguments(dialogue);
	if (verdict == SCAN_BAD || (verdict == SCAN_DONE && !dialogue->name[0]))
		return wrong(dialogue);
	if (verdict != SCAN_DONE)
		return false;
	if (!dialogue->arguments_from) {
		dialogue_announce(dialogue);
		dialogue_tell(dialogue, DIALOGUE_ARGUMENTS, "{}", 2);
	}
	dialogue_end_call(dialogue);
	return true;
}
