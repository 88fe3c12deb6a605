/* See instance_measure.h. */
#include "engine/worker/instance_measure.h"

#include "common/base/clock.h"

#include <math.h>
#include <stdlib.h>

enum {
	MOST_PAGES = 4,
	MOST_ROWS = MOST_PAGES * STAGE_PAGE_TOKENS,
	MEASURE_ROWS = 8,
	MEASURE_RUNS = 10,
	MEASURE_NS = 200 * 1000 * 1000
};

static const uint32_t pages[MOST_PAGES] = {0, 1, 2, 3};
static const double MANY_S = 0.25;

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

static enum status run_some(const struct measuring *measuring, uint32_t rows, bool predict, double *seconds,
			    struct error *error)
{
	int64_t least_ns = INT64_MAX, spent_ns = 0;
	enum status status = run_once(measuring, rows, predict, error);
	for (int i = 0; !status && i < MEASURE_RUNS && spent_ns < MEASURE_NS; i++) {
		const int64_t began_ns = clock_steady_ns();
		status = run_once(measuring, rows, predict, error);
		const int64_t ns = clock_steady_ns() - began_ns;
		least_ns = ns < least_ns ? ns : least_ns;
		spent_ns += ns;
	}
	*seconds = (double)least_ns * 1e-9;
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

// A piece of a prompt, where it takes moments: some drivers compile its kernels now, and not when somebody waits.
static enum status run_many(const struct measuring *measuring, double row_s, struct error *error)
{
	const uint32_t rows = rows_of(measuring->params, MOST_ROWS);
	return row_s * rows < MANY_S ? run_once(measuring, rows, false, error) : STATUS_OK;
}

static enum status measure(const struct measuring *measuring, struct json *out, struct error *error)
{
	const struct stage_params *params = measuring->params;
	const uint32_t rows = rows_of(params, MEASURE_ROWS);
	double one_s, with_output_s = 0, several_s = 0;
	enum status status = run_some(measuring, 1, false, &one_s, error);
	if (!status && params->predicts)
		status = run_some(measuring, 1, true, &with_output_s, error);
	if (!status && rows > 1)
		status = run_some(measuring, rows, false, &several_s, error);
	if (!status)
		status = run_many(measuring, rows > 1 ? several_s / rows : one_s, error);
	if (!status)
		status = stage_zero(measuring->stage, pages,
				    params->page_count < MOST_PAGES ? params->page_count : MOST_PAGES, error);
	json_set_number(out, "layers_s", one_s);
	json_set(out, "output_s", params->predicts ? json_new_number(fmax(with_output_s - one_s, 0)) : json_new_null());
	json_set(out, "batch_share",
		 rows > 1 ? json_new_number(fmin(fmax((several_s / one_s - 1) / (rows - 1), 0), 1)) : json_new_null());
	return status;
}

enum status instance_measure(struct stage *stage, const struct stage_params *params, struct json **out,
			     struct error *error)
{
	const size_t values = (size_t)MOST_ROWS * params->shape->embedding;
	struct measuring measuring = {.stage = stage, .params = params};
	if (params->host_layers || !params->layer_count) {
		*out = json_new_null();
		return STATUS_OK;
	}
	measuring.input = calloc(values, sizeof(float));
	measuring.output = malloc(values * sizeof(float));
	enum status status = STATUS_OUT_OF_MEMORY;
	if (measuring.input && measuring.output) {
		for (size_t i = 0; i < values; i++)
			measuring.input[i] = (float)(i % 7) - 3;
		*out = json_new_object();
		status = measure(&measuring, *out, error);
		if (status)
			json_destroy(out);
	} else {
		error_set(error, status, "no memory for a short run of the layers");
	}
	free(measuring.input);
	free(measuring.output);
	return status;
}
