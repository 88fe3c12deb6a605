/* Measures the cost of forms: the time to compile schemas, and to find masks, token by token.
 *
 *   grammar FILE.gguf|COUNT SCHEMAS [ROUNDS [SEED [answers]]]
 *
 * The vocabulary is that of a model file, or one of COUNT tokens that is made up: all bytes, then words of letters,
 * some of them with blanks, quotation marks, escapes, halves of characters. SCHEMAS has a JSON Schema on each line.
 * Each is compiled, and ROUNDS answers are drawn from it: each next token is the longer of two that are allowed, drawn
 * at random. What is timed, of the processor's time, is a mask and the step to the next state. Prints a table in
 * Markdown; with `answers` a line for each schema and answer instead, with a tab between them, for other validators. */
#include "engine/grammar/grammar.h"

#include "engine/text/tokenizer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TOKENS_MOST = 400, LINE_BYTES = 1 << 20, FIGURES = 1 << 22, LETTERS = 26 };

static struct made {
	uint8_t bytes[24];
	uint8_t length;
} * made; // (count), of a made-up vocabulary
static uint32_t count;
static struct tokenizer *tokenizer;
static uint64_t state = 1;

static uint32_t below(uint32_t most)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((state >> 33) % most);
}

static double now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static const uint8_t *bytes_of(const void *context, uint32_t token, size_t *length)
{
	(void)context;
	if (tokenizer)
		return tokenizer_shown(tokenizer, token, length);
	*length = made[token].length;
	return made[token].bytes;
}

static bool ends(const void *context, uint32_t token)
{
	(void)context;
	return tokenizer ? tokenizer_ends(tokenizer, token) : token == count - 1;
}

// Words of two to ten letters, mostly behind a blank; one of twenty-five has what a JSON string must escape, or half of
// a character (of SmolLM2's 49,152 tokens one of seventy does).
static void make_up(void)
{
	static const char *const rare[] = {"\"", "\n", "\\", "\t", "\":", "\xC3", "\xE6\x97", "(\""};
	static const char *const before[] = {" ", " ", " ", "", "", "_", ".", "("};
	static const char *const after[] = {"", "", "", "", "s", ",", "()", "\xE6\x97\xA5", "\xC3\xA9"};
	made = calloc(count, sizeof(*made));
	for (uint32_t i = 0; made && i < count; i++) {
		struct made *one = &made[i];
		if (i < 256) {
			one->bytes[one->length++] = (uint8_t)i;
			continue;
		}
		const bool first_rare = !below(50), last_rare = !below(50);
		const char *first = first_rare ? rare[below(5)] : before[below(sizeof(before) / sizeof(before[0]))];
		const char *last = last_rare ? rare[below(8)] : after[below(sizeof(after) / sizeof(after[0]))];
		for (; *first; first++)
			one->bytes[one->length++] = (uint8_t)*first;
		for (uint32_t letters = 2 + below(9); letters; letters--)
			one->bytes[one->length++] = (uint8_t)('a' + (below(LETTERS) + below(LETTERS)) / 2);
		for (; *last; last++)
			one->bytes[one->length++] = (uint8_t)*last;
	}
}

static bool open_vocabulary(const char *given, struct error *error)
{
	struct gguf *gguf = NULL;
	const int fd = open(given, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		count = (uint32_t)strtoul(given, NULL, 10);
		make_up();
		return count > 256 && made;
	}
	if (gguf_open(&gguf, fd, error) || tokenizer_create(&tokenizer, gguf, error))
		return false;
	count = tokenizer_vocabulary(tokenizer);
	return true;
}

// ---- figures ----

static struct {
	double compile_us[65536], *token_us;
	size_t compiled, tokens, answers, cut, refused;
	double sum_us;
} figures;

static int compare(const void *left, const void *right)
{
	const double a = *(const double *)left, b = *(const double *)right;
	return a < b ? -1 : a > b;
}

// Any that is allowed: the longer of two that are drawn.
static uint32_t choose(const uint32_t *mask)
{
	uint32_t best = UINT32_MAX, total = 0;
	size_t length, longest = 0;
	for (uint32_t i = 0; i < (count + 31) / 32; i++)
		total += (uint32_t)__builtin_popcount(mask[i]);
	for (int turn = 0; turn < 2 && total; turn++) {
		uint32_t at = below(total);
		for (uint32_t i = 0; i < (count + 31) / 32; i++) {
			const uint32_t here = (uint32_t)__builtin_popcount(mask[i]);
			if (at >= here) {
				at -= here;
				continue;
			}
			for (uint32_t bit = 0; bit < 32; bit++) {
				if (!(mask[i] >> bit & 1) || at--)
					continue;
				bytes_of(NULL, i * 32 + bit, &length);
				if (best == UINT32_MAX || length > longest) {
					best = i * 32 + bit;
					longest = length;
				}
				break;
			}
			break;
		}
	}
	return best;
}

