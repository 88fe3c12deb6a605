/* Each call of the driver, failing: of lives on a device, from opening to closing it, the n-th call is struck, for
 * every n until none is (driver/struck.c). With a driver that stands in for NVIDIA's, or, as `gpu`, with that.
 *
 * What fails says so, with the driver's number, or something else served and the results are right. What is not a loss
 * leaves a device, and a stage on it, that does all of it again; after a loss no work reaches the driver. At the end
 * all that was made is destroyed, once, and the device can be opened anew. */
#include "common/files/embedded.h"
#include "engine/inside.h"
#include "engine/stage.h"
#include "tests/engine/cuda/here.h"
#include "tests/engine/cuda/struck.h"
#include "tests/tools/model_file.h"

#include <dirent.h>
#include <dlfcn.h>
#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 70000, DEVICES = 2 };

// The address sanitizer makes each life take three times as long.
#if defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 2 };
#else
enum { STRIDE = 1 };
#endif
static bool all; // each call with each result, else with one of them
static char keys[DEVICES][INFO_KEY_BYTES];
static unsigned key_count;
static char directory[] = "/tmp/exogpu-faults-XXXXXX";
static const int64_t long_ns = 100ll * 1000 * 1000 * 1000;
static float data[BYTES / 4]; // small whole numbers

// ---- lives ----

// From the opening of its devices to their closing: what is made on them, and work, of which both may fail.
struct life {
	const char *name;
	unsigned devices;
	bool kept;      // compiled kernels are kept, and there are none yet
	bool joined;    // any fault may lose the devices
	int capability; // of the stand-in; 0: 80
	enum status (*make)(struct exogpu_device *const *devices, struct error *error);
	enum status (*run)(struct exogpu_device *const *devices, struct error *error); // and check, if it is done
	void (*finish)(void);
};

// ---- buffers, streams, modules, copies, launches ----

static struct {
	struct exogpu_module *builtin, *user;
	struct exogpu_stream *streams[2];
	struct exogpu_buffer *x, *y, *z, *host, *other, *imported;
} work;
static _Alignas(EXOGPU_IMPORT_BYTES) uint8_t
	importable[(BYTES + EXOGPU_IMPORT_BYTES - 1) / EXOGPU_IMPORT_BYTES * EXOGPU_IMPORT_BYTES];

static enum status make_work(struct exogpu_device *const *devices, struct error *error)
{
	struct exogpu_device *device = devices[0];
	enum status status = exogpu_module_load(device, &work.builtin, EXOGPU_FORMAT_BUILTIN, NULL, 0, error);
	for (int i = 0; !status && i < 2; i++)
		status = exogpu_stream_create(device, &work.streams[i], error);
	if (!status)
		status = exogpu_buffer_create(device, &work.x, BYTES, EXOGPU_MEMORY_DEVICE, error);
	if (!status)
		status = exogpu_buffer_create(device, &work.y, BYTES, EXOGPU_MEMORY_DEVICE, error);
	if (!status)
		status = exogpu_buffer_create(device, &work.z, BYTES, EXOGPU_MEMORY_DEVICE, error);
	if (!status)
		status = exogpu_buffer_create(device, &work.host, BYTES, EXOGPU_MEMORY_HOST, error);
	if (!status)
		status = exogpu_buffer_create(device, &work.other, BYTES, EXOGPU_MEMORY_HOST, error);
	if (!status)
		status = exogpu_buffer_import(device, &work.imported, importable, sizeof(importable), error);
	if (!status)
		status = exogpu_module_load(device, &work.user, EXOGPU_FORMAT_PTX, here_kernels, strlen(here_kernels),
					    error);
	return status;
}

static struct exogpu_argument of(struct exogpu_buffer *buffer)
{
	return (struct exogpu_argument){.kind = EXOGPU_ARGUMENT_BUFFER, .buffer = buffer};
}

