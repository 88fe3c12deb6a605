/* See instance_measure.h. */
#include "engine/worker/instance/instance_measure.h"

#include "common/base/clock.h"

#include <math.h>
#include <stdlib.h>

enum {
	PROMPT_PAGES = 4,
	MOST_ROWS = PROMPT_PAGES * STAGE_PAGE_TOKENS, // of a piece of a prompt
	BATCHES = 7,                                  // of 2, 4, 8, 16, 32, 64, 128 rows
	BATCHES_ALWAYS = 5,                           // more only where as many sequences may run
	BATCH_MOST = 2 << (BATCHES - 1),
	MOST_PAGES = BATCH_MOST, // each sequence of a batch has one
	MEASURE_RUNS = 32,
	MEASURE_NS = 200 * 1000 * 1000, // of a step of one row
	BATCH_NS = 100 * 1000 * 1000,   // of each batch
	ALONE_TIMES = 4,                // so much longer may a piece of a prompt take that is alone
	ALONE_LEAST = 64                // rows of it: fewer take as long on a processor with tiles
};

// Pieces of a prompt that are timed, each if by the one before it takes no longer than this: many rows are made faster
// than few, and on a slow device the fewer have to do.
static const struct {
	uint32_t rows;
	double most_s;
} pieces[] = {{32, 2}, {MOST_ROWS, 0.5}};
static const double step_s = 1;         // that a piece of a prompt may take
static const double most_batch_s = 0.5; // of a batch after which twice as many rows are timed

struct measuring {
	struct stage *stage;
	const struct stage_params *params;
	float *input, *output; // (MOST_ROWS, embedding)
	uint32_t pages[MOST_PAGES];
};

// A batch to measure: `rows` rows of `sequences` sequences, the same number of each.
struct measured {
	uint32_t rows, sequences;
	bool predict; // with the output matrix, of the last row
	int64_t most_ns;
};

static enum status run_once(const struct measuring *measuring, const struct measured *measured, struct error *error)
{
	static const uint32_t tokens[MOST_ROWS];
	const uint32_t last = measured->rows - 1, each = measured->rows / measured->sequences;
	const bool predict = measured->predict;
	uint32_t token;
	const struct stage_params *params = measuring->params;
	struct stage_run runs[BATCH_MOST];
	for (uint32_t i = 0; i < measured->sequences; i++)
		runs[i] = (struct stage_run){.row_count = each,
					     .pages = &measuring->pages[i],
					     .state_to = model_is_recurrent(params->shape) ? i + 1 : 0};
	const struct stage_batch batch = {.row_count = measured->rows,
					  .runs = runs,
					  .run_count = measured->sequences,
					  .tokens = params->embeds ? tokens : NULL,
					  .input = params->embeds ? NULL : measuring->input,
					  .output = params->predicts ? NULL : measuring->output,
					  .output_rows = params->predicts ? &last : NULL,
					  .output_count = predict,
					  .argmax = predict ? &token : NULL};
	const enum status status = stage_step(measuring->stage, &batch, error);
	if (status || !predict || !params->embeds || token != STAGE_NO_TOKEN)
		return status;
	return error_set(error, STATUS_INTERNAL,
			 "the model computes NaN or infinite numbers: its file is damaged, or the device "
			 "that computes it");
}

// The mean, and not the least: where a processor is held to a part of its time, or shared, short runs fit in between.
// *spread: how many times the least it is; 0: there was one run; may be NULL.
static enum status run_some(const struct measuring *measuring, const struct measured *measured, double *seconds,
			    double *spread, struct error *error)
{
	int runs = 0;
	enum status status = run_once(measuring, measured, error);
	const int64_t began_ns = clock_steady_ns();
	int64_t spent_ns = 0, least_ns = INT64_MAX;
	for (; !status && runs < MEASURE_RUNS && spent_ns < measured->most_ns; runs++) {
		status = run_once(measuring, measured, error);
		const int64_t now_ns = clock_steady_ns() - began_ns, run_ns = now_ns - spent_ns;
		least_ns = run_ns < least_ns ? run_ns : least_ns;
		spent_ns = now_ns;
	}
	*seconds = runs ? (double)spent_ns / runs * 1e-9 : 0;
	if (spread)
		*spread = runs > 1 && least_ns > 0 ? *seconds / ((double)least_ns * 1e-9) : 0;
	return status;
}

// A batch as of generating: a row of each of as many sequences, where there are pages for them; else a few of each.
// Larger ones are left out once one takes long. *row_s: of the last one.
static enum status run_batches(const struct measuring *measuring, struct json *out, double *row_s, struct error *error)
{
	const struct stage_params *params = measuring->params;
	double seconds = *row_s;
	enum status status = STATUS_OK;
	for (int i = 0; !status && i < BATCHES && seconds <= most_batch_s; i++) {
		struct measured measured = {.rows = 2u << i, .sequences = 2u << i, .most_ns = BATCH_NS};
		if (i >= BATCHES_ALWAYS && measured.rows / 2 >= params->batch_sequences)
			break;
		while (measured.sequences > params->page_count || measured.sequences > params->batch_sequences)
			measured.sequences /= 2;
		if (measured.rows > params->batch_rows || !measured.sequences ||
		    measured.rows / measured.sequences > params->context_tokens)
			break;
		status = run_some(measuring, &measured, &seconds, NULL, error);
		*row_s = seconds / measured.rows;
		if (!status)
			json_push(out, json_new_number(seconds));
	}
	return status;
}