static void answer(const struct vocabulary *vocabulary, const char *schema, bool print)
{
	struct grammar *grammar;
	struct matcher *matcher;
	struct error error = {0};
	static char text[1 << 16];
	size_t length = 0, bytes;
	const double begun_us = now_us();
	if (grammar_create(&grammar, GRAMMAR_SCHEMA, schema, strlen(schema), &error)) {
		figures.refused++;
		if (!print)
			fprintf(stderr, "refused: %s\n", error.message);
		return;
	}
	if (matcher_create(&matcher, &grammar, vocabulary, true))
		exit(1);
	if (figures.compiled < sizeof(figures.compile_us) / sizeof(figures.compile_us[0]))
		figures.compile_us[figures.compiled++] = now_us() - begun_us;
	unsigned steps = 0;
	for (; steps < TOKENS_MOST && !matcher_finished(matcher); steps++) {
		const double before_us = now_us();
		const uint32_t *mask = matcher_allowed(matcher);
		double spent_us = now_us() - before_us;
		if (!mask) {
			fprintf(stderr, "%s: %s\n", schema, matcher_error(matcher)->message);
			exit(1);
		}
		const uint32_t token = choose(mask);
		const bool last = ends(NULL, token);
		const double taken_us = now_us();
		if (matcher_take(matcher, token))
			exit(1);
		spent_us += now_us() - taken_us;
		if (figures.tokens < FIGURES)
			figures.token_us[figures.tokens++] = spent_us;
		figures.sum_us += spent_us;
		const uint8_t *added = bytes_of(NULL, token, &bytes);
		if (!last && length + bytes < sizeof(text)) {
			memcpy(text + length, added, bytes);
			length += bytes;
		}
	}
	if (steps == TOKENS_MOST)
		figures.cut++;
	else if (print)
		for (size_t i = 0; i < length; i++)
			text[i] = text[i] == '\n' ? ' ' : text[i]; // blanks between values: one line for each answer
	if (print && steps < TOKENS_MOST)
		printf("%s\t%.*s\n", schema, (int)length, text);
	figures.answers++;
	matcher_destroy(&matcher);
}

int main(int argc, char **argv)
{
	static char line[LINE_BYTES];
	struct error error = {0};
	struct vocabulary *vocabulary;
	const int rounds = argc > 3 ? (int)strtol(argv[3], NULL, 10) : 1;
	const bool print = argc > 5;
	FILE *schemas = argc > 2 ? fopen(argv[2], "r") : NULL;
	if (!schemas || !open_vocabulary(argv[1], &error)) {
		fprintf(stderr, "grammar FILE.gguf|COUNT SCHEMAS [ROUNDS [SEED [answers]]]: %s\n", error.message);
		return 1;
	}
	state = argc > 4 ? strtoull(argv[4], NULL, 10) * 2 + 1 : 1;
	figures.token_us = calloc(FIGURES, sizeof(double));
	double begun_us = now_us();
	if (!figures.token_us ||
	    vocabulary_create(&vocabulary,
			      &(struct vocabulary_params){.count = count, .bytes = bytes_of, .ends = ends}))
		return 1;
	const double vocabulary_us = now_us() - begun_us;
	while (fgets(line, sizeof(line), schemas)) {
		line[strcspn(line, "\n")] = 0;
		for (int i = 0; i < rounds && line[0]; i++)
			answer(vocabulary, line, print);
	}
	qsort(figures.compile_us, figures.compiled, sizeof(double), compare);
	qsort(figures.token_us, figures.tokens, sizeof(double), compare);
	if (!print && figures.compiled && figures.tokens)
		printf("| tokens | its tree | ready: median, 99 %%, most | a token: mean, median, 99 %%, most | "
		       "answers | cut off | refused |\n"
		       "|---|---|---|---|---|---|---|\n| %u | %.1f ms | %.2f ms, %.2f ms, %.2f ms | %.1f us, %.1f us, "
		       "%.0f us, %.0f us | %zu of %zu tokens | %zu | %zu |\n",
		       count, vocabulary_us * 1e-3, figures.compile_us[figures.compiled / 2] * 1e-3,
		       figures.compile_us[figures.compiled * 99 / 100] * 1e-3,
		       figures.compile_us[figures.compiled - 1] * 1e-3, figures.sum_us / (double)figures.tokens,
		       figures.token_us[figures.tokens / 2], figures.token_us[figures.tokens * 99 / 100],
		       figures.token_us[figures.tokens - 1], figures.answers, figures.tokens, figures.cut,
		       figures.refused);
	vocabulary_destroy(&vocabulary);
	tokenizer_destroy(&tokenizer);
	free(figures.token_us);
	free(made);
	fclose(schemas);
	return 0;
}
