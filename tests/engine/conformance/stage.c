/* See stage.h: models, what is expected of them, and steps that are compared with it. */
#include "tests/engine/conformance/stage.h"

#include <math.h>

int stage_conformance_run(const char *backend)
{
#define X(name) cmocka_unit_test_setup_teardown(test_##name, conformance_begin, conformance_end),
	static const struct CMUnitTest tests[] = {STAGE_TESTS(X)};
#undef X
	return conformance_run_tests(backend, tests, sizeof(tests) / sizeof(*tests));
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
static const bool watched = true;
#else
static const bool watched = false;
#endif

bool stage_tests_are_brief(const struct conformance *c)
{
	return c->software && (watched || strcmp(c->backend, "cpu") != 0) && !getenv("EXOGPU_TEST_ALL");
}

static void *memory_for(size_t count, size_t size)
{
	void *memory = calloc(count ? count : 1, size);
	assert_non_null(memory);
	return memory;
}

void staged_open(struct staged *staged, struct conformance *c, const struct model_file *file)
{
	*staged = (struct staged){.c = c, .in_order = true};
	model_file_open(&staged->file, file);
	staged->shape = model_shape(staged->file.model);
	staged->reference = reference_create(staged->file.model);
	staged->rope = memory_for((size_t)staged->shape->context * staged->shape->rope_size, sizeof(float));
	model_rope_table(staged->shape, staged->shape->context, staged->rope);
}

void staged_close(struct staged *staged)
{
	reference_destroy(&staged->reference);
	model_file_close(&staged->file);
	free(staged->rope);
	free(staged->lent);
}

// What is lent is a copy, and is spoilt when the next is asked for.
static enum status lend(void *context, enum model_role role, uint32_t layer, struct model_tensor *out,
			struct error *error)
{
	struct staged *staged = context;
	bool of_layer = role > ROLE_OUTPUT;
	free(staged->lent);
	staged->lent = NULL;
	if (staged->fail_at && !--staged->fail_at)
		return error_set(error, STATUS_CONFLICT, "this tensor is not to be had");
	if (!model_tensor(staged->file.model, role, layer, out))
		fail_msg("tensor %d of layer %u was asked for: there is none", role, layer);
	if (of_layer && layer < staged->last_layer)
		staged->in_order = false;
	if (of_layer)
		staged->last_layer = layer;
	staged->asked[of_layer ? layer : 0][role]++;
	staged->asked_bytes += out->bytes;
	staged->lent = memory_for(out->bytes, 1);
	memcpy(staged->lent, out->data, out->bytes);
	out->data = staged->lent;
	return STATUS_OK;
}

static enum status note_progress(void *context, uint64_t loaded_bytes, struct error *error)
{
	struct staged *staged = context;
	if (loaded_bytes < staged->told_bytes)
		fail_msg("progress went back from %llu to %llu bytes", (unsigned long long)staged->told_bytes,
			 (unsigned long long)loaded_bytes);
	staged->told_bytes = loaded_bytes;
	return staged->fail_progress ? error_set(error, STATUS_CONFLICT, "loading is cancelled") : STATUS_OK;
}

struct stage_params staged_params(struct staged *staged)
{
	staged->told_bytes = 0;
	staged->last_layer = 0;
	return (struct stage_params){
		.shape = staged->shape,
		.layer_count = staged->shape->layers,
		.embeds = true,
		.predicts = true,
		.context_tokens = staged->shape->context,
		.page_count = STAGE_TEST_PAGES,
		.batch_rows = STAGE_TEST_ROWS,
		.batch_sequences = STAGE_TEST_SEQUENCES,
		.batch_outputs = STAGE_TEST_ROWS,
		.rope = staged->rope,
		.tensor = lend,
		.progress = note_progress,
		.context = staged,
	};
}

struct stage *staged_create(struct staged *staged)
{
	struct stage *stage = NULL;
	struct stage_params params = staged_params(staged);
	struct exogpu_device *devices[STAGE_SLICES];
	for (unsigned i = 0; i < STAGE_SLICES; i++)
		devices[i] = staged->c->device;
	OK(stage_create_sliced(&stage, devices, staged->slices ? staged->slices : 1, &params, &error));
	return stage;
}

bool staged_fits(struct staged *staged)
{
	const struct model_shape *shape = staged->shape;
	struct stage_params params = staged_params(staged);
	struct stage *stage = NULL;
	if (strcmp(staged->c->backend, "cuda") != 0 || stage_tiles_fit(shape))
		return true;
	REFUSED(STATUS_UNAVAILABLE, stage_create(&stage, staged->c->device, &params, &error));
	return false;
}

bool staged_slices(struct staged *staged)
{
	struct exogpu_device *const devices[] = {staged->c->device, staged->c->device};
	struct stage_params params = staged_params(staged);
	struct stage *stage = NULL;
	if (strcmp(staged->c->backend, "vulkan") != 0)
		return true;
	REFUSED(STATUS_UNAVAILABLE, stage_create_sliced(&stage, devices, 2, &params, &error));
	return false;
}

void make_text(uint32_t *tokens, uint32_t count, uint32_t vocabulary, uint32_t seed)
{
	seed = seed * 2654435761u + 1;
	for (uint32_t i = 0; i < count; i++)
		tokens[i] = draw(&seed) % vocabulary;
}

// ---- what is expected ----

static const double *exact_rows(const struct reference_result *result, enum expected_kind kind)
{
	const double *const all[EXPECTED_KINDS] = {result->activations, result->hidden, result->logits};
	return all[kind];
}

// How far a coarse computation got from the exact one.
static void add_distance(struct expected *expected, enum expected_kind kind, const struct reference_result *coarse,
			 uint32_t from_row)
{
	uint32_t columns = expected->columns[kind];
	const double *exact = exact_rows(&expected->exact, kind), *other = exact_rows(coarse, kind);
	for (uint32_t row = from_row; row < coarse->count; row++) {
		double squares = 0;
		for (size_t i = (size_t)row * columns; i < (size_t)(row + 1) * columns; i++) {
			double distance = fabs(other[i] - exact[i]);
			expected->most[kind] = fmax(expected->most[kind], 3 * distance + 1e-5 * fabs(exact[i]));
			squares += distance * distance;
		}
		expected->rms[kind] = fmax(expected->rms[kind], 2.5 * sqrt(squares / columns));
	}
}

void expect(struct expected *expected, const struct staged *staged, const struct reference_run *run)
{
	*expected = (struct expected){
		.columns = {staged->shape->embedding, staged->shape->embedding, staged->shape->vocabulary}};
	reference_run(staged->reference, run, &expected->exact);
	for (enum reference_rounding rounding = REFERENCE_F16; rounding <= REFERENCE_BLOCKS; rounding++) {
		struct reference_run coarse_run = *run;
		struct reference_result coarse;
		coarse_run.rounding = rounding;
		reference_run(staged->reference, &coarse_run, &coarse);
		for (enum expected_kind kind = 0; kind < EXPECTED_KINDS; kind++)
			add_distance(expected, kind, &coarse, run->zero_before);
		reference_result_finish(&coarse);
	}
}

void expected_finish(struct expected *expected)
{
	reference_result_finish(&expected->exact);
}

void check_row(const struct expected *expected, enum expected_kind kind, uint32_t row, const float *got,
	       const char *what)
{
	static const char *const names[EXPECTED_KINDS] = {"activation", "hidden value", "logit"};
	uint32_t columns = expected->columns[kind], worst = 0;
	const double *exact = exact_rows(&expected->exact, kind) + (size_t)row * columns;
	double squares = 0, most = -1;
	for (uint32_t i = 0; i < columns; i++) {
		double distance = fabs((double)got[i] - exact[i]);
		if (!(distance <= most)) { // what is no number counts as the worst
			most = distance;
			worst = i;
		}
		if (isnan(distance))
			break;
		squares += distance * distance;
	}
	double rms = sqrt(squares / columns);
	char tie[96] = "";
	if (isfinite(expected->exact.least_gap))
		snprintf(tie, sizeof(tie), "; the nearest choice of experts is at position %u, by %.3g of their spread",
			 expected->exact.gap_row, expected->exact.least_gap);
	if (!(most <= expected->most[kind]))
		fail_msg("%s: %s %u at position %u is %.7g, not %.7g: off by %.3g, %.3g is allowed%s", what,
			 names[kind], worst, row, (double)got[worst], exact[worst], most, expected->most[kind], tie);
	if (!(rms <= expected->rms[kind] + 1e-5))
		fail_msg("%s: %ss at position %u are off by %.3g (root mean square), %.3g is allowed%s", what,
			 names[kind], row, rms, expected->rms[kind], tie);
}

// ---- steps ----

void answer_finish(struct stage_answer *answer)
{
	free(answer->logits);
	free(answer->hidden);
	free(answer->argmax);
	*answer = (struct stage_answer){.rows = 0};
}

void step(const struct staged *staged, struct stage *stage, const struct stage_job *jobs, uint32_t count,
	  struct stage_answer *answer)
{
	struct stage_run runs[STAGE_TEST_SEQUENCES];
	uint32_t tokens[STAGE_TEST_ROWS], rows[STAGE_TEST_ROWS], row_count = 0;
	for (uint32_t job = 0; job < count; job++) {
		runs[job] = (struct stage_run){
			.row_count = jobs[job].count, .position = jobs[job].position, .pages = jobs[job].pages};
		for (uint32_t i = 0; i < jobs[job].count; i++, row_count++) {
			rows[row_count] = row_count;
			tokens[row_count] = jobs[job].tokens[jobs[job].position + i];
		}
	}
	*answer = (struct stage_answer){
		.rows = row_count,
		.logits = memory_for((size_t)row_count * staged->shape->vocabulary, sizeof(float)),
		.hidden = memory_for((size_t)row_count * staged->shape->embedding, sizeof(float)),
		.argmax = memory_for(row_count, sizeof(uint32_t)),
	};
	struct stage_batch batch = {
		.row_count = row_count,
		.runs = runs,
		.run_count = count,
		.tokens = tokens,
		.output_rows = rows,
		.output_count = row_count,
		.logits = answer->logits,
		.argmax = answer->argmax,
		.hidden = answer->hidden,
	};
	OK(stage_step(stage, &batch, &error));
}

void check_answer(const struct expected *expected, const struct stage_answer *answer, uint32_t first, uint32_t position,
		  uint32_t count, const char *what)
{
	uint32_t vocabulary = expected->columns[EXPECTED_LOGITS];
	for (uint32_t i = 0; i < count; i++) {
		const float *logits = answer->logits + (size_t)(first + i) * vocabulary;
		uint32_t best = 0, got = answer->argmax[first + i];
		check_row(expected, EXPECTED_HIDDEN, position + i,
			  answer->hidden + (size_t)(first + i) * expected->columns[EXPECTED_HIDDEN], what);
		check_row(expected, EXPECTED_LOGITS, position + i, logits, what);
		for (uint32_t token = 1; token < vocabulary; token++)
			if (logits[token] > logits[best])
				best = token;
		if (got != best)
			fail_msg("%s: the largest logit at position %u is said to be %u, and is that of %u (%.7g)",
				 what, position + i, got, best, (double)logits[best]);
	}
}

void step_and_check(const struct staged *staged, struct stage *stage, const struct expected *expected,
		    const struct stage_job *job, const char *what)
{
	struct stage_answer answer;
	step(staged, stage, job, 1, &answer);
	check_answer(expected, &answer, 0, job->position, job->count, what);
	answer_finish(&answer);
}
