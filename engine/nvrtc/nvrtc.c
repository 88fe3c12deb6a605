/* See nvrtc.h. The types and numbers are those of nvrtc.h of the CUDA toolkit, whose interface has not changed since
 * version 11.2. */
#include "engine/nvrtc/nvrtc.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct nvrtc_program; // the library's
enum { OUT_OF_MEMORY = 1, INVALID_OPTION = 5, COMPILATION = 6, ARCHITECTURE_SPECIFIC = 90 };

#define SYMBOLS(X) \
	X(nvrtcVersion, (int *major, int *minor)) \
	X(nvrtcGetNumSupportedArchs, (int *count)) \
	X(nvrtcGetSupportedArchs, (int *architectures)) \
	X(nvrtcCreateProgram, (struct nvrtc_program * *program, const char *source, const char *name, \
			       int header_count, const char *const *headers, const char *const *names)) \
	X(nvrtcDestroyProgram, (struct nvrtc_program * *program)) \
	X(nvrtcCompileProgram, (struct nvrtc_program * program, int option_count, const char *const *options)) \
	X(nvrtcGetPTXSize, (struct nvrtc_program * program, size_t * bytes)) \
	X(nvrtcGetPTX, (struct nvrtc_program * program, char *text)) \
	X(nvrtcGetProgramLogSize, (struct nvrtc_program * program, size_t * bytes)) \
	X(nvrtcGetProgramLog, (struct nvrtc_program * program, char *text))

struct nvrtc {
	void *library;
	int version;
	char headers[NVRTC_PATH_BYTES]; // "": none
#define X(symbol, parameters) int(*symbol) parameters;
	SYMBOLS(X)
#undef X
};

// Newest first: of the numbers of libraries that there are, and those of the toolkit's own folder.
static const char *const files[] = {"libnvrtc.so.13",   "/usr/local/cuda/lib64/libnvrtc.so.13",
				    "libnvrtc.so.12",   "/usr/local/cuda/lib64/libnvrtc.so.12",
				    "libnvrtc.so.11.2", "/usr/local/cuda/lib64/libnvrtc.so.11.2"};

static void find_headers(struct nvrtc *nvrtc)
{
	char folder[NVRTC_PATH_BYTES] = "", path[NVRTC_PATH_BYTES + 32];
	Dl_info info;
	if (dladdr(*(void **)&nvrtc->nvrtcVersion, &info) && info.dli_fname &&
	    strlen(info.dli_fname) < sizeof(folder) - 16) {
		snprintf(folder, sizeof(folder), "%s", info.dli_fname);
		char *slash = strrchr(folder, '/');
		snprintf(slash ? slash : folder, 16, "%s", "/../include");
	}
	const char *const places[] = {folder, "/usr/local/cuda/include", "/usr/include"};
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && !nvrtc->headers[0]; i++) {
		char real[4096];
		snprintf(path, sizeof(path), "%s/cuda_fp16.h", places[i]);
		if (places[i][0] == '/' && !access(path, R_OK) && realpath(places[i], real) &&
		    strlen(real) < sizeof(nvrtc->headers))
			snprintf(nvrtc->headers, sizeof(nvrtc->headers), "%.*s", NVRTC_PATH_BYTES - 1, real);
	}
}

