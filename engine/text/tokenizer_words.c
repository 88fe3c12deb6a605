/* See tokenizer_words.h. The expressions, as they are published, with \s for Unicode's white space:
 *
 *   gpt2, olmo
 *           's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *   smollm, refact
 *           every \p{N} is a word; what lies between is cut as in gpt2
 *   llama3, glm4, chatglm-bpe, dbrx, smaug-bpe, lfm2
 *           (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+
 *           |\s+(?!\S)|\s+
 *   qwen2   as llama3 with \p{N}
 *   qwen35  as qwen2 with [\p{L}\p{M}]+ for letters and [^\s\p{L}\p{M}\p{N}]+ for others
 *   tekken  as qwen2 without the contractions, letters being C?A*B+|C?A+B* with C = [^\r\n\p{L}\p{N}],
 *           A = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], B = [\p{Ll}\p{Lm}\p{Lo}\p{M}], and [\r\n/]* behind the others
 *   o200k, minimax-m2
 *           as tekken with (?i:'s|'t|'re|'ve|'m|'ll|'d)? behind the letters, and \p{N}{1,3}
 *
 *   deepseek-v3, hunyuan-dense, joyai-llm: one expression after another cuts what those before it have left or made
 *           1. \p{N}{1,3}    2. [\u4E00-\u9FA5\u3040-\u30FF]+
 *           3. [!-/:-@[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|
 * ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
 *
 * What no expression of a sequence takes stays together as a word.
 * The first alternative that fits wins, and takes as much as it can. */
#include "engine/text/tokenizer_words.h"

#include "common/text/unicode.h"

#include <string.h>

static const struct pre_tokenizer pre_tokenizers[] = {
	{.name = "llama-bpe", .kind = WORDS_LLAMA3, .whole_words = true, .begins = true},
	{.name = "llama3", .kind = WORDS_LLAMA3, .whole_words = true, .begins = true},
	{.name = "llama-v3", .kind = WORDS_LLAMA3, .whole_words = true, .begins = true},
	{.name = "qwen2", .kind = WORDS_QWEN2, .composes = true},
	{.name = "qwen35", .kind = WORDS_QWEN35, .composes = true},
	{.name = "deepseek-r1-qwen", .kind = WORDS_QWEN2, .composes = true},
	{.name = "tekken", .kind = WORDS_TEKKEN, .whole_words = true, .begins = true},
	{.name = "gpt-4o", .kind = WORDS_O200K},
	{.name = "minimax-m2", .kind = WORDS_O200K},
	{.name = "deepseek-v3", .kind = WORDS_DEEPSEEK3, .begins = true},
	{.name = "hunyuan-dense", .kind = WORDS_DEEPSEEK3},
	{.name = "joyai-llm", .kind = WORDS_DEEPSEEK3},
	{.name = "smollm", .kind = WORDS_SMOLLM},
	{.name = "gpt-2", .kind = WORDS_GPT2},
	{.name = "glm4", .kind = WORDS_LLAMA3, .whole_words = true},
	{.name = "chatglm-bpe", .kind = WORDS_LLAMA3, .whole_words = true},
	{.name = "dbrx", .kind = WORDS_LLAMA3},
	{.name = "smaug-bpe", .kind = WORDS_LLAMA3, .begins = true},
	{.name = "lfm2", .kind = WORDS_LLAMA3, .whole_words = true, .begins = true},
	{.name = "refact", .kind = WORDS_SMOLLM},
	{.name = "olmo", .kind = WORDS_GPT2},
};

const struct pre_tokenizer *pre_tokenizer_find(const char *name, size_t length)
{
	for (size_t i = 0; i < sizeof pre_tokenizers / sizeof *pre_tokenizers; i++)
		if (strlen(pre_tokenizers[i].name) == length && !memcmp(pre_tokenizers[i].name, name, length))
			return &pre_tokenizers[i];
	return NULL;
}

const char *pre_tokenizer_names(void)
{
	return "llama-bpe, llama3, llama-v3, qwen2, qwen35, deepseek-r1-qwen, tekken, gpt-4o, minimax-m2, deepseek-v3, "
	       "hunyuan-dense, joyai-llm, smollm, gpt-2, glm4, chatglm-bpe, dbrx, smaug-bpe, lfm2, "
	       "refact, olmo";
}

// ---- classes ----

enum { UPPER = 1, LOWER = 2, UNCASED = 4, MARK = 8, NUMBER = 16, SPACE = 32, SYMBOL = 64, REST = 128 };
enum { LETTER = UPPER | LOWER | UNCASED, OTHER = MARK | SYMBOL | REST };
// Classes with which a word of tekken begins, and with which it ends.
enum { HEAD = UPPER | UNCASED | MARK, TAIL = LOWER | UNCASED | MARK };

