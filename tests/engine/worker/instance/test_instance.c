/* A model instance's worker from outside: a small model on the processor, driven over its two sockets as the node and
 * the server do. Everything that it says is checked against the contract; every token against the model in double
 * precision. */
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
	double prompt_tokens, cached_tokens, generated_tokens;
} talks[TALKS];

static struct worker worker;
static struct model_file_open file;
static struct tokenizer *tokenizer;
static struct reference *reference;
static char path[64];
static int loads, progresses, states, embeds, cancels, adoptions;
static struct json *last_result;
static struct error last_error;
static const char *method_of[4096]; // by the number of the call

// ---- what the worker says ----

static void take_delta(struct talk *talk, const struct json *params)
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

static void take_end(struct talk *talk, const struct json *params)
{
	assert_false(talk->ended);
	talk->ended = true;
	snprintf(talk->reason, sizeof(talk->reason), "%s", json_get_string(params, "reason", ""));
	snprintf(talk->stop, sizeof(talk->stop), "%s", json_get_string(params, "stop", ""));
	snprintf(talk->error, sizeof(talk->error), "%s", json_get_string(params, "error", ""));
	talk->prompt_tokens = json_get_number(params, "prompt_tokens", -1);
	talk->cached_tokens = json_get_number(params, "cached_tokens", -1);
	talk->generated_tokens = json_get_number(params, "generated_tokens", -1);
}

static void take_notification(const struct message *message)
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

static void take_answer(const struct answer *answer)
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
	for (int i = 0; i < TALKS && !strcmp(method, "generate.start"); i++)
		if (talks[i].used && !talks[i].answered) {
			talks[i].answered = true; // they are answered in order
			talks[i].status = answer->status;
			break;
		}
}

// Take one message from the worker. False at the end of the stream.
static bool pump(void)
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

static void start_with(const char *fault)
{
	worker_start(&worker, fault);
	CALL_STATUS(&worker, worker.node, "worker.instance", STATUS_OK, "'backend':'cpu','cache_directory':null");
	memset(talks, 0, sizeof(talks));
	loads = progresses = states = embeds = cancels = adoptions = 0;
}

static enum status load(unsigned pages, unsigned rows, unsigned sequences, const char *more)
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

static void load_well(unsigned pages, unsigned rows, unsigned sequences)
{
	if (load(pages, rows, sequences, ""))
		fail_msg("%s", last_error.message);
}

// `more` begins with a comma.
static void ask_text(int number, const char *text, const char *more)
{
	talks[number] = (struct talk){.used = true};
	ASK("generate.start", "'request':%d,'owner':%d,'prompt':{'text':'%s'}%s", number, number % 5, text, more);
}

static void wait_for_end(int number)
{
	while (!talks[number].ended && !talks[number].status)
		assert_true(pump());
}

static void end_well(void)
{
	assert_int_equal(worker_end(&worker, NULL, 0), 0);
}

static size_t tokens_of(const char *text, uint32_t tokens[TOKENS_MOST])
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
static void check_tokens(const uint32_t *prompt, size_t prompt_count, const uint32_t *answer, size_t count)
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

static void check_talk(const struct talk *talk, const char *prompt)
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

// ---- tests ----

static void greedy_is_the_reference(void **state)
{
	(void)state;
	static struct talk first;
	start_with(NULL);
	load_well(32, 64, 4);
	assert_int_equal(json_get_integer(last_result, "vocabulary", 0), model_shape(file.model)->vocabulary);
	const struct json *memory = json_first(json_get(last_result, "memory"));
	assert_true(json_get_number(memory, "weights_bytes", 0) > 0 && json_get_number(memory, "kv_bytes", 0) > 0);
	for (int round = 0; round < 2; round++) {
		ask_text(4 + round * 4, "the rain in spain",
			 ",'max_tokens':60,'ignore_end':true,'sampling':{'temperature':0}");
		wait_for_end(4 + round * 4);
		const struct talk *talk = &talks[4 + round * 4];
		assert_string_equal(talk->reason, "length");
		assert_int_equal(talk->count, 60);
		assert_int_equal(talk->generated_tokens, 60);
		check_talk(talk, "the rain in spain");
		if (round)
			assert_memory_equal(talk->tokens, first.tokens, sizeof(first.tokens));
		first = *talk;
	}
	// Tokens and chat lead to the same as text does.
	uint32_t tokens[TOKENS_MOST];
	char list[2048] = "";
	size_t count = tokens_of("the rain in spain", tokens), length = 0;
	for (size_t i = 0; i < count; i++)
		length += (size_t)snprintf(list + length, sizeof(list) - length, "%s%u", i ? "," : "", tokens[i]);
	talks[1] = (struct talk){.used = true};
	ASK("generate.start",
	    "'request':1,'owner':0,'prompt':{'tokens':[%s]},'max_tokens':60,'ignore_end':true,"
	    "'sampling':{'temperature':0}",
	    list);
	wait_for_end(1);
	assert_memory_equal(talks[1].tokens, first.tokens, sizeof(first.tokens));
	end_well();
}

