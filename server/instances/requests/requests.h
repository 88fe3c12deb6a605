/* Requests to model instances: started, delivered as it comes, ended once.
 *
 * The ready instance of a model that has least to do takes a request; a request stays with it. Where there is none, one
 * is loaded for who may have that (demand.c), and the request waits for it. One that is cancelled
 * has no callbacks any more, but is remembered until its worker has said what it took: each request becomes one entry
 * of the audit log, with token, model, devices, counts and time, and never a word of its text. Prefixes are shared
 * within a token: each has a number for that, which means nothing elsewhere. Thread: the loop's. */
#pragma once
#include "server/instances/instances.h"

struct generation;

struct generation_params {
	const struct audit_actor *by; // copied
	struct token *token;          // NULL: the machine's owner. Must outlive it
	const char *action;           // "infer.chat"; static
	const char *model;            // its name or id
	// The parameters of generate.start without `request` and `owner`; with `embeds`, of generate.embed. Taken over.
	struct json *call;
	bool embeds;
	bool counts; // the prompt's tokens, and nothing is generated
	bool loads;  // a model that is not loaded is loaded for this, and then it waits
	// It has joined the line; not of one that embeds or counts.
	void (*started)(void *context, uint64_t prompt_tokens);
	void (*delta)(void *context, const struct json *delta); // params of generate.delta
	// The last call: `end` is generate.end's params, or with `embeds` or `counts` the result of the call; NULL
	// unless status is STATUS_OK.
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
// Nothing is called any more. Accepts NULL, leaves NULL behind.
void generation_cancel(struct generation **generation);
// End all requests of this token, in this turn.
void generations_end_token(struct instances *instances, const struct token *token, const char *why);
// The same for every token that may not be used any more.
void generations_sweep(struct instances *instances);
