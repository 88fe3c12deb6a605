/* How fast a device computes a model, beside what its memory gives: decode, batches and prompts, over stages.
 *
 *   decode BACKEND SHAPE FORMAT [ROUNDS [LAYERS [tensor|pipeline DEVICES]]]
 *                                        cpu, vulkan, cuda; SHAPE: see shapes.h; F16, Q8_0, Q4_0, Q4_K ..., a mixture:
 *                                        Q4_K_S, Q4_K_M, Q5_K_M, or Q8_0+Q4_K+F16: of most matrices, of v and down in
 *                                        half of the layers, of the output; LAYERS 0: all
 *   decode BACKEND SHAPE FORMAT kernels [LAYERS]   where steps of 1 to 128 rows and a prompt spend their time
 *
 * The model is one stage with random weights that are made while it is loaded: no file is needed. A decoded token reads
 * every weight but the token embedding once, and the keys and values of its context: the share is that of the bytes
 * read to what the built-in kernel stream_read reaches on a buffer of the same device in the same rounds; states are
 * counted as they are read. For prompts
 * the rate of multiply-adds (two operations each) stands beside that of the built-in matmul_f32. Figures are medians.
 * LAYERS takes fewer layers than the shape has, where memory is short, or more, where there is much. Over several
 * devices the model is one stage in slices, or stages of as many layers each one behind another, whose activations go
 * by way of the host; where there are fewer devices than were asked for, they take turns. Prints one table in Markdown.
 *
 * `kernels` prints a table for each number of rows: the kernels of one step, timed alone (engine/stage.h's stage_time),
 * those with the same name, blocks and weights together. The floor is the time in which stream_read's rate reads the
 * weights. Above each table: what the kernels take together, and what a step takes, in which they overlap.
 */
#include "engine/include/exogpu/exogpu.h"
#include "engine/model/architecture.h"
#include "engine/stage.h"
#include "tests/bench/shapes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	CONTEXT = 4096 + 32,
	PROMPT = 512,
	ROUNDS_MOST = 64,
	STEPS = 16,
	MATMUL = 2048,
	KINDS_MOST = 64, // of kernels of a step
	BATCH = 128,
	POOL_BYTES = 64 << 20,
	LAYERS_MOST = 512,
	VECTOR_BYTES = 65536 * 4,
};

struct bench {
	struct exogpu_device *device, *devices[STAGE_SLICES];
	unsigned device_count;
	bool tensor;
	struct exogpu_module *builtin;
	struct exogpu_stream *stream;
	struct exogpu_buffer *data, *sink;
	uint64_t data_bytes;
	struct model_shape shape;
	enum tensor_format formats[3]; // of most matrices, of v and down in half of the layers, of the output
	struct stage *stages[STAGE_SLICES];
	unsigned stage_count;
	float *activations[2];               // between stages
	uint8_t *weights[FORMAT_COUNT];      // what every matrix has, made once, so that loading is timed without it
	uint64_t weights_room[FORMAT_COUNT]; // bytes of it
	bool asked[ROLE_COUNT][LAYERS_MOST];
	uint64_t weights_bytes, token_bytes; // token_bytes: that one token reads
	double multiplies;                   // of a token's pass through the layers
	uint32_t *pages, *tokens, *argmax;
	struct error error;
};

static void check(struct bench *bench, enum status status, const char *what)
{
	if (!status)
		return;
	fprintf(stderr, "decode: %s: %s (%s)\n", what, bench->error.message, bench->error.hint);
	exit(1);
}

#define OK(call) check(bench, (call), #call)

static double now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

// ---- the model ----

// Random bits, with scales of blocks that are small numbers.
static void fill_random(enum tensor_format format, uint8_t *bytes, uint64_t length)
{
	const struct format_info *info = format_info(format);
	static uint64_t state = 88172645463325252u;
	for (uint64_t i = 0; i + 8 <= length; i += 8) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		memcpy(bytes + i, &state, 8);
	}
	size_t scale_at = format == FORMAT_Q6_K ? offsetof(struct block_q6_k, d) : 0;
	for (uint64_t at = 0; at + info->block_bytes <= length; at += info->block_bytes) {
		uint8_t *block = bytes + at;
		if (format == FORMAT_F32)
			block[3] = 0x3c, block[2] &= 0x7f;
		else if (info->block_values == 1)
			block[1] = (uint8_t)((block[1] & 0x80) | (format == FORMAT_BF16 ? 0x3c : 0x24));
		else
			memcpy(block + scale_at, (const uint8_t[]){0x00, 0x0c}, 2);
		if (format == FORMAT_Q4_K || format == FORMAT_Q5_K)
			memcpy(block + 2, (const uint8_t[]){0x80, 0x17}, 2); // 7.5 times d: values around zero
	}
}

