/* Messages of the ring, to bytes and back. See ring.h for how they lie. */
#include "common/base/clock.h"
#include "common/wire/message.h"
#include "engine/model/format.h"
#include "engine/worker/instance/ring.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	FIXED_BYTES = 16,  // of a body: its four counts
	RUN_BYTES = 16,    // of a run, without its pages
	LENGTHS_BYTES = 8, // before a message's head: the length of the rest, and that of the head
	HEAD_BYTES = 512,  // about what a step's head is long
	EXPONENT_LEAST = -100,
	EXPONENT_MOST = 113, // of a row of f16: two to it, and to its negative, are f32
	F16_BITS = 15,       // a row's largest value is scaled to below two to this
};

static uint64_t pages_for(uint64_t tokens)
{
	return (tokens + STAGE_PAGE_TOKENS - 1) / STAGE_PAGE_TOKENS;
}

static uint64_t row_bytes(enum ring_kind kind, uint32_t embedding)
{
	switch (kind) {
	case RING_F32:
		return 4ull * embedding;
	case RING_F16:
		return 4 + 2ull * embedding;
	case RING_UNKNOWN:
	case RING_TOKENS:
		break;
	}
	return 4;
}

uint32_t ring_rows(const struct ring_part *part)
{
	uint64_t fixed = FIXED_BYTES + 4ull * part->page_count + 4ull * part->state_count +
			 part->sequences * (RUN_BYTES + 4 * pages_for(part->context_tokens));
	uint64_t rows = fixed < LIMIT_BODY_BYTES
				? (LIMIT_BODY_BYTES - fixed) / row_bytes(part->activations, part->embedding)
				: 0;
	rows = rows < part->batch_rows ? rows : part->batch_rows;
	return rows < part->sequences ? 0 : (uint32_t)rows;
}

void ring_message_destroy(struct ring_message **message)
{
	if (*message)
		free((*message)->memory);
	free(*message);
	*message = NULL;
}

// ---- writing ----

static const char *word_of(enum ring_kind kind)
{
	return kind == RING_F16 ? "f16" : "f32";
}

// A message without a body; `params` is taken.
static enum status write_call(struct buffer *out, const char *method, struct json *params)
{
	struct buffer head;
	buffer_init(&head, LIMIT_HEAD_BYTES);
	enum status status = message_print_call(&head, NULL, method, params);
	if (!status)
		status = message_encode_stream(out, (const char *)head.data, head.length, NULL, 0);
	buffer_finish(&head);
	return status;
}

enum status ring_write_hello(struct buffer *out, const struct ring_part *part, uint64_t round)
{
	const struct {
		const char *name;
		uint64_t value;
	} numbers[] = {
		{"protocol", RING_PROTOCOL},
		{"epoch", part->epoch},
		{"round", round},
		{"part", part->index},
		{"parts", part->count},
		{"next_layer", part->next_layer},
		{"embedding", part->embedding},
		{"context_tokens", part->context_tokens},
		{"page_count", part->page_count},
		{"batch_rows", part->batch_rows},
		{"sequences", part->sequences},
	};
	struct json *params = json_new_object();
	json_set_string(params, "instance_id", part->instance_id);
	json_set_string(params, "activations", word_of(part->activations));
	json_set_string(params, "version", EXOGPU_VERSION);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		json_set_integer(params, numbers[i].name, (int64_t)numbers[i].value);
	return write_call(out, "ring.hello", params);
}

enum status ring_write_failed(struct buffer *out, uint64_t epoch, uint32_t part, const char *text)
{
	struct json *params = json_new_object();
	json_set_integer(params, "epoch", (int64_t)epoch);
	json_set_integer(params, "part", part);
	json_set_string(params, "message", text);
	return write_call(out, "ring.failed", params);
}

