/* See question.h. */
#include "server/instances/decide/question.h"

#include "common/base/limits.h"

enum { LINE_SHARE = 3 }; // a token's requests are at most so many times the places that are left

struct asking {
	const struct question_seen *seen;
	int64_t now_ms;
	struct question_decision *out;
	struct error *error;
};

static bool take(struct asking *at, enum question_action action)
{
	at->out->action = action;
	return true;
}

static bool is_answering(const struct question_instance *one)
{
	return one->holds_model && !one->draining && one->instance_state == INSTANCE_RUNNING;
}

static bool is_waited_for(const struct question_instance *one)
{
	return one->holds_model && one->instance_state == INSTANCE_PAUSED && one->requests_wait;
}

static bool is_coming_up(const struct question_instance *one)
{
	return one->holds_model &&
	       (one->instance_state == INSTANCE_STARTING || one->instance_state == INSTANCE_LOADING);
}

static bool is_paused(const struct question_instance *one)
{
	return one->instance_state == INSTANCE_PAUSED;
}

static bool is_draining(const struct question_instance *one)
{
	return one->holds_model && one->draining && one->instance_state == INSTANCE_RUNNING;
}

static bool is_leaving(const struct question_instance *one)
{
	return is_draining(one) && !one->stays;
}

static bool has_failed(const struct question_instance *one)
{
	return one->instance_state == INSTANCE_FAILED;
}

typedef bool instance_test(const struct question_instance *one);

// The first instance for which the test is true; NULL: there is none.
static const struct question_instance *first_of(const struct question_seen *seen, instance_test *test)
{
	for (unsigned i = 0; i < seen->count; i++)
		if (test(&seen->instances[i]))
			return &seen->instances[i];
	return NULL;
}

// How long one more request would take on it, with the requests that it has: they share it. Without rates all count as
// equally fast.
static double load_of(const struct question_instance *one, bool by_rate)
{
	return (one->request_count + 1) / (by_rate ? one->rate : 1);
}

// Whether the rates of all of these are known, and differ by more than measurements do.
static bool are_unlike(const struct question_seen *seen, instance_test *test)
{
	double least = 0, most = 0;
	for (unsigned i = 0; i < seen->count; i++) {
		const struct question_instance *one = &seen->instances[i];
		if (!test(one))
			continue;
		if (!(one->rate > 0))
			return false;
		least = least > 0 && least < one->rate ? least : one->rate;
		most = most > one->rate ? most : one->rate;
	}
	return most > least * QUESTION_UNLIKE_TIMES;
}

// The request joins the one of these that has the least to do for its speed. False: there are none.
static bool join_least_busy(struct asking *at, instance_test *test)
{
	const struct question_seen *seen = at->seen;
	const struct question_instance *best = NULL;
	const bool by_rate = are_unlike(seen, test);
	for (unsigned i = 0; i < seen->count; i++) {
		const struct question_instance *one = &seen->instances[i];
		if (test(one) && (!best || load_of(one, by_rate) < load_of(best, by_rate)))
			best = one;
	}
	if (!best)
		return false;
	at->out->instance = (unsigned)(best - seen->instances);
	return take(at, QUESTION_JOINS);
}

// Why an instance is as it is, for who asks.
static const char *reason_for(const struct asking *at, const struct question_instance *one)
{
	return at->seen->sees_why ? one->reason : "an admin can see why";
}

// ---- the rules ----

static bool joins_running(struct asking *at)
{
	return join_least_busy(at, is_answering);
}

// It answers until it moves, and there the request goes on.
static bool joins_leaving(struct asking *at)
{
	return join_least_busy(at, is_leaving);
}

static bool joins_paused(struct asking *at)
{
	return join_least_busy(at, is_waited_for);
}

static bool server_ends(struct asking *at)
{
	if (!at->seen->ending)
		return false;
	error_set(at->error, STATUS_UNAVAILABLE, "the server restarts");
	error_hint(at->error, "try again in a few seconds");
	return take(at, QUESTION_REFUSED);
}

