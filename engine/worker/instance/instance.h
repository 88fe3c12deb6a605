/* A model instance's worker: the state that its threads share, and how they divide the work.
 *
 *   reader  (instance_reader.c)  polls both sockets: answers pings at once, checks the server's calls, makes tokens of
 *                                prompts, queues orders, and sends the bytes in the output queue
 *   driver  (instance_driver.c)  owns the devices, the stages and the generator: takes orders between steps, computes a
 *                                step, and puts its results into the output queue
 *
 *      fd 4 -> reader -> [queue of orders] -> driver -> [stages] -> [output queue] -> reader -> fd 4
 *
 * Each part of an instance in several parts has a ring (ring.h), from which the driver takes steps. The last part has
 * the generator; the others compute the steps that arrive, and send them on (instance_ring.h).
 *
 * Everything is bounded: with LIMIT_INSTANCE_ORDERS queued the reader does not read fd 4. When the output queue is
 * longer than LIMIT_INSTANCE_QUEUE_BYTES, because the server does not read, the driver takes no order and computes no
 * step until it is half of that; pings are still answered. A step that fails, or takes longer than LIMIT_STEP_MS, ends
 * the process, and the server continues the requests elsewhere. Text of prompts and answers is never logged. Fields
 * that `lock` guards are marked (L); each of the others belongs to one thread, as said there. */
#pragma once
#include "common/base/limits.h"
#include "common/wire/contract.h"
#include "common/wire/message.h"
#include "engine/dialogue/parser.h"
#include "engine/generation/generator.h"
#include "engine/grammar/grammar.h"
#include "engine/text/chat.h"
#include "engine/worker/instance/instance_steps.h"
#include "engine/worker/instance/instance_text.h"

#include <pthread.h>

enum order_kind {
	ORDER_UNKNOWN,
	ORDER_LOAD,
	ORDER_ADOPT,
	ORDER_CHECK,
	ORDER_GENERATE,
	ORDER_CANCEL,
	ORDER_EMBED,
	ORDER_FORGET,
	ORDER_PACE,
	ORDER_TAKE
};

// From where on an answer keeps to its form.
enum form_begin {
	FORM_AT_ONCE,
	FORM_BEHIND_THOUGHT, // it begins inside one
	FORM_AT_CALL,        // after the mark of each call; text outside of calls is free
	FORM_AT_ARGUMENTS,   // the same, behind its name: the form begins with "NAME:"
};

// A call that waits for the driver.
struct order {
	struct order *next;
	enum order_kind kind;
	struct message message;   // its own
	struct token_list prompt; // for ORDER_GENERATE and ORDER_EMBED, with tokens that were generated elsewhere
	size_t prompt_count;      // without that
	struct matcher *form;     // of ORDER_GENERATE; NULL: none is asked for
	enum form_begin form_begin;
	bool talks;                      // of ORDER_GENERATE: the answer may have thoughts and calls
	bool opened;                     // it begins inside a thought
	const struct call_syntax *calls; // that are looked for in it; NULL: none
	int64_t arrived_ns;
};
void order_destroy(struct order **order);

// A request that the generator has.
struct request {
	struct request *next; // of instance->requests
	struct instance *instance;
	struct generator_job *job;
	uint64_t number;     // as the server calls it
	struct json *id;     // of the call, of an embedding
	uint32_t dimensions; // of an embedding: the first so many values are kept; 0: all
	uint32_t prompt_tokens;
	struct detokenizer detokenizer;
	struct instance_text text;
	uint64_t characters, offset; // characters of the text of all tokens so far; before the last token
	uint64_t *offsets;   // (prompt_tokens): the index in characters at which each token of the prompt begins; NULL:
			     // not asked for
	uint32_t judged;     // of these, that have been told
	struct buffer fresh; // text that is not yet queued
	size_t delivered;    // bytes of it that have been, elsewhere
	struct json *tokens, *choices; // the same; NULL: none
	struct matcher *form;          // what its tokens keep to; NULL: anything
	struct matcher *later;         // what tokens must follow from `form_begin` on; NULL: nothing, or it is `form`
	enum form_begin form_begin;
	struct dialogue *dialogue; // where its answer is: in a thought, in a call; NULL: it is plain text
	struct json *tools;        // that it may call, `dialogue`'s; NULL: none
	struct json *syntax;       // of its answer, until the server was told
	unsigned calls_seen;       // marks, or beginnings of arguments, that `form` has begun at
	bool one_call;             // the answer ends with the first
	uint64_t thought_tokens;
	struct prefix_move *gives; // its prompt is only computed, and given away; NULL: it generates
	bool ignore_end, logprobs;
	struct token_list said; // what a test has the model say
	size_t came;            // tokens of the answer so far
	bool unsaid;            // the form forbade one of these tokens
	bool formed;            // it is whole, and nothing may follow
	enum status trouble;    // why it cannot go on, of its own
};