// Of weights the same POOL_BYTES over and over, in all matrices: they differ enough for what is measured.
static void fill_weights(enum tensor_format format, uint8_t *bytes, uint64_t length)
{
	static uint8_t *pools[FORMAT_COUNT];
	const uint64_t pool_bytes = POOL_BYTES / format_info(format)->block_bytes * format_info(format)->block_bytes;
	if (!pools[format]) {
		pools[format] = malloc(pool_bytes);
		if (!pools[format])
			exit(1);
		fill_random(format, pools[format], pool_bytes);
	}
	const uint8_t *pool = pools[format];
	for (uint64_t at = 0; at < length; at += pool_bytes)
		memcpy(bytes + at, pool, length - at < pool_bytes ? length - at : pool_bytes);
}

// Of a mixture, v and down of half of the layers, and the output, have other formats, as quantisers make it.
static enum tensor_format format_of(const struct bench *bench, enum model_role role, uint32_t layer)
{
	const uint32_t layers = bench->shape.layers;
	const bool more = layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
	if (role == ROLE_ROUTER)
		return FORMAT_F32;
	if (role == ROLE_OUTPUT)
		return bench->formats[2];
	return bench->formats[more && (role == ROLE_V || role == ROLE_FFN_DOWN || role == ROLE_EXPERT_DOWN)];
}

static enum status give_tensor(void *context, enum model_role role, uint32_t layer, struct model_tensor *out,
			       struct error *error)
{
	struct bench *bench = context;
	const struct model_shape *shape = &bench->shape;
	struct wanted_tensor wanted;
	if (!architecture_layer_tensor(shape, layer, role, &wanted))
		return error_set(error, STATUS_INTERNAL, "no tensor %d", (int)role);
	const uint32_t rows = wanted.vector ? 1 : wanted.rows,
		       columns = wanted.vector ? wanted.rows * wanted.columns : wanted.columns;
	*out = (struct model_tensor){
		.format = rows == 1 ? FORMAT_F32 : format_of(bench, role, layer), .rows = rows, .columns = columns};
	if (!format_row_bytes(out->format, columns)) // as quantisers do
		out->format = FORMAT_Q8_0;
	const enum tensor_format format = out->format;
	out->bytes = format_row_bytes(out->format, columns) * rows;
	static uint8_t vector[VECTOR_BYTES];
	if (rows == 1)
		fill_random(out->format, vector, out->bytes);
	for (uint32_t i = 3; role == ROLE_DELTA_DECAY && i < out->bytes; i += 4)
		vector[i] |= 0x80; // negative: states fade
	if (rows > 1 && out->bytes > bench->weights_room[format]) {
		free(bench->weights[format]);
		bench->weights[format] = malloc(out->bytes);
		if (!bench->weights[format])
			return STATUS_OUT_OF_MEMORY;
		bench->weights_room[format] = out->bytes;
		fill_weights(format, bench->weights[format], out->bytes);
	}
	out->data = rows == 1 ? vector : bench->weights[format];
	if (bench->asked[role][layer]) // by another slice
		return STATUS_OK;
	bench->asked[role][layer] = true;
	const uint32_t used = model_role_is_experts(role) ? shape->experts_used : 1,
		       experts = model_role_is_experts(role) ? shape->experts : 1;
	bench->weights_bytes += out->bytes;
	bench->token_bytes += role == ROLE_TOKEN_EMBEDDING ? 0 : out->bytes / experts * used;
	if (role != ROLE_TOKEN_EMBEDDING && role != ROLE_OUTPUT)
		bench->multiplies += rows == 1 ? 0 : (double)rows * columns / experts * used;
	return STATUS_OK;
}