static bool refuses_paused(struct asking *at)
{
	const struct question_instance *paused = first_of(at->seen, is_paused);
	if (!paused)
		return false;
	error_set(at->error, STATUS_UNAVAILABLE, "the model %.128s is paused: %.200s", at->seen->model_name,
		  reason_for(at, paused));
	error_hint(at->error, "try again later: it continues by itself once there is room for it");
	return take(at, QUESTION_REFUSED);
}

static bool loads_for_requests(const struct question_seen *seen)
{
	return seen->loads && seen->ready && !first_of(seen, is_draining);
}

static bool joins_loading(struct asking *at)
{
	const struct question_instance *one = first_of(at->seen, is_coming_up);
	if (!one || !loads_for_requests(at->seen))
		return false;
	at->out->instance = (unsigned)(one - at->seen->instances);
	return take(at, QUESTION_JOINS);
}

static bool refuses_loading(struct asking *at)
{
	if (!first_of(at->seen, is_coming_up))
		return false;
	error_set(at->error, STATUS_UNAVAILABLE, "the model %.128s is being loaded", at->seen->model_name);
	error_hint(at->error, "try again in a few seconds");
	return take(at, QUESTION_REFUSED);
}

static bool refuses_unloaded(struct asking *at)
{
	const struct question_seen *seen = at->seen;
	const struct question_instance *failed = NULL;
	if (loads_for_requests(seen))
		return false;
	for (unsigned i = 0; i < seen->count; i++) // what failed last
		failed = has_failed(&seen->instances[i]) ? &seen->instances[i] : failed;
	if (first_of(seen, is_draining))
		error_set(at->error, STATUS_UNAVAILABLE, "the device that has the model %.128s is draining",
			  seen->model_name);
	else if (failed)
		error_set(at->error, STATUS_UNAVAILABLE, "the model %.128s is not loaded: %.200s", seen->model_name,
			  reason_for(at, failed));
	else
		error_set(at->error, STATUS_UNAVAILABLE, "the model %.128s is not loaded", seen->model_name);
	error_hint(at->error,
		   "an admin can load it: exogpu place %.100s; with exogpu serve --load-on-demand requests load it",
		   seen->model_name);
	return take(at, QUESTION_REFUSED);
}

static bool waits_for_begun(struct asking *at)
{
	return at->seen->begun && take(at, QUESTION_WAITS);
}

static bool refuses_after(struct asking *at, const struct question_instance *failed)
{
	return error_set(at->error, STATUS_UNAVAILABLE, "the model %.100s could not be loaded: %.240s",
			 at->seen->model_name, reason_for(at, failed)) &&
	       take(at, QUESTION_REFUSED);
}

// A new load replaces the failed instances. An instance that an admin placed with particular settings is not given up
// for a request.
static bool keeps_particular(struct asking *at)
{
	for (unsigned i = 0; i < at->seen->count; i++) {
		const struct question_instance *one = &at->seen->instances[i];
		if (!has_failed(one) || !one->particular)
			continue;
		error_hint(at->error,
			   "it was placed by an admin, who can see it, and place it again: exogpu instances, "
			   "exogpu place %.100s",
			   at->seen->model_name);
		return refuses_after(at, one);
	}
	return false;
}

// Clients repeat a request at once: each would start the load that has just failed.
static bool failed_just_now(struct asking *at)
{
	for (unsigned i = 0; i < at->seen->count; i++) {
		const struct question_instance *one = &at->seen->instances[i];
		if (at->seen->admin || !has_failed(one) || !one->failed_ms ||
		    at->now_ms >= one->failed_ms + QUESTION_AGAIN_MS)
			continue;
		error_hint(at->error, "requests load it again after %d s; an admin can now: exogpu place %.100s",
			   QUESTION_AGAIN_MS / 1000, at->seen->model_name);
		return refuses_after(at, one);
	}
	return false;
}

