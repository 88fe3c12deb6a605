/* The native methods of dev.exogpu.Native (Java), by libexogpu: one function here for each.
 *
 * A handle is the address of a struct opened or of a buffer. The Java side owns the handles: it passes none that is
 * closed, and calls for one device from one thread at a time (it holds the device's lock). All else that comes from
 * there is checked here or in libexogpu. Arrays are copied by pieces through memory of our own, so that the virtual
 * machine is never held up while a driver works. Errors become exceptions by Native.raise, which knows which one; after
 * a call into Java every function looks whether one is pending. Names and messages go as bytes in UTF-8, since JNI's
 * own strings are encoded otherwise. */
#include <exogpu/exogpu.h>
#include <jni.h>
#include <stdlib.h>
#include <string.h>

enum {
	PIECE_BYTES = 1 << 20,
	LAUNCH_ARGUMENTS = EXOGPU_KERNEL_ARGUMENTS,
};

// An open device, with what every launch needs.
struct opened {
	struct exogpu_device *device;
	struct exogpu_stream *stream;
	struct exogpu_module *builtin;
};

// Set once, in JNI_OnLoad.
static jclass native_class;
static jmethodID raise_method, found_method;

static void *pointer_of(jlong handle)
{
	return (void *)(uintptr_t)handle; // NOLINT: that is what a handle is
}

static jlong handle_of(const void *pointer)
{
	return (jlong)(uintptr_t)pointer;
}

// NULL for NULL, and with an exception pending if there is no memory.
static jbyteArray bytes_of(JNIEnv *env, const char *text)
{
	if (!text)
		return NULL;
	jsize length = (jsize)strlen(text);
	jbyteArray bytes = (*env)->NewByteArray(env, length);
	if (bytes)
		(*env)->SetByteArrayRegion(env, bytes, 0, length, (const jbyte *)text);
	return bytes;
}

// Throw what belongs to the error, unless something is thrown already.
static void raise(JNIEnv *env, const struct error *error)
{
	if ((*env)->ExceptionCheck(env))
		return;
	jbyteArray word = bytes_of(env, status_word(error->status));
	jbyteArray message = word ? bytes_of(env, error->message[0] ? error->message : status_text(error->status))
				  : NULL;
	jbyteArray hint = message ? bytes_of(env, error->hint) : NULL;
	if (hint)
		(*env)->CallStaticVoidMethod(env, native_class, raise_method, word, message, hint);
}

static void raise_text(JNIEnv *env, enum status status, const char *text)
{
	struct error error = {.status = status};
	size_t length = strlen(text);
	length = length < sizeof(error.message) ? length : sizeof(error.message) - 1;
	memcpy(error.message, text, length);
	raise(env, &error);
}

// Wait for all that was enqueued in the device's stream.
static enum status finish(struct opened *opened, int64_t timeout_ns, struct error *error)
{
	uint64_t point;
	enum status status = exogpu_mark(opened->stream, &point, error);
	return status ? status : exogpu_wait(opened->stream, point, timeout_ns, error);
}

// ---- devices ----

struct listing {
	JNIEnv *env;
	jobject list;
};

static void found(void *context, const struct exogpu_found_device *device)
{
	const struct listing *listing = context;
	JNIEnv *env = listing->env;
	const char *texts[] = {device->backend, device->hardware_key, device->name, device->driver_version,
			       device->reason};
	jbyteArray all[5] = {NULL};
	if ((*env)->ExceptionCheck(env) || (*env)->PushLocalFrame(env, 8))
		return; // the first exception ends the listing
	for (int i = 0; i < 5 && !(*env)->ExceptionCheck(env); i++)
		all[i] = bytes_of(env, texts[i]);
	if (!(*env)->ExceptionCheck(env))
		(*env)->CallStaticVoidMethod(env, native_class, found_method, listing->list, all[0], all[1], all[2],
					     all[3], (jlong)device->memory_bytes,
					     (jlong)exogpu_found_compute_units(device), (jboolean)device->software,
					     all[4]);
	(*env)->PopLocalFrame(env, NULL);
}