static void a_chat_uses_the_template(void **state)
{
	(void)state;
	struct token_list list = {0};
	struct error error = {0};
	const struct chat_message messages[] = {{.role = "system", .text = "be brief", .length = 8},
						{.role = "user", .text = "what is rain", .length = 12}};
	const struct conversation conversation = {.messages = messages, .count = 2};
	start_with(NULL);
	load_well(32, 64, 4);
	struct chat_template template;
	assert_int_equal(chat_template_of_file(file.gguf, &template, &error), STATUS_OK);
	assert_string_equal(json_get_string(last_result, "chat_template", ""), template.name);
	talks[1] = (struct talk){.used = true};
	ASK("generate.start", "'request':1,'owner':1,'prompt':{'messages':[{'role':'system','text':'be "
			      "brief'},{'role':'user','text':'what "
			      "is rain'}]},'max_tokens':20,'ignore_end':true,'sampling':{'temperature':0}");
	wait_for_end(1);
	assert_int_equal(chat_template_apply(&template, tokenizer, &conversation, &list, &error), STATUS_OK);
	chat_template_finish(&template);
	assert_int_equal(talks[1].prompt_tokens, list.count);
	check_tokens(list.tokens, list.count, talks[1].tokens, talks[1].count);
	token_list_finish(&list);
	end_well();
}

// Whole, and once more from each third token on, as after a loss: the same tokens, which keep to the form. A form that
// is whole ends the answer, though nothing else would. What is wrong with one is refused, and the worker goes on.
static void an_answer_keeps_to_its_form(void **state)
{
	(void)state;
	static const char form[] = ",'max_tokens':200,'sampling':{'temperature':0},'form':{'kind':'regex','text':"
				   "'(ab|[0-9]{2,3}-|é){12}'}";
	char more[2048], generated[1024];
	start_with(NULL);
	load_well(32, 64, 4);
	ask_text(1, "the rain in spain", form);
	wait_for_end(1);
	const struct talk *whole = &talks[1];
	assert_string_equal(whole->reason, "stop");
	assert_true(whole->count >= 12 && whole->length >= 24);
	for (size_t told = 1; told <= whole->count;
	     told += told < whole->count && told + 3 > whole->count ? whole->count - told : 3) {
		const int number = (int)(2 + told);
		size_t length = 0;
		for (size_t i = 0; i < told; i++)
			length += (size_t)snprintf(generated + length, sizeof(generated) - length, "%s%u", i ? "," : "",
						   whole->tokens[i]);
		snprintf(more, sizeof(more), "%s,'generated':[%s],'delivered_bytes':%zu", form, generated,
			 whole->lengths[told]);
		ask_text(number, "the rain in spain", more);
		wait_for_end(number);
		assert_int_equal(talks[number].status, STATUS_OK);
		assert_string_equal(talks[number].reason, "stop");
		assert_int_equal(talks[number].count, whole->count - told);
		assert_memory_equal(talks[number].tokens, whole->tokens + told, talks[number].count * sizeof(uint32_t));
		assert_string_equal(talks[number].text, whole->text + whole->lengths[told]);
	}
	ask_text(240, "x", ",'form':{'kind':'gbnf','text':'root ::= root'}");
	wait_for_end(240);
	assert_int_equal(talks[240].status, STATUS_INVALID_PARAMS);
	ask_text(241, "x", ",'form':{'kind':'regex','text':'a+'},'generated':[300,301]");
	wait_for_end(241);
	assert_int_equal(talks[241].status, STATUS_INVALID_PARAMS);
	ask_text(
		242, "x",
		",'max_tokens':5,'form':{'kind':'regex','text':'a{3}'},'sampling':{'temperature':2},'ignore_end':true");
	wait_for_end(242);
	assert_string_equal(talks[242].text, "aaa");
	assert_string_equal(talks[242].reason, "stop");
	end_well();
}

static void two_hundred_at_once(void **state)
{
	(void)state;
	char prompt[64];
	start_with(NULL);
	load_well(24, 32, 8);
	for (int i = 1; i <= 200; i++) {
		snprintf(prompt, sizeof(prompt), "number %d of all those who ask the same at once", i % 5);
		ask_text(i, prompt, ",'max_tokens':24,'ignore_end':true,'sampling':{'temperature':0}");
	}
	for (int i = 1; i <= 200; i++)
		wait_for_end(i);
	double cached = 0;
	for (int i = 1; i <= 200; i++) {
		snprintf(prompt, sizeof(prompt), "number %d of all those who ask the same at once", i % 5);
		assert_string_equal(talks[i].reason, "length");
		assert_int_equal(talks[i].count, 24);
		cached += talks[i].cached_tokens;
		if (i % 10 == 0)
			check_talk(&talks[i], prompt);
	}
	print_message("%.0f tokens of prompts were cached, %d states\n", cached, states);
	assert_true(cached > 0 && states > 0);
	end_well();
}

