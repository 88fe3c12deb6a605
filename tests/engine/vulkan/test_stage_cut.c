/* Cutting for devices that address little: matrices by rows, batches into parts, parts into submissions. A device whose
 * bindings reach 96 KiB stands for real ones, whose models are larger by as much. */
#include "common/base/log.h"
#include "engine/inside.h"
#include "engine/vulkan/stage/stage.h"
#include "tests/engine/conformance/stage.h"

// What attention leaves when a context is shared out is of one size, whatever a device reaches.
enum { REACH = 96 * 1024, TEXT = 200, SPLIT_BYTES = 4096 * (16 + 2) * 4 };

static unsigned messages;

static void hear(void *context, enum log_level level, const char *area, const char *text)
{
	(void)context;
	messages += level <= LOG_WARNING && !strcmp(area, "vulkan") && !strstr(text, "nothing is validated");
}

// A step's submissions: with a limit that every layer exceeds, one before the first layer, and one for each layer.
static uint64_t submitted(const struct conformance *c)
{
	uint64_t all = 0;
	for (const struct backend_stream *stream = c->device->handle->streams; stream; stream = stream->next)
		all += stream->submitted;
	return all;
}

static struct model_file model(void)
{
	struct model_file file = model_file_small();
	file.format = FORMAT_Q5_K;
	file.embedding = 256;
	file.feed_forward = 512;
	file.head_size = 16;
	file.tied = true;
	return file;
}

static void test_cut(void **state)
{
	struct conformance *c = *state;
	struct model_file file = model();
	struct staged staged;
	struct expected expected;
	uint32_t text[TEXT];
	static const uint32_t pages[] = {3, 9, 1, 22, 7, 39, 0};
	staged_open(&staged, c, &file);
	make_text(text, TEXT, file.vocabulary, 9);
	expect(&expected, &staged, &(struct reference_run){.tokens = text, .count = TEXT});
	uint32_t *reach = &c->device->handle->properties.limits.maxStorageBufferRange, whole = *reach;
	double operations = stage_segment_operations;
	*reach = REACH;
	stage_segment_operations = 1;
	struct stage *stage = staged_create(&staged);
	for (const struct backend_buffer *buffer = c->device->handle->buffers; buffer; buffer = buffer->next)
		if (buffer->memory == EXOGPU_MEMORY_DEVICE && buffer->bytes > REACH && buffer->bytes != SPLIT_BYTES)
			fail_msg("a buffer of %llu bytes, %d at most", (unsigned long long)buffer->bytes, REACH);
	step_and_check(&staged, stage, &expected, &(struct stage_job){text, 0, TEXT - 1, pages}, "a prompt in parts");
	const uint64_t before = submitted(c);
	step_and_check(&staged, stage, &expected, &(struct stage_job){text, TEXT - 1, 1, pages}, "one token");
	if (submitted(c) - before < 1 + file.layers)
		fail_msg("%llu submissions of a step of %u layers, one for each and one before them expected",
			 (unsigned long long)(submitted(c) - before), file.layers);
	stage_destroy(&stage);
	stage_segment_operations = operations;
	struct stage_params params = staged_params(&staged);
	*reach = 1000;
	REFUSED(STATUS_OUT_OF_MEMORY, stage_create(&stage, c->device, &params, &error));
	*reach = whole;
	expected_finish(&expected);
	staged_close(&staged);
	if (messages)
		fail_msg("%u messages of the validation layer, 0 expected", messages);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_cut, conformance_begin, conformance_end),
	};
	log_listen(hear, NULL);
	int failed = conformance_run_tests("vulkan", tests, 1);
	log_listen(NULL, NULL);
	return failed;
}
