/* Usage: what requests to models used, by token, model, device and time. This is the one place that counts: every
 * request to a model, whatever API it came by, is a struct usage_request from its start to its end. The counts are in
 * memory (book.h), and changes of them are written to state.db every USAGE_STORE_MS and at a stop. So a server that is
 * killed loses what the last ten seconds have counted, and no more. Thread: the loop's. */
#pragma once
#include "server/usage/book.h"
#include "server/usage/energy.h"

enum { USAGE_STORE_MS = 10000 };

struct usage;
struct usage_params {
	struct net_loop *loop;
	struct store *store;
};
// Reads what is stored. Errors: the store's; STATUS_OUT_OF_MEMORY.
enum status usage_create(struct usage **out, const struct usage_params *params, struct error *error);
void usage_destroy(struct usage **usage); // hands the store what is not stored yet

struct usage_request;
struct usage_who { // copied
	const char *token_id, *token_name, *model_id, *model_name;
};
// NULL: there is no memory, and it is not counted. The others accept that.
struct usage_request *usage_begin(struct usage *usage, const struct usage_who *who);
// The device has computed for it for so many seconds more; what it drew for that is divided at its next reading.
void usage_spend(struct usage_request *request, const char *device_id, const char *device_name, double seconds);
// It has ended. It counts as one request, or as a part of another (`requests` 0), with the tokens that it computed or
// found in a cache. Leaves NULL behind, unless `settled` is still to be called: with the joules that it was given, once
// the devices have been read that computed for it (NaN: they report none). Without that, `settled` was called already.
struct usage_ended {
	int64_t requests, prompt_tokens, cached_tokens, completion_tokens;
	int64_t proposed_tokens, accepted_tokens;      // foreseen tokens that were computed; of these, that were chosen
	int64_t drafted_tokens, draft_accepted_tokens; // of these, those of a draft model
	void (*settled)(void *context, double joules); // NULL: nobody waits
	void *context;
};
void usage_end(struct usage_request **request, const struct usage_ended *ended);
void usage_drop(struct usage_request **request); // it was never one; or nobody waits any more
// Nodes have to read their devices every second, because somebody waits for joules; or not any more.
void usage_listen(struct usage *usage, void (*hurry)(void *context, bool wanted), void *context);

// A device was read.
void usage_read(struct usage *usage, const struct energy_reading *reading);
// Requests have computed so many seconds more (or fewer) on it that usage_spend has not told of.
void usage_unclaimed(struct usage *usage, const char *device_id, double seconds);

struct usage_asker {
	const char *token_id; // is told what this token used; NULL: everything
	bool no_ids;          // is told no ids of models: the keys are names
};
// The answer of usage.list; `params` is checked against schema/api.json. Errors: STATUS_INVALID_PARAMS,
// STATUS_OUT_OF_MEMORY.
enum status usage_list(const struct usage *usage, const struct json *params, const struct usage_asker *asker,
		       struct json **result, struct error *error);
// For /metrics: what was counted since the start.
void usage_totals(const struct usage *usage, enum book_kind kind,
		  void (*each)(void *context, const struct book_sum *total), void *context);
