/* Every architecture beside transformers: the models of tests/models, which tests/models/make.py makes, with what it
 * computes for three texts. Each by one stage, token by token and in batches, and by two stages one behind the other.
 */
#include "tests/engine/conformance/stage.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum {
	VOCABULARY = 128,
	STRIDE = 16, // of the tokens whose log-probabilities are kept for a position
	KEPT = VOCABULARY / STRIDE,
	TEXTS = 3,
	LONG = 600,
	ROWS = 128, // of a step
	PAGES = 64,
};
static const uint32_t lengths[TEXTS] = {1, 33, LONG};
// A stage may round activations before each product (engine/stage.h). CUDA's products of F16 weights take them as f16,
// of 11 bits, of which these small models with their spread weights make up to 0.04; the others keep more bits. Where a
// state carries that on from token to token, or a choice of experts is too close for 11 bits (make.py), CUDA gets the
// same weights as F32, of which it takes activations as two bf16.
static const double nats = 0.01, nats_rounded = 0.05;

struct compared {
	struct conformance *c;
	const char *name;
	struct gguf *gguf;
	struct model *model;
	const struct model_shape *shape;
	float *expected; // (positions of all texts, KEPT)
	float *rope;
	uint32_t tokens[TEXTS][LONG];
	struct stage *stages[2];
	unsigned stage_count;
	bool widens;    // weights are lent as F32
	bool as_it_is;  // they would be, but are not
	float *widened; // the last ones
	double worst;   // with where it is
	char where[128];
	uint32_t rows, beyond; // rows compared, and those that are off by more than nats_rounded
};

static void widen(struct compared *compared, struct model_tensor *tensor)
{
	const uint64_t count = (uint64_t)tensor->rows * tensor->columns;
	free(compared->widened);
	compared->widened = malloc(count * sizeof(float));
	assert_non_null(compared->widened);
	format_decode(tensor->format, tensor->data, compared->widened, count);
	tensor->format = FORMAT_F32;
	tensor->data = (const uint8_t *)compared->widened;
	tensor->bytes = count * sizeof(float);
}

static enum status lend(void *context, enum model_role role, uint32_t layer, struct model_tensor *out,
			struct error *error)
{
	struct compared *compared = context;
	if (!model_tensor(compared->model, role, layer, out))
		return error_set(error, STATUS_INTERNAL, "there is no tensor %d of layer %u", (int)role, layer);
	if (compared->widens && (out->format == FORMAT_F16 || out->format == FORMAT_Q8_0))
		widen(compared, out);
	return STATUS_OK;
}

static void path_of(const struct compared *compared, const char *kind, char out[256])
{
	const char *folder = getenv("EXOGPU_TEST_MODELS"); // where the test was carried to another machine
	snprintf(out, 256, "%s/%s.%s", folder ? folder : TESTS_DIR "/models", compared->name, kind);
}

static void read_expected(struct compared *compared)
{
	char path[256];
	size_t count = (size_t)(lengths[0] + lengths[1] + lengths[2]) * KEPT;
	path_of(compared, "expected", path);
	FILE *file = fopen(path, "rb");
	if (!file)
		fail_msg("%s cannot be read", path);
	compared->expected = calloc(count, sizeof(float));
	assert_non_null(compared->expected);
	assert_int_equal(fread(compared->expected, sizeof(float), count, file), count);
	fclose(file);
}

// What the architecture of a model's file is called, where the model has another name.
static const char *family_of(const char *name)
{
	return !strcmp(name, "mixtral")         ? "llama"
	       : !strcmp(name, "gpt-oss-mxfp4") ? "gpt-oss"
	       : strstr(name, "deepseek2")      ? "deepseek2"
						: name;
}

static void compared_open(struct compared *compared, struct conformance *c, const char *name, bool as_it_is)
{
	char path[256];
	*compared = (struct compared){.c = c, .name = name, .as_it_is = as_it_is};
	path_of(compared, "gguf", path);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		fail_msg("%s cannot be read", path);
	OK(gguf_open(&compared->gguf, fd, &error));
	close(fd);
	OK(model_open(&compared->model, compared->gguf, &error));
	compared->shape = model_shape(compared->model);
	assert_string_equal(model_family_name(compared->shape->family), family_of(name));
	assert_int_equal(compared->shape->vocabulary, VOCABULARY);
	const struct model_shape *shape = compared->shape;
	compared->widens = !as_it_is && !strcmp(c->backend, "cuda") &&
			   (shape->delta.key_heads || (shape->experts && shape->layers > 2));
	read_expected(compared);
	for (unsigned text = 0; text < TEXTS; text++) {
		uint32_t state = 1000 + lengths[text];
		for (uint32_t i = 0; i < lengths[text]; i++) {
			state = (state * 1103515245u + 12345u) & 0x7fffffffu;
			compared->tokens[text][i] = (state >> 16) % VOCABULARY;
		}
	}
}