// z = 2 * x + i by a user's kernel; y += x, and its sum to its beginning.
static enum status launch_all(struct error *error)
{
	const struct exogpu_argument scale[] = {of(work.z),
						of(work.x),
						{.kind = EXOGPU_ARGUMENT_F32, .f32 = 2},
						{.kind = EXOGPU_ARGUMENT_U32, .u32 = BYTES / 4}};
	const struct exogpu_argument saxpy[] = {of(work.y),
						of(work.x),
						{.kind = EXOGPU_ARGUMENT_F32, .f32 = 1},
						{.kind = EXOGPU_ARGUMENT_U32, .u32 = BYTES / 4}};
	const struct exogpu_argument sum[] = {of(work.y), of(work.x), {.kind = EXOGPU_ARGUMENT_U32, .u32 = 10}};
	const struct exogpu_launch launches[] = {
		{.module = work.user,
		 .kernel = "scale",
		 .grid = {(BYTES / 4 + 63) / 64, 1, 1},
		 .block = {64, 1, 1},
		 .arguments = scale,
		 .argument_count = 4},
		{.module = work.builtin, .kernel = "saxpy_f32", .arguments = saxpy, .argument_count = 4},
		{.module = work.builtin, .kernel = "sum_f32", .arguments = sum, .argument_count = 3},
	};
	enum status status = STATUS_OK;
	for (int i = 0; !status && i < 3; i++)
		status = exogpu_launch(work.streams[0], &launches[i], error);
	return status;
}

// As often as there are points, so that the next one waits for the oldest; of these only the last two are struck.
static enum status go_round(struct exogpu_stream *stream, struct error *error)
{
	long countdown = strikes->countdown;
	enum status status = STATUS_OK;
	uint64_t point;
	strikes->countdown = -1;
	for (int i = 0; !status && i < EXOGPU_POINTS + 1; i++) {
		if (i == EXOGPU_POINTS - 1)
			strikes->countdown = countdown;
		status = exogpu_mark(stream, &point, error);
	}
	return status;
}

static void right_work(const float *y, const float *z, const float *host)
{
	float sum = 0;
	for (int i = 0; i < 10; i++)
		sum += data[i];
	for (int i = 0; strikes->real && i < BYTES / 4; i++) {
		assert_float_equal(y[i], i ? data[i] : sum, 0);
		assert_float_equal(z[i], 2 * data[i] + (float)i, 0);
	}
	for (int i = 0; !strikes->real && i < BYTES / 4; i++) // filled
		assert_float_equal(y[i] + z[i], 0, 0);
	for (int i = 0; i < BYTES / 4; i++)
		assert_float_equal(host[i], data[i], 0);
}