// The class of the first character of text that is not empty, and its length.
static unsigned first_class(const char *text, unsigned *bytes)
{
	static const uint8_t classes[] = {
		[CHARACTER_OTHER] = REST,     [CHARACTER_UPPER] = UPPER,   [CHARACTER_LOWER] = LOWER,
		[CHARACTER_LETTER] = UNCASED, [CHARACTER_MARK] = MARK,     [CHARACTER_NUMBER] = NUMBER,
		[CHARACTER_SPACE] = SPACE,    [CHARACTER_SYMBOL] = SYMBOL,
	};
	return classes[unicode_class(utf8_first(text, bytes))];
}

// How far characters of these classes go, `most` of them at most.
static size_t run_length(unsigned classes, const char *text, size_t length, size_t most)
{
	size_t at = 0;
	for (size_t i = 0; i < most && at < length; i++) {
		unsigned bytes;
		if (!(first_class(text + at, &bytes) & classes))
			break;
		at += bytes;
	}
	return at;
}

static bool is_newline(char byte)
{
	return byte == '\r' || byte == '\n';
}

// ---- alternatives; each returns the length that it matches, 0 if it does not fit ----

static size_t contraction(const char *text, size_t length, bool any_case)
{
	static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
	if (text[0] != '\'')
		return 0;
	for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
		size_t count = strlen(endings[i]), same = 0;
		while (same < count && same + 1 < length) {
			char byte = text[same + 1];
			if (any_case && byte >= 'A' && byte <= 'Z')
				byte = (char)(byte - 'A' + 'a');
			if (byte != endings[i][same])
				break;
			same++;
		}
		if (same == count)
			return 1 + count;
	}
	return 0;
}

// White space that begins here, with no line's end in it that matters: all of it at the end of the text, else all but
// its last character, unless it is one.
static size_t space_length(const char *text, size_t length, size_t spaces)
{
	if (spaces == length)
		return spaces;
	size_t last = spaces - 1;
	while (((unsigned char)text[last] & 0xC0) == 0x80)
		last--;
	return last ? last : spaces;
}

static size_t gpt2_word(const char *text, size_t length)
{
	size_t taken = contraction(text, length, false);
	if (taken)
		return taken;
	size_t space = text[0] == ' ';
	if (space < length) {
		unsigned bytes, class = first_class(text + space, &bytes);
		unsigned run = class & LETTER ? LETTER : class & OTHER ? OTHER : class;
		if (class != SPACE)
			return space + run_length(run, text + space, length - space, SIZE_MAX);
	}
	return space_length(text, length, run_length(SPACE, text, length, SIZE_MAX));
}

static size_t smollm_word(const char *text, size_t length)
{
	unsigned bytes;
	if (first_class(text, &bytes) == NUMBER)
		return bytes;
	// Words end where a number begins: white space before a number is a word of its own.
	size_t taken = gpt2_word(text, length);
	size_t spaces = run_length(SPACE, text, length, SIZE_MAX);
	if (spaces && spaces < length && first_class(text + spaces, &bytes) == NUMBER)
		return spaces;
	return taken;
}

// Characters that are neither letters nor numbers, with line ends after them, or slashes; or white space.
static size_t other_word(unsigned classes, const char *text, size_t length, bool slashes)
{
	unsigned bytes;
	size_t space = text[0] == ' ';
	if (space < length && first_class(text + space, &bytes) & classes) {
		size_t taken = space + run_length(classes, text + space, length - space, SIZE_MAX);
		while (taken < length && (is_newline(text[taken]) || (slashes && text[taken] == '/')))
			taken++;
		return taken;
	}
	size_t spaces = run_length(SPACE, text, length, SIZE_MAX);
	for (size_t i = spaces; i > 0; i--)
		if (is_newline(text[i - 1]))
			return i;
	return space_length(text, length, spaces);
}

// letters: classes of characters that words are made of; others: neither those nor numbers.
static size_t llama3_word(unsigned letters, unsigned others, const char *text, size_t length, size_t digits)
{
	unsigned first_bytes, bytes;
	size_t taken = contraction(text, length, true);
	if (taken)
		return taken;
	unsigned class = first_class(text, &first_bytes);
	size_t prefix = class & (LETTER | NUMBER) || is_newline(text[0]) ? 0 : first_bytes;
	if (class & letters || (prefix && prefix < length && first_class(text + prefix, &bytes) & letters))
		return prefix + run_length(letters, text + prefix, length - prefix, SIZE_MAX);
	if (class == NUMBER)
		return run_length(NUMBER, text, length, digits);
	return other_word(others, text, length, false);
}

// A*B+: as many as there are of A, and B behind them; where none is, the last of A that is also of B is the end.
static size_t cased_length(const char *text, size_t length)
{
	size_t head = run_length(HEAD, text, length, SIZE_MAX);
	size_t tail = run_length(TAIL, text + head, length - head, SIZE_MAX);
	unsigned bytes;
	if (tail)
		return head + tail;
	while (head) {
		size_t last = head - 1;
		while (((unsigned char)text[last] & 0xC0) == 0x80)
			last--;
		if (first_class(text + last, &bytes) & TAIL)
			return head;
		head = last;
	}
	return 0;
}