static void make_stages(struct bench *bench, struct stage_params *params)
{
	uint32_t layers = params->shape->layers, count = bench->tensor ? 1 : bench->device_count;
	for (uint32_t i = 0; i < count; i++) {
		params->first_layer = layers * i / count;
		params->layer_count = layers * (i + 1) / count - params->first_layer;
		params->embeds = !i;
		params->predicts = i + 1 == count;
		OK(stage_create_sliced(&bench->stages[i], &bench->devices[i], bench->tensor ? bench->device_count : 1,
				       params, &bench->error));
	}
	for (int i = 0; i < 2; i++)
		bench->activations[i] = calloc((size_t)PROMPT * params->shape->embedding, sizeof(float));
	bench->stage_count = count;
}

static void load(struct bench *bench)
{
	struct model_shape *shape = &bench->shape;
	if (!shape->family)
		shape->family = shape->experts ? FAMILY_QWEN3MOE : FAMILY_LLAMA;
	for (uint32_t i = 0; i < shape->layers; i++)
		shape->layer_kinds[i] = model_is_recurrent(shape) && i % 4 != 3 ? LAYER_DELTA : 0;
	shape->context = CONTEXT;
	shape->norm_epsilon = 1e-5f;
	shape->rope_size = shape->rope_size ? shape->rope_size : shape->head_size;
	shape->rope_magnitude = 1;
	float *rope = calloc((size_t)CONTEXT * shape->rope_size, sizeof(float));
	uint32_t page_count = CONTEXT / STAGE_PAGE_TOKENS + BATCH * 4;
	bench->pages = calloc(page_count, sizeof(*bench->pages));
	bench->tokens = calloc(PROMPT, sizeof(*bench->tokens));
	bench->argmax = calloc(BATCH, sizeof(*bench->argmax));
	for (uint32_t i = 0; i < page_count; i++)
		bench->pages[i] = i;
	for (uint32_t i = 0; i < PROMPT; i++)
		bench->tokens[i] = i * 7919 % shape->vocabulary;
	for (size_t i = 0; i < (size_t)CONTEXT * shape->rope_size; i += 2)
		rope[i] = 1;
	struct stage_params params = {
		.shape = shape,
		.layer_count = shape->layers,
		.embeds = true,
		.predicts = true,
		.context_tokens = CONTEXT,
		.page_count = page_count,
		.batch_rows = PROMPT,
		.batch_sequences = BATCH,
		.batch_outputs = BATCH,
		.rope = rope,
		.tensor = give_tensor,
		.context = bench,
	};
	make_stages(bench, &params);
	for (size_t i = 0; i < FORMAT_COUNT; i++) {
		free(bench->weights[i]);
		bench->weights[i] = NULL;
	}
}

// ---- what is measured: seconds of one round ----

static double launch(struct bench *bench, const char *kernel, const struct exogpu_argument *arguments, unsigned count)
{
	struct exogpu_launch launch = {
		.module = bench->builtin, .kernel = kernel, .arguments = arguments, .argument_count = count};
	uint64_t point;
	double began_s = now_s();
	OK(exogpu_launch(bench->stream, &launch, &bench->error));
	OK(exogpu_mark(bench->stream, &point, &bench->error));
	OK(exogpu_wait(bench->stream, point, 60000000000, &bench->error));
	return now_s() - began_s;
}

static double run_read(struct bench *bench)
{
	struct exogpu_argument arguments[] = {{.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = bench->data},
					      {.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = bench->sink},
					      {.kind = EXOGPU_ARGUMENT_U64, .u64 = bench->data_bytes / 16}};
	return launch(bench, "stream_read", arguments, 3);
}

static double run_matmul(struct bench *bench)
{
	struct exogpu_argument arguments[] = {
		{.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = bench->sink},
		{.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = bench->data},
		{.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = bench->data},
		{.kind = EXOGPU_ARGUMENT_U64, .u64 = MATMUL},
		{.kind = EXOGPU_ARGUMENT_U64, .u64 = MATMUL},
		{.kind = EXOGPU_ARGUMENT_U64, .u64 = MATMUL},
	};
	return launch(bench, "matmul_f32", arguments, 6);
}

