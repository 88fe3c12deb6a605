/* The tasks of each kind of worker, done by workers that are confined as the node confines them: on every back end with
 * a device here, each thing is done, and no system call is made that is not on the back end's list.
 *
 * How the lists are made: with EXOGPU_TEST_RECORD=1 every driver is held to the list of what is allowed, but what is
 * not on it goes through, and is printed: name, and the arguments of the first such call. */
#include "common/files/kernels_built.h"
#include "engine/node/cache.h"
#include "engine/node/workers/refusals.h"
#include "engine/worker/worker.h"
#include "tests/engine/cuda/here.h"
#include "tests/engine/worker/worker_test.h"
#include "tests/tools/model_file.h"

#include <ftw.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <sys/ioctl.h>

enum { NUMBERS = 1024, MIB = 1024 * 1024, TEXT_BYTES = 65536 };

static char folder[] = "/tmp/exogpu-confined-XXXXXX", cache[64], text[TEXT_BYTES];
static int model_fd = -1;
static bool is_recording;
static atomic_uint off_list[NUMBERS]; // how many calls, by their number

struct seat {
	const char *backend;
	char keys[2][257]; // of devices; "" for none
	struct worker worker;
	pthread_t thread;
	int listener; // -1: there is none
	const char *doing;
};

// ---- calls that are not on the list ----

static void take_call(const struct seat *seat)
{
	alignas(8) uint8_t call_room[512] = {0}, reply_room[512] = {0};
	struct seccomp_notif *call = (struct seccomp_notif *)call_room;
	struct seccomp_notif_resp *reply = (struct seccomp_notif_resp *)reply_room;
	if (ioctl(seat->listener, SECCOMP_IOCTL_NOTIF_RECV, call))
		return;
	const int number = call->data.nr;
	if (number >= 0 && number < NUMBERS && !atomic_fetch_add(&off_list[number], 1)) {
		const char *name = worker_call_name(number);
		print_message("OFF THE LIST: %s, %s: call %d (%s)", seat->backend, seat->doing, number,
			      name ? name : "no list knows it");
		for (int i = 0; i < 6; i++)
			print_message(" 0x%llx", (unsigned long long)call->data.args[i]);
		print_message("\n");
	}
	*reply = (struct seccomp_notif_resp){.id = call->id,
					     .error = is_recording ? 0 : -EPERM,
					     .flags = is_recording ? SECCOMP_USER_NOTIF_FLAG_CONTINUE : 0};
	ioctl(seat->listener, SECCOMP_IOCTL_NOTIF_SEND, reply);
}

// Until the worker has ended.
static void *take_calls(void *arg)
{
	const struct seat *seat = arg;
	struct pollfd waiting = {.fd = seat->listener, .events = POLLIN};
	while (poll(&waiting, 1, -1) > 0 && waiting.revents & POLLIN)
		take_call(seat);
	return NULL;
}

// As the node does it: the other end of the filter comes with the first message.
static int begin(struct seat *seat, const char *doing, const char *method, const char *more)
{
	seat->doing = doing;
	seat->listener = -1;
	worker_start_alone(&seat->worker);
	int id = post(&seat->worker, seat->worker.node, method, NULL, 0, "'backend':'%s'%s", seat->backend, more);
	assert_int_equal(refusals_receive(seat->worker.node, (uint8_t[1]){0}, 0, &seat->listener), 0);
	if (seat->listener >= 0)
		assert_int_equal(pthread_create(&seat->thread, NULL, take_calls, seat), 0);
	return id;
}

static void end(struct seat *seat)
{
	const int ended = worker_end(&seat->worker, text, sizeof(text));
	if (seat->listener >= 0) {
		pthread_join(seat->thread, NULL);
		close(seat->listener);
	}
	if (ended)
		print_error("%s, %s: the worker ended with %d: %s\n", seat->backend, seat->doing, ended, text);
	assert_int_equal(ended, 0);
	print_message("%s: done: %s%s\n", seat->backend, seat->doing,
		      seat->listener >= 0 ? "" : " (held to what is refused, or not told what is)");
}

// ---- workers of one call ----

