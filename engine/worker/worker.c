/* See worker.h. The order of reading: worker_main, serve_first, methods.
 *
 * Owns the socket on descriptor 3. Parameters are checked against the contract before anything runs, as everywhere.
 * It leaves with _exit: a driver's exit handlers have crashed and hung before, and the answer has been sent by then. */
#include "engine/worker/worker.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/wire/contract.h"
#include "engine/backend.h"
#include "engine/stage.h"
#include "engine/worker/confine/sandbox.h"
#include "engine/worker/confine/source.h"
#include "engine/worker/fault.h"
#include "engine/worker/instance/instance.h"
#include "engine/worker/node_end.h"
#include "engine/worker/session.h"
#include "engine/worker/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COMPILE_NICE = 10 };

static const char usage[] =
	"usage: exogpu worker [--parent PID] [--namespaces FLAGS] [--refused ERRNO] [--user UID] [--group GID]\n"
	"Started by `exogpu node` with a socket on descriptor 3; not meant to be started by hand.\n";

// Values from the command line, which the node writes (engine/node/workers/spawn.h); 0: not given.
static struct {
	long parent;
	long namespaces;  // CLONE_NEW..., that this process was made in
	long refused;     // why not in all of them: an errno value
	long user, group; // the node's, which cannot be seen from a new user namespace
} started;

// Restrictions that harm no driver: no new privileges, no core files (they would hold a tenant's memory), and no life
// after the node's.
static enum status confine(pid_t parent, struct error *error)
{
	prctl(PR_SET_NAME, "exogpu-worker"); // started by /proc/self/exe, it would be called exe
	if (prctl(PR_SET_PDEATHSIG, SIGKILL))
		return error_errno(error, STATUS_INTERNAL, errno, "asking to end with the node");
	// From inside a namespace of process ids the node is not seen. One that has ended shows as the end of its
	// socket.
	if (parent && getpid() != 1 && getppid() != parent)
		return error_set(error, STATUS_UNAVAILABLE, "the node ended before its worker began");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return error_errno(error, STATUS_INTERNAL, errno, "giving up new privileges");
	return process_leave_no_core(error);
}

static enum status backend_of(const struct json *params, const struct backend **backend, struct error *error)
{
	const char *name = json_get_string(params, "backend", "");
	*backend = backend_find(backend_kind_parse(name));
	if (!*backend)
		return error_set(error, STATUS_NOT_FOUND, "this build has no back end %s", name);
	return STATUS_OK;
}

static enum status enumerate(const struct json *params, struct json **result, struct error *error)
{
	const struct backend *backend;
	struct found *found = NULL;
	enum status status = backend_of(params, &backend, error);
	if (status)
		return status;
	fault_strike("enumerate", backend->kind);
	found = found_create();
	status = found ? backend->enumerate(found, error) : error_set(error, STATUS_OUT_OF_MEMORY, "no memory");
	if (!status) {
		struct json *libraries = json_new_array(), *devices = json_new_array();
		for (size_t i = 0; i < found->library_count; i++)
			json_push(libraries, library_info_to_json(&found->libraries[i]));
		for (size_t i = 0; i < found->device_count; i++)
			json_push(devices, device_info_to_json(&found->devices[i]));
		*result = json_new_object();
		json_set(*result, "libraries", libraries);
		json_set(*result, "devices", devices);
	}
	found_destroy(&found);
	return status;
}

static enum status open_device(const struct backend *backend, const struct json *params, struct exogpu_device **out,
			       struct error *error)
{
	const char *key = json_get_string(params, "hardware_key", "");
	if (backend->narrow)
		backend->narrow(key, NULL);
	const struct exogpu_open open = {.backend = backend_kind_name(backend->kind),
					 .hardware_key = key,
					 .cache_directory = json_get_string(params, "cache_directory", NULL),
					 .cache_writable = true};
	return exogpu_device_open(out, &open, error);
}

static enum status verify(const struct json *params, struct json **result, struct error *error)
{
	const struct backend *backend;
	struct exogpu_device *device = NULL;
	int64_t began_ns = clock_steady_ns();
	double bandwidth = 0, duration_ms = 0;
	bool measure = json_get_bool(params, "measure", false);
	enum status status = backend_of(params, &backend, error);
	if (status)
		return status;
	fault_strike("verify", backend->kind);
	status = open_device(backend, params, &device, error);
	if (!status)
		status = verify_device(device, backend->kind, error);
	if (!status) {
		duration_ms = (double)(clock_steady_ns() - began_ns) * 1e-6;
		if (measure)
			status = measure_bandwidth(device, &bandwidth, error);
	}
	exogpu_device_close(&device, NULL);
	if (status)
		return status;
	*result = json_new_object();
	json_set_number(*result, "duration_ms", duration_ms);
	if (measure)
		json_set_number(*result, "memory_bandwidth_bytes_per_s", bandwidth);
	else
		json_set_null(*result, "memory_bandwidth_bytes_per_s");
	return STATUS_OK;
}