static void write_f16(struct buffer *out, const float *values, uint32_t count)
{
	float most = 0;
	int exponent;
	for (uint32_t i = 0; i < count; i++)
		if (isfinite(values[i]) && fabsf(values[i]) > most)
			most = fabsf(values[i]);
	frexpf(most, &exponent);
	exponent = most > 0 ? exponent - F16_BITS : 0;
	exponent = exponent < EXPONENT_LEAST ? EXPONENT_LEAST : exponent;
	int32_t told = exponent;
	float scale = ldexpf(1, -exponent);
	buffer_append(out, &told, sizeof(told));
	if (buffer_reserve(out, 2 * (size_t)count))
		return;
	for (uint32_t i = 0; i < count; i++) {
		uint16_t bits = f32_to_f16(values[i] * scale);
		memcpy(out->data + out->length + 2 * (size_t)i, &bits, 2);
	}
	out->length += 2 * (size_t)count;
	out->data[out->length] = 0;
}

static void write_rows(struct buffer *out, const struct ring_part *part, const struct ring_step *step)
{
	if (step->tokens) {
		buffer_append(out, step->tokens, step->row_count * sizeof(uint32_t));
		return;
	}
	if (part->activations == RING_F32) {
		buffer_append(out, step->activations, (size_t)step->row_count * part->embedding * sizeof(float));
		return;
	}
	for (uint32_t i = 0; i < step->row_count; i++)
		write_f16(out, step->activations + (size_t)i * part->embedding, part->embedding);
}

enum status ring_write_step(struct buffer *out, const struct ring_part *part, const struct ring_step *step)
{
	enum ring_kind kind = step->tokens ? RING_TOKENS : part->activations;
	buffer_reserve(out, HEAD_BYTES + FIXED_BYTES + 4 * (size_t)step->zero_count +
				    RUN_BYTES * (size_t)step->run_count +
				    row_bytes(kind, part->embedding) * step->row_count);
	buffer_append(out, "\0\0\0\0\0\0\0", LENGTHS_BYTES); // which are known in the end
	buffer_printf(out,
		      "{\"jsonrpc\":\"2.0\",\"method\":\"ring.step\",\"params\":{\"epoch\":%" PRIu64
		      ",\"round\":%" PRIu64 ",\"lane\":%u,\"step\":%" PRIu64 ",\"parts\":[",
		      step->epoch, step->round, step->lane, step->step);
	const uint64_t *stage_ns = step->stages_ns;
	for (uint32_t i = 0; i < step->part_count; i++) {
		const struct ring_told *told = &step->parts[i];
		buffer_printf(out,
			      "%s{\"waited_ns\":%" PRIu64 ",\"spent_ns\":%" PRIu64 ",\"came_bytes\":%" PRIu64
			      ",\"stages_ns\":[",
			      i ? "," : "", told->waited_ns, told->spent_ns, told->came_bytes);
		for (uint32_t j = 0; j < told->stage_count; j++)
			buffer_printf(out, "%s%" PRIu64, j ? "," : "", *stage_ns++);
		buffer_printf(out, "]}");
	}
	buffer_printf(out, "]}}");
	uint32_t lengths[2] = {0, (uint32_t)(out->length - LENGTHS_BYTES)};
	buffer_append_u32le(out, kind);
	buffer_append_u32le(out, step->zero_count);
	buffer_append_u32le(out, step->run_count);
	buffer_append_u32le(out, step->row_count);
	buffer_append(out, step->zero, step->zero_count * sizeof(uint32_t));
	for (uint32_t i = 0; i < step->run_count; i++) {
		buffer_append_u32le(out, step->runs[i].row_count);
		buffer_append_u32le(out, step->runs[i].position);
		buffer_append_u32le(out, step->runs[i].state_from);
		buffer_append_u32le(out, step->runs[i].state_to);
	}
	for (uint32_t i = 0; i < step->run_count; i++)
		buffer_append(out, step->runs[i].pages,
			      pages_for((uint64_t)step->runs[i].position + step->runs[i].row_count) * sizeof(uint32_t));
	write_rows(out, part, step);
	if (out->failed)
		return STATUS_OUT_OF_MEMORY;
	lengths[0] = (uint32_t)(out->length - sizeof(lengths[0]));
	memcpy(out->data, lengths, LENGTHS_BYTES);
	return STATUS_OK;
}

