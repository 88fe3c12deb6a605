/* Measures the loss of quality by a number format: perplexity, and how far its logits are from those of the file as it
 * is.
 *
 *   perplexity BACKEND[,BACKEND...] FILE.gguf [TEXT [TOKENS]]
 *                                       cpu, vulkan, cuda; TEXT: a file, or - (default); TOKENS: 256
 *
 * The file's weights, of 16 or 32 bits, are the reference; then they are held in each smaller format in turn, as an
 * instance that was asked for a format holds them. Of every position of the text the logits are compared: the largest
 * difference, the root of the mean square, the divergence of Kullback and Leibler of the probabilities, and whether the
 * likeliest token is the same. With random weights every text of others is noise and has about the vocabulary as its
 * perplexity; so `-` has the model as it is draw a text itself, token by token at temperature 1, of which its own
 * perplexity is the least that there is, and that of another format is higher by what was lost.
 *
 * Of several back ends the layers are shared evenly, one device behind another, and activations go by way of the host
 * as 32-bit floats, as between the parts of an instance. Each format over that chain is compared with the same format
 * on the first device alone: what is lost by computing on unlike devices, and nothing else. Prints one table in
 * Markdown. */
#include "engine/include/exogpu/exogpu.h"
#include "engine/model/convert.h"
#include "engine/stage.h"
#include "engine/text/tokenizer.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 64, ROWS_OF_CHAIN = 4, TOKENS = 256, TEXT_BYTES = 1 << 20, DEVICES = 8 };

// Layers in order, a stage for each of so many devices.
struct chain {
	struct stage *stages[DEVICES];
	unsigned count;
};

struct bench {
	struct exogpu_device *devices[DEVICES];
	unsigned device_count;
	struct gguf *gguf;
	struct model *model;
	struct tokenizer *tokenizer;
	const struct model_shape *shape;
	float *rope;
	struct token_list tokens;
	uint32_t most;       // of them
	uint32_t rows;       // of a step: a processor that stands for a GPU has 30 s for one
	float *reference;    // (tokens, vocabulary)
	float *logits;       // (ROWS, vocabulary)
	float *between[2];   // (ROWS, embedding), activations from a stage to the next
	uint8_t *converted;  // the tensor that was asked for last
	uint64_t held_bytes; // of all tensors
	enum tensor_format format;
	struct error error;
};

static void check(struct bench *bench, enum status status, const char *what)
{
	if (!status)
		return;
	fprintf(stderr, "perplexity: %s: %s (%s)\n", what, bench->error.message, bench->error.hint);
	exit(1);
}

#define OK(call) check(bench, (call), #call)

static void *room_for(size_t count, size_t size)
{
	void *room = calloc(count, size);
	if (!room) {
		fprintf(stderr, "perplexity: no memory for %zu bytes\n", count * size);
		exit(1);
	}
	return room;
}

// ---- the model, in a format ----

static enum status give_tensor(void *context, enum model_role role, uint32_t layer, struct model_tensor *out,
			       struct error *error)
{
	struct bench *bench = context;
	struct model_tensor tensor;
	if (!model_tensor(bench->model, role, layer, &tensor))
		return error_set(error, STATUS_INTERNAL, "there is no tensor of role %d", (int)role);
	model_tensor_as(&tensor, bench->format, out);
	bench->held_bytes += out->bytes;
	if (out->data)
		return STATUS_OK;
	free(bench->converted);
	bench->converted = room_for(out->bytes, 1);
	out->data = bench->converted;
	return model_convert(&tensor, out, 0, tensor.rows, bench->converted);
}

static void unload(struct chain *chain)
{
	while (chain->count)
		stage_destroy(&chain->stages[--chain->count]);
}

