/* libexogpu_client: memory and compute of the devices of a cluster, over the network, for a program in C.
 *
 * Connect to a server, find a device, make buffers and modules there, write, launch, wait, read. The calls are those of
 * exogpu.h, whose kinds, formats and kernels they share; each blocks until the server has answered.
 *
 *	struct exogpu_client *client;
 *	struct exogpu_client_buffer *buffer;
 *	char device[EXOGPU_CLIENT_ID_BYTES];
 *	struct error error = {0};
 *	exogpu_client_connect(&client, &(struct exogpu_client_connect){.token = token}, &error);
 *	exogpu_client_choose_device(client, NULL, device, &error);
 *	exogpu_client_buffer_create(client, &buffer, device, bytes, &error);
 *	exogpu_client_write(buffer, 0, data, bytes, &error);
 *
 * A client is one connection and its session: what it makes belongs to it, and the server frees all of it 10 s after
 * the connection has ended. A connection that broke is not dialled again: close the client, and connect anew.
 *
 * Errors are the server's: its reason as a status, its message and its hint. Every call may return beside its own
 * STATUS_INVALID_PARAMS (a NULL, a range outside a buffer), STATUS_UNAVAILABLE (the connection broke),
 * STATUS_UNAUTHENTICATED (the token was revoked), STATUS_FORBIDDEN (the token has not the scope), STATUS_RATE_LIMITED,
 * and STATUS_TIMEOUT: no answer within timeout_ms. After that one nobody knows what was done, so the client is good for
 * nothing but being closed. A struct error is {0} before its first use; only the first error is written into it.
 *
 * Thread: any. Calls of one client, its buffers and modules included, wait for each other; clients do not. A thread of
 * the library's own answers the server's pings between calls. None of it may be used after fork, nor what belongs to a
 * client after its close. SIGPIPE stays as the program has it. */
#pragma once
#include "common/base/status.h"

#include <exogpu/types.h>

struct exogpu_client;
struct exogpu_client_buffer;
struct exogpu_client_module;

enum {
	EXOGPU_CLIENT_ID_BYTES = 65,
	EXOGPU_CLIENT_LAUNCHES = 8, // of one client, that are not waited for yet
	EXOGPU_CLIENT_MODULE_BYTES = 16 * 1024 * 1024,
};

// ---- connections ----

struct exogpu_client_connect {
	const char *url;   // http:// or https://HOST[:PORT]; NULL: EXOGPU_URL, else http://127.0.0.1:52415
	const char *token; // NULL: EXOGPU_TOKEN
	const char *ca;    // a PEM file with the authority that https is trusted by; NULL: EXOGPU_CA, else the system's
	const char *ca_sha256; // instead: its SHA-256 in 64 hexadecimal digits, as the server's log has it
	int64_t timeout_ms;    // of every call but exogpu_client_wait; 0: a minute
};
// Takes 10 s at most. Errors: STATUS_INVALID_PARAMS (the address, the token's form, the file),
// STATUS_UNAUTHENTICATED (no token, or one that does not count), STATUS_LIMIT_EXCEEDED (the token's sessions).
EXOGPU_PUBLIC enum status exogpu_client_connect(struct exogpu_client **out, const struct exogpu_client_connect *params,
						struct error *error);
// Frees all buffers and modules that are left, too. Accepts NULL, leaves NULL behind.
EXOGPU_PUBLIC void exogpu_client_close(struct exogpu_client **client);

// Any method of schema/api.json without a body: `params` and *result are JSON, {} for NULL. The caller frees *result,
// by free(). Errors: the method's.
EXOGPU_PUBLIC enum status exogpu_client_call(struct exogpu_client *client, const char *method, const char *params,
					     char **result, struct error *error);

// ---- devices ----

struct exogpu_client_found_device {
	const char *device_id, *node_id;
	const char *name, *backend, *kind; // kind: "discrete", "integrated", "virtual", "cpu"
	uint64_t memory_bytes;             // 0: it is not known
	uint32_t formats;                  // a bit 1 << EXOGPU_FORMAT_... for each that its modules may have
	bool usable;                       // it has passed its verification and takes work
};
// Call `each` for every device of the cluster; pointers are valid during the call. It must not use the client.
EXOGPU_PUBLIC enum status exogpu_client_find_devices(struct exogpu_client *client,
						     void (*each)(void *context,
								  const struct exogpu_client_found_device *device),
						     void *context, struct error *error);
// The id of the device that has this id or name, or one that begins so; NULL: the usable one with the most memory, GPUs
// before processors. Errors: STATUS_NOT_FOUND.
EXOGPU_PUBLIC enum status exogpu_client_choose_device(struct exogpu_client *client, const char *name,
						      char device_id[EXOGPU_CLIENT_ID_BYTES], struct error *error);

// ---- memory ----

