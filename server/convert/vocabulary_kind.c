/* See vocabulary_inside.h. The expressions are those that published tokenizers have; engine/text/tokenizer_words.c
 * scans as they do. */
#include "server/convert/vocabulary_inside.h"

#include <stdio.h>
#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define OTHERS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define OTHERS_AND_SLASHES "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*"

enum switch_state { SWITCH_OFF, SWITCH_ON, SWITCH_ANY };

static const struct {
	const char *expression;    // of the Split before ByteLevel; NULL: ByteLevel's own
	bool digits;               // each a word, before anything else
	bool composes;             // normalizer NFC
	enum switch_state ignores; // ignore_merges: a word that is a token is that token
	const char *pre;
} known[] = {
	{CONTRACTIONS "|" BEFORE "\\p{L}+|\\p{N}{1,3}" OTHERS SPACES, false, false, SWITCH_ON, "llama-bpe"},
	{CONTRACTIONS "|" BEFORE "\\p{L}+|\\p{N}{1,3}" OTHERS SPACES, false, false, SWITCH_OFF, "dbrx"},
	{CONTRACTIONS "|" BEFORE "\\p{L}+|\\p{N}" OTHERS SPACES, false, true, SWITCH_OFF, "qwen2"},
	{CONTRACTIONS "|" BEFORE "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" SPACES, false, true,
	 SWITCH_OFF, "qwen35"},
	{BEFORE UPPER "*" LOWER "+|" BEFORE UPPER "+" LOWER "*|\\p{N}" OTHERS_AND_SLASHES SPACES, false, false,
	 SWITCH_ON, "tekken"},
	{BEFORE UPPER "*" LOWER "+" CONTRACTIONS "?|" BEFORE UPPER "+" LOWER "*" CONTRACTIONS
		      "?|\\p{N}{1,3}" OTHERS_AND_SLASHES SPACES,
	 false, false, SWITCH_OFF, "gpt-4o"},
	{NULL, false, false, SWITCH_OFF, "gpt-2"},
	{NULL, true, false, SWITCH_OFF, "smollm"},
};

static bool is_type(const struct json *json, const char *type)
{
	return !strcmp(json_get_string(json, "type", ""), type);
}

static enum status refuse(struct error *error, const char *what)
{
	error_set(error, STATUS_UNAVAILABLE, "tokenizer.json: %s, which is not converted", what);
	error_hint(error,
		   "BPE of Llama, Mistral, Qwen, Gemma, Phi, SmolLM and GPT-2 is converted; of others add a GGUF "
		   "file");
	return STATUS_UNAVAILABLE;
}

// Steps of a pre-tokenizer or a normalizer, one after the other.
struct steps {
	const struct json *all[4]; // (count)
	unsigned count;
	bool more; // than there is room for
};

static struct steps steps_of(const struct json *json, const char *list)
{
	struct steps steps = {.count = 0};
	if (json_type(json) != JSON_OBJECT)
		return steps;
	if (!is_type(json, "Sequence")) {
		steps.all[steps.count++] = json;
		return steps;
	}
	for (const struct json *one = json_first(json_get(json, list)); one; one = json_next(one)) {
		if (steps.count == sizeof steps.all / sizeof *steps.all) {
			steps.more = true;
			break;
		}
		steps.all[steps.count++] = one;
	}
	return steps;
}

// ---- of bytes ----

// Everything that the expression does not match would be lost or stay together; published ones match all of it.
static const char *split_expression(const struct json *step)
{
	const char *behavior = json_get_string(step, "behavior", "");
	const bool invert = json_get_bool(step, "invert", false);
	if (!is_type(step, "Split") ||
	    !((!strcmp(behavior, "Isolated") && !invert) || (!strcmp(behavior, "Removed") && invert)))
		return NULL;
	return json_get_string(json_get(step, "pattern"), "Regex", NULL);
}

