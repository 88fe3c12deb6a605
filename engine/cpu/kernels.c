/* See kernels.h. Each kernel is a function that does piece `index` of its work, and a row in run_pieces that says how
 * many pieces there are. */
#include "engine/cpu/kernels.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
	PIECE_BYTES = 1 << 20, // size of a piece in bytes written, or read if nothing is written
	PIECE_ELEMENTS = PIECE_BYTES / 4,
	PAST_BYTES = 32 << 20, // from here on the caches are left to others
	READ_BYTES = 2 << 20,  // a whole large page, if there are any
	SUM_PIECES = 4096,     // at most: their sums are kept
};

enum status kernel_scratch_need(struct kernel_scratch *scratch, enum builtin_kernel kernel, struct error *error)
{
	if (kernel == BUILTIN_SUM_F32 && !scratch->sums) {
		scratch->sums = malloc(SUM_PIECES * sizeof(*scratch->sums));
		if (!scratch->sums)
			return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for the sums of pieces");
	}
	if (kernel == BUILTIN_MATMUL_F32 && !scratch->panels) {
		// Only the pages that are used take memory.
		void *panels = mmap(NULL, matmul_panel_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
				    0);
		if (panels == MAP_FAILED)
			return error_errno(error, STATUS_OUT_OF_MEMORY, errno, "mapping %zu bytes", matmul_panel_bytes);
		madvise(panels, matmul_panel_bytes, MADV_HUGEPAGE); // only faster; refused is as good
		scratch->panels = panels;
	}
	return STATUS_OK;
}