static void lists(struct seat *seat)
{
	struct answer answer;
	expect(seat->worker.node, &answer, begin(seat, "list", "worker.enumerate", ""), "worker.enumerate", STATUS_OK);
	const struct json *devices = json_get(answer.message.result, "devices"), *device = json_first(devices);
	for (int i = 0; i < 2; i++, device = json_next(device))
		snprintf(seat->keys[i], sizeof(seat->keys[i]), "%s", json_get_string(device, "hardware_key", ""));
	answer_finish(&answer);
	end(seat);
}

static void calls_once(struct seat *seat, const char *doing, const char *method, const char *more)
{
	struct answer answer;
	expect(seat->worker.node, &answer, begin(seat, doing, method, more), method, STATUS_OK);
	answer_finish(&answer);
	end(seat);
}

static int count_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
	(void)path, (void)info, (void)at;
	text[0] = (char)(text[0] + (kind == FTW_F && text[0] < 100));
	return 0;
}

// How many files are in the cache, a hundred at most.
static int files_kept(void)
{
	text[0] = 0;
	nftw(cache, count_one, 8, FTW_PHYS);
	return text[0];
}

// Whether the driver compiles the kernels of this binary, and so the cache keeps them: machine code is loaded as it is.
static bool has_to_compile(const struct seat *seat)
{
	struct kernels_built built;
	kernels_built_read(&built);
	return !strcmp(seat->backend, "vulkan") || (!strcmp(seat->backend, "cuda") && !strstr(built.images, "sm_"));
}

static void verifies_and_compiles(struct seat *seat)
{
	char more[1024];
	snprintf(more, sizeof(more), ",'hardware_key':'%s','measure':true,'cache_directory':'%s'", seat->keys[0],
		 cache);
	calls_once(seat, "verify", "worker.verify", more);
	snprintf(more, sizeof(more), ",'hardware_key':'%s','cache_directory':'%s'", seat->keys[0], cache);
	calls_once(seat, "compile", "worker.compile", more);
	const int kept = files_kept();
	print_message("%s: %d files in the cache\n", seat->backend, kept);
	if (has_to_compile(seat))
		assert_true(kept > 0);
	calls_once(seat, "compile what is there", "worker.compile", more);
	snprintf(more, sizeof(more), ",'hardware_key':'%s','peer_key':'%s'", seat->keys[0], seat->keys[1]);
	if (seat->keys[1][0])
		calls_once(seat, "measure", "worker.peers", more);
}

// ---- a session ----

static void has_bytes(struct worker *worker, unsigned handle, const void *wanted, size_t bytes)
{
	struct answer answer;
	int id = post(worker, worker->server, "memory.read", NULL, 0, "'handle':%u,'offset':0,'bytes':%zu", handle,
		      bytes);
	expect(worker->server, &answer, id, "memory.read", STATUS_OK);
	assert_int_equal(answer.message.body_bytes, bytes);
	assert_memory_equal(answer.message.body, wanted, bytes);
	answer_finish(&answer);
}

static void write_bytes(struct worker *worker, unsigned handle, const void *bytes, size_t length)
{
	struct answer answer;
	int id = post(worker, worker->server, "memory.write", bytes, length, "'handle':%u,'offset':0", handle);
	expect(worker->server, &answer, id, "memory.write", STATUS_OK);
	answer_finish(&answer);
}

static void remembers(struct worker *worker)
{
	uint8_t *bytes = malloc(8 * MIB);
	assert_non_null(bytes);
	for (size_t i = 0; i < 8 * MIB; i++)
		bytes[i] = (uint8_t)(i * 2654435761u >> 13);
	SERVER_CALL(worker, "memory.allocate", STATUS_OK, "'device':0,'handle':1,'bytes':%d", 8 * MIB);
	SERVER_CALL(worker, "memory.allocate", STATUS_OK, "'device':0,'handle':2,'bytes':%d", 8 * MIB);
	write_bytes(worker, 1, bytes, 8 * MIB);
	SERVER_CALL(worker, "memory.copy", STATUS_OK, "'from':1,'from_offset':0,'to':2,'to_offset':0,'bytes':%d",
		    8 * MIB);
	has_bytes(worker, 2, bytes, 8 * MIB);
	SERVER_CALL(worker, "memory.fill", STATUS_OK, "'handle':2,'offset':0,'bytes':%d,'value':7", MIB);
	memset(bytes, 7, MIB);
	has_bytes(worker, 2, bytes, 2 * MIB);
	// Shared memory, which a driver imports: what is read lies there.
	SERVER_CALL(worker, "memory.share", STATUS_OK, "'wanted':true");
	SERVER_CALL(worker, "memory.read", STATUS_OK, "'handle':2,'offset':0,'bytes':%d,'at':%d", MIB, MIB);
	SERVER_CALL(worker, "memory.share", STATUS_OK, "'wanted':false");
	SERVER_CALL(worker, "memory.free", STATUS_OK, "'handle':1");
	SERVER_CALL(worker, "memory.free", STATUS_OK, "'handle':2");
	free(bytes);
}

