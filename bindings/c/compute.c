/* See engine/include/exogpu/exogpu_client.h: modules and launches. */
#include "bindings/c/inside.h"
#include "common/base/list.h"
#include "common/net/ws/ws.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DEVICE_NS (1ull << 62)

// ---- modules ----

static enum exogpu_argument_kind read_kind(const char *word)
{
	static const struct {
		const char *word;
		enum exogpu_argument_kind kind;
	} kinds[] = {{"allocation", EXOGPU_ARGUMENT_BUFFER}, {"f32", EXOGPU_ARGUMENT_F32},
		     {"i32", EXOGPU_ARGUMENT_I32},           {"u32", EXOGPU_ARGUMENT_U32},
		     {"u64", EXOGPU_ARGUMENT_U64},           {"count", EXOGPU_ARGUMENT_U64},
		     {"word", EXOGPU_ARGUMENT_WORD},         {"dword", EXOGPU_ARGUMENT_DWORD}};
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(word, kinds[i].word))
			return kinds[i].kind;
	return EXOGPU_ARGUMENT_UNKNOWN;
}

// A number of an answer as an integer from 0 to `most`; another one is taken for the nearer end, NaN for 0.
static uint64_t read_count(double number, uint64_t most)
{
	return number >= (double)most ? most : number > 0 ? (uint64_t)number : 0;
}

static void read_kernel(const struct json *from, struct exogpu_kernel *kernel)
{
	const struct json *one = json_first(json_get(from, "parameters"));
	snprintf(kernel->name, sizeof(kernel->name), "%s", json_get_string(from, "kernel", ""));
	for (; one && kernel->argument_count < EXOGPU_KERNEL_ARGUMENTS; one = json_next(one))
		kernel->arguments[kernel->argument_count++] = read_kind(json_get_string(one, "kind", ""));
	one = json_first(json_get(from, "block"));
	for (int i = 0; i < 3 && one; i++, one = json_next(one))
		kernel->block[i] = (uint32_t)read_count(json_number(one, 0), UINT32_MAX);
}

static enum status read_module(const struct json *answer, struct exogpu_client_module *module, struct error *error)
{
	const struct json *signatures = json_get(answer, "signatures");
	size_t count = json_count(signatures);
	if (count > EXOGPU_MODULE_KERNELS)
		return error_set(error, STATUS_INTERNAL, "the server says that there are %zu kernels", count);
	module->kernels = calloc(count ? count : 1, sizeof(*module->kernels));
	if (!module->kernels)
		return error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	for (const struct json *one = json_first(signatures); one; one = json_next(one))
		read_kernel(one, &module->kernels[module->kernel_count++]);
	return inside_read_id(answer, "module_id", module->id, error);
}

static enum status check_load(enum exogpu_format format, const void *bytes, size_t length, struct error *error)
{
	if (!inside_format_word(format))
		return error_set(error, STATUS_INVALID_PARAMS, "%d is not a format of modules", (int)format);
	if ((format == EXOGPU_FORMAT_BUILTIN) != !length || (length && !bytes))
		return error_set(error, STATUS_INVALID_PARAMS,
				 format == EXOGPU_FORMAT_BUILTIN ? "the module built in has no bytes"
								 : "the module's bytes are missing");
	if (length > EXOGPU_CLIENT_MODULE_BYTES)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "a module has at most %d bytes, not %zu",
				 EXOGPU_CLIENT_MODULE_BYTES, length);
	return STATUS_OK;
}

static enum status load(struct exogpu_client_module *module, struct json *params, struct net_frame *body,
			struct error *error)
{
	struct json *answer = NULL;
	struct quiet quiet;
	inside_begin(module->client, &quiet);
	enum status status = inside_ask(module->client,
					&(struct inside_call){.method = "compute.load", .params = params, .body = body},
					&answer, error);
	if (!status)
		status = read_module(answer, module, error);
	if (!status)
		LIST_PUSH(&module->client->modules, module, link);
	inside_end(module->client, &quiet);
	json_destroy(&answer);
	return status;
}

