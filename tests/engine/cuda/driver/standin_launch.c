/* Modules of the stand-in, whose kernels are those of the PTX text or the cubin; launches, captures and graphs. See
 * standin.c. */
#include "tests/engine/cuda/driver/standin.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARED_PLAIN = 48 << 10, PARAMETERS = 64, MODULE_KERNELS = 64, HEAD_BYTES = 8192 };

// ---- modules ----

struct CUfunc_st {
	char name[128];
	uint32_t count, bytes[PARAMETERS]; // of its parameters
	uint32_t shared_most;
	CUmodule module;
};
struct CUmod_st {
	struct CUfunc_st *functions;
	size_t count;
	int device;
};
struct CUlinkState_st {
	void *image;
	size_t bytes;
};

// One parameter, as in ".param .align 8 .b8 x[80]": the last type's width, times the number in brackets.
static uint32_t parameter_bytes(const char *text, size_t length)
{
	uint32_t bytes = 0, count = 1;
	for (size_t i = 0; i + 2 < length; i++) {
		if (text[i] == '.' && strchr("busf", text[i + 1]) && text[i + 2] >= '1' && text[i + 2] <= '9')
			bytes = (uint32_t)strtoul(text + i + 2, NULL, 10) / 8;
		if (text[i] == '[')
			count = (uint32_t)strtoul(text + i + 1, NULL, 10);
	}
	return bytes * count;
}

static void read_entry(struct CUfunc_st *function, const char *text)
{
	size_t length = strcspn(text, " \t\r\n({");
	const char *rest = text + length + strspn(text + length, " \t\r\n");
	snprintf(function->name, sizeof(function->name), "%.*s", (int)length, text);
	function->shared_most = SHARED_PLAIN;
	while (*rest == '(' || *rest == ',') {
		size_t one = strcspn(++rest, ",)");
		uint32_t bytes = parameter_bytes(rest, one);
		if (bytes && function->count < PARAMETERS)
			function->bytes[function->count++] = bytes;
		rest += one;
	}
}

// Each kernel's head is copied first: the address sanitizer's functions for strings measure all that follows, in each
// call.
static CUresult read_text(struct CUmod_st *module, const char *image)
{
	static const char version[] = ".version", entry[] = ".entry ";
	const char *end = image + strlen(image), *text = memmem(image, (size_t)(end - image), version, strlen(version));
	for (const char *at = text;
	     at && (at = memmem(at, (size_t)(end - at), entry, strlen(entry))) && module->count < MODULE_KERNELS;) {
		char head[HEAD_BYTES];
		at += strlen(entry);
		const char *body = memchr(at, '{', (size_t)(end - at));
		size_t length = (size_t)((body ? body : end) - at);
		if (length >= sizeof(head))
			return CUDA_ERROR_INVALID_PTX;
		memcpy(head, at, length);
		head[length] = '\0';
		module->functions[module->count].module = module;
		read_entry(&module->functions[module->count++], head);
	}
	return text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}

// The parameters of a kernel, from its section .nv.info.NAME: records of a kind, an attribute and a value of two bytes,
// which for kind 4 is the length of what follows. Attribute 0x17 is one parameter: its number 4 bytes from there, its
// size in the upper 14 bits of the last 4.
static void read_parameters(struct CUfunc_st *function, const uint8_t *at, size_t length)
{
	enum { SIZED = 4, PARAMETER = 0x17, PARAMETER_BYTES = 12 };
	for (const uint8_t *end = at + length; end - at >= 4;) {
		const bool parameter = at[0] == SIZED && at[1] == PARAMETER;
		uint16_t value, number;
		uint32_t size;
		memcpy(&value, at + 2, sizeof(value));
		at += 4;
		if (parameter && value >= PARAMETER_BYTES && end - at >= PARAMETER_BYTES) {
			memcpy(&number, at + 4, sizeof(number));
			memcpy(&size, at + 8, sizeof(size));
			if (number < PARAMETERS)
				function->bytes[number] = size >> 18;
			if (number < PARAMETERS && number >= function->count)
				function->count = number + 1u;
		}
		at += at[-4] == SIZED ? value : 0;
	}
}

