/* compute.* in the driver's thread. See session.h.
 *
 * Arguments are read by their names and kinds; whether they fit the kernel is the wrapper's to say. */
#include "engine/builtin.h"
#include "engine/worker/fault.h"
#include "engine/worker/session.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

static struct module_slot *module_find(struct session *session, uint32_t handle)
{
	for (unsigned i = 0; i < LIMIT_MODULES_OF_SESSION; i++)
		if (session->modules[i].handle == handle)
			return &session->modules[i];
	return NULL;
}

static struct module_slot *module_of(struct session *session, struct call *call)
{
	uint32_t handle = (uint32_t)call_count(call, "module");
	struct module_slot *slot = module_find(session, handle);
	if (!slot)
		error_set(&call->error, STATUS_NOT_FOUND, "there is no module %u here", handle);
	return slot;
}

// ---- load and unload ----

static const char *kind_word(enum exogpu_argument_kind kind, bool builtin)
{
	switch (kind) {
	case EXOGPU_ARGUMENT_BUFFER:
		return "allocation";
	case EXOGPU_ARGUMENT_F32:
		return "f32";
	case EXOGPU_ARGUMENT_I32:
		return "i32";
	case EXOGPU_ARGUMENT_U32:
		return "u32";
	case EXOGPU_ARGUMENT_U64:
		return builtin ? "count" : "u64";
	case EXOGPU_ARGUMENT_DWORD:
		return "dword";
	case EXOGPU_ARGUMENT_WORD:
	case EXOGPU_ARGUMENT_UNKNOWN:
		break;
	}
	return "word";
}

static struct json *signature_of(const struct exogpu_kernel *kernel, bool builtin)
{
	struct json *out = json_new_object(), *parameters = json_new_array();
	enum builtin_kernel known = builtin ? builtin_find(kernel->name) : BUILTIN_UNKNOWN;
	json_set_string(out, "kernel", kernel->name);
	for (unsigned i = 0; i < kernel->argument_count; i++) {
		struct json *parameter = json_new_object();
		json_set_string(parameter, "name", known ? builtin_signatures[known].names[i] : NULL);
		json_set_string(parameter, "kind", kind_word(kernel->arguments[i], builtin));
		json_push(parameters, parameter);
	}
	json_set(out, "parameters", parameters);
	if (!kernel->block[0]) {
		json_set_null(out, "block");
		return out;
	}
	struct json *block = json_new_array();
	for (int i = 0; i < 3; i++)
		json_push(block, json_new_integer(kernel->block[i]));
	json_set(out, "block", block);
	return out;
}

static enum exogpu_format format_of(const struct call *call)
{
	const char *word = json_get_string(call->message.params, "format", "");
	return !strcmp(word, "builtin") ? EXOGPU_FORMAT_BUILTIN
	       : !strcmp(word, "ptx")   ? EXOGPU_FORMAT_PTX
					: EXOGPU_FORMAT_SPIRV;
}

static enum status may_load(struct session *session, struct call *call, struct worker_device *device)
{
	enum exogpu_format format = format_of(call);
	if (!device)
		return error_set(&call->error, STATUS_NOT_FOUND, "device %u is not open in this worker",
				 (unsigned)call_count(call, "device"));
	if (module_find(session, (uint32_t)call_count(call, "module")))
		return error_set(&call->error, STATUS_CONFLICT, "module %u is taken",
				 (unsigned)call_count(call, "module"));
	if (!module_find(session, 0))
		return error_set(&call->error, STATUS_LIMIT_EXCEEDED, "a session holds at most %d modules",
				 LIMIT_MODULES_OF_SESSION);
	if (!strcmp(json_get_string(call->message.params, "format", ""), "wgsl")) {
		error_set(&call->error, STATUS_UNAVAILABLE, "this device does not run WGSL");
		error_hint(&call->error, "WGSL is for GPUs of browsers, PTX for CUDA, SPIR-V for Vulkan; the built-in "
					 "kernels work everywhere");
		return STATUS_UNAVAILABLE;
	}
	if ((format == EXOGPU_FORMAT_BUILTIN) != !call->module_bytes)
		return error_set(&call->error, STATUS_INVALID_PARAMS,
				 format == EXOGPU_FORMAT_BUILTIN ? "the module built in has no body"
								 : "the module is missing: it is the message's body");
	// A software device compiles it to code of this process: only the sandbox stands between that and the machine.
	if (format == EXOGPU_FORMAT_SPIRV && !session->confined &&
	    (exogpu_device_limits(device->device)->capabilities & EXOGPU_CAN_SOFTWARE)) {
		error_set(&call->error, STATUS_UNAVAILABLE,
			  "a module would run on this machine's processor, and this worker is not fully confined");
		error_hint(&call->error, "run the node on a kernel with seccomp and Landlock, or use a GPU");
		return STATUS_UNAVAILABLE;
	}
	return STATUS_OK;
}