static void JNICALL find(JNIEnv *env, jclass class, jobject list)
{
	struct error error = {0};
	(void)class;
	if (exogpu_find_devices(found, &(struct listing){.env = env, .list = list}, &error))
		raise(env, &error);
}

static void let_go(struct opened *opened)
{
	exogpu_module_unload(&opened->builtin);
	exogpu_stream_destroy(&opened->stream);
	exogpu_device_close(&opened->device, NULL);
	free(opened);
}

static jlong JNICALL open_device(JNIEnv *env, jclass class, jstring backend, jstring key, jlong limit_bytes)
{
	struct error error = {0};
	const char *backend_text = NULL, *key_text = NULL;
	struct opened *opened = calloc(1, sizeof(*opened));
	jlong handle = 0;
	(void)class;
	if (!opened) {
		raise_text(env, STATUS_OUT_OF_MEMORY, "no memory for a device");
		return 0;
	}
	if (!backend || !key || limit_bytes < 0) {
		raise_text(env, STATUS_INVALID_PARAMS,
			   "a back end, a hardware key, and a limit of 0 or more bytes are needed");
		goto out;
	}
	backend_text = (*env)->GetStringUTFChars(env, backend, NULL);
	key_text = backend_text ? (*env)->GetStringUTFChars(env, key, NULL) : NULL;
	if (!key_text) // an exception is pending
		goto out;
	struct exogpu_open params = {
		.backend = backend_text, .hardware_key = key_text, .memory_limit_bytes = (uint64_t)limit_bytes};
	if (exogpu_device_open(&opened->device, &params, &error) ||
	    exogpu_stream_create(opened->device, &opened->stream, &error) ||
	    exogpu_module_load(opened->device, &opened->builtin, EXOGPU_FORMAT_BUILTIN, NULL, 0, &error)) {
		raise(env, &error);
		goto out;
	}
	handle = handle_of(opened);
out:
	if (key_text)
		(*env)->ReleaseStringUTFChars(env, key, key_text);
	if (backend_text)
		(*env)->ReleaseStringUTFChars(env, backend, backend_text);
	if (!handle)
		let_go(opened);
	return handle;
}

static void JNICALL close_device(JNIEnv *env, jclass class, jlong device)
{
	(void)env;
	(void)class;
	let_go(pointer_of(device));
}

static jlong JNICALL free_bytes(JNIEnv *env, jclass class, jlong device)
{
	struct opened *opened = pointer_of(device);
	struct error error = {0};
	uint64_t total, left = 0;
	(void)class;
	if (exogpu_device_memory(opened->device, &total, &left, &error))
		raise(env, &error);
	return (jlong)left;
}

// ---- memory ----

static jlong JNICALL create(JNIEnv *env, jclass class, jlong device, jlong bytes)
{
	struct opened *opened = pointer_of(device);
	struct exogpu_buffer *buffer = NULL;
	struct error error = {0};
	(void)class;
	if (bytes <= 0) {
		raise_text(env, STATUS_INVALID_PARAMS, "memory has at least one byte");
		return 0;
	}
	enum status status = exogpu_buffer_create(opened->device, &buffer, (uint64_t)bytes, EXOGPU_MEMORY_DEVICE,
						  &error);
	if (!status && !(exogpu_device_limits(opened->device)->capabilities & EXOGPU_CAN_ZEROED)) {
		status = exogpu_fill(opened->stream, buffer, 0, (uint64_t)bytes, 0, &error);
		status = status ? status : finish(opened, INT64_MAX, &error);
	}
	if (status) {
		exogpu_buffer_destroy(&buffer);
		raise(env, &error);
	}
	return handle_of(buffer);
}

