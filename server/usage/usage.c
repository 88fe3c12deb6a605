/* See usage.h. */
#include "server/usage/usage.h"

#include "common/base/clock.h"
#include "common/base/limits.h"
#include "common/base/list.h"
#include "common/base/log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STORED_AT_ONCE = 4096 };

struct usage {
	struct usage_params params;
	struct book *book;
	struct energy *energy;
	struct usage_request *requests; // those that have ended, too, while their energy is not known
	unsigned waiting;               // of these, that somebody waits for
	void (*hurry)(void *context, bool wanted);
	void *hurry_context;
	struct net_timer timer;
	bool storing, failing; // a batch is on its way; the last one failed
};

struct usage_request {
	struct energy_owner owner; // first member: an owner is its request
	struct usage_request *next, **link;
	struct usage *usage;
	bool over;
	void (*settled)(void *context, double joules); // NULL: nobody waits
	void *context;
	struct book_key key;
	uint32_t devices[LIMIT_INSTANCE_STAGES]; // (device_count), that have computed for it
	unsigned device_count;
};

// ---- storing ----

static void stored(void *context, enum status status, const struct error *error)
{
	struct usage *usage = context;
	usage->storing = false;
	book_put_ended(usage->book, !status);
	if (status && !usage->failing)
		log_warning("usage", "what requests used could not be stored, and is tried again: %s", error->message);
	usage->failing = status;
}

// Nothing is stored where nothing has changed.
static void store_changes(struct usage *usage)
{
	size_t count = 0;
	struct store_batch *batch = NULL;
	if (usage->storing || store_batch_create(&batch))
		return;
	if (book_put(usage->book, batch, STORED_AT_ONCE, &count) || !count) {
		store_batch_destroy(&batch);
		return;
	}
	usage->storing = !store_commit(usage->params.store, &batch, stored, usage);
	if (!usage->storing)
		book_put_ended(usage->book, false);
}

static void tick(void *context)
{
	struct usage *usage = context;
	energy_sweep(usage->energy, clock_steady_ms());
	store_changes(usage);
	net_timer_start(usage->params.loop, &usage->timer, USAGE_STORE_MS, tick, usage);
}

// ---- energy ----

static int64_t now_s(void)
{
	return clock_wall_ms() / 1000;
}

static void given(void *context, const struct energy_given *given)
{
	struct usage *usage = context;
	struct usage_request *request = (struct usage_request *)given->owner;
	struct book_key key = {.of = {0}};
	if (request)
		key = request->key;
	key.of[BOOK_DEVICE] = book_name(usage->book, BOOK_DEVICE, given->device_id, given->device_name);
	book_add(usage->book, now_s(), &key,
		 &(struct store_counts){.energy_joules = given->joules,
					.idle_joules = given->idle_joules,
					.energy_source = given->source});
}

static void request_free(struct usage_request *request)
{
	energy_leave(request->usage->energy, &request->owner);
	LIST_REMOVE(request, link);
	free(request);
}

static void wait(struct usage *usage, int more)
{
	const bool before = usage->waiting;
	usage->waiting += (unsigned)more;
	if (usage->hurry && before != (usage->waiting > 0))
		usage->hurry(usage->hurry_context, usage->waiting > 0);
}

static void settled(void *context, struct energy_owner *owner)
{
	(void)context;
	struct usage_request *request = (struct usage_request *)owner;
	if (!request->over)
		return;
	void (*told)(void *, double) = request->settled;
	void *told_context = request->context;
	const double joules = owner->source == STORE_ENERGY_NONE ? NAN : owner->joules;
	if (told)
		wait(request->usage, -1);
	request_free(request);
	if (told)
		told(told_context, joules);
}

void usage_listen(struct usage *usage, void (*hurry)(void *context, bool wanted), void *context)
{
	usage->hurry = hurry;
	usage->hurry_context = context;
}

void usage_read(struct usage *usage, const struct energy_reading *reading)
{
	energy_read(usage->energy, reading);
}

