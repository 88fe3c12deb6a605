/* A model file of a real model's shape with random weights, in any format, written as fast as the disk takes it.
 *
 *   generate_model PATH SHAPE FORMAT [--seed N] [--layers N] [--context N] [--output FORMAT] [--tied] [--untied]
 *   generate_model --list                    the shapes
 *
 * FORMAT is one of a tensor's, or Q4_K_M: Q4_K with Q6_K where llama.cpp has it.
 *
 * As in tests/tools/model_file.h, but for the numbers: a pool of blocks of each scale is encoded once, and a row is a
 * piece of it from a random block on. So weights are of a normal distribution and properly encoded, and most of the
 * time goes into copying. The same arguments give the same file. One thread. */
#include "common/base/clock.h"
#include "tests/tools/model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { POOL_VALUES = 1 << 20, POOLS = 64, CHUNK_BYTES = 8 << 20 };

static void short_window(struct gguf_writer *writer)
{
	gguf_put_u32(writer, "phi3.attention.sliding_window", 128);
}

static const struct {
	const char *name;
	struct model_file file;
} shapes[] = {
	// Keys and values of an 8B model (128 KiB a token) with as little to compute as may be: for what moves them.
	{"8b-cache",
	 {.family = FAMILY_PHI3,
	  .layers = 32,
	  .embedding = 64,
	  .feed_forward = 64,
	  .heads = 8,
	  .kv_heads = 8,
	  .head_size = 128,
	  .vocabulary = 1024,
	  .context = 16384,
	  .words = WORDS_PIECES,
	  .more = short_window}},
	{"tinyllama-1.1b",
	 {.family = FAMILY_LLAMA,
	  .layers = 22,
	  .embedding = 2048,
	  .feed_forward = 5632,
	  .heads = 32,
	  .kv_heads = 4,
	  .vocabulary = 32000,
	  .context = 2048,
	  .words = WORDS_PIECES}},
	{"llama-2-7b",
	 {.family = FAMILY_LLAMA,
	  .layers = 32,
	  .embedding = 4096,
	  .feed_forward = 11008,
	  .heads = 32,
	  .kv_heads = 32,
	  .vocabulary = 32000,
	  .context = 4096,
	  .words = WORDS_PIECES}},
	{"mistral-7b",
	 {.family = FAMILY_LLAMA,
	  .layers = 32,
	  .embedding = 4096,
	  .feed_forward = 14336,
	  .heads = 32,
	  .kv_heads = 8,
	  .vocabulary = 32000,
	  .context = 32768,
	  .rope_base = 1000000,
	  .words = WORDS_PIECES}},
	{"llama-3.2-1b",
	 {.family = FAMILY_LLAMA,
	  .layers = 16,
	  .embedding = 2048,
	  .feed_forward = 8192,
	  .heads = 32,
	  .kv_heads = 8,
	  .vocabulary = 128256,
	  .context = 131072,
	  .rope_base = 500000,
	  .scaling = SCALING_FACTORS,
	  .tied = true,
	  .words = WORDS_BPE_LLAMA}},
	{"llama-3-8b",
	 {.family = FAMILY_LLAMA,
	  .layers = 32,
	  .embedding = 4096,
	  .feed_forward = 14336,
	  .heads = 32,
	  .kv_heads = 8,
	  .vocabulary = 128256,
	  .context = 8192,
	  .rope_base = 500000,
	  .words = WORDS_BPE_LLAMA}},
	{"qwen2.5-0.5b",
	 {.family = FAMILY_QWEN2,
	  .layers = 24,
	  .embedding = 896,
	  .feed_forward = 4864,
	  .heads = 14,
	  .kv_heads = 2,
	  .vocabulary = 151936,
	  .context = 32768,
	  .rope_base = 1000000,
	  .tied = true,
	  .words = WORDS_BPE_QWEN}},
	{"qwen2.5-1.5b",
	 {.family = FAMILY_QWEN2,
	  .layers = 28,
	  .embedding = 1536,
	  .feed_forward = 8960,
	  .heads = 12,
	  .kv_heads = 2,
	  .vocabulary = 151936,
	  .context = 32768,
	  .rope_base = 1000000,
	  .tied = true,
	  .words = WORDS_BPE_QWEN}},
	{"qwen2.5-7b",
	 {.family = FAMILY_QWEN2,
	  .layers = 28,
	  .embedding = 3584,
	  .feed_forward = 18944,
	  .heads = 28,
	  .kv_heads = 4,
	  .vocabulary = 152064,
	  .context = 32768,
	  .rope_base = 1000000,
	  .words = WORDS_BPE_QWEN}},
	{"qwen3-0.6b",
	 {.family = FAMILY_QWEN3,
	  .layers = 28,
	  .embedding = 1024,
	  .feed_forward = 3072,
	  .heads = 16,
	  .kv_heads = 8,
	  .head_size = 128,
	  .vocabulary = 151936,
	  .context = 40960,
	  .rope_base = 1000000,
	  .tied = true,
	  .words = WORDS_BPE_QWEN}},
	{"qwen3-8b",
	 {.family = FAMILY_QWEN3,
	  .layers = 36,
	  .embedding = 4096,
	  .feed_forward = 12288,
	  .heads = 32,
	  .kv_heads = 8,
	  .head_size = 128,
	  .vocabulary = 151936,
	  .context = 40960,
	  .rope_base = 1000000,
	  .words = WORDS_BPE_QWEN}},
	{"qwen3-30b-a3b",
	 {.family = FAMILY_QWEN3MOE,
	  .layers = 48,
	  .embedding = 2048,
	  .feed_forward = 6144,
	  .heads = 32,
	  .kv_heads = 4,
	  .head_size = 128,
	  .experts = 128,
	  .experts_used = 8,
	  .expert_width = 768,
	  .vocabulary = 151936,
	  .context = 40960,
	  .rope_base = 1000000,
	  .words = WORDS_BPE_QWEN}},
	{"stories-15m",
	 {.family = FAMILY_LLAMA,
	  .layers = 6,
	  .embedding = 288,
	  .feed_forward = 768,
	  .heads = 6,
	  .kv_heads = 6,
	  .vocabulary = 32000,
	  .context = 256,
	  .words = WORDS_PIECES}},
};
static const size_t shape_count = sizeof(shapes) / sizeof(*shapes);