// A step of `sequences` runs of `rows` tokens each, from `position` on. each: its kernels are timed instead.
static double run_step(struct bench *bench, uint32_t sequences, uint32_t rows, uint32_t position, stage_timing_fn *each,
		       void *context)
{
	struct stage_run runs[BATCH];
	uint32_t outputs[BATCH], pages_each = (position + rows + STAGE_PAGE_TOKENS - 1) / STAGE_PAGE_TOKENS;
	for (uint32_t i = 0; i < sequences; i++) {
		runs[i] = (struct stage_run){
			.row_count = rows, .position = position, .pages = bench->pages + i * pages_each};
		if (model_is_recurrent(&bench->shape)) {
			runs[i].state_from = position ? i + 1 : 0;
			runs[i].state_to = i + 1;
		}
		outputs[i] = (i + 1) * rows - 1;
	}
	double began_s = now_s();
	for (unsigned i = 0; i < bench->stage_count; i++) {
		bool last = i + 1 == bench->stage_count;
		struct stage_batch batch = {
			.row_count = sequences * rows,
			.runs = runs,
			.run_count = sequences,
			.tokens = bench->tokens,
			.input = bench->activations[(i + 1) % 2],
			.output = bench->activations[i % 2],
			.output_rows = outputs,
			.output_count = last ? sequences : 0,
			.argmax = bench->argmax,
		};
		if (each)
			OK(stage_time(bench->stages[i], &batch, each, context, &bench->error));
		else
			OK(stage_step(bench->stages[i], &batch, &bench->error));
	}
	return now_s() - began_s;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *values, int count)
{
	qsort(values, (size_t)count, sizeof(*values), compare);
	return values[count / 2];
}

// ---- the table ----

struct figure {
	const char *name;
	uint32_t sequences, rows, position, steps;
};

static const struct figure figures[] = {
	{"decode, context 0", 1, 1, 0, STEPS},    {"decode, context 4096", 1, 1, 4096, STEPS},
	{"decode of 8", 8, 1, 64, STEPS / 2},     {"decode of 16", 16, 1, 64, STEPS / 4},
	{"decode of 32", 32, 1, 64, STEPS / 4},   {"decode of 64", 64, 1, 64, STEPS / 4},
	{"decode of 128", 128, 1, 64, STEPS / 4}, {"prompt of 512", 1, PROMPT, 0, 1},
};
enum { FIGURES = sizeof(figures) / sizeof(figures[0]) };

static void measure(struct bench *bench, int rounds)
{
	static double seconds[FIGURES][ROUNDS_MOST], reads[ROUNDS_MOST], matmuls[ROUNDS_MOST];
	const struct model_shape *shape = &bench->shape;
	for (int round = -1; round < rounds; round++) { // the first is not counted
		int at = round < 0 ? 0 : round;
		reads[at] = run_read(bench);
		matmuls[at] = run_matmul(bench);
		for (size_t i = 0; i < FIGURES; i++) {
			double steps[STEPS];
			for (uint32_t j = 0; j < figures[i].steps; j++)
				steps[j] = run_step(bench, figures[i].sequences, figures[i].rows, figures[i].position,
						    NULL, NULL);
			seconds[i][at] = median(steps, (int)figures[i].steps);
		}
	}
	double read = (double)bench->data_bytes / median(reads, rounds);
	double matmul = 2.0 * MATMUL * MATMUL * MATMUL / median(matmuls, rounds);
	printf("read %.1f GB/s; f32 product %.0f GFLOPS; a token reads %.0f MB of weights\n\n", read * 1e-9,
	       matmul * 1e-9, (double)bench->token_bytes * 1e-6);
	printf("| | tokens/s | read GB/s | of the ceiling | GFLOPS | of the f32 product "
	       "|\n|---|---|---|---|---|---|\n");
	for (size_t i = 0; i < FIGURES; i++) {
		const struct figure *figure = &figures[i];
		double s = median(seconds[i], rounds), tokens = figure->sequences * figure->rows;
		const uint32_t states = model_delta_layers(shape, 0, shape->layers);
		double kv = (double)stage_page_bytes(shape) / STAGE_PAGE_TOKENS * (shape->layers - states) *
				    figure->position +
			    (figure->position ? (double)stage_state_bytes(shape) * states : 0);
		double bytes = (double)bench->token_bytes + kv * figure->sequences; // of experts, one token's
		double rate = 2 *
			      (bench->multiplies * tokens +
			       (double)shape->vocabulary * shape->embedding * figure->sequences) /
			      s;
		printf("| %s | %.1f | %.1f | %.0f %% | %.0f | %.0f %% |\n", figure->name, tokens / s, bytes / s * 1e-9,
		       100 * bytes / s / read, rate * 1e-9, 100 * rate / matmul);
	}
}

// ---- kernels of a step ----