static enum status run_work(struct exogpu_device *const *devices, struct error *error)
{
	static float y[BYTES / 4], z[BYTES / 4], host[BYTES / 4];
	struct exogpu_buffer *passing = NULL;
	uint64_t point = 0, after = 0, total, unused;
	int64_t ns;
	enum status status = exogpu_write(work.x, 0, data, BYTES, error);
	if (!status)
		status = exogpu_device_memory(devices[0], &total, &unused, error);
	if (!status)
		status = exogpu_fill(work.streams[0], work.y, 0, BYTES, 0, error);
	if (!status)
		status = exogpu_fill(work.streams[0], work.z, 0, BYTES, 0, error);
	if (!status)
		status = launch_all(error);
	if (!status)
		status = exogpu_buffer_create(devices[0], &passing, 64, EXOGPU_MEMORY_DEVICE, error);
	if (!status)
		status = exogpu_fill(work.streams[0], passing, 0, 64, 1, error);
	exogpu_buffer_destroy(&passing); // hands over what is enqueued
	if (!status)
		status = exogpu_mark(work.streams[0], &point, error);
	if (!status)
		status = exogpu_follow(work.streams[1], work.streams[0], point, error);
	if (!status)
		status = exogpu_copy(work.streams[1],
				     &(struct exogpu_copy){.to = work.host, .from = work.x, .bytes = BYTES}, error);
	if (!status) // within the host's memory
		status = exogpu_copy(work.streams[1],
				     &(struct exogpu_copy){.to = work.other, .from = work.host, .bytes = BYTES}, error);
	if (!status)
		status = exogpu_copy(work.streams[1],
				     &(struct exogpu_copy){.to = work.imported, .from = work.x, .bytes = BYTES}, error);
	if (!status)
		status = exogpu_read(y, work.y, 0, BYTES, error);
	if (!status)
		status = exogpu_read(z, work.z, 0, BYTES, error);
	if (!status)
		status = exogpu_read(host, work.other, 0, BYTES, error);
	if (!status)
		status = go_round(work.streams[0], error);
	if (!status)
		status = exogpu_mark(work.streams[0], &after, error);
	if (!status)
		status = exogpu_wait(work.streams[0], after, long_ns, error);
	if (!status)
		status = exogpu_elapsed(work.streams[0], after - 1, after, &ns, error);
	if (!status) {
		right_work(y, z, host);
		assert_memory_equal(importable, data, BYTES);
	}
	if (!status) // left under way
		status = exogpu_copy(work.streams[1],
				     &(struct exogpu_copy){.to = work.other, .from = work.host, .bytes = BYTES}, error);
	if (!status)
		status = exogpu_fill(work.streams[1], work.host, 0, BYTES, 0, error);
	return status;
}

static void finish_work(void)
{
	exogpu_buffer_destroy(&work.host);
	exogpu_buffer_destroy(&work.imported);
	exogpu_module_unload(&work.user);
	exogpu_stream_destroy(&work.streams[0]);
	exogpu_buffer_destroy(&work.x);
	exogpu_buffer_destroy(&work.y);
	exogpu_stream_destroy(&work.streams[1]);
	exogpu_buffer_destroy(&work.z);
	exogpu_buffer_destroy(&work.other);
	exogpu_module_unload(&work.builtin);
}

// ---- copies between two devices ----

static enum status make_peers(struct exogpu_device *const *devices, struct error *error)
{
	enum status status = exogpu_stream_create(devices[0], &work.streams[0], error);
	if (!status)
		status = exogpu_stream_create(devices[1], &work.streams[1], error);
	if (!status)
		status = exogpu_buffer_create(devices[0], &work.x, BYTES, EXOGPU_MEMORY_DEVICE, error);
	if (!status)
		status = exogpu_buffer_create(devices[1], &work.y, BYTES, EXOGPU_MEMORY_DEVICE, error);
	if (!status)
		status = exogpu_buffer_create(devices[0], &work.z, BYTES, EXOGPU_MEMORY_DEVICE, error);
	return status;
}

// There, and back.
static enum status run_peers(struct exogpu_device *const *devices, struct error *error)
{
	static float got[BYTES / 4];
	uint64_t point = 0;
	(void)devices;
	enum status status = exogpu_write(work.x, 0, data, BYTES, error);
	if (!status)
		status = exogpu_copy(work.streams[0],
				     &(struct exogpu_copy){.to = work.y, .from = work.x, .bytes = BYTES}, error);
	if (!status)
		status = exogpu_mark(work.streams[0], &point, error);
	if (!status)
		status = exogpu_wait(work.streams[0], point, long_ns, error);
	if (!status)
		status = exogpu_copy(work.streams[1],
				     &(struct exogpu_copy){.to = work.z, .from = work.y, .bytes = BYTES}, error);
	if (!status)
		status = exogpu_read(got, work.z, 0, BYTES, error);
	if (!status)
		assert_memory_equal(got, data, BYTES);
	return status;
}

// ---- compiled kernels that are kept ----

static enum status make_kept(struct exogpu_device *const *devices, struct error *error)
{
	return exogpu_module_load(devices[0], &work.builtin, EXOGPU_FORMAT_BUILTIN, NULL, 0, error);
}

