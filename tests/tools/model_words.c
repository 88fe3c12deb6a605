/* See model_words.h. */
#include "tests/tools/model_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_BYTE = 6 };
enum { LETTERS = 26, PIECE_BYTES = 48, BYTES = 256 };
static const char letters[] = "etaoinshrdlucmfwypvbgkjqxz";

static const char llama2_template[] =
	"{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
	"{{ '[INST] ' + message['content'] + ' [/INST]' }}{% else %}{{ message['content'] + eos_token }}{% endif %}"
	"{% endfor %}";
static const char llama3_template[] = "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + "
				      "message['role'] + '<|end_header_id|>\n\n' "
				      "+ message['content'] + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
				      "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";
static const char chatml_template[] =
	"{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' "
	"}}"
	"{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

struct vocabulary {
	uint32_t count, capacity;
	char (*texts)[PIECE_BYTES];
	const char **pointers;
	float *scores;
	int32_t *types;
	uint32_t merge_count;
	char (*merges)[PIECE_BYTES];
};

static void *must_calloc(size_t count, size_t size)
{
	void *memory = calloc(count, size);
	if (!memory)
		abort();
	return memory;
}

static void add(struct vocabulary *v, const char *text, float score, int32_t type)
{
	if (v->count == v->capacity)
		abort(); // a vocabulary too small for what every one has
	snprintf(v->texts[v->count], PIECE_BYTES, "%s", text);
	v->pointers[v->count] = v->texts[v->count];
	v->scores[v->count] = score;
	v->types[v->count++] = type;
}

// The n-th made-up piece: two letters, a space and a letter, a space and two, three, a space and three, four; each is
// one that came before and a single character or the space's own piece. False past the last.
static bool piece(uint64_t n, const char *space, char left[PIECE_BYTES], char right[PIECE_BYTES])
{
	static const struct {
		unsigned letters;
		bool space;
	} kinds[] = {{2, false}, {1, true}, {2, true}, {3, false}, {3, true}, {4, false}};
	for (size_t kind = 0; kind < sizeof(kinds) / sizeof(*kinds); kind++) {
		uint64_t count = 1;
		for (unsigned i = 0; i < kinds[kind].letters; i++)
			count *= LETTERS;
		if (n >= count) {
			n -= count;
			continue;
		}
		char word[5] = "";
		for (unsigned i = kinds[kind].letters; i; i--, n /= LETTERS)
			word[i - 1] = letters[n % LETTERS];
		unsigned last = kinds[kind].letters - 1;
		snprintf(left, PIECE_BYTES, "%s%.*s", kinds[kind].space ? space : "", (int)last, word);
		snprintf(right, PIECE_BYTES, "%s", word + last);
		return true;
	}
	return false;
}

static void add_pieces(struct vocabulary *v, const char *space, uint32_t count, bool merges)
{
	for (uint32_t i = 0; i < count; i++) {
		char left[PIECE_BYTES], right[PIECE_BYTES], text[2 * PIECE_BYTES];
		if (piece(i, space, left, right)) {
			snprintf(text, sizeof(text), "%s%s", left, right);
			if (merges)
				snprintf(v->merges[v->merge_count++], PIECE_BYTES, "%.23s %.23s", left, right);
		} else {
			snprintf(text, sizeof(text), "<extra_%u>", i);
		}
		add(v, text, -(float)i, TYPE_NORMAL);
	}
}

static void make_pieces(struct vocabulary *v)
{
	static const char space[] = "\xe2\x96\x81";
	char text[PIECE_BYTES];
	add(v, "<unk>", 0, TYPE_UNKNOWN);
	add(v, "<s>", 0, TYPE_CONTROL);
	add(v, "</s>", 0, TYPE_CONTROL);
	for (unsigned byte = 0; byte < BYTES; byte++) {
		snprintf(text, sizeof(text), "<0x%02X>", byte);
		add(v, text, 0, TYPE_BYTE);
	}
	uint32_t room = v->capacity - v->count, singles = 1 + '~' - ' ';
	if (room < singles)
		abort();
	add_pieces(v, space, room - singles, false);
	float score = -(float)(room - singles);
	add(v, space, score--, TYPE_NORMAL);
	for (char c = ' ' + 1; c <= '~'; c++, score--)
		add(v, (char[]){c, 0}, score, TYPE_NORMAL);
}