struct kind {
	char name[48];
	struct stage_timing timing;
	uint32_t launches;
	double us;
};
struct kinds {
	struct kind of[KINDS_MOST];
	uint32_t count, launches;
	double us;
};

static void note_kernel(void *context, const struct stage_timing *timing)
{
	struct kinds *kinds = context;
	uint32_t i = 0;
	while (i < kinds->count && (strcmp(kinds->of[i].name, timing->kernel) != 0 ||
				    memcmp(kinds->of[i].timing.grid, timing->grid, sizeof(timing->grid)) != 0 ||
				    kinds->of[i].timing.weight_bytes != timing->weight_bytes))
		i++;
	if (i == KINDS_MOST) {
		fprintf(stderr, "decode: a step has more than %d kinds of kernels\n", KINDS_MOST);
		exit(1);
	}
	if (i == kinds->count)
		snprintf(kinds->of[kinds->count++].name, sizeof(kinds->of[0].name), "%s", timing->kernel);
	kinds->of[i].timing = *timing;
	kinds->of[i].launches++;
	kinds->of[i].us += (double)timing->us;
	kinds->launches++;
	kinds->us += (double)timing->us;
}

static void print_kernels(struct bench *bench, uint32_t sequences, uint32_t rows, uint32_t position, double read)
{
	struct kinds kinds = {0};
	double steps[STEPS];
	for (int i = 0; i < STEPS; i++)
		steps[i] = run_step(bench, sequences, rows, position, NULL, NULL);
	run_step(bench, sequences, rows, position, note_kernel, &kinds);
	const double step_us = median(steps, STEPS) * 1e6;
	printf("\n%u at once, %u rows each, from position %u: a step takes %.0f us; its %u kernels, alone, %.0f us\n\n"
	       "| kernel | blocks | launches | us each | us | of the sum | MB each | of the floor |\n"
	       "|---|---|---|---|---|---|---|---|\n",
	       sequences, rows, position, step_us, kinds.launches, kinds.us);
	for (uint32_t i = 0; i < kinds.count; i++) {
		const struct kind *kind = &kinds.of[i];
		const uint32_t *grid = kind->timing.grid;
		const double bytes = (double)kind->timing.weight_bytes, each_us = kind->us / kind->launches;
		printf("| %s | %u, %u, %u | %u | %.1f | %.0f | %.0f %% | %.1f | ", kind->name, grid[0], grid[1],
		       grid[2], kind->launches, each_us, kind->us, 100 * kind->us / kinds.us, bytes * 1e-6);
		if (bytes > 0)
			printf("%.1f times |\n", each_us / (bytes / read * 1e6));
		else
			printf("|\n");
	}
}

static void measure_kernels(struct bench *bench)
{
	double reads[STEPS];
	for (int i = 0; i < STEPS; i++)
		reads[i] = run_read(bench);
	const double read = (double)bench->data_bytes / median(reads, STEPS);
	printf("read %.1f GB/s; a token reads %.0f MB of weights: %.0f us\n", read * 1e-9,
	       (double)bench->token_bytes * 1e-6, (double)bench->token_bytes / read * 1e6);
	for (uint32_t sequences = 1; sequences <= BATCH; sequences *= 2)
		print_kernels(bench, sequences, 1, 64, read);
	print_kernels(bench, 8, 1, 1024, read);
	print_kernels(bench, 1, PROMPT, 0, read);
}

// ---- the device ----

struct wanted {
	const char *backend;
	char keys[STAGE_SLICES][256];
	unsigned count;
};

static void note_device(void *context, const struct exogpu_found_device *device)
{
	struct wanted *wanted = context;
	if (wanted->count < STAGE_SLICES && !strcmp(device->backend, wanted->backend) && !device->reason)
		snprintf(wanted->keys[wanted->count++], sizeof(wanted->keys[0]), "%s", device->hardware_key);
}