enum status exogpu_client_module_load(struct exogpu_client *client, struct exogpu_client_module **out,
				      const char *device_id, enum exogpu_format format, const void *bytes,
				      size_t length, struct error *error)
{
	if (!client || !out || !device_id)
		return error_set(error, STATUS_INVALID_PARAMS, "client, out and device_id must not be NULL");
	*out = NULL;
	enum status status = check_load(format, bytes, length, error);
	if (status)
		return status;
	struct exogpu_client_module *module = calloc(1, sizeof(*module));
	struct net_frame *body = length ? net_frame_create(bytes, length, false) : NULL;
	if (module && (body || !length)) {
		struct json *params = json_new_object();
		json_set_string(params, "device_id", device_id);
		json_set_string(params, "format", inside_format_word(format));
		module->client = client;
		status = load(module, params, body, error);
	} else {
		status = error_set(error, STATUS_OUT_OF_MEMORY, "out of memory");
	}
	net_frame_unref(&body);
	if (status && module)
		free(module->kernels);
	if (status)
		free(module);
	else
		*out = module;
	return status;
}

void exogpu_client_module_unload(struct exogpu_client_module **pointer)
{
	struct exogpu_client_module *module = pointer ? *pointer : NULL;
	struct quiet quiet;
	if (!module)
		return;
	*pointer = NULL;
	struct exogpu_client *client = module->client;
	inside_begin(client, &quiet);
	if (client->client) {
		struct json *params = json_new_object();
		json_set_string(params, "module_id", module->id);
		inside_ask(client, &(struct inside_call){.method = "compute.unload", .params = params}, NULL, NULL);
	}
	LIST_REMOVE(module, link);
	inside_end(client, &quiet);
	free(module->kernels);
	free(module);
}

const struct exogpu_kernel *exogpu_client_module_kernel(const struct exogpu_client_module *module, unsigned index)
{
	return module && index < module->kernel_count ? &module->kernels[index] : NULL;
}

// ---- launches ----

static enum status add_argument(struct json *list, const struct exogpu_client_launch *launch, unsigned index,
				struct error *error)
{
	const struct exogpu_client_argument *argument = &launch->arguments[index];
	struct json *one = json_new_object();
	bool fits = true;
	switch (argument->kind) {
	case EXOGPU_ARGUMENT_BUFFER:
		fits = argument->buffer && argument->buffer->client == launch->module->client;
		if (fits)
			json_set_string(one, "allocation_id", argument->buffer->id);
		break;
	case EXOGPU_ARGUMENT_F32:
		fits = isfinite(argument->f32);
		json_set_number(one, "f32", (double)argument->f32);
		break;
	case EXOGPU_ARGUMENT_I32:
		json_set_integer(one, "i32", argument->i32);
		break;
	case EXOGPU_ARGUMENT_U32:
		json_set_integer(one, "u32", argument->u32);
		break;
	case EXOGPU_ARGUMENT_U64: {
		char digits[24];
		snprintf(digits, sizeof(digits), "%llu", (unsigned long long)argument->u64);
		json_set_string(one, "u64", digits);
		break;
	}
	case EXOGPU_ARGUMENT_WORD:
	case EXOGPU_ARGUMENT_DWORD:
	case EXOGPU_ARGUMENT_UNKNOWN:
	default:
		fits = false;
	}
	json_push(list, one);
	if (fits)
		return STATUS_OK;
	return error_set(error, STATUS_INVALID_PARAMS,
			 "arguments[%u] is no buffer of this client, finite f32, i32, u32 or u64", index);
}

static void add_shape(struct json *params, const char *name, const uint32_t shape[3])
{
	struct json *list = json_new_array();
	for (int i = 0; i < 3; i++)
		json_push(list, json_new_integer(shape[i] ? shape[i] : 1));
	json_set(params, name, list);
}