// The number of rows that fit the stage, at most `most`.
static uint32_t prompt_rows(const struct stage_params *params, uint32_t most)
{
	const uint64_t room = (uint64_t)params->page_count * STAGE_PAGE_TOKENS;
	most = params->batch_rows < most ? params->batch_rows : most;
	most = params->context_tokens < most ? params->context_tokens : most;
	return room < most ? (uint32_t)room : most;
}

// A row in a piece of a prompt. The first run of each size may compile its kernels: now, and not when somebody waits.
static enum status run_pieces(const struct measuring *measuring, double *row_s, struct error *error)
{
	double seconds = 0;
	enum status status = STATUS_OK;
	for (size_t i = 0; !status && i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		const struct measured measured = {
			.rows = prompt_rows(measuring->params, pieces[i].rows), .sequences = 1, .most_ns = MEASURE_NS};
		if (*row_s * measured.rows > pieces[i].most_s)
			break;
		status = run_some(measuring, &measured, &seconds, NULL, error);
		*row_s = seconds / measured.rows;
	}
	return status;
}

static enum status measure(const struct measuring *measuring, struct json *out, double *row_s, struct error *error)
{
	const struct stage_params *params = measuring->params;
	const struct measured one = {.rows = 1, .sequences = 1, .most_ns = MEASURE_NS},
			      with_output = {.rows = 1, .sequences = 1, .predict = true, .most_ns = MEASURE_NS};
	struct json *batches = json_new_array();
	uint32_t states[BATCH_MOST], state_count = stage_state_count(params->shape, params->batch_sequences);
	state_count = state_count < BATCH_MOST ? state_count : BATCH_MOST;
	for (uint32_t i = 0; i < state_count; i++)
		states[i] = params->page_count + i;
	double one_s = 0, with_output_s = 0, spread = 0;
	enum status status = run_some(measuring, &one, &one_s, &spread, error);
	if (!status && params->predicts)
		status = run_some(measuring, &with_output, &with_output_s, NULL, error);
	*row_s = one_s;
	if (!status)
		status = run_batches(measuring, batches, row_s, error);
	if (!status)
		status = run_pieces(measuring, row_s, error);
	if (!status)
		status = stage_zero(measuring->stage, measuring->pages,
				    params->page_count < MOST_PAGES ? params->page_count : MOST_PAGES, error);
	if (!status)
		status = stage_zero(measuring->stage, states, state_count, error);
	json_set_number(out, "layers_s", one_s);
	json_set(out, "output_s", params->predicts ? json_new_number(fmax(with_output_s - one_s, 0)) : json_new_null());
	json_set(out, "batch_s", batches);
	json_set_number(out, "prompt_row_s", *row_s);
	if (spread > 0)
		json_set_number(out, "spread", fmax(spread, 1));
	return status;
}

uint32_t instance_prompt_rows(double row_s, uint32_t most)
{
	uint32_t rows = PROMPT_ROWS_LEAST;
	if (row_s * most <= step_s * M_SQRT2)
		return most;
	while (2 * rows * row_s <= step_s * M_SQRT2)
		rows *= 2;
	return rows < most ? rows : most;
}

void instance_set_prompt_rows(struct generator *generator, double row_s, uint32_t most)
{
	const uint32_t alone = instance_prompt_rows(row_s / ALONE_TIMES, most);
	generator_set_prompt_rows(generator, instance_prompt_rows(row_s, most),
				  alone < ALONE_LEAST ? ALONE_LEAST : alone);
}

enum status instance_measure(struct stage *stage, const struct stage_params *params, struct json **out, double *row_s,
			     struct error *error)
{
	const size_t values = (size_t)MOST_ROWS * params->shape->embedding;
	struct measuring measuring = {.stage = stage, .params = params};
	*out = NULL;
	*row_s = 0;
	if (!params->layer_count)
		return STATUS_OK;
	measuring.input = calloc(values, sizeof(float));
	measuring.output = malloc(values * sizeof(float));
	enum status status = STATUS_OUT_OF_MEMORY;
	if (measuring.input && measuring.output) {
		for (uint32_t i = 0; i < MOST_PAGES; i++)
			measuring.pages[i] = i;
		for (size_t i = 0; i < values; i++)
			measuring.input[i] = (float)(i % 7) - 3;
		*out = json_new_object();
		status = measure(&measuring, *out, row_s, error);
		// A layer in host memory takes another time, and the time of slices together says nothing about one
		// device.
		if (status || params->host_layers || stage_slice_count(stage) > 1)
			json_destroy(out);
	} else {
		error_set(error, status, "no memory for a short run of the layers");
	}
	free(measuring.input);
	free(measuring.output);
	return status;
}