static bool load_one(struct nvrtc *nvrtc, const char *file, int most_version)
{
	int major = 0, minor = 0;
	bool whole = true;
	nvrtc->library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
	if (!nvrtc->library)
		return false;
#define X(symbol, parameters) \
	*(void **)&nvrtc->symbol = dlsym(nvrtc->library, #symbol); \
	whole = whole && nvrtc->symbol;
	SYMBOLS(X)
#undef X
	if (whole && !nvrtc->nvrtcVersion(&major, &minor))
		nvrtc->version = major * 1000 + minor * 10;
	if (nvrtc->version && nvrtc->version <= most_version)
		return true;
	dlclose(nvrtc->library);
	*nvrtc = (struct nvrtc){0};
	return false;
}

enum status nvrtc_load(struct nvrtc **out, int most_version, struct error *error)
{
	struct nvrtc *nvrtc = *out = calloc(1, sizeof(*nvrtc));
	if (!nvrtc)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (load_one(nvrtc, files[i], most_version)) {
			find_headers(nvrtc);
			return STATUS_OK;
		}
	nvrtc_unload(out);
	error_hint(error, "install CUDA's libnvrtc, of a version no newer than the driver's, on the device's node; or "
			  "compile to PTX and load that");
	return error_set(error, STATUS_UNAVAILABLE, "there is no NVRTC on this node that fits its driver");
}

void nvrtc_unload(struct nvrtc **nvrtc)
{
	if (*nvrtc && (*nvrtc)->library)
		dlclose((*nvrtc)->library);
	free(*nvrtc);
	*nvrtc = NULL;
}

int nvrtc_version(const struct nvrtc *nvrtc)
{
	return nvrtc->version;
}

const char *nvrtc_headers(const struct nvrtc *nvrtc)
{
	return nvrtc->headers[0] ? nvrtc->headers : NULL;
}

// The newest that it knows, and no newer than the GPU's; 0: there is none.
static int known_architecture(struct nvrtc *nvrtc, int architecture)
{
	int known[256] = {0}, count = 0, best = 0;
	if (nvrtc->nvrtcGetNumSupportedArchs(&count) || count < 1 || count > 256)
		return 0;
	if (nvrtc->nvrtcGetSupportedArchs(known))
		return 0;
	for (int i = 0; i < count; i++)
		if (known[i] <= architecture && known[i] > best)
			best = known[i];
	return best;
}

static int compile_for(struct nvrtc *nvrtc, struct nvrtc_program *program, int architecture, const char *suffix)
{
	char target[64], include[NVRTC_PATH_BYTES + 32];
	const char *options[] = {target, include};
	snprintf(target, sizeof(target), "--gpu-architecture=compute_%d%s", architecture, suffix);
	snprintf(include, sizeof(include), "--include-path=%s", nvrtc->headers);
	return nvrtc->nvrtcCompileProgram(program, nvrtc->headers[0] ? 2 : 1, options);
}

// Append what it has to say, as long as it is. False: there is no memory, or no room.
static bool append(struct nvrtc *nvrtc, struct nvrtc_program *program, bool ptx, struct buffer *out)
{
	size_t bytes = 0;
	int (*const size)(struct nvrtc_program *, size_t *) = ptx ? nvrtc->nvrtcGetPTXSize
								  : nvrtc->nvrtcGetProgramLogSize;
	int (*const text)(struct nvrtc_program *, char *) = ptx ? nvrtc->nvrtcGetPTX : nvrtc->nvrtcGetProgramLog;
	if (size(program, &bytes) || !bytes)
		return true;
	char *copy = malloc(bytes);
	bool fits = copy != NULL;
	if (fits && !text(program, copy)) {
		size_t length = strnlen(copy, bytes), room = out->maximum - out->length;
		if (!ptx && length > room) // of a log the beginning is what matters
			length = room;
		fits = !buffer_append(out, copy, length);
	}
	free(copy);
	return fits;
}

enum status nvrtc_compile(struct nvrtc *nvrtc, const char *source, int architecture, struct buffer *ptx,
			  struct buffer *log, struct error *error)
{
	struct nvrtc_program *program = NULL;
	const int known = known_architecture(nvrtc, architecture);
	if (!known)
		return error_set(error, STATUS_UNAVAILABLE, "NVRTC %d.%d is too new for this GPU",
				 nvrtc->version / 1000, nvrtc->version % 1000 / 10);
	if (nvrtc->nvrtcCreateProgram(&program, source, "source.cu", 0, NULL, NULL))
		return error_set(error, STATUS_OUT_OF_MEMORY, "NVRTC has no memory");
	// What only this GPU has (compute_90a), where it is known exactly.
	int result = INVALID_OPTION;
	if (known == architecture && architecture >= ARCHITECTURE_SPECIFIC)
		result = compile_for(nvrtc, program, known, "a");
	if (result == INVALID_OPTION)
		result = compile_for(nvrtc, program, known, "");
	append(nvrtc, program, false, log);
	enum status status = STATUS_OK;
	if (result == COMPILATION)
		status = error_set(error, STATUS_INVALID_PARAMS, "NVRTC rejects this source");
	else if (result)
		status = error_set(error, result == OUT_OF_MEMORY ? STATUS_OUT_OF_MEMORY : STATUS_UNAVAILABLE,
				   "NVRTC failed (%d)", result);
	else if (!append(nvrtc, program, true, ptx))
		status = error_set(error, STATUS_LIMIT_EXCEEDED, "it compiles to more than %d KiB of PTX",
				   NVRTC_PTX_BYTES / 1024);
	nvrtc->nvrtcDestroyProgram(&program);
	return status;
}