enum { INSTANCE_UNMASKED = 64 };

// A control token with which the model writes calls and thoughts: such tokens are reported as text.
struct mark_token {
	uint32_t token;
	char bytes[64]; // 0xFF, which no text contains, and the token's text: its name in grammars
};

struct instance_device {
	char hardware_key[257];
	struct exogpu_device *device;
};

struct instance {
	const struct contract *contract;
	const char *backend;                       // as exogpu_open takes it
	const char *cache_directory;               // or NULL
	int node_fd, stream_fd, model_fd, wake_fd; // node_fd: the reader's, by its node_end
	int ring_in_fd, ring_out_fd;               // -1: it is the whole model
	int draft_fd;                              // of a draft model's file; -1: there is none

	pthread_mutex_t lock;
	pthread_cond_t changed;            // (L) signalled for the driver
	struct order *orders, *last_order; // (L)
	unsigned order_count;              // (L)
	struct buffer queue;               // (L) bytes for fd 4 that the reader has not taken
	size_t unsent;                     // (L) bytes of the queue, and of what the reader has taken
	bool full;                         // (L) the driver waits for the queue
	bool loaded;                       // (L) the model may be used by the reader
	bool woken;                        // (L) since the driver waited: instance_wake
	bool ending;                       // (L) the driver is to return
	bool failed;                       // (L) the process is to end, for `failure`
	struct error failure;              // (L)
	int64_t step_ns;                   // (L) since when the driver is in a step; 0: it is not
	int64_t work_ns;                   // (L) the same, of an order

	// The driver's; the reader uses what does not change of the first four once it is loaded.
	struct model *model;
	struct tokenizer *tokenizer;
	struct chat_template chat_template; // CHAT_UNKNOWN: it has none
	char *pair_template;                // of a language model that is a reranker; else NULL. Owned
	struct mark_token marks[DIALOGUE_MARKS];
	size_t mark_count;
	char template_fault[384];   // why the file's own template cannot be read; "": it can, or there is none
	struct instance_ring *ring; // NULL: it is the whole model
	struct gguf *gguf;
	struct vocabulary *vocabulary;        // the reader's: made when the first form is asked for
	char unmasked[INSTANCE_UNMASKED][24]; // the reader's: keywords of tools' schemas that were logged
	size_t unmasked_count;                // of these
	struct json *told_loaded;             // what instance.load was answered; NULL: it was not
	uint64_t epoch; // whose it is: of the instance's placement, or of the server that took it up
	struct instance_device devices[LIMIT_INSTANCE_STAGES];
	struct stage *stages[LIMIT_INSTANCE_STAGES];
	unsigned device_count, stage_count;
	float *rope;
	struct generator *generator;
	struct instance_draft *draft; // NULL: it has none
	// The pace of its steps, for heat (set_pace): the driver's.
	unsigned rest_percent; // share of the time that it rests, 0 to 100
	int64_t rest_until_ns; // steady; no step begins before
	uint64_t paced_ns;     // of generator_state.step_ns, for which it has rested
	struct request *requests;
	unsigned request_count;
	uint64_t token_count; // of their prompts
	bool told_state;      // work was in progress, and its end must be reported by instance.state
	int64_t state_ns;     // when it was last told
	struct instance_steps steps;
	// For one part with several stages: the state when the timing was last reported; all zeros before the first
	// time.
	struct generator_state timed;
	uint64_t timed_stages_ns[LIMIT_INSTANCE_STAGES]; // stage_spent_ns

	// Prefixes that move (prefix.h).
	struct prefixes {
		pthread_mutex_t lock;
		struct prefix_move *list; // (its own lock)
		unsigned count;           // (the same)
	} prefixes;

	pthread_t driver;
};

struct instance_params {
	const struct contract *contract;
	const char *backend, *cache_directory; // as in struct instance
	int node_fd, stream_fd, model_fd;
	bool ring; // of several parts: ring_in_fd and ring_out_fd are there
	int ring_in_fd, ring_out_fd;
	int draft_fd; // -1: it has no draft model
};