static enum status answer_direction(struct json *result, const char *name, struct exogpu_device *from,
				    struct exogpu_device *to, struct error *error)
{
	struct measured_copy copy;
	struct error fault = {0};
	struct json *json = json_new_object();
	const enum status status = measure_copies(from, to, &copy, &fault);
	if (status)
		json_set_null(json, "bytes_per_s");
	else
		json_set_number(json, "bytes_per_s", copy.bytes_per_s);
	json_set_bool(json, "direct", copy.direct);
	json_set_string(json, "reason", status ? fault.message : NULL);
	json_set(result, name, json);
	// After the loss of a device the other direction would fail for that reason only, so it is not measured.
	return status == STATUS_DEVICE_LOST ? error_set(error, status, "%s", fault.message) : STATUS_OK;
}

static enum status peers(const struct json *params, struct json **result, struct error *error)
{
	const struct backend *backend;
	struct exogpu_device *devices[2] = {NULL, NULL};
	const char *keys[] = {json_get_string(params, "hardware_key", ""), json_get_string(params, "peer_key", "")};
	enum status status = backend_of(params, &backend, error);
	if (!status && !strcmp(keys[0], keys[1]))
		status = error_set(error, STATUS_INVALID_PARAMS, "a device is no peer of itself");
	if (status)
		return status;
	fault_strike("peers", backend->kind);
	if (backend->narrow)
		backend->narrow(keys[0], keys[1]);
	for (int i = 0; i < 2 && !status; i++)
		status = exogpu_device_open(
			&devices[i],
			&(struct exogpu_open){.backend = backend_kind_name(backend->kind), .hardware_key = keys[i]},
			error);
	*result = json_new_object();
	if (!status)
		status = answer_direction(*result, "there", devices[0], devices[1], error);
	if (!status)
		status = answer_direction(*result, "back", devices[1], devices[0], error);
	for (int i = 2; i-- > 0;)
		exogpu_device_close(&devices[i], NULL);
	if (status)
		json_destroy(result);
	return status;
}

static enum status compile(const struct json *params, struct json **result, struct error *error)
{
	const struct backend *backend;
	struct exogpu_device *device = NULL;
	int64_t began_ns = clock_steady_ns();
	enum status status = backend_of(params, &backend, error);
	if (status)
		return status;
	status = open_device(backend, params, &device, error);
	if (!status)
		status = stage_compile(device, error);
	exogpu_device_close(&device, NULL);
	if (status)
		return status;
	*result = json_new_object();
	json_set_number(*result, "duration_ms", (double)(clock_steady_ns() - began_ns) * 1e-6);
	return STATUS_OK;
}

// ---- a session's worker ----

static struct json *texts(const char *first, size_t stride, unsigned count)
{
	struct json *out = json_new_array();
	for (unsigned i = 0; i < count; i++)
		json_push(out, json_new_string(first + i * stride));
	return out;
}

// Drivers keep compiled kernels in files: the node has set where (engine/node/cache.h), and the sandbox lets a tenant's
// worker only read them. Without a folder it is not even to try in a home directory.
static void use_cache(const char *directory)
{
	if (directory)
		return;
	setenv("MESA_SHADER_CACHE_DISABLE", "true", 1);
	setenv("CUDA_CACHE_DISABLE", "1", 1);
}

// The session of worker.open, or the instance of worker.instance, once that call is answered.
static struct session *session;
static struct instance *instance;

struct confined {
	const struct backend *backend;
	char cache_directory[4097]; // longer than the contract allows
	const char *cache;          // that, or NULL
	struct sandbox sandbox;
};

// Find the back end and enter the sandbox, before the driver is loaded.
static enum status enter_sandbox(struct confined *confined, const struct json *params, bool fills_cache,
				 struct error *error)
{
	const char *cache = json_get_string(params, "cache_directory", NULL);
	const enum status status = backend_of(params, &confined->backend, error);
	if (status)
		return status;
	if (cache)
		snprintf(confined->cache_directory, sizeof(confined->cache_directory), "%s", cache);
	confined->cache = cache ? confined->cache_directory : NULL;
	use_cache(cache);
	signal(SIGTERM, SIG_DFL);
	sandbox_apply(&confined->sandbox, &(struct sandbox_params){.backend = confined->backend->kind,
								   .cache_directory = confined->cache,
								   .fills_cache = fills_cache,
								   .namespaces = (unsigned long)started.namespaces,
								   .refused = (int)started.refused,
								   .user = (uid_t)started.user,
								   .group = (gid_t)started.group});
	return STATUS_OK;
}

