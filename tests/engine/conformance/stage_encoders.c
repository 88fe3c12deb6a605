/* Encoders beside transformers: those of tests/models that make_encoders.py and make_unigram.py make, with what comes
 * out of their last layer. Texts alone and side by side, in one stage and in two; and the score of a cross-encoder. */
#include "tests/engine/conformance/stage.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

enum {
	VOCABULARY = 128, // that texts are made of; a model may have more
	WIDTH = 32,
	STRIDE = 8,
	KEPT = WIDTH / STRIDE,
	TEXTS = 3,
	CONTEXT = 640,
	PAGES = 48
};
static const uint32_t lengths[TEXTS] = {1, 33, 600};
// Of numbers spread by about 1. A stage may round activations before each product (engine/stage.h): CUDA's products of
// F16 weights take them as f16.
static const double most = 0.002, most_rounded = 0.02;

struct encoding {
	struct conformance *c;
	struct gguf *gguf;
	struct model *model;
	const struct model_shape *shape;
	float *expected; // (positions of all texts, KEPT)
	float *rope;
	uint32_t tokens[TEXTS][CONTEXT];
	struct stage *stages[2];
	unsigned stage_count;
	double worst;
};

static enum status lend(void *context, enum model_role role, uint32_t layer, struct model_tensor *out,
			struct error *error)
{
	const struct encoding *encoding = context;
	return model_tensor(encoding->model, role, layer, out)
		       ? STATUS_OK
		       : error_set(error, STATUS_INTERNAL, "there is no tensor %d of layer %u", (int)role, layer);
}

static void path_of(const char *name, char out[256])
{
	const char *folder = getenv("EXOGPU_TEST_MODELS"); // where the test was carried to another machine
	snprintf(out, 256, "%s/%s", folder ? folder : TESTS_DIR "/models", name);
}

static void open_model(struct encoding *encoding, struct conformance *c, const char *name)
{
	char path[256];
	*encoding = (struct encoding){.c = c};
	path_of(name, path);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fail_msg("%s cannot be read", path);
	OK(gguf_open(&encoding->gguf, fd, &error));
	close(fd);
	OK(model_open(&encoding->model, encoding->gguf, &error));
	encoding->shape = model_shape(encoding->model);
	assert_true(encoding->shape->vocabulary >= VOCABULARY);
	assert_int_equal(encoding->shape->embedding, WIDTH);
	encoding->rope = calloc(model_rope_numbers(encoding->shape, CONTEXT) + 1, sizeof(float));
	assert_non_null(encoding->rope);
	model_rope_table(encoding->shape, CONTEXT, encoding->rope);
	for (unsigned text = 0; text < TEXTS; text++) {
		uint32_t state = 1000 + lengths[text];
		for (uint32_t i = 0; i < lengths[text]; i++) {
			state = (state * 1103515245u + 12345u) & 0x7fffffffu;
			encoding->tokens[text][i] = (state >> 16) % VOCABULARY;
		}
	}
}

static void close_model(struct encoding *encoding)
{
	for (unsigned i = 0; i < encoding->stage_count; i++)
		stage_destroy(&encoding->stages[i]);
	model_destroy(&encoding->model);
	gguf_destroy(&encoding->gguf);
	free(encoding->expected);
	free(encoding->rope);
}

static void read_expected(struct encoding *encoding, const char *name)
{
	char path[256];
	const size_t count = (size_t)(lengths[0] + lengths[1] + lengths[2]) * KEPT;
	path_of(name, path);
	FILE *file = fopen(path, "rb");
	if (!file)
		fail_msg("%s cannot be read", path);
	encoding->expected = calloc(count, sizeof(float));
	assert_non_null(encoding->expected);
	assert_int_equal(fread(encoding->expected, sizeof(float), count, file), count);
	fclose(file);
}

static void make_stages(struct encoding *encoding, unsigned count)
{
	const uint32_t layers = encoding->shape->layers, half = count > 1 ? layers / 2 : layers;
	for (unsigned i = 0; i < encoding->stage_count; i++)
		stage_destroy(&encoding->stages[i]);
	encoding->stage_count = count;
	for (unsigned i = 0; i < count; i++) {
		const struct stage_params params = {.shape = encoding->shape,
						    .first_layer = i ? half : 0,
						    .layer_count = i ? layers - half : half,
						    .embeds = !i,
						    .predicts = i + 1 == count,
						    .context_tokens = CONTEXT,
						    .page_count = PAGES,
						    .batch_rows = CONTEXT,
						    .batch_sequences = TEXTS,
						    .batch_outputs = CONTEXT,
						    .rope = encoding->rope,
						    .tensor = lend,
						    .context = encoding};
		OK(stage_create(&encoding->stages[i], encoding->c->device, &params, &error));
	}
}