// Over the first `devices` of them.
static struct chain load(struct bench *bench, enum tensor_format format, unsigned devices)
{
	struct chain chain = {.count = devices};
	const uint32_t pages = (bench->most + STAGE_PAGE_TOKENS - 1) / STAGE_PAGE_TOKENS;
	bench->format = format;
	bench->held_bytes = 0;
	for (unsigned i = 0; i < devices; i++) {
		const uint32_t first = bench->shape->layers * i / devices;
		const struct stage_params params = {.shape = bench->shape,
						    .first_layer = first,
						    .layer_count = bench->shape->layers * (i + 1) / devices - first,
						    .embeds = !i,
						    .predicts = i + 1 == devices,
						    .context_tokens = bench->most,
						    .page_count = pages,
						    .batch_rows = ROWS,
						    .batch_sequences = 1,
						    .batch_outputs = ROWS,
						    .rope = bench->rope,
						    .tensor = give_tensor,
						    .context = bench};
		OK(stage_create(&chain.stages[i], bench->devices[i], &params, &bench->error));
	}
	return chain;
}

// The logits behind `count` tokens from `first` on, to `logits`.
static void step(struct bench *bench, const struct chain *chain, uint32_t first, uint32_t count, float *logits)
{
	uint32_t rows[ROWS], *pages = room_for(bench->most / STAGE_PAGE_TOKENS + 1, sizeof(*pages));
	for (uint32_t i = 0; i <= bench->most / STAGE_PAGE_TOKENS; i++)
		pages[i] = i;
	for (uint32_t i = 0; i < count; i++)
		rows[i] = i;
	const struct stage_run run = {.row_count = count, .position = first, .pages = pages};
	for (unsigned i = 0; i < chain->count; i++) {
		const bool last = i + 1 == chain->count;
		const struct stage_batch batch = {.row_count = count,
						  .runs = &run,
						  .run_count = 1,
						  .tokens = i ? NULL : bench->tokens.tokens + first,
						  .input = i ? bench->between[(i + 1) % 2] : NULL,
						  .output = last ? NULL : bench->between[i % 2],
						  .output_rows = last ? rows : NULL,
						  .output_count = last ? count : 0,
						  .logits = last ? logits : NULL};
		OK(stage_step(chain->stages[i], &batch, &bench->error));
	}
	free(pages);
}

// ---- the text ----

static double log_sum(const float *logits, uint32_t count)
{
	float largest = logits[0];
	double sum = 0;
	for (uint32_t i = 1; i < count; i++)
		largest = logits[i] > largest ? logits[i] : largest;
	for (uint32_t i = 0; i < count; i++)
		sum += exp((double)(logits[i] - largest));
	return (double)largest + log(sum);
}

static uint32_t draw(const float *logits, uint32_t count)
{
	static uint64_t state = 88172645463325252u;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	double left = (double)(state >> 11) * 0x1p-53, whole = log_sum(logits, count);
	for (uint32_t i = 0; i + 1 < count; i++) {
		left -= exp((double)logits[i] - whole);
		if (left < 0)
			return i;
	}
	return count - 1;
}

// By the model as it is. The logits are computed again later, in rows of many as those of the formats are.
static void draw_text(struct bench *bench)
{
	struct chain chain = load(bench, FORMAT_UNKNOWN, 1);
	int32_t begin = tokenizer_begin(bench->tokenizer);
	OK(token_list_add(&bench->tokens, begin < 0 ? 0 : (uint32_t)begin));
	for (uint32_t at = 0; at + 1 < bench->most; at++) {
		step(bench, &chain, at, 1, bench->logits);
		OK(token_list_add(&bench->tokens, draw(bench->logits, bench->shape->vocabulary)));
	}
	unload(&chain);
}

static void read_text(struct bench *bench, const char *path)
{
	char *text = room_for(TEXT_BYTES, 1);
	FILE *file = fopen(path, "rb");
	size_t length = file ? fread(text, 1, TEXT_BYTES, file) : 0;
	if (!length) {
		fprintf(stderr, "perplexity: %s cannot be read, or is empty\n", path);
		exit(1);
	}
	while (length && ((unsigned char)text[length - 1] & 0xC0) == 0x80) // cut in the middle of a character
		length--;
	if (length && (unsigned char)text[length - 1] >= 0xC0)
		length--;
	fclose(file);
	const struct tokenize_params params = {.text = text, .length = length, .begin = true};
	OK(tokenize(bench->tokenizer, &params, &bench->tokens, &bench->error));
	free(text);
}