// Zeroed. bytes > 0. Errors: STATUS_NOT_FOUND (no such device), STATUS_OUT_OF_MEMORY, STATUS_LIMIT_EXCEEDED (the
// token's limit), STATUS_DEVICE_LOST, STATUS_CONFLICT (a device that takes no new work).
EXOGPU_PUBLIC enum status exogpu_client_buffer_create(struct exogpu_client *client, struct exogpu_client_buffer **out,
						      const char *device_id, uint64_t bytes, struct error *error);
// Accepts NULL, leaves NULL behind.
EXOGPU_PUBLIC void exogpu_client_buffer_destroy(struct exogpu_client_buffer **buffer);
EXOGPU_PUBLIC uint64_t exogpu_client_buffer_bytes(const struct exogpu_client_buffer *buffer);
// The server's name for it, allocation_id: for exogpu_client_call.
EXOGPU_PUBLIC const char *exogpu_client_buffer_id(const struct exogpu_client_buffer *buffer);

// Behind all launches before that are of the same device. Errors: STATUS_DEVICE_LOST.
EXOGPU_PUBLIC enum status exogpu_client_write(struct exogpu_client_buffer *to, uint64_t offset, const void *from,
					      uint64_t bytes, struct error *error);
EXOGPU_PUBLIC enum status exogpu_client_read(void *to, struct exogpu_client_buffer *from, uint64_t offset,
					     uint64_t bytes, struct error *error);

struct exogpu_client_copy {
	struct exogpu_client_buffer *to, *from; // of one client, on any devices of any machines
	uint64_t to_offset, from_offset, bytes;
};
// The bytes do not pass through this program. Errors: STATUS_INVALID_PARAMS (the ranges overlap in one buffer; buffers
// of two clients), STATUS_DEVICE_LOST.
EXOGPU_PUBLIC enum status exogpu_client_copy(const struct exogpu_client_copy *copy, struct error *error);
EXOGPU_PUBLIC enum status exogpu_client_fill(struct exogpu_client_buffer *buffer, uint64_t offset, uint64_t bytes,
					     uint8_t value, struct error *error);

// ---- kernels ----

// `bytes` (length, at most EXOGPU_CLIENT_MODULE_BYTES) is not needed after the call; NULL, 0 for
// EXOGPU_FORMAT_BUILTIN. Errors: STATUS_INVALID_PARAMS (not a module, with the compiler's words), STATUS_UNAVAILABLE (a
// format that this device does not take), STATUS_NOT_FOUND (no such device), STATUS_LIMIT_EXCEEDED, STATUS_DEVICE_LOST.
EXOGPU_PUBLIC enum status exogpu_client_module_load(struct exogpu_client *client, struct exogpu_client_module **out,
						    const char *device_id, enum exogpu_format format, const void *bytes,
						    size_t length, struct error *error);
// Accepts NULL, leaves NULL behind.
EXOGPU_PUBLIC void exogpu_client_module_unload(struct exogpu_client_module **module);
// The kernels of a module; NULL past the last. Valid as long as the module.
EXOGPU_PUBLIC const struct exogpu_kernel *exogpu_client_module_kernel(const struct exogpu_client_module *module,
								      unsigned index);

struct exogpu_client_argument {
	enum exogpu_argument_kind kind; // BUFFER, F32, I32, U32 or U64
	union {
		struct exogpu_client_buffer *buffer;
		float f32;
		int32_t i32;
		uint32_t u32;
		uint64_t u64;
	};
};
struct exogpu_client_launch {
	struct exogpu_client_module *module;
	const char *kernel;
	uint32_t grid[3], block[3]; // blocks, and threads of a block; 0 counts as 1. Built-in kernels choose their own
	const struct exogpu_client_argument *arguments; // (argument_count)
	unsigned argument_count;
	int64_t timeout_ms; // of the kernel; 0: a minute. One that takes longer is ended, with what the session has
			    // there
};
// Enqueue, and give the launch a number. At most EXOGPU_CLIENT_LAUNCHES are outstanding. Errors: STATUS_LIMIT_EXCEEDED
// (so many are), STATUS_INVALID_PARAMS (an argument that cannot be sent). What the server says, exogpu_client_wait
// tells.
EXOGPU_PUBLIC enum status exogpu_client_launch(const struct exogpu_client_launch *launch, uint64_t *point,
					       struct error *error);
// Wait for a launch, and forget it; *device_ns (may be NULL): the time that the device spent. Errors: STATUS_NOT_FOUND
// (no such launch, or one that was waited for; no such kernel), STATUS_INVALID_PARAMS (naming the argument),
// STATUS_TIMEOUT (not done within timeout_ns: it may be waited for again; or ended as it took longer than it might:
// then there is no such launch any more), STATUS_DEVICE_LOST.
EXOGPU_PUBLIC enum status exogpu_client_wait(struct exogpu_client *client, uint64_t point, int64_t timeout_ns,
					     int64_t *device_ns, struct error *error);
