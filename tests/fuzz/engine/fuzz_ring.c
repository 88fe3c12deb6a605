/* Fuzz target: what the previous part of a model instance says (engine/worker/instance/ring.h).
 *
 * The first byte says which part hears it, with which activations, and whether the rest is a whole message or the body
 * of a step that is well framed. What is taken must lie within what the part was made for, and be the same when it is
 * said and heard once more. */
#include "common/wire/message.h"
#include "engine/worker/instance/ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition)
{
	if (!condition)
		abort();
}

static const struct contract *contract_once(void)
{
	static struct contract *contract;
	if (!contract)
		require(contract_create(&contract, CONTRACT_NODE, NULL) == STATUS_OK);
	return contract;
}

static struct ring_message *hear(const struct ring_part *part, const struct buffer *said)
{
	uint32_t total;
	memcpy(&total, said->data, 4);
	require(total == said->length - 4);
	return ring_read(part, contract_once(), said->data + 4, total);
}

static void check_step(const struct ring_part *part, const struct ring_step *step)
{
	uint32_t rows = 0;
	require(step->row_count <= part->batch_rows && step->run_count <= part->sequences);
	require(step->part_count == part->index && step->stage_count <= LIMIT_INSTANCE_STAGES);
	for (uint32_t i = 0; i < step->zero_count; i++)
		require(step->zero[i] < part->page_count + part->state_count);
	for (uint32_t i = 0; i < step->run_count; i++) {
		const struct stage_run *run = &step->runs[i];
		require(run->state_from <= part->state_count && run->state_to <= part->state_count);
		require(run->row_count && run->position + run->row_count <= part->context_tokens);
		for (uint32_t j = 0; j < (run->position + run->row_count + STAGE_PAGE_TOKENS - 1) / STAGE_PAGE_TOKENS;
		     j++)
			require(run->pages[j] < part->page_count);
		rows += run->row_count;
	}
	require(rows == step->row_count && (part->index ? !step->tokens : !step->activations));
	for (uint32_t i = 0; i < rows && step->tokens; i++)
		require(step->tokens[i] < part->vocabulary);
	volatile float sum = 0;
	for (uint32_t i = 0; i < rows * part->embedding && step->activations; i++)
		sum += step->activations[i];
}

// Said by the part before, and heard once more.
static void say_again(const struct ring_part *part, const struct ring_step *step)
{
	struct buffer out;
	buffer_init(&out, LIMIT_WORKER_MESSAGE_BYTES);
	require(!ring_write_step(&out, part, step));
	struct ring_message *again = hear(part, &out);
	require(again && again->said == RING_STEP && again->step.row_count == step->row_count &&
		again->step.step == step->step && again->step.lane == step->lane && again->step.round == step->round);
	require(!step->tokens || !memcmp(again->step.tokens, step->tokens, step->row_count * sizeof(uint32_t)));
	require(part->activations == RING_F16 || !step->activations ||
		!memcmp(again->step.activations, step->activations,
			(size_t)step->row_count * part->embedding * sizeof(float)));
	ring_message_destroy(&again);
	buffer_finish(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!size || size > 65536)
		return 0;
	const struct ring_part part = {.instance_id = "ins_fuzz",
				       .epoch = 1,
				       .index = data[0] & 1,
				       .count = 2,
				       .activations = data[0] & 2 ? RING_F16 : RING_F32,
				       .embedding = 32,
				       .vocabulary = 512,
				       .context_tokens = 256,
				       .page_count = 40,
				       .batch_rows = 16,
				       .sequences = 4,
				       .state_count = data[0] & 8 ? 10 : 0};
	char head[256];
	struct buffer frame;
	buffer_init(&frame, LIMIT_WORKER_MESSAGE_BYTES);
	snprintf(head, sizeof(head),
		 "{\"jsonrpc\":\"2.0\",\"method\":\"ring.step\",\"params\":{\"epoch\":1,\"round\":1,\"lane\":0,"
		 "\"step\":1,\"parts\":[%s]}}",
		 part.index ? "{\"waited_ns\":1,\"spent_ns\":2,\"came_bytes\":3,\"stages_ns\":[4,5]}" : "");
	require(!buffer_append(&frame, "", 0));
	if (data[0] & 4)
		message_encode(&frame, head, strlen(head), data + 1, size - 1);
	else
		buffer_append(&frame, data + 1, size - 1);
	struct ring_message *message = ring_read(&part, contract_once(), frame.data, frame.length);
	require(message != NULL);
	require(message->said != RING_BROKEN || message->text[0]);
	if (message->said == RING_STEP) {
		check_step(&part, &message->step);
		say_again(&part, &message->step);
	}
	ring_message_destroy(&message);
	buffer_finish(&frame);
	return 0;
}
