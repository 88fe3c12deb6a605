/* A model instance's worker from outside, for the suites that look at it: a small model on the processor, driven over
 * its two sockets as the node and the server do. Everything that it says is checked against the contract; every token
 * against the model in double precision. */
#pragma once
#include "engine/text/chat.h"
#include "engine/worker/instance/instance_measure.h"
#include "engine/worker/worker.h"
#include "tests/engine/model/reference.h"
#include "tests/engine/worker/worker_test.h"
#include "tests/tools/model_file.h"

#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>

enum { TALKS = 256, TOKENS_MOST = 512, TEXT_MOST = 4096, CONTEXT = 256 };

// One request, as the server sees it.
static struct talk {
	bool used, answered, ended;
	enum status status;
	uint32_t tokens[TOKENS_MOST];
	size_t count;
	char text[TEXT_MOST];
	size_t length, deltas, choices;
	size_t lengths[TOKENS_MOST + 1]; // of the text, once so many tokens had been told
	char reason[16], stop[64], error[512];
	double prompt_tokens, cached_tokens, generated_tokens, given_tokens, proposed_tokens, accepted_tokens;
} talks[TALKS];

static struct worker worker;
static struct model_file_open file;
static struct tokenizer *tokenizer;
static struct reference *reference;
static char path[64];
static int loads, progresses, states, embeds, cancels, adoptions, paces;
static struct json *last_result;
static struct error last_error;
static const char *method_of[4096]; // by the number of the call

// ---- what the worker says ----

static inline void take_delta(struct talk *talk, const struct json *params)
{
	const char *text = json_get_string(params, "text", "");
	assert_false(talk->ended);
	talk->deltas++;
	talk->choices += json_count(json_get(params, "choices"));
	assert_true(talk->length + strlen(text) < TEXT_MOST);
	memcpy(talk->text + talk->length, text, strlen(text) + 1);
	talk->length += strlen(text);
	for (const struct json *one = json_first(json_get(params, "tokens")); one; one = json_next(one)) {
		assert_true(talk->count < TOKENS_MOST);
		talk->tokens[talk->count++] = (uint32_t)json_number(one, 0);
	}
	talk->lengths[talk->count] = talk->length;
}

static inline void take_end(struct talk *talk, const struct json *params)
{
	assert_false(talk->ended);
	talk->ended = true;
	snprintf(talk->reason, sizeof(talk->reason), "%s", json_get_string(params, "reason", ""));
	snprintf(talk->stop, sizeof(talk->stop), "%s", json_get_string(params, "stop", ""));
	snprintf(talk->error, sizeof(talk->error), "%s", json_get_string(params, "error", ""));
	talk->prompt_tokens = json_get_number(params, "prompt_tokens", -1);
	talk->cached_tokens = json_get_number(params, "cached_tokens", -1);
	talk->generated_tokens = json_get_number(params, "generated_tokens", -1);
	talk->given_tokens = json_get_number(params, "given_tokens", -1);
	talk->proposed_tokens = json_get_number(params, "proposed_tokens", 0);
	talk->accepted_tokens = json_get_number(params, "accepted_tokens", 0);
}

static inline void take_notification(const struct message *message)
{
	struct error error = {0};
	const struct contract_method *method = contract_find(contract, message->method);
	assert_non_null(method);
	if (contract_check_params(contract, method, message->params, &error))
		fail_msg("%s: %s", message->method, error.message);
	int64_t number = json_get_integer(message->params, "request", 0);
	assert_true(number >= 0 && number < TALKS);
	progresses += !strcmp(message->method, "instance.progress");
	states += !strcmp(message->method, "instance.state");
	if (!strcmp(message->method, "generate.delta"))
		take_delta(&talks[number], message->params);
	if (!strcmp(message->method, "generate.end"))
		take_end(&talks[number], message->params);
}