// C?A*B+ or, if that does not match, C?A+B*.
static size_t tekken_letters(const char *text, size_t length)
{
	unsigned bytes, class = first_class(text, &bytes);
	size_t prefix = class & (LETTER | NUMBER) || is_newline(text[0]) ? 0 : bytes;
	size_t taken = prefix < length ? cased_length(text + prefix, length - prefix) : 0;
	if (taken)
		return prefix + taken;
	taken = prefix ? cased_length(text, length) : 0;
	if (!taken) { // C?A+, since no B follows
		taken = run_length(HEAD, text + prefix, length - prefix, SIZE_MAX);
		taken = taken ? prefix + taken : 0;
	}
	return taken;
}

static size_t tekken_word(const char *text, size_t length, size_t digits, bool contractions)
{
	unsigned bytes;
	const size_t taken = tekken_letters(text, length);
	if (taken)
		return taken + (contractions && taken < length ? contraction(text + taken, length - taken, true) : 0);
	if (first_class(text, &bytes) == NUMBER)
		return run_length(NUMBER, text, length, digits);
	return other_word(OTHER, text, length, true);
}

// ---- sequences of expressions ----

static bool is_ascii_letter(char byte)
{
	return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

static bool is_deepseek3_script(uint32_t character)
{
	return (character >= 0x4E00 && character <= 0x9FA5) || (character >= 0x3040 && character <= 0x30FF);
}

// How far the first piece goes that the first two expressions make of a text which begins with no number, but no
// farther than three runs of a class: a word is no longer, and what is behind them need not be looked at again for
// each.
static size_t deepseek3_piece(const char *text, size_t length)
{
	enum { RUNS = 3 };
	unsigned bytes, last = 0, runs = 0;
	const bool script = is_deepseek3_script(utf8_first(text, &bytes));
	size_t at = 0;
	for (; at < length; at += bytes) {
		unsigned class = first_class(text + at, &bytes);
		class = class & (LETTER | MARK) ? LETTER : class;
		if (class == NUMBER || is_deepseek3_script(utf8_first(text + at, &bytes)) != script)
			break;
		runs += class != last;
		if (runs > RUNS)
			break;
		last = class;
	}
	return at;
}

// What nothing takes, up to the last character of it, which belongs to letters behind it.
static size_t unmatched_length(const char *text, size_t length)
{
	unsigned bytes;
	size_t last = 0, at = 0;
	while (at < length && first_class(text + at, &bytes) == REST) {
		last = at;
		at += bytes;
	}
	return at < length && first_class(text + at, &bytes) & (LETTER | MARK) ? last : at;
}

// The third expression, of a piece.
static size_t deepseek3_within(const char *text, size_t length)
{
	const unsigned letters = LETTER | MARK;
	unsigned first_bytes, bytes, class = first_class(text, &first_bytes);
	if (class == SYMBOL && first_bytes == 1 && length > 1 && is_ascii_letter(text[1])) {
		size_t at = 2;
		while (at < length && is_ascii_letter(text[at]))
			at++;
		return at;
	}
	const size_t prefix = class & (LETTER | SYMBOL) || is_newline(text[0]) ? 0 : first_bytes;
	if (class & letters || (prefix && prefix < length && first_class(text + prefix, &bytes) & letters))
		return prefix + run_length(letters, text + prefix, length - prefix, SIZE_MAX);
	return class == REST ? unmatched_length(text, length) : other_word(SYMBOL, text, length, false);
}

static size_t deepseek3_word(const char *text, size_t length)
{
	unsigned bytes;
	if (first_class(text, &bytes) == NUMBER)
		return run_length(NUMBER, text, length, 3);
	return deepseek3_within(text, deepseek3_piece(text, length));
}

size_t word_length(enum word_kind kind, const char *text, size_t length)
{
	switch (kind) {
	case WORDS_GPT2:
		return gpt2_word(text, length);
	case WORDS_SMOLLM:
		return smollm_word(text, length);
	case WORDS_LLAMA3:
		return llama3_word(LETTER, OTHER, text, length, 3);
	case WORDS_QWEN2:
		return llama3_word(LETTER, OTHER, text, length, 1);
	case WORDS_QWEN35:
		return llama3_word(LETTER | MARK, SYMBOL | REST, text, length, 1);
	case WORDS_TEKKEN:
		return tekken_word(text, length, 1, false);
	case WORDS_O200K:
		return tekken_word(text, length, 3, true);
	case WORDS_DEEPSEEK3:
		return deepseek3_word(text, length);
	}
	return length;
}
