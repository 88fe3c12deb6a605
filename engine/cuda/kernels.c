/* The built-in kernels: from which embedded file each comes, and how it is launched.
 *
 * A file is loaded at the first launch of a kernel of it. A cubin is loaded as it is, within milliseconds. Where this
 * binary has PTX alone for a GPU (images.h), the driver compiles it, which takes 15 to 200 ms a file; what the compiler
 * made is kept in the cache directory, for one compute capability, one version of the driver's interface and one
 * source. (The driver has a cache of its own, which it does not use where it may not write, as in a tenant's process.)
 *
 * Kernels take their arguments in the order and the types of engine/builtin.h.
 */
#include "common/files/embedded.h"
#include "common/files/kernels_built.h"
#include "engine/cuda/device.h"
#include "engine/cuda/images.h"
#include "engine/device/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	BLOCKS_PER_UNIT = 64, // enough to keep memory busy; the kernels step over the rest
	SUM_BLOCKS = 1024,    // at most; 4 bytes each are kept for partial sums
	VECTOR = 4,           // elements at a time
};

static const char *const files[CUDA_FILE_COUNT] = {
	[CUDA_FILE_VECTOR] = "vector",
	[CUDA_FILE_MATMUL] = "matmul",
	[CUDA_FILE_VERIFY] = "verify",
};

static const struct {
	enum cuda_file file;
	const char *name;
} places[CUDA_KERNEL_COUNT] = {
	[BUILTIN_FILL_F32] = {CUDA_FILE_VECTOR, "fill_f32"},
	[BUILTIN_SAXPY_F32] = {CUDA_FILE_VECTOR, "saxpy_f32"},
	[BUILTIN_SUM_F32] = {CUDA_FILE_VECTOR, "sum_partial"},
	[CUDA_SUM_FINISH] = {CUDA_FILE_VECTOR, "sum_finish"},
	[BUILTIN_MATMUL_F32] = {CUDA_FILE_MATMUL, "matmul_128"},
	[CUDA_MATMUL_64] = {CUDA_FILE_MATMUL, "matmul_64"},
	[BUILTIN_VERIFY] = {CUDA_FILE_VERIFY, "verify"},
	[BUILTIN_STREAM_FILL] = {CUDA_FILE_VERIFY, "stream_fill"},
	[BUILTIN_STREAM_READ] = {CUDA_FILE_VERIFY, "stream_read"},
};

CUresult cuda_compile(const struct backend_device *device, CUmodule *module, const char *text,
		      char log[CUDA_SHOWN_LOG_BYTES])
{
	char whole[CUDA_JIT_LOG_BYTES] = "";
	int options[] = {CUDA_JIT_ERROR_LOG, CUDA_JIT_ERROR_LOG_BYTES};
	void *values[] = {whole, (void *)(uintptr_t)(sizeof(whole) - 1)};
	CUmodule loaded;
	CUresult result = device->cuda->cuModuleLoadDataEx(&loaded, text, 2, options, values);
	if (!result)
		*module = loaded;
	size_t length = strnlen(whole, CUDA_SHOWN_LOG_BYTES - 1);
	for (size_t i = 0; i < length; i++)
		log[i] = whole[i] < ' ' || whole[i] > '~' ? ' ' : whole[i];
	log[length] = 0;
	return result;
}

struct cuda_source {
	const char *name;     // of the file, without its ending
	const uint8_t *bytes; // (length), with a 0 behind them
	size_t length;
};

// Compiled kernels as bytes, for the cache; *image stays as it is if the driver cannot give them.
static CUresult compile_image(const struct backend_device *device, const struct cuda_source *source, uint8_t **image,
			      size_t *length)
{
	const struct cuda *cuda = device->cuda;
	CUlinkState state;
	void *bytes = NULL;
	if (!cuda->cuLinkCreate_v2 || !cuda->cuLinkAddData_v2 || !cuda->cuLinkComplete || !cuda->cuLinkDestroy)
		return CUDA_ERROR_NOT_FOUND;
	CUresult result = cuda->cuLinkCreate_v2(0, NULL, NULL, &state);
	if (result)
		return result;
	result = cuda->cuLinkAddData_v2(state, CUDA_JIT_INPUT_PTX, (void *)(uintptr_t)source->bytes, source->length + 1,
					source->name, 0, NULL, NULL);
	if (!result)
		result = cuda->cuLinkComplete(state, &bytes, length);
	uint8_t *copy = !result && *length ? malloc(*length) : NULL;
	if (copy)
		*image = memcpy(copy, bytes, *length); // it goes with the state
	cuda->cuLinkDestroy(state);
	return result;
}

static CUresult load_image(struct backend_device *device, CUmodule *module, const uint8_t *image)
{
	CUmodule loaded;
	CUresult result = image ? device->cuda->cuModuleLoadDataEx(&loaded, image, 0, NULL, NULL)
				: CUDA_ERROR_NOT_FOUND;
	if (!result)
		*module = loaded;
	return result;
}

