/* Tokens to text. See tokenizer.h. */
#include "common/text/unicode.h"
#include "engine/text/vocabulary.h"

#include <string.h>

static const char replacement[] = "\xEF\xBF\xBD";

void detokenizer_init(struct detokenizer *detokenizer, const struct tokenizer *tokenizer)
{
	*detokenizer = (struct detokenizer){.tokenizer = tokenizer};
}

// Take a byte: a completed character is appended, and an incomplete one that it cannot continue becomes U+FFFD.
static enum status add_byte(struct detokenizer *detokenizer, uint8_t byte, struct buffer *out)
{
	enum status status = STATUS_OK;
	uint8_t *pending = detokenizer->pending;
	pending[detokenizer->pending_bytes++] = byte;
	unsigned whole = utf8_begins(pending, detokenizer->pending_bytes);
	if (!whole && detokenizer->pending_bytes > 1) {
		status = buffer_append_text(out, replacement);
		pending[0] = byte;
		detokenizer->pending_bytes = 1;
		whole = utf8_begins(pending, 1);
	}
	if (status || (whole && detokenizer->pending_bytes < whole))
		return status;
	status = whole ? buffer_append(out, pending, whole) : buffer_append_text(out, replacement);
	detokenizer->pending_bytes = 0;
	return status;
}

static bool is_shown(const struct token *entry)
{
	return entry->type == TOKEN_NORMAL || entry->type == TOKEN_BYTE || entry->type == TOKEN_USER_DEFINED;
}

enum status detokenizer_add(struct detokenizer *detokenizer, uint32_t token, struct buffer *out)
{
	const struct tokenizer *tokenizer = detokenizer->tokenizer;
	if (token >= tokenizer->count)
		return STATUS_OK;
	const struct token *entry = &tokenizer->tokens[token];
	const uint8_t *text = token_text(tokenizer, token);
	if ((!is_shown(entry) && !detokenizer->special) || !entry->length)
		return STATUS_OK;
	// The space that was put before the text, when it was made into tokens.
	uint32_t skipped = !detokenizer->begun && tokenizer->space_prefix && text[0] == ' ';
	detokenizer->begun = true;
	enum status status = STATUS_OK;
	for (uint32_t i = skipped; i < entry->length && !status; i++)
		status = add_byte(detokenizer, text[i], out);
	return status;
}

enum status detokenizer_end(struct detokenizer *detokenizer, struct buffer *out)
{
	bool waiting = detokenizer->pending_bytes;
	detokenizer->pending_bytes = 0;
	return waiting ? buffer_append_text(out, replacement) : STATUS_OK;
}

const uint8_t *tokenizer_shown(const struct tokenizer *tokenizer, uint32_t token, size_t *length)
{
	*length = 0;
	if (token >= tokenizer->count || !is_shown(&tokenizer->tokens[token]))
		return NULL;
	*length = tokenizer->tokens[token].length;
	return token_text(tokenizer, token);
}

enum status token_bytes(const struct tokenizer *tokenizer, uint32_t token, struct buffer *out)
{
	if (token >= tokenizer->count)
		return STATUS_OK;
	return buffer_append(out, token_text(tokenizer, token), tokenizer->tokens[token].length);
}