static enum status run_kept(struct exogpu_device *const *devices, struct error *error)
{
	(void)devices, (void)error;
	return STATUS_OK;
}

// ---- stages ----

enum { VOCABULARY = 96, TEXT = 80, STEPS = 5, EMBEDDING = 256 };

// A model, and one with states: the layers of its stages are of a gated delta rule, and of gated attention.
static struct stage_model {
	struct model_file_open file;
	const struct model_shape *shape;
	float *rope;
} plain, with_states;

// Whole, as two that follow each other, or in two slices.
static struct {
	const struct stage_model *model;
	struct stage *stages[2];
	float activations[TEXT * EMBEDDING];
	float logits[STEPS][2 * VOCABULARY], hidden[EMBEDDING];
	float right[VOCABULARY]; // those of the last step, of a life without a fault
	bool known;
} staged;

static enum status lend(void *context, enum model_role role, uint32_t layer, struct model_tensor *out,
			struct error *error)
{
	(void)context;
	if (!model_tensor(staged.model->file.model, role, layer, out))
		return error_set(error, STATUS_INTERNAL, "no tensor %d", (int)role);
	return STATUS_OK;
}

static struct stage_params stage_params_of(uint32_t first, uint32_t count)
{
	return (struct stage_params){
		.shape = staged.model->shape,
		.first_layer = first,
		.layer_count = count,
		.embeds = !first,
		.predicts = first + count == staged.model->shape->layers,
		.context_tokens = staged.model->shape->context,
		.page_count = 8,
		.batch_rows = TEXT,
		.batch_sequences = 2,
		.batch_outputs = 2,
		.rope = staged.model->rope,
		.tensor = lend,
	};
}

static enum status make_whole(struct exogpu_device *const *devices, struct error *error)
{
	staged.model = &plain;
	const struct stage_params params = stage_params_of(0, 2);
	return stage_create(&staged.stages[0], devices[0], &params, error);
}

// The first layer and the last: those between are not needed, and their calls are the same.
static enum status make_two(struct exogpu_device *const *devices, struct error *error)
{
	staged.model = &with_states;
	struct stage_params first = stage_params_of(0, 1), second = stage_params_of(staged.model->shape->layers - 1, 1);
	second.host_layers = 1;
	enum status status = stage_create(&staged.stages[0], devices[0], &first, error);
	return status ? status : stage_create(&staged.stages[1], devices[0], &second, error);
}

static enum status make_slices(struct exogpu_device *const *devices, struct error *error)
{
	staged.model = &plain;
	const struct stage_params params = stage_params_of(0, 2);
	return stage_create_sliced(&staged.stages[0], devices, 2, &params, error);
}

// One step of all stages: `rows` new tokens of each of `sequences`, and the logits of the last of each.
static enum status step(uint32_t number, uint32_t sequences, uint32_t rows, uint32_t position, struct error *error)
{
	static const uint32_t pages[2][4] = {{0, 1, 2, 3}, {4, 5, 6, 7}};
	uint32_t tokens[TEXT], outputs[2];
	struct stage_run runs[2];
	enum status status = STATUS_OK;
	for (uint32_t i = 0; i < sequences; i++) {
		runs[i] = (struct stage_run){.row_count = rows, .position = position, .pages = pages[i]};
		if (model_is_recurrent(staged.model->shape)) {
			runs[i].state_from = position ? i + 1 : 0;
			runs[i].state_to = i + 1;
		}
		outputs[i] = (i + 1) * rows - 1;
	}
	for (uint32_t i = 0; i < sequences * rows; i++)
		tokens[i] = (i * 31 + number * 7) % VOCABULARY;
	for (int i = 0; !status && i < 2 && staged.stages[i]; i++) {
		bool last = i || !staged.stages[1];
		const struct stage_batch batch = {
			.row_count = sequences * rows,
			.runs = runs,
			.run_count = sequences,
			.tokens = tokens,
			.input = staged.activations,
			.output = staged.activations,
			.output_rows = outputs,
			.output_count = last ? sequences : 0,
			.logits = staged.logits[number],
			.hidden = number == 3 ? staged.hidden : NULL,
			.candidates = last && stage_finds_candidates(staged.stages[i]),
		};
		status = stage_step(staged.stages[i], &batch, error);
	}
	return status;
}