// Whether all but a fiftieth of the rows of a model that CUDA would get as F32, and got as it is, are near: the others
// took another expert.
static bool is_rounded(const struct compared *compared)
{
	if (!compared->as_it_is)
		return false;
	printf("%-8s, with its own formats: %u of %u rows are off by more than %.2f nats\n", compared->name,
	       compared->beyond, compared->rows, nats_rounded);
	return compared->beyond * 50 <= compared->rows;
}

// Whether it is as near as it has to be.
static bool compared_close(struct compared *compared)
{
	printf("%-8s is off by %.4f nats at most: %s\n", compared->name, compared->worst, compared->where);
	model_destroy(&compared->model);
	gguf_destroy(&compared->gguf);
	free(compared->expected);
	free(compared->widened);
	const bool rounded = !strcmp(compared->c->backend, "cuda") && !compared->widens;
	return compared->worst <= (rounded ? nats_rounded : nats) || is_rounded(compared);
}

// Stages of a context of so many tokens, which a model may turn by.
static void make_stages(struct compared *compared, uint32_t context, unsigned count)
{
	const uint32_t layers = compared->shape->layers, half = count > 1 ? layers / 2 : layers;
	compared->rope = calloc(model_rope_numbers(compared->shape, context), sizeof(float));
	assert_non_null(compared->rope);
	model_rope_table(compared->shape, context, compared->rope);
	compared->stage_count = count;
	for (unsigned i = 0; i < count; i++) {
		const struct stage_params params = {
			.shape = compared->shape,
			.first_layer = i ? half : 0,
			.layer_count = i ? layers - half : half,
			.embeds = !i,
			.predicts = i + 1 == count,
			.context_tokens = context,
			.page_count = PAGES,
			.batch_rows = ROWS,
			.batch_sequences = TEXTS,
			.batch_outputs = ROWS,
			.rope = compared->rope,
			.tensor = lend,
			.context = compared,
		};
		OK(stage_create(&compared->stages[i], compared->c->device, &params, &error));
	}
}

static void drop_stages(struct compared *compared)
{
	for (unsigned i = 0; i < compared->stage_count; i++)
		stage_destroy(&compared->stages[i]);
	free(compared->rope);
}

static void compare_row(struct compared *compared, unsigned text, uint32_t position, const float *logits)
{
	uint32_t row = position;
	double sum = 0, largest = -INFINITY;
	for (unsigned before = 0; before < text; before++)
		row += lengths[before];
	for (uint32_t token = 0; token < VOCABULARY; token++)
		largest = fmax(largest, (double)logits[token]);
	for (uint32_t token = 0; token < VOCABULARY; token++)
		sum += exp((double)logits[token] - largest);
	bool off = false;
	for (uint32_t k = 0; k < KEPT; k++) {
		uint32_t token = position % STRIDE + k * STRIDE;
		double got = (double)logits[token] - largest - log(sum);
		double wanted = (double)compared->expected[(size_t)row * KEPT + k];
		off |= !(fabs(got - wanted) <= nats_rounded);
		if (fabs(got - wanted) <= compared->worst)
			continue;
		compared->worst = isnan(got) ? INFINITY : fabs(got - wanted);
		snprintf(compared->where, sizeof(compared->where),
			 "at position %u of %u token %u has the log-probability %.5f, not %.5f", position,
			 lengths[text], token, got, wanted);
	}
	compared->rows++;
	compared->beyond += off;
}

// Some rows of each of several texts, through all stages, compared.
struct piece {
	unsigned text;
	uint32_t position, count;
};

static void compute(struct compared *compared, const struct piece *pieces, uint32_t count)
{
	static uint32_t pages[TEXTS][PAGES];
	static float logits[ROWS * VOCABULARY];
	struct stage_run runs[TEXTS];
	uint32_t tokens[ROWS], rows[ROWS], used = 0;
	float *between = calloc((size_t)ROWS * compared->shape->embedding, sizeof(float));
	assert_non_null(between);
	for (uint32_t i = 0; i < count; i++) {
		const struct piece *piece = &pieces[i];
		// Pages of a text are every third, so that none lies beside its next.
		for (uint32_t page = 0; page < PAGES; page++)
			pages[piece->text][page] = (page * TEXTS + piece->text) % PAGES;
		runs[i] = (struct stage_run){
			.row_count = piece->count, .position = piece->position, .pages = pages[piece->text]};
		if (model_is_recurrent(compared->shape)) {
			runs[i].state_from = piece->position ? piece->text + 1 : 0;
			runs[i].state_to = piece->text + 1;
		}
		for (uint32_t k = 0; k < piece->count; k++, used++) {
			tokens[used] = compared->tokens[piece->text][piece->position + k];
			rows[used] = used;
		}
	}
	for (unsigned i = 0; i < compared->stage_count; i++) {
		const bool last = i + 1 == compared->stage_count;
		const struct stage_batch batch = {.row_count = used,
						  .runs = runs,
						  .run_count = count,
						  .tokens = tokens,
						  .input = between,
						  .output = between,
						  .output_rows = rows,
						  .output_count = last ? used : 0,
						  .logits = logits};
		OK(stage_step(compared->stages[i], &batch, &error));
	}
	used = 0;
	for (uint32_t i = 0; i < count; i++)
		for (uint32_t k = 0; k < pieces[i].count; k++, used++)
			compare_row(compared, pieces[i].text, pieces[i].position + k, logits + used * VOCABULARY);
	free(between);
}

