/* See old_kernels.h. The loops are plain C that the compiler vectorises for the base level of the architecture: reading
 * memory is bound by memory, and verification wants the same rounding everywhere, not speed. */
#include "engine/cpu/old_kernels.h"

#include "common/base/clock.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

enum { CPU_THREADS = 256 };

struct piece {
	const struct cpu_launch *launch;
	pthread_mutex_t *gate;
	uint32_t first, count; // elements
	int64_t began_ns, ended_ns;
};

static uint32_t mix(uint32_t x, uint32_t seed)
{
	x ^= seed;
	x = (x ^ (x >> 16)) * 0x9e3779b1u;
	x = (x ^ (x >> 15)) * 0xb5297a4du;
	return x ^ (x >> 16);
}

static float as_float(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

static void kernel_verify(const struct piece *piece)
{
	const uint32_t *in = piece->launch->buffers[0], *constants = piece->launch->constants;
	uint32_t *out = piece->launch->buffers[1];
	float scale = as_float(constants[1]), bias = as_float(constants[2]);
	for (uint32_t i = piece->first; i < piece->first + piece->count; i++) {
		uint32_t hash = mix(in[i] + i, constants[0]);
		float value = fmaf((float)(hash >> 8) * 0x1p-24f, scale, bias);
		out[i] = hash;
		memcpy(&out[(size_t)piece->launch->elements + i], &value, sizeof(value));
	}
}

static void kernel_stream_fill(const struct piece *piece)
{
	uint32_t *data = piece->launch->buffers[0];
	size_t end = 4 * ((size_t)piece->first + piece->count);
	for (size_t i = 4 * (size_t)piece->first; i < end; i++)
		data[i] = mix((uint32_t)i, piece->launch->constants[0]);
}

typedef uint32_t lanes __attribute__((vector_size(16))); // one 16-byte load, whatever the compiler is told to optimise

// Eight streams a thread: one alone leaves memory waiting for the prefetcher.
static void kernel_stream_read(const struct piece *piece)
{
	enum { STREAMS = 8 };
	const lanes *data = (const lanes *)piece->launch->buffers[0] + piece->first;
	size_t count = piece->count / STREAMS;
	lanes sums[STREAMS] = {{0}};
	for (size_t i = 0; i < count; i++)
		for (size_t stream = 0; stream < STREAMS; stream++)
			sums[stream] ^= data[stream * count + i];
	for (size_t stream = 1; stream < STREAMS; stream++)
		sums[0] ^= sums[stream];
	uint32_t all = sums[0][0] ^ sums[0][1] ^ sums[0][2] ^ sums[0][3];
	__asm__ volatile("" : : "r"(all)); // the sum is not wanted, only that the bytes were read
}

static void run_piece(struct piece *piece)
{
	for (unsigned i = 0; i < piece->launch->repeat; i++)
		switch (piece->launch->kernel) {
		case KERNEL_VERIFY:
			kernel_verify(piece);
			break;
		case KERNEL_STREAM_FILL:
			kernel_stream_fill(piece);
			break;
		case KERNEL_STREAM_READ:
			kernel_stream_read(piece);
			break;
		case KERNEL_UNKNOWN:
		case KERNEL_COUNT:
			break;
		}
}

static void *piece_thread(void *arg)
{
	struct piece *piece = arg;
	pthread_mutex_lock(piece->gate);
	pthread_mutex_unlock(piece->gate);
	piece->began_ns = clock_steady_ns();
	run_piece(piece);
	piece->ended_ns = clock_steady_ns();
	return NULL;
}

static int64_t span_ns(const struct piece *pieces, unsigned count)
{
	int64_t first = pieces[0].began_ns, last = pieces[0].ended_ns;
	for (unsigned i = 1; i < count; i++) {
		first = pieces[i].began_ns < first ? pieces[i].began_ns : first;
		last = pieces[i].ended_ns > last ? pieces[i].ended_ns : last;
	}
	return last - first;
}

enum status cpu_launch_run(const struct cpu_launch *launch, int64_t *device_ns, struct error *error)
{
	if (launch->kernel <= KERNEL_UNKNOWN || launch->kernel >= KERNEL_COUNT)
		return error_set(error, STATUS_NOT_FOUND, "the CPU back end has no kernel %d", (int)launch->kernel);
	unsigned count = launch->threads < 1             ? 1
			 : launch->threads > CPU_THREADS ? CPU_THREADS
							 : (unsigned)launch->threads;
	struct piece pieces[CPU_THREADS];
	pthread_t threads[CPU_THREADS];
	pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; // held until all are there, so that they begin together
	uint32_t share = launch->elements / count;
	for (unsigned i = 0; i < count; i++)
		pieces[i] = (struct piece){.launch = launch,
					   .gate = &gate,
					   .first = i * share,
					   .count = i + 1 < count ? share : launch->elements - i * share};
	unsigned started = 0;
	pthread_mutex_lock(&gate);
	while (started < count && !pthread_create(&threads[started], NULL, piece_thread, &pieces[started]))
		started++;
	pthread_mutex_unlock(&gate);
	for (unsigned i = started; i < count; i++) // no more threads to be had: slower, not wrong
		piece_thread(&pieces[i]);
	for (unsigned i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	pthread_mutex_destroy(&gate);
	if (device_ns)
		*device_ns = span_ns(pieces, count);
	return STATUS_OK;
}
