/* Requests to model instances: each is started, delivers its tokens as they are generated, and ends once.
 *
 * The ready instance of a model that has the least to do for its speed takes a request, which then stays with it; its
 * prompt may be computed by another one (prefill.h). If there is none, one is loaded if the token permits (demand.c),
 * and the request waits for it. A cancelled request has no more callbacks, but is kept until its worker has reported
 * its counts: each request becomes one entry of the audit log, with token, model, devices, counts and time, and without
 * any text. Prefixes are shared within a token, which has a number for this purpose. Thread: the loop's. */
#pragma once
#include "server/instances/instances.h"

struct generation;

enum { GENERATION_ENERGY_MS = 3000 }; // that `ended` waits for joules, at most

// How the worker that ended a request came to it, and what it needed. Filled in before `ended` is called.
struct generation_run {
	int64_t began_ns, sent_ns, ended_ns; // steady: it was asked; the last worker was sent it; the end of that came
	unsigned sends;                      // to a worker; more than 1: it went on elsewhere
	// By that worker's clock: until it began with the prompt; until the first token; until the end. < 0: not told.
	double queued_ms, prompt_ms, generate_ms;
	unsigned device_count; // of the model
	struct {
		char device_id[STORE_ID_BYTES];
		double compute_ms; // of that worker's stage, for this request
	} devices[LIMIT_INSTANCE_STAGES];
};

enum { GENERATION_ID_BYTES = 48 };

struct generation_params {
	const struct audit_actor *by; // copied
	struct token *token;          // NULL: the machine's owner. Must outlive it
	const char *action;           // "infer.chat"; static
	const char *request_id;       // for the log: that of the HTTP answer; NULL: it has none. Copied
	const char *model;            // its name or id
	// The parameters of generate.start without `request` and `owner`; with `embeds`, of generate.embed. Taken over.
	struct json *call;
	bool embeds;
	bool counts; // only count the prompt's tokens; nothing is generated
	bool part;   // of a request that another one stands for: usage counts that one
	bool energy; // `ended` waits until its joules are known, GENERATION_ENERGY_MS at most: energy_joules of `end`,
		     // or null
	struct generation_run *run; // NULL: nobody asks; else it must last until `ended` or generation_cancel
	bool loads;                 // a model that is not loaded is loaded for this, and then it waits
	// It has joined the batch; not called with `embeds` or `counts`.
	void (*started)(void *context, uint64_t prompt_tokens);
	void (*delta)(void *context, const struct json *delta); // params of generate.delta
	// The last call: `end` is generate.end's params, or with `embeds` or `counts` the result of the call; NULL
	// unless status is STATUS_OK. Where the format of the weights has changed between two of its tokens, it has
	// `format_changes`: [{position, from, format}], position being the number of tokens before.
	void (*ended)(void *context, enum status status, const struct json *end, const struct error *error);
	void *context;
};
// Errors, and then nothing is called: STATUS_NOT_FOUND (no such model), STATUS_UNAVAILABLE (it is not loaded, or is
// being loaded; a hint says what to do), STATUS_RATE_LIMITED (the line, or the queue to the worker, is full),
// STATUS_LIMIT_EXCEEDED (longer than a message may be), STATUS_DEVICE_LOST, STATUS_OUT_OF_MEMORY.
enum status generation_start(struct generation **out, struct instances *instances,
			     const struct generation_params *params, struct error *error);
// The sampling settings in use: {name: {value, from}}, as sampling_complete gives them. Owned by the generation. NULL
// if it embeds or counts.
const struct json *generation_sampling(const struct generation *generation);
// No callback comes afterwards. Accepts NULL, leaves NULL behind.
void generation_cancel(struct generation **generation);
// End all requests of this token, in this turn.
void generations_end_token(struct instances *instances, const struct token *token, const char *why);
// The same for every token that may not be used any more.
void generations_sweep(struct instances *instances);