static void answers_end_as_asked(void **state)
{
	(void)state;
	char more[256], stop[8] = "";
	start_with(NULL);
	load_well(32, 64, 4);
	ask_text(5, "once upon a time", ",'max_tokens':80,'ignore_end':true,'sampling':{'temperature':0}");
	wait_for_end(5);
	// A piece of the text in the middle, of printable characters, is the stop string.
	const char *text = talks[5].text;
	size_t at = 0;
	for (size_t i = talks[5].length / 3; i + 3 < talks[5].length && !at; i++)
		if (text[i] > '@' && text[i] < 127 && text[i + 1] > '@' && text[i + 1] < 127 && text[i] != '\\' &&
		    text[i + 1] != '\\')
			at = i;
	assert_true(at > 0);
	memcpy(stop, text + at, 2);
	at = (size_t)(strstr(text, stop) - text);
	snprintf(more, sizeof(more),
		 ",'max_tokens':80,'ignore_end':true,'stop':['never this','%s'],'sampling':{'temperature':0}", stop);
	ask_text(10, "once upon a time", more);
	wait_for_end(10);
	assert_string_equal(talks[10].reason, "stop");
	assert_string_equal(talks[10].stop, stop);
	assert_int_equal(talks[10].length, at);
	assert_memory_equal(talks[10].text, text, at);
	// The rest of the context, where nothing else is said; with its prompt told back.
	ask_text(15, "once upon a time", ",'ignore_end':true,'echo':true,'sampling':{'temperature':0}");
	wait_for_end(15);
	assert_string_equal(talks[15].reason, "length");
	assert_int_equal(talks[15].prompt_tokens + talks[15].generated_tokens, CONTEXT);
	assert_memory_equal(talks[15].text, "once upon a time", 16);
	end_well();
}

static void sampled_by_seed(void **state)
{
	(void)state;
	static const char asked[] = ",'max_tokens':40,'ignore_end':true,'sampling':{'temperature':1.2,'seed':%d,"
				    "'top_k':50,'top_p':0.95,'min_p':0.01,'repetition_penalty':1.1,"
				    "'presence_penalty':0.1,'frequency_penalty':0.1,'logprobs':true,'top_logprobs':3,"
				    "'logit_bias':[{'token':5,'bias':-100}]}";
	char more[512];
	start_with(NULL);
	load_well(32, 64, 4);
	for (int i = 1; i <= 3; i++) {
		snprintf(more, sizeof(more), asked, i == 3 ? 9 : 8);
		ask_text(i, "a seed", more);
		wait_for_end(i);
		assert_int_equal(talks[i].count, 40);
		assert_int_equal(talks[i].choices, 40);
	}
	assert_memory_equal(talks[1].tokens, talks[2].tokens, sizeof(talks[1].tokens));
	assert_memory_not_equal(talks[1].tokens, talks[3].tokens, sizeof(talks[1].tokens));
	ask_text(4, "a seed", ",'max_tokens':20,'ignore_end':true"); // drawn by chance
	ask_text(5, "a seed", ",'max_tokens':20,'ignore_end':true");
	wait_for_end(4);
	wait_for_end(5);
	assert_memory_not_equal(talks[4].tokens, talks[5].tokens, sizeof(talks[1].tokens));
	end_well();
}

// The beginning of a request has been told elsewhere: `cut` tokens of `whole`.
static void go_on(int number, const struct talk *whole, size_t cut, const char *text, const char *more)
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

// Cut at every token: what comes then, behind what had come, is what would have come.
static void a_request_goes_on_elsewhere(void **state)
{
	(void)state;
	static const char *const asked[] = {
		",'max_tokens':40,'ignore_end':true,'sampling':{'temperature':0}",
		",'max_tokens':40,'ignore_end':true,'echo':true,'sampling':{'temperature':1.3,'seed':5,"
		"'repetition_penalty':1.2,'presence_penalty':0.5,'frequency_penalty':0.5}",
		",'max_tokens':40,'ignore_end':true,'sampling':{'temperature':1.3,'seed':5,"
		"'repetition_penalty':1.2,'presence_penalty':0.5,'frequency_penalty':0.5},'stop':[",
	};
	static struct talk whole;
	char more[1024], stops[512] = "'never this'";
	size_t wide = 0;
	start_with(NULL);
	load_well(64, 64, 4);
	for (size_t i = 0; i < 3; i++) {
		const bool stopped = i == 2;
		snprintf(more, sizeof(more), "%s%s%s", asked[i], stopped ? stops : "", stopped ? "]" : "");
		ask_text(1, "the rain", more);
		wait_for_end(1);
		whole = talks[1];
		assert_true(whole.count > 5);
		for (size_t cut = 0; cut <= whole.count; cut++) {
			go_on(2, &whole, cut, "the rain", more);
			const struct talk *rest = &talks[2];
			size_t told = whole.lengths[cut];
			if (rest->status)
				fail_msg("cut at %zu: %s", cut, last_error.message);
			assert_int_equal(rest->count, whole.count - cut);
			assert_memory_equal(rest->tokens, whole.tokens + cut, rest->count * sizeof(uint32_t));
			if (strcmp(rest->text, whole.text + told) != 0)
				fail_msg("cut at %zu: '%s' comes, not '%s'", cut, rest->text, whole.text + told);
			assert_string_equal(rest->reason, whole.reason);
			assert_string_equal(rest->stop, whole.stop);
			assert_int_equal(rest->generated_tokens, whole.generated_tokens);
		}
		for (size_t j = 0; j < whole.length; j++)
			wide += (unsigned char)whole.text[j] >= 0x80;
		// For the third: a stop string that is found, and others that some of the text may be the beginning of.
		size_t length = 0;
		bool found = false;
		for (size_t j = 8; j + 2 < whole.length && i == 1 && length < 400; j++) {
			char pair[3] = {whole.text[j], whole.text[j + 1], 0};
			bool late = j > whole.length / 2 && strstr(whole.text, pair) == whole.text + j && !found;
			if (!isalpha((unsigned char)pair[0]) || !isalpha((unsigned char)pair[1]))
				continue;
			length += (size_t)snprintf(stops + length, sizeof(stops) - length, "%s'%s%s'",
						   length ? "," : "", pair, late ? "" : "~never");
			found |= late;
			j += late ? 0 : whole.length / 16; // 16 strings at most
		}
		print_message("%zu tokens, ended by %s '%s'\n", whole.count, whole.reason, whole.stop);
	}
	print_message("%zu bytes of characters of several\n", wide);
	assert_true(wide > 0 && whole.stop[0]);
	whole.lengths[3] += 1000;
	go_on(2, &whole, 3, "the rain", more);
	assert_int_equal(talks[2].status, STATUS_INVALID_PARAMS);
	end_well();
}