void compute_load(struct session *session, struct call *call)
{
	struct worker_device *device = session->devices[call_count(call, "device")];
	const struct exogpu_kernel *kernel;
	struct exogpu_module *module = NULL;
	enum exogpu_format format = format_of(call);
	if (may_load(session, call, device)) {
		driver_answer(session, call, NULL);
		return;
	}
	driver_drain(session, device);
	watch_enter(session, call);
	if (driver_told(session, call,
			exogpu_module_load(device->device, &module, format, call->module, call->module_bytes,
					   &call->error))) {
		driver_answer(session, call, NULL);
		return;
	}
	*module_find(session, 0) = (struct module_slot){
		.handle = (uint32_t)call_count(call, "module"), .device = device, .module = module};
	struct json *result = json_new_object(), *signatures = json_new_array();
	for (unsigned i = 0; (kernel = exogpu_module_kernel(module, i)); i++)
		json_push(signatures, signature_of(kernel, format == EXOGPU_FORMAT_BUILTIN));
	json_set(result, "signatures", signatures);
	driver_answer(session, call, result);
}

void compute_unload(struct session *session, struct call *call)
{
	struct module_slot *slot = module_of(session, call);
	if (slot) {
		struct worker_device *device = slot->device;
		driver_drain(session, device);
		watch_enter(session, call);
		exogpu_module_unload(&slot->module);
		*slot = (struct module_slot){0};
		driver_told(session, call, exogpu_device_lost(device->device) ? STATUS_DEVICE_LOST : STATUS_OK);
	}
	driver_answer(session, call, slot ? json_new_object() : NULL);
}

void compute_drop_modules(struct session *session)
{
	for (unsigned i = 0; i < LIMIT_MODULES_OF_SESSION; i++)
		exogpu_module_unload(&session->modules[i].module);
}

// ---- launch ----

static bool fits_f32(const struct json *value)
{
	const double real = json_number(value, 0);
	return real >= -FLT_MAX && real <= FLT_MAX;
}

// Decimal digits and nothing else, within 64 bits; or a number as JSON has it.
static bool read_u64(const struct json *value, uint64_t *out)
{
	const char *text = json_string(value, NULL);
	int64_t number;
	*out = 0;
	if (!text) {
		bool fits = !json_integer(value, &number) && number >= 0;
		*out = fits ? (uint64_t)number : 0;
		return fits;
	}
	for (; *text >= '0' && *text <= '9'; text++) {
		unsigned digit = (unsigned)(*text - '0');
		if (*out > (UINT64_MAX - digit) / 10)
			return false;
		*out = *out * 10 + digit;
	}
	return !*text && text != json_string(value, NULL);
}

// An argument that is a number.
static enum status read_value(struct call *call, const struct json *value, unsigned index, struct exogpu_argument *out)
{
	const char *kind = json_name(value);
	int64_t number = 0;
	bool fits = true;
	if (!strcmp(kind, "f32")) {
		fits = fits_f32(value);
		*out = (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_F32,
						.f32 = fits ? (float)json_number(value, 0) : 0};
	} else if (!strcmp(kind, "u64")) {
		uint64_t wide = 0;
		fits = read_u64(value, &wide);
		*out = (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_U64, .u64 = wide};
	} else if (!strcmp(kind, "i32")) {
		fits = !json_integer(value, &number);
		*out = (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_I32, .i32 = (int32_t)number};
	} else {
		fits = !json_integer(value, &number);
		*out = (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_U32, .u32 = (uint32_t)number};
	}
	if (fits)
		return STATUS_OK;
	return error_set(&call->error, STATUS_INVALID_PARAMS, "args[%u]: not a value of the kind %s", index, kind);
}

static enum status read_argument(struct session *session, struct call *call, const struct json *given, unsigned index,
				 struct exogpu_argument *out)
{
	const struct json *value = json_first(given);
	int64_t number = 0;
	if (strcmp(json_name(value), "handle") != 0)
		return read_value(call, value, index, out);
	json_integer(value, &number);
	struct memory_slot *slot = memory_find(session, (uint32_t)number);
	*out = (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = slot ? slot->buffer : NULL};
	if (slot)
		return STATUS_OK;
	return error_set(&call->error, STATUS_NOT_FOUND, "args[%u]: there is no allocation %u here", index,
			 (unsigned)number);
}