static enum status enter_stream(struct confined *confined, const struct json *params, struct error *error)
{
	const struct backend *backend;
	enum status status = backend_of(params, &backend, error);
	if (!status && !json_get_bool(params, "spare", false) && fcntl(WORKER_STREAM, F_GETFD) < 0)
		status = error_set(error, STATUS_INVALID_REQUEST, "this worker needs a stream on descriptor %d",
				   WORKER_STREAM);
	if (status)
		return status;
	fault_strike("open", backend->kind);
	return enter_sandbox(confined, params, false, error);
}

// The result of worker.open or worker.instance; the other end of the filter goes with it.
static struct json *tell_sandbox(struct node_end *node, const struct sandbox *sandbox)
{
	node->passes = sandbox->listener;
	struct json *told = json_new_object(), *result = json_new_object();
	json_set(told, "applied", texts(sandbox->applied[0], sizeof(sandbox->applied[0]), sandbox->applied_count));
	json_set(told, "missing", texts(sandbox->missing[0], sizeof(sandbox->missing[0]), sandbox->missing_count));
	json_set(result, "sandbox", told);
	return result;
}

static enum status answer(struct node_end *node, const struct message *message, struct json *result)
{
	rpc_answer(&node->rpc, message->method, message->id, result, NULL);
	return STATUS_PENDING;
}

static enum status open_session(void *arg, const struct message *message, struct error *error)
{
	static struct confined confined;
	struct node_end *node = arg;
	const struct json *params = message->params;
	const bool spare = json_get_bool(params, "spare", false);
	enum status status = enter_stream(&confined, params, error);
	if (status)
		return status;
	const struct session_params open = {
		.contract = node->rpc.params.contract,
		.backend = backend_kind_name(confined.backend->kind),
		.cache_directory = confined.cache,
		.memory_limit_bytes = (uint64_t)json_get_integer(params, "memory_limit_bytes", 0),
		.confined = confined.sandbox.confined,
		.node_fd = WORKER_SOCKET,
		.stream_fd = spare ? -1 : WORKER_STREAM,
	};
	if (spare)
		prctl(PR_SET_NAME, "exogpu-spare"); // so that a person who looks for the owner of the device's memory
						    // sees what it is
	status = session_create(&session, &open, error);
	if (!status)
		status = session_start(session, error);
	return status ? status : answer(node, message, tell_sandbox(node, &confined.sandbox));
}

static enum status open_instance(void *arg, const struct message *message, struct error *error)
{
	static struct confined confined;
	struct node_end *node = arg;
	const struct json *params = message->params;
	if (fcntl(WORKER_MODEL, F_GETFD) < 0)
		return error_set(error, STATUS_INVALID_REQUEST, "an instance's worker needs its model on descriptor %d",
				 WORKER_MODEL);
	bool ring = json_get_bool(params, "ring", false);
	if (ring && (fcntl(WORKER_RING_IN, F_GETFD) < 0 || fcntl(WORKER_RING_OUT, F_GETFD) < 0))
		return error_set(error, STATUS_INVALID_REQUEST,
				 "a part of a model needs its ring on descriptors %d and %d", WORKER_RING_IN,
				 WORKER_RING_OUT);
	signal(SIGBUS, SIG_DFL); // what a file does that is cut off: the node knows it by that
	instance_says_connect();
	enum status status = enter_stream(&confined, params, error);
	if (status)
		return status;
	fault_cut(confined.backend->kind, WORKER_MODEL);
	const struct instance_params open = {
		.contract = node->rpc.params.contract,
		.backend = backend_kind_name(confined.backend->kind),
		.cache_directory = confined.cache,
		.node_fd = WORKER_SOCKET,
		.stream_fd = WORKER_STREAM,
		.model_fd = WORKER_MODEL,
		.ring = ring,
		.ring_in_fd = WORKER_RING_IN,
		.ring_out_fd = WORKER_RING_OUT,
		.draft_fd = fcntl(WORKER_DRAFT, F_GETFD) < 0 ? -1 : WORKER_DRAFT,
	};
	status = instance_create(&instance, &open, error);
	if (!status)
		status = instance_start(instance, error);
	return status ? status : answer(node, message, tell_sandbox(node, &confined.sandbox));
}

// ---- one call, one answer ----

// The function that answers a call, and its circumstances.
struct once {
	enum status (*run)(const struct json *params, struct json **result, struct error *error);
	bool fills_cache, in_no_hurry;
};

