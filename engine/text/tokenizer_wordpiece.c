/* WordPiece, as BERT has it (Devlin et al., arXiv 1810.04805): text is cleaned, taken apart into base characters and
 * accents, which are dropped, and put into small letters; words are what stands between white space and punctuation;
 * each is the longest token that it begins with, then the longest that goes on, and so forth. A word that is not made
 * of tokens is the unknown token.
 *
 * In the file a token that begins a word has U+2581 before it, and one that goes on has nothing. Takes time linear in
 * the text, times the longest token. Thread: any; nothing is kept. */
#include "common/text/unicode.h"
#include "engine/text/vocabulary.h"
#include "engine/text/wordpiece_table.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))
enum { WORD_CHARACTERS = 100, BEGIN_BYTES = 3 }; // longer words are unknown; length of U+2581

// The classes of tools/dev/wordpiece.py.
enum wordpiece_class { CLASS_PLAIN, CLASS_REMOVED, CLASS_SPACE, CLASS_PUNCTUATION, CLASS_IDEOGRAPH, CLASS_ACCENT };

struct wordpiece {
	const struct tokenizer *tokenizer;
	struct token_list *out;
	uint32_t characters;                             // characters of the word so far, counted beyond those that are
							 // kept
	uint8_t word[BEGIN_BYTES + 4 * WORD_CHARACTERS]; // behind U+2581
	uint32_t length;                                 // with that
	uint32_t places[WORD_CHARACTERS + 1];            // where its characters begin, and its end
};

static enum wordpiece_class class_of(uint32_t character)
{
	size_t low = 0, high = COUNT(wordpiece_classes);
	while (high - low > 1) { // the last range that begins at or before the character
		size_t middle = (low + high) / 2;
		if (wordpiece_classes[middle] >> 3 <= character)
			low = middle;
		else
			high = middle;
	}
	return (enum wordpiece_class)(wordpiece_classes[low] & 7);
}

static uint32_t small_of(uint32_t character)
{
	size_t low = 0, high = COUNT(wordpiece_small);
	while (high - low > 1) {
		size_t middle = (low + high) / 2;
		if ((uint32_t)wordpiece_small[middle][0] <= character)
			low = middle;
		else
			high = middle;
	}
	const int32_t *run = wordpiece_small[low], at = (int32_t)character - run[0];
	return at >= 0 && (int32_t)character <= run[1] && at % run[2] == 0 ? (uint32_t)((int32_t)character + run[3])
									   : character;
}

// The token of the longest beginning of the word's characters from `first` on; *next is set behind it.
static int32_t longest(const struct wordpiece *wordpiece, uint32_t first, uint32_t *next)
{
	// U+2581 belongs to the first token.
	const uint32_t from = first ? wordpiece->places[first] : 0;
	if (first && !memcmp(wordpiece->word + from, wordpiece->word, BEGIN_BYTES))
		return NO_TOKEN; // the character itself goes on with nothing that could be told from a beginning
	for (uint32_t end = wordpiece->characters; end > first; end--) {
		const size_t length = wordpiece->places[end] - from;
		if (length > wordpiece->tokenizer->longest)
			continue;
		const int32_t token = tokenizer_lookup(wordpiece->tokenizer, wordpiece->word + from, length);
		if (token != NO_TOKEN) {
			*next = end;
			return token;
		}
	}
	return NO_TOKEN;
}

// The word is over: its tokens, or the unknown one.
static enum status end_word(struct wordpiece *wordpiece)
{
	const size_t before = wordpiece->out->count;
	enum status status = STATUS_OK;
	bool known = wordpiece->characters <= WORD_CHARACTERS;
	for (uint32_t at = 0; known && at < wordpiece->characters && !status;) {
		const int32_t token = longest(wordpiece, at, &at);
		known = token != NO_TOKEN;
		if (known)
			status = token_list_add(wordpiece->out, (uint32_t)token);
	}
	if (!known) {
		wordpiece->out->count = before;
		status = token_list_add(wordpiece->out, (uint32_t)wordpiece->tokenizer->unknown);
	}
	wordpiece->characters = 0;
	wordpiece->length = BEGIN_BYTES;
	return status;
}

static void add_character(struct wordpiece *wordpiece, uint32_t character)
{
	if (wordpiece->characters < WORD_CHARACTERS) {
		wordpiece->places[wordpiece->characters] = wordpiece->length;
		wordpiece->length += utf8_write(character, wordpiece->word + wordpiece->length);
		wordpiece->places[wordpiece->characters + 1] = wordpiece->length;
	}
	wordpiece->characters += wordpiece->characters <= WORD_CHARACTERS;
}

// A character as it is once accents are off: punctuation is a word of its own.
static enum status take_part(struct wordpiece *wordpiece, uint32_t part)
{
	if (class_of(part) != CLASS_PUNCTUATION) {
		add_character(wordpiece, part);
		return STATUS_OK;
	}
	enum status status = end_word(wordpiece);
	add_character(wordpiece, part);
	return status ? status : end_word(wordpiece);
}

static enum status take_parts(struct wordpiece *wordpiece, uint32_t character)
{
	uint32_t parts[UNICODE_PARTS_MOST];
	if (!wordpiece->tokenizer->lowercase)
		return take_part(wordpiece, character);
	const unsigned count = unicode_parts(character, parts);
	enum status status = STATUS_OK;
	for (unsigned i = 0; i < count && !status; i++)
		if (class_of(parts[i]) != CLASS_ACCENT)
			status = take_part(wordpiece, small_of(parts[i]));
	return status;
}

enum status tokenizer_encode_wordpiece(const struct tokenizer *tokenizer, const char *text, size_t length,
				       struct token_list *out)
{
	struct wordpiece wordpiece = {
		.tokenizer = tokenizer, .out = out, .word = {0xE2, 0x96, 0x81}, .length = BEGIN_BYTES};
	enum status status = STATUS_OK;
	unsigned bytes;
	for (size_t at = 0; at < length && !status; at += bytes) {
		const uint32_t character = utf8_first(text + at, &bytes);
		const enum wordpiece_class class = class_of(character);
		if (class == CLASS_REMOVED)
			continue;
		if (class == CLASS_SPACE || class == CLASS_IDEOGRAPH)
			status = end_word(&wordpiece);
		if (!status && class != CLASS_SPACE)
			status = take_parts(&wordpiece, character);
		if (!status && class == CLASS_IDEOGRAPH)
			status = end_word(&wordpiece);
	}
	return status ? status : end_word(&wordpiece);
}