static bool fits_nowhere(struct asking *at)
{
	const struct question_seen *seen = at->seen;
	const bool stands = seen->nowhere &&
			    (seen->nowhere_proven || at->now_ms < seen->nowhere_ms + QUESTION_AGAIN_MS);
	if (!stands || seen->room == ROOM_MORE)
		return false;
	if (seen->room == ROOM_NOT_LOOKED)
		return take(at, QUESTION_LOOKS);
	if (seen->sees_why)
		*at->error = *seen->nowhere;
	else
		error_set(at->error, seen->nowhere->status,
			  "there is no room for the model %.128s; an admin can see why", seen->model_name);
	return take(at, QUESTION_REFUSED);
}

static bool loads(struct asking *at)
{
	return take(at, QUESTION_LOADS);
}

// The first rule that applies decides.
static const struct rule {
	const char *name;
	bool (*decides)(struct asking *at); // false: it does not apply
} rules[] = {
	{"an instance runs", joins_running},
	{"an instance leaves its device", joins_leaving},
	{"requests wait for a paused instance", joins_paused},
	{"the server ends", server_ends},
	{"an instance is paused", refuses_paused},
	{"an instance is coming up", joins_loading},
	{"an instance is coming up, and requests may not wait for it", refuses_loading},
	{"requests may not load it", refuses_unloaded},
	{"an earlier request loads it", waits_for_begun},
	{"an admin's instance has failed", keeps_particular},
	{"a load has just failed", failed_just_now},
	{"it fits nowhere", fits_nowhere},
	{"it is loaded", loads},
};

void question_decide(struct question_decision *out, const struct question_seen *seen, int64_t now_ms,
		     struct error *error)
{
	struct asking at = {.seen = seen, .now_ms = now_ms, .out = out, .error = error};
	size_t i = 0;
	do
		*out = (struct question_decision){.rule = rules[i].name};
	while (!rules[i++].decides(&at)); // the last one always applies
}

const char *question_rule_name(unsigned index)
{
	return index < sizeof rules / sizeof *rules ? rules[index].name : NULL;
}

// ---- the line ----

// A prompt that is longer than the context is refused before it is copied; the worker counts what a text makes.
static enum status check_length(const struct question_line *line, struct error *error)
{
	if (line->given_tokens > line->context_tokens)
		return error_set(error, STATUS_LIMIT_EXCEEDED, "the prompt has %zu tokens; the context has room for %u",
				 line->given_tokens, line->context_tokens);
	if ((int64_t)line->given_tokens > line->line_tokens_most)
		return error_set(error, STATUS_LIMIT_EXCEEDED,
				 "the prompt has %zu tokens; prompts that wait for a model have %lld at most, together",
				 line->given_tokens, (long long)line->line_tokens_most);
	return STATUS_OK;
}

enum status question_admit(const struct question_line *line, struct error *error)
{
	const enum status status = check_length(line, error);
	if (status)
		return status;
	if (line->request_count >= LIMIT_REQUESTS_OF_INSTANCE)
		error_set(error, STATUS_RATE_LIMITED, "%u requests already wait for this model", line->request_count);
	else if (line->own_count >= LINE_SHARE * (LIMIT_REQUESTS_OF_INSTANCE - line->request_count))
		error_set(error, STATUS_RATE_LIMITED,
			  "%u requests of this token wait for this model already: what is left of %d places is for "
			  "others",
			  line->own_count, LIMIT_REQUESTS_OF_INSTANCE);
	else if (line->given_tokens && (int64_t)(line->line_tokens + line->given_tokens) > line->line_tokens_most)
		error_set(error, STATUS_RATE_LIMITED,
			  "prompts of %zu tokens wait for this model already; with these %zu they would be more than "
			  "%lld",
			  line->line_tokens, line->given_tokens, (long long)line->line_tokens_most);
	else
		return STATUS_OK;
	error_hint(error, "try again in a few seconds");
	return STATUS_RATE_LIMITED;
}