static enum status answer_once(struct node_end *node, const struct message *message, const struct once *once,
			       struct error *error)
{
	static struct confined confined;
	struct json *result = NULL;
	if (once->in_no_hurry && nice(COMPILE_NICE) < 0)
		log_debug("worker", "the compiler runs with normal priority");
	if (once->fills_cache)
		umask(022); // sessions' workers, which have other users, read the compiled kernels that are kept there
	enum status status = enter_sandbox(&confined, message->params, once->fills_cache, error);
	// The node answers what the filter refuses from now on: without that a driver would wait for it.
	if (!status && confined.sandbox.listener >= 0) {
		node->passes = confined.sandbox.listener;
		status = node_end_pass(node);
	}
	if (!status)
		status = once->run(message->params, &result, error);
	fault_escape(confined.backend ? confined.backend->kind : BACKEND_UNKNOWN, confined.cache);
	return status ? status : answer(node, message, result);
}

static enum status serve_enumerate(void *arg, const struct message *message, struct error *error)
{
	return answer_once(arg, message, &(const struct once){.run = enumerate}, error);
}

static enum status serve_verify(void *arg, const struct message *message, struct error *error)
{
	return answer_once(arg, message, &(const struct once){.run = verify, .fills_cache = true}, error);
}

static enum status serve_peers(void *arg, const struct message *message, struct error *error)
{
	return answer_once(arg, message, &(const struct once){.run = peers}, error);
}

static enum status serve_compile(void *arg, const struct message *message, struct error *error)
{
	return answer_once(arg, message, &(const struct once){.run = compile, .fills_cache = true, .in_no_hurry = true},
			   error);
}

// ---- CUDA C ----

static enum status pass_filter(void *arg, const struct sandbox *sandbox)
{
	struct node_end *node = arg;
	if (sandbox->listener < 0)
		return STATUS_OK;
	node->passes = sandbox->listener;
	return node_end_pass(node);
}

static enum status serve_source(void *arg, const struct message *message, struct error *error)
{
	struct node_end *node = arg;
	struct json *result = NULL;
	const struct json *given = message->params;
	const struct source_params params = {
		.fd = WORKER_MODEL,
		.architecture = (int)json_get_integer(given, "architecture", 0),
		.most_version = (int)json_get_integer(given, "most_version", 0),
		.limit_s = (int)json_get_integer(given, "limit_s", 0),
		.limit_mib = (int)json_get_integer(given, "limit_mib", 0),
		.sandbox = {.namespaces = (unsigned long)started.namespaces,
			    .refused = (int)started.refused,
			    .user = (uid_t)started.user,
			    .group = (gid_t)started.group},
		.entered = pass_filter,
		.arg = node,
	};
	const enum status status = source_compile(&params, &result, error);
	return status ? status : answer(node, message, result);
}

static const struct rpc_method methods[] = {
	{"worker.enumerate", serve_enumerate}, {"worker.verify", serve_verify}, {"worker.peers", serve_peers},
	{"worker.compile", serve_compile},     {"worker.open", open_session},   {"worker.instance", open_instance},
	{"worker.source", serve_source},
};

// Serve the first call. The end of the socket is no error.
static enum status serve_first(const struct contract *contract, struct error *error)
{
	struct node_end node;
	node_end_init(&node, &(struct node_end_params){.contract = contract,
						       .fd = WORKER_SOCKET,
						       .methods = methods,
						       .method_count = sizeof(methods) / sizeof(methods[0])});
	const enum status status = node_end_serve(&node, true, error);
	node_end_finish(&node);
	return status == STATUS_UNAVAILABLE ? STATUS_OK : status;
}

int worker_main(int argc, char **argv)
{
	struct error error = {0};
	struct contract *contract = NULL;
	for (int i = 1; i < argc; i += 2) {
		const char *const words[] = {"--parent", "--namespaces", "--refused", "--user", "--group"};
		long *const numbers[] = {&started.parent, &started.namespaces, &started.refused, &started.user,
					 &started.group};
		char *end = NULL;
		for (size_t k = 0; k < sizeof(words) / sizeof(words[0]) && i + 1 < argc; k++)
			if (!strcmp(argv[i], words[k]))
				*numbers[k] = strtol(argv[i + 1], &end, 10);
		if (!end || *end) {
			bool help = !strcmp(argv[i], "--help") || !strcmp(argv[i], "-h");
			fputs(usage, help ? stdout : stderr);
			return help ? 0 : 2;
		}
	}
	enum status status = confine((pid_t)started.parent, &error);
	if (!status)
		status = contract_create(&contract, CONTRACT_NODE, &error);
	if (!status)
		status = serve_first(contract, &error);
	if (!status && session)
		status = reader_run(session, &error);
	else if (!status && instance)
		status = instance_read(instance, &error);
	else
		contract_destroy(&contract);
	if (status)
		log_error("worker", "%s", error.message[0] ? error.message : status_text(status));
	_exit(status ? 1 : 0);
}
