/* Fuzz target: a hostile chat template, and hostile conversations in it.
 *
 * The first byte says which vocabulary, the second what is asked for. Then come the template, up to a NUL, and
 * messages: a byte for the role and a text, up to a NUL. Whatever the template is taken for has a name and a system
 * message that is text; what a conversation becomes has the special tokens that the same conversation has with a
 * harmless word in each message: no text becomes one, and none goes missing. */
#include "common/text/unicode.h"
#include "engine/text/chat.h"
#include "engine/text/vocabulary.h"
#include "tests/tools/model_words.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MESSAGES = 12, TOKENS = 1 << 16 };

static void require(bool condition)
{
	if (!condition)
		abort();
}

// One for each vocabulary, made once.
static const struct tokenizer *tokenizer_of(unsigned which)
{
	static const enum model_words words[] = {WORDS_PIECES, WORDS_BPE_LLAMA, WORDS_BPE_QWEN};
	static struct tokenizer *tokenizers[3];
	struct gguf_writer writer;
	struct buffer file;
	struct gguf *gguf = NULL;
	struct error error = {0};
	if (tokenizers[which])
		return tokenizers[which];
	gguf_writer_init(&writer, 32);
	model_words_put(&writer, words[which], 500, NULL);
	buffer_init(&file, SIZE_MAX / 2);
	gguf_writer_head(&writer, &file);
	gguf_writer_finish(&writer);
	require(!gguf_parse(&gguf, file.data, file.length, &error));
	require(!tokenizer_create(&tokenizers[which], gguf, &error));
	gguf_destroy(&gguf);
	buffer_finish(&file);
	return tokenizers[which];
}

static bool recognise(const char *text, struct chat_template *out)
{
	struct gguf_writer writer;
	struct buffer file;
	struct gguf *gguf = NULL;
	struct error error = {0};
	gguf_writer_init(&writer, 32);
	gguf_put_text(&writer, "tokenizer.chat_template", text);
	buffer_init(&file, SIZE_MAX / 2);
	gguf_writer_head(&writer, &file);
	gguf_writer_finish(&writer);
	require(!gguf_parse(&gguf, file.data, file.length, &error));
	const bool known = chat_template_recognise(gguf, out);
	gguf_destroy(&gguf);
	buffer_finish(&file);
	require(known == (out->family != CHAT_UNKNOWN) && known == (out->name != NULL));
	require(memchr(out->system, 0, sizeof out->system) && (known || !out->system[0]));
	require(utf8_good(out->system, strlen(out->system)) == strlen(out->system));
	return known;
}

// Which special tokens there are, in order, but for those of thoughts, which depend on the text.
static size_t special_of(const struct tokenizer *tokenizer, const struct token_list *list, uint32_t *out)
{
	static const char *const thoughts[] = {"<think>", "</think>"};
	size_t count = 0;
	for (size_t i = 0; i < list->count; i++) {
		const uint8_t type = tokenizer->tokens[list->tokens[i]].type;
		bool special = type != TOKEN_NORMAL && type != TOKEN_BYTE;
		for (size_t k = 0; k < 2; k++)
			special = special && (int32_t)list->tokens[i] !=
						     tokenizer_find(tokenizer, thoughts[k], strlen(thoughts[k]));
		if (special && (int32_t)list->tokens[i] != tokenizer->unknown)
			out[count++] = list->tokens[i];
	}
	return count;
}

static void talk(const struct chat_template *template, const struct tokenizer *tokenizer,
		 const struct conversation *conversation)
{
	static uint32_t special[TOKENS], harmless[TOKENS];
	struct chat_message words[MESSAGES];
	struct token_list list = {.limit = TOKENS}, other = {.limit = TOKENS};
	struct conversation same = *conversation;
	struct error error = {0}, fault = {0};
	bool good = true;
	for (size_t i = 0; i < conversation->count; i++) {
		const struct chat_message *one = &conversation->messages[i];
		good = good && utf8_good(one->text, one->length) == one->length;
		words[i] = (struct chat_message){.role = one->role, .text = "x", .length = 1};
	}
	same.messages = words;
	const enum status status = chat_template_apply(template, tokenizer, conversation, &list, &error);
	const enum status wanted = chat_template_apply(template, tokenizer, &same, &other, &fault);
	require(!status || error.message[0]);
	require(status == (good ? wanted : STATUS_INVALID_PARAMS) || status == STATUS_LIMIT_EXCEEDED);
	if (!status && !wanted) {
		const size_t count = special_of(tokenizer, &list, special);
		require(count == special_of(tokenizer, &other, harmless));
		require(!memcmp(special, harmless, count * sizeof *special));
	}
	token_list_finish(&list);
	token_list_finish(&other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const roles[] = {"user", "assistant", "system", "tool", "user", "assistant", "system", "x"};
	static struct chat_template template;
	struct chat_message messages[MESSAGES] = {0};
	struct conversation conversation = {.messages = messages};
	if (size < 3)
		return 0;
	// A copy with a NUL behind it, of exactly its length.
	char *text = malloc(size - 1);
	require(text);
	memcpy(text, data + 2, size - 2);
	text[size - 2] = 0;
	const char *end = text + size - 2, *at = text + strlen(text) + 1;
	char names[CHAT_NAMES_BYTES], *name = names;
	chat_template_names(names);
	for (unsigned i = data[1] >> 2 & 31; i && (name = strchr(name, ',')); i--)
		name += 2;
	if (name)
		name[strcspn(name, ",")] = 0;
	const bool known = recognise(text, &template) || (name && chat_template_named(name, &template));
	conversation.thinking = data[1] % 3;
	conversation.now_ms = (int64_t)data[0] * 1000000007 * 86400;
	while (at < end && conversation.count < MESSAGES) {
		messages[conversation.count].role = roles[(uint8_t)*at & 7];
		messages[conversation.count].text = at + 1;
		messages[conversation.count].length = strlen(at + 1);
		at += messages[conversation.count++].length + 2;
	}
	if (known && conversation.count)
		talk(&template, tokenizer_of(data[0] % 3), &conversation);
	free(text);
	return 0;
}