enum status instance_create(struct instance **out, const struct instance_params *params, struct error *error);
// Frees all memory on the devices, too. The threads must have ended.
void instance_destroy(struct instance **instance);
// Start the driver's thread. Errors: STATUS_INTERNAL.
enum status instance_start(struct instance *instance, struct error *error);
// The reader's thread: serve until either socket ends; then STATUS_OK. Errors: STATUS_INVALID_REQUEST (the framing is
// wrong), STATUS_INTERNAL. Does not return after a failure of the driver: that ends the process (worker.h).
enum status instance_read(struct instance *instance, struct error *error);
// Wait for the driver to end its step and to free everything. A worker does not do this: it ends with its process.
void instance_stop(struct instance *instance);

// ---- instance.c: the line and the queue ----

void instance_put(struct instance *instance, struct order *order); // taken
// Thread: the driver's. The next order; with `wait` it waits for one, or for instance_wake. NULL if there is
// none, or if the instance ends, or once it is `until_ns` (steady; 0 and INT64_MAX: no end). Does not return while the
// queue is full.
struct order *instance_take(struct instance *instance, bool wait, int64_t until_ns);
// Any thread: a message of the ring has come, or a prefix that moves needs the driver.
void instance_wake(void *instance);
bool instance_ending(struct instance *instance);
bool instance_loaded(struct instance *instance);
// Queue a notification (`params` is taken), or the answer to the call `id`: the error, if one is given, or `result`
// (taken).
void instance_tell(struct instance *instance, const char *method, struct json *params);
void instance_answer(struct instance *instance, const struct json *id, const struct error *error, struct json *result);
// The process is to end, once the queue is sent or the server takes no more.
void instance_fail(struct instance *instance, const struct error *error);

// ---- instance_form.c ----

// Thread: the reader's. What the order asks its answer to be, made ready: order->form. Errors: STATUS_INVALID_PARAMS.
enum status instance_take_form(struct instance *instance, struct order *order, struct error *error);
enum grammar_kind instance_form_kind(const char *name); // as generate.start has it; GRAMMAR_UNKNOWN: none
enum status instance_make_vocabulary(struct instance *instance, struct error *error);

// ---- instance_dialogue.c ----

void instance_find_marks(struct instance *instance);                                     // once its template is known
const struct mark_token *instance_mark(const struct instance *instance, uint32_t token); // NULL: not a mark
// Thread: the reader's. The tokens of a conversation, into order->prompt, and what its answer may have. Errors:
// chat_template_apply's.
enum status instance_take_messages(struct instance *instance, struct order *order, struct error *error);
// Thread: the driver's. Errors: STATUS_OUT_OF_MEMORY.
enum status request_talk(struct request *request, const struct order *order);
// A token was chosen, which adds this text: where the answer is now, and whether its form begins here. Errors:
// dialogue_feed's.
enum status request_follow(struct request *request, const struct buffer *text);

// ---- instance_tools.c ----

// Thread: the reader's. The form of calls of tools, if the order has any: order->form, form_begin and calls. Errors:
// STATUS_INVALID_PARAMS.
enum status instance_take_tools(struct instance *instance, struct order *order, struct error *error);

// ---- instance_says.c: tests put words into the model's mouth; a release build does nothing of this ----

// Before the sandbox: connect to the test that EXOGPU_TEST_SAYS names, if it does.
void instance_says_connect(void);
// Thread: the driver's. What the test has the model say to this order. Errors: STATUS_UNAVAILABLE (the test gave no
// answer), tokenize's.
enum status request_ask_test(struct request *request, const struct order *order, struct error *error);
// generator_request.says of a request to which the test has an answer.
uint32_t request_said(void *request, size_t generated);

// ---- instance_driver.c, instance_load.c, instance_request.c, instance_embed.c ----

void *instance_main(void *instance);
// Errors: as instance.load answers them. What was loaded of it is freed then.
enum status instance_load(struct instance *instance, const struct json *params, struct json **result,
			  struct error *error);
void instance_unload(struct instance *instance);

// A request of this order, in the instance's list and counted. Errors, and then there may be one, to be freed:
// STATUS_CONFLICT, STATUS_RATE_LIMITED, STATUS_OUT_OF_MEMORY.
enum status request_make(struct request **out, struct instance *instance, struct order *order, struct error *error);
void request_free(struct request *request);
extern const char request_broken[]; // the message for results that are not numbers
// Begin an order's request; its answer is sent when that is due.
void request_start(struct instance *instance, struct order *order);
void request_embed(struct instance *instance, struct order *order);
void request_cancel(struct instance *instance, struct order *order);
void requests_forget(struct instance *instance, struct order *order);
void requests_cancel(struct instance *instance); // all of them
// Queue the results of a step.
void requests_tell(struct instance *instance);
// End all requests without an answer.
void requests_drop(struct instance *instance);
