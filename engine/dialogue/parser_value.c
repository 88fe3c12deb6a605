/* Arguments that are not written as JSON: pairs of marked names and values (GLM, Qwen3-Coder), and calls as Python
 * writes them (Gemma). See parser.h. */
#include "common/json/schema.h"
#include "engine/dialogue/parser_inside.h"

#include <stdlib.h>

enum {
	CODE_DEPTH = 16,
	KEY_BYTES = 1024, // of an argument's name with its marks; the blanks behind it are at most as many
};

static bool wrong(struct dialogue *dialogue)
{
	dialogue_revert(dialogue);
	return true;
}

static void tell_piece(struct dialogue *dialogue, const struct buffer *piece)
{
	if (piece->failed)
		dialogue->trouble = STATUS_LIMIT_EXCEEDED;
	else
		dialogue_tell(dialogue, DIALOGUE_ARGUMENTS, buffer_text(piece), piece->length);
}

// ---- pairs ----

// A value of the tool's parameter as JSON: text where the parameter is one, or where it is nothing else.
static void print_value(struct dialogue *dialogue, const char *key, const char *text, size_t length, struct buffer *out)
{
	const struct json *function = dialogue_tool(dialogue, dialogue->name);
	const struct json *property = json_get(json_get(json_get(function, "parameters"), "properties"), key);
	struct json *value = NULL;
	char *copy = buffer_copy_text(text, length);
	if (!schema_is_text(property) && !json_parse(&value, text, length, NULL))
		json_print(value, out);
	else if (!copy || json_print_string(copy, out))
		out->failed = true;
	json_destroy(&value);
	free(copy);
}

struct pair {
	const char *key, *value;
	size_t key_length, value_length, whole;
};

// The pair that begins here, if it is whole.
static enum match read_pair(struct dialogue *dialogue, struct pair *pair)
{
	const struct call_syntax *calls = dialogue->params.calls;
	const char *text = dialogue_rest(dialogue), *end = text + dialogue_left(dialogue);
	const size_t whole = (size_t)(end - text);
	const char *close = memmem(text, whole < KEY_BYTES ? whole : KEY_BYTES, calls->key_end, strlen(calls->key_end));
	if (!close)
		return whole < KEY_BYTES ? MATCH_PART : MATCH_NO;
	pair->key = text + strlen(calls->key_begin);
	if (close < pair->key || memchr(pair->key, 0, (size_t)(close - pair->key)))
		return MATCH_NO;
	pair->key_length = (size_t)(close - pair->key);
	const char *value = close + strlen(calls->key_end);
	if (calls->value_begin) {
		const char *most = end - value < KEY_BYTES ? end : value + KEY_BYTES;
		while (value < most && (*value == '\n' || *value == ' '))
			value++;
		const size_t length = strlen(calls->value_begin), left = (size_t)(end - value);
		if (memcmp(value, calls->value_begin, left < length ? left : length) != 0)
			return MATCH_NO;
		if (left < length)
			return MATCH_PART;
		value += length;
	}
	const char *from = dialogue->searched > (size_t)(value - text) ? text + dialogue->searched : value;
	const size_t mark = strlen(calls->value_end);
	const char *stop = memmem(from, (size_t)(end - from), calls->value_end, mark);
	if (!stop) {
		dialogue->searched = (size_t)(end - text) > mark ? (size_t)(end - text) - mark : 0;
		return MATCH_PART;
	}
	pair->whole = (size_t)(stop - text) + mark;
	if (!calls->value_begin) { // a line of its own
		value += value < stop && *value == '\n';
		stop -= stop > value && stop[-1] == '\n';
	}
	pair->value = value;
	pair->value_length = (size_t)(stop - value);
	return MATCH_YES;
}

