/* Keys and values that leave a stage and enter another: one goes on from there as if it had computed them, on the same
 * back end with the same bits. */
#include "engine/backend.h"
#include "tests/engine/conformance/stage.h"

#include <math.h>

enum {
	TEXT = 70,
	BEFORE = 2 * STAGE_PAGE_TOKENS, // the pages that move
	ROWS = TEXT - BEFORE,
	PAGES = 40,
	VOCABULARY = 128,
	CONTEXT = 96,
};
static const uint32_t here[] = {17, 3, 31}, there[] = {8, 9, 22};
// How far log-probabilities may be off, as in stage_architectures.c.
static const double nats = 0.01, nats_rounded = 0.05;

struct paged {
	struct conformance *c;
	struct model_file_open file;
	const struct model_shape *shape;
	float *rope;
	uint32_t tokens[TEXT];
};

// A model of tests/models, or, without a name, one of these sizes.
struct paged_model {
	const char *name;
	uint32_t embedding, heads, kv_heads, head_size;
	uint32_t slices; // 0: whole
	bool sizes_only; // it adds nothing but sizes to those before
};
static const struct paged_model models[] = {
	{.embedding = 64, .heads = 4, .kv_heads = 2, .head_size = 16},
	{.embedding = 60, .heads = 6, .kv_heads = 3, .head_size = 10},
	{.embedding = 64, .heads = 2, .kv_heads = 1, .head_size = 80, .sizes_only = true},
	{.embedding = 64, .heads = 3, .kv_heads = 3, .head_size = 96, .sizes_only = true},
	{.embedding = 128, .heads = 8, .kv_heads = 4, .head_size = 32, .slices = 2},
	{.embedding = 128, .heads = 8, .kv_heads = 4, .head_size = 32, .slices = 4},
	{.name = "gemma3"}, // windows
	{.name = "deepseek2"},
	{.name = "qwen35"},
	{.name = "lfm2", .sizes_only = true},
};

static void read_model(struct model_file_open *out, const char *name)
{
	char path[256];
	const char *folder = getenv("EXOGPU_TEST_MODELS"); // where the test was carried to another machine
	snprintf(path, sizeof(path), "%s/%s.gguf", folder ? folder : TESTS_DIR "/models", name);
	FILE *file = fopen(path, "rb");
	if (!file)
		fail_msg("%s cannot be read", path);
	fseek(file, 0, SEEK_END);
	const size_t length = (size_t)ftell(file);
	rewind(file);
	*out = (struct model_file_open){.bytes = malloc(length)};
	assert_non_null(out->bytes);
	assert_int_equal(fread(out->bytes, 1, length, file), length);
	fclose(file);
	OK(gguf_parse(&out->gguf, out->bytes, length, &error));
	OK(model_open(&out->model, out->gguf, &error));
}

static void paged_open(struct paged *paged, struct conformance *c, const struct paged_model *model)
{
	*paged = (struct paged){.c = c};
	if (model->name)
		read_model(&paged->file, model->name);
	else
		model_file_open(&paged->file, &(struct model_file){.family = FAMILY_LLAMA,
								   .layers = 2,
								   .embedding = model->embedding,
								   .feed_forward = 128,
								   .heads = model->heads,
								   .kv_heads = model->kv_heads,
								   .head_size = model->head_size,
								   .vocabulary = VOCABULARY,
								   .context = CONTEXT,
								   .format = FORMAT_F16,
								   .norm_epsilon = 3e-3f,
								   .seed = 21});
	paged->shape = model_shape(paged->file.model);
	assert_int_equal(paged->shape->vocabulary, VOCABULARY);
	paged->rope = calloc(model_rope_numbers(paged->shape, CONTEXT), sizeof(float));
	assert_non_null(paged->rope);
	model_rope_table(paged->shape, CONTEXT, paged->rope);
	make_text(paged->tokens, TEXT, VOCABULARY, 9);
}

static void paged_close(struct paged *paged)
{
	model_file_close(&paged->file);
	free(paged->rope);
}

static enum status lend(void *context, enum model_role role, uint32_t layer, struct model_tensor *out,
			struct error *error)
{
	const struct paged *paged = context;
	if (!model_tensor(paged->file.model, role, layer, out))
		return error_set(error, STATUS_INTERNAL, "there is no tensor %d of layer %u", (int)role, layer);
	return STATUS_OK;
}

static struct stage_params params_of(struct paged *paged)
{
	return (struct stage_params){
		.shape = paged->shape,
		.layer_count = paged->shape->layers,
		.embeds = true,
		.predicts = true,
		.context_tokens = CONTEXT,
		.page_count = PAGES,
		.batch_rows = BEFORE,
		.batch_sequences = 1,
		.batch_outputs = ROWS,
		.rope = paged->rope,
		.tensor = lend,
		.context = paged,
	};
}

