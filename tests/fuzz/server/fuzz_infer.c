/* Fuzz target: a request of /v1 or /api, and what a model's worker says to it.
 *
 * The first byte says of which endpoint: m and c are Anthropic's, r is /v1/responses, o, g, e, s and p are Ollama's,
 * others are OpenAI's. Then comes the body, up to a NUL; then, a line each, what generate.delta brings; a line that
 * begins with `!` is generate.end. A body that is taken becomes a call as the contract has it; what is answered is JSON
 * that reads back, and once the answer is over nothing is sent any more. */
#include "common/wire/contract.h"
#include "server/http/infer/inside.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHOICES = 64 }; // room for them: few, so that it is used up

static struct {
	struct contract *contract;
	struct answer *answer;
	bool over;
	unsigned sent;
	size_t choices; // that are held
} world;

static void require(bool condition)
{
	if (!condition)
		abort();
}

// ---- the connection, in place of infer.c and the network ----

void __wrap_answer_event(struct answer *answer, struct json *json);
void __wrap_answer_json(struct answer *answer, struct json *json);
void __wrap_answer_begin_events(struct answer *answer);
void __wrap_answer_fail(struct answer *answer, const struct error *error, const char *param);
void __wrap_answer_fail_model(struct answer *answer, const struct error *error);
void __wrap_generation_cancel(struct generation **generation);
size_t __wrap_net_exchange_queued(const struct net_exchange *exchange);
void __wrap_net_exchange_end(struct net_exchange *exchange);
bool __wrap_infer_hold_choices(struct infer *infer, size_t more);
void __wrap_infer_let_go_of_choices(struct infer *infer, size_t fewer);

static void check_sent(struct json *json)
{
	struct buffer text;
	struct json *again = NULL;
	require(!world.over);
	world.sent++;
	buffer_init(&text, LIMIT_BODY_BYTES);
	require(!json || (!json_print(json, &text) && !json_parse(&again, buffer_text(&text), text.length, NULL)));
	json_destroy(&again);
	json_destroy(&json);
	buffer_finish(&text);
}

void __wrap_answer_event(struct answer *answer, struct json *json)
{
	require(answer == world.answer && answer->begun);
	check_sent(json);
}

void __wrap_answer_json(struct answer *answer, struct json *json)
{
	require(answer == world.answer && !answer->begun);
	check_sent(json);
	world.over = true;
}

void __wrap_answer_begin_events(struct answer *answer)
{
	answer->begun = true;
}

void __wrap_answer_fail(struct answer *answer, const struct error *error, const char *param)
{
	(void)param;
	require(answer == world.answer && error->message[0] && !world.over);
	world.over = true;
}

void __wrap_answer_fail_model(struct answer *answer, const struct error *error)
{
	__wrap_answer_fail(answer, error, NULL);
}

void __wrap_generation_cancel(struct generation **generation)
{
	*generation = NULL;
}

size_t __wrap_net_exchange_queued(const struct net_exchange *exchange)
{
	(void)exchange;
	return world.sent % 3 ? 0 : 1 << 20; // full now and then
}

void __wrap_net_exchange_end(struct net_exchange *exchange)
{
	(void)exchange;
	world.over = true;
}

bool __wrap_infer_hold_choices(struct infer *infer, size_t more)
{
	(void)infer;
	if (world.choices + more > CHOICES)
		return false;
	world.choices += more;
	return true;
}

void __wrap_infer_let_go_of_choices(struct infer *infer, size_t fewer)
{
	(void)infer;
	require(fewer <= world.choices);
	world.choices -= fewer;
}

// ---- a request ----

// As server/instances/requests/requests.c sends it: as the contract has it, and in a message that can be read.
static void check_call(const struct json *call)
{
	const struct contract_method *method = contract_find(world.contract, "generate.start");
	struct json *params = json_copy(call), *message = json_new_object(), *read = NULL;
	struct error error = {0};
	struct buffer text;
	json_set_integer(params, "request", 1);
	json_set_integer(params, "owner", 1);
	require(!contract_check_params(world.contract, method, params, &error));
	json_set(message, "params", params);
	buffer_init(&text, LIMIT_BODY_BYTES);
	require(!json_print(message, &text) && !json_parse(&read, buffer_text(&text), text.length, &error));
	buffer_finish(&text);
	json_destroy(&message);
	json_destroy(&read);
}