// From the cache, or into it. Where it fails the PTX has to be compiled as if there were none.
static CUresult load_kept(struct backend_device *device, const struct cuda_source *source, CUmodule *module)
{
	char name[96], head[64];
	uint8_t *image = NULL;
	size_t length = 0;
	if (!device->cache_directory)
		return CUDA_ERROR_NOT_FOUND;
	snprintf(name, sizeof(name), "cuda-%s-%s-%s.cubin", device->capability, device->image->folder, source->name);
	snprintf(head, sizeof(head), "cuda %s %d\n", device->capability, device->cuda->version);
	const struct cache_file file = {.directory = device->cache_directory,
					.name = name,
					.head = head,
					.source = source->bytes,
					.source_bytes = source->length};
	cache_read(&file, &image);
	CUresult result = load_image(device, module, image);
	if (result && !cuda_lost(result) && device->cache_writable) {
		free(image);
		image = NULL;
		result = compile_image(device, source, &image, &length);
		if (!result)
			result = load_image(device, module, image);
		if (!result)
			cache_write(&file, image, length);
	}
	free(image);
	return result;
}

enum status cuda_kernels_choose(struct backend_device *device, struct error *error)
{
	struct kernels_built built;
	kernels_built_read(&built);
	return cuda_image_choose(&device->image, &built, 10 * device->major + device->minor, device->cuda->version,
				 error);
}

static enum status find_file(struct backend_device *device, const char *file_name, const struct embedded_file **file,
			     struct error *error)
{
	char name[96];
	enum status status = device->image ? STATUS_OK : cuda_kernels_choose(device, error);
	if (status)
		return status;
	snprintf(name, sizeof(name), "kernels/cuda/%s/%s.%s.gz", device->image->folder, file_name,
		 device->image->ptx ? "ptx" : "cubin");
	*file = embedded_find(name);
	return *file ? STATUS_OK : error_set(error, STATUS_UNAVAILABLE, "this binary has no %s", name);
}

