/* Messages between parts, written and read: numbers as they are, or in f16 with a row's own exponent; and that a step
 * of as many rows as are allowed always fits a message. */
#include "common/wire/message.h"
#include "engine/worker/instance/ring.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs the four above it.
#include <cmocka.h>

static struct contract *contract;

static struct ring_part part_of(uint32_t embedding, enum ring_kind kind)
{
	return (struct ring_part){.instance_id = "ins_1",
				  .epoch = 1,
				  .index = 1,
				  .count = 2,
				  .activations = kind,
				  .embedding = embedding,
				  .vocabulary = 512,
				  .context_tokens = 4096,
				  .page_count = 256,
				  .batch_rows = 512,
				  .sequences = 4,
				  .state_count = 10};
}

static struct ring_message *there_and_back(const struct ring_part *part, const struct ring_step *step, size_t *bytes)
{
	struct buffer out;
	buffer_init(&out, 2 * (size_t)LIMIT_WORKER_MESSAGE_BYTES);
	assert_int_equal(ring_write_step(&out, part, step), STATUS_OK);
	*bytes = out.length;
	struct ring_message *message = ring_read(part, contract, out.data + 4, out.length - 4);
	assert_non_null(message);
	if (message->said == RING_BROKEN)
		fail_msg("%s", message->text);
	buffer_finish(&out);
	return message;
}

static void rows_as_they_are_and_in_f16(void **state)
{
	(void)state;
	enum { ROWS = 12, WIDTH = 64 };
	static const double sizes[ROWS] = {1, 1e-30, 1e30, 1e-38, 3e38, 0, 65504, 1e-7, 1e4, 1, 1, 1e-42};
	static float values[ROWS * WIDTH];
	uint32_t pages[] = {7};
	const struct stage_run run = {
		.row_count = ROWS, .position = 3, .pages = pages, .state_from = 2, .state_to = 10};
	size_t bytes;
	srand(1);
	for (int i = 0; i < ROWS * WIDTH; i++)
		values[i] = (float)(sizes[i / WIDTH] * (2.0 * rand() / RAND_MAX - 1));
	values[9 * WIDTH] = INFINITY;
	values[10 * WIDTH] = NAN;
	for (enum ring_kind kind = RING_F32; kind <= RING_F16; kind++) {
		const struct ring_part part = part_of(WIDTH, kind);
		const struct ring_step step = {
			.epoch = 1,
			.round = 2,
			.step = 3,
			.lane = 4,
			.parts = {{.waited_ns = 6, .spent_ns = 5, .came_bytes = 7, .stage_count = 2}},
			.part_count = 1,
			.stages_ns = {2, 3},
			.stage_count = 2,
			.run_count = 1,
			.runs = &run,
			.row_count = ROWS,
			.zero = pages,
			.zero_count = 1,
			.activations = values};
		struct ring_message *message = there_and_back(&part, &step, &bytes);
		const struct ring_step *got = &message->step;
		assert_true(got->epoch == 1 && got->round == 2 && got->step == 3 && got->lane == 4);
		assert_true(got->part_count == 1 && got->came_bytes == bytes);
		assert_memory_equal(&got->parts[0], &step.parts[0], sizeof(step.parts[0]));
		assert_true(got->stage_count == 2 && got->stages_ns[0] == 2 && got->stages_ns[1] == 3);
		assert_true(got->zero_count == 1 && got->zero[0] == 7 && got->runs[0].position == 3);
		assert_true(got->runs[0].state_from == 2 && got->runs[0].state_to == 10);
		double worst = 0;
		for (int row = 0; row < ROWS; row++) {
			double most = 0;
			for (int i = 0; i < WIDTH; i++)
				if (isfinite(values[row * WIDTH + i]))
					most = fmax(most, fabs((double)values[row * WIDTH + i]));
			for (int i = row * WIDTH; i < (row + 1) * WIDTH; i++) {
				float wanted = values[i], is = got->activations[i];
				if (!isfinite(wanted))
					assert_true(isnan(wanted) ? isnan(is) : is == wanted);
				else if (kind == RING_F32)
					assert_memory_equal(&is, &wanted, 4);
				else if (most > 1e-37) // below, f32 has fewer bits itself
					worst = fmax(worst, fabs((double)is - (double)wanted) / most);
			}
		}
		print_message("%s: the largest error is %g of a row's largest\n", kind == RING_F32 ? "f32" : "f16",
			      worst);
		assert_true(worst <= 1.0 / 2048);
		ring_message_destroy(&message);
	}
}