// ---- reading ----

// The unread rest of a body.
struct body {
	const uint8_t *at;
	size_t left;
};

static bool take(struct body *body, void *to, uint64_t bytes)
{
	if (bytes > body->left)
		return false;
	memcpy(to, body->at, (size_t)bytes);
	body->at += bytes;
	body->left -= (size_t)bytes;
	return true;
}

// Take a part of a message's memory, which is large enough: see read_body.
static void *carve(uint8_t **memory, size_t bytes)
{
	void *out = *memory;
	*memory += (bytes + 15) / 16 * 16;
	return out;
}

static const char *read_runs(const struct ring_part *part, struct body *body, struct ring_step *step, uint8_t **memory)
{
	struct stage_run *runs = carve(memory, step->run_count * sizeof(*runs));
	uint64_t rows = 0, pages = 0;
	for (uint32_t i = 0; i < step->run_count; i++) {
		uint32_t told[4];
		if (!take(body, told, sizeof(told)))
			return "it ends within its runs";
		if (!told[0] || told[1] >= part->context_tokens || told[0] > part->context_tokens - told[1])
			return "a position lies outside the context";
		if (told[2] > part->state_count || told[3] > part->state_count)
			return "there is no such state";
		runs[i] = (struct stage_run){
			.row_count = told[0], .position = told[1], .state_from = told[2], .state_to = told[3]};
		rows += told[0];
		pages += pages_for((uint64_t)told[0] + told[1]);
	}
	if (rows != step->row_count)
		return "its runs are not as long as its rows";
	if (pages * sizeof(uint32_t) > body->left)
		return "it ends within its pages";
	uint32_t *list = carve(memory, (size_t)pages * sizeof(uint32_t));
	take(body, list, pages * sizeof(uint32_t));
	for (uint64_t i = 0; i < pages; i++)
		if (list[i] >= part->page_count)
			return "there is no such page";
	for (uint32_t i = 0; i < step->run_count; i++) {
		runs[i].pages = list;
		list += pages_for((uint64_t)runs[i].position + runs[i].row_count);
	}
	step->runs = runs;
	return NULL;
}

static const char *read_f16(struct body *body, uint32_t rows, uint32_t embedding, float *to)
{
	for (uint32_t row = 0; row < rows; row++) {
		int32_t exponent = 0;
		take(body, &exponent, sizeof(exponent));
		if (exponent < EXPONENT_LEAST || exponent > EXPONENT_MOST)
			return "an exponent is out of range";
		float scale = ldexpf(1, exponent);
		for (uint32_t i = 0; i < embedding; i++) {
			uint16_t bits = 0;
			memcpy(&bits, body->at + 2 * (size_t)i, 2);
			*to++ = f16_to_f32(bits) * scale;
		}
		body->at += 2 * (size_t)embedding;
		body->left -= 2 * (size_t)embedding;
	}
	return NULL;
}

static const char *read_rows(const struct ring_part *part, struct body *body, struct ring_step *step, uint8_t **memory)
{
	if (row_bytes(step->kind, part->embedding) * step->row_count != body->left)
		return "it is not as long as its rows";
	if (step->kind == RING_TOKENS) {
		uint32_t *tokens = carve(memory, step->row_count * sizeof(uint32_t));
		take(body, tokens, body->left);
		step->tokens = tokens;
		for (uint32_t i = 0; i < step->row_count; i++)
			if (tokens[i] >= part->vocabulary)
				return "a token is outside the vocabulary";
		return NULL;
	}
	float *values = carve(memory, (size_t)step->row_count * part->embedding * sizeof(float));
	step->activations = values;
	if (step->kind == RING_F16)
		return read_f16(body, step->row_count, part->embedding, values);
	take(body, values, body->left);
	return NULL;
}

