/* See sources.h. */
#include "engine/node/workers/sources.h"

#include "common/base/longer.h"
#include "engine/nvrtc/nvrtc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { AT_ONCE = 2, DEADLINE_MS = 50000, LIMIT_S = 30, LIMIT_MIB = 3072 };

struct sources {
	struct children *children;
	struct device_table *table;
	unsigned under_way;
};

struct compilation {
	struct sources *sources;
	sources_done *done;
	void *context;
};

enum status sources_create(struct sources **out, struct net_loop *loop, const struct contract *contract,
			   struct device_table *table)
{
	struct sources *sources = *out = calloc(1, sizeof(*sources));
	if (!sources)
		return STATUS_OUT_OF_MEMORY;
	sources->table = table;
	const enum status status = children_create(&sources->children, loop, contract);
	if (status)
		sources_destroy(out);
	return status;
}

void sources_destroy(struct sources **sources)
{
	if (!*sources)
		return;
	children_destroy(&(*sources)->children);
	free(*sources);
	*sources = NULL;
}

// What NVRTC is to compile for. Errors: STATUS_NOT_FOUND, STATUS_UNAVAILABLE.
static enum status find_target(struct sources *sources, const char *device_id, int *architecture, int *most_version,
			       struct error *error)
{
	int major = 0, minor = 0;
	const struct device_record *record = device_table_find(sources->table, device_id);
	const struct device_info *info = record ? &record->apis[BACKEND_CUDA].info : NULL;
	if (!record)
		return error_set(error, STATUS_NOT_FOUND, "this node has no device %s", device_id);
	const char *capability = strstr(info->features, "compute_");
	if (!record->apis[BACKEND_CUDA].known || !strstr(info->features, NVRTC_FEATURE) || !capability ||
	    sscanf(capability, "compute_%d.%d", &major, &minor) != 2) {
		error_hint(error, "install CUDA's libnvrtc there, no newer than the driver, or load PTX");
		return error_set(error, STATUS_UNAVAILABLE, "CUDA C is compiled where NVRTC is, and it is not on %s",
				 info->name);
	}
	*architecture = 10 * major + minor;
	*most_version = sscanf(info->api_version, "%d.%d", &major, &minor) == 2 ? 1000 * major + 10 * minor : 0;
	return STATUS_OK;
}

// A file of memory with the source. -1 with errno.
static int put_into_file(const char *source)
{
	const size_t length = strlen(source);
	int fd = memfd_create("exogpu-source", MFD_CLOEXEC);
	if (fd >= 0 && (write(fd, source, length) != (ssize_t)length || lseek(fd, 0, SEEK_SET))) {
		close(fd);
		fd = -1;
	}
	return fd;
}

static void compiled(void *arg, const struct child_outcome *outcome)
{
	struct compilation *compilation = arg;
	struct error error = {0};
	compilation->sources->under_way--;
	if (outcome->status == STATUS_TIMEOUT) {
		error_set(&error, STATUS_TIMEOUT, "the source was not compiled within %d s", DEADLINE_MS / 1000);
	} else if (outcome->status) {
		error = *outcome->error;
	}
	if (outcome->status && !error.hint[0])
		error_hint(&error, "make it smaller, or compile to PTX and load that");
	compilation->done(compilation->context, outcome->status ? NULL : json_copy(outcome->result),
			  outcome->status ? &error : NULL);
	free(compilation);
}

// The node ends.
static void dropped(void *arg)
{
	struct compilation *compilation = arg;
	struct error error = {0};
	error_set(&error, STATUS_UNAVAILABLE, "the node ends");
	compilation->done(compilation->context, NULL, &error);
	free(compilation);
}

static enum status begin(struct sources *sources, const struct json *params, sources_done *done, void *context,
			 struct error *error)
{
	int architecture = 0, most_version = 0;
	enum status status = find_target(sources, json_get_string(params, "device_id", ""), &architecture,
					 &most_version, error);
	if (status)
		return status;
	if (sources->under_way >= AT_ONCE) {
		error_hint(error, "try again in some seconds");
		return error_set(error, STATUS_LIMIT_EXCEEDED, "the node compiles %d sources already", AT_ONCE);
	}
	int fd = put_into_file(json_get_string(params, "source", ""));
	if (fd < 0)
		return error_errno(error, STATUS_UNAVAILABLE, errno, "keeping the source");
	struct compilation *compilation = malloc(sizeof(*compilation));
	if (!compilation) {
		close(fd);
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for a compilation");
	}
	*compilation = (struct compilation){sources, done, context};
	struct json *given = json_new_object();
	json_set_integer(given, "architecture", architecture);
	json_set_integer(given, "most_version", most_version);
	json_set_integer(given, "limit_s", lower_in_tests("EXOGPU_TEST_SOURCE_S", LIMIT_S));
	json_set_integer(given, "limit_mib", lower_in_tests("EXOGPU_TEST_SOURCE_MIB", LIMIT_MIB));
	sources->under_way++;
	children_call(sources->children,
		      &(struct child_call){.method = "worker.source",
					   .params = given,
					   .given = fd,
					   .deadline_ms = lower_in_tests("EXOGPU_TEST_SOURCE_MS", DEADLINE_MS),
					   .done = compiled,
					   .drop = dropped,
					   .arg = compilation});
	close(fd); // the worker has it, or the call has failed
	return STATUS_OK;
}

void sources_compile(struct sources *sources, const struct json *params, sources_done *done, void *context)
{
	struct error error = {0};
	if (begin(sources, params, done, context, &error))
		done(context, NULL, &error);
}