static struct stage *make_stage(struct paged *paged, struct exogpu_device *device, uint32_t slices)
{
	struct exogpu_device *devices[STAGE_SLICES];
	const struct stage_params params = params_of(paged);
	struct stage *stage = NULL;
	for (unsigned i = 0; i < STAGE_SLICES; i++)
		devices[i] = device;
	OK(stage_create_sliced(&stage, devices, slices ? slices : 1, &params, &error));
	return stage;
}

// ---- a text in two steps: what its full pages hold, and the rest ----

static void begin_text(const struct paged *paged, struct stage *stage, const uint32_t *pages)
{
	const struct stage_run run = {
		.row_count = BEFORE, .pages = pages, .state_to = model_is_recurrent(paged->shape)};
	OK(stage_step(stage,
		      &(struct stage_batch){.row_count = BEFORE, .runs = &run, .run_count = 1, .tokens = paged->tokens},
		      &error));
}

// logits: (ROWS, VOCABULARY). The state of a model with one is that of begin_text, on this stage.
static void end_text(const struct paged *paged, struct stage *stage, const uint32_t *pages, float *logits)
{
	static const uint32_t rows[ROWS] = {0, 1, 2, 3, 4, 5};
	const bool states = model_is_recurrent(paged->shape);
	const struct stage_run run = {.row_count = ROWS,
				      .position = BEFORE,
				      .pages = pages,
				      .state_from = states,
				      .state_to = states ? 2 : 0};
	OK(stage_step(stage,
		      &(struct stage_batch){.row_count = ROWS,
					    .runs = &run,
					    .run_count = 1,
					    .tokens = paged->tokens + BEFORE,
					    .output_rows = rows,
					    .output_count = ROWS,
					    .logits = logits},
		      &error));
}

static bool has_pages(const struct paged *paged, uint32_t layer)
{
	return !(paged->shape->layer_kinds[layer] & LAYER_DELTA);
}

static uint64_t layer_bytes(const struct paged *paged)
{
	return 2 * stage_page_bytes(paged->shape);
}

// The text's full pages in all layers, one layer behind the other; at an odd address. The caller frees what is
// returned.
static uint8_t *read_layers(const struct paged *paged, struct stage *stage, const uint32_t *pages)
{
	uint8_t *all = malloc(paged->shape->layers * layer_bytes(paged) + 1);
	assert_non_null(all);
	for (uint32_t layer = 0; layer < paged->shape->layers; layer++) {
		uint8_t *to = all + 1 + layer * layer_bytes(paged);
		memset(to, 0, layer_bytes(paged));
		if (has_pages(paged, layer))
			OK(stage_read_pages(stage, layer, pages, 2, to, &error));
		else
			REFUSED(STATUS_INVALID_PARAMS, stage_read_pages(stage, layer, pages, 2, to, &error));
	}
	return all;
}

static void write_layers(const struct paged *paged, struct stage *stage, const uint32_t *pages, const uint8_t *all)
{
	for (uint32_t layer = 0; layer < paged->shape->layers; layer++) {
		const uint8_t *from = all + 1 + layer * layer_bytes(paged);
		if (has_pages(paged, layer))
			OK(stage_write_pages(stage, layer, pages, 2, from, &error));
		else
			REFUSED(STATUS_INVALID_PARAMS, stage_write_pages(stage, layer, pages, 2, from, &error));
	}
}

// A stage goes on from what another computed, in other pages; from one number with another sign it does not. A model
// with states has those only on the stage that computed them: it is the same stage there.
static void check_moved(struct paged *paged, uint32_t slices, const char *what)
{
	static float alone[ROWS * VOCABULARY], moved[ROWS * VOCABULARY];
	struct stage *first = make_stage(paged, paged->c->device, slices), *second = NULL;
	begin_text(paged, first, here);
	end_text(paged, first, here, alone);
	if (!model_is_recurrent(paged->shape))
		second = make_stage(paged, paged->c->device, slices);
	struct stage *other = second ? second : first;
	assert_true(stage_moves_pages(other));
	uint8_t *all = read_layers(paged, first, here);
	write_layers(paged, other, there, all);
	end_text(paged, other, there, moved);
	same_bytes((uint8_t *)moved, (uint8_t *)alone, sizeof(alone), what);
	uint8_t *back = read_layers(paged, other, there);
	same_bytes(back + 1, all + 1, paged->shape->layers * layer_bytes(paged), what);
	uint32_t layer = 0;
	while (!has_pages(paged, layer))
		layer++;
	all[(layer + 1) * layer_bytes(paged)] ^= 0x80; // the last number: of the last token before the rest
	write_layers(paged, other, there, all);
	end_text(paged, other, there, moved);
	if (!memcmp(moved, alone, sizeof(alone)))
		fail_msg("%s: with another number in a page the logits are the same", what);
	free(all);
	free(back);
	stage_destroy(&first);
	stage_destroy(&second);
}

