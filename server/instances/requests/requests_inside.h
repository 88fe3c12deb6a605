/* A request, for requests*.c. Thread: the loop's. */
#pragma once
#include "server/instances/instances_inside.h"
#include "server/instances/requests/delivered.h"
#include "server/usage/usage.h"

struct generation {
	struct generation *next, **link; // of its instance
	struct instance *instance;
	int64_t number;
	int64_t old_number; // that a worker which was cut off still has it under; 0: none
	struct audit_actor by;
	struct token *token;
	const char *action;
	char request_id[GENERATION_ID_BYTES]; // "none": it came without one
	int64_t began_ns;
	bool embeds, counts;     // with either, the answer to its call is the only message
	bool gives;              // the prompt of another request is computed for another instance; it generates nothing
	bool sent, answered;     // sent: a worker has it; answered: generate.start, or generate.embed
	bool was_sent;           // ever
	bool prompt_waits;       // it is sent when its prompt has been computed elsewhere
	struct prefill *prefill; // how that is going, or went; NULL: it was not tried
	struct prefill *follows; // of a request with the same prompt, for which it waits; NULL: it does not
	bool told_started;       // `started` was called
	struct json *call;       // as it was asked, with owner, seed and all of `sampling`
	struct json *sampling;   // the sampling values with their origins; NULL: for an embedding
	size_t given_tokens;     // in it; 0: its prompt is text

	uint64_t prompt_tokens; // as far as is known
	struct delivered delivered;
	enum tensor_format format;   // of the weights of the worker that had it last
	struct json *format_changes; // array of {position, from, format}, while tokens came; NULL: there were none
	struct generation_run *run;  // NULL: nobody asks for it, or not any more
	struct usage_request *usage; // NULL: it is not counted, or all of it is
	bool energy;                 // its client wants to know its joules
	// It has ended, and waits for them: it is in instances->held, and has no instance.
	bool is_held;
	double joules;    // NaN: not known
	struct json *end; // of `ended`
	struct instances *all;
	struct net_timer give_up;
	bool part;                              // of a request that is counted by another one
	double spent_ms[LIMIT_INSTANCE_STAGES]; // by its worker's stages, as it was told last
	unsigned losses;                        // of workers that had it, since a token of it came
	size_t losses_seen;                     // tokens that had come by the last of them
	// NULL once it was cancelled or has ended:
	void (*started)(void *context, uint64_t prompt_tokens);
	void (*delta)(void *context, const struct json *delta);
	void (*ended)(void *context, enum status status, const struct json *end, const struct error *error);
	void *context;
};

// requests.c
struct json *generation_call(struct generation *generation); // the params for its worker
// Send this error to its client, and stop it on its worker.
void generation_cancel_for(struct generation *generation, const struct error *error);
bool generations_send_forget(const struct instance *instance, int64_t owner); // false: it could not be sent
// Its prompt is no longer waited for.
void generation_send_now(struct generation *generation);
// Have the prompt of `of` computed by this instance, which gives it by this channel, without the first taker_tokens.
// Errors: instance_worker_call's.
enum status generation_give(struct generation **out, struct generation *of, struct instance *instance,
			    const char *channel, uint64_t taker_tokens,
			    void (*ended)(void *context, enum status status, const struct json *end,
					  const struct error *error),
			    void *context, struct error *error);

// No callback comes, but it goes on to its end. Accepts NULL, leaves NULL behind.
void generation_forget(struct generation **generation);

// requests_tokens.c
// The number by which requests of this token share prefixes. Never 0, which shares with nobody.
int64_t generation_owner(struct instances *all, const struct token *token);

// requests_record.c
// It begins to be counted.
void generation_count(struct generation *generation);
// A worker has it from now on: what it has spent there begins at 0.
void generation_count_anew(struct generation *generation);
// The worker is not there any more: what it has spent without telling for whom is nobody's.
void generations_unclaim(struct instance *instance);
// A worker gets it: note whether its weights are in another format than those of the last one.
void generation_note_format(struct generation *generation);
// Tell its run how it ended: `end` as struct generation_params has it.
void generation_note_run(struct generation *generation, const struct json *end);
// A request that has ended, and is in no list, waits for its joules: `ended` is called then. `end` is copied.
void generation_hold(struct generation *generation, const struct json *end);
void generation_drop_held(struct generation *generation); // its client has left
void generation_destroy(struct generation *generation);   // requests.c: one that is in no list
// It has ended: its usage, and its entry in the audit log. `end`: as struct generation_params has it. True: its
// client waits for its joules.
bool generation_record(struct generation *generation, enum status status, const struct json *end);
