/* The answers of a model instance's worker: texts, chats, forms, many at once, what goes on elsewhere, and
 * embeddings. */
#include "tests/engine/worker/instance/instance_bench.h"

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

static void set_pace(int percent)
{
	const unsigned before = (unsigned)paces;
	ASK("instance.pace", "'percent':%d", percent);
	while ((unsigned)paces == before)
		assert_true(pump());
	assert_int_equal(last_error.status, STATUS_OK);
}

// A pace is time between steps, and changes no token. At none nothing is computed, and a request can still be ended.
static void a_pace_changes_no_token(void **state)
{
	(void)state;
	static const char greedy[] = ",'max_tokens':40,'ignore_end':true,'sampling':{'temperature':0}";
	start_with(NULL);
	load_well(32, 64, 4);
	ask_text(1, "the rain in spain", greedy);
	wait_for_end(1);
	set_pace(0);
	ask_text(2, "the rain in spain", greedy);
	ask_text(3, "what is rain", greedy);
	for (int i = 0; i < 50; i++)
		set_pace(0); // an answer, so the orders before it were obeyed
	assert_true(talks[2].answered && talks[3].answered);
	assert_int_equal(talks[2].count + talks[3].count, 0);
	ASK("generate.cancel", "'request':3");
	while (!talks[3].ended)
		assert_true(pump());
	assert_int_equal(talks[2].count + talks[3].count, 0);
	set_pace(30);
	while (talks[2].count < 10)
		assert_true(pump());
	set_pace(0);
	set_pace(100);
	wait_for_end(2);
	assert_int_equal(talks[2].count, 40);
	assert_memory_equal(talks[2].tokens, talks[1].tokens, 40 * sizeof(uint32_t));
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(greedy_is_the_reference),
		cmocka_unit_test(a_chat_uses_the_template),
		cmocka_unit_test(a_pace_changes_no_token),
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
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}
