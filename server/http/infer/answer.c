/* What a model says to a request, handed on in the words of its API: whole, or as it comes. What a slow client has not
 * taken gathers into fewer, larger events. */
#include "server/http/infer/inside.h"

#include <stdio.h>
#include <string.h>

enum { HELD_BACK_BYTES = 65536 }; // that wait for the socket: more gathers here

void answer_drop_choices(struct answer *answer)
{
	infer_let_go_of_choices(answer->infer, answer->held_choices);
	answer->held_choices = 0;
	json_destroy(&answer->choices);
}

void answer_keep_choices(struct answer *answer)
{
	struct answer *whole = answer_whole(answer);
	if (whole == answer)
		return;
	whole->held_choices += answer->held_choices;
	answer->held_choices = 0;
	json_destroy(&answer->choices);
}

void answer_give_up(struct answer *answer, enum status status, const char *why)
{
	struct error fault = {0};
	generation_cancel(&answer->generation);
	error_set(&fault, status, "%s", why);
	if (status == STATUS_RATE_LIMITED)
		error_hint(&fault, "ask again in a moment, for fewer top_logprobs, or with stream");
	answer_fail(answer, &fault, NULL);
}

void answer_started(void *context, uint64_t prompt_tokens)
{
	struct answer *answer = context;
	answer->prompt_tokens = prompt_tokens;
	if (!answer->streams && answer->echo && answer->logprobs >= 0 && prompt_tokens > LIMIT_ANSWER_CHOICES)
		answer_give_up(answer, STATUS_LIMIT_EXCEEDED,
			       "the prompt has too many tokens to be scored in one answer: ask with stream");
	if (!answer->streams)
		return;
	if (!answer_whole(answer)->begun)
		answer_begin_events(answer_whole(answer));
	answer->begun = true;
	answer->wording->begin(answer);
}

void answer_flush(struct answer *answer)
{
	if (answer->begun && (answer->choices || answer->text.length || said_anything(&answer->said)))
		answer->wording->tell(answer);
}

static uint64_t characters_of(const char *text)
{
	uint64_t count = 0;
	for (; *text; text++)
		count += (*text & 0xC0) != 0x80;
	return count;
}

// The last of the choices are those of the tokens; before them stand those of the prompt, with echo. False: there is no
// room for them.
static bool take_choices(struct answer *answer, const struct json *delta)
{
	const struct json *choices = json_get(delta, "choices");
	const size_t tokens = json_count(json_get(delta, "tokens")), count = json_count(choices);
	size_t at = 0, more = 0;
	for (const struct json *one = json_first(choices); one; one = json_next(one))
		more += 1 + json_count(json_get(one, "top"));
	if (!infer_hold_choices(answer->infer, more))
		return false;
	answer->held_choices += more;
	if (!answer->choices)
		answer->choices = json_new_array();
	for (const struct json *one = json_first(choices); one; one = json_next(one), at++) {
		struct json *copy = json_copy(one);
		if (at + tokens >= count)
			json_set_integer(copy, "offset", json_get_integer(one, "offset", 0) + (int64_t)answer->echoed);
		json_push(answer->choices, copy);
	}
	return true;
}

// All that is told of choices at once waits for the last of them. False: it is too long for one answer.
static bool fits_whole(struct answer *answer, size_t bytes)
{
	struct answer *whole = answer_whole(answer);
	if (answer->streams || whole == answer)
		return true;
	whole->several.bytes += bytes;
	return whole->several.bytes <= LIMIT_BODY_BYTES;
}

void answer_delta(void *context, const struct json *delta)
{
	struct answer *answer = context;
	const char *text = json_get_string(delta, "text", "");
	size_t before = answer->choices ? json_count(answer->choices) : 0;
	enum status status = STATUS_OK;
	if (json_get(delta, "syntax") && answer_talks(answer))
		status = said_begin(&answer->said, json_get(delta, "syntax"), answer->tools);
	if (!status)
		status = said_more(&answer->said, text);
	answer->generates |= json_count(json_get(delta, "tokens")) > 0;
	if (answer->echo && !answer->generates)
		answer->echoed += characters_of(text);
	if (!fits_whole(answer, strlen(text)))
		status = STATUS_LIMIT_EXCEEDED;
	if (answer->logprobs >= 0 && !take_choices(answer, delta))
		answer_give_up(answer, STATUS_RATE_LIMITED, "too many log-probabilities wait for their clients");
	else if (status || before > LIMIT_ANSWER_CHOICES)
		answer_give_up(answer, STATUS_LIMIT_EXCEEDED, "the answer is too long to wait for its client");
	else if (answer->begun && net_exchange_queued(answer->exchange) < HELD_BACK_BYTES)
		answer_flush(answer);
}

void answer_ended(void *context, enum status status, const struct json *end, const struct error *error)
{
	struct answer *answer = context;
	answer->generation = NULL;
	traced_ended(answer, end);
	if (status) {
		answer_flush(answer);
		answer_fail_model(answer, error);
		return;
	}
	const struct ending ending = {.cut = !strcmp(json_get_string(end, "reason", ""), "length"), .end = end};
	if (said_end(&answer->said, ending.cut)) {
		answer_give_up(answer, STATUS_LIMIT_EXCEEDED, "the answer is too long to wait for its client");
		return;
	}
	struct answer *whole = answer->begun ? answer_whole(answer) : NULL; // a whole answer may end it at once
	answer_flush(answer);
	answer->wording->end(answer, &ending);
	if (whole && !whole->several.left)
		answer_end(whole);
}

void answer_put_energy(struct json *usage, const struct json *end)
{
	const struct json *joules = json_get(end, "energy_joules");
	if (joules)
		json_set(usage, "energy_joules", json_copy(joules));
}

void answer_put_provenance(struct json *json, const struct json *end)
{
	const struct json *changes = json_get(end, "format_changes");
	if (changes)
		json_set(json, "format_changes", json_copy(changes));
	if (json_get(end, "prefill"))
		json_set(json, "prefill", json_copy(json_get(end, "prefill")));
}

void answer_put_foreseen(struct json *usage, const struct json *end, const char *unit)
{
	char name[48];
	const int64_t proposed = json_get_integer(end, "proposed_tokens", 0),
		      accepted = json_get_integer(end, "accepted_tokens", 0);
	if (!json_get(end, "proposed_tokens"))
		return;
	snprintf(name, sizeof name, "accepted_prediction_%s", unit);
	json_set_integer(usage, name, accepted);
	snprintf(name, sizeof name, "rejected_prediction_%s", unit);
	json_set_integer(usage, name, proposed > accepted ? proposed - accepted : 0);
	if (!json_get(end, "drafted_tokens"))
		return;
	snprintf(name, sizeof name, "drafted_%s", unit);
	json_set_integer(usage, name, json_get_integer(end, "drafted_tokens", 0));
	snprintf(name, sizeof name, "draft_accepted_%s", unit);
	json_set_integer(usage, name, json_get_integer(end, "draft_accepted_tokens", 0));
}