static void JNICALL destroy(JNIEnv *env, jclass class, jlong buffer)
{
	struct exogpu_buffer *one = pointer_of(buffer);
	(void)env;
	(void)class;
	exogpu_buffer_destroy(&one);
}

// A part of an array of Java: `count` elements from `at` on.
struct part {
	jarray array;
	bool floats;
	jint at, count;
};

static bool part_fits(JNIEnv *env, const struct part *part)
{
	jsize length = part->array ? (*env)->GetArrayLength(env, part->array) : -1;
	bool fits = part->at >= 0 && part->count >= 0 && part->at <= length && part->count <= length - part->at;
	if (!fits)
		raise_text(env, STATUS_INVALID_PARAMS, "a range outside the array");
	return fits;
}

static void part_get(JNIEnv *env, const struct part *part, jint done, jint count, void *to)
{
	if (part->floats)
		(*env)->GetFloatArrayRegion(env, (jfloatArray)part->array, part->at + done, count, to);
	else
		(*env)->GetByteArrayRegion(env, (jbyteArray)part->array, part->at + done, count, to);
}

static void part_set(JNIEnv *env, const struct part *part, jint done, jint count, const void *from)
{
	if (part->floats)
		(*env)->SetFloatArrayRegion(env, (jfloatArray)part->array, part->at + done, count, from);
	else
		(*env)->SetByteArrayRegion(env, (jbyteArray)part->array, part->at + done, count, from);
}

// Move all of a part to the buffer, or from it, by pieces. libexogpu checks the range of the buffer at each.
static void part_move(JNIEnv *env, jlong handle, jlong offset, const struct part *part, bool to_device)
{
	const jint size = part->floats ? 4 : 1, most = PIECE_BYTES / size;
	struct exogpu_buffer *buffer = pointer_of(handle);
	struct error error = {0};
	if (!part_fits(env, part))
		return;
	const uint64_t bytes = (uint64_t)part->count * (uint64_t)size, whole = exogpu_buffer_bytes(buffer);
	if (offset < 0 || (uint64_t)offset > whole || bytes > whole - (uint64_t)offset) {
		raise_text(env, STATUS_INVALID_PARAMS, "a range outside the memory"); // before a byte is moved
		return;
	}
	void *piece = malloc(part->count < most ? (size_t)bytes + 1 : PIECE_BYTES);
	if (!piece) {
		raise_text(env, STATUS_OUT_OF_MEMORY, "no memory to copy through");
		return;
	}
	for (jint done = 0, count; done < part->count; done += count) {
		const uint64_t at = (uint64_t)offset + (uint64_t)done * (uint64_t)size;
		count = part->count - done < most ? part->count - done : most;
		if (to_device)
			part_get(env, part, done, count, piece);
		if ((*env)->ExceptionCheck(env))
			break;
		const uint64_t length = (uint64_t)count * (uint64_t)size;
		if (to_device ? exogpu_write(buffer, at, piece, length, &error)
			      : exogpu_read(piece, buffer, at, length, &error)) {
			raise(env, &error);
			break;
		}
		if (!to_device)
			part_set(env, part, done, count, piece);
	}
	free(piece);
}

static void JNICALL write_bytes(JNIEnv *env, jclass class, jlong buffer, jlong offset, jbyteArray from, jint at,
				jint count)
{
	(void)class;
	part_move(env, buffer, offset, &(struct part){.array = from, .at = at, .count = count}, true);
}

static void JNICALL read_bytes(JNIEnv *env, jclass class, jlong buffer, jlong offset, jbyteArray to, jint at,
			       jint count)
{
	(void)class;
	part_move(env, buffer, offset, &(struct part){.array = to, .at = at, .count = count}, false);
}

static void JNICALL write_floats(JNIEnv *env, jclass class, jlong buffer, jlong offset, jfloatArray from, jint at,
				 jint count)
{
	(void)class;
	part_move(env, buffer, offset, &(struct part){.array = from, .floats = true, .at = at, .count = count}, true);
}

