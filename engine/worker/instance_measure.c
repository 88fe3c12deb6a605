/* See instance_measure.h. */
#include "engine/worker/instance_measure.h"

#include "common/base/clock.h"

#include <math.h>
#include <stdlib.h>

enum {
	MOST_PAGES = 4,
	MOST_ROWS = MOST_PAGES * STAGE_PAGE_TOKENS,
	MEASURE_ROWS = 8,
	MEASURE_RUNS = 32,
	MEASURE_NS = 200 * 1000 * 1000
};

static const uint32_t pages[MOST_PAGES] = {0, 1, 2, 3};

// Pieces of a prompt that are timed, each if by the one before it takes no longer than this: many rows are made faster
// than few, and on a slow device the fewer have to do.
static const struct {
	uint32_t rows;
	double most_s;
} pieces[] = {{32, 2}, {MOST_ROWS, 0.5}};
static const double step_s = 1; // that a piece of a prompt may take

struct measuring {
	struct stage *stage;
	const struct stage_params *params;
	float *input, *output; // (MOST_ROWS, embedding)
};

static enum status run_once(const struct measuring *measuring, uint32_t rows, bool predict, struct error *error)
{
	static const uint32_t tokens[MOST_ROWS];
	const uint32_t last = rows - 1;
	uint32_t token;
	const struct stage_params *params = measuring->params;
	const struct stage_run run = {.row_count = rows, .pages = pages};
	const struct stage_batch batch = {.row_count = rows,
					  .runs = &run,
					  .run_count = 1,
					  .tokens = params->embeds ? tokens : NULL,
					  .input = params->embeds ? NULL : measuring->input,
					  .output = params->predicts ? NULL : measuring->output,
					  .output_rows = params->predicts ? &last : NULL,
					  .output_count = predict,
					  .argmax = predict ? &token : NULL};
	return stage_step(measuring->stage, &batch, error);
}

// The mean, and not the least: where a processor is held to a part of its time, or shared, short runs fit in between.
static enum status run_some(const struct measuring *measuring, uint32_t rows, bool predict, double *seconds,
			    struct error *error)
{
	int runs = 0;
	enum status status = run_once(measuring, rows, predict, error);
	const int64_t began_ns = clock_steady_ns();
	int64_t spent_ns = 0;
	for (; !status && runs < MEASURE_RUNS && spent_ns < MEASURE_NS; runs++) {
		status = run_once(measuring, rows, predict, error);
		spent_ns = clock_steady_ns() - began_ns;
	}
	*seconds = runs ? (double)spent_ns / runs * 1e-9 : 0;
	return status;
}

// Rows of which the stage has room, `most` at most.
static uint32_t rows_of(const struct stage_params *params, uint32_t most)
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
		const uint32_t rows = rows_of(measuring->params, pieces[i].rows);
		if (*row_s * rows > pieces[i].most_s)
			break;
		status = run_some(measuring, rows, false, &seconds, error);
		*row_s = seconds / rows;
	}
	return status;
}

static enum status measure(const struct measuring *measuring, struct json *out, double *row_s, struct error *error)
{
	const struct stage_params *params = measuring->params;
	const uint32_t rows = rows_of(params, MEASURE_ROWS);
	double one_s = 0, with_output_s = 0, several_s = 0;
	enum status status = run_some(measuring, 1, false, &one_s, error);
	if (!status && params->predicts)
		status = run_some(measuring, 1, true, &with_output_s, error);
	if (!status && rows > 1)
		status = run_some(measuring, rows, false, &several_s, error);
	*row_s = rows > 1 ? several_s / rows : one_s;
	if (!status)
		status = run_pieces(measuring, row_s, error);
	if (!status)
		status = stage_zero(measuring->stage, pages,
				    params->page_count < MOST_PAGES ? params->page_count : MOST_PAGES, error);
	json_set_number(out, "layers_s", one_s);
	json_set(out, "output_s", params->predicts ? json_new_number(fmax(with_output_s - one_s, 0)) : json_new_null());
	json_set(out, "batch_share",
		 rows > 1 ? json_new_number(fmin(fmax((several_s / one_s - 1) / (rows - 1), 0), 1)) : json_new_null());
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
		for (size_t i = 0; i < values; i++)
			measuring.input[i] = (float)(i % 7) - 3;
		*out = json_new_object();
		status = measure(&measuring, *out, row_s, error);
		// A layer in host memory is another, and what slices take together says nothing of one device.
		if (status || params->host_layers || stage_slice_count(stage) > 1)
			json_destroy(out);
	} else {
		error_set(error, status, "no memory for a short run of the layers");
	}
	free(measuring.input);
	free(measuring.output);
	return status;
}