void usage_unclaimed(struct usage *usage, const char *device_id, double seconds)
{
	if (usage)
		energy_unclaimed(usage->energy, device_id, seconds);
}

// ---- life ----

static void load(void *context, const struct store_usage *row)
{
	const struct usage *usage = context;
	book_load(usage->book, row);
}

enum status usage_create(struct usage **out, const struct usage_params *params, struct error *error)
{
	struct usage *usage = *out = calloc(1, sizeof(*usage));
	if (!usage)
		return error_set(error, STATUS_OUT_OF_MEMORY, "no memory for usage");
	usage->params = *params;
	enum status status = book_create(&usage->book);
	if (!status)
		status = energy_create(&usage->energy, &(struct energy_params){given, settled, usage});
	if (status)
		error_set(error, status, "no memory for usage");
	if (!status)
		status = store_load_usage(params->store, load, usage, error);
	if (status)
		usage_destroy(out);
	else
		net_timer_start(params->loop, &usage->timer, USAGE_STORE_MS, tick, usage);
	return status;
}

void usage_destroy(struct usage **pointer)
{
	struct usage *usage = *pointer;
	if (!usage)
		return;
	*pointer = NULL;
	net_timer_stop(usage->params.loop, &usage->timer);
	if (usage->storing) // whether it arrives is not told any more
		book_put_ended(usage->book, false);
	usage->storing = false;
	if (usage->book)
		store_changes(usage);
	while (usage->requests)
		request_free(usage->requests);
	energy_destroy(&usage->energy);
	book_destroy(&usage->book);
	free(usage);
}

// ---- counting ----

struct usage_request *usage_begin(struct usage *usage, const struct usage_who *who)
{
	struct usage_request *request = usage ? calloc(1, sizeof(*request)) : NULL;
	if (!request)
		return NULL;
	request->usage = usage;
	LIST_PUSH(&usage->requests, request, link);
	request->key.of[BOOK_TOKEN] = book_name(usage->book, BOOK_TOKEN, who->token_id, who->token_name);
	request->key.of[BOOK_MODEL] = book_name(usage->book, BOOK_MODEL, who->model_id, who->model_name);
	return request;
}

static bool remember(struct usage_request *request, uint32_t device)
{
	for (unsigned i = 0; i < request->device_count; i++)
		if (request->devices[i] == device)
			return true;
	if (!device || request->device_count == LIMIT_INSTANCE_STAGES)
		return false;
	request->devices[request->device_count++] = device;
	return true;
}

void usage_spend(struct usage_request *request, const char *device_id, const char *device_name, double seconds)
{
	if (!request || !(seconds > 0) || !isfinite(seconds))
		return;
	struct book_key key = request->key;
	key.of[BOOK_DEVICE] = book_name(request->usage->book, BOOK_DEVICE, device_id, device_name);
	if (!remember(request, key.of[BOOK_DEVICE]))
		return;
	book_add(request->usage->book, now_s(), &key, &(struct store_counts){.device_s = seconds});
	energy_share(request->usage->energy, &request->owner, device_id, seconds);
}

void usage_end(struct usage_request **pointer, const struct usage_ended *ended)
{
	struct usage_request *request = *pointer;
	if (!request && ended->settled)
		ended->settled(ended->context, NAN);
	if (!request)
		return;
	const struct store_counts counts = {.requests = ended->requests,
					    .prompt_tokens = ended->prompt_tokens,
					    .cached_tokens = ended->cached_tokens,
					    .completion_tokens = ended->completion_tokens,
					    .proposed_tokens = ended->proposed_tokens,
					    .accepted_tokens = ended->accepted_tokens,
					    .drafted_tokens = ended->drafted_tokens,
					    .draft_accepted_tokens = ended->draft_accepted_tokens};
	struct book_key key = request->key;
	book_add(request->usage->book, now_s(), &key, &counts);
	for (unsigned i = 0; i < request->device_count; i++) {
		key.of[BOOK_DEVICE] = request->devices[i];
		book_add(request->usage->book, now_s(), &key, &counts);
	}
	request->over = true;
	request->settled = ended->settled;
	request->context = ended->context;
	if (ended->settled)
		wait(request->usage, 1);
	if (!request->owner.shares || !ended->settled)
		*pointer = NULL;
	if (!request->owner.shares)
		settled(request->usage, &request->owner);
}