static inline void take_answer(const struct answer *answer)
{
	struct error error = {0};
	int64_t id = json_get_integer(answer->message.head, "id", 0);
	json_destroy(&last_result);
	last_error = (struct error){0};
	if (answer->message.kind == MESSAGE_ERROR)
		message_read_error(&answer->message, &last_error);
	else
		last_result = json_copy(answer->message.result);
	const char *method = id > 0 ? method_of[id % 4096] : NULL;
	if (!method)
		return;
	if (!answer->status && contract_check_result(contract, contract_find(contract, method), last_result, &error))
		fail_msg("%s: %s", method, error.message);
	loads += !strcmp(method, "instance.load");
	embeds += !strcmp(method, "generate.embed");
	cancels += !strcmp(method, "generate.cancel");
	adoptions += !strcmp(method, "instance.adopt");
	paces += !strcmp(method, "instance.pace");
	for (int i = 0; i < TALKS && !strcmp(method, "generate.start"); i++)
		if (talks[i].used && !talks[i].answered) {
			talks[i].answered = true; // they are answered in order
			talks[i].status = answer->status;
			break;
		}
}

// Take one message from the worker. False at the end of the stream.
static inline bool pump(void)
{
	struct answer answer;
	bool come = receive_answer(worker.server, &answer);
	if (come && (answer.message.kind == MESSAGE_NOTIFICATION))
		take_notification(&answer.message);
	else if (come)
		take_answer(&answer);
	answer_finish(&answer);
	return come;
}

// ---- what is asked of it ----

#define ASK(method, ...) method_of[(post(&worker, worker.server, method, NULL, 0, __VA_ARGS__)) % 4096] = (method)

static inline void start_with(const char *fault)
{
	worker_start(&worker, fault);
	CALL_STATUS(&worker, worker.node, "worker.instance", STATUS_OK, "'backend':'cpu','cache_directory':null");
	memset(talks, 0, sizeof(talks));
	loads = progresses = states = embeds = cancels = adoptions = 0;
}

static inline enum status load(unsigned pages, unsigned rows, unsigned sequences, const char *more)
{
	int before = loads;
	ASK("instance.load",
	    "'stages':[{'hardware_key':'cpu','first_layer':0,'layer_count':2,'host_layers':0}],'context_tokens':%d,"
	    "'page_count':%u,'batch_rows':%u,'sequences':%u%s",
	    CONTEXT, pages, rows, sequences, more);
	while (loads == before)
		assert_true(pump());
	return last_error.status;
}

static inline void load_well(unsigned pages, unsigned rows, unsigned sequences)
{
	if (load(pages, rows, sequences, ""))
		fail_msg("%s", last_error.message);
}

// `more` begins with a comma.
static inline void ask_text(int number, const char *text, const char *more)
{
	talks[number] = (struct talk){.used = true};
	ASK("generate.start", "'request':%d,'owner':%d,'prompt':{'text':'%s'}%s", number, number % 5, text, more);
}

static inline void wait_for_end(int number)
{
	while (!talks[number].ended && !talks[number].status)
		assert_true(pump());
}

// The beginning of a request has been told elsewhere: `cut` tokens of `whole`.
static inline void go_on(int number, const struct talk *whole, size_t cut, const char *text, const char *more)
{
	char list[3072] = "";
	size_t length = 0;
	for (size_t i = 0; i < cut; i++)
		length += (size_t)snprintf(list + length, sizeof(list) - length, "%s%u", i ? "," : "",
					   whole->tokens[i]);
	talks[number] = (struct talk){.used = true};
	ASK("generate.start", "'request':%d,'owner':%d,'prompt':{'text':'%s'},'generated':[%s],'delivered_bytes':%zu%s",
	    number, number % 5, text, list, whole->lengths[cut], more);
	wait_for_end(number);
}

static inline void end_well(void)
{
	assert_int_equal(worker_end(&worker, NULL, 0), 0);
}