// Pages of a layer go in, two of them side by side, and come out as they were.
static enum status move_pages(struct stage *stage, uint32_t layer, struct error *error)
{
	enum { MOVED = 3, MOST = 1 << 16 };
	static const uint32_t pages[MOVED] = {1, 2, 5};
	static uint8_t in[MOVED * MOST], out[MOVED * MOST];
	const uint64_t bytes = MOVED * stage_page_bytes(staged.model->shape);
	assert_true(bytes <= sizeof(in));
	for (uint64_t i = 0; i < bytes; i++)
		in[i] = (uint8_t)(i * 7 + i / 251);
	memset(out, 0, sizeof(out));
	enum status status = stage_write_pages(stage, layer, pages, MOVED, in, error);
	if (!status)
		status = stage_read_pages(stage, layer, pages, MOVED, out, error);
	if (!status)
		assert_memory_equal(out, in, bytes);
	return status;
}

// Pages go in and out; a prompt; single tokens, of which the second takes a graph; one of each of two sequences; what
// is there is cleared, also the states, whose numbers are those behind the pages.
static enum status run_stages(struct exogpu_device *const *devices, struct error *error)
{
	static const uint32_t pages[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
	const uint32_t count = model_is_recurrent(staged.model->shape) ? 10 : 8;
	(void)devices;
	enum status status = move_pages(staged.stages[staged.stages[1] ? 1 : 0], staged.model->shape->layers - 1,
					error);
	for (int i = 0; !status && i < 2 && staged.stages[i]; i++)
		status = stage_zero(staged.stages[i], pages, count, error);
	if (!status)
		status = step(0, 1, TEXT, 0, error);
	if (!status)
		status = step(1, 2, 1, TEXT, error);
	if (!status)
		status = step(2, 1, 1, TEXT + 1, error);
	if (!status)
		status = step(3, 1, 1, TEXT + 2, error);
	if (!status)
		status = step(4, 1, 1, TEXT + 3, error);
	if (status || !strikes->real)
		return status;
	for (int i = 0; i < VOCABULARY && staged.known; i++) // by another kernel, if one was not to be had
		assert_float_equal(staged.logits[4][i], staged.right[i], 0.02);
	if (!staged.known)
		memcpy(staged.right, staged.logits[4], sizeof(staged.right));
	staged.known = true;
	return STATUS_OK;
}

static void finish_stages(void)
{
	stage_destroy(&staged.stages[1]);
	stage_destroy(&staged.stages[0]);
}

static void make_model(struct stage_model *model, enum model_family family, uint32_t layers)
{
	const struct model_file file = {.family = family,
					.layers = layers,
					.embedding = EMBEDDING,
					.feed_forward = 512,
					.heads = 4,
					.kv_heads = 2,
					.vocabulary = VOCABULARY,
					.context = 128,
					.format = FORMAT_Q8_0,
					.seed = 3};
	model_file_open(&model->file, &file);
	model->shape = model_shape(model->file.model);
	model->rope = calloc((size_t)model->shape->context * model->shape->rope_size, sizeof(float));
	assert_non_null(model->rope);
	model_rope_table(model->shape, model->shape->context, model->rope);
}

static void drop_model(struct stage_model *model)
{
	model_file_close(&model->file);
	free(model->rope);
}

// ---- one life ----

static void forget_kernels(void)
{
	DIR *files = opendir(directory);
	for (struct dirent *entry; files && (entry = readdir(files));)
		if (entry->d_name[0] != '.')
			unlinkat(dirfd(files), entry->d_name, 0);
	closedir(files);
}

// The status of a failed call, and its number; memory that is short is told otherwise.
static bool fits(enum status status, const struct error *fault)
{
	char number[32];
	snprintf(number, sizeof(number), "(%d)", strikes->result);
	if (strikes->lost || strikes->sticky)
		return status == STATUS_DEVICE_LOST &&
		       (strstr(fault->message, number) || strstr(fault->message, "lost"));
	if (strikes->result == CUDA_ERROR_OUT_OF_MEMORY)
		return status == STATUS_OUT_OF_MEMORY &&
		       (strstr(fault->message, number) || strstr(fault->message, "cannot be allocated") ||
			strstr(fault->message, "may have been lost"));
	return status == STATUS_UNAVAILABLE &&
	       (strstr(fault->message, number) || strstr(fault->message, "may have been lost"));
}

static enum status open_all(const struct life *life, struct exogpu_device **devices, struct error *error)
{
	enum status status = STATUS_OK;
	for (unsigned i = 0; !status && i < life->devices; i++) {
		const struct exogpu_open open = {.backend = "cuda",
						 .hardware_key = keys[i],
						 .cache_directory = life->kept || strikes->real ? directory : NULL,
						 .cache_writable = true};
		status = exogpu_device_open(&devices[i], &open, error);
	}
	return status;
}

static const struct {
	CUresult result;
	bool sticky;
} faults[] = {{CUDA_ERROR_OUT_OF_MEMORY, false}, {700, true}, {304, false}, {719, true}};
enum { FAULTS = sizeof(faults) / sizeof(faults[0]) };

// One in which call number `place` fails (< 0: none). Returns whether there was one; *swallowed counts those that
// nobody had to hear of.
static bool live(const struct life *life, long place, unsigned fault_number, unsigned *swallowed)
{
	struct exogpu_device *devices[DEVICES] = {NULL};
	struct error fault = {0}, again = {0};
	bool made = false;
	if (life->kept)
		forget_kernels();
	strike.begin(place, faults[fault_number].result, faults[fault_number].sticky);
	enum status status = open_all(life, devices, &fault);
	bool opened = !status;
	if (!status)
		status = life->make(devices, &fault);
	made = !status;
	if (!status)
		status = life->run(devices, &fault);
	const char *struck = strikes->struck;
	if (!struck && status)
		fail_msg("%s: no call failed, and yet: %s", life->name, fault.message);
	bool lost_joined = life->joined && status == STATUS_DEVICE_LOST;
	if (struck && status && !lost_joined && !fits(status, &fault))
		fail_msg("%s: call %ld, %s, fails with %d, and is told as %s: %s", life->name, place, struck,
			 strikes->result, status_word(status), fault.message);
	*swallowed += struck && !status;
	// Slices are lost with any fault of a step, and their devices with them.
	bool lost = strikes->lost || (life->joined && exogpu_device_lost(devices[0]));
	if (opened && struck && !lost) {
		if (!made)
			life->finish();
		status = made ? STATUS_OK : life->make(devices, &again);
		if (!status)
			status = life->run(devices, &again);
		if (status)
			fail_msg("%s: call %ld, %s, failed with %d, and then the device did not work: %s", life->name,
				 place, struck, strikes->result, again.message);
	}
	if (strikes->lost && opened && life->devices == 1 && status && !exogpu_device_lost(devices[0]))
		fail_msg("%s: call %ld, %s, lost the device, and it does not say so", life->name, place, struck);
	life->finish();
	for (unsigned i = 0; i < life->devices; i++) {
		struct exogpu_usage left = {0};
		exogpu_device_close(&devices[i], &left);
		assert_int_equal(left.buffers + left.streams + left.modules, 0);
	}
	struck = strikes->struck; // perhaps since
	strike.end();
	if (strikes->wrong[0])
		fail_msg("%s: call %ld, %s, failed with %d, and: %s", life->name, place, struck ? struck : "none",
			 strikes->result, strikes->wrong);
	if (strikes->after_loss)
		fail_msg("%s: call %ld, %s, lost the device, and then came %s", life->name, place, struck,
			 strikes->after_loss);
	return struck;
}

static void every_call(const struct life *life, long least)
{
	if (key_count < life->devices) {
		print_message("%s: not tried, with %u device here\n", life->name, key_count);
		return;
	}
	unsigned swallowed = 0;
	strikes->capability = life->capability ? life->capability : 80;
	staged.known = false;
	live(life, -1, 0, &swallowed);
	for (unsigned i = 0; i < (all ? FAULTS : 1); i++) {
		long place = 0, tried = 0;
		swallowed = 0;
		while (live(life, place, (unsigned)(i + tried++) % FAULTS, &swallowed))
			// With a real driver, each life takes a tenth of a second.
			place += all ? 1 : strikes->real ? 3 : STRIDE;
		print_message("%s: %ld of %ld calls failed; after %u all was right all the same\n", life->name,
			      tried - 1, place, swallowed);
		assert_true(place >= least);
	}
}

static void test_work(void **state)
{
	(void)state;
	every_call(
		&(struct life){.name = "work", .devices = 1, .make = make_work, .run = run_work, .finish = finish_work},
		100);
}

static void test_kept(void **state)
{
	(void)state;
	every_call(&(struct life){.name = "kept kernels",
				  .devices = 1,
				  .kept = true,
				  .make = make_kept,
				  .run = run_kept,
				  .finish = finish_work},
		   30);
}

static void test_peers(void **state)
{
	(void)state;
	every_call(&(struct life){.name = "two devices",
				  .devices = 2,
				  .make = make_peers,
				  .run = run_peers,
				  .finish = finish_work},
		   100);
}

static bool is_known(const char *key)
{
	bool known = strikes->real; // others may be there
	for (unsigned i = 0; i < key_count; i++)
		known = known || !strcmp(key, keys[i]);
	return known;
}

// What is listed is right, and all that no call failed for; or nothing is, and it says why.
static bool list_devices(long place)
{
	struct error fault = {0};
	struct found *found = found_create();
	assert_non_null(found);
	strike.begin(place, CUDA_ERROR_OUT_OF_MEMORY, false);
	enum status status = backend_cuda.enumerate(found, &fault);
	const char *struck = strikes->struck;
	if (struck && (status || !found->device_count) && !strstr(fault.message, "(2)") &&
	    !strstr(found->libraries[0].reason, "(2)"))
		fail_msg("call %ld, %s, fails, and the list does not say so: %s", place, struck, fault.message);
	// Of what one does not tell the others know nothing.
	if (struck && key_count > 1 && status && !strncmp(struck, "cuDevice", 8) &&
	    strcmp(struck, "cuDeviceGetCount") != 0)
		fail_msg("call %ld, %s, fails, and no device is listed: %s", place, struck, fault.message);
	if (!status && found->device_count && found->device_count + (struck ? 1 : 0) < key_count)
		fail_msg("call %ld, %s, fails, and of %u devices %zu are listed", place, struck ? struck : "none",
			 key_count, found->device_count);
	for (size_t i = 0; !status && i < found->device_count; i++)
		if (!is_known(found->devices[i].hardware_key))
			fail_msg("call %ld, %s, fails, and device %zu is %s", place, struck ? struck : "none", i,
				 found->devices[i].hardware_key);
		else if (found->devices[i].support == SUPPORT_UNSUPPORTED)
			fail_msg("call %ld, %s, fails, and device %zu is not supported: %s", place,
				 struck ? struck : "none", i, found->devices[i].support_reason);
	found_destroy(&found);
	strike.end();
	return struck;
}

static void test_list(void **state)
{
	long place = 0;
	(void)state;
	strikes->capability = 80;
	while (list_devices(place))
		place++;
	print_message("the list: each of %ld calls failed\n", place);
	assert_true(place > 15);
}

static void test_stage(void **state)
{
	(void)state;
	every_call(&(struct life){.name = "a stage",
				  .devices = 1,
				  .capability = 90,
				  .make = make_whole,
				  .run = run_stages,
				  .finish = finish_stages},
		   200);
}

static void test_two_stages(void **state)
{
	(void)state;
	every_call(&(struct life){.name = "two stages with states",
				  .devices = 1,
				  .make = make_two,
				  .run = run_stages,
				  .finish = finish_stages},
		   200);
}

static void test_slices(void **state)
{
	(void)state;
	every_call(&(struct life){.name = "two slices",
				  .devices = 2,
				  .joined = true,
				  .capability = 90,
				  .make = make_slices,
				  .run = run_stages,
				  .finish = finish_stages},
		   200);
}

// ---- the driver ----

// Where NVIDIA's library is; "" if it is not. Asked in a process of its own: loaded here, it would be found under its
// name before the one that stands in front of it.
static void find_driver(char *path, size_t size)
{
	int ends[2];
	pid_t child = -1;
	path[0] = 0;
	if (!pipe(ends))
		child = fork();
	if (!child) {
		struct link_map *map = NULL;
		void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
		if (library && !dlinfo(library, RTLD_DI_LINKMAP, &map) &&
		    write(ends[1], map->l_name, strlen(map->l_name)) < 0)
			_exit(1);
		_exit(0);
	}
	close(ends[1]);
	ssize_t length = child > 0 ? read(ends[0], path, size - 1) : -1;
	path[length > 0 ? length : 0] = 0;
	close(ends[0]);
	if (child > 0)
		waitpid(child, NULL, 0);
}

static void find_devices(void)
{
	struct error error = {0};
	struct found *found = found_create();
	strikes->capability = 80;
	strikes->countdown = -1;
	if (!found || backend_cuda.enumerate(found, &error))
		printf("listing devices failed: %s\n", error.message);
	for (size_t i = 0; found && i < found->device_count && key_count < DEVICES; i++)
		if (found->devices[i].support != SUPPORT_UNSUPPORTED)
			text_copy(keys[key_count++], sizeof(keys[0]), found->devices[i].hardware_key);
	found_destroy(&found);
}

// False where there is no such driver, or no device that it drives.
static bool begin(bool gpu)
{
	char path[512] = "";
	if (gpu)
		find_driver(path, sizeof(path)); // first, since the other takes its name
	if (gpu && !path[0])
		return false;
	strike_load(gpu ? path : NULL);
	if (strikes)
		find_devices();
	printf("%u devices of %s\n", key_count, gpu ? path : "the stand-in");
	return key_count;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_list),  cmocka_unit_test(test_work),
					   cmocka_unit_test(test_kept),  cmocka_unit_test(test_peers),
					   cmocka_unit_test(test_stage), cmocka_unit_test(test_two_stages),
					   cmocka_unit_test(test_slices)};
	all = argc > 1 && !strcmp(argv[1], "all");
	if (!embedded_find("kernels/cuda/built.txt")) {
		printf("skipped: the CUDA kernels were not built\n");
		return 77;
	}
	bool gpu = argc > 1 && !strcmp(argv[1], "gpu");
	if (!begin(gpu)) {
		printf("%s: no CUDA device here\n", gpu ? "skipped" : "the stand-in");
		return gpu ? 77 : 1;
	}
	if (argc > 2) // on a GPU one life may take as long as a person has: test_slices, say
		cmocka_set_test_filter(argv[2]);
	if (!mkdtemp(directory))
		return 1;
	for (int i = 0; i < BYTES / 4; i++)
		data[i] = (float)(i % 10);
	make_model(&plain, FAMILY_QWEN2, 2);
	make_model(&with_states, FAMILY_QWEN35, 4);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	drop_model(&plain);
	drop_model(&with_states);
	forget_kernels();
	rmdir(directory);
	return failed;
}