struct pool {
	enum tensor_format format;
	float scale;
	uint8_t *bytes;
};

struct writing {
	int fd;
	uint8_t *chunk; // (CHUNK_BYTES), `filled` of them
	size_t filled;
	uint64_t written;
	struct pool pools[POOLS];
	unsigned pool_count;
	bool failed;
};

static void flush(struct writing *writing)
{
	for (size_t done = 0; done < writing->filled && !writing->failed;) {
		ssize_t count = write(writing->fd, writing->chunk + done, writing->filled - done);
		if (count > 0)
			done += (size_t)count;
		else if (errno != EINTR)
			writing->failed = true;
	}
	writing->written += writing->filled;
	writing->filled = 0;
}

static void put(struct writing *writing, const uint8_t *bytes, uint64_t count)
{
	while (count && !writing->failed) {
		size_t room = CHUNK_BYTES - writing->filled, part = count < room ? (size_t)count : room;
		if (bytes) {
			memcpy(writing->chunk + writing->filled, bytes, part);
			bytes += part;
		} else {
			memset(writing->chunk + writing->filled, 0, part);
		}
		writing->filled += part;
		count -= part;
		if (writing->filled == CHUNK_BYTES)
			flush(writing);
	}
}

// Zeros up to a place in the file.
static void put_until(struct writing *writing, uint64_t place)
{
	put(writing, NULL, place - writing->written - writing->filled);
}

static void *must_alloc(size_t bytes)
{
	void *memory = malloc(bytes);
	if (!memory)
		abort();
	return memory;
}

static const uint8_t *find_pool(struct writing *writing, const struct model_file_tensor *tensor)
{
	for (unsigned i = 0; i < writing->pool_count; i++) {
		const struct pool *pool = &writing->pools[i];
		if (pool->format == tensor->format && !memcmp(&pool->scale, &tensor->scale, sizeof(pool->scale)))
			return pool->bytes;
	}
	if (writing->pool_count == POOLS)
		abort();
	struct pool *pool = &writing->pools[writing->pool_count++];
	float *values = must_alloc(POOL_VALUES * sizeof(*values));
	*pool = (struct pool){tensor->format, tensor->scale, must_alloc(format_row_bytes(tensor->format, POOL_VALUES))};
	model_file_numbers(tensor, 0, POOL_VALUES, values);
	format_encode(tensor->format, values, pool->bytes, POOL_VALUES);
	free(values);
	return pool->bytes;
}