// ---- the comparison ----

struct result {
	double loss;                        // sum of -log p of what comes
	double largest, square, divergence; // of logits; of those, the sum; summed over positions
	uint32_t same;                      // positions with the same likeliest token
};

static uint32_t likeliest(const float *logits, uint32_t count)
{
	uint32_t best = 0;
	for (uint32_t i = 1; i < count; i++)
		best = logits[i] > logits[best] ? i : best;
	return best;
}

static void compare(struct bench *bench, uint32_t at, const float *logits, struct result *result)
{
	const uint32_t count = bench->shape->vocabulary;
	const float *reference = bench->reference + (size_t)at * count;
	double whole = log_sum(logits, count), whole_there = log_sum(reference, count);
	result->loss += whole - (double)logits[bench->tokens.tokens[at + 1]];
	result->same += likeliest(logits, count) == likeliest(reference, count);
	for (uint32_t i = 0; i < count; i++) {
		double there = (double)reference[i], error = fabs((double)logits[i] - there);
		result->largest = error > result->largest ? error : result->largest;
		result->square += error * error;
		result->divergence += exp(there - whole_there) * ((there - whole_there) - ((double)logits[i] - whole));
	}
}

static struct result run(struct bench *bench, enum tensor_format format, unsigned devices, bool is_reference)
{
	struct result result = {0};
	struct chain chain = load(bench, format, devices);
	const uint32_t count = (uint32_t)bench->tokens.count, vocabulary = bench->shape->vocabulary;
	for (uint32_t first = 0; first < count; first += bench->rows) {
		uint32_t rows = count - first < bench->rows ? count - first : bench->rows;
		step(bench, &chain, first, rows, bench->logits);
		if (is_reference)
			memcpy(bench->reference + (size_t)first * vocabulary, bench->logits,
			       (size_t)rows * vocabulary * sizeof(float));
		for (uint32_t i = 0; i < rows && first + i + 1 < count; i++)
			compare(bench, first + i, bench->logits + (size_t)i * vocabulary, &result);
	}
	unload(&chain);
	return result;
}

static double perplexity_of(const struct bench *bench, const struct result *result)
{
	return exp(result->loss / (double)(bench->tokens.count - 1));
}

static void print_row(const struct bench *bench, const char *name, double alone, const struct result *result)
{
	const double positions = (double)(bench->tokens.count - 1);
	printf("| %s | %.1f |", name, (double)bench->held_bytes * 1e-6);
	if (bench->device_count > 1)
		printf(" %.3f |", alone);
	printf(" %.3f | %.4g | %.4g | %.4g | %.1f %% |\n", perplexity_of(bench, result), result->largest,
	       sqrt(result->square / positions / (double)bench->shape->vocabulary), result->divergence / positions,
	       100 * result->same / positions);
	fflush(stdout);
}

// A chain is compared with its first device alone; one device with the file's own format.
static void print_format(struct bench *bench, enum tensor_format format)
{
	const char *name = format == FORMAT_UNKNOWN ? "the file's" : format_info(format)->name;
	const bool chain = bench->device_count > 1, reference = chain || format == FORMAT_UNKNOWN;
	struct result alone = run(bench, format, 1, reference), over;
	if (chain)
		over = run(bench, format, bench->device_count, false);
	print_row(bench, name, perplexity_of(bench, &alone), chain ? &over : &alone);
}