static void open_device(struct bench *bench, const char *backend)
{
	struct wanted wanted = {.backend = backend};
	OK(exogpu_find_devices(note_device, &wanted, &bench->error));
	for (unsigned i = 0; i < bench->device_count; i++)
		if (i && i >= wanted.count)
			bench->devices[i] = bench->devices[i % wanted.count];
		else
			OK(exogpu_device_open(&bench->devices[i],
					      &(struct exogpu_open){.backend = backend, .hardware_key = wanted.keys[i]},
					      &bench->error));
	bench->device = bench->devices[0];
	printf("%u of the %u devices of %s\n", bench->device_count, wanted.count, backend);
	OK(exogpu_module_load(bench->device, &bench->builtin, EXOGPU_FORMAT_BUILTIN, NULL, 0, &bench->error));
	OK(exogpu_stream_create(bench->device, &bench->stream, &bench->error));
	bench->data_bytes = 1ull << 30;
	OK(exogpu_buffer_create(bench->device, &bench->data, bench->data_bytes, EXOGPU_MEMORY_DEVICE, &bench->error));
	OK(exogpu_buffer_create(bench->device, &bench->sink, 4ull * MATMUL * MATMUL, EXOGPU_MEMORY_DEVICE,
				&bench->error));
	struct exogpu_argument arguments[] = {{.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = bench->data},
					      {.kind = EXOGPU_ARGUMENT_U64, .u64 = bench->data_bytes / 16},
					      {.kind = EXOGPU_ARGUMENT_U32, .u32 = 1}};
	launch(bench, "stream_fill", arguments, 3);
}

// False if that is no format and no mixture.
static bool parse_formats(const char *name, enum tensor_format formats[3])
{
	static const char *const mixtures[][2] = {
		{"Q4_K_S", "Q4_K+Q5_K+Q6_K"}, {"Q4_K_M", "Q4_K+Q6_K+Q6_K"}, {"Q5_K_M", "Q5_K+Q6_K+Q6_K"}};
	char parts[3][16] = {0};
	for (size_t i = 0; i < sizeof(mixtures) / sizeof(mixtures[0]); i++)
		name = strcmp(name, mixtures[i][0]) ? name : mixtures[i][1];
	const int found = sscanf(name, "%15[^+]+%15[^+]+%15[^+]", parts[0], parts[1], parts[2]);
	if (found != 1 && found != 3)
		return false;
	for (int i = 0; i < 3; i++) {
		formats[i] = format_parse(parts[found == 1 ? 0 : i]);
		if (formats[i] == FORMAT_UNKNOWN)
			return false;
	}
	return true;
}

int main(int count, char **words)
{
	static struct bench all;
	struct bench *bench = &all;
	const bool kernels = count > 4 && !strcmp(words[4], "kernels");
	int rounds = kernels ? 1 : count > 4 ? (int)strtol(words[4], NULL, 10) : 5, shape = -1;
	for (int i = 0; count > 3 && i < SHAPES; i++)
		shape = strcmp(words[2], shape_names[i]) ? shape : i;
	const bool known = count > 3 && parse_formats(words[3], bench->formats);
	bench->device_count = count > 7 ? (unsigned)strtoul(words[7], NULL, 10) : 1;
	bench->tensor = count > 6 && !strcmp(words[6], "tensor");
	if (shape < 0 || !known || rounds < 1 || rounds > ROUNDS_MOST || !bench->device_count ||
	    bench->device_count > STAGE_SLICES) {
		fprintf(stderr, "usage: decode BACKEND 1b|7b|8b|30b-a3b|9b-delta FORMAT [ROUNDS|kernels [LAYERS "
				"[tensor|pipeline DEVICES]]]\n");
		return 2;
	}
	bench->shape = shapes[shape];
	if (count > 5 && strcmp(words[5], "0") != 0)
		bench->shape.layers = (uint32_t)strtoul(words[5], NULL, 10);
	if (bench->shape.layers > LAYERS_MOST)
		bench->shape.layers = LAYERS_MOST;
	open_device(bench, words[1]);
	double began_s = now_s();
	load(bench);
	const double load_s = now_s() - began_s;
	printf("### %s, %s %s, %u layers, %s of %u%s, loaded in %.1f s (%.2f GB/s)\n\n", words[1], shape_names[shape],
	       words[3], bench->shape.layers, bench->tensor ? "tensor" : "pipeline", bench->device_count,
	       stage_slices_linked(bench->stages[0]) ? "" : " by way of the host", load_s,
	       (double)bench->weights_bytes / load_s * 1e-9);
	const char *single = stage_single_kernel(bench->stages[0]);
	printf("One row: %s%s\n\n", single ? "one kernel for all layers, of " : "a kernel for each operation",
	       single ? single : "");
	if (kernels)
		measure_kernels(bench);
	else
		measure(bench, rounds);
	for (unsigned i = 0; i < bench->stage_count; i++)
		stage_destroy(&bench->stages[i]);
	return 0; // the end of the process closes the devices
}
