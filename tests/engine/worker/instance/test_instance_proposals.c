/* Answers of a model instance's worker with tokens that their own text foresees. */
#include "tests/engine/worker/instance/instance_bench.h"

static void check_same_talk(const struct talk *talk, const struct talk *wanted)
{
	assert_int_equal(talk->status, STATUS_OK);
	assert_int_equal(talk->count, wanted->count);
	assert_memory_equal(talk->tokens, wanted->tokens, sizeof(talk->tokens));
	assert_string_equal(talk->text, wanted->text);
	assert_string_equal(talk->reason, wanted->reason);
	assert_string_equal(talk->stop, wanted->stop);
	assert_int_equal(talk->choices, wanted->choices);
	assert_int_equal(talk->generated_tokens, wanted->generated_tokens);
	assert_int_equal(talk->prompt_tokens, wanted->prompt_tokens);
}

// A stop string: some letters in the middle of an answer.
static void find_stop(const char *prompt, const char *more, char *out, size_t size)
{
	ask_text(4, prompt, more);
	wait_for_end(4);
	for (size_t i = talks[4].length / 2; i + 3 < talks[4].length; i++)
		if (isalnum(talks[4].text[i]) && isalnum(talks[4].text[i + 1]) && isalnum(talks[4].text[i + 2])) {
			snprintf(out, size, "'%.3s'", talks[4].text + i);
			return;
		}
}

// With rows for what its text foresees an answer is the same: greedy, sampled, with a form, with logprobs, up to a stop
// string, and one that goes on from each of its tokens. Its figures count what was told.
static void proposals_change_no_token(void **state)
{
	(void)state;
	static const char *const asked[] = {
		",'max_tokens':150,'ignore_end':true,'sampling':{'temperature':0}",
		",'max_tokens':149,'ignore_end':true,'sampling':{'temperature':0,'logprobs':true,'top_logprobs':2}",
		",'max_tokens':120,'ignore_end':true,'sampling':{'temperature':0.4,'seed':3}",
		",'max_tokens':120,'ignore_end':true,'sampling':{'temperature':0.2,'seed':4,'logit_bias':[{'token':40,'"
		"bias':9}]}",
		",'max_tokens':100,'form':{'kind':'regex','text':'(ab|ba|abc)*'},'sampling':{'temperature':0}",
		",'max_tokens':120,'ignore_end':true,'sampling':{'temperature':0}",
	};
	static const char prompt[] = "the rain in spain the rain in spain the rain in spain";
	static struct talk wanted;
	char more[1024], stop[64] = "'never this'";
	double proposed = 0, accepted = 0;
	start_with(NULL);
	load_well(64, 64, 4);
	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		snprintf(more, sizeof(more), "%s,'stop':[%s]", asked[i], stop);
		ask_text(1, prompt, more);
		wait_for_end(1);
		wanted = talks[1];
		snprintf(more + strlen(more), sizeof(more) - strlen(more), ",'speculate':true");
		ask_text(2, prompt, more);
		wait_for_end(2);
		proposed += talks[2].proposed_tokens;
		accepted += talks[2].accepted_tokens;
		check_same_talk(&talks[2], &wanted);
		assert_int_equal(talks[1].proposed_tokens, 0);
		for (size_t cut = 1; cut < wanted.count; cut += 37) {
			go_on(3, &wanted, cut, prompt, more);
			assert_int_equal(talks[3].count, wanted.count - cut);
			assert_memory_equal(talks[3].tokens, wanted.tokens + cut, talks[3].count * sizeof(uint32_t));
			assert_int_equal(talks[3].generated_tokens, wanted.generated_tokens);
		}
		if (i == 4) // for the last: what stands in the middle of the first answer
			find_stop(prompt, asked[0], stop, sizeof(stop));
	}
	print_message("%.0f tokens were proposed, %.0f accepted\n", proposed, accepted);
	for (int i = 0; i < 8; i++) { // at once, and one is cancelled on the way
		snprintf(more, sizeof(more), "%s,'speculate':true", asked[0]);
		ask_text(10 + i, prompt, more);
	}
	while (talks[10].count < 40)
		assert_true(pump());
	ASK("generate.cancel", "'request':10");
	for (int i = 0; i < 8; i++) {
		wait_for_end(10 + i);
		check_talk(&talks[10 + i], prompt);
		assert_int_equal(talks[10 + i].generated_tokens, talks[10 + i].count);
		assert_true(!i || talks[10 + i].count == 150);
	}
	end_well();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(proposals_change_no_token),
	};
	return cmocka_run_group_tests(tests, make_file, remove_file);
}