static void print_table(struct bench *bench, const char *backends, const char *path)
{
	static const enum tensor_format formats[] = {FORMAT_F16,  FORMAT_Q8_0, FORMAT_Q6_K,
						     FORMAT_Q5_K, FORMAT_Q4_K, FORMAT_Q4_0};
	struct model_sizes sizes;
	model_sizes(bench->model, &sizes);
	printf("%s, %zu tokens, %s, %s\n\n", strrchr(path, '/') ? strrchr(path, '/') + 1 : path, bench->tokens.count,
	       format_info(sizes.main_format)->name, backends);
	printf("| format | MB | %s | largest error of a logit | root of mean square | divergence, nats | same "
	       "first token |\n|%s---|---|---|---|---|---|---|\n",
	       bench->device_count > 1 ? "perplexity, first device | over all" : "perplexity",
	       bench->device_count > 1 ? "---|" : "");
	print_format(bench, FORMAT_UNKNOWN);
	for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++) {
		struct model_sizes held;
		model_sizes_as(bench->model, formats[i], &held);
		if (held.layers_bytes != sizes.layers_bytes) // else the file has nothing that could be held so
			print_format(bench, formats[i]);
	}
}

// ---- the device ----

struct wanted {
	const char *backend;
	char key[256];
};

static void note_device(void *context, const struct exogpu_found_device *device)
{
	struct wanted *wanted = context;
	if (!wanted->key[0] && !strcmp(device->backend, wanted->backend) && !device->reason)
		snprintf(wanted->key, sizeof(wanted->key), "%s", device->hardware_key);
}

static void open_device(struct bench *bench, const char *backend)
{
	struct wanted wanted = {.backend = backend};
	OK(exogpu_find_devices(note_device, &wanted, &bench->error));
	OK(exogpu_device_open(&bench->devices[bench->device_count++],
			      &(struct exogpu_open){.backend = backend, .hardware_key = wanted.key}, &bench->error));
}

static void begin(struct bench *bench, const char *backends, const char *path)
{
	char list[64];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	OK(gguf_open(&bench->gguf, fd, &bench->error));
	close(fd);
	OK(model_open(&bench->model, bench->gguf, &bench->error));
	OK(tokenizer_create(&bench->tokenizer, bench->gguf, &bench->error));
	bench->shape = model_shape(bench->model);
	bench->most = bench->most < bench->shape->context ? bench->most : bench->shape->context;
	snprintf(list, sizeof(list), "%s", backends);
	for (char *rest = list, *one; bench->device_count < DEVICES && (one = strsep(&rest, ","));)
		open_device(bench, one);
	bench->rows = bench->device_count > 1 ? ROWS_OF_CHAIN : ROWS;
	bench->rope = room_for((size_t)bench->most * bench->shape->rope_size, sizeof(float));
	model_rope_table(bench->shape, bench->most, bench->rope);
	bench->logits = room_for((size_t)ROWS * bench->shape->vocabulary, sizeof(float));
	for (int i = 0; i < 2; i++)
		bench->between[i] = room_for((size_t)ROWS * bench->shape->embedding, sizeof(float));
}

int main(int argc, char **argv)
{
	static struct bench bench;
	const char *text = argc > 3 ? argv[3] : "-";
	bench.most = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : TOKENS;
	if (argc < 3 || argc > 5 || bench.most < 2) {
		fprintf(stderr, "usage: perplexity BACKEND[,BACKEND...] FILE.gguf [TEXT|- [TOKENS]]\n");
		return 2;
	}
	begin(&bench, argv[1], argv[2]);
	if (!strcmp(text, "-"))
		draw_text(&bench);
	else
		read_text(&bench, text);
	if (bench.tokens.count > bench.most)
		bench.tokens.count = bench.most;
	if (bench.tokens.count < 2) {
		fprintf(stderr, "perplexity: the text has no two tokens\n");
		return 1;
	}
	bench.reference = room_for(bench.tokens.count * bench.shape->vocabulary, sizeof(float));
	print_table(&bench, argv[1], argv[2]);
	token_list_finish(&bench.tokens);
	while (bench.device_count)
		exogpu_device_close(&bench.devices[--bench.device_count], NULL);
	tokenizer_destroy(&bench.tokenizer);
	model_destroy(&bench.model);
	gguf_destroy(&bench.gguf);
	free(bench.reference);
	free(bench.logits);
	free(bench.between[0]);
	free(bench.between[1]);
	free(bench.converted);
	free(bench.rope);
	return 0;
}