// What belongs to an epoch before is not compared with what the part is now; nothing else of it is taken.
static void a_step_of_the_past(void **state)
{
	(void)state;
	struct ring_part part = part_of(64, RING_F32);
	uint32_t tokens[] = {1, 2};
	const struct stage_run run = {.row_count = 2, .pages = (uint32_t[]){0}};
	const struct {
		uint64_t epoch;
		uint32_t parts;
		enum ring_said said;
	} steps[] = {{4, 2, RING_PAST},   {4, 0, RING_PAST},   {5, 2, RING_BROKEN},
		     {6, 2, RING_BROKEN}, {5, 0, RING_BROKEN}, {4, 1, RING_PAST}};
	part.epoch = 5;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		struct buffer out;
		const struct ring_step step = {.epoch = steps[i].epoch,
					       .part_count = steps[i].parts,
					       .run_count = 1,
					       .runs = &run,
					       .row_count = 2,
					       .tokens = tokens};
		buffer_init(&out, LIMIT_WORKER_MESSAGE_BYTES);
		assert_int_equal(ring_write_step(&out, &part, &step), STATUS_OK);
		struct ring_message *message = ring_read(&part, contract, out.data + 4, out.length - 4);
		assert_non_null(message);
		assert_int_equal(message->said, steps[i].said);
		assert_true(message->said == RING_BROKEN ||
			    (!message->step.row_count && !message->step.runs && !message->step.tokens));
		ring_message_destroy(&message);
		buffer_finish(&out);
	}
}

static void a_state_that_there_is_not(void **state)
{
	(void)state;
	struct ring_part part = part_of(64, RING_F32);
	uint32_t tokens[] = {1, 2};
	for (uint32_t slot = 10; slot <= 11; slot++) {
		struct buffer out;
		const struct stage_run run = {.row_count = 2, .pages = (uint32_t[]){0}, .state_to = slot};
		const struct ring_step step = {
			.epoch = 1, .run_count = 1, .runs = &run, .row_count = 2, .tokens = tokens};
		part.index = 0; // it takes tokens
		buffer_init(&out, LIMIT_WORKER_MESSAGE_BYTES);
		assert_int_equal(ring_write_step(&out, &part, &step), STATUS_OK);
		struct ring_message *message = ring_read(&part, contract, out.data + 4, out.length - 4);
		assert_non_null(message);
		assert_int_equal(message->said, slot > part.state_count ? RING_BROKEN : RING_STEP);
		ring_message_destroy(&message);
		buffer_finish(&out);
	}
}

static void the_most_rows_fit(void **state)
{
	(void)state;
	static const uint32_t widths[] = {64, 2048, 8192, 65536};
	for (size_t i = 0; i < 8; i++) {
		struct ring_part part = part_of(widths[i / 2], i % 2 ? RING_F16 : RING_F32);
		uint32_t rows = part.batch_rows = ring_rows(&part), *list = calloc(4096, sizeof(*list));
		float *values = calloc(rows, part.embedding * sizeof(*values));
		struct stage_run runs[4];
		size_t bytes;
		for (uint32_t j = 0; j < 4; j++) // as long as they get, at the end of the context
			runs[j] = (struct stage_run){.row_count = j ? 1 : rows - 3,
						     .position = j ? part.context_tokens - 1
								   : part.context_tokens - (rows - 3),
						     .pages = list};
		assert_true(rows >= 4);
		const struct ring_step step = {.epoch = 1,
					       .part_count = 1,
					       .zero = list,
					       .zero_count = part.page_count,
					       .runs = runs,
					       .run_count = 4,
					       .row_count = rows,
					       .activations = values};
		struct ring_message *message = there_and_back(&part, &step, &bytes);
		print_message("%u wide: %u rows, %zu bytes\n", part.embedding, rows, bytes);
		assert_int_equal(message->step.row_count, rows);
		ring_message_destroy(&message);
		free(values);
		free(list);
	}
	struct ring_part part = part_of(65536, RING_F32);
	part.sequences = 512; // their rows alone do not
	assert_int_equal(ring_rows(&part), 0);
}

static int load(void **state)
{
	(void)state;
	return (int)contract_create(&contract, CONTRACT_NODE, NULL);
}

static int drop(void **state)
{
	(void)state;
	contract_destroy(&contract);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_as_they_are_and_in_f16),
		cmocka_unit_test(a_step_of_the_past),
		cmocka_unit_test(a_state_that_there_is_not),
		cmocka_unit_test(the_most_rows_fit),
	};
	return cmocka_run_group_tests(tests, load, drop);
}