static void pieces_of_prompts_take_a_second(void **state)
{
	(void)state;
	static const struct {
		double row_s;
		uint32_t most, rows;
	} cases[] = {{0, 512, 512},   {0.0005, 512, 512}, {0.0027, 512, 512}, {0.005, 512, 256}, {0.0037, 300, 300},
		     {0.04, 512, 32}, {0.05, 512, 16},    {3, 512, 16},       {3, 8, 8}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(instance_prompt_rows(cases[i].row_s, cases[i].most), cases[i].rows);
}

// Every batch that the stage has room for is timed when it is loaded, also where there are few pages, or sequences.
static void batches_are_timed(void **state)
{
	(void)state;
	static const struct {
		unsigned pages, rows, sequences, batches;
	} cases[] = {{64, 64, 64, 6}, {64, 64, 32, 5}, {64, 64, 4, 5}, {3, 64, 8, 5}, {1, 16, 1, 4}, {64, 1, 1, 0}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		start_with(NULL);
		load_well(cases[i].pages, cases[i].rows, cases[i].sequences);
		const struct json *times = json_first(json_get(last_result, "times"));
		const double one_s = json_get_number(times, "layers_s", 0);
		assert_true(one_s > 0 && json_get_number(times, "prompt_row_s", 0) > 0);
		assert_true(json_get_number(times, "output_s", -1) >= 0);
		assert_true(json_get_number(times, "spread", 1) >= 1); // not told of one run
		assert_int_equal(json_count(json_get(times, "batch_s")), cases[i].batches);
		print_message("%.1f us of a row; ", one_s * 1e6);
		for (const struct json *one = json_first(json_get(times, "batch_s")); one; one = json_next(one))
			print_message("%.2f ", json_number(one, 0) / one_s);
		print_message("times that\n");
		end_well();
	}
}

// What an owner's requests left is not found any more; what others' did is.
static void what_is_forgotten_is_computed_anew(void **state)
{
	(void)state;
	static const char
		*const long_one = "a text that is long enough to fill a page or two of tokens, all of which are kept "
				  "for the next one of its owner, who asks the same";
	start_with(NULL);
	load_well(64, 64, 4);
	assert_true(json_get_number(last_result, "prompt_row_s", 0) > 0);
	for (int i = 1; i <= 3; i++)
		for (int owner = 1; owner <= 2; owner++) {
			const int number = 5 * i + owner;
			if (i == 3 && owner == 1)
				ASK("generate.forget", "'owner':1");
			ask_text(number, long_one, ",'max_tokens':5,'ignore_end':true,'sampling':{'temperature':0}");
			wait_for_end(number);
			assert_int_equal(last_error.status, STATUS_OK);
			check_talk(&talks[number], long_one);
			if (i == 2 || (i == 3 && owner == 2))
				assert_true(talks[number].cached_tokens >= 32);
			else
				assert_true(talks[number].cached_tokens == 0);
		}
	end_well();
}

// It keeps what it has loaded, and nothing of what it was asked before; what belongs to a later server it does not
// obey.
static void another_server_takes_it_up(void **state)
{
	(void)state;
	static const char
		*const long_one = "a text that is long enough to fill a page or two of tokens, all of which are kept "
				  "for the next one of its owner, who asks the same";
	static const char *const greedy = ",'max_tokens':5,'ignore_end':true,'sampling':{'temperature':0}";
	start_with(NULL);
	ASK("instance.adopt", "'epoch':5");
	assert_true(pump());
	assert_int_equal(last_error.status, STATUS_CONFLICT); // nothing is loaded yet
	load_well(64, 64, 4);
	struct json *told = json_copy(last_result);
	for (int epoch = 5; epoch <= 7; epoch++) {
		ask_text(10 * epoch, long_one, greedy);
		wait_for_end(10 * epoch);
		assert_true(talks[10 * epoch].cached_tokens == 0);
		ask_text(10 * epoch + 1, long_one, ",'ignore_end':true"); // does not end before
		ask_text(10 * epoch + 2, "another", ",'ignore_end':true");
		ASK("generate.embed", "'request':%d,'owner':1,'prompt':{'text':'a'}", 10 * epoch + 3);
		while (!talks[10 * epoch + 1].deltas)
			assert_true(pump());
		const int adopted = adoptions;
		ASK("instance.adopt", "'epoch':%d", epoch);
		while (adoptions == adopted)
			assert_true(pump());
		assert_int_equal(last_error.status, STATUS_OK);
		assert_true(json_equal(last_result, told));
		assert_true(talks[10 * epoch + 1].ended && talks[10 * epoch + 2].ended); // before it was answered
	}
	const int before = adoptions;
	ASK("instance.adopt", "'epoch':6");
	while (adoptions == before)
		assert_true(pump());
	assert_int_equal(last_error.status, STATUS_CONFLICT);
	ask_text(100, long_one, greedy);
	wait_for_end(100);
	assert_true(talks[100].cached_tokens == 0);
	check_talk(&talks[100], long_one);
	json_destroy(&told);
	end_well();
}

static void cancelled_between_steps(void **state)
{
	(void)state;
	start_with(NULL);
	load_well(64, 64, 8);
	for (int i = 1; i <= 20; i++)
		ask_text(i, "to be cancelled", ",'ignore_end':true");
	while (!talks[1].deltas)
		assert_true(pump());
	for (int i = 1; i <= 20; i++)
		ASK("generate.cancel", "'request':%d", i);
	ASK("generate.cancel", "'request':200"); // none
	while (cancels < 21)
		assert_true(pump());
	for (int i = 1; i <= 20; i++) {
		assert_true(talks[i].ended); // before the answer to its cancellation
		assert_string_equal(talks[i].reason,
				    i == 1 && talks[i].generated_tokens > 200 ? talks[i].reason : "cancelled");
	}
	ask_text(30, "still well", ",'max_tokens':10,'ignore_end':true,'sampling':{'temperature':0}");
	wait_for_end(30);
	check_talk(&talks[30], "still well");
	end_well();
}

static void embeddings_have_length_one(void **state)
{
	(void)state;
	uint32_t tokens[TOKENS_MOST], embedding = model_shape(file.model)->embedding;
	struct reference_result result;
	double mean[4096] = {0}, square = 0, worst = 0;
	start_with(NULL);
	load_well(32, 16, 4);
	ASK("generate.embed", "'request':1,'owner':1,'prompt':{'text':'the meaning of a longer text, of some tokens'}");
	while (!embeds)
		assert_true(pump());
	assert_int_equal(last_error.status, STATUS_OK);
	size_t count = tokens_of("the meaning of a longer text, of some tokens", tokens), i = 0;
	assert_int_equal(json_get_integer(last_result, "prompt_tokens", 0), count);
	const struct reference_run run = {.tokens = tokens, .count = (uint32_t)count};
	reference_run(reference, &run, &result);
	for (size_t row = 0; row < count; row++)
		for (uint32_t j = 0; j < embedding; j++)
			mean[j] += result.hidden[row * embedding + j];
	for (uint32_t j = 0; j < embedding; j++)
		square += mean[j] * mean[j];
	for (const struct json *one = json_first(json_get(last_result, "embedding")); one; one = json_next(one), i++) {
		double wrong = fabs(json_number(one, 9) - mean[i] / sqrt(square));
		worst = wrong > worst ? wrong : worst;
	}
	print_message("the largest error of a value is %g\n", worst);
	assert_int_equal(i, embedding);
	assert_true(worst < 2e-3);
	reference_result_finish(&result);
	end_well();
}

// It waits behind more than can be done in the time that its end takes.
static void an_embedding_is_cancelled(void **state)
{
	(void)state;
	start_with(NULL);
	load_well(32, 16, 1);
	for (int i = 1; i <= 10; i++) {
		talks[i] = (struct talk){.used = true};
		ASK("generate.start", "'request':%d,'owner':1,'prompt':{'text':'the rain'},'ignore_end':true", i);
	}
	ASK("generate.embed", "'request':20,'owner':1,'prompt':{'text':'the rain in spain'}");
	ASK("generate.cancel", "'request':20");
	while (!embeds)
		assert_true(pump());
	assert_int_equal(last_error.status, STATUS_UNAVAILABLE);
	assert_non_null(strstr(last_error.message, "cancelled"));
	while (!cancels)
		assert_true(pump());
	assert_int_equal(last_error.status, STATUS_OK);
	for (int i = 1; i <= 10; i++)
		ASK("generate.cancel", "'request':%d", i);
	for (int i = 1; i <= 10; i++)
		wait_for_end(i);
	assert_int_equal(embeds, 1);
	end_well();
}

static void ask_by_body(const char *method, const char *params, const char *body, size_t body_bytes)
{
	method_of[post(&worker, worker.server, method, body, body_bytes, "%s", params) % 4096] = method;
}

static void check_refused(enum status status, const char *says)
{
	last_error = (struct error){0};
	while (!last_error.status)
		assert_true(pump());
	if (last_error.status != status || !strstr(last_error.message, says))
		fail_msg("%s: %s, not %s: %s", status_word(last_error.status), last_error.message, status_word(status),
			 says);
}

// The node was told that what is long may keep a ping waiting, and of nothing before it.
static void check_busy(int64_t ms)
{
	struct answer answer;
	struct error error = {0};
	assert_true(receive_answer(worker.node, &answer));
	const struct message *told = &answer.message;
	assert_int_equal(told->kind, MESSAGE_NOTIFICATION);
	assert_string_equal(told->method, "worker.busy");
	if (contract_check_params(contract, contract_find(contract, told->method), told->params, &error))
		fail_msg("%s", error.message);
	assert_true(json_get_integer(told->params, "ms", 0) >= ms);
	answer_finish(&answer);
	CALL_STATUS(&worker, worker.node, "worker.ping", STATUS_OK, "%s", "");
}

// Params that a head has no room for.
static void long_params_are_the_body(void **state)
{
	(void)state;
	enum { LONG_BYTES = 2 * 1024 * 1024 };
	static const char begin[] = "{\"request\":3,\"owner\":1,\"prompt\":{\"text\":\"", end[] = "\"}}",
			  whole[] = "{\"request\":2,\"owner\":1,\"prompt\":{\"text\":\"the rain\"},\"max_tokens\":20,"
				    "\"ignore_end\":true,\"sampling\":{\"temperature\":0}}";
	char *text = malloc(sizeof(begin) + LONG_BYTES + sizeof(end));
	assert_non_null(text);
	start_with(NULL);
	load_well(32, 16, 4);
	ask_text(1, "the rain", ",'max_tokens':20,'ignore_end':true,'sampling':{'temperature':0}");
	wait_for_end(1);
	talks[2] = (struct talk){.used = true};
	ask_by_body("generate.start", "", whole, strlen(whole));
	wait_for_end(2);
	assert_int_equal(talks[2].count, 20);
	assert_memory_equal(talks[1].tokens, talks[2].tokens, 20 * sizeof(talks[1].tokens[0]));
	memcpy(text, begin, strlen(begin));
	memset(text + strlen(begin), 'q', LONG_BYTES - 1000);
	memcpy(text + strlen(begin) + LONG_BYTES - 1000, end, sizeof(end));
	ask_by_body("generate.start", "", text, strlen(text));
	check_refused(STATUS_LIMIT_EXCEEDED, "1048592 tokens");
	check_busy(LONG_BYTES / 1000);
	ask_by_body("generate.start", "", "[]", 2);
	check_refused(STATUS_INVALID_PARAMS, "a body is an object");
	ask_by_body("generate.start", "'request':5", whole, strlen(whole));
	check_refused(STATUS_INVALID_PARAMS, "all of the params");
	ask_by_body("generate.start", "", whole, strlen(whole) - 1);
	check_refused(STATUS_PARSE_ERROR, "");
	ask_by_body("generate.start", "", "{\"request\":0}", 13);
	check_refused(STATUS_INVALID_PARAMS, "");
	ask_by_body("generate.cancel", "'request':1", "{}", 2);
	check_refused(STATUS_INVALID_PARAMS, "takes no body");
	free(text);
	end_well();
}

static void wrong_calls_are_answered(void **state)
{
	(void)state;
	static const struct {
		const char *method, *params, *says;
		enum status status;
	} calls[] = {
		{"generate.start", "'request':1,'owner':1,'prompt':{}", "one of them", STATUS_INVALID_PARAMS},
		{"generate.start", "'request':1,'owner':1,'prompt':{'text':'a','tokens':[1]}", "one of them",
		 STATUS_INVALID_PARAMS},
		{"generate.start", "'request':1,'owner':1,'prompt':{'tokens':[]}", "empty", STATUS_INVALID_PARAMS},
		{"generate.start", "'request':1,'owner':1,'prompt':{'tokens':[99999]}", "vocabulary",
		 STATUS_INVALID_PARAMS},
		{"generate.start", "'request':1,'owner':1,'prompt':{'messages':[{'role':'king','text':'a'}]}", "role",
		 STATUS_INVALID_PARAMS},
		{"generate.start", "'request':0,'owner':1,'prompt':{'text':'a'}", "request", STATUS_INVALID_PARAMS},
		{"generate.start", "'request':1,'owner':1,'prompt':{'text':'a'},'sampling':{'temperature':3}",
		 "temperature", STATUS_INVALID_PARAMS},
		{"generate.start", "'request':1,'owner':1,'prompt':{'text':'a'},'stop':['']", "stop",
		 STATUS_INVALID_PARAMS},
		{"instance.load",
		 "'stages':[{'hardware_key':'cpu','first_layer':0,'layer_count':2,'host_layers':0}],'context_tokens':"
		 "64,"
		 "'page_count':8,'batch_rows':8,'sequences':2",
		 "already", STATUS_CONFLICT},
		{"memory.free", "'handle':1", "memory.free", STATUS_METHOD_NOT_FOUND},
		{"generate.dance", "", "generate.dance", STATUS_METHOD_NOT_FOUND},
	};
	char text[3000];
	start_with(NULL);
	ASK("generate.start", "'request':1,'owner':1,'prompt':{'text':'too early'}");
	assert_true(pump());
	assert_int_equal(last_error.status, STATUS_CONFLICT);
	load_well(16, 16, 2);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		ASK(calls[i].method, "%s", calls[i].params);
		last_error = (struct error){0};
		while (!last_error.status)
			assert_true(pump());
		if (last_error.status != calls[i].status || !strstr(last_error.message, calls[i].says))
			fail_msg("%s {%s}: %s: %s", calls[i].method, calls[i].params, status_word(last_error.status),
				 last_error.message);
	}
	memset(text, 'q', sizeof(text));
	text[sizeof(text) - 1] = 0;
	ASK("generate.start", "'request':1,'owner':1,'prompt':{'text':'%s'}", text);
	last_error = (struct error){0};
	while (!last_error.status)
		assert_true(pump());
	assert_int_equal(last_error.status, STATUS_LIMIT_EXCEEDED);
	print_message("%s\n", last_error.message);
	assert_non_null(strstr(last_error.message, "256")); // and how many it has
	// The node's side: a ping, and nothing else.
	CALL_STATUS(&worker, worker.node, "worker.ping", STATUS_OK, "%s", "");
	CALL_STATUS(&worker, worker.node, "worker.device", STATUS_METHOD_NOT_FOUND, "'device':0,'hardware_key':'cpu'");
	CALL_STATUS(&worker, worker.node, "worker.open", STATUS_METHOD_NOT_FOUND,
		    "'backend':'cpu','cache_directory':null");
	end_well();
}