static size_t read_module(const char *backend, uint8_t **bytes)
{
	if (!strcmp(backend, "cuda")) {
		*bytes = (uint8_t *)strdup(here_kernels);
		return strlen(here_kernels);
	}
	char path[4096];
	snprintf(path, sizeof(path), "%s/scale.spv", TEST_KERNELS);
	FILE *file = fopen(path, "re");
	assert_non_null(file);
	*bytes = malloc(MIB);
	assert_non_null(*bytes);
	const size_t length = fread(*bytes, 1, MIB, file);
	fclose(file);
	return length;
}

// A user's kernel of the back end's own language, and built-in ones. Each doubles 64 numbers and adds something.
static void computes(struct worker *worker, const char *backend)
{
	const bool cuda = !strcmp(backend, "cuda");
	float from[64], wanted[64];
	uint8_t *module = NULL;
	struct answer answer;
	for (int i = 0; i < 64; i++) {
		from[i] = (float)i;
		wanted[i] = (float)i * 2 + (cuda ? (float)i : 0.25f * (float)(1 + i % 4));
	}
	SERVER_CALL(worker, "compute.load", STATUS_OK, "'device':0,'module':1,'format':'builtin'");
	SERVER_CALL(worker, "compute.run", STATUS_OK,
		    "'device':0,'kernel':'saxpy_f32','args':[{'f32s':[1,2]},{'f32s':[3,4]},{'f32':2},{'u32':2}],"
		    "'timeout_ms':60000");
	if (!strcmp(backend, "cpu"))
		return;
	SERVER_CALL(worker, "memory.allocate", STATUS_OK, "'device':0,'handle':3,'bytes':256");
	SERVER_CALL(worker, "memory.allocate", STATUS_OK, "'device':0,'handle':4,'bytes':256");
	write_bytes(worker, 3, from, sizeof(from));
	const size_t length = read_module(backend, &module);
	int id = post(worker, worker->server, "compute.load", module, length, "'device':0,'module':2,'format':'%s'",
		      cuda ? "ptx" : "spirv");
	free(module);
	expect(worker->server, &answer, id, "compute.load", STATUS_OK);
	answer_finish(&answer);
	SERVER_CALL(worker, "compute.launch", STATUS_OK, "'module':2,'kernel':'%s','grid':[1,1,1]%s,'timeout_ms':60000",
		    cuda ? "scale" : "main",
		    cuda ? ",'block':[64,1,1],'args':[{'handle':4},{'handle':3},{'f32':2},{'u32':64}]"
			 : ",'args':[{'handle':4},{'handle':3},{'f32':0.25},{'f32':0.5},{'f32':0.75},{'f32':1},"
			   "{'u64':64},{'f32':2},{'i32':0},{'i32':0}]");
	has_bytes(worker, 4, wanted, sizeof(wanted));
	SERVER_CALL(worker, "compute.unload", STATUS_OK, "'module':2");
}

static void finish_opening(struct seat *seat, int id, const char *method)
{
	struct answer answer;
	expect(seat->worker.node, &answer, id, method, STATUS_OK);
	const struct json *missing = json_get(json_get(answer.message.result, "sandbox"), "missing");
	for (const struct json *one = json_first(missing); one; one = json_next(one))
		print_message("missing here: %s\n", json_string(one, ""));
	answer_finish(&answer);
}