static void read_shape(const struct call *call, const char *name, uint32_t shape[3])
{
	const struct json *value = json_first(json_get(call->message.params, name));
	for (int i = 0; i < 3 && value; i++, value = json_next(value))
		shape[i] = (uint32_t)json_number(value, 0);
}

void compute_launch(struct session *session, struct call *call)
{
	struct exogpu_argument arguments[EXOGPU_KERNEL_ARGUMENTS] = {{0}};
	struct module_slot *slot = module_of(session, call);
	unsigned count = 0;
	uint64_t started = 0;
	enum status status = slot ? STATUS_OK : STATUS_NOT_FOUND;
	const struct json *given = json_first(json_get(call->message.params, "args"));
	for (; !status && given && count < EXOGPU_KERNEL_ARGUMENTS; given = json_next(given), count++)
		status = read_argument(session, call, given, count, &arguments[count]);
	if (status) {
		driver_answer(session, call, NULL);
		return;
	}
	struct worker_device *device = slot->device;
	struct exogpu_launch launch = {.module = slot->module,
				       .kernel = json_get_string(call->message.params, "kernel", ""),
				       .arguments = arguments,
				       .argument_count = count};
	read_shape(call, "grid", launch.grid);
	read_shape(call, "block", launch.block);
	driver_room(session, device);
	watch_enter(session, call);
	fault_strike("launch", backend_kind_parse(session->backend));
	if (fault_injected("launch-lost", backend_kind_parse(session->backend)))
		status = error_set(&call->error, STATUS_DEVICE_LOST, "a fault was injected");
	driver_told(session, call, status);
	status = exogpu_mark(device->stream, &started, &call->error);
	if (!status)
		status = exogpu_launch(device->stream, &launch, &call->error);
	driver_told(session, call, status);
	driver_step(session, device, &(struct step){.call = call, .piece = NO_PIECE, .last = true, .started = started});
}

// ---- run: memory, kernel and answer in one call ----

struct run {
	struct session *session;
	struct call *call;
	struct worker_device *device;
	struct exogpu_argument arguments[EXOGPU_KERNEL_ARGUMENTS]; // (count); their buffers are the run's
	unsigned count;
	uint64_t bytes; // of all of them
};

enum status compute_check_run(struct call *call)
{
	size_t count = 0;
	for (const struct json *one = json_first(json_get(call->message.params, "args")); one; one = json_next(one))
		count += json_count(json_get(one, "f32s"));
	if (count <= LIMIT_RUN_NUMBERS)
		return STATUS_OK;
	return error_set(&call->error, STATUS_INVALID_PARAMS, "the f32s of a call are %d numbers at most, not %zu",
			 LIMIT_RUN_NUMBERS, count);
}

// Memory of `count` numbers: those of the array, or zeros. The kernel is enqueued after it.
static enum status make_memory(struct run *run, const struct json *value, struct exogpu_buffer **out)
{
	struct error *error = &run->call->error;
	const struct session *session = run->session;
	const bool zeros = json_type(value) != JSON_ARRAY;
	int64_t number = 0;
	size_t count = zeros && !json_integer(value, &number) ? (size_t)number : json_count(value), at = 0;
	float *values = calloc(count, sizeof(*values));
	if (!values)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for %zu numbers", count);
	enum status status = STATUS_OK;
	for (const struct json *one = json_first(zeros ? NULL : value); one && !status; one = json_next(one)) {
		if (!fits_f32(one))
			status = error_set(error, STATUS_INVALID_PARAMS, "args[%u]: [%zu] is no f32", run->count, at);
		else
			values[at++] = (float)json_number(one, 0);
	}
	const uint64_t bytes = count * sizeof(*values), limit = session->memory_limit_bytes;
	run->bytes += bytes;
	if (!status && limit && (run->bytes > limit || session->memory_bytes > limit - run->bytes))
		status = error_set(error, STATUS_LIMIT_EXCEEDED, "%llu bytes are needed, %llu held, %llu allowed",
				   (unsigned long long)run->bytes, (unsigned long long)session->memory_bytes,
				   (unsigned long long)limit);
	if (!status)
		status = exogpu_buffer_create(run->device->device, out, bytes, EXOGPU_MEMORY_DEVICE, error);
	if (!status)
		status = exogpu_write(*out, 0, values, bytes, error);
	free(values);
	return status;
}