static void a_load_that_fails_may_be_tried_again(void **state)
{
	(void)state;
	static const char stage[] =
		"'stages':[{'hardware_key':'%s','first_layer':%d,'layer_count':%d,'host_layers':0}],"
		"'context_tokens':%d,'page_count':%u,'batch_rows':%d,'sequences':%d";
	static const struct {
		const char *key;
		int first, count, context, rows, sequences;
		enum status status;
	} wrong[] = {
		{"gpu", 0, 2, 64, 16, 4, STATUS_NOT_FOUND},       {"cpu", 0, 1, 64, 16, 4, STATUS_INVALID_PARAMS},
		{"cpu", 1, 1, 64, 16, 4, STATUS_INVALID_PARAMS},  {"cpu", 0, 3, 64, 16, 4, STATUS_INVALID_PARAMS},
		{"cpu", 0, 2, 257, 16, 4, STATUS_INVALID_PARAMS}, {"cpu", 0, 2, 0, 16, 4, STATUS_INVALID_PARAMS},
		{"cpu", 0, 2, 64, 4, 8, STATUS_INVALID_PARAMS},   {"cpu", 0, 2, 64, 5000, 8, STATUS_INVALID_PARAMS},
	};
	start_with(NULL);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		int before = loads;
		ASK("instance.load", stage, wrong[i].key, wrong[i].first, wrong[i].count, wrong[i].context, 8u,
		    wrong[i].rows, wrong[i].sequences);
		while (loads == before)
			assert_true(pump());
		if (last_error.status != wrong[i].status)
			fail_msg("%zu: %s: %s", i, status_word(last_error.status), last_error.message);
	}
	// In two stages, and in another format.
	ASK("instance.load",
	    "'stages':[{'hardware_key':'cpu','first_layer':0,'layer_count':1,'host_layers':0},"
	    "{'hardware_key':'cpu','first_layer':1,'layer_count':1,'host_layers':0}],'context_tokens':%d,"
	    "'page_count':16,'batch_rows':16,'sequences':4",
	    CONTEXT);
	int before = loads;
	while (loads == before)
		assert_true(pump());
	assert_int_equal(last_error.status, STATUS_OK);
	ask_text(7, "in two parts", ",'max_tokens':30,'ignore_end':true,'sampling':{'temperature':0}");
	wait_for_end(7);
	check_talk(&talks[7], "in two parts");
	end_well();
}