static void tell_pair(struct dialogue *dialogue, const struct pair *pair)
{
	struct buffer piece;
	char *key = buffer_copy_text(pair->key, pair->key_length);
	buffer_init(&piece, DIALOGUE_BYTES);
	buffer_append_text(&piece, dialogue->pairs++ ? ", " : "{");
	if (!key || json_print_string(key, &piece))
		piece.failed = true;
	buffer_append_text(&piece, ": ");
	if (key)
		print_value(dialogue, key, pair->value, pair->value_length, &piece);
	dialogue_announce(dialogue);
	tell_piece(dialogue, &piece);
	dialogue_take(dialogue, pair->whole);
	dialogue->arguments_told = dialogue->raw.length;
	buffer_finish(&piece);
	free(key);
}

bool dialogue_in_pairs(struct dialogue *dialogue)
{
	const struct call_syntax *calls = dialogue->params.calls;
	const char *end = calls->pairs_end ? calls->pairs_end : calls->end;
	struct pair pair;
	const size_t searched = dialogue->searched;
	if (dialogue_left(dialogue) && strchr(" \t\r\n", dialogue_rest(dialogue)[0]))
		dialogue_skip_blanks(dialogue);
	else
		dialogue->searched = searched;
	if (!dialogue_left(dialogue))
		return false;
	const enum match begins = dialogue_match(dialogue, calls->key_begin), ends = dialogue_match(dialogue, end);
	if (begins == MATCH_YES) {
		const enum match whole = read_pair(dialogue, &pair);
		if (whole == MATCH_YES)
			tell_pair(dialogue, &pair);
		return whole == MATCH_NO ? wrong(dialogue) : whole == MATCH_YES;
	}
	if (ends == MATCH_YES) {
		if (calls->pairs_end)
			dialogue_take(dialogue, strlen(end));
		dialogue_announce(dialogue);
		dialogue_tell(dialogue, DIALOGUE_ARGUMENTS, dialogue->pairs ? "}" : "{}", dialogue->pairs ? 1 : 2);
		dialogue_end_call(dialogue);
		return true;
	}
	return begins == MATCH_PART || ends == MATCH_PART ? false : wrong(dialogue);
}

// ---- code ----

struct code {
	const char *at, *end;
	struct buffer *out;
	unsigned depth;
};

static void skip_blanks(struct code *code)
{
	while (code->at < code->end && strchr(" \t\r\n", *code->at) && *code->at)
		code->at++;
}

static bool take(struct code *code, char byte)
{
	skip_blanks(code);
	if (code->at == code->end || *code->at != byte)
		return false;
	code->at++;
	return true;
}

static size_t word(struct code *code)
{
	size_t length = 0;
	skip_blanks(code);
	for (; code->at + length < code->end; length++) {
		const char byte = code->at[length];
		if (!((byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_' ||
		      (byte >= '0' && byte <= '9')))
			break;
	}
	return length;
}

// A text in one or two quotes of a kind, with Python's usual escapes.
static bool take_text(struct code *code)
{
	struct buffer text;
	const char quote = *code->at++;
	buffer_init(&text, DIALOGUE_BYTES);
	while (code->at < code->end && *code->at != quote) {
		char byte = *code->at++;
		if (byte == '\\' && code->at < code->end) {
			byte = *code->at++;
			byte = byte == 'n' ? '\n' : byte == 't' ? '\t' : byte == 'r' ? '\r' : byte;
		}
		buffer_append_byte(&text, (uint8_t)(byte ? byte : ' '));
	}
	bool good = code->at < code->end && json_utf8(buffer_text(&text), text.length) &&
		    !json_print_string(buffer_text(&text), code->out);
	code->at++;
	buffer_finish(&text);
	return good;
}

static bool take_value(struct code *code);

// Behind [ or {, to the other.
static bool take_container(struct code *code, char close)
{
	bool first = true;
	buffer_append_byte(code->out, close == ']' ? '[' : '{');
	while (!take(code, close)) {
		if (!first && !take(code, ','))
			return false;
		if (!first && take(code, close))
			break;
		buffer_append_text(code->out, first ? "" : ", ");
		first = false;
		skip_blanks(code);
		if (close == '}') {
			if (code->at == code->end || (*code->at != '"' && *code->at != '\'') || !take_text(code) ||
			    !take(code, ':'))
				return false;
			buffer_append_text(code->out, ": ");
		}
		if (!take_value(code))
			return false;
	}
	return !buffer_append_byte(code->out, (uint8_t)close);
}

static bool take_value(struct code *code)
{
	static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
					       {"true", "true"}, {"false", "false"}, {"null", "null"}};
	skip_blanks(code);
	if (code->at == code->end || code->depth == CODE_DEPTH)
		return false;
	if (*code->at == '"' || *code->at == '\'')
		return take_text(code);
	if (*code->at == '[' || *code->at == '{') {
		const char close = *code->at++ == '[' ? ']' : '}';
		code->depth++;
		const bool good = take_container(code, close);
		code->depth--;
		return good;
	}
	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (word(code) == strlen(words[i][0]) && !memcmp(code->at, words[i][0], strlen(words[i][0]))) {
			code->at += strlen(words[i][0]);
			return !buffer_append_text(code->out, words[i][1]);
		}
	struct json *number = NULL;
	size_t length = 0;
	while (code->at + length < code->end && strchr("+-.0123456789eE", code->at[length]) && code->at[length])
		length++;
	const bool good = length && !json_parse(&number, code->at, length, NULL) && !json_print(number, code->out);
	json_destroy(&number);
	code->at += length;
	return good;
}