static const char *read_body(const struct ring_part *part, const struct message *message, struct ring_message *out)
{
	struct body body = {message->body, message->body_bytes};
	struct ring_step *step = &out->step;
	uint32_t counts[4];
	if (!take(&body, counts, sizeof(counts)))
		return "it has no body";
	step->kind = (enum ring_kind)counts[0];
	step->zero_count = counts[1];
	step->run_count = counts[2];
	step->row_count = counts[3];
	if (counts[0] != (uint32_t)(part->index ? part->activations : RING_TOKENS))
		return "it is of another kind than this part takes";
	if (step->zero_count > part->page_count + part->state_count || step->run_count > part->sequences ||
	    step->row_count > part->batch_rows)
		return "it has more rows, runs or pages than this part was made for";
	// Parsed arrays are no longer than their bytes, except for f16 and runs.
	out->memory = malloc(2 * body.left + step->run_count * sizeof(struct stage_run) + 64);
	if (!out->memory)
		return "there is no memory for it";
	uint8_t *memory = out->memory;
	if (step->zero_count * sizeof(uint32_t) > body.left)
		return "it ends within its pages";
	uint32_t *zero = carve(&memory, step->zero_count * sizeof(uint32_t));
	take(&body, zero, step->zero_count * sizeof(uint32_t));
	for (uint32_t i = 0; i < step->zero_count; i++)
		if (zero[i] >= part->page_count + part->state_count)
			return "there is no such page";
	step->zero = zero;
	const char *wrong = read_runs(part, &body, step, &memory);
	return wrong ? wrong : read_rows(part, &body, step, &memory);
}

// Fits the contract: RING_PARTS at most, each with LIMIT_INSTANCE_STAGES at most.
static const char *read_parts(const struct json *parts, struct ring_step *step)
{
	for (const struct json *one = json_first(parts); one; one = json_next(one)) {
		const struct json *stage = json_first(json_get(one, "stages_ns"));
		struct ring_told *told = &step->parts[step->part_count++];
		*told = (struct ring_told){.waited_ns = (uint64_t)json_get_integer(one, "waited_ns", 0),
					   .spent_ns = (uint64_t)json_get_integer(one, "spent_ns", 0),
					   .came_bytes = (uint64_t)json_get_integer(one, "came_bytes", 0)};
		if (told->came_bytes > (uint64_t)LIMIT_WORKER_MESSAGE_BYTES + 4)
			return "it came in more bytes than a message has";
		for (; stage; stage = json_next(stage), told->stage_count++) {
			if (step->stage_count == LIMIT_INSTANCE_STAGES)
				return "it has been at more stages than an instance has";
			step->stages_ns[step->stage_count++] = (uint64_t)json_number(stage, 0);
		}
	}
	return NULL;
}

static void read_step(const struct ring_part *part, const struct message *message, struct ring_message *out)
{
	const struct json *params = message->params;
	struct ring_step *step = &out->step;
	step->epoch = (uint64_t)json_get_integer(params, "epoch", 0);
	step->round = (uint64_t)json_get_integer(params, "round", 0);
	step->lane = (uint32_t)json_get_integer(params, "lane", 0);
	step->step = (uint64_t)json_get_integer(params, "step", 0);
	if (step->epoch < part->epoch) { // the step may fit the part's place in the earlier epoch
		out->said = RING_PAST;
		return;
	}
	const char *wrong = read_parts(json_get(params, "parts"), step);
	if (!wrong)
		wrong = read_body(part, message, out);
	if (!wrong && step->part_count != part->index)
		wrong = "it has been at other parts";
	if (wrong) {
		out->said = RING_BROKEN;
		snprintf(out->text, sizeof(out->text), "a step from the previous part: %s", wrong);
	}
}

// ---- agreement ----

