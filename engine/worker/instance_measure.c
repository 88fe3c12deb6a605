/* See instance_measure.h. */
#include "engine/worker/instance_measure.h"

#include "common/base/clock.h"

#include <math.h>
#include <stdlib.h>

enum { MEASURE_ROWS = 8, MEASURE_RUNS = 10, MEASURE_NS = 200 * 1000 * 1000 };

struct measuring {
	struct stage *stage;
	const struct stage_params *params;
	float *input, *output; // (MEASURE_ROWS, embedding)
};

static enum status run_once(const struct measuring *measuring, uint32_t rows, bool predict, struct error *error)
{
	static const uint32_t page = 0, tokens[MEASURE_ROWS];
	const uint32_t last = rows - 1;
	uint32_t token;
	const struct stage_params *params = measuring->params;
	const struct stage_run run = {.row_count = rows, .pages = &page};
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

// Rows of which one page and the context have room.
static uint32_t rows_of(const struct stage_params *params)
{
	uint32_t rows = MEASURE_ROWS;
	rows = params->batch_rows < rows ? params->batch_rows : rows;
	return params->context_tokens < rows ? params->context_tokens : rows;
}

static enum status measure(const struct measuring *measuring, struct json *out, struct error *error)
{
	const struct stage_params *params = measuring->params;
	const uint32_t rows = rows_of(params), page = 0;
	double one_s, with_output_s = 0, several_s = 0;
	enum status status = run_some(measuring, 1, false, &one_s, error);
	if (!status && params->predicts)
		status = run_some(measuring, 1, true, &with_output_s, error);
	if (!status && rows > 1)
		status = run_some(measuring, rows, false, &several_s, error);
	if (!status)
		status = stage_zero(measuring->stage, &page, 1, error);
	json_set_number(out, "layers_s", one_s);
	json_set(out, "output_s", params->predicts ? json_new_number(fmax(with_output_s - one_s, 0)) : json_new_null());
	json_set(out, "batch_share",
		 rows > 1 ? json_new_number(fmin(fmax((several_s / one_s - 1) / (rows - 1), 0), 1)) : json_new_null());
	return status;
}

enum status instance_measure(struct stage *stage, const struct stage_params *params, struct json **out,
			     struct error *error)
{
	const size_t values = (size_t)MEASURE_ROWS * params->shape->embedding;
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