// A stage in slices is one to everybody else; slices that are not all there, or not alike, are refused.
static void slices_are_one_stage(void **state)
{
	(void)state;
#define SLICE(layers, slice) \
	"{'hardware_key':'cpu','first_layer':0,'layer_count':" layers ",'host_layers':0,'slices':2,'slice':" slice "}"
	static const char *const wrong[] = {SLICE("2", "0"), SLICE("2", "1"), SLICE("2", "0") "," SLICE("2", "0"),
					    SLICE("2", "0") "," SLICE("1", "1")};
	start_with(NULL);
	for (size_t i = 0; i <= sizeof(wrong) / sizeof(wrong[0]); i++) {
		const bool right = i == sizeof(wrong) / sizeof(wrong[0]);
		int before = loads;
		ASK("instance.load", "'stages':[%s],'context_tokens':%d,'page_count':16,'batch_rows':16,'sequences':4",
		    right ? SLICE("2", "0") "," SLICE("2", "1") : wrong[i], CONTEXT);
		while (loads == before)
			assert_true(pump());
		if (last_error.status != (right ? STATUS_OK : STATUS_INVALID_PARAMS))
			fail_msg("%zu: %s: %s", i, status_word(last_error.status), last_error.message);
	}
#undef SLICE
	assert_int_equal(json_count(json_get(last_result, "memory")), 2);
	ask_text(7, "in two slices", ",'max_tokens':30,'ignore_end':true,'sampling':{'temperature':0}");
	wait_for_end(7);
	check_talk(&talks[7], "in two slices");
	end_well();
}