// NAME(KEY=VALUE, ...), also inside print( ) and behind a module's name.
static bool read_code(struct dialogue *dialogue, const char *text, size_t length, struct buffer *arguments)
{
	struct code code = {.at = text, .end = text + length, .out = arguments};
	size_t count = word(&code);
	bool printed = false, first = true;
	if (count == 5 && !memcmp(code.at, "print", 5)) {
		code.at += count;
		printed = take(&code, '(');
		count = word(&code);
	}
	while (count && code.at + count < code.end && code.at[count] == '.') {
		code.at += count + 1;
		count = word(&code);
	}
	if (!count || count > DIALOGUE_NAME_BYTES)
		return false;
	memcpy(dialogue->name, code.at, count);
	dialogue->name[count] = 0;
	code.at += count;
	if (!dialogue_tool(dialogue, dialogue->name) || !take(&code, '('))
		return false;
	buffer_append_text(arguments, "{");
	while (!take(&code, ')')) {
		if (!first && !take(&code, ','))
			return false;
		char key[DIALOGUE_NAME_BYTES + 1] = "";
		count = word(&code);
		if (!count || count > DIALOGUE_NAME_BYTES)
			return false;
		memcpy(key, code.at, count);
		code.at += count;
		buffer_printf(arguments, "%s\"%s\": ", first ? "" : ", ", key);
		first = false;
		if (!take(&code, '=') || !take_value(&code))
			return false;
	}
	buffer_append_text(arguments, "}");
	if (printed && !take(&code, ')'))
		return false;
	skip_blanks(&code);
	return code.at == code.end && !arguments->failed;
}

bool dialogue_in_code(struct dialogue *dialogue)
{
	const char *mark = dialogue->params.calls->end, *text = dialogue_rest(dialogue);
	const size_t left = dialogue_left(dialogue), length = strlen(mark), from = dialogue->searched;
	const char *end = memmem(text + from, left - from, mark, length);
	struct buffer arguments;
	if (!end) {
		dialogue->searched = left > length ? left - length : 0;
		return false;
	}
	buffer_init(&arguments, DIALOGUE_BYTES);
	const bool good = read_code(dialogue, text, (size_t)(end - text), &arguments);
	dialogue_take(dialogue, (size_t)(end - text));
	if (good) {
		dialogue_announce(dialogue);
		tell_piece(dialogue, &arguments);
		dialogue_end_call(dialogue);
	} else {
		wrong(dialogue);
	}
	buffer_finish(&arguments);
	return true;
}