static void JNICALL read_floats(JNIEnv *env, jclass class, jlong buffer, jlong offset, jfloatArray to, jint at,
				jint count)
{
	(void)class;
	part_move(env, buffer, offset, &(struct part){.array = to, .floats = true, .at = at, .count = count}, false);
}

// Bytes `at` to `at + count` of a direct ByteBuffer, which lie where they are: without a copy of ours.
static char *direct(JNIEnv *env, jobject memory, jint at, jint count)
{
	char *address = memory ? (*env)->GetDirectBufferAddress(env, memory) : NULL;
	jlong capacity = address ? (*env)->GetDirectBufferCapacity(env, memory) : -1;
	if (at < 0 || count < 0 || at > capacity || count > capacity - at) {
		raise_text(env, STATUS_INVALID_PARAMS, "not a direct buffer, or a range outside of it");
		return NULL;
	}
	return address + at;
}

static void JNICALL write_direct(JNIEnv *env, jclass class, jlong buffer, jlong offset, jobject from, jint at,
				 jint count)
{
	struct error error = {0};
	const char *data = direct(env, from, at, count);
	(void)class;
	if (!data)
		return;
	if (offset < 0)
		raise_text(env, STATUS_INVALID_PARAMS, "a range outside the memory");
	else if (exogpu_write(pointer_of(buffer), (uint64_t)offset, data, (uint64_t)count, &error))
		raise(env, &error);
}

static void JNICALL read_direct(JNIEnv *env, jclass class, jlong buffer, jlong offset, jobject to, jint at, jint count)
{
	struct error error = {0};
	char *data = direct(env, to, at, count);
	(void)class;
	if (!data)
		return;
	if (offset < 0)
		raise_text(env, STATUS_INVALID_PARAMS, "a range outside the memory");
	else if (exogpu_read(data, pointer_of(buffer), (uint64_t)offset, (uint64_t)count, &error))
		raise(env, &error);
}

// ---- kernels ----

static const struct exogpu_kernel *kernel_named(const struct opened *opened, const char *name)
{
	const struct exogpu_kernel *kernel = NULL;
	for (unsigned i = 0; (kernel = exogpu_module_kernel(opened->builtin, i)) != NULL; i++)
		if (!strcmp(kernel->name, name))
			break;
	return kernel;
}

// The kinds of a kernel's arguments (enum exogpu_argument_kind), of which Native knows the numbers; null: no such
// kernel.
static jintArray JNICALL signature(JNIEnv *env, jclass class, jlong device, jstring name)
{
	const char *text = name ? (*env)->GetStringUTFChars(env, name, NULL) : NULL;
	jintArray kinds = NULL;
	(void)class;
	if (!text)
		return NULL;
	const struct exogpu_kernel *kernel = kernel_named(pointer_of(device), text);
	(*env)->ReleaseStringUTFChars(env, name, text);
	if (!kernel)
		return NULL;
	jint all[EXOGPU_KERNEL_ARGUMENTS];
	for (unsigned i = 0; i < kernel->argument_count; i++)
		all[i] = (jint)kernel->arguments[i];
	kinds = (*env)->NewIntArray(env, (jsize)kernel->argument_count);
	if (kinds)
		(*env)->SetIntArrayRegion(env, kinds, 0, (jsize)kernel->argument_count, all);
	return kinds;
}

// `value`: the handle of a buffer, the bits of a float, or an integer, as the kind says.
static struct exogpu_argument argument_of(enum exogpu_argument_kind kind, jlong value)
{
	struct exogpu_argument argument = {.kind = kind};
	if (kind == EXOGPU_ARGUMENT_BUFFER)
		argument.buffer = pointer_of(value);
	else if (kind == EXOGPU_ARGUMENT_U64)
		argument.u64 = (uint64_t)value;
	else // 4 bytes of any kind: they share their place
		argument.u32 = (uint32_t)value;
	return argument;
}