// What is no message is answered if it is framed as one, and else the end.
static void noise_is_survived_or_the_end(void **state)
{
	(void)state;
	static const char *const heads[] = {"",
					    "x",
					    "{}",
					    "[]",
					    "{\"jsonrpc\":\"2.0\"}",
					    "\xff\xfe",
					    "null",
					    "{\"jsonrpc\":\"2.0\",\"method\":\"generate.start\",\"params\":{}}",
					    "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"};
	const uint8_t lengths[][8] = {{3, 0, 0, 0}, {255, 255, 255, 255, 0, 0, 0, 0}, {8, 0, 0, 0, 255, 255, 0, 0}};
	start_with(NULL);
	load_well(16, 16, 2);
	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		struct buffer out;
		buffer_init(&out, 4096);
		message_encode_stream(&out, heads[i], strlen(heads[i]), NULL, 0);
		send_bytes(worker.server, out.data, out.length);
		buffer_finish(&out);
		last_error = (struct error){0};
		while (!last_error.status)
			assert_true(pump());
	}
	ask_text(1, "after the noise", ",'max_tokens':5,'ignore_end':true,'sampling':{'temperature':0}");
	wait_for_end(1);
	check_talk(&talks[1], "after the noise");
	end_well();
	for (size_t i = 0; i < 2; i++) {
		char said[1024];
		start_with(NULL);
		send_bytes(worker.server, lengths[i], 8);
		assert_false(pump());
		assert_int_equal(worker_end(&worker, said, sizeof(said)), 1);
	}
}