static enum status make_params(const struct exogpu_client_launch *launch, struct json *params, struct error *error)
{
	enum status status = STATUS_OK;
	struct json *arguments = json_new_array();
	json_set_string(params, "module_id", launch->module->id);
	json_set_string(params, "kernel", launch->kernel);
	add_shape(params, "grid", launch->grid);
	add_shape(params, "block", launch->block);
	if (launch->timeout_ms)
		json_set_integer(params, "timeout_ms", launch->timeout_ms);
	for (unsigned i = 0; i < launch->argument_count && !status; i++)
		status = add_argument(arguments, launch, i, error);
	json_set(params, "args", arguments);
	return status;
}

static struct launched *find_launched(struct exogpu_client *client, uint64_t point)
{
	for (size_t i = 0; i < EXOGPU_CLIENT_LAUNCHES; i++)
		if (client->launched[i].point == point)
			return &client->launched[i];
	return NULL;
}

static enum status send(struct exogpu_client *client, struct json *params, uint64_t *point, struct error *error)
{
	struct launched *launched = find_launched(client, 0);
	enum status status = inside_usable(client, error);
	if (!status && !launched) {
		error_hint(error, "wait for one of them first");
		status = error_set(error, STATUS_LIMIT_EXCEEDED, "%d launches are outstanding", EXOGPU_CLIENT_LAUNCHES);
	}
	if (status) {
		json_destroy(&params);
		return status;
	}
	status = client_send(client->client, &(struct client_call){.method = "compute.launch", .params = params},
			     &launched->id, error);
	if (!status)
		*point = launched->point = ++client->last_point;
	return status;
}

enum status exogpu_client_launch(const struct exogpu_client_launch *launch, uint64_t *point, struct error *error)
{
	struct quiet quiet;
	if (!launch || !point || !launch->module || !launch->kernel || (launch->argument_count && !launch->arguments))
		return error_set(error, STATUS_INVALID_PARAMS,
				 "launch, point, module, kernel and arguments must not be NULL");
	if (launch->argument_count > EXOGPU_KERNEL_ARGUMENTS || launch->timeout_ms < 0)
		return error_set(error, STATUS_INVALID_PARAMS,
				 "a kernel has at most %d arguments, and timeout_ms is not below 0",
				 EXOGPU_KERNEL_ARGUMENTS);
	struct exogpu_client *client = launch->module->client;
	struct json *params = json_new_object();
	enum status status = make_params(launch, params, error);
	if (status) {
		json_destroy(&params);
		return status;
	}
	inside_begin(client, &quiet);
	status = send(client, params, point, error);
	inside_end(client, &quiet);
	return status;
}

enum status exogpu_client_wait(struct exogpu_client *client, uint64_t point, int64_t timeout_ns, int64_t *device_ns,
			       struct error *error)
{
	struct json *answer = NULL;
	struct quiet quiet;
	bool late = false;
	if (!client || timeout_ns < 0)
		return error_set(error, STATUS_INVALID_PARAMS, "client must not be NULL, nor timeout_ns below 0");
	inside_begin(client, &quiet);
	struct launched *launched = point ? find_launched(client, point) : NULL;
	enum status status = inside_usable(client, error);
	if (!status && !launched)
		status = error_set(error, STATUS_NOT_FOUND, "there is no launch %llu to wait for",
				   (unsigned long long)point);
	if (!status)
		status = client_wait(client->client,
				     &(struct client_wait){.id = launched->id,
							   .timeout_ms = timeout_ns / 1000000 + 1,
							   .result = &answer,
							   .late = &late},
				     error);
	if (launched && !late)
		*launched = (struct launched){0};
	inside_end(client, &quiet);
	if (!status && device_ns)
		*device_ns = (int64_t)read_count(json_get_number(answer, "device_us", 0) * 1000, MOST_DEVICE_NS);
	json_destroy(&answer);
	return status;
}
