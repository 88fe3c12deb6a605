/* The ring: how the parts of a model instance, each a worker, pass steps on. The worker's descriptors 6 and 7.
 *
 *     last part  -- tokens -->  part 0  -- activations -->  part 1  ...  -- activations -->  last part
 *
 * Messages are framed as in common/net/stream.h; their heads are ring.hello, ring.step and ring.failed of
 * schema/node.json. The body of a ring.step, little-endian:
 *
 *     u32 kind (enum ring_kind), zero_count, run_count, row_count
 *     u32 zero[zero_count]                         pages and states to be zeroed before
 *     run_count times: u32 row_count, position, state_from, state_to (engine/stage.h)
 *     for each run: u32 pages[(position + row_count) / 32, rounded up]
 *     then  RING_TOKENS  u32 token[row_count]
 *           RING_F32     f32 value[row_count][embedding]
 *           RING_F16     row_count times: i32 exponent, u16 value[embedding]; f16, times two to the exponent
 *
 * A step without rows only zeroes. Everything in a body is checked here, against what the part was loaded with: the
 * bytes come from another machine. Activations may be any numbers, also NaN and infinite: a model may overflow.
 *
 * Threads: a thread of the ring receives, and sends the bytes that the socket does not take at once, so that a step is
 * on its way while the next is computed; ring_send and ring_take are the driver's and never wait. At most
 * LIMIT_RING_MESSAGES wait in either direction: further ones stay in the socket, and a next part that takes nothing is
 * an error. A closed socket is ignored here: the node that connects the parts reports it to the server. */
#pragma once
#include "common/base/limits.h"
#include "common/wire/contract.h"
#include "engine/stage.h"

enum { RING_PROTOCOL = 3, RING_PARTS = 64, RING_ID_BYTES = 64, RING_TEXT_BYTES = 512 };
enum ring_kind { RING_UNKNOWN, RING_TOKENS, RING_F32, RING_F16 };

// The values that all parts of a ring must agree on.
struct ring_part {
	char instance_id[RING_ID_BYTES + 1];
	uint64_t epoch;
	uint32_t index, count;
	uint32_t first_layer, next_layer; // the first of its own; the first of the next part's, 0 of the last one
	enum ring_kind activations;       // between parts
	uint32_t embedding, vocabulary, context_tokens, page_count, batch_rows, sequences;
	uint32_t state_count; // stage_state_count's: by the model and `sequences`
};

// What a step carries about each part that it has passed. Times are differences of that part's clock.
struct ring_told {
	uint64_t waited_ns, spent_ns; // from its arrival until the part began; computing it
	uint64_t came_bytes;          // of the message that brought it there
	uint32_t stage_count;
};

struct ring_step {
	uint64_t epoch, round, step;
	uint32_t lane;
	struct ring_told parts[RING_PARTS]; // (part_count), in the order of the ring
	uint32_t part_count;
	uint64_t stages_ns[LIMIT_INSTANCE_STAGES]; // (stage_count), what each stage of these parts computed, in order
	uint32_t stage_count;
	uint64_t came_bytes; // of the message that brought it here
	enum ring_kind kind; // the kind in which it was received
	uint32_t zero_count, run_count, row_count;
	const uint32_t *zero;         // (zero_count)
	const struct stage_run *runs; // (run_count)
	const uint32_t *tokens;       // (row_count), of RING_TOKENS
	const float *activations;     // (row_count, embedding), else
};

// RING_PAST: a step of an epoch before the part's, when the ring may have had other parts: nothing else of it is known.
enum ring_said { RING_HELLO, RING_STEP, RING_FAILED, RING_BROKEN, RING_PAST };

// A message of the previous part. Owns what its step points to.
struct ring_message {
	struct ring_message *next;
	enum ring_said said;
	int64_t arrived_ns;
	size_t frame_bytes;
	struct ring_step step;
	uint64_t round;             // of RING_HELLO
	uint64_t epoch;             // of RING_HELLO and RING_FAILED
	uint32_t part;              // the same
	char text[RING_TEXT_BYTES]; // RING_HELLO: what does not agree, or empty; RING_FAILED and RING_BROKEN: why
	void *memory;
};
void ring_message_destroy(struct ring_message **message);

// ---- bytes (ring_message.c) ----

// Rows of a step that always fit a message, batch_rows at most; 0: not even one for each sequence.
uint32_t ring_rows(const struct ring_part *part);
// A whole frame, without its total, as the part before `part` sends it. What is wrong with it is in the message:
// RING_BROKEN. NULL if memory runs out.
struct ring_message *ring_read(const struct ring_part *part, const struct contract *contract, const uint8_t *frame,
			       size_t length);
// The whole message with its total length, as `part` sends it, into an empty buffer. Errors: those of buffer_append.
enum status ring_write_hello(struct buffer *out, const struct ring_part *part, uint64_t round);
enum status ring_write_step(struct buffer *out, const struct ring_part *part, const struct ring_step *step);
enum status ring_write_failed(struct buffer *out, uint64_t epoch, uint32_t part, const char *text);

// ---- the sockets (ring.c) ----

struct ring;
struct ring_params {
	const struct contract *contract;
	const struct ring_part *part; // copied
	int in_fd, out_fd;            // the caller's
	void (*came)(void *context);  // on the ring's thread: ring_take has something
	void *context;
};
enum status ring_create(struct ring **out, const struct ring_params *params, struct error *error);
void ring_destroy(struct ring **ring);
// The oldest message, which then belongs to the caller; NULL if there is none.
struct ring_message *ring_take(struct ring *ring);
// Send what ring_write_* has made (taken, also on failure). Errors: STATUS_LIMIT_EXCEEDED, STATUS_OUT_OF_MEMORY.
enum status ring_send(struct ring *ring, struct buffer *message, struct error *error);
// A new round begins: drop all messages of which nothing has been sent.
void ring_forget(struct ring *ring);
// Compare messages with this from now on: another epoch, place in the ring and number of parts; the rest must be the
// same.
void ring_set_part(struct ring *ring, const struct ring_part *part);