// PTX, which ends with a 0, from the cache or compiled.
static enum status load_text(struct backend_device *device, const struct cuda_source *source, CUmodule *module,
			     struct error *error)
{
	char log[CUDA_SHOWN_LOG_BYTES] = "";
	CUresult result = load_kept(device, source, module);
	if (result && !cuda_lost(result))
		result = cuda_compile(device, module, (const char *)source->bytes, log);
	if (!result)
		return STATUS_OK;
	if (result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
		error_hint(error, "install a newer NVIDIA driver, or build with clang, whose PTX older drivers read");
	else if (log[0])
		error_hint(error, "the driver's compiler says: %s", log);
	return cuda_failed(device->cuda, error, "cuModuleLoadDataEx", result);
}

static enum status load_machine_code(struct backend_device *device, const struct cuda_source *source, CUmodule *module,
				     struct error *error)
{
	CUresult result = load_image(device, module, source->bytes);
	if (!result)
		return STATUS_OK;
	if (result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_NO_BINARY_FOR_GPU)
		error_hint(error, "install a newer NVIDIA driver; until then this GPU is used through Vulkan");
	return cuda_failed(device->cuda, error, "cuModuleLoadDataEx", result);
}

enum status cuda_kernels_load(struct backend_device *device, const char *file_name, CUmodule *module,
			      struct error *error)
{
	const struct embedded_file *file;
	uint8_t *bytes = NULL;
	struct cuda_source source = {.name = file_name};
	enum status status = *module ? STATUS_OK : find_file(device, file_name, &file, error);
	if (status || *module)
		return status;
	status = embedded_inflate(file, &bytes, &source.length, error);
	source.bytes = bytes;
	if (!status)
		status = device->image->ptx ? load_text(device, &source, module, error)
					    : load_machine_code(device, &source, module, error);
	free(bytes);
	return status;
}

enum status cuda_kernels_prepare(struct backend_device *device, struct error *error)
{
	const struct embedded_file *file;
	enum status status = STATUS_OK;
	for (unsigned i = 0; !status && i < CUDA_FILE_COUNT; i++) {
		status = find_file(device, files[i], &file, error);
		if (!status && device->image->ptx && device->cache_directory && device->cache_writable)
			status = cuda_kernels_load(device, files[i], &device->files[i], error);
	}
	return status;
}

static enum status find_kernel(struct backend_device *device, unsigned which, struct error *error)
{
	CUfunction function;
	CUmodule *file = &device->files[places[which].file];
	if (device->kernels[which])
		return STATUS_OK;
	enum status status = cuda_kernels_load(device, files[places[which].file], file, error);
	if (status)
		return status;
	CUresult result = device->cuda->cuModuleGetFunction(&function, *file, places[which].name);
	if (!result)
		device->kernels[which] = function;
	return cuda_check(device, error, "cuModuleGetFunction", result);
}

void cuda_pack(struct cuda_arguments *arguments, const struct backend_launch *launch)
{
	for (unsigned i = 0; i < launch->argument_count; i++) {
		const struct backend_argument *argument = &launch->arguments[i];
		arguments->values[i] = argument->kind == EXOGPU_ARGUMENT_BUFFER ? argument->buffer->pointer
										: argument->bits;
		arguments->pointers[i] = &arguments->values[i]; // little-endian: 4-byte values, too, begin there
	}
}

static enum status run(struct backend_stream *stream, unsigned which, uint64_t blocks, struct cuda_arguments *arguments,
		       struct error *error)
{
	struct backend_device *device = stream->device;
	enum status status = blocks ? find_kernel(device, which, error) : STATUS_OK;
	if (status || !blocks)
		return status;
	CUresult result = device->cuda->cuLaunchKernel(device->kernels[which], (unsigned)blocks, 1, 1, CUDA_BLOCK, 1, 1,
						       0, stream->stream, arguments->pointers, NULL);
	return cuda_check(device, error, places[which].name, result);
}

// The number of blocks (0 for n = 0) for `n` elements, if a thread takes `each` at a time.
static uint64_t blocks_for(const struct backend_device *device, uint64_t n, unsigned each)
{
	uint64_t most = (uint64_t)device->units * BLOCKS_PER_UNIT;
	uint64_t blocks = n / (each * CUDA_BLOCK) + (n % (each * CUDA_BLOCK) > 0);
	return blocks < most ? blocks : most;
}

// The number of blocks depends on n alone, so the order of the additions is always the same.
static enum status run_sum(struct backend_stream *stream, const struct cuda_arguments *arguments, struct error *error)
{
	struct backend_device *device = stream->device;
	uint64_t n = arguments->values[2], blocks = n / (VECTOR * CUDA_BLOCK) + 1;
	struct cuda_arguments one = {{0}, {0}}, two = {{0}, {0}};
	if (!stream->partials) {
		CUresult result = device->cuda->cuMemAlloc_v2(&stream->partials, SUM_BLOCKS * sizeof(float));
		if (result) {
			stream->partials = 0;
			return cuda_failed(device->cuda, error, "cuMemAlloc", result);
		}
	}
	blocks = blocks < SUM_BLOCKS ? blocks : SUM_BLOCKS;
	one.values[0] = two.values[1] = stream->partials;
	one.values[1] = arguments->values[1];
	one.values[2] = n;
	two.values[0] = arguments->values[0];
	two.values[2] = blocks;
	for (unsigned i = 0; i < 3; i++) {
		one.pointers[i] = &one.values[i];
		two.pointers[i] = &two.values[i];
	}
	enum status status = run(stream, BUILTIN_SUM_F32, blocks, &one, error);
	return status ? status : run(stream, CUDA_SUM_FINISH, 1, &two, error);
}

static uint64_t tiles(uint64_t m, uint64_t n, uint64_t side)
{
	return ((m + side - 1) / side) * ((n + side - 1) / side);
}

// A large tile is four small ones and takes about as long as three (seen on an H200: 47 and 36 TFLOP/s). What counts is
// how many the busiest multiprocessor gets.
static enum status run_matmul(struct backend_stream *stream, struct cuda_arguments *arguments, struct error *error)
{
	uint64_t m = arguments->values[3], n = arguments->values[4], units = stream->device->units;
	uint64_t large = tiles(m, n, 128), small = tiles(m, n, 64);
	if (3 * ((large + units - 1) / units) <= (small + units - 1) / units)
		return run(stream, BUILTIN_MATMUL_F32, large, arguments, error);
	return run(stream, CUDA_MATMUL_64, small, arguments, error);
}

enum status cuda_kernels_launch(struct backend_stream *stream, const struct backend_launch *launch, struct error *error)
{
	enum builtin_kernel kernel = (enum builtin_kernel)(launch->kernel + 1);
	const struct backend_device *device = stream->device;
	struct cuda_arguments arguments;
	cuda_pack(&arguments, launch);
	const uint64_t *values = arguments.values;
	switch (kernel) {
	case BUILTIN_FILL_F32:
		return run(stream, kernel, blocks_for(device, values[2], VECTOR), &arguments, error);
	case BUILTIN_SAXPY_F32:
		return run(stream, kernel, blocks_for(device, values[3], VECTOR), &arguments, error);
	case BUILTIN_SUM_F32:
		return run_sum(stream, &arguments, error);
	case BUILTIN_MATMUL_F32:
		return run_matmul(stream, &arguments, error);
	case BUILTIN_VERIFY:
	case BUILTIN_STREAM_READ:
		return run(stream, kernel, blocks_for(device, values[2], 1), &arguments, error);
	case BUILTIN_STREAM_FILL:
		return run(stream, kernel, blocks_for(device, values[1], 1), &arguments, error);
	case BUILTIN_UNKNOWN:
	case BUILTIN_COUNT:
		break;
	}
	return error_set(error, STATUS_NOT_FOUND, "there is no built-in kernel %u", launch->kernel);
}
