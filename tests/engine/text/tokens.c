/* The tokenizer as a program, for tokenizer.test.mjs and chat.test.mjs to compare with others.
 *
 *   tokens FILE.gguf < requests > answers
 *   request   u32 length | u8 mode | the text                                                     little-endian
 *   answer    u32 count | count u32 tokens | u32 length | the text that the tokens give back
 *
 * Modes are bits: 1 special tokens, 2 the beginning, 4 it continues, 8 text gives control tokens too; 16: it is a
 * conversation, made of role NUL text NUL ..., in the file's own template or one that is named; 32: compose (no tokens,
 * the text in NFC); 64: classes (no tokens; a byte for every character that there may be). A request that is refused
 * ends the program with its reason, but for a conversation: that is answered with 0xFFFFFFFF and the reason as the
 * text. Thread: one. */
#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/text/unicode.h"
#include "engine/text/chat.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPECIAL = 1, BEGIN = 2, CONTINUES = 4, SHOWN = 8, CHAT = 16, COMPOSE = 32, CLASSES = 64 };
enum { MOST_MESSAGES = 64, CHARACTERS = 0x110000 };

static void write_u32(uint32_t value)
{
	uint8_t bytes[4] = {(uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16), (uint8_t)(value >> 24)};
	fwrite(bytes, 1, sizeof bytes, stdout);
}

static void write_text(const struct buffer *text)
{
	write_u32((uint32_t)text->length);
	fwrite(buffer_text(text), 1, text->length, stdout);
}

static struct json *trees[MOST_MESSAGES]; // of the conversation
static size_t tree_count;

static const struct json *parse_tree(const char *text)
{
	if (tree_count == MOST_MESSAGES || json_parse(&trees[tree_count], text, strlen(text), NULL))
		return NULL;
	return trees[tree_count++];
}

// A message may be one to this program: of the role "template", whose text is the name of the one that is wanted;
// "thinking", with "on" or "off"; "tools", with a list of them; or "calls", with those of the message that follows.
static bool take_wish(struct chat_message *message, struct conversation *conversation, struct chat_template *template)
{
	if (!strcmp(message->role, "tools")) {
		conversation->tools = parse_tree(message->text);
	} else if (!strcmp(message->role, "calls")) {
		message->calls = parse_tree(message->text);
	} else if (!strcmp(message->role, "thinking")) {
		conversation->thinking = strcmp(message->text, "off") != 0 ? THINKING_ON : THINKING_OFF;
	} else if (!strcmp(message->role, "template")) {
		chat_template_finish(template);
		chat_template_named(message->text, template);
	} else {
		return false;
	}
	return true;
}

static enum status apply_template(const struct gguf *gguf, const struct tokenizer *tokenizer, const char *text,
				  size_t length, struct token_list *out, struct error *error)
{
	struct chat_message messages[MOST_MESSAGES] = {0}, *message = messages;
	struct conversation conversation = {.messages = messages, .now_ms = clock_wall_ms()};
	struct chat_template template;
	char names[CHAT_NAMES_BYTES];
	const char *end = text + length;
	if (chat_template_of_file(gguf, &template, error))
		return error->status;
	while (text < end && message < messages + MOST_MESSAGES) {
		const struct json *calls = message->calls;
		message->role = text;
		message->text = text + strlen(text) + 1;
		message->length = strlen(message->text);
		text = message->text + message->length + 1;
		if (take_wish(message, &conversation, &template))
			continue;
		message->calls = calls;
		message->silent = calls && !message->length;
		message++;
	}
	conversation.count = (size_t)(message - messages);
	if (!template.family)
		return error_set(error, STATUS_UNAVAILABLE, "unknown template; known are %s",
				 chat_template_names(names));
	enum status status = chat_template_apply(&template, tokenizer, &conversation, out, error);
	chat_template_finish(&template);
	while (tree_count)
		json_destroy(&trees[--tree_count]);
	return status;
}

static void answer_tokens(const struct tokenizer *tokenizer, const struct token_list *tokens, unsigned mode)
{
	struct detokenizer detokenizer;
	struct buffer text;
	detokenizer_init(&detokenizer, tokenizer);
	detokenizer.special = mode & SHOWN;
	detokenizer.begun = mode & CONTINUES;
	buffer_init(&text, SIZE_MAX / 2);
	write_u32((uint32_t)tokens->count);
	for (size_t i = 0; i < tokens->count; i++) {
		size_t before = text.length;
		write_u32(tokens->tokens[i]);
		detokenizer_add(&detokenizer, tokens->tokens[i], &text);
		size_t added = text.length - before;
		if (utf8_good(buffer_text(&text) + before, added) != added) {
			fprintf(stderr, "text was handed out that ends inside a character\n");
			exit(1);
		}
	}
	detokenizer_end(&detokenizer, &text);
	write_text(&text);
	buffer_finish(&text);
}

// Modes without tokens.
static void answer_text(const char *text, size_t length, unsigned mode)
{
	struct buffer out;
	buffer_init(&out, SIZE_MAX / 2);
	if (mode & CLASSES)
		for (uint32_t i = 0; i < CHARACTERS; i++)
			buffer_append_byte(&out, (uint8_t)unicode_class(i));
	else
		unicode_compose(text, length, &out);
	write_u32(0);
	write_text(&out);
	buffer_finish(&out);
}

static enum status answer(const struct gguf *gguf, const struct tokenizer *tokenizer, const char *text, size_t length,
			  unsigned mode, struct error *error)
{
	if (mode & (COMPOSE | CLASSES)) {
		answer_text(text, length, mode);
		return STATUS_OK;
	}
	struct token_list tokens = {0};
	struct tokenize_params params = {.text = text,
					 .length = length,
					 .special = mode & SPECIAL,
					 .begin = mode & BEGIN,
					 .continues = mode & CONTINUES};
	enum status status = mode & CHAT ? apply_template(gguf, tokenizer, text, length, &tokens, error)
					 : tokenize(tokenizer, &params, &tokens, error);
	if (!status)
		answer_tokens(tokenizer, &tokens, mode);
	token_list_finish(&tokens);
	return status;
}

int main(int argc, char **argv)
{
	struct gguf *gguf = NULL;
	struct tokenizer *tokenizer = NULL;
	struct error error = {0};
	uint8_t head[5];
	int fd = argc == 2 ? open(argv[1], O_RDONLY | O_CLOEXEC) : -1;
	char *text = malloc(LIMIT_TOKENIZE_BYTES + 2);
	if (!text || fd < 0 || gguf_open(&gguf, fd, &error) || tokenizer_create(&tokenizer, gguf, &error)) {
		fprintf(stderr, "%s\n", error.message);
		return 1;
	}
	while (fread(head, 1, sizeof head, stdin) == sizeof head) {
		size_t length = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
		if (length > LIMIT_TOKENIZE_BYTES || fread(text, 1, length, stdin) != length)
			return 1;
		text[length] = text[length + 1] = 0;
		error = (struct error){0};
		if (!answer(gguf, tokenizer, text, length, head[4], &error))
			continue;
		if (!(head[4] & CHAT)) {
			fprintf(stderr, "%s\n", error.message);
			return 1;
		}
		write_u32(UINT32_MAX);
		write_u32((uint32_t)strlen(error.message));
		fputs(error.message, stdout);
	}
	free(text);
	tokenizer_destroy(&tokenizer);
	gguf_destroy(&gguf);
	return 0;
}