static enum status read_arguments(struct run *run)
{
	enum status status = STATUS_OK;
	const struct json *given = json_first(json_get(run->call->message.params, "args"));
	for (; given && !status && run->count < EXOGPU_KERNEL_ARGUMENTS; given = json_next(given)) {
		const struct json *value = json_first(given);
		struct exogpu_argument *out = &run->arguments[run->count];
		if (!strcmp(json_name(value), "f32s") || !strcmp(json_name(value), "zeros")) {
			out->kind = EXOGPU_ARGUMENT_BUFFER;
			status = make_memory(run, value, &out->buffer);
		} else {
			status = read_value(run->call, value, run->count, out);
		}
		run->count++; // if it failed, its buffer, if any, is freed with the others
	}
	if (!status && run->arguments[0].kind != EXOGPU_ARGUMENT_BUFFER)
		status = error_set(&run->call->error, STATUS_INVALID_PARAMS,
				   "args[0] is the kernel's output: f32s or zeros");
	return status;
}

static void watch_for(struct run *run, int64_t limit_ns)
{
	pthread_mutex_lock(&run->session->lock);
	run->call->limit_ns = limit_ns;
	pthread_mutex_unlock(&run->session->lock);
	watch_enter(run->session, run->call);
}

// Run it, and wait: the caller says how long that may take, and nothing else of the call.
static enum status run_kernel(struct run *run, int64_t *ns)
{
	const int64_t usual_ns = run->call->limit_ns, limit_ns = (int64_t)call_count(run->call, "timeout_ms") * 1000000;
	struct error *error = &run->call->error;
	struct worker_device *device = run->device;
	uint64_t started = 0, point = 0;
	const struct exogpu_launch launch = {.module = device->builtin,
					     .kernel = json_get_string(run->call->message.params, "kernel", ""),
					     .arguments = run->arguments,
					     .argument_count = run->count};
	watch_for(run, limit_ns);
	enum status status = exogpu_mark(device->stream, &started, error);
	if (!status)
		status = exogpu_launch(device->stream, &launch, error);
	if (!status)
		status = exogpu_mark(device->stream, &point, error);
	if (!status)
		status = exogpu_wait(device->stream, point, limit_ns * 2, error);
	watch_for(run, usual_ns);
	return status ? status : exogpu_elapsed(device->stream, started, point, ns, error);
}

static enum status tell_numbers(struct run *run, struct json **out)
{
	struct exogpu_buffer *first = run->arguments[0].buffer;
	const size_t count = (size_t)exogpu_buffer_bytes(first) / sizeof(float);
	float *values = calloc(count, sizeof(*values));
	if (!values)
		return error_set(&run->call->error, STATUS_OUT_OF_MEMORY, "no memory for %zu numbers", count);
	enum status status = exogpu_read(values, first, 0, count * sizeof(*values), &run->call->error);
	*out = json_new_array();
	for (size_t i = 0; i < count && !status; i++)
		json_push(*out, json_new_number((double)values[i]));
	free(values);
	return status;
}

void compute_run(struct session *session, struct call *call)
{
	struct run run = {.session = session, .call = call, .device = session->devices[call_count(call, "device")]};
	struct json *result = NULL, *numbers = NULL;
	int64_t ns = 0;
	if (!run.device) {
		error_set(&call->error, STATUS_NOT_FOUND, "device %u is not open in this worker",
			  (unsigned)call_count(call, "device"));
		driver_answer(session, call, NULL);
		return;
	}
	driver_drain(session, run.device);
	watch_enter(session, call);
	enum status status = STATUS_OK;
	if (!run.device->builtin)
		status = exogpu_module_load(run.device->device, &run.device->builtin, EXOGPU_FORMAT_BUILTIN, NULL, 0,
					    &call->error);
	if (!status)
		status = read_arguments(&run);
	if (!status)
		status = run_kernel(&run, &ns);
	if (!status)
		status = tell_numbers(&run, &numbers);
	driver_told(session, call, status);
	for (unsigned i = 0; i < run.count; i++)
		if (run.arguments[i].kind == EXOGPU_ARGUMENT_BUFFER)
			exogpu_buffer_destroy(&run.arguments[i].buffer);
	if (!status) {
		result = json_new_object();
		json_set(result, "f32s", numbers);
		json_set_number(result, "device_us", (double)(ns > 0 ? ns : 0) * 1e-3);
	} else {
		json_destroy(&numbers);
	}
	driver_answer(session, call, result);
}