// All rows of some texts, side by side, into `hidden` (rows, WIDTH).
static void compute(struct encoding *encoding, const unsigned *texts, const uint32_t *counts, uint32_t count,
		    const uint32_t (*tokens_of)[CONTEXT], float *hidden)
{
	static uint32_t pages[TEXTS][PAGES], tokens[CONTEXT], rows[CONTEXT];
	struct stage_run runs[TEXTS];
	uint32_t used = 0, page = 0;
	float *between = calloc((size_t)CONTEXT * WIDTH, sizeof(float));
	assert_non_null(between);
	for (uint32_t i = 0; i < count; i++) {
		const uint32_t needs = (counts[i] + STAGE_PAGE_TOKENS - 1) / STAGE_PAGE_TOKENS;
		for (uint32_t k = 0; k < needs; k++)
			pages[i][k] = PAGES - 1 - page++; // from the last on
		runs[i] = (struct stage_run){.row_count = counts[i], .pages = pages[i]};
		for (uint32_t k = 0; k < counts[i]; k++, used++) {
			tokens[used] = tokens_of[texts[i]][k];
			rows[used] = used;
		}
	}
	for (unsigned i = 0; i < encoding->stage_count; i++) {
		const bool last = i + 1 == encoding->stage_count;
		const struct stage_batch batch = {.row_count = used,
						  .runs = runs,
						  .run_count = count,
						  .tokens = tokens,
						  .input = between,
						  .output = between,
						  .output_rows = rows,
						  .output_count = last ? used : 0,
						  .hidden = hidden};
		OK(stage_step(encoding->stages[i], &batch, &error));
	}
	free(between);
}

static void compare_texts(struct encoding *encoding, const unsigned *texts, uint32_t count)
{
	static float hidden[CONTEXT * WIDTH];
	uint32_t counts[TEXTS] = {0}, row = 0;
	for (uint32_t i = 0; i < count; i++)
		counts[i] = lengths[texts[i]];
	compute(encoding, texts, counts, count, (const uint32_t(*)[CONTEXT])encoding->tokens, hidden);
	for (uint32_t i = 0; i < count; i++) {
		size_t first = 0;
		for (unsigned before = 0; before < texts[i]; before++)
			first += lengths[before];
		for (uint32_t p = 0; p < counts[i]; p++, row++)
			for (uint32_t k = 0; k < KEPT; k++) {
				const double got = (double)hidden[row * WIDTH + p % STRIDE + k * STRIDE];
				const double off = fabs(got - (double)encoding->expected[(first + p) * KEPT + k]);
				if (!(off <= encoding->worst))
					encoding->worst = isnan(off) ? INFINITY : off;
			}
	}
}

static double compare(struct conformance *c, const char *file, const char *expected)
{
	struct encoding encoding;
	open_model(&encoding, c, file);
	read_expected(&encoding, expected);
	for (unsigned stages = 1; stages <= 2; stages++) {
		make_stages(&encoding, stages);
		const bool brief = stage_tests_are_brief(c); // then the long text once, between the others
		for (unsigned text = 0; text < (brief ? 2 : TEXTS); text++)
			compare_texts(&encoding, &text, 1);
		compare_texts(&encoding, (const unsigned[]){1, 0}, 2);
		if (!brief || stages == 1)
			compare_texts(&encoding, (const unsigned[]){0, 2, 1}, 3);
	}
	printf("%s is off by %.6f at most\n", file, encoding.worst);
	const double worst = encoding.worst;
	close_model(&encoding);
	return worst;
}

void test_stage_encoders(void **state)
{
	struct conformance *c = *state;
	const double allowed = strcmp(c->backend, "cuda") != 0 ? most : most_rounded;
	const double bert = compare(c, "bert.gguf", "bert.expected"),
		     nomic = compare(c, "nomic-bert.gguf", "nomic-bert.expected"),
		     xlm = compare(c, "xlm-roberta.gguf", "xlm-roberta.expected");
	assert_true(bert <= allowed && nomic <= allowed && xlm <= allowed);
}

// "what is the capital of france?", "Paris is the capital of France.": by encoders.json.
void test_stage_ranks(void **state)
{
	static const uint32_t pair[1][CONTEXT] = {{2, 83, 84, 77, 86, 85, 87, 70, 3, 88, 84, 77, 86, 85, 87, 67, 3}};
	static float hidden[CONTEXT * WIDTH];
	const uint32_t count = 17;
	const unsigned text = 0;
	struct encoding encoding;
	open_model(&encoding, *state, "bert-rank.gguf");
	assert_int_equal(encoding.shape->pooling, POOLING_RANK);
	make_stages(&encoding, 1);
	compute(&encoding, &text, &count, 1, pair, hidden);
	const double score = (double)stage_score(encoding.stages[0], hidden);
	printf("the score is %.6f\n", score);
	assert_true(fabs(score - 0.078644) <= (strcmp(encoding.c->backend, "cuda") != 0 ? most : most_rounded));
	close_model(&encoding);
}