static void name_model(const struct paged_model *model, char what[96])
{
	snprintf(what, 96, "pages of %s, %u heads of %u, %u slices", model->name ? model->name : "llama",
		 model->kv_heads, model->head_size, model->slices ? model->slices : 1);
}

void test_stage_pages(void **state)
{
	struct conformance *c = *state;
	for (size_t i = 0; i < sizeof(models) / sizeof(*models); i++) {
		struct paged paged;
		char what[96];
		if ((models[i].slices && !strcmp(c->backend, "vulkan")) ||
		    (models[i].sizes_only && stage_tests_are_brief(c)))
			continue;
		name_model(&models[i], what);
		paged_open(&paged, c, &models[i]);
		check_moved(&paged, models[i].slices, what);
		paged_close(&paged);
	}
}

// ---- bytes ----

// What is written is read, whatever it is, in any order of pages and more of it than one transfer takes; pages that
// are not named stay.
static void check_bytes(struct paged *paged, uint32_t slices, const char *what)
{
	const uint64_t page_bytes = stage_page_bytes(paged->shape), bytes = PAGES * page_bytes;
	uint8_t *first = make_pattern(bytes, 1), *second = make_pattern(bytes, 2), *got = malloc(bytes);
	uint32_t in_order[PAGES], mixed[PAGES];
	struct stage *stage = make_stage(paged, paged->c->device, slices);
	assert_non_null(got);
	for (uint32_t i = 0; i < PAGES; i++) {
		in_order[i] = i;
		mixed[i] = i * 7 % PAGES;
	}
	OK(stage_write_pages(stage, 1, in_order, PAGES, first, &error));
	OK(stage_write_pages(stage, 0, in_order, PAGES, second, &error));
	OK(stage_read_pages(stage, 1, in_order, PAGES, got, &error));
	same_bytes(got, first, bytes, what);
	OK(stage_write_pages(stage, 1, mixed, PAGES / 2, second, &error));
	for (uint32_t i = 0; i < PAGES / 2; i++)
		memcpy(first + mixed[i] * page_bytes, second + i * page_bytes, page_bytes);
	OK(stage_read_pages(stage, 1, in_order, PAGES, got, &error));
	same_bytes(got, first, bytes, what);
	OK(stage_read_pages(stage, 1, mixed, PAGES, got, &error));
	for (uint32_t i = 0; i < PAGES; i++)
		same_bytes(got + i * page_bytes, first + mixed[i] * page_bytes, page_bytes, what);
	stage_destroy(&stage);
	free(first);
	free(second);
	free(got);
}

static void refuse(struct stage *stage, uint32_t layer, const uint32_t *pages, uint32_t count, uint8_t *bytes)
{
	REFUSED(STATUS_INVALID_PARAMS, stage_read_pages(stage, layer, pages, count, bytes, &error));
	REFUSED(STATUS_INVALID_PARAMS, stage_write_pages(stage, layer, pages, count, bytes, &error));
}

// Layers are numbered as in the model.
static void check_refused(struct paged *paged)
{
	static const uint32_t last[] = {PAGES - 1}, none[] = {0, PAGES};
	struct stage_params params = params_of(paged);
	struct stage *stage = NULL;
	const uint64_t bytes = stage_page_bytes(paged->shape);
	uint8_t *page = make_pattern(bytes, 3), *got = malloc(bytes);
	params.first_layer = params.layer_count = 1;
	params.embeds = false;
	OK(stage_create(&stage, paged->c->device, &params, &error));
	assert_non_null(got);
	refuse(stage, 0, last, 1, page);
	refuse(stage, 2, last, 1, page);
	refuse(stage, UINT32_MAX, last, 1, page);
	refuse(stage, 1, none, 2, page);
	refuse(stage, 1, NULL, 1, page);
	refuse(stage, 1, last, 1, NULL);
	OK(stage_write_pages(stage, 1, NULL, 0, NULL, &error));
	OK(stage_read_pages(stage, 1, NULL, 0, NULL, &error));
	OK(stage_write_pages(stage, 1, last, 1, page, &error));
	OK(stage_read_pages(stage, 1, last, 1, got, &error));
	same_bytes(got, page, bytes, "a page of the second layer");
	stage_destroy(&stage);
	free(page);
	free(got);
}