static void serves_a_session(struct seat *seat)
{
	char more[256];
	struct worker *worker = &seat->worker;
	snprintf(more, sizeof(more), ",'cache_directory':'%s','memory_limit_bytes':67108864", cache);
	finish_opening(seat, begin(seat, "session", "worker.open", more), "worker.open");
	CALL_STATUS(worker, worker->node, "worker.device", STATUS_OK, "'device':0,'hardware_key':'%s'", seat->keys[0]);
	remembers(worker);
	computes(worker, seat->backend);
	end(seat);
}

// ---- a model ----

static void wait_for(struct worker *worker, const char *method, int id)
{
	struct answer answer;
	for (bool found = false; !found; answer_finish(&answer)) {
		assert_true(receive_answer(worker->server, &answer));
		found = id ? json_get_integer(answer.message.head, "id", 0) == id
			   : answer.message.kind == MESSAGE_NOTIFICATION && !strcmp(answer.message.method, method);
		if (found && answer.status)
			fail_msg("%s: %s", method, json_get_string(answer.message.error, "message", ""));
		if (found && !id)
			assert_string_equal(json_get_string(answer.message.params, "reason", ""), "length");
	}
}

static void answers_as_a_model(struct seat *seat)
{
	char more[256];
	struct worker *worker = &seat->worker;
	snprintf(more, sizeof(more), ",'cache_directory':'%s'", cache);
	worker_model = model_fd;
	finish_opening(seat, begin(seat, "model", "worker.instance", more), "worker.instance");
	worker_model = -1;
	int id = post(worker, worker->server, "instance.load", NULL, 0,
		      "'stages':[{'hardware_key':'%s','first_layer':0,'layer_count':2,'host_layers':0}],"
		      "'context_tokens':256,'page_count':32,'batch_rows':64,'sequences':4",
		      seat->keys[0]);
	wait_for(worker, "instance.load", id);
	post(worker, worker->server, "generate.start", NULL, 0,
	     "'request':1,'owner':1,'prompt':{'text':'the rain in spain'},'max_tokens':40,'ignore_end':true");
	wait_for(worker, "generate.end", 0);
	end(seat);
}

// ----

static void works_confined(const char *backend)
{
	struct seat *seat = calloc(1, sizeof(*seat)); // a failed test leaves it to its thread
	assert_non_null(seat);
	seat->backend = backend;
	memset(off_list, 0, sizeof(off_list));
	lists(seat);
	if (!seat->keys[0][0]) {
		free(seat);
		print_message("skipped: no device of %s here\n", backend);
		skip();
	}
	verifies_and_compiles(seat);
	serves_a_session(seat);
	answers_as_a_model(seat);
	free(seat);
	unsigned calls = 0;
	for (int i = 0; i < NUMBERS; i++)
		calls += off_list[i] != 0;
	if (!is_recording)
		assert_int_equal(calls, 0);
	print_message("%s: %u system calls are not on the list\n", backend, calls);
}

static void on_the_processor(void **state)
{
	(void)state;
	works_confined("cpu");
}

static void on_cuda(void **state)
{
	(void)state;
	works_confined("cuda");
}

static void on_vulkan(void **state)
{
	(void)state;
	works_confined("vulkan");
}

static int prepare(void **state)
{
	struct model_file small = model_file_small();
	char path[64];
	if (load_contract(state) || !mkdtemp(folder) || chmod(folder, 0755) ||
	    cache_prepare(folder, cache, sizeof(cache), NULL))
		return 1;
	snprintf(path, sizeof(path), "%s/model", folder);
	if (!model_file_save(&small, path))
		return 1;
	model_fd = open(path, O_RDONLY | O_CLOEXEC);
	is_recording = getenv("EXOGPU_TEST_RECORD") != NULL;
	if (is_recording)
		setenv("EXOGPU_FAULT", "listed:vulkan,listed:cuda", 1);
	return model_fd < 0;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
	(void)info, (void)kind, (void)at;
	return remove(path);
}

static int clean(void **state)
{
	close(model_fd);
	return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS) | drop_contract(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(on_the_processor),
		cmocka_unit_test(on_cuda),
		cmocka_unit_test(on_vulkan),
	};
	return cmocka_run_group_tests_name("worker/confined", tests, prepare, clean);
}
