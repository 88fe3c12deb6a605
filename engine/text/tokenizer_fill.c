/* Fill-in-the-middle: a text with a gap as the token sequence that its model was trained on. See tokenizer.h. */
#include "engine/text/vocabulary.h"

#include <string.h>

// The three marks, in the order in which they stand: before the text, between it and what follows the gap, and at the
// end, where the model goes on. By the model families that have them.
static const struct {
	const char *before, *after, *gap;
} marks[] = {
	{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},    // Qwen2.5-Coder, Qwen3-Coder, CodeGemma
	{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},          // StarCoder, Granite Code
	{"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},          // SantaCoder
	{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},    // DeepSeek Coder
	{"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"}, // GLM 4
	{"▁<PRE>", "▁<SUF>", "▁<MID>"},                            // Code Llama
};

static int32_t find(const struct tokenizer *tokenizer, const char *text)
{
	return tokenizer_find(tokenizer, text, strlen(text));
}

enum status tokenize_fill(const struct tokenizer *tokenizer, const char *before, const char *after,
			  struct token_list *out, struct error *error)
{
	int32_t mark[3] = {NO_TOKEN, NO_TOKEN, NO_TOKEN};
	for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
		mark[0] = find(tokenizer, marks[i].before);
		mark[1] = find(tokenizer, marks[i].after);
		mark[2] = find(tokenizer, marks[i].gap);
		if (mark[0] != NO_TOKEN && mark[1] != NO_TOKEN && mark[2] != NO_TOKEN)
			break;
		mark[2] = NO_TOKEN;
	}
	if (mark[2] == NO_TOKEN) {
		error_hint(error, "choose a model that was trained to fill gaps, such as Qwen2.5-Coder");
		return error_set(error, STATUS_INVALID_PARAMS,
				 "suffix: the model has no tokens that mark a gap in a text");
	}
	const struct {
		int32_t token; // NO_TOKEN: the text
		struct tokenize_params text;
	} parts[] = {
		{tokenizer->add_begin ? tokenizer->begin : NO_TOKEN, {0}},
		{mark[0], {0}},
		{NO_TOKEN, {.text = before, .length = strlen(before)}},
		{mark[1], {0}},
		{NO_TOKEN, {.text = after, .length = strlen(after), .continues = true}},
		{mark[2], {0}},
	};
	enum status status = STATUS_OK;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && !status; i++) {
		if (parts[i].text.text)
			status = tokenize(tokenizer, &parts[i].text, out, error);
		else if (parts[i].token != NO_TOKEN && token_list_add(out, (uint32_t)parts[i].token))
			status = error_set(error, STATUS_LIMIT_EXCEEDED, "the prompt has more than %zu tokens",
					   out->limit);
	}
	return status;
}