static enum status find_words(const struct json *tokenizer, const struct steps *words, struct vocabulary_kind *out,
			      struct error *error)
{
	const struct json *model = json_get(tokenizer, "model"), *bytes = words->all[words->count - 1],
			  *first = words->count > 1 ? words->all[0] : NULL;
	const struct steps before = steps_of(json_get(tokenizer, "normalizer"), "normalizers");
	const char *expression = first ? split_expression(first) : NULL;
	const bool digits = first && is_type(first, "Digits") && json_get_bool(first, "individual_digits", false),
		   composes = before.count == 1 && is_type(before.all[0], "NFC"),
		   ignores = json_get_bool(model, "ignore_merges", false),
		   own = json_get_bool(bytes, "use_regex", true);
	if (json_get_bool(bytes, "add_prefix_space", false) || before.more || before.count > 1 ||
	    (before.count && !composes))
		return refuse(error, "text is rewritten in a way of its own before it is cut (normalizer, "
				     "add_prefix_space)");
	if (words->more || words->count > 2 || (first && !expression && !digits) || own == (expression != NULL))
		return refuse(error, "text is cut into words by steps of its own (pre_tokenizer)");
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		const bool same = expression ? known[i].expression && !strcmp(known[i].expression, expression)
					     : !known[i].expression && known[i].digits == digits;
		if (same && known[i].composes == composes &&
		    (known[i].ignores == SWITCH_ANY || (known[i].ignores == SWITCH_ON) == ignores))
			out->pre = known[i].pre;
	}
	if (out->pre)
		return STATUS_OK;
	char what[300];
	snprintf(what, sizeof what, "text is cut into words by %.180s%s%s", expression ? expression : "ByteLevel",
		 composes ? ", after NFC" : "", ignores ? ", with ignore_merges" : "");
	return refuse(error, what);
}

// ---- of pieces ----

static bool is_space_replaced(const struct json *step)
{
	return is_type(step, "Replace") && !strcmp(json_get_string(json_get(step, "pattern"), "String", ""), " ") &&
	       !strcmp(json_get_string(step, "content", ""), "\xE2\x96\x81");
}

// Spaces are U+2581 already, so a cut at spaces cuts nothing.
static bool cuts_nothing(const struct steps *words)
{
	return !words->count || (words->count == 1 && is_type(words->all[0], "Split") &&
				 !strcmp(json_get_string(json_get(words->all[0], "pattern"), "String", ""), " "));
}

static enum status find_pieces(const struct json *tokenizer, const struct steps *words, struct vocabulary_kind *out,
			       struct error *error)
{
	const struct steps before = steps_of(json_get(tokenizer, "normalizer"), "normalizers");
	out->pieces = true;
	if (json_get_bool(json_get(tokenizer, "model"), "ignore_merges", false))
		return refuse(error, "pieces of SentencePiece with ignore_merges");
	if (!before.count && words->count == 1 && is_type(words->all[0], "Metaspace") &&
	    !strcmp(json_get_string(words->all[0], "replacement", ""), "\xE2\x96\x81")) {
		const char *scheme = json_get_string(words->all[0], "prepend_scheme", "always");
		out->space_prefix = strcmp(scheme, "never") != 0 &&
				    json_get_bool(words->all[0], "add_prefix_space", true);
		return STATUS_OK;
	}
	if (cuts_nothing(words) && before.count == 1 && is_space_replaced(before.all[0]))
		return STATUS_OK;
	if (cuts_nothing(words) && before.count == 2 && is_type(before.all[0], "Prepend") &&
	    !strcmp(json_get_string(before.all[0], "prepend", ""), "\xE2\x96\x81") &&
	    is_space_replaced(before.all[1])) {
		out->space_prefix = true;
		return STATUS_OK;
	}
	return refuse(error, "text is rewritten in a way of its own before it is cut (normalizer, pre_tokenizer)");
}

enum status vocabulary_find_kind(const struct json *tokenizer, struct vocabulary_kind *out, struct error *error)
{
	char what[80];
	const struct json *model = json_get(tokenizer, "model");
	const struct steps words = steps_of(json_get(tokenizer, "pre_tokenizer"), "pretokenizers");
	const char *type = json_get_string(model, "type", json_get(model, "merges") ? "BPE" : "none");
	*out = (struct vocabulary_kind){.pre = NULL};
	if (strcmp(type, "BPE") != 0) {
		snprintf(what, sizeof what, "a tokenizer of the kind %.40s", type);
		return refuse(error, what);
	}
	if (*json_get_string(model, "continuing_subword_prefix", "") ||
	    *json_get_string(model, "end_of_word_suffix", ""))
		return refuse(error, "pieces with marks of their own (continuing_subword_prefix, end_of_word_suffix)");
	if (words.count && is_type(words.all[words.count - 1], "ByteLevel"))
		return find_words(tokenizer, &words, out, error);
	if (json_get_bool(model, "byte_fallback", false))
		return find_pieces(tokenizer, &words, out, error);
	return refuse(error, "BPE neither of bytes (ByteLevel) nor with byte_fallback");
}