static void put_matrix(struct writing *writing, const struct model_file_tensor *tensor)
{
	const struct format_info *info = format_info(tensor->format);
	const uint8_t *pool = find_pool(writing, tensor);
	uint64_t row_bytes = tensor->bytes / tensor->rows, state = tensor->seed;
	uint64_t places = (POOL_VALUES - tensor->columns) / info->block_values + 1;
	for (uint64_t row = 0; row < tensor->rows && !writing->failed; row++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		put(writing, pool + (state >> 33) % places * info->block_bytes, row_bytes);
	}
}

static void put_vector(struct writing *writing, const struct model_file_tensor *tensor)
{
	float *values = must_alloc(tensor->bytes);
	model_file_numbers(tensor, 0, tensor->columns, values);
	put(writing, (const uint8_t *)values, tensor->bytes);
	free(values);
}

static int generate(const struct model_file *file, const char *path)
{
	struct model_file_plan plan;
	struct writing writing = {.chunk = must_alloc(CHUNK_BYTES)};
	int64_t started = clock_steady_ns();
	model_file_plan(&plan, file);
	writing.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	writing.failed = writing.fd < 0;
	put(&writing, plan.head.data, plan.head.length);
	for (size_t i = 0; i < plan.count; i++) {
		put_until(&writing, plan.tensors[i].place);
		if (plan.tensors[i].kind == KIND_MATRIX)
			put_matrix(&writing, &plan.tensors[i]);
		else
			put_vector(&writing, &plan.tensors[i]);
	}
	put_until(&writing, plan.bytes);
	flush(&writing);
	int fault = writing.failed ? errno : 0;
	if (writing.fd >= 0 && close(writing.fd) && !fault)
		fault = errno;
	double seconds = (double)(clock_steady_ns() - started) / 1e9;
	if (fault)
		fprintf(stderr, "%s: %s\n", path, strerror(fault));
	else
		printf("%s: %zu tensors, %.1f MB, %.1f s, %.0f MB/s\n", path, plan.count, (double)plan.bytes / 1e6,
		       seconds, (double)plan.bytes / 1e6 / seconds);
	for (unsigned i = 0; i < writing.pool_count; i++)
		free(writing.pools[i].bytes);
	free(writing.chunk);
	model_file_plan_finish(&plan);
	return fault ? 1 : 0;
}

static int usage(void)
{
	fprintf(stderr, "usage: generate_model PATH SHAPE FORMAT [--seed N] [--layers N] [--context N] "
			"[--output FORMAT] [--tied] [--untied]\n       generate_model --list\n");
	return 2;
}

static bool number(const char *text, uint32_t *out)
{
	char *end;
	errno = 0;
	unsigned long value = strtoul(text, &end, 10);
	*out = (uint32_t)value;
	return !errno && end != text && !*end && value <= UINT32_MAX;
}

static bool read_options(struct model_file *file, int count, char **words)
{
	uint32_t value = 0;
	for (int i = 0; i < count; i++) {
		const char *word = words[i], *next = i + 1 < count ? words[i + 1] : "";
		if (!strcmp(word, "--tied") || !strcmp(word, "--untied")) {
			file->tied = !strcmp(word, "--tied");
			continue;
		}
		i++;
		if (!strcmp(word, "--output") && (file->output_format = format_parse(next)))
			continue;
		if (!number(next, &value))
			return false;
		if (!strcmp(word, "--seed"))
			file->seed = value;
		else if (!strcmp(word, "--layers"))
			file->layers = value;
		else if (!strcmp(word, "--context"))
			file->context = value;
		else
			return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "--list")) {
		for (size_t i = 0; i < shape_count; i++)
			printf("%s\n", shapes[i].name);
		return 0;
	}
	if (argc < 4)
		return usage();
	for (size_t i = 0; i < shape_count; i++) {
		struct model_file file = shapes[i].file;
		if (strcmp(shapes[i].name, argv[2]))
			continue;
		file.name = shapes[i].name;
		file.seed = 1;
		const bool medium = !strcmp(argv[3], "Q4_K_M");
		file.output_format = file.more_format = medium ? FORMAT_Q6_K : FORMAT_UNKNOWN;
		file.format = medium ? FORMAT_Q4_K : format_parse(argv[3]);
		if (!file.format || !read_options(&file, argc - 4, argv + 4))
			return usage();
		return generate(&file, argv[1]);
	}
	return usage();
}