static void differ(struct ring_message *out, const char *what, uint64_t here, uint64_t there)
{
	if (!out->text[0])
		snprintf(out->text, sizeof(out->text), "%s is %" PRIu64 " here, and %" PRIu64 " of the part before",
			 what, here, there);
}

static void read_hello(const struct ring_part *part, const struct json *params, struct ring_message *out)
{
	const struct {
		const char *name, *what;
		uint64_t here;
	} numbers[] = {
		{"protocol", "the ring's protocol", RING_PROTOCOL},
		{"epoch", "the epoch", part->epoch},
		{"parts", "the number of parts", part->count},
		{"part", "the number of the part before", (part->index + part->count - 1) % part->count},
		{"next_layer", "the first layer", part->first_layer},
		{"embedding", "the width of the model", part->embedding},
		{"context_tokens", "the context", part->context_tokens},
		{"page_count", "the number of pages", part->page_count},
		{"batch_rows", "the rows of a step", part->batch_rows},
		{"sequences", "the number of sequences", part->sequences},
	};
	const struct {
		const char *name, *what, *here;
	} texts[] = {
		{"version", "the version", EXOGPU_VERSION},
		{"instance_id", "the instance", part->instance_id},
		{"activations", "the format of activations", word_of(part->activations)},
	};
	out->round = (uint64_t)json_get_integer(params, "round", 0);
	out->epoch = (uint64_t)json_get_integer(params, "epoch", 0);
	out->part = (uint32_t)json_get_integer(params, "part", 0);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		const char *there = json_get_string(params, texts[i].name, "");
		if (!out->text[0] && strcmp(there, texts[i].here) != 0)
			snprintf(out->text, sizeof(out->text), "%s is %.64s here, and %.64s of the part before",
				 texts[i].what, texts[i].here, there);
	}
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		uint64_t there = (uint64_t)json_get_integer(params, numbers[i].name, 0);
		if (there != numbers[i].here)
			differ(out, numbers[i].what, numbers[i].here, there);
	}
}

static void read_failed(const struct json *params, struct ring_message *out)
{
	out->epoch = (uint64_t)json_get_integer(params, "epoch", 0);
	out->part = (uint32_t)json_get_integer(params, "part", 0);
	snprintf(out->text, sizeof(out->text), "%s", json_get_string(params, "message", ""));
}

static enum ring_said said_of(const struct contract *contract, const struct message *message)
{
	static const struct {
		const char *method;
		enum ring_said said;
	} methods[] = {{"ring.hello", RING_HELLO}, {"ring.step", RING_STEP}, {"ring.failed", RING_FAILED}};
	for (size_t i = 0; message->method && i < sizeof(methods) / sizeof(methods[0]); i++)
		if (!strcmp(methods[i].method, message->method) && message->kind == MESSAGE_NOTIFICATION &&
		    !contract_check_params(contract, contract_find(contract, message->method), message->params, NULL))
			return methods[i].said;
	return RING_BROKEN;
}

struct ring_message *ring_read(const struct ring_part *part, const struct contract *contract, const uint8_t *frame,
			       size_t length)
{
	struct message message;
	struct ring_message *out = calloc(1, sizeof(*out));
	if (!out)
		return NULL;
	out->said = message_decode(&message, frame, length, NULL) ? RING_BROKEN : said_of(contract, &message);
	out->arrived_ns = clock_steady_ns();
	out->frame_bytes = length;
	switch (out->said) {
	case RING_HELLO:
		read_hello(part, message.params, out);
		break;
	case RING_STEP:
		read_step(part, &message, out);
		out->step.came_bytes = length + 4;
		break;
	case RING_FAILED:
		read_failed(message.params, out);
		break;
	case RING_PAST: // said by read_step only
		break;
	case RING_BROKEN:
		snprintf(out->text, sizeof(out->text), "the previous part sent a malformed message");
		break;
	}
	message_finish(&message);
	return out;
}