// So much of a text: prompts in pieces, and from `single` on token by token.
static void compute_text(struct compared *compared, unsigned text, uint32_t length, uint32_t single)
{
	struct piece piece = {.text = text};
	for (; piece.position < length; piece.position += piece.count) {
		uint32_t left = length - piece.position, before = single - piece.position;
		piece.count = left < ROWS ? left : ROWS;
		if (piece.position >= single)
			piece.count = 1;
		else if (piece.count > before)
			piece.count = before;
		compute(compared, &piece, 1);
	}
}

// The short ones side by side: the second's prompt, so long, beside the first's only token, then single tokens of both.
static void compute_batches(struct compared *compared, uint32_t prompt)
{
	compute(compared, (struct piece[]){{0, 0, 1}, {1, 0, prompt}}, 2);
	for (uint32_t position = prompt; position < lengths[1]; position++)
		compute(compared, (struct piece[]){{1, position, 1}, {0, 0, 1}}, 2);
}

// How much of the long text goes through so many stages. Where the tests are brief, only models whose layers attend to
// a window take all of it, and they alone take a part of it through two stages; the others' part is more than six
// pages, in two steps and single tokens.
static uint32_t long_length(const struct compared *compared, unsigned stages)
{
	enum { PART = 200 };
	if (!stage_tests_are_brief(compared->c))
		return LONG;
	if (stages == 2)
		return compared->shape->window ? PART : 0;
	return compared->shape->window ? LONG : PART;
}

enum { CONTEXT_SHORT = 64, CONTEXT_LONG = 640 };

// Whether the positions of a short context turn otherwise than the first ones of a long one.
static bool context_matters(const struct model_shape *shape)
{
	float *few = calloc(model_rope_numbers(shape, CONTEXT_SHORT), sizeof(float));
	float *many = calloc(model_rope_numbers(shape, CONTEXT_LONG), sizeof(float));
	assert_true(few && many);
	model_rope_table(shape, CONTEXT_SHORT, few);
	model_rope_table(shape, CONTEXT_LONG, many);
	const bool matters = memcmp(few, many, (size_t)CONTEXT_SHORT * shape->rope_size * sizeof(float)) != 0;
	free(few);
	free(many);
	return matters;
}

static bool compare(struct conformance *c, const char *name, bool as_it_is)
{
	// Single tokens of the second text; its last one begins a page.
	const bool brief = stage_tests_are_brief(c);
	const uint32_t alone = brief ? 27 : 8, beside = brief ? 29 : 20;
	struct compared compared;
	compared_open(&compared, c, name, as_it_is);
	// Where a processor compiles the shaders, stages of one context compute all texts.
	const bool anew = !brief || context_matters(compared.shape);
	for (unsigned stages = 1; stages <= 2; stages++) {
		make_stages(&compared, anew ? CONTEXT_SHORT : CONTEXT_LONG, stages);
		const uint32_t length = long_length(&compared, stages);
		compute_text(&compared, 0, lengths[0], UINT32_MAX);
		compute_text(&compared, 1, lengths[1], stages == 1 ? UINT32_MAX : alone);
		compute_batches(&compared, beside);
		if (length && anew) {
			drop_stages(&compared);
			make_stages(&compared, CONTEXT_LONG, stages);
		}
		if (length)
			compute_text(&compared, 2, length, length - (length == LONG ? 40 : 8));
		drop_stages(&compared);
	}
	return compared_close(&compared);
}

// The last token of the second text, whose page before it is full, from each of these slots to another.
static void go_on(struct compared *compared, const uint32_t (*slots)[2], uint32_t count, float *logits)
{
	static const uint32_t pages[TEXTS][2] = {{1, 4}, {1, 7}, {1, 10}}, rows[TEXTS] = {0, 1, 2};
	const uint32_t last = lengths[1] - 1, token = compared->tokens[1][last], tokens[TEXTS] = {token, token, token};
	struct stage_run runs[TEXTS];
	for (uint32_t i = 0; i < count; i++)
		runs[i] = (struct stage_run){.row_count = 1,
					     .position = last,
					     .pages = pages[i],
					     .state_from = slots[i][0],
					     .state_to = slots[i][1]};
	const struct stage_batch batch = {.row_count = count,
					  .runs = runs,
					  .run_count = count,
					  .tokens = tokens,
					  .output_rows = rows,
					  .output_count = count,
					  .logits = logits};
	OK(stage_step(compared->stages[0], &batch, &error));
}

