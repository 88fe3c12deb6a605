/* Whether two files have the same tokens. See tokenizer.h. */
#include "engine/text/tokenizer.h"

#include <string.h>

#define KEY "tokenizer.ggml."

enum { TYPE_UNUSED = 5 }; // token_type of what only fills up a matrix

static bool is_unused(const struct gguf *gguf, uint64_t token)
{
	double type;
	return gguf_array_number(gguf, KEY "token_type", token, &type) && type >= TYPE_UNUSED && type <= TYPE_UNUSED;
}

// The special tokens that end a text or begin it.
static enum status same_special(const struct gguf *model, const struct gguf *draft, struct error *error)
{
	static const char *const keys[] = {KEY "bos_token_id", KEY "eos_token_id", KEY "eot_token_id"};
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		uint64_t one = 0, other = 0;
		const bool has = gguf_get_count(model, keys[i], &one),
			   draft_has = gguf_get_count(draft, keys[i], &other);
		if (has && draft_has && one != other)
			return error_set(error, STATUS_INVALID_PARAMS, "%s is %llu in the model and %llu in the draft",
					 keys[i] + strlen(KEY), (unsigned long long)one, (unsigned long long)other);
	}
	return STATUS_OK;
}

enum status tokenizers_same(const struct gguf *model, const struct gguf *draft, struct error *error)
{
	uint64_t cursors[2] = {0, 0}, counts[2] = {0, 0};
	struct gguf_text one, other;
	uint64_t token = 0;
	if (!gguf_get_array(model, KEY "tokens", &counts[0]) || !gguf_get_array(draft, KEY "tokens", &counts[1]))
		return error_set(error, STATUS_INVALID_PARAMS, "a file has no tokens");
	for (; token < counts[0] && token < counts[1]; token++)
		if (!gguf_next_text(model, KEY "tokens", &cursors[0], &one) ||
		    !gguf_next_text(draft, KEY "tokens", &cursors[1], &other) ||
		    ((one.length != other.length || memcmp(one.bytes, other.bytes, one.length)) &&
		     !(is_unused(model, token) && is_unused(draft, token))))
			return error_set(error, STATUS_INVALID_PARAMS,
					 "token %llu is another one in the draft model than in the model",
					 (unsigned long long)token);
	for (const int longer = counts[1] > counts[0]; token < counts[longer]; token++)
		if (!is_unused(longer ? draft : model, token))
			return error_set(error, STATUS_INVALID_PARAMS,
					 "the model has %llu tokens, the draft model %llu",
					 (unsigned long long)counts[0], (unsigned long long)counts[1]);
	return same_special(model, draft, error);
}