static inline size_t tokens_of(const char *text, uint32_t tokens[TOKENS_MOST])
{
	struct token_list list = {0};
	struct error error = {0};
	const struct tokenize_params params = {.text = text, .length = strlen(text), .special = true, .begin = true};
	assert_int_equal(tokenize(tokenizer, &params, &list, &error), STATUS_OK);
	assert_true(list.count < TOKENS_MOST);
	memcpy(tokens, list.tokens, list.count * sizeof(uint32_t));
	size_t count = list.count;
	token_list_finish(&list);
	return count;
}

// Each token is the likeliest after all before it, but for rounding. (An answer that ended of itself has one more.)
static inline void check_tokens(const uint32_t *prompt, size_t prompt_count, const uint32_t *answer, size_t count)
{
	uint32_t tokens[2 * TOKENS_MOST];
	uint32_t vocabulary = model_shape(file.model)->vocabulary;
	struct reference_result result;
	memcpy(tokens, prompt, prompt_count * sizeof(uint32_t));
	memcpy(tokens + prompt_count, answer, count * sizeof(uint32_t));
	const struct reference_run run = {.tokens = tokens, .count = (uint32_t)(prompt_count + count)};
	reference_run(reference, &run, &result);
	for (size_t i = 0; i < count; i++) {
		const double *logits = &result.logits[(prompt_count + i - 1) * vocabulary];
		double largest = logits[0], least = logits[0];
		for (uint32_t j = 1; j < vocabulary; j++) {
			largest = logits[j] > largest ? logits[j] : largest;
			least = logits[j] < least ? logits[j] : least;
		}
		if (logits[answer[i]] < largest - 0.01 * (largest - least))
			fail_msg("token %zu of the answer has logit %f, the likeliest %f", i, logits[answer[i]],
				 largest);
	}
	reference_result_finish(&result);
}

static inline void check_talk(const struct talk *talk, const char *prompt)
{
	uint32_t tokens[TOKENS_MOST];
	struct detokenizer detokenizer;
	struct buffer text;
	size_t count = tokens_of(prompt, tokens);
	assert_int_equal(talk->status, STATUS_OK);
	assert_int_equal(talk->prompt_tokens, count);
	check_tokens(tokens, count, talk->tokens, talk->count);
	// The text is that of the tokens; a byte of zero, which no message can hold, is told as an unknown character.
	detokenizer_init(&detokenizer, tokenizer);
	detokenizer.begun = true;
	buffer_init(&text, TEXT_MOST);
	for (size_t i = 0; i < talk->count; i++)
		assert_int_equal(detokenizer_add(&detokenizer, talk->tokens[i], &text), STATUS_OK);
	assert_int_equal(detokenizer_end(&detokenizer, &text), STATUS_OK);
	for (size_t i = 0, at = 0; i < text.length; i++) {
		const char *wanted = text.data[i] ? (char[]){(char)text.data[i], 0} : "\xEF\xBF\xBD";
		assert_true(!strncmp(talk->text + at, wanted, strlen(wanted)));
		at += strlen(wanted);
	}
	buffer_finish(&text);
}

static inline int make_file(void **state)
{
	struct model_file small = model_file_small();
	small.feed_forward = 192; // can be cut in two
	struct error error = {0};
	snprintf(path, sizeof(path), "/tmp/exogpu-model-XXXXXX");
	int fd = mkstemp(path);
	if (load_contract(state) || fd < 0 || !model_file_save(&small, path))
		return 1;
	close(fd);
	worker_model = open(path, O_RDONLY | O_CLOEXEC);
	model_file_open(&file, &small);
	reference = reference_create(file.model);
	return worker_model < 0 || tokenizer_create(&tokenizer, file.gguf, &error);
}

static inline int remove_file(void **state)
{
	json_destroy(&last_result);
	reference_destroy(&reference);
	tokenizer_destroy(&tokenizer);
	model_file_close(&file);
	close(worker_model);
	unlink(path);
	return drop_contract(state);
}