void test_stage_pages_bytes(void **state)
{
	static const struct paged_model large[] = {
		{.embedding = 64, .heads = 8, .kv_heads = 8, .head_size = 128},
		{.embedding = 64, .heads = 2, .kv_heads = 2, .head_size = 80},
		{.embedding = 64, .heads = 4, .kv_heads = 4, .head_size = 20},
		{.embedding = 128, .heads = 4, .kv_heads = 4, .head_size = 32, .slices = 4},
		{.name = "deepseek2-lite"},
	};
	struct conformance *c = *state;
	for (size_t i = 0; i < sizeof(large) / sizeof(*large); i++) {
		struct paged paged;
		char what[96];
		if (large[i].slices && !strcmp(c->backend, "vulkan"))
			continue;
		name_model(&large[i], what);
		paged_open(&paged, c, &large[i]);
		check_bytes(&paged, large[i].slices, what);
		if (!i)
			check_refused(&paged);
		paged_close(&paged);
	}
}

// ---- another back end ----

static void note_cpu(void *context, const struct exogpu_found_device *device)
{
	if (!strcmp(device->backend, "cpu"))
		snprintf(context, INFO_KEY_BYTES, "%s", device->hardware_key);
}

static double log_probability(const float *logits, uint32_t token)
{
	double largest = -INFINITY, sum = 0;
	for (uint32_t i = 0; i < VOCABULARY; i++)
		largest = fmax(largest, (double)logits[i]);
	for (uint32_t i = 0; i < VOCABULARY; i++)
		sum += exp((double)logits[i] - largest);
	return (double)logits[token] - largest - log(sum);
}

// How far the rest of the text is from that of the processor alone, in nats, once these pages are in place.
static double distance(const struct paged *paged, struct stage *stage, const uint8_t *all, const float *alone)
{
	static float logits[ROWS * VOCABULARY];
	double worst = 0;
	write_layers(paged, stage, there, all);
	end_text(paged, stage, there, logits);
	for (uint32_t row = 0; row < ROWS; row++)
		for (uint32_t token = 0; token < VOCABULARY; token++) {
			const size_t at = (size_t)row * VOCABULARY;
			const double off = fabs(log_probability(logits + at, token) -
						log_probability(alone + at, token));
			worst = isnan(off) ? INFINITY : fmax(worst, off);
		}
	return worst;
}

// The rest of the text on one stage after its beginning on another. With nothing in its pages it is another.
static void check_passed(const struct paged *paged, struct stage *from, struct stage *to, const float *alone,
			 const char *what)
{
	const double allowed = strcmp(paged->c->backend, "cuda") != 0 ? nats : nats_rounded;
	begin_text(paged, from, here);
	uint8_t *all = read_layers(paged, from, here);
	const double off = distance(paged, to, all, alone);
	memset(all, 0, paged->shape->layers * layer_bytes(paged) + 1);
	const double empty = distance(paged, to, all, alone);
	printf("%s: off by %.5f nats at most, with nothing in the pages by %.5f\n", what, off, empty);
	if (!(off <= allowed) || !(empty > allowed))
		fail_msg("%s: off by %.5f nats, with nothing in the pages by %.5f; %.2f are allowed", what, off, empty,
			 allowed);
	free(all);
}

void test_stage_pages_between(void **state)
{
	static const struct paged_model few[] = {
		{.embedding = 60, .heads = 6, .kv_heads = 3, .head_size = 10},
		{.name = "gemma3"},
		{.name = "deepseek2-lite"},
	};
	static float alone[ROWS * VOCABULARY];
	struct conformance *c = *state;
	struct exogpu_device *processor = NULL;
	char key[INFO_KEY_BYTES] = "";
	if (!strcmp(c->backend, "cpu"))
		return; // the others' tests do it
	OK(exogpu_find_devices(note_cpu, key, &error));
	OK(exogpu_device_open(&processor, &(struct exogpu_open){.backend = "cpu", .hardware_key = key}, &error));
	for (size_t i = 0; i < sizeof(few) / sizeof(*few); i++) {
		struct paged paged;
		char what[160];
		paged_open(&paged, c, &few[i]);
		struct stage *cpu = make_stage(&paged, processor, 0), *own = make_stage(&paged, c->device, 0);
		begin_text(&paged, cpu, here);
		end_text(&paged, cpu, here, alone);
		snprintf(what, sizeof(what), "%s, from cpu to %s", few[i].name ? few[i].name : "llama", c->backend);
		check_passed(&paged, cpu, own, alone, what);
		snprintf(what, sizeof(what), "%s, from %s to cpu", few[i].name ? few[i].name : "llama", c->backend);
		check_passed(&paged, own, cpu, alone, what);
		stage_destroy(&cpu);
		stage_destroy(&own);
		paged_close(&paged);
	}
	exogpu_device_close(&processor, NULL);
}