static double apart(const float *some, const float *others)
{
	double most = 0;
	for (uint32_t i = 0; i < VOCABULARY; i++)
		most = fmax(most, fabs((double)some[i] - (double)others[i]));
	return most;
}

// A state that is kept can be gone on from again and again; one that is zero is another; and wrong slots are refused.
void test_stage_states(void **state)
{
	static const uint32_t twice[2][2] = {{1, 2}, {1, 3}}, again[1][2] = {{1, 4}};
	static float logits[TEXTS * VOCABULARY], first[VOCABULARY];
	struct compared compared;
	compared_open(&compared, *state, "qwen35", false);
	make_stages(&compared, 64, 1);
	compute(&compared, &(struct piece){1, 0, lengths[1] - 1}, 1); // leaves its state in slot 2
	go_on(&compared, (const uint32_t[1][2]){{2, 1}}, 1, first);
	compare_row(&compared, 1, lengths[1] - 1, first);
	compute(&compared, &(struct piece){1, 0, lengths[1] - 1}, 1);
	go_on(&compared, (const uint32_t[2][2]){{2, 1}, {2, 3}}, 2, logits);
	assert_memory_equal(logits, logits + VOCABULARY, sizeof(first));
	assert_true(apart(logits, first) < 1e-3);
	go_on(&compared, (const uint32_t[1][2]){{2, 2}}, 1, logits); // in place
	assert_true(apart(logits, first) < 1e-3);
	go_on(&compared, twice, 2, logits);
	assert_memory_equal(logits, logits + VOCABULARY, sizeof(first));
	memcpy(first, logits, sizeof(first));
	OK(stage_zero(compared.stages[0], (const uint32_t[]){PAGES}, 1, &error)); // slot 1
	go_on(&compared, again, 1, logits);
	assert_true(apart(logits, first) > 1e-3);
	struct error error = {0};
	static const uint32_t page[1] = {0}, token[2] = {0};
	const uint32_t most = stage_state_count(compared.shape, TEXTS);
	const struct stage_run runs[][2] = {
		{{.row_count = 1, .pages = page}},                                 // to none
		{{.row_count = 1, .pages = page, .state_to = most + 1}},           // to one that there is not
		{{.row_count = 1, .pages = page, .state_from = 1, .state_to = 1}}, // from one, at the beginning
		{{.row_count = 1, .position = 1, .pages = page, .state_to = 1}},   // from none, later
		{{.row_count = 1, .pages = page, .state_to = 1}, {.row_count = 1, .pages = page, .state_to = 1}},
	};
	for (uint32_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
		const uint32_t count = runs[i][1].row_count ? 2 : 1;
		const struct stage_batch batch = {
			.row_count = count, .runs = runs[i], .run_count = count, .tokens = token};
		assert_int_equal(stage_step(compared.stages[0], &batch, &error), STATUS_INVALID_PARAMS);
	}
	drop_stages(&compared);
	assert_true(compared_close(&compared));
}

void test_stage_architectures(void **state)
{
	static const char *const names[] = {
		"phi3",      "granite",        "smollm3",       "olmo2",      "glm4",       "gemma",     "gemma2",
		"gemma3",    "qwen3moe",       "qwen2moe",      "mixtral",    "granitemoe", "olmoe",     "qwen35",
		"qwen35moe", "gpt-oss",        "gpt-oss-mxfp4", "mistral3",   "glm4moe",    "qwen3next", "lfm2",
		"lfm2moe",   "qwen2vl",        "qwen3vl",       "qwen3vlmoe", "seed_oss",   "ernie4_5",  "minimax-m2",
		"deepseek2", "deepseek2-lite", "deepseek2-q8_0"};
	static const char *const latents[] = {"deepseek2", "deepseek2-q8_0"};
	unsigned wrong = 0;
	const char *only = getenv("EXOGPU_TEST_MODEL");
	const struct conformance *c = *state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (!only || !strcmp(only, names[i]))
			wrong += !compare(*state, names[i], false);
	// CUDA attends to latents by other kernels if their matrices have no more bits than f16.
	for (size_t i = 0; i < sizeof(latents) / sizeof(*latents) && !strcmp(c->backend, "cuda"); i++)
		if (!only || !strcmp(only, latents[i]))
			wrong += !compare(*state, latents[i], true);
	assert_int_equal(wrong, 0);
}