// Launch a kernel that is built in, and wait until it is done. As many values as it has arguments.
static void JNICALL launch(JNIEnv *env, jclass class, jlong device, jstring name, jlongArray values, jlong timeout_ns)
{
	struct opened *opened = pointer_of(device);
	struct exogpu_argument arguments[LAUNCH_ARGUMENTS];
	jlong all[LAUNCH_ARGUMENTS];
	struct error error = {0};
	jsize count = values ? (*env)->GetArrayLength(env, values) : -1;
	const char *text = name ? (*env)->GetStringUTFChars(env, name, NULL) : NULL;
	(void)class;
	if (!text)
		return; // null, which Native never passes, or an exception is pending
	const struct exogpu_kernel *kernel = kernel_named(opened, text);
	(*env)->ReleaseStringUTFChars(env, name, text);
	if (!kernel || count < 0 || (unsigned)count != kernel->argument_count) {
		raise_text(env, STATUS_INVALID_PARAMS, "no such kernel, or not as many arguments as it has");
		return;
	}
	(*env)->GetLongArrayRegion(env, values, 0, count, all);
	if ((*env)->ExceptionCheck(env))
		return;
	for (jsize i = 0; i < count; i++)
		arguments[i] = argument_of(kernel->arguments[i], all[i]);
	struct exogpu_launch params = {.module = opened->builtin,
				       .kernel = kernel->name,
				       .arguments = arguments,
				       .argument_count = (unsigned)count};
	if (exogpu_launch(opened->stream, &params, &error) || finish(opened, timeout_ns, &error))
		raise(env, &error);
}

// ---- what Java sees ----

#define TEXT "[B"
#define METHOD(java, types, function) \
	{ \
		(char *)(java), (char *)(types), (void *)(function) \
	}

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *machine, void *reserved)
{
	JNINativeMethod methods[] = {
		METHOD("find", "(Ljava/util/List;)V", find),
		METHOD("open", "(Ljava/lang/String;Ljava/lang/String;J)J", open_device),
		METHOD("close", "(J)V", close_device),
		METHOD("freeBytes", "(J)J", free_bytes),
		METHOD("create", "(JJ)J", create),
		METHOD("destroy", "(J)V", destroy),
		METHOD("write", "(JJ[BII)V", write_bytes),
		METHOD("read", "(JJ[BII)V", read_bytes),
		METHOD("write", "(JJ[FII)V", write_floats),
		METHOD("read", "(JJ[FII)V", read_floats),
		METHOD("write", "(JJLjava/nio/ByteBuffer;II)V", write_direct),
		METHOD("read", "(JJLjava/nio/ByteBuffer;II)V", read_direct),
		METHOD("signature", "(JLjava/lang/String;)[I", signature),
		METHOD("launch", "(JLjava/lang/String;[JJ)V", launch),
	};
	JNIEnv *env = NULL;
	(void)reserved;
	if ((*machine)->GetEnv(machine, (void **)&env, JNI_VERSION_1_6))
		return JNI_ERR;
	jclass class = (*env)->FindClass(env, "dev/exogpu/Native");
	if (!class)
		return JNI_ERR;
	native_class = (*env)->NewGlobalRef(env, class);
	raise_method = native_class ? (*env)->GetStaticMethodID(env, native_class, "raise", "(" TEXT TEXT TEXT ")V")
				    : NULL;
	found_method = raise_method ? (*env)->GetStaticMethodID(env, native_class, "found",
								"(Ljava/util/List;" TEXT TEXT TEXT TEXT "JJZ" TEXT ")V")
				    : NULL;
	if (!found_method || (*env)->RegisterNatives(env, native_class, methods, sizeof(methods) / sizeof(*methods)))
		return JNI_ERR;
	return JNI_VERSION_1_6;
}