void kernel_scratch_finish(struct kernel_scratch *scratch)
{
	free(scratch->sums);
	if (scratch->panels)
		munmap(scratch->panels, matmul_panel_bytes);
	*scratch = (struct kernel_scratch){0};
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

static float as_float(uint64_t bits)
{
	uint32_t word = (uint32_t)bits;
	float value;
	memcpy(&value, &word, sizeof(value));
	return value;
}

struct run {
	const struct cpu_level *level;
	const struct kernel_work *work; // of a kernel
	uint8_t *to;                    // of a copy or a fill
	const uint8_t *from;
	uint32_t word;  // of a fill
	bool past;      // past the caches
	uint64_t n;     // bytes or elements of all
	uint64_t piece; // and of one piece
	double *sums;
};

// Where piece `index` begins; *count is its length.
static uint64_t part(const struct run *run, uint64_t index, size_t *count)
{
	uint64_t first = index * run->piece;
	*count = (size_t)(run->n - first < run->piece ? run->n - first : run->piece);
	return first;
}

static void copy_piece(void *context, uint64_t index)
{
	const struct run *run = context;
	size_t count;
	uint64_t first = part(run, index, &count);
	if (run->past)
		run->level->copy_past(run->to + first, run->from + first, count);
	else
		memcpy(run->to + first, run->from + first, count);
}

static void fill_piece(void *context, uint64_t index)
{
	const struct run *run = context;
	size_t count;
	uint64_t first = part(run, index, &count);
	if (run->past)
		run->level->fill_past(run->to + first, run->word, count);
	else
		memset(run->to + first, (uint8_t)run->word, count);
}

static void run_all(const struct kernel_place *place, struct run *run, void (*piece)(void *context, uint64_t index))
{
	pool_run(place->pool, piece, run, divide_up(run->n, run->piece));
}

void kernel_copy(const struct kernel_place *place, void *to, const void *from, uint64_t bytes)
{
	struct run run = {.level = place->level, .to = to, .from = from, .n = bytes, .piece = PIECE_BYTES};
	run.past = bytes >= PAST_BYTES;
	run_all(place, &run, copy_piece);
}

void kernel_fill(const struct kernel_place *place, void *to, uint8_t value, uint64_t bytes)
{
	struct run run = {.level = place->level, .to = to, .n = bytes, .piece = PIECE_BYTES};
	run.word = 0x01010101u * value;
	run.past = bytes >= PAST_BYTES;
	run_all(place, &run, fill_piece);
}

static void fill_f32_piece(void *context, uint64_t index)
{
	const struct run *run = context;
	size_t count;
	uint64_t first = part(run, index, &count);
	float *to = (float *)run->work->buffers[0] + first;
	if (run->past)
		run->level->fill_past(to, (uint32_t)run->work->values[1], 4 * count);
	else
		run->level->fill(to, as_float(run->work->values[1]), count);
}

static void saxpy_piece(void *context, uint64_t index)
{
	const struct run *run = context;
	size_t count;
	uint64_t first = part(run, index, &count);
	run->level->saxpy((float *)run->work->buffers[0] + first, (const float *)run->work->buffers[1] + first,
			  as_float(run->work->values[2]), count);
}

static void sum_piece(void *context, uint64_t index)
{
	const struct run *run = context;
	size_t count;
	uint64_t first = part(run, index, &count);
	run->sums[index] = run->level->sum((const float *)run->work->buffers[1] + first, count);
}

// Pieces are larger where there would be too many; their sums are added in order.
static void run_sum(const struct kernel_place *place, struct run *run)
{
	float *out = run->work->buffers[0];
	double all = 0;
	while (divide_up(run->n, run->piece) > SUM_PIECES)
		run->piece *= 2;
	run->sums = place->scratch->sums;
	run_all(place, run, sum_piece);
	if (pool_stopped(place->pool))
		return;
	for (uint64_t i = 0; i < divide_up(run->n, run->piece); i++)
		all += run->sums[i];
	*out = (float)all;
}

static void verify_piece(void *context, uint64_t index)
{
	const struct run *run = context;
	const struct kernel_work *work = run->work;
	uint32_t *out = work->buffers[1];
	size_t count;
	uint64_t first = part(run, index, &count);
	struct level_verify verify = {.in = (const uint32_t *)work->buffers[0] + first,
				      .hashes = out + first,
				      .floats = out + run->n + first,
				      .seed = (uint32_t)work->values[3],
				      .scale = as_float(work->values[4]),
				      .bias = as_float(work->values[5])};
	run->level->verify(&verify, (uint32_t)first, count);
}

static void stream_fill_piece(void *context, uint64_t index)
{
	const struct run *run = context;
	size_t count;
	uint64_t first = part(run, index, &count);
	run->level->stream_fill((uint32_t *)run->work->buffers[0] + first, (uint32_t)first,
				(uint32_t)run->work->values[2], count);
}

static void stream_read_piece(void *context, uint64_t index)
{
	const struct run *run = context;
	size_t count;
	uint64_t first = part(run, index, &count);
	uint32_t all = run->level->stream_read((const uint8_t *)run->work->buffers[0] + first, count);
	__asm__ volatile("" : : "r"(all)); // keeps the compiler from dropping the reads
}

void kernel_run(const struct kernel_place *place, const struct kernel_work *work)
{
	struct run run = {.level = place->level, .work = work, .piece = PIECE_ELEMENTS};
	switch (work->kernel) {
	case BUILTIN_FILL_F32:
		run.n = work->values[2];
		run.past = run.n >= PAST_BYTES / 4;
		run_all(place, &run, fill_f32_piece);
		break;
	case BUILTIN_SAXPY_F32:
		run.n = work->values[3];
		run_all(place, &run, saxpy_piece);
		break;
	case BUILTIN_MATMUL_F32:
		matmul_run(place, &(struct matmul){.c = work->buffers[0],
						   .a = work->buffers[1],
						   .b = work->buffers[2],
						   .m = work->values[3],
						   .n = work->values[4],
						   .k = work->values[5]});
		break;
	case BUILTIN_SUM_F32:
		run.n = work->values[2];
		run_sum(place, &run);
		break;
	case BUILTIN_VERIFY:
		run.n = work->values[2];
		run_all(place, &run, verify_piece);
		break;
	case BUILTIN_STREAM_FILL:
		run.n = 4 * work->values[1];
		run_all(place, &run, stream_fill_piece);
		break;
	case BUILTIN_STREAM_READ:
		run.n = 16 * work->values[2];
		run.piece = READ_BYTES;
		run_all(place, &run, stream_read_piece);
		break;
	case BUILTIN_UNKNOWN:
	case BUILTIN_COUNT:
		break;
	}
}