static void a_ping_is_answered_in_a_long_step(void **state)
{
	(void)state;
	start_with("step-hang:cpu");
	load_well(16, 16, 2);
	ask_text(1, "for ever", "");
	while (!talks[1].answered)
		assert_true(pump());
	struct answer answer;
	double oldest = 0;
	for (int i = 0; i < 1000 && oldest < 50; i++) {
		int id = post(&worker, worker.node, "worker.ping", NULL, 0, "%s", "");
		expect(worker.node, &answer, id, "worker.ping", STATUS_OK);
		oldest = json_get_number(answer.message.result, "oldest_ms", 0);
		answer_finish(&answer);
		usleep(5000);
	}
	assert_true(oldest >= 50);
	end_well();
}

static void a_lost_device_ends_the_worker_only(void **state)
{
	(void)state;
	char said[4096];
	start_with("step-lost:cpu");
	load_well(16, 16, 2);
	for (int i = 1; i <= 5; i++)
		ask_text(i, "never", "");
	while (pump())
		;
	for (int i = 1; i <= 5; i++)
		assert_false(talks[i].ended); // they go on elsewhere
	const int end = worker_end(&worker, said, sizeof(said));
	if (end != WORKER_DEVICE_LOST)
		fail_msg("it ends with %d and says %s", end, said);
	assert_null(strstr(said, "never")); // nothing of a prompt
}

// Nothing is read for a while: the worker waits, answers its node, and goes on where it was.
static void a_server_that_does_not_read(void **state)
{
	(void)state;
	int small = 4096;
	start_with(NULL);
	load_well(64, 64, 8);
	setsockopt(worker.server, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	for (int i = 1; i <= 100; i++)
		ask_text(i, "much to say",
			 ",'ignore_end':true,'max_tokens':200,'sampling':{'temperature':0,'logprobs':true,"
			 "'top_logprobs':20}");
	for (int i = 0; i < 100; i++) {
		CALL_STATUS(&worker, worker.node, "worker.ping", STATUS_OK, "%s", "");
		usleep(20000);
	}
	for (int i = 1; i <= 100; i++)
		wait_for_end(i);
	for (int i = 1; i <= 100; i++) {
		assert_int_equal(talks[i].count, 200);
		assert_int_equal(talks[i].choices, 200);
	}
	check_talk(&talks[100], "much to say");
	end_well();
}

static void a_file_that_is_cut_off(void **state)
{
	(void)state;
	struct model_file small = model_file_small();
	char other[] = "/tmp/exogpu-cut-XXXXXX";
	int fd = mkstemp(other), kept = worker_model;
	assert_true(fd >= 0 && model_file_save(&small, other));
	worker_model = open(other, O_RDONLY | O_CLOEXEC);
	start_with(NULL);
	assert_int_equal(truncate(other, 5000), 0);
	assert_int_equal(load(16, 16, 2, ""), STATUS_INVALID_PARAMS);
	print_message("%s\n", last_error.message);
	end_well();
	close(fd);
	close(worker_model);
	unlink(other);
	worker_model = kept;
}

static void without_its_file(void **state)
{
	(void)state;
	int kept = worker_model;
	worker_model = -1;
	worker_start(&worker, NULL);
	CALL_STATUS(&worker, worker.node, "worker.instance", STATUS_INVALID_REQUEST,
		    "'backend':'cpu','cache_directory':null");
	worker_end(&worker, NULL, 0);
	worker_model = kept;
}

static int make_file(void **state)
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

static int remove_file(void **state)
{
	json_destroy(&last_result);
	reference_destroy(&reference);
	tokenizer_destroy(&tokenizer);
	model_file_close(&file);
	close(worker_model);
	unlink(path);
	return drop_contract(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(greedy_is_the_reference),
		cmocka_unit_test(a_chat_uses_the_template),
		cmocka_unit_test(an_answer_keeps_to_its_form),
		cmocka_unit_test(two_hundred_at_once),
		cmocka_unit_test(answers_end_as_asked),
		cmocka_unit_test(sampled_by_seed),
		cmocka_unit_test(a_request_goes_on_elsewhere),
		cmocka_unit_test(pieces_of_prompts_take_a_second),
		cmocka_unit_test(batches_are_timed),
		cmocka_unit_test(what_is_forgotten_is_computed_anew),
		cmocka_unit_test(another_server_takes_it_up),
		cmocka_unit_test(cancelled_between_steps),
		cmocka_unit_test(embeddings_have_length_one),
		cmocka_unit_test(an_embedding_is_cancelled),
		cmocka_unit_test(long_params_are_the_body),
		cmocka_unit_test(wrong_calls_are_answered),
		cmocka_unit_test(a_load_that_fails_may_be_tried_again),
		cmocka_unit_test(slices_are_one_stage),
		cmocka_unit_test(noise_is_survived_or_the_end),
		cmocka_unit_test(a_ping_is_answered_in_a_long_step),
		cmocka_unit_test(a_lost_device_ends_the_worker_only),
		cmocka_unit_test(a_server_that_does_not_read),
		cmocka_unit_test(a_file_that_is_cut_off),
		cmocka_unit_test(without_its_file),
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}