void usage_drop(struct usage_request **pointer)
{
	struct usage_request *request = *pointer;
	*pointer = NULL;
	if (!request)
		return;
	if (request->settled)
		wait(request->usage, -1);
	request->settled = NULL;
	if (!request->over) // else it is still given what it used
		request_free(request);
}

// ---- lists ----

struct listing {
	struct json *rows;
	bool named; // the keys are names
};

static void add_row(void *context, const struct book_sum *sum)
{
	char at[CLOCK_TEXT_BYTES];
	static const char *const sources[] = {
		[STORE_ENERGY_INTEGRATED] = "integrated", [STORE_ENERGY_COUNTER] = "counter"};
	const struct listing *listing = context;
	struct json *row = json_new_object();
	const struct store_counts *counts = &sum->counts;
	const bool known = counts->energy_source == STORE_ENERGY_INTEGRATED ||
			   counts->energy_source == STORE_ENERGY_COUNTER;
	json_set_string(row, "key", listing->named && sum->name[0] ? sum->name : sum->id);
	json_set_string(row, "name", sum->name);
	json_set_string(row, "at", clock_format(sum->at_s * 1000, at));
	json_set_integer(row, "requests", counts->requests);
	json_set_integer(row, "prompt_tokens", counts->prompt_tokens);
	json_set_integer(row, "cached_tokens", counts->cached_tokens);
	json_set_integer(row, "completion_tokens", counts->completion_tokens);
	json_set_number(row, "device_s", counts->device_s);
	json_set_number(row, "energy_joules", known ? counts->energy_joules : NAN);
	json_set_number(row, "idle_joules", known ? counts->idle_joules : NAN);
	json_set_string(row, "energy_source", known ? sources[counts->energy_source] : NULL);
	json_push(listing->rows, row);
}

static enum status read_time(const struct json *params, const char *name, int64_t otherwise_s, int64_t *out_s,
			     struct error *error)
{
	int64_t ms;
	const char *text = json_get_string(params, name, NULL);
	*out_s = otherwise_s;
	if (!text)
		return STATUS_OK;
	if (clock_parse(text, &ms))
		return error_set(error, STATUS_INVALID_PARAMS, "%s must be a time such as 2026-11-20T14:31:52.000Z",
				 name);
	*out_s = ms / 1000;
	return STATUS_OK;
}

enum status usage_list(const struct usage *usage, const struct json *params, const struct usage_asker *asker,
		       struct json **result, struct error *error)
{
	static const char *const kinds[] = {"token", "model", "device"};
	const int64_t now = now_s();
	const char *by = json_get_string(params, "by", "");
	struct book_query query = {.step_s = json_get_integer(params, "step_s", 0), .token_id = asker->token_id};
	while (query.by < BOOK_DEVICE && strcmp(kinds[query.by], by) != 0)
		query.by++;
	enum status status = read_time(params, "to", now + 1, &query.to_s, error);
	if (!status)
		status = read_time(params, "from", query.to_s - BOOK_DAY_S, &query.from_s, error);
	if (!status && query.from_s >= query.to_s)
		status = error_set(error, STATUS_INVALID_PARAMS, "from must be before to");
	if (status)
		return status;
	int64_t step_s;
	struct listing listing = {.rows = json_new_array(), .named = asker->no_ids && query.by == BOOK_MODEL};
	if (book_sum(usage->book, &query, add_row, &listing, &step_s)) {
		json_destroy(&listing.rows);
		return error_set(error, STATUS_OUT_OF_MEMORY, "the server is out of memory");
	}
	*result = json_new_object();
	json_set(*result, "rows", listing.rows);
	return STATUS_OK;
}

void usage_totals(const struct usage *usage, enum book_kind kind,
		  void (*each)(void *context, const struct book_sum *total), void *context)
{
	book_totals(usage->book, kind, each, context);
}
