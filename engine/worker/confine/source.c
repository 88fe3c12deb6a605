/* See source.h. */
#include "engine/worker/confine/source.h"

#include "common/base/limits.h"
#include "engine/nvrtc/nvrtc.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#define TRIAL "extern \"C\" __global__ void trial(float *x) { x[threadIdx.x] += sqrtf(x[0]); }"

static void on_time_over(int number)
{
	static const char text[] = "it took more of a processor's time than it may\n";
	(void)number;
	_exit(write(STDERR_FILENO, text, sizeof text - 1) < 0 ? 2 : 1);
}

// Before the sandbox, which does not let it: a process that is over them ends.
static enum status limit(const struct source_params *params, struct error *error)
{
	const struct {
		__rlimit_resource_t resource;
		rlim_t soft, hard;
	} limits[] = {
		{RLIMIT_CPU, (rlim_t)params->limit_s, (rlim_t)params->limit_s + 1},
		{RLIMIT_FSIZE, 0, 0},
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // those take terabytes of addresses
		{RLIMIT_AS, (rlim_t)params->limit_mib << 20, (rlim_t)params->limit_mib << 20},
#endif
	};
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		if (setrlimit(limits[i].resource, &(struct rlimit){limits[i].soft, limits[i].hard}))
			return error_errno(error, STATUS_UNAVAILABLE, errno, "limiting a compiler");
	// The first process of a namespace gets only signals that it has a handler for.
	if (sigaction(SIGXCPU, &(struct sigaction){.sa_handler = on_time_over}, NULL))
		return error_errno(error, STATUS_UNAVAILABLE, errno, "limiting a compiler");
	return STATUS_OK;
}

static enum status read_source(int fd, struct buffer *source, struct error *error)
{
	uint8_t piece[16384];
	ssize_t got;
	while ((got = read(fd, piece, sizeof(piece))) > 0)
		if (buffer_append(source, piece, (size_t)got))
			return error_set(error, STATUS_LIMIT_EXCEEDED, "CUDA C has at most %d KiB",
					 LIMIT_CUDA_SOURCE_BYTES / 1024);
	return got < 0 ? error_errno(error, STATUS_UNAVAILABLE, errno, "reading the source") : STATUS_OK;
}

// What a person's terminal would take for more than text.
static void clean(struct buffer *text)
{
	for (size_t i = 0; i < text->length; i++)
		if ((text->data[i] < 0x20 && text->data[i] != '\n') || text->data[i] == 0x7f)
			text->data[i] = text->data[i] == '\t' ? ' ' : '?';
}

// Whatever it loads late, it loads now.
static enum status try_out(struct nvrtc *nvrtc, int architecture, struct error *error)
{
	struct buffer ptx, log;
	buffer_init(&ptx, NVRTC_PTX_BYTES);
	buffer_init(&log, NVRTC_LOG_BYTES);
	enum status status = nvrtc_compile(nvrtc, TRIAL, architecture, &ptx, &log, error);
	buffer_finish(&ptx);
	buffer_finish(&log);
	return status == STATUS_INVALID_PARAMS ? STATUS_UNAVAILABLE : status;
}

static enum status compile(struct nvrtc *nvrtc, const struct source_params *params, struct json **result,
			   struct error *error)
{
	struct buffer source, ptx, log;
	buffer_init(&source, LIMIT_CUDA_SOURCE_BYTES);
	buffer_init(&ptx, NVRTC_PTX_BYTES);
	buffer_init(&log, NVRTC_LOG_BYTES);
	enum status status = read_source(params->fd, &source, error);
	if (!status)
		status = nvrtc_compile(nvrtc, buffer_text(&source), params->architecture, &ptx, &log, error);
	if (!status || status == STATUS_INVALID_PARAMS) {
		clean(&log);
		*result = json_new_object();
		json_set_string(*result, "ptx", status ? NULL : buffer_text(&ptx));
		json_set_string(*result, "log", buffer_text(&log));
		*error = (struct error){0};
		status = STATUS_OK;
	}
	buffer_finish(&source);
	buffer_finish(&ptx);
	buffer_finish(&log);
	return status;
}

enum status source_compile(const struct source_params *params, struct json **result, struct error *error)
{
	struct nvrtc *nvrtc = NULL;
	static struct sandbox sandbox;
	struct sandbox_params confined = params->sandbox;
	enum status status = limit(params, error);
	if (!status)
		status = nvrtc_load(&nvrtc, params->most_version, error);
	if (!status)
		status = try_out(nvrtc, params->architecture, error);
	if (status)
		return status;
	confined.backend = BACKEND_CPU;
	confined.narrow = true;
	confined.only = nvrtc_headers(nvrtc);
	sandbox_apply(&sandbox, &confined);
	status = params->entered(params->arg, &sandbox);
	if (!status && !sandbox.confined) {
		error_hint(error, "run the node on a kernel with seccomp and Landlock, or load PTX");
		status = error_set(error, STATUS_UNAVAILABLE, "CUDA C is compiled by fully confined workers only");
	}
	return status ? status : compile(nvrtc, params, result, error); // the process ends: nothing is unloaded
}