static void read_body(struct answer *answer, const uint8_t *bytes, size_t length, bool *taken)
{
	struct infer_reading reading;
	char *body = malloc(length ? length : 1); // of just that length, so that reading past its end is seen
	require(body);
	if (length)
		memcpy(body, bytes, length);
	infer_read_body(answer, body, length, &reading);
	free(body);
	*taken = !reading.status;
	require(*taken == !reading.error.message[0]);
	require(!*taken || (answer->model[0] && !reading.call == answer_embeds(answer)));
	require(!*taken || !answer_embeds(answer) || json_count(answer->inputs));
	if (reading.call && !answer_serves(answer))
		check_call(reading.call);
	infer_reading_finish(&reading);
}

static void hear(struct answer *answer, const char *line, size_t length)
{
	const bool last = line[0] == '!';
	const struct contract_method *method = contract_find(world.contract, last ? "generate.end" : "generate.delta");
	struct json *params = NULL;
	if (!json_parse(&params, line + last, length - last, NULL) &&
	    !contract_check_params(world.contract, method, params, NULL)) {
		if (last)
			answer_ended(answer, STATUS_OK, params, NULL);
		else
			answer_delta(answer, params);
	}
	json_destroy(&params);
}

static enum endpoint endpoint_of(uint8_t byte)
{
	return byte == 'm'   ? ENDPOINT_MESSAGES
	       : byte == 'c' ? ENDPOINT_COUNT_TOKENS
	       : byte == 'r' ? ENDPOINT_RESPONSES
	       : byte == 'o' ? ENDPOINT_OLLAMA_CHAT
	       : byte == 'g' ? ENDPOINT_OLLAMA_GENERATE
	       : byte == 'e' ? ENDPOINT_OLLAMA_EMBED
	       : byte == 's' ? ENDPOINT_OLLAMA_SHOW
	       : byte == 'p' ? ENDPOINT_OLLAMA_PULL
			     : (enum endpoint)(ENDPOINT_CHAT + byte % 3);
}

static const struct wording *wording_of(uint8_t byte)
{
	return byte == 'm' || byte == 'c'      ? &anthropic_wording
	       : byte == 'r'                   ? &responses_wording
	       : byte && strchr("ogesp", byte) ? &ollama_wording
					       : &openai_wording;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	bool taken;
	if (!size)
		return 0;
	if (!world.contract)
		require(!contract_create(&world.contract, CONTRACT_NODE, NULL));
	struct answer answer = {.endpoint = endpoint_of(data[0]), .wording = wording_of(data[0]), .logprobs = -1};
	const uint8_t *body = data + 1, *end = memchr(body, 0, size - 1);
	const size_t length = end ? (size_t)(end - body) : size - 1;
	world.answer = &answer;
	world.over = false;
	world.sent = 0;
	buffer_init(&answer.text, 4096);
	said_init(&answer.said, &answer.text, false);
	read_body(&answer, body, length, &taken);
	answer.said.streams = answer.streams && !answer.wording->whole_calls;
	const bool comes = taken && !answer_embeds(&answer) && !answer.counts && !answer_serves(&answer);
	if (comes)
		answer_started(&answer, 1);
	for (size_t at = 1 + length + 1; comes && at < size && !world.over;) {
		end = memchr(data + at, '\n', size - at);
		const size_t line = end ? (size_t)(end - data) - at : size - at;
		if (line)
			hear(&answer, (const char *)data + at, line);
		at += line + 1;
	}
	answer_drop_choices(&answer);
	require(!world.choices);
	json_destroy(&answer.inputs);
	json_destroy(&answer.tools);
	json_destroy(&answer.sampling);
	said_finish(&answer.said);
	responses_finish(&answer);
	buffer_finish(&answer.text);
	return 0;
}