// The letter that stands for a byte in byte-level vocabularies: itself if it can be seen, else one from U+0100 on.
static void add_bytes(struct vocabulary *v)
{
	for (int pass = 0; pass < 2; pass++) {
		unsigned next = 256;
		for (unsigned byte = 0; byte < BYTES; byte++) {
			bool seen = (byte > ' ' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
			unsigned letter = seen ? byte : next++;
			if (seen != (pass == 0))
				continue;
			char text[3] = {(char)letter, 0, 0};
			if (letter >= 0x80) {
				text[0] = (char)(0xc0 | letter >> 6);
				text[1] = (char)(0x80 | (letter & 0x3f));
			}
			add(v, text, 0, TYPE_NORMAL);
		}
	}
}

static void make_bpe(struct vocabulary *v, const char *const *specials, uint32_t special_count)
{
	if (v->capacity < BYTES + special_count)
		abort();
	add_bytes(v);
	add_pieces(v, "\xc4\xa0", v->capacity - v->count - special_count, true);
	for (uint32_t i = 0; i < special_count; i++)
		add(v, specials[i], 0, TYPE_CONTROL);
}

static void put_template(struct gguf_writer *writer, const char *usual, const char *given)
{
	const char *text = given ? given : usual;
	if (*text)
		gguf_put_text(writer, "tokenizer.chat_template", text);
}

static void put_pieces(struct gguf_writer *writer, struct vocabulary *v, const char *chat_template)
{
	make_pieces(v);
	gguf_put_text(writer, "tokenizer.ggml.model", "llama");
	gguf_put_text(writer, "tokenizer.ggml.pre", "default");
	gguf_put_f32s(writer, "tokenizer.ggml.scores", v->scores, v->count);
	gguf_put_u32(writer, "tokenizer.ggml.bos_token_id", 1);
	gguf_put_u32(writer, "tokenizer.ggml.eos_token_id", 2);
	gguf_put_u32(writer, "tokenizer.ggml.unknown_token_id", 0);
	gguf_put_bool(writer, "tokenizer.ggml.add_bos_token", true);
	gguf_put_bool(writer, "tokenizer.ggml.add_eos_token", false);
	put_template(writer, llama2_template, chat_template);
}

static void put_bpe(struct gguf_writer *writer, struct vocabulary *v, bool qwen, const char *chat_template)
{
	static const char *const llama[] = {"<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
					    "<|end_header_id|>", "<|eot_id|>"};
	static const char *const others[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
	uint32_t special_count = qwen ? 3 : 5, first = v->capacity - special_count;
	make_bpe(v, qwen ? others : llama, special_count);
	const char **merges = must_calloc(v->merge_count + 1, sizeof(*merges));
	for (uint32_t i = 0; i < v->merge_count; i++)
		merges[i] = v->merges[i];
	gguf_put_text(writer, "tokenizer.ggml.model", "gpt2");
	gguf_put_text(writer, "tokenizer.ggml.pre", qwen ? "qwen2" : "llama-bpe");
	gguf_put_texts(writer, "tokenizer.ggml.merges", merges, v->merge_count);
	gguf_put_u32(writer, "tokenizer.ggml.bos_token_id", first);
	gguf_put_u32(writer, "tokenizer.ggml.eos_token_id", first + (qwen ? 2 : 4));
	gguf_put_bool(writer, "tokenizer.ggml.add_bos_token", !qwen);
	put_template(writer, qwen ? chatml_template : llama3_template, chat_template);
	free(merges);
}

void model_words_put(struct gguf_writer *writer, enum model_words words, uint32_t vocabulary, const char *chat_template)
{
	if (words == WORDS_NONE)
		return;
	struct vocabulary v = {
		.capacity = vocabulary,
		.texts = must_calloc(vocabulary, PIECE_BYTES),
		.pointers = must_calloc(vocabulary, sizeof(char *)),
		.scores = must_calloc(vocabulary, sizeof(float)),
		.types = must_calloc(vocabulary, sizeof(int32_t)),
		.merges = must_calloc(vocabulary, PIECE_BYTES),
	};
	if (words == WORDS_PIECES)
		put_pieces(writer, &v, chat_template);
	else
		put_bpe(writer, &v, words == WORDS_BPE_QWEN, chat_template);
	gguf_put_texts(writer, "tokenizer.ggml.tokens", v.pointers, v.count);
	gguf_put_i32s(writer, "tokenizer.ggml.token_type", v.types, v.count);
	free(v.texts);
	free(v.pointers);
	free(v.scores);
	free(v.types);
	free(v.merges);
}