// A cubin is an ELF file; its flags begin with the compute capability.
static CUresult read_cubin(struct CUmod_st *module, const uint8_t *image)
{
	static const char prefix[] = ".nv.info.";
	const Elf64_Ehdr *head = (const Elf64_Ehdr *)(const void *)image;
	const Elf64_Shdr *sections = (const Elf64_Shdr *)(const void *)(image + head->e_shoff);
	const char *names = (const char *)image + sections[head->e_shstrndx].sh_offset;
	const int capability = head->e_flags & 255;
	if (capability / 10 != strikes.capability / 10 || capability > strikes.capability)
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	for (unsigned i = 0; i < head->e_shnum && module->count < MODULE_KERNELS; i++) {
		const char *name = names + sections[i].sh_name;
		if (strncmp(name, prefix, strlen(prefix)) != 0)
			continue;
		struct CUfunc_st *function = &module->functions[module->count++];
		snprintf(function->name, sizeof(function->name), "%s", name + strlen(prefix));
		function->shared_most = SHARED_PLAIN;
		function->module = module;
		read_parameters(function, image + sections[i].sh_offset, sections[i].sh_size);
	}
	return module->count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

static CUresult module_load(CUmodule *out, const void *image, unsigned count, int *options, void **values)
{
	struct CUmod_st *module = calloc(1, sizeof(*module));
	if (module)
		module->functions = calloc(MODULE_KERNELS, sizeof(*module->functions));
	if (!module || !module->functions)
		abort();
	standin_capture_allows("cuModuleLoadDataEx");
	for (unsigned i = 0; i < count; i++)
		if (options[i] == CUDA_JIT_ERROR_LOG)
			*(char *)values[i] = 0;
	CUresult result = memcmp(image, ELFMAG, SELFMAG) ? read_text(module, image) : read_cubin(module, image);
	*out = module;
	if (!result)
		return CUDA_SUCCESS;
	free(module->functions);
	free(module);
	return result;
}

static CUresult module_unload(CUmodule module)
{
	standin_capture_allows("cuModuleUnload");
	if (standin_in_use(module))
		strike_wrong("a module is unloaded that pending work uses");
	free(module->functions);
	free(module);
	return CUDA_SUCCESS;
}

static CUresult module_function(CUfunction *out, CUmodule module, const char *name)
{
	for (size_t i = 0; i < module->count; i++)
		if (!strcmp(module->functions[i].name, name)) {
			*out = &module->functions[i];
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_NOT_FOUND;
}

static CUresult function_attribute(int *value, int attribute, CUfunction function)
{
	(void)function;
	*value = attribute == CUDA_FUNCTION_MAX_THREADS_PER_BLOCK ? 1024 : 0;
	return CUDA_SUCCESS;
}

static CUresult function_set(CUfunction function, int attribute, int value)
{
	if (attribute == CUDA_FUNCTION_SHARED_BYTES && (value < 0 || value > standin_most_shared()))
		return INVALID_VALUE;
	if (attribute == CUDA_FUNCTION_SHARED_BYTES)
		function->shared_most = (uint32_t)value;
	return CUDA_SUCCESS;
}

static CUresult link_create(unsigned count, int *options, void **values, CUlinkState *out)
{
	(void)count, (void)options, (void)values;
	*out = calloc(1, sizeof(**out));
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult link_add(CUlinkState state, int type, void *data, size_t bytes, const char *name, unsigned count,
			 int *options, void **values)
{
	(void)type, (void)name, (void)count, (void)options, (void)values;
	state->image = malloc(bytes);
	if (!state->image)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(state->image, data, bytes);
	state->bytes = bytes;
	return CUDA_SUCCESS;
}

static CUresult link_complete(CUlinkState state, void **image, size_t *bytes)
{
	*image = state->image;
	*bytes = state->bytes;
	return CUDA_SUCCESS;
}

static CUresult link_destroy(CUlinkState state)
{
	free(state->image);
	free(state);
	return CUDA_SUCCESS;
}

// ---- launches and graphs ----

struct CUgraph_st {
	struct op *ops;
};
struct CUgraphExec_st {
	struct op *ops;
};
// As engine/cuda/kernels/verify.cu.
struct verify_arguments {
	uint64_t in, out, count;
	uint32_t seed;
	float scale, bias;
};

static void verify(void *context)
{
	const struct verify_arguments *with = context;
	const uint8_t *in = standin_place(with->in, 4 * with->count, "verify");
	uint8_t *out = standin_place(with->out, 8 * with->count, "verify");
	for (uint64_t i = 0; in && out && i < with->count; i++) {
		uint32_t x;
		memcpy(&x, in + 4 * i, 4);
		x = (x + (uint32_t)i) ^ with->seed;
		x = (x ^ (x >> 16)) * 2654435761u;
		x = (x ^ (x >> 15)) * 3039394381u;
		x ^= x >> 16;
		const float value = (float)((double)(x >> 8) / 16777216.0 * (double)with->scale + (double)with->bias);
		memcpy(out + 4 * i, &x, 4);
		memcpy(out + 4 * (with->count + i), &value, 4);
	}
}

static void enqueue_verify(CUstream stream, void **arguments)
{
	struct verify_arguments *with = malloc(sizeof(*with));
	if (!with)
		abort();
	memcpy(&with->in, arguments[0], 8);
	memcpy(&with->out, arguments[1], 8);
	memcpy(&with->count, arguments[2], 8);
	memcpy(&with->seed, arguments[3], 4);
	memcpy(&with->scale, arguments[4], 4);
	memcpy(&with->bias, arguments[5], 4);
	standin_enqueue(stream,
			&(struct op){.kind = CALL, .function = verify, .context = with, .kept = (uint8_t *)with});
}

static CUresult launch(const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra)
{
	struct op op = {.kind = KERNEL, .module = function->module};
	uint64_t threads = (uint64_t)config->block_x * config->block_y * config->block_z;
	if (!config->grid_x || !config->grid_y || !config->grid_z || config->grid_y > 65535 || config->grid_z > 65535 ||
	    !threads || extra) {
		strike_wrong("%s: %ux%ux%u blocks of %llu threads", function->name, config->grid_x, config->grid_y,
			     config->grid_z, (unsigned long long)threads);
		return INVALID_VALUE;
	}
	if (threads > 1024)
		return OUT_OF_RESOURCES;
	if (config->shared_bytes > function->shared_most) {
		strike_wrong("%s: %u bytes of shared memory, and %u are allowed", function->name, config->shared_bytes,
			     function->shared_most);
		return INVALID_VALUE;
	}
	for (unsigned i = 0; i < config->attribute_count; i++)
		if (config->attributes[i].id != CUDA_LAUNCH_COOPERATIVE &&
		    config->attributes[i].id != CUDA_LAUNCH_PROGRAMMATIC_SERIAL)
			strike_wrong("%s: launched with attribute %d", function->name, config->attributes[i].id);
	for (uint32_t i = 0; i < function->count; i++)
		for (uint32_t at = 0; at < function->bytes[i]; at += 8) {
			uint64_t word = 0;
			memcpy(&word, (const uint8_t *)arguments[i] + at,
			       function->bytes[i] - at < 8 ? function->bytes[i] - at : 8);
			standin_note_use(&op, word, function->name);
		}
	standin_enqueue(config->stream, &op);
	if (strikes.computes && !strcmp(function->name, "verify"))
		enqueue_verify(config->stream, arguments);
	return CUDA_SUCCESS;
}

static CUresult launch_plain(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
			     unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream,
			     void **arguments, void **extra)
{
	return launch(
		&(CUlaunchConfig){grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, NULL, 0},
		function, arguments, extra);
}

static CUresult capture_begin(CUstream stream, int mode)
{
	(void)mode;
	if (!standin_capture_allows("cuStreamBeginCapture"))
		return INVALID_VALUE;
	stream->capturing = true;
	stream->captured = NULL;
	stream->captured_last = &stream->captured;
	return CUDA_SUCCESS;
}

static CUresult capture_end(CUstream stream, CUgraph *out)
{
	if (!stream->capturing) {
		strike_wrong("a capture ends that did not begin");
		return INVALID_VALUE;
	}
	*out = malloc(sizeof(**out));
	if (!*out)
		abort();
	(*out)->ops = stream->captured;
	stream->captured = NULL;
	stream->capturing = false;
	return CUDA_SUCCESS;
}

static struct op *ops_copy(const struct op *from)
{
	struct op *first = NULL, **last = &first;
	for (; from; from = from->next) {
		*last = malloc(sizeof(**last));
		if (!*last)
			abort();
		**last = *from;
		if (from->kept)
			strike_wrong("a capture with memory of the host that is not pinned");
		(*last)->kept = NULL;
		(*last)->next = NULL;
		last = &(*last)->next;
	}
	return first;
}

static CUresult graph_make(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	(void)flags;
	*out = malloc(sizeof(**out));
	if (!*out)
		abort();
	(*out)->ops = ops_copy(graph->ops);
	return CUDA_SUCCESS;
}

static CUresult graph_launch(CUgraphExec graph, CUstream stream)
{
	for (const struct op *op = graph->ops; op; op = op->next) {
		struct op work = *op;
		work.graph = graph;
		work.use_count = 0;
		for (uint32_t i = 0; i < op->use_count; i++)
			standin_note_use(&work, op->uses[i], "a graph");
		standin_enqueue(stream, &work);
	}
	return CUDA_SUCCESS;
}

static CUresult graph_destroy(CUgraph graph)
{
	standin_ops_free(graph->ops);
	free(graph);
	return CUDA_SUCCESS;
}

static CUresult exec_destroy(CUgraphExec graph)
{
	if (standin_in_use(graph))
		strike_wrong("a graph is destroyed that pending work uses");
	standin_ops_free(graph->ops);
	free(graph);
	return CUDA_SUCCESS;
}

void standin_fill_launches(struct cuda *driver)
{
	driver->cuModuleLoadDataEx = module_load;
	driver->cuModuleUnload = module_unload;
	driver->cuModuleGetFunction = module_function;
	driver->cuFuncGetAttribute = function_attribute;
	driver->cuLaunchKernel = launch_plain;
	driver->cuLinkCreate_v2 = link_create;
	driver->cuLinkAddData_v2 = link_add;
	driver->cuLinkComplete = link_complete;
	driver->cuLinkDestroy = link_destroy;
	driver->cuFuncSetAttribute = function_set;
	driver->cuLaunchKernelEx = launch;
	driver->cuStreamBeginCapture_v2 = capture_begin;
	driver->cuStreamEndCapture = capture_end;
	driver->cuGraphInstantiateWithFlags = graph_make;
	driver->cuGraphLaunch = graph_launch;
	driver->cuGraphDestroy = graph_destroy;
	driver->cuGraphExecDestroy = exec_destroy;
}
